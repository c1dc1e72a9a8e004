//! `lock-faults`: faults while many clients lock. `lock-faults help` says how.

use std::time::Duration;

use redis_lock_faults::check::Rule;
use redis_lock_faults::play::{play, Played};
use redis_lock_faults::scenarios::{all, Scenario};

fn main() -> Result<(), lexopt::Error> {
    let mut is_bad = false;
    let seed = 1;
    for scenario in all() {
        let played = play(
            scenario.name,
            &(scenario.plan)(),
            (scenario.nemesis)(),
            seed,
            Duration::from_secs(5),
        );
        print(&scenario, seed, &played);
        is_bad |= played.is_bad();
    }
    std::process::exit(i32::from(is_bad))
}

fn print(scenario: &Scenario, seed: u64, played: &Played) {
    let findings = &played.findings;
    let tally: Vec<_> = played
        .tally
        .iter()
        .map(|(what, n)| format!("{n} {what}"))
        .collect();
    println!(
        "{:<16} {} operations, {} grants, {}; {} overlaps expected, {} not, {} token regressions, {} FIFO breaks ({} compared), {} silent waiters, {} dead leases; {:.1} s, {}, seed {seed}",
        scenario.name,
        findings.operations,
        findings.grants,
        tally.join(", "),
        findings.overlaps,
        findings.count(Rule::Exclusion),
        findings.count(Rule::Tokens),
        findings.count(Rule::Order),
        findings.ordered,
        findings.count(Rule::Silence),
        findings.count(Rule::Leases),
        played.seconds,
        played.version,
    );
    println!("{:16} {:?}", "", played.updates);
    for violation in findings.violations.iter().take(5) {
        println!("  {:?}: {}", violation.rule, violation.text);
    }
    if let Some(broken) = &played.broken {
        println!("  the server: {broken}");
    }
    if let Some(file) = &played.file {
        println!("  the history: {}", file.display());
    }
}
