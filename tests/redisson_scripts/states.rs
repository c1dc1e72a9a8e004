//! Random states of a lock's keys: absent, held by this owner or others, as a plain lock or a read-write lock, as the
//! module writes it, unusual, or of another type.

use crate::calls::TOKEN;
use crate::case::{prefixed, suffixed};
use crate::random::Random;
use crate::wire::{Bytes, Words};

pub const LATCH: &str = "redisson_unlock_latch";
/// The first one is the caller.
pub const OWNERS: [&[u8]; 3] = [b"u:1", b"u:2", b"u:3"];

const COUNTS: [&str; 4] = ["1", "2", "3", "1"];
const ODD_COUNTS: [&str; 9] = ["0", "-1", "abc", "", "1.5", "007", " 2", "+2", "1e1"];
/// Not for read locks, whose scripts count down from the hold count.
const HUGE_COUNTS: [&str; 5] = [
    "9223372036854775807",
    "9223372036854775806",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775807",
];
/// The long one has no zeros at its end: Redis 7.2's Lua writes 100000000 as 1e+8, which PEXPIRE refuses.
const LEASES: [&str; 7] = ["30000", "1", "2", "50", "1000", "600000", "10000000000001"];
const LATCHES: [&str; 14] = [
    "0",
    "1",
    "1",
    "0",
    "abc",
    "",
    "1.5",
    "-1.5",
    "0x10",
    " 7",
    "1e3",
    "-1",
    "12345678901234567890",
    "nan",
];

/// The restrictions of a state.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// For read-write locks: no count is huge.
    pub read_write: bool,
    /// Whether the hash may be other than compact.
    pub may_be_large: bool,
}

struct State<'a> {
    random: &'a mut Random,
    name: &'a [u8],
    kind: Kind,
    /// Whether readers have timeouts; otherwise all have expired.
    timeouts_last: bool,
    /// Whether all deadlines are the same.
    common_lease: Option<&'static str>,
    commands: Vec<Words>,
}

/// The commands that create a state of this lock.
pub fn of_lock(random: &mut Random, name: &[u8], kind: Kind) -> Vec<Words> {
    let common = random.pick(&LEASES);
    let mut state = State {
        common_lease: random.percent(25).then_some(common),
        random,
        name,
        kind,
        timeouts_last: true,
        commands: Vec::new(),
    };
    let as_read_write = state.random.percent(if kind.read_write { 80 } else { 10 });
    match state.random.below(10) {
        0 | 1 => {}
        2 => state.of_another_kind(name.to_vec()),
        _ if as_read_write => state.read_write_lock(),
        _ => state.lock(),
    }
    state.beside();
    state.commands
}

