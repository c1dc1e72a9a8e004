//! The Redisson window: which callers can take the lock in it, and every event that can end it.

use std::time::{Duration, Instant};

use crate::common::cluster::one_node;
use crate::common::outside::{channel_of, Instance};
use crate::common::replica::{follow, wait_until_in_sync, ReplicationStream, PROMPT_MASTER};
use crate::common::scene::wait_until_at_rest;
use crate::common::{wait_for, Conn, Events, Reply, TestServer};
use crate::lifecycle::faults::fault_module;

/// One hand-off, and then a window longer than any test: it ends by an action of the test.
const RULE: [&str; 4] = ["--lock.free-after", "1", "--lock.free-window", "60000"];

/// The lock `k` was handed off from alice to bob, and is left free before carol, who is parked.
struct Window {
    /// For commands of the test.
    c: Conn,
    carol: Conn,
    /// The highest token so far.
    token: i64,
    subscriber: Conn,
    server: TestServer,
}

impl Window {
    fn open() -> Window {
        Window::with(&[])
    }

    fn with(options: &[&str]) -> Window {
        Window::on(TestServer::with(&[&RULE[..], options].concat()))
    }

    fn on(server: TestServer) -> Window {
        let mut window = Window::before(server, "BLOCK 0");
        assert_eq!(window.c.line("LOCK.RELEASE k bob").int(), 1);
        window.assert_open();
        window
    }

    /// Bob holds, carol is parked, and there is a subscriber: any end of bob's hold opens a window.
    fn before(server: TestServer, options: &str) -> Window {
        let [mut c, mut bob, mut carol, mut subscriber] = [(); 4].map(|()| server.conn());
        subscriber.run(["SUBSCRIBE", &channel_of("k")]);
        assert!(c.line("LOCK.ACQUIRE k alice PX 600000").int() > 0);
        bob.send_line("LOCK.ACQUIRE k bob PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        assert_eq!(c.line("LOCK.RELEASE k alice").int(), 1);
        let token = bob.recv().int();
        carol.send_line(&format!("LOCK.ACQUIRE k carol PX 600000 {options}"));
        server.wait_for_waiters(1);
        Window {
            c,
            carol,
            token,
            subscriber,
            server,
        }
    }

    fn assert_open(&mut self) {
        assert_eq!(self.server.stat("windows_open"), 1);
        assert_eq!(self.c.line("EXISTS k").int(), 0, "free");
        assert!(self.carol.is_silent());
        // Published once.
        assert_eq!(self.subscriber.recv().list()[2].text(), "0");
        assert!(self.subscriber.is_silent());
    }

    /// Asserts that the window is still open after all commands of this connection so far and the rest of that tick.
    fn assert_still_open(&mut self) {
        self.c.line("PING");
        assert_eq!(self.server.stat("windows_open"), 1);
        assert!(self.carol.is_silent());
    }

    fn assert_is_carols(&mut self) {
        let token = self.carol.recv().int();
        assert!(token > self.token, "{token} is not above {}", self.token);
        assert_eq!(self.c.line("HGET k carol").text(), "1");
        assert_eq!(self.server.stat("windows_open"), 0);
    }

    /// Changes the rule, which ends every window.
    fn end(&mut self) {
        self.c.line("CONFIG SET lock.free-window 59999");
    }

    fn instance(&self, owner: &str) -> Instance {
        Instance::new(self.server.port, "k", owner)
    }

    fn assert_ended(&self, taken: u64, unused: u64) {
        assert_eq!(self.server.stat("windows_taken"), taken);
        assert_eq!(self.server.stat("windows_unused"), unused);
    }
}

// ---- state of the key ----

#[test]
fn a_window_has_no_holder_and_keeps_the_queue() {
    let mut w = Window::open();
    let info = w.c.line("LOCK.INFO k WAITERS");
    assert!(info.field("holders").unwrap().list().is_empty());
    assert_eq!(info.field("waiters").unwrap().int(), 1);
    let first = info.field("queue").unwrap().list()[0].clone();
    assert_eq!(first.field("owner").unwrap().text(), "carol");
    assert!(w.c.line("LOCK.RENEW k bob").int() == 0);
    assert!(w.c.line("LOCK.RELEASE k bob").is_nil());
    assert_eq!(w.c.line("LOCK.BREAK k").int(), 0);
    w.assert_still_open();
}

#[test]
fn lock_commands_do_not_pass_the_queue() {
    let mut w = Window::open();
    assert!(w.c.line("LOCK.ACQUIRE k dave").is_nil());
    let refused = w.c.line("LOCK.ACQUIRE k dave WITHHOLDER").list();
    assert!(refused[..2].iter().all(Reply::is_nil), "{refused:?}");
    assert!(w.c.line("LOCK.MACQUIRE 2 k other dave").is_nil());
    assert_eq!(w.c.line("EXISTS other").int(), 0);
    let mut dave = w.server.conn();
    dave.send_line("LOCK.ACQUIRE k dave PX 600000 BLOCK 0");
    w.server.wait_for_waiters(2);
    // A repeated request keeps the place.
    let mut again = w.server.conn();
    again.send_line("LOCK.ACQUIRE k carol PX 600000 BLOCK 0");
    assert!(w.carol.recv().is_nil());
    w.carol = again;
    w.assert_still_open();
    w.end();
    w.assert_is_carols();
    assert!(dave.is_silent());
    w.assert_ended(0, 1);
}

#[test]
fn a_try_outside_of_a_transaction_or_in_a_script_changes_nothing() {
    let mut w = Window::open();
    w.c.line("WATCH k");
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'dave')";
    assert!(w.server.conn().run(["EVAL", script, "1", "k"]).is_nil());
    w.c.send_lines(&["MULTI", "LOCK.ACQUIRE k dave BLOCK 0", "EXEC"]);
    for _ in 0..2 {
        w.c.recv();
    }
    assert!(w.c.recv().list()[0].is_nil());
    w.assert_still_open();
}

