//! A simulated server: the part of the shell and of Redis around the core, as plainly as possible.
//!
//! The keys are a map ([`keyspace`]), a connection is a number, and the test sets the clocks. Every input of the core
//! has one function here or in the file of its kind. The function asks the core, carries the effects out in order and
//! logs them as [`Out`]. Then the caller may end the tick ([`Sim::settle_all`]), run the timer ([`Sim::alarm`]) or
//! deliver replies ([`Sim::deliver_all`]), in any order: on a real server a connection may close or a command come in
//! between.
//!
//! What no effect may do is asserted while it is carried out ([`effects`]).

mod at_rest;
mod effects;
mod foreign;
mod horizons;
pub mod keyspace;
mod latch;
mod lock;
mod many;
mod rest;
pub mod scripts;
mod semaphore;
pub mod sums;
pub mod tickets;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use self::keyspace::Keyspace;
use self::tickets::{ChannelAndTag, Standing};
use crate::lock::{
    Bound, BoundRef, Cx, Domain, Due, Effects, Event, FinalRule, Grace, KeyId, KeyRef, KeyState,
    KeyWrite, Lease, Limits, Locks, Mode, Now, Outcome, Planned, ReadDepth, Resource, SessionRule,
    Token, UserId, Wait, WaiterId, WindowRule,
};

/// The wall clock of a new server, Unix milliseconds.
pub const START_MS: i64 = 1_700_000_000_000;

/// The lease where a command names none.
pub const DEFAULT_LEASE_MS: u64 = 30_000;

/// Holds released at once when their connection closes; the others by the next timer.
pub const AT_ONCE: usize = 1;

/// The server's id of a connection, modulo this, is the number of the connection.
pub const CONNS: u64 = 1_000;

/// The lease that a request asks for.
#[derive(Debug, Clone, Copy)]
pub enum Terms {
    /// `EX` or `PX`.
    Named(Lease),
    /// The default.
    Unnamed,
    /// `SESSION`.
    Session,
}

/// A request whose client has not read its reply.
#[derive(Debug, Clone)]
pub struct Request {
    pub resource: Resource,
    pub key: String,
    /// The other keys of a request on several.
    pub further: Vec<String>,
    pub owner: String,
    pub mode: Mode,
    pub conn: u64,
    until_ms: Option<u64>,
}

/// One effect, after it was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    Horizon,
    Counter(String, Token),
    Write(String, KeyWrite),
    /// A change of a read-write lock, as commands.
    WriteShared(String, Vec<String>),
    PublishPermits(i64),
    PublishLatch {
        is_open: bool,
    },
    Publish(String),
    PublishReadWrite(String, Mode),
    PublishShorter,
    Notify(String, Event),
    Answer {
        key: String,
        conn: u64,
        outcome: Outcome,
    },
    Tell {
        channel: String,
        tag: String,
        outcome: Outcome,
    },
}

#[derive(Debug)]
pub struct Sim {
    pub locks: Locks,
    pub now: Now,
    /// False while horizons cannot be written, as while a slot migrates.
    pub may_grant: bool,
    /// Whether the startup delay was on when the timer last ran.
    delayed: bool,
    /// Whether each key has a horizon of its own, as each slot of a cluster has.
    pub cluster: bool,
    default_lease: Lease,
    /// The number of times that each connection has closed: a new one has another id.
    closed: BTreeMap<u64, u64>,
    pub keys: Keyspace,
    /// Whether the keys to settle come before all other work of a tick, as in the naive model. The sorts of work have
    /// turns otherwise.
    pub in_order: bool,
    /// Redisson's token counters, by the name of the lock.
    pub counters: BTreeMap<String, u64>,
    pub horizons: BTreeMap<Domain, u64>,
    /// Locks whose channel has a subscriber.
    pub has_subscriber: BTreeSet<String>,
    /// Channels of tickets that have a subscriber.
    pub subscribed: BTreeSet<String>,
    /// How many subscribers each of these has.
    pub subscribers: usize,
    /// Tickets that still wait, by channel and tag.
    pub tickets: BTreeMap<ChannelAndTag, Standing>,
    /// The `NOTIFY` of the next request.
    pub notify: Option<ChannelAndTag>,
    /// The note of the next request.
    pub note: Option<String>,
    /// The `COUNT` of the next request for permits.
    pub count: Option<u8>,
    /// The `QUEUE` of the next request.
    pub queue: Option<u32>,
    /// The next acquire is a `LOCK.BREAK ... TO`, with this `TOKEN`.
    pub breaks: Option<Option<u64>>,
    /// The user of the next requests.
    pub user: UserId,
    /// Users that may take no key any more.
    pub forbidden: HashSet<UserId>,
    /// Requests that are still parked.
    pub parked: BTreeMap<WaiterId, Request>,
    /// Requests whose grant is in flight.
    pub granted: BTreeMap<WaiterId, Request>,
    /// The highest token that was ever granted for each key.
    pub highest: BTreeMap<String, u64>,
    /// Whether Redisson's scripts may have shortened the lease of a read-write lock.
    pub scripts_ran: bool,
    /// Whether `SEM.SET` runs, which alone may change the number of permits.
    resizes: bool,
    /// Whether the next decision about a semaphore grants no permit: no ticket is asked for.
    grants_no_permit: bool,
    pub out: Vec<Out>,
}

