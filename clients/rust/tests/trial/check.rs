//! The check: which worker is inside of which lock, and whether a loss had a reason.
//!
//! A worker enters here after its grant and leaves before its release, or when `lost()` has fired. What cannot be
//! judged at once is judged a moment later: faults of the machine are known when they are over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::fault_log::{longest_gap, FaultLog, Link};
use crate::fleet::STARTUP_DELAY;

/// So long a question waits for the log.
const LATER: Duration = Duration::from_millis(1_500);
/// What a shared machine may take for a round trip, a new connection and a timer.
pub const SLACK: Duration = Duration::from_millis(250);
/// What the log calls disturbances that are not of the plan.
pub const STANDSTILL: &str = "the machine stood still";
pub const SLOW: &str = "a server was slow, without a fault";
/// So many events of a lock are remembered.
const HISTORY: usize = 60;

/// A hold, as its worker reports it.
#[derive(Debug, Clone)]
pub struct Hold {
    pub worker: String,
    pub kind: String,
    pub link: Link,
    pub is_shared: bool,
    /// Over most of the servers: a RedLock.
    pub is_red: bool,
    pub lease: Duration,
    pub margin: Duration,
    /// Before the first request.
    pub asked: Instant,
    /// Not after the grant.
    pub since: Instant,
    pub servers: Vec<usize>,
    /// The locks, by server and key, each with its token; of a RedLock the token on each server.
    pub tokens: Vec<(String, u64)>,
}

impl Hold {
    /// The locks that are held; a RedLock is one.
    fn keys(&self) -> Vec<String> {
        match self.is_red {
            true => vec![format!("red/{}", crate::plan::RED)],
            false => self.tokens.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}

/// An acquisition that has failed.
#[derive(Debug)]
pub struct Failure {
    pub link: Link,
    pub servers: Vec<usize>,
    pub asked: Instant,
    pub is_red: bool,
    pub is_passing: bool,
    /// The error without names.
    pub what: String,
    pub text: String,
}

/// Why a worker goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Unconfirmed,
    Taken,
    Refused,
}

#[derive(Debug)]
struct Inside {
    hold: Hold,
    entered: Instant,
    lost: Option<(Instant, Loss)>,
}

#[derive(Default)]
struct Lock {
    inside: Vec<u64>,
    highest: u64,
    highest_exclusive: u64,
    /// By server, of a RedLock.
    highest_on: BTreeMap<String, u64>,
    last_grant: Option<Instant>,
    longest_pause: Duration,
    history: VecDeque<(Instant, String)>,
}

enum Question {
    Loss(Hold, Instant, Loss),
    /// The older hold, since when it was inside, the newer one, and when that entered.
    Overlap(Hold, Instant, Hold, Instant),
    /// When the hold began and ended.
    Left(Hold, Instant, Instant),
    /// Its token is not higher than those before.
    Token(Hold, Instant, String),
    /// The release found nothing though the hold was valid until after it was answered.
    NotHeld(Hold, Instant),
    Failure(Failure, Instant),
}

#[derive(Default)]
struct State {
    next: u64,
    inside: BTreeMap<u64, Inside>,
    locks: BTreeMap<String, Lock>,
    questions: VecDeque<(Instant, Question)>,
    counts: BTreeMap<String, u64>,
    waits: BTreeMap<String, Vec<Duration>>,
    violation: Option<String>,
}

pub struct Check {
    pub log: Arc<FaultLog>,
    state: Mutex<State>,
    failed: AtomicBool,
    goes_on: AtomicBool,
    start: Instant,
    longest_lag: AtomicU64,
}

impl Check {
    pub fn new() -> Arc<Check> {
        Arc::new(Check {
            log: Arc::default(),
            state: Mutex::default(),
            failed: AtomicBool::new(false),
            goes_on: AtomicBool::new(true),
            start: Instant::now(),
            longest_lag: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Whether workers are to take more locks.
    pub fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::SeqCst) && !self.has_failed()
    }

    pub fn close(&self) {
        self.goes_on.store(false, Ordering::SeqCst);
    }

    pub fn is_held(&self, key: &str) -> bool {
        !self.state().lock(key).inside.is_empty()
    }

    /// A worker holds this. Its number is answered.
    pub fn enter(&self, hold: Hold) -> u64 {
        let now = Instant::now();
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        for key in hold.keys() {
            let about = format!(
                "{number} enters: {} {}, {:?}",
                hold.worker, hold.kind, hold.tokens
            );
            let old: Vec<u64> = state.lock(&key).inside.clone();
            state.note(&key, about);
            for other in old.iter().filter_map(|number| state.inside.get(number)) {
                if !(hold.is_shared && other.hold.is_shared) {
                    let overlap =
                        Question::Overlap(other.hold.clone(), other.entered, hold.clone(), now);
                    state.questions.push_back((now, overlap));
                    break;
                }
            }
            let lock = state.lock(&key);
            lock.inside.push(number);
            let pause = lock.last_grant.map_or(Duration::ZERO, |last| now - last);
            lock.longest_pause = lock.longest_pause.max(pause);
            lock.last_grant = Some(now);
            if let Err(why) = lock.check_tokens(&key, &hold) {
                let question = Question::Token(hold.clone(), now, why);
                state.questions.push_back((now, question));
            }
        }
        let inside = Inside {
            hold,
            entered: now,
            lost: None,
        };
        state.inside.insert(number, inside);
        number
    }

    /// The worker has been told that its lock is lost. It leaves soon.
    pub fn lose(&self, number: u64, why: Loss) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(inside) = state.inside.get_mut(&number) else {
            return;
        };
        inside.lost = Some((now, why));
        let hold = inside.hold.clone();
        for key in hold.keys() {
            state.note(&key, format!("{number} is told: {why:?}"));
        }
        let question = Question::Loss(hold, now, why);
        state.questions.push_back((now, question));
    }