// ---- taken ----

#[test]
fn a_redisson_client_takes_the_lock_and_the_queue_waits_for_its_release() {
    let mut w = Window::open();
    let mut redisson = w.instance("r:1");
    assert_eq!(redisson.take(), None);
    wait_for("the end of the window", || {
        w.server.stat("windows_open") == 0
    });
    assert!(w.carol.is_silent());
    let info = w.c.line("LOCK.INFO k");
    let holder = info.field("holders").unwrap().list()[0].clone();
    assert_eq!(holder.field("owner").unwrap().text(), "r:1");
    redisson.unlock();
    w.assert_is_carols();
    w.assert_ended(1, 0);
    // The next window: one hand-off later.
    assert_eq!(w.server.stat("windows"), 1);
}

#[test]
fn a_waiting_redisson_client_is_notified_at_once() {
    let mut w = Window::before(TestServer::with(&RULE), "BLOCK 0");
    let port = w.server.port;
    let waiting = std::thread::spawn(move || {
        let mut redisson = Instance::new(port, "k", "r:1");
        redisson.lock();
        redisson
    });
    wait_for("two listeners", || {
        w.c.run(["PUBSUB", "NUMSUB", &channel_of("k")]).list()[1].int() == 2
    });
    let start = Instant::now();
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    let mut redisson = waiting.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(300), "not the lease");
    assert_eq!(w.c.line("HGET k r:1").text(), "1");
    assert!(w.carol.is_silent());
    redisson.unlock();
    w.assert_is_carols();
    w.assert_ended(1, 0);
}

#[test]
fn a_lease_taken_in_a_window_ends_as_usual() {
    let mut w = Window::open();
    w.c.send_lines(&["MULTI", "HSET k r:1 1", "PEXPIRE k 30", "EXEC"]);
    for _ in 0..4 {
        w.c.recv();
    }
    w.assert_is_carols();
    w.assert_ended(1, 0);
}

#[test]
fn taken_and_released_in_one_tick_the_lock_is_still_free() {
    let mut w = Window::open();
    w.c.send_lines(&["MULTI", "HSET k r:1 1", "DEL k", "EXEC"]);
    for _ in 0..4 {
        w.c.recv();
    }
    w.assert_still_open();
    w.end();
    w.assert_is_carols();
}

