//! A server around the core with read-write locks in a raw key space: as `tests/sim.rs`, but every decision
//! starts from what the keys say, read with no more than the look that the shell would take.

use crate::lock::Cx;
use std::collections::BTreeMap;

use crate::lock::tests::read_write::world::World;
use crate::lock::tests::rest::Rest;
use crate::lock::{
    Acquire, Answer, Bound, Break, Effect, Effects, Fence, Grace, KeyRef, KeyState, Lease, Limits,
    LockError, Locks, Mode, Need, Now, Outcome, Planned, ReadDepth, Release, Released, Renew, View,
    Wait, WaiterId,
};

pub const START_MS: i64 = 1_700_000_000_000;

const SESSION_MS: i64 = 9;

#[derive(Debug, Clone)]
pub struct Request {
    pub key: String,
    pub conn: String,
}

pub struct Sim {
    pub locks: Locks,
    pub now: Now,
    pub world: World,
    pub parked: BTreeMap<WaiterId, Request>,
    pub granted: BTreeMap<WaiterId, Request>,
    /// The server's ids of connections.
    clients: BTreeMap<String, u64>,
    next_client: u64,
    horizon: u64,
    /// Whether scripts have a hand in this.
    pub scripts_ran: bool,
    /// What has been done, as lines.
    pub out: Vec<String>,
    /// The grants that answered parked requests since this was emptied.
    pub told: Vec<(String, Outcome)>,
}

/// What an acquire says.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub mode: Mode,
    pub lease_ms: i64,
    pub wait: Wait,
    pub once: bool,
    pub session: bool,
}

fn key_ref(key: &str) -> KeyRef<'_> {
    KeyRef {
        db: 0,
        name: key.as_bytes(),
    }
}

impl Sim {
    pub fn new(grace_ms: u64) -> Sim {
        let mut locks = Locks::new(Limits {
            max_waiters: 100,
            max_waiters_per_key: 100,
            max_tracked: 100,
        });
        locks.sessions.rule.lease = Lease::from_ms(SESSION_MS).unwrap();
        locks.waiters.grace = Grace {
            ms: grace_ms,
            max_places: 100,
        };
        Sim {
            locks,
            now: Now {
                wall_ms: START_MS,
                wall_sub_us: 0,
                mono_ms: 0,
            },
            world: World::default(),
            parked: BTreeMap::new(),
            granted: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_client: 0,
            horizon: 0,
            scripts_ran: false,
            out: Vec::new(),
            told: Vec::new(),
        }
    }

    // ---- commands ----

    pub fn acquire(
        &mut self,
        key: &str,
        owner: &str,
        conn: &str,
        how: How,
    ) -> Result<Answer, LockError> {
        let req = Acquire {
            owner: owner.as_bytes(),
            mode: how.mode,
            lease: Lease::from_ms(how.lease_ms).unwrap(),
            names_lease: !how.session,
            session: how.session,
            once: how.once,
            wait: how.wait,
            client: self.client(conn),
        };
        let depth = self.locks.depth_to_acquire(key_ref(key), how.mode);
        let asked = (Some(owner), depth, &Planned::Acquire(&req));
        let (answer, fx, rest) =
            self.ask(key, asked, |locks, view, cx| locks.acquire(view, &req, cx));
        if let Ok(Answer::Parked(id)) = answer {
            let request = Request {
                key: key.into(),
                conn: conn.into(),
            };
            assert!(self.parked.insert(id, request).is_none(), "a second {id:?}");
        }
        self.carry_out_decided(key, (answer.is_ok(), fx), &rest);
        answer
    }

    pub fn release(
        &mut self,
        key: &str,
        owner: &str,
        (mode, all, token): (Option<Mode>, bool, Option<u64>),
    ) -> Result<Released, LockError> {
        let req = Release {
            owner: owner.as_bytes(),
            mode,
            all,
            token,
        };
        let asked = (Some(owner), ReadDepth::Two, &Planned::Release(&req));
        self.command(key, asked, |locks, view, cx| locks.release(view, &req, cx))
    }

    pub fn renew(
        &mut self,
        key: &str,
        owner: &str,
        (mode, lease_ms, token): (Option<Mode>, i64, Option<u64>),
    ) -> Result<bool, LockError> {
        let req = Renew {
            owner: owner.as_bytes(),
            mode,
            lease: Lease::from_ms(lease_ms).unwrap(),
            names_lease: true,
            token,
        };
        let depth = match self.world.read(key, Some(owner), ReadDepth::Two, self.now) {
            KeyState::ReadWrite(lock) if !lock.is_whole => {
                let end_ms = self.now.wall_ms + lease_ms;
                lock.depth_to_renew(owner.as_bytes(), end_ms, self.now)
            }
            _ => ReadDepth::Two,
        };
        let depth = if depth == ReadDepth::Own {
            ReadDepth::Two
        } else {
            depth
        };
        let asked = (Some(owner), depth, &Planned::Renew);
        self.command(key, asked, |locks, view, cx| locks.renew(view, &req, cx))
    }

