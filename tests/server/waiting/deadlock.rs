//! Requests that would wait for themselves, on a real server.

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::only_reply;
use crate::common::{wait_for, Bystander, Conn, TestServer};
use crate::lifecycle::faults::fault_module;

fn park(server: &TestServer, line: &str) -> Conn {
    let parked = server.stat("waits_parked");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("a parked request", || server.stat("waits_parked") > parked);
    conn
}

fn assert_deadlock(c: &mut Conn, line: &str, keys: &str) {
    let error = c.line(line).error();
    let expected = format!("DEADLOCK the owner would wait for itself, by way of {keys}");
    assert_eq!(error, expected, "{line}");
}

#[test]
fn the_second_of_two_is_refused_without_a_change() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x a PX 60000");
    c.line("LOCK.ACQUIRE y b PX 60000");
    let mut a = park(&server, "LOCK.ACQUIRE y a PX 60000 BLOCK 0");
    let bystander = Bystander::of(&server, "x");
    assert_deadlock(&mut c, "LOCK.ACQUIRE x b BLOCK 0", "\"x\", \"y\"");
    bystander.saw_nothing("a request that would wait for itself");
    assert_stays_silent(&server, &mut a);
    assert_eq!((server.stat("deadlocks"), server.stat("waiters")), (1, 1));
    // A request without BLOCK gets nil instead of the error: it does not wait.
    assert!(c.line("LOCK.ACQUIRE x b").is_nil());
    c.line("LOCK.RELEASE y b");
    only_reply(&mut a).int();
    let errors = c.line("INFO errorstats").text();
    assert!(errors.contains("errorstat_DEADLOCK:count=1"), "{errors}");
}

#[test]
fn a_chain_of_many_is_followed() {
    const LONG: usize = 60;
    let server = TestServer::start();
    let mut c = server.conn();
    let mut parked = Vec::new();
    for i in 0..LONG {
        c.line(&format!("LOCK.ACQUIRE k{i} o{i} PX 60000"));
    }
    for i in 1..LONG {
        parked.push(park(
            &server,
            &format!("LOCK.ACQUIRE k{} o{i} BLOCK 0", i - 1),
        ));
    }
    let error = c
        .line(&format!("LOCK.ACQUIRE k{} o0 BLOCK 0", LONG - 1))
        .error();
    assert!(
        error.starts_with("DEADLOCK") && error.contains("\"k59\", \"k58\""),
        "{error}"
    );
    assert!(error.ends_with("and 52 more"), "{error}");
}

#[test]
fn many_keys_wait_for_the_holders_of_each() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x a PX 60000");
    c.line("LOCK.ACQUIRE y b PX 60000");
    c.line("LOCK.ACQUIRE z c PX 60000");
    let mut a = park(&server, "LOCK.MACQUIRE 3 v y z a PX 60000 BLOCK 0");
    assert_deadlock(&mut c, "LOCK.ACQUIRE x c BLOCK 0", "\"x\", \"z\"");
    assert_deadlock(&mut c, "LOCK.MACQUIRE 2 w x b BLOCK 0", "\"x\", \"y\"");
    // v is free, and reserved for a.
    assert_deadlock(&mut c, "LOCK.ACQUIRE v b BLOCK 0", "\"v\", \"y\"");
    c.line("LOCK.RELEASE y b");
    c.line("LOCK.RELEASE z c");
    assert_eq!(only_reply(&mut a).list().len(), 3);
}

#[test]
fn a_reader_behind_a_writer_waits_for_readers() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x a PX 60000");
    c.line("LOCK.ACQUIRE k b READ PX 60000");
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    let mut a = park(&server, "LOCK.ACQUIRE k a READ PX 60000 BLOCK 0");
    assert_deadlock(&mut c, "LOCK.ACQUIRE x b BLOCK 0", "\"x\", \"k\"");
    c.line("LOCK.RELEASE k b");
    only_reply(&mut writer).int();
    c.line("LOCK.RELEASE k w");
    only_reply(&mut a).int();
}

#[test]
fn readers_do_not_wait_for_each_other() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k a READ PX 60000");
    c.line("LOCK.ACQUIRE k b READ PX 60000");
    c.line("LOCK.ACQUIRE x a PX 60000");
    let mut b = park(&server, "LOCK.ACQUIRE x b PX 60000 BLOCK 0");
    // a is granted WRITE when b no longer reads, and b waits for a.
    assert_deadlock(&mut c, "LOCK.ACQUIRE k a WRITE BLOCK 0", "\"k\", \"x\"");
    assert!(c.line("LOCK.ACQUIRE k a READ").int() > 0);
    c.line("LOCK.RELEASE x a");
    only_reply(&mut b).int();
}

