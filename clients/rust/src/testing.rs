//! With the feature `testing`: a double of a server, for the tests of programs that use locks.
//!
//! A connection of the crate hands each request to the double, which answers at once. Then the double ends the holds
//! whose lease is over, and grants the waits that fit, in the order of the queue. A hold that a client renews is
//! registered when its renewal begins: the double does not end it as time passes, and tells its guard of a loss.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::{parse_redis_value, Arg, Cmd, PushInfo, PushKind, Value};

use crate::lock::renewal::Hold;
use crate::moment::Moment;
use crate::net::connection::Pushed;
use crate::net::server::{Server, ServerBuilder};
use crate::outcome::LostReason;
use crate::runtime::locked;
use crate::trace::shown;

type Word = Vec<u8>;
/// A reply, or the text of an error.
type Answer<T = Value> = Result<T, &'static str>;
/// The options of a request, each with its values.
type Options = HashMap<String, Vec<Word>>;

/// A server in the memory of this process: exclusive and read-write locks, permits, several keys, waits in their order,
/// sessions, replicas, and [`execute`](crate::Guard::execute) of `GET`, `SET`, `INCR` and `DEL`. All of this crate runs
/// above it. It does not know latches, deadlocks, the requests of a [`RedLock`](crate::RedLock) and of the feature
/// `admin`: what it does not know it refuses.
///
/// Its clock is moved by [`advance`](Double::advance) alone. The program's own guards and waits move with it; they also
/// count by the time of the machine, as above a server.
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
/// double.advance(Duration::from_secs(600));
/// assert!(block_on(lock.try_acquire())?.is_none()); // the guard was renewed meanwhile
/// double.lose("invoices:42");
/// assert!(guard.lost().reason().is_some());
/// assert!(block_on(lock.try_acquire())?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Double(Arc<Mutex<State>>);

shown! { Double, _double }

#[derive(Default)]
struct State {
    /// In milliseconds.
    now: i64,
    last_token: i64,
    replicas: u32,
    /// Strings; a semaphore is its number of permits.
    values: HashMap<Word, Word>,
    /// Each of one key.
    held: Vec<Ask>,
    queue: Vec<Ask>,
    /// Each key and the owner that has given up: with `SEQ` it has one acquisition.
    finals: HashSet<(Word, Word)>,
    channels: HashMap<Word, Pushed>,
    messages: Vec<(Pushed, PushInfo)>,
    renewed: Vec<Weak<Hold>>,
}

/// What an owner asks for, waits for, or holds.
#[derive(Clone, Default)]
struct Ask {
    keys: Vec<Word>,
    owner: Word,
    /// `exclusive`, `read`, `write`, `semaphore`; `any` lock of a renewal or release that does not say.
    mode: &'static str,
    options: Options,
    /// The connection of a session, while that is open.
    bound: Option<Weak<()>>,
    token: i64,
    since: i64,
    /// Of the wait or the lease.
    end: i64,
    /// Whether a message has told of the grant, and its owner has not asked since.
    is_told: bool,
}

/// A connection of the crate.
pub(crate) struct Link {
    pub double: Double,
    pub pushed: Option<Pushed>,
    pub alive: Arc<()>,
}

/// What a request may say, with a sign for each value that follows.
const OPTIONS: &str =
    "READ WRITE PX= SESSION BLOCK= NOTIFY== QUEUE= ONCE SEQ= NOTE= COUNT= LIMIT= TOKEN= ALL FINAL=";
const SYNTAX: &str = "ERR syntax error";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const LOCK_TYPE: &str = "LOCKTYPE the key is used in another way";

impl Double {
    /// A server without locks.
    pub fn new() -> Double {
        Double::default()
    }

    /// The settings of a client of this server.
    pub fn builder(&self) -> ServerBuilder {
        Server::builder("redis://double").double(self.clone())
    }

