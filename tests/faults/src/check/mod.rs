//! The rules of a history: it is one that the documentation allows. Each rule has one judge.
//!
//! Porcupine is the gate (`crate::porcupine`, tests/linearizability): it searches for an order of the operations that
//! the documentation allows. What is not a matter of an order is judged here, by one file a rule; pure, O(n log n).
//!
//! | Rule | Judge | |
//! |---|---|---|
//! | exclusion | Porcupine | two owners do not hold a lock at one time (except readers with readers), unless a fault that can cause it lies between |
//! | permits | Porcupine | no more permits of a semaphore are held at one time than it has; the same faults are excuses |
//! | tokens | Porcupine | different grants have different tokens, except readers of one phase; of a lock, a grant requested after another was received has the higher one. No fault is an excuse |
//! | leases | Porcupine | no grant whose lease has surely ended is renewed or released |
//! | held | Porcupine | a grant whose lease is surely not over, or that is bound to a connection that lives, is not answered as lost, unless a fault can have taken it |
//! | all or nothing | Porcupine | a request for several keys holds all of them or none, in every atomic reading |
//! | latches | Porcupine | a latch opens only when the counts that may have been taken are enough, and stays open; each reply of `LATCH.DOWN` is the count after those before it |
//! | order | here | an owner seen waiting before another request is granted before it, unless the queue was lost in between |
//! | silence | here | every request is answered, or its connection closed, within its `BLOCK` and two seconds; a waiter soon after its latch is open |
//! | sessions | here | a hold that was bound to a connection goes to the next waiter within two seconds of its end, or of the lease after the server's end |
//! | tickets | here | a request with `NOTIFY` has one outcome; a message has a request and a reason, and no release before it that withdrew the request; `NOSUBSCRIBER` is the answer without a subscriber, and only then; a holder is not queued |
//! | counters | here | the counters of tickets add up, and agree with the replies and messages |
//!
//! All hold for tickets as for parked requests: see `waits`.

mod counters;
mod holds;
mod marks;
mod order;
mod overlaps;
mod sessions;
mod silence;
mod tickets;
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
    Permits,
    Tokens,
    Leases,
    Held,
    AllOrNothing,
    Latches,
    Order,
    Silence,
    Sessions,
    Tickets,
    Counters,
}

impl Rule {
    /// Whether Porcupine judges it.
    pub fn is_porcupines(self) -> bool {
        self <= Rule::Latches
    }
}

/// A breach of a rule.
#[derive(Debug, Clone)]
pub struct Violation {
    pub rule: Rule,
    pub text: String,
}

/// The result of the rules that are judged here, and the figures.
#[derive(Debug, Default)]
pub struct Findings {
    pub operations: u64,
    pub grants: u64,
    /// Simultaneous holders that a loss has made one too many.
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
    holds::of(&ops, &marks::Marks::of(&history.marks))
}

/// Checks a history by the rules that are judged here.
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
    let mut holds = holds::of(&ops, &marks);
    findings.grants = holds.len() as u64;
    holds.sort_by_key(|hold| (hold.key, hold.received));
    let of_keys = holds.chunk_by(|a, b| a.key == b.key);
    findings.overlaps = of_keys.map(overlaps::count).sum();
    order::check(history, &ops, &waits, &marks, &mut findings);
    silence::check(history, &ops, &marks, &mut findings);
    sessions::check(&holds, &ops, &marks, &mut findings);
    tickets::check(history, &waits, &ops, &marks, &mut findings);
    counters::check(history, &mut findings);
    findings
}
