//! The naive model: requests and their places.

use crate::lock::tests::model::naive::{
    Ask, InFlight, Key, Model, Owner, Place, Request, Rule, Terms,
};
use crate::lock::tests::model::tickets::Ticket;
use crate::lock::tests::model::Reply;
use crate::lock::Mode;

impl Request {
    pub(super) fn is_over(&self, mono_ms: u64) -> bool {
        self.until_ms.is_some_and(|end| end <= mono_ms)
    }

    /// Whether this connection is parked.
    pub(super) fn blocks(&self, conn: u64) -> bool {
        self.ask.ticket.is_none() && self.ask.conn == conn
    }

    /// Whether its hold is to be bound to a connection that has closed.
    pub(super) fn is_closed_session(&self) -> bool {
        self.is_closed && self.ask.terms == Terms::Session
    }
}

impl Place {
    fn is_of(&self, request: &Request) -> bool {
        self.request.as_ref().map(|own| own.number) == Some(request.number)
    }

    fn is(&self, key: Key, owner: Owner) -> bool {
        (self.key, self.owner) == (key, owner)
    }
}

impl Model {
    // ---- what can be asked ----

    /// The requests for a key, in the order of the queue.
    pub(super) fn requests_at(&self, key: Key) -> Vec<Request> {
        let places = self.places.iter().filter(|place| place.key == key);
        places.filter_map(|place| place.request.clone()).collect()
    }

    pub(super) fn first(&self, key: Key) -> Option<Request> {
        self.requests_at(key).into_iter().next()
    }

    /// All requests.
    pub(super) fn requests(&self) -> Vec<Request> {
        let mut all: Vec<Request> = Vec::new();
        for place in &self.places {
            if let Some(request) = &place.request {
                if all.iter().all(|other| other.number != request.number) {
                    all.push(request.clone());
                }
            }
        }
        all
    }

    pub fn queue(&self, key: Key) -> Vec<Owner> {
        let requests = self.requests_at(key).into_iter();
        requests.map(|request| request.ask.owner).collect()
    }

    /// The modes of the requests for a key.
    pub fn modes_of(&self, key: Key) -> Vec<Mode> {
        let requests = self.requests_at(key).into_iter();
        requests.map(|request| request.ask.mode).collect()
    }

    /// The requests for a key: tickets, and `None` for parked clients.
    pub fn tickets_of(&self, key: Key) -> Vec<Option<Ticket>> {
        let requests = self.requests_at(key).into_iter();
        requests.map(|request| request.ask.ticket).collect()
    }

    pub fn parked(&self) -> usize {
        let requests = self.requests().into_iter();
        requests.filter(|one| one.ask.ticket.is_none()).count()
    }

    /// The connection of this owner's request.
    pub fn conn_of(&self, key: Key, owner: Owner) -> Option<u64> {
        let mut requests = self.requests_at(key).into_iter();
        let own = requests.find(|request| request.ask.owner == owner);
        own.map(|request| request.ask.conn)
    }

    pub fn live_places(&self) -> usize {
        self.places.len() - self.kept_places()
    }

    pub fn kept_places(&self) -> usize {
        let kept = self.places.iter().filter(|place| place.request.is_none());
        kept.count()
    }

    // ---- a request waits ----

    pub(super) fn enqueue(&mut self, ask: &Ask, many: bool) -> Reply {
        let Some(wait) = ask.wait else {
            return Reply::Refused;
        };
        if ask.keys.iter().any(|key| self.is_queue_full(*key, ask)) {
            return Reply::Error("QUEUEFULL");
        }
        if self.upgrades(ask.keys[0], ask) && self.another_upgrades(ask) {
            return Reply::Error("DEADLOCK of two upgrades");
        }
        let mut older = self.requests();
        let mine = |place: &Place| place.owner == ask.owner && ask.keys.contains(&place.key);
        older.retain(|one| self.places.iter().any(|p| mine(p) && p.is_of(one)));
        if self.is_full(ask, &older) {
            return Reply::Error("LOCKBUSY");
        }
        let before = self.clone();
        older.iter().for_each(|older| self.taken_over(older));
        self.take_places(ask, &older, many, wait.map(|ms| self.mono_ms + ms));
        if self.settings.deadlocks && self.waits_for_itself(ask) {
            *self = before;
            return Reply::Error("DEADLOCK");
        }
        Reply::Parked
    }

