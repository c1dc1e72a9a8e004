//! The check of losses of power finds what a disk has lost, and nothing where nothing is lost.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use redis_lock_faults::history::{Call, History, Op, Outcome, MS};
use redis_lock_faults::power::check::{Ends, Figures};
use redis_lock_faults::power::judge::{before_the_loss, Class};
use redis_lock_faults::power::round::play;
use redis_lock_faults::power::{Setting, SETTINGS};

const HOUR: i64 = 3_600_000_000;
const LIMIT: Duration = Duration::from_secs(60);

fn setting(name: &str) -> Setting {
    let found = SETTINGS.into_iter().find(|setting| setting.name == name);
    found.expect("a setting")
}

#[test]
fn a_loss_of_power_takes_no_replied_grant_of_a_server_that_syncs_always() {
    let figures = play(&setting("always"), 4, 1, LIMIT);
    assert!(figures.all().grants > 0 && figures.rounds == 4);
    assert_eq!(figures.violations, Vec::<String>::new());
}

#[test]
fn a_server_that_never_syncs_is_found_to_lose_replied_grants() {
    let setting = Setting {
        keeps_replied: true,
        ..setting("no")
    };
    let figures = play(&setting, 4, 1, LIMIT);
    assert!(figures.all().lost_grants > 0);
    assert!(figures.violations.len() as u64 >= figures.all().lost_grants);
}

#[test]
fn a_disk_that_lies_is_found_to_lose_grants_and_releases_of_every_kind() {
    let setting = Setting {
        lies: true,
        ..setting("always")
    };
    let figures = play(&setting, 6, 1, LIMIT);
    let lost = |class| figures.kinds.get(&class).map_or(0, |c| c.lost_grants);
    let classes = [
        Class::Lock,
        Class::ReadWrite,
        Class::Permit,
        Class::Bound,
        Class::Several,
        Class::Ticket,
    ];
    for class in classes {
        assert!(lost(class) > 0, "{class:?}: {:?}", figures.kinds);
    }
    assert!(figures.violations.len() as u64 >= figures.all().lost_grants);
}

#[test]
fn a_promoted_replica_lacks_only_the_last_writes() {
    let figures = play(&setting("replica"), 4, 1, LIMIT);
    assert_eq!(figures.rounds, 4);
    assert_eq!(figures.violations, Vec::<String>::new());
}

#[test]
fn two_holders_before_the_loss_are_found_too() {
    let grant = |owner, sent| Op {
        client: 1,
        owner,
        key: 1,
        call: Call::acquire(60_000, Some(50), true),
        sent: sent * MS,
        done: (sent + 1) * MS,
        outcome: Outcome::Granted(100 + owner as i64),
    };
    let one: History = vec![grant(7, 1_000)].into();
    let two: History = vec![grant(7, 1_000), grant(8, 2_000)].into();
    assert_eq!(before_the_loss(&one, "power-one"), None);
    let text = before_the_loss(&two, "power-two").unwrap();
    assert!(text.contains("mutex"), "{text}");
}

#[test]
fn a_kept_change_after_a_lost_one_is_found() {
    let judge = |oldest_lost, newest_kept, is_split| {
        let mut figures = Figures::default();
        let ends = Ends {
            oldest_lost,
            newest_kept,
        };
        figures.conclude("forged", ends, 5_000_000, is_split);
        (figures.violations.len(), figures.holes, figures.lost_ms)
    };
    let (at, later) = (Some(4_000_000), Some(4_000_001));
    assert_eq!(judge(None, at, false), (0, 0, vec![0.0]));
    assert_eq!(judge(at, at, false), (0, 0, vec![1.0]));
    assert_eq!(judge(at, later, false), (1, 0, vec![1.0]));
    // Between two files of the AOF the server may lose a piece.
    assert_eq!(judge(at, later, true), (0, 1, vec![1.0]));
    assert_eq!(judge(at, at, true), (0, 0, vec![1.0]));
}

#[test]
fn a_first_token_that_is_not_above_all_received_ones_is_excused_only_without_horizon_and_clock() {
    let judge = |first, highest, horizon, clock| {
        let mut figures = Figures::default();
        figures.judge_token("forged", first, highest, horizon, clock);
        (figures.violations.len(), figures.expected_falls)
    };
    let highest = 10 * HOUR;
    assert_eq!(judge(highest + 1, highest, 0, 0), (0, 0));
    assert_eq!(judge(highest, highest, highest, 0), (1, 0));
    assert_eq!(judge(highest, highest, 1, highest - HOUR + 1), (1, 0));
    assert_eq!(judge(highest, highest, 0, highest + 1), (1, 0));
    assert_eq!(judge(highest, highest, 0, highest - HOUR + 1), (0, 1));
    assert_eq!(judge(highest, highest, highest - 1, highest - HOUR), (0, 1));
}
