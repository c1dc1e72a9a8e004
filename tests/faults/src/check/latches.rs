//! Latches: no waiter is released, and no count replied, that the counts before it do not allow; every waiter is
//! answered soon after its latch is open.
//!
//! The history of a latch is one generation (`crate::history::LatchOp`): the count only falls, and once it is zero it
//! stays zero. So a replied number says that the latch was closed at some time since its request was sent, or that it
//! was open at some time before its reply was read, and the latch opened between the last of the former (`closed`) and
//! the first of the latter (`open`). The replies of `DOWN` fix the order in which the counts were taken; what is
//! missing between two of them was taken by requests whose outcome is unknown. Such a request may be executed at any
//! time after it was sent, or never.
//!
//! A deletion of all data opens a latch. A fault that may restore an earlier state leaves any count: the history is
//! checked before it and after it. A wait while a primary and a replica change places says nothing: the replica may
//! have replied.

use crate::history::{Fault, History, LatchCall, LatchOp, Mark, Nanos, Only, Outcome, MS};

use super::marks::Marks;
use super::silence::BOUND;
use super::{Findings, Rule};

/// The tolerance for a reply of 0: it was true when it was sent, and is read so much later at most. The same as of a
/// stall.
const LATE: Nanos = 500 * MS;

/// All latches of a history.
pub fn check(history: &History, marks: &Marks, findings: &mut Findings) {
    let mut ops: Vec<&LatchOp> = history.latches.iter().collect();
    ops.sort_by_key(|op| (op.latch, op.sent));
    for latch in ops.chunk_by(|a, b| a.latch == b.latch) {
        answered(latch, marks, findings);
        let faults = of_latch(latch, &history.marks);
        let mut start = 0;
        let restores = faults.iter().filter(|mark| mark.fault.restores());
        for (from, to) in joined(restores) {
            Span { start, end: from }.check(latch, &faults, marks, findings);
            start = to;
        }
        let end = Nanos::MAX;
        Span { start, end }.check(latch, &faults, marks, findings);
    }
}

/// Every request has its answer in time.
fn answered(latch: &[&LatchOp], marks: &Marks, findings: &mut Findings) {
    for op in latch {
        let patience = match op.call {
            LatchCall::Wait { block: Some(0) } => None,
            LatchCall::Wait { block } => Some(Nanos::from(block.unwrap_or(0)) * MS),
            _ => Some(0),
        };
        let healed = marks.healed(op.latch, op.done);
        let is_late = patience.is_some_and(|ms| op.done > op.sent.max(healed) + ms + BOUND);
        if op.outcome == Outcome::Silent || is_late {
            findings.late += u64::from(!matches!(op.outcome, Outcome::Silent | Outcome::Lost));
            findings.violation(Rule::Silence, format!("no answer in time: {op:?}"));
        }
    }
}

/// The faults that may concern a latch.
fn of_latch<'a>(latch: &[&LatchOp], marks: &'a [Mark]) -> Vec<&'a Mark> {
    let (Some(first), Some(done)) = (latch.first(), latch.iter().map(|op| op.done).max()) else {
        return Vec::new();
    };
    let meets = |mark: &&Mark| {
        let is_its = mark.key.is_none_or(|key| key == first.latch);
        is_its && mark.to >= first.sent && mark.from <= done
    };
    let mut faults: Vec<&Mark> = marks.iter().filter(meets).collect();
    faults.sort_by_key(|mark| mark.from);
    faults
}

/// The times of marks that are sorted by their begin, overlapping ones as one.
fn joined<'a>(marks: impl Iterator<Item = &'a &'a Mark>) -> Vec<(Nanos, Nanos)> {
    let mut times: Vec<(Nanos, Nanos)> = Vec::new();
    for mark in marks {
        match times.last_mut() {
            Some((_, to)) if *to >= mark.from => *to = mark.to.max(*to),
            _ => times.push((mark.from, mark.to)),
        }
    }
    times
}

/// A time without a fault that may restore an earlier state.
#[derive(Clone, Copy)]
struct Span {
    start: Nanos,
    end: Nanos,
}

/// A `DOWN` whose reply is above zero.
struct Down<'a> {
    op: &'a LatchOp,
    by: i64,
    left: i64,
}