    /// Time passes, here and for the clients of this process: what they renew stays held, other holds end with their
    /// leases and waits with their bounds.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.with(|state, renewed| {
            let end = state.now.saturating_add(by);
            while state.now < end {
                state.step(end, renewed);
            }
            for hold in renewed {
                hold.confirm(Moment::now(), hold.lease());
            }
        });
    }

    /// Ends all holds of this key, as an operator does (`LOCK.BREAK`). Their guards know it when this returns.
    pub fn lose(&self, key: impl AsRef<[u8]>) {
        self.with(|state, _| state.held.retain(|hold| hold.keys != [key.as_ref()]));
    }

    /// So many replicas have each grant from now on. (At first there are none.)
    pub fn replicas(&self, count: u32) {
        self.with(|state, _| state.replicas = count);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(locked(&self.0).now.unsigned_abs())
    }

    /// The renewal of this hold begins.
    pub(crate) fn renews(&self, hold: &Arc<Hold>) {
        locked(&self.0).renewed.push(Arc::downgrade(hold));
        self.with(|state, _| state.renewed.retain(|hold| hold.strong_count() > 0));
    }

    /// Changes the state, and ends and grants what is due. Guards and waits are told when it is unlocked: what the
    /// program does then, or the end of the last reference to a server, leads here again.
    fn with<T>(&self, change: impl FnOnce(&mut State, &[Arc<Hold>]) -> T) -> T {
        let renewed = locked(&self.0).renewed.clone();
        let mut renewed: Vec<_> = renewed.iter().filter_map(Weak::upgrade).collect();
        renewed.retain(|hold| !hold.notice.is_over() && hold.notice.reason().is_none());
        let mut state = locked(&self.0);
        let changed = change(&mut state, &renewed);
        state.settle();
        let messages = std::mem::take(&mut state.messages);
        let is_held = |hold: &Arc<Hold>| state.held.iter().any(|held| held.is_of(hold));
        let lost: Vec<_> = renewed.iter().filter(|hold| !is_held(hold)).collect();
        drop(state);
        lost.iter().for_each(|hold| hold.lose(LostReason::Taken));
        messages.into_iter().for_each(|(pushed, told)| pushed(told));
        changed
    }
}

impl Link {
    pub(crate) fn send(&self, command: &Cmd) -> Value {
        let words = command.args_iter().filter_map(|arg| match arg {
            Arg::Simple(word) => Some(word.to_vec()),
            _ => None,
        });
        let words: Vec<_> = words.collect();
        let answer = self.double.with(|state, _| state.answer(&words, self));
        let refused = |error| parse_redis_value(format!("-{error}\r\n").as_bytes());
        answer.unwrap_or_else(|error| refused(error).unwrap_or(Value::Nil))
    }
}

impl State {
    fn answer(&mut self, words: &[Word], link: &Link) -> Answer {
        let (name, words) = words.split_first().ok_or(SYNTAX)?;
        let name = text(name);
        let (family, verb) = name.split_once('.').unwrap_or(("", &name));
        let any = if family == "SEM" { "semaphore" } else { "any" };
        match (verb, words) {
            ("ACQUIRE" | "MACQUIRE" | "RENEW" | "RELEASE", _) => {
                let mut ask = Ask::read(any, verb, words)?;
                let mut keys = ask.keys.iter();
                keys.try_for_each(|key| self.check(key, ask.mode))?;
                let bound = ask.options.get("SESSION");
                ask.bound = bound.map(|_| Arc::downgrade(&link.alive));
                match verb {
                    "RENEW" => Ok(self.renew(&ask)),
                    "RELEASE" => Ok(self.release(&ask)),
                    _ => self.acquire(ask),
                }
            }
            ("INFO", [key]) => self.check(key, any).map(|()| self.info(key)),
            ("SET", [key, permits]) => {
                self.check(key, any)?;
                self.values.insert(key.clone(), permits.clone());
                Ok(number(permits).map_or(Value::Nil, int))
            }
            ("EXISTS", [key]) => Ok(int(self.values.contains_key(key))),
            ("IF", [key, token, command @ ..]) => {
                self.check(key, any)?;
                match number(token).is_some_and(|token| self.latest(key) == Some(token)) {
                    true => self.run(command),
                    false => Err("FENCED the lock is not held under this token"),
                }
            }
            ("WAIT", _) => Ok(int(self.replicas)),
            ("PING", _) => Ok(Value::Okay),
            ("SUBSCRIBE", [channel]) => {
                let pushed = link.pushed.clone().ok_or("ERR no RESP3")?;
                self.channels.insert(channel.clone(), pushed);
                let (kind, data) = (PushKind::Subscribe, vec![bulk(channel), int(1)]);
                Ok(Value::Push { kind, data })
            }
            ("INFO" | "SET" | "IF", _) => Err(SYNTAX),
            _ => Err("ERR unknown command"),
        }
    }

