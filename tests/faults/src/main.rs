//! `lock-faults`: faults while many clients use locks, and the judges of the replies.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis_lock_faults::history::History;
use redis_lock_faults::porcupine::{Porcupine, Verdict};
use redis_lock_faults::scenarios::matrix::KINDS;
use redis_lock_faults::scenarios::{all, Scenario};
use redis_lock_faults::totals::{Total, Totals};
use redis_lock_faults::{check, long_run, matrix, report};

const USAGE: &str = "\
lock-faults run [--seed N] [--seconds N] [--only a,b]   every scenario for so many seconds (6)
                [--histories DIR]                       and keep the histories that Porcupine has judged
lock-faults long [--part NAME] [--minutes N]            go on until the goals are reached (or 10 minutes)
lock-faults kinds [--only a,b] [--minutes N]            every kind in every place, until each has its operations
lock-faults table                                       the figures of `kinds`, into docs/RELIABILITY.md
lock-faults long-run [--minutes N] [--slice N]           continue the long run, in slices of so many minutes (15)
lock-faults long-run-report                            its figures, into docs/RELIABILITY.md
lock-faults report                                      the figures of `long`, into docs/RELIABILITY.md
lock-faults check FILE                                  judge the history of a failed run again
lock-faults list                                        the scenarios";

/// The longest run of `long`: its history is in memory.
const ROUND: Duration = Duration::from_secs(8);

struct Options {
    command: String,
    file: String,
    seed: Option<u64>,
    seconds: u64,
    minutes: u64,
    slice: u32,
    only: Vec<String>,
    histories: Option<PathBuf>,
}

fn main() {
    let options = options().unwrap_or_else(|error| {
        eprintln!("{error}\n{USAGE}");
        std::process::exit(2)
    });
    let is_good = match options.command.as_str() {
        "run" => run(&options),
        "long" => long(&options),
        "kinds" => matrix::run(Duration::from_secs(options.minutes * 60), &options.only),
        "table" => matrix::report(),
        "long-run" => long_run::run(long_run::Lengths {
            run: Duration::from_secs(options.minutes * 60),
            slice: options.slice,
            minute: Duration::from_secs(60),
        }),
        "long-run-report" => long_run::report(),
        "report" => Totals::load().and_then(|totals| {
            print!("{}", report::figures(&totals));
            report::save(&totals).map(|()| totals.sum().violations() == 0)
        }),
        "check" => History::read(options.file.as_ref()).and_then(|history| judge(&history)),
        "list" => {
            list();
            Ok(true)
        }
        _ => {
            println!("{USAGE}");
            Ok(true)
        }
    };
    match is_good {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2)
        }
    }
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let mut options = Options {
        command: String::new(),
        file: String::new(),
        seed: None,
        seconds: 6,
        minutes: 10,
        slice: 15,
        only: Vec::new(),
        histories: None,
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("seed") => options.seed = Some(args.value()?.parse()?),
            Long("seconds") => options.seconds = args.value()?.parse()?,
            Long("minutes") => options.minutes = args.value()?.parse()?,
            Long("slice") => options.slice = args.value()?.parse()?,
            Long("histories") => options.histories = Some(args.value()?.into()),
            Long("only" | "part") => {
                let names = args.value()?.string()?;
                options.only.extend(names.split(',').map(str::to_string));
            }
            Value(word) if options.command.is_empty() => options.command = word.string()?,
            Value(word) if options.command == "check" => options.file = word.string()?,
            other => return Err(other.unexpected()),
        }
    }
    let names: Vec<&str> = match options.command.as_str() {
        "kinds" => KINDS.iter().map(|kind| kind.name).collect(),
        _ => all().iter().map(|scenario| scenario.name).collect(),
    };
    let is_known = |name: &&String| names.contains(&name.as_str());
    match options.only.iter().find(|name| !is_known(name)) {
        Some(name) => Err(format!("no scenario '{name}'").into()),
        None => Ok(options),
    }
}

fn chosen(options: &Options) -> impl Iterator<Item = Scenario> + '_ {
    let is_chosen =
        |s: &Scenario| options.only.is_empty() || options.only.iter().any(|o| o == s.name);
    all().into_iter().filter(is_chosen)
}

/// Runs every scenario once.
fn run(options: &Options) -> std::io::Result<bool> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {seed}");
    let (mut sum, length) = (Total::default(), Duration::from_secs(options.seconds));
    let porcupine = Porcupine {
        keeps: options.histories.clone(),
    };
    for scenario in chosen(options) {
        sum.add(&round(&scenario, seed, length, &porcupine));
    }
    println!("{:<15} {}", "all", sum.sentence());
    let verdict = match sum.violations() {
        0 => "no violations".into(),
        violations => format!("{violations} VIOLATIONS"),
    };
    println!(
        "{verdict} in {:.0} s, {:?}, seed {seed}",
        sum.seconds, sum.versions
    );
    Ok(sum.violations() == 0)
}

/// Runs a scenario once, and prints the result.
fn round(scenario: &Scenario, seed: u64, length: Duration, porcupine: &Porcupine) -> Total {
    let (plan, nemesis) = ((scenario.plan)(), (scenario.nemesis)());
    Total::of_run(scenario.name, &plan, nemesis, seed, length, porcupine)
}

/// Runs every scenario until its goal is reached, or the time is over.
fn long(options: &Options) -> std::io::Result<bool> {
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    let mut totals = Totals::load()?;
    for scenario in chosen(options) {
        let (what, goal) = scenario.goal;
        loop {
            let total = totals.0.entry(scenario.name.into()).or_default();
            let left = end.saturating_duration_since(Instant::now());
            if total.count(what) >= goal || left < Duration::from_secs(2) {
                println!(
                    "{:<15} {} of {goal} {what}",
                    scenario.name,
                    total.count(what)
                );
                break;
            }
            let seed = options.seed.unwrap_or(1) + total.runs;
            total.add(&round(
                &scenario,
                seed,
                ROUND.min(left),
                &Porcupine::default(),
            ));
            totals.save(scenario.name)?;
        }
    }
    let sum = totals.sum();
    println!("{:<15} {}", "all so far", sum.sentence());
    Ok(sum.violations() == 0)
}

fn judge(history: &History) -> std::io::Result<bool> {
    let findings = check::check(history);
    for violation in &findings.violations {
        println!("{:?}: {}", violation.rule, violation.text);
    }
    let verdict = Porcupine::default().judge(history, "check")?;
    if let Verdict::Refused(text) | Verdict::Undecided(text) = &verdict {
        println!("{text}");
    }
    println!(
        "{} operations, {} grants, {} overlaps (expected), {} violations",
        findings.operations,
        findings.grants,
        findings.overlaps,
        findings.violations.len()
    );
    Ok(findings.violations.is_empty() && !matches!(verdict, Verdict::Refused(_)))
}

fn list() {
    for scenario in all() {
        let (what, goal) = scenario.goal;
        println!(
            "{:<15} {} (goal: {goal} {what})",
            scenario.name, scenario.about
        );
    }
}
