//! The checker: whether a history is one that the documentation allows. Pure, O(n log n).
//!
//! | Rule | |
//! |---|---|
//! | exclusion | two surely held intervals of one key do not overlap (but readers with readers), unless a fault that may cause it lies between: that is counted |
//! | permits | no more permits of a semaphore are surely held at one moment than it has; the same faults excuse |
//! | tokens | different grants have different tokens, but for the readers of one phase; a grant asked for after another was received has the higher one. Whatever happened |
//! | order | who was seen waiting before another asked is granted before it, unless the queue was lost in between |
//! | silence | every request is answered, or its connection closed, in its `BLOCK` and two seconds |
//! | leases | nobody renews or releases a grant whose lease has surely ended |
//! | sessions | what was bound to a connection is the next waiter's within two seconds of its end, or of the lease after the server's |
//! | all or nothing | a request for several keys holds all of them or none, at every moment that was looked at |

mod exclusion;
mod holds;
mod many;
mod marks;
mod order;
mod permits;
mod sessions;
mod silence;
mod tokens;

#[cfg(test)]
mod forged;
#[cfg(test)]
mod forged_kinds;

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
}

/// A rule was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    pub rule: Rule,
    pub text: String,
}

/// What the checker found.
#[derive(Debug, Default)]
pub struct Findings {
    pub operations: u64,
    pub grants: u64,
    /// Pairs of holders at one time that a fault explains.
    pub overlaps: u64,
    /// How many grants were compared with a waiter that had been seen before they were asked for.
    pub ordered: u64,
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
}

/// Judges a history.
pub fn check(history: &History) -> Findings {
    let mut findings = Findings {
        operations: history.ops.len() as u64,
        ..Findings::default()
    };
    let marks = marks::Marks::of(&history.marks);
    let mut ops: Vec<&Op> = history.ops.iter().collect();
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
    order::check(history, &ops, &marks, &mut findings);
    findings
}
