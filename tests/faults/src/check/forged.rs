//! Forged histories of locks: valid ones, and those that break a rule, small ones written by hand and large simulated
//! ones with one forged reply. What Porcupine judges is only written here.

use crate::history::{Call, Fault, History, Kind, Nanos, Op, Outcome, Seen, Tie, MS};

use super::verdict::{accepted, breaks, breaks_among_others, mark};
use super::Rule;

/// A history of key 0, in milliseconds.
#[derive(Default)]
struct Story(History);

impl Story {
    fn op(mut self, owner: u64, sent: u64, done: u64, call: Call, outcome: Outcome) -> Story {
        self.0.ops.push(Op {
            client: owner as u32,
            owner,
            key: 0,
            call,
            sent: sent * MS,
            done: done * MS,
            outcome,
        });
        self
    }

    fn takes(self, owner: u64, sent: u64, done: u64, lease: u32, token: i64) -> Story {
        self.asks(owner, sent, done, lease, Outcome::Granted(token))
    }

    fn asks(self, owner: u64, sent: u64, done: u64, lease: u32, outcome: Outcome) -> Story {
        let (block, once) = (Some(0), false);
        self.op(
            owner,
            sent,
            done,
            Call::acquire(lease, block, once),
            outcome,
        )
    }

    fn renews(self, owner: u64, sent: u64, lease: u32, outcome: Outcome) -> Story {
        let token = None;
        self.op(owner, sent, sent + 1, Call::renew(lease, token), outcome)
    }

    fn releases(self, owner: u64, sent: u64, outcome: Outcome) -> Story {
        let (all, token) = (false, None);
        self.op(owner, sent, sent + 1, Call::release(all, token), outcome)
    }

    fn seen(mut self, owner: u64, at: u64) -> Story {
        let at = at * MS;
        self.0.seen.push(Seen { key: 0, owner, at });
        self
    }

    fn fault(mut self, fault: Fault, key: Option<u32>, from: u64, to: u64) -> Story {
        self.0.marks.push(mark(fault, key, from, to));
        self
    }

    #[track_caller]
    fn breaks(&self, rule: Rule) {
        breaks(&self.0, rule);
    }

    #[track_caller]
    fn is_fine(&self) {
        self.has_overlaps(0);
    }

    #[track_caller]
    fn has_overlaps(&self, overlaps: u64) {
        assert_eq!(accepted(&self.0).overlaps, overlaps);
    }
}

fn one() -> Outcome {
    Outcome::Number(1)
}

#[test]
fn successive_holders_are_valid() {
    let story = Story::default().takes(1, 0, 1, 100, 10);
    story
        .releases(1, 50, one())
        .takes(2, 20, 52, 100, 11)
        .is_fine();
}

#[test]
fn two_holders_are_found() {
    let story = Story::default().takes(1, 0, 1, 100, 10);
    story.takes(2, 20, 50, 100, 11).breaks(Rule::Exclusion);
}

#[test]
fn a_lease_counts_from_its_sending() {
    let granted_late = Story::default().takes(1, 0, 90, 100, 10);
    granted_late.takes(2, 100, 102, 100, 11).is_fine();
}

#[test]
fn a_renewed_parked_grant_counts_from_the_renewal() {
    let story = || Story::default().takes(1, 0, 200, 100, 10);
    story().takes(2, 210, 220, 100, 11).is_fine();
    let renewed = story().renews(1, 201, 100, one());
    renewed.takes(2, 210, 220, 100, 11).breaks(Rule::Exclusion);
}

#[test]
fn a_shorter_renewal_shortens_and_a_lost_one_may() {
    let story = || Story::default().takes(1, 0, 1, 100, 10);
    let shorter = story().renews(1, 10, 5, one());
    shorter.takes(2, 11, 20, 50, 11).is_fine();
    let maybe = story().renews(1, 10, 5, Outcome::Lost);
    maybe.takes(2, 11, 20, 50, 11).is_fine();
    let refused = story().renews(1, 10, 5, Outcome::Error("OOM".into()));
    refused.takes(2, 11, 20, 50, 11).breaks(Rule::Exclusion);
}

