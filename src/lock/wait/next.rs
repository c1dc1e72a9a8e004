//! The next waiter of a queue: the first whose wait is not over and whose outcome would reach a client.

use crate::lock::effect::Cx;
use crate::lock::wait::request::{Seq, WaiterId};
use crate::lock::wait::waiters::Waiters;
use crate::lock::KeyRef;

/// Waits that one decision ends at most because they are over or not heard; more follow in the next tick.
pub const PASSED_AT_ONCE: usize = 1_000;

/// The next request of a queue.
pub(crate) enum Next {
    /// The next to be granted.
    Place(Seq),
    /// A ticket of which the shell is to say whether it is heard.
    Ask(WaiterId),
    /// Many waits were ended; the rest of the queue comes in the next tick.
    Later,
    /// The queue is empty, or all its waiters are about to end.
    Nothing,
}

impl Waiters {
    /// The first place whose wait has not run out: the next to be granted. Requests before it whose wait is over are
    /// answered nil, and tickets that are not heard are passed over; their places are kept. `None` as well if the next
    /// is a ticket of which the shell was not asked, or if many waits were ended: the key is settled once more then.
    pub(crate) fn next_to_grant(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Option<Seq> {
        match self.next(key, cx) {
            Next::Place(seq) => Some(seq),
            Next::Nothing => None,
            Next::Ask(_) | Next::Later => {
                self.schedule_settle(key);
                None
            }
        }
    }

    pub(super) fn next(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Next {
        if self.is_ending(key) {
            return Next::Nothing;
        }
        for _ in 0..PASSED_AT_ONCE {
            let Some((_, id, waited)) = self.waited.get_full_mut(&key) else {
                return Next::Nothing;
            };
            let id = id.clone();
            let Some(seq) = waited.queue.first_live() else {
                self.drop_if_empty(&id);
                return Next::Nothing;
            };
            let Some(waited) = self.waited.get(&id) else {
                return Next::Nothing;
            };
            let Some(waiter) = waited.queue.waiter(seq) else {
                return Next::Nothing;
            };
            let is_over = waiter.deadline_ms.is_some_and(|end| cx.now.mono_ms >= end);
            if is_over {
                let waiter = self.vacate(&id, seq, cx.now);
                self.time_out(waiter.as_ref(), cx);
                continue;
            }
            let Some(ticket) = &waiter.ticket else {
                return Next::Place(seq);
            };
            match waited.is_heard(waiter, ticket, cx.now) {
                Some(true) => return Next::Place(seq),
                None => return Next::Ask(waiter.id),
                Some(false) => {
                    self.ticket_stats.tickets_unheard += 1;
                    self.vacate(&id, seq, cx.now);
                }
            }
        }
        Next::Later
    }
}
