//! Locks as applications take them: libraries in Python and Node, one pair after the other on one connection, beside
//! the module's commands through the same clients.
//!
//! The libraries are installed on demand, in exact versions, below `target/bench-peers`; those that cannot be installed
//! are left out, with a note. A helper (`benches/peers`) acquires and releases the lock for a while; the server's cost
//! of a pair is counted here.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::load::Effort;
use crate::points::in_turn;
use crate::report::{project, Section};
use crate::server::Server;
use crate::stats::Summary;

/// Installing and measuring end by themselves after this many seconds.
const PATIENCE: &str = "180";

const REDIS_PY: &str = "redis==8.1.0";
const PACKAGE: &str = include_str!("../peers/node/package.json");
const LOCKS: &str = include_str!("../peers/node/locks.mjs");

#[derive(Clone, Copy, PartialEq)]
enum Language {
    Python,
    Node,
}

struct Library {
    name: &'static str,
    language: Language,
    /// The helper's name for it.
    way: &'static str,
    promises: &'static str,
}

const MODULE: &str = "owner checked, re-entry, fencing token, queue in the server";

const LIBRARIES: [Library; 5] = [
    Library {
        name: "redis-py 8.1.0, Lock",
        language: Language::Python,
        way: "lock",
        promises: "owner checked; no re-entry, no fencing token; waits by polling",
    },
    Library {
        name: "redis-py 8.1.0, LOCK.ACQUIRE and LOCK.RELEASE",
        language: Language::Python,
        way: "raw",
        promises: MODULE,
    },
    Library {
        name: "redlock 5.0.0-beta.2 on ioredis 6.0.0, one server",
        language: Language::Node,
        way: "redlock",
        promises: "owner checked; no re-entry, no fencing token; waits by polling",
    },
    Library {
        name: "redis-semaphore 5.8.0 on ioredis 6.0.0, Mutex",
        language: Language::Node,
        way: "semaphore",
        promises:
            "owner checked, renews by itself; no re-entry, no fencing token; waits by polling",
    },
    Library {
        name: "ioredis 6.0.0, LOCK.ACQUIRE and LOCK.RELEASE",
        language: Language::Node,
        way: "raw",
        promises: MODULE,
    },
];

/// The measurement of a pair in one round.
struct Pair {
    per_s: f64,
    cpu_us: f64,
    requests: f64,
    executed: String,
}

/// The title of the section.
pub const TITLE: &str = "Libraries, uncontended";

/// Measures the libraries that can be installed.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let notes = vec![
        "Pairs/s is the rate of one client, its own time included, which is most of it; compare \
         the server's time and the requests."
            .to_string(),
        "Between two requests of one client the server sleeps: waking up is most of its time here, and \
         a slower client makes it more expensive."
            .to_string(),
        "Executed: the server's own count, calls within scripts included.".to_string(),
    ];
    let mut remarks = Vec::new();
    let mut helpers: Vec<(&Library, PathBuf, PathBuf)> = Vec::new();
    for (language, install) in [
        (Language::Python, install_python as fn() -> io::Result<_>),
        (Language::Node, install_node),
    ] {
        match install() {
            Ok((program, script)) => {
                let libraries = LIBRARIES
                    .iter()
                    .filter(|library| library.language == language);
                helpers.extend(libraries.map(|library| (library, program.clone(), script.clone())));
            }
            Err(error) => {
                println!("libraries: left out: {error}");
                remarks.push(format!("Left out: {error}"));
            }
        }
    }
    let server = Server::pinned(&[], true)?;
    let mut found: BTreeMap<&str, Vec<Pair>> = BTreeMap::new();
    for round in 0..effort.rounds {
        println!("libraries, round {}", round + 1);
        for (library, program, script) in in_turn(&helpers, round) {
            let pair = run(&server, library.way, program, script, effort)?;
            found.entry(library.name).or_default().push(pair);
        }
    }
    let row = |library: &Library| Some(row(library, found.get(library.name)?));
    Ok(vec![Section {
        title: TITLE.into(),
        text: "One client, one connection, acquire and release one after the other, without contention.".into(),
        columns: ["library", "pairs/s", "±%", "server µs/pair", "±%", "requests/pair", "executed", "promises"]
            .map(String::from)
            .to_vec(),
        rows: LIBRARIES.iter().filter_map(row).collect(),
        remarks,
        notes,
        image: None,
    }])
}

fn row(library: &Library, pairs: &[Pair]) -> Vec<String> {
    let summary =
        |figure: fn(&Pair) -> f64| Summary::of(&pairs.iter().map(figure).collect::<Vec<_>>());
    let cells = |figure, digits: usize| match summary(figure) {
        Some(all) => [
            format!("{:.digits$}", all.median),
            format!("{:.0}", all.spread_percent()),
        ],
        None => ["-".into(), "-".into()],
    };
    let mut row = vec![library.name.to_string()];
    row.extend(cells(|pair| pair.per_s, 0));
    row.extend(cells(|pair| pair.cpu_us, 1));
    row.extend(cells(|pair| pair.requests, 1).into_iter().take(1));
    row.extend(pairs.last().map(|pair| pair.executed.clone()));
    row.push(library.promises.into());
    row
}

