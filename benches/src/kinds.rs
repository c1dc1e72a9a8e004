//! Acquire and release of the other kinds of hold, uncontended: readers, writers and many locks at once, beside
//! Redisson's own scripts for the same.

use std::io;

use crate::load::{step, Effort, Step};
use crate::points::{columns, cpu_us, per_s, Point, Points, Work};
use crate::report::Section;
use crate::scripts::{load_all, multi_pair, read_pair, read_take, write_pair};
use crate::server::Server;

/// Locks of one LOCK.MACQUIRE.
const KEYS: usize = 10;

/// A kind of hold: its name with the module's commands, and with Redisson's.
type Names = [&'static str; 2];

const READ: Names = [
    "READ: LOCK.ACQUIRE, LOCK.RELEASE",
    "READ: Redisson's three commands, EVALSHA",
];
const SECOND: Names = [
    "READ beside a reader: LOCK.ACQUIRE, LOCK.RELEASE",
    "READ beside a reader: Redisson's three commands, EVALSHA",
];
const WRITE: Names = [
    "WRITE: LOCK.ACQUIRE, LOCK.RELEASE",
    "WRITE: Redisson's three commands, EVALSHA",
];
const MANY: Names = [
    "10 locks: LOCK.MACQUIRE, LOCK.MRELEASE",
    "10 locks: Redisson's thirty commands, EVALSHA",
];

/// The title of the section.
pub const TITLE: &str = "Readers, writers and many locks, uncontended";

/// Measures them all.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let mut points = Points::default();
    for round in 0..effort.rounds {
        println!("readers, writers, many locks: round {}", round + 1);
        let server = Server::pinned(&[], true)?;
        load_all(&server)?;
        points.measure(&server, &works(), round, effort)?;
    }
    let rows = points.iter().map(|point| row(&points, point));
    Ok(vec![Section {
        title: TITLE.into(),
        text: "No AOF, and never a replica. Redisson's scripts are its own, by their SHA1.".into(),
        columns: columns("a pair by", "pair", &["pairs/s : EVALSHA", "µs : EVALSHA"]),
        rows: rows.collect::<io::Result<_>>()?,
        remarks: vec![points.busy()],
        notes: NOTES.map(String::from).to_vec(),
        image: None,
    }])
}

const NOTES: [&str; 2] = [
    "Redisson's pair is a lock, an unlock and the removal of the unlock's answer, for each lock. Its `MultiLock` sends \
     these for each of ten locks; at pipeline 1 one command after the other. It has no fencing tokens, and the locks \
     are taken one by one. LOCK.MACQUIRE takes all or none.",
    "Beside a reader: another owner holds the lock for reading all the time.",
];

fn works() -> Vec<Work> {
    let of = |names: Names, own: Vec<Step>, theirs: Vec<Step>, readers: Option<[Step; 2]>| {
        let [reader, by_script] =
            readers.map_or_else(Default::default, |all| all.map(|it| vec![it]));
        let work = |name, prepare, steps| Work {
            name,
            prepare,
            steps,
        };
        [
            work(names[0], reader, own),
            work(names[1], by_script, theirs),
        ]
    };
    let readers = [take("READ").of_other(), read_take().of_other()];
    let all = [
        of(READ, pair("READ"), read_pair(":1"), None),
        of(SECOND, pair("READ"), read_pair(":0"), Some(readers)),
        of(WRITE, pair("WRITE"), write_pair(), None),
        of(MANY, many(), multi_pair(KEYS), None),
    ];
    all.into_iter().flatten().collect()
}

fn pair(kind: &str) -> Vec<Step> {
    vec![take(kind), step(&["LOCK.RELEASE", "{k}", "{o}"], ":1")]
}

fn take(kind: &str) -> Step {
    step(&["LOCK.ACQUIRE", "{k}", "{o}", kind, "PX", "30000"], ":")
}

fn many() -> Vec<Step> {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{{k}}:{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let number = &*KEYS.to_string();
    let take = [
        &["LOCK.MACQUIRE", number],
        &keys[..],
        &["{o}", "PX", "30000"],
    ];
    let give = [&["LOCK.MRELEASE", number], &keys[..], &["{o}"]];
    vec![step(&take.concat(), "*10"), step(&give.concat(), ":10")]
}

/// A point beside Redisson's commands for the same kind of hold.
fn row(points: &Points, point: &Point) -> io::Result<Vec<String>> {
    let kinds = [READ, SECOND, WRITE, MANY];
    let names = kinds.iter().find(|names| names.contains(&&*point.name));
    let [_, theirs] = names.ok_or_else(|| io::Error::other(point.name.clone()))?;
    let base = points.get(theirs, point.pipeline)?;
    let mut row = point.cells();
    row.push(format!("{:.2}", point.ratio(base, per_s)));
    row.push(format!("{:.2}", point.ratio(base, cpu_us)));
    Ok(row)
}
