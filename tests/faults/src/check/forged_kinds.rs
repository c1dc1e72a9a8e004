//! Forged histories of readers and writers, permits, sessions and requests for several keys: see `forged`.

use crate::history::{Call, Fault, History, Kind, Look, Op, Outcome, Tie, MS};

use super::verdict::{accepted, breaks, mark};
use super::Rule;
use Kind::{Permit, Read, Write};

const S: u32 = 10_000;

/// A history, in milliseconds.
#[derive(Default)]
struct Story(History);

impl Story {
    fn op(mut self, key: u32, owner: u64, at: (u64, u64), call: Call, outcome: Outcome) -> Story {
        self.0.ops.push(Op {
            client: owner as u32,
            owner,
            key,
            call,
            sent: at.0 * MS,
            done: at.1 * MS,
            outcome,
        });
        self
    }

    /// A hold of key 0 for 100 ms.
    fn takes(self, kind: Kind, owner: u64, at: (u64, u64), token: i64) -> Story {
        let call = acquire(kind, Tie::None, 100);
        self.op(0, owner, at, call, Outcome::Granted(token))
    }

    /// A request that waits for key 0, with a long lease.
    fn waits(self, owner: u64, at: (u64, u64), token: i64) -> Story {
        let call = acquire(Kind::Exclusive, Tie::None, 1_000_000);
        self.op(0, owner, at, call, Outcome::Granted(token))
    }

    fn binds(self, owner: u64, at: (u64, u64), token: i64) -> Story {
        let call = acquire(Kind::Exclusive, Tie::Session, S);
        self.op(0, owner, at, call, Outcome::Granted(token))
    }

    fn gives(self, kind: Kind, owner: u64, sent: u64) -> Story {
        let (all, token) = (true, None);
        let call = Call::Release { kind, all, token };
        self.op(0, owner, (sent, sent + 1), call, Outcome::Number(1))
    }

    fn closes(self, owner: u64, at: u64) -> Story {
        self.op(0, owner, (at, at), Call::Close, Outcome::Nil)
    }

    /// One request for the keys 0, 1, 2.
    fn takes_many(mut self, owner: u64, at: (u64, u64), outcomes: [Outcome; 3]) -> Story {
        for (key, outcome) in (0..).zip(outcomes) {
            let call = acquire(Kind::Exclusive, Tie::Many, 100);
            self = self.op(key, owner, at, call, outcome);
        }
        self
    }

    fn looks(mut self, at: u64, owner: u64, keys: &[u32]) -> Story {
        let holders = keys.iter().map(|key| (*key, owner)).collect();
        self.0.looks.push(Look {
            from: at * MS,
            to: at * MS + 1,
            holders,
        });
        self
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
        assert_eq!(accepted(&self.0).overlaps, 0);
    }
}

fn acquire(kind: Kind, tie: Tie, lease: u32) -> Call {
    Call::Acquire {
        kind,
        tie,
        lease,
        block: Some(0),
        once: false,
    }
}

#[test]
fn readers_hold_together_and_share_a_token() {
    let story = || {
        Story::default()
            .takes(Read, 1, (0, 1), 10)
            .takes(Read, 2, (10, 20), 10)
    };
    story().takes(Read, 3, (30, 40), 11).is_fine();
    story().takes(Read, 3, (30, 40), 9).breaks(Rule::Tokens);
}

#[test]
fn a_writer_among_readers_is_found() {
    let read = |owner, at, token| Story::default().takes(Read, owner, at, token);
    read(1, (0, 1), 10)
        .takes(Write, 2, (10, 20), 11)
        .breaks(Rule::Exclusion);
    let written = Story::default().takes(Write, 1, (0, 1), 10);
    written.takes(Read, 2, (10, 20), 11).breaks(Rule::Exclusion);
    let written = Story::default().takes(Write, 1, (0, 1), 10);
    written
        .takes(Write, 2, (10, 20), 11)
        .breaks(Rule::Exclusion);
    // The first of two readers is still there when the other has released.
    let two = read(1, (0, 50), 10).takes(Read, 2, (1, 60), 10);
    two.gives(Read, 2, 70)
        .takes(Write, 3, (71, 80), 11)
        .breaks(Rule::Exclusion);
    let two = read(1, (0, 50), 10).takes(Read, 2, (1, 60), 10);
    two.gives(Read, 2, 70)
        .gives(Read, 1, 72)
        .takes(Write, 3, (71, 80), 11)
        .is_fine();
    let failed_over = read(1, (0, 1), 10).takes(Write, 2, (10, 20), 11);
    let findings = accepted(&failed_over.fault(Fault::Failover, 5, 6).0);
    assert_eq!(findings.overlaps, 1);
}

