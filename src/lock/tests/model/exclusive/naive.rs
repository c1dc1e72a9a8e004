//! The contract as plainly as it can be written: vectors that are searched from the front.
//!
//! The model shares no code with the core and has no index, no timer and no list of effects. A queue is a vector of
//! places in the order of arrival, and a search of all places finds what is due. Tokens are not predicted: the driver
//! passes the token of each grant ([`Model::learn_token`]).
//!
//! One rule is copied from the core on purpose: the end of a wait is noticed by a timer, or when a grant skips the
//! request, and the grace time of the place begins then.

mod commands;
mod tickets;

use self::tickets::Hearing;
use crate::lock::tests::model::exclusive::sessions::{Session, Sessions, Terms};
use crate::lock::tests::model::exclusive::windows::{Passed, Windows};
use crate::lock::tests::model::tickets::{Ends, Ticket};
use crate::lock::tests::model::Reply;
use crate::lock::tests::sim::Settings;

pub const KEYS: usize = 2;

pub type Key = usize;
pub type Owner = usize;
pub type Conn = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A Redisson client's hold.
    None,
    /// Granted in this step.
    New,
    Known(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub owner: Owner,
    pub count: u32,
    pub deadline_ms: Option<i64>,
    pub token: Token,
    /// Which grant this is; 0 for Redisson's.
    pub grant: u64,
    pub session: Option<Session>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Absent,
    /// The token without a holder.
    Bare,
    Held(Hold),
    OtherHash,
    OtherType,
}

#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub conn: Conn,
    pub terms: Terms,
    pub until_ms: Option<u64>,
    /// Its outcome is a message: it blocks no connection.
    pub ticket: Option<Ticket>,
    /// The connection that it came from has closed.
    pub is_closed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    key: Key,
    owner: Owner,
    /// The number of its arrival.
    arrival: u64,
    /// `None`: kept for its owner until `kept_until_ms`.
    request: Option<Request>,
    kept_until_ms: u64,
    /// It was left by a ticket whose wait ran out, which is not counted yet.
    timed_out: bool,
}

/// A grant whose reply has not been delivered.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    conn: Conn,
    key: Key,
    owner: Owner,
    grant: u64,
    arrival: u64,
}

#[derive(Debug)]
pub struct Model {
    pub wall_ms: i64,
    pub mono_ms: u64,
    pub may_grant: bool,
    /// The end of the startup delay.
    pub delay_until_ms: u64,
    pub keys: [State; KEYS],
    pub replies: Vec<(Conn, Reply)>,
    pub messages: Vec<(Ticket, Reply)>,
    pub published: Vec<Key>,
    pub hearing: Hearing,
    /// The ends of tickets.
    pub ends: Ends,
    /// Fresh grants of this process.
    pub grants: u64,
    pub settings: Settings,
    pub sessions: Sessions,
    pub windows: Windows,
    /// All places of all keys, by arrival.
    places: Vec<Place>,
    /// Keys to settle at the end of the tick, in the order of their changes.
    unsettled: Vec<Key>,
    in_flight: Vec<InFlight>,
    undelivered: Vec<InFlight>,
    grant_number: u64,
    arrivals: u64,
}

impl Model {
    pub fn new(settings: &Settings, wall_ms: i64) -> Model {
        Model {
            wall_ms,
            mono_ms: 0,
            may_grant: true,
            delay_until_ms: 0,
            keys: [State::Absent; KEYS],
            replies: Vec::new(),
            messages: Vec::new(),
            published: Vec::new(),
            hearing: Hearing::default(),
            ends: Ends::default(),
            grants: 0,
            settings: *settings,
            sessions: Sessions::default(),
            windows: Windows::new(settings.windows),
            places: Vec::new(),
            unsettled: Vec::new(),
            in_flight: Vec::new(),
            undelivered: Vec::new(),
            grant_number: 0,
            arrivals: 0,
        }
    }

    // ---- what can be asked ----

