//! Redisson's scripts run natively (`lock.redisson-scripts`), compared with the server's Lua: the same calls on two
//! servers, one with the setting and one without, and everything that can be observed from outside.

use std::collections::BTreeSet;

use crate::common::redisson::{self, *};
use crate::common::{Conn, Events, Reply, TestServer};

const LEASE: &str = "600000";
const LATCH_LEASE: &str = "13500";

/// A server, its caller, and all observers: its events, a subscriber of the lock's channel, a client that watches the
/// lock, and one that has read it with client-side caching.
pub struct Side {
    pub server: TestServer,
    /// Creates data and reads it.
    pub conn: Conn,
    /// The caller.
    pub caller: Conn,
    events: Events,
    subscriber: Conn,
    watcher: Conn,
    reader: Conn,
}

impl Side {
    pub fn of(server: TestServer) -> Side {
        let [conn, caller, mut subscriber, watcher, mut reader] = [(); 5].map(|()| server.conn());
        let events = Events::of(&server);
        let subscriber_id = subscriber.id();
        reader.line(&format!("CLIENT TRACKING ON REDIRECT {subscriber_id}"));
        for channel in ["c", "the-last", "__redis__:invalidate"] {
            subscriber.line(&format!("SUBSCRIBE {channel}"));
        }
        subscriber.line("SSUBSCRIBE c");
        Side {
            server,
            conn,
            caller,
            events,
            subscriber,
            watcher,
            reader,
        }
    }

    /// The messages since the last call. (The message `the-end` marks the end of the events.)
    fn received(&mut self) -> Vec<String> {
        self.conn.line("PUBLISH the-last x");
        let mut received = Vec::new();
        loop {
            let message = self.subscriber.recv().list();
            let words: Vec<String> = message.iter().map(flat).collect();
            if words[1] == "the-last" {
                return received;
            }
            received.push(words.join(" "));
        }
    }

    /// Creates the data.
    pub fn prepare(&mut self, data: &[&str]) {
        self.conn.line("FLUSHALL");
        for line in data {
            let made = self.conn.line(line);
            assert!(!made.is_error(), "{line}");
        }
    }

    /// Runs a call on this data and describes all effects.
    pub fn outcome(&mut self, data: &[&str], call: &[String]) -> Outcome {
        self.prepare(data);
        for key in ["k", "k2", "latch"] {
            self.reader.line(&format!("EXISTS {key}"));
        }
        self.watcher.line("WATCH k k2 latch");
        self.events.so_far();
        self.received();
        let before = dirty(&self.server);
        let reply = match self.caller.run(call) {
            reply if reply.is_error() => reply.error(),
            // A time to live, in whole minutes, longer than any call takes.
            reply if reply.maybe_int().is_some_and(|left| left > 1) => {
                format!("{} min", (reply.int() + 30_000) / 60_000)
            }
            reply => format!("{reply:?}"),
        };
        let changes = dirty(&self.server) - before;
        self.watcher.line("MULTI");
        let was_aborted = self.watcher.line("EXEC").is_nil();
        let mut keys = BTreeSet::new();
        for key in self.conn.line("KEYS *").list() {
            let key = key.text();
            let dump = self.conn.run(["DUMP", &key]).bytes();
            let left = self.conn.run(["PTTL", &key]).int();
            keys.insert((key, dump, (left + 30_000) / 60_000));
        }
        Outcome {
            reply,
            keys,
            events: self.events.so_far(),
            received: self.received(),
            was_aborted,
            changes,
        }
    }
}

/// A word of a message, or several.
fn flat(reply: &Reply) -> String {
    match reply {
        reply if reply.is_nil() => "all".into(),
        reply if reply.is_array() => reply.list().iter().map(flat).collect::<Vec<_>>().join(","),
        reply => reply.text(),
    }
}

/// All observable effects of a call.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub reply: String,
    keys: BTreeSet<(String, Vec<u8>, i64)>,
    events: Vec<String>,
    received: Vec<String>,
    was_aborted: bool,
    changes: i64,
}

fn dirty(server: &TestServer) -> i64 {
    let changes = server.info_field("persistence", "rdb_changes_since_last_save");
    changes.parse().unwrap()
}

/// Switches the setting on.
pub const ON: [&str; 2] = ["--lock.redisson-scripts", "yes"];

/// A server with the setting on.
pub fn native() -> TestServer {
    TestServer::with(&ON)
}

pub fn call(command: &str, script: &str, rest: &str) -> Vec<String> {
    let mut words = vec![command.to_string(), script.to_string()];
    words.extend(rest.split(' ').map(ToString::to_string));
    words
}

