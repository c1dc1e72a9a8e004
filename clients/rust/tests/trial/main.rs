//! A trial of the client: many workers lock for minutes while their servers and their network break at random, and a
//! check watches. `make trial-client` runs it (`SECONDS`, `SEED`).
//!
//! Three servers with an append-only file that is synchronized with every write, so that a lock outlives SIGKILL. Four
//! programs of workers: two of them speak through proxies, one is a process of its own with few open files, which is
//! killed now and then. The locks are exclusive, READ, WRITE, MultiLock and RedLock, with leases of 1 to 5 s.
//!
//! What may not happen, the check calls a violation, and ends the trial with the history of the lock:
//!
//! 1. **Two are inside.** A worker is inside from its grant until its release begins, or until `lost()` has ended and
//!    a part of the margin has passed. Two inside of one lock, not both readers, are a violation. There are two
//!    exceptions. A lock that was taken by `DEL` or `LOCK.BREAK` is the next owner's before its holder can know; that
//!    holder must be told within a third of the lease and a fair chance, or, with another fault meanwhile, within
//!    the lease less its margin. And where this machine ran nothing for longer than a third of the margin, a timer
//!    was late: that is counted (`overlap: while the machine stood still`).
//! 2. **A token that does not grow.** Exclusive grants and WRITE grants have a higher token than every grant before
//!    them, READ grants than every WRITE grant before them. Those of a RedLock are compared server by server. An
//!    exception is a grant that `DEL` or `LOCK.BREAK` has ended before its holder received it.
//! 3. **A loss without a reason.** `DEL` or `LOCK.BREAK` of the lock, since a lease before the worker entered, is a
//!    reason for any loss, and for `Taken` the only one. `Unconfirmed` must have been unavoidable: between the
//!    moment at which a renewal was due (a third of the lease after the last confirmation) and the notice, the
//!    server was away, and never back for a *fair chance*: a sixth of the lease (a request that was sent before is
//!    given up), a twentieth (the pause before the next one) and 250 ms. A server is away while it is stopped, dead
//!    or starting, while the proxy is cut or holds a request back (for those who use the proxy), and while a thread
//!    that pings it has no answer for 100 ms. `maxclients`, and local ports that are used up, are no reason alone:
//!    only with a fault up to a lease before, which has broken the connection. The program with few open files may
//!    miss its server for a lease after a fault. A time in which this machine ran nothing for more than 60 ms is a
//!    fault of all servers. A MultiLock is lost with any of its servers. A RedLock that was granted by three
//!    servers must have had faults on two of them since it was asked for, one that was granted by two on one of
//!    them; with those it may be `Taken`, too, since leases end on servers that were away.
//! 4. **A loss that was not told.** A release that is answered with "not held", while the lock was valid.
//! 5. **An error without a fault** in the last 1.25 s of its acquisition (of a RedLock: within six seconds before it,
//!    or while it lasted); any error of the kind that does not pass. The program with few open files may have errors
//!    of the kind that passes at any time.
//! 6. **A lock that is never free.** When the last faults are some seconds over and all workers have ended, all locks
//!    come free within two seconds; and no lock is without a grant for a minute.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis_lock_client::{Server, ServerBuilder};
use redis_lock_harness::{wait_for, Conn};

mod check;
mod fault_log;
mod fleet;
mod network;
mod plan;
mod reporter;
mod workers;

use check::{Check, SLOW};
use fault_log::Link;
use fleet::Fleet;
use plan::{Chance, Fault};
use reporter::{Remote, Reporter};
use workers::{work, Program};

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty());
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn servers(ports: &[u16]) -> impl Iterator<Item = ServerBuilder> + '_ {
    let urls = ports.iter().map(|port| format!("redis://127.0.0.1:{port}"));
    urls.map(|url| Server::builder(&url))
}

fn program(name: &'static str, ports: &[u16], link: Link, reporter: &Arc<Reporter>) -> Program {
    let servers = servers(ports);
    Program {
        name,
        servers: servers
            .map(|server| server.build().expect("a URL"))
            .collect(),
        link,
        reporter: reporter.clone(),
    }
}

