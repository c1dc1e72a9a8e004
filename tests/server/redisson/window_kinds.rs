//! The Redisson windows of read-write locks, of semaphores, and of locks for which clients poll.

use std::time::Instant;

use crate::common::outside::channel_of;
use crate::common::{wait_for, Conn, TestServer};

/// One hand-off, and then a window longer than any test.
const RULE: [&str; 4] = ["--lock.free-after", "1", "--lock.free-window", "60000"];

/// Hands off `k` to the second of three owners; the third is parked when the second one releases. Returns the third's
/// connection.
fn hand_off_twice(server: &TestServer, [acquire, release]: [&str; 2]) -> Conn {
    let [mut c, mut second, mut third] = [(); 3].map(|()| server.conn());
    let request = |owner, wait| acquire.replace("OWNER", owner) + wait;
    let waiters = || server.stat("waiters") + server.stat("sem_waiters");
    let parked = || wait_for("a waiter", || waiters() == 1);
    assert!(c.line(&request("a", "")).int() > 0);
    second.send_line(&request("b", " BLOCK 0"));
    parked();
    assert_eq!(c.line(&release.replace("OWNER", "a")).int(), 1);
    assert!(second.recv().int() > 0);
    third.send_line(&request("c", " BLOCK 0"));
    parked();
    assert_eq!(c.line(&release.replace("OWNER", "b")).int(), 1);
    third
}

const WRITE: [&str; 2] = ["LOCK.ACQUIRE k OWNER WRITE", "LOCK.RELEASE k OWNER"];
const PERMIT: [&str; 2] = ["SEM.ACQUIRE k OWNER LIMIT 1", "SEM.RELEASE k OWNER"];

#[test]
fn a_write_lock_is_left_free_for_the_subscribers_of_its_channel() {
    let server = TestServer::with(&RULE);
    let [mut c, mut subscriber] = [(); 2].map(|()| server.conn());
    subscriber.run(["SUBSCRIBE", "redisson_rwlock:{k}"]);
    let mut third = hand_off_twice(&server, WRITE);
    assert_eq!(server.stat("windows_open"), 1);
    assert_eq!(c.line("EXISTS k {k}:rwlock_token").int(), 0);
    assert_eq!(subscriber.recv().list()[2].text(), "0");
    assert!(c.line("LOCK.ACQUIRE k d WRITE").is_nil());
    assert!(c.line("LOCK.ACQUIRE k d READ").is_nil());
    // A Redisson client takes the lock.
    c.send_lines(&[
        "MULTI",
        "HSET k mode write r:1:write 1",
        "PEXPIRE k 600000",
        "EXEC",
    ]);
    (0..4).for_each(|_| drop(c.recv()));
    wait_for("the end of the window", || {
        server.stat("windows_taken") == 1
    });
    assert!(third.is_silent());
    c.line("DEL k");
    assert!(third.recv().int() > 0);
}

#[test]
fn a_permit_is_left_free_for_the_subscribers_of_its_channel() {
    let server = TestServer::with(&RULE);
    let [mut c, mut subscriber] = [(); 2].map(|()| server.conn());
    subscriber.run(["SUBSCRIBE", "redisson_sc:{k}"]);
    let mut third = hand_off_twice(&server, PERMIT);
    assert_eq!(server.stat("windows_open"), 1);
    assert_eq!(subscriber.recv().list()[2].text(), "1");
    assert_eq!(c.line("GET k").text(), "1");
    assert!(c.line("SEM.ACQUIRE k d").is_nil());
    // A Redisson client takes the permit, and later returns it.
    c.send_lines(&[
        "MULTI",
        "DECRBY k 1",
        "ZADD {k}:timeout 9000000000000 r",
        "EXEC",
    ]);
    (0..4).for_each(|_| drop(c.recv()));
    wait_for("the end of the window", || {
        server.stat("windows_taken") == 1
    });
    assert!(third.is_silent());
    c.send_lines(&["MULTI", "ZREM {k}:timeout r", "INCRBY k 1", "EXEC"]);
    (0..4).for_each(|_| drop(c.recv()));
    assert!(third.recv().int() > 0);
    assert_eq!(server.stat("windows"), 1);
}

#[test]
fn subscribers_of_another_kind_have_no_window() {
    for (commands, channel) in [
        (WRITE, channel_of("k")),
        (PERMIT, channel_of("k")),
        (WRITE, "redisson_sc:{k}".into()),
        (PERMIT, "redisson_rwlock:{k}".into()),
    ] {
        let server = TestServer::with(&RULE);
        let mut subscriber = server.conn();
        subscriber.run(["SUBSCRIBE", &channel]);
        assert!(hand_off_twice(&server, commands).recv().int() > 0);
        assert_eq!(server.stat("windows"), 0, "{channel}");
    }
}

/// Redisson's spin lock: its unlock publishes nothing, and its waiters subscribe to nothing.
#[test]
fn a_client_that_polls_has_a_window_after_its_last_hold() {
    let server = TestServer::with(&RULE);
    let [mut c, mut a, mut b] = [(); 3].map(|()| server.conn());
    c.line("HSET k r:1 1");
    a.send_line("LOCK.ACQUIRE k a BLOCK 0");
    server.wait_for_waiters(1);
    b.send_line("LOCK.ACQUIRE k b BLOCK 0");
    server.wait_for_waiters(2);
    c.line("DEL k");
    assert!(a.recv().int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k a").int(), 1);
    assert_eq!(server.stat("windows_open"), 1);
    c.line("HSET k r:1 1");
    wait_for("the end of the window", || {
        server.stat("windows_taken") == 1
    });
    assert!(b.is_silent());
    c.line("DEL k");
    assert!(b.recv().int() > 0);
}

/// A subscriber may be a user without any permission for the key, and the server does not tell a module who subscribes.
#[test]
fn a_subscriber_that_never_tries_costs_a_window_ever_more_rarely() {
    const WINDOW_MS: u128 = 20;
    let server = TestServer::with(&["--lock.free-window", "20"]);
    let [mut c, mut a, mut b, mut subscriber] = [(); 4].map(|()| server.conn());
    subscriber.run(["SUBSCRIBE", &channel_of("k")]);
    assert!(c.line("LOCK.ACQUIRE k a").int() > 0);
    b.send_line("LOCK.ACQUIRE k b BLOCK 0");
    server.wait_for_waiters(1);
    let start = Instant::now();
    let mut holder = (&mut a, "a");
    let mut waiter = (&mut b, "b");
    for _ in 0..250 {
        let owner = holder.1;
        assert_eq!(c.line(&format!("LOCK.RELEASE k {owner}")).int(), 1);
        assert!(waiter.0.recv().int() > 0);
        holder
            .0
            .send_line(&format!("LOCK.ACQUIRE k {owner} BLOCK 0"));
        server.wait_for_waiters(1);
        std::mem::swap(&mut holder, &mut waiter);
    }
    // Four windows begin after ever more hand-offs, and those after the fifth ever later.
    let windows = u32::try_from(server.stat("windows_unused")).unwrap();
    let rests = 2u128.pow(windows.saturating_sub(4)).saturating_sub(2);
    assert!(windows > 4, "{windows}");
    assert!(
        start.elapsed().as_millis() >= rests * WINDOW_MS,
        "{windows}"
    );
}
