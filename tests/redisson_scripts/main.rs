//! Redisson's lock scripts both ways: one server runs them in Lua, as any server does, the other has the
//! module and `lock.redisson-scripts yes`. Both are put into the same random state and sent the same
//! random call; whatever can be seen afterwards has to be the same: the reply to the byte, the dataset with
//! its deadlines, the key events and published messages in their order, the dirty counter, who was told
//! that a watched or tracked key has changed, and what a replica makes of the effects. The wall clock of
//! all servers stands still (and is moved on by hand), so that deadlines have to be equal, not close.
//!
//! `make test-differential` fetches the texts and plays. `LOCK_CASES` sets the number of cases, `LOCK_SEED`
//! the first; a failure is shrunk, and printed as a transcript.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod calls;
mod case;
mod mutants;
mod outcome;
mod random;
mod scripts;
mod side;
mod sides;
mod states;
mod wire;

use case::Case;
use scripts::Scripts;
use sides::{Replicas, Sides};

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Plays the cases of the wanted seeds, or this part of them.
fn play(scripts: &Scripts, mut sides: Sides, part: u64) {
    let first = number_from_env("LOCK_SEED", 1);
    let last = first + number_from_env("LOCK_CASES", 5_000).div_ceil(part);
    let cases = (first..last).map(|seed| Case::from_seed(seed, scripts));
    let in_flight = cases.into_iter().find_map(|case| sides.disagree_on(&case));
    if let Some(case) = in_flight.or_else(|| sides.disagreeing_replica()) {
        let seed = case.seed;
        let least = sides.shrink(case);
        panic!(
            "LOCK_SEED={seed} LOCK_CASES=1\n{}",
            sides.transcript(&least)
        );
    }
    sides.report();
}

#[test]
fn native_scripts_do_what_lua_does() {
    let scripts = Scripts::read();
    play(&scripts, Sides::lua_and_native(&scripts, Replicas::None), 1);
}

#[test]
fn native_scripts_do_it_on_replicas_too() {
    let scripts = Scripts::read();
    play(
        &scripts,
        Sides::lua_and_native(&scripts, Replicas::Attached),
        2,
    );
}

/// Two servers that do the same are told to.
#[test]
fn two_that_run_lua_are_found_alike() {
    let scripts = Scripts::read();
    play(
        &scripts,
        Sides::lua_and_lua(&scripts, Replicas::Attached),
        10,
    );
}

/// Faults that are put into the other side's script on purpose: the comparison has to notice.
#[test]
fn a_fault_in_a_script_is_noticed() {
    let scripts = Scripts::read();
    let unnoticed = mutants::unnoticed(&scripts);
    assert_eq!(unnoticed, mutants::UNREACHABLE);
}
