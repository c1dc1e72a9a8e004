//! The contract as plainly as it can be written: vectors that are searched from the front. One model serves locks,
//! read-write locks and semaphores: what differs is whom a key admits ([`Rule`]).
//!
//! The model shares no code with the core and has no index, no timer and no list of effects. A queue is the places of a
//! key in the order of arrival, and a search of all places finds what is due. Tokens are not predicted: the driver
//! passes the token of each grant ([`Model::learn_token`]).
//!
//! One rule is copied from the core on purpose: the end of a wait is noticed by a timer, or when a grant skips the
//! request, and the grace time of the place begins then.

mod commands;
mod others;
mod queue;
mod sessions;
mod tickets;
mod windows;

pub use self::sessions::Terms;
use self::sessions::{Session, Sessions};
use self::windows::{Passed, Windows};
use crate::lock::tests::model::tickets::{Channel, Ends, Hearing, Ticket};
use crate::lock::tests::model::{conn_of, Reply};
use crate::lock::tests::sim::Settings;
use crate::lock::Mode;

pub type Key = usize;
pub type Owner = usize;
pub type Conn = u64;

/// Whom a key admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// One owner.
    Exclusive,
    /// Readers beside readers, a writer beside its own READ hold.
    ReadWrite,
    /// A semaphore with so many permits; `None`: it does not exist.
    Permits(Option<u32>),
}

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
    pub mode: Mode,
    pub count: u32,
    /// Of a semaphore.
    pub permits: u32,
    pub deadline_ms: Option<i64>,
    pub token: Token,
    /// Which grant this is; 0 for Redisson's.
    pub grant: u64,
    pub session: Option<Session>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Holds, some of which may be over; none: the key is absent.
    Holds(Vec<Hold>),
    /// The token without a holder.
    Bare,
    OtherHash,
    OtherType,
}

/// What a command asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    pub keys: Vec<Key>,
    pub owner: Owner,
    pub conn: Conn,
    pub mode: Mode,
    pub terms: Terms,
    /// `None`: without `BLOCK`; `Some(None)`: without an end.
    pub wait: Option<Option<u64>>,
    pub once: bool,
    /// Of a semaphore: how many permits it asks for.
    pub count: u32,
    /// The permits of the semaphore, if this creates it.
    pub limit: Option<u32>,
    /// It waits only if fewer others do.
    pub queue: Option<u32>,
    /// Its outcome is a message: it blocks no connection.
    pub ticket: Option<Ticket>,
}

impl Ask {
    /// For one key, from one of this owner's connections.
    pub fn new(
        key: Key,
        (owner, conn): (Owner, u64),
        (mode, terms): (Mode, Terms),
        wait: Option<Option<u64>>,
    ) -> Ask {
        Ask {
            keys: vec![key],
            owner,
            conn: conn_of(owner, conn),
            mode,
            terms,
            wait,
            once: false,
            count: 1,
            limit: None,
            queue: None,
            ticket: None,
        }
    }

    /// With `NOTIFY`. The tag follows when it is sent.
    pub fn notify(self, channel: Option<Channel>) -> Ask {
        let ticket = channel.map(|channel| Ticket::new(channel, 0));
        Ask { ticket, ..self }
    }
}

/// An [`Ask`] that waits.
#[derive(Debug, Clone)]
struct Request {
    number: u64,
    ask: Ask,
    until_ms: Option<u64>,
    /// Whether it is a `LOCK.MACQUIRE`: then the end of the tick decides.
    many: bool,
    /// The connection that it came from has closed.
    is_closed: bool,
}

/// The position of an owner in the queue of a key. A request has one at each of its keys.
#[derive(Debug, Clone)]
struct Place {
    key: Key,
    owner: Owner,
    /// The order of the queue.
    arrival: i64,
    /// `None`: kept for its owner until `kept_until_ms`.
    request: Option<Request>,
    kept_until_ms: u64,
    /// The mode of the ticket that left it when its wait ran out, and that is not counted yet.
    timed_out: Option<Mode>,
}

