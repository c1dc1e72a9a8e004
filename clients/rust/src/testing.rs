//! With the feature `testing`: a double of a server, for the tests of programs that use locks.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{split, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};

use crate::net::server::{Server, ServerBuilder};
use crate::runtime::locked;
use crate::trace::shown;

type Word = Vec<u8>;
type Connection = UnboundedSender<Vec<u8>>;

/// A server in the memory of this process: exclusive and read-write locks, permits, several keys, waits in their order,
/// and [`execute`](crate::Guard::execute) of `GET`, `SET`, `INCR` and `DEL`. All of this crate runs above it; what it
/// does not know (latches, notes, the requests of the feature `admin`) it refuses or leaves out. Leases end by a clock
/// that only [`advance`](Double::advance) moves, while guards count by the time of the machine.
///
/// ```
/// use std::time::Duration;
/// use redis_lock_client::testing::Double;
/// use redis_lock_client::{block_on, Lock};
///
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// let double = Double::new();
/// let lock = Lock::new(&double.builder().build()?, "invoices:42");
/// let guard = block_on(lock.acquire())?;
/// assert!(block_on(lock.try_acquire())?.is_none());
/// double.advance(Duration::from_secs(30));
/// assert!(block_on(lock.try_acquire())?.is_some());
/// assert!(block_on(guard.lost()).is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Double(Arc<Mutex<State>>);

shown! { Double, _double }

#[derive(Default)]
struct State {
    now: u64,
    last_token: u64,
    /// The number of permits of each semaphore.
    semaphores: HashMap<Word, u64>,
    holds: Vec<Hold>,
    queue: Vec<Wait>,
    /// Owners whose acquisition is final.
    finals: HashSet<Word>,
    values: HashMap<Word, Word>,
    /// The connections that are told of changed keys, and those of the channels.
    tracking: Vec<Connection>,
    channels: HashMap<Word, Connection>,
}

#[derive(Clone)]
struct Hold {
    key: Word,
    owner: Word,
    /// `exclusive`, `read`, `write` or `semaphore`.
    mode: &'static str,
    permits: u64,
    token: u64,
    since: u64,
    lease: u64,
    until: u64,
}

/// The holds that a request is to have together, and its channel and tag.
struct Wait(Vec<Hold>, Word, Word);

impl Double {
    /// A server without locks.
    pub fn new() -> Double {
        Double::default()
    }

    /// The settings of a client of this server.
    pub fn builder(&self) -> ServerBuilder {
        Server::builder("redis://double").double(self.clone())
    }

    /// Moves the clock of the leases: those that are over end, and what waits is granted.
    pub fn advance(&self, by: Duration) {
        let mut state = locked(&self.0);
        state.now += u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        state.settle();
    }

    /// Ends all holds of this key, as an operator does (`LOCK.BREAK`).
    pub fn lose(&self, key: impl AsRef<[u8]>) {
        let mut state = locked(&self.0);
        let holds = state.holds.iter_mut();
        let of_key = holds.filter(|hold| hold.key == key.as_ref());
        of_key.for_each(|hold| hold.until = 0);
        state.settle();
    }

    /// A connection, which a task of the present runtime serves.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (here, there) = tokio::io::duplex(65_536);
        let (read, mut write) = split(there);
        let (sender, mut replies) = unbounded_channel::<Vec<u8>>();
        let double = self.clone();
        let serve = async move {
            let mut read = BufReader::new(read);
            while let Some(words) = request(&mut read).await {
                let mut state = locked(&double.0);
                let reply = state.answer(&words, &sender);
                let _ = sender.send(reply);
                state.settle();
            }
            let mut state = locked(&double.0);
            state.tracking.retain(|other| !other.same_channel(&sender));
            state
                .channels
                .retain(|_, other| !other.same_channel(&sender));
        };
        tokio::spawn(serve);
        tokio::spawn(async move {
            while let Some(reply) = replies.recv().await {
                let _ = write.write_all(&reply).await;
            }
        });
        here
    }
}