#[test]
fn other_data_at_the_key_ends_the_window_and_the_waits() {
    for (write, error) in [
        ("SET k v", "WRONGTYPE"),
        ("HSET k a b", "LOCKTYPE"),
        ("RPUSH k v", "WRONGTYPE"),
    ] {
        let mut w = Window::open();
        w.c.line(write);
        assert!(w.carol.recv().error().starts_with(error), "{write}");
        assert_eq!(w.server.stat("waiters"), 0);
        w.end();
        w.assert_ended(0, 1);
    }
}

// ---- not taken ----

#[test]
fn the_first_waiter_is_granted_at_the_end_of_the_window() {
    let mut w = Window::before(TestServer::with(&RULE), "BLOCK 0");
    w.c.line("CONFIG SET lock.free-window 200");
    // A rule starts with one more hand-off.
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    assert!(w.carol.recv().int() > w.token);
    let mut dave = w.server.conn();
    dave.send_line("LOCK.ACQUIRE k dave BLOCK 0");
    w.server.wait_for_waiters(1);
    let start = Instant::now();
    assert_eq!(w.c.line("LOCK.RELEASE k carol").int(), 1);
    assert!(dave.recv().int() > w.token);
    assert!(start.elapsed() >= Duration::from_millis(199));
    w.assert_ended(0, 1);
    // An unused window: the next comes after twice as many hand-offs.
    for (last, next, windows) in [("dave", "e", 1), ("e", "f", 2)] {
        let mut conn = w.server.conn();
        conn.send_line(&format!("LOCK.ACQUIRE k {next} BLOCK 0"));
        w.server.wait_for_waiters(1);
        w.c.line(&format!("LOCK.RELEASE k {last}"));
        assert!(conn.recv().int() > 0);
        assert_eq!(w.server.stat("windows"), windows, "{next}");
    }
}

#[test]
fn events_of_an_absent_key_do_not_end_the_window() {
    for event in [
        "DEL k",
        "UNLINK k",
        "FLUSHDB",
        "FLUSHALL",
        "DEBUG RELOAD",
        "SWAPDB 0 1",
    ] {
        let mut w = Window::open();
        assert!(!w.c.line(event).is_error(), "{event}");
        w.assert_still_open();
        w.end();
        w.assert_is_carols();
        w.assert_ended(0, 1);
    }
}

#[test]
fn a_holder_from_a_swap_ends_the_window() {
    let mut w = Window::open();
    w.c.line("SELECT 1");
    w.c.line("HSET k r:1 1");
    w.c.line("SELECT 0");
    w.c.line("SWAPDB 0 1");
    wait_for("the end of the window", || {
        w.server.stat("windows_open") == 0
    });
    assert!(w.carol.is_silent());
    w.assert_ended(1, 0);
    w.c.line("DEL k");
    w.assert_is_carols();
}

#[test]
fn while_writes_are_paused_nothing_is_granted() {
    let mut w = Window::open();
    w.c.send_lines(&["MULTI", "CLIENT PAUSE 60000 WRITE", "EXEC"]);
    for _ in 0..3 {
        w.c.recv();
    }
    w.c.line("CONFIG SET lock.free-window 1");
    wait_for("the end of the window", || {
        w.server.stat("windows_open") == 0
    });
    for _ in 0..3 {
        w.c.line("PING");
    }
    assert!(w.carol.is_silent());
    w.c.line("CLIENT UNPAUSE");
    w.assert_is_carols();
}

#[test]
fn the_grant_after_a_window_waits_for_missing_replicas() {
    let mut w = Window::open();
    w.c.line("CONFIG SET min-replicas-to-write 1");
    w.end();
    wait_for("the end of the window", || {
        w.server.stat("windows_open") == 0
    });
    assert!(w.carol.is_silent());
    w.c.line("CONFIG SET min-replicas-to-write 0");
    w.assert_is_carols();
}

