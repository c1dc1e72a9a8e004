//! The figures of all servers, into docs/RELIABILITY.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::check::Figures;
use super::judge::{Class, Counts};
use super::SETTINGS;
use crate::report::put;

/// The directory of the figures.
const DIR: &str = "target/power";

const BEGIN: &str = "<!-- figures of power losses -->";
const END: &str = "<!-- end of the figures of power losses -->";

/// The columns of the table of kinds.
const KINDS: [(Class, &str); 6] = [
    (Class::Lock, "Exclusive"),
    (Class::ReadWrite, "`READ`, `WRITE`"),
    (Class::Permit, "Permits"),
    (Class::Bound, "`SESSION`"),
    (Class::Several, "`LOCK.MACQUIRE`"),
    (Class::Ticket, "`NOTIFY`"),
];

/// The figures of each setting on each server.
type All = BTreeMap<String, BTreeMap<String, Figures>>;

/// Adds the figures of a setting on a server to those of earlier runs, in a file of their own.
pub fn keep(name: &str, figures: &Figures) {
    let directory = Path::new(DIR);
    fs::create_dir_all(directory).expect("a directory");
    let path = directory.join(format!("{} {name}.json", figures.server));
    let mut sum = figures.clone();
    if let Ok(text) = fs::read_to_string(&path) {
        sum.add(serde_json::from_str(&text).expect("figures"));
    }
    let text = serde_json::to_string(&sum).expect("JSON");
    fs::write(path, text).expect("a file");
}

fn load() -> All {
    let mut all = All::new();
    for entry in fs::read_dir(DIR).expect("figures").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a file");
        let figures: Figures = serde_json::from_str(&text).expect("figures");
        let name = entry.file_name().to_string_lossy().into_owned();
        let setting = name
            .strip_suffix(".json")
            .and_then(|n| n.rsplit(' ').next());
        let of_setting = all.entry(setting.unwrap_or_default().into()).or_default();
        of_setting.insert(figures.server.clone(), figures);
    }
    all
}

/// The figures of one setting in a line.
pub fn line(name: &str, figures: &Figures) -> String {
    let f = figures;
    let all = f.all();
    let kinds = f.kinds.iter().map(|(class, c)| {
        format!(
            "{class:?} {} grants, {} owed, lost {} + {} + {}",
            c.grants, c.owed, c.lost_grants, c.lost_releases, c.lost_renewals
        )
    });
    let kinds: Vec<String> = kinds.collect();
    format!(
        "{name} on {}: {} losses of power ({} rewrites, {} + {} clocks set back), {} grants, lost {} grants, {} releases, \
         {} renewals, ms {}, {} bytes; {} unknown; {} of {} asked again early; {} tokens fell as expected; {} refused \
         starts, {} holes, {} broken keys; {} violations; {}",
        f.server,
        f.rounds,
        f.rewrites,
        f.half_hours_back,
        f.months_back,
        all.grants,
        all.lost_grants,
        all.lost_releases,
        all.lost_renewals,
        times(f),
        f.bytes_lost,
        f.unknown,
        f.two_holders,
        f.asked_again,
        f.expected_falls,
        f.refused_starts,
        f.holes,
        f.broken,
        f.violations.len(),
        kinds.join("; ")
    )
}

/// Median, 99th percentile and maximum of the time that is lost, in whole milliseconds.
fn times(figures: &Figures) -> String {
    let mut times = figures.lost_ms.clone();
    times.sort_by(f64::total_cmp);
    let Some(last) = times.len().checked_sub(1) else {
        return "-".into();
    };
    let at = |part: f64| times[(last as f64 * part).round() as usize];
    format!("{:.0} / {:.0} / {:.0}", at(0.5), at(0.99), at(1.0))
}

fn table(all: &All) -> String {
    let mut text = String::from(
        "| Setting | Server | Losses of power | Clock a month back | Grants answered | Grants lost | Releases, renewals \
         lost | Permits: grants, releases lost | Lost, ms: median / 99 % / most | Two holders, of holds asked for again | \
         Tokens that fell, outside the premise | Refused starts, holes | Violations |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for setting in &SETTINGS {
        for f in all.get(setting.name).into_iter().flat_map(BTreeMap::values) {
            let sum = f.all();
            let permits = f.kinds.get(&Class::Permit).copied().unwrap_or_default();
            let lost = match f.asked_again {
                0 => [
                    sum.lost_grants.to_string(),
                    format!("{}, {}", sum.lost_releases, sum.lost_renewals),
                    format!("{}, {}", permits.lost_grants, permits.lost_releases),
                    times(f),
                    String::new(),
                ],
                asked => {
                    let two = format!("{} of {asked}", f.two_holders);
                    [
                        String::new(),
                        String::new(),
                        String::new(),
                        String::new(),
                        two,
                    ]
                }
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {}, {} | {} |",
                setting.about,
                f.server,
                f.rounds,
                f.months_back,
                sum.grants,
                lost.join(" | "),
                f.expected_falls,
                f.refused_starts,
                f.holes,
                f.violations.len()
            );
        }
    }
    text
}

/// The same by the kinds of holds, for all servers together.
fn kinds(all: &All) -> String {
    let names: Vec<&str> = KINDS.iter().map(|(_, name)| *name).collect();
    let mut text = format!(
        "| Setting | {} | Grants unknown to their owners |\n|---|{}---:|\n",
        names.join(" | "),
        "---:|".repeat(KINDS.len())
    );
    for setting in &SETTINGS {
        let figures = || all.get(setting.name).into_iter().flat_map(BTreeMap::values);
        let of = |class| {
            let mut sum = Counts::default();
            let those = figures().filter_map(|f| f.kinds.get(&class));
            those.for_each(|counts| sum.add(counts));
            sum
        };
        let has_kinds = figures().any(|f| f.kinds.len() > 1);
        if has_kinds {
            let cells = KINDS.iter().map(|(class, _)| {
                let c = of(*class);
                let (held, left) = (c.owed, c.releases);
                format!("{} of {held}, {} of {left}", c.lost_grants, c.lost_releases)
            });
            let cells: Vec<String> = cells.collect();
            let unknown: u64 = figures().map(|f| f.unknown).sum();
            let _ = writeln!(
                text,
                "| {} | {} | {unknown} |",
                setting.about,
                cells.join(" | ")
            );
        }
    }
    text
}

/// Writes the table into docs/RELIABILITY.md; false if there was a violation.
pub fn save() -> bool {
    let all = load();
    let tables = format!(
        "\n{}\nLost of the grants whose holds had to be in the data, and of the releases, on all servers together:\n\n{}\n",
        table(&all),
        kinds(&all)
    );
    put((BEGIN, END), &tables).expect("the document");
    let mut figures = all.values().flat_map(BTreeMap::values);
    figures.all(|figures| figures.violations.is_empty())
}