    pub fn break_lock(
        &mut self,
        key: &str,
        token: Option<u64>,
        purge: bool,
    ) -> Result<bool, LockError> {
        let req = Break { token, purge };
        let asked = (None, ReadDepth::All, &Planned::Break(req));
        self.command(key, asked, |locks, view, cx| {
            locks.break_lock(view, req, cx)
        })
    }

    // ---- time and turns ----

    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
    }

    pub fn alarm(&mut self) {
        let mut fx = Effects::new();
        while self.locks.end_next_wait(&mut Cx::new(self.now, &mut fx)) {}
        for effect in fx {
            let Effect::Answer(waiter, _) = effect else {
                panic!("more than an answer: {effect:?}");
            };
            let key = self.parked[&waiter].key.clone();
            self.carry_out(&key, Effects::from_iter([effect]));
        }
        self.settle_all();
        while let Some(bound) = self.locks.sessions.next_renewal(self.now) {
            self.serve_session(
                &bound,
                (ReadDepth::Own, &Planned::Nothing),
                Locks::renew_session,
            );
        }
        self.settle_all();
    }

    /// Renews or ends what is bound.
    fn serve_session(
        &mut self,
        bound: &Bound,
        (depth, planned): (ReadDepth, &Planned<'_>),
        serve: impl FnOnce(&mut Locks, &View<'_>, &Bound, &mut Cx<'_>),
    ) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
        let (key, owner) = (text(bound.key.as_ref().name), text(&bound.owner));
        let asked = (Some(&owner[..]), depth, planned);
        let done = self.command(&key, asked, |locks, view, cx| {
            serve(locks, view, bound, cx);
            Ok(())
        });
        done.unwrap();
    }

    pub fn settle_all(&mut self) {
        for _ in 0..1_000 {
            let Some(id) = self.locks.waiters.pop_unsettled(self.now) else {
                return;
            };
            let key = String::from_utf8(id.as_ref().name.into()).unwrap();
            let state = self.world.read(&key, None, ReadDepth::All, self.now);
            let locks = &mut self.locks;
            let may_change = locks.may_change(key_ref(&key), &state, self.now);
            let before = self.world.clone();
            let planned = match may_change {
                true => Planned::Settle,
                false => Planned::Nothing,
            };
            let asked = (None, ReadDepth::All, &planned);
            let settled = self.command(&key, asked, |locks, view, cx| {
                locks.settle(view, cx);
                Ok(())
            });
            settled.unwrap();
            assert!(may_change || self.world == before, "a write unannounced");
        }
        panic!("a turn that does not end");
    }

    pub fn advance(&mut self, ms: u64) {
        let end_ms = self.now.mono_ms + ms;
        loop {
            let left = end_ms - self.now.mono_ms;
            let waiters = &self.locks.waiters;
            let dues = [waiters.next_wait(self.now), waiters.next_settle(self.now)];
            match dues.into_iter().flatten().min().filter(|due| *due <= left) {
                Some(due) => self.pass(due),
                None => return self.pass(left),
            }
            self.alarm();
        }
    }

    // ---- connections ----

    pub fn is_blocked(&self, conn: &str) -> bool {
        let mut requests = self.parked.values().chain(self.granted.values());
        requests.any(|request| request.conn == conn)
    }

    pub fn deliver_all(&mut self) {
        for waiter in std::mem::take(&mut self.granted).into_keys() {
            self.locks.delivered(waiter);
        }
    }

    fn client(&mut self, conn: &str) -> u64 {
        let next = &mut self.next_client;
        *self.clients.entry(conn.into()).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    /// What is bound to the connection ends at once.
    pub fn disconnect(&mut self, conn: &str) {
        let client = self.client(conn);
        self.clients.remove(conn);
        self.locks.disconnected(client, self.now);
        while let Some(bound) = self.locks.sessions.next_ended() {
            let planned = Planned::EndSession(&bound);
            self.serve_session(&bound, (ReadDepth::Two, &planned), Locks::end_session);
        }
        let of = |requests: &BTreeMap<WaiterId, Request>| {
            let mut requests = requests.iter();
            requests.find_map(|(id, request)| (request.conn == conn).then_some(*id))
        };
        if let Some(waiter) = of(&self.parked).or(of(&self.granted)) {
            self.parked.remove(&waiter);
            self.granted.remove(&waiter);
            self.locks.gone(waiter, self.now);
        }
    }

    // ---- by other means ----

    /// The server notices what is over.
    pub fn server_expires(&mut self) {
        for key in self.world.expire(self.now) {
            self.locks.expired(key_ref(&key));
        }
    }

    /// A script or a plain command does something to this lock.
    pub fn foreign<T>(&mut self, key: &str, act: impl FnOnce(&mut World, Now) -> T) -> T {
        self.server_expires();
        let was_there = self.world.keys.contains_key(key);
        let result = act(&mut self.world, self.now);
        if was_there && !self.world.keys.contains_key(key) {
            self.locks.lost(key_ref(key));
        } else {
            self.locks.waiters.schedule_settle(key_ref(key));
        }
        result
    }

    // ---- the shell's part ----

    fn command<T>(
        &mut self,
        key: &str,
        asked: (Option<&str>, ReadDepth, &Planned<'_>),
        decide: impl FnOnce(&mut Locks, &View<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let (done, fx, rest) = self.ask(key, asked, decide);
        self.carry_out_decided(key, (done.is_ok(), fx), &rest);
        done
    }

    fn ask<T>(
        &mut self,
        key: &str,
        (owner, depth, planned): (Option<&str>, ReadDepth, &Planned<'_>),
        decide: impl FnOnce(&mut Locks, &View<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> (Result<T, LockError>, Effects, Rest) {
        if !self.locks.tokens.knows(0) {
            self.locks.learn_horizon(0, self.horizon, self.now);
        }
        let state = self.world.read(key, owner, depth, self.now);
        let need = self.locks.need(key_ref(key), &state, planned, self.now);
        let fence = Fence {
            counter: None,
            may_grant: true,
        };
        let view = View {
            key: key_ref(key),
            state,
            domain: 0,
            fence: (need == Need::Token).then_some(fence),
            has_subscriber: false,
        };
        let rest = Rest::before(&self.locks, &view, planned, self.now);
        let mut fx = Effects::new();
        let answer = decide(&mut self.locks, &view, &mut Cx::new(self.now, &mut fx));
        assert!(answer.is_ok() || fx.is_empty(), "a failed call did {fx:?}");
        (answer, fx, rest)
    }

    fn carry_out_decided(&mut self, key: &str, (is_ok, fx): (bool, Effects), rest: &Rest) {
        self.carry_out(key, fx.clone());
        let after = self.world.read(key, None, ReadDepth::All, self.now);
        rest.check((is_ok, &fx), &after, self.now);
    }

    fn carry_out(&mut self, key: &str, fx: Effects) {
        for effect in fx {
            match effect {
                Effect::Horizon(_, horizon) => self.horizon = horizon,
                Effect::Counter(_) => panic!("there is no counter"),
                Effect::Write(change) => {
                    let lines = self.world.write(key, &change);
                    self.out.extend(lines);
                }
                Effect::Publish => self.out.push(format!("publish {key} 0")),
                Effect::PublishReadWrite(mode) => {
                    assert!(!self.world.keys.contains_key(key), "published, not freed");
                    let message = if mode == Mode::Write { "1" } else { "0" };
                    self.out.push(format!("publish rw {key} {message}"));
                }
                Effect::Notify(event) => {
                    let event = event.name().to_str().unwrap();
                    self.out.push(format!("event {event} {key}"));
                }
                Effect::Answer(waiter, outcome) => {
                    let request = self.parked.remove(&waiter).expect("one answer, no second");
                    assert_eq!(request.key, key);
                    let said = match &outcome {
                        Outcome::Granted(token) => format!("#{}", token.get()),
                        Outcome::Nil => "nil".into(),
                        Outcome::Open | Outcome::GrantedAll(_) => panic!("{outcome:?}"),
                        Outcome::Failed(error) => error.to_string(),
                    };
                    self.out.push(format!("to {}: {said}", request.conn));
                    self.told.push((request.conn.clone(), outcome.clone()));
                    if matches!(outcome, Outcome::Granted(_)) {
                        self.granted.insert(waiter, request);
                    }
                }
            }
        }
        self.check_siblings(key);
    }

    /// No field that Redisson's scripts would trip over, a living reader under a TTL that covers it, and the
    /// token's key no longer than the lock.
    fn check_siblings(&self, key: &str) {
        let state = self.world.read(key, None, ReadDepth::All, self.now);
        assert_ne!(state, KeyState::OtherHash, "{:?}", self.world.fields(key));
        if let KeyState::ReadWrite(lock) = &state {
            let hash_end = lock.deadline_ms.unwrap_or(i64::MAX);
            for reader in lock.readers(self.now) {
                // A script that gives back one of several WRITE holds may cut the hash under its reads.
                assert!(
                    self.scripts_ran || reader.until_ms <= hash_end,
                    "{reader:?} outlives the hash"
                );
            }
        }
    }
}