/// Every script as Redisson calls it: its SHA1, and the words after it.
pub fn calls() -> Vec<(&'static str, String)> {
    let unlock = format!("k c 0 {LEASE} u:1");
    vec![
        (ACQUIRE, format!("1 k {LEASE} u:1")),
        (ACQUIRE_3_12, format!("1 k {LEASE} u:1")),
        (ACQUIRE_2_2, format!("1 k {LEASE} u:1")),
        (UNLOCK_2_7, format!("2 {unlock}")),
        (UNLOCK_3_10, format!("2 {unlock}")),
        (UNLOCK_3_22, format!("2 {unlock} PUBLISH")),
        (UNLOCK_3_22, format!("2 {unlock} SPUBLISH")),
        (
            UNLOCK,
            format!("3 k c latch 0 {LEASE} u:1 PUBLISH {LATCH_LEASE}"),
        ),
        (
            UNLOCK,
            format!("3 k c latch 0 {LEASE} u:1 SPUBLISH {LATCH_LEASE}"),
        ),
        (RENEW_2_13, format!("1 k {LEASE} u:1")),
        (RENEW, format!("1 k {LEASE} u:1")),
        (RENEW, format!("3 k k2 k {LEASE} u:1 u:2 u:1")),
        (FORCE_2_2, "2 k c 0".into()),
        (FORCE, "2 k c 0 PUBLISH".into()),
        (FORCE, "2 k c 0 SPUBLISH".into()),
    ]
}

/// Possible data of a lock that is decided natively.
pub const PLAIN: [&[&str]; 9] = [
    &[],
    &["HSET k u:1 1", "PEXPIRE k 300000"],
    &["HSET k u:1 1"],
    &["HSET k u:1 2", "PEXPIRE k 300000", "HSET k2 u:2 1"],
    &["HSET k u:9 1", "PEXPIRE k 300000", "HSET k2 u:9 1"],
    &["HSET k u:9 1"],
    &["HSET k u:1 1 #token t123", "PEXPIRE k 300000"],
    &["SET latch 1 PX 60000", "HSET k u:1 1"],
    &["SET latch 0 PX 60000", "HSET k u:1 2"],
];

#[test]
fn a_native_script_has_the_effects_of_lua() {
    let (mut native, mut lua) = (Side::of(native()), Side::of(TestServer::start()));
    let mut runs = 0;
    for data in PLAIN {
        for (sha1, rest) in calls() {
            let call = call("EVAL", &redisson::text(sha1), &rest);
            let expected = lua.outcome(data, &call);
            assert_eq!(native.outcome(data, &call), expected, "{data:?} {call:?}");
            runs += 1;
            assert_eq!(expected.changes > 0, !expected.events.is_empty());
            assert_eq!(
                native.server.stat("redisson_rlock"),
                runs,
                "{data:?} {call:?}"
            );
        }
    }
    assert_eq!(native.server.stat("redisson_lua"), 0);
    assert_eq!(lua.server.stat("redisson_rlock"), 0);
}

/// Data and arguments that are left to Lua.
#[test]
fn unusual_calls_are_left_to_lua() {
    let (mut native, mut lua) = (Side::of(native()), Side::of(TestServer::start()));
    let acquire = |lease: &str| (ACQUIRE, format!("1 k {lease} u:1"));
    let unlock = |lease: &str, publisher: &str, latch_lease: &str| {
        let rest = format!("3 k c latch 0 {lease} u:1 {publisher} {latch_lease}");
        (UNLOCK, rest)
    };
    let cases: Vec<(&[&str], (&str, String))> = vec![
        (&["SET k x"], acquire(LEASE)),
        (&["SET k x"], unlock(LEASE, "PUBLISH", LATCH_LEASE)),
        (&["RPUSH k x"], (RENEW_2_13, format!("1 k {LEASE} u:1"))),
        (
            &["HSET k u:1 1", "SET k2 x"],
            (RENEW, format!("2 k k2 {LEASE} u:1 u:2")),
        ),
        (&["SET k x"], (FORCE, "2 k c 0 PUBLISH".into())),
        (&["SET k x"], (FORCE_2_2, "2 k c 0".into())),
        (&["HSET k u:1 x"], acquire(LEASE)),
        (&["HSET k u:1 0"], acquire(LEASE)),
        (&["HSET k u:1 9223372036854775807"], acquire(LEASE)),
        (&["HSET k u:1 x"], unlock(LEASE, "PUBLISH", LATCH_LEASE)),
        (&["HSET k u:1 0"], unlock(LEASE, "PUBLISH", LATCH_LEASE)),
        (&["HSET k u:1 -1"], unlock(LEASE, "PUBLISH", LATCH_LEASE)),
        (&[], acquire("0")),
        (&[], acquire("-1")),
        (&[], acquire("x")),
        (&[], acquire("9223372036854775807")),
        (&["HSET k u:1 1"], acquire("0")),
        (&["HSET k u:1 2"], unlock("x", "PUBLISH", LATCH_LEASE)),
        (&["HSET k u:1 2"], unlock("0", "PUBLISH", LATCH_LEASE)),
        (&["HSET k u:1 2"], unlock(LEASE, "PUBLISH", "x")),
        (&["HSET k u:1 1"], unlock(LEASE, "PUBLISH", "0")),
        (&["HSET k u:1 1"], unlock(LEASE, "ECHO", LATCH_LEASE)),
        (&["HSET k u:1 1"], unlock(LEASE, "publish", LATCH_LEASE)),
        (
            &["HSET k u:1 1", "SET latch 7"],
            unlock(LEASE, "PUBLISH", LATCH_LEASE),
        ),
        (
            &["HSET k u:1 1", "SET latch x"],
            unlock(LEASE, "PUBLISH", LATCH_LEASE),
        ),
        (
            &["HSET k u:1 1", "HSET latch 1 1"],
            unlock(LEASE, "PUBLISH", LATCH_LEASE),
        ),
        (&["HSET k u:1 1"], (FORCE, "2 k c 0 ECHO".into())),
        (&["HSET k u:1 1"], (RENEW_2_13, "1 k x u:1".into())),
        (&["HSET k u:1 1"], (RENEW, "1 k 0 u:1".into())),
    ];
    let mut runs = 0;
    for (data, (sha1, rest)) in cases {
        let call = call("EVAL", &redisson::text(sha1), &rest);
        let expected = lua.outcome(data, &call);
        assert_eq!(native.outcome(data, &call), expected, "{data:?} {call:?}");
        runs += 1;
        assert_eq!(
            native.server.stat("redisson_lua"),
            runs,
            "{data:?} {call:?}"
        );
    }
    assert_eq!(native.server.stat("redisson_rlock"), 0);
}

