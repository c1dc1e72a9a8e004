//! Runs every kind of lock in every place, in parts, until each has its operations. The sums are in one file for each
//! server, which is committed: another machine continues where this one stopped.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis_lock_harness::{replace_file, TestServer};

use crate::one::version;
use crate::porcupine::Porcupine;
use crate::report::{put, thousands};
use crate::scenarios::matrix::{Kind, Place, KINDS, PLACES};
use crate::totals::Total;

/// The directory of the sums.
const DIR: &str = "tests/faults/figures";

/// A kind on a server is done with a million operations: in three places, with and without I/O threads.
const GOAL: u64 = 1_000_000 / 6 + 1;

/// The longest run: its history is in memory.
const ROUND: Duration = Duration::from_secs(8);

/// The sums on one server, by kind, place and setting.
type Sums = BTreeMap<String, Total>;

/// The setting of the servers of this process.
fn setting() -> &'static str {
    match (
        redis_lock_harness::has_io_threads(),
        redis_lock_harness::tls::is_on(),
    ) {
        (false, false) => "plain",
        (true, false) => "I/O threads",
        (false, true) => "TLS",
        (true, true) => "TLS and I/O threads",
    }
}

fn key(kind: &Kind, place: Place, setting: &str) -> String {
    format!("{}, {}, {setting}", kind.name, place.name())
}

/// Continues for this long, one run of each after the other, with the kinds of these names, or all.
///
/// # Errors
/// The file of the sums cannot be read or written.
pub fn run(length: Duration, only: &[String]) -> std::io::Result<bool> {
    let end = Instant::now() + length;
    let path = path(&version(&TestServer::start()));
    let mut sums = load(&path)?;
    let chosen = |kind: &&Kind| only.is_empty() || only.iter().any(|name| name == kind.name);
    loop {
        let mut is_done = true;
        for kind in KINDS.iter().filter(chosen) {
            for place in PLACES {
                let name = key(kind, place, setting());
                let mut sum = sums.get(&name).cloned().unwrap_or_default();
                let left = end.saturating_duration_since(Instant::now());
                if sum.operations >= GOAL || left < Duration::from_secs(2) {
                    continue;
                }
                is_done = false;
                sum.add(&round(kind, place, sum.runs + 1, ROUND.min(left)));
                sums.insert(name, sum);
                save(&path, &sums)?;
            }
        }
        if is_done {
            return Ok(is_good(&sums));
        }
    }
}

/// One run, whose result is printed.
fn round(kind: &Kind, place: Place, seed: u64, length: Duration) -> Total {
    // The name is that of a file, too.
    let name = key(kind, place, setting()).replace([' ', ',', '/'], "-");
    Total::of_run(
        &name,
        &kind.plan(),
        kind.nemesis(place),
        seed,
        length,
        &Porcupine::default(),
    )
}

fn is_good(sums: &Sums) -> bool {
    sums.values().all(|sum| sum.violations() == 0)
}

/// `Redis 8.6.1` has `redis-8.6.json`.
fn path(server: &str) -> PathBuf {
    let release = server
        .rsplit_once('.')
        .map_or(server, |(release, _)| release);
    let name = release.to_lowercase().replace(' ', "-");
    Path::new(DIR).join(format!("{name}.json"))
}

fn load(path: &Path) -> std::io::Result<Sums> {
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Sums::new()),
        Err(error) => Err(error),
    }
}

/// Writes the file, whole or not at all: one line for each sum, without the numbers that are zero.
fn save(path: &Path, sums: &Sums) -> std::io::Result<()> {
    std::fs::create_dir_all(DIR)?;
    let lines: Result<Vec<_>, serde_json::Error> = sums
        .iter()
        .map(|(name, sum)| {
            let mut sum = serde_json::to_value(sum)?;
            if let Some(fields) = sum.as_object_mut() {
                let zero = serde_json::to_value(Total::default())?;
                fields.retain(|name, value| zero.get(name) != Some(value) && name != "seeds");
            }
            Ok(format!("{}: {sum}", serde_json::to_value(name)?))
        })
        .collect();
    replace_file(path, format!("{{\n{}\n}}\n", lines?.join(",\n")).as_bytes())
}

/// Writes the table of all servers into docs/RELIABILITY.md.
///
/// # Errors
/// A file of sums, or the page, cannot be read or written.
pub fn report() -> std::io::Result<bool> {
    let mut servers = BTreeMap::new();
    for file in std::fs::read_dir(DIR)? {
        let path = file?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let sums = load(&path)?;
            let server = sums.values().flat_map(|sum| sum.versions.last()).max();
            servers.insert(server.cloned().unwrap_or_default(), sums);
        }
    }
    let table = table(&servers);
    print!("{table}");
    put(("<!-- kinds -->", "<!-- end of kinds -->"), &table)?;
    Ok(servers.values().all(is_good))
}

fn table(servers: &BTreeMap<String, Sums>) -> String {
    let mut text = String::from(
        "\n| Kind | Server | Operations | one server | replica | cluster | with I/O threads | over TLS | Grants \
         | Order compared | kill -9 | Fail-overs | Slots moved | Overlaps, expected | Violations | Last run |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let mut all = Total::default();
    for kind in &KINDS {
        for (server, sums) in servers {
            let of = |what: &str| sum_of(sums, &[kind.name, what]);
            let total = of("");
            if total.runs == 0 {
                continue;
            }
            let places = PLACES.map(|place| thousands(of(place.name()).operations));
            let settings = ["I/O threads", "TLS"].map(|setting| thousands(of(setting).operations));
            let head = format!("{} | {server}", kind.name);
            text += &row(&head, &total, &places.join(" | "), &settings.join(" | "));
            all.add(&total);
        }
    }
    text + &row("**all** | ", &all, " |  | ", " | ")
}

fn row(head: &str, total: &Total, places: &str, settings: &str) -> String {
    let [crashes, failovers, moves] = [
        &["crashes", "crashes with promotion"][..],
        &["failovers", "promotions", "crashes with promotion"],
        &["moves"],
    ]
    .map(|faults| faults.iter().map(|fault| total.count(fault)).sum::<u64>());
    let mut row = String::new();
    let _ = writeln!(
        row,
        "| {head} | {} | {places} | {settings} | {} | {} | {} | {} | {} | {} | {} | {} |",
        thousands(total.operations),
        thousands(total.grants),
        thousands(total.ordered),
        thousands(crashes),
        thousands(failovers),
        thousands(moves),
        thousands(total.overlaps),
        total.violations(),
        total.date,
    );
    row
}

/// The sum over all entries whose name has these words.
fn sum_of(sums: &Sums, words: &[&str]) -> Total {
    let mut sum = Total::default();
    for (name, one) in sums {
        let parts: Vec<&str> = name.split(", ").collect();
        if words
            .iter()
            .all(|word| word.is_empty() || parts.contains(word))
        {
            sum.add(one);
        }
    }
    sum
}
