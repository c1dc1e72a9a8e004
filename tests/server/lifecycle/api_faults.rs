//! Calls of the server's API that fail: the client gets an error, the server goes on, and no change is half done.
//!
//! These tests run a build of the module with `LOCK.FAULT API function`, which makes one call of a function fail, even
//! one that never fails in the server.

use crate::common::{wait_for, Conn, TestServer};
use crate::lifecycle::faults::fault_module;

/// A server where a call can be made to fail, and a connection.
fn stage() -> (TestServer, Conn) {
    let server = TestServer::with_module(fault_module(), &[]);
    let conn = server.conn();
    (server, conn)
}

/// The next call of this function fails.
fn arm(conn: &mut Conn, function: &str) {
    assert_eq!(conn.run(["LOCK.FAULT", "API", function]).text(), "OK");
}

/// The server does not park a client although all checks before allowed it: the request leaves no trace, and the client
/// gets one reply.
#[test]
fn a_client_that_the_server_does_not_park_is_answered_as_without_block() {
    let (server, mut conn) = stage();
    for (before, request, serves, next) in [
        (
            &["LOCK.ACQUIRE k a PX 60000"][..],
            "LOCK.ACQUIRE k b PX 60000 BLOCK 0",
            "LOCK.RELEASE k a",
            "LOCK.RELEASE k first",
        ),
        (
            &["LOCK.ACQUIRE k a READ PX 60000"],
            "LOCK.ACQUIRE k b WRITE PX 60000 BLOCK 0",
            "LOCK.RELEASE k a READ",
            "LOCK.RELEASE k first WRITE",
        ),
        (
            &["LOCK.ACQUIRE k a PX 60000"],
            "LOCK.MACQUIRE 2 m k b PX 60000 BLOCK 0",
            "LOCK.RELEASE k a",
            "LOCK.MRELEASE 2 m k first",
        ),
        (
            &["SEM.SET k 1", "SEM.ACQUIRE k a PX 60000"],
            "SEM.ACQUIRE k b PX 60000 BLOCK 0",
            "SEM.RELEASE k a",
            "SEM.RELEASE k first",
        ),
        (
            &["LATCH.SET k 1"],
            "LATCH.WAIT k BLOCK 0",
            "LATCH.DOWN k",
            "PING",
        ),
    ] {
        for line in before {
            assert!(!conn.line(line).is_error(), "{line}");
        }
        // One waiter before it in the queue, and one after it.
        let (mut first, mut last) = (server.conn(), server.conn());
        first.send_line(&request.replace(" b ", " first "));
        wait_for("the first in the queue", || waiters(&server) == 1);
        arm(&mut conn, "RedisModule_BlockClientOnKeys");
        let refused = conn.line(request);
        assert!(refused.is_nil() || refused.int() == 0, "{request}");
        assert_eq!(conn.line("PING").text(), "PONG", "{request}");
        assert_eq!(waiters(&server), 1, "{request}");
        assert_eq!(server.stat("places_kept"), 0, "{request}");
        server.check_counters();
        last.send_line(&request.replace(" b ", " last "));
        wait_for("the last in the queue", || waiters(&server) == 2);
        assert!(conn.line(serves).int() < 2);
        assert!(!first.recv().is_nil(), "{request}");
        assert!(!conn.line(next).is_error(), "{next}");
        assert!(!last.recv().is_nil(), "{request}");
        conn.line("FLUSHALL");
    }
    let alive = ["waiters", "sem_waiters", "latch_waiters"];
    assert!(alive.iter().all(|name| server.stat(name) == 0));
    assert_eq!(server.stat("panics"), 0);
}

/// The number of calls that have failed so far.
fn faults(server: &TestServer) -> usize {
    server.log().matches("injected fault in").count()
}

/// Parked requests of every kind.
fn waiters(server: &TestServer) -> u64 {
    let names = ["waiters", "sem_waiters", "latch_waiters"];
    names.iter().map(|name| server.stat(name)).sum()
}