#[test]
fn a_re_entry_extends_and_never_shortens() {
    let story = Story::default()
        .takes(1, 0, 1, 100, 10)
        .takes(1, 50, 51, 20, 10);
    story.takes(2, 60, 80, 50, 11).breaks(Rule::Exclusion);
    let story = Story::default()
        .takes(1, 0, 1, 100, 10)
        .takes(1, 50, 51, 100, 10);
    story.takes(2, 60, 120, 100, 11).breaks(Rule::Exclusion);
}

#[test]
fn a_hold_that_was_only_counted_down_goes_on() {
    let story = Story::default().takes(1, 0, 1, 100, 10);
    let story = story.releases(1, 10, Outcome::Number(0));
    story.takes(2, 11, 20, 50, 11).breaks(Rule::Exclusion);
}

#[test]
fn expected_overlaps_are_counted() {
    let overlap = || {
        Story::default()
            .takes(1, 0, 1, 100, 10)
            .takes(2, 20, 50, 100, 11)
    };
    for fault in [
        Fault::Failover,
        Fault::LossyCrash,
        Fault::Taken,
        Fault::ClockForward,
    ] {
        overlap().fault(fault, None, 30, 40).has_overlaps(1);
        overlap().fault(fault, Some(0), 30, 40).has_overlaps(1);
        overlap()
            .fault(fault, Some(7), 30, 40)
            .breaks(Rule::Exclusion);
        overlap().fault(fault, None, 51, 60).breaks(Rule::Exclusion);
    }
    for fault in [
        Fault::Crash,
        Fault::Handover,
        Fault::ClockBack,
        Fault::Trouble,
    ] {
        overlap().fault(fault, None, 30, 40).breaks(Rule::Exclusion);
    }
}

#[test]
fn a_token_given_twice_is_found_whatever_happened() {
    let story = Story::default()
        .takes(1, 0, 1, 10, 10)
        .takes(2, 0, 50, 10, 10);
    story
        .fault(Fault::Failover, None, 2, 40)
        .breaks(Rule::Tokens);
}

#[test]
fn a_token_that_fell_is_found_whatever_happened() {
    let story = Story::default()
        .takes(1, 0, 1, 10, 10)
        .takes(2, 20, 50, 10, 9);
    story
        .fault(Fault::LossyCrash, None, 2, 40)
        .breaks(Rule::Tokens);
    // If they were requested at the same time, they may come in any order.
    Story::default()
        .takes(1, 0, 60, 10, 10)
        .takes(2, 20, 50, 10, 9)
        .is_fine();
}

#[test]
fn a_grant_that_passes_a_waiter_is_found() {
    let story = || {
        Story::default()
            .takes(1, 0, 100, 10, 11)
            .takes(2, 20, 50, 10, 10)
    };
    story().is_fine();
    story().seen(1, 10).breaks(Rule::Order);
    story().seen(1, 30).is_fine();
    story()
        .seen(1, 10)
        .fault(Fault::Handover, None, 15, 16)
        .is_fine();
    story()
        .seen(1, 10)
        .fault(Fault::Trouble, None, 15, 16)
        .breaks(Rule::Order);
}

#[test]
fn a_waiter_without_a_place_may_be_passed() {
    let story = Story::default().takes(1, 0, 100, 10, 11).seen(1, 10);
    let call = Call::Acquire {
        kind: Kind::Exclusive,
        tie: Tie::Outside,
        lease: 10,
        block: None,
        once: true,
    };
    let passes = story.op(2, 20, 50, call, Outcome::Granted(10));
    passes.is_fine();
}

#[test]
fn an_owner_that_returns_to_a_kept_place_may_pass() {
    let story = Story::default().takes(1, 0, 100, 10, 11).seen(1, 10);
    let story = story.asks(2, 0, 5, 10, Outcome::Lost);
    story.takes(2, 20, 50, 10, 10).is_fine();
}