#[test]
fn a_change_of_the_rule_ends_it() {
    for change in [
        "lock.free-after 0",
        "lock.free-after 7",
        "lock.free-window 1",
        "lock.publish no",
    ] {
        let mut w = Window::open();
        assert_eq!(w.c.line(&format!("CONFIG SET {change}")).text(), "OK");
        w.assert_is_carols();
        w.assert_ended(0, 1);
    }
    let mut w = Window::open();
    w.c.line("CONFIG SET lock.free-after 1");
    w.c.line("CONFIG SET lock.default-lease 1234");
    w.assert_still_open();
}

// ---- the queue ----

#[test]
fn the_next_waiter_is_granted_at_the_end_if_the_first_leaves() {
    for end in ["kill", "unblock", "withdraw"] {
        let mut w = Window::open();
        let mut dave = w.server.conn();
        dave.send_line("LOCK.ACQUIRE k dave PX 600000 BLOCK 0");
        w.server.wait_for_waiters(2);
        let info = w.c.line("LOCK.INFO k WAITERS").field("queue").unwrap();
        let id = info.list()[0].field("client-id").unwrap().int();
        match end {
            "kill" => w.c.line(&format!("CLIENT KILL ID {id}")),
            "unblock" => w.c.line(&format!("CLIENT UNBLOCK {id}")),
            _ => w.c.line("LOCK.RELEASE k carol"),
        };
        w.server.wait_for_waiters(1);
        assert!(dave.is_silent(), "{end}");
        assert_eq!(w.server.stat("windows_open"), 1);
        w.end();
        assert!(dave.recv().int() > w.token, "{end}");
        w.assert_ended(0, 1);
    }
}

#[test]
fn a_window_without_waiters_leaves_the_lock_free() {
    let mut w = Window::open();
    w.carol.close();
    w.server.wait_for_waiters(0);
    assert!(w.c.line("LOCK.ACQUIRE k dave").int() > w.token);
    assert_eq!(w.server.stat("windows_unused"), 1);
    assert_eq!(w.server.stat("windows_open"), 0);
    w.carol = w.server.conn();
}

#[test]
fn a_wait_can_time_out_in_the_window() {
    let mut w = Window::before(TestServer::with(&RULE), "BLOCK 300");
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    assert!(w.carol.recv().is_nil());
    assert_eq!(w.c.line("EXISTS k").int(), 0);
    assert!(w.c.line("LOCK.ACQUIRE k dave").int() > w.token);
}

#[test]
fn a_request_on_many_keys_is_not_granted_in_the_window() {
    let mut w = Window::open();
    let mut dave = w.server.conn();
    dave.send_line("LOCK.MACQUIRE 2 k l dave PX 600000 BLOCK 0");
    w.server.wait_for_waiters(2);
    w.carol.close();
    w.server.wait_for_waiters(1);
    w.carol = w.server.conn();
    // Settled again, it is still not granted.
    w.c.line("HSET l r:1 1");
    w.c.line("DEL l");
    w.c.line("DEL k");
    assert_eq!(w.server.stat("windows_open"), 1);
    assert!(w.c.line("LOCK.ACQUIRE k e").is_nil());
    assert!(w.c.line("LOCK.ACQUIRE l e").is_nil());
}

#[test]
fn a_request_on_many_keys_is_granted_at_the_end_of_the_window() {
    let mut w = Window::open();
    let mut dave = w.server.conn();
    dave.send_line("LOCK.MACQUIRE 2 k l dave PX 600000 BLOCK 0");
    w.server.wait_for_waiters(2);
    w.c.line("LOCK.RELEASE k carol");
    assert!(w.carol.recv().is_nil());
    assert!(dave.is_silent());
    w.end();
    let tokens = dave.recv().list();
    assert!(tokens.iter().all(|token| token.int() > w.token));
    w.assert_ended(0, 1);
}

// ---- beginning ----

