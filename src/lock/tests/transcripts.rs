//! Transcripts: commands to the simulated server, with the replies and effects.
//!
//! A block is some commands, `----`, and the replies with their effects. The commands of one block run in one tick of
//! the server: at its end keys are settled, then replies are delivered. So a `drop` in the block of a release happens
//! between a grant and its delivery.
//!
//! Commands, with their options in brackets:
//! ```text
//! acquire k owner [lease=30s | session] [block=5s | block=0] [once] [conn=c]     the lease is 30s, conn the owner
//! release k owner [all] [token=#1]         renew k owner [lease=30s] [token=#1]
//! macquire k1 k2 ... owner [as acquire]     mrelease k1 k2 ... owner [all]     mrenew k1 k2 ... owner [lease=30s]
//! break k [token=#1] [purge]               info k           stats name ...      quiet
//! advance 5s     every timer runs at its moment
//! late 5s        time passes and no timer runs      alarm   the timer that was late
//! clock forward 5s | back 5s        the wall clock alone is set
//! session lease 10s                              sessions    what is bound to which connection
//! drop conn      the connection closes              unblock conn
//! del k   expire k   hdel k   persist k   pexpire k 5s   overwrite k string | hash | holds N
//! redisson acquire k owner [lease=30s]   redisson release k owner   redisson renew k owner [lease=30s]
//! counter k 50   horizon k 50   flush   restart [back=1h]   grants off | on
//! delay 5s | limit 1s   drain   demote
//! listen k | leave k      somebody listens for the release of k, or nobody any more
//! turns after=2 [window=50ms]
//! limits [waiters=N] [per-key=N] [tracked=N] [grace=1s] [places=N]     a new server
//! ```
//! In the replies, tokens are #1, #2, in the order in which they appear (the simulated server checks that they rise),
//! and times count from the start of the server. Indented lines are the effects in order: writes, events, publishes,
//! and the replies `to` parked connections.
//!
//! `UPDATE_TRANSCRIPTS=1 cargo test` writes the replies again. Read the difference critically: it becomes the contract.

use std::fmt::Write as _;
use std::path::Path;

use crate::lock::tests::sim::keyspace::Value;
use crate::lock::tests::sim::{
    key_ref, scripts, Out, Settings, Sim, Terms, CONNS, DEFAULT_LEASE_MS, START_MS,
};
use crate::lock::{
    Answer, BoundRef, Hold, KeyState, KeyWrite, Lease, LockError, ManyAnswer, Mode, Outcome,
    Released, Token, Wait, Waiter, WindowRule,
};

#[test]
fn exclusive() {
    run("exclusive");
}

#[test]
fn queue() {
    run("queue");
}

#[test]
fn lease() {
    run("lease");
}

#[test]
fn undo() {
    run("undo");
}

#[test]
fn foreign() {
    run("foreign");
}

#[test]
fn broken() {
    run("break");
}

#[test]
fn session() {
    run("session");
}

#[test]
fn starts_and_ends() {
    run("starts_and_ends");
}

#[test]
fn limits() {
    run("limits");
}

#[test]
fn many_keys() {
    run("many_keys");
}

#[test]
fn deadlocks() {
    run("deadlocks");
}

#[test]
fn tokens() {
    run("tokens");
}

#[test]
fn windows() {
    run("windows");
}

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
    let mut session = Session::new();
    run_with(subject, |commands| session.turn(commands));
}

/// Plays the conversation of this name; `turn` answers the commands of one block.
pub(crate) fn run_with(subject: &str, turn: impl FnMut(&[&str]) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/lock/tests/transcripts")
        .join(subject)
        .with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let actual = play(&text, turn);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    // Line by line, so that a failure names the place.
    let mut lines = actual.lines();
    for (number, expected) in text.lines().enumerate() {
        let got = lines.next().unwrap_or("the end of the file");
        assert_eq!(got, expected, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(lines.next(), None, "{}: more came of it", path.display());
}

/// The file with the answers as they are now.
fn play(text: &str, mut turn: impl FnMut(&[&str]) -> String) -> String {
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
            let commands = std::mem::take(&mut commands);
            result.push_str(&turn(&commands));
        } else if !line.is_empty() && !line.starts_with('#') {
            commands.push(line);
        }
    }
    assert!(commands.is_empty(), "commands without ----: {commands:?}");
    result
}

