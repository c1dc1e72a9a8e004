//! All commands, with names from a small set in which locks, semaphores, their sibling keys and the module's own keys
//! collide, and plain writes of foreign data in between. A model has the holds that exist for certain: no grant
//! conflicts with them, none is lost unless its keys were written to, and foreign data does not change.
//!
//! `LOCK_SEED` sets the seed, `LOCK_STEPS` the number of steps; a failure names the last steps.

use std::collections::HashMap;

use crate::common::{Conn, Reply, TestServer};

const NAMES: [&str; 12] = [
    "k",
    "{k}",
    "k",
    "{k}",
    "{k}:a",
    "{k}:a:b",
    "{k}:timeout",
    "{k}:a:timeout",
    "redisson_lock_token:{k}",
    "{k}:rwlock_token",
    "{k}:o:rwlock_timeout:1",
    "{k}:a:o:rwlock_timeout:1",
];
const OWNERS: [&str; 6] = ["o", "p", "a:o", "b:o", "a:b:o", "o"];
const MODES: [&str; 3] = ["", "READ", "WRITE"];
const STEPS: u64 = 4_000;
const WAITERS: usize = 3;

/// A hold, or a permit: `kind` is the mode of a lock, or `SEM`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Hold {
    name: String,
    owner: String,
    kind: &'static str,
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

struct Game {
    server: TestServer,
    conn: Conn,
    random: Random,
    /// The certain holders, with their minimum hold counts.
    sure: HashMap<Hold, i64>,
    /// The highest number of permits that a semaphore may have had since its creation.
    permits: HashMap<String, i64>,
    /// The highest token so far.
    highest: i64,
    /// Foreign data and its digest.
    foreign: HashMap<String, String>,
    /// Requests that may still wait, with the connections that sent them.
    parked: Vec<(Conn, Option<Vec<Hold>>)>,
    log: Vec<String>,
}

impl Drop for Game {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.log.iter().rev().take(60).rev() {
                println!("    {line}");
            }
        }
    }
}

fn stem(name: &str) -> String {
    match name.contains('{') {
        true => name.into(),
        false => format!("{{{name}}}"),
    }
}

impl Hold {
    /// Whether this event at the key may have ended the hold.
    fn leans_on(&self, key: &str) -> bool {
        let stem = stem(&self.name);
        key == self.name
            || (self.kind == "READ"
                && key.starts_with(&format!("{stem}:{}:rwlock_timeout:", self.owner)))
            || (self.kind == "SEM" && key == format!("{stem}:timeout"))
    }

    fn excludes(&self, other: &Hold) -> bool {
        let one_lock = self.name == other.name && self.owner != other.owner;
        one_lock
            && self.kind != "SEM"
            && other.kind != "SEM"
            && (self.kind, other.kind) != ("READ", "READ")
    }

    fn renewal(&self) -> String {
        match self.kind {
            "SEM" => format!("SEM.RENEW {} {} PX 600000", self.name, self.owner),
            mode => format!("LOCK.RENEW {} {} {mode} PX 600000", self.name, self.owner),
        }
    }
}

impl Game {
    fn new(seed: u64) -> Game {
        let server = TestServer::with(&["--lock.deadlock-detect", "no"]);
        let parked = (0..WAITERS).map(|_| (server.conn(), None)).collect();
        Game {
            conn: server.conn(),
            server,
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            sure: HashMap::new(),
            permits: HashMap::new(),
            highest: 0,
            foreign: HashMap::new(),
            parked,
            log: Vec::new(),
        }
    }

    fn say(&mut self, line: &str) -> Reply {
        let reply = self.conn.line(line);
        self.log.push(format!("{line} -> {reply:?}"));
        reply
    }

    fn step(&mut self) {
        let (name, owner) = (self.random.pick(&NAMES), self.random.pick(&OWNERS));
        let mode = self.random.pick(&MODES);
        match self.random.below(40) {
            0..=9 => self.acquire(vec![name], owner, mode),
            10 | 11 => {
                let other = self.random.pick(&NAMES);
                if other != name {
                    self.acquire(vec![name, other], owner, mode);
                }
            }
            12..=17 => self.release(name, owner, mode),
            18 => self.break_lock(name),
            19 | 20 => self.set_permits(name),
            21..=25 => self.acquire_permit(name, owner),
            26..=28 => self.release_permit(name, owner),
            29..=31 => self.latch(name),
            32..=34 => self.plain_write(name),
            35 => self.plain_write("redis_lock:horizon"),
            _ => self.delete(name),
        }
        if self.foreign.contains_key("redis_lock:horizon") && self.random.below(4) == 0 {
            self.delete("redis_lock:horizon");
        }
        self.read_replies();
        self.check();
    }

