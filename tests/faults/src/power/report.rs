//! The figures of all servers, into docs/RELIABILITY.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::check::Figures;
use super::SETTINGS;
use crate::report::put;

/// The directory of the figures.
const DIR: &str = "target/power";

const BEGIN: &str = "<!-- figures of power losses -->";
const END: &str = "<!-- end of the figures of power losses -->";

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
    format!(
        "{name} on {}: {} losses of power ({} rewrites, {} + {} clocks set back), {} grants, lost {} grants, {} releases, \
         {} renewals, ms {}, {} bytes; {} of {} asked again early; {} tokens fell as expected; {} refused starts; {} violations",
        f.server,
        f.rounds,
        f.rewrites,
        f.half_hours_back,
        f.months_back,
        f.grants,
        f.lost_grants,
        f.lost_releases,
        f.lost_renewals,
        times(f),
        f.bytes_lost,
        f.two_holders,
        f.asked_again,
        f.expected_falls,
        f.refused_starts,
        f.violations.len()
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

fn table() -> String {
    let all = load();
    let mut text = String::from(
        "| Setting | Server | Losses of power | Clock a month back | Grants replied | Grants lost | Releases, renewals \
         lost | Lost, ms: median / 99 % / most | Two holders, of holds asked for again | Tokens that fell, horizon lost | \
         Refused starts | Violations |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for setting in &SETTINGS {
        for f in all.get(setting.name).into_iter().flat_map(BTreeMap::values) {
            let (lost, times, again) = match f.asked_again {
                0 => (f.lost_grants.to_string(), times(f), String::new()),
                asked => (
                    String::new(),
                    String::new(),
                    format!("{} of {asked}", f.two_holders),
                ),
            };
            let changes = match f.asked_again {
                0 => format!("{}, {}", f.lost_releases, f.lost_renewals),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {lost} | {changes} | {times} | {again} | {} | {} | {} |",
                setting.about,
                f.server,
                f.rounds,
                f.months_back,
                f.grants,
                f.expected_falls,
                f.refused_starts,
                f.violations.len()
            );
        }
    }
    text
}

/// Writes the table into docs/RELIABILITY.md; false if there was a violation.
pub fn save() -> bool {
    put((BEGIN, END), &format!("\n{}\n", table())).expect("the document");
    let all = load();
    let mut figures = all.values().flat_map(BTreeMap::values);
    figures.all(|figures| figures.violations.is_empty())
}