struct Session {
    settings: Settings,
    sim: Sim,
    conns: Vec<String>,
    tokens: Vec<u64>,
    said: String,
}

/// The words of a command line, and its `name=value` options.
pub(crate) struct Words<'a>(pub Vec<&'a str>);

impl<'a> Words<'a> {
    pub fn at(&self, index: usize) -> &'a str {
        self.0[index]
    }

    pub fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    pub fn option(&self, name: &str) -> Option<&'a str> {
        let mut words = self.0.iter();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.option(name).map(|text| text.parse().unwrap())
    }

    pub fn lease(&self) -> Lease {
        lease_of(self.option("lease").map_or(DEFAULT_LEASE_MS, millis))
    }

    pub fn terms(&self) -> Terms {
        match self.option("lease") {
            _ if self.has("session") => Terms::Session,
            None => Terms::Unnamed,
            Some(_) => Terms::Named(self.lease()),
        }
    }

    /// The mode after the key and the owner.
    pub fn mode(&self) -> Option<Mode> {
        let words = self.0.iter().skip(3);
        words.copied().find_map(|word| match word {
            "read" => Some(Mode::Read),
            "write" => Some(Mode::Write),
            _ => None,
        })
    }

    pub fn wait(&self) -> Wait {
        match self.option("block") {
            None => Wait::No,
            Some("0") => Wait::ForEver,
            Some(text) => Wait::Ms(millis(text)),
        }
    }
}

impl Session {
    fn new() -> Session {
        let settings = Settings::default();
        Session {
            settings,
            sim: Sim::new(&settings),
            conns: Vec::new(),
            tokens: Vec::new(),
            said: String::new(),
        }
    }

    fn turn(&mut self, commands: &[&str]) -> String {
        for command in commands {
            let words = Words(command.split_whitespace().collect());
            let reply = self.command(&words);
            if !reply.is_empty() {
                writeln!(self.said, "{reply}").unwrap();
            }
            self.say_effects();
        }
        self.sim.settle_all();
        self.say_effects();
        self.sim.deliver_all();
        std::mem::take(&mut self.said)
    }

    fn command(&mut self, words: &Words<'_>) -> String {
        match words.at(0) {
            "acquire" => self.acquire(words, Mode::Exclusive),
            "read" => self.acquire(words, Mode::Read),
            "write" => self.acquire(words, Mode::Write),
            "macquire" | "mrelease" | "mrenew" => self.many(words),
            "release" | "renew" | "break" => self.end_or_renew(words),
            "redisson" => self.redisson(words),
            "info" => self.info(words.at(1)),
            "stats" => self.stats(&words.0[1..]),
            "quiet" => self.quiet(),
            "keys" => self.keys(),
            "queue" => self.queue(words.at(1)),
            "sessions" => self.sessions(),
            "restart" => {
                self.sim.restart(&self.settings);
                self.sim.now.wall_ms -= words.option("back").map_or(0, millis) as i64;
                String::new()
            }
            "limits" => self.set_limits(words),
            _ => {
                self.change(words);
                String::new()
            }
        }
    }