    /// Whether as many others wait already as the request allows. One that returns to its places is not refused.
    fn is_queue_full(&self, key: Key, ask: &Ask) -> bool {
        let mine = |place: &&Place| place.owner == ask.owner && ask.keys.contains(&place.key);
        let own: Vec<i64> = self
            .places
            .iter()
            .filter(mine)
            .map(|place| place.arrival)
            .collect();
        let first_to_last = own.iter().max().zip(own.iter().min());
        let returns = own.len() == ask.keys.len()
            && first_to_last.is_some_and(|(last, first)| last - first + 1 == own.len() as i64);
        let mut waiting = self.requests_at(key);
        waiting.retain(|request| request.ask.owner != ask.owner);
        !returns && ask.queue.is_some_and(|most| waiting.len() >= most as usize)
    }

    /// The bounds on parked clients and on tickets are independent. An owner that waits in the same way continues.
    pub(super) fn is_full(&self, ask: &Ask, older: &[Request]) -> bool {
        let is_ticket = ask.ticket.is_some();
        let alike = |place: &&Place| {
            let request = place.request.as_ref();
            request.is_some_and(|request| request.ask.ticket.is_some() == is_ticket)
        };
        let is_older = |place: &&Place| older.iter().any(|older| place.is_of(older));
        let (freed, others): (Vec<_>, Vec<_>) =
            self.places.iter().filter(alike).partition(is_older);
        let limits = self.settings.limits;
        let most = match is_ticket {
            true => limits.max_tickets,
            false => limits.max_waiters,
        };
        let is_key_full = |key: &Key| {
            let here = || self.places.iter().filter(alike).filter(|p| p.key == *key);
            let continues = here().any(|place| place.owner == ask.owner);
            !is_ticket && !continues && here().count() >= limits.max_waiters_per_key
        };
        ask.keys.len() > freed.len() && others.len() + ask.keys.len() > most
            || ask.keys.iter().any(is_key_full)
    }

    /// The owner continues at its places, unless another request can have a place between them. An upgrade goes before
    /// all others.
    fn take_places(&mut self, ask: &Ask, older: &[Request], many: bool, until_ms: Option<u64>) {
        self.numbers += 1;
        let request = Request {
            number: self.numbers,
            ask: ask.clone(),
            until_ms,
            many,
            is_closed: false,
        };
        self.note_queued(&request);
        let mine = |place: &Place| place.owner == ask.owner && ask.keys.contains(&place.key);
        let (own, mut rest): (Vec<Place>, Vec<Place>) =
            std::mem::take(&mut self.places).into_iter().partition(mine);
        rest.retain(|place| !older.iter().any(|older| place.is_of(older)));
        self.places = rest;
        let timed_out = own.iter().filter(|place| place.timed_out.is_some());
        self.ends.taken_over += timed_out.count() as u64;
        let arrivals: Vec<i64> = own.iter().map(|place| place.arrival).collect();
        let is_upgrade = self.upgrades(ask.keys[0], ask);
        let stays = arrivals.len() == ask.keys.len()
            && arrivals[arrivals.len() - 1] - arrivals[0] + 1 == arrivals.len() as i64;
        for key in &ask.keys {
            let former = own.iter().find(|place| place.key == *key);
            let arrival = match former.filter(|_| stays) {
                _ if is_upgrade => {
                    self.firsts += 1;
                    -self.firsts
                }
                Some(former) => former.arrival,
                None => {
                    self.arrivals += 1;
                    self.arrivals
                }
            };
            self.places.push(Place {
                key: *key,
                owner: ask.owner,
                arrival,
                request: Some(request.clone()),
                kept_until_ms: 0,
                timed_out: None,
            });
        }
        self.places.sort_by_key(|place| place.arrival);
    }

    // ---- a request goes, and its places ----

    /// It goes. Returns its places.
    pub(super) fn leave(&mut self, request: &Request) -> Vec<Place> {
        let places = std::mem::take(&mut self.places).into_iter();
        let (left, rest) = places.partition(|place| place.is_of(request));
        self.places = rest;
        left
    }