/// A command on keys in a certain state, and the owner that must not hold `k` after the failure.
struct Case {
    before: &'static [&'static str],
    command: &'static str,
    grants: &'static str,
}

const fn case(before: &'static [&'static str], command: &'static str) -> Case {
    let grants = "";
    Case {
        before,
        command,
        grants,
    }
}

const fn grant(before: &'static [&'static str], command: &'static str) -> Case {
    let grants = "b";
    Case {
        before,
        command,
        grants,
    }
}

const LOCKS: [Case; 26] = [
    grant(&[], "LOCK.ACQUIRE k b PX 60000"),
    grant(&[], "LOCK.ACQUIRE k b SESSION"),
    grant(
        &["SET redisson_lock_token:{k} 5"],
        "LOCK.ACQUIRE k b PX 60000",
    ),
    grant(&["HSET k #token t5"], "LOCK.ACQUIRE k b PX 60000"),
    case(&["LOCK.ACQUIRE k b PX 5000"], "LOCK.ACQUIRE k b PX 60000"),
    case(&["HSET k b 1"], "LOCK.ACQUIRE k b PX 60000 ONCE"),
    case(&["LOCK.ACQUIRE k b PX 5000"], "LOCK.RENEW k b PX 60000"),
    case(&["LOCK.ACQUIRE k b PX 5000"], "LOCK.RELEASE k b"),
    case(
        &["LOCK.ACQUIRE k b PX 5000", "LOCK.ACQUIRE k b"],
        "LOCK.RELEASE k b",
    ),
    case(&["LOCK.ACQUIRE k b PX 5000"], "LOCK.BREAK k"),
    grant(&[], "LOCK.MACQUIRE 3 j k l b PX 60000"),
    grant(
        &["LOCK.ACQUIRE j b PX 5000"],
        "LOCK.MACQUIRE 3 j k l b PX 60000",
    ),
    grant(&[], "LOCK.MACQUIRE 2 j k b WRITE PX 60000"),
    case(
        &["LOCK.MACQUIRE 2 j k b PX 5000"],
        "LOCK.MRENEW 2 j k b PX 60000",
    ),
    case(&["LOCK.MACQUIRE 2 j k b PX 5000"], "LOCK.MRELEASE 2 j k b"),
    grant(&[], "LOCK.ACQUIRE k b READ PX 60000"),
    grant(
        &["LOCK.ACQUIRE k a READ PX 5000"],
        "LOCK.ACQUIRE k b READ PX 60000",
    ),
    case(
        &["LOCK.ACQUIRE k b READ PX 5000"],
        "LOCK.ACQUIRE k b READ PX 60000",
    ),
    case(
        &["LOCK.ACQUIRE k b READ PX 5000"],
        "LOCK.RENEW k b READ PX 60000",
    ),
    case(
        &[
            "LOCK.ACQUIRE k a READ PX 5000",
            "LOCK.ACQUIRE k b READ PX 60000",
        ],
        "LOCK.RELEASE k b READ",
    ),
    case(&["LOCK.ACQUIRE k b READ PX 5000"], "LOCK.RELEASE k b READ"),
    grant(&[], "LOCK.ACQUIRE k b WRITE PX 60000"),
    case(
        &["LOCK.ACQUIRE k b READ PX 5000"],
        "LOCK.ACQUIRE k b WRITE PX 60000",
    ),
    case(
        &["LOCK.ACQUIRE k b WRITE PX 5000"],
        "LOCK.ACQUIRE k b WRITE PX 60000",
    ),
    case(
        &[
            "LOCK.ACQUIRE k b WRITE PX 5000",
            "LOCK.ACQUIRE k b READ PX 5000",
        ],
        "LOCK.RELEASE k b WRITE",
    ),
    case(&["LOCK.ACQUIRE k b WRITE PX 5000"], "LOCK.BREAK k"),
];