impl State {
    fn answer(&mut self, words: &[Word], connection: &Connection) -> Vec<u8> {
        let name = String::from_utf8_lossy(&word(words, 0)).to_uppercase();
        let (key, owner) = (word(words, 1), word(words, 2));
        let token = number(words, "TOKEN");
        let is_named = |hold: &Hold| {
            let is_it = hold.key == key && hold.owner == owner;
            is_it && token.is_none_or(|token| token == hold.token)
        };
        match name.as_str() {
            "HELLO" => list("%1", [bulk("proto"), int(3)]),
            "CLIENT" if key == b"TRACKING" => {
                self.tracking.push(connection.clone());
                OK.into()
            }
            "CLIENT" | "SELECT" | "AUTH" | "PING" => OK.into(),
            "SUBSCRIBE" => {
                self.channels.insert(key.clone(), connection.clone());
                list(">3", [bulk("subscribe"), bulk(&key), int(1)])
            }
            "EXISTS" => int(self.semaphores.contains_key(&key).into()),
            "HEXISTS" => {
                let owner = owner.strip_suffix(b":write").unwrap_or(&owner);
                int(self.holds(&key, owner).into())
            }
            "LOCK.ACQUIRE" | "LOCK.MACQUIRE" | "SEM.ACQUIRE" => self.acquire(&name, words),
            "LOCK.RENEW" | "SEM.RENEW" => {
                let until = self.now + number(words, "PX").unwrap_or(30_000);
                let hold = self.holds.iter_mut().find(|hold| is_named(hold));
                int(hold.map_or(0, |hold| {
                    hold.until = until;
                    1
                }))
            }
            "LOCK.RELEASE" | "SEM.RELEASE" => {
                let before = (self.holds.len(), self.queue.len());
                self.holds.retain(|hold| !is_named(hold));
                self.queue.retain(|wait| !wait.0.iter().any(is_named));
                if option(words, "FINAL").is_some() {
                    self.finals.insert(owner);
                }
                match before == (self.holds.len(), self.queue.len()) {
                    true => NIL.into(),
                    false => int(1),
                }
            }
            "SEM.SET" => {
                self.semaphores.insert(key, parsed(&owner));
                OK.into()
            }
            "LOCK.INFO" | "SEM.INFO" => self.info(&key),
            "LOCK.IF" => {
                let token = parsed(&owner);
                let mut holds = self.holds.iter();
                match holds.any(|hold| hold.key == key && hold.token == token) {
                    true => self.run(words.get(3..).unwrap_or_default()),
                    false => b"-FENCED the lock is not held under that token\r\n".into(),
                }
            }
            _ => format!("-ERR unknown command '{name}'\r\n").into(),
        }
    }

    fn acquire(&mut self, name: &str, words: &[Word]) -> Vec<u8> {
        let (first, count) = match name {
            "LOCK.MACQUIRE" => (2, parsed(&word(words, 1)) as usize),
            _ => (1, 1),
        };
        let owner = word(words, first + count);
        let has = |option: &str| words.iter().any(|word| word == option.as_bytes());
        let lease = number(words, "PX").unwrap_or(30_000);
        let holds = words.iter().skip(first).take(count).map(|key| Hold {
            key: key.clone(),
            owner: owner.clone(),
            mode: match name {
                "SEM.ACQUIRE" => "semaphore",
                _ if has("READ") => "read",
                _ if has("WRITE") => "write",
                _ => "exclusive",
            },
            permits: number(words, "COUNT").unwrap_or(1),
            token: 0,
            since: self.now,
            lease,
            until: 0,
        });
        let holds: Vec<_> = holds.collect();
        if self.finals.contains(&owner) {
            return NIL.into();
        }
        if let (Some(limit), Some(hold)) = (number(words, "LIMIT"), holds.first()) {
            self.semaphores.entry(hold.key.clone()).or_insert(limit);
        }
        let is_own = |wait: &Wait| wait.0.first().is_some_and(|hold| hold.owner == owner);
        let place = self.queue.iter().position(is_own);
        let others = self.queue.iter().take(place.unwrap_or(usize::MAX));
        let is_before = |wait: &&Wait| {
            let mut keys = wait.0.iter().map(|hold| &hold.key);
            keys.any(|key| holds.iter().any(|hold| hold.key == *key))
        };
        let before = others.filter(is_before).count() as u64;
        let is_again = holds.iter().all(|hold| self.holds(&hold.key, &owner));
        if is_again || before == 0 && self.is_free(&holds) {
            self.queue.retain(|wait| !is_own(wait));
            let mut tokens = self.grant(&holds);
            return match name {
                "LOCK.MACQUIRE" => list(&format!("*{count}"), tokens),
                _ => tokens.pop().unwrap_or_default(),
            };
        }
        let Some(channel) = option(words, "NOTIFY") else {
            return NIL.into();
        };
        let tag = words.iter().skip_while(|word| **word != channel).nth(1);
        let wait = Wait(holds, channel, tag.cloned().unwrap_or_default());
        match place.and_then(|place| self.queue.get_mut(place)) {
            Some(place) => *place = wait,
            None if number(words, "QUEUE").is_some_and(|most| before >= most) => {
                return b"-QUEUEFULL as many requests wait already\r\n".into();
            }
            None => self.queue.push(wait),
        }
        b"+QUEUED\r\n".into()
    }

