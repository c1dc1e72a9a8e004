//! `lock-bench bench`: every section of the report, measured, printed as it comes, and written.

use std::io;
use std::time::Duration;

use crate::load::{Effort, CONNECTIONS, LOCKS};
use crate::report::{self, Section};
use crate::{libraries, others, pairs, plots, singles, waiting};

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

/// Beside the report.
const PAIR_COST: &str = "pair-cost.svg";

/// A trial's figures do not replace measured ones.
const TRIAL: &str = "target/BENCHMARKS-trial.md";

/// Measures everything; `quick` is for trials: few short rounds.
pub fn run(quick: bool) -> io::Result<()> {
    let effort = if quick { QUICK } else { FULL };
    let (mut sections, costs) = pairs::measure(&effort)?;
    if !quick {
        let picture = report::project().join("docs").join(PAIR_COST);
        plots::pair_cost(
            &picture,
            &costs,
            "pipeline 16, 50 connections, no AOF unless said",
        )?;
        sections[0].image = Some(PAIR_COST.into());
    }
    print(&sections);
    for section in [singles::measure, others::measure, libraries::measure] {
        let section = [section(&effort)?];
        print(&section);
        sections.extend(section);
    }
    let waiting = waiting::sections(quick, &report::project().join("docs"))?;
    print(&waiting);
    sections.extend(waiting);
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

fn in_words(effort: &Effort) -> String {
    format!(
        "{} rounds, {} s per point and round after a warm-up of {} s; load: {CONNECTIONS} connections from one \
         thread on another core than the server's, {LOCKS} locks each, owners of 39 bytes",
        effort.rounds,
        effort.measured.as_secs_f64(),
        effort.warm_up.as_secs_f64()
    )
}