/// A grant at one key whose reply has not been delivered.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    conn: Conn,
    key: Key,
    owner: Owner,
    grant: u64,
    arrival: i64,
    /// One more hold of an owner that held already.
    again: bool,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub wall_ms: i64,
    pub mono_ms: u64,
    pub may_grant: bool,
    /// The end of the startup delay.
    pub delay_until_ms: u64,
    pub rule: Rule,
    pub keys: Vec<State>,
    pub replies: Vec<(Conn, Reply)>,
    pub messages: Vec<(Ticket, Reply)>,
    pub published: Vec<Key>,
    pub hearing: Hearing,
    /// The ends of tickets.
    pub ends: Ends,
    /// Fresh grants of this process.
    pub grants: u64,
    pub settings: Settings,
    pub windows: Windows,
    sessions: Sessions,
    /// All places of all keys, in the order of the queues.
    places: Vec<Place>,
    /// Keys to settle at the end of the tick, in the order of their changes.
    unsettled: Vec<Key>,
    in_flight: Vec<InFlight>,
    undelivered: Vec<InFlight>,
    grant_number: u64,
    /// Numbers of requests, of places, and of places that upgrades take before all others.
    numbers: u64,
    arrivals: i64,
    firsts: i64,
}

impl Model {
    pub fn new(rule: Rule, keys: usize, settings: &Settings, wall_ms: i64) -> Model {
        Model {
            wall_ms,
            mono_ms: 0,
            may_grant: true,
            delay_until_ms: 0,
            rule,
            keys: vec![State::Holds(Vec::new()); keys],
            replies: Vec::new(),
            messages: Vec::new(),
            published: Vec::new(),
            hearing: Hearing::default(),
            ends: Ends::default(),
            grants: 0,
            settings: *settings,
            windows: Windows::new(settings.windows, keys),
            sessions: Sessions::default(),
            places: Vec::new(),
            unsettled: Vec::new(),
            in_flight: Vec::new(),
            undelivered: Vec::new(),
            grant_number: 0,
            numbers: 0,
            arrivals: 0,
            firsts: 0,
        }
    }

    // ---- holds ----

    /// The holds in the key, also those that are over.
    fn holds(&self, key: Key) -> &[Hold] {
        match &self.keys[key] {
            State::Holds(holds) => holds,
            _ => &[],
        }
    }

    /// The holds that are valid now.
    pub fn live(&self, key: Key) -> Vec<Hold> {
        let is_live = |hold: &&Hold| hold.deadline_ms.is_none_or(|end| end > self.wall_ms);
        self.holds(key).iter().filter(is_live).copied().collect()
    }

    /// The one hold of an exclusive lock.
    pub fn holder(&self, key: Key) -> Option<Hold> {
        self.live(key).first().copied()
    }

    /// The hold of this owner, in any mode or in this one.
    pub fn hold_of(&self, key: Key, owner: Owner, mode: Option<Mode>) -> Option<Hold> {
        let is_it = |hold: &Hold| hold.owner == owner && mode.is_none_or(|mode| mode == hold.mode);
        self.live(key).into_iter().find(is_it)
    }

    /// Whether the present holds allow what is asked for at this key, which has to wait for no other holder.
    fn admits(&self, key: Key, ask: &Ask) -> bool {
        let (holds, mode) = (self.live(key), ask.mode);
        let is_mine = |hold: &Hold| hold.owner == ask.owner;
        match self.rule {
            _ if self.foreign(key).is_some() => false,
            Rule::Exclusive => holds.iter().all(is_mine),
            Rule::ReadWrite => holds
                .iter()
                .all(|hold| is_mine(hold) || (hold.mode, mode) == (Mode::Read, Mode::Read)),
            Rule::Permits(_) => holds.iter().any(is_mine) || self.free_permits(key) >= ask.count,
        }
    }

    /// Whether the key may be handed off, to its first request or to one more.
    pub fn has_room(&self, key: Key) -> bool {
        let holds = self.live(key).len();
        match self.rule {
            Rule::Exclusive => holds == 0,
            Rule::ReadWrite => true,
            Rule::Permits(_) => self.free_permits(key) > 0,
        }
    }

    /// Whether the first request waits for no more than there is.
    pub fn could_grant(&self, key: Key) -> bool {
        let first = self.first(key);
        first.is_some_and(|first| self.admits(key, &first.ask))
    }