    /// The hold that is valid now.
    pub fn holder(&self, key: Key) -> Option<Hold> {
        match self.keys[key] {
            State::Held(hold) if hold.deadline_ms.is_none_or(|end| end > self.wall_ms) => {
                Some(hold)
            }
            _ => None,
        }
    }

    /// The owners of the requests for a key, in the order of the queue.
    pub fn queue(&self, key: Key) -> Vec<Owner> {
        let places = self.places.iter();
        let live = places.filter(|place| place.key == key && place.request.is_some());
        live.map(|place| place.owner).collect()
    }

    pub fn kept_places(&self) -> usize {
        let places = self.places.iter();
        places.filter(|place| place.request.is_none()).count()
    }

    /// The present hold has this token in the key space. True when it is a new one.
    pub fn learn_token(&mut self, key: Key, token: Option<u64>) -> bool {
        let State::Held(hold) = &mut self.keys[key] else {
            panic!("a token without a holder");
        };
        match (hold.token, token) {
            (Token::New, Some(token)) => {
                hold.token = Token::Known(token);
                true
            }
            (Token::Known(known), Some(token)) if known == token => false,
            (Token::None, None) => false,
            (expected, got) => panic!("the token is {got:?}, expected {expected:?}"),
        }
    }

    // ---- time and ticks ----

    pub fn alarm(&mut self, only_urgent: bool) {
        while let Some(index) = self.next_due() {
            let place = self.places.remove(index);
            match place.request {
                Some(request) => self.time_out(place, request),
                None => self.give_up(place),
            }
        }
        self.end_of_tick();
        self.work_on_sessions(only_urgent);
        self.end_of_tick();
    }

    fn next_due(&self) -> Option<usize> {
        let due = |place: &Place| match place.request {
            Some(request) => request.until_ms.unwrap_or(u64::MAX),
            None => place.kept_until_ms,
        };
        let indices = 0..self.places.len();
        indices
            .filter(|index| due(&self.places[*index]) <= self.mono_ms)
            .min_by_key(|index| (due(&self.places[*index]), *index))
    }

    pub fn end_of_tick(&mut self) {
        for key in std::mem::take(&mut self.unsettled) {
            self.settle(key);
        }
        let mut over: Vec<Key> = (0..KEYS).collect();
        let left_free = |key: &Key| self.windows.window[*key].is_some();
        over.retain(|key| {
            self.holder(*key).is_none() && !self.queue(*key).is_empty() && !left_free(key)
        });
        over.sort_by_key(|key| match self.keys[*key] {
            State::Held(hold) => hold.deadline_ms,
            _ => None,
        });
        for key in over {
            self.settle(key);
        }
        for key in self.next_windows() {
            self.end_window(key);
            self.settle(key);
        }
    }

    fn settle(&mut self, key: Key) {
        self.note_window_taken(key);
        let planned = self.undelivered.iter().position(|undo| undo.key == key);
        let planned = planned.map(|index| self.undelivered.remove(index));
        if let Some(error) = self.foreign(key) {
            let waits = |place: &Place| place.key == key && place.request.is_some();
            if self.places.iter().any(waits) {
                self.fail_all(key, error);
            }
            return;
        }
        let bare = self.keys[key] == State::Bare;
        match (self.holder(key), planned) {
            (Some(hold), Some(undo)) if hold.grant == undo.grant => {
                self.ask(key);
                self.give_back(undo);
                self.pass_on(key);
            }
            (Some(_), _) => {}
            // During a window only a timer ends waits.
            (None, _) if !bare && self.is_left_free(key) => {}
            (None, _) => {
                self.ask(key);
                match self.hand_off(key) {
                    Passed::NoWaiter | Passed::StillFree if bare => self.set_free(key),
                    _ => {}
                }
            }
        }
    }

