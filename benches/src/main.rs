//! The benchmarks of the module: `lock-bench instr`, `lock-bench bench`. The Makefile has a target for each.
//!
//! Every subcommand starts its own servers on loopback, measures, prints, and writes what it found
//! below `docs/`.

#![allow(clippy::indexing_slicing)]

mod bench;
mod instr;
mod libraries;
mod load;
mod others;
mod pairs;
mod paths;
mod points;
mod report;
mod scripts;
mod server;
mod singles;
mod stats;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["instr"] => instr::run(false),
        ["instr", "save"] => instr::run(true),
        ["bench"] => bench::run(false),
        ["bench", "quick"] => bench::run(true),
        _ => {
            eprintln!("usage: lock-bench instr [save] | bench [quick]");
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
