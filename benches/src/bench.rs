//! `lock-bench bench [quick] [PART...]`: the parts of the report, measured, printed one by one, and put into
//! benches/results/servers.md as the tables of the server that was measured.

use std::io;
use std::time::Duration;

use crate::load::{Effort, CONNECTIONS, LOCKS};
use crate::report::{self, Run, Section};
use crate::{
    cancel, handoff, kinds, lease_end, libraries, many_locks, memory, others, pairs, pictures,
    singles, tickets,
};

const FULL: Effort = Effort {
    quick: false,
    rounds: 5,
    warm_up: Duration::from_millis(80),
    measured: Duration::from_millis(300),
};

const QUICK: Effort = Effort {
    quick: true,
    rounds: 3,
    warm_up: Duration::from_millis(15),
    measured: Duration::from_millis(45),
};

/// The report's path below the project.
pub const REPORT: &str = "benches/results/servers.md";

/// The path of a trial's report: its figures do not replace measured ones.
const TRIAL: &str = "target/BENCHMARKS-trial.md";

/// A part of the report that can be measured alone.
struct Part {
    name: &'static str,
    /// The titles of its sections.
    titles: &'static [&'static str],
    measure: fn(&Effort) -> io::Result<Vec<Section>>,
}

const fn part(
    name: &'static str,
    titles: &'static [&'static str],
    measure: fn(&Effort) -> io::Result<Vec<Section>>,
) -> Part {
    Part {
        name,
        titles,
        measure,
    }
}

/// All parts, in the order of the report.
const PARTS: &[Part] = &[
    part("pairs", &pairs::TITLES, pairs::measure),
    part("kinds", &[kinds::TITLE], kinds::measure),
    part("singles", &[singles::TITLE], singles::measure),
    part("others", &[others::TITLE], others::measure),
    part("libraries", &[libraries::TITLE], libraries::measure),
    part("handoff", &[handoff::TITLE], handoff::measure),
    part("many-locks", &[many_locks::TITLE], many_locks::measure),
    part("cancel", &[cancel::TITLE], cancel::measure),
    part("memory", &[memory::TITLE], memory::measure),
    part("tickets", &tickets::TITLES, tickets::measure),
    part("lease-end", &[lease_end::TITLE], lease_end::measure),
];

/// Measures the parts of these names, or all. The first word may be `quick`: few short rounds, for trials.
pub fn run(words: &[&str]) -> io::Result<()> {
    let (effort, path, names) = match words {
        ["quick", names @ ..] => (QUICK, TRIAL, names),
        names => (FULL, REPORT, names),
    };
    let parts = parts(names)?;
    let order: Vec<&str> = PARTS.iter().flat_map(|part| part.titles).copied().collect();
    let run = Run::now()?;
    for part in parts {
        let sections = (part.measure)(&effort)?;
        for section in &sections {
            println!("{}", section.plain());
        }
        // After every part, so that an error in a later one loses nothing.
        report::write(path, &method(&effort), &run, &sections, &order)?;
    }
    if !effort.quick {
        pictures::draw()?;
    }
    println!("\nwritten: {path}");
    Ok(())
}

fn parts(names: &[&str]) -> io::Result<Vec<&'static Part>> {
    if names.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let part = |name: &&str| {
        let all = || PARTS.iter().map(|part| part.name).collect::<Vec<_>>();
        let unknown =
            || io::Error::other(format!("no part {name}; there are {}", all().join(", ")));
        PARTS
            .iter()
            .find(|part| part.name == *name)
            .ok_or_else(unknown)
    };
    names.iter().map(part).collect()
}

fn method(effort: &Effort) -> String {
    format!(
        "A load is {CONNECTIONS} connections from one thread on another core than the server's, {LOCKS} locks each, \
         owners of 39 bytes: {} rounds, {} s per point and round after a warm-up of {} s. The other parts \
         state their method below their tables.\n",
        effort.rounds,
        effort.measured.as_secs_f64(),
        effort.warm_up.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_name() {
        let names = |words: &[&str]| {
            parts(words).map(|parts| parts.iter().map(|part| part.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["memory", "pairs"]).unwrap(), ["memory", "pairs"]);
        assert_eq!(names(&[]).unwrap().len(), PARTS.len());
        assert!(names(&["nonsense"]).is_err());
    }

    /// A run replaces the sections of its parts; another title would leave the old one behind.
    #[test]
    fn the_document_has_the_sections_of_the_parts() -> io::Result<()> {
        let text = std::fs::read_to_string(report::project().join(REPORT))?;
        let titles = || PARTS.iter().flat_map(|part| part.titles);
        for title in text.lines().filter_map(|line| line.strip_prefix("## ")) {
            let known = titles().any(|known| known == &title) || title == "Redisson itself";
            assert!(known, "{title}");
        }
        Ok(())
    }
}