    /// What happens to the server and to its keys without a lock command.
    fn change(&mut self, words: &Words<'_>) {
        let sim = &mut self.sim;
        match words.at(0) {
            "advance" => sim.advance(millis(words.at(1))),
            "late" => sim.pass(millis(words.at(1))),
            "clock" => {
                let by = millis(words.at(2)) as i64;
                sim.now.wall_ms += if words.at(1) == "back" { -by } else { by };
            }
            "alarm" => sim.alarm(),
            "session" => sim.locks.sessions.rule.lease = lease_of(millis(words.at(2))),
            "drop" => {
                let conn = self.conn(words.at(1));
                self.sim.disconnect(conn);
            }
            "unblock" => {
                let conn = self.conn(words.at(1));
                self.sim.unblock(conn);
            }
            "del" => sim.del(words.at(1)),
            "expire" => match words.0.get(1) {
                Some(key) => sim.server_expires(key),
                None => sim.server_expires_all(),
            },
            "hdel" => sim.hdel_holder(words.at(1)),
            "persist" => sim.set_ttl(words.at(1), None),
            "pexpire" => {
                let deadline_ms = sim.now.wall_ms + millis(words.at(2)) as i64;
                sim.set_ttl(words.at(1), Some(deadline_ms));
            }
            "overwrite" => match words.at(2) {
                "string" => sim.overwrite(words.at(1), false),
                "hash" => sim.overwrite(words.at(1), true),
                "holds" => self.set_holds(words.at(1), words.at(3)),
                other => panic!("overwrite with {other}?"),
            },
            "counter" => {
                let value = words.at(2).parse().unwrap();
                sim.counters.insert(words.at(1).into(), value);
            }
            "horizon" => sim.set_horizon(words.at(1), words.at(2).parse().unwrap()),
            "flush" => sim.flush(),
            "subscribe" => drop(sim.has_subscriber.insert(words.at(1).into())),
            "unsubscribe" => drop(sim.has_subscriber.remove(words.at(1))),
            "window" => sim.locks.set_window_rule(WindowRule {
                after: words.number("after").unwrap() as u32,
                window_ms: words.option("window").map_or(50, millis),
            }),
            "demote" => sim.locks.demoted(),
            "delay" if words.at(1) == "limit" => sim.locks.startup_delay.limit(millis(words.at(2))),
            "delay" => sim.begin_startup_delay(millis(words.at(1))),
            "drain" => sim.drain(),
            "grants" => sim.set_may_grant(words.at(1) == "on"),
            other => panic!("{other}?"),
        }
    }

    fn acquire(&mut self, words: &Words<'_>, mode: Mode) -> String {
        let (key, owner) = (words.at(1), words.at(2));
        let conn = self.conn(words.option("conn").unwrap_or(owner));
        let how = (mode, words.terms(), words.wait(), words.has("once"));
        match self.sim.acquire(key, owner, conn, how) {
            Ok(Answer::Granted(token)) => format!("granted {}", self.name(token)),
            Ok(Answer::Refused) => "refused".into(),
            Ok(Answer::Parked(_)) => "parked".into(),
            Err(error) => code(&error),
        }
    }

    /// The words between the command and its options are the keys, the last of them the owner.
    fn many(&mut self, words: &Words<'_>) -> String {
        let is_name = |word: &&&str| !word.contains('=') && !["once", "all"].contains(*word);
        let names: Vec<&str> = words.0[1..].iter().take_while(is_name).copied().collect();
        let (owner, keys) = names.split_last().unwrap();
        let done = match words.at(0) {
            "macquire" => {
                let conn = self.conn(words.option("conn").unwrap_or(owner));
                let how = (words.lease(), words.wait(), words.has("once"));
                match self.sim.acquire_many(keys, owner, conn, how) {
                    Ok(ManyAnswer::Granted(tokens)) => {
                        let names = tokens.iter().map(|token| self.name(*token));
                        Ok(format!("granted {}", names.collect::<Vec<_>>().join(" ")))
                    }
                    Ok(ManyAnswer::Refused(at)) => Ok(format!("refused at {}", keys[at])),
                    Ok(ManyAnswer::Parked(_)) => Ok("parked".into()),
                    Err(error) => Err(error),
                }
            }
            "mrelease" => {
                let released = self.sim.release_many(keys, owner, words.has("all"));
                released.map(|count| format!("dropped {count}"))
            }
            _ => {
                let renewed = self.sim.renew_many(keys, owner, words.lease());
                renewed.map(|count| format!("renewed {count}"))
            }
        };
        done.unwrap_or_else(|error| code(&error))
    }