/// Semaphores of two permits, and latches.
const COUNTS: [Case; 13] = [
    case(&[], "SEM.SET k 2"),
    case(&["SEM.SET k 2", "SEM.ACQUIRE k a PX 5000"], "SEM.SET k 2"),
    case(&["SEM.SET k 2"], "SEM.ACQUIRE k b PX 60000"),
    case(&[], "SEM.ACQUIRE k b LIMIT 2 PX 60000"),
    case(
        &["SEM.SET k 2", "PEXPIRE k 90000"],
        "SEM.ACQUIRE k b PX 60000",
    ),
    case(
        &["SEM.SET k 2", "SEM.ACQUIRE k b PX 5000"],
        "SEM.ACQUIRE k b PX 60000",
    ),
    case(
        &["SEM.SET k 2", "SEM.ACQUIRE k b PX 5000"],
        "SEM.RENEW k b PX 60000",
    ),
    case(
        &["SEM.SET k 2", "SEM.ACQUIRE k b PX 5000"],
        "SEM.RELEASE k b",
    ),
    case(
        &[
            "SET k 0",
            "ZADD {k}:timeout 1000000000000 x 1000000000001 y",
        ],
        "SEM.ACQUIRE k b PX 60000",
    ),
    case(&[], "LATCH.SET k 2"),
    case(&["LATCH.SET k 2", "PEXPIRE k 90000"], "LATCH.DOWN k"),
    case(&["LATCH.SET k 1"], "LATCH.DOWN k"),
    case(&["LATCH.SET k 2"], "LATCH.SET k 0"),
];

const WRITES: [&str; 6] = [
    "RedisModule_HashSet",
    "RedisModule_SetAbsExpire",
    "RedisModule_DeleteKey",
    "RedisModule_StringSet",
    "RedisModule_ZsetAdd",
    "RedisModule_ZsetRem",
];

/// Lets each write of a command fail, one after the other. Returns their number.
fn each_write_fails(server: &TestServer, conn: &mut Conn, case: &Case) -> u64 {
    let mut failed = 0;
    for function in WRITES {
        for pass in 0.. {
            // The first token after that stores the horizon again.
            conn.line("FLUSHALL");
            for line in case.before {
                assert!(!conn.line(line).is_error(), "{line}");
            }
            let what = format!("{:?}, {}: {function} {pass}", case.before, case.command);
            let (refused, injected) = (server.stat("writes_refused"), faults(server));
            conn.line(&format!("LOCK.FAULT API {function} {pass}"));
            let reply = conn.line(case.command);
            conn.line("LOCK.FAULT none");
            if faults(server) == injected {
                assert!(!reply.is_error(), "{what}: {reply:?}");
                break;
            }
            failed += 1;
            assert_eq!(
                server.stat("writes_refused"),
                refused + 1,
                "{what}: {reply:?}"
            );
            let error = reply.error();
            assert!(
                error.starts_with("ERR the server refused a write"),
                "{what}: {error}"
            );
            nothing_is_half_written(conn, case, &what);
            server.check_counters();
            let again = conn.line(case.command);
            assert!(!again.is_error(), "{what}: {again:?}");
        }
    }
    failed
}

/// Asserts that the client does not hold what it got an error for, that each lock has a deadline, and that no permit is
/// lost.
fn nothing_is_half_written(conn: &mut Conn, case: &Case, what: &str) {
    let is_lock = case.command.starts_with("LOCK.");
    let mut names = conn.line("KEYS *").list();
    names.sort_by_key(|name| name.text());
    for name in names.iter().map(|name| name.text()) {
        let lasts = conn.run(["PTTL", &name]).int() == -1;
        let may_last = ["redis_lock:horizon", "redisson_lock_token:{k}"].contains(&&name[..])
            || (case.before.iter()).any(|line| line.starts_with("HSET k"));
        assert!(!is_lock || !lasts || may_last, "{what}: {name} has no end");
    }
    if is_lock {
        let info = conn.line("LOCK.INFO k");
        assert!(!info.is_error(), "{what}: {info:?}");
        let holders = info
            .field("holders")
            .map_or_else(Vec::new, |list| list.list());
        let holds = |owner: &str| {
            let is_owner = |holder: &crate::common::Reply| {
                holder
                    .field("owner")
                    .is_some_and(|name| name.text() == owner)
            };
            holders.iter().any(is_owner)
        };
        assert!(
            case.grants.is_empty() || !holds(case.grants),
            "{what}: {holders:?}"
        );
    } else if case.command.starts_with("SEM.") && conn.line("EXISTS k").int() == 1 {
        let free: i64 = conn.line("GET k").text().parse().expect("a number");
        let taken = conn.line("ZCARD {k}:timeout").int();
        assert_eq!(free + taken, 2, "{what}: {free} free, {taken} taken");
    }
}