#[test]
fn a_reader_that_reads_again_under_another_token_has_one_hold() {
    // The first grant is received last: the request waited on another connection when the server was killed.
    let story = || {
        Story::default()
            .takes(Read, 1, (0, 50), 10)
            .fault(Fault::Crash, 10, 20)
            .takes(Read, 1, (40, 45), 11)
    };
    story()
        .gives(Read, 1, 55)
        .takes(Write, 2, (57, 60), 12)
        .is_fine();
    story()
        .takes(Write, 2, (57, 60), 12)
        .breaks(Rule::Exclusion);
}

#[test]
fn an_upgrade_needs_a_token_of_its_own() {
    let upgrade = |token| {
        let story = Story::default().takes(Read, 1, (0, 1), 10);
        story.takes(Write, 1, (10, 20), token)
    };
    upgrade(11).is_fine();
    upgrade(10).breaks(Rule::Tokens);
    // When it releases WRITE, it still reads under that token, and other readers may join it.
    upgrade(11)
        .gives(Write, 1, 30)
        .takes(Read, 2, (25, 40), 11)
        .is_fine();
    // While another owner reads, no reader is upgraded.
    upgrade(11)
        .takes(Read, 2, (2, 5), 10)
        .breaks(Rule::Exclusion);
}

#[test]
fn a_downgrade_keeps_the_token_for_readers() {
    let downgrade = || {
        let story = Story::default().takes(Write, 1, (0, 1), 10);
        story.takes(Read, 1, (10, 20), 10).gives(Write, 1, 30)
    };
    downgrade().is_fine();
    downgrade().takes(Read, 2, (25, 40), 10).is_fine();
    downgrade()
        .takes(Write, 2, (25, 40), 11)
        .breaks(Rule::Exclusion);
    let released = Story::default().takes(Write, 1, (0, 1), 10);
    released
        .gives(Write, 1, 30)
        .takes(Read, 2, (25, 40), 10)
        .breaks(Rule::Tokens);
}

#[test]
fn a_writer_that_reads_shares_its_token_with_itself_alone() {
    let lost = |token, at: u64| {
        let story = Story::default().takes(Write, 1, (0, 1), 10);
        let story =
            story
                .takes(Read, 1, (at, at + 5), token)
                .fault(Fault::Failover, at + 6, at + 7);
        let release = Call::Release {
            kind: Read,
            all: true,
            token: None,
        };
        // Only the release of READ is answered.
        story.op(0, 1, (at + 8, at + 9), release, Outcome::Nil)
    };
    lost(10, 10).is_fine();
    lost(10, 150).breaks(Rule::Tokens);
    lost(11, 150).is_fine();
}

#[test]
fn a_writer_whose_request_to_read_is_lost_may_have_let_readers_join() {
    let joined = |asked| {
        let story = Story::default().takes(Write, 1, (0, 1), 10);
        let call = acquire(Read, Tie::None, 100);
        let story = story.op(0, 1, (asked, asked + 1), call, Outcome::Lost);
        story.gives(Write, 1, 20).takes(Read, 2, (30, 31), 10)
    };
    joined(10).is_fine();
    joined(25).breaks(Rule::Tokens);
    let unasked = Story::default().takes(Write, 1, (0, 1), 10);
    let unasked = unasked.gives(Write, 1, 20);
    unasked.takes(Read, 2, (30, 31), 10).breaks(Rule::Tokens);
}

#[test]
fn a_writer_that_reads_has_one_lease() {
    let writes = || Story::default().takes(Write, 1, (0, 1), 10);
    let reads = || writes().takes(Read, 1, (90, 91), 10);
    reads().gives(Write, 1, 150).is_fine();
    reads().gives(Write, 1, 250).breaks(Rule::Leases);
    writes().gives(Write, 1, 150).breaks(Rule::Leases);
    // A READ hold that has ended has no part in it.
    let long_ago = Story::default().takes(Read, 1, (0, 1), 10);
    let later = long_ago.takes(Write, 1, (300, 301), 11);
    later.gives(Read, 1, 350).breaks(Rule::Leases);
}

