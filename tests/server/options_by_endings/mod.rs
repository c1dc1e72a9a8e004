//! Every option meets every ending: each option of each command that waits, alone and together with others, parked and
//! as a ticket, behind a lock and behind a string, by each way in which a wait or a hold ends.
//!
//! The commands and their options are those of `COMMAND DOCS`, so an option that is added is in the table; one with a
//! value needs a sample (`forms.rs`). The counters of ends are those of `INFO lock`: each must be moved by an ending
//! that names it. A row is one ending with all forms on one server. A cell begins and ends at rest: then every gauge is
//! 0, no key but the horizon is left, and the counters add up.

mod cell;
mod cluster;
mod forms;
mod holds;
mod memory;
mod waits;

use std::collections::BTreeSet;

use crate::common::at_rest::is_gauge;
use crate::common::TestServer;
use cell::{Cell, Table};
use forms::Form;

/// One way in which a wait or a hold ends.
pub struct Ending {
    name: &'static str,
    /// Whether the form can end in this way.
    meets: fn(&Form) -> bool,
    /// Plays it.
    play: fn(&mut Cell<'_>),
    /// The counters of `INFO lock` that it moves, without those of semaphores and latches, which have other prefixes.
    moves: &'static [&'static str],
}

/// A constant with endings, and a test for each.
macro_rules! endings {
    ($($(#[doc = $doc:literal])+ $name:ident, $meets:expr, $moves:expr;)+) => {
        pub const ALL: &[super::Ending] = &[$(super::Ending {
            name: stringify!($name),
            meets: $meets,
            play: $name,
            moves: &$moves,
        },)+];

        mod row {
            $(#[test]
            fn $name() {
                super::super::play(super::ALL, stringify!($name));
            })+
        }
    };
}

use endings;

/// Plays the ending of this name with every form that it meets.
fn play(endings: &[Ending], name: &str) {
    let ending = endings.iter().find(|ending| ending.name == name).unwrap();
    let mut table = Table::new();
    let forms: Vec<Form> = table.forms().into_iter().filter(ending.meets).collect();
    assert!(!forms.is_empty());
    for form in &forms {
        let _shown = Shown(form);
        let mut cell = table.cell(form);
        (ending.play)(&mut cell);
        cell.finish();
    }
    for name in ending.moves {
        assert!(table.server.stat(name) > 0, "{name} has not moved");
    }
}

/// Names the form of a cell that fails.
struct Shown<'a>(&'a Form);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the cell of {:?}", self.0);
        }
    }
}

/// Counters that begin like those of ends and are none.
const NO_END: [&str; 4] = [
    // The begin of a wait, which the others end.
    "waits_parked",
    "tickets_queued",
    // An attempt: the wait goes on.
    "grants_withheld",
    // A sum of times.
    "tickets_wait_ms_sum",
];

#[test]
fn every_counter_of_an_end_is_moved_by_an_ending() {
    let server = TestServer::start();
    let info = server.conn().line("INFO lock").text();
    let names = info.lines().filter_map(|line| line.strip_prefix("lock_"));
    let numbers = names.filter(|line| !line.contains('='));
    let names = numbers.filter_map(|line| Some(line.split_once(':')?.0));
    let is_end = |name: &&str| {
        let stem = name.trim_start_matches("sem_").trim_start_matches("latch_");
        let begins = ["waits_", "tickets_", "grants_"];
        begins.iter().any(|begin| stem.starts_with(begin))
            && !is_gauge(name)
            && !NO_END.contains(&stem)
    };
    let all: BTreeSet<&str> = names.filter(is_end).collect();
    let endings = waits::ALL.iter().chain(holds::ALL);
    let moved: BTreeSet<&str> = endings.flat_map(|ending| ending.moves).copied().collect();
    let unmoved: Vec<_> = all.difference(&moved).collect();
    assert!(unmoved.is_empty(), "no ending moves {unmoved:?}");
}