    fn holds(&self, key: &[u8], owner: &[u8]) -> bool {
        let mut holds = self.holds.iter();
        holds.any(|hold| hold.key == key && hold.owner == owner)
    }

    /// Whether the present holders admit all of these.
    fn is_free(&self, wanted: &[Hold]) -> bool {
        wanted.iter().all(|wanted| {
            let of_key = self.holds.iter().filter(|hold| hold.key == wanted.key);
            let mut others = of_key.filter(|hold| hold.owner != wanted.owner);
            match wanted.mode {
                "semaphore" => {
                    let taken: u64 = others.map(|hold| hold.permits).sum();
                    let permits = self.semaphores.get(&wanted.key);
                    taken + wanted.permits <= permits.copied().unwrap_or(0)
                }
                "read" => others.all(|hold| hold.mode == "read"),
                _ => others.next().is_none(),
            }
        })
    }

    /// The token of each; that of a hold which the owner has already.
    fn grant(&mut self, wanted: &[Hold]) -> Vec<Vec<u8>> {
        let token_of = |wanted: &Hold| {
            let until = self.now + wanted.lease;
            let mut holds = self.holds.iter_mut();
            let own = holds.find(|hold| hold.key == wanted.key && hold.owner == wanted.owner);
            if let Some(own) = own {
                own.until = until;
                return int(own.token);
            }
            self.last_token += 1;
            let token = self.last_token;
            let hold = wanted.clone();
            self.holds.push(Hold {
                token,
                until,
                ..hold
            });
            int(token)
        };
        wanted.iter().map(token_of).collect()
    }

    /// Ends the holds whose lease is over, and grants what waits, in its order.
    fn settle(&mut self) {
        let holds = std::mem::take(&mut self.holds).into_iter();
        let (over, holds) = holds.partition::<Vec<_>, _>(|hold| hold.until <= self.now);
        self.holds = holds;
        for hold in over {
            let key = list("*1", [bulk(hold.key)]);
            for connection in &self.tracking {
                let _ = connection.send(list(">2", [bulk("invalidate"), key.clone()]));
            }
        }
        let mut waited_for = HashSet::new();
        for wait in std::mem::take(&mut self.queue) {
            let keys: Vec<_> = wait.0.iter().map(|hold| hold.key.clone()).collect();
            if keys.iter().any(|key| waited_for.contains(key)) || !self.is_free(&wait.0) {
                waited_for.extend(keys);
                self.queue.push(wait);
                continue;
            }
            self.grant(&wait.0);
            if let Some(connection) = self.channels.get(&wait.1) {
                let message = [&b"granted 0 "[..], &wait.2].concat();
                let words = [bulk("message"), bulk(wait.1), bulk(message)];
                let _ = connection.send(list(">3", words));
            }
        }
    }