const DIRECT: Link = Link {
    is_proxied: false,
    is_scarce: false,
};
const PROXIED: Link = Link {
    is_proxied: true,
    is_scarce: false,
};
const SCARCE: Link = Link {
    is_proxied: false,
    is_scarce: true,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes: make trial-client"]
async fn no_overlap_and_no_loss_without_a_reason() {
    if network::was_run_inside("no_overlap_and_no_loss_without_a_reason") {
        return;
    }
    let (seed, length) = (number("SEED", 1), number("SECONDS", 600));
    let mut plan = plan::plan(seed, Duration::from_secs(length));
    if !network::is_own() {
        println!("no right to make a network namespace: local ports are not used up");
        plan.retain(|step| !matches!(step.fault, Fault::NoPorts { .. }));
    }
    println!("SEED={seed} SECONDS={length}: {} faults", plan.len());
    plan.iter().for_each(|step| println!("{step}"));
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("check").to_string_lossy().into_owned();
    let check = Check::new();
    reporter::serve(&socket, &check, SCARCE);
    let mut fleet = Fleet::new(&check, seed, &socket);
    let reporter = Arc::new(Reporter::Local(check.clone()));
    let watchers = watch(&fleet, &check, &reporter);
    let workers = start_workers(&fleet, seed, &reporter);
    let judge = thread::spawn({
        let check = check.clone();
        move || {
            while check.goes_on() {
                check.judge(false);
                thread::sleep(Duration::from_millis(100));
            }
        }
    });
    tokio::task::block_in_place(|| {
        fleet.play(&plan);
        while check.elapsed() < Duration::from_secs(length) && !check.has_failed() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    check.close();
    for worker in workers {
        if let Err(error) = worker.await {
            check.fail(format!("a worker has failed: {error}"));
        }
    }
    tokio::task::block_in_place(|| finish(&mut fleet, &check));
    watchers.store(false, Ordering::SeqCst);
    judge.join().unwrap();
    check.judge(true);
    if let Err(violation) = check.report(fleet.connections()) {
        panic!("violation: {violation}");
    }
}

fn start_workers(
    fleet: &Fleet,
    seed: u64,
    reporter: &Arc<Reporter>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let direct: Vec<u16> = fleet.servers.iter().map(|server| server.port).collect();
    let proxied: Vec<u16> = fleet.proxies.iter().map(|proxy| proxy.port).collect();
    let mut hasty = program("hasty", &proxied, PROXIED, reporter);
    let short = |server: ServerBuilder| server.response_timeout(Duration::from_secs(1)).build();
    hasty.servers = servers(&proxied)
        .map(|server| short(server).expect("a URL"))
        .collect();
    let programs = [
        (program("direct", &direct, DIRECT, reporter), 6),
        (program("proxied", &proxied, PROXIED, reporter), 6),
        (hasty, 4),
    ];
    let mut workers = Vec::new();
    for (program, count) in programs {
        for number in 0..count {
            let chance = Chance::new(seed ^ (workers.len() as u64 + 1) << 32);
            workers.push(tokio::spawn(work(program.clone(), number, chance)));
        }
    }
    workers
}

/// Notes when the machine runs nothing of ours, and when a server does not answer.
fn watch(fleet: &Fleet, check: &Arc<Check>, reporter: &Arc<Reporter>) -> Arc<AtomicBool> {
    let goes_on = Arc::new(AtomicBool::new(true));
    watch_machine(reporter.clone(), goes_on.clone());
    for (place, server) in fleet.servers.iter().enumerate() {
        let (port, check, goes_on) = (server.port, check.clone(), goes_on.clone());
        thread::spawn(move || {
            let mut conn = None;
            let mut asked = Instant::now();
            while goes_on.load(Ordering::SeqCst) {
                let mut asking = conn.take().or_else(|| Conn::try_open(port));
                let answers = asking.as_mut().is_some_and(Conn::is_ready);
                if answers {
                    if asked.elapsed() > Duration::from_millis(100) {
                        let span = (asked, Instant::now());
                        check.log.was_slow(place, SLOW, span);
                    }
                    conn = asking;
                }
                thread::sleep(Duration::from_millis(10));
                if answers {
                    asked = Instant::now();
                }
            }
        });
    }
    goes_on
}

fn watch_machine(reporter: Arc<Reporter>, goes_on: Arc<AtomicBool>) {
    thread::spawn(move || {
        while goes_on.load(Ordering::SeqCst) && reporter.goes_on() {
            let begin = Instant::now();
            thread::sleep(Duration::from_millis(10));
            if begin.elapsed() > Duration::from_millis(60) {
                reporter.lag(begin);
            }
        }
    });
}

/// All must come free by itself.
fn finish(fleet: &mut Fleet, check: &Check) {
    fleet.finish_program();
    if check.has_failed() {
        return;
    }
    let begin = Instant::now();
    while !fleet.held().is_empty() {
        if begin.elapsed() > Duration::from_secs(2) {
            return check.fail(format!(
                "held after the end of all workers: {:#?}",
                fleet.held()
            ));
        }
        thread::sleep(Duration::from_millis(50));
    }
    println!("all locks were free after {:.1?}", begin.elapsed());
    if check.longest_pause() > Duration::from_secs(60) {
        check.fail(format!(
            "a lock without a grant for {:?}",
            check.longest_pause()
        ));
    }
}

/// The program with few open files: run by the trial.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the trial"]
async fn few_files() {
    let Ok(socket) = std::env::var(fleet::SOCKET) else {
        println!("not run: no trial has started this");
        return;
    };
    let ports = std::env::var(fleet::PORTS).unwrap();
    let ports: Vec<u16> = ports.split(',').map(|port| port.parse().unwrap()).collect();
    let reporter = Arc::new(Remote::to(&socket));
    watch_machine(reporter.clone(), Arc::new(AtomicBool::new(true)));
    let program = program("scarce", &ports, SCARCE, &reporter);
    let seed = number("SEED", 1);
    let workers: Vec<_> = (0..3)
        .map(|number| {
            let chance = Chance::new(seed ^ (number + 100) << 32);
            tokio::spawn(work(program.clone(), number, chance))
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    wait_for("the trial's end", || !reporter.goes_on());
    for server in &program.servers {
        server.settled().await;
    }
}
