//! What was bound to a connection goes to the next waiter when that ends; to whoever comes after the lease
//! when the server ended.

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
    let mut keys = ops.chunk_by(|a, b| a.key == b.key).peekable();
    for of_key in sorted.chunk_by(|a, b| a.key == b.key) {
        let key = of_key[0].key;
        while keys.next_if(|ops| ops[0].key < key).is_some() {}
        if let Some(ops) = keys.next_if(|ops| ops[0].key == key) {
            for hold in of_key {
                if let Some(end) = hold.unbound {
                    must_be_passed_on(hold, end, of_key, ops, marks, findings);
                }
            }
        }
    }
}

/// Since `end` nothing keeps this hold. Whoever waits is granted, unless somebody else may hold.
fn must_be_passed_on(
    hold: &Hold,
    end: Nanos,
    holds: &[&Hold],
    ops: &[&Op],
    marks: &Marks,
    findings: &mut Findings,
) {
    let until = end + BOUND;
    if marks.healed(hold.key, until) >= end {
        return;
    }
    let waits = |op: &&&Op| {
        let waits = matches!(op.call, Call::Acquire { block: Some(_), .. });
        waits && op.owner != hold.owner && op.sent < end && op.done > until
    };
    let Some(waiter) = ops.iter().find(waits) else {
        return;
    };
    let is_other = |other: &&&Hold| other.owner != hold.owner || other.token != hold.token;
    let held = holds
        .iter()
        .filter(is_other)
        .any(|other| other.received.saturating_sub(UNREAD) < until && other.may_last(end));
    let maybe = ops.iter().any(|op| {
        let is_lost = matches!(op.outcome, Outcome::Lost | Outcome::Silent);
        let Call::Acquire { lease, tie, .. } = op.call else {
            return false;
        };
        let lease = Nanos::from(lease) * MS;
        let is_server_gone = marks.excuse_order(op.key, op.sent, op.done);
        let over_by = match tie {
            Tie::Session if is_server_gone => op.done.max(marks.healed(op.key, op.done)) + lease,
            // Nobody was told, and the connection was the one to be bound to.
            Tie::Session => op.done,
            _ => op.done + lease,
        };
        is_lost && op.sent < until && over_by > end
    });
    if !held && !maybe {
        findings.violation(
            Rule::Sessions,
            format!("{hold:?} was not passed on to {waiter:?}"),
        );
    }
}
