//! The contract of locks on one key and on several, as plainly as it can be written: lists that are searched from the
//! front. At the end of a tick, requests are granted until none can be.

mod commands;

use std::collections::BTreeSet;

use crate::lock::tests::model::tickets::Channel;
use crate::lock::tests::model::Reply;
use crate::lock::{Grace, Limits};

pub const KEYS: usize = 4;

pub type Key = usize;
pub type Owner = usize;
pub type Conn = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub owner: Owner,
    pub count: u32,
    pub deadline_ms: Option<i64>,
    /// Which grant this is; 0 for Redisson's.
    grant: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Absent,
    Held(Hold),
    Other,
}

/// A parked request.
#[derive(Debug, Clone)]
struct Request {
    number: u64,
    conn: Conn,
    owner: Owner,
    keys: Vec<Key>,
    lease_ms: i64,
    until_ms: Option<u64>,
    once: bool,
    /// Whether it is a `LOCK.MACQUIRE`: then the end of the tick decides.
    many: bool,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    key: Key,
    owner: Owner,
    arrival: u64,
    /// `None`: kept until that moment.
    request: Option<u64>,
    kept_until_ms: u64,
}

/// A grant at one key whose reply has not been delivered.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    conn: Conn,
    key: Key,
    owner: Owner,
    grant: u64,
    arrival: u64,
    /// One more hold of an owner that held already.
    again: bool,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub wall_ms: i64,
    pub mono_ms: u64,
    pub keys: [State; KEYS],
    pub replies: Vec<(Conn, Reply)>,
    pub published: Vec<Key>,
    pub grants: u64,
    pub limits: Limits,
    grace: Grace,
    deadlocks: bool,
    places: Vec<Place>,
    requests: Vec<Request>,
    in_flight: Vec<InFlight>,
    undelivered: Vec<InFlight>,
    /// Keys that were overwritten while requests waited.
    overwritten: Vec<Key>,
    numbers: u64,
    arrivals: u64,
}

/// What an acquire asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    pub keys: Vec<Key>,
    pub owner: Owner,
    pub conn: Conn,
    pub lease_ms: i64,
    pub wait: Option<Option<u64>>,
    pub once: bool,
    /// Of the histories without this model, which knows no tickets.
    pub notify: Option<Channel>,
}

impl Model {
    pub fn new(limits: Limits, grace: Grace, deadlocks: bool, wall_ms: i64) -> Model {
        Model {
            wall_ms,
            mono_ms: 0,
            keys: [State::Absent; KEYS],
            replies: Vec::new(),
            published: Vec::new(),
            grants: 0,
            limits,
            grace,
            deadlocks,
            places: Vec::new(),
            requests: Vec::new(),
            in_flight: Vec::new(),
            undelivered: Vec::new(),
            overwritten: Vec::new(),
            numbers: 0,
            arrivals: 0,
        }
    }

    // ---- what can be asked ----

    pub fn holder(&self, key: Key) -> Option<Hold> {
        match self.keys[key] {
            State::Held(hold) if hold.deadline_ms.is_none_or(|end| end > self.wall_ms) => {
                Some(hold)
            }
            _ => None,
        }
    }

    pub fn queue(&self, key: Key) -> Vec<Owner> {
        let live = |place: &&Place| place.key == key && place.request.is_some();
        self.places
            .iter()
            .filter(live)
            .map(|place| place.owner)
            .collect()
    }

    pub fn waiting(&self) -> usize {
        self.requests.len()
    }

    pub fn live_places(&self) -> usize {
        let live = |place: &&Place| place.request.is_some();
        self.places.iter().filter(live).count()
    }

    pub fn kept_places(&self) -> usize {
        self.places
            .iter()
            .filter(|place| place.request.is_none())
            .count()
    }

    fn is_mine(&self, key: Key, owner: Owner) -> bool {
        self.holder(key).is_some_and(|hold| hold.owner == owner)
    }

    fn is_free(&self, key: Key) -> bool {
        self.holder(key).is_none() && self.keys[key] != State::Other
    }

    // ---- time and ticks ----

    pub fn alarm(&mut self) {
        let is_over = |r: &&Request| r.until_ms.is_some_and(|end| end <= self.mono_ms);
        let over: Vec<u64> = self
            .requests
            .iter()
            .filter(is_over)
            .map(|r| r.number)
            .collect();
        for number in over {
            self.leave(number, Some(Reply::Refused));
        }
        let now = self.mono_ms;
        self.places
            .retain(|place| place.request.is_some() || place.kept_until_ms > now);
        self.end_of_tick();
    }

