//! `lock.string-holders` with the libraries that take a lock with `SET key value NX PX lease`: each, unmodified,
//! on one key beside callers of LOCK.ACQUIRE.
//!
//! Every critical section increments a counter by a plain GET and a plain SET, so two holders at a time lose an update.
//! The agents are in `strings` beside this directory. `run` gets the library and the lease as well. If a library fails
//! or gives up, its agent asks it again. The orders:
//!
//! | Order | Answers |
//! |---|---|
//! | `key` | the key of the library's lock |
//! | `lock` | `locked` |
//! | `unlock` | `unlocked MICROSECONDS`: Unix time before the call; `refused TEXT` |
//! | `contend THREADS ROUNDS` | `contended RELEASED REFUSED UNSURE` after so many critical sections: releases that the library confirms and those that it refuses, sections in which GET or SET failed |
//!
//! Environment: `LOCK_STRINGS_ROUNDS`, the critical sections of a library (100); `LOCK_STRINGS_THREADS`, its threads
//! (8); `LOCK_STRINGS_OPTIONS`, more options of the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use redis_lock_harness::{patience, wait_for, Conn, TestServer};

use crate::agent::Agent;

/// The callers of LOCK.ACQUIRE that want the lock all the time.
const CALLERS: usize = 4;

/// In milliseconds, longer than any stall of a busy machine: no hold ends while its holder works.
const LONG: u64 = 60_000;

/// In milliseconds, longer than a restart of the server, and short enough to wait for.
const SHORT: u64 = 10_000;

/// In milliseconds, of a holder that dies.
const DYING: u64 = 3_000;

fn setting(name: &str, default: u64) -> u64 {
    let wanted = std::env::var(format!("LOCK_STRINGS_{name}")).ok();
    wanted.map_or(default, |text| text.parse().expect("a number"))
}

fn server(options: &[&str]) -> TestServer {
    let more = std::env::var("LOCK_STRINGS_OPTIONS").unwrap_or_default();
    let mut all = vec!["--lock.string-holders", "yes"];
    all.extend(options.iter().copied().chain(more.split_whitespace()));
    TestServer::with(&all)
}

/// The agent of this library, with the key of its lock. `library`: a directory, and behind a dot the library that its
/// agent is to use.
fn start(library: &str, server: &TestServer, lease_ms: u64) -> (Agent, String) {
    let (directory, which) = library.split_once('.').unwrap_or((library, library));
    let further = [which, &lease_ms.to_string()];
    let mut agent = Agent::start_as(&format!("strings/{directory}"), server.port, &further);
    let key = agent.run("key");
    (agent, key)
}

/// The numbers in an answer behind its first word, which is as expected.
fn numbers(answer: &str, expected: &str) -> Vec<u64> {
    let mut words = answer.split(' ');
    assert_eq!(words.next(), Some(expected), "{answer}");
    words.map(|word| word.parse().expect("a number")).collect()
}

/// The critical sections of the callers of LOCK.ACQUIRE.
#[derive(Default)]
struct Sections {
    /// Those whose increment is certain.
    sure: AtomicU64,
    /// Those in which a reply was lost.
    unsure: AtomicU64,
    over: AtomicBool,
}

impl Sections {
    fn sure(&self) -> u64 {
        self.sure.load(Ordering::SeqCst)
    }

    /// One critical section; `None` if the connection fails.
    fn run(&self, conn: &mut Conn, key: &str, owner: &str, lease_ms: u64) -> Option<()> {
        let lease = lease_ms.to_string();
        let mut call = |words: &[&str]| match conn.try_send(words) {
            true => conn.try_recv(),
            false => None,
        };
        let granted = call(&["LOCK.ACQUIRE", key, owner, "PX", &lease, "BLOCK", "0"])?;
        if granted.is_error() {
            return None; // the server loads its data
        }
        assert!(granted.int() > 0);
        let incremented = call(&["GET", "counter"]).and_then(|count| {
            let count: u64 = if count.is_nil() {
                0
            } else {
                count.text().parse().unwrap()
            };
            call(&["SET", "counter", &(count + 1).to_string()])
        });
        match incremented {
            Some(_) => self.sure.fetch_add(1, Ordering::SeqCst),
            None => self.unsure.fetch_add(1, Ordering::SeqCst),
        };
        incremented?;
        assert_eq!(call(&["LOCK.RELEASE", key, owner])?.int(), 1, "{owner}");
        Some(())
    }

    /// Critical sections until the contest is over. Each has an owner of its own: if its connection fails, its lease
    /// ends its hold.
    fn caller(&self, number: usize, port: u16, key: &str, lease_ms: u64) {
        let mut conn = Conn::open(port);
        for section in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let owner = format!("caller{number}:{section}");
            if self.run(&mut conn, key, &owner, lease_ms).is_none() {
                wait_for("the server to be there again", || {
                    let new = Conn::try_open(port);
                    new.is_some_and(|new| {
                        conn = new;
                        conn.is_ready()
                    })
                });
            }
        }
    }
}