    fn at<'a>(&'a self, key: &'a Word) -> impl Iterator<Item = &'a Ask> {
        self.held.iter().filter(|hold| hold.keys.contains(key))
    }

    fn waits<'a>(&'a self, key: &'a Word) -> impl Iterator<Item = &'a Ask> {
        self.queue.iter().filter(|wait| wait.keys.contains(key))
    }

    /// The latest token of those who hold the key.
    fn latest(&self, key: &Word) -> Option<i64> {
        self.at(key).map(|hold| hold.token).max()
    }

    fn permits(&self, key: &Word) -> Option<i64> {
        self.values.get(key).and_then(number)
    }

    /// Whether the key can be used in this mode.
    fn check(&self, key: &Word, mode: &str) -> Answer<()> {
        let is_permit = mode == "semaphore";
        let is_other = |held: &str| (mode == "exclusive") != (held == "exclusive");
        match self.at(key).next().map(|hold| hold.mode) {
            _ if !is_permit && self.values.contains_key(key) => Err(WRONG_TYPE),
            Some(held) if is_permit != (held == "semaphore") => Err(WRONG_TYPE),
            Some(held) if mode != "any" && is_other(held) => Err(LOCK_TYPE),
            _ if self.values.contains_key(key) && self.permits(key).is_none() => Err(LOCK_TYPE),
            _ => Ok(()),
        }
    }

    fn acquire(&mut self, mut ask: Ask) -> Answer {
        let is_given_up = |key: &Word| self.finals.contains(&(key.clone(), ask.owner.clone()));
        if ask.options.contains_key("SEQ") && ask.keys.iter().any(is_given_up) {
            return Ok(Value::Nil);
        }
        if let [limit] = ask.values("LIMIT") {
            let permits = self.values.entry(ask.keys.concat());
            permits.or_insert(limit.clone());
        }
        let is_again = |other: &Ask| other.owner == ask.owner && other.keys == ask.keys;
        let place = self.queue.iter().position(is_again);
        if self.may_have(&ask, place.unwrap_or(self.queue.len())) {
            self.queue.retain(|other| !is_again(other));
            return Ok(Value::Array(self.grant(&ask)));
        }
        let [channel, _] = ask.values("NOTIFY") else {
            return Ok(Value::Nil);
        };
        self.channels.get(channel).ok_or("NOSUBSCRIBER")?;
        let waits = |key| self.waits(key).count() as i64;
        let most = ask.keys.iter().map(waits).max();
        let is_full = ask.number("QUEUE").is_some_and(|queue| most >= Some(queue));
        if place.is_none() && is_full {
            return Err("QUEUEFULL as many requests as QUEUE allows wait already");
        }
        let place = place.unwrap_or(self.queue.len());
        let former = self.queue.get(place);
        ask.since = former.map_or(self.now, |former| former.since);
        ask.end = self.now.saturating_add(ask.number("BLOCK").unwrap_or(0));
        self.queue.retain(|other| !is_again(other));
        self.queue.insert(place, ask);
        Ok(Value::SimpleString("QUEUED".into()))
    }