    /// The worker does nothing under its lock any more.
    pub fn leave(&self, number: u64, why: &str) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(inside) = state.inside.remove(&number) else {
            return;
        };
        for key in inside.hold.keys() {
            state.note(&key, format!("{number} leaves: {why}"));
            state.lock(&key).inside.retain(|other| *other != number);
        }
        let told = inside.lost.map_or(now, |(told, _)| told);
        if why != "killed" {
            let question = Question::Left(inside.hold, inside.entered, told);
            state.questions.push_back((now, question));
        }
    }

    /// The release of this hold found nothing, though it was valid.
    pub fn not_held(&self, hold: Hold) {
        let now = Instant::now();
        let question = Question::NotHeld(hold, now);
        self.state().questions.push_back((now, question));
    }

    pub fn failure(&self, failure: Failure) {
        let now = Instant::now();
        let question = (now, Question::Failure(failure, now));
        self.state().questions.push_back(question);
    }

    /// An acquisition has ended, after so long.
    pub fn tally(&self, kind: &str, outcome: &str, waited: Duration) {
        let mut state = self.state();
        *state
            .counts
            .entry(format!("{kind}: {outcome}"))
            .or_default() += 1;
        if outcome == "granted" {
            state
                .waits
                .entry(kind.to_string())
                .or_default()
                .push(waited);
        }
    }

    /// One more of these.
    pub fn count(&self, what: &str) {
        let mut state = self.state();
        *state.counts.entry(format!("fault: {what}")).or_default() += 1;
    }

    /// Into the history of a lock.
    pub fn note(&self, key: &str, what: String) {
        self.state().note(key, what);
    }

    pub fn lagged(&self, lag: Duration) {
        let lag = lag.as_millis() as u64;
        self.longest_lag.fetch_max(lag, Ordering::SeqCst);
    }

