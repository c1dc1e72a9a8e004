//! Every request is answered in time, or its connection closed.

use crate::history::{Call, Nanos, Op, Outcome, MS};

use super::marks::Marks;
use super::{Findings, Rule};

/// The tolerance for late replies: the machine is shared.
pub const BOUND: Nanos = 2000 * MS;

/// All requests. Those without a limit are answered when the run ends; the clients ensure that.
pub fn check(ops: &[&Op], marks: &Marks, findings: &mut Findings) {
    for op in ops {
        let patience = match op.call {
            Call::Acquire { block: Some(0), .. } => None,
            Call::Acquire { block, .. } => Some(Nanos::from(block.unwrap_or(0)) * MS),
            Call::Close => None,
            _ => Some(0),
        };
        let is_late = patience.is_some_and(|patience| {
            let healed = marks.healed(op.key, op.done);
            op.done > op.sent.max(healed) + patience + BOUND
        });
        if op.outcome == Outcome::Silent || is_late {
            findings.late += u64::from(!matches!(op.outcome, Outcome::Silent | Outcome::Lost));
            findings.violation(Rule::Silence, format!("no answer in time: {op:?}"));
        }
    }
}
