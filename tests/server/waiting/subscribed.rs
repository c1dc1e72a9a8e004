//! Clients that subscribe in RESP3 on the connection on which they then wait. If the server cannot park such a client,
//! `BLOCK` counts as absent.

use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{Conn, Reply, TestServer};
use redis::{PushKind, Value};

/// Whether this server parks a RESP3 client that has subscribed. Valkey has refused to since 8.1.1.
fn parks_subscribers(server: &TestServer) -> bool {
    !server.is_valkey() || server.version() < (8, 1, 1)
}

/// A request that has to wait, and the context in which it is sent.
struct Case {
    /// Commands that make it wait.
    before: &'static [&'static str],
    request: &'static str,
    /// The command that makes the server grant it.
    serves: &'static str,
    /// Whether a reply says that the request was granted.
    is_served: fn(&Reply) -> bool,
    /// Whether a reply says that it was not.
    is_refused: fn(&Reply) -> bool,
}

fn is_token(reply: &Reply) -> bool {
    reply.maybe_int().is_some_and(|token| token > 1)
}

fn are_tokens(reply: &Reply) -> bool {
    reply.is_array() && reply.list().iter().all(is_token)
}

const CASES: [Case; 8] = [
    Case {
        before: &["LOCK.ACQUIRE k a PX 60000"],
        request: "LOCK.ACQUIRE k b PX 60000 BLOCK 0",
        serves: "LOCK.RELEASE k a",
        is_served: is_token,
        is_refused: Reply::is_nil,
    },
    Case {
        before: &["LOCK.ACQUIRE k a PX 60000"],
        request: "LOCK.ACQUIRE k b PX 60000 BLOCK 0 WITHHOLDER",
        serves: "LOCK.RELEASE k a",
        is_served: |reply| is_token(&reply.list()[0]),
        is_refused: |reply| reply.list()[0].is_nil() && reply.list()[1].text() == "a",
    },
    Case {
        before: &["LOCK.ACQUIRE k a WRITE PX 60000"],
        request: "LOCK.ACQUIRE k b READ PX 60000 BLOCK 0",
        serves: "LOCK.RELEASE k a WRITE",
        is_served: is_token,
        is_refused: Reply::is_nil,
    },
    Case {
        before: &["LOCK.ACQUIRE k a READ PX 60000"],
        request: "LOCK.ACQUIRE k b WRITE PX 60000 BLOCK 60000",
        serves: "LOCK.RELEASE k a READ",
        is_served: is_token,
        is_refused: Reply::is_nil,
    },
    Case {
        before: &["LOCK.ACQUIRE {k}2 a PX 60000"],
        request: "LOCK.MACQUIRE 2 {k}1 {k}2 b PX 60000 BLOCK 0",
        serves: "LOCK.RELEASE {k}2 a",
        is_served: are_tokens,
        is_refused: Reply::is_nil,
    },
    Case {
        before: &["LOCK.ACQUIRE {k}2 a WRITE PX 60000"],
        request: "LOCK.MACQUIRE 2 {k}1 {k}2 b READ PX 60000 BLOCK 0",
        serves: "LOCK.RELEASE {k}2 a WRITE",
        is_served: are_tokens,
        is_refused: Reply::is_nil,
    },
    Case {
        before: &["SEM.SET k 1", "SEM.ACQUIRE k a PX 60000"],
        request: "SEM.ACQUIRE k b PX 60000 BLOCK 0",
        serves: "SEM.RELEASE k a",
        is_served: is_token,
        is_refused: Reply::is_nil,
    },
    Case {
        before: &["LATCH.SET k 1"],
        request: "LATCH.WAIT k BLOCK 0",
        serves: "LATCH.DOWN k",
        is_served: |reply| reply.int() == 1,
        is_refused: |reply| reply.int() == 0,
    },
];

/// How a client subscribes, and the messages that it then gets.
const SUBSCRIPTIONS: [(&str, &str); 3] = [
    ("SUBSCRIBE news", "PUBLISH news"),
    ("PSUBSCRIBE new*", "PUBLISH news"),
    ("SSUBSCRIBE news", "SPUBLISH news"),
];

/// The number of parked requests of every kind, and of all ever parked.
fn parked(server: &TestServer) -> (u64, u64) {
    let sum = |names: [&str; 3]| names.iter().map(|name| server.stat(name)).sum();
    (
        sum(["waiters", "sem_waiters", "latch_waiters"]),
        sum(["waits_parked", "sem_waits_parked", "latch_waits_parked"]),
    )
}

