//! Conversations about semaphores and latches, in files that read like a session (see `transcripts`).
//!
//! ```text
//! set k 3 [nx | xx]
//! acquire k id [limit=3] [lease=30s | session] [block=5s | block=0] [conn=c]     the lease is 30s, conn the id
//! release k id      renew k id [lease=30s]      info k      stats name ...
//! latch k 3 [nx | xx]      down k [3]      wait k conn [block=5s | block=0]      persist | pexpire k 5s
//! advance 5s     every timer runs at its moment      late 5s     no timer runs
//! drop conn      unblock conn      close conn (whatever is bound to it)      del k      overwrite k      grants off | on      delay 5s      drain
//! redisson take k id [lease=30s]      redisson give k id
//! ```

use std::fmt::Write as _;
use std::num::NonZeroU32;

use crate::lock::effect::Cx;
use crate::lock::tests::semaphores::{Out, Sim};
use crate::lock::tests::sim::{key_ref, START_MS};
use crate::lock::tests::transcripts::{code, duration, millis, run_with, Words};
use crate::lock::{
    Answer, CountChange, Effects, Grace, Limits, LockError, Outcome, PermitChange, SemAcquire,
    SetIf, Token, Waited, WaiterId,
};

#[test]
fn semaphore() {
    let mut session = Session::new();
    run_with("semaphore", |commands| session.turn(commands));
}

#[test]
fn latch() {
    let mut session = Session::new();
    run_with("latch", |commands| session.turn(commands));
}

struct Session {
    sim: Sim,
    conns: Vec<(WaiterId, String)>,
    tokens: Vec<Token>,
    said: String,
}

/// The server's id of a connection of this name.
fn client_of(conn: &str) -> u64 {
    conn.bytes().fold(0, |id, byte| id * 256 + u64::from(byte))
}

fn set_if(words: &Words<'_>) -> SetIf {
    match (words.has("nx"), words.has("xx")) {
        (true, _) => SetIf::Absent,
        (_, true) => SetIf::There,
        _ => SetIf::Always,
    }
}

