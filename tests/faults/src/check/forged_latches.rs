//! Forged histories of latches, small ones written by hand and simulated ones with one forged reply: see `forged`.

use std::collections::HashSet;

use crate::history::{Fault, History, LatchCall, LatchOp, Nanos, Only, Outcome, MS};

use super::verdict::{accepted, breaks, mark};
use super::Rule;
use Only::{Always, IfClosed, IfOpen};

/// A history of one latch, in milliseconds.
#[derive(Clone, Default)]
struct Story(History);

impl Story {
    fn op(mut self, call: LatchCall, sent: u64, done: u64, outcome: Outcome) -> Story {
        self.0.latches.push(LatchOp {
            client: self.0.latches.len() as u32,
            latch: 0,
            call,
            ticket: false,
            sent: sent * MS,
            done: done * MS,
            outcome,
        });
        self
    }

    /// A latch that is set to this count from 0 to 1 ms.
    fn of(count: i64) -> Story {
        Story::default().sets(count, Always, (0, 1), Outcome::Number(count))
    }

    fn sets(self, count: i64, only: Only, at: (u64, u64), outcome: Outcome) -> Story {
        self.op(LatchCall::Set { count, only }, at.0, at.1, outcome)
    }

    fn downs(self, sent: u64, done: u64, left: i64) -> Story {
        self.op(LatchCall::Down { by: 1 }, sent, done, Outcome::Number(left))
    }

    fn loses_down(self, sent: u64, done: u64) -> Story {
        self.op(LatchCall::Down { by: 1 }, sent, done, Outcome::Lost)
    }

    fn waits(self, block: Option<u32>, sent: u64, done: u64, open: i64) -> Story {
        let outcome = Outcome::Number(open);
        self.op(LatchCall::Wait { block }, sent, done, outcome)
    }

    fn released(self, sent: u64, done: u64) -> Story {
        self.waits(Some(0), sent, done, 1)
    }

    fn fault(mut self, fault: Fault, from: u64, to: u64) -> Story {
        self.0.marks.push(mark(fault, None, from, to));
        self
    }

    #[track_caller]
    fn breaks(&self, rule: Rule) {
        breaks(&self.0, rule);
    }

    #[track_caller]
    fn is_fine(&self) {
        accepted(&self.0);
    }
}

#[test]
fn a_latch_that_is_counted_down_is_valid() {
    Story::of(2)
        .released(2, 12)
        .waits(None, 2, 3, 0)
        .downs(4, 5, 1)
        .waits(Some(3), 4, 8, 0)
        .downs(9, 11, 0)
        .downs(14, 15, 0)
        .waits(None, 14, 15, 1)
        .is_fine();
    let by_two = |at: u64, left| {
        let call = LatchCall::Down { by: 2 };
        move |story: Story| story.op(call, at, at + 1, Outcome::Number(left))
    };
    let three = by_two(5, 0)(by_two(3, 1)(Story::of(3)));
    three.released(2, 7).is_fine();
    by_two(3, 2)(Story::of(3)).breaks(Rule::Latches);
}

#[test]
fn a_waiter_that_is_released_early_is_found() {
    let one_of_two = || Story::of(2).downs(4, 5, 1);
    one_of_two().released(2, 6).breaks(Rule::Latches);
    Story::of(1).released(2, 6).breaks(Rule::Latches);
    one_of_two().waits(None, 6, 7, 1).breaks(Rule::Latches);
    // The last count may have been taken.
    one_of_two().released(2, 6).downs(5, 9, 0).is_fine();
    one_of_two().released(2, 6).loses_down(5, 9).is_fine();
    one_of_two()
        .released(2, 6)
        .downs(7, 9, 0)
        .breaks(Rule::Latches);
    one_of_two()
        .released(2, 6)
        .loses_down(7, 9)
        .breaks(Rule::Latches);
    // A request that is repeated may count twice, and no more.
    let lost = || Story::of(4).loses_down(2, 3).downs(4, 5, 2);
    lost().is_fine();
    lost().released(2, 8).breaks(Rule::Latches);
    lost()
        .loses_down(5, 6)
        .downs(6, 7, 0)
        .released(2, 8)
        .is_fine();
}

