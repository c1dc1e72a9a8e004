//! The figures of the long runs, as a table of docs/RELIABILITY.md: a column for each server.

use std::fmt::Write;

use super::figures::{Figures, Minute};
use super::FIRST;
use crate::report::{put, thousands};

/// Minutes at the begin and at the end whose latencies are compared, of shorter runs the halves.
const HOUR: usize = 60;

/// Writes the table.
///
/// # Errors
/// The figures or the page cannot be read or written.
pub fn report() -> std::io::Result<bool> {
    let all = Figures::all()?;
    let text = table(&all) + &pictures(&all);
    print!("{text}");
    put(
        ("<!-- long runs -->", "<!-- end of the long runs -->"),
        &text,
    )?;
    Ok(all.iter().all(is_good))
}

fn is_good(figures: &Figures) -> bool {
    figures.stops().all(|stop| stop.refused.is_none())
}

fn pictures(all: &[Figures]) -> String {
    let mut text = String::new();
    for figures in all {
        let server = figures.minutes().last().map_or("", |last| &last.server);
        let file = figures.name();
        let _ = writeln!(
            text,
            "![{server}: memory and latency of each minute]({file}.svg)\n"
        );
    }
    text
}

fn table(all: &[Figures]) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for figures in all {
        for (row, (name, value)) in column(figures).into_iter().enumerate() {
            if row == rows.len() {
                rows.push((name, String::new()));
            }
            let _ = write!(rows[row].1, " {value} |");
        }
    }
    let mut text = String::from("\n");
    for (row, (name, values)) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {name} |{values}");
        if row == 0 {
            let _ = writeln!(text, "|---|{}", "---:|".repeat(all.len()));
        }
    }
    text + "\n"
}

fn column(figures: &Figures) -> Vec<(&'static str, String)> {
    let minutes: Vec<&Minute> = figures.minutes().collect();
    let (Some(first), Some(last)) = (minutes.first(), minutes.last()) else {
        return Vec::new();
    };
    let sum = |of: fn(&Minute) -> u64| thousands(minutes.iter().map(|minute| of(minute)).sum());
    let runs: Vec<&[&Minute]> = minutes.chunk_by(|a, b| a.run == b.run).collect();
    let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
    let (good, bad): (Vec<_>, Vec<_>) = figures.stops().partition(|stop| stop.refused.is_none());
    let growth = runs.iter().copied().map(growth).max().unwrap_or(0);
    let part = HOUR.min(minutes.len().div_ceil(2));
    let begin = &minutes[..part];
    let end = &minutes[minutes.len() - part..];
    let latency = |of: fn(&Minute) -> u32| {
        let [begin, end] = [begin, end].map(|part| median(part, of));
        format!("{begin:.1}, {end:.1}")
    };
    let hours = |minutes: usize| format!("{:.1}", minutes as f64 / 60.0);
    vec![
        ("", last.server.clone()),
        ("Hours", hours(minutes.len())),
        ("of them with one process", hours(longest)),
        ("Requests of the clients", sum(|minute| minute.operations)),
        ("Grants", sum(|minute| minute.grants)),
        ("Tickets", sum(|minute| minute.tickets)),
        ("Faults and changes", sum(|minute| minute.faults)),
        ("Commands of the primary", sum(|minute| minute.commands)),
        (
            "Share of a core, median",
            format!("{:.0} %", 100.0 * share(&minutes)),
        ),
        ("Minutes, digests equal", thousands(minutes.len() as u64)),
        ("Stops, digests equal", good.len().to_string()),
        ("Stops by a broken law", bad.len().to_string()),
        (
            "Memory with empty queues, first and last minute",
            format!("{}, {}", thousands(first.settled), thousands(last.settled)),
        ),
        (
            "Growth from the first three minutes of a process to its last",
            thousands(growth),
        ),
        (
            "Resident, first and last minute, MB",
            format!("{}, {}", megabytes(first.rss), megabytes(last.rss)),
        ),
        (
            "Acquire and release, ms: p50 of a minute, median of the first and the last hour (or half)",
            latency(|minute| minute.pair[0]),
        ),
        ("the same: p99.9", latency(|minute| minute.pair[2])),
        (
            "`PING` beside it, ms: p50",
            latency(|minute| minute.ping[0]),
        ),
        ("the same: p99.9", latency(|minute| minute.ping[2])),
        ("Replies more than 2 s late", sum(|minute| minute.late)),
        ("`PING`s of more than 0.5 s", sum(|minute| minute.stalls)),
        ("Last run", last.date.clone()),
    ]
}

/// By how much the memory was larger in the last minute of a run than in its first ones; 0 if it was not.
fn growth(run: &[&Minute]) -> u64 {
    let first = run.iter().take(FIRST).map(|minute| minute.settled).max();
    let last = run.last().map_or(0, |last| last.settled);
    last.saturating_sub(first.unwrap_or(last))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn share(minutes: &[&Minute]) -> f64 {
    let mut shares: Vec<f64> = minutes.iter().map(|minute| minute.cpu).collect();
    shares.sort_unstable_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied().unwrap_or(0.0)
}

/// The median of these minutes, from microseconds to milliseconds.
fn median(minutes: &[&Minute], of: fn(&Minute) -> u32) -> f64 {
    let mut values: Vec<u32> = minutes.iter().map(|minute| of(minute)).collect();
    values.sort_unstable();
    let middle = values.get(values.len() / 2);
    middle.map_or(0.0, |micros| f64::from(*micros) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long_run::figures::{Line, Stop};

    #[test]
    fn the_table_sums_the_minutes_and_counts_the_stops() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long-run-x.jsonl");
        let mut figures = Figures::at(path, dir.path().into()).unwrap();
        for minute in 1..=5 {
            let minute = Minute {
                run: 1,
                minute,
                server: "Redis 8.6.3".into(),
                operations: 1_000,
                settled: 2_000_000 + u64::from(minute),
                pair: [100, 0, 3_000 * minute, 0],
                ..Minute::default()
            };
            figures.add(Line::Minute(minute)).unwrap();
        }
        figures.add(Line::Stop(Stop::default())).unwrap();
        assert!(is_good(&figures));
        let refused = Some("a law".into());
        let stop = Stop {
            refused,
            ..Stop::default()
        };
        figures.add(Line::Stop(stop)).unwrap();
        assert!(!is_good(&figures));
        let text = table(&[figures]);
        for line in [
            "|  | Redis 8.6.3 |",
            "|---|---:|",
            "| Requests of the clients | 5,000 |",
            "| Stops, digests equal | 1 |",
            "| Stops by a broken law | 1 |",
            "| Memory with empty queues, first and last minute | 2,000,001, 2,000,005 |",
            "| Growth from the first three minutes of a process to its last | 2 |",
            "| the same: p99.9 | 6.0, 12.0 |",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
