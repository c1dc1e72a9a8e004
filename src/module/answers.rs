//! Outcomes of waits. The answer to a parked request is first noted, and delivered at the end of the tick. The message
//! of a ticket is published at once.

use crate::lock::{Effect, LockError, Outcome, WaiterId};
use crate::module::ffi::ctx::Ctx;
use crate::module::messages;
use crate::module::state::shell;
use crate::module::unblock;

/// Notes an answer; the alarm delivers it at the end of the tick.
fn note(id: WaiterId, outcome: Outcome) {
    shell::with(|shell| {
        if let Some(parked) = shell.parked.get_mut(&id) {
            parked.outcome = Some(outcome);
            shell.answered.push(id);
        }
    });
}

/// Notes the answers of a decision and publishes its messages, after its writes have succeeded.
pub fn note_all(ctx: Ctx<'_>, fx: &[Effect]) {
    for effect in fx {
        match effect {
            Effect::Answer(waiter, outcome) => note(*waiter, outcome.clone()),
            Effect::Tell(ticket, outcome) => messages::tell(ctx, ticket, outcome),
            _ => {}
        }
    }
}

/// Unblocks the clients whose answers are noted.
pub fn deliver_all(ctx: Ctx<'_>) {
    for id in shell::with(|shell| std::mem::take(&mut shell.answered)) {
        unblock::client(ctx, id);
    }
}

/// The outcomes of a decision whose changes are not made yet. If this value is dropped, by a panic, its tickets fail:
/// they have left their queues. (`shell::recover` answers the parked requests.)
pub struct Pending<'a> {
    ctx: Ctx<'a>,
    fx: &'a [Effect],
}

impl<'a> Pending<'a> {
    /// The outcomes among these effects.
    pub fn new(ctx: Ctx<'a>, fx: &'a [Effect]) -> Pending<'a> {
        Pending { ctx, fx }
    }

    /// The changes are made: the outcomes are noted.
    pub fn note(mut self) {
        note_all(self.ctx, std::mem::take(&mut self.fx));
    }

    /// The changes were refused: the tickets fail with this error.
    pub fn fail(mut self, error: &LockError) {
        self.fail_tickets(error);
    }

    fn fail_tickets(&mut self, error: &LockError) {
        for effect in std::mem::take(&mut self.fx) {
            if let Effect::Tell(ticket, _) = effect {
                messages::tell(self.ctx, ticket, &Outcome::Failed(error.clone()));
            }
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.fail_tickets(&LockError::Internal);
    }
}
