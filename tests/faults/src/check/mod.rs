//! The checker: whether a history is one that the documentation allows. Pure, O(n log n).
//!
//! | Rule | |
//! |---|---|
//! | exclusion | two surely held intervals of one key do not overlap (except readers with readers), unless a fault that can cause it lies between: that is counted |
//! | permits | no more permits of a semaphore are surely held at one time than it has; the same faults are excuses |
//! | tokens | different grants have different tokens, except readers of one phase; a grant requested after another was received has the higher one. No fault is an excuse |
//! | order | an owner seen waiting before another request is granted before it, unless the queue was lost in between |
//! | silence | every request is answered, or its connection closed, within its `BLOCK` and two seconds |
//! | leases | no grant whose lease has surely ended is renewed or released |
//! | sessions | a hold that was bound to a connection goes to the next waiter within two seconds of its end, or of the lease after the server's end |
//! | all or nothing | a request for several keys holds all of them or none, in every atomic reading |
//! | held | a grant whose lease is surely not over, or that is bound to a connection that lives, is not answered as lost, unless a fault can have taken it |
//! | tickets | a request with `NOTIFY` has one outcome; a message has a request and a reason; `NOSUBSCRIBER` is the answer without a subscriber, and only then; a holder is not queued |
//! | latches | a latch opens only when the counts that may have been taken are enough, and stays open; each reply of `LATCH.DOWN` is the count after those before it |
//! | counters | the counters of tickets add up, and agree with the replies and messages |
//!
//! The first five rules hold for tickets as for parked requests: see `waits`.

mod counters;
mod exclusion;
mod holds;
mod latches;
mod many;
mod marks;
mod order;
mod permits;
mod sessions;
mod silence;
mod tickets;
mod tokens;
mod waits;

#[cfg(test)]
mod forged;
#[cfg(test)]
mod forged_kinds;
#[cfg(test)]
mod forged_latches;
#[cfg(test)]
mod forged_tickets;
#[cfg(test)]
mod verdict;

use crate::history::{History, Op};

pub use holds::Hold;

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    Exclusion,
    Tokens,
    Order,
    Silence,
    Leases,
    Permits,
    Sessions,
    AllOrNothing,
    Held,
    Tickets,
    Counters,
    Latches,
}

/// A breach of a rule.
#[derive(Debug, Clone)]
pub struct Violation {
    pub rule: Rule,
    pub text: String,
}

/// The result of the checker.
#[derive(Debug, Default)]
pub struct Findings {
    pub operations: u64,
    pub grants: u64,
    /// Pairs of simultaneous holders that a fault explains.
    pub overlaps: u64,
    /// The number of grants that were compared with a waiter seen before their request.
    pub ordered: u64,
    /// Those of them in which the waiter had returned to a kept place.
    pub returned: u64,
    /// Requests with `NOTIFY`, those of them that were queued, and messages.
    pub asks: u64,
    pub queued: u64,
    pub messages: u64,
    /// The violations that are replies which came, but too late.
    pub late: u64,
    pub violations: Vec<Violation>,
}

impl Findings {
    /// How often a rule was broken.
    pub fn count(&self, rule: Rule) -> u64 {
        self.violations.iter().filter(|v| v.rule == rule).count() as u64
    }

    fn violation(&mut self, rule: Rule, text: String) {
        self.violations.push(Violation { rule, text });
    }

    fn violations_of(&mut self, rule: Rule, text: Option<String>) {
        self.violations
            .extend(text.map(|text| Violation { rule, text }));
    }
}

/// The requests of a history by key, owner and time. A request by ticket is an acquire until its outcome was read.
pub fn requests(history: &History) -> Vec<Op> {
    let mut ops = history.ops.clone();
    ops.extend(waits::Waits::of(history).ops());
    ops.sort_by_key(|op| (op.key, op.owner, op.sent));
    ops
}

/// The grants of a history that their clients received, sorted by key, owner and time.
pub fn holds(history: &History) -> Vec<Hold> {
    let ops = requests(history);
    let ops: Vec<&Op> = ops.iter().collect();
    let marks = marks::Marks::of(&history.marks);
    holds::of(&ops, &marks, &mut Findings::default())
}

/// Checks a history.
pub fn check(history: &History) -> Findings {
    let mut findings = Findings {
        operations: (history.ops.len() + history.asks.len() + history.latches.len()) as u64,
        ..Findings::default()
    };
    let marks = marks::Marks::of(&history.marks);
    let waits = waits::Waits::of(history);
    let waited = waits.ops();
    let mut ops: Vec<&Op> = history.ops.iter().chain(&waited).collect();
    ops.sort_by_key(|op| (op.key, op.owner, op.sent));
    let mut holds = holds::of(&ops, &marks, &mut findings);
    findings.grants = holds.len() as u64;
    silence::check(&ops, &marks, &mut findings);
    holds.sort_by_key(|hold| (hold.key, hold.received));
    for of_key in holds.chunk_by(|a, b| a.key == b.key) {
        exclusion::check(of_key, &marks, &mut findings);
        permits::check(of_key, &marks, &mut findings);
        tokens::check(of_key, &mut findings);
    }
    sessions::check(&holds, &ops, &marks, &mut findings);
    many::check(&holds, &ops, &history.looks, &marks, &mut findings);
    order::check(history, &ops, &waits, &marks, &mut findings);
    tickets::check(history, &waits, &ops, &marks, &mut findings);
    counters::check(history, &mut findings);
    latches::check(history, &marks, &mut findings);
    findings
}