    /// Whether it is admitted at each key: by the holders, and by those who wait before this place.
    fn may_have(&self, ask: &Ask, place: usize) -> bool {
        ask.keys.iter().all(|key| {
            let (own, others): (Vec<_>, Vec<_>) =
                self.at(key).partition(|hold| hold.owner == ask.owner);
            let mut before = self.queue.iter().take(place);
            let is_next = !own.is_empty() || !before.any(|wait| wait.keys.contains(key));
            let is_free = match ask.mode {
                "read" => others.iter().all(|hold| hold.mode == "read"),
                "semaphore" => {
                    let taken: i64 = others.iter().map(|hold| hold.count()).sum();
                    self.permits(key) >= Some(taken + ask.count())
                }
                _ => others.is_empty(),
            };
            own.iter().any(|hold| hold.mode == ask.mode) || is_next && is_free
        })
    }

    /// Returns the tokens. Readers share one, also with what their owners write.
    fn grant(&mut self, ask: &Ask) -> Vec<Value> {
        let mut tokens = Vec::new();
        for key in &ask.keys {
            self.last_token += 1;
            let shared = self.latest(key).filter(|_| ask.mode == "read");
            let mut hold = ask.clone();
            (hold.keys, hold.token) = (vec![key.clone()], shared.unwrap_or(self.last_token));
            (hold.since, hold.end) = (self.now, self.now + ask.lease());
            let held = self.held.iter_mut();
            let own = held.filter(|held| held.keys == hold.keys && held.owner == hold.owner);
            let mut own: Vec<_> = own.collect();
            if let Some(again) = own.iter_mut().find(|held| held.mode == hold.mode) {
                hold.options.remove("COUNT"); // it keeps as many permits as it has
                again.options.extend(hold.options);
                (again.end, again.is_told) = (hold.end.max(again.end), false);
                tokens.push(int(again.token));
                continue;
            }
            own.iter_mut().for_each(|held| held.token = hold.token);
            tokens.push(int(hold.token));
            self.held.push(hold);
        }
        tokens
    }

    /// Ends what is over, and grants what is free, in the order of the queue.
    fn settle(&mut self) {
        let now = self.now;
        self.held.retain(|hold| !hold.is_over(now));
        let mut place = 0;
        while let Some(mut ask) = self.queue.get(place).cloned() {
            ask.is_told = self.may_have(&ask, place);
            if !ask.is_told && !ask.is_over(now) {
                place += 1;
                continue;
            }
            self.queue.remove(place);
            let told = match ask.is_told {
                true => format!("granted {}", self.grant(&ask).len()),
                false => "timeout".into(),
            };
            let [channel, tag] = ask.values("NOTIFY") else {
                continue;
            };
            let told = format!("{told} {}", text(tag));
            if let Some(pushed) = self.channels.get(channel).cloned() {
                let (kind, data) = (PushKind::Message, vec![bulk(channel), bulk(told)]);
                self.messages.push((pushed, PushInfo { kind, data }));
            }
        }
    }

    /// Moves the clock to the next end of a hold or a wait, and to this moment at most.
    fn step(&mut self, end: i64, renewed: &[Arc<Hold>]) {
        let is_kept = |hold: &Ask| {
            let is_bound = hold.is_told || hold.bound.is_some();
            is_bound || renewed.iter().any(|renewed| hold.is_of(renewed))
        };
        let held = self.held.iter().filter(|hold| !is_kept(hold));
        let ends = held.chain(&self.queue).map(|ask| ask.end);
        self.now = ends.fold(end, i64::min);
        for hold in self.held.iter_mut().filter(|hold| is_kept(hold)) {
            hold.end = self.now + hold.lease();
        }
        self.settle();
    }

    fn renew(&mut self, ask: &Ask) -> Value {
        let own = self.held.iter_mut().filter(|hold| ask.means(hold));
        let renewed = own.map(|hold| {
            hold.options.extend(ask.options.clone());
            hold.bound.take_if(|_| ask.number("PX").is_some());
            (hold.end, hold.is_told) = (self.now + hold.lease(), false);
        });
        int(renewed.count().min(1) as i64)
    }