#[test]
fn a_missing_reply_is_found() {
    let asks = |done, outcome| {
        let (lease, block, once) = (10, Some(100), false);
        Story::default().op(1, 0, done, Call::acquire(lease, block, once), outcome)
    };
    asks(200, Outcome::Nil).is_fine();
    asks(2_200, Outcome::Nil).breaks(Rule::Silence);
    asks(2_200, Outcome::Nil)
        .fault(Fault::Trouble, None, 50, 1_000)
        .is_fine();
    asks(9_000, Outcome::Nil)
        .fault(Fault::Trouble, None, 50, 1_000)
        .breaks(Rule::Silence);
    asks(2_200, Outcome::Lost).breaks(Rule::Silence);
    let never = Story::default().asks(1, 0, 9_000, 10, Outcome::Silent);
    never.breaks(Rule::Silence);
    let late = |story: &Story| super::check(&story.0).late;
    let lost = asks(2_200, Outcome::Lost);
    let stories = [asks(2_200, Outcome::Nil), lost, never];
    assert_eq!(stories.each_ref().map(late), [1, 0, 0]);
}

#[test]
fn a_resurrected_lease_is_found() {
    let story = || Story::default().takes(1, 0, 1, 10, 10);
    story().renews(1, 9, 10, one()).is_fine();
    story().renews(1, 30, 10, one()).breaks(Rule::Leases);
    story().releases(1, 30, one()).breaks(Rule::Leases);
    story().releases(1, 30, Outcome::Nil).is_fine();
    let released = story().releases(1, 3, one());
    released.renews(1, 8, 10, one()).breaks(Rule::Leases);
    let lost = story().renews(1, 5, 500, Outcome::Lost);
    lost.renews(1, 30, 10, one()).is_fine();
    let taken = || story().fault(Fault::Taken, None, 2, 3);
    let gone = taken().renews(1, 3, 10, Outcome::Number(0));
    gone.renews(1, 7, 10, one()).breaks(Rule::Leases);
    let gone = taken().releases(1, 3, Outcome::Nil);
    gone.renews(1, 7, 10, one()).breaks(Rule::Leases);
    story()
        .fault(Fault::ClockBack, None, 5, 6)
        .renews(1, 30, 10, one())
        .is_fine();
    story()
        .fault(Fault::Crash, None, 5, 6)
        .renews(1, 30, 10, one())
        .breaks(Rule::Leases);
}

/// A history as a correct server would produce it: each key's owners in the order of their requests.
pub fn simulated(rng: &mut fastrand::Rng) -> History {
    let mut history = History::default();
    for key in 0..3 {
        let (mut free, mut asked, mut token) = (0, 0, 0);
        for number in 0..rng.u64(20..60) {
            let owner = u64::from(key) * 1000 + number;
            asked += rng.u64(1..30) * MS;
            let sent = asked;
            let granted = free.max(sent) + rng.u64(1..3) * MS / 2;
            token += rng.i64(1..5);
            let mut add = |call, sent, done, outcome| {
                let client = owner as u32;
                history.ops.push(Op {
                    client,
                    owner,
                    key,
                    call,
                    sent,
                    done,
                    outcome,
                });
            };
            let lease = rng.u32(20..60);
            let (block, once) = (Some(0), rng.bool());
            let acquire = Call::acquire(lease, block, once);
            add(acquire, sent, granted + MS, Outcome::Granted(token));
            let token = Some(token);
            // So that the lease of parked grants is certain, too.
            add(
                Call::renew(lease, token),
                granted + 2 * MS,
                granted + 3 * MS,
                one(),
            );
            if rng.bool() {
                let all = true;
                let over = granted + 12 * MS;
                add(Call::release(all, token), over, over + 2 * MS, one());
                free = over + MS;
            } else {
                free = granted + (3 + u64::from(lease)) * MS;
            }
            if granted > sent + 3 * MS {
                let at = sent + 2 * MS;
                history.seen.push(Seen { key, owner, at });
            }
        }
    }
    history
}

fn picked(rng: &mut fastrand::Rng, history: &History, fits: impl Fn(&Op) -> bool) -> usize {
    let all: Vec<_> = (0..history.ops.len())
        .filter(|at| fits(&history.ops[*at]))
        .collect();
    all[rng.usize(..all.len())]
}

fn is_granted(op: &Op) -> bool {
    matches!(op.outcome, Outcome::Granted(_))
}