#[test]
fn a_read_lease_ends_independently() {
    let story = Story::default()
        .takes(Read, 1, (0, 1), 10)
        .takes(Read, 2, (50, 60), 10);
    story
        .gives(Read, 2, 90)
        .takes(Write, 3, (60, 120), 11)
        .is_fine();
}

#[test]
fn one_permit_too_many_is_found() {
    let three = || {
        (1..=3).fold(Story::default(), |story, id| {
            story.takes(Permit(3), id, (id, id + 10), id as i64)
        })
    };
    three().is_fine();
    three()
        .takes(Permit(3), 4, (20, 30), 4)
        .breaks(Rule::Permits);
    three()
        .gives(Permit(3), 2, 25)
        .takes(Permit(3), 4, (20, 30), 4)
        .is_fine();
    // Ended by its lease.
    three().takes(Permit(3), 4, (20, 103), 4).is_fine();
    let late = three().takes(Permit(3), 4, (20, 30), 4);
    let findings = accepted(&late.fault(Fault::LossyCrash, 24, 25).0);
    assert_eq!(findings.overlaps, 1);
    let twice = Story::default().takes(Permit(3), 1, (0, 1), 5);
    twice.takes(Permit(3), 2, (2, 3), 5).breaks(Rule::Tokens);
    let falling = Story::default().takes(Permit(3), 1, (0, 1), 5);
    falling.takes(Permit(3), 2, (2, 3), 4).is_fine();
}

#[test]
fn a_session_holds_far_beyond_its_lease_while_the_connection_lives() {
    let long = || Story::default().binds(1, (0, 1), 10);
    long().waits(2, (10, 60_000), 11).breaks(Rule::Exclusion);
    long()
        .closes(1, 59_900)
        .waits(2, (10, 60_000), 11)
        .is_fine();
    // After any fault of the server, the lease may have ended since.
    long()
        .fault(Fault::Trouble, 500, 600)
        .waits(2, (10, 60_000), 11)
        .is_fine();
    long()
        .fault(Fault::Trouble, 500, 600)
        .waits(2, (10, 400), 11)
        .breaks(Rule::Exclusion);
}

#[test]
fn a_hold_that_its_owner_released_in_vain_ends_with_the_connection() {
    // The first hold was taken away, and the second one has another token.
    let left = || {
        let story = Story::default().binds(1, (0, 1), 10);
        let story = story.fault(Fault::Taken, 5, 6).binds(1, (10, 11), 11);
        let release = Call::release(true, Some(10));
        story.op(0, 1, (12, 13), release, Outcome::Nil)
    };
    left().waits(2, (15, 100), 12).breaks(Rule::Exclusion);
    left().closes(1, 99).waits(2, (15, 100), 12).is_fine();
    left()
        .closes(1, 99)
        .waits(2, (15, 90), 12)
        .breaks(Rule::Exclusion);
    left()
        .closes(1, 99)
        .waits(2, (15, 4_000), 12)
        .breaks(Rule::Sessions);
}

#[test]
fn a_session_that_is_lost_while_its_connection_lives_is_found() {
    let bound = || Story::default().binds(1, (0, 1), 10);
    bound().binds(1, (50, 51), 11).breaks(Rule::Exclusion);
    let gone = |story: Story, token| {
        let release = Call::release(true, Some(token));
        story.op(0, 1, (50, 51), release, Outcome::Nil)
    };
    gone(bound(), 10).breaks(Rule::Held);
    gone(bound(), 9).is_fine();
    gone(bound().fault(Fault::Trouble, 20, 30), 10).is_fine();
    gone(bound().fault(Fault::Trouble, 60, 70), 10).breaks(Rule::Held);
    gone(bound().closes(1, 40), 10).is_fine();
    // A short lease may end in a stall that is not marked.
    let call = acquire(Kind::Exclusive, Tie::Session, 300);
    let short = Story::default().op(0, 1, (0, 1), call, Outcome::Granted(10));
    gone(short, 10).is_fine();
}

#[test]
fn a_connection_closed_by_others_is_sure_until_its_last_reply() {
    let killed = |received| {
        let story = Story::default().binds(1, (0, 1), 10);
        let story = story.op(
            0,
            1,
            (200, 201),
            acquire(Kind::Exclusive, Tie::Session, S),
            Outcome::Granted(10),
        );
        let lost = Call::release(false, None);
        let story = story.op(0, 1, (900, 901), lost, Outcome::Lost);
        story.waits(2, (10, received), 11)
    };
    killed(300).is_fine();
    killed(190).breaks(Rule::Exclusion);
}

