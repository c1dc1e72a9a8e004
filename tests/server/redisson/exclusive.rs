//! One lock, two kinds of client: LOCK.* of the module, and the scripts of Redisson's `RLock`.
//!
//! The scripts are reworded from Redisson's (acquire since 3.19, unlock, renew and force of the 3.x line): the same
//! commands on the same keys in the same order.

use crate::common::scripts::{FORCE, GIVE, RENEW, TAKE};
use crate::common::{Bystander, Conn, Reply, TestServer};

/// In microseconds, as tokens are.
const MINUTE: i64 = 60_000_000;

/// Redisson's names of the keys and channels of a lock.
fn derived(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

fn channel_of(name: &str) -> String {
    derived("redisson_lock__channel", name)
}

fn counter_of(name: &str) -> String {
    derived("redisson_lock_token", name)
}

/// A Redisson client: one connection, one owner, the lock `k`.
struct Redisson {
    conn: Conn,
    owner: &'static str,
}

impl Redisson {
    fn of(server: &TestServer, owner: &'static str) -> Redisson {
        let conn = server.conn();
        Redisson { conn, owner }
    }

    fn run(&mut self, script: &str, lease: &str) -> Reply {
        let channel = channel_of("k");
        let call = ["EVAL", script, "2", "k", &channel, lease, self.owner];
        self.conn.run(call)
    }

    /// Tries to take the lock; whether it did.
    fn takes(&mut self) -> bool {
        self.run(TAKE, "600000").is_nil()
    }

    fn gives(&mut self) -> Reply {
        self.run(GIVE, "600000")
    }
}

/// A subscriber of a lock's channel, as Redisson's waiters are.
struct Subscriber {
    conn: Conn,
    publisher: Conn,
}

impl Subscriber {
    fn on(server: &TestServer, name: &str) -> Subscriber {
        Subscriber::to(server, &channel_of(name))
    }

    fn to(server: &TestServer, channel: &str) -> Subscriber {
        let (mut conn, publisher) = (server.conn(), server.conn());
        conn.run(["SUBSCRIBE", channel, "the-end"]);
        conn.recv();
        Subscriber { conn, publisher }
    }

    /// The messages since the last call.
    fn received(&mut self) -> Vec<String> {
        self.publisher.line("PUBLISH the-end x");
        let mut received = Vec::new();
        loop {
            let message = self.conn.recv().list();
            if message[1].text() == "the-end" {
                return received;
            }
            received.push(message[2].text());
        }
    }
}

fn token_of(conn: &mut Conn) -> Option<i64> {
    let info = conn.line("LOCK.INFO k");
    let holder = info.field("holders").unwrap().list()[0].clone();
    let token = holder.field("token").unwrap();
    (!token.is_nil()).then(|| token.int())
}

#[test]
fn a_script_is_refused_a_lock_of_the_module_with_its_time_to_live() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut script = Redisson::of(&server, "u:2");
    c.line("LOCK.ACQUIRE k u:1 PX 60000");
    let left = script.run(TAKE, "600000").int();
    assert!((50_000..=60_000).contains(&left), "{left}");
    assert!(script.gives().is_nil(), "not the owner");
    assert_eq!(script.run(RENEW, "600000").int(), 0);
    assert_eq!(c.line("HGET k u:1").text(), "1");
    assert_eq!(c.line("LOCK.RELEASE k u:1").int(), 1);
    assert!(script.takes());
}

#[test]
fn both_sides_count_the_holds_of_one_owner_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut script = Redisson::of(&server, "u:1");
    let token = c.line("LOCK.ACQUIRE k u:1 PX 600000").int();
    assert!(script.takes(), "HINCRBY works beside the token");
    assert_eq!(c.line("LOCK.ACQUIRE k u:1 PX 600000").int(), token);
    assert_eq!(c.line("HGET k u:1").text(), "3", "what getHoldCount reads");
    assert_eq!(script.gives().int(), 0);
    assert_eq!(c.line("LOCK.RELEASE k u:1").int(), 0);
    assert_eq!(script.run(RENEW, "700000").int(), 1);
    assert!((600_001..=700_000).contains(&c.line("PTTL k").int()));
    assert_eq!(c.line("HGET k #token").text(), format!("t{token}"));
    assert_eq!(script.gives().int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0, "no token is left behind");
    assert!(c.line("LOCK.RELEASE k u:1").is_nil());
}

