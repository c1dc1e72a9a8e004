//! A simulated server: what the shell and Redis do around the core, as plainly as possible.
//!
//! The key space is a map, a connection is a number, and the clocks move when told to. Every input
//! of the core has one function here. Each asks the core, carries the effects out in order and logs
//! them as [`Out`]; then the caller may ask for the end of the turn ([`Sim::settle_all`]), for a
//! timer ([`Sim::alarm`]) or for the delivery of replies ([`Sim::deliver_all`]), in any order, as on
//! a real server a connection may die or a command come in between.
//!
//! What no effect may ever do is asserted while it is carried out: a token that does not rise or
//! that no stored horizon covers, a second answer, a grant after the end of the wait, a write to
//! foreign data, a publish while the key is held, an effect of a failed call.

mod decisions;
mod horizons;
mod many;

use crate::lock::Cx;
use std::collections::{BTreeMap, BTreeSet};

use crate::lock::tests::rest::Rest;
use crate::lock::{
    Acquire, Answer, Bound, BoundRef, Break, Domain, Effect, Effects, Event, Grace, Hold, KeyRef,
    KeyState, KeyWrite, Lease, Limits, LockError, Locks, Mode, Now, Outcome, Planned, Release,
    Released, Renew, Token, Wait, WaiterId, WindowRule,
};

/// The wall clock of a new server, Unix milliseconds.
pub const START_MS: i64 = 1_700_000_000_000;

/// Holds released at once when their connection closes; the others by the next timer.
pub const AT_ONCE: usize = 1;

/// A connection's number is what remains of the server's id of it.
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

/// A request whose client has not read its answer.
#[derive(Debug, Clone)]
pub struct Request {
    pub key: String,
    /// The other keys of a request on many.
    pub further: Vec<String>,
    pub owner: String,
    pub conn: u64,
    until_ms: Option<u64>,
}

/// One effect, after it was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    Horizon,
    Counter(String, Token),
    Write(String, KeyWrite),
    Publish(String),
    Notify(String, Event),
    Answer {
        key: String,
        conn: u64,
        outcome: Outcome,
    },
}

pub struct Sim {
    pub locks: Locks,
    pub now: Now,
    /// False while horizons cannot be written: a slot on its way to another node.
    pub may_grant: bool,
    /// Whether the start-up delay was on when the timer last ran.
    delayed: bool,
    /// Whether each key has a horizon of its own, as each slot of a cluster has.
    pub cluster: bool,
    default_lease: Lease,
    /// How often each connection has closed: the server gives a new one another id.
    closed: BTreeMap<u64, u64>,
    pub keys: BTreeMap<String, KeyState>,
    /// Redisson's token counters, by the name of the lock.
    pub counters: BTreeMap<String, u64>,
    pub horizons: BTreeMap<Domain, u64>,
    /// Locks for whose release somebody listens.
    pub has_subscriber: BTreeSet<String>,
    /// Requests that are still parked.
    pub parked: BTreeMap<WaiterId, Request>,
    /// Requests whose grant is on its way.
    pub granted: BTreeMap<WaiterId, Request>,
    /// The highest token of each name, whatever became of the key.
    pub highest: BTreeMap<String, u64>,
    pub out: Vec<Out>,
}

/// Limits and grace of a server under test.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub limits: Limits,
    pub grace: Grace,
    pub cluster: bool,
    /// Whether requests that would wait for themselves are refused.
    pub deadlocks: bool,
    pub default_lease: Lease,
    pub session_lease: Lease,
    pub windows: WindowRule,
}

pub fn key_ref(key: &str) -> KeyRef<'_> {
    KeyRef {
        db: 0,
        name: key.as_bytes(),
    }
}

