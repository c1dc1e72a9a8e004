//! `lock-bench bench`: every section of the report, measured, printed as it comes, and written.

use std::io;
use std::time::Duration;

use crate::load::{Effort, CONNECTIONS, LOCKS};
use crate::pairs::Costs;
use crate::report::{self, Section};
use crate::{libraries, others, pairs, singles};

const FULL: Effort = Effort {
    rounds: 5,
    warm_up: Duration::from_millis(80),
    measured: Duration::from_millis(300),
};

const QUICK: Effort = Effort {
    rounds: 3,
    warm_up: Duration::from_millis(15),
    measured: Duration::from_millis(45),
};

/// Below the project.
const REPORT: &str = "docs/BENCHMARKS.md";

/// A trial's figures do not replace measured ones.
const TRIAL: &str = "target/BENCHMARKS-trial.md";

/// Measures everything; `quick` is for trials: few short rounds.
pub fn run(quick: bool) -> io::Result<()> {
    let effort = if quick { QUICK } else { FULL };
    let (mut sections, costs) = pairs::measure(&effort)?;
    print(&sections);
    for section in [singles::measure, others::measure, libraries::measure] {
        let section = [section(&effort)?];
        print(&section);
        sections.extend(section);
    }
    costs.iter().for_each(print_bars);
    let path = if quick { TRIAL } else { REPORT };
    report::write(path, &in_words(&effort), &sections)?;
    println!("\nwritten: {path}");
    Ok(())
}

fn print(sections: &[Section]) {
    for section in sections {
        println!("{}", section.plain());
    }
}

fn print_bars(costs: &Costs) {
    println!("\nPairs/s and server µs/pair: {}", costs.setting);
    let longest = costs.cpu_us.iter().map(|bar| bar.value).fold(1.0, f64::max);
    for (bar, speed) in costs.cpu_us.iter().zip(&costs.per_s) {
        let length = (50.0 * bar.value / longest) as usize;
        let (name, speed) = (&bar.name, speed.value / 1_000.0);
        println!(
            "  {name:<36} {speed:>6.1}k {:>6.2} {}",
            bar.value,
            "#".repeat(length)
        );
    }
}

fn in_words(effort: &Effort) -> String {
    format!(
        "{} rounds, {} s per point and round after a warm-up of {} s; load: {CONNECTIONS} connections from one \
         thread on another core than the server's, {LOCKS} locks each, owners of 39 bytes",
        effort.rounds,
        effort.measured.as_secs_f64(),
        effort.warm_up.as_secs_f64()
    )
}