#[test]
fn a_script_is_known_by_its_sha1_without_ever_being_loaded() {
    let server = native();
    let mut c = server.conn();
    assert!(c.run(call("EVALSHA", ACQUIRE, "1 k 600000 u:1")).is_nil());
    let upper = ACQUIRE.to_uppercase();
    assert!(c.run(call("evalsha", &upper, "1 k 600000 u:1")).is_nil());
    assert_eq!(c.line("HGET k u:1").text(), "2");
    assert_eq!(server.stat("redisson_rlock"), 2);
    // A call that is not plain needs the script; Redisson then loads it, as on any server.
    c.line("SET string x");
    let refused = c.run(call("EVALSHA", ACQUIRE, "1 string 600000 u:1"));
    assert!(refused.error().starts_with("NOSCRIPT "), "{refused:?}");
    let loaded = c.run(["SCRIPT", "LOAD", &redisson::text(ACQUIRE)]);
    assert_eq!(loaded.text(), ACQUIRE);
    let refused = c.run(call("EVALSHA", ACQUIRE, "1 string 600000 u:1"));
    assert!(refused.error().starts_with("WRONGTYPE "), "{refused:?}");
    assert_eq!(server.stat("redisson_lua"), 2);
}

#[test]
fn other_scripts_and_other_calls_are_left_to_the_server() {
    let server = native();
    let mut c = server.conn();
    let text = redisson::text(ACQUIRE);
    let other_case = text.replace("hexists", "HEXISTS");
    for (script, rest) in [
        (other_case.as_str(), "1 k 600000 u:1"),
        (text.as_str(), "1 k 600000 u:1 more"),
        (text.as_str(), "2 k k2 600000 u:1"),
        ("return #KEYS + #ARGV", "1 k 600000 u:1"),
    ] {
        let reply = c.run(call("EVAL", script, rest));
        assert!(!reply.is_error(), "{reply:?}");
    }
    for rest in ["x k 600000 u:1", "9 k 600000 u:1", "-1 k 600000 u:1"] {
        let reply = c.run(call("EVAL", &text, rest));
        assert!(reply.error().starts_with("ERR "), "{reply:?}");
    }
    let unknown = c.run(call("EVALSHA", &"0".repeat(40), "1 k 600000 u:1"));
    assert!(unknown.error().starts_with("NOSCRIPT "), "{unknown:?}");
    // By the command's own name a user can do nothing that EVAL would refuse.
    let direct = c.run(call("LOCK.REDISSON", "return 1", "1 k 600000 u:1"));
    assert!(
        direct.error().starts_with("ERR not a script "),
        "{direct:?}"
    );
    assert_eq!(
        server.stat("redisson_rlock") + server.stat("redisson_lua"),
        0
    );
}

#[test]
fn the_setting_is_off_by_default_and_changed_at_run_time() {
    let server = TestServer::start();
    let mut c = server.conn();
    let acquire = call("EVAL", &redisson::text(ACQUIRE), "1 k 600000 u:1");
    let mut expected = 0;
    for (line, native) in [
        ("CONFIG GET lock.redisson-scripts", 0),
        ("CONFIG SET lock.redisson-scripts yes", 1),
        ("CONFIG SET lock.redisson-scripts yes", 1),
        ("CONFIG SET lock.redisson-scripts no", 0),
        ("CONFIG SET lock.redisson-scripts no", 0),
        ("CONFIG SET lock.redisson-scripts yes", 1),
    ] {
        assert!(!c.line(line).is_error(), "{line}");
        assert!(c.run(&acquire).is_nil());
        expected += native;
        assert_eq!(server.stat("redisson_rlock"), expected, "{line}");
    }
    assert_eq!(c.line("HGET k u:1").text(), "6");
}
