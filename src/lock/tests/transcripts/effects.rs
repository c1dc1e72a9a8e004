//! The text of effects, and of what a transcript asks to see.

use std::fmt::Write as _;

use crate::lock::tests::sim::keyspace::Value;
use crate::lock::tests::sim::{key_ref, sem_ref, Out, CONNS};
use crate::lock::tests::transcripts::{code, duration, moment, text, Session, Words};
use crate::lock::{
    BoundRef, CountChange, Hold, KeyState, KeyWrite, Mode, Outcome, PermitChange, Resource, Token,
    Waiter,
};

impl Session {
    pub(super) fn shown(&mut self, words: &Words<'_>) -> Option<String> {
        Some(match words.at(0) {
            "info" => self.info(words.at(1)),
            "stats" => self.stats(&words.0[1..]),
            "times" => self.histograms(&words.0[1..]),
            "quiet" => self.quiet(),
            "keys" => self.keys(),
            "queue" => self.queue(words.at(1)),
            "sessions" => self.sessions(),
            _ => return None,
        })
    }

    pub(super) fn say_effects(&mut self) {
        for out in std::mem::take(&mut self.sim.out) {
            for line in self.lines_of(out) {
                writeln!(self.said, "  {line}").unwrap();
            }
        }
    }

    fn lines_of(&mut self, out: Out) -> Vec<String> {
        let line = match out {
            Out::Horizon => "set horizon".into(),
            Out::Counter(key, token) => format!("set counter {key} {}", self.name(token)),
            Out::Write(key, write) => self.write(&key, &write),
            Out::WriteShared(_, lines) => {
                return lines.iter().map(|line| self.named(line)).collect();
            }
            Out::PublishPermits(free) => format!("publish {free}"),
            Out::PublishLatch { is_open } => format!("publish {}", u8::from(!is_open)),
            Out::Publish(key) => format!("publish {key}"),
            Out::PublishShorter => "publish: the lease is shorter".into(),
            Out::PublishReadWrite(key, mode) => {
                let message = if mode == Mode::Write { "1" } else { "0" };
                format!("publish rw {key} {message}")
            }
            Out::Notify(key, event) => {
                format!("event {} {key}", event.name().to_str().unwrap())
            }
            Out::Answer { conn, outcome, .. } => {
                let what = self.outcome(outcome);
                format!("to {}: {what}", self.conns[conn as usize])
            }
            Out::Tell {
                channel,
                tag,
                outcome,
            } => {
                let what = self.outcome(outcome);
                format!("on {channel}: {tag} {what}")
            }
        };
        vec![line]
    }

    fn outcome(&mut self, outcome: Outcome) -> String {
        match outcome {
            Outcome::Granted(token) => self.name(token),
            Outcome::GrantedAll(tokens) => self.names(&tokens),
            Outcome::Nil => "nil".into(),
            Outcome::Failed(error) => code(&error),
            Outcome::Open => "open".into(),
        }
    }

    pub(super) fn names(&mut self, tokens: &[Token]) -> String {
        let names = tokens.iter().map(|token| self.name(*token));
        names.collect::<Vec<_>>().join(" ")
    }