    /// Sometimes by a waiter's connection.
    fn ask(&mut self, line: &str, wanted: Vec<Hold>) -> Option<Reply> {
        if self.random.below(4) == 0 {
            let free = self.parked.iter().position(|(_, asked)| asked.is_none());
            if let Some(at) = free {
                let line = format!("{line} BLOCK 0");
                self.log.push(line.clone());
                self.parked[at].0.send_line(&line);
                self.parked[at].1 = Some(wanted);
                return None;
            }
        }
        Some(self.say(line))
    }

    fn acquire(&mut self, names: Vec<&str>, owner: &str, mode: &'static str) {
        let hold = |name: &&str| Hold {
            name: (*name).into(),
            owner: owner.into(),
            kind: mode,
        };
        let wanted: Vec<Hold> = names.iter().map(hold).collect();
        let line = match &names[..] {
            [name] => format!("LOCK.ACQUIRE {name} {owner} {mode} PX 600000"),
            many => format!(
                "LOCK.MACQUIRE {} {} {owner} {mode} PX 600000",
                many.len(),
                many.join(" ")
            ),
        };
        if let Some(reply) = self.ask(&line, wanted.clone()) {
            if !reply.is_error() && !reply.is_nil() {
                self.granted(wanted, &reply);
            }
        }
    }

    fn granted(&mut self, holds: Vec<Hold>, reply: &Reply) {
        let token = reply.maybe_int();
        for hold in holds {
            // Fewer permits may be allowed than are held; an owner that holds one gets it again, under its token.
            let is_fresh = token.is_none_or(|token| token > self.highest);
            if hold.kind == "SEM" && is_fresh {
                let others = |other: &&Hold| {
                    other.kind == "SEM" && other.name == hold.name && other.owner != hold.owner
                };
                let others = self.sure.keys().filter(others).count() as i64;
                if let Some(permits) = self.permits.get(&hold.name) {
                    assert!(others < *permits, "{hold:?} beside {others} of {permits}");
                }
            }
            let beside = self.sure.keys().find(|other| hold.excludes(other));
            assert_eq!(beside, None, "{hold:?} was granted beside it");
            *self.sure.entry(hold).or_default() += 1;
        }
        self.highest = self.highest.max(token.unwrap_or(0));
    }

    fn release(&mut self, name: &str, owner: &str, mode: &'static str) {
        let reply = self.say(&format!("LOCK.RELEASE {name} {owner} {mode}"));
        let hold = Hold {
            name: name.into(),
            owner: owner.into(),
            kind: mode,
        };
        if let Some(count) = self.sure.get_mut(&hold) {
            let left = reply.maybe_int();
            let is_ambiguous = mode.is_empty() && reply.is_error();
            assert!(
                left.is_some() || is_ambiguous,
                "{hold:?} was lost: {reply:?}"
            );
            *count -= 1;
            if left == Some(1) {
                self.sure.remove(&hold);
            }
        } else if mode.is_empty() && reply.maybe_int() == Some(1) {
            // The same owner's hold of another mode.
            self.forget(|hold| hold.name == name && hold.owner == owner && hold.kind != "SEM");
        }
    }

    fn break_lock(&mut self, name: &str) {
        if !self.say(&format!("LOCK.BREAK {name}")).is_error() {
            self.forget(|hold| hold.name == name && hold.kind != "SEM");
        }
    }

    fn set_permits(&mut self, name: &str) {
        let number = 1 + self.random.below(3) as i64;
        let reply = self.say(&format!("SEM.SET {name} {number}"));
        if reply.maybe_int() == Some(number) {
            self.permits.insert(name.into(), number);
        }
    }

    fn acquire_permit(&mut self, name: &str, owner: &str) {
        let limit = self.random.pick(&["", "LIMIT 1", "LIMIT 2"]);
        let wanted = vec![Hold {
            name: name.into(),
            owner: owner.into(),
            kind: "SEM",
        }];
        let line = format!("SEM.ACQUIRE {name} {owner} {limit} PX 600000");
        if let Some(reply) = self.ask(&line, wanted.clone()) {
            if reply.maybe_int().is_some() {
                self.granted(wanted, &reply);
            }
        }
    }