#[test]
fn a_waiter_in_front_closes_a_cycle() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    c.line("LOCK.ACQUIRE z c PX 60000");
    let _b = park(&server, "LOCK.ACQUIRE y b BLOCK 0");
    let _b2 = park(&server, "LOCK.ACQUIRE z b BLOCK 0");
    assert_deadlock(&mut c, "LOCK.ACQUIRE y c BLOCK 0", "\"y\", \"z\"");
}

#[test]
fn a_holder_replaced_by_other_means_closes_no_cycle() {
    let server = TestServer::start();
    let mut c = server.conn();
    for go in ["DEL x", "PEXPIRE x 0", "LOCK.BREAK x", "FLUSHALL"] {
        c.line("LOCK.ACQUIRE x a PX 60000");
        c.line("LOCK.ACQUIRE y b PX 60000");
        let mut a = park(&server, "LOCK.ACQUIRE y a PX 60000 BLOCK 0");
        let mut d = park(&server, "LOCK.ACQUIRE x d PX 60000 BLOCK 0");
        // In one tick: x passes to d, while the module still has a as its holder.
        let mut b = server.conn();
        b.send_lines(&[go, "LOCK.ACQUIRE x b PX 60000 BLOCK 0"]);
        assert!(!b.recv().is_error());
        only_reply(&mut d).int();
        c.line("LOCK.RELEASE x d");
        b.recv().int();
        c.line("LOCK.RELEASE y b");
        c.line("LOCK.BREAK y");
        if !a.is_silent() {
            a.recv();
        } else {
            a.close();
        }
        server.wait_for_waiters(0);
        c.line("FLUSHALL");
    }
    assert_eq!(server.stat("deadlocks"), 0);
}

#[test]
fn a_changed_key_is_checked_in_the_same_tick() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x a PX 60000");
    c.line("LOCK.ACQUIRE y b PX 60000");
    let _a = park(&server, "LOCK.ACQUIRE y a PX 60000 BLOCK 0");
    c.send_lines(&["PEXPIRE y 50000", "LOCK.ACQUIRE x b BLOCK 0"]);
    assert_eq!(c.recv().int(), 1);
    assert!(c.recv().error().starts_with("DEADLOCK"));
    assert_eq!((server.stat("deadlocks"), server.stat("waiters")), (1, 1));
}

/// The key is to be settled because a wait there has left, by a command of the module in the same event.
#[test]
fn a_key_that_a_wait_has_left_is_checked_in_the_same_tick() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x a PX 60000");
    c.line("LOCK.ACQUIRE y b PX 60000");
    let _a = park(&server, "LOCK.ACQUIRE y a PX 60000 BLOCK 0");
    for leaves in ["LOCK.RELEASE z d", "LOCK.MRELEASE 2 y z d"] {
        let mut d = park(&server, "LOCK.MACQUIRE 2 y z d BLOCK 0");
        c.send_lines(&[leaves, "LOCK.ACQUIRE x b BLOCK 0"]);
        assert!(!c.recv().is_error());
        assert!(c.recv().error().starts_with("DEADLOCK"));
        assert!(d.recv().is_nil());
    }
    let searches = ["deadlocks", "deadlock_searches_cut"].map(|name| server.stat(name));
    assert_eq!((searches, server.stat("waiters")), ([2, 0], 1));
}