#[test]
fn every_end_of_a_hold_may_open_a_window() {
    for (end, response) in [
        ("LOCK.BREAK k", 1),
        ("DEL k", 1),
        ("HDEL k bob", 1),
        ("LOCK.RENEW k bob PX 20", 1),
        ("EVAL return(redis.call('LOCK.RELEASE','k','bob')) 0", 1),
    ] {
        let mut w = Window::before(TestServer::with(&RULE), "BLOCK 0");
        w.c.line(end);
        wait_for(&format!("a window after {end}"), || {
            w.server.stat("windows_open") == 1
        });
        for _ in 0..response {
            assert_eq!(w.subscriber.recv().list()[2].text(), "0", "{end}");
        }
        assert!(w.subscriber.is_silent(), "{end}");
        assert_eq!(w.c.line("EXISTS k").int(), 0, "{end}");
        w.end();
        w.assert_is_carols();
    }
}

/// Whether or not the server counts the key as expired in the millisecond of the deadline.
#[test]
fn an_ended_lease_has_one_expire_event() {
    for round in 0..10 {
        let mut w = Window::before(TestServer::with(&RULE), "BLOCK 0");
        let mut events = Events::of(&w.server);
        w.c.line(&format!("LOCK.RENEW k bob PX {}", 20 + round));
        wait_for("a window", || w.server.stat("windows_open") == 1);
        let response = events.so_far();
        let of = |event: &str| {
            response
                .iter()
                .filter(|response| *response == event)
                .count()
        };
        let published_once = ["expired k", "lock.expire k"].map(of);
        assert_eq!((published_once, of("del k")), ([1, 1], 0), "{response:?}");
        w.end();
        w.assert_is_carols();
    }
}

#[test]
fn the_end_of_a_session_may_open_a_window() {
    let server = TestServer::with(&RULE);
    let [mut c, mut bob, mut carol, mut subscriber] = [(); 4].map(|()| server.conn());
    subscriber.run(["SUBSCRIBE", &channel_of("k")]);
    c.line("LOCK.ACQUIRE k alice");
    bob.send_line("LOCK.ACQUIRE k bob SESSION BLOCK 0");
    server.wait_for_waiters(1);
    c.line("LOCK.RELEASE k alice");
    bob.recv();
    carol.send_line("LOCK.ACQUIRE k carol BLOCK 0");
    server.wait_for_waiters(1);
    bob.close();
    wait_for("a window", || server.stat("windows_open") == 1);
    assert!(carol.is_silent());
    c.line("CONFIG SET lock.free-after 0");
    assert!(carol.recv().int() > 0);
}

#[test]
fn without_subscribers_no_window_opens_and_the_check_backs_off() {
    let server = TestServer::with(&RULE);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k owner:0");
    for number in 1..=40 {
        let mut next = server.conn();
        next.send_line(&format!("LOCK.ACQUIRE k owner:{number} BLOCK 0"));
        server.wait_for_waiters(1);
        c.line(&format!("LOCK.RELEASE k owner:{}", number - 1));
        assert!(next.recv().int() > 0);
    }
    assert_eq!(server.stat("windows"), 0);
    // After 1, 2, 4, 8 and 16 hand-offs.
    let stats = c.line("INFO commandstats").text();
    let asked = stats.lines().find(|line| line.contains("pubsub|numsub"));
    assert!(asked.unwrap().contains("calls=5,"), "{asked:?}");
}

#[test]
fn without_the_subscriber_count_locks_are_handed_off() {
    let server = TestServer::with(&[&RULE[..], &["--rename-command", "PUBSUB", ""]].concat());
    let mut w = Window::before(server, "BLOCK 0");
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    w.assert_is_carols();
}

#[test]
fn subscribers_of_other_channels_do_not_matter() {
    let server = TestServer::with(&RULE);
    let mut w = Window::before(server, "BLOCK 0");
    w.subscriber.run(["UNSUBSCRIBE", &channel_of("k")]);
    w.subscriber.run(["PSUBSCRIBE", "*"]);
    w.subscriber.run(["SUBSCRIBE", &channel_of("other")]);
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    w.assert_is_carols();
}

// ---- other servers ----