    /// The owner of an undone grant gets its place back, for the grace time.
    fn give_back(&mut self, undo: InFlight) {
        let InFlight {
            key,
            owner,
            arrival,
            ..
        } = undo;
        let known = self.places.iter().any(|p| (p.key, p.owner) == (key, owner));
        if !known {
            self.keep(Place {
                key,
                owner,
                arrival,
                request: None,
                kept_until_ms: 0,
                timed_out: false,
            });
        }
    }

    // ---- connections ----

    pub fn delivered(&mut self) {
        self.in_flight.clear();
    }

    pub fn disconnect(&mut self, conn: Conn, had_holds: bool) {
        let way = self.in_flight.iter().position(|grant| grant.conn == conn);
        if let Some(index) = way {
            let grant = self.in_flight.remove(index);
            self.forget_session(grant.key, grant.grant);
            self.note(grant.key);
            // Only the latest grant of a key can still be the current one.
            let rival = |undo: &InFlight| undo.key == grant.key;
            if !self
                .undelivered
                .iter()
                .any(|undo| rival(undo) && undo.grant > grant.grant)
            {
                self.undelivered.retain(|undo| !rival(undo));
                self.undelivered.push(grant);
            }
        } else {
            self.unblock(conn);
        }
        self.close_tickets_of(conn);
        self.end_sessions_of(conn, had_holds);
    }

    pub fn unblock(&mut self, conn: Conn) {
        let mut places = self.places.iter();
        if let Some(index) = places.position(|p| p.request.is_some_and(|r| r.blocks(conn))) {
            let place = self.places.remove(index);
            self.keep(place);
        }
    }

    pub fn restart(&mut self, settings: &Settings) {
        let fresh = Model::new(settings, self.wall_ms);
        *self = Model {
            keys: self.keys.map(State::without_session),
            mono_ms: self.mono_ms,
            may_grant: self.may_grant,
            grant_number: self.grant_number,
            windows: self.windows.restarted(),
            hearing: self.hearing.restarted(),
            ..fresh
        };
    }

    /// Whether locks are granted at the moment.
    pub fn grants(&self) -> bool {
        self.may_grant && !self.is_delayed()
    }

    pub fn is_delayed(&self) -> bool {
        self.delay_until_ms > self.mono_ms
    }

    /// Every request fails, and no place is kept.
    pub fn drain(&mut self) {
        for key in 0..KEYS {
            self.end_window(key);
            self.fail_all(key, "DRAINED");
        }
        let places = std::mem::take(&mut self.places);
        places.into_iter().for_each(|place| self.give_up(place));
    }

    /// The server has unblocked the parked clients; tickets fail. Nothing is undone, nothing is bound.
    pub fn change_role(&mut self) {
        for place in std::mem::take(&mut self.places) {
            self.give_up(place);
            if let Some(request) = place.request.filter(|request| request.ticket.is_some()) {
                self.fail(request, "UNBLOCKED");
            }
        }
        (0..KEYS).for_each(|key| self.end_window(key));
        self.keys = self.keys.map(State::without_session);
        self.sessions.ended.clear();
        self.undelivered.clear();
        self.unsettled.clear();
    }

    pub fn schedule_settle(&mut self, key: Key) {
        if !self.queue(key).is_empty() {
            self.note(key);
        }
    }

    pub fn schedule_settle_all(&mut self) {
        for key in 0..KEYS {
            self.schedule_settle(key);
        }
    }

    fn note(&mut self, key: Key) {
        if !self.unsettled.contains(&key) {
            self.unsettled.push(key);
        }
    }

    // ---- the rules that the above share ----

