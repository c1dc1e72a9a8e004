//! Redisson's scripts run natively, and parked waiters: a script in the same tick as a release does not pass the queue,
//! like a caller of `LOCK.*`.

use crate::common::redisson::{ACQUIRE, UNLOCK};
use crate::common::{Conn, Reply};
use crate::lifecycle::startup_delay::park;
use crate::redisson::native::native;

fn acquire(owner: &str) -> String {
    format!("EVALSHA {ACQUIRE} 1 k 600000 {owner}")
}

fn unlock(owner: &str) -> String {
    format!("EVALSHA {UNLOCK} 3 k redisson_lock__channel:{{k}} latch:{owner} 0 600000 {owner} PUBLISH 13500")
}

/// All calls in one tick.
fn in_one_tick(conn: &mut Conn, lines: &[&str]) -> Vec<Reply> {
    conn.send_lines(lines);
    lines.iter().map(|_| conn.recv()).collect()
}

#[test]
fn a_script_in_the_tick_of_a_release_does_not_pass_the_queue() {
    let server = native();
    let mut c = server.conn();
    assert!(c.line(&acquire("r:1")).is_nil());
    let mut bob = park(&server, "bob");
    let replies = in_one_tick(&mut c, &[&unlock("r:1"), &acquire("r:2"), &acquire("r:1")]);
    assert_eq!(replies[0].int(), 1);
    for refused in &replies[1..] {
        let left = refused.int();
        assert!((1..=60_000).contains(&left), "the lease of bob: {left}");
    }
    assert!(bob.recv().int() > 0);
    assert_eq!(c.line("HGET k bob").text(), "1");
    assert_eq!(server.stat("foreign_wakeups"), 1);
}

#[test]
fn a_script_in_the_transaction_of_a_release_does_not_pass_the_queue() {
    let server = native();
    let mut c = server.conn();
    assert!(c.line(&acquire("r:1")).is_nil());
    let mut bob = park(&server, "bob");
    for line in ["MULTI", &unlock("r:1"), &acquire("r:2")] {
        c.line(line);
    }
    let replies = c.line("EXEC").list();
    assert_eq!(replies[0].int(), 1);
    assert!(replies[1].int() > 0, "refused");
    assert!(bob.recv().int() > 0);
}

#[test]
fn scripts_in_one_tick_leave_the_order_of_the_queue_unchanged() {
    let server = native();
    let mut c = server.conn();
    c.line("CONFIG SET lock.free-after 0");
    assert!(c.line(&acquire("r:1")).is_nil());
    let mut line = [park(&server, "a"), park(&server, "b")];
    let calls = [&unlock("r:1"), &acquire("r:2"), &unlock("r:2"), "DEL k"];
    let replies = in_one_tick(&mut c, &calls);
    assert!(replies[1].int() > 0, "refused");
    assert!(replies[2].is_nil(), "not the owner");
    assert!(
        c.line(&acquire("r:2")).int() > 0,
        "held by the second waiter"
    );
    for waiter in &mut line {
        assert!(waiter.recv().int() > 0);
    }
    assert_eq!(c.line("HGET k b").text(), "1");
}

#[test]
fn a_script_takes_a_lock_left_free_in_the_same_tick() {
    let server = native();
    let mut listener = server.conn();
    listener.line("SUBSCRIBE redisson_lock__channel:{k}");
    let mut c = server.conn();
    assert!(c.line("LOCK.ACQUIRE k a").int() > 0);
    let mut line = [park(&server, "b"), park(&server, "c")];
    assert_eq!(c.line("LOCK.RELEASE k a").int(), 1);
    assert!(line[0].recv().int() > 0);
    let replies = in_one_tick(&mut c, &["LOCK.RELEASE k b", &acquire("r:1")]);
    assert_eq!(replies[0].int(), 1);
    assert!(replies[1].is_nil(), "taken");
    assert_eq!(server.stat("windows_taken"), 1);
    assert_eq!(c.line(&unlock("r:1")).int(), 1);
    assert!(line[1].recv().int() > 0);
}

#[test]
fn a_lock_without_waiters_is_taken_in_the_tick_of_its_release() {
    let server = native();
    let mut c = server.conn();
    assert!(c.line(&acquire("r:1")).is_nil());
    let replies = in_one_tick(&mut c, &[&unlock("r:1"), &acquire("r:2")]);
    assert_eq!(replies[0].int(), 1);
    assert!(replies[1].is_nil());
}
