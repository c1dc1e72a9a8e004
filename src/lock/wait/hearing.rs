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
use crate::lock::wait::queue::Queue;
use crate::lock::wait::request::{Waiter, WaiterId};
use crate::lock::wait::ticket::Ticket;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, LockError, Now};

/// A ticket of which the shell is to say whether it is heard.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The key of the decision. A decision about several keys asks for the first ticket of each.
    key: KeyId,
    /// The request.
    pub request: WaiterId,
    /// Its channel and tag.
    pub ticket: Rc<Ticket>,
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
        self.tickets
    }

    /// Begins an event of this key: what was learned in earlier ones is not valid any more.
    pub fn forget_heard(&mut self, key: KeyRef<'_>) {
        if let Some(waited) = self.waited.get_mut(&key) {
            waited.heard = None;
        }
    }

    /// The ticket that the next decision about this key may grant, if the shell is to say whether it is heard. Requests
    /// before it whose wait is over are answered, and tickets that are not heard are passed over.
    pub(crate) fn next_to_ask(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Option<Asked> {
        let before = self.first_live(key).map(|(seq, _)| seq);
        let next = self.next(key, cx);
        let first = self.first_live(key).map(|(seq, _)| seq);
        if first != before {
            // The decision may be one that grants to no waiter, and the next may be compatible with present readers.
            self.schedule_settle_next(key);
        }
        let Next::Ask(request) = next else {
            return None;
        };
        let (_, waiter) = self.first_live(key)?;
        Some(Asked {
            key: key.to_id(),
            request,
            ticket: waiter.ticket.clone()?,
            session: waiter.session.then_some(waiter.client),
        })
    }

    /// The shell's answer.
    pub(crate) fn learn(&mut self, asked: &Asked, hearing: Hearing, cx: &mut Cx<'_>) {
        match hearing {
            Hearing::Heard => {
                if let Some(waited) = self.waited.get_mut(&asked.key) {
                    waited.heard = Some((asked.request, asked.ticket.clone()));
                }
            }
            Hearing::NoSubscriber => {
                let channel = &asked.ticket.channel;
                channel.unheard_ms.set(Some(cx.now.mono_ms));
            }
            Hearing::Closed => {
                let waiter = self.dismiss(asked.request);
                self.fail(waiter, &LockError::Unblocked, cx);
            }
        }
    }

    /// Fails tickets with this error, at most `left`: the server tells parked clients itself.
    pub(crate) fn fail_tickets(&mut self, error: &LockError, left: &mut usize, cx: &mut Cx<'_>) {
        if self.tickets > 0 {
            let queues = self.waited.values().map(|waited| &waited.queue);
            let mut requests = tickets_of(queues, *left);
            requests.sort_unstable();
            requests.dedup();
            *left -= requests.len();
            self.fail_requests(requests, error, cx);
        }
    }

    /// Fails tickets of one key with this error, many of them in several calls.
    pub(crate) fn fail_tickets_at(&mut self, key: KeyRef<'_>, error: &LockError, cx: &mut Cx<'_>) {
        let requests = tickets_of(self.queue(key), ENDED_AT_ONCE);
        self.fail_requests(requests, error, cx);
    }

    fn fail_requests(&mut self, requests: Vec<WaiterId>, error: &LockError, cx: &mut Cx<'_>) {
        for request in requests {
            let waiter = self.dismiss(request);
            self.fail(waiter, error, cx);
        }
    }
}

/// The tickets of these queues in order, of a limited number of places. One on several keys may be among them twice.
fn tickets_of<'q>(queues: impl IntoIterator<Item = &'q Queue>, most: usize) -> Vec<WaiterId> {
    let with_tickets = queues.into_iter().filter(|queue| queue.tickets() > 0);
    let waiters = with_tickets.flat_map(Queue::iter);
    let tickets = waiters.filter(|(_, waiter)| waiter.ticket.is_some());
    tickets.map(|(_, waiter)| waiter.id).take(most).collect()
}

impl WaitedKey {
    /// Whether this ticket is heard; `None` if that is to be asked.
    pub(super) fn is_heard(&self, waiter: &Waiter, ticket: &Ticket, now: Now) -> Option<bool> {
        if ticket.channel.unheard_ms.get() == Some(now.mono_ms) {
            return Some(false);
        }
        let (request, heard) = self.heard.as_ref()?;
        let is_same = match waiter.session {
            true => *request == waiter.id,
            false => Rc::ptr_eq(&heard.channel, &ticket.channel),
        };
        is_same.then_some(true)
    }
}