    fn info(&self, key: &[u8]) -> Vec<u8> {
        let holds: Vec<_> = self.holds.iter().filter(|hold| hold.key == key).collect();
        let waits = self.queue.iter().flat_map(|wait| &wait.0);
        let waits: Vec<_> = waits.filter(|hold| hold.key == key).collect();
        let longest = waits.first().map_or(0, |first| self.now - first.since);
        let mut fields = vec![
            ("waiters", int(waits.len() as u64)),
            ("longest-wait-ms", int(longest)),
        ];
        if let Some(permits) = self.semaphores.get(key) {
            let held: u64 = holds.iter().map(|hold| hold.permits).sum();
            let next = holds.iter().map(|hold| hold.until - self.now).min();
            fields.push(("permits", int(*permits)));
            fields.push((
                "free",
                format!(":{}\r\n", *permits as i64 - held as i64).into(),
            ));
            fields.push(("held", int(held)));
            fields.push(("next-end-ms", next.map_or(NIL.into(), int)));
        } else if let Some(first) = holds.iter().chain(&waits).next() {
            let holders = holds.iter().map(|hold| {
                map(vec![
                    ("owner", bulk(&hold.owner)),
                    ("holds", int(1)),
                    ("token", int(hold.token)),
                    ("pttl", int(hold.until - self.now)),
                    ("held-ms", int(self.now - hold.since)),
                ])
            });
            fields.push(("mode", bulk(first.mode)));
            fields.push(("holders", list(&format!("*{}", holds.len()), holders)));
        } else {
            return NIL.into();
        }
        map(fields)
    }

    /// A command of `LOCK.IF`.
    fn run(&mut self, words: &[Word]) -> Vec<u8> {
        let (name, key) = (word(words, 0).to_ascii_uppercase(), word(words, 1));
        match &name[..] {
            b"GET" => self.values.get(&key).map_or(NIL.into(), bulk),
            b"SET" => {
                self.values.insert(key, word(words, 2));
                OK.into()
            }
            b"INCR" => {
                let next = self.values.get(&key).map_or(0, |value| parsed(value)) + 1;
                self.values.insert(key, next.to_string().into());
                int(next)
            }
            b"DEL" => int(self.values.remove(&key).is_some().into()),
            _ => b"-ERR the double runs GET, SET, INCR and DEL\r\n".into(),
        }
    }
}

/// A request as clients send it, an array of strings; None at the end of the connection.
async fn request(read: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    for _ in 0..length(read).await? {
        let mut word = vec![0; length(read).await? + 2];
        read.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

/// The number in a line such as `*3` or `$5`.
async fn length(read: &mut (impl AsyncBufReadExt + Unpin)) -> Option<usize> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim_end().parse().ok()
}

const OK: &[u8] = b"+OK\r\n";
const NIL: &[u8] = b"$-1\r\n";

fn int(number: u64) -> Vec<u8> {
    format!(":{number}\r\n").into()
}

fn bulk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// An array, a map or a message, by its first line.
fn list(start: &str, parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let start = format!("{start}\r\n").into();
    [start].into_iter().chain(parts).flatten().collect()
}

fn map(fields: Vec<(&str, Vec<u8>)>) -> Vec<u8> {
    let start = format!("%{}", fields.len());
    let parts = fields
        .into_iter()
        .flat_map(|(name, value)| [bulk(name), value]);
    list(&start, parts)
}

fn word(words: &[Word], place: usize) -> Word {
    words.get(place).cloned().unwrap_or_default()
}

/// The word behind this option.
fn option(words: &[Word], name: &str) -> Option<Word> {
    let mut from = words.iter().skip_while(|word| *word != name.as_bytes());
    from.nth(1).cloned()
}

fn number(words: &[Word], name: &str) -> Option<u64> {
    option(words, name).map(|digits| parsed(&digits))
}

fn parsed(digits: &[u8]) -> u64 {
    String::from_utf8_lossy(digits).parse().unwrap_or(0)
}
