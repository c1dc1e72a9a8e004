//! Acquire and release of an uncontended lock, beside the other ways to lock in the same server: alone, with an
//! append-only file, with a replica, and where effects are passed to replication although no replica reads them.

use std::io;

use crate::load::{step, Effort, Step};
use crate::pictures::PAIR_COST;
use crate::points::{columns, cpu_us, per_s, Point, Points, Work};
use crate::report::Section;
use crate::scripts::Scripts;
use crate::server::Server;

const MODULE: &str = "LOCK.ACQUIRE, LOCK.RELEASE";
const SET_DEL: &str = "SET NX PX, DEL";
const SCRIPTS: &str = "two scripts, EVALSHA";
const TEXTS: &str = "two scripts, EVAL";
const THREE: &str = "Redisson's three commands, EVALSHA";

/// The receivers of the effects, beside an AOF.
#[derive(PartialEq)]
enum Replica {
    Never,
    /// There was a replica: the server keeps a backlog for it.
    Gone,
    Here,
}

struct Setting {
    title: &'static str,
    text: &'static str,
    options: &'static [&'static str],
    replica: Replica,
}

const SETTINGS: &[Setting] = &[
    Setting {
        title: "Acquire and release, uncontended: no replication",
        text: "No AOF, and never a replica. The channel has no subscriber; the release message is \
        published all the same.",
        options: &[],
        replica: Replica::Never,
    },
    Setting {
        title: "Acquire and release, uncontended: a replica that went away",
        text: "The server keeps a replication backlog for it, so all effects go to replication.",
        options: &["--repl-diskless-sync-delay", "0"],
        replica: Replica::Gone,
    },
    Setting {
        title: "Acquire and release, uncontended: append-only file",
        text: "`appendonly yes`, `appendfsync everysec`.",
        options: &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"],
        replica: Replica::Never,
    },
    Setting {
        title: "Acquire and release, uncontended: one replica",
        text: "A replica without the module, on the load's core.",
        options: &["--repl-diskless-sync-delay", "0"],
        replica: Replica::Here,
    },
];

/// The titles of the sections.
pub const TITLES: [&str; SETTINGS.len()] = {
    let mut titles = [""; SETTINGS.len()];
    let mut at = 0;
    while at < SETTINGS.len() {
        titles[at] = SETTINGS[at].title;
        at += 1;
    }
    titles
};

/// Measures all settings; a section for each.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let mut all: Vec<Points> = SETTINGS.iter().map(|_| Points::default()).collect();
    for round in 0..effort.rounds {
        for (setting, points) in SETTINGS.iter().zip(&mut all) {
            println!("round {}: {}", round + 1, setting.title);
            let (server, _replica) = setting.start()?;
            points.measure(&server, &works(&server)?, round, effort)?;
        }
    }
    let sections = SETTINGS.iter().zip(&all);
    let sections = sections.map(|(setting, points)| setting.section(points));
    let mut sections: Vec<Section> = sections.collect::<io::Result<_>>()?;
    sections[0].notes.extend(explanations());
    sections[0].image = (!effort.quick).then(|| format!("../../docs/{PAIR_COST}"));
    Ok(sections)
}

/// The ways to acquire and release a lock.
fn works(server: &Server) -> io::Result<Vec<Work>> {
    let scripts = Scripts::load(server)?;
    let work = |name, steps| Work {
        name,
        prepare: Vec::new(),
        steps,
    };
    Ok(vec![
        work(MODULE, module_pair(&["PX", "30000"])),
        work("the same, the default lease", module_pair(&[])),
        work(SET_DEL, set_del()),
        work(SCRIPTS, scripts.pair()),
        work(TEXTS, Scripts::pair_by_text()),
        work(THREE, scripts.redisson()),
    ])
}

fn module_pair(lease: &[&str]) -> Vec<Step> {
    vec![
        step(&[&["LOCK.ACQUIRE", "{k}", "{o}"], lease].concat(), ":"),
        step(&["LOCK.RELEASE", "{k}", "{o}"], ":1"),
    ]
}

fn set_del() -> Vec<Step> {
    vec![
        step(&["SET", "{k}", "{o}", "NX", "PX", "30000"], "+OK"),
        step(&["DEL", "{k}"], ":1"),
    ]
}

impl Setting {
    /// The server, and its replica.
    fn start(&self) -> io::Result<(Server, Option<Server>)> {
        let server = Server::pinned(self.options, true)?;
        let replica = match self.replica {
            Replica::Never => None,
            Replica::Gone | Replica::Here => Some(server.replica()?),
        };
        Ok((server, replica.filter(|_| self.replica == Replica::Here)))
    }

    fn section(&self, points: &Points) -> io::Result<Section> {
        let more = [
            "pairs/s : SET+DEL",
            "µs : SET+DEL",
            "pairs/s : EVALSHA",
            "µs : EVALSHA",
        ];
        Ok(Section {
            title: self.title.into(),
            text: self.text.into(),
            columns: columns("a pair by", "pair", &more),
            rows: points
                .iter()
                .map(|point| row(points, point))
                .collect::<io::Result<_>>()?,
            remarks: vec![points.busy()],
            notes: Vec::new(),
            image: None,
        })
    }
}

fn row(points: &Points, point: &Point) -> io::Result<Vec<String>> {
    let mut row = point.cells();
    for base in [SET_DEL, SCRIPTS] {
        let base = points.get(base, point.pipeline)?;
        row.push(format!("{:.2}", point.ratio(base, per_s)));
        row.push(format!("{:.2}", point.ratio(base, cpu_us)));
    }
    Ok(row)
}

/// Notes below the first table, for all of them.
fn explanations() -> [String; 3] {
    [
        format!(
            "{SET_DEL} promises less than the others: no owner check at the release, no re-entry, no \
             queue and no fencing token."
        ),
        "The scripts are this project's and make the calls of Redisson's `RLock`: a hash, owner-checked, re-entrant, \
         a message at the release, no queue, no token. Since 3.24 Redisson sends three commands: the release \
         also keeps its answer under a key, which the third command deletes."
            .into(),
        "± is half the distance between the smallest and the largest round, in percent of the median. A ratio \
         is the median of the rounds' ratios: of pairs/s more is better, of µs less."
            .into(),
    ]
}
