//! Every request is answered in time, or its connection closed; every waiter is answered soon after its latch is open.

use crate::history::{
    Answer, Call, Fault, History, LatchCall, LatchOp, Mark, Nanos, Op, Outcome, MS,
};

use super::marks::Marks;
use super::{Findings, Rule};

/// The tolerance for late replies: the machine is shared.
pub const BOUND: Nanos = 2000 * MS;

/// The tolerance for the reply that a latch is closed: it was true when it was sent, and is read so much later at most.
/// The same as of a stall.
const LATE: Nanos = crate::stall::STALL;

/// All requests. Those without a limit are answered when the run ends; the clients ensure that.
pub fn check(history: &History, ops: &[&Op], marks: &Marks, findings: &mut Findings) {
    for op in ops {
        let patience = match op.call {
            Call::Acquire { block, .. } => limit(block),
            Call::Close => None,
            _ => Some(0),
        };
        let is_late = patience.is_some_and(|patience| {
            let healed = marks.healed(op.key, op.done);
            op.done > op.sent.max(healed) + patience + BOUND
        });
        answered(&op.outcome, is_late, format_args!("{op:?}"), findings);
    }
    for ask in &history.asks {
        let healed = ask.keys.iter().map(|key| marks.healed(*key, ask.done));
        let healed = healed.max().unwrap_or(0);
        if ask.done > ask.sent.max(healed) + BOUND {
            findings.late += u64::from(ask.answer != Answer::Lost);
            findings.violation(Rule::Silence, format!("no reply in time: {ask:?}"));
        }
    }
    let mut ops: Vec<&LatchOp> = history.latches.iter().collect();
    ops.sort_by_key(|op| (op.latch, op.sent));
    for latch in ops.chunk_by(|a, b| a.latch == b.latch) {
        of_latch(latch, &history.marks, marks, findings);
    }
}

/// The time for which a request with this `BLOCK` waits; `None`: without limit.
fn limit(block: Option<u32>) -> Option<Nanos> {
    match block {
        Some(0) => None,
        _ => Some(Nanos::from(block.unwrap_or(0)) * MS),
    }
}

fn answered(outcome: &Outcome, is_late: bool, text: std::fmt::Arguments, findings: &mut Findings) {
    if *outcome == Outcome::Silent || is_late {
        findings.late += u64::from(!matches!(outcome, Outcome::Silent | Outcome::Lost));
        findings.violation(Rule::Silence, format!("no answer in time: {text}"));
    }
}

/// The requests of one generation, sorted by time.
fn of_latch(latch: &[&LatchOp], faults: &[Mark], marks: &Marks, findings: &mut Findings) {
    for op in latch {
        let patience = match op.call {
            LatchCall::Wait { block } => limit(block),
            _ => Some(0),
        };
        let healed = marks.healed(op.latch, op.done);
        let is_late = patience.is_some_and(|ms| op.done > op.sent.max(healed) + ms + BOUND);
        answered(&op.outcome, is_late, format_args!("{op:?}"), findings);
    }
    // A fault that restores an earlier state may close the latch again.
    let (mut start, mut restores) = (0, spans(latch, faults, Fault::restores));
    restores.push((Nanos::MAX, Nanos::MAX));
    let changes = spans(latch, faults, Fault::changes_primary);
    for (end, next) in restores {
        released(latch, (start, end), &changes, marks, findings);
        start = next;
    }
}

/// The times of these faults, sorted, overlapping ones as one.
fn spans(latch: &[&LatchOp], faults: &[Mark], which: fn(Fault) -> bool) -> Vec<(Nanos, Nanos)> {
    let key = latch[0].latch;
    let its = faults
        .iter()
        .filter(|mark| mark.key.is_none_or(|of| of == key) && which(mark.fault));
    let mut all: Vec<(Nanos, Nanos)> = its.map(|mark| (mark.from, mark.to)).collect();
    all.sort_unstable();
    all.dedup_by(|next, last| {
        let is_joined = next.0 <= last.1;
        last.1 = if is_joined {
            last.1.max(next.1)
        } else {
            last.1
        };
        is_joined
    });
    all
}

/// In a time in which a latch that was opened stays open, its waiters are answered soon.
fn released(
    latch: &[&LatchOp],
    (start, end): (Nanos, Nanos),
    changes: &[(Nanos, Nanos)],
    marks: &Marks,
    findings: &mut Findings,
) {
    let is_within = |op: &&LatchOp| op.sent >= start && op.done <= end && !op.is_unknown();
    let may_close = |op: &&LatchOp| {
        let is_refused = matches!(op.outcome, Outcome::Error(_));
        let is_over = op.done < start && !op.is_unknown();
        op.call.closes() && op.sent <= end && !is_over && !is_refused
    };
    if latch
        .iter()
        .copied()
        .filter(may_close)
        .any(|op| !is_within(&op))
    {
        // It may close the latch again at any time. Only one client uses such a latch.
        return;
    }
    let known = || latch.iter().copied().filter(is_within);
    let closings =
        known().filter(|op| op.call.closes() && matches!(op.outcome, Outcome::Number(_)));
    let Some(closed) = closings
        .map(|op| op.sent)
        .max()
        .or((start > 0).then_some(0))
    else {
        return;
    };
    // A replica may have replied to a wait while the primary changed.
    let is_foreign = |op: &LatchOp| {
        let mut met = changes
            .iter()
            .filter(|(from, to)| op.sent <= *to && op.done >= *from);
        matches!(op.call, LatchCall::Wait { .. }) && met.next().is_some()
    };
    let is_open = |op: &LatchOp| {
        let is_opened = op.call.opens() && matches!(op.outcome, Outcome::Number(_));
        op.done > closed && (op.says_open() || is_opened) && !is_foreign(op)
    };
    let Some(why) = known().filter(|op| is_open(op)).min_by_key(|op| op.done) else {
        return;
    };
    for op in known() {
        let LatchCall::Wait { block: Some(block) } = op.call else {
            continue;
        };
        let open = why.done.max(marks.healed(op.latch, op.done));
        let is_late = match op.outcome {
            Outcome::Number(1) => op.done > open.max(op.sent) + BOUND,
            // When its time ran out, or it was unblocked.
            Outcome::Number(_) if block == 0 => op.done > open + LATE,
            Outcome::Number(_) => op.done.min(op.sent + Nanos::from(block) * MS) > open + LATE,
            _ => false,
        };
        if is_late {
            let text = format!("waits at an open latch: {op:?}, open since {why:?}");
            findings.violation(Rule::Silence, text);
        }
    }
}
