//! Instructions per command, counted by callgrind in the server: a figure that does not depend on other work of the
//! machine.
//!
//! A path is a list of commands for one lock, sent for many locks in batches on one connection, as a pipelining client
//! would. Counted is everything that the server does in user space, from reading the request to writing the reply; the
//! kernel's part is left out. The server's own cron runs only once a second.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::process::Command;

use crate::paths::{Scenario, Setting, CHANNEL, OTHER, OWNER, SETTINGS};
use crate::report::project;
use crate::scripts;
use crate::server::Server;
use crate::wire::{line, refuse_error, Conn};

/// Locks per path.
const LOCKS: usize = 2_000;

/// Requests sent before their replies are read.
const BATCH: usize = 50;

/// The committed table's path below the project.
const TABLE: &str = "docs/INSTRUCTIONS.md";

type Counts = HashMap<(String, String), u64>;

/// Counts every path and prints the table beside the committed one; with `save`, replaces the committed one.
pub fn run(save: bool) -> io::Result<()> {
    let path = project().join(TABLE);
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let version = Server::start(&[], &[], false)?.version()?;
    println!("{version}: now, in {TABLE}, change");
    if !committed.contains(&format!("({version})")) {
        println!("that table is of another server: its figures do not compare with these");
    }
    let before = parse(&committed);
    let mut table = String::new();
    for setting in SETTINGS {
        println!("\n{}", setting.name);
        let _ = write!(
            table,
            "\n## {}\n\n| path | instructions |\n|---|---:|\n",
            setting.name
        );
        let server = Counted::start(setting)?;
        for scenario in setting.scenarios {
            let count = server.count(scenario)?;
            let old = before.get(&(setting.name.into(), scenario.name.into()));
            println!(
                "  {:<48} {count:>8} {}",
                scenario.name,
                change(count, old.copied())
            );
            let _ = writeln!(table, "| {} | {count} |", scenario.name);
        }
    }
    if save {
        std::fs::write(&path, format!("{}{table}", intro(&version)))?;
    }
    Ok(())
}

fn intro(version: &str) -> String {
    format!(
        "# Instructions per command\n\n\
         Instructions that the server ({version}) executes in user space for one command, or for all \
         commands that a row\n\
         names: callgrind's count over {LOCKS} locks, requests in batches of {BATCH} on one connection, \
         owners of {} bytes.\n\
         `make bench-instr` counts again and shows the difference; with `SAVE=1` it rewrites this file. \
         The kernel's part,\n\
         about half of a command that comes alone, is not in it. [PERFORMANCE.md](PERFORMANCE.md) \
         explains the figures.\n",
        OWNER.len()
    )
}

/// The counts of a table that was written as above.
fn parse(text: &str) -> Counts {
    let (mut counts, mut setting) = (Counts::new(), String::new());
    for text in text.lines() {
        if let Some(name) = text.strip_prefix("## ") {
            setting = name.into();
        }
        let cells: Vec<&str> = text.split('|').map(str::trim).collect();
        if let ["", path, count, ""] = cells[..] {
            if let Ok(count) = count.parse() {
                counts.insert((setting.clone(), path.into()), count);
            }
        }
    }
    counts
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
struct Counted(Server);

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
        let mut conn = server.conn()?;
        for words in setting.before {
            match words.strip_prefix("load ") {
                Some(sha1) => scripts::load(&mut conn, sha1)?,
                None => drop(conn.ask(words)?),
            }
        }
        Ok(Counted(server))
    }

    /// Instructions for the counted commands of one lock.
    fn count(&self, scenario: &Scenario) -> io::Result<u64> {
        let mut conns = Conns {
            main: self.0.conn()?,
            waiter: self.0.conn()?,
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
        let pid = self.0.pid().to_string();
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
            let mut dumps: Vec<_> = std::fs::read_dir(self.0.dir.path())?
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

struct Conns {
    main: Conn,
    waiter: Conn,
}

impl Conns {
    /// Sends the commands for every lock and reads their replies. Paths with a waiter run lock by lock, all others in
    /// batches.
    fn play(&mut self, commands: &[&str]) -> io::Result<()> {
        if commands
            .iter()
            .any(|command| command.starts_with("waiter: "))
        {
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
            if let Some(command) = command.strip_prefix("waiter: ") {
                self.waiter
                    .send(&[line("PING"), filled(command, lock)].concat())?;
                self.waiter.reply()?;
            } else {
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