    /// It goes; its owner keeps the places for the grace time.
    pub(super) fn leave_and_keep(&mut self, request: &Request, timed_out: Option<Mode>) {
        for place in self.leave(request) {
            self.keep(Place { timed_out, ..place });
        }
    }

    /// A place is kept for its owner, if there is room.
    fn keep(&mut self, place: Place) {
        let grace = self.settings.grace;
        let is_kept = grace.ms > 0 && self.kept_places() < grace.max_places;
        let (key, owner) = (place.key, place.owner);
        self.places.push(Place {
            request: None,
            kept_until_ms: self.mono_ms + grace.ms,
            ..place
        });
        self.places.sort_by_key(|place| place.arrival);
        if !is_kept {
            self.give_up(key, owner);
        }
    }

    /// A kept place goes: a ticket whose wait ran out there has not been continued in time.
    pub(super) fn give_up(&mut self, key: Key, owner: Owner) {
        if let Some(place) = self.remove_kept(key, owner) {
            self.ends.timed_out += u64::from(place.timed_out.is_some());
        }
    }

    pub(super) fn remove_kept(&mut self, key: Key, owner: Owner) -> Option<Place> {
        let kept = |place: &Place| place.is(key, owner) && place.request.is_none();
        let at = self.places.iter().position(kept)?;
        Some(self.places.remove(at))
    }

    /// The owner of an undone grant gets its place back, for the grace time.
    pub(super) fn give_back(&mut self, undo: &InFlight) {
        if !self.places.iter().any(|p| p.is(undo.key, undo.owner)) {
            self.keep(Place {
                key: undo.key,
                owner: undo.owner,
                arrival: undo.arrival,
                request: None,
                kept_until_ms: 0,
                timed_out: None,
            });
        }
    }

    /// The owner waits no more for this key, or for none in this mode.
    pub(super) fn withdraw(&mut self, key: Key, owner: Owner, mode: Option<Mode>) {
        let mut requests = self.requests_at(key).into_iter();
        let own = requests.find(|request| request.ask.owner == owner);
        if let Some(request) = own.filter(|own| mode.is_none_or(|mode| mode == own.ask.mode)) {
            self.leave(&request);
            self.withdrawn(&request);
        } else if mode.is_none() {
            self.give_up(key, owner);
        }
    }

    pub(super) fn fail_all(&mut self, key: Key, error: &'static str) {
        for request in self.requests_at(key) {
            self.leave(&request);
            self.fail(&request, error);
        }
        for place in self.places.clone() {
            if place.key == key {
                self.give_up(key, place.owner);
            }
        }
    }

    // ---- upgrades and deadlocks ----

    /// Whether a reader asks for WRITE.
    fn upgrades(&self, key: Key, ask: &Ask) -> bool {
        let holds = |mode| self.hold_of(key, ask.owner, Some(mode)).is_some();
        ask.mode == Mode::Write && holds(Mode::Read) && !holds(Mode::Write)
    }

    fn another_upgrades(&self, ask: &Ask) -> bool {
        let first = self.first(ask.keys[0]);
        first.is_some_and(|first| {
            first.ask.owner != ask.owner && self.upgrades(ask.keys[0], &first.ask)
        })
    }

    /// Whether this request, the newest, waits for its own owner.
    fn waits_for_itself(&self, ask: &Ask) -> bool {
        let here = |key: &Key| self.waits_for(*key, ask.owner);
        let mut next: Vec<Owner> = ask.keys.iter().flat_map(here).collect();
        let mut seen: Vec<Owner> = Vec::new();
        while let Some(other) = next.pop() {
            if other == ask.owner {
                return true;
            }
            if !seen.contains(&other) {
                seen.push(other);
                let keys = (0..self.keys.len()).filter(|key| self.queue(*key).contains(&other));
                next.extend(keys.flat_map(|key| self.waits_for(key, other)));
            }
        }
        false
    }

    fn waits_for(&self, key: Key, owner: Owner) -> Vec<Owner> {
        let holder = self.holder(key).map(|hold| hold.owner);
        if holder == Some(owner) || self.rule != Rule::Exclusive {
            return Vec::new();
        }
        let queue = self.queue(key);
        let before = queue.into_iter().take_while(|other| *other != owner);
        holder.into_iter().chain(before).collect()
    }
}
