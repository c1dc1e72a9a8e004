//! The naive model: tickets. They wait in the same queue as parked clients, and their outcome is a message.
//!
//! Before a decision that may grant, the tickets at the head of the queue are asked for, one after the other, up to the
//! first that is heard or the first parked client. One whose channel has no subscriber is passed over: no message, and
//! its owner keeps the place. A channel without a subscriber is not asked for again in the same millisecond, unless a
//! new ticket came with it. A channel with which a request came in this event is asked for at the end of the tick.

use crate::lock::tests::model::exclusive::naive::{
    Conn, Key, Model, Owner, Place, Request, Token, KEYS,
};
use crate::lock::tests::model::exclusive::sessions::Terms;
use crate::lock::tests::model::tickets::{Channel, Ticket, CHANNELS};
use crate::lock::tests::model::Reply;

/// Which channels have subscribers, and what is known of them.
#[derive(Debug)]
pub struct Hearing {
    pub is_subscribed: [bool; CHANNELS.len()],
    /// When a channel was last found without a subscriber.
    unheard_at_ms: [Option<u64>; CHANNELS.len()],
    /// The channel of the request that is decided.
    pub came_now: Option<Channel>,
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing {
            is_subscribed: [true; CHANNELS.len()],
            unheard_at_ms: [None; CHANNELS.len()],
            came_now: None,
        }
    }
}

impl Hearing {
    /// Subscribers are not in the memory of the module.
    pub fn restarted(&self) -> Hearing {
        Hearing {
            is_subscribed: self.is_subscribed,
            ..Hearing::default()
        }
    }
}

impl Request {
    /// Whether its hold is to be bound to a connection that has closed.
    fn is_closed_session(&self) -> bool {
        self.is_closed && self.terms == Terms::Session
    }

    /// Whether this connection is parked.
    pub fn blocks(&self, conn: Conn) -> bool {
        self.ticket.is_none() && self.conn == conn
    }
}

impl Model {
    /// All tickets that wait.
    pub fn tickets(&self) -> usize {
        let tickets = (0..KEYS).flat_map(|key| self.tickets_of(key));
        tickets.flatten().count()
    }

    /// The requests for a key in the order of the queue: tickets, and `None` for parked clients.
    pub fn tickets_of(&self, key: Key) -> Vec<Option<Ticket>> {
        let requests = self.places.iter().filter(|place| place.key == key);
        let requests = requests.filter_map(|place| place.request);
        requests.map(|request| request.ticket).collect()
    }

    /// Asks for the tickets at the head of the queue.
    pub fn ask(&mut self, key: Key) {
        if !self.may_grant || self.tickets_of(key).iter().flatten().count() == 0 {
            return;
        }
        while let Some((index, request)) = self.head(key) {
            if request.until_ms.is_some_and(|end| end <= self.mono_ms) {
                let place = self.places.remove(index);
                self.time_out(place, request);
                continue;
            }
            let Some(Ticket { channel, .. }) = request.ticket else {
                return;
            };
            let is_known = self.hearing.unheard_at_ms[channel] == Some(self.mono_ms);
            if !is_known && request.is_closed_session() {
                self.places.remove(index);
                self.fail(request, "UNBLOCKED");
                continue;
            }
            if !is_known && self.hearing.is_subscribed[channel] {
                return;
            }
            self.hearing.unheard_at_ms[channel] = Some(self.mono_ms);
            self.ends.passed_over += 1;
            let place = self.places.remove(index);
            self.keep(place);
        }
    }

    fn head(&self, key: Key) -> Option<(usize, Request)> {
        let mut places = self.places.iter().enumerate();
        places.find_map(|(index, place)| {
            let request = place.request.filter(|_| place.key == key)?;
            Some((index, request))
        })
    }

    /// Whether an acquire may need a token: the lock is free, or its hold has none.
    pub(super) fn may_mint(&self, key: Key, owner: Owner) -> bool {
        let hold = self.holder(key);
        hold.is_none_or(|hold| hold.owner == owner && self.has_no_token(key))
    }

    /// Whether a renewal may need a token.
    pub(super) fn has_no_token(&self, key: Key) -> bool {
        self.holder(key)
            .is_some_and(|hold| hold.token == Token::None)
    }

    pub(super) fn is_asked_later(&self, request: Request) -> bool {
        let channel = request.ticket.map(|ticket| ticket.channel);
        channel.is_some() && channel == self.hearing.came_now
    }

    /// The bounds on parked clients and on tickets are independent. An owner that waits in the same way continues.
    pub(super) fn is_full(&self, key: Key, owner: Owner, request: Request) -> bool {
        let is_ticket = request.ticket.is_some();
        let alike = |place: &&Place| {
            let other = place.request;
            other.is_some_and(|other| other.ticket.is_some() == is_ticket)
        };
        let limits = self.settings.limits;
        let in_all = self.places.iter().filter(alike);
        let here = || self.places.iter().filter(alike).filter(|p| p.key == key);
        let continues = here().any(|place| place.owner == owner);
        let is_full = match is_ticket {
            true => in_all.count() >= limits.max_tickets,
            false => {
                in_all.count() >= limits.max_waiters || here().count() >= limits.max_waiters_per_key
            }
        };
        is_full && !continues
    }

    /// A new request waits. A channel with which a ticket comes has a subscriber.
    pub(super) fn count_queued(&mut self, request: Request) {
        if let Some(ticket) = request.ticket {
            self.ends.queued += 1;
            self.hearing.unheard_at_ms[ticket.channel] = None;
        }
    }

    /// Its connection closes: a ticket stays. Only a hold that is to be bound to the connection is refused later.
    pub(super) fn close_tickets_of(&mut self, conn: Conn) {
        let requests = self.places.iter_mut().filter_map(|p| p.request.as_mut());
        for request in requests.filter(|request| request.conn == conn) {
            request.is_closed = true;
        }
    }

    // ---- the ends of waits: a parked client gets a reply; a ticket a message, or none ----

    pub(super) fn answer(&mut self, request: Request, reply: Reply) {
        match request.ticket {
            None => self.replies.push((request.conn, reply)),
            Some(ticket) => {
                self.ends.granted += u64::from(reply == Reply::Granted);
                self.messages.push((ticket, reply));
            }
        }
    }

    /// The wait at this place ran out. A ticket is counted when the place goes, or when its owner asks again.
    pub(super) fn time_out(&mut self, mut place: Place, request: Request) {
        self.answer(request, Reply::Refused);
        place.timed_out = request.ticket.is_some();
        self.keep(place);
    }

    pub(super) fn fail(&mut self, request: Request, error: &'static str) {
        self.ends.failed += u64::from(request.ticket.is_some());
        self.answer(request, Reply::Error(error));
    }

    pub(super) fn take_over(&mut self, older: Option<Request>) {
        match older {
            Some(older) if older.ticket.is_some() => self.ends.taken_over += 1,
            Some(older) => self.answer(older, Reply::Refused),
            None => {}
        }
    }

    pub(super) fn end_withdrawn(&mut self, request: Option<Request>) {
        match request {
            Some(request) if request.ticket.is_some() => self.ends.withdrawn += 1,
            Some(request) => self.answer(request, Reply::Refused),
            None => {}
        }
    }
}
