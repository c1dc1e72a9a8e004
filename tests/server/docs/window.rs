//! A window of redis-cli(1), and the comparison of what it prints with a page.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};

use crate::common::process::{spawn, tame};
use crate::common::{patience, TestServer};

/// A `redis-cli` with typed input, and the lines that it prints.
pub struct Window {
    cli: Child,
    keys: ChildStdin,
    lines: Receiver<String>,
}

impl Window {
    /// Opens one for this server.
    pub fn open(server: &TestServer) -> Window {
        let mut cli = Command::new(cli_binary());
        // Into a pipe it would print bare values instead of the terminal's form.
        cli.args(["--no-raw", "-p", &server.port.to_string()]);
        cli.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cli = spawn(&mut cli).expect("redis-cli");
        let out = BufReader::new(cli.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            out.lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        let keys = cli.stdin.take().expect("a pipe");
        Window { cli, keys, lines }
    }

    /// Types a line.
    pub fn enter(&mut self, line: &str) {
        writeln!(self.keys, "{line}").expect("redis-cli reads");
    }

    /// The next line, without lines of elapsed time such as `(1.02s)`, and without the hint for subscribers.
    pub fn line(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(patience()).expect("a line");
            let is_time = line.starts_with('(') && line.ends_with("s)");
            if !is_time && !line.starts_with("Reading messages...") {
                return line;
            }
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.cli.kill();
        let _ = self.cli.wait();
    }
}

/// The client in the package of the tested server.
fn cli_binary() -> &'static str {
    let works = |name: &&&str| tame(Command::new(name).arg("--version")).output().is_ok();
    ["redis-cli", "valkey-cli"]
        .iter()
        .find(works)
        .expect("redis-cli or valkey-cli")
}

/// The values of a page that differ from run to run, and those of this run.
#[derive(Default)]
pub struct Values {
    tokens: HashMap<String, String>,
    /// The line before.
    name: String,
}

/// Fields of replies whose numbers are not compared.
const TIMES_AND_ADDRESSES: [&str; 9] = [
    "counted-ms",
    "pttl",
    "held-ms",
    "waited-ms",
    "longest-wait-ms",
    "left-ms",
    "next-end-ms",
    "client-id",
    "addr",
];

impl Values {
    /// Whether a line is the page's, except for tokens, unique ids, times and addresses. A token of the page always has
    /// the same value.
    pub fn agree(&mut self, page: &str, shown: &str) -> bool {
        let varies = TIMES_AND_ADDRESSES
            .iter()
            .any(|name| self.name.ends_with(&format!("\"{name}\"")));
        self.name = page.trim().to_string();
        let (page, shown) = (parts(page), parts(shown));
        page.len() == shown.len()
            && page.iter().zip(&shown).all(|(page, shown)| {
                let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
                match is_number(page) && is_number(shown) {
                    true if varies => true,
                    true if page.len() == 16 && shown.len() == 16 => {
                        self.tokens.entry(page.clone()).or_insert(shown.clone()) == shown
                    }
                    _ => page == shown,
                }
            })
    }

    /// The line of the page with the tokens of this run.
    pub fn typed(&self, page: &str) -> String {
        let value = |part: String| self.tokens.get(&part).cloned().unwrap_or(part);
        parts(page).into_iter().map(value).collect()
    }

    /// Whether a higher token of the page stands for a higher token of this run.
    pub fn rise(&self) -> bool {
        let mut pairs: Vec<_> = self.tokens.iter().collect();
        pairs.sort();
        pairs.windows(2).all(|pair| pair[0].1 < pair[1].1)
    }
}

/// Splits a line into runs of digits and of other characters. A unique id is its form alone.
fn parts(line: &str) -> Vec<String> {
    let line = line.trim();
    let is_id = |text: &str| {
        let dashes = text.match_indices('-').map(|(at, _)| at);
        text.len() == 36 && dashes.eq([8, 13, 18, 23])
    };
    if is_id(line.trim_matches('"')) {
        return vec!["a unique id".into()];
    }
    let mut parts: Vec<String> = Vec::new();
    for c in line.chars() {
        match parts.last_mut() {
            Some(last) if last.ends_with(|d: char| d.is_ascii_digit()) == c.is_ascii_digit() => {
                last.push(c);
            }
            _ => parts.push(c.into()),
        }
    }
    parts
}