#[test]
fn replicas_get_a_release() {
    let server = TestServer::with(&[&RULE[..], &PROMPT_MASTER].concat());
    let mut w = Window::before(server, "BLOCK 0");
    let mut stream = ReplicationStream::attach(&w.server);
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    let message = format!("PUBLISH {} 0", channel_of("k"));
    let seen = stream.until_now(&w.server);
    assert_eq!(seen, ["MULTI", "DEL k", &message, "EXEC"]);
    w.end();
    w.carol.recv();
    let seen = stream.until_now(&w.server);
    assert!(seen[1].starts_with("HSET k carol 1 #token t"), "{seen:?}");
}

#[test]
fn a_fail_over_ends_the_window() {
    let master = TestServer::with(&[&RULE[..], &PROMPT_MASTER].concat());
    let replica = TestServer::with(&RULE);
    let mut w = Window::before(master, "BLOCK 0");
    follow(&replica, &w.server);
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    wait_until_in_sync(&replica, &w.server);
    replica.conn().line("REPLICAOF NO ONE");
    assert!(replica.conn().line("LOCK.ACQUIRE k dave").int() > w.token);
    follow(&w.server, &replica);
    assert!(w.carol.recv().error().starts_with("UNBLOCKED"));
    assert_eq!(w.server.stat("windows_open"), 0);
    w.assert_ended(0, 1);
    w.c = w.server.conn();
    wait_until_at_rest(&mut w.c);
}

#[test]
fn a_crash_in_the_window_leaves_a_free_lock() {
    let mut w = Window::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    w.server.crash_and_restart();
    w.c = w.server.conn();
    assert!(w.c.line("LOCK.ACQUIRE k dave").int() > w.token);
    w.carol = w.server.conn();
}

#[test]
fn in_a_cluster_both_kinds_of_subscribers_count() {
    for subscribe in ["SUBSCRIBE", "SSUBSCRIBE"] {
        let mut w = Window::before(one_node(&RULE), "BLOCK 0");
        w.subscriber.close();
        w.subscriber = w.server.conn();
        w.subscriber.run([subscribe, &channel_of("k")]);
        assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
        w.assert_open();
        assert_eq!(w.instance("r:1").take(), None);
        w.c.line("DEL k");
        w.assert_is_carols();
        w.assert_ended(1, 0);
    }
}

// ---- panics ----

/// A panic at the beginning of a window: nothing was changed, and the holder can try again.
#[test]
fn a_panic_at_the_beginning_of_a_window() {
    let server = TestServer::with_module(fault_module(), &RULE);
    let mut w = Window::before(server, "BLOCK 0");
    w.c.send_lines(&["MULTI", "LOCK.FAULT apply", "LOCK.RELEASE k bob", "EXEC"]);
    for _ in 0..3 {
        w.c.recv();
    }
    assert!(w.c.recv().list()[1].is_error());
    assert_eq!(w.c.line("HGET k bob").text(), "1");
    wait_for("the key to be settled again", || {
        w.server.stat("windows_open") == 0
    });
    assert!(w.carol.is_silent());
    assert_eq!(w.c.line("LOCK.RELEASE k bob").int(), 1);
    w.end();
    w.assert_is_carols();
    assert_eq!(w.server.stat("panics"), 1);
}

/// A panic at its end: the first waiter is granted the lock a little later.
#[test]
fn a_panic_at_the_end_of_a_window() {
    for entry in ["alarm", "apply"] {
        let server = TestServer::with_module(fault_module(), &RULE);
        let mut w = Window::on(server);
        w.c.send_lines(&[
            "MULTI",
            &format!("LOCK.FAULT {entry}"),
            "CONFIG SET lock.free-window 1",
            "EXEC",
        ]);
        for _ in 0..4 {
            w.c.recv();
        }
        wait_for("the injected panic", || w.server.stat("panics") == 1);
        match entry {
            "alarm" => w.assert_is_carols(),
            // The core had removed her from the queue: she gets a reply, and the lock is free.
            _ => assert!(w.carol.recv().error().starts_with("ERR"), "{entry}"),
        }
        assert_eq!(w.server.stat("windows_open"), 0);
        w.c.line("LOCK.BREAK k PURGE");
        assert!(w.c.line("LOCK.ACQUIRE k dave").int() > w.token);
    }
}