    pub fn end_of_tick(&mut self) {
        for undo in std::mem::take(&mut self.undelivered) {
            let is_its = |hold: Hold| (hold.grant, hold.owner) == (undo.grant, undo.owner);
            let held = self.holder(undo.key).filter(|hold| is_its(*hold));
            if let (Some(hold), true) = (held, undo.again) {
                let count = (hold.count - 1).max(1);
                self.keys[undo.key] = State::Held(Hold { count, ..hold });
            } else if held.is_some() {
                self.give_back(undo);
                self.pass_on(undo.key);
            }
        }
        for key in std::mem::take(&mut self.overwritten) {
            if self.keys[key] == State::Other && !self.queue(key).is_empty() {
                self.fail_all(key, "WRONGTYPE");
            }
        }
        while self.grant_one() {}
    }

    /// Grants the first request that can be granted.
    fn grant_one(&mut self) -> bool {
        let ready = self.requests.iter().find(|request| {
            request.keys.iter().all(|key| {
                let first = self
                    .places
                    .iter()
                    .find(|p| p.key == *key && p.request.is_some());
                let is_first = first.is_some_and(|place| place.request == Some(request.number));
                self.is_mine(*key, request.owner) && request.many || self.is_free(*key) && is_first
            })
        });
        let number = ready.map(|request| request.number);
        number.is_some_and(|number| {
            self.grant(number);
            true
        })
    }

    fn grant(&mut self, number: u64) {
        let at = self
            .requests
            .iter()
            .position(|r| r.number == number)
            .unwrap();
        let request = self.requests.remove(at);
        let places: Vec<Place> = self.places.clone();
        self.places.retain(|place| place.request != Some(number));
        for key in &request.keys {
            let place = places
                .iter()
                .find(|p| p.key == *key && p.request == Some(number))
                .unwrap();
            let fresh = self.enter(*key, request.owner, request.lease_ms, request.once);
            let again = fresh.is_none();
            if again {
                self.claim(*key, request.owner);
            }
            let grant = fresh.unwrap_or_else(|| self.holder(*key).unwrap().grant);
            if !(again && request.once) {
                self.in_flight.push(InFlight {
                    conn: request.conn,
                    key: *key,
                    owner: request.owner,
                    grant,
                    arrival: place.arrival,
                    again,
                });
            }
        }
        self.replies.push((request.conn, Reply::Granted));
    }

    /// The key is free for its first waiter: at once if that waits for nothing else.
    fn hand_off(&mut self, key: Key) -> bool {
        let first = self
            .places
            .iter()
            .find(|p| p.key == key && p.request.is_some());
        let number = first.and_then(|place| place.request);
        let request = self.requests.iter().find(|r| Some(r.number) == number);
        match request.map(|request| request.many) {
            Some(false) => {
                self.grant(number.unwrap());
                true
            }
            _ => false,
        }
    }

    fn pass_on(&mut self, key: Key) {
        self.keys[key] = State::Absent;
        if !self.hand_off(key) {
            self.published.push(key);
        }
    }

    // ---- connections ----

    pub fn delivered(&mut self) {
        self.in_flight.clear();
    }

    pub fn disconnect(&mut self, conn: Conn) {
        let (gone, rest) = self
            .in_flight
            .iter()
            .partition::<Vec<_>, _>(|way| way.conn == conn);
        self.in_flight = rest;
        self.undelivered.extend(gone);
        self.unblock(conn);
    }

    pub fn unblock(&mut self, conn: Conn) {
        let request = self.requests.iter().find(|request| request.conn == conn);
        if let Some(number) = request.map(|request| request.number) {
            self.leave(number, None);
        }
    }

    /// A request leaves, its places are kept for its owner.
    fn leave(&mut self, number: u64, reply: Option<Reply>) {
        let at = self
            .requests
            .iter()
            .position(|r| r.number == number)
            .unwrap();
        let request = self.requests.remove(at);
        self.replies
            .extend(reply.map(|reply| (request.conn, reply)));
        for place in self.places.iter_mut().filter(|p| p.request == Some(number)) {
            place.request = None;
            place.kept_until_ms = self.mono_ms + self.grace.ms;
        }
        if self.grace.ms == 0 {
            self.places.retain(|place| place.request.is_some());
        }
    }