/// What the requests of a span say of one latch.
#[derive(Default)]
struct Facts<'a> {
    /// The `SET` that gave the present count: when it was sent, and the count. `None`: not known.
    level: Option<(Nanos, i64)>,
    /// The last time at which the latch was closed, or later; and the request that says so.
    closed: (Nanos, Option<&'a LatchOp>),
    /// The first time at which it was open, or earlier. `MAX`: never, as far as is known.
    open: (Nanos, Option<&'a LatchOp>),
    downs: Vec<Down<'a>>,
    /// What other requests have taken between those of `downs`.
    missing: i64,
    /// `DOWN`s that were answered 0: when they were sent, and their n.
    last_downs: Vec<(Nanos, i64)>,
    /// `DOWN`s that may have been executed: since when, and their n.
    unknown: Vec<(Nanos, i64)>,
    /// Since when and by when the latch may have been opened otherwise than by `DOWN`.
    openings: Vec<(Nanos, Nanos)>,
}

impl Span {
    fn check(self, latch: &[&LatchOp], faults: &[&Mark], marks: &Marks, findings: &mut Findings) {
        let (known, unknown) = self.part(latch);
        if unknown.iter().any(|(_, op)| op.call.closes()) {
            // It may close the latch again at any time. Only one client uses such a latch.
            return;
        }
        let Some(mut facts) = Facts::of(self, &known, faults, findings) else {
            return;
        };
        facts.add_unknown(&unknown);
        for mark in faults.iter().filter(|mark| mark.fault == Fault::Taken) {
            facts.openings.push((mark.from, mark.to));
        }
        let wrong = facts.closed_twice(&known).or_else(|| facts.reopened());
        let wrong = wrong.or_else(|| facts.miscounted());
        match wrong.or_else(|| facts.opened_early()) {
            Some(text) => findings.violation(Rule::Latches, text),
            None => facts.released(&known, marks, findings),
        }
    }

    /// The requests that were sent and answered in the span; those that may have been executed in it, and since when.
    fn part<'a>(self, latch: &[&'a LatchOp]) -> (Vec<&'a LatchOp>, Vec<(Nanos, &'a LatchOp)>) {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for op in latch {
            let is_over = op.done < self.start && !op.is_unknown();
            if is_over || op.sent > self.end || matches!(op.outcome, Outcome::Error(_)) {
                continue;
            }
            match op.is_unknown() || op.sent < self.start || op.done > self.end {
                true => unknown.push((op.sent.max(self.start), *op)),
                false => known.push(*op),
            }
        }
        (known, unknown)
    }
}

impl<'a> Facts<'a> {
    /// What the replies say, sorted by the time of the requests. `None`: a reply has no meaning, which is reported.
    fn of(
        span: Span,
        known: &[&'a LatchOp],
        faults: &[&Mark],
        findings: &mut Findings,
    ) -> Option<Facts<'a>> {
        // The generation begins as an open latch; after a fault that restores an earlier state it is not known how.
        let mut facts = Facts {
            open: (Nanos::MAX, None),
            ..Facts::default()
        };
        let first = known.iter().rposition(|op| is_closing(op));
        match first {
            Some(at) => facts.closed = (known[at].sent, Some(known[at])),
            None if span.start == 0 => facts.open = (0, None),
            None => {}
        }
        // What was answered before the latch was closed for the last time says nothing.
        let since = first.map_or(0, |at| known[at].sent);
        let changes = |fault: Fault| fault.changes_primary();
        let changes = joined(faults.iter().filter(|mark| changes(mark.fault)));
        for op in known.iter().filter(|op| op.done > since) {
            let is_foreign = changes
                .iter()
                .any(|(from, to)| op.sent <= *to && op.done >= *from);
            if is_foreign && matches!(op.call, LatchCall::Wait { .. }) {
                continue;
            }
            if !facts.add(op) {
                let text = format!("not a reply to this request: {op:?}");
                findings.violation(Rule::Latches, text);
                return None;
            }
        }
        Some(facts)
    }

    /// Adds what the reply says; false: nothing that has a meaning.
    fn add(&mut self, op: &'a LatchOp) -> bool {
        match (op.call, &op.outcome) {
            (LatchCall::Wait { .. }, Outcome::Number(1)) => self.is_open(op),
            (LatchCall::Wait { .. }, Outcome::Number(0)) => self.is_closed(op),
            (LatchCall::Down { by }, Outcome::Number(0)) => {
                self.is_open(op);
                self.last_downs.push((op.sent, by));
            }
            (LatchCall::Down { by }, Outcome::Number(left)) if *left > 0 => {
                self.is_closed(op);
                let left = *left;
                self.downs.push(Down { op, by, left });
            }
            (LatchCall::Delete, Outcome::Number(existed)) => {
                self.is_open(op);
                if *existed > 0 {
                    self.is_closed(op);
                    self.openings.push((op.sent, op.done));
                }
            }
            (LatchCall::Set { only, .. }, Outcome::Nil) => match only {
                Only::IfOpen => self.is_closed(op),
                Only::IfClosed => self.is_open(op),
                Only::Always => return false,
            },
            (LatchCall::Set { count, only }, Outcome::Number(set)) if *set == count => {
                if only == Only::IfClosed {
                    self.is_closed(op);
                }
                if count == 0 {
                    self.is_open(op);
                    self.openings.push((op.sent, op.done));
                } else {
                    self.level = Some((op.sent, count));
                }
            }
            _ => return false,
        }
        true
    }

    fn is_open(&mut self, op: &'a LatchOp) {
        if op.done < self.open.0 {
            self.open = (op.done, Some(op));
        }
    }

    fn is_closed(&mut self, op: &'a LatchOp) {
        if op.sent >= self.closed.0 {
            self.closed = (op.sent, Some(op));
        }
    }

