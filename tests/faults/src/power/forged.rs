//! The judge of losses of power on histories and data written by hand: each rule is broken once, and just kept once.

use super::data::{Data, Found, Semaphore};
use super::judge::{end, judge, Class, Times, Verdict};
use super::kinds::PERMITS;
use crate::history::{
    Answer, Ask, Call, History, Kind, Message, Nanos, Op, Outcome, Subscription, Tie, Word, MS,
};

const CUT: Nanos = 10_000 * MS;
const CUT_MS: i64 = 1_000_000;
const LEASE: u32 = 60_000;
const SESSION: u32 = 10_000;
const PERMIT: Kind = Kind::Permit(PERMITS);
const TIMES: Times = Times {
    cut: CUT,
    cut_ms: CUT_MS,
    looked: CUT + 1_000 * MS,
};

/// A request of owner 7, or of another, a millisecond long.
fn op(key: u32, owner: u64, call: Call, sent_ms: u64, outcome: Outcome) -> Op {
    Op {
        client: 1,
        owner,
        key,
        call,
        sent: sent_ms * MS,
        done: (sent_ms + 1) * MS,
        outcome,
    }
}

fn acquire(kind: Kind, tie: Tie) -> Call {
    Call::Acquire {
        kind,
        tie,
        lease: if tie == Tie::Session { SESSION } else { LEASE },
        block: Some(50),
        once: true,
    }
}

fn granted(key: u32, kind: Kind, tie: Tie, sent_ms: u64) -> Op {
    let token = Outcome::Granted(100 + i64::from(key));
    op(key, 7, acquire(kind, tie), sent_ms, token)
}

fn release(kind: Kind) -> Call {
    let (all, token) = (true, None);
    Call::Release { kind, all, token }
}

fn released(key: u32, kind: Kind, sent_ms: u64) -> Op {
    op(key, 7, release(kind), sent_ms, Outcome::Number(1))
}

/// The hold of owner 7, with a lease from the moment of the loss on.
fn found(key: u32, kind: Kind) -> Found {
    Found {
        key,
        owner: 7,
        kind,
        token: (kind != PERMIT).then_some(100 + i64::from(key)),
        ends_ms: CUT_MS + i64::from(LEASE),
        ends_by_ms: CUT_MS + i64::from(LEASE),
        is_bound: false,
    }
}

fn data(found: &[Found]) -> Data {
    Data {
        found: found.to_vec(),
        ..Data::default()
    }
}

fn judged(ops: &[Op], found: &[Found]) -> Verdict {
    judge(&ops.to_vec().into(), &data(found), TIMES)
}

/// The numbers of lost changes, of violations and of holds that are unknown to their owners.
fn counted(ops: &[Op], found: &[Found]) -> (usize, usize, u64) {
    let verdict = judged(ops, found);
    (
        verdict.lost.len(),
        verdict.violations.len(),
        verdict.unknown,
    )
}

#[test]
fn a_granted_hold_of_every_kind_is_owed_until_its_release_is_sent() {
    for kind in [Kind::Exclusive, Kind::Read, Kind::Write, PERMIT] {
        let grant = granted(1, kind, Tie::None, 1_000);
        assert_eq!(
            counted(std::slice::from_ref(&grant), &[found(1, kind)]),
            (0, 0, 0)
        );
        let verdict = judged(std::slice::from_ref(&grant), &[]);
        let counts: Vec<_> = verdict.counts.values().collect();
        assert_eq!((counts[0].owed, counts[0].lost_grants), (1, 1), "{kind:?}");
        assert_eq!(verdict.oldest_lost, Some(1_001 * MS));
        // In flight when the power was cut: either is right.
        let leaves = op(1, 7, release(kind), 9_999, Outcome::Lost);
        let ops = [grant, leaves];
        assert_eq!(counted(&ops, &[]), (0, 0, 0));
        assert_eq!(counted(&ops, &[found(1, kind)]), (0, 0, 0));
    }
}

#[test]
fn an_answered_release_of_every_kind_is_lost_if_the_hold_is_found() {
    for kind in [Kind::Exclusive, Kind::Read, Kind::Write, PERMIT] {
        let ops = [granted(1, kind, Tie::None, 1_000), released(1, kind, 2_000)];
        assert_eq!(counted(&ops, &[]), (0, 0, 0));
        let verdict = judged(&ops, &[found(1, kind)]);
        assert_eq!(verdict.oldest_lost, Some(2_001 * MS), "{kind:?}");
        let lost: u64 = verdict.counts.values().map(|c| c.lost_releases).sum();
        assert_eq!(lost, 1);
    }
}

