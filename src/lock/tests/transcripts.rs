//! Transcripts: commands to the simulated server, with the replies and effects.
//!
//! A block is some commands, `----`, and the replies with their effects. The commands of one block run in one tick of
//! the server: at its end keys are settled, then replies are delivered. So a `drop` in the block of a release happens
//! between a grant and its delivery.
//!
//! Commands, with their options in brackets:
//! ```text
//! acquire k owner [lease=30s | session] [block=5s | block=0] [once] [conn=c]     the lease is 30s, conn the owner
//! read k owner [as acquire]     write k owner [as acquire]                       READ and WRITE
//! release k owner [read | write] [all] [token=#1]      renew k owner [read | write] [lease=30s] [token=#1]
//! macquire k1 k2 ... owner [read | write] [as acquire]
//! mrelease k1 k2 ... owner [all]     mrenew k1 k2 ... owner [lease=30s]
//! break k [token=#1] [purge | to=owner [lease=30s] [conn=c]]     info k     queue k
//! sem.set k 3 [nx | xx]          sem.acquire k id [limit=3] [as acquire]     sem.release k id
//! sem.renew k id [lease=30s]     sem.info k
//! latch.set k 3 [nx | xx]        latch.down k [3]     latch.wait k conn [block=5s | block=0]
//!
//! advance 5s     every timer runs at its moment
//! late 5s        time passes and no timer runs      alarm [short]   the timer that was late [without time]
//! clock forward 5s | back 5s        the wall clock alone is set
//! drop conn      the connection closes              unblock conn
//! del k   expire [k]   hdel k   persist k   pexpire k 5s   overwrite k string | hash | holds N
//! redisson acquire k owner [lease=30s]   redisson release k owner   redisson renew k owner [lease=30s]
//! redisson read | write | unread | unwrite | renew-read k owner [lease=30s]   redisson force k owner
//! redisson take | give k id [lease=30s]
//! counter k 50   horizon k 50   flush   restart [back=1h]   grants off | on
//! delay 5s | limit 1s   demote   session lease 10s
//! subscribe k | unsubscribe k      the channel of k has a subscriber, or none
//! forbid 1 | permit 1              the user with this number may take no key, or every key
//! window after=2 [window=50ms]
//! limits [waiters=N] [per-key=N] [tickets=N] [bytes=N] [share=N] [tracked=N] [grace=1s] [places=N]     a new server
//! ... [user=N]  the number of the user, for a request that waits; 0: unknown
//! keys   sessions (the bound holds and their connections)   stats name ...   quiet
//! times name ...                 histograms: the number of times in each bucket, by its bound
//! ```
//! In the replies, tokens are #1, #2, in the order in which they appear (the simulated server checks that they rise),
//! and times count from the start of the server. Indented lines are the effects in order: writes, events, publishes,
//! and the replies `to` parked connections.
//!
//! `UPDATE_TRANSCRIPTS=1 cargo test` writes the replies again. Read the difference critically: it becomes the contract.

mod effects;
mod events;
mod lock;
mod semaphore;

use std::fmt::Write as _;
use std::path::Path;

use crate::lock::tests::sim::{Settings, Sim, Terms, DEFAULT_LEASE_MS, START_MS};
use crate::lock::{Lease, LockError, Mode, SetIf, Token, UserId, Wait};

macro_rules! transcripts {
    ($($name:ident: $file:literal,)*) => {$(
        #[test]
        fn $name() {
            run($file);
        }
    )*};
}

transcripts! {
    broken: "break",
    dead_readers: "dead_readers",
    deadlocks: "deadlocks",
    exclusive: "exclusive",
    fence: "fence",
    notes: "note",
    foreign: "foreign",
    latch: "latch",
    lease: "lease",
    limits: "limits",
    many_keys: "many_keys",
    mixed_fleet: "mixed",
    queue: "queue",
    read_write: "read_write",
    semaphore: "semaphore",
    session: "session",
    slices: "slices",
    starts_and_ends: "starts_and_ends",
    times_of_waits_and_holds: "times",
    tickets: "tickets",
    tokens: "tokens",
    users: "users",
    undo: "undo",
    upgrades_and_downgrades: "upgrade",
    windows: "windows",
}

fn run(subject: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/lock/tests/transcripts")
        .join(subject)
        .with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let actual = play(&text);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    // By lines, so that a failure names the place.
    let mut lines = actual.lines();
    for (number, expected) in text.lines().enumerate() {
        let got = lines.next().unwrap_or("the end of the file");
        assert_eq!(got, expected, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(lines.next(), None, "{}: more replies", path.display());
}

/// The file with the present replies.
fn play(text: &str) -> String {
    let mut session = Session::new();
    let mut result = String::new();
    let mut commands = Vec::new();
    let mut in_replies = false;
    for line in text.lines() {
        if in_replies && !line.is_empty() {
            continue;
        }
        in_replies = line == "----";
        writeln!(result, "{line}").unwrap();
        if in_replies {
            let commands = std::mem::take(&mut commands);
            result.push_str(&session.tick(&commands));
        } else if !line.is_empty() && !line.starts_with('#') {
            commands.push(line);
        }
    }
    assert!(commands.is_empty(), "commands without ----: {commands:?}");
    session.sim.leave_nothing(&session.settings);
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
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn at(&self, index: usize) -> &'a str {
        self.0[index]
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn option(&self, name: &str) -> Option<&'a str> {
        let mut words = self.0.iter();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.option(name).map(|text| text.parse().unwrap())
    }

    fn lease(&self) -> Lease {
        lease_of(self.option("lease").map_or(DEFAULT_LEASE_MS, millis))
    }

    fn terms(&self) -> Terms {
        match self.option("lease") {
            _ if self.has("session") => Terms::Session,
            None => Terms::Unnamed,
            Some(_) => Terms::Named(self.lease()),
        }
    }

    /// The mode after the key and the owner.
    fn mode(&self) -> Option<Mode> {
        let words = self.0.iter().skip(3);
        words.copied().find_map(|word| match word {
            "read" => Some(Mode::Read),
            "write" => Some(Mode::Write),
            _ => None,
        })
    }

    fn condition(&self) -> SetIf {
        match (self.has("nx"), self.has("xx")) {
            (true, _) => SetIf::Absent,
            (_, true) => SetIf::There,
            _ => SetIf::Always,
        }
    }

    fn wait(&self) -> Wait {
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

    fn tick(&mut self, commands: &[&str]) -> String {
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
        self.sim.notify = words.option("notify").map(|named| {
            let (channel, tag) = named.split_once('/').unwrap();
            (channel.into(), tag.into())
        });
        self.sim.note = words.option("note").map(str::to_string);
        self.sim.count = words.number("permits").map(|count| count as u8);
        self.sim.queue = words.number("queue").map(|most| most as u32);
        self.sim.user = UserId(words.number("user").unwrap_or(0) as u32);
        self.lock_command(words)
            .or_else(|| self.semaphore_command(words))
            .or_else(|| self.shown(words))
            .unwrap_or_else(|| self.event(words))
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

fn code(error: &LockError) -> String {
    format!("error: {error}")
}

/// The reply of a command that may be refused.
fn said<T, S: Into<String>>(result: Result<T, LockError>, say: impl FnOnce(T) -> S) -> String {
    result.map_or_else(|error| code(&error), |done| say(done).into())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn millis(text: &str) -> u64 {
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

fn duration(ms: u64) -> String {
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
