//! Redisson's lock scripts, run both ways: one server runs them in Lua, the other has the module and
//! `lock.redisson-scripts yes`. Both get the same random state and the same random calls; everything observable
//! afterwards must be equal: the reply to the byte, the dataset with its deadlines, the key events and published
//! messages in their order, the dirty counter, the clients that are notified of a change of a watched or tracked key,
//! and the dataset of a replica. The wall clock of all servers is stopped (and advanced by the test), so that deadlines
//! have to be equal, not close.
//!
//! `make test-differential` fetches the texts and runs the cases. `LOCK_CASES` sets the number of cases, `LOCK_SEED`
//! the first; a failure is reduced, and printed as a transcript.

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

/// Plays the cases of the wanted seeds, or the given part of them.
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
fn native_scripts_have_the_effects_of_lua() {
    let scripts = Scripts::read();
    play(&scripts, Sides::lua_and_native(&scripts, Replicas::None), 1);
}

#[test]
fn native_scripts_have_the_effects_of_lua_on_replicas() {
    let scripts = Scripts::read();
    play(
        &scripts,
        Sides::lua_and_native(&scripts, Replicas::Attached),
        2,
    );
}

/// Fields whose own TTL is over, of locks in several states, with every script. (On servers without such TTLs nothing
/// ends.)
#[test]
fn native_scripts_have_the_effects_of_lua_on_fields_that_have_ended() {
    const CALLS: u64 = 4;
    let scripts = Scripts::read();
    let mut sides = Sides::lua_and_native(&scripts, Replicas::None);
    let mut different = Vec::new();
    for state in 0..states::WITH_ENDED_FIELDS.len() {
        for script in 0..scripts.0.len() {
            let cases =
                (0..CALLS).map(|seed| Case::with_ended_fields(seed, script, state, &scripts));
            let found = cases
                .into_iter()
                .find(|case| sides.disagree_on(case).is_some());
            different
                .extend(found.map(|case| format!("state {state}\n{}", sides.transcript(&case))));
        }
    }
    assert!(
        different.is_empty(),
        "{} differ: {}",
        different.len(),
        different.join("\n\n")
    );
    sides.report();
}

/// The comparison of two equal servers finds no difference.
#[test]
fn two_servers_with_lua_are_equal() {
    let scripts = Scripts::read();
    play(
        &scripts,
        Sides::lua_and_lua(&scripts, Replicas::Attached),
        10,
    );
}

/// Deliberate faults in the script of the other side: the comparison has to find them.
#[test]
fn a_fault_in_a_script_is_found() {
    let scripts = Scripts::read();
    let unnoticed = mutants::unnoticed(&scripts);
    assert_eq!(unnoticed, mutants::UNREACHABLE);
}