    fn release_permit(&mut self, name: &str, owner: &str) {
        let reply = self.say(&format!("SEM.RELEASE {name} {owner}"));
        let hold = Hold {
            name: name.into(),
            owner: owner.into(),
            kind: "SEM",
        };
        if self.sure.remove(&hold).is_some() {
            assert_eq!(reply.maybe_int(), Some(1), "{hold:?} was lost");
        }
    }

    fn latch(&mut self, name: &str) {
        let line = self.random.pick(&[
            "LATCH.SET ? 1",
            "LATCH.SET ? 2",
            "LATCH.DOWN ?",
            "LATCH.WAIT ?",
        ]);
        let reply = self.say(&line.replace('?', name));
        let is_permit = |hold: &&Hold| hold.kind == "SEM" && hold.name == name;
        if !reply.is_error() {
            let beside = self.sure.keys().find(is_permit);
            assert_eq!(beside, None, "a latch beside permits");
            self.permits.remove(name);
        }
    }

    fn plain_write(&mut self, name: &str) {
        let line = self.random.pick(&[
            "SET ? foreign",
            "SET ? 2",
            "HSET ? x y",
            "RPUSH ? x",
            "ZADD ? 1 x",
            "SADD ? 1",
        ]);
        let was_there = self.conn.line(&format!("EXISTS {name}")).int() == 1;
        let was_foreign = self.foreign.contains_key(name);
        if was_there && !was_foreign && !line.starts_with("SET") {
            // One more field in the hash of a lock, or one more member in a set of permits.
            return;
        }
        if self.say(&line.replace('?', name)).is_error() {
            return;
        }
        self.touched(name);
        // A horizon that is a string without a plausible number is replaced.
        let is_foreign = name != "redis_lock:horizon" || !line.starts_with("SET");
        if line != "SET ? 2" && is_foreign {
            let digest = self.digest(name);
            self.foreign.insert(name.into(), digest);
        }
    }

    fn delete(&mut self, name: &str) {
        self.say(&format!("DEL {name}"));
        self.touched(name);
    }

    /// Another client has changed this key.
    fn touched(&mut self, name: &str) {
        self.foreign.remove(name);
        self.permits
            .retain(|sem, _| sem != name && format!("{}:timeout", stem(sem)) != name);
        self.forget(|hold| hold.leans_on(name));
    }

    fn forget(&mut self, is_gone: impl Fn(&Hold) -> bool) {
        self.sure.retain(|hold, _| !is_gone(hold));
    }

    fn digest(&mut self, name: &str) -> String {
        self.conn.line(&format!("DEBUG DIGEST-VALUE {name}")).list()[0].text()
    }

    /// Replies to waiters. The grant may have been released meanwhile.
    fn read_replies(&mut self) {
        for _ in 0..3 {
            self.conn.line("PING");
        }
        for at in 0..self.parked.len() {
            if self.parked[at].1.is_none() || self.parked[at].0.is_silent() {
                continue;
            }
            let reply = self.parked[at].0.recv();
            let wanted = self.parked[at].1.take().unwrap();
            self.log.push(format!("to {wanted:?}: {reply:?}"));
            if reply.is_error() || reply.is_nil() {
                continue;
            }
            let renewals: Vec<String> = wanted.iter().map(Hold::renewal).collect();
            if renewals
                .iter()
                .all(|line| self.say(line).maybe_int() == Some(1))
            {
                self.granted(wanted, &reply);
            }
        }
    }

    fn check(&mut self) {
        let foreign: Vec<(String, String)> = self.foreign.clone().into_iter().collect();
        for (name, digest) in foreign {
            assert_eq!(self.digest(&name), digest, "foreign data at {name}");
        }
        if !self.sure.is_empty() {
            let at = self.random.below(self.sure.len());
            let mut sure: Vec<Hold> = self.sure.keys().cloned().collect();
            sure.sort_by_key(Hold::renewal);
            let reply = self.say(&sure[at].renewal());
            assert_eq!(
                reply.maybe_int(),
                Some(1),
                "{:?} was lost: {reply:?}",
                sure[at]
            );
        }
    }
}

#[test]
fn names_that_meet_share_nothing() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (seed, steps) = (number("LOCK_SEED", 1), number("LOCK_STEPS", STEPS));
    println!("LOCK_SEED={seed} LOCK_STEPS={steps}");
    let mut game = Game::new(seed);
    for step in 0..steps {
        if step % 500 == 0 {
            game.say("FLUSHALL");
            game.sure.clear();
            game.foreign.clear();
            game.permits.clear();
        }
        game.step();
    }
    assert_eq!(game.server.stat("panics"), 0);
}