    fn write(&mut self, key: &str, write: &KeyWrite) -> String {
        match write {
            KeyWrite::Permits(change) => permits_line(key, change),
            KeyWrite::Count(CountChange::Delete) => format!("del {key}"),
            KeyWrite::Count(CountChange::Set(count) | CountChange::Make(count)) => {
                format!("set {key} {count}")
            }
            KeyWrite::ReadWrite(_) => unreachable!("see `Out::WriteShared`"),
            KeyWrite::Note(owner, note) => {
                format!("hset {key} #note:{} {}", text(owner), text(note))
            }
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
            KeyState::Bare(Some(token)) => format!("free, token {}", self.name(token)),
            KeyState::Bare(None) => "free".into(),
            KeyState::Text(_) => "held by a string".into(),
            KeyState::Held(hold) => self.hold(&hold),
            KeyState::ReadWrite(_) => "a read-write lock".into(),
            KeyState::OtherHash => "another hash".into(),
            KeyState::OtherType => "another type".into(),
        };
        let waiters = &self.sim.locks.shared.waiters;
        let queue = waiters.queue(key_ref(key)).map_or(String::new(), |queue| {
            let owners: Vec<_> = queue.iter().map(|(owner, _)| text(owner)).collect();
            owners.join(" ")
        });
        let places = waiters.places.used().kept;
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

    pub(super) fn sem_info(&self, key: &str) -> String {
        let held = self.sim.keys.permits(key).into_iter();
        let held: Vec<String> = held
            .map(|(id, end)| format!("{id} {}", moment(end)))
            .collect();
        let queue = self.sim.locks.shared.waiters.live_queue(sem_ref(key));
        let waiting = queue.into_iter().flat_map(|queue| queue.iter());
        let waiting: Vec<_> = waiting.map(|(id, _)| text(id)).collect();
        let free = self.sim.free(key);
        let free = free.map_or("no semaphore".into(), |free| format!("free {free}"));
        let (held, waiting) = (held.join(", "), waiting.join(" "));
        format!("{free}; in the set: [{held}]; waiting: [{waiting}]")
    }

    /// All keys with their content.
    fn keys(&mut self) -> String {
        let mut lines = Vec::new();
        for (name, (value, end)) in self.sim.keys.clone().iter() {
            let value = match value {
                Value::Text(text) => text.clone(),
                Value::Permits(ends) => format!("{ends:?}"),
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
        let waiters = &self.sim.locks.shared.waiters;
        let queue = waiters.queue(key_ref(key)).into_iter();
        let one =
            |(owner, waiter): (&[u8], &Waiter)| format!("{} {}", text(owner), waiter.mode.name());
        let requests: Vec<_> = queue.flat_map(|queue| queue.iter()).map(one).collect();
        let due = waiters.next_settle(self.sim.now);
        let due = due.map_or("never".into(), |ms| format!("{ms}ms"));
        format!("waiting: [{}]; next settling: {due}", requests.join(", "))
    }

    /// The fields of `INFO lock`; those of semaphores and latches with their prefix.
    fn stats(&self, names: &[&str]) -> String {
        let waiters = &self.sim.locks.shared.waiters;
        let gauges = waiters.gauges();
        let of_kinds = Resource::ALL.into_iter().flat_map(|resource| {
            let oldest = ("oldest_wait_ms", gauges[resource].oldest_ms(self.sim.now));
            let fields = self.sim.locks.fields(resource, &gauges).into_iter();
            fields
                .chain([oldest])
                .map(move |(name, value)| (format!("{}{name}", resource.prefix()), value))
        });
        let tickets = waiters.ticket_fields(&gauges).into_iter();
        let tickets = tickets.map(|(name, value)| (name.to_string(), value));
        let fields: Vec<_> = of_kinds.chain(tickets).collect();
        let value = |name: &&str| fields.iter().find(|field| field.0 == *name).unwrap().1;
        let values = names.iter().map(|name| format!("{name}={}", value(name)));
        values.collect::<Vec<_>>().join(" ")
    }

    /// Histograms of `INFO lock`: the buckets that have times, by their bounds.
    fn histograms(&self, names: &[&str]) -> String {
        let all = self.sim.locks.histograms();
        let line = |name: &&str| {
            let histogram = all.iter().find(|known| known.0 == *name).unwrap().1;
            let mut before = 0;
            let mut line = format!("{name}:");
            for (bound, up_to) in histogram.up_to() {
                let bound = bound.map_or("longer".into(), duration);
                if up_to > before {
                    line += &format!(" {bound} {}", up_to - before);
                }
                before = up_to;
            }
            line + &format!("; sum {}", duration(histogram.sum_ms()))
        };
        names.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What is still due, and what is left in memory.
    fn quiet(&self) -> String {
        let waiters = &self.sim.locks.shared.waiters;
        let due = |ms: Option<u64>| ms.map_or("never".into(), duration);
        let keys = self.sim.keys.iter().map(|(key, _)| key);
        let keys = keys.chain(self.sim.counters.keys());
        let queues = keys.flat_map(|key| key_ref(key).of_all());
        let queues = queues.filter(|key| waiters.queue(*key).is_some());
        format!(
            "next wait: {}, next settling: {}, parked: {}, places kept: {}, queues: {}",
            due(waiters.next_wait(self.sim.now)),
            due(self.sim.locks.shared.waiters.next_settle(self.sim.now)),
            waiters.live(),
            waiters.places.used().kept,
            queues.count(),
        )
    }

    fn sessions(&self) -> String {
        let sessions = &self.sim.locks.shared.sessions;
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
}

fn permits_line(key: &str, change: &PermitChange) -> String {
    let mut parts = Vec::new();
    parts.extend(change.clear.then(|| format!("make {key}")));
    parts.extend(change.removed.iter().map(|id| format!("zrem {}", text(id))));
    for (id, end) in &change.set {
        parts.push(format!("zadd {} {}", text(id), moment(*end)));
    }
    parts.extend(change.free.map(|free| format!("set {key} {free}")));
    parts.join(", ")
}