    fn is_counted_after(&self, since: Nanos) -> bool {
        self.downs.iter().any(|down| down.op.done > since)
    }

    fn add_unknown(&mut self, unknown: &[(Nanos, &LatchOp)]) {
        for (since, op) in unknown {
            match op.call {
                LatchCall::Down { by } => self.unknown.push((*since, by)),
                // `XX`. The present count is not known, if it is used any more.
                LatchCall::Set { count, .. } if count > 0 && self.is_counted_after(*since) => {
                    self.level = None;
                }
                call if call.opens() => self.openings.push((*since, Nanos::MAX)),
                _ => {}
            }
        }
    }

    /// `SET` with `NX` has closed a latch that was closed before.
    fn closed_twice(&self, known: &[&LatchOp]) -> Option<String> {
        let closings: Vec<_> = known.iter().filter(|op| is_closing(op)).collect();
        let wrong = closings.windows(2).find(|pair| {
            let [first, second] = pair else { return false };
            let mut openings = self.openings.iter();
            matches!(
                second.call,
                LatchCall::Set {
                    only: Only::IfOpen,
                    ..
                }
            ) && !openings.any(|(since, by)| *since <= second.done && *by >= first.sent)
        });
        wrong.map(|pair| format!("closed with NX, but not open before: {pair:?}"))
    }

    /// The latch was closed after it was open.
    fn reopened(&self) -> Option<String> {
        let ((closed, why_closed), (open, why_open)) = (self.closed, self.open);
        let is_wrong = closed > open;
        is_wrong.then(|| match why_open {
            Some(op) => format!("closed after it was open: {why_closed:?} after {op:?}"),
            None => format!("closed, but open at the begin: {why_closed:?}"),
        })
    }

    /// The replies of `DOWN` are no series of falling counts.
    fn miscounted(&mut self) -> Option<String> {
        let set = self.level;
        let since = set.map_or(0, |(sent, _)| sent);
        self.downs.retain(|down| down.op.done > since);
        self.downs.sort_by_key(|down| std::cmp::Reverse(down.left));
        let mut by = self.open.0;
        // By when each count was taken: not later than those after it.
        let mut limits = vec![by; self.downs.len()];
        for (limit, down) in limits.iter_mut().zip(&self.downs).rev() {
            by = by.min(down.op.done);
            *limit = by;
        }
        let (mut before, mut sent) = (set.map(|(_, count)| count), 0);
        for (down, limit) in self.downs.iter().zip(limits) {
            sent = down.op.sent.max(sent);
            let gap = before.map_or(0, |before| before - down.by - down.left);
            self.missing += gap;
            before = Some(down.left);
            let is_wrong = gap < 0 || sent > limit || !self.may_take(gap, limit);
            if is_wrong {
                let op = down.op;
                return Some(format!(
                    "not the count after those before it: {op:?}, {set:?}"
                ));
            }
        }
        None
    }

    /// Whether requests without a known outcome may have taken what is missing by this time, `gap` after the last
    /// count.
    fn may_take(&self, gap: i64, limit: Nanos) -> bool {
        // In a generation every `DOWN` has the same n.
        let mut steps = self.unknown.iter().map(|(_, by)| *by);
        let is_whole = gap == 0 || steps.any(|by| gap % by == 0);
        is_whole && self.taken(limit) >= self.missing
    }

    /// What requests without a known outcome may have taken by this time.
    fn taken(&self, limit: Nanos) -> i64 {
        let sent = self.unknown.iter().filter(|(since, _)| *since <= limit);
        sent.map(|(_, by)| by).sum()
    }

    /// The latch is open although nothing can have opened it.
    fn opened_early(&self) -> Option<String> {
        let ((closed, _), (open, Some(why))) = (self.closed, self.open) else {
            return None;
        };
        let mut openings = self.openings.iter();
        if openings.any(|(since, by)| *since <= open && *by >= closed) {
            return None;
        }
        let set = self.level.map(|(_, count)| count);
        let left = self.downs.last().map(|down| down.left).or(set)?;
        let last_downs = self.last_downs.iter().filter(|(sent, _)| *sent <= open);
        let last_down = last_downs.map(|(_, by)| *by).max().unwrap_or(0);
        let is_early = self.taken(open) - self.missing + last_down < left;
        is_early.then(|| format!("open though {left} are left: {why:?}, {set:?} set"))
    }

    /// Every waiter is answered soon after the latch is open.
    fn released(&self, known: &[&LatchOp], marks: &Marks, findings: &mut Findings) {
        let (open, Some(why)) = self.open else {
            return;
        };
        for op in known {
            let LatchCall::Wait { block: Some(block) } = op.call else {
                continue;
            };
            let healed = marks.healed(op.latch, op.done);
            let open = open.max(healed);
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
}

/// Whether the request has closed the latch, whatever it was before.
fn is_closing(op: &LatchOp) -> bool {
    op.call.closes() && matches!(op.outcome, Outcome::Number(_))
}
