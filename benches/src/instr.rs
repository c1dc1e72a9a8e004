//! Instructions per command, counted by callgrind in the server: a figure that does not depend on other work of the
//! machine.
//!
//! A path is a list of commands for one lock, sent for many locks in batches on one connection, as a pipelining client
//! would. Counted is everything that the server does in user space, from reading the request to writing the reply; the
//! kernel's part is left out. The server's own cron runs only once a second.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io;
use std::process::Command;

use crate::paths::{Scenario, Setting, CHANNEL, OTHER, OWNER, SETTINGS};
use crate::report::{project, release, wrapped};
use crate::scripts;
use crate::server::Server;
use crate::wire::{line, refuse_error, Conn};

/// Locks per path.
const LOCKS: usize = 2_000;

/// Requests sent before their replies are read.
const BATCH: usize = 50;

/// The committed table's path below the project.
const TABLE: &str = "docs/INSTRUCTIONS.md";

/// Counts every path on this server and prints the counts beside the committed ones; with `save`, replaces the column
/// of this server's release.
pub fn run(save: bool) -> io::Result<()> {
    let path = project().join(TABLE);
    let mut page = Page::parse(&std::fs::read_to_string(&path).unwrap_or_default());
    let version = Server::start(&[], &[], false)?.version()?;
    let release = release(&version);
    println!("{version}: now, in {TABLE}, change");
    if !page.versions.contains_key(&release) {
        println!("that table has no column of {release}");
    }
    page.versions.insert(release.clone(), version);
    for setting in SETTINGS {
        println!("\n{}", setting.name);
        let server = Counted::start(setting)?;
        for scenario in setting.scenarios {
            let count = server.count(scenario)?;
            let cell = (setting.name.into(), scenario.name.into(), release.clone());
            let change = change(count, page.counts.insert(cell, count));
            println!("  {:<56} {count:>8} {change}", scenario.name);
        }
        // After every setting, so that an error in a later one loses nothing.
        if save {
            std::fs::write(&path, page.text())?;
        }
    }
    Ok(())
}

/// The document: a table for each setting, with a column for each release of a server.
#[derive(Default)]
struct Page {
    /// The full versions: "redis 7.0.15" by "redis 7.0".
    versions: BTreeMap<String, String>,
    /// By setting, path and release.
    counts: HashMap<(String, String, String), u64>,
}

impl Page {
    /// Reads what `text` has written.
    fn parse(text: &str) -> Page {
        let (mut page, mut setting, mut releases) = (Page::default(), String::new(), Vec::new());
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("## ") {
                setting = name.into();
            }
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let Some((path, cells)) = cells.split_first() else {
                continue;
            };
            if *path == "path" {
                releases = cells.iter().map(|version| release(version)).collect();
                let versions = cells.iter().map(|version| version.to_string());
                page.versions.extend(releases.iter().cloned().zip(versions));
            }
            for (release, count) in releases.iter().zip(cells) {
                if let Ok(count) = count.parse() {
                    let cell = (setting.clone(), path.to_string(), release.clone());
                    page.counts.insert(cell, count);
                }
            }
        }
        page
    }

    /// All present paths; those that a server has not run have a dash.
    fn text(&self) -> String {
        let versions: String = self
            .versions
            .values()
            .map(|it| format!(" {it} |"))
            .collect();
        let rule = "---:|".repeat(self.versions.len());
        let mut text = intro();
        for setting in SETTINGS {
            let _ = write!(
                text,
                "\n## {}\n\n| path |{versions}\n|---|{rule}\n",
                setting.name
            );
            for scenario in setting.scenarios {
                let cell = |release: &String| {
                    let cell = (setting.name.into(), scenario.name.into(), release.clone());
                    let count = self.counts.get(&cell);
                    count.map_or_else(|| " - |".into(), |count| format!(" {count} |"))
                };
                let cells: String = self.versions.keys().map(cell).collect();
                let _ = writeln!(text, "| {} |{cells}", scenario.name);
            }
        }
        text
    }
}

fn intro() -> String {
    wrapped(&format!(
        "# Instructions per command\n\n\
         Instructions that a server executes in user space for one command, or for all commands that a row names: \
         callgrind's count over {LOCKS} locks, requests in batches of {BATCH} on one connection, owners of {} bytes. \
         Rows with a parked client, BLPOP, or \"one at a time\" are not in batches. `make bench-instr` counts again \
         and shows the difference; with `SAVE=1` it replaces the columns of the servers that it counts (`SERVERS`; \
         without it this machine's). The kernel's part, about half of a command that comes alone, is not in it. \
         [PERFORMANCE.md](PERFORMANCE.md) explains the figures.\n",
        OWNER.len()
    ))
}

fn change(now: u64, before: Option<u64>) -> String {
    match before {
        Some(before) => {
            let percent = 100.0 * (now as f64 - before as f64) / before as f64;
            format!("{before:>8} {percent:>+6.1} %")
        }
        None => "     new".into(),
    }
}

/// A server under callgrind.
struct Counted {
    server: Server,
    /// Where `Setting::before` has a client that waits.
    _waiter: Conn,
}

impl Counted {
    fn start(setting: &Setting) -> io::Result<Counted> {
        let under = [
            "valgrind",
            "--tool=callgrind",
            // The server may be started by a script that finds its libraries.
            "--trace-children=yes",
            "--callgrind-out-file=callgrind.out",
        ];
        let options = [&["--hz", "1", "--activerehashing", "no"], setting.options].concat();
        let server = Server::start(&under, &options, setting.with_module)?;
        if setting.had_replica {
            drop(server.replica()?);
        }
        let (mut conn, mut waiter) = (server.conn()?, server.conn()?);
        for words in setting.before {
            if let Some(sha1) = words.strip_prefix("load ") {
                scripts::load(&mut conn, sha1)?;
            } else if let Some(words) = words.strip_prefix(WAITER) {
                // As in `play_with_waiter`: it waits when the PING is answered.
                waiter.send(&[line("PING"), line(words)].concat())?;
                waiter.reply()?;
            } else {
                conn.ask(words)?;
            }
        }
        Ok(Counted {
            server,
            _waiter: waiter,
        })
    }