#[test]
fn the_module_refuses_and_waits_for_a_lock_of_a_script() {
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    let mut script = Redisson::of(&server, "u:1");
    assert!(script.takes() && script.takes());
    let refused = c.line("LOCK.ACQUIRE k u:2 WITHHOLDER").list();
    assert!(refused[0].is_nil());
    assert_eq!(refused[1].text(), "u:1");
    assert_eq!(refused[2].int(), 2);
    assert!((500_000..=600_000).contains(&refused[3].int()));
    assert!(c.line("LOCK.RELEASE k u:2").is_nil());
    waiter.send_line("LOCK.ACQUIRE k u:2 PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(script.gives().int(), 0);
    assert_eq!(token_of(&mut c), None, "reading and waiting write nothing");
    assert!(waiter.is_silent(), "still held");
    assert_eq!(script.gives().int(), 1);
    assert!(waiter.recv().int() > 0);
    assert_eq!(server.stat("foreign_wakeups"), 1);
    let left = script.run(TAKE, "600000").int();
    assert!((1..=60_000).contains(&left), "refused as well");
}

#[test]
fn force_unlock_by_a_script_grants_the_lock_to_the_waiter() {
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    let first = c.line("LOCK.ACQUIRE k u:1 PX 600000").int();
    waiter.send_line("LOCK.ACQUIRE k u:2 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(Redisson::of(&server, "u:3").run(FORCE, "1").int(), 1);
    assert!(waiter.recv().int() > first);
    assert_eq!(c.line("LOCK.RENEW k u:1").int(), 0);
}

#[test]
fn a_lease_that_a_script_shortens_ends_then_for_the_waiter_too() {
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    let mut script = Redisson::of(&server, "u:1");
    c.line("LOCK.ACQUIRE k u:1 PX 600000");
    waiter.send_line("LOCK.ACQUIRE k u:2 BLOCK 0");
    server.wait_for_waiters(1);
    assert!(script.run(TAKE, "20").is_nil());
    assert!(waiter.recv().int() > 0);
    assert_eq!(server.stat("grants_expired"), 1);
    // A lease that a script extends lasts longer, too.
    c.line("LOCK.RENEW k u:2 PX 1000");
    c.send_line("LOCK.ACQUIRE k u:1 BLOCK 0");
    server.wait_for_waiters(1);
    let mut script = Redisson::of(&server, "u:2");
    assert_eq!(script.run(RENEW, "600000").int(), 1);
    let mut waiting = server.conn();
    assert!(waiting.line("LOCK.ACQUIRE k u:3 BLOCK 1300").is_nil());
    assert!(c.is_silent(), "after the first deadline");
    assert_eq!(script.gives().int(), 1);
    assert!(c.recv().int() > 0);
}

#[test]
fn a_hold_without_a_token_gets_one_at_its_owners_first_command() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut script = Redisson::of(&server, "u:1");
    for touch in [
        "LOCK.ACQUIRE k u:1",
        "LOCK.ACQUIRE k u:1 ONCE",
        "LOCK.RENEW k u:1 PX 600000",
    ] {
        assert!(script.takes());
        let bystander = Bystander::of(&server, "k");
        for other in [
            "LOCK.ACQUIRE k u:2",
            "LOCK.RENEW k u:2",
            "LOCK.RENEW k u:1 TOKEN 7",
            "LOCK.RELEASE k u:2",
            "LOCK.RELEASE k u:1 TOKEN 7",
            "LOCK.BREAK k TOKEN 7",
        ] {
            c.line(other);
        }
        bystander.saw_nothing("calls of others");
        let before = c.line("LOCK.ACQUIRE other u:1").int();
        let answer = c.line(touch).int();
        let token = token_of(&mut c).expect("a token");
        assert!(token > before, "{touch}");
        if touch.starts_with("LOCK.ACQUIRE") {
            assert_eq!(answer, token, "{touch}");
        }
        assert_eq!(
            c.line("LOCK.ACQUIRE k u:1 ONCE").int(),
            token,
            "and it stays"
        );
        assert_eq!(c.line("LOCK.RELEASE k u:1 ALL").int(), 1);
        c.line("LOCK.RELEASE other u:1");
    }
}

#[test]
fn a_hold_of_a_script_is_released_and_broken_by_the_module() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut script = Redisson::of(&server, "u:1");
    assert!(script.takes() && script.takes());
    assert_eq!(c.line("LOCK.RELEASE k u:1").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE k u:1").int(), 1);
    assert!(script.gives().is_nil());
    assert!(script.takes());
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
    assert!(script.gives().is_nil());
    // A hold that a script left without a lease, too.
    c.line("HSET k u:1 1");
    assert!(c.line("LOCK.ACQUIRE k u:2").is_nil());
    assert_eq!(c.line("LOCK.RENEW k u:1 PX 60000").int(), 1);
    assert!((1..=60_000).contains(&c.line("PTTL k").int()));
}

#[test]
fn re_entry_gives_a_hold_without_a_lease_one() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("HSET k u:1 1");
    assert!(c.line("LOCK.ACQUIRE k u:1 PX 60000").int() > 0);
    assert!((1..=60_000).contains(&c.line("PTTL k").int()));
}

