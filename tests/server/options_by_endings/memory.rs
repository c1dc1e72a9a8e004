//! Memory after all endings: what a cell allocates is given back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::common::wait_for;
use crate::options_by_endings::cell::Table;
use crate::options_by_endings::forms::Form;
use crate::options_by_endings::{holds, waits, Ending};

/// Passes after which the tables of the server and of the module have their sizes, and those that are measured.
const WARM_UP: usize = 2;
const PASSES: usize = 3;

/// The tolerance: buffers of the connection that queries, and a table that was reallocated with more room. A thousand
/// cells that forget 50 bytes each exceed it.
const SLACK: i64 = 48 * 1024;

/// Longer than the server waits before it shrinks the buffer of an idle connection.
const REST: Duration = Duration::from_millis(4_500);

/// These leave something in the server itself: it keeps scripts, and the buffers of a reload and of a replica.
const KEPT_BY_THE_SERVER: [&str; 5] = [
    "reloaded",
    "demoted",
    "given_by_a_script",
    "given_by_a_script_that_fails",
    "released_by_a_script",
];

fn used(table: &mut Table) -> i64 {
    let info = table.admin.line("INFO memory").text();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("a field").trim().parse().expect("a number")
}

/// The memory in use when it no longer falls.
fn at_rest(table: &mut Table) -> i64 {
    let (mut least, mut since) = (i64::MAX, Instant::now());
    wait_for("memory at rest", || {
        let used = used(table);
        if used < least {
            (least, since) = (used, Instant::now());
        }
        since.elapsed() > REST
    });
    least
}

/// Of each kind, parked and as a ticket, the form with the most options.
fn longest(forms: Vec<Form>) -> Vec<Form> {
    let mut longest: HashMap<_, Form> = HashMap::new();
    for form in forms.into_iter().filter(|form| !form.is_behind_string) {
        let at = (format!("{:?}", form.kind), form.is_ticket, form.has_mode());
        let known = longest.get(&at).map_or(0, |known| known.options.len());
        if form.options.len() >= known {
            longest.insert(at, form);
        }
    }
    longest.into_values().collect()
}

#[test]
fn no_ending_leaves_a_byte_behind() {
    let mut table = Table::new();
    let forms = longest(table.forms());
    let is_played = |ending: &&Ending| !KEPT_BY_THE_SERVER.contains(&ending.name);
    let endings: Vec<_> = waits::ALL
        .iter()
        .chain(holds::ALL)
        .filter(is_played)
        .collect();
    let pass = |table: &mut Table| {
        for ending in &endings {
            for form in forms.iter().filter(|form| (ending.meets)(form)) {
                let mut cell = table.cell(form);
                (ending.play)(&mut cell);
                cell.finish();
            }
        }
    };
    (0..WARM_UP).for_each(|_| pass(&mut table));
    let before = at_rest(&mut table);
    (0..PASSES).for_each(|_| pass(&mut table));
    let mut after = 0;
    wait_for("the memory of before", || {
        after = used(&mut table);
        after <= before + SLACK
    });
    println!("used_memory {before} before, {after} after");
}