/// Both sides want the lock all the time, until the library has had it so often. Returns the critical sections of the
/// callers meanwhile, and the releases that the library refused.
fn contest(
    (agent, key): (&mut Agent, &str),
    server: &mut TestServer,
    (lease_ms, rounds): (u64, u64),
    meanwhile: impl FnOnce(&mut TestServer),
) -> (u64, u64) {
    let sections = Arc::new(Sections::default());
    let (port, key) = (server.port, key.to_string());
    let caller = |number| {
        let (sections, key) = (Arc::clone(&sections), key.clone());
        std::thread::spawn(move || sections.caller(number, port, &key, lease_ms))
    };
    let callers: Vec<JoinHandle<()>> = (0..CALLERS).map(caller).collect();
    wait_for("the callers to contend", || sections.sure() > 100);
    // The library is not known to want the lock yet.
    assert_eq!(agent.run("lock"), "locked");
    numbers(&agent.run("unlock"), "unlocked");
    let before = sections.sure();
    agent.order(&format!("contend {} {rounds}", setting("THREADS", 8)));
    meanwhile(server);
    let answer = agent.answer_within(patience() + Duration::from_secs(rounds));
    let during = sections.sure() - before;
    sections.over.store(true, Ordering::SeqCst);
    callers
        .into_iter()
        .for_each(|caller| caller.join().expect("a caller"));
    let answer = numbers(&answer, "contended");
    let [released, refused, unsure] = answer[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(released + refused, rounds);
    let sure = rounds - unsure + sections.sure();
    let unsure = unsure + sections.unsure.load(Ordering::SeqCst);
    let counter = server.conn().line("GET counter").text();
    let counter: u64 = counter.parse().unwrap();
    assert!(
        (sure..=sure + unsure).contains(&counter),
        "{counter} of {sure} updates, {unsure} more may have been made"
    );
    (during, refused)
}

fn no_update_is_lost(library: &str) {
    let mut server = server(&[]);
    let (mut agent, key) = start(library, &server, LONG);
    let (start, rounds) = (Instant::now(), setting("ROUNDS", 100));
    let contestants = (&mut agent, &key[..]);
    let (callers, refused) = contest(contestants, &mut server, (LONG, rounds), |_| {});
    println!(
        "{library}: {rounds} acquisitions and {callers} of LOCK.ACQUIRE in {:.1} s, a share of {} %",
        start.elapsed().as_secs_f64(),
        100 * rounds / (rounds + callers)
    );
    assert_eq!(refused, 0);
}

fn a_release_wakes_a_waiter(library: &str) {
    let server = server(&[]);
    let (mut agent, key) = start(library, &server, LONG);
    let mut waiter = server.conn();
    let mut took: Vec<u64> = (0..setting("ROUNDS", 100).min(200))
        .map(|_| {
            assert_eq!(agent.run("lock"), "locked");
            waiter.send(["LOCK.ACQUIRE", &key, "waiter", "BLOCK", "0"]);
            server.wait_for_waiters(1);
            agent.order("unlock");
            assert!(waiter.recv().int() > 0);
            let granted = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
            let released = numbers(&agent.answer(), "unlocked")[0];
            assert_eq!(waiter.run(["LOCK.RELEASE", &key, "waiter"]).int(), 1);
            granted - released
        })
        .collect();
    took.sort_unstable();
    let ms = |hundredth: usize| took[took.len() * hundredth / 100] as f64 / 1_000.0;
    println!(
        "{library}: from release to grant p50 {:.1} ms, p99 {:.1} ms",
        ms(50),
        ms(99)
    );
}

fn a_killed_client_holds_until_its_ttl_ends(library: &str) {
    let server = server(&[]);
    let (mut agent, key) = start(library, &server, DYING);
    let start = Instant::now();
    assert_eq!(agent.run("lock"), "locked");
    let mut waiter = server.conn();
    waiter.send(["LOCK.ACQUIRE", &key, "waiter", "BLOCK", "0"]);
    server.wait_for_waiters(1);
    drop(agent);
    assert!(waiter.recv().int() > 0);
    assert!(start.elapsed() >= Duration::from_millis(DYING));
}

fn a_holder_of_the_module_that_dies_is_waited_for(library: &str) {
    let server = server(&[]);
    let (mut agent, key) = start(library, &server, LONG);
    let mut holder = server.conn();
    let start = Instant::now();
    let lease = DYING.to_string();
    assert!(
        holder
            .run(["LOCK.ACQUIRE", &key, "holder", "PX", &lease])
            .int()
            > 0
    );
    holder.close();
    assert_eq!(agent.run("lock"), "locked");
    assert!(start.elapsed() >= Duration::from_millis(DYING));
}

fn a_restart_loses_no_update(library: &str) {
    // With `everysec` Redis replies before it writes to the AOF, for up to two seconds.
    let mut server = server(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut agent, key) = start(library, &server, SHORT);
    contest((&mut agent, &key), &mut server, (SHORT, 60), |server| {
        for _ in 0..2 {
            let mut conn = server.conn();
            let mut updates = || conn.line("GET counter").text().parse::<u64>().unwrap();
            let before = updates();
            wait_for("a few updates", || updates() > before + 20);
            server.crash_and_restart();
        }
    });
}

macro_rules! libraries {
    ($($module:ident: $name:literal,)*) => {
        $(mod $module {
            libraries!(@tests $name;
                no_update_is_lost
                a_release_wakes_a_waiter
                a_killed_client_holds_until_its_ttl_ends
                a_holder_of_the_module_that_dies_is_waited_for
                a_restart_loses_no_update
            );
        })*
    };
    (@tests $name:literal; $($test:ident)*) => {
        $(#[test] fn $test() { super::$test($name); })*
    };
}

libraries! {
    // Not `redis_py`: that names the tests of the client.
    redis_py_lock: "redis-py",
    redsync: "redsync",
    redlock: "redlock",
    spring: "spring.spring",
    spring_pubsub: "spring.spring-pubsub",
    spring_shedlock: "spring.shedlock",
}