/// Limits and grace of a server under test.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub limits: Limits,
    pub grace: Grace,
    pub cluster: bool,
    /// Whether deadlocks are detected.
    pub deadlocks: bool,
    pub default_lease: Lease,
    pub session_lease: Lease,
    pub windows: WindowRule,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limits: Limits {
                max_waiters: 100,
                max_waiters_per_key: 100,
                max_tickets: 100,
                max_wait_bytes: 10_000_000,
                user_share: 100,
                max_tracked: 100,
            },
            grace: Grace {
                ms: 1_000,
                max_places: 100,
            },
            cluster: false,
            deadlocks: true,
            default_lease: Lease::from_ms(DEFAULT_LEASE_MS as i64).unwrap(),
            session_lease: Lease::TEN_SECONDS,
            windows: WindowRule::default(),
        }
    }
}

pub fn key_ref(key: &str) -> KeyRef<'_> {
    KeyRef::lock(0, key.as_bytes())
}

pub fn sem_ref(key: &str) -> KeyRef<'_> {
    key_ref(key).of(Resource::Semaphore)
}

fn new_locks(settings: &Settings) -> Locks {
    let mut locks = Locks::new(false);
    let session = SessionRule {
        lease: settings.session_lease,
    };
    let settings = crate::lock::Settings {
        limits: settings.limits,
        grace: settings.grace,
        windows: settings.windows,
        session,
        finals: FinalRule::default(),
        detects_deadlocks: settings.deadlocks,
        startup_delay_ms: u64::MAX,
    };
    locks.apply(&settings);
    locks
}

impl Sim {
    pub fn new(settings: &Settings) -> Sim {
        Sim {
            locks: new_locks(settings),
            now: Now {
                wall_ms: START_MS,
                wall_sub_us: 0,
                mono_ms: 0,
            },
            may_grant: true,
            delayed: false,
            in_order: false,
            cluster: settings.cluster,
            default_lease: settings.default_lease,
            closed: BTreeMap::new(),
            keys: Keyspace::default(),
            counters: BTreeMap::new(),
            horizons: BTreeMap::new(),
            has_subscriber: BTreeSet::new(),
            subscribed: BTreeSet::new(),
            tickets: BTreeMap::new(),
            notify: None,
            note: None,
            count: None,
            queue: None,
            breaks: None,
            user: UserId::UNKNOWN,
            forbidden: HashSet::new(),
            subscribers: 1,
            parked: BTreeMap::new(),
            granted: BTreeMap::new(),
            highest: BTreeMap::new(),
            scripts_ran: false,
            resizes: false,
            grants_no_permit: false,
            out: Vec::new(),
        }
    }

    // ---- time ----

