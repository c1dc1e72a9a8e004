//! The ends of waits: each is counted, and told to the client.

use crate::lock::effect::{Cx, Effect, Outcome};
use crate::lock::wait::request::Waiter;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, LockError, Now};

impl Waiters {
    /// Counts a new waiter. The older requests that it replaces, which have left their queues, end.
    pub(crate) fn count_waiter(&mut self, is_ticket: bool, replaced: &[Waiter], cx: &mut Cx<'_>) {
        match is_ticket {
            true => self.ticket_stats.tickets_queued += 1,
            false => self.stats.waits_parked += 1,
        }
        self.take_over(replaced, cx);
    }

    /// Ends requests that have left their queues because their owner asked again: a parked client is answered nil.
    pub(crate) fn take_over(&mut self, replaced: &[Waiter], cx: &mut Cx<'_>) {
        for older in replaced {
            if older.ticket.is_some() {
                self.ticket_stats.tickets_taken_over += 1;
            } else {
                self.stats.waits_taken_over += 1;
                cx.answer(older, Outcome::Nil);
            }
        }
    }

    /// Ends a request that has left its queue because its owner released: a parked client is answered nil.
    pub(crate) fn end_withdrawn(&mut self, withdrawn: Option<Waiter>, cx: &mut Cx<'_>) {
        match withdrawn {
            Some(waiter) if waiter.ticket.is_some() => self.ticket_stats.tickets_withdrawn += 1,
            Some(waiter) => {
                self.stats.waits_withdrawn += 1;
                cx.answer(&waiter, Outcome::Nil);
            }
            None => {}
        }
    }

    /// Ends a request whose wait has run out: a parked client is answered nil.
    pub(crate) fn time_out(&mut self, waiter: Option<&Waiter>, cx: &mut Cx<'_>) {
        let Some(waiter) = waiter else { return };
        match waiter.ticket.is_some() {
            true => self.ticket_stats.tickets_timed_out += 1,
            false => self.stats.waits_timed_out += 1,
        }
        cx.answer(waiter, Outcome::Nil);
    }

    /// Answers this error to requests that have left their queues.
    pub(crate) fn fail(
        &mut self,
        waiters: impl IntoIterator<Item = Waiter>,
        error: &LockError,
        cx: &mut Cx<'_>,
    ) {
        for waiter in waiters {
            match waiter.ticket.is_some() {
                true => self.ticket_stats.tickets_failed += 1,
                false => self.stats.waits_failed += 1,
            }
            cx.answer(&waiter, Outcome::Failed(error.clone()));
        }
    }

    /// Counts the wait of a request that was granted.
    pub(crate) fn count_wait(&mut self, waiter: &Waiter, now: Now) {
        let waited = now.mono_ms.saturating_sub(waiter.since_ms);
        if waiter.ticket.is_some() {
            self.ticket_stats.tickets_granted += 1;
            self.ticket_waits.record(waited);
            return;
        }
        self.waits.record(waited);
        self.stats.waits_granted += 1;
        self.stats.wait_ms_max = self.stats.wait_ms_max.max(waited);
    }

    /// Counts a wait that has ended for the name of its key.
    pub(crate) fn count_top_wait(&mut self, key: KeyRef<'_>, waiter: &Waiter, now: Now) {
        if let Some(top) = &mut self.top {
            top.add_wait(key, now.mono_ms.saturating_sub(waiter.since_ms));
        }
    }

    /// Counts a hand-off, and the wait that it ends, for the name of the key.
    pub(crate) fn count_top_hand_off(&mut self, key: KeyRef<'_>, waiter: &Waiter, now: Now) {
        self.count_top_wait(key, waiter, now);
        if let Some(top) = &mut self.top {
            top.add_hand_off(key);
        }
    }
}

impl Cx<'_> {
    /// Tells the outcome to a request that has left its queue.
    pub(crate) fn answer(&mut self, waiter: &Waiter, outcome: Outcome) {
        self.effects.push(match &waiter.ticket {
            None => Effect::Answer(waiter.id, outcome),
            Some(ticket) => Effect::Tell(ticket.clone(), outcome),
        });
    }
}