#[test]
fn freeing_a_lock_is_published_on_redissons_channel() {
    let server = TestServer::start();
    let mut c = server.conn();
    for name in ["k", "a b", "{a}k", "a{", "a}b", "{}", "k:ž", "x{a}{b}"] {
        let mut subscriber = Subscriber::on(&server, name);
        c.run(["LOCK.ACQUIRE", name, "u:1"]);
        c.run(["LOCK.ACQUIRE", name, "u:1"]);
        c.run(["LOCK.RENEW", name, "u:1"]);
        c.run(["LOCK.RELEASE", name, "u:1"]);
        c.run(["LOCK.RELEASE", name, "u:2"]);
        assert_eq!(subscriber.received(), [""; 0], "{name}: still held");
        assert_eq!(c.run(["LOCK.RELEASE", name, "u:1"]).int(), 1);
        assert_eq!(subscriber.received(), ["0"], "{name}");
        c.run(["LOCK.ACQUIRE", name, "u:1"]);
        assert_eq!(c.run(["LOCK.BREAK", name]).int(), 1);
        assert_eq!(subscriber.received(), ["0"], "{name} broken");
        assert_eq!(c.run(["LOCK.BREAK", name]).int(), 0);
        assert_eq!(subscriber.received(), [""; 0], "{name}: was free");
    }
}

#[test]
fn a_channel_name_carries_the_locks_bytes() {
    let server = TestServer::start();
    let (mut c, mut subscriber) = (server.conn(), server.conn());
    let name = b"\xff\0\r\n%s";
    let channel = [b"redisson_lock__channel:{".as_slice(), name, b"}"].concat();
    subscriber.run([b"SUBSCRIBE", &channel[..]]);
    c.run([b"LOCK.ACQUIRE".as_slice(), name, b"o"]);
    c.run([b"LOCK.RELEASE".as_slice(), name, b"o"]);
    assert_eq!(subscriber.recv().list()[1].bytes(), channel);
}

