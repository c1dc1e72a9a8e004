//! The naive model: tickets. They wait in the same queue as parked clients, and their outcome is a message.
//!
//! Before a decision that may grant, the tickets at the head of the queue are asked for, one after the other, up to the
//! first that is heard or the first parked client; if that is a reader, the readers behind it are asked for too. One
//! whose channel has no subscriber is passed over: no message, and its owner keeps the place. In that event only
//! tickets on the channels that were heard are granted. A channel without a subscriber is not asked for again in the
//! same millisecond, unless a new ticket came with it.

use crate::lock::tests::model::naive::{Ask, Conn, Key, Model, Owner, Request, Rule, Token};
use crate::lock::tests::model::tickets::Ticket;
use crate::lock::tests::model::Reply;
use crate::lock::Mode;

impl Model {
    /// Asks for the tickets at the head of the queue.
    pub fn ask(&mut self, key: Key) {
        if !self.may_grant || self.tickets_of(key).iter().all(Option::is_none) {
            return;
        }
        self.hearing.heard = Default::default();
        while let Some(first) = self.first(key) {
            if first.is_over(self.mono_ms) {
                self.time_out(&first);
                continue;
            }
            if let Some(ticket) = first.ask.ticket {
                let is_unheard = self.hearing.is_unheard(ticket.channel, self.mono_ms);
                if !is_unheard && first.is_closed_session() {
                    self.leave(&first);
                    self.fail(&first, "UNBLOCKED");
                    continue;
                }
                if !self.hears(ticket) {
                    self.pass_over(&first);
                    continue;
                }
            }
            self.ask_readers(key);
            return;
        }
    }

    /// Whether the channel has a subscriber, as far as is known in this millisecond.
    fn hears(&mut self, Ticket { channel, .. }: Ticket) -> bool {
        let hearing = &mut self.hearing;
        let is_unheard = hearing.is_unheard(channel, self.mono_ms);
        let is_heard = !is_unheard && hearing.is_subscribed[channel];
        match is_heard {
            true => hearing.heard[channel] = true,
            false => hearing.unheard_at_ms[channel] = Some(self.mono_ms),
        }
        is_heard
    }

    /// Asks for the readers at the head of the queue.
    fn ask_readers(&mut self, key: Key) {
        let mut readers = self.requests_at(key).into_iter();
        while let Some(reader) = readers.next().filter(|one| one.ask.mode == Mode::Read) {
            let is_over = reader.is_over(self.mono_ms);
            if let Some(ticket) = reader.ask.ticket.filter(|_| !is_over) {
                self.hears(ticket);
            }
        }
    }

    pub(super) fn pass_over(&mut self, request: &Request) {
        self.ends.passed_over += 1;
        self.leave_and_keep(request, None);
    }

    /// Whether an acquire may grant, to this request or to those before it: an exclusive lock that is free, or whose
    /// hold needs a token; a read-write lock that is compatible; any semaphore.
    pub(super) fn is_to_ask(&self, key: Key, ask: &Ask) -> bool {
        match self.rule {
            Rule::Exclusive => {
                let hold = self.holder(key);
                hold.is_none_or(|hold| hold.owner == ask.owner && hold.token == Token::None)
            }
            Rule::ReadWrite => self.admits(key, ask),
            Rule::Permits(_) => true,
        }
    }

    /// A new request waits. A channel with which a ticket comes has a subscriber; whether it still has is asked before
    /// the grant.
    pub(super) fn note_queued(&mut self, request: &Request) {
        if let Some(Ticket { channel, .. }) = request.ask.ticket {
            self.ends.queued += 1;
            self.hearing.unheard_at_ms[channel] = None;
            self.hearing.heard[channel] = false;
        }
    }

    /// Its connection closes: a ticket stays. Only a hold that is to be bound to the connection is refused later.
    pub(super) fn close_tickets_of(&mut self, conn: Conn) {
        let requests = self.places.iter_mut().filter_map(|p| p.request.as_mut());
        for request in requests.filter(|request| request.ask.conn == conn) {
            request.is_closed = true;
        }
    }

    // ---- the ends of waits: a parked client gets a reply; a ticket a message, or none ----

    pub(super) fn answer(&mut self, request: &Request, reply: Reply) {
        match request.ask.ticket {
            None => self.replies.push((request.ask.conn, reply)),
            Some(ticket) => {
                self.ends.granted += u64::from(reply == Reply::Granted);
                self.messages.push((ticket, reply));
            }
        }
    }

    /// Its wait ran out. A ticket is counted when its place goes, or when its owner asks again.
    pub(super) fn time_out(&mut self, request: &Request) {
        self.answer(request, Reply::Refused);
        let mode = request.ask.ticket.map(|_| request.ask.mode);
        self.leave_and_keep(request, mode);
    }

    /// The owner asked again and was granted at once: that ends its ticket whose wait ran out.
    pub(super) fn granted_at_once(&mut self, key: Key, owner: Owner, mode: Mode) {
        let own = |place: &&mut super::Place| {
            (place.key, place.owner, place.timed_out) == (key, owner, Some(mode))
        };
        if let Some(place) = self.places.iter_mut().find(own) {
            place.timed_out = None;
            self.ends.granted += 1;
        }
    }

    pub(super) fn fail(&mut self, request: &Request, error: &'static str) {
        self.ends.failed += u64::from(request.ask.ticket.is_some());
        self.answer(request, Reply::Error(error));
    }

    pub(super) fn taken_over(&mut self, request: &Request) {
        match request.ask.ticket {
            Some(_) => self.ends.taken_over += 1,
            None => self.answer(request, Reply::Refused),
        }
    }

    pub(super) fn withdrawn(&mut self, request: &Request) {
        match request.ask.ticket {
            Some(_) => self.ends.withdrawn += 1,
            None => self.answer(request, Reply::Refused),
        }
    }
}
