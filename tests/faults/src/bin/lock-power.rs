//! `lock-power`: losses of power while clients lock.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

use std::time::Duration;

use redis_lock_faults::power::{report, round, SETTINGS};

const USAGE: &str = "\
lock-power run [--rounds N] [--seed N] [--only a,b] [--seconds N]   so many losses of power in each setting (100),
                                                                    each setting within so many seconds (600);
                                                                    the figures are added to those of target/power
lock-power report                                                   the figures of all servers, into docs/RELIABILITY.md";

struct Options {
    command: String,
    rounds: u64,
    seed: u64,
    seconds: u64,
    only: String,
}

fn main() {
    let options = options().unwrap_or_else(|error| {
        eprintln!("{error}\n{USAGE}");
        std::process::exit(2)
    });
    let is_good = match options.command.as_str() {
        "run" => run(&options),
        "report" => report::save(),
        _ => {
            println!("{USAGE}");
            true
        }
    };
    std::process::exit(i32::from(!is_good));
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let mut options = Options {
        command: String::new(),
        rounds: 100,
        seed: 1,
        seconds: 600,
        only: String::new(),
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("rounds") => options.rounds = args.value()?.parse()?,
            Long("seed") => options.seed = args.value()?.parse()?,
            Long("seconds") => options.seconds = args.value()?.parse()?,
            Long("only") => options.only = args.value()?.string()?,
            Value(word) if options.command.is_empty() => options.command = word.string()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> bool {
    let only = &options.only;
    let limit = Duration::from_secs(options.seconds);
    let mut is_good = true;
    for setting in &SETTINGS {
        if !only.is_empty() && !only.split(',').any(|name| name == setting.name) {
            continue;
        }
        let figures = round::play(setting, options.rounds, options.seed, limit);
        println!("{}", report::line(setting.name, &figures));
        is_good &= figures.violations.is_empty();
        report::keep(setting.name, &figures);
    }
    is_good
}