    fn release(&mut self, ask: &Ask) -> Value {
        let (held, waited) = (self.held.len(), self.queue.len());
        self.held.retain(|hold| !ask.means(hold));
        let (has_held, key) = (self.held.len() < held, ask.keys.concat());
        let is_final = ask.options.contains_key("FINAL");
        if is_final || !has_held && ask.number("TOKEN").is_none() {
            let is_other = |wait: &Ask| wait.owner != ask.owner || !wait.keys.contains(&key);
            self.queue.retain(is_other);
        }
        let has_waited = is_final && self.queue.len() < waited;
        let given_up = is_final.then(|| (key, ask.owner.clone()));
        self.finals.extend(given_up);
        match has_held || has_waited {
            true => int(1),
            false => Value::Nil,
        }
    }

    /// The fields of a lock and of a semaphore.
    fn info(&self, key: &Word) -> Value {
        let waits: Vec<_> = self.waits(key).collect();
        let mut held: Vec<_> = self.at(key).collect();
        let is_written = held.iter().any(|hold| hold.mode == "write");
        // A writer that reads is listed as the writer.
        held.retain(|hold| hold.mode != "read" || !is_written);
        let (first, permits) = (held.iter().chain(&waits).next(), self.permits(key));
        if first.is_none() && permits.is_none() {
            return Value::Nil;
        }
        let holders = held.iter().map(|hold| {
            map([
                ("owner", bulk(&hold.owner)),
                ("holds", int(1)),
                ("token", int(hold.token)),
                ("pttl", int(hold.end - self.now)),
                ("held-ms", int(self.now - hold.since)),
                ("session", int(hold.bound.is_some())),
                ("note", hold.values("NOTE").first().map_or(Value::Nil, bulk)),
            ])
        });
        let taken: i64 = held.iter().map(|hold| hold.count()).sum();
        let next = held.iter().map(|hold| hold.end - self.now).min();
        let waited = waits.first().map_or(0, |first| self.now - first.since);
        map([
            ("mode", first.map_or(Value::Nil, |first| bulk(first.mode))),
            ("holders", Value::Array(holders.collect())),
            ("waiters", int(waits.len() as i64)),
            ("longest-wait-ms", int(waited)),
            ("permits", int(permits.unwrap_or(0))),
            ("free", int(permits.unwrap_or(0) - taken)),
            ("held", int(taken)),
            ("next-end-ms", next.map_or(Value::Nil, int)),
        ])
    }

    /// A command of `LOCK.IF`.
    fn run(&mut self, words: &[Word]) -> Answer {
        let (name, words) = words.split_first().ok_or(SYNTAX)?;
        match (text(name).as_str(), words) {
            (_, [key, ..]) if self.latest(key).is_some() => Err(WRONG_TYPE),
            ("GET", [key]) => Ok(self.values.get(key).map_or(Value::Nil, bulk)),
            ("SET", [key, value, rest @ ..]) => {
                match (text(&rest.concat()).as_str(), self.values.contains_key(key)) {
                    ("NX", true) | ("XX", false) => return Ok(Value::Nil),
                    ("" | "NX" | "XX", _) => {}
                    _ => return Err(SYNTAX),
                }
                self.values.insert(key.clone(), value.clone());
                Ok(Value::Okay)
            }
            ("INCR", [key]) => {
                let value = self.values.get(key).map_or("0".into(), text);
                let value: i64 = value.parse().map_err(|_| NO_NUMBER)?;
                let value = value.checked_add(1).ok_or(NO_NUMBER)?;
                self.values.insert(key.clone(), value.to_string().into());
                Ok(Value::Int(value))
            }
            ("DEL", [_, ..]) => {
                let had = words.iter().filter_map(|key| self.values.remove(key));
                Ok(int(had.count() as i64))
            }
            ("GET" | "SET" | "INCR" | "DEL", _) => Err(SYNTAX),
            _ => Err("ERR unknown command"),
        }
    }
}

