//! Conversations about read-write locks, in the form of the other transcripts.
//!
//! ```text
//! read k owner [lease=30s] [block=5s | block=0] [once] [conn=c]        write ..., exclusive ...
//! release k owner [read | write] [all] [token=#1]     renew k owner [read | write] [lease=30s] [token=#1]
//! break k [token=#1] [purge]       keys k      line k      stats name ...
//! advance 5s      drop conn        del k       expire      persist k
//! redisson read | write k owner [lease=30s]    redisson unread | unwrite | renew | force k owner
//! ```

use std::fmt::Write as _;
use std::path::Path;

use crate::lock::tests::read_write::scripts;
use crate::lock::tests::read_write::sim::{How, Sim, START_MS};
use crate::lock::tests::read_write::world::Value;
use crate::lock::{Answer, KeyRef, LockError, Mode, Released, Wait};

#[test]
fn read_write() {
    run("read_write");
}

#[test]
fn upgrades_and_downgrades() {
    run("upgrade");
}

#[test]
fn dead_readers() {
    run("dead_readers");
}

#[test]
fn mixed_fleet() {
    run("mixed");
}

fn run(subject: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/lock/tests/read_write/transcripts")
        .join(subject)
        .with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let actual = play(&text);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    for (number, (expected, got)) in text.lines().zip(actual.lines()).enumerate() {
        assert_eq!(got, expected, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(text.lines().count(), actual.lines().count());
}

fn play(text: &str) -> String {
    let mut session = Session {
        sim: Sim::new(1_000),
        tokens: Vec::new(),
    };
    let mut result = String::new();
    let mut commands = Vec::new();
    let mut in_answers = false;
    for line in text.lines() {
        if in_answers && !line.is_empty() {
            continue;
        }
        in_answers = line == "----";
        writeln!(result, "{line}").unwrap();
        if in_answers {
            let said = session.turn(&std::mem::take(&mut commands));
            result.push_str(&said);
        } else if line.starts_with("# A new server") {
            session.sim = Sim::new(1_000);
            session.tokens.clear();
        } else if !line.is_empty() && !line.starts_with('#') {
            commands.push(line);
        }
    }
    assert!(commands.is_empty(), "commands without ----: {commands:?}");
    result
}

struct Session {
    sim: Sim,
    tokens: Vec<String>,
}

impl Session {
    fn turn(&mut self, commands: &[&str]) -> String {
        let mut said = String::new();
        for command in commands {
            let reply = self.command(&command.split_whitespace().collect::<Vec<_>>());
            if !reply.is_empty() {
                writeln!(said, "{}", self.named(&reply)).unwrap();
            }
            self.say(&mut said);
        }
        self.sim.settle_all();
        self.say(&mut said);
        self.sim.deliver_all();
        said
    }

    fn say(&mut self, said: &mut String) {
        for line in std::mem::take(&mut self.sim.out) {
            writeln!(said, "  {}", self.named(&line)).unwrap();
        }
    }

    fn command(&mut self, words: &[&str]) -> String {
        let option = |name: &str| {
            let prefix = format!("{name}=");
            words.iter().find_map(|word| word.strip_prefix(&prefix))
        };
        let has = |word: &str| words[2..].contains(&word);
        let lease_ms = option("lease").map_or(30_000, millis) as i64;
        let token = option("token").map(|name| self.tokens[index(name)].parse().unwrap());
        let mode = match (
            words.len() > 3 && has("read"),
            words.len() > 3 && has("write"),
        ) {
            (true, _) => Some(Mode::Read),
            (_, true) => Some(Mode::Write),
            _ => None,
        };
        match words[0] {
            "read" | "write" | "exclusive" => {
                let how = How {
                    mode: match words[0] {
                        "read" => Mode::Read,
                        "write" => Mode::Write,
                        _ => Mode::Exclusive,
                    },
                    lease_ms,
                    wait: match option("block") {
                        None => Wait::No,
                        Some("0") => Wait::ForEver,
                        Some(text) => Wait::Ms(millis(text)),
                    },
                    once: has("once"),
                    session: false,
                };
                let conn = option("conn").unwrap_or(words[2]);
                match self.sim.acquire(words[1], words[2], conn, how) {
                    Ok(Answer::Granted(token)) => format!("granted #{}", token.get()),
                    Ok(Answer::Refused) => "refused".into(),
                    Ok(Answer::Parked(_)) => "parked".into(),
                    Err(error) => code(&error),
                }
            }
            "release" => {
                let how = (mode, has("all"), token);
                let done = self.sim.release(words[1], words[2], how);
                done.map_or_else(|error| code(&error), |done| released(done).into())
            }
            "renew" => {
                let done = self.sim.renew(words[1], words[2], (mode, lease_ms, token));
                let said = |done| if done { "renewed" } else { "lost" };
                done.map_or_else(|error| code(&error), |done| said(done).into())
            }
            "break" => {
                let purge = words.contains(&"purge");
                let done = self.sim.break_lock(words[1], token, purge);
                let said = |done| if done { "broken" } else { "not held" };
                done.map_or_else(|error| code(&error), |done| said(done).into())
            }
            "keys" => self.keys(),
            "line" => self.line(words[1]),
            "stats" => self.stats(&words[1..]),
            "redisson" => self.redisson(words, lease_ms),
            _ => {
                self.change(words);
                String::new()
            }
        }
    }

    fn change(&mut self, words: &[&str]) {
        let sim = &mut self.sim;
        match words[0] {
            "advance" => sim.advance(millis(words[1])),
            "drop" => sim.disconnect(words[1]),
            "expire" => sim.server_expires(),
            "del" => sim.foreign(words[1], |world, _| {
                world.keys.remove(words[1]);
            }),
            "persist" => sim.foreign(words[1], |world, _| {
                world.keys.get_mut(words[1]).unwrap().1 = None;
            }),
            other => panic!("{other}?"),
        }
    }

    fn redisson(&mut self, words: &[&str], lease_ms: i64) -> String {
        let (key, owner) = (words[2], words[3]);
        let done = self.sim.foreign(key, |world, now| match words[1] {
            "read" => scripts::read_acquire(world, key, owner, lease_ms, now),
            "write" => scripts::write_acquire(world, key, owner, lease_ms, now),
            "unread" => scripts::read_release(world, key, owner, now),
            "unwrite" => scripts::write_release(world, key, owner, lease_ms, now),
            "renew" => {
                scripts::read_renew(world, key, owner, lease_ms, now);
                true
            }
            _ => {
                scripts::force(world, key);
                true
            }
        });
        if done { "ok" } else { "not done" }.into()
    }

    fn keys(&self) -> String {
        let mut lines = Vec::new();
        for (name, (value, end)) in &self.sim.world.keys {
            let value = match value {
                Value::Text(text) => text.clone(),
                Value::Hash(fields) => {
                    let fields = fields.iter();
                    let fields: Vec<_> = fields.map(|(f, v)| format!("{f} {v}")).collect();
                    format!("{{{}}}", fields.join(", "))
                }
            };
            let end = end.map_or("for ever".into(), |end| format!("@{end}"));
            lines.push(format!("{name} = {value} until {end}"));
        }
        if lines.is_empty() {
            return "no keys".into();
        }
        lines.join("\n")
    }

    fn line(&self, key: &str) -> String {
        let key = KeyRef {
            db: 0,
            name: key.as_bytes(),
        };
        let line = self.sim.locks.waiters.queue(key);
        let line = line.map_or(String::new(), |queue| {
            let one = |(owner, waiter): (&[u8], &crate::lock::Waiter)| {
                format!("{} {}", String::from_utf8_lossy(owner), waiter.mode.name())
            };
            queue.iter().map(one).collect::<Vec<_>>().join(", ")
        });
        let due = self.sim.locks.waiters.next_settle(self.sim.now);
        let due = due.map_or("never".into(), |ms| format!("{ms}ms"));
        format!("waiting: [{line}]; next settling: {due}")
    }

    fn stats(&self, names: &[&str]) -> String {
        let fields: Vec<_> = self.sim.locks.fields().collect();
        let value = |name: &&str| fields.iter().find(|field| field.0 == *name).unwrap().1;
        let values = names.iter().map(|name| format!("{name}={}", value(name)));
        values.collect::<Vec<_>>().join(" ")
    }

    /// Tokens by the order in which they appear, moments since the start.
    fn named(&mut self, line: &str) -> String {
        let mut named = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let digits = rest[at..].len()
                - rest[at..]
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            let (before, number) = (&rest[..at], &rest[at..at + digits]);
            named.push_str(before);
            named.push_str(&match number.len() {
                0..10 => number.to_string(),
                13 => moment(number.parse::<i64>().unwrap() - START_MS),
                _ => {
                    let known = self.tokens.iter().position(|known| known == number);
                    let index = known.unwrap_or_else(|| {
                        self.tokens.push(number.into());
                        self.tokens.len() - 1
                    });
                    format!("{}", index + 1)
                }
            });
            rest = &rest[at + digits..];
        }
        named + rest
    }
}

fn index(name: &str) -> usize {
    name.trim_start_matches('#').parse::<usize>().unwrap() - 1
}

fn released(released: Released) -> &'static str {
    match released {
        Released::Freed => "freed",
        Released::StillHeld => "still held",
        Released::NotHeld => "not held",
    }
}

fn code(error: &LockError) -> String {
    format!("error: {error}")
}

fn millis(text: &str) -> u64 {
    match text.strip_suffix("ms") {
        Some(ms) => ms.parse().unwrap(),
        None => text.strip_suffix('s').unwrap().parse::<u64>().unwrap() * 1_000,
    }
}

fn moment(ms: i64) -> String {
    match ms % 1_000 {
        0 => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}