#[test]
fn names_in_the_error_are_escaped() {
    let server = TestServer::start();
    let mut c = server.conn();
    let (evil, long) = (b"x\r\n-ERR \0\"\xff".as_slice(), vec![b'l'; 300]);
    c.run([b"LOCK.ACQUIRE".as_slice(), evil, b"a"]);
    c.run([b"LOCK.ACQUIRE".as_slice(), &long, b"b"]);
    let mut a = server.conn();
    a.send([b"LOCK.ACQUIRE".as_slice(), &long, b"a", b"BLOCK", b"0"]);
    server.wait_for_waiters(1);
    c.send([b"LOCK.ACQUIRE".as_slice(), evil, b"b", b"BLOCK", b"0"]);
    let line = c.raw_line();
    let cut = "l".repeat(64);
    let shown = format!(r#""x\r\n-ERR \x00\"\xff", "{cut}"..."#);
    assert_eq!(
        line,
        format!("-DEADLOCK the owner would wait for itself, by way of {shown}")
    );
    assert_eq!(c.line("PING").text(), "PONG");
}

#[test]
fn it_can_be_turned_off() {
    let server = TestServer::with(&["--lock.deadlock-detect", "no"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x a PX 60000");
    c.line("LOCK.ACQUIRE y b PX 60000");
    let _a = park(&server, "LOCK.ACQUIRE y a BLOCK 0");
    let _b = park(&server, "LOCK.ACQUIRE x b BLOCK 0");
    assert_eq!((server.stat("deadlocks"), server.stat("waiters")), (0, 2));
    c.line("CONFIG SET lock.deadlock-detect yes");
    assert_deadlock(&mut c, "LOCK.ACQUIRE x b BLOCK 0", "\"x\", \"y\"");
}

const CROWD: usize = 3_000;

/// A server whose lock `k` has this many readers, named r0, r1, ...
fn crowd() -> (TestServer, Conn) {
    let server = TestServer::with_module(fault_module(), &[]);
    let mut c = server.conn();
    let readers: Vec<String> = (0..CROWD)
        .map(|i| format!("LOCK.ACQUIRE k r{i} READ PX 600000"))
        .collect();
    for some in readers.chunks(500) {
        c.send_lines(&some.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in some {
            c.recv().int();
        }
    }
    (server, c)
}

/// The event of this request, which is parked, and the end of its tick read fewer timeouts of readers than the crowd
/// has.
fn reads_little(server: &TestServer, line: &str) -> Conn {
    let mut asks = server.conn();
    let parked = server.stat("waits_parked");
    read_little(server, || {
        asks.send_line(line);
        wait_for("a parked request", || server.stat("waits_parked") > parked);
    });
    asks
}

/// What happens meanwhile reads fewer timeouts of readers than the crowd has.
fn read_little(server: &TestServer, happens: impl FnOnce()) {
    let mut c = server.conn();
    let fault = format!("LOCK.FAULT API RedisModule_StringDMA {}", CROWD / 2);
    assert_eq!(c.line(&fault).text(), "OK");
    happens();
    // The tick of the request is over.
    c.line("PING");
    c.line("LOCK.FAULT none");
    assert!(!server.log().contains("injected fault"));
}

/// Of a lock with many readers none is recorded: a search goes no further there, and is counted.
#[test]
fn a_request_behind_many_readers_reads_few_of_them() {
    let (server, mut c) = crowd();
    c.line("LOCK.ACQUIRE l x PX 600000");
    let mut y = park(&server, "LOCK.ACQUIRE l y BLOCK 0");
    let mut x = reads_little(&server, "LOCK.ACQUIRE k x WRITE BLOCK 0");
    assert_eq!(server.stat("deadlock_searches_cut"), 1);
    // A reader comes, goes, and renews.
    for change in [
        "LOCK.ACQUIRE k late READ PX 600000",
        "LOCK.RENEW k late PX 500000",
        "LOCK.RELEASE k late",
    ] {
        c.line(change);
        let mut other = reads_little(&server, "LOCK.ACQUIRE l z BLOCK 0");
        assert_stays_silent(&server, &mut other);
        other.close();
        server.wait_for_waiters(2);
    }
    // One of the crowd waits for x, and x for the crowd: a cycle that ends with the wait.
    let mut reader = reads_little(&server, "LOCK.ACQUIRE l r77 BLOCK 100");
    assert!(reader.recv().is_nil());
    assert_stays_silent(&server, &mut x);
    let searches = ["deadlocks", "deadlock_searches_cut"].map(|name| server.stat(name));
    assert_eq!(searches, [0, 5]);
    c.line("LOCK.RELEASE l x");
    only_reply(&mut y).int();
}

/// A reader of several locks waits beside the readers of one of them, not for them: nothing is left unknown.
#[test]
fn a_wait_beside_readers_is_no_search_that_was_cut() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k r READ PX 60000");
    c.line("LOCK.ACQUIRE l w PX 60000 WRITE");
    let _x = park(&server, "LOCK.MACQUIRE 2 k l x READ BLOCK 0");
    assert_eq!(server.stat("deadlock_searches_cut"), 0);
}

/// Requests beside a lock with many readers, and changes of it, that need not read each of them.
#[test]
fn no_request_at_a_lock_with_many_readers_reads_them_all() {
    let (server, mut c) = crowd();
    let several = reads_little(&server, "LOCK.MACQUIRE 2 k m x WRITE BLOCK 0");
    drop(several);
    server.wait_for_waiters(0);
    // The longest lease becomes shorter.
    c.line("LOCK.RENEW k r1 PX 700000");
    read_little(&server, || {
        assert_eq!(c.line("LOCK.RENEW k r1 PX 600000").int(), 1)
    });
    let _upgrade = reads_little(&server, "LOCK.ACQUIRE k r1 WRITE BLOCK 0");
    let _write = reads_little(&server, "LOCK.ACQUIRE k x WRITE BLOCK 0");
    let mut second = server.conn();
    let error = second.line("LOCK.ACQUIRE k r2 WRITE BLOCK 0").error();
    assert!(error.starts_with("DEADLOCK"), "{error}");
    // Settled at the end of the tick.
    read_little(&server, || assert_eq!(c.line("PEXPIRE k 500000").int(), 1));
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
}