#[test]
fn a_write_to_a_lock_is_refused() {
    let (server, mut conn) = stage();
    let failed: u64 = LOCKS
        .iter()
        .map(|case| each_write_fails(&server, &mut conn, case))
        .sum();
    assert!(failed > 60, "{failed} writes failed");
    assert_eq!(server.stat("panics"), 0);
    assert!(server
        .log()
        .contains("the server refused a write: RedisModule_HashSet"));
}

/// A refused command counts no re-entry and no release: the owner has as many holds of `j` as before.
#[test]
fn a_refused_write_leaves_the_hold_counts() {
    let (server, mut conn) = stage();
    let mut failed = 0;
    for (acquire, field, holds, command) in [
        (
            "LOCK.ACQUIRE j b",
            "b",
            1,
            "LOCK.MACQUIRE 3 j k l b PX 60000",
        ),
        (
            "LOCK.ACQUIRE j b WRITE",
            "b:write",
            1,
            "LOCK.MACQUIRE 3 j k l b WRITE PX 60000",
        ),
        (
            "LOCK.ACQUIRE j b READ",
            "b",
            2,
            "LOCK.MACQUIRE 3 j k l b READ PX 60000",
        ),
        (
            "LOCK.ACQUIRE j b READ",
            "b",
            1,
            "LOCK.ACQUIRE j b READ PX 60000",
        ),
        (
            "LOCK.ACQUIRE j b WRITE",
            "b:write",
            2,
            "LOCK.ACQUIRE j b WRITE PX 60000",
        ),
        ("LOCK.ACQUIRE j b", "b", 2, "LOCK.MRELEASE 3 j k l b"),
    ] {
        for function in WRITES {
            for pass in 0.. {
                conn.line("FLUSHALL");
                for _ in 0..holds {
                    assert!(conn.line(&format!("{acquire} PX 5000")).int() > 1);
                }
                if command.contains("MRELEASE") {
                    conn.line("LOCK.ACQUIRE k b PX 5000");
                }
                let what = format!("{acquire} x {holds}, {command}: {function} {pass}");
                let injected = faults(&server);
                conn.line(&format!("LOCK.FAULT API {function} {pass}"));
                let reply = conn.line(command);
                conn.line("LOCK.FAULT none");
                if faults(&server) == injected {
                    assert!(!reply.is_error(), "{what}: {reply:?}");
                    break;
                }
                failed += 1;
                assert!(reply.is_error(), "{what}: {reply:?}");
                let count = conn.line(&format!("HGET j {field}")).text();
                assert_eq!(count, holds.to_string(), "{what}");
                let beyond = format!("EXISTS {{j}}:b:rwlock_timeout:{}", holds + 1);
                assert_eq!(conn.line(&beyond).int(), 0, "{what}");
                assert_eq!(conn.line("EXISTS l").int(), 0, "{what}");
                server.check_counters();
            }
        }
    }
    assert!(failed > 20, "{failed} writes failed");
    assert_eq!(server.stat("panics"), 0);
}

#[test]
fn a_write_to_a_semaphore_or_a_latch_is_refused() {
    let (server, mut conn) = stage();
    let failed: u64 = COUNTS
        .iter()
        .map(|case| each_write_fails(&server, &mut conn, case))
        .sum();
    assert!(failed > 20, "{failed} writes failed");
    assert_eq!(server.stat("panics"), 0);
}