    fn free_permits(&self, key: Key) -> u32 {
        let held = self.live(key).iter().map(|hold| hold.permits).sum();
        match self.rule {
            Rule::Permits(Some(all)) => all.saturating_sub(held),
            _ => 0,
        }
    }

    /// Writes this hold, over the one of its owner in its mode. The lease of a writer lasts as long as its READ hold.
    fn put(&mut self, key: Key, hold: Hold) {
        let mut holds = self.live(key);
        let same = |other: &&mut Hold| (other.owner, other.mode) == (hold.owner, hold.mode);
        match holds.iter_mut().find(same) {
            Some(other) => *other = hold,
            None => holds.push(hold),
        }
        let reads = holds.iter().filter(|hold| hold.mode == Mode::Read);
        let longest = reads.filter_map(|hold| hold.deadline_ms).max();
        for hold in holds.iter_mut().filter(|hold| hold.mode == Mode::Write) {
            hold.deadline_ms = hold.deadline_ms.max(longest);
        }
        self.keys[key] = State::Holds(holds);
    }

    fn take_away(&mut self, key: Key, hold: Hold) {
        let mut holds = self.live(key);
        holds.retain(|other| (other.owner, other.mode) != (hold.owner, hold.mode));
        self.keys[key] = State::Holds(holds);
    }

    /// One more hold. Returns whether it is a new one.
    fn enter(&mut self, key: Key, ask: &Ask) -> bool {
        let present = self.hold_of(key, ask.owner, Some(ask.mode));
        let (session, hold) = match present {
            Some(hold) => (self.session_after(hold, Some(ask.conn), ask.terms), hold),
            None => {
                self.end_window(key);
                self.grants += 1;
                self.grant_number += 1;
                self.forget_ended(key, ask.owner);
                let binds = ask.terms == Terms::Session;
                let hold = Hold {
                    owner: ask.owner,
                    mode: ask.mode,
                    count: 0,
                    permits: ask.count,
                    deadline_ms: Some(0),
                    token: Token::New,
                    grant: self.grant_number,
                    session: None,
                };
                (binds.then(|| self.new_session(ask.conn)), hold)
            }
        };
        let wanted = self.wall_ms + self.lease_ms(session.is_some(), ask.terms);
        let is_more = present.is_none() || !ask.once;
        self.put(
            key,
            Hold {
                count: hold.count + u32::from(is_more),
                deadline_ms: Some(hold.deadline_ms.map_or(wanted, |end| end.max(wanted))),
                token: hold.token.adopted(),
                session,
                ..hold
            },
        );
        present.is_none()
    }

    /// The one hold of an exclusive lock has this token in the key space. True when it is a new one.
    pub fn learn_token(&mut self, key: Key, token: Option<u64>) -> bool {
        let State::Holds(holds) = &mut self.keys[key] else {
            panic!("a token without a holder");
        };
        match (holds[0].token, token) {
            (Token::New, Some(token)) => {
                holds[0].token = Token::Known(token);
                true
            }
            (Token::Known(known), Some(token)) if known == token => false,
            (Token::None, None) => false,
            (expected, got) => panic!("the token is {got:?}, expected {expected:?}"),
        }
    }