#[test]
fn a_hand_off_frees_nothing_and_is_not_published() {
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    let mut subscriber = Subscriber::on(&server, "k");
    for end in ["LOCK.RELEASE k u:1", "LOCK.BREAK k"] {
        c.line("LOCK.ACQUIRE k u:1");
        waiter.send_line("LOCK.ACQUIRE k u:2 BLOCK 0");
        server.wait_for_waiters(1);
        assert_eq!(c.line(end).int(), 1);
        assert!(waiter.recv().int() > 0);
        assert_eq!(subscriber.received(), [""; 0], "{end}");
        assert_eq!(c.line("LOCK.RELEASE k u:2").int(), 1);
        assert_eq!(subscriber.received(), ["0"]);
    }
    c.line("LOCK.ACQUIRE k u:1");
    waiter.send_line("LOCK.ACQUIRE k u:2 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(c.line("LOCK.BREAK k PURGE").int(), 1);
    assert!(waiter.recv().is_error());
    assert_eq!(subscriber.received(), ["0"], "purged, the lock is free");
}

#[test]
fn lock_publish_no_publishes_nothing() {
    let server = TestServer::with(&["--lock.publish", "no"]);
    let mut c = server.conn();
    let mut subscriber = Subscriber::on(&server, "k");
    for end in ["LOCK.RELEASE k u:1", "LOCK.BREAK k"] {
        c.line("LOCK.ACQUIRE k u:1");
        assert_eq!(c.line(end).int(), 1);
    }
    assert_eq!(subscriber.received(), [""; 0]);
    c.line("CONFIG SET lock.publish yes");
    c.line("LOCK.ACQUIRE k u:1");
    c.line("LOCK.RELEASE k u:1");
    assert_eq!(subscriber.received(), ["0"]);
}

#[test]
fn tokens_rise_above_redissons_counter_and_are_written_back_to_it() {
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    let start = c.line("LOCK.ACQUIRE warm up").int();
    for (name, minutes) in [("k", 20), ("{a}k", 21), ("a{", 22)] {
        let counter = counter_of(name);
        let stored = |c: &mut Conn| c.run(["GET", &counter]).text().parse::<i64>().unwrap();
        let plain = c.run(["LOCK.ACQUIRE", name, "u:1"]).int();
        c.run(["LOCK.RELEASE", name, "u:1"]);
        assert_eq!(
            c.run(["EXISTS", &counter]).int(),
            0,
            "it belongs to Redisson: the module creates none"
        );
        // Lower than the module's tokens: it is raised.
        c.run(["SET", &counter, "5"]);
        let lifted = c.run(["LOCK.ACQUIRE", name, "u:1"]).int();
        assert!(lifted > plain);
        assert_eq!(stored(&mut c), lifted);
        assert_eq!(c.run(["LOCK.ACQUIRE", name, "u:1"]).int(), lifted);
        c.run(["LOCK.RELEASE", name, "u:1", "ALL"]);
        // Redisson's fenced lock increments it: the module's next token is above Redisson's.
        assert_eq!(c.run(["INCR", &counter]).int(), lifted + 1);
        assert!(c.run(["LOCK.ACQUIRE", name, "u:1"]).int() > lifted + 1);
        // With the counter ahead of the clock, and over a hand-off.
        let far = start + minutes * MINUTE;
        c.run(["SET", &counter, &far.to_string()]);
        waiter.send(["LOCK.ACQUIRE", name, "u:2", "BLOCK", "0"]);
        c.wait_for_waiters_on(name, 1);
        c.run(["LOCK.RELEASE", name, "u:1", "ALL"]);
        let handed = waiter.recv().int();
        assert!(handed > far);
        assert_eq!(stored(&mut c), handed);
        c.run(["LOCK.RELEASE", name, "u:2"]);
        c.run(["DEL", &counter]);
    }
}

#[test]
fn a_token_for_an_adopted_hold_moves_the_counter_too() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut script = Redisson::of(&server, "u:1");
    for touch in ["LOCK.ACQUIRE k u:1 ONCE", "LOCK.RENEW k u:1"] {
        assert!(script.takes());
        let fenced = c.run(["INCR", &counter_of("k")]).int();
        c.line(touch);
        let token = token_of(&mut c).unwrap();
        assert!(token > fenced);
        assert_eq!(c.run(["GET", &counter_of("k")]).text(), token.to_string());
        assert_eq!(script.gives().int(), 1);
    }
}

#[test]
fn a_counter_that_is_no_number_is_ignored_and_left_alone() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm up");
    let counter = counter_of("k");
    for make in [
        &["SET", &counter, "abc"][..],
        &["SET", &counter, ""],
        &["SET", &counter, "1.5"],
        &["SET", &counter, " 7"],
        &["SET", &counter, "07"],
        &["SET", &counter, "7\0"],
        &["SET", &counter, "100000000000000000000"],
        &["RPUSH", &counter, "7"],
        &["HSET", &counter, "7", "7"],
        &["ZADD", &counter, "7", "7"],
        &["XADD", &counter, "*", "7", "7"],
    ] {
        c.run(["DEL", &counter]);
        assert!(!c.run(make).is_error(), "{make:?}");
        let before = c.run(["DUMP", &counter]);
        let token = c.line("LOCK.ACQUIRE k u:1").int();
        assert!(token > 0);
        assert_eq!(c.line("LOCK.RELEASE k u:1").int(), 1);
        assert_eq!(c.run(["DUMP", &counter]), before, "{make:?}");
    }
}

