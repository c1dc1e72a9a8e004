//! A client: takes locks, waits, sleeps, renews, releases or does not release, and dies. Its own seed decides
//! everything.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::asking::{Asking, SLICE};
use crate::counter::Counter;
use crate::history::{Call, Kind, Op, Outcome, Tie};
use crate::latches::Latches;
use crate::route::Route;

/// The habits of clients: percentages of their sessions.
#[derive(Debug, Clone)]
pub struct Habits {
    /// Leases, in milliseconds.
    pub lease: Range<u32>,
    /// `BLOCK`, in milliseconds.
    pub wait: Range<u32>,
    /// Sends no `BLOCK`.
    pub tries: u8,
    /// Waits without limit.
    pub patient: u8,
    /// Sleeps 0.5 to 3 leases under the lock, then continues as if it had not.
    pub sleeps: u8,
    /// Does not release: the lease ends.
    pub forgets: u8,
    /// Closes its connection while it waits or holds.
    pub dies: u8,
    /// Closes its connection if no reply comes for this many milliseconds after its `BLOCK`.
    pub gives_up: Option<u64>,
    /// Stops waiting without closing its connection, and sends the request again through another.
    pub hurries: u8,
    /// The pause of a client of short holds between two batches, in milliseconds.
    pub rests: u64,
    /// The mean pause of the other clients between two sessions, in milliseconds: bounds the rate of requests.
    pub pace: u64,
    /// The resource kind of the key of this number.
    pub family: fn(u32) -> Family,
    /// Binds its hold to its connection.
    pub sessions: u8,
    /// The server's `lock.session-lease`.
    pub session_lease: u32,
    /// Tickets for several locks at once.
    pub many_tickets: u8,
}

/// The resource kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Lock,
    ReadWrite,
    /// A semaphore with this number of permits.
    Semaphore(u32),
}

impl Family {
    /// The kind of a request for such a key: two of three for a read-write lock are to read.
    pub fn kind(self, rng: &mut fastrand::Rng) -> Kind {
        match self {
            Family::Lock => Kind::Exclusive,
            Family::ReadWrite if rng.u8(..100) < 65 => Kind::Read,
            Family::ReadWrite => Kind::Write,
            Family::Semaphore(permits) => Kind::Permit(permits),
        }
    }
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            lease: 5..500,
            wait: 1..500,
            tries: 20,
            patient: 15,
            sleeps: 3,
            forgets: 5,
            dies: 3,
            gives_up: None,
            hurries: 4,
            rests: 2,
            pace: 0,
            family: |_| Family::Lock,
            sessions: 0,
            session_lease: 10_000,
            many_tickets: 0,
        }
    }
}

/// What all clients of a run share.
pub struct World<'a> {
    pub keys: &'a [String],
    pub counters: &'a [Counter],
    pub latches: &'a Latches,
    pub route: &'a dyn Route,
    pub habits: &'a Habits,
    pub stop: &'a AtomicBool,
    /// How long participants wait for their last outcomes when the run is over.
    pub drain: Duration,
    /// How many holders slept.
    pub sleeps: &'a AtomicU64,
}

impl World<'_> {
    /// Whether the run is over: all faults are healed, and only the last replies are outstanding.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The numbers of the keys that are exclusive locks.
    pub fn locks(&self) -> Vec<u32> {
        let all = 0..self.keys.len() as u32;
        all.filter(|key| (self.habits.family)(*key) == Family::Lock)
            .collect()
    }

    /// The pause between two sessions of a client.
    pub fn rest(&self, rng: &mut fastrand::Rng) {
        if self.habits.pace > 0 {
            self.sleep(rng.u64(..2 * self.habits.pace));
        }
    }

    /// The pause of an observer between two readings, in milliseconds.
    pub fn beat(&self) -> u64 {
        1 + self.habits.pace / 4
    }

    /// Sleeps, but not past the end of the run.
    pub fn sleep(&self, ms: u64) {
        let end = Instant::now() + Duration::from_millis(ms);
        while !self.is_over() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}