fn wait_until_parked(server: &TestServer, request: &str, count: u64) {
    let what = format!("{count} parked: {request}");
    crate::common::wait_for(&what, || parked(server).0 == count);
}

/// A RESP3 connection that has subscribed.
fn subscribed(server: &TestServer, how: &str) -> Conn {
    let mut conn = server.conn3();
    assert!(is_push(&conn.line(how)), "{how}");
    conn
}

fn is_push(reply: &Reply) -> bool {
    matches!(reply.0, Value::Push { .. })
}

/// The text of a published message.
fn message(reply: &Reply) -> String {
    match &reply.0 {
        Value::Push {
            kind: PushKind::Message | PushKind::PMessage | PushKind::SMessage,
            data,
        } => Reply(data.last().expect("a message").clone()).text(),
        other => panic!("no message: {other:?}"),
    }
}

/// Asserts that the request of `waiter` is parked, and granted between two messages (which it gets if it has
/// subscribed).
fn is_parked_and_served(
    server: &TestServer,
    waiter: &mut Conn,
    case: &Case,
    publish: Option<&str>,
) {
    let mut conn = server.conn();
    waiter.send_line(case.request);
    wait_until_parked(server, case.request, 1);
    let send_message = |conn: &mut Conn, text: &str| {
        if let Some(publish) = publish {
            conn.line(&format!("{publish} {text}"));
        }
    };
    send_message(&mut conn, "before");
    assert_eq!(
        conn.line(case.serves).maybe_int().map(|n| n < 2),
        Some(true)
    );
    wait_until_parked(server, case.request, 0);
    send_message(&mut conn, "behind");
    if publish.is_some() {
        assert_eq!(message(&waiter.recv()), "before");
    }
    let served = waiter.recv();
    assert!((case.is_served)(&served), "{}: {served:?}", case.request);
    if publish.is_some() {
        assert_eq!(message(&waiter.recv()), "behind");
    }
}

#[test]
fn a_subscribed_client_waits_or_is_answered_at_once() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for (subscribe, publish) in SUBSCRIPTIONS {
        for case in &CASES {
            let what = format!("{subscribe}, {}", case.request);
            for line in case.before {
                assert!(!conn.line(line).is_error(), "{line}");
            }
            let mut waiter = subscribed(&server, subscribe);
            if parks_subscribers(&server) {
                is_parked_and_served(&server, &mut waiter, case, Some(publish));
            } else {
                let before = parked(&server);
                let refused = waiter.line(case.request);
                assert!((case.is_refused)(&refused), "{what}: {refused:?}");
                // Without a trace: no place in the queue, and no wait counted.
                assert_eq!(parked(&server), before, "{what}");
                assert_eq!(server.stat("places_kept"), 0, "{what}");
                conn.line(case.serves);
                assert!((case.is_served)(&waiter.line(case.request)), "{what}");
            }
            conn.line("FLUSHALL");
        }
    }
}

/// If the server cannot park a client, its request counts as one without `BLOCK` from the start: the older request of
/// the same owner stays in the queue. (One with `BLOCK` takes over its place.)
#[test]
fn a_request_that_cannot_wait_takes_over_no_place() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for case in CASES.iter().filter(|case| !case.request.contains("LATCH")) {
        for line in case.before {
            conn.line(line);
        }
        let (mut older, mut newer) = (server.conn3(), subscribed(&server, "SUBSCRIBE news"));
        older.send_line(case.request);
        wait_until_parked(&server, case.request, 1);
        newer.send_line(case.request);
        if parks_subscribers(&server) {
            assert!(!(case.is_served)(&older.recv()), "{}", case.request);
            conn.line(case.serves);
            assert!((case.is_served)(&newer.recv()), "{}", case.request);
        } else {
            assert!((case.is_refused)(&newer.recv()), "{}", case.request);
            conn.line(case.serves);
            assert!((case.is_served)(&older.recv()), "{}", case.request);
        }
        conn.line("FLUSHALL");
    }
}

/// A free lock is granted to every client, with or without `BLOCK`.
#[test]
fn a_subscribed_client_gets_a_free_lock_at_once() {
    let server = TestServer::start();
    let mut waiter = subscribed(&server, "SUBSCRIBE news");
    assert!(is_token(&waiter.line("LOCK.ACQUIRE k b BLOCK 0")));
    assert!(are_tokens(
        &waiter.line("LOCK.MACQUIRE 2 {k}1 {k}2 b BLOCK 0")
    ));
    assert_eq!(waiter.line("LATCH.WAIT none BLOCK 0").int(), 1);
    assert!(is_token(&waiter.line("LOCK.ACQUIRE s b SESSION BLOCK 0")));
}

