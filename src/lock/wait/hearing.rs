//! Whether tickets are heard.
//!
//! A ticket is *heard* while its channel has a subscriber and, for `SESSION`, its connection is open. The shell asks
//! for that immediately before a decision that may grant ([`Waiters::next_to_ask`], [`Waiters::learn`]), because both
//! may change in every event. A ticket that is not heard is *passed over*: it leaves the queue without a message, and
//! its owner keeps the place for the grace time.

use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::wait::ending::ENDED_AT_ONCE;
use crate::lock::wait::index::WaitedKey;
use crate::lock::wait::next::Next;
use crate::lock::wait::passed::PASSED_AT_ONCE;
use crate::lock::wait::queue::QueueView;
use crate::lock::wait::request::{PlaceId, Waiter, WaiterId};
use crate::lock::wait::ticket::{Channel, Ticket};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, LockError, Mode, Now};

/// A ticket of which the shell is to say whether it is heard.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The key of the decision. A decision about several keys asks for the first ticket of each.
    key: KeyId,
    /// The request.
    pub request: WaiterId,
    /// Its channel.
    pub channel: Rc<Channel>,
    /// Whether it asks for READ: tickets on other channels may be granted together with it.
    pub shares: bool,
    /// For `SESSION`: the connection that the hold is to be bound to.
    pub session: Option<u64>,
}

/// Whether a ticket is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// Its channel has a subscriber, and its connection is open.
    Heard,
    /// Its channel has no subscriber.
    NoSubscriber,
    /// The connection of its session is closed.
    Closed,
}

impl Waiters {
    /// Tickets on this server.
    pub fn tickets(&self) -> usize {
        self.places.tickets()
    }

    /// Begins an event of this key: what was learned in earlier ones is not valid any more.
    pub fn forget_heard(&mut self, key: KeyRef<'_>) {
        if let Some(waited) = self.waited.get_mut(&key) {
            waited.heard.clear();
        }
    }

    /// The ticket that the next decision about this key may grant, if the shell is to say whether it is heard. Requests
    /// before it whose wait is over are answered, and tickets that are not heard are passed over.
    pub(crate) fn next_to_ask(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Option<Asked> {
        let before = self.first_live(key).map(|(place, _)| place);
        let next = self.next(key, cx);
        let first = self.first_live(key).map(|(place, _)| place);
        if first != before {
            // The decision may be one that grants to no waiter, and the next may be compatible with present readers.
            self.schedule_settle_next(key);
        }
        let waiter = match next {
            Next::Ask(place) => self.places.waiter(place)?,
            Next::Place(place) => self.reader_to_ask(key, place, cx.now)?,
            Next::Later | Next::Nothing => return None,
        };
        Some(Asked {
            key: key.to_id(),
            request: waiter.id,
            shares: waiter.mode == Mode::Read,
            channel: waiter.ticket.as_ref()?.channel.clone(),
            session: waiter.session.then_some(waiter.client),
        })
    }

    /// Where the next to be granted is a reader: a ticket among the readers behind it, which one decision grants
    /// together.
    fn reader_to_ask(&self, key: KeyRef<'_>, first: PlaceId, now: Now) -> Option<&Waiter> {
        let (waited, first) = (self.waited.get(&key)?, self.places.waiter(first)?);
        if first.mode != Mode::Read {
            return None;
        }
        let waiters = waited.queue.waiters(&self.places).take(PASSED_AT_ONCE);
        let waiters = waiters.map(|(_, waiter)| waiter);
        let mut readers = waiters.take_while(|waiter| waiter.mode == Mode::Read);
        readers.find(|waiter| {
            let ticket = waiter.ticket.as_ref().filter(|_| !waiter.is_over(now));
            ticket.is_some_and(|ticket| waited.is_heard(waiter, ticket, now).is_none())
        })
    }

    /// The shell's answer.
    pub(crate) fn learn(&mut self, asked: &Asked, hearing: Hearing, cx: &mut Cx<'_>) {
        match hearing {
            Hearing::Heard => {
                if let Some(waited) = self.waited.get_mut(&asked.key) {
                    waited.heard.push((asked.request, asked.channel.clone()));
                }
            }
            Hearing::NoSubscriber => {
                asked.channel.unheard_ms.set(Some(cx.now.mono_ms));
            }
            Hearing::Closed => {
                let waiter = self.dismiss(asked.request);
                self.fail(waiter, &LockError::Unblocked, cx);
            }
        }
    }

    /// Fails tickets with this error, as long as `left` places are left: the server tells parked clients itself.
    pub(crate) fn fail_tickets(&mut self, error: &LockError, left: &mut usize, cx: &mut Cx<'_>) {
        if self.tickets() > 0 {
            let places = &self.places;
            let queues = self.waited.values().map(|waited| &waited.queue);
            let queues = queues.map(|queue| QueueView { queue, places });
            let mut requests = tickets_of(queues, *left);
            requests.sort_unstable();
            requests.dedup();
            for request in requests {
                if *left == 0 {
                    break;
                }
                *left = left.saturating_sub(self.places_count(request));
                self.fail_request(request, error, cx);
            }
        }
    }

    /// Fails tickets of one key with this error, many of them in several calls.
    pub(crate) fn fail_tickets_at(&mut self, key: KeyRef<'_>, error: &LockError, cx: &mut Cx<'_>) {
        for request in tickets_of(self.queue(key), ENDED_AT_ONCE) {
            self.fail_request(request, error, cx);
        }
    }

    fn fail_request(&mut self, request: WaiterId, error: &LockError, cx: &mut Cx<'_>) {
        let waiter = self.dismiss(request);
        self.fail(waiter, error, cx);
    }
}

/// The tickets of these queues in order, of a limited number of places. One on several keys may be among them twice.
fn tickets_of<'q>(queues: impl IntoIterator<Item = QueueView<'q>>, most: usize) -> Vec<WaiterId> {
    let with_tickets = queues.into_iter().filter(|queue| queue.tickets() > 0);
    let waiters = with_tickets.flat_map(|queue| queue.iter());
    let tickets = waiters.filter(|(_, waiter)| waiter.ticket.is_some());
    tickets.map(|(_, waiter)| waiter.id).take(most).collect()
}

impl WaitedKey {
    /// Whether this ticket is heard; `None` if that is to be asked.
    pub(super) fn is_heard(&self, waiter: &Waiter, ticket: &Ticket, now: Now) -> Option<bool> {
        if ticket.channel.unheard_ms.get() == Some(now.mono_ms) {
            return Some(false);
        }
        let mut heard = self.heard.iter();
        let is_heard = heard.any(|(request, channel)| match waiter.session {
            true => *request == waiter.id,
            false => Rc::ptr_eq(channel, &ticket.channel),
        });
        is_heard.then_some(true)
    }
}