/// A client at work.
pub struct Client<'a> {
    id: u32,
    world: &'a World<'a>,
    rng: fastrand::Rng,
    asking: Asking<'a>,
    owners: u64,
}

/// The owner for which the client acts now.
#[derive(Clone, Copy)]
struct Session {
    key: u32,
    owner: u64,
    kind: Kind,
    tie: Tie,
    lease: u32,
}

impl<'a> Client<'a> {
    pub fn new(id: u32, world: &'a World<'a>, seed: u64) -> Client<'a> {
        Client {
            id,
            world,
            rng: fastrand::Rng::with_seed(seed),
            asking: Asking::new(id, world),
            owners: 0,
        }
    }

    /// Works until the run is stopped; returns the recorded requests.
    pub fn work(mut self) -> Vec<Op> {
        while !self.world.is_over() {
            self.session();
            self.world.rest(&mut self.rng);
        }
        self.asking.into_ops()
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    /// All requests of one owner.
    fn session(&mut self) {
        self.owners += 1;
        let habits = self.world.habits;
        let key = self.rng.u32(..self.world.keys.len() as u32);
        let kind = (habits.family)(key).kind(&mut self.rng);
        let is_bound = self.chance(habits.sessions);
        let me = Session {
            key,
            owner: u64::from(self.id) * 1_000_000_000 + self.owners,
            kind,
            tie: if is_bound { Tie::Session } else { Tie::None },
            lease: match is_bound {
                true => habits.session_lease,
                false => self.rng.u32(habits.lease.clone()),
            },
        };
        let block = match self.rng.u8(..100) {
            n if n < habits.tries => None,
            n if n < habits.tries + habits.patient => Some(0),
            _ => Some(self.rng.u32(habits.wait.clone())),
        };
        if self.asking.has_bound_holds() && (block == Some(0) || self.rng.bool()) {
            // An earlier owner has left a hold to the end of the connection. A client that waits without limit could
            // wait for itself.
            self.asking.die();
        }
        let mut once = self.rng.bool();
        for _ in 0..3 {
            match self.acquire(me, block, once) {
                Outcome::Granted(token) => return self.hold(me, token, block.is_some()),
                // Many clients repeat the request; the place in the queue is kept for a while.
                _ if self.chance(30) && !self.world.is_over() => once = true,
                _ => return,
            }
        }
    }

    fn acquire(&mut self, me: Session, block: Option<u32>, once: bool) -> Outcome {
        let call = me.acquire(block, once);
        let soon = Duration::from_millis(self.rng.u64(..u64::from(self.world.habits.wait.end)));
        let hurries = me.tie == Tie::None && self.chance(self.world.habits.hurries);
        if block.is_some_and(|block| block > 0) && hurries {
            let again = me.acquire(block, true);
            return self.asking.twice(me.key, me.owner, [call, again], soon / 3);
        }
        let dies = block.is_some() && self.chance(self.world.habits.dies);
        self.asking
            .call(me.key, me.owner, call, dies.then_some(soon))
    }

    /// The work under the lock, as far as the client knows.
    fn hold(&mut self, mut me: Session, token: i64, waited: bool) {
        let counter = &self.world.counters[me.key as usize];
        // Readers only read, and permits protect nothing.
        let read = match me.kind {
            Kind::Exclusive | Kind::Write => Some(counter.read(token)),
            Kind::Read | Kind::Permit(_) => None,
        };
        let is_bound = me.tie == Tie::Session;
        // A lease that began some time ago is no longer certain: a renewal makes it so.
        if waited && !is_bound && self.chance(70) {
            if let Outcome::Number(0) = self.renew(me, Some(token)) {
                return;
            }
        }
        let sleeps = self.chance(self.world.habits.sleeps);
        if sleeps {
            let lease = if is_bound { 200 } else { u64::from(me.lease) };
            let nap = self.rng.u64(lease / 2..3 * lease);
            self.world.sleep(nap);
            self.world.sleeps.fetch_add(1, Ordering::Relaxed);
        } else if self.rng.bool() {
            let nap = self.rng.u64(..4);
            self.world.sleep(nap);
        }
        let mut holds = 1;
        if !sleeps && !matches!(me.kind, Kind::Permit(_)) && self.chance(10) {
            let once = self.rng.bool();
            let again = self.acquire(me, None, once);
            holds += i32::from(!once && again == Outcome::Granted(token));
        }
        // After a WRITE hold a reader has the token of that: here it names none from then on.
        let wrote = me.kind == Kind::Read && self.chance(10) && self.upgrade(me);
        let named = (!wrote).then_some(token);
        if let Some(read) = read {
            counter.write(token, &read);
        }
        if self.chance(10) {
            me = self.renew_somehow(me, named);
        }
        match me.kind == Kind::Write && self.chance(15) {
            true => self.downgrade(me, token),
            false => self.part(me, named, holds),
        }
    }

    /// Renews; a session hold gets a lease of its own and is no longer bound.
    fn renew_somehow(&mut self, me: Session, token: Option<i64>) -> Session {
        let token = token.filter(|_| self.rng.bool());
        let mut unbound = Session {
            tie: Tie::None,
            ..me
        };
        if me.tie == Tie::Session {
            unbound.lease = self.rng.u32(self.world.habits.lease.clone());
        }
        match self.renew(unbound, token) {
            Outcome::Number(1) => unbound,
            _ => me,
        }
    }

    /// A reader requests WRITE, if it may be the only reader. Whether it may have been granted.
    fn upgrade(&mut self, me: Session) -> bool {
        let writer = Session {
            kind: Kind::Write,
            ..me
        };
        let block = self.rng.bool().then(|| self.rng.u32(1..30));
        match self.acquire(writer, block, true) {
            Outcome::Granted(token) => {
                let counter = &self.world.counters[me.key as usize];
                let read = counter.read(token);
                counter.write(token, &read);
                self.release(writer, true, Some(token));
                true
            }
            Outcome::Lost | Outcome::Silent => true,
            _ => false,
        }
    }

    /// A writer continues as a reader.
    fn downgrade(&mut self, me: Session, token: i64) {
        let reader = Session {
            kind: Kind::Read,
            ..me
        };
        let reads = self.acquire(reader, None, true);
        self.release(me, true, Some(token));
        if let Outcome::Granted(token) = reads {
            let nap = self.rng.u64(..4);
            self.world.sleep(nap);
            self.part(reader, Some(token), 1);
        }
    }

    /// Releases, most of the time.
    fn part(&mut self, me: Session, token: Option<i64>, holds: i32) {
        let forgets = self.chance(self.world.habits.forgets);
        let dies = self.chance(self.world.habits.dies);
        if me.tie == Tie::Session && (forgets || dies) {
            // A hold that is bound ends only with its connection.
            return self.asking.close(me.key, me.owner);
        }
        if forgets {
            return;
        }
        if dies {
            return self.asking.die();
        }
        let all = self.rng.bool();
        let token = token.filter(|_| self.rng.bool());
        for _ in 0..if all { 1 } else { holds } {
            self.release(me, all, token);
        }
    }

    fn release(&mut self, me: Session, all: bool, token: Option<i64>) -> Outcome {
        let kind = me.kind;
        let call = Call::Release { kind, all, token };
        self.asking.call(me.key, me.owner, call, None)
    }

    fn renew(&mut self, me: Session, token: Option<i64>) -> Outcome {
        let (kind, lease) = (me.kind, me.lease);
        let call = Call::Renew { kind, lease, token };
        self.asking.call(me.key, me.owner, call, None)
    }
}

impl Session {
    fn acquire(self, block: Option<u32>, once: bool) -> Call {
        Call::Acquire {
            kind: self.kind,
            tie: self.tie,
            lease: self.lease,
            block,
            once,
        }
    }
}
