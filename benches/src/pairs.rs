//! Acquire and release of a lock that nobody else wants, beside the other ways to do it in the same
//! server: alone, with an append-only file, with a replica, and where effects are handed to replication
//! although nobody hears them.

use std::io;

use crate::load::{step, Effort, Step};
use crate::points::{columns, cpu_us, per_s, Point, Points, Work, PIPELINES};
use crate::report::Section;
use crate::scripts::Scripts;
use crate::server::{cores, Server};

/// The other core, where there is one: the load's.
const OTHER_CPU: &str = "1";

const SET_DEL: &str = "SET NX PX, DEL";
const SCRIPTS: &str = "two scripts, EVALSHA";
const THREE: &str = "Redisson's three commands, EVALSHA";

struct Setting {
    name: &'static str,
    text: &'static str,
    options: &'static [&'static str],
    before: &'static [&'static str],
    replica: bool,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "nobody can hear",
        text: "No AOF, no replica now or before, no subscriber to key events: the module need not tell anybody \
               what it does.",
        options: &[],
        before: &[],
        replica: false,
    },
    Setting {
        name: "effects handed to replication",
        text: "The server has been a replica once: from then on every effect of the module goes to replication, \
               heard or not.",
        options: &[],
        before: &["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
        replica: false,
    },
    Setting {
        name: "append-only file",
        text: "`appendonly yes`, `appendfsync everysec`.",
        options: &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"],
        before: &[],
        replica: false,
    },
    Setting {
        name: "one replica",
        text: "A replica without the module, on the load's core.",
        options: &["--repl-diskless-sync-delay", "0"],
        before: &[],
        replica: true,
    },
];

/// One bar of a plot.
pub struct Bar {
    /// What was measured.
    pub name: String,
    /// How much of it.
    pub value: f64,
}

/// What a pair costs in one setting, at the larger pipeline.
pub struct Costs {
    /// The setting.
    pub setting: &'static str,
    /// Microseconds of the server's main thread.
    pub cpu_us: Vec<Bar>,
    /// Pairs per second.
    pub per_s: Vec<Bar>,
}

/// Measures all settings; a section and a plot's data for each.
pub fn measure(effort: &Effort) -> io::Result<(Vec<Section>, Vec<Costs>)> {
    let mut all: Vec<Points> = SETTINGS.iter().map(|_| Points::default()).collect();
    for round in 0..effort.rounds {
        for (setting, points) in SETTINGS.iter().zip(&mut all) {
            println!("pairs, round {}: {}", round + 1, setting.name);
            let (server, _replica) = setting.start()?;
            points.measure(&server, &works(&server)?, round, effort)?;
        }
    }
    let both = || SETTINGS.iter().zip(&all);
    let sections = both().map(|(setting, points)| setting.section(points));
    let mut sections: Vec<Section> = sections.collect::<io::Result<_>>()?;
    sections[0].notes.extend(explanations());
    Ok((
        sections,
        both()
            .map(|(setting, points)| setting.costs(points))
            .collect(),
    ))
}

/// The ways to take and give a lock.
fn works(server: &Server) -> io::Result<Vec<Work>> {
    let scripts = Scripts::load(server)?;
    let work = |name, steps| Work {
        name,
        prepare: Vec::new(),
        steps,
    };
    Ok(vec![
        work("LOCK.ACQUIRE, LOCK.RELEASE", module_pair()),
        work(SET_DEL, set_del()),
        work(SCRIPTS, scripts.pair()),
        work("two scripts, EVAL", Scripts::pair_by_text()),
        work(THREE, scripts.redisson()),
    ])
}

fn module_pair() -> Vec<Step> {
    vec![
        step(&["LOCK.ACQUIRE", "{k}", "{o}", "PX", "30000"], ":"),
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
        let mut conn = server.conn()?;
        for words in self.before {
            conn.ask(words)?;
        }
        let replica = self.replica.then(|| replica_of(&server)).transpose()?;
        Ok((server, replica))
    }

    fn section(&self, points: &Points) -> io::Result<Section> {
        let more = [
            "pairs/s : SET+DEL",
            "µs : SET+DEL",
            "pairs/s : EVALSHA",
            "µs : EVALSHA",
        ];
        Ok(Section {
            title: format!("Acquire and release, uncontended: {}", self.name),
            text: self.text.into(),
            columns: columns("a pair by", "pair", &more),
            rows: points
                .iter()
                .map(|point| row(points, point))
                .collect::<io::Result<_>>()?,
            notes: vec![points.busy()],
            image: None,
        })
    }

    fn costs(&self, points: &Points) -> Costs {
        let bars = |figure| {
            let points = points.iter().filter(|point| point.pipeline == PIPELINES[1]);
            let bar = |point: &Point| Bar {
                name: point.name.clone(),
                value: point.summary(figure).median,
            };
            points.map(bar).collect()
        };
        Costs {
            setting: self.name,
            cpu_us: bars(cpu_us),
            per_s: bars(per_s),
        }
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

/// Below the first table, for all.
fn explanations() -> [String; 3] {
    [
        format!(
            "{SET_DEL} promises less than the others: nobody checks the owner at the release, there is no \
             re-entry, no queue and no fencing token."
        ),
        "The scripts are our own and make the calls of Redisson's `RLock`: a hash, owner-checked, re-entrant, \
         a message at the release, no queue, no token. Since 3.24 Redisson sends three commands: the release \
         also keeps its answer under a key, which the third command deletes."
            .into(),
        "± is half the distance between the smallest and the largest round, in percent of the median. A ratio \
         is the median of the rounds' ratios: of pairs/s more is better, of µs less."
            .into(),
    ]
}

/// A server without the module that follows this one, once it does.
fn replica_of(server: &Server) -> io::Result<Server> {
    let pin = ["taskset", "-c", OTHER_CPU];
    let replica = Server::start(if cores() > 1 { &pin } else { &[] }, &[], false)?;
    let follow = format!("REPLICAOF 127.0.0.1 {}", server.port);
    replica.conn()?.ask(&follow)?;
    let mut conn = server.conn()?;
    for _ in 0..100 {
        conn.ask("SET written-for-the-replica 1")?;
        if conn.ask("WAIT 1 100")?.starts_with(":1") {
            return Ok(replica);
        }
    }
    Err(io::Error::other("the replica does not follow"))
}
