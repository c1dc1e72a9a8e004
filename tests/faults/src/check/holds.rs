//! What each owner held, and from when to when it may be sure of it; and that nobody acts on a dead lease.

use crate::history::{Call, Nanos, Op, Outcome, MS};

use super::marks::Marks;
use super::{Findings, Rule};

/// Leases are counted in milliseconds of another clock: this much apart is no contradiction.
pub const SLACK: Nanos = MS;

/// A grant that its client received.
#[derive(Debug, Clone)]
pub struct Hold {
    pub key: u32,
    pub owner: u64,
    pub token: i64,
    /// The request was sent.
    pub asked: Nanos,
    /// The reply was received: from here on the client may act.
    pub received: Nanos,
    /// Until here the lock is surely its own: counted from the sending of what the server agreed to.
    pub surely_until: Nanos,
    /// Here the lease is surely over: counted from the replies. `MAX`: who knows.
    over_by: Nanos,
    /// A request that would end or shorten the hold was lost: nothing after it is sure.
    doubtful: bool,
}

/// The holds of a history whose requests are sorted by key, owner and time.
pub fn of(ops: &[&Op], marks: &Marks, findings: &mut Findings) -> Vec<Hold> {
    let mut holds = Vec::new();
    for of_owner in ops.chunk_by(|a, b| (a.key, a.owner) == (b.key, b.owner)) {
        session(of_owner, marks, &mut holds, findings);
    }
    holds
}

/// One owner's requests, one after the other.
fn session(ops: &[&Op], marks: &Marks, holds: &mut Vec<Hold>, findings: &mut Findings) {
    let mut hold: Option<Hold> = None;
    for op in ops {
        match op.call {
            Call::Acquire { lease, .. } => acquired(op, lease, &mut hold, holds),
            Call::Renew { lease, token } => {
                if let Some(hold) = of_token(&mut hold, token) {
                    renewed(op, lease, hold, marks, findings);
                }
            }
            Call::Release { token, .. } => {
                if let Some(hold) = of_token(&mut hold, token) {
                    released(op, hold, marks, findings);
                }
            }
        }
    }
    holds.extend(hold);
}

fn of_token(hold: &mut Option<Hold>, token: Option<i64>) -> Option<&mut Hold> {
    hold.as_mut()
        .filter(|hold| token.is_none_or(|token| token == hold.token))
}

fn acquired(op: &Op, lease: u32, hold: &mut Option<Hold>, holds: &mut Vec<Hold>) {
    let (surely_until, over_by) = (op.sent + ms(lease), op.done + ms(lease));
    match (&op.outcome, hold.as_mut()) {
        (Outcome::Granted(token), Some(held)) if *token == held.token => {
            if !held.doubtful {
                held.surely_until = held.surely_until.max(surely_until);
            }
            held.over_by = held.over_by.max(over_by);
        }
        (Outcome::Granted(token), _) => holds.extend(hold.replace(Hold {
            key: op.key,
            owner: op.owner,
            token: *token,
            asked: op.sent,
            received: op.done,
            surely_until,
            over_by,
            doubtful: false,
        })),
        // It may have been a re-entry, or a grant under another token that nobody was told of.
        (Outcome::Lost | Outcome::Silent, Some(held)) => {
            held.over_by = Nanos::MAX;
            held.doubtful = true;
        }
        _ => {}
    }
}

fn renewed(op: &Op, lease: u32, hold: &mut Hold, marks: &Marks, findings: &mut Findings) {
    match op.outcome {
        Outcome::Number(1) => {
            must_be_alive(op, hold, marks, findings);
            if !hold.doubtful {
                hold.surely_until = op.sent + ms(lease);
                hold.over_by = op.done + ms(lease);
            }
        }
        Outcome::Number(_) => hold.surely_until = hold.surely_until.min(op.sent),
        Outcome::Lost | Outcome::Silent => doubt(op, hold),
        _ => {}
    }
}

fn released(op: &Op, hold: &mut Hold, marks: &Marks, findings: &mut Findings) {
    match op.outcome {
        Outcome::Number(0) => must_be_alive(op, hold, marks, findings),
        Outcome::Number(_) => {
            must_be_alive(op, hold, marks, findings);
            hold.surely_until = hold.surely_until.min(op.sent);
            if !hold.doubtful {
                hold.over_by = op.done;
            }
        }
        Outcome::Nil => hold.surely_until = hold.surely_until.min(op.sent),
        Outcome::Lost | Outcome::Silent => doubt(op, hold),
        _ => {}
    }
}

fn doubt(op: &Op, hold: &mut Hold) {
    hold.surely_until = hold.surely_until.min(op.sent);
    hold.over_by = Nanos::MAX;
    hold.doubtful = true;
}

/// The server has just agreed that this grant still holds.
fn must_be_alive(op: &Op, hold: &Hold, marks: &Marks, findings: &mut Findings) {
    let is_over = op.sent > hold.over_by.saturating_add(SLACK);
    if is_over && !marks.excuse_long_lease(hold.key, hold.asked, op.done) {
        findings.violation(
            Rule::Leases,
            format!("{op:?} succeeded on a lease that was over: {hold:?}"),
        );
    }
}

fn ms(lease: u32) -> Nanos {
    Nanos::from(lease) * MS
}
