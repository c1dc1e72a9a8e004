//! `QUEUE`: a request that waits only behind few others.

use crate::common::{wait_for, Bystander, Conn, TestServer};

const FULL: &str = "QUEUEFULL as many requests as QUEUE allows wait for the key already";

/// A server on which the locks `k` and `l` are held, the semaphore `s` has no permit, the latch `c` is closed.
fn start() -> (TestServer, Conn) {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "LOCK.ACQUIRE k holder PX 600000",
        "LOCK.ACQUIRE l holder PX 600000",
        "SEM.ACQUIRE s holder LIMIT 1 PX 600000",
        "LATCH.SET c 1",
    ] {
        c.line(line).int();
    }
    (server, c)
}

/// Each command that waits, for this owner.
fn requests(owner: &str) -> [String; 4] {
    [
        format!("LOCK.ACQUIRE k {owner}"),
        format!("LOCK.MACQUIRE 2 free l {owner}"),
        format!("SEM.ACQUIRE s {owner}"),
        "LATCH.WAIT c".into(),
    ]
}

#[test]
fn a_request_is_refused_when_so_many_others_wait() {
    let (server, mut c) = start();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE channel");
    let mut parked = Vec::new();
    let firsts = requests("first");
    let others = requests("other");
    for (first, other) in firsts.iter().zip(&others) {
        assert_eq!(c.line(&format!("{other} BLOCK 0 QUEUE 0")).error(), FULL);
        let waiting = |field| server.stat(field);
        let parked_now = || ["waiters", "sem_waiters", "latch_waiters"].map(waiting);
        let before = parked_now();
        let mut conn = server.conn();
        conn.send_line(&format!("{first} BLOCK 0 QUEUE 1"));
        wait_for("one more waiter", || parked_now() != before);
        parked.push(conn);
        let key = other.split(' ').nth(1).expect("a key");
        let bystander = Bystander::of(&server, key);
        for wait in ["BLOCK 0 QUEUE 1", "BLOCK 0 NOTIFY channel tag QUEUE 1"] {
            let reply = c.line(&format!("{other} {wait}"));
            assert_eq!(reply.error(), FULL, "{other} {wait}");
        }
        bystander.saw_nothing("a full queue");
        let queued = c.line(&format!("{other} BLOCK 0 NOTIFY channel tag QUEUE 2"));
        assert_eq!(queued.text(), "QUEUED", "{other}");
    }
    let busy = server.stat("busy") + server.stat("sem_busy") + server.stat("latch_busy");
    assert_eq!(busy, 12);
    for end in [
        "LOCK.RELEASE k holder",
        "LOCK.RELEASE l holder",
        "SEM.RELEASE s holder",
        "LATCH.DOWN c",
    ] {
        c.line(end);
    }
    for conn in &mut parked {
        assert!(!conn.recv().is_nil());
    }
}

#[test]
fn an_owner_that_asks_again_keeps_its_place() {
    let (server, mut c) = start();
    let mut parked = Vec::new();
    for owner in ["a", "b"] {
        let mut conn = server.conn();
        conn.send_line(&format!("LOCK.ACQUIRE k {owner} BLOCK 0"));
        c.wait_for_waiters_on("k", parked.len() as i64 + 1);
        parked.push(conn);
    }
    // While it waits, and from a place that is kept.
    let mut again = server.conn();
    again.send_line("LOCK.ACQUIRE k b BLOCK 0 QUEUE 0");
    assert!(parked[1].recv().is_nil());
    c.line("CONFIG SET lock.queue-grace 600000");
    again.close();
    c.wait_for_waiters_on("k", 1);
    let mut returned = server.conn();
    returned.send_line("LOCK.ACQUIRE k b BLOCK 0 QUEUE 1");
    c.wait_for_waiters_on("k", 2);
    c.line("LOCK.RELEASE k holder");
    parked[0].recv().int();
    c.line("LOCK.RELEASE k a");
    returned.recv().int();
}

/// An owner with a place at one of the keys joins all queues at the end.
#[test]
fn a_place_at_one_key_is_none_for_several() {
    let (server, mut c) = start();
    c.line("CONFIG SET lock.queue-grace 600000");
    let mut gone = server.conn();
    gone.send_line("LOCK.ACQUIRE k a BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    gone.close();
    wait_for("a kept place", || server.stat("waiters") == 0);
    let mut other = server.conn();
    other.send_line("LOCK.ACQUIRE k other BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    let reply = c.line("LOCK.MACQUIRE 2 k l a BLOCK 0 QUEUE 1");
    assert_eq!(reply.error(), FULL);
    c.line("LOCK.RELEASE k holder");
    other.recv().int();
}

#[test]
fn a_kept_place_is_no_request() {
    let (server, mut c) = start();
    c.line("CONFIG SET lock.queue-grace 600000");
    let mut gone = server.conn();
    gone.send_line("LOCK.ACQUIRE k gone BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    gone.close();
    wait_for("a kept place", || server.stat("waiters") == 0);
    let mut other = server.conn();
    other.send_line("LOCK.ACQUIRE k other BLOCK 0 QUEUE 1");
    c.wait_for_waiters_on("k", 1);
    c.line("LOCK.RELEASE k holder");
    other.recv().int();
}

#[test]
fn what_does_not_wait_is_not_refused() {
    let (server, mut c) = start();
    let mut first = server.conn();
    first.send_line("LOCK.ACQUIRE k first BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    c.line("LOCK.ACQUIRE k holder ONCE BLOCK 0 QUEUE 0").int();
    c.line("LOCK.ACQUIRE free a BLOCK 0 QUEUE 0").int();
    // In a transaction nothing waits.
    c.line("MULTI");
    c.line("LOCK.ACQUIRE k other BLOCK 0 QUEUE 0");
    assert!(c.line("EXEC").list()[0].is_nil());
    let reply = c.line("LOCK.ACQUIRE k other QUEUE 1");
    assert_eq!(reply.error(), "ERR syntax error: QUEUE needs BLOCK");
}