/// A hold ends and the next waiter is due, but a write is refused: the client that ended the hold gets an error, the
/// next waiter an error or the grant, and the last waiter is granted afterwards.
#[test]
fn a_write_of_a_hand_off_is_refused() {
    let (server, mut conn) = stage();
    for (before, request, serves) in [
        (
            &["LOCK.ACQUIRE k a PX 60000"][..],
            "LOCK.ACQUIRE k b PX 60000 BLOCK 0",
            "LOCK.RELEASE k a",
        ),
        (
            &["LOCK.ACQUIRE k a PX 60000"],
            "LOCK.ACQUIRE k b PX 60000 BLOCK 0",
            "DEL k",
        ),
        (
            &["LOCK.ACQUIRE k a WRITE PX 60000"],
            "LOCK.ACQUIRE k b WRITE PX 60000 BLOCK 0",
            "LOCK.RELEASE k a WRITE",
        ),
        (
            &["SEM.SET k 1", "SEM.ACQUIRE k a PX 60000"],
            "SEM.ACQUIRE k b PX 60000 BLOCK 0",
            "SEM.RELEASE k a",
        ),
    ] {
        for function in WRITES {
            for line in before {
                assert!(!conn.line(line).is_error(), "{line}");
            }
            let what = format!("{serves}: {function}");
            let (mut b, mut c) = (server.conn(), server.conn());
            b.send_line(request);
            wait_for("b in the queue", || waiters(&server) == 1);
            c.send_line(&request.replace(" b ", " c "));
            wait_for("c in the queue", || waiters(&server) == 2);
            let injected = faults(&server);
            arm(&mut conn, function);
            let ended = conn.line(serves);
            wait_for("b let go", || waiters(&server) < 2);
            conn.line("LOCK.FAULT none");
            let answer = b.recv();
            if faults(&server) > injected {
                assert!(ended.is_error() || serves == "DEL k", "{what}: {ended:?}");
                assert!(answer.is_error(), "{what}: {answer:?}");
                // The hold was ended or was not: end it now.
                conn.line(serves);
            } else {
                assert!(!ended.is_error() && answer.int() > 1, "{what}: {answer:?}");
                assert_eq!(conn.line(&serves.replace(" a", " b")).maybe_int(), Some(1));
            }
            assert!(c.recv().int() > 1, "{what}");
            server.check_counters();
            conn.line("FLUSHALL");
        }
    }
    assert_eq!((waiters(&server), server.stat("panics")), (0, 0));
    assert!(server.stat("writes_refused") > 6);
}

/// The count of a latch is not written, or the latch does not open: the client that counts down gets an error, and the
/// waiter gets an error or continues to wait.
#[test]
fn a_latch_does_not_open() {
    let (server, mut conn) = stage();
    conn.line("LATCH.SET k 2");
    let mut waiter = server.conn();
    waiter.send_line("LATCH.WAIT k BLOCK 0");
    wait_for("the waiter", || waiters(&server) == 1);
    arm(&mut conn, "RedisModule_StringSet");
    assert!(conn.line("LATCH.DOWN k").is_error());
    assert_eq!(conn.line("GET k").text(), "2");
    assert_eq!(waiters(&server), 1);
    arm(&mut conn, "RedisModule_DeleteKey");
    assert!(conn.line("LATCH.DOWN k 2").is_error());
    assert_eq!(conn.line("GET k").text(), "2");
    assert!(waiter.recv().is_error());
    assert_eq!(conn.line("LATCH.DOWN k 2").int(), 0);
    assert_eq!(conn.line("LATCH.WAIT k").int(), 1);
}

