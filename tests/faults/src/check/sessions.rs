//! A hold that was bound to a connection goes to the next waiter when the connection ends; when the server ended, it
//! goes to a waiter after the lease.

use crate::history::{Call, Nanos, Op, Outcome, Tie, MS};

use super::holds::Hold;
use super::marks::Marks;
use super::silence::BOUND;
use super::{Findings, Rule};

/// A grant was made no longer than this before its client had read it.
const UNREAD: Nanos = 1000 * MS;

/// All holds, and all requests sorted by key, owner and time.
pub fn check(holds: &[Hold], ops: &[&Op], marks: &Marks, findings: &mut Findings) {
    let mut sorted: Vec<&Hold> = holds.iter().collect();
    sorted.sort_by_key(|hold| hold.key);
    let mut of_keys = sorted.chunk_by(|a, b| a.key == b.key).peekable();
    for ops in ops.chunk_by(|a, b| a.key == b.key) {
        let key = ops[0].key;
        while of_keys.next_if(|holds| holds[0].key < key).is_some() {}
        let holds = of_keys.next_if(|holds| holds[0].key == key);
        let key = Key {
            holds: holds.unwrap_or_default(),
            ops,
            marks,
        };
        let ends = key.ends();
        for waiter in ops.iter().filter(|op| waits_long(op)) {
            if let Some(end) = ends.iter().find(|end| !key.is_passed_on(**end, waiter)) {
                findings.violation(
                    Rule::Sessions,
                    format!("nothing came to {waiter:?} though a connection had ended by {end}"),
                );
            }
        }
    }
}

fn waits_long(op: &Op) -> bool {
    matches!(op.call, Call::Acquire { block: Some(_), .. }) && op.done > op.sent + BOUND
}

/// The holds, requests and faults of one key.
struct Key<'a> {
    holds: &'a [&'a Hold],
    ops: &'a [&'a Op],
    marks: &'a Marks,
}

impl Key<'_> {
    /// The times at which a hold that was or may have been bound to a connection is no longer bound.
    fn ends(&self) -> Vec<Nanos> {
        let known = self.holds.iter().filter_map(|hold| hold.unbound);
        let lost = self.ops.iter().filter_map(|op| match op.call {
            Call::Acquire {
                tie: Tie::Session, ..
            } => self.gone_by(op),
            _ => None,
        });
        known.chain(lost).collect()
    }

    /// The end of a hold that a lost acquire may have got; `None`: it was not lost.
    fn gone_by(&self, op: &Op) -> Option<Nanos> {
        let Call::Acquire { lease, tie, .. } = op.call else {
            return None;
        };
        if op.outcome != Outcome::Lost {
            // Another rule finds requests without any reply.
            return None;
        }
        let lease = Nanos::from(lease) * MS;
        let is_server_gone = self.marks.excuse_order(op.key, op.sent, op.done);
        Some(match tie {
            Tie::Session if is_server_gone => {
                op.done.max(self.marks.healed(op.key, op.done)) + lease
            }
            // The reply was lost with the connection to which the hold would be bound.
            Tie::Session => op.done,
            _ => op.done + lease,
        })
    }

    /// Since `end` a hold is no longer bound. A waiter is granted soon after; or soon after the end of a hold that
    /// another owner may have meanwhile.
    fn is_passed_on(&self, end: Nanos, waiter: &Op) -> bool {
        let mut from = end.max(waiter.sent);
        loop {
            let until = from.saturating_add(BOUND);
            if waiter.done <= until || self.marks.healed(waiter.key, until) >= from {
                return true;
            }
            match self.held_until(from, until) {
                Some(later) => from = later,
                None => return false,
            }
        }
    }

    /// The end of a hold that may exist in this time and lasts longer than its begin.
    fn held_until(&self, from: Nanos, until: Nanos) -> Option<Nanos> {
        let granted = |hold: &&&Hold| hold.received.saturating_sub(UNREAD) < until;
        let known = self
            .holds
            .iter()
            .filter(granted)
            .map(|hold| hold.may_last());
        let lost = self.ops.iter().filter(|op| op.sent < until);
        let lost = lost.filter_map(|op| self.gone_by(op));
        known.chain(lost).filter(|end| *end > from).max()
    }
}
