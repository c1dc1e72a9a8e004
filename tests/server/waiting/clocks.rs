//! A wall clock that is set while the server runs: leases depend on it, waits do not.

use crate::common::barrier::assert_stays_silent;
use crate::common::clock::{fake_clock, set_clock};
use crate::common::scene::{only_reply, Scene};
use crate::common::{wait_for, TestServer};

const HOUR: i64 = 3_600;

/// A server whose wall clock can be set while it runs.
fn server() -> TestServer {
    let mut server = TestServer::start();
    server.crash();
    fake_clock(&mut server);
    server.start_again();
    server
}

/// Sets the difference to the real clock; when this returns, the server has noticed it.
fn step(server: &TestServer, seconds: i64) {
    let mut conn = server.conn();
    let mut now = || conn.line("TIME").list()[0].text().parse::<i64>().unwrap();
    let before = now();
    set_clock(server, seconds);
    wait_for("the clock to be set", || {
        (now() - before).abs() > seconds.abs() / 2
    });
}

#[test]
fn a_clock_set_back_delays_the_end_of_no_wait() {
    let mut scene = Scene::waiting(server(), "BLOCK 1000");
    step(&scene.server, -HOUR);
    assert!(only_reply(&mut scene.bob).is_nil());
    scene.assert_stats(&[("waiters", 0)]);
    scene.server.wait_for_stat("waits_timed_out", 1);
}

#[test]
fn a_clock_set_back_delays_no_hand_off() {
    let mut scene = Scene::waiting(server(), "BLOCK 60000");
    step(&scene.server, -HOUR);
    scene.alice.line("LOCK.RELEASE k alice");
    scene.assert_bob_is_granted();
}

#[test]
fn a_clock_set_forward_ends_leases_and_no_wait() {
    let mut scene = Scene::waiting(server(), "BLOCK 600000");
    let mut zoe = scene.server.conn();
    zoe.line("LOCK.ACQUIRE endless zoe");
    zoe.line("PERSIST endless");
    let mut dan = scene.server.conn();
    dan.send_line("LOCK.ACQUIRE endless dan BLOCK 600000");
    scene.server.wait_for_waiters(2);

    step(&scene.server, HOUR);
    // Alice's lease was a minute.
    scene.assert_bob_is_granted();
    scene.assert_stats(&[("grants_expired", 1), ("waits_timed_out", 0)]);
    assert_stays_silent(&scene.server, &mut dan);
    zoe.line("LOCK.RELEASE endless zoe");
    assert!(only_reply(&mut dan).int() > scene.first);
}

/// The server reads the time once before it fires timers. A timer that is armed meanwhile by a clock that was just set
/// back would fire again and again in that same tick, for an hour.
#[test]
fn a_clock_that_is_set_back_while_the_timer_fires_stops_nothing() {
    let server = server();
    let mut conn = server.conn();
    let keys: Vec<String> = (0..400).map(|number| format!("k{number}")).collect();
    // Many leases end at once: the timer needs some milliseconds.
    for delay_ms in 0..12 {
        set_clock(&server, 0);
        conn.line("FLUSHALL");
        for key in &keys {
            conn.run(["LOCK.ACQUIRE", key, "alice", "EX", "1000"]);
        }
        let waiters: Vec<_> = keys
            .iter()
            .map(|key| {
                let mut waiter = server.conn();
                waiter.send(["LOCK.ACQUIRE", key, "bob", "EX", "1000", "BLOCK", "0"]);
                waiter
            })
            .collect();
        server.wait_for_waiters(400);
        let end_ms = unix_ms() + 100;
        for key in &keys {
            conn.run(["PEXPIREAT", key, &end_ms.to_string()]);
        }
        while unix_ms() < end_ms + delay_ms {}
        set_clock(&server, -HOUR);
        assert_eq!(conn.line("PING").text(), "PONG");
        drop(waiters);
        server.wait_for_waiters(0);
    }
}

fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis() as i64
}