#[test]
fn tokens_of_all_locks_surpass_a_counter_ahead_of_the_clock() {
    let server = TestServer::start();
    let mut c = server.conn();
    let counter = counter_of("k");
    let mut last = c.line("LOCK.ACQUIRE warm up").int() + 50 * MINUTE;
    c.run(["SET", &counter, &last.to_string()]);
    for _ in 1..4 {
        for (lock, follows) in [("k", true), ("j", false)] {
            let token = c.run(["LOCK.ACQUIRE", lock, "u:1"]).int();
            assert_eq!(token, last + 1, "{lock}");
            let led = c.run(["GET", &counter]).text() == token.to_string();
            assert_eq!(led, follows, "written back for its own lock");
            assert_eq!(c.run(["LOCK.RELEASE", lock, "u:1"]).int(), 1);
            last = token;
        }
    }
}

#[test]
fn an_implausible_counter_refuses_its_own_lock_only() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm up");
    let counter = counter_of("k");
    let in_two_hours = c.line("TIME").list()[0].text().parse::<u64>().unwrap() + 7_200;
    let in_two_hours = format!("{in_two_hours}000000");
    for end in ["9007199254740991", "9223372036854775807", &in_two_hours] {
        c.run(["SET", &counter, end]);
        let bystander = Bystander::of(&server, "k");
        assert_eq!(
            c.line("LOCK.ACQUIRE k u:1").error(),
            "ERR the token counter \"redisson_lock_token:{k}\" is more than an hour ahead of the clock, delete the key"
        );
        let many = c.line("LOCK.MACQUIRE 3 i k j u:1").error();
        assert!(many.contains("\"redisson_lock_token:{k}\""), "{many}");
        bystander.saw_nothing(end);
        assert!(c.line("LOCK.ACQUIRE j u:1 ONCE").int() > 0);
        assert_eq!(c.run(["GET", &counter]).text(), end);
    }
    assert_eq!(server.stat("tokens_implausible"), 6);
    c.run(["DEL", &counter]);
    assert!(c.line("LOCK.ACQUIRE k u:1").int() > 0);
}

/// Redisson's waiters sleep until the end that they have read, or until a message.
#[test]
fn a_lease_that_becomes_shorter_is_told() {
    let server = TestServer::start();
    let mut c = server.conn();
    let told = |channel: &str,
                message: &str,
                c: &mut Conn,
                take: &str,
                shorter: &[&str],
                longer: &[&str]| {
        let mut subscriber = Subscriber::to(&server, channel);
        assert!(!c.line(take).is_error(), "{take}");
        subscriber.received();
        for line in longer {
            assert!(!c.line(line).is_error(), "{line}");
            assert_eq!(subscriber.received(), [""; 0], "{line}");
        }
        for line in shorter {
            assert!(c.line(line).int() > 0, "{line}");
            assert_eq!(subscriber.received(), [message], "{line}");
        }
    };
    let longer = ["LOCK.RENEW k o PX 700000", "LOCK.ACQUIRE k o PX 1000 ONCE"];
    let shorter = [
        "LOCK.RENEW k o PX 500000",
        "LOCK.MRENEW 1 k o PX 400000",
        "LOCK.BREAK k TO p PX 300000",
    ];
    let take = "LOCK.ACQUIRE k o PX 600000";
    told(&channel_of("k"), "0", &mut c, take, &shorter, &longer);
    let longer = ["LOCK.RENEW r o PX 700000"];
    let shorter = ["LOCK.RENEW r o PX 500000"];
    let channel = "redisson_rwlock:{r}";
    for (mode, message) in [("READ", "0"), ("WRITE", "1")] {
        let take = format!("LOCK.ACQUIRE r o {mode} PX 600000");
        told(channel, message, &mut c, &take, &shorter, &longer);
        c.line("LOCK.RELEASE r o");
    }
    // The lock ends with its last reader.
    c.line("LOCK.ACQUIRE r long READ PX 900000");
    told(
        channel,
        "0",
        &mut c,
        "LOCK.ACQUIRE r o READ PX 600000",
        &[],
        &shorter,
    );
    let longer = ["SEM.RENEW s id PX 700000", "SEM.ACQUIRE s id PX 1000"];
    let shorter = ["SEM.RENEW s id PX 500000"];
    let take = "SEM.ACQUIRE s id LIMIT 1 PX 600000";
    told("redisson_sc:{s}", "1", &mut c, take, &shorter, &longer);
    c.line("CONFIG SET lock.publish no");
    let none = ["LOCK.RENEW k p PX 1000"];
    told(&channel_of("k"), "0", &mut c, "LOCK.INFO k", &[], &none);
}

