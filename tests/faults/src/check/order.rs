//! First come, first served: an owner seen in the queue before another request is granted before it.
//!
//! Not checked are waiters whose server was lost while they waited (queues are in memory), and grants to an owner with
//! an earlier unsuccessful request, which may have returned to a kept place. Redisson's clients are not checked either:
//! they have no place in the queue.

use std::collections::HashMap;

use crate::history::{Call, History, Kind, Nanos, Op, Outcome, Tie};

use super::marks::Marks;
use super::{Findings, Rule};

/// A grant by its token, and the time of its request or of the sight of its waiter.
struct Entry<'a> {
    at: Nanos,
    token: i64,
    op: &'a Op,
}

/// Requests sorted by key, owner and time.
pub fn check(history: &History, ops: &[&Op], marks: &Marks, findings: &mut Findings) {
    let first_seen = first_seen(history);
    for of_key in ops.chunk_by(|a, b| a.key == b.key) {
        let (mut waited, mut asked) = (Vec::new(), Vec::new());
        for of_owner in of_key.chunk_by(|a, b| a.owner == b.owner) {
            // Only an owner's first request cannot have a kept place.
            let Some((op, token)) = of_owner.first().and_then(|op| granted(op)) else {
                continue;
            };
            asked.push(entry(op.sent, token, op));
            let seen = first_seen.get(&(op.key, op.owner));
            let seen = seen.filter(|at| (op.sent..op.done).contains(at));
            if let Some(at) = seen {
                if !marks.excuse_order(op.key, op.sent, op.done) {
                    waited.push(entry(*at, token, op));
                }
            }
        }
        compare(waited, asked, findings);
    }
}

fn entry(at: Nanos, token: i64, op: &Op) -> Entry<'_> {
    Entry { at, token, op }
}

fn granted<'a>(op: &&'a Op) -> Option<(&'a Op, i64)> {
    match (op.call, &op.outcome) {
        // The tokens of permits do not show their order.
        (
            Call::Acquire {
                kind: Kind::Permit(_),
                ..
            },
            _,
        ) => None,
        // Redisson's clients have no place in the queue.
        (
            Call::Acquire {
                tie: Tie::Outside, ..
            },
            _,
        ) => None,
        (Call::Acquire { .. }, Outcome::Granted(token)) => Some((op, *token)),
        _ => None,
    }
}

fn first_seen(history: &History) -> HashMap<(u32, u64), Nanos> {
    let mut first = HashMap::new();
    for seen in &history.seen {
        let at = first.entry((seen.key, seen.owner)).or_insert(seen.at);
        *at = seen.at.min(*at);
    }
    first
}

/// No grant has a lower token than a waiter that was seen before its request.
fn compare(mut waited: Vec<Entry>, mut asked: Vec<Entry>, findings: &mut Findings) {
    waited.sort_by_key(|entry| entry.at);
    asked.sort_by_key(|entry| entry.at);
    let mut waited = waited.into_iter().peekable();
    let mut latest: Option<Entry> = None;
    for late in asked {
        while let Some(early) = waited.next_if(|early| early.at < late.at) {
            latest = latest
                .filter(|latest| latest.token > early.token)
                .or(Some(early));
        }
        if let Some(early) = &latest {
            findings.ordered += 1;
            if early.token > late.token {
                let (early, late) = (early.op, late.op);
                findings.violation(Rule::Order, format!("{late:?} passed {early:?}"));
            }
        }
    }
}
