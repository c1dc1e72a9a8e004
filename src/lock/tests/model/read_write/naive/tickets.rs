//! The naive model: tickets.
//!
//! Before a decision that may grant, the tickets at the head of the queue are asked for, up to the first that is heard
//! or the first parked client; the others are passed over and their owners keep their places. If the first is a reader,
//! the readers behind it are asked for too. In that event only tickets on the channels that were heard are granted. A
//! channel without a subscriber is not asked for again in the same millisecond, unless a new ticket came with it.

use crate::lock::tests::model::read_write::naive::{Naive, Place, Request};
use crate::lock::tests::model::tickets::Ticket;
use crate::lock::tests::model::Reply;
use crate::lock::Mode;

impl Request {
    /// Whether this connection is parked.
    pub fn blocks(&self, conn: u64) -> bool {
        self.ticket.is_none() && self.conn == conn
    }
}

impl Naive {
    /// The requests in the order of the queue: tickets, and `None` for parked clients.
    pub fn tickets(&self) -> Vec<Option<Ticket>> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|place| place.rank);
        let requests = places.into_iter().filter_map(|p| p.request.as_ref());
        requests.map(|request| request.ticket).collect()
    }

    pub fn kept_places(&self) -> usize {
        let kept = self.places.iter().filter(|place| place.request.is_none());
        kept.count()
    }

    fn first(&self) -> Option<(usize, Request)> {
        let places = self.places.iter().enumerate();
        let live = places.filter_map(|(at, place)| Some((at, place.rank, place.request.clone()?)));
        let first = live.min_by_key(|(_, rank, _)| *rank);
        first.map(|(at, _, request)| (at, request))
    }

    pub(super) fn first_may_enter(&self) -> bool {
        let first = self.first();
        first.is_some_and(|(at, request)| self.is_compatible(&self.places[at].owner, request.mode))
    }

    /// Asks for the tickets at the head of the queue.
    pub(super) fn ask(&mut self) {
        if self.tickets().iter().all(Option::is_none) {
            return;
        }
        self.hearing.heard = Default::default();
        while let Some((at, request)) = self.first_in_time() {
            if request.ticket.is_none_or(|ticket| self.hears(ticket)) {
                if request.mode == Mode::Read {
                    self.ask_readers();
                }
                return;
            }
            self.pass_over(at);
        }
    }

    /// Whether the channel has a subscriber, as far as is known in this millisecond.
    fn hears(&mut self, Ticket { channel, .. }: Ticket) -> bool {
        let is_unheard = self.hearing.unheard_at_ms[channel] == Some(self.mono_ms);
        let is_heard = !is_unheard && self.hearing.is_subscribed[channel];
        match is_heard {
            true => self.hearing.heard[channel] = true,
            false => self.hearing.unheard_at_ms[channel] = Some(self.mono_ms),
        }
        is_heard
    }

    /// Asks for the readers at the head of the queue.
    fn ask_readers(&mut self) {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|place| place.rank);
        let requests = places.into_iter().filter_map(|p| p.request.clone());
        let readers = requests.take_while(|request| request.mode == Mode::Read);
        let in_time = |request: &Request| request.until_ms.is_none_or(|end| end > self.mono_ms);
        let readers: Vec<_> = readers.filter(in_time).collect();
        for ticket in readers.into_iter().filter_map(|reader| reader.ticket) {
            self.hears(ticket);
        }
    }

    /// The first of the queue, if it can be told in this event that it is granted.
    pub(super) fn first_heard(&mut self) -> Option<(usize, Request)> {
        while let Some((at, request)) = self.first_in_time() {
            let Some(Ticket { channel, .. }) = request.ticket else {
                return Some((at, request));
            };
            if self.hearing.unheard_at_ms[channel] != Some(self.mono_ms) {
                let is_heard = self.hearing.heard[channel];
                return is_heard.then_some((at, request));
            }
            self.pass_over(at);
        }
        None
    }

    /// The first of the queue whose wait is not over. Those before it end.
    fn first_in_time(&mut self) -> Option<(usize, Request)> {
        while let Some((at, request)) = self.first() {
            if request.until_ms.is_none_or(|end| end > self.mono_ms) {
                return Some((at, request));
            }
            self.time_out(at, &request);
        }
        None
    }

    fn pass_over(&mut self, at: usize) {
        self.ends.passed_over += 1;
        self.vacate(at);
    }

    /// A channel with which a ticket comes has a subscriber; whether it still has is asked before the grant.
    pub(super) fn note_queued(&mut self, request: &Request) {
        if let Some(Ticket { channel, .. }) = request.ticket {
            self.ends.queued += 1;
            self.hearing.unheard_at_ms[channel] = None;
            self.hearing.heard[channel] = false;
        }
    }

    // ---- the ends of waits: a parked client gets a reply; a ticket a message, or none ----

    pub(super) fn granted(&mut self, request: &Request) {
        self.ends.granted += u64::from(request.ticket.is_some());
        self.answer(request, Reply::Granted);
    }

    /// The wait at this place ran out. A ticket is counted when the place goes, or its owner asks again.
    pub(super) fn time_out(&mut self, at: usize, request: &Request) {
        self.answer(request, Reply::Refused);
        self.places[at].timed_out = request.ticket.map(|_| request.mode);
        self.vacate(at);
    }

    /// The owner asked again and was granted at once: that ends its ticket whose wait ran out.
    pub(super) fn granted_at_once(&mut self, owner: &str, mode: Mode) {
        let own = |place: &&mut Place| place.owner == owner && place.timed_out == Some(mode);
        if let Some(place) = self.places.iter_mut().find(own) {
            place.timed_out = None;
            self.ends.granted += 1;
        }
    }

    pub(super) fn broken(&mut self, request: &Request) {
        self.ends.failed += u64::from(request.ticket.is_some());
        self.answer(request, Reply::Error("LOCKBROKEN"));
    }

    pub(super) fn taken_over(&mut self, request: &Request) {
        match request.ticket {
            Some(_) => self.ends.taken_over += 1,
            None => self.answer(request, Reply::Refused),
        }
    }

    pub(super) fn withdrawn(&mut self, request: &Request) {
        match request.ticket {
            Some(_) => self.ends.withdrawn += 1,
            None => self.answer(request, Reply::Refused),
        }
    }

    fn answer(&mut self, request: &Request, reply: Reply) {
        match request.ticket {
            Some(ticket) => self.messages.push((ticket, reply)),
            None => self.replies.push((request.conn, reply)),
        }
    }
}