#[test]
fn a_count_that_is_lost_is_found() {
    Story::of(3)
        .downs(2, 3, 2)
        .downs(4, 5, 2)
        .breaks(Rule::Latches);
    Story::of(3)
        .downs(2, 6, 2)
        .downs(4, 5, 2)
        .breaks(Rule::Latches);
    Story::of(3)
        .downs(2, 3, 1)
        .downs(4, 5, 2)
        .loses_down(2, 3)
        .breaks(Rule::Latches);
    Story::of(3).downs(2, 3, 3).breaks(Rule::Latches);
    // A crash with an fsync before every reply loses nothing, nor does a handover.
    for fault in [Fault::Crash, Fault::Handover, Fault::Trouble] {
        Story::of(3)
            .downs(2, 3, 2)
            .fault(fault, 4, 5)
            .downs(6, 7, 2)
            .breaks(Rule::Latches);
    }
    for fault in [Fault::LossyCrash, Fault::Failover] {
        Story::of(3)
            .downs(2, 3, 2)
            .fault(fault, 4, 5)
            .downs(6, 7, 2)
            .is_fine();
    }
}

#[test]
fn a_count_that_is_taken_twice_is_found() {
    Story::of(3).downs(2, 3, 1).breaks(Rule::Latches);
    Story::of(2).downs(2, 3, 0).breaks(Rule::Latches);
    Story::of(4)
        .downs(2, 9, 2)
        .downs(3, 9, 1)
        .breaks(Rule::Latches);
    // It may have been taken by a request that was sent by then.
    Story::of(3).loses_down(2, 3).downs(4, 5, 1).is_fine();
    Story::of(3)
        .downs(4, 5, 1)
        .loses_down(6, 7)
        .breaks(Rule::Latches);
    Story::of(5)
        .downs(2, 3, 3)
        .loses_down(2, 3)
        .downs(4, 5, 1)
        .breaks(Rule::Latches);
    Story::of(5)
        .downs(2, 3, 3)
        .loses_down(2, 3)
        .loses_down(4, 5)
        .downs(4, 5, 1)
        .is_fine();
}

#[test]
fn a_latch_that_is_closed_again_is_found() {
    let open = || Story::of(1).downs(2, 3, 0);
    open().downs(4, 5, 0).is_fine();
    open().waits(None, 4, 5, 0).breaks(Rule::Latches);
    open().waits(None, 2, 5, 0).is_fine();
    open()
        .sets(4, IfOpen, (4, 5), Outcome::Nil)
        .breaks(Rule::Latches);
    open().sets(4, IfClosed, (4, 5), Outcome::Nil).is_fine();
    open()
        .sets(4, IfClosed, (4, 5), Outcome::Number(4))
        .breaks(Rule::Latches);
    open()
        .op(LatchCall::Delete, 4, 5, Outcome::Number(1))
        .breaks(Rule::Latches);
    open()
        .op(LatchCall::Delete, 4, 5, Outcome::Number(0))
        .is_fine();
    let failed_over = || open().fault(Fault::Failover, 4, 6);
    failed_over().waits(None, 7, 8, 0).is_fine();
    // Then it is open for good again.
    failed_over()
        .waits(None, 7, 8, 1)
        .waits(None, 9, 10, 0)
        .breaks(Rule::Latches);
    failed_over()
        .downs(7, 8, 2)
        .downs(9, 10, 2)
        .breaks(Rule::Latches);
    // A replica may have replied.
    open()
        .fault(Fault::Handover, 4, 6)
        .waits(None, 5, 8, 0)
        .is_fine();
    open()
        .fault(Fault::Handover, 4, 6)
        .waits(None, 7, 8, 0)
        .breaks(Rule::Latches);
}

