//! First come, first served: an owner seen in the queue before another request is granted before it.
//!
//! Not checked are waiters whose server was lost while they waited (queues are in memory), and grants to an owner with
//! an earlier unsuccessful request, which may have returned to a kept place. Redisson's clients are not checked either:
//! they have no place in the queue.
//!
//! A ticket is passed over while its channel has no subscriber, and its owner keeps the place for
//! `lock.queue-grace`. So an owner whose subscriber was lost may be passed until its next request is queued, and not
//! before or after that. All requests of an owner by ticket are one wait; its place is not older than the first of
//! them.

use std::collections::HashMap;

use crate::history::{Call, History, Kind, Nanos, Op, Outcome, Tie};

use super::marks::Marks;
use super::waits::{Span, Waits};
use super::{Findings, Rule};

/// A grant by its token, and the time of its request or of the sight of its waiter.
struct Entry<'a> {
    at: Nanos,
    /// The grant was not made before.
    granted_since: Nanos,
    token: i64,
    op: &'a Op,
}

/// Requests sorted by key, owner and time.
pub fn check(
    history: &History,
    ops: &[&Op],
    waits: &Waits,
    marks: &Marks,
    findings: &mut Findings,
) {
    let first_seen = first_seen(history);
    for of_key in ops.chunk_by(|a, b| a.key == b.key) {
        let (mut waited, mut returned, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for of_owner in of_key.chunk_by(|a, b| a.owner == b.owner) {
            let is_ticket = !waits.asks(of_owner[0].owner).is_empty();
            // Only an owner's first request cannot have a kept place; the requests of a ticket are one wait.
            let grant = match is_ticket {
                true => of_owner.iter().find_map(granted),
                false => of_owner.first().and_then(granted),
            };
            let Some((op, token)) = grant else {
                continue;
            };
            let first = of_owner[0].sent;
            // The reply to a request sent again may be the token of a grant whose message was lost.
            let granted_since = match waits.is_told_by_reply(op) {
                true => first,
                false => op.sent,
            };
            asked.push(Entry {
                granted_since,
                ..entry(first, token, op)
            });
            let seen = first_seen.get(&(op.key, op.owner));
            let seen = seen.filter(|at| (first..op.done).contains(at));
            let Some(at) = seen.filter(|_| !marks.excuse_order(op.key, first, op.done)) else {
                continue;
            };
            let spans = match is_ticket {
                true => waits.spans(op.owner, op, marks),
                false => Some(Vec::new()),
            };
            match spans {
                Some(spans) if spans.is_empty() => waited.push(entry(*at, token, op)),
                Some(spans) => returned.push((entry(*at, token, op), spans)),
                None => {}
            }
        }
        asked.sort_by_key(|entry| entry.at);
        compare_returned(&returned, &asked, findings);
        compare(waited, asked, findings);
    }
}

fn entry(at: Nanos, token: i64, op: &Op) -> Entry<'_> {
    Entry {
        at,
        granted_since: op.sent,
        token,
        op,
    }
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
fn compare(mut waited: Vec<Entry>, asked: Vec<Entry>, findings: &mut Findings) {
    waited.sort_by_key(|entry| entry.at);
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

/// The same for owners that returned to their kept places: outside of the spans in which they may be passed.
fn compare_returned(returned: &[(Entry, Vec<Span>)], asked: &[Entry], findings: &mut Findings) {
    for (early, spans) in returned {
        let from = asked.partition_point(|late| late.at <= early.at);
        let until = asked.partition_point(|late| late.at < early.op.done);
        for late in &asked[from..until.max(from)] {
            let granted = (late.granted_since, late.op.done);
            let meets = |span: &Span| granted.0 <= span.1 && span.0 <= granted.1;
            if spans.iter().any(meets) {
                continue;
            }
            findings.ordered += 1;
            findings.returned += 1;
            if early.token > late.token {
                let (early, late) = (early.op, late.op);
                let text = format!("{late:?} passed {early:?}, away in {spans:?}");
                findings.violation(Rule::Order, text);
            }
        }
    }
}