#[test]
fn a_session_that_outlives_its_connection_is_found() {
    let waits = |until| {
        let story = Story::default().binds(1, (0, 1), 10).closes(1, 500);
        story.waits(2, (100, until), 12)
    };
    waits(510).is_fine();
    waits(4_000).breaks(Rule::Sessions);
    // Another owner was granted before.
    let call = acquire(Kind::Exclusive, Tie::None, 3_000);
    waits(4_000)
        .op(0, 3, (90, 1_000), call, Outcome::Granted(11))
        .is_fine();
    // Not since the server replies again.
    waits(4_000).fault(Fault::Trouble, 450, 1_500).is_fine();
    let unclosed = Story::default().binds(1, (0, 1), 10);
    unclosed.waits(2, (100, 30_000), 11).breaks(Rule::Exclusion);
    let lost = Story::default().binds(1, (0, 1), 10).op(
        0,
        1,
        (500, 520),
        Call::renew(100, None),
        Outcome::Lost,
    );
    lost.waits(2, (100, 4_000), 11).breaks(Rule::Sessions);
}

#[test]
fn a_session_outlives_a_crashed_server_by_its_lease_and_no_more() {
    let crash = |until| {
        let story = Story::default().binds(1, (0, 1), 10).op(
            0,
            1,
            (100, 120),
            Call::renew(100, None),
            Outcome::Lost,
        );
        let story = story.fault(Fault::Crash, 100, 300);
        // Requested after the crash.
        story.waits(2, (310, until), 11)
    };
    crash(300 + u64::from(S)).is_fine();
    crash(u64::from(S) + 3_500).breaks(Rule::Sessions);
}

#[test]
fn a_binding_ends_with_a_lease_of_its_own() {
    let renewed = || {
        let story = Story::default().binds(1, (0, 1), 10);
        let renew = Call::renew(100, None);
        story.op(0, 1, (50, 51), renew, Outcome::Number(1))
    };
    renewed().waits(2, (10, 160), 11).is_fine();
    renewed().waits(2, (10, 140), 11).breaks(Rule::Exclusion);
    // Then the end of the connection ends nothing.
    renewed()
        .closes(1, 60)
        .waits(2, (10, 100), 11)
        .breaks(Rule::Exclusion);
}

fn granted() -> [Outcome; 3] {
    [10, 20, 30].map(Outcome::Granted)
}

#[test]
fn a_part_of_many_keys_is_found() {
    let mut outcomes = granted();
    Story::default()
        .takes_many(1, (0, 50), outcomes.clone())
        .is_fine();
    outcomes[1] = Outcome::Nil;
    Story::default()
        .takes_many(1, (0, 50), outcomes)
        .breaks(Rule::AllOrNothing);
}

#[test]
fn a_waiter_for_many_keys_that_holds_some_is_found() {
    let story = || Story::default().takes_many(1, (0, 50), granted());
    story().looks(20, 1, &[]).is_fine();
    story().looks(20, 1, &[0, 1, 2]).is_fine();
    story().looks(20, 1, &[0, 2]).breaks(Rule::AllOrNothing);
    story().looks(60, 1, &[0]).breaks(Rule::AllOrNothing);
    story().looks(200, 1, &[0]).is_fine();
    story().looks(20, 2, &[0]).is_fine();
    let nil = [Outcome::Nil, Outcome::Nil, Outcome::Nil];
    let refused = || Story::default().takes_many(1, (0, 50), nil.clone());
    refused().is_fine();
    refused().looks(20, 1, &[1]).breaks(Rule::AllOrNothing);
    // Asked at two servers, the former primary and the present one.
    let twice = || refused().takes_many(1, (15, 50), granted());
    twice().looks(20, 1, &[0, 1, 2]).is_fine();
    twice().looks(20, 1, &[1]).breaks(Rule::AllOrNothing);
    twice().looks(10, 1, &[1]).breaks(Rule::AllOrNothing);
    story()
        .looks(60, 1, &[0])
        .fault(Fault::Taken, 55, 56)
        .is_fine();
}

#[test]
fn each_key_of_many_excludes() {
    let story = Story::default().takes_many(1, (0, 1), granted());
    let call = acquire(Kind::Exclusive, Tie::None, 100);
    story
        .op(2, 2, (10, 20), call, Outcome::Granted(31))
        .breaks(Rule::Exclusion);
}