    fn foreign(&self, key: Key) -> Option<&'static str> {
        match self.keys[key] {
            State::OtherHash => Some("LOCKTYPE"),
            State::OtherType => Some("WRONGTYPE"),
            _ => None,
        }
    }

    /// Whether locks are granted at the moment.
    pub fn grants(&self) -> bool {
        self.may_grant && !self.is_delayed()
    }

    pub fn is_delayed(&self) -> bool {
        self.delay_until_ms > self.mono_ms
    }

    // ---- time and ticks ----

    pub fn pass(&mut self, ms: u64) {
        self.mono_ms += ms;
        self.wall_ms += ms as i64;
    }

    pub fn alarm(&mut self, only_urgent: bool) {
        while let Some(place) = self.next_due() {
            match place.request {
                Some(request) => self.time_out(&request),
                None => self.give_up(place.key, place.owner),
            }
        }
        self.end_of_tick();
        self.work_on_sessions(only_urgent);
        self.end_of_tick();
    }

    fn next_due(&self) -> Option<Place> {
        let due = |place: &Place| match &place.request {
            Some(request) => request.until_ms.unwrap_or(u64::MAX),
            None => place.kept_until_ms,
        };
        let over = self.places.iter().filter(|p| due(p) <= self.mono_ms);
        over.min_by_key(|place| due(place)).cloned()
    }

    pub fn end_of_tick(&mut self) {
        for key in std::mem::take(&mut self.unsettled) {
            self.settle(key);
        }
        let mut due: Vec<Key> = (0..self.keys.len()).collect();
        due.retain(|key| {
            self.creates_for_first(*key) || self.is_due(*key) && self.windows.window[*key].is_none()
        });
        due.sort_by_key(|key| self.holds(*key).first().and_then(|hold| hold.deadline_ms));
        for key in due {
            self.settle(key);
        }
        while self.grant_many() {}
        for key in self.next_windows() {
            self.end_window(key);
            self.settle(key);
        }
    }

    /// Whether the first request could be granted. During a window only a timer ends waits.
    fn is_due(&self, key: Key) -> bool {
        let first = self.first(key);
        !self.is_left_free(key)
            && self.has_room(key)
            && first.is_some_and(|first| self.admits(key, &first.ask))
    }

    fn settle(&mut self, key: Key) {
        self.note_window_taken(key);
        let (undone, rest) = self.undelivered.iter().partition(|undo| undo.key == key);
        self.undelivered = rest;
        if let Some(error) = self.foreign(key) {
            if !self.queue(key).is_empty() {
                self.fail_all(key, error);
            }
            return;
        }
        self.undo(key, undone);
        while self.is_due(key) || self.is_to_create(key) || self.keys[key] == State::Bare {
            self.ask(key);
            let before = self.rule;
            self.create_by_first(key);
            let passed = self.hand_off(key);
            self.is_made_by_grants(key, before);
            if passed != Passed::Granted {
                break;
            }
        }
        if self.keys[key] == State::Bare {
            self.set_free(key);
        }
    }

    /// Undoes the grants that are still the present ones.
    fn undo(&mut self, key: Key, mut undone: Vec<InFlight>) {
        let live = self.live(key);
        undone.retain(|undo| live.iter().any(|hold| hold.grant == undo.grant));
        if undone.iter().any(|undo| !undo.again) {
            self.ask(key);
        }
        for undo in &undone {
            let mut holds = self.live(key).into_iter();
            let hold = holds.find(|hold| hold.grant == undo.grant).unwrap();
            if undo.again {
                let count = (hold.count - 1).max(1);
                self.put(key, Hold { count, ..hold });
            } else {
                self.give_back(undo);
                self.take_away(key, hold);
            }
        }
        if undone.iter().any(|undo| !undo.again) {
            self.pass_on(key);
        }
    }

    pub fn schedule_settle(&mut self, key: Key) {
        if !self.queue(key).is_empty() {
            self.note(key);
        }
    }

    fn schedule_settle_all(&mut self) {
        for key in 0..self.keys.len() {
            self.schedule_settle(key);
        }
    }

    fn note(&mut self, key: Key) {
        if !self.unsettled.contains(&key) {
            self.unsettled.push(key);
        }
    }

    // ---- grants ----

    /// A hold is gone: the key goes to the first requests, or is free.
    fn pass_on(&mut self, key: Key) {
        match self.hand_off(key) {
            Passed::Granted | Passed::LeftFree => {}
            Passed::NoWaiter | Passed::StillFree if self.holds(key).is_empty() => {
                self.set_free(key);
            }
            Passed::NoWaiter | Passed::StillFree => {}
        }
    }

    fn set_free(&mut self, key: Key) {
        self.windows.was_free(key);
        self.free(key);
    }

    fn free(&mut self, key: Key) {
        self.keys[key] = State::Holds(Vec::new());
        self.published.push(key);
    }

    /// Grants the first requests whose waits are not over, and that are heard, as long as the key admits them.
    fn hand_off(&mut self, key: Key) -> Passed {
        let mut passed = Passed::NoWaiter;
        while self.grants() && self.has_room(key) {
            let Some(first) = self.first(key) else { break };
            if matches!(self.rule, Rule::Permits(_)) && self.free_permits(key) < first.ask.count {
                break;
            }
            if first.is_over(self.mono_ms) {
                self.time_out(&first);
                continue;
            }
            if let Some(Ticket { channel, .. }) = first.ask.ticket {
                if self.hearing.is_unheard(channel, self.mono_ms) {
                    self.pass_over(&first);
                    continue;
                }
                if !self.hearing.heard[channel] {
                    self.note(key);
                    break;
                }
            }
            if first.many || !self.admits(key, &first.ask) {
                break;
            }
            if let Some(left_free) = self.leave_free(key) {
                return left_free;
            }
            self.grant(&first);
            passed = Passed::Granted;
        }
        passed
    }

    /// Grants one of the requests that the end of the tick decides, if one can have all its keys.
    fn grant_many(&mut self) -> bool {
        let mut many: Vec<Request> = self.requests();
        many.retain(|request| request.many);
        many.sort_by_key(|request| request.number);
        let is_ready = |request: &Request| {
            request.ask.keys.iter().all(|key| {
                let first = self.first(*key).map(|first| first.number);
                let is_mine = self.hold_of(*key, request.ask.owner, None).is_some();
                is_mine || self.is_due(*key) && first == Some(request.number)
            })
        };
        let ready = many.into_iter().find(is_ready);
        ready.is_some_and(|request| {
            self.grant(&request);
            true
        })
    }

    fn grant(&mut self, request: &Request) {
        let Ask {
            owner, conn, mode, ..
        } = request.ask;
        for place in self.leave(request) {
            let key = place.key;
            let again = !self.enter(key, &request.ask);
            if again {
                self.claim(key, owner);
            }
            // The message of a ticket is delivered at once.
            if request.ask.ticket.is_none() && !(again && request.ask.once) {
                self.in_flight.push(InFlight {
                    conn,
                    key,
                    owner,
                    grant: self.hold_of(key, owner, Some(mode)).unwrap().grant,
                    arrival: place.arrival,
                    again,
                });
            }
            self.count(key);
        }
        self.answer(request, Reply::Granted);
    }

    /// The owner has used its grant: the end of an older connection does not undo it.
    fn claim(&mut self, key: Key, owner: Owner) {
        let other = |grant: &InFlight| (grant.key, grant.owner) != (key, owner);
        self.undelivered.retain(other);
        self.in_flight.retain(other);
    }

    // ---- connections and the server ----

    pub fn delivered(&mut self) {
        self.in_flight.clear();
    }

    pub fn disconnect(&mut self, conn: Conn, had_holds: bool) {
        let (gone, rest): (Vec<_>, _) = self.in_flight.iter().partition(|one| one.conn == conn);
        self.in_flight = rest;
        if gone.is_empty() {
            self.unblock(conn);
        }
        for grant in gone {
            self.forget_session(grant.key, grant.grant);
            self.note(grant.key);
            self.undelivered.push(grant);
        }
        self.close_tickets_of(conn);
        self.end_sessions_of(conn, had_holds);
    }

    pub fn unblock(&mut self, conn: Conn) {
        let mut requests = self.requests().into_iter();
        if let Some(request) = requests.find(|request| request.blocks(conn)) {
            self.leave_and_keep(&request, None);
        }
    }

    pub fn restart(&mut self, settings: &Settings) {
        self.forget_all_sessions();
        let fresh = Model::new(self.rule, self.keys.len(), settings, self.wall_ms);
        *self = Model {
            keys: std::mem::take(&mut self.keys),
            mono_ms: self.mono_ms,
            may_grant: self.may_grant,
            grant_number: self.grant_number,
            windows: self.windows.restarted(),
            hearing: self.hearing.restarted(),
            ..fresh
        };
    }

    /// The server has unblocked the parked clients; tickets fail. Nothing is undone, nothing is bound.
    pub fn change_role(&mut self) {
        for request in self.requests() {
            self.leave(&request);
            if request.ask.ticket.is_some() {
                self.fail(&request, "UNBLOCKED");
            }
        }
        for key in 0..self.keys.len() {
            self.fail_all(key, "UNBLOCKED");
            self.end_window(key);
        }
        self.forget_all_sessions();
        self.undelivered.clear();
        self.unsettled.clear();
    }
}

impl Token {
    /// A hold without a token gets one when its owner acquires or renews it.
    fn adopted(self) -> Token {
        match self {
            Token::None => Token::New,
            token => token,
        }
    }
}
