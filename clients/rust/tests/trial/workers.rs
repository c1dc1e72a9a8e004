//! The workers: each takes one lock after another, of any kind, waits for it in any way, holds it for any time, and
//! gives it up in any way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_lock_client::{
    Error, Guard, Lock, Lost, LostReason, Mode, MultiGuard, MultiLock, RedGuard, RedLock, Released,
    Result, Server,
};
use tokio::time::{sleep, timeout};

use crate::check::{Failure, Hold, Loss};
use crate::fault_log::Link;
use crate::fleet::STARTUP_DELAY;
use crate::plan::{Chance, EXCLUSIVE, READ_WRITE, RED, SERVERS};
use crate::reporter::Reporter;

/// What a worker belongs to: connections of its own, as if it were a program of its own.
#[derive(Clone)]
pub struct Program {
    pub name: &'static str,
    pub servers: Vec<Server>,
    pub link: Link,
    pub reporter: Arc<Reporter>,
}

/// What is asked for.
enum Wanted {
    One(Lock),
    Multi(MultiLock),
    Red(RedLock),
}

enum Held {
    One(Guard),
    Multi(MultiGuard),
    Red(RedGuard),
}

/// How long an acquisition may wait.
#[derive(Clone, Copy)]
enum Wait {
    Try,
    Within(Duration),
    /// Without an end; dropped after so long.
    Dropped(Duration),
}

/// One acquisition, before it is made.
struct Order {
    wanted: Wanted,
    kind: &'static str,
    is_shared: bool,
    lease: Duration,
    margin: Duration,
    /// Servers and keys, in the order in which the client names the tokens.
    places: Vec<(usize, &'static str)>,
}

/// Until the trial is over.
pub async fn work(program: Program, number: u64, mut chance: Chance) {
    let name = format!("{}.{number}", program.name);
    while program.reporter.goes_on() {
        let order = order(&program, &mut chance);
        one(&program, &name, order, &mut chance).await;
        sleep(chance.span(0, 30)).await;
    }
}

fn order(program: &Program, chance: &mut Chance) -> Order {
    let servers = &program.servers;
    let red_most = STARTUP_DELAY.as_millis() as u64;
    let kind = chance.one_of(&[
        "exclusive",
        "exclusive",
        "READ",
        "READ",
        "WRITE",
        "MultiLock",
        "RedLock",
    ]);
    let most = if kind == "RedLock" { red_most } else { 5_000 };
    let lease = chance.span(1_000, most);
    let margin = lease / chance.one_of(&[6, 6, 4, 2]);
    let server = chance.below(SERVERS as u64) as usize;
    let key = chance.one_of(&EXCLUSIVE);
    let of = |server: usize, key: &str| {
        let lock = Lock::new(&servers[server], key);
        lock.lease(lease).margin(margin)
    };
    let (wanted, places) = match kind {
        "exclusive" | "READ" | "WRITE" => {
            let key = if kind == "exclusive" { key } else { READ_WRITE };
            let lock = match kind {
                "exclusive" => of(server, key),
                "READ" => of(server, key).mode(Mode::Read),
                _ => of(server, key).mode(Mode::Write),
            };
            (Wanted::One(lock), vec![(server, key)])
        }
        "MultiLock" => {
            let all = (0..SERVERS).flat_map(|server| EXCLUSIVE.map(|key| (server, key)));
            let mut places: Vec<_> = all.collect();
            while places.len() > 3 {
                places.remove(chance.below(places.len() as u64) as usize);
            }
            let locks = places.iter().map(|(server, key)| of(*server, key));
            let multi = MultiLock::new(locks).expect("locks of several names");
            (Wanted::Multi(multi), places)
        }
        _ => {
            let red = RedLock::new(servers, RED).expect("three servers");
            let red = red.lease(lease).margin(margin);
            let places = (0..SERVERS).map(|server| (server, RED)).collect();
            (Wanted::Red(red), places)
        }
    };
    Order {
        wanted,
        kind,
        is_shared: kind == "READ",
        lease,
        margin,
        places,
    }
}

impl Wanted {
    async fn acquire(&self, wait: Wait) -> Result<Option<Held>> {
        Ok(match (self, wait) {
            (Wanted::One(lock), Wait::Try) => lock.try_acquire().await?.map(Held::One),
            (Wanted::One(lock), Wait::Within(span)) => {
                lock.acquire_within(span).await?.map(Held::One)
            }
            (Wanted::One(lock), Wait::Dropped(_)) => Some(Held::One(lock.acquire().await?)),
            (Wanted::Multi(multi), Wait::Try) => multi.try_acquire().await?.map(Held::Multi),
            (Wanted::Multi(multi), Wait::Within(span)) => {
                multi.acquire_within(span).await?.map(Held::Multi)
            }
            (Wanted::Multi(multi), Wait::Dropped(_)) => Some(Held::Multi(multi.acquire().await?)),
            (Wanted::Red(red), Wait::Try) => red.try_acquire().await?.map(Held::Red),
            (Wanted::Red(red), Wait::Within(span)) => {
                red.acquire_within(span).await?.map(Held::Red)
            }
            (Wanted::Red(red), Wait::Dropped(_)) => Some(Held::Red(red.acquire().await?)),
        })
    }
}

impl Held {
    fn lost(&self) -> Lost {
        match self {
            Held::One(guard) => guard.lost(),
            Held::Multi(guard) => guard.lost(),
            Held::Red(guard) => guard.lost(),
        }
    }