    fn end_or_renew(&mut self, words: &Words<'_>) -> String {
        let token = words.option("token").map(|name| self.token(name));
        let (key, sim) = (words.at(1), &mut self.sim);
        let said = match words.at(0) {
            "release" => sim
                .release(key, words.at(2), (words.mode(), words.has("all"), token))
                .map(|released| match released {
                    Released::Freed => "freed",
                    Released::StillHeld => "still held",
                    Released::NotHeld => "not held",
                }),
            "renew" => sim
                .renew(key, words.at(2), (words.mode(), words.terms(), token))
                .map(|renewed| if renewed { "renewed" } else { "lost" }),
            _ => sim
                .break_lock(key, token, words.has("purge"))
                .map(|broken| if broken { "broken" } else { "not held" }),
        };
        said.map_or_else(|error| code(&error), String::from)
    }

    fn redisson(&mut self, words: &Words<'_>) -> String {
        let (key, owner, lease) = (words.at(2), words.at(3), words.lease());
        let sim = &mut self.sim;
        let held =
            matches!(sim.state(key), KeyState::Held(hold) if *hold.owner == *owner.as_bytes());
        let lease_ms = lease.ms();
        let done = match words.at(1) {
            "acquire" => sim.foreign_acquire(key, owner, lease),
            "release" => sim.foreign_release(key, owner, lease),
            "renew" => {
                if held {
                    sim.set_ttl(key, Some(lease.deadline(sim.now)));
                }
                held
            }
            script => sim.foreign(key, |keys, now| match script {
                "read" => scripts::read_acquire(keys, key, owner, lease_ms, now),
                "write" => scripts::write_acquire(keys, key, owner, lease_ms, now),
                "unread" => scripts::read_release(keys, key, owner, now),
                "unwrite" => scripts::write_release(keys, key, owner, lease_ms, now),
                "renew-read" => scripts::read_renew(keys, key, owner, lease_ms, now),
                "force" => scripts::force(keys, key),
                other => panic!("{other}?"),
            }),
        };
        if done { "ok" } else { "not done" }.into()
    }

    fn set_holds(&mut self, key: &str, count: &str) {
        if let KeyState::Held(hold) = self.sim.state(key) {
            let fields = self.sim.keys.hash(key);
            fields.insert(text(&hold.owner), count.into());
        }
    }

    fn set_limits(&mut self, words: &Words<'_>) -> String {
        let mut settings = Settings::default();
        let limits = &mut settings.limits;
        limits.max_waiters = words.number("waiters").unwrap_or(limits.max_waiters);
        limits.max_waiters_per_key = words
            .number("per-key")
            .unwrap_or(limits.max_waiters_per_key);
        limits.max_tracked = words.number("tracked").unwrap_or(limits.max_tracked);
        let grace = &mut settings.grace;
        grace.ms = words.option("grace").map_or(grace.ms, millis);
        grace.max_places = words.number("places").unwrap_or(grace.max_places);
        self.settings = settings;
        self.sim = Sim::new(&settings);
        self.tokens.clear();
        String::new()
    }

    // ---- what is said ----

    fn say_effects(&mut self) {
        for out in std::mem::take(&mut self.sim.out) {
            let line = match out {
                Out::Horizon => "set horizon".into(),
                Out::Counter(key, token) => format!("set counter {key} {}", self.name(token)),
                Out::Write(key, write) => self.write(&key, &write),
                Out::WriteShared(_, lines) => {
                    for line in lines {
                        let line = self.named(&line);
                        writeln!(self.said, "  {line}").unwrap();
                    }
                    continue;
                }
                Out::Publish(key) => format!("publish {key}"),
                Out::PublishReadWrite(key, mode) => {
                    let message = if mode == Mode::Write { "1" } else { "0" };
                    format!("publish rw {key} {message}")
                }
                Out::Notify(key, event) => {
                    format!("event {} {key}", event.name().to_str().unwrap())
                }
                Out::Answer { conn, outcome, .. } => {
                    let what = match outcome {
                        Outcome::Granted(token) => self.name(token),
                        Outcome::GrantedAll(tokens) => {
                            let names = tokens.iter().map(|token| self.name(*token));
                            names.collect::<Vec<_>>().join(" ")
                        }
                        Outcome::Nil => "nil".into(),
                        Outcome::Failed(error) => code(&error),
                        Outcome::Open => "open".into(),
                    };
                    format!("to {}: {what}", self.conns[conn as usize])
                }
            };
            writeln!(self.said, "  {line}").unwrap();
        }
    }

