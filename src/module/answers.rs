//! Answers to parked requests: first noted, and delivered at the end of the tick.

use std::ptr::null_mut;

use crate::lock::{Effect, Effects, Outcome, WaiterId};
use crate::module::ffi::api::api;
use crate::module::state::shell;

/// Notes the answer; the alarm delivers it at the end of the turn.
pub fn note(id: WaiterId, outcome: Outcome) {
    shell::with(|shell| {
        if let Some(parked) = shell.parked.get_mut(&id) {
            parked.outcome = Some(outcome);
            shell.answered.push(id);
        }
    });
}

/// Notes the answers of a decision about a key: only when all that was decided with them is written.
pub fn note_all(fx: &[Effect]) {
    for effect in fx {
        if let Effect::Answer(waiter, outcome) = effect {
            note(*waiter, outcome.clone());
        }
    }
}

/// Carries out a decision that writes nothing: its answers.
pub fn carry_out(fx: Effects) {
    for effect in fx {
        if let Effect::Answer(waiter, outcome) = effect {
            note(waiter, outcome);
        }
    }
}

/// Unblocks everyone whose answer is known.
pub fn deliver_all() {
    for id in shell::with(|shell| std::mem::take(&mut shell.answered)) {
        let Some(handle) = shell::with(|shell| shell.parked.get(&id)?.handle) else {
            continue;
        };
        // SAFETY: the handle is live: entries leave `parked` in `on_answer` and
        // `on_disconnect`, one of which runs before the server frees it. Each id is in
        // `answered` once, so it is not unblocked twice. (Refused is only a client on keys without a timeout
        // callback.)
        unsafe { api!(RedisModule_UnblockClient)(handle.as_ptr(), null_mut()) };
    }
}
