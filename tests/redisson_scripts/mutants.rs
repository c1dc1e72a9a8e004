//! Faults in the scripts of the other side, each a small change of one text: they show that the comparison can fail.

use crate::case::Case;
use crate::scripts::Scripts;
use crate::sides::{Replicas, Sides};

/// A text in a script, and the mutant's text in its place.
const CHANGES: [(&str, &str); 24] = [
    ("'pexpire', KEYS", "'exists', KEYS"),
    ("'pexpire', key", "'exists', key"),
    ("'publish', KEYS[2]", "'exists', KEYS[2]"),
    ("call(ARGV[2], KEYS[2]", "call('exists', KEYS[2]"),
    ("call(ARGV[3], KEYS[2]", "call('exists', KEYS[2]"),
    ("call(ARGV[4], KEYS[2]", "call('exists', KEYS[2]"),
    ("'del'", "'exists'"),
    ("'hdel'", "'hexists'"),
    ("'incr'", "'strlen'"),
    ("'set', KEYS", "'exists', KEYS"),
    ("'set', key", "'exists', key"),
    ("'px', ARGV[3]", "'ex', ARGV[3]"),
    ("'px', ARGV[4]", "'ex', ARGV[4]"),
    ("'px', ARGV[5]", "'ex', ARGV[5]"),
    ("return 1", "return 2"),
    ("return 0", "return 3"),
    ("return nil", "return 9"),
    ("== 0", "== 7"),
    ("== 1", "== 7"),
    ("> 0", "> 1"),
    ("> 1", "> 2"),
    ("math.max", "math.min"),
    ("-1", "-2"),
    ("tonumber(val)", "1"),
];
/// The number of cases of its script that a mutant may survive.
const PATIENCE: u64 = 1_500;

/// Unreachable: after a branch that has returned either way.
pub const UNREACHABLE: [&str; 4] = [
    "rlock-unlock-1: return nil no. 2",
    "rlock-unlock-2: return nil no. 2",
    "rlock-unlock-3: return nil no. 2",
    "spin-unlock-1: return nil no. 2",
];

/// The mutants that no case distinguishes from the script.
pub fn unnoticed(scripts: &Scripts) -> Vec<String> {
    let mut sides = Sides::lua_and_lua(scripts, Replicas::None);
    let mut unnoticed = Vec::new();
    for (number, script) in scripts.0.iter().enumerate() {
        for (change, mutant) in mutants_of(&script.text) {
            sides.replace(number, &mutant);
            let mut cases = (0..PATIENCE).map(|seed| Case::of_script(seed, number, scripts));
            if !cases.any(|case| sides.disagree_on(&case).is_some()) {
                unnoticed.push(format!("{}: {change}", script.name));
            }
            sides.forget();
        }
        sides.replace(number, &script.text);
    }
    unnoticed
}

/// Each change at each place where it is possible.
fn mutants_of(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = String::from_utf8(text.to_vec()).expect("a text");
    let mut mutants = Vec::new();
    for (from, to) in CHANGES {
        for (count, (place, _)) in text.match_indices(from).enumerate() {
            let mutant = [&text[..place], to, &text[place + from.len()..]].concat();
            mutants.push((format!("{from} no. {}", count + 1), mutant.into_bytes()));
        }
    }
    mutants
}