    fn give_back(&mut self, undo: InFlight) {
        let known = |place: &Place| (place.key, place.owner) == (undo.key, undo.owner);
        if self.grace.ms > 0 && !self.places.iter().any(known) {
            self.places.push(Place {
                key: undo.key,
                owner: undo.owner,
                arrival: undo.arrival,
                request: None,
                kept_until_ms: self.mono_ms + self.grace.ms,
            });
            self.places.sort_by_key(|place| place.arrival);
        }
    }

    fn withdraw(&mut self, key: Key, owner: Owner) {
        let at = |place: &&Place| (place.key, place.owner) == (key, owner);
        let Some(place) = self.places.iter().find(at).copied() else {
            return;
        };
        match place.request {
            Some(number) => self.dismiss(number, Reply::Refused),
            None => self.places.retain(|place| !at(&place)),
        }
    }

    /// A request leaves, and nothing is kept.
    fn dismiss(&mut self, number: u64, reply: Reply) {
        let at = self
            .requests
            .iter()
            .position(|r| r.number == number)
            .unwrap();
        let conn = self.requests.remove(at).conn;
        self.replies.push((conn, reply));
        self.places.retain(|place| place.request != Some(number));
    }

    fn fail_all(&mut self, key: Key, error: &'static str) {
        let here = self.places.iter().filter(|place| place.key == key);
        let numbers: Vec<u64> = here.filter_map(|place| place.request).collect();
        for number in numbers {
            self.dismiss(number, Reply::Error(error));
        }
        self.places.retain(|place| place.key != key);
    }

    fn claim(&mut self, key: Key, owner: Owner) {
        let other = |way: &InFlight| (way.key, way.owner) != (key, owner);
        self.undelivered.retain(other);
        self.in_flight.retain(other);
    }

    // ---- deadlocks ----

    /// Whether the newest request of this owner is on a way back to it.
    fn waits_for_itself(&self, owner: Owner) -> bool {
        let newest = self.requests.last().unwrap();
        let mut next: Vec<Owner> = newest
            .keys
            .iter()
            .flat_map(|key| self.waits_for(*key, owner))
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(other) = next.pop() {
            if other == owner {
                return true;
            }
            if seen.insert(other) {
                let keys = (0..KEYS).filter(|key| self.queue(*key).contains(&other));
                next.extend(keys.flat_map(|key| self.waits_for(key, other)));
            }
        }
        false
    }

    fn waits_for(&self, key: Key, owner: Owner) -> Vec<Owner> {
        if self.is_mine(key, owner) {
            return Vec::new();
        }
        let holder = self.holder(key).map(|hold| hold.owner);
        let queue = self.queue(key);
        let before = queue.iter().copied().take_while(|other| *other != owner);
        holder.into_iter().chain(before).collect()
    }

    // ---- the key changes by other means ----

    pub fn set(&mut self, key: Key, state: State) {
        // A key without waiters is not settled.
        if state == State::Other && !self.queue(key).is_empty() {
            self.overwritten.push(key);
        }
        self.keys[key] = state;
    }

    pub fn set_ttl(&mut self, key: Key, deadline_ms: Option<i64>) {
        if let State::Held(hold) = &mut self.keys[key] {
            hold.deadline_ms = deadline_ms;
        }
    }

    pub fn server_expires(&mut self, key: Key) {
        if matches!(self.keys[key], State::Held(_)) && self.holder(key).is_none() {
            self.keys[key] = State::Absent;
        }
    }

    pub fn redisson_acquires(&mut self, key: Key, owner: Owner, lease_ms: i64) {
        self.server_expires(key);
        let deadline_ms = Some(self.wall_ms + lease_ms);
        self.keys[key] = State::Held(match self.keys[key] {
            State::Absent => Hold {
                owner,
                count: 1,
                deadline_ms,
                grant: 0,
            },
            State::Held(hold) if hold.owner == owner => Hold {
                count: hold.count + 1,
                deadline_ms,
                ..hold
            },
            _ => return,
        });
    }

    pub fn redisson_releases(&mut self, key: Key, owner: Owner, lease_ms: i64) {
        self.server_expires(key);
        let Some(hold) = self.holder(key).filter(|hold| hold.owner == owner) else {
            return;
        };
        self.keys[key] = match hold.count {
            1 => State::Absent,
            count => State::Held(Hold {
                count: count - 1,
                deadline_ms: Some(self.wall_ms + lease_ms),
                ..hold
            }),
        };
    }
}