    fn foreign(&self, key: Key) -> Option<&'static str> {
        match self.keys[key] {
            State::OtherHash => Some("LOCKTYPE"),
            State::OtherType => Some("WRONGTYPE"),
            _ => None,
        }
    }

    fn held_by(&self, key: Key, owner: Option<Owner>, token: Option<u64>) -> Option<Hold> {
        let hold = self.holder(key)?;
        let right_owner = owner.is_none_or(|owner| owner == hold.owner);
        let right_token = token.is_none_or(|token| hold.token == Token::Known(token));
        (right_owner && right_token).then_some(hold)
    }

    /// A hold without a token gets one, if tokens can be had.
    fn adopted(&self, hold: Hold) -> Option<Hold> {
        match hold.token {
            Token::None if !self.may_grant => None,
            Token::None => Some(Hold {
                token: Token::New,
                ..hold
            }),
            _ => Some(hold),
        }
    }

    /// The owner has used its grant: the end of an older connection does not undo it.
    fn claim(&mut self, key: Key, owner: Owner) {
        let other = |grant: &InFlight| (grant.key, grant.owner) != (key, owner);
        self.undelivered.retain(other);
        self.in_flight.retain(other);
    }

    pub fn pass_on(&mut self, key: Key) {
        match self.hand_off(key) {
            Passed::Granted | Passed::LeftFree => {}
            Passed::NoWaiter | Passed::StillFree => self.set_free(key),
        }
    }

    fn set_free(&mut self, key: Key) {
        self.windows.was_free(key);
        self.free(key);
    }

    pub fn free(&mut self, key: Key) {
        self.keys[key] = State::Absent;
        self.published.push(key);
    }

    fn grant(&mut self, key: Key, owner: Owner, (conn, terms): (Conn, Terms)) {
        self.end_window(key);
        self.grants += 1;
        self.grant_number += 1;
        self.forget_ended(key, owner);
        let session = (terms == Terms::Session).then(|| self.new_session(conn));
        let lease_ms = self.lease_ms(session.is_some(), terms);
        self.keys[key] = State::Held(Hold {
            owner,
            count: 1,
            deadline_ms: Some(self.wall_ms + lease_ms),
            token: Token::New,
            grant: self.grant_number,
            session,
        });
    }

    /// Grants the first request whose wait is not over.
    fn hand_off(&mut self, key: Key) -> Passed {
        while self.grants() {
            let mut places = self.places.iter();
            let first = places.position(|p| p.key == key && p.request.is_some());
            let Some(first) = first else { break };
            let place = self.places[first];
            let Some(request) = place.request else { break };
            let is_over = request.until_ms.is_some_and(|end| end <= self.mono_ms);
            if !is_over && self.is_asked_later(request) {
                self.note(key);
                break;
            }
            let left_free = (!is_over).then(|| self.leave_free(key)).flatten();
            if let Some(left_free) = left_free {
                return left_free;
            }
            self.places.remove(first);
            if is_over {
                self.time_out(place, request);
                continue;
            }
            self.grant(key, place.owner, (request.conn, request.terms));
            self.answer(request, Reply::Granted);
            // The message of a ticket is delivered at once.
            if request.ticket.is_none() {
                self.in_flight.push(InFlight {
                    conn: request.conn,
                    key,
                    owner: place.owner,
                    grant: self.grant_number,
                    arrival: place.arrival,
                });
            }
            self.count(key);
            return Passed::Granted;
        }
        Passed::NoWaiter
    }

    /// The owner of a request that has left keeps its place for the grace time, if there is room.
    fn keep(&mut self, mut place: Place) {
        let grace = self.settings.grace;
        if grace.ms == 0 || self.kept_places() >= grace.max_places {
            return self.give_up(place);
        }
        place.request = None;
        place.kept_until_ms = self.mono_ms + grace.ms;
        self.places.push(place);
        self.places.sort_by_key(|place| place.arrival);
    }

    /// A place goes: a ticket whose wait ran out there has not been continued in time.
    fn give_up(&mut self, place: Place) {
        self.ends.timed_out += u64::from(place.timed_out);
    }

    fn fail_all(&mut self, key: Key, error: &'static str) {
        for place in std::mem::take(&mut self.places) {
            if place.key != key {
                self.places.push(place);
                continue;
            }
            self.give_up(place);
            if let Some(request) = place.request {
                self.fail(request, error);
            }
        }
    }
}