#[test]
fn a_lease_that_was_over_when_the_data_was_read_is_not_owed() {
    let call = Call::acquire(1_000, None, true);
    let of = |sent_ms| [op(1, 7, call, sent_ms, Outcome::Granted(101))];
    assert_eq!(counted(&of(9_000), &[]), (0, 0, 0));
    assert_eq!(counted(&of(10_000), &[]), (0, 0, 0));
    let call = Call::acquire(1_001, None, true);
    let of = |sent_ms| [op(1, 7, call, sent_ms, Outcome::Granted(101))];
    assert_eq!(counted(&of(10_000), &[]), (1, 0, 0));
}

#[test]
fn an_answered_renewal_is_lost_if_the_lease_is_short() {
    let renew = Call::renew(2 * LEASE, None);
    let ops = [
        granted(1, Kind::Exclusive, Tie::None, 1_000),
        op(1, 7, renew, 9_000, Outcome::Number(1)),
    ];
    let of = |ends_ms| Found {
        ends_ms,
        ends_by_ms: ends_ms,
        ..found(1, Kind::Exclusive)
    };
    let renewed = CUT_MS - 1_000 + 2 * i64::from(LEASE);
    assert_eq!(counted(&ops, &[of(renewed)]), (0, 0, 0));
    let verdict = judged(&ops, &[of(CUT_MS - 9_000 + i64::from(LEASE))]);
    assert_eq!(verdict.counts[&Class::Lock].lost_renewals, 1);
    assert_eq!(verdict.oldest_lost, Some(9_001 * MS));
}

#[test]
fn a_bound_hold_is_owed_for_its_lease_and_never_longer() {
    let bound = |sent_ms| granted(1, Kind::Exclusive, Tie::Session, sent_ms);
    let of = |ends_ms| Found {
        ends_ms,
        ends_by_ms: ends_ms,
        ..found(1, Kind::Exclusive)
    };
    let lease = i64::from(SESSION);
    assert_eq!(counted(&[bound(9_000)], &[of(CUT_MS + lease)]), (0, 0, 0));
    let verdict = judged(&[bound(9_000)], &[]);
    assert_eq!(verdict.counts[&Class::Bound].lost_grants, 1);
    // Its lease may have ended since: the server's renewals are not answered.
    assert_eq!(counted(&[bound(900)], &[]), (0, 0, 0));
    let longer = of(CUT_MS + lease + 2_001);
    assert_eq!(counted(&[bound(9_000)], &[longer]), (0, 1, 0));
    // The client closed its connection: the server may have released.
    let close = op(1, 7, Call::Close, 9_500, Outcome::Nil);
    assert_eq!(counted(&[bound(9_000), close], &[]), (0, 0, 0));
    let still_bound = Found {
        is_bound: true,
        ..of(CUT_MS + lease)
    };
    assert_eq!(counted(&[bound(9_000)], &[still_bound]), (0, 1, 0));
}

#[test]
fn a_hold_in_the_data_has_a_grant_or_a_request_without_outcome() {
    let asked = op(
        1,
        7,
        acquire(Kind::Exclusive, Tie::None),
        9_990,
        Outcome::Lost,
    );
    assert_eq!(counted(&[asked], &[found(1, Kind::Exclusive)]), (0, 0, 1));
    let refused = op(
        1,
        7,
        acquire(Kind::Exclusive, Tie::None),
        9_000,
        Outcome::Nil,
    );
    assert_eq!(
        counted(std::slice::from_ref(&refused), &[found(1, Kind::Exclusive)]),
        (0, 1, 0)
    );
    assert_eq!(counted(&[], &[found(1, Kind::Exclusive)]), (0, 1, 0));
    // A token that was not granted.
    let grant = granted(1, Kind::Write, Tie::None, 1_000);
    let other = Found {
        token: Some(999),
        ..found(1, Kind::Write)
    };
    assert_eq!(counted(&[grant], &[other]), (1, 1, 0));
}

#[test]
fn a_writer_that_also_reads_is_found_as_the_writer() {
    let ops = [
        granted(1, Kind::Write, Tie::None, 1_000),
        granted(1, Kind::Read, Tie::None, 2_000),
    ];
    assert_eq!(counted(&ops, &[found(1, Kind::Write)]), (0, 0, 0));
    assert_eq!(counted(&ops, &[found(1, Kind::Read)]), (1, 0, 0));
    assert_eq!(counted(&ops, &[]), (2, 0, 0));
}