/// Queries that the server does not answer.
#[test]
fn a_query_fails() {
    let (server, mut conn) = stage();
    conn.line("LOCK.ACQUIRE held a PX 60000");
    for (function, command) in [
        ("RedisModule_OpenKey", "LOCK.ACQUIRE k b"),
        ("RedisModule_OpenKey", "LOCK.RENEW held a"),
        ("RedisModule_OpenKey", "LOCK.RELEASE held a"),
        ("RedisModule_OpenKey", "LOCK.BREAK held"),
        ("RedisModule_OpenKey", "LOCK.MACQUIRE 2 k l b"),
        ("RedisModule_GetCurrentUserName", "LOCK.ACQUIRE k b READ"),
        ("RedisModule_GetModuleUserFromUserName", "SEM.SET s 1"),
        ("RedisModule_Call", "LOCK.SCAN 0"),
        (
            "RedisModule_SubscribeToServerEvent",
            "LOCK.ACQUIRE k b SESSION",
        ),
    ] {
        arm(&mut conn, function);
        let refused = conn.line(command);
        assert!(refused.is_error(), "{function}, {command}: {refused:?}");
        assert_eq!(conn.line("EXISTS k l s").int(), 0, "{command}");
        assert_eq!(
            conn.line("LOCK.ACQUIRE held a ONCE")
                .maybe_int()
                .map(|t| t > 1),
            Some(true)
        );
        if command.contains("SESSION") {
            assert!(conn.line(command).int() > 1);
        }
    }
    // If the module cannot find out whether there are replicas, it replicates everything.
    conn.line("FLUSHALL");
    // The answer is remembered until a snapshot is made.
    assert_eq!(conn.line("SAVE").text(), "OK");
    let injected = faults(&server);
    arm(&mut conn, "RedisModule_GetServerInfo");
    assert!(conn.line("LOCK.ACQUIRE k b").int() > 1);
    assert_eq!(faults(&server), injected + 1);
    // If the module cannot find out whether a write is allowed, it asks again later.
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k c BLOCK 0");
    wait_for("the waiter", || waiters(&server) == 1);
    arm(&mut conn, "RedisModule_Call");
    conn.line("DEL k");
    assert!(waiter.recv().int() > 1);
    assert_eq!(faults(&server), injected + 2);
    assert_eq!(server.stat("panics"), 0);
}

/// The subscription to key events fails at the first parked request, and succeeds at the next.
#[test]
fn the_subscription_to_key_events_fails_at_first() {
    let (server, mut conn) = stage();
    conn.line("LOCK.ACQUIRE k a PX 60000");
    let (mut b, mut c) = (server.conn(), server.conn());
    arm(&mut conn, "RedisModule_SubscribeToKeyspaceEvents");
    b.send_line("LOCK.ACQUIRE k b BLOCK 0");
    wait_for("b in the queue", || waiters(&server) == 1);
    assert!(server.log().contains("key events cannot be subscribed to"));
    c.send_line("LOCK.ACQUIRE k c BLOCK 0");
    wait_for("c in the queue", || waiters(&server) == 2);
    conn.line("DEL k");
    assert!(b.recv().int() > 1);
    conn.line("DEL k");
    assert!(c.recv().int() > 1);
}

/// The timeout that the hold had before stays.
#[test]
fn a_refused_renewal_of_a_reader_does_not_end_its_hold() {
    let (server, mut conn) = stage();
    conn.line("LOCK.ACQUIRE r b READ PX 60000").int();
    for command in [
        "LOCK.ACQUIRE r b READ PX 300000 ONCE",
        "LOCK.ACQUIRE r b READ PX 300000",
        "LOCK.RENEW r b PX 300000",
        "LOCK.MACQUIRE 1 r b READ PX 300000",
    ] {
        assert_eq!(
            conn.line("LOCK.FAULT API RedisModule_SetAbsExpire").text(),
            "OK"
        );
        assert!(conn.line(command).is_error(), "{command}");
        assert!(conn.line("LOCK.ACQUIRE r w WRITE").is_nil(), "{command}");
    }
    assert_eq!(conn.line("LOCK.RELEASE r b").int(), 1);
    assert!(server.stat("writes_refused") > 0);
}