    /// Time passes on both clocks, and no timer runs.
    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
    }

    /// The shell's timer.
    pub fn alarm(&mut self) {
        self.fire(false);
        assert_ne!(self.locks.shared.waiters.next_wait(self.now), Some(0));
        assert_ne!(self.locks.shared.sessions.next_due(self.now), Some(0));
    }

    /// The shell's timer; `only_urgent`: without time for other renewals.
    pub fn fire(&mut self, only_urgent: bool) {
        let mut fx = Effects::new();
        while self
            .locks
            .shared
            .waiters
            .end_waits(AT_ONCE, &mut Cx::new(self.now, &mut fx))
        {}
        self.carry_out_answers(fx);
        // The shell settles the keys that it has postponed; here all keys are settled.
        let delayed = self.locks.shared.startup_delay.is_on(self.now);
        if std::mem::replace(&mut self.delayed, delayed) && !delayed {
            self.locks.shared.waiters.schedule_settle_all(None);
        }
        self.settle_all();
        while let Some(bound) = self
            .locks
            .shared
            .sessions
            .next_renewal(self.now, only_urgent)
        {
            self.renew_session(&bound);
        }
        self.release_ended(usize::MAX);
        self.settle_all();
    }

    /// The end of a tick, until nothing is due: the scheduled keys are read again and settled, the scheduled requests
    /// on several keys are looked at, and the early searches for deadlocks are repeated.
    pub fn settle_all(&mut self) {
        self.forget_ended_tickets();
        for _ in 0..100 {
            self.settle_due();
            assert_ne!(self.locks.shared.waiters.next_settle(self.now), Some(0));
            self.verify_waiters();
            if self.locks.shared.waiters.next_settle(self.now) != Some(0) {
                return self.forget_ended_tickets();
            }
        }
        let waiters = &self.locks.shared.waiters;
        panic!(
            "a tick that does not end: {:?} {:?} {:?}",
            waiters.unsettled,
            waiters.unsettled_requests,
            waiters.waited_out().collect::<Vec<_>>()
        );
    }

    fn settle_due(&mut self) {
        if self.grants() {
            self.locks.shared.waiters.schedule_postponed();
        }
        let mut settled = 0;
        loop {
            if self.in_order {
                self.locks.shared.waiters.begin_with_keys();
            }
            let Some(due) = self.locks.shared.waiters.pop_due(self.now, false, true) else {
                break;
            };
            settled += 1;
            assert!(settled < 1_000, "a tick that does not end");
            self.locks.shared.waiters.pass_more();
            let key = match due {
                Due::Key(key) => key,
                Due::Many(request) => {
                    self.settle_request(request);
                    continue;
                }
            };
            let resource = key.as_ref().resource;
            let (key, before) = (name_of(&key), self.keys.clone());
            let may_change = match resource {
                Resource::Lock => self.settle_lock(&key),
                Resource::Semaphore => self.settle_semaphore(&key),
                Resource::Latch => {
                    self.settle_latch(&key);
                    false
                }
            };
            assert!(may_change || self.keys == before, "an unannounced write");
        }
    }

    /// Time passes, and each timer runs at its moment.
    pub fn advance(&mut self, ms: u64) {
        let end_ms = self.now.mono_ms + ms;
        loop {
            let left = end_ms - self.now.mono_ms;
            let delay =
                Some(self.locks.shared.startup_delay.left(self.now)).filter(|left| *left > 0);
            let dues = [
                self.locks.shared.waiters.next_wait(self.now),
                self.locks.shared.waiters.next_settle(self.now),
                delay,
                self.locks.shared.sessions.next_due(self.now),
            ];
            match dues.into_iter().flatten().min().filter(|due| *due <= left) {
                Some(due) => self.pass(due),
                None => return self.pass(left),
            }
            self.alarm();
        }
    }

    // ---- connections ----

    pub fn is_blocked(&self, conn: u64) -> bool {
        let mut requests = self.parked.values().chain(self.granted.values());
        requests.any(|request| request.conn == conn)
    }

    /// The server's id of this connection.
    fn client(&self, conn: u64) -> u64 {
        conn + CONNS * self.closed.get(&conn).copied().unwrap_or(0)
    }

    pub fn deliver_all(&mut self) {
        for waiter in std::mem::take(&mut self.granted).into_keys() {
            self.locks.shared.delivered(waiter);
        }
    }

    /// The server's event comes first, then the end of the blocked client. Returns whether any hold was recorded as
    /// bound to the connection.
    pub fn disconnect(&mut self, conn: u64) -> bool {
        let had_holds = self.locks.disconnected(self.client(conn), self.now);
        *self.closed.entry(conn).or_default() += 1;
        if had_holds {
            self.release_ended(AT_ONCE);
        }
        if let Some(waiter) = waiter_of(&self.parked, conn).or(waiter_of(&self.granted, conn)) {
            self.parked.remove(&waiter);
            self.granted.remove(&waiter);
            self.locks.gone(waiter, self.now);
        }
        had_holds
    }

    /// A binding whose hold is over does not count.
    fn release_ended(&mut self, at_most: usize) {
        let mut released = 0;
        while released < at_most {
            let Some(bound) = self.locks.shared.sessions.next_ended() else {
                return;
            };
            let wrote = self.out.len();
            self.end_session(&bound);
            released += usize::from(self.out[wrote..].iter().any(Out::is_write));
        }
    }

    /// Releases a hold whose connection has closed before a command of its owner.
    fn end_first(&mut self, what: BoundRef<'_>) {
        if let Some(bound) = self.locks.shared.sessions.ended(what) {
            self.end_session(&bound);
        }
    }

    fn end_session(&mut self, bound: &Bound) {
        if bound.key.as_ref().resource == Resource::Semaphore {
            let id = text(&bound.owner);
            return self.serve_permit(&name_of(&bound.key), Some(&id), |locks, view, cx| {
                let shared = &mut locks.shared;
                locks.sems.end_session(shared, view, id.as_bytes(), cx)
            });
        }
        let planned = Planned::EndSession(bound);
        self.serve_session(bound, (ReadDepth::Two, &planned), Locks::end_session);
    }

    fn renew_session(&mut self, bound: &Bound) {
        if bound.key.as_ref().resource == Resource::Semaphore {
            let id = text(&bound.owner);
            self.grants_no_permit = true;
            return self.serve_permit(&name_of(&bound.key), Some(&id), |locks, view, cx| {
                let shared = &mut locks.shared;
                locks.sems.renew_session(shared, view, id.as_bytes(), cx)
            });
        }
        self.serve_session(
            bound,
            (ReadDepth::Own, &Planned::Nothing),
            Locks::renew_session,
        );
    }

    /// `CLIENT UNBLOCK id TIMEOUT`: the server itself answers nil.
    pub fn unblock(&mut self, conn: u64) {
        if let Some(waiter) = waiter_of(&self.parked, conn) {
            self.parked.remove(&waiter);
            self.locks.shared.waiters.unblocked(waiter, self.now);
        }
    }

    /// The server has become a replica.
    pub fn demote(&mut self) {
        let mut fx = Effects::new();
        self.locks.demoted(&mut Cx::new(self.now, &mut fx));
        self.carry_out_answers(fx);
    }

    // ---- the shell's part ----

    pub fn domain(&self, key: &str) -> Domain {
        match self.cluster {
            true => Domain::from(*key.as_bytes().last().unwrap()),
            false => 0,
        }
    }

    /// All that the keys say about a lock.
    pub fn state(&self, key: &str) -> KeyState {
        self.keys.read(key, &[], ReadDepth::All, self.now)
    }

    fn enqueue(
        &mut self,
        id: WaiterId,
        resource: Resource,
        keys: &[&str],
        (owner, mode, conn): (&str, Mode, u64),
        (wait, named, is_session): (Wait, &Option<ChannelAndTag>, bool),
    ) {
        let until_ms = match wait {
            Wait::Ms(ms) => Some(self.now.mono_ms + ms),
            Wait::ForEver => None,
            Wait::No => panic!("parked without BLOCK"),
        };
        let request = Request {
            resource,
            key: keys[0].into(),
            further: keys[1..].iter().map(|key| key.to_string()).collect(),
            owner: owner.into(),
            mode,
            conn,
            until_ms,
        };
        if let Some(named) = named {
            let session = is_session.then(|| self.client(conn));
            let standing = Standing {
                id,
                request,
                session,
            };
            self.tickets.insert(named.clone(), standing);
            return;
        }
        assert!(self.parked.insert(id, request).is_none(), "a second {id:?}");
    }

    /// The learnt horizon of the key's domain.
    fn learnt_domain(&mut self, key: &str) -> Domain {
        let domain = self.domain(key);
        if !self.locks.shared.tokens.knows(domain) {
            let horizon = self.horizons.get(&domain).copied().unwrap_or(0);
            self.locks.learn_horizon(domain, horizon, self.now);
        }
        domain
    }
}

impl Out {
    pub fn is_write(&self) -> bool {
        matches!(self, Out::Write(..) | Out::WriteShared(..))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.into()).unwrap()
}

fn name_of(key: &KeyId) -> String {
    text(key.as_ref().name)
}

fn waiter_of(requests: &BTreeMap<WaiterId, Request>, conn: u64) -> Option<WaiterId> {
    let mut requests = requests.iter();
    requests.find_map(|(id, request)| (request.conn == conn).then_some(*id))
}
