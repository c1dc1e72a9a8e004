//! The check of losses of power finds what a disk has lost, and nothing where nothing is lost.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use redis_lock_faults::power::check::Figures;
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