/// The fields of a lock with their values, and those of them that end before the calls.
type Fields = (
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

/// Locks with fields that end.
pub const WITH_ENDED_FIELDS: [Fields; 9] = [
    (&[("u:1", "1")], &["u:1"]),
    (&[("u:1", "2"), ("#token", "t7")], &["u:1"]),
    (&[("u:1", "1"), ("u:2", "1")], &["u:2"]),
    (&[("u:2", "1"), ("u:1", "1")], &["u:1", "u:2"]),
    (&[("mode", "read"), ("u:1", "1")], &["u:1"]),
    (&[("mode", "read"), ("u:1", "1")], &["mode"]),
    (&[("mode", "read"), ("u:1", "1"), ("u:2", "1")], &["u:2"]),
    (&[("mode", "write"), ("u:1:write", "1")], &["u:1:write"]),
    (
        &[("mode", "write"), ("u:1:write", "1"), ("u:1", "1")],
        &["u:1:write"],
    ),
];

/// The commands that create one of [`WITH_ENDED_FIELDS`].
pub fn with_ended_fields(name: &[u8], state: usize) -> Vec<Words> {
    let (fields, ended) = WITH_ENDED_FIELDS[state];
    let words = |words: &[&str]| -> Words { words.iter().map(|w| w.as_bytes().to_vec()).collect() };
    let name = std::str::from_utf8(name).unwrap();
    let mut commands = Vec::new();
    for (field, value) in fields {
        commands.push(words(&["HSET", name, field, value]));
        let timeout = format!("{{{name}}}:{field}:rwlock_timeout:1");
        commands.push(words(&["SET", &timeout, "1", "PX", "30000"]));
    }
    for field in ended {
        commands.push(words(&["HPEXPIRE", name, "40", "FIELDS", "1", field]));
    }
    commands.push(words(&["PEXPIRE", name, "30000"]));
    commands
}

impl State<'_> {
    fn command(&mut self, words: &[&[u8]]) {
        let words = words.iter().map(|word| word.to_vec());
        self.commands.push(words.collect());
    }

    fn count(&mut self) -> &'static str {
        match self.random.below(20) {
            0 => self.random.pick(&ODD_COUNTS),
            1 if !self.kind.read_write => self.random.pick(&HUGE_COUNTS),
            _ => self.random.pick(&COUNTS),
        }
    }

    fn field(&mut self, field: &[u8]) {
        let count = self.count();
        self.command(&[b"HSET", self.name, field, count.as_bytes()]);
    }

    fn lease_of(&mut self, key: &[u8]) {
        if self.random.percent(90) {
            let lease = self.random.mostly(50, &LEASES);
            let lease = self.common_lease.unwrap_or(lease);
            self.command(&[b"PEXPIRE", key, lease.as_bytes()]);
        }
    }

    /// A plain lock, mostly held by the caller.
    fn lock(&mut self) {
        let first = self.random.mostly(60, &OWNERS[..2]);
        self.field(first);
        if self.random.percent(10) {
            let another = self.random.pick(&OWNERS);
            self.field(another);
        }
        self.oddities();
        self.lease_of(self.name);
    }

    /// Fields that the module, newer servers or other clients may put into the hash.
    fn oddities(&mut self) {
        let name = self.name;
        if self.random.percent(25) {
            let token = self.random.mostly(80, &["t1795215970798000", "t", "7", ""]);
            self.command(&[b"HSET", name, b"#token", token.as_bytes()]);
        }
        match self.random.below(40) {
            0 => self.command(&[b"HSET", name, b"mode", b"odd"]),
            1 if self.kind.may_be_large => {
                let long = vec![b'f'; 100];
                self.command(&[b"HSET", name, &long, b"1"]);
            }
            2 if self.kind.may_be_large => {
                let numbers: Vec<String> = (0..600).map(|n| format!("f{n}")).collect();
                let pairs = numbers.iter().flat_map(|field| [field.as_bytes(), b"1"]);
                let words: Vec<&[u8]> = [b"HSET", name].into_iter().chain(pairs).collect();
                self.command(&words);
            }
            3 => self.command(&[b"HPEXPIRE", name, b"40", b"FIELDS", b"1", OWNERS[0]]),
            4 => self.command(&[b"HDEL", name, OWNERS[0], OWNERS[1], OWNERS[2]]),
            _ => {}
        }
    }

    fn read_write_lock(&mut self) {
        let name = self.name;
        let mode: &str = self.random.mostly(45, &["read", "write", "odd", ""]);
        if self.random.percent(97) {
            self.command(&[b"HSET", name, b"mode", mode.as_bytes()]);
        }
        let writes = mode == "write" || self.random.percent(5);
        if writes {
            let writer: &[u8] = self.random.mostly(70, &[&b"u:1:write"[..], b"u:2:write"]);
            self.field(writer);
        }
        if !writes || self.random.percent(50) {
            let readers = 1 + self.random.below(3);
            self.timeouts_last = self.random.percent(80);
            for _ in 0..readers {
                let owner = self.random.mostly(60, &OWNERS);
                self.reader(owner);
            }
        }
        self.oddities();
        self.lease_of(name);
    }

    /// A reader, with a timeout for each of its holds, some of them gone.
    fn reader(&mut self, owner: &'static [u8]) {
        let count = self.count();
        self.command(&[b"HSET", self.name, owner, count.as_bytes()]);
        let holds = count.parse().unwrap_or(1i64).clamp(0, 4);
        for hold in 1..=holds {
            let owner = String::from_utf8_lossy(owner);
            let timeout = suffixed(self.name, &format!("{owner}:rwlock_timeout:{hold}"));
            match self.random.below(20) {
                _ if !self.timeouts_last => {}
                0 | 1 => {}
                2 => self.of_another_kind(timeout),
                _ => {
                    self.command(&[b"SET", &timeout, b"1"]);
                    self.lease_of(&timeout);
                }
            }
        }
    }

    fn of_another_kind(&mut self, key: Bytes) {
        match self.random.below(6) {
            0 => self.command(&[b"RPUSH", &key, b"x"]),
            1 => self.command(&[b"SADD", &key, b"u:1"]),
            2 => self.command(&[b"ZADD", &key, b"1", b"u:1"]),
            3 => self.command(&[b"XADD", &key, b"1-1", b"u:1", b"1"]),
            4 => self.command(&[b"HSET", &key, b"x", b"y"]),
            _ => self.command(&[b"SET", &key, b"1"]),
        }
        self.lease_of(&key);
    }

    /// Other keys of the lock: a latch, a counter of tokens, the keys of fair locks.
    fn beside(&mut self) {
        let latch = [&prefixed(LATCH, self.name)[..], b":0123456789abcdef"].concat();
        match self.random.below(20) {
            0 => self.of_another_kind(latch),
            1..=3 => {
                let value = self.random.pick(&LATCHES);
                self.command(&[b"SET", &latch, value.as_bytes()]);
                self.lease_of(&latch);
            }
            _ => {}
        }
        let counter = prefixed(TOKEN, self.name);
        match self.random.below(20) {
            0 => self.of_another_kind(counter),
            1..=6 => {
                let values = [
                    "5",
                    "9007199254740991",
                    "9223372036854775807",
                    "abc",
                    "-3",
                    "",
                ];
                let value = self.random.mostly(60, &values);
                self.command(&[b"SET", &counter, value.as_bytes()]);
            }
            _ => {}
        }
        if self.random.percent(5) {
            let queue = prefixed("redisson_lock_queue", self.name);
            self.command(&[b"RPUSH", &queue, b"u:2"]);
            let deadlines = prefixed("redisson_lock_timeout", self.name);
            self.command(&[b"ZADD", &deadlines, b"1800000100000", b"u:2"]);
        }
    }
}