fn new_locks(settings: &Settings) -> Locks {
    let mut locks = Locks::new(settings.limits);
    locks.waiters.grace = settings.grace;
    locks.sessions.rule.lease = settings.session_lease;
    locks.detects_deadlocks = settings.deadlocks;
    locks.set_window_rule(settings.windows);
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
            cluster: settings.cluster,
            default_lease: settings.default_lease,
            closed: BTreeMap::new(),
            keys: BTreeMap::new(),
            counters: BTreeMap::new(),
            horizons: BTreeMap::new(),
            has_subscriber: BTreeSet::new(),
            parked: BTreeMap::new(),
            granted: BTreeMap::new(),
            highest: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    // ---- commands ----

    pub fn acquire(
        &mut self,
        key: &str,
        owner: &str,
        conn: u64,
        (terms, wait, once): (Terms, Wait, bool),
    ) -> Result<Answer, LockError> {
        assert!(
            !self.is_blocked(conn),
            "connection {conn} waits for an answer"
        );
        self.end_first(key, owner);
        let req = Acquire {
            owner: owner.as_bytes(),
            mode: Mode::Exclusive,
            lease: self.lease(terms),
            names_lease: matches!(terms, Terms::Named(_)),
            session: matches!(terms, Terms::Session),
            once,
            wait,
            client: self.client(conn),
        };
        let (answer, fx, rest) = self.ask(key, &Planned::Acquire(&req), |locks, view, cx| {
            locks.acquire(view, &req, cx)
        });
        if let Ok(Answer::Parked(id)) = answer {
            let until_ms = match wait {
                Wait::Ms(ms) => Some(self.now.mono_ms + ms),
                Wait::ForEver => None,
                Wait::No => panic!("parked without BLOCK"),
            };
            let request = Request {
                key: key.into(),
                further: Vec::new(),
                owner: owner.into(),
                conn,
                until_ms,
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
        all: bool,
        token: Option<u64>,
    ) -> Result<Released, LockError> {
        self.end_first(key, owner);
        let owner = owner.as_bytes();
        let req = Release {
            owner,
            mode: None,
            all,
            token,
        };
        self.command(key, &Planned::Release(&req), |locks, view, cx| {
            locks.release(view, &req, cx)
        })
    }

    pub fn renew(
        &mut self,
        key: &str,
        owner: &str,
        terms: Terms,
        token: Option<u64>,
    ) -> Result<bool, LockError> {
        self.end_first(key, owner);
        let owner = owner.as_bytes();
        let req = Renew {
            owner,
            lease: self.lease(terms),
            names_lease: matches!(terms, Terms::Named(_)),
            mode: None,
            token,
        };
        self.command(key, &Planned::Renew, |locks, view, cx| {
            locks.renew(view, &req, cx)
        })
    }

    pub fn break_lock(
        &mut self,
        key: &str,
        token: Option<u64>,
        purge: bool,
    ) -> Result<bool, LockError> {
        let req = Break { token, purge };
        self.command(key, &Planned::Break(req), |locks, view, cx| {
            locks.break_lock(view, req, cx)
        })
    }

    fn lease(&self, terms: Terms) -> Lease {
        match terms {
            Terms::Named(lease) => lease,
            Terms::Unnamed | Terms::Session => self.default_lease,
        }
    }

    // ---- time ----

    /// Both clocks go on; no timer has run yet.
    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
    }

    /// The shell's timer.
    pub fn alarm(&mut self) {
        let mut fx = Effects::new();
        while self.locks.end_next_wait(&mut Cx::new(self.now, &mut fx)) {}
        self.carry_out_answers(fx);
        // The shell keeps the keys that could not be settled; here all are looked at again.
        let delayed = self.locks.startup_delay.is_on(self.now);
        if std::mem::replace(&mut self.delayed, delayed) && !delayed {
            self.locks.waiters.schedule_settle_all(None);
        }
        self.settle_all();
        while let Some(bound) = self.locks.sessions.next_renewal(self.now) {
            let name = name_of(&bound);
            let done = self.command(&name, &Planned::Nothing, |locks, view, cx| {
                locks.renew_session(view, &bound, cx);
                Ok(())
            });
            done.unwrap();
        }
        self.release_ended(usize::MAX);
        self.settle_all();
        assert_ne!(self.locks.waiters.next_wait(self.now), Some(0));
        assert_ne!(self.locks.sessions.next_due(self.now), Some(0));
    }

    /// The end of a turn: every marked key is read afresh and settled.
    pub fn settle_all(&mut self) {
        let mut settled = 0;
        while let Some((_, id)) = self.locks.pop_unsettled(self.now) {
            settled += 1;
            assert!(settled < 1_000, "a turn that does not end");
            let key = String::from_utf8(id.as_ref().name.into()).unwrap();
            let state = self.keys.get(&key).unwrap_or(&KeyState::Absent);
            let planned = match self.locks.may_change(key_ref(&key), state, self.now) {
                true => Planned::Settle,
                false => Planned::Nothing,
            };
            let settled = self.command(&key, &planned, |locks, view, cx| {
                locks.settle(view, cx);
                Ok(())
            });
            settled.unwrap();
        }
        if self.settle_requests() {
            return self.settle_all();
        }
        self.verify_parked();
        assert_ne!(self.locks.next_settle(self.now), Some(0));
    }

    /// Time passes, and each timer runs at its moment.
    pub fn advance(&mut self, ms: u64) {
        let end_ms = self.now.mono_ms + ms;
        loop {
            let left = end_ms - self.now.mono_ms;
            let waiters = &self.locks.waiters;
            let delay = Some(self.locks.startup_delay.left(self.now)).filter(|left| *left > 0);
            let dues = [
                waiters.next_wait(self.now),
                self.locks.next_settle(self.now),
                delay,
                self.locks.sessions.next_due(self.now),
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
            self.locks.delivered(waiter);
        }
    }

    /// The server's event comes first, and then what it does about a client that is blocked. Answers
    /// whether anything was noted as bound to the connection.
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

    /// Those that are not held any more do not count.
    fn release_ended(&mut self, at_most: usize) {
        let mut released = 0;
        while released < at_most {
            let Some(bound) = self.locks.sessions.next_ended() else {
                return;
            };
            let wrote = self.out.len();
            self.end_session(&bound);
            let wrote = &self.out[wrote..];
            released += usize::from(wrote.iter().any(|out| matches!(out, Out::Write(..))));
        }
    }

    /// A hold whose connection has gone is released before its owner asks about it.
    fn end_first(&mut self, key: &str, owner: &str) {
        let what = BoundRef::lock(Mode::Exclusive, key_ref(key), owner.as_bytes());
        if let Some(bound) = self.locks.sessions.ended(what) {
            self.end_session(&bound);
        }
    }

    fn end_session(&mut self, bound: &Bound) {
        let planned = Planned::EndSession(bound);
        let done = self.command(&name_of(bound), &planned, |locks, view, cx| {
            locks.end_session(view, bound, cx);
            Ok(())
        });
        done.unwrap();
    }

    /// `CLIENT UNBLOCK id TIMEOUT`: the server itself answers nil.
    pub fn unblock(&mut self, conn: u64) {
        if let Some(waiter) = waiter_of(&self.parked, conn) {
            self.parked.remove(&waiter);
            self.locks.unblocked(waiter, self.now);
        }
    }

    // ---- the key space changes by other means ----

    pub fn del(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            self.locks.lost(key_ref(key));
        }
    }

    /// The server notices that the key's TTL is over, if it is.
    pub fn server_expires(&mut self, key: &str) {
        if matches!(self.keys.get(key), Some(KeyState::Held(hold)) if hold.is_over(self.now)) {
            self.keys.remove(key);
            self.locks.expired(key_ref(key));
        }
    }

    pub fn overwrite(&mut self, key: &str, state: KeyState) {
        self.keys.insert(key.into(), state);
        self.locks.lost(key_ref(key));
    }

    /// `HDEL key holder`: an empty hash is deleted, a `#token` stays.
    pub fn hdel_holder(&mut self, key: &str) {
        let Some(KeyState::Held(hold)) = self.keys.get(key) else {
            return;
        };
        match hold.token {
            Some(token) => {
                self.keys.insert(key.into(), KeyState::Bare(token));
                self.locks.waiters.schedule_settle(key_ref(key));
            }
            None => self.del(key),
        }
    }

    /// `PEXPIREAT` or, with `None`, `PERSIST`.
    pub fn set_ttl(&mut self, key: &str, deadline_ms: Option<i64>) {
        if let Some(KeyState::Held(hold)) = self.keys.get_mut(key) {
            hold.deadline_ms = deadline_ms;
            self.locks.waiters.schedule_settle(key_ref(key));
        }
    }

    /// Redisson's tryLock script. True when granted.
    pub fn foreign_acquire(&mut self, key: &str, owner: &str, lease: Lease) -> bool {
        self.server_expires(key);
        let deadline_ms = Some(lease.deadline(self.now));
        match self.keys.get_mut(key) {
            None => {
                let hold = Hold {
                    owner: owner.as_bytes().into(),
                    count: 1,
                    token: None,
                    deadline_ms,
                };
                self.keys.insert(key.into(), KeyState::Held(hold));
            }
            Some(KeyState::Held(hold)) if *hold.owner == *owner.as_bytes() => {
                hold.count += 1;
                hold.deadline_ms = deadline_ms;
            }
            Some(_) => return false,
        }
        self.locks.waiters.schedule_settle(key_ref(key));
        true
    }

    /// Redisson's unlock script. True when the owner held it.
    pub fn foreign_release(&mut self, key: &str, owner: &str, lease: Lease) -> bool {
        self.server_expires(key);
        match self.keys.get_mut(key) {
            Some(KeyState::Held(hold)) if *hold.owner == *owner.as_bytes() => {
                if hold.count > 1 {
                    hold.count -= 1;
                    hold.deadline_ms = Some(lease.deadline(self.now));
                    self.locks.waiters.schedule_settle(key_ref(key));
                } else {
                    self.del(key);
                }
                true
            }
            _ => false,
        }
    }

    pub fn flush(&mut self) {
        self.keys.clear();
        self.counters.clear();
        self.horizons.clear();
        self.locks.flushed(None);
    }

    /// A new process over the same data; every connection is gone.
    pub fn restart(&mut self, settings: &Settings) {
        self.locks = new_locks(settings);
        self.parked.clear();
        self.granted.clear();
    }

    /// Slots are on their way to another node, or that is over.
    pub fn set_may_grant(&mut self, may_grant: bool) {
        self.may_grant = may_grant;
        if may_grant {
            self.locks.waiters.schedule_settle_all(None);
        }
    }

    /// The server was just promoted and grants nothing for a while.
    pub fn begin_startup_delay(&mut self, ms: u64) {
        self.locks.startup_delay.begin(self.now, ms);
        self.delayed = true;
    }

    /// Everybody is sent away.
    pub fn drain(&mut self) {
        let mut fx = Effects::new();
        self.locks.drain(&mut Cx::new(self.now, &mut fx));
        self.carry_out_answers(fx);
    }

    // ---- the shell's part ----

    pub fn domain(&self, key: &str) -> Domain {
        if self.cluster {
            Domain::from(*key.as_bytes().last().unwrap())
        } else {
            0
        }
    }

    /// What may only be answers, each of which names its request.
    fn carry_out_answers(&mut self, fx: Effects) {
        for effect in fx {
            let Effect::Answer(waiter, _) = effect else {
                panic!("more than an answer: {effect:?}");
            };
            let key = self.parked[&waiter].key.clone();
            self.carry_out(&key, Effects::from_iter([effect]));
        }
    }

    fn carry_out(&mut self, key: &str, fx: Effects) {
        for effect in fx {
            let name = key.to_string();
            let out = match effect {
                Effect::Horizon(domain, horizon) => {
                    assert_eq!(domain, self.domain(key));
                    let former = self.horizons.insert(domain, horizon);
                    let former = former.filter(|former| self.believes(*former));
                    assert!(former < Some(horizon), "the horizon went back");
                    Out::Horizon
                }
                Effect::Counter(token) => {
                    let counter = self.counters.get_mut(key).expect("the counter exists");
                    assert!(*counter < token.get(), "Redisson's counter went back");
                    *counter = token.get();
                    Out::Counter(name, token)
                }
                Effect::Write(write) => {
                    self.write(key, &write);
                    Out::Write(name, write)
                }
                Effect::PublishReadWrite(_) => unreachable!("see `read_write`"),
                Effect::Publish => {
                    assert!(!self.keys.contains_key(key), "published, but not freed");
                    Out::Publish(name)
                }
                Effect::Notify(event) => Out::Notify(name, event),
                Effect::Answer(waiter, outcome) => self.answer(key, waiter, outcome),
            };
            self.out.push(out);
        }
    }

    fn answer(&mut self, key: &str, waiter: WaiterId, outcome: Outcome) -> Out {
        let request = self.parked.remove(&waiter).expect("one answer, no second");
        assert!(
            request.key == key || !request.further.is_empty() || outcome == Outcome::Nil,
            "answered for another key"
        );
        let conn = request.conn;
        if let Outcome::GrantedAll(tokens) = &outcome {
            self.check_all_granted(&request, tokens);
            self.granted.insert(waiter, request.clone());
        }
        if let Outcome::Granted(token) = outcome {
            let over = request.until_ms.is_some_and(|end| self.now.mono_ms >= end);
            assert!(!over, "granted after the end of the wait");
            assert!(
                matches!(self.keys.get(key), Some(KeyState::Held(hold))
                    if *hold.owner == *request.owner.as_bytes() && hold.token == Some(token)),
                "granted, but the key says otherwise"
            );
            self.granted.insert(waiter, request);
        }
        Out::Answer {
            key: key.into(),
            conn,
            outcome,
        }
    }

    fn write(&mut self, key: &str, write: &KeyWrite) {
        let state = self.keys.get(key);
        assert!(
            !matches!(state, Some(KeyState::OtherType | KeyState::OtherHash)),
            "foreign data was changed"
        );
        match write {
            KeyWrite::ReadWrite(_) => unreachable!("see `read_write`"),
            KeyWrite::Delete => {
                assert!(self.keys.remove(key).is_some(), "deleted nothing");
            }
            KeyWrite::Take {
                clear,
                owner,
                token,
                deadline_ms,
            } => {
                assert!(
                    !self.locks.startup_delay.is_on(self.now),
                    "granted in the delay"
                );
                assert_eq!(*clear, state.is_some(), "what a former holder left is gone");
                let hold = Hold {
                    owner: owner[..].into(),
                    count: 1,
                    token: Some(*token),
                    deadline_ms: Some(*deadline_ms),
                };
                self.keys.insert(key.into(), KeyState::Held(hold));
                self.check_token(key, *token);
            }
            KeyWrite::Adjust {
                owner,
                count,
                token,
                deadline_ms,
            } => {
                assert!(count.is_some() || token.is_some() || deadline_ms.is_some());
                let Some(KeyState::Held(hold)) = self.keys.get_mut(key) else {
                    panic!("adjusted a hold that is not there");
                };
                assert!(!hold.is_over(self.now), "adjusted a hold that is over");
                assert_eq!(hold.owner[..], owner[..], "adjusted somebody else's hold");
                if let Some((before, count)) = *count {
                    assert_eq!(hold.count, before, "the count before");
                    hold.count = count;
                }
                hold.deadline_ms = deadline_ms.or(hold.deadline_ms);
                if let Some(token) = *token {
                    assert_eq!(hold.token, None, "one grant, one token");
                    hold.token = Some(token);
                    self.check_token(key, token);
                }
            }
        }
    }

    fn check_token(&mut self, key: &str, token: Token) {
        let former = self.highest.insert(key.into(), token.get());
        assert!(former < Some(token.get()), "the token did not rise");
        let horizon = self.horizons.get(&self.domain(key)).copied();
        assert!(horizon >= Some(token.get()), "no horizon covers the token");
    }
}

fn name_of(bound: &Bound) -> String {
    String::from_utf8(bound.key.as_ref().name.into()).unwrap()
}

fn waiter_of(requests: &BTreeMap<WaiterId, Request>, conn: u64) -> Option<WaiterId> {
    let mut requests = requests.iter();
    requests.find_map(|(id, request)| (request.conn == conn).then_some(*id))
}