/// Ended when dropped; it also ends when its input ends.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// One run of a helper, and the server's work meanwhile.
fn run(
    server: &Server,
    way: &str,
    program: &Path,
    script: &Path,
    effort: &Effort,
) -> io::Result<Pair> {
    let mut helper = Helper(
        bounded(program)
            .arg(script)
            .args([
                &server.port.to_string(),
                way,
                &effort.measured.as_secs_f64().to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let stdout = helper.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut lines = BufReader::new(stdout).lines();
    let mut next = || {
        lines
            .next()
            .unwrap_or_else(|| Err(io::Error::other(format!("{way}: no answer"))))
    };
    next()?;
    let (before, cpu) = (Counts::of(server)?, server.cpu_us());
    let stdin = helper.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    stdin.write_all(b"go\n")?;
    let answer = next()?;
    let (cpu, after) = (server.cpu_us() - cpu, Counts::of(server)?);
    let numbers: Vec<f64> = answer
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [pairs, seconds] = numbers[..] else {
        return Err(io::Error::other(format!("{way}: {answer}")));
    };
    Ok(Pair {
        per_s: pairs / seconds,
        cpu_us: cpu / pairs,
        requests: (after.reads - before.reads) / pairs,
        executed: after.since(&before, pairs),
    })
}

/// The server's counters.
struct Counts {
    reads: f64,
    commands: BTreeMap<String, f64>,
}

impl Counts {
    fn of(server: &Server) -> io::Result<Counts> {
        let mut conn = server.conn()?;
        Ok(Counts::parse(
            &(conn.ask("INFO stats")? + &conn.ask("INFO commandstats")?),
        ))
    }

    fn parse(info: &str) -> Counts {
        let command = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            (name != "info").then(|| (name.to_string(), calls))
        };
        let reads = |line: &str| {
            line.strip_prefix("total_reads_processed:")?
                .trim()
                .parse()
                .ok()
        };
        Counts {
            reads: info.lines().find_map(reads).unwrap_or(0.0),
            commands: info.lines().filter_map(command).collect(),
        }
    }

    /// The commands that were executed, with their number per pair.
    fn since(&self, before: &Counts, pairs: f64) -> String {
        let per_pair = self.commands.iter().filter_map(|(name, calls)| {
            let earlier = before.commands.get(name).copied().unwrap_or(0.0);
            let calls = ((calls - earlier) / pairs * 10.0).round() / 10.0;
            (calls > 0.0).then(|| format!("{calls} {name}"))
        });
        per_pair.collect::<Vec<_>>().join(", ")
    }
}

/// redis-py in an environment of its own.
fn install_python() -> io::Result<(PathBuf, PathBuf)> {
    let venv = peers().join("venv");
    let (python, stamp) = (venv.join("bin/python"), venv.join("installed"));
    if std::fs::read_to_string(&stamp).unwrap_or_default() != REDIS_PY {
        println!("libraries: installing {REDIS_PY}");
        done(
            bounded("python3").args(["-m", "venv"]).arg(&venv),
            "python3 -m venv",
        )?;
        done(
            bounded(&python).args(["-m", "pip", "install", "-q", REDIS_PY]),
            "pip",
        )?;
        std::fs::write(stamp, REDIS_PY)?;
    }
    done(bounded(&python).arg("--version"), "python3")?;
    Ok((python, project().join("benches/peers/redis_py_lock.py")))
}

/// The packages for Node, with the helper in the same directory, where it finds them.
fn install_node() -> io::Result<(PathBuf, PathBuf)> {
    let dir = peers().join("node");
    let (script, stamp) = (dir.join("locks.mjs"), dir.join("installed.json"));
    std::fs::create_dir_all(&dir)?;
    std::fs::write(&script, LOCKS)?;
    if std::fs::read_to_string(&stamp).unwrap_or_default() != PACKAGE {
        println!("libraries: installing redlock, redis-semaphore, ioredis");
        std::fs::write(dir.join("package.json"), PACKAGE)?;
        let words = [
            "install",
            "--no-package-lock",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--silent",
        ];
        done(bounded("npm").args(words).current_dir(&dir), "npm install")?;
        std::fs::write(stamp, PACKAGE)?;
    }
    done(bounded("node").arg("--version"), "node")?;
    Ok(("node".into(), script))
}

fn peers() -> PathBuf {
    project().join("target/bench-peers")
}

/// A command with a time limit.
fn bounded(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).arg(program.as_ref());
    command
}

fn done(command: &mut Command, name: &str) -> io::Result<()> {
    let run = command.stdin(Stdio::null()).output()?;
    if run.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&run.stderr);
    let last = errors.lines().last().unwrap_or_default();
    Err(io::Error::other(format!("{name}: {} {last}", run.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_per_pair() {
        let before = Counts::parse("total_reads_processed:7\r\ncmdstat_set:calls=10,usec=9\r\n");
        let after = Counts::parse(
            "total_reads_processed:27\r\ncmdstat_set:calls=20,usec=9\r\ncmdstat_info:calls=2,usec=1\r\n\
             cmdstat_lock.release:calls=11,usec=3\r\ncmdstat_script|load:calls=0,usec=1\r\n",
        );
        assert_eq!(after.reads - before.reads, 20.0);
        assert_eq!(after.since(&before, 10.0), "1.1 lock.release, 1 set");
    }
}