    fn write(&mut self, key: &str, write: &KeyWrite) -> String {
        match write {
            KeyWrite::ReadWrite(_) => unreachable!("see `Out::WriteShared`"),
            KeyWrite::Delete => format!("del {key}"),
            KeyWrite::Take {
                clear,
                owner,
                token,
                deadline_ms,
            } => {
                let del = if *clear {
                    format!("del {key}, ")
                } else {
                    String::new()
                };
                let (owner, token) = (text(owner), self.name(*token));
                let end = moment(*deadline_ms);
                format!("{del}hset {key} {owner} 1 #token {token}, pexpireat {key} {end}")
            }
            KeyWrite::Adjust {
                owner,
                count,
                token,
                deadline_ms,
            } => {
                let mut parts = Vec::new();
                parts.extend(count.map(|(_, count)| format!("hset {key} {} {count}", text(owner))));
                parts.extend(token.map(|token| format!("hset {key} #token {}", self.name(token))));
                parts.extend(deadline_ms.map(|end| format!("pexpireat {key} {}", moment(end))));
                parts.join(", ")
            }
        }
    }

    fn info(&mut self, key: &str) -> String {
        let state = match self.sim.state(key) {
            KeyState::Absent => "absent".into(),
            KeyState::Bare(token) => format!("free, token {}", self.name(token)),
            KeyState::Held(hold) => self.hold(&hold),
            KeyState::ReadWrite(_) => "a read-write lock".into(),
            KeyState::OtherHash => "another hash".into(),
            KeyState::OtherType => "another type".into(),
        };
        let waiters = &self.sim.locks.waiters;
        let queue = waiters.queue(key_ref(key)).map_or(String::new(), |queue| {
            let owners: Vec<_> = queue.iter().map(|(owner, _)| text(owner)).collect();
            owners.join(" ")
        });
        let places = waiters.kept_places();
        format!("{state}; waiting: [{queue}]; places kept: {places}")
    }

    fn hold(&mut self, hold: &Hold) -> String {
        let token = hold.token.map_or("none".into(), |token| self.name(token));
        let end = hold.deadline_ms.map_or("for ever".into(), moment);
        let over = if hold.is_over(self.sim.now) {
            ", over"
        } else {
            ""
        };
        let (owner, count) = (text(&hold.owner), hold.count);
        format!("{owner} holds {count}, token {token}, until {end}{over}")
    }

    /// All keys with their content.
    fn keys(&mut self) -> String {
        let mut lines = Vec::new();
        for (name, (value, end)) in self.sim.keys.clone().iter() {
            let value = match value {
                Value::Text(text) => text.clone(),
                Value::Hash(fields) => {
                    let fields = fields.iter();
                    let fields: Vec<_> = fields.map(|(f, v)| format!("{f} {v}")).collect();
                    format!("{{{}}}", fields.join(", "))
                }
            };
            let end = end.map_or("for ever".into(), moment);
            lines.push(format!("{name} = {} until {end}", self.named(&value)));
        }
        if lines.is_empty() {
            return "no keys".into();
        }
        lines.join("\n")
    }

    /// The queue with the modes of the requests.
    fn queue(&self, key: &str) -> String {
        let waiters = &self.sim.locks.waiters;
        let queue = waiters.queue(key_ref(key)).into_iter();
        let one =
            |(owner, waiter): (&[u8], &Waiter)| format!("{} {}", text(owner), waiter.mode.name());
        let requests: Vec<_> = queue.flat_map(|queue| queue.iter()).map(one).collect();
        let due = waiters.next_settle(self.sim.now);
        let due = due.map_or("never".into(), |ms| format!("{ms}ms"));
        format!("waiting: [{}]; next settling: {due}", requests.join(", "))
    }

    fn stats(&self, names: &[&str]) -> String {
        let fields: Vec<_> = self.sim.locks.fields().collect();
        let value = |name: &&str| fields.iter().find(|field| field.0 == *name).unwrap().1;
        let values = names.iter().map(|name| format!("{name}={}", value(name)));
        values.collect::<Vec<_>>().join(" ")
    }

