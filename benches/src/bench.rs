//! `lock-bench bench`: every section of the report, measured, printed one by one, and written to docs/BENCHMARKS.md.

use std::io;
use std::time::Duration;

use crate::load::{Effort, CONNECTIONS, LOCKS};
use crate::pictures::{self, PAIR_COST};
use crate::report::{self, Section};
use crate::{libraries, others, pairs, singles, waiting};

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

/// The report's path below the project.
const REPORT: &str = "docs/BENCHMARKS.md";

/// The path of a trial's report: its figures do not replace measured ones.
const TRIAL: &str = "target/BENCHMARKS-trial.md";

/// Measures everything; `quick` is for trials with few short rounds.
pub fn run(quick: bool) -> io::Result<()> {
    let effort = if quick { QUICK } else { FULL };
    let mut sections = pairs::measure(&effort)?;
    if !quick {
        sections[0].image = Some(PAIR_COST.into());
    }
    print(&sections);
    for section in [singles::measure, others::measure, libraries::measure] {
        let section = [section(&effort)?];
        print(&section);
        sections.extend(section);
    }
    let waiting = waiting::sections(quick)?;
    print(&waiting);
    sections.extend(waiting);
    let path = if quick { TRIAL } else { REPORT };
    report::write(path, &in_words(&effort), &sections)?;
    if !quick {
        pictures::draw()?;
    }
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