#[test]
fn all_keys_of_a_request_are_held_or_none() {
    let many = [1, 2, 3].map(|key| granted(key, Kind::Exclusive, Tie::Many, 1_000));
    let all = [1, 2, 3].map(|key| found(key, Kind::Exclusive));
    assert_eq!(counted(&many, &all), (0, 0, 0));
    assert_eq!(counted(&many, &[]), (3, 0, 0));
    assert_eq!(counted(&many, &all[..2]), (1, 1, 0));
    // Also where the outcome is unknown.
    let asked = [1, 2].map(|key| {
        let call = acquire(Kind::Exclusive, Tie::Many);
        op(key, 7, call, 9_999, Outcome::Lost)
    });
    assert_eq!(counted(&asked, &all[..2]), (0, 0, 2));
    assert_eq!(counted(&asked, &all[..1]), (0, 1, 1));
}

#[test]
fn the_permits_of_a_semaphore_are_as_many_as_before() {
    let of = |free, held| {
        let data = Data {
            found: Vec::new(),
            semaphores: vec![Semaphore { key: 1, free, held }],
            ..Data::default()
        };
        judge(&History::default(), &data, TIMES).broken.len()
    };
    assert_eq!(of(Some(3), 0) + of(Some(1), 2) + of(None, 0), 0);
    assert_eq!(of(Some(2), 0), 1);
    assert_eq!(of(Some(2), 2), 1);
    assert_eq!(of(None, 1), 1);
}

/// A ticket whose message is read at this time, if it is.
fn ticket(at_ms: Option<u64>) -> History {
    let channel = String::from("answers");
    let ask = Ask {
        client: 1,
        owner: 7,
        keys: vec![1],
        kind: Kind::Exclusive,
        lease: LEASE,
        block: 0,
        port: 1,
        channel: channel.clone(),
        tag: 7_001,
        sent: 1_000 * MS,
        done: 1_001 * MS,
        answer: Answer::Queued,
    };
    let messages = at_ms.map(|at_ms| Message {
        client: 1,
        port: 1,
        channel: channel.clone(),
        tag: 7_001,
        word: Word::Granted(vec![101]),
        at: at_ms * MS,
    });
    History {
        asks: vec![ask],
        messages: messages.into_iter().collect(),
        subscriptions: vec![Subscription {
            client: 1,
            port: 1,
            channel,
            sent: MS,
            from: 2 * MS,
            alive: CUT,
            to: CUT,
            is_ended_by_server: true,
        }],
        ..History::default()
    }
}

#[test]
fn the_grant_of_a_ticket_is_owed_from_its_message_on() {
    let held = [found(1, Kind::Exclusive)];
    let verdict = judge(&ticket(Some(5_000)), &data(&[]), TIMES);
    assert_eq!(verdict.counts[&Class::Ticket].lost_grants, 1);
    assert_eq!(verdict.oldest_lost, Some(5_000 * MS));
    let verdict = judge(&ticket(Some(5_000)), &data(&held), TIMES);
    assert_eq!((verdict.lost.len(), verdict.unknown), (0, 0));
    // The message was lost with the power: its owner does not know.
    let verdict = judge(&ticket(None), &data(&held), TIMES);
    assert_eq!((verdict.lost.len(), verdict.unknown), (0, 1));
    assert_eq!(verdict.violations, Vec::<String>::new());
    let verdict = judge(&ticket(None), &data(&[]), TIMES);
    assert_eq!((verdict.lost.len(), verdict.unknown), (0, 0));
}

#[test]
fn the_newest_kept_grant_and_the_oldest_lost_one_are_stated() {
    let ops = [
        granted(1, Kind::Exclusive, Tie::None, 1_000),
        granted(2, PERMIT, Tie::None, 2_000),
        granted(3, Kind::Write, Tie::None, 3_000),
    ];
    let verdict = judged(&ops, &[found(1, Kind::Exclusive), found(3, Kind::Write)]);
    assert_eq!(verdict.oldest_lost, Some(2_001 * MS));
    assert_eq!(verdict.newest_kept, Some(3_000 * MS));
    assert_eq!((verdict.lowest, verdict.highest), (Some(101), 103));
}

#[test]
fn what_was_sent_after_the_loss_does_not_count() {
    let mut history: History = vec![
        granted(1, Kind::Exclusive, Tie::None, 1_000),
        op(1, 7, release(Kind::Exclusive), 10_001, Outcome::Lost),
    ]
    .into();
    end(&mut history, CUT);
    assert_eq!(judge(&history, &data(&[]), TIMES).lost.len(), 1);
}