    /// Whether anything is left to be done later, and in memory.
    fn quiet(&self) -> String {
        let waiters = &self.sim.locks.waiters;
        let due = |ms: Option<u64>| ms.map_or("never".into(), duration);
        let keys = self.sim.keys.iter().map(|(key, _)| key);
        let keys = keys.chain(self.sim.counters.keys());
        let queues = keys.filter(|key| waiters.queue(key_ref(key)).is_some());
        format!(
            "next wait: {}, next settling: {}, parked: {}, places kept: {}, queues: {}",
            due(waiters.next_wait(self.sim.now)),
            due(self.sim.locks.next_settle(self.sim.now)),
            waiters.live(),
            waiters.kept_places(),
            queues.count(),
        )
    }

    fn sessions(&self) -> String {
        let sessions = &self.sim.locks.sessions;
        let mut bound = Vec::new();
        for key in self.sim.keys.names() {
            if let KeyState::Held(hold) = self.sim.state(&key) {
                let what = BoundRef::lock(Mode::Exclusive, key_ref(&key), &hold.owner);
                if let Some(id) = sessions.client_of(what, hold.token) {
                    let (owner, conn) = (text(&hold.owner), &self.conns[(id % CONNS) as usize]);
                    bound.push(format!("{key} of {owner} to {conn}"));
                }
            }
        }
        let next = sessions.next_due(self.sim.now);
        let next = next.map_or("never".into(), duration);
        let (holds, conns) = (sessions.holds(), sessions.clients());
        format!(
            "bound: [{}]; holds: {holds}, connections: {conns}, next: {next}",
            bound.join(", ")
        )
    }

    // ---- names ----

    fn conn(&mut self, name: &str) -> u64 {
        let known = self.conns.iter().position(|conn| conn == name);
        let index = known.unwrap_or_else(|| {
            self.conns.push(name.into());
            self.conns.len() - 1
        });
        index as u64
    }

    fn name(&mut self, token: Token) -> String {
        let known = self.tokens.iter().position(|known| *known == token.get());
        let index = known.unwrap_or_else(|| {
            self.tokens.push(token.get());
            self.tokens.len() - 1
        });
        format!("#{}", index + 1)
    }

    /// A command with moments (13 digits) since the start, and tokens (more digits) by the order of appearance.
    fn named(&mut self, line: &str) -> String {
        let mut named = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, tail) = rest.split_at(at);
            let is_other = |c: char| !c.is_ascii_digit();
            let (digits, tail) = tail.split_at(tail.find(is_other).unwrap_or(tail.len()));
            named.push_str(before);
            match digits.len() {
                0..10 => named.push_str(digits),
                13 => named.push_str(moment(digits.parse().unwrap()).trim_start_matches('@')),
                _ => {
                    let name = self.name(Token::new(digits.parse().unwrap()).unwrap());
                    named.push_str(name.trim_start_matches('#'));
                }
            }
            rest = tail;
        }
        named + rest
    }

    /// `#2` is a token that has appeared, a plain number is itself.
    fn token(&self, name: &str) -> u64 {
        match name.strip_prefix('#') {
            Some(index) => self.tokens[index.parse::<usize>().unwrap() - 1],
            None => name.parse().unwrap(),
        }
    }
}

fn lease_of(ms: u64) -> Lease {
    Lease::from_ms(ms as i64).unwrap()
}

pub(crate) fn code(error: &LockError) -> String {
    format!("error: {error}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn millis(text: &str) -> u64 {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        other => panic!("{text}: the unit {other}?"),
    };
    digits.parse::<u64>().unwrap() * unit
}

pub(crate) fn duration(ms: u64) -> String {
    if ms % 1_000 == 0 {
        format!("{}s", ms / 1_000)
    } else {
        format!("{ms}ms")
    }
}

fn moment(wall_ms: i64) -> String {
    let since = wall_ms - START_MS;
    let sign = if since < 0 { "-" } else { "" };
    format!("@{sign}{}", duration(since.unsigned_abs()))
}