impl Ask {
    fn read(any: &'static str, verb: &str, words: &[Word]) -> Answer<Ask> {
        let (count, words) = match (verb, words) {
            ("MACQUIRE", [count, words @ ..]) => (number(count).unwrap_or(0), words),
            _ => (1, words),
        };
        let (keys, words) = words.split_at_checked(count as usize).ok_or(SYNTAX)?;
        let (owner, words) = words.split_first().ok_or(SYNTAX)?;
        let mut ask = Ask::default();
        (ask.keys, ask.owner) = (keys.to_vec(), owner.clone());
        ask.options = options(words)?;
        let has = |option| ask.options.contains_key(option);
        ask.mode = match any {
            "any" if has("READ") => "read",
            "any" if has("WRITE") => "write",
            "any" if verb.ends_with("ACQUIRE") => "exclusive",
            any => any,
        };
        match has("NOTE") && (ask.mode == "read" || ask.mode == "write") {
            true => Err(SYNTAX),
            false => Ok(ask),
        }
    }

    fn values(&self, option: &str) -> &[Word] {
        self.options.get(option).map_or(&[], Vec::as_slice)
    }

    fn number(&self, option: &str) -> Option<i64> {
        self.values(option).first().and_then(number)
    }

    fn count(&self) -> i64 {
        self.number("COUNT").unwrap_or(1)
    }

    fn lease(&self) -> i64 {
        let of_server = if self.bound.is_some() { 10_000 } else { 30_000 };
        self.number("PX").unwrap_or(of_server)
    }

    fn is_over(&self, now: i64) -> bool {
        let is_closed = |link: &Weak<()>| link.strong_count() == 0;
        self.end <= now || self.bound.as_ref().is_some_and(is_closed)
    }

    /// Whether a renewal or release is one of this hold. (A reader has had all lower tokens of its phase.)
    fn means(&self, hold: &Ask) -> bool {
        let is_mode = self.mode == hold.mode || self.mode == "any";
        let is_token = |token| token == hold.token || hold.mode == "read" && token < hold.token;
        let is_owner = self.keys == hold.keys && self.owner == hold.owner;
        is_owner && is_mode && self.number("TOKEN").is_none_or(is_token)
    }

    /// Whether it is the hold of this guard.
    fn is_of(&self, hold: &Hold) -> bool {
        let (claim, mode) = (&hold.claim, hold.claim.kind.name());
        let is_mode = mode == self.mode || mode == "exclusive";
        let is_token = mode == "read" || mode == "semaphore";
        let is_token = is_token || u64::try_from(self.token) == Ok(hold.token);
        is_mode && is_token && self.keys.contains(&claim.key) && self.owner == claim.owner
    }
}

/// These options, of those that are known, each with its number of values.
fn options(words: &[Word]) -> Answer<Options> {
    let (mut options, mut words) = (Options::new(), words.iter());
    while let Some(word) = words.next() {
        let name = text(word);
        let mut known = OPTIONS.split(' ');
        let of_name = known.find(|known| known.trim_end_matches('=') == name);
        let count = of_name.ok_or(SYNTAX)?.len() - name.len();
        options.insert(name, words.by_ref().take(count).cloned().collect());
    }
    Ok(options)
}

fn text(word: &Word) -> String {
    String::from_utf8_lossy(word).to_uppercase()
}

fn number(word: &Word) -> Option<i64> {
    let number: u64 = text(word).parse().ok()?;
    Some(i64::try_from(number).unwrap_or(i64::MAX))
}

fn int(number: impl Into<i64>) -> Value {
    Value::Int(number.into())
}

fn bulk(bytes: impl AsRef<[u8]>) -> Value {
    Value::BulkString(bytes.as_ref().to_vec())
}

fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(fields.map(|(name, value)| (bulk(name), value)).into())
}
