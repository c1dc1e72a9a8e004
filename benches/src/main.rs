//! The benchmarks of the module: `lock-bench bench`, `lock-bench instr`, `lock-bench
//! peers`, `lock-bench tenant`. The Makefile has a target for each.
//!
//! Every subcommand starts its own servers on loopback, measures, prints, and writes the results below `docs/`.

#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::unwrap_used))]

mod bench;
mod cancel;
mod cells;
mod crowd;
mod dashboard;
mod document;
mod handoff;
mod herd;
mod instr;
mod kinds;
mod lease_end;
mod libraries;
mod load;
mod many_locks;
mod memory;
mod others;
mod pairs;
mod paths;
mod peers;
mod pictures;
mod plots;
mod points;
mod report;
mod ring;
/// The scripts by which the tests simulate Redisson.
#[allow(dead_code)]
#[path = "../../tests/harness/src/scripts.rs"]
mod rlock;
mod scripts;
mod server;
mod singles;
mod stats;
mod tenant;
mod tickets;
mod timeline;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["instr"] => instr::run(false),
        ["instr", "save"] => instr::run(true),
        ["bench", ref words @ ..] => bench::run(words),
        ["peers"] => peers::run(),
        ["tenant"] => tenant::run(false),
        ["tenant", "save"] => tenant::run(true),
        ["pictures"] => pictures::draw(),
        _ => {
            eprintln!(
                "usage: lock-bench instr [save] | bench [quick] [PART...] | peers | tenant [save] | pictures"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
