//! Writes the figures of the long runs, as a table, into docs/RELIABILITY.md.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crate::scenarios::all;
use crate::totals::{Total, Totals};

const PAGE: &str = "docs/RELIABILITY.md";
const BEGIN: &str = "<!-- figures -->";
const END: &str = "<!-- end of figures -->";

/// The width of the page.
const COLUMNS: usize = 120;

/// Writes the figures into the page.
pub fn save(totals: &Totals) -> std::io::Result<()> {
    put((BEGIN, END), &figures(totals))
}

/// Replaces the figures between two marks of the page; a page without them gets them at its end.
pub fn put(marks: (&str, &str), figures: &str) -> std::io::Result<()> {
    let page = match std::fs::read_to_string(PAGE) {
        Ok(page) => page,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    std::fs::write(Path::new(PAGE), with_figures(&page, marks, figures))
}

fn with_figures(page: &str, (begin, end): (&str, &str), figures: &str) -> String {
    let split = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = split.unwrap_or((page, "\n"));
    format!("{before}{begin}\n{figures}{end}{after}")
}

/// The figures as Markdown.
pub fn figures(totals: &Totals) -> String {
    let sum = totals.sum();
    let mut text = String::new();
    let _ = writeln!(text, "\n{}\n", wrapped(&format!("{}.", headline(&sum))));
    text += "| Scenario | What happens | Faults | Runs | Operations | Grants | Order compared | Overlaps, expected | \
             Violations | Updates lost, tokens unchecked | checked | Refused writes | Minutes | Servers | Last run |\n\
             |---|---|---|---:|---:|---:|---:|---|---|---:|---:|---:|---:|---|---|\n";
    let scenarios = all();
    for (name, total) in &totals.0 {
        let about = scenarios.iter().find(|scenario| scenario.name == name);
        let about = about.map_or("", |scenario| scenario.about);
        text += &row(name, about, total);
    }
    let last = format!(
        "Last run {}, on {}; `make faults-long` (one scenario: `lock-faults long --part NAME`). Seeds: {}.",
        sum.date,
        list(&sum.versions),
        ranges(sum.seeds.iter().copied()),
    );
    let _ = writeln!(text, "\n{}\n", wrapped(&last));
    text
}

/// Wraps the text at `COLUMNS`.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                let _ = write!(line, " {word}");
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}

fn headline(sum: &Total) -> String {
    format!(
        "{} operations in {} grants, {}: {} violations",
        thousands(sum.operations),
        thousands(sum.grants),
        sum.faults(),
        sum.violations(),
    )
}

/// Their number, and why they were expected.
fn overlaps(total: &Total) -> String {
    match total.overlaps {
        0 => "0".into(),
        number => format!("{} ({})", thousands(number), list(&total.excuses)),
    }
}

fn violations(total: &Total) -> String {
    match total.violations() {
        0 => "0".into(),
        number => format!(
            "**{number}**: {} refused histories, {} FIFO breaks, {} silent waiters, {} late sessions, {} bad tickets, \
             {} dead servers or wrong counters",
            total.refused,
            total.fifo_breaks,
            total.silent,
            total.late_sessions,
            total.bad_tickets,
            total.broken,
        ),
    }
}

fn row(name: &str, about: &str, total: &Total) -> String {
    format!(
        "| `{name}` | {about} | {}{} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {} | {} |\n",
        total.faults(),
        total.tickets(),
        total.runs,
        thousands(total.operations),
        thousands(total.grants),
        thousands(total.ordered),
        overlaps(total),
        violations(total),
        total.updates.lost_unchecked,
        total.updates.lost_checked,
        total.updates.refused,
        total.seconds / 60.0,
        list(&total.versions),
        total.date,
    )
}

fn list(words: &BTreeSet<String>) -> String {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    words.join(", ")
}

/// 1234567 as 1,234,567.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// 1, 2, 3, 7 as 1-3, 7.
fn ranges(numbers: impl Iterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let texts = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_replace_figures() {
        let page = with_figures("# Title\n", (BEGIN, END), "one\n");
        assert_eq!(page, format!("# Title\n{BEGIN}\none\n{END}\n"));
        let page = with_figures(&format!("{page}more\n"), (BEGIN, END), "two\n");
        assert_eq!(page, format!("# Title\n{BEGIN}\ntwo\n{END}\nmore\n"));
    }

    #[test]
    fn long_lines_are_wrapped() {
        let words = ["word"; 30].join(" ");
        let text = wrapped(&words);
        let lines: Vec<_> = text.lines().map(str::len).collect();
        assert_eq!(lines, [119, 29]);
    }

    #[test]
    fn numbers_are_read_easily() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(12), "12");
        assert_eq!(ranges([1, 2, 3, 7].into_iter()), "1-3, 7");
    }
}