/// Forges one reply so that this rule is broken.
pub fn forge(rule: Rule, history: &mut History, rng: &mut fastrand::Rng) {
    match rule {
        Rule::Exclusion => {
            // A second holder within the first 10 ms after a renewal by another owner.
            let at = picked(rng, history, |op| matches!(op.call, Call::Renew { .. }));
            let (key, from) = (history.ops[at].key, history.ops[at].done);
            let token = 1 + highest_token(history, key, Nanos::MAX);
            let mut op = Op {
                owner: 99_999,
                sent: from + MS,
                done: from + 2 * MS,
                ..history.ops[at].clone()
            };
            (op.call, op.outcome) = (acquire_50(), Outcome::Granted(token));
            // Without changing the tokens that come later.
            for later in history
                .ops
                .iter_mut()
                .filter(|op| op.key == key && op.sent > from)
            {
                raise(later, token);
            }
            history.ops.push(op);
        }
        Rule::Tokens => {
            let at = picked(rng, history, is_granted);
            let (key, sent) = (history.ops[at].key, history.ops[at].sent);
            let before = highest_token(history, key, sent);
            if before == 0 {
                return forge(rule, history, rng);
            }
            history.ops[at].outcome = Outcome::Granted(before - rng.i64(0..2).min(before - 1));
        }
        Rule::Order => {
            // An owner that was seen waiting is granted after all others.
            let seen = history.seen[rng.usize(..history.seen.len())];
            let late = |op: &Op| is_granted(op) && op.key == seen.key && op.sent > seen.at;
            if !history.ops.iter().any(late) {
                return forge(rule, history, rng);
            }
            let token = 1 + highest_token(history, seen.key, Nanos::MAX);
            let end = history.ops.iter().map(|op| op.done).max().unwrap_or(0);
            history
                .ops
                .retain(|op| op.owner != seen.owner || is_granted(op));
            let mine = |op: &&mut Op| op.owner == seen.owner;
            for op in history.ops.iter_mut().filter(mine) {
                (op.outcome, op.done) = (Outcome::Granted(token), end + 1000 * MS);
            }
        }
        Rule::Silence => {
            let at = picked(rng, history, |op| !is_granted(op));
            history.ops[at].done += 2_001 * MS;
        }
        Rule::Leases => {
            let at = picked(rng, history, |op| matches!(op.call, Call::Renew { .. }));
            let mut op = history.ops[at].clone();
            (op.sent, op.done) = (op.sent + 80 * MS, op.done + 80 * MS);
            op.call = Call::release(false, None);
            history.ops.push(op);
        }
        _ => unreachable!("tested in forged_kinds and forged_tickets"),
    }
}

fn acquire_50() -> Call {
    Call::acquire(50, None, false)
}

fn raise(op: &mut Op, by: i64) {
    if let Outcome::Granted(token) = &mut op.outcome {
        *token += by;
    }
    if let Call::Renew { token, .. } | Call::Release { token, .. } = &mut op.call {
        *token = token.map(|token| token + by);
    }
}

/// The grants that were received by this time.
fn highest_token(history: &History, key: u32, by: Nanos) -> i64 {
    let of_key = history
        .ops
        .iter()
        .filter(|op| op.key == key && op.done < by);
    let tokens = of_key.filter_map(|op| match op.outcome {
        Outcome::Granted(token) => Some(token),
        _ => None,
    });
    tokens.max().unwrap_or(0)
}

#[test]
fn simulated_histories_pass_and_each_forgery_is_found() {
    let rules = [
        Rule::Exclusion,
        Rule::Tokens,
        Rule::Order,
        Rule::Silence,
        Rule::Leases,
    ];
    for seed in 0..500 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let valid = simulated(&mut rng);
        assert!(accepted(&valid).ordered > 0, "seed {seed}");
        for rule in rules {
            let mut forged = valid.clone();
            forge(rule, &mut forged, &mut rng);
            breaks_among_others(&forged, rule);
        }
    }
}

#[test]
fn a_history_is_read_as_it_was_written() {
    let history = simulated(&mut fastrand::Rng::with_seed(1));
    let path = std::env::temp_dir().join(format!("forged.{}.jsonl", std::process::id()));
    history.write(&path).expect("a file");
    let read = History::read(&path).expect("the same file");
    std::fs::remove_file(&path).expect("the file");
    assert_eq!(read, history);
}
