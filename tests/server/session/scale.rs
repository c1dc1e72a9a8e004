//! A connection with thousands of bound locks: one timer renews them while it lives; after its end they are released in
//! small portions, and the server serves other clients between them. Figures are printed, not asserted: `cargo test
//! session::scale -- --nocapture`.

use std::time::{Duration, Instant};

use crate::common::scene::wait_until_at_rest;
use crate::common::{patience, wait_for, Conn, TestServer};

const LOCKS: usize = 10_000;

/// Locks that a slow machine, too, renews in a sixth of nine seconds.
const KEPT: usize = 5_000;

/// A connection that holds so many locks by its session.
fn holder(server: &TestServer, locks: usize) -> Conn {
    let mut alice = server.conn();
    for from in (0..locks).step_by(500) {
        let lines: Vec<String> = (from..from + 500)
            .map(|number| format!("LOCK.ACQUIRE k{number} alice SESSION"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        alice.send_lines(&lines);
        for _ in &lines {
            alice.recv().int();
        }
    }
    alice
}

/// Queries until the condition holds, and returns how long the server took each time: a long tick shows as a slow
/// reply.
fn answer_times(conn: &mut Conn, mut done: impl FnMut(&mut Conn) -> bool) -> Vec<Duration> {
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() % 20 != 0 || !done(conn) {
        let asked = Instant::now();
        assert_eq!(conn.line("PING").text(), "PONG");
        times.push(asked.elapsed());
        assert!(start.elapsed() < patience(), "never done");
    }
    times
}

fn report(what: &str, took: Duration, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1_000];
    println!(
        "{what}: {took:?}; {} PINGs meanwhile, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        times.len(),
        at(500),
        at(990),
        at(999),
        at(1_000),
    );
}

#[test]
fn ten_thousand_locks_end_with_their_connection() {
    let server = TestServer::start();
    let alice = holder(&server, LOCKS);
    let (mut watcher, mut pinger) = (server.conn(), server.conn());
    // Every hundredth lock has a waiter: those are handed off, in the order of their acquisition.
    let mut waiters: Vec<Conn> = Vec::new();
    for number in (0..LOCKS).step_by(100) {
        let mut waiter = server.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE k{number} w PX 60000 BLOCK 0"));
        waiters.push(waiter);
    }
    server.wait_for_waiters(waiters.len() as u64);
    assert_eq!(server.stat("session_holds"), LOCKS as u64);
    let quiet = answer_times(&mut pinger, {
        let start = Instant::now();
        move |_| start.elapsed() > Duration::from_millis(200)
    });
    report("nothing ends", Duration::from_millis(200), quiet);
    let start = Instant::now();
    alice.close();
    let held = waiters.len() as i64;
    let times = answer_times(&mut pinger, |_| watcher.line("DBSIZE").int() == held + 1);
    report(&format!("{LOCKS} locks end"), start.elapsed(), times);
    for waiter in &mut waiters {
        assert!(waiter.recv().int() > 0);
    }
    assert_eq!(server.stat("grants_session_ended"), LOCKS as u64);
    assert_eq!(
        (server.stat("sessions"), server.stat("session_holds")),
        (0, 0)
    );
    for (number, waiter) in waiters.iter_mut().enumerate() {
        let key = format!("k{}", number * 100);
        assert_eq!(waiter.run(["LOCK.RELEASE", &key, "w"]).int(), 1);
    }
    wait_until_at_rest(&mut watcher);
}

#[test]
fn thousands_of_locks_are_kept_by_one_timer() {
    let server = TestServer::with(&["--lock.session-lease", "9000"]);
    let alice = holder(&server, KEPT);
    let (mut watcher, mut pinger) = (server.conn(), server.conn());
    let start = Instant::now();
    let times = answer_times(&mut pinger, |_| {
        server.stat("session_renewals") >= 3 * KEPT as u64
    });
    report(
        &format!("three renewals of {KEPT} locks"),
        start.elapsed(),
        times,
    );
    assert_eq!(watcher.line("DBSIZE").int(), KEPT as i64 + 1);
    assert_eq!(server.stat("session_losses"), 0);
    alice.close();
    wait_for("all free", || watcher.line("DBSIZE").int() == 1);
    assert_eq!(server.stat("grants_session_ended"), KEPT as u64);
}