#[test]
fn a_latch_is_opened_by_other_requests_and_deletions() {
    let (zero, one) = (Outcome::Number(0), Outcome::Number(1));
    let opened = Story::of(9).sets(0, Always, (4, 5), zero.clone());
    opened.clone().released(2, 6).downs(6, 7, 0).is_fine();
    opened.clone().released(2, 3).breaks(Rule::Latches);
    opened.downs(6, 7, 8).breaks(Rule::Latches);
    let deleted = |outcome| Story::of(9).op(LatchCall::Delete, 4, 5, outcome);
    deleted(one).released(2, 6).is_fine();
    deleted(zero).released(2, 6).breaks(Rule::Latches);
    let lost = deleted(Outcome::Lost);
    lost.clone().released(2, 6).is_fine();
    lost.clone().downs(6, 7, 8).is_fine();
    lost.released(2, 3).breaks(Rule::Latches);
    let flushed = Story::of(9).fault(Fault::Taken, 4, 5);
    flushed.clone().released(2, 6).is_fine();
    flushed
        .clone()
        .released(2, 6)
        .downs(7, 8, 8)
        .breaks(Rule::Latches);
    flushed.released(2, 3).breaks(Rule::Latches);
}

#[test]
fn a_count_that_is_set_again_counts_from_there() {
    let reset = |outcome| Story::of(2).sets(5, IfClosed, (4, 5), outcome);
    let known = reset(Outcome::Number(5));
    known.clone().released(2, 3).breaks(Rule::Latches);
    known.clone().downs(6, 7, 4).is_fine();
    known.clone().downs(6, 7, 1).breaks(Rule::Latches);
    let refused = reset(Outcome::Nil);
    refused.clone().breaks(Rule::Latches);
    refused.fault(Fault::Taken, 2, 3).is_fine();
    Story::of(2)
        .sets(7, IfOpen, (3, 4), Outcome::Nil)
        .downs(6, 7, 1)
        .is_fine();
    Story::of(2)
        .sets(7, IfOpen, (3, 4), Outcome::Number(7))
        .breaks(Rule::Latches);
    Story::of(2)
        .fault(Fault::Taken, 2, 3)
        .sets(7, IfOpen, (3, 4), Outcome::Number(7))
        .downs(6, 7, 6)
        .is_fine();
    Story::default()
        .sets(0, Always, (0, 1), Outcome::Number(0))
        .sets(2, IfOpen, (2, 3), Outcome::Nil)
        .breaks(Rule::Latches);
}

#[test]
fn a_waiter_that_is_not_released_is_found() {
    let open = || Story::of(1).downs(2, 3, 0);
    open().released(2, 1_900).is_fine();
    open().released(2, 2_100).breaks(Rule::Silence);
    // Its time ran out long after the latch was open.
    let times_out = |block| open().waits(Some(block), 2, u64::from(block) + 4, 0);
    times_out(300).is_fine();
    times_out(700).breaks(Rule::Silence);
    times_out(700).fault(Fault::Trouble, 50, 600).is_fine();
    // It was unblocked before, and its reply is read late.
    open().waits(Some(9_000), 2, 400, 0).is_fine();
    open().waits(Some(9_000), 2, 700, 0).breaks(Rule::Silence);
    let never = LatchCall::Wait { block: Some(0) };
    open()
        .op(never, 2, 9_000, Outcome::Silent)
        .breaks(Rule::Silence);
    open().op(never, 2, 9_000, Outcome::Lost).is_fine();
    open().downs(10, 2_100, 0).breaks(Rule::Silence);
}

#[test]
fn a_reply_without_a_meaning_is_found() {
    Story::of(1).downs(2, 3, -1).breaks(Rule::Latches);
    Story::of(1).waits(None, 2, 3, 2).breaks(Rule::Latches);
    let nil = Outcome::Nil;
    Story::of(1)
        .op(LatchCall::Down { by: 1 }, 2, 3, nil)
        .breaks(Rule::Latches);
    Story::of(1)
        .sets(4, IfClosed, (2, 3), Outcome::Number(3))
        .breaks(Rule::Latches);
}

