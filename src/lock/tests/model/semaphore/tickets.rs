//! The naive model: tickets.
//!
//! Before each decision that may grant, the tickets at the head of the queue are asked for, up to the first that is
//! heard or the first parked client; the others are passed over. In that event only tickets on the channel that was
//! heard are granted. One on another channel is asked for when the semaphore is settled at the end of the tick. A
//! channel without a subscriber is not asked for again in the same millisecond, unless a new ticket came with it.

use crate::lock::tests::model::semaphore::{Model, Waiting, IDS, MAX_TICKETS, MAX_WAITERS};
use crate::lock::tests::model::Reply;

impl Model {
    /// The ids in the queue, and which of them wait for a message.
    pub(super) fn queue(&self) -> Vec<(String, bool)> {
        let waiting = self.queue.iter();
        let waiting = waiting.map(|one| (IDS[one.id].to_string(), one.notify.is_some()));
        waiting.collect()
    }

    /// Asks for the tickets at the head of the queue.
    pub(super) fn ask(&mut self) {
        self.hearing.heard = Default::default();
        while let Some(channel) = self.queue.first().and_then(|first| first.notify) {
            let is_unheard = self.hearing.unheard_at_ms[channel] == Some(self.now_ms);
            if !is_unheard && self.hearing.is_subscribed[channel] {
                self.hearing.heard[channel] = true;
                return;
            }
            self.hearing.unheard_at_ms[channel] = Some(self.now_ms);
            self.pass_over_first();
        }
    }

    /// Whether the first of the queue can be granted in this event.
    pub(super) fn next_is_heard(&mut self) -> bool {
        while let Some(first) = self.queue.first() {
            let Some(channel) = first.notify else {
                return true;
            };
            if self.hearing.unheard_at_ms[channel] != Some(self.now_ms) {
                let is_heard = self.hearing.heard[channel];
                self.unsettled |= !is_heard;
                return is_heard;
            }
            self.pass_over_first();
        }
        false
    }

    fn pass_over_first(&mut self) {
        self.queue.remove(0);
        self.ends.passed_over += 1;
    }

    /// The bounds on parked clients and on tickets are independent. An id that waits in the same way continues.
    pub(super) fn is_full(&self, id: usize, is_ticket: bool) -> bool {
        let alike = self
            .queue
            .iter()
            .filter(|w| w.notify.is_some() == is_ticket);
        let most = if is_ticket { MAX_TICKETS } else { MAX_WAITERS };
        alike.clone().count() >= most && alike.clone().all(|waiting| waiting.id != id)
    }

    /// A channel with which a ticket comes has a subscriber; whether it still has is asked before the grant.
    pub(super) fn note_queued(&mut self, waiting: &Waiting) {
        assert!(!self.is_full(waiting.id, waiting.notify.is_some()));
        if let Some(channel) = waiting.notify {
            self.ends.queued += 1;
            self.hearing.unheard_at_ms[channel] = None;
            self.hearing.heard[channel] = false;
        }
    }

    // ---- the ends of waits: a parked client gets a reply; a ticket a message, or none ----

    pub(super) fn granted(&mut self, waiting: &Waiting) {
        self.ends.granted += u64::from(waiting.notify.is_some());
        self.answer(waiting, Reply::Granted);
    }

    pub(super) fn timed_out(&mut self, waiting: &Waiting) {
        self.ends.timed_out += u64::from(waiting.notify.is_some());
        self.answer(waiting, Reply::Refused);
    }

    pub(super) fn taken_over(&mut self, waiting: &Waiting) {
        match waiting.notify {
            Some(_) => self.ends.taken_over += 1,
            None => self.answer(waiting, Reply::Refused),
        }
    }

    pub(super) fn withdrawn(&mut self, waiting: &Waiting) {
        match waiting.notify {
            Some(_) => self.ends.withdrawn += 1,
            None => self.answer(waiting, Reply::Refused),
        }
    }

    fn answer(&mut self, waiting: &Waiting, reply: Reply) {
        match waiting.notify {
            Some(_) => self.messages.push((waiting.conn, reply)),
            None => self.replies.push((waiting.conn, reply)),
        }
    }
}