    fn valid_for(&self) -> Duration {
        match self {
            Held::One(guard) => guard.valid_for(),
            Held::Multi(guard) => guard.valid_for(),
            Held::Red(guard) => guard.valid_for(),
        }
    }

    /// By server and key.
    fn tokens(&self, order: &Order, servers: &[Server]) -> Vec<(String, u64)> {
        let tokens = match self {
            Held::One(guard) => vec![guard.token()],
            Held::Multi(guard) => guard.tokens(),
            // Through a proxy a server has another name.
            Held::Red(guard) => {
                let place = |name: &str| servers.iter().position(|s| s.name() == name);
                let named = guard.tokens().into_iter();
                let placed =
                    named.map(|(name, token)| (format!("{}/{RED}", place(&name).unwrap()), token));
                return placed.collect();
            }
        };
        let names = order
            .places
            .iter()
            .map(|(server, key)| format!("{server}/{key}"));
        names.zip(tokens).collect()
    }

    /// Whether a server has answered that it was not held.
    async fn release(self) -> bool {
        // Of a RedLock one server may have lost it: the majority counts.
        let released = match self {
            Held::One(guard) => guard.release().await,
            Held::Multi(guard) => guard.release().await,
            Held::Red(guard) => guard.release().await,
        };
        matches!(released, Ok(Released::NotHeld))
    }
}

async fn one(program: &Program, name: &str, order: Order, chance: &mut Chance) {
    let wait = match chance.below(4) {
        0 => Wait::Try,
        1 | 2 => Wait::Within(chance.span(1, 3_000)),
        _ => Wait::Dropped(chance.span(1, 8_000)),
    };
    let reporter = &program.reporter;
    let asked = Instant::now();
    let got = match wait {
        Wait::Dropped(span) => timeout(span, order.wanted.acquire(wait)).await,
        _ => Ok(order.wanted.acquire(wait).await),
    };
    let outcome = match &got {
        Ok(Ok(Some(_))) => "granted",
        Ok(Ok(None)) => "not granted",
        Ok(Err(_)) => "an error",
        Err(_) => "given up",
    };
    reporter.tally(order.kind, outcome, asked.elapsed());
    match got {
        Ok(Ok(Some(held))) => hold(program, name, &order, asked, held, chance).await,
        Ok(Err(error)) if !is_silent(&error) => {
            reporter.failure(Failure {
                link: program.link,
                servers: order.places.iter().map(|(server, _)| *server).collect(),
                asked,
                is_red: matches!(order.wanted, Wanted::Red(_)),
                is_passing: error.is_passing(),
                what: in_short(&error),
                text: format!("{name} {}: {error}", order.kind),
            });
        }
        _ => {}
    }
}

fn in_short(error: &Error) -> String {
    match error {
        Error::Connection { what, .. } => what.chars().take(40).collect(),
        Error::Refused { code, .. } => code.clone(),
        other => other.to_string(),
    }
}

/// The word of a server that grants nothing for a while after its start.
fn is_silent(error: &Error) -> bool {
    matches!(error, Error::Refused { code, .. } if code == "LOCKDELAY")
}

async fn hold(
    program: &Program,
    name: &str,
    order: &Order,
    asked: Instant,
    held: Held,
    chance: &mut Chance,
) {
    let reporter = &program.reporter;
    // Told of a loss already: nothing is done under it.
    if held.valid_for().is_zero() {
        return reporter.tally(order.kind, "over when it was granted", asked.elapsed());
    }
    let report = Hold {
        worker: name.to_string(),
        kind: order.kind.to_string(),
        link: program.link,
        is_shared: order.is_shared,
        is_red: matches!(held, Held::Red(_)),
        lease: order.lease,
        margin: order.margin,
        asked,
        since: asked.max(Instant::now() - order.lease),
        servers: order.places.iter().map(|(server, _)| *server).collect(),
        tokens: held.tokens(order, &program.servers),
    };
    let number = reporter.enter(&report);
    let span = match chance.below(20) {
        0..13 => chance.span(0, 40),
        13..18 => chance.span(40, 900),
        // Longer than the lease: it has to be renewed.
        _ => order.lease + chance.span(0, 3_000),
    };
    tokio::select! {
        biased;
        Some(why) = held.lost() => {
            reporter.lose(number, loss(&why));
            if why == LostReason::Unconfirmed {
                // What is left is the margin: a part of it is used.
                let part = held.valid_for().min(order.margin) * chance.below(60) as u32 / 100;
                sleep(part).await;
            }
            reporter.leave(number, "lost");
        }
        () = sleep(span) => {
            reporter.leave(number, "done");
        }
    }
    give_up(reporter, report, held, chance).await;
}

async fn give_up(reporter: &Reporter, report: Hold, held: Held, chance: &mut Chance) {
    let ends_unseen = chance.below(3) == 0;
    if ends_unseen {
        return drop(held);
    }
    if chance.below(6) == 0 {
        let _ = timeout(chance.span(0, 3), held.release()).await;
        return;
    }
    let (valid, begun) = (held.valid_for(), Instant::now());
    let was_gone = held.release().await;
    if was_gone && begun.elapsed() < valid {
        reporter.not_held(&report);
    }
}

fn loss(why: &LostReason) -> Loss {
    match why {
        LostReason::Unconfirmed => Loss::Unconfirmed,
        LostReason::Taken => Loss::Taken,
        _ => Loss::Refused,
    }
}