impl Session {
    fn new() -> Session {
        let limits = Limits {
            max_waiters: 100,
            max_waiters_per_key: 100,
            max_tracked: 100,
        };
        let grace = Grace {
            ms: 1_000,
            max_places: 100,
        };
        Session {
            sim: Sim::new(limits, grace),
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
        self.sim.end_tick();
        self.say_effects();
        std::mem::take(&mut self.said)
    }

    fn command(&mut self, words: &Words<'_>) -> String {
        let key = words.0.get(1).copied().unwrap_or("");
        let number = |at: usize| words.0.get(at).and_then(|word| word.parse().ok());
        match words.at(0) {
            "set" => said(
                self.sim.set(key, number(2).unwrap() as u32, set_if(words)),
                |set| set.map_or("nil".into(), |all| all.to_string()),
            ),
            "acquire" => self.acquire(words),
            "release" => said(self.sim.release(key, words.at(2)), |done| {
                if done { "released" } else { "not held" }.into()
            }),
            "renew" => said(
                self.sim.renew(
                    key,
                    words.at(2),
                    words.lease(),
                    words.option("lease").is_some(),
                ),
                |done| if done { "renewed" } else { "lost" }.into(),
            ),
            "info" => self.info(key),
            "stats" => self.stats(&words.0[1..]),
            "latch" => {
                let (count, set_if) = (number(2).unwrap(), set_if(words));
                let set = self.sim.latch(key, |locks, state, cx| {
                    locks.latch_set(key_ref(key), state, count, set_if, cx)
                });
                said(set, |set| {
                    set.map_or("nil".into(), |count| count.to_string())
                })
            }
            "down" => {
                let by = number(2).unwrap_or(1);
                let left = self.sim.latch(key, |locks, state, cx| {
                    locks.latch_down(key_ref(key), state, by, cx)
                });
                said(left, |left| left.to_string())
            }
            "wait" => self.wait(words),
            _ => self.event(words),
        }
    }

    fn acquire(&mut self, words: &Words<'_>) -> String {
        let id = words.at(2);
        let limit = words.number("limit").map(|limit| limit as u32);
        let request = SemAcquire {
            id: id.as_bytes(),
            lease: words.lease(),
            names_lease: words.option("lease").is_some(),
            session: words.has("session"),
            limit: limit.and_then(NonZeroU32::new),
            wait: words.wait(),
            client: client_of(words.option("conn").unwrap_or(id)),
        };
        let answer = self.sim.acquire(words.at(1), &request);
        said(answer, |answer| match answer {
            Answer::Granted(token) => format!("granted {}", self.name(token)),
            Answer::Refused => "refused".into(),
            Answer::Parked(waiter) => {
                let conn = words.option("conn").unwrap_or(id);
                self.conns.push((waiter, conn.into()));
                "parked".into()
            }
        })
    }

    fn wait(&mut self, words: &Words<'_>) -> String {
        let (key, conn) = (words.at(1), words.at(2));
        let waited = self.sim.latch(key, |locks, state, cx| {
            let client = client_of(conn);
            let waited = locks.latch_wait(key_ref(key), state, client, words.wait(), cx)?;
            Ok((waited, CountChange::None))
        });
        said(waited, |waited| match waited {
            Waited::Open => "open".into(),
            Waited::Closed => "closed".into(),
            Waited::Parked(waiter) => {
                self.conns.push((waiter, conn.into()));
                "parked".into()
            }
        })
    }

    /// What happens without a command of ours.
    fn event(&mut self, words: &Words<'_>) -> String {
        let key = words.0.get(1).copied().unwrap_or("");
        match words.at(0) {
            "advance" => self.sim.advance(millis(key)),
            "late" => {
                self.sim.now.mono_ms += millis(key);
                self.sim.now.wall_ms += millis(key) as i64;
            }
            "drop" => {
                let waiter = self.waiter(key);
                self.sim.drop_conn(waiter);
            }
            "close" => self.sim.close(client_of(key)),
            "unblock" => {
                let waiter = self.waiter(key);
                self.sim.locks.unblocked(waiter, self.sim.now);
            }
            "del" => {
                self.sim.latches.remove(key);
                if let Some(keys) = self.sim.sems.get_mut(key) {
                    keys.free = None;
                }
                self.sim.unsettled(key, false);
            }
            "pexpire" | "persist" => {
                let now_ms = self.sim.now.wall_ms;
                let end_ms = words.0.get(2).map(|ms| now_ms + millis(ms) as i64);
                self.sim.latches.get_mut(key).unwrap().1 = end_ms;
                self.sim.unsettled(key, true);
            }
            "overwrite" => {
                self.sim.sems.entry(key.into()).or_default().foreign = true;
                self.sim.unsettled(key, true);
            }
            "redisson" => self.redisson(words),
            "grants" => self.sim.may_grant = key == "on",
            "delay" => self
                .sim
                .locks
                .startup_delay
                .begin(self.sim.now, millis(key)),
            "drain" => {
                let mut fx = Effects::new();
                self.sim.locks.drain(&mut Cx::new(self.sim.now, &mut fx));
                self.sim.carry_out("", fx);
            }
            other => panic!("{other}?"),
        }
        String::new()
    }

    fn redisson(&mut self, words: &Words<'_>) {
        let (key, id) = (words.at(2), words.at(3));
        let end_ms = self.sim.now.wall_ms + words.option("lease").map_or(30_000, millis) as i64;
        let keys = self.sim.sems.get_mut(key).unwrap();
        let free = keys.free.as_mut().unwrap();
        if words.at(1) == "take" {
            *free -= 1;
            keys.set.insert(id.into(), end_ms);
        } else {
            *free += 1;
            keys.set.remove(id).unwrap();
        }
        self.sim.unsettled(key, true);
    }

    fn info(&mut self, key: &str) -> String {
        let keys = self.sim.sems.get(key).cloned().unwrap_or_default();
        let at = |end: &i64| format!("@{}", duration((end - START_MS) as u64));
        let held: Vec<String> = keys
            .set
            .iter()
            .map(|(id, end)| format!("{id} {}", at(end)))
            .collect();
        let queue = self.sim.locks.sems.queue(key_ref(key));
        let waiting = queue.into_iter().flat_map(|queue| queue.iter());
        let waiting: Vec<_> = waiting.map(|(id, _)| String::from_utf8_lossy(id)).collect();
        let free = keys
            .free
            .map_or("no semaphore".into(), |free| format!("free {free}"));
        format!(
            "{free}; in the set: [{}]; waiting: [{}]",
            held.join(", "),
            waiting.join(" ")
        )
    }

    fn stats(&self, names: &[&str]) -> String {
        let kinds = self.sim.locks.kinds().into_iter();
        let fields = kinds.flat_map(|kind| {
            let fields = kind.fields().into_iter();
            fields.map(|(name, value)| (format!("{}{name}", kind.prefix()), value))
        });
        let all: Vec<_> = fields.collect();
        let one = |name: &&str| {
            let stat = all.iter().find(|(n, _)| n == name);
            format!("{name} {}", stat.unwrap().1)
        };
        names.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn waiter(&self, conn: &str) -> WaiterId {
        let last = self.conns.iter().rev().find(|(_, name)| name == conn);
        last.unwrap().0
    }

    fn name(&mut self, token: Token) -> String {
        let known = self.tokens.iter().position(|other| *other == token);
        let at = known.unwrap_or_else(|| {
            assert!(self.tokens.last() < Some(&token), "tokens rise");
            self.tokens.push(token);
            self.tokens.len() - 1
        });
        format!("#{}", at + 1)
    }

    fn say_effects(&mut self) {
        for out in std::mem::take(&mut self.sim.out) {
            let line = match out {
                Out::Notify(key, event) => {
                    format!("event {} {key}", event.name().to_str().unwrap())
                }
                Out::Latch(key, change) => match change {
                    CountChange::None => continue,
                    CountChange::Set(count) => format!("set {key} {count}"),
                    CountChange::Make(count) => format!("set {key} {count}, publish 1"),
                    CountChange::Open => format!("del {key}, publish 0"),
                },
                Out::Change(key, change) => self.written(&key, &change),
                Out::Answer(waiter, outcome) => {
                    let what = match outcome {
                        Outcome::Granted(token) => self.name(token),
                        Outcome::Nil => "nil".into(),
                        Outcome::Open => "open".into(),
                        Outcome::GrantedAll(_) => panic!("locks"),
                        Outcome::Failed(error) => code(&error),
                    };
                    let conn = self.conns.iter().find(|(w, _)| *w == waiter);
                    // A command that is answered itself: its own name comes after this.
                    format!("to {}: {what}", conn.map_or("itself", |conn| &conn.1))
                }
            };
            writeln!(self.said, "  {line}").unwrap();
        }
    }

    fn written(&self, key: &str, change: &PermitChange) -> String {
        let text = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
        let mut parts = Vec::new();
        parts.extend(change.clear.then(|| format!("make {key}")));
        parts.extend(change.removed.iter().map(|id| format!("zrem {}", text(id))));
        for (id, end) in &change.set {
            let at = duration((end - START_MS) as u64);
            parts.push(format!("zadd {} @{at}", text(id)));
        }
        parts.extend(change.free.map(|free| format!("set {key} {free}")));
        parts.extend(change.publish.map(|free| format!("publish {free}")));
        parts.join(", ")
    }
}

fn said<T>(answer: Result<T, LockError>, say: impl FnOnce(T) -> String) -> String {
    match answer {
        Ok(answer) => say(answer),
        Err(error) => code(&error),
    }
}
