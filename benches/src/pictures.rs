//! The pictures below `docs/`, drawn from the tables of the report: after every run, and separately by `lock-bench
//! pictures`, so that a picture and its table never differ.

use std::io;
use std::path::Path;

use crate::bench::REPORT;
use crate::plots::{self, Bar, Group, Line, Point};
use crate::{dashboard, report, timeline};

/// The picture's file, which the report names.
pub const PAIR_COST: &str = "pair-cost.svg";
/// The same for the hand-offs.
pub const HAND_OFF: &str = "handoff.svg";

const PAIRS: &str = "Acquire and release, uncontended: ";
/// The pipeline whose rows become bars: there the server's own work has the largest share.
const PIPELINE: &str = "16";
const SET_DEL: &str = "SET NX PX, DEL";
const MODULE: &str = "LOCK.ACQUIRE, LOCK.RELEASE";

/// A group of bars: its caption, the end of its section's title, and the rows of the section that it shows. A figure is
/// compared with those of its own group, which were measured in the same setting.
const GROUPS: [(&str, &str, &[&str]); 3] = [
    (
        "no AOF, no replica",
        "no replication",
        &[
            SET_DEL,
            MODULE,
            "two scripts, EVALSHA",
            "two scripts, EVAL",
            "Redisson's three commands, EVALSHA",
        ],
    ),
    (
        "a replication backlog to fill",
        "a replica that went away",
        &[SET_DEL, MODULE, "two scripts, EVALSHA"],
    ),
    (
        "AOF, everysec",
        "append-only file",
        &[SET_DEL, MODULE, "two scripts, EVALSHA"],
    ),
];

/// Draws both into the directory of the report, those of the long runs, and that of the dashboard.
pub fn draw() -> io::Result<()> {
    let docs = report::project().join("docs");
    draw_into(&tables()?, &docs)?;
    timeline::draw(&report::project().join("tests/faults/figures"), &docs)?;
    dashboard::draw(&report::project().join("tests/ops/figures.json"), &docs)
}

fn tables() -> io::Result<String> {
    std::fs::read_to_string(report::project().join(REPORT))
}

fn draw_into(report: &str, docs: &Path) -> io::Result<()> {
    let groups = GROUPS.map(|(caption, setting, names)| Group {
        caption: caption.into(),
        bars: bars(&rows(report, &format!("{PAIRS}{setting}")), names),
    });
    let subtitle = "µs of the server's thread, pipeline 16, 50 connections";
    plots::pair_cost(&docs.join(PAIR_COST), &groups, subtitle)?;
    plots::hand_offs(&docs.join(HAND_OFF), &lines(&rows(report, "Hand-off")))
}

/// The rows of a section's first table, which is that of the first server; none if there is no such section.
fn rows(report: &str, title: &str) -> Vec<Vec<String>> {
    let sections = report.split("\n## ");
    let section = sections.filter_map(|section| section.split_once('\n'));
    let body = section
        .filter(|(name, _)| *name == title)
        .map(|(_, body)| body);
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_string())
            .collect()
    };
    let is_row = |line: &&str| line.starts_with('|');
    let lines = body.flat_map(str::lines).skip_while(|line| !is_row(line));
    lines.take_while(is_row).skip(2).map(cells).collect()
}

/// The names that the table has.
fn bars(rows: &[Vec<String>], names: &[&str]) -> Vec<Bar> {
    let row = |name: &str| rows.iter().find(|row| row[0] == name && row[1] == PIPELINE);
    let bar = |name: &&str| {
        Some(Bar {
            name: shown(name).into(),
            value: number(&row(name)?[4])?,
        })
    };
    names.iter().filter_map(bar).collect()
}

/// The label of a bar: names of rows are too long.
fn shown(name: &str) -> &str {
    match name {
        MODULE => plots::OURS,
        "Redisson's three commands, EVALSHA" => "Redisson's three, EVALSHA",
        name => name,
    }
}

/// A line for every peer, the module's first.
fn lines(rows: &[Vec<String>]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some((waiters, name)) = row[0].split_once(' ') else {
            continue;
        };
        let (Some(waiters), Some(time_us), Some(messages)) =
            (number(waiters), number(&row[1]), number(&row[5]))
        else {
            continue;
        };
        let point = Point {
            waiters,
            time_us,
            messages,
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: name.into(),
                points: vec![point],
            }),
        }
    }
    lines.sort_by_key(|line| line.name != plots::OURS);
    lines
}

/// `1,234` or `58.5 (58.2..59.0)`: the number before the range.
fn number(cell: &str) -> Option<f64> {
    let first = cell.split(' ').next()?;
    first.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pictures_are_those_of_the_report() -> io::Result<()> {
        let docs = report::project().join("docs");
        let dir = tempfile::tempdir()?;
        draw_into(&tables()?, dir.path())?;
        for name in [PAIR_COST, HAND_OFF] {
            let drawn = std::fs::read_to_string(dir.path().join(name))?;
            let shown = std::fs::read_to_string(docs.join(name))?;
            assert!(drawn == shown, "{name}: lock-bench pictures draws it anew");
        }
        Ok(())
    }

    /// A setting with fewer writes to disk costs less: no bar is next to one of another setting.
    #[test]
    fn every_bar_of_ours_has_one_of_set_and_del_in_its_group() {
        for (caption, _, names) in GROUPS {
            assert!(
                names.contains(&SET_DEL) && names.contains(&MODULE),
                "{caption}"
            );
        }
    }

    #[test]
    fn tables_are_read_as_they_are_written() {
        let report = "# x\n\n## Hand-off\n\nwords\n\n\
                      | a | b |\n|---|---:|\n| 1 BLPOP | 58.5 (58.2..59.0) | | | | 4.00 |\n\
                      | 1,000 this module | 1,234 | | | | 4.00 |\n\n| a |\n|---|\n| 5 of another server | 1 |\n\
                      \n## Hand-off, more\n\n| a |\n|---|\n| 9 x | 1 |\n";
        let lines = lines(&rows(report, "Hand-off"));
        let response: Vec<_> = lines
            .iter()
            .map(|line| {
                (
                    line.name.as_str(),
                    line.points[0].waiters,
                    line.points[0].time_us,
                )
            })
            .collect();
        assert_eq!(
            response,
            [("this module", 1_000.0, 1_234.0), ("BLPOP", 1.0, 58.5)]
        );
    }
}