/// A latch as a correct server would serve it: each request happens at one time between its sending and its reply.
fn simulated(rng: &mut fastrand::Rng) -> Story {
    let (count, by) = (rng.i64(1..7), rng.i64(1..3));
    let (mut left, mut at, mut waiting) = (count, 10, Vec::new());
    let mut story = Story::of(count);
    for _ in 0..rng.u32(4..14) {
        at += rng.u64(1..6);
        let (sent, done) = (at - rng.u64(0..8).min(at - 2), at + rng.u64(1..8));
        story = match rng.u8(..10) {
            0..=4 => {
                left = (left - by).max(0);
                match rng.u8(..6) {
                    0 => story.loses_down(sent, done),
                    _ => story.downs(sent, done, left),
                }
            }
            5 => story.loses_down(sent, done),
            6 | 7 => {
                waiting.push(sent);
                story
            }
            _ => story.waits(None, sent, done, i64::from(left == 0)),
        };
        if left == 0 {
            for sent in waiting.drain(..) {
                story = story.released(sent, at + rng.u64(1..8));
            }
        }
    }
    for sent in waiting {
        story = story.waits(Some(5), sent, at + 9, 0);
    }
    for (n, op) in (1..).zip(&mut story.0.latches) {
        // No two times are the same.
        (op.sent, op.done) = (op.sent + n, op.done + n);
        if let LatchCall::Down { by: one } = &mut op.call {
            *one = by;
        }
    }
    story
}

/// Forges one reply, if one is known; the other one may be true as well.
fn forge(story: &Story, rng: &mut fastrand::Rng) -> Story {
    let mut forged = story.clone();
    let at = rng.usize(1..forged.0.latches.len());
    let op = &mut forged.0.latches[at];
    if let Outcome::Number(number) = op.outcome {
        op.outcome = Outcome::Number(match op.call {
            LatchCall::Down { .. } if number > 0 && rng.bool() => {
                number - rng.i64(1..3).min(number)
            }
            LatchCall::Down { .. } => number + rng.i64(1..3),
            _ => 1 - number,
        });
    }
    forged
}

/// All orders of a history.
struct Orders<'a> {
    ops: &'a [LatchOp],
    /// Requests done, one bit each, and counts left that lead nowhere.
    hopeless: HashSet<(u32, i64)>,
}

impl Orders<'_> {
    /// Whether one of them explains all replies, if these are done and this is left.
    fn explain(&mut self, done: u32, left: i64) -> bool {
        let open = |at: &usize| done & (1 << at) == 0;
        let by = |at: usize| match self.ops[at].is_unknown() {
            true => Nanos::MAX,
            false => self.ops[at].done,
        };
        let limit = (0..self.ops.len()).filter(open).map(by).min();
        let Some(limit) = limit else {
            return true;
        };
        if self.hopeless.contains(&(done, left)) {
            return false;
        }
        for at in (0..self.ops.len()).filter(open) {
            let op = &self.ops[at];
            let lower = match op.call {
                LatchCall::Down { by } => (left - by).max(0),
                _ => left,
            };
            let next = match (op.call, &op.outcome) {
                _ if op.sent > limit => [None, None],
                (LatchCall::Set { count, .. }, _) => [Some(count), None],
                (LatchCall::Down { .. }, Outcome::Lost) => [Some(lower), Some(left)],
                (LatchCall::Down { .. }, number) => {
                    [(*number == Outcome::Number(lower)).then_some(lower), None]
                }
                (_, number) => {
                    let is_true = (*number == Outcome::Number(1)) == (left == 0);
                    [is_true.then_some(left), None]
                }
            };
            let mut next = next.into_iter().flatten();
            if next.any(|left| self.explain(done | 1 << at, left)) {
                return true;
            }
        }
        self.hopeless.insert((done, left));
        false
    }
}

/// Whether a history breaks the rule is known from a search of all orders: Porcupine has to refuse exactly those.
#[test]
fn exactly_the_simulated_histories_that_no_order_explains_break_the_rule() {
    let (mut wrong, mut right) = (0, 0);
    for seed in 0..500 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let valid = simulated(&mut rng);
        let mut stories: Vec<_> = (0..5).map(|_| forge(&valid, &mut rng)).collect();
        stories.push(valid);
        for story in stories {
            let ops = &story.0.latches;
            let hopeless = HashSet::new();
            if (Orders { ops, hopeless }).explain(0, 0) {
                right += 1;
                story.is_fine();
            } else {
                wrong += 1;
                story.breaks(Rule::Latches);
            }
        }
    }
    assert!(wrong > 500 && right > 500, "{wrong} wrong, {right} right");
}