    /// Instructions for the counted commands of one lock.
    fn count(&self, scenario: &Scenario) -> io::Result<u64> {
        let mut conns = Conns {
            main: self.server.conn()?,
            waiter: self.server.conn()?,
        };
        if scenario.name.starts_with("ticket") {
            conns.waiter.ask(&format!("SUBSCRIBE {CHANNEL}"))?;
        }
        conns.play(scenario.setup)?;
        self.control("-z")?;
        conns.play(scenario.counted)?;
        self.control("-d")?;
        Ok(self.total()? / LOCKS as u64)
    }

    /// `callgrind_control`: `-z` sets the counters to zero, `-d` writes them.
    fn control(&self, what: &str) -> io::Result<()> {
        let pid = self.server.pid().to_string();
        let done = Command::new("callgrind_control")
            .args([what, &pid])
            .output()?;
        if done.status.success() {
            return Ok(());
        }
        Err(io::Error::other(
            String::from_utf8_lossy(&done.stderr).into_owned(),
        ))
    }

    /// The total of the latest dump; the file appears a moment after the command that asks for it.
    fn total(&self) -> io::Result<u64> {
        for _ in 0..1_000 {
            let mut dumps: Vec<_> = std::fs::read_dir(self.server.dir.path())?
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| path.to_string_lossy().contains("callgrind.out."))
                .collect();
            dumps.sort();
            let text = dumps
                .last()
                .map(std::fs::read_to_string)
                .transpose()?
                .unwrap_or_default();
            let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
            if let Some(total) = total.and_then(|total| total.trim().parse().ok()) {
                for dump in dumps {
                    std::fs::remove_file(dump)?;
                }
                return Ok(total);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Err(io::Error::other("callgrind wrote no totals"))
    }
}

/// The begin of a command on the connection of a client that waits.
const WAITER: &str = "waiter: ";

/// The begin of a command after which a message comes on the waiter's connection.
const HEARD: &str = "heard: ";

struct Conns {
    main: Conn,
    waiter: Conn,
}

impl Conns {
    /// Sends the commands for every lock and reads their replies. Paths with a waiter, or with a message that is read
    /// at once, run lock by lock, all others in batches.
    fn play(&mut self, commands: &[&str]) -> io::Result<()> {
        let is_alone = |command: &&str| command.starts_with(WAITER) || command.starts_with(HEARD);
        if commands.iter().any(is_alone) {
            (0..LOCKS).try_for_each(|lock| self.play_with_waiter(commands, lock))
        } else {
            let all: Vec<_> = (0..LOCKS)
                .flat_map(|lock| commands.iter().map(move |command| filled(command, lock)))
                .collect();
            for batch in all.chunks(BATCH) {
                self.main.send(&batch.concat())?;
                for _ in batch {
                    refuse_error(&self.main.reply()?)?;
                }
            }
            Ok(())
        }
    }

    /// The server has executed the waiter's commands when it has replied to the PING before them: it writes replies of
    /// a connection after it has executed all commands that arrived together.
    fn play_with_waiter(&mut self, commands: &[&str], lock: usize) -> io::Result<()> {
        for command in commands {
            if let Some(command) = command.strip_prefix(WAITER) {
                self.waiter
                    .send(&[line("PING"), filled(command, lock)].concat())?;
                self.waiter.reply()?;
            } else {
                let command = command.strip_prefix(HEARD).unwrap_or(command);
                self.main.send(&filled(command, lock))?;
                refuse_error(&self.main.reply()?)?;
            }
        }
        refuse_error(&self.waiter.reply()?)
    }
}

/// `{keys 10}` stands for `10` and this number of names.
fn with_keys(command: &str) -> String {
    let Some((before, rest)) = command.split_once("{keys ") else {
        return command.into();
    };
    let (number, after) = rest.split_once('}').unwrap_or((rest, ""));
    let names = (0..number.parse().unwrap_or(0)).map(|key: u32| format!(" {{k}}:{key}"));
    format!("{before}{number}{}{after}", names.collect::<String>())
}

fn filled(command: &str, lock: usize) -> Vec<u8> {
    line(
        &with_keys(command)
            .replace("{k}", &format!("lock:{lock}"))
            .replace("{o}", OWNER)
            .replace("{p}", OTHER),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_column_and_leaves_the_others() {
        let (setting, scenario) = (SETTINGS[0].name, SETTINGS[0].scenarios[0].name);
        let cell = |release: &str| (setting.into(), scenario.into(), release.into());
        let mut page = Page::default();
        page.versions
            .insert("redis 7.0".into(), "redis 7.0.15".into());
        page.counts.insert(cell("redis 7.0"), 29_338);
        let mut page = Page::parse(&page.text());
        page.versions
            .insert("valkey 9.1".into(), "valkey 9.1.2".into());
        page.counts.insert(cell("valkey 9.1"), 35_000);
        let text = Page::parse(&page.text()).text();
        assert!(text.contains("| path | redis 7.0.15 | valkey 9.1.2 |\n|---|---:|---:|\n"));
        assert!(text.contains(&format!("| {scenario} | 29338 | 35000 |\n")));
        assert!(text.contains(" | - | - |\n"));
    }
}