/// The subscription is in the same packet as the request, or has ended before the request.
#[test]
fn a_client_that_has_just_subscribed_or_has_unsubscribed() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for case in &CASES {
        for line in case.before {
            conn.line(line);
        }
        let mut waiter = server.conn3();
        waiter.send_lines(&["SUBSCRIBE news", case.request]);
        assert!(is_push(&waiter.recv()));
        if parks_subscribers(&server) {
            wait_until_parked(&server, case.request, 1);
            conn.line(case.serves);
            assert!((case.is_served)(&waiter.recv()), "{}", case.request);
        } else {
            assert!((case.is_refused)(&waiter.recv()), "{}", case.request);
            assert_eq!(parked(&server).0, 0, "{}", case.request);
        }
        conn.line("FLUSHALL");
        for leave in ["UNSUBSCRIBE", "RESET"] {
            for line in case.before {
                conn.line(line);
            }
            let mut waiter = subscribed(&server, "SUBSCRIBE news");
            waiter.line(leave);
            if leave == "RESET" {
                waiter.line("HELLO 3");
            }
            is_parked_and_served(&server, &mut waiter, case, None);
            conn.line("FLUSHALL");
        }
    }
}

/// A client's settings for replies and for access times do not matter.
#[test]
fn a_subscribed_client_that_wants_no_replies_or_no_touch() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for off in ["CLIENT REPLY OFF", "CLIENT REPLY SKIP"] {
        for case in &CASES {
            for line in case.before {
                conn.line(line);
            }
            let mut waiter = subscribed(&server, "SUBSCRIBE news");
            waiter.send_lines(&[off, case.request, "CLIENT REPLY ON"]);
            if parks_subscribers(&server) {
                wait_until_parked(&server, case.request, 1);
                conn.line(case.serves);
            }
            // No reply to the request: the next reply is that to the last command.
            assert_eq!(waiter.recv().text(), "OK", "{off}, {}", case.request);
            assert_eq!(parked(&server).0, 0);
            conn.line("FLUSHALL");
        }
    }
    let mut waiter = server.conn3();
    waiter.line("CLIENT NO-TOUCH ON");
    waiter.line("CLIENT TRACKING ON");
    for case in &CASES[..1] {
        conn.line(case.before[0]);
        is_parked_and_served(&server, &mut waiter, case, None);
    }
}

/// A RESP2 client that has subscribed, a monitor and a replica's connection may not send these commands at all.
#[test]
fn clients_of_other_kinds_are_refused_by_the_server() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for case in &CASES {
        for line in case.before {
            conn.line(line);
        }
        let before = parked(&server);
        let mut resp2 = server.conn();
        resp2.line("SUBSCRIBE news");
        assert!(resp2.line(case.request).is_error(), "{}", case.request);
        let mut downgraded = subscribed(&server, "SUBSCRIBE news");
        downgraded.line("HELLO 2");
        assert!(downgraded.line(case.request).is_error());
        let mut monitor = server.conn();
        assert_eq!(monitor.line("MONITOR").text(), "OK");
        let refused = monitor.line(case.request);
        assert!(refused.is_error(), "{}: {refused:?}", case.request);
        let mut replica = server.conn();
        replica.send_lines(&["SYNC", case.request, "QUIT"]);
        assert!(replica.is_closed());
        assert_eq!(parked(&server), before, "{}", case.request);
        conn.line("FLUSHALL");
    }
}

/// Contexts in which no client is parked: on a writable replica, within a transaction, in a script.
#[test]
fn a_subscribed_client_on_servers_that_cannot_park_it() {
    let server = TestServer::with(&PROMPT_MASTER);
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE k a PX 60000");
    let mut waiter = subscribed(&server, "SUBSCRIBE news");
    waiter.line("MULTI");
    waiter.line("LOCK.ACQUIRE k b BLOCK 0");
    assert!(waiter.line("EXEC").list()[0].is_nil());
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'b', 'BLOCK', '0')";
    assert!(waiter.run(["EVAL", script, "1", "k"]).is_nil());

    let replica = TestServer::with(&["--replica-read-only", "no"]);
    follow(&replica, &server);
    wait_until_in_sync(&replica, &server);
    let mut waiter = subscribed(&replica, "SUBSCRIBE news");
    assert!(waiter.line("LOCK.ACQUIRE k b BLOCK 0").is_nil());
    assert_eq!(parked(&replica), (0, 0));
}