    pub fn fail(&self, why: String) {
        let mut state = self.state();
        state.violation.get_or_insert(why);
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Answers the questions that have waited long enough, or all.
    pub fn judge(&self, all: bool) {
        loop {
            let mut state = self.state();
            let is_due = |(asked, _): &(Instant, Question)| all || asked.elapsed() > LATER;
            if !state.questions.front().is_some_and(is_due) {
                return;
            }
            let Some((_, question)) = state.questions.pop_front() else {
                return;
            };
            drop(state);
            let (what, keys, verdict) = self.answer(&question);
            let mut state = self.state();
            match verdict {
                Ok(None) => {}
                Ok(Some(reason)) => {
                    *state.counts.entry(format!("{what}: {reason}")).or_default() += 1
                }
                Err(why) => {
                    let key = keys.first().cloned().unwrap_or_default();
                    drop_and_fail(self, &mut state, &key, why);
                }
            }
        }
    }

    fn answer(&self, question: &Question) -> Verdict {
        match question {
            Question::Loss(hold, told, why) => ("loss", hold.keys(), self.loss(hold, *told, *why)),
            Question::Overlap(old, entered, new, at) => {
                let verdict = self.overlap(old, *entered, new, *at);
                ("overlap", new.keys(), verdict)
            }
            Question::Left(hold, entered, left) => {
                ("told", hold.keys(), self.late(hold, *entered, *left))
            }
            Question::Token(hold, at, why) => {
                let keys = hold.keys();
                let verdict = match self.is_broken(&keys, hold.since, *at) {
                    true => Ok(Some("of a lock that was broken on the way".into())),
                    false => Err(format!("{why}: {hold:?}")),
                };
                ("token", keys, verdict)
            }
            Question::NotHeld(hold, at) => {
                let keys = hold.keys();
                let broken = self.is_broken(&keys, hold.since, *at);
                let verdict = match broken {
                    true => Ok(Some("released when it was broken".into())),
                    false => Err(format!(
                        "the release found nothing, without a notice before: {hold:?}"
                    )),
                };
                ("loss", keys, verdict)
            }
            Question::Failure(failure, at) => {
                ("failure", Vec::new(), self.failed_with(failure, *at))
            }
        }
    }

    fn failed_with(&self, failure: &Failure, at: Instant) -> Result<Option<String>, String> {
        // What counts is the last attempt; a server of a RedLock is silent for a while after its start.
        let from = match failure.is_red {
            true => failure.asked - STARTUP_DELAY * 2,
            false => failure.asked.max(at - Duration::from_secs(1)) - SLACK,
        };
        let span = (from, at);
        let mut servers = failure.servers.iter();
        let had_reason = servers.any(|server| self.log.is_disturbed(failure.link, *server, span));
        match had_reason && failure.is_passing {
            true => Ok(Some(failure.what.clone())),
            false => {
                let near = self.log.told((failure.asked - STARTUP_DELAY, at));
                let after = at - failure.asked;
                Err(format!(
                    "an error without a reason after {after:?}: {failure:?}\n{near}"
                ))
            }
        }
    }

    fn is_broken(&self, keys: &[String], from: Instant, to: Instant) -> bool {
        let breaks = keys.iter().flat_map(|key| self.log.breaks_of(key));
        let mut breaks = breaks;
        breaks.any(|(begin, end)| end >= from && begin <= to)
    }

    fn loss(&self, hold: &Hold, told: Instant, why: Loss) -> Result<Option<String>, String> {
        let story = |text: &str| {
            let span = (told - hold.lease * 3, told);
            let near = self.log.told(span);
            Err(format!(
                "{text}: {why:?}, {hold:?}; the faults near it:\n{near}"
            ))
        };
        if self.is_broken(&hold.keys(), hold.since, told) && why != Loss::Refused {
            return Ok(Some("DEL or LOCK.BREAK".into()));
        }
        // A RedLock on three servers is lost with two of them, one on two with one of them.
        let needed = match hold.is_red {
            true => hold.tokens.len().saturating_sub(1).max(1),
            false => 1,
        };
        let during = (hold.asked, told);
        let hit = hold.servers.iter().filter(|server| {
            let blocks = self.log.blocks(hold.link, **server, during, hold.lease);
            !blocks.is_empty()
        });
        if hit.count() < needed {
            return story("a lock was lost without a fault, or with too few");
        }
        match why {
            Loss::Taken if hold.is_red => Ok(Some("RedLock, no majority has it".into())),
            Loss::Unconfirmed if self.was_out_of_reach(hold, told) => {
                let what = if hold.is_red { "RedLock" } else { "one server" };
                Ok(Some(format!("{what} out of reach")))
            }
            Loss::Unconfirmed => story("a lock was lost that was renewable"),
            _ => story("the server has ended a hold that was renewable"),
        }
    }

    /// Whether one of the servers left no fair chance between the moment at which a renewal was due and the notice.
    fn was_out_of_reach(&self, hold: &Hold, told: Instant) -> bool {
        let due = told - (hold.lease - hold.margin) + hold.lease / 3;
        hold.servers.iter().any(|server| {
            let blocks = self.log.blocks(hold.link, *server, (due, told), hold.lease);
            !blocks.is_empty() && longest_gap(blocks, (due, told)) < fair_chance(hold.lease)
        })
    }

    fn overlap(
        &self,
        old: &Hold,
        entered: Instant,
        new: &Hold,
        at: Instant,
    ) -> Result<Option<String>, String> {
        let keys = old.keys();
        let both: Vec<_> = new
            .keys()
            .into_iter()
            .filter(|key| keys.contains(key))
            .collect();
        if self.is_broken(&both, old.since.min(new.since), at) {
            return Ok(Some("beside a holder whose lock was broken".into()));
        }
        // The notice of the older hold, or its leaving, was late.
        let lags = self.log.lags(old.margin / 3, (at - old.margin, at + SLACK));
        if !lags.is_empty() {
            return Ok(Some("while the machine stood still".into()));
        }
        let since = at.saturating_duration_since(entered);
        let near = self.log.told((at - old.lease * 2, at));
        Err(format!(
            "two are inside: {old:?}, for {since:?}, and {new:?}; the faults near it:\n{near}"
        ))
    }

    /// Whether a hold went on for too long after its lock was broken.
    fn late(&self, hold: &Hold, entered: Instant, left: Instant) -> Result<Option<String>, String> {
        let mut latest = None;
        for key in hold.keys() {
            for (begin, end) in self.log.breaks_of(&key) {
                if begin > entered && end < left {
                    latest = latest.max(Some(left - begin));
                    let span = (begin, begin + hold.lease);
                    let is_calm = hold
                        .servers
                        .iter()
                        .all(|s| self.log.blocks(hold.link, *s, span, hold.lease).is_empty());
                    let bound = match is_calm {
                        true => hold.lease / 3 + fair_chance(hold.lease),
                        false => hold.lease - hold.margin + SLACK,
                    };
                    if left - begin > bound {
                        return Err(format!(
                            "told {:?} after the lock was broken, the bound is {bound:?}: {hold:?}",
                            left - begin
                        ));
                    }
                }
            }
        }
        Ok(latest.map(|_| "in time after DEL or LOCK.BREAK".to_string()))
    }

    /// The table, and the violation if there was one.
    pub fn report(&self, connections: u64) -> Result<(), String> {
        let mut state = self.state();
        println!("\n{:<58} {:>8}", "what", "count");
        for (what, count) in &state.counts {
            println!("{what:<58} {count:>8}");
        }
        let granted: usize = state.waits.values().map(Vec::len).sum();
        println!("{:<58} {granted:>8}", "acquisitions in all");
        println!(
            "{:<58} {connections:>8}",
            "connections accepted by the servers"
        );
        for what in [STANDSTILL, SLOW] {
            let (count, span) = self.log.total(what);
            println!("{:<58} {count:>8}  {span:.1?} in all", what);
        }
        let lag = self.longest_lag.load(Ordering::SeqCst);
        println!("{:<58} {lag:>8}  ms", "longest standstill of the machine");
        for (kind, waits) in &mut state.waits {
            waits.sort();
            let (middle, last) = (waits[waits.len() / 2], waits[waits.len() - 1]);
            println!(
                "{:<58}          median {middle:.1?}, longest {last:.1?}",
                format!("waits: {kind}")
            );
        }
        for (key, lock) in &state.locks {
            let longest = lock.longest_pause;
            println!(
                "{:<58}          {longest:.1?}",
                format!("longest from grant to grant: {key}")
            );
        }
        state.violation.take().map_or(Ok(()), Err)
    }

    /// The longest time between two grants of a lock.
    pub fn longest_pause(&self) -> Duration {
        let state = self.state();
        let pauses = state.locks.values().map(|lock| lock.longest_pause);
        pauses.max().unwrap_or_default()
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

type Verdict = (&'static str, Vec<String>, Result<Option<String>, String>);

/// So much time without a fault is enough for a renewal: a request that was sent before is given up, there is a pause,
/// and another one is sent.
fn fair_chance(lease: Duration) -> Duration {
    lease / 6 + lease / 20 + SLACK
}

/// With the history of the lock.
fn drop_and_fail(check: &Check, state: &mut State, key: &str, why: String) {
    let now = Instant::now();
    let history = state.lock(key).history.iter();
    let lines = history.map(|(at, what)| {
        let ago = now.saturating_duration_since(*at).as_secs_f64();
        format!("    {ago:7.3} s ago: {what}")
    });
    let lines: Vec<_> = lines.collect();
    let at = check.start.elapsed();
    let story = format!(
        "after {at:.1?}: {why}\n  the history of {key}:\n{}",
        lines.join("\n")
    );
    state.violation.get_or_insert(story);
    check.failed.store(true, Ordering::SeqCst);
}

impl State {
    fn lock(&mut self, key: &str) -> &mut Lock {
        self.locks.entry(key.to_string()).or_default()
    }

    fn note(&mut self, key: &str, what: String) {
        let history = &mut self.lock(key).history;
        history.push_back((Instant::now(), what));
        if history.len() > HISTORY {
            history.pop_front();
        }
    }
}

impl Lock {
    /// Tokens grow from grant to grant; readers that hold together may share one.
    fn check_tokens(&mut self, key: &str, hold: &Hold) -> Result<(), String> {
        if hold.is_red {
            for (server, token) in &hold.tokens {
                let highest = self.highest_on.entry(server.clone()).or_default();
                if *token <= *highest {
                    return Err(format!("token {token} on {server} after {highest}"));
                }
                *highest = *token;
            }
            return Ok(());
        }
        let tokens = hold.tokens.iter();
        for (_, token) in tokens.filter(|(of, _)| of == key) {
            let floor = match hold.is_shared {
                true => self.highest_exclusive,
                false => self.highest,
            };
            if *token <= floor {
                return Err(format!("token {token} after {floor}"));
            }
            self.highest = self.highest.max(*token);
            if !hold.is_shared {
                self.highest_exclusive = *token;
            }
        }
        Ok(())
    }
}