/// The next hold may be over, and the key gone without a message, long before the end that Redisson's waiters have
/// read.
#[test]
fn a_hold_that_ends_sooner_than_the_one_before_is_told() {
    let server = TestServer::with(&["--lock.free-after", "0"]);
    let mut c = server.conn();
    let channels = [
        channel_of("k"),
        "redisson_rwlock:{k}".into(),
        "redisson_sc:{k}".into(),
    ];
    // What holds the key, for whom it is handed on, by which command, and the message.
    let cases: [(&[&str], &str, &str, &str, usize); 8] = [
        (
            &["LOCK.ACQUIRE k a PX 600000"],
            "LOCK.ACQUIRE k b",
            "LOCK.RELEASE k a",
            "0",
            0,
        ),
        (
            &["LOCK.ACQUIRE k a PX 600000"],
            "LOCK.ACQUIRE k b",
            "LOCK.BREAK k",
            "0",
            0,
        ),
        (
            &["LOCK.ACQUIRE k a PX 600000"],
            "LOCK.ACQUIRE k b",
            "LOCK.MRELEASE 1 k a",
            "0",
            0,
        ),
        (
            &["LOCK.ACQUIRE k a WRITE PX 600000"],
            "LOCK.ACQUIRE k b WRITE",
            "LOCK.RELEASE k a",
            "1",
            1,
        ),
        (
            &["LOCK.ACQUIRE k a WRITE PX 600000"],
            "LOCK.ACQUIRE k b READ",
            "LOCK.BREAK k",
            "1",
            1,
        ),
        (
            &["LOCK.ACQUIRE k a READ PX 600000"],
            "LOCK.ACQUIRE k b WRITE",
            "LOCK.RELEASE k a",
            "0",
            1,
        ),
        (
            &[
                "LOCK.ACQUIRE k a READ PX 600000",
                "LOCK.ACQUIRE k c READ PX 60000",
            ],
            "LOCK.ACQUIRE k b WRITE",
            "LOCK.RELEASE k a",
            "0",
            1,
        ),
        (
            &["SEM.ACQUIRE k a LIMIT 1 PX 600000"],
            "SEM.ACQUIRE k b",
            "SEM.RELEASE k a",
            "1",
            2,
        ),
    ];
    for (held, waits, ends, message, channel) in cases {
        for (lease, told) in [(60_000, &[message][..]), (900_000, &[])] {
            c.line("FLUSHALL");
            for line in held {
                assert!(c.line(line).int() > 0, "{line}");
            }
            let mut waiter = server.conn();
            waiter.send_line(&format!("{waits} PX {lease} BLOCK 0"));
            server.wait_for_waits(1);
            let mut subscriber = Subscriber::to(&server, &channels[channel]);
            assert!(c.line(ends).int() > 0, "{ends}");
            // A reader that is left ends sooner, whatever waits.
            let told = if held.len() == 1 { told } else { &[message] };
            assert_eq!(subscriber.received(), told, "{held:?}: {ends}, {lease}");
            c.line("LOCK.RELEASE k c");
            assert!(waiter.recv().int() > 0, "{waits}");
        }
    }
    // A writer that goes on as a reader.
    c.line("FLUSHALL");
    c.line("LOCK.ACQUIRE k a WRITE PX 600000");
    c.line("LOCK.ACQUIRE k a READ PX 60000");
    let mut subscriber = Subscriber::to(&server, &channels[1]);
    assert_eq!(c.line("LOCK.RELEASE k a WRITE").int(), 1);
    assert!(c.line("PTTL k").int() <= 60_000);
    assert_eq!(subscriber.received(), ["1"]);
}
