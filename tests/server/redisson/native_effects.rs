//! Redisson's scripts run natively, and the surroundings of a call: transactions, replicas, the AOF, full memory,
//! waiters.

use crate::common::redisson::{self, *};
use crate::common::replica::{
    aof_text, follow, wait_until_in_sync, ReplicationStream, PROMPT_MASTER,
};
use crate::common::{wait_for, TestServer};
use crate::redisson::native::{call, calls, native, Side, ON, PLAIN};

pub fn eval(sha1: &str, rest: &str) -> Vec<String> {
    call("EVAL", &redisson::text(sha1), rest)
}

pub fn acquire(owner: &str) -> Vec<String> {
    eval(ACQUIRE, &format!("1 k 600000 {owner}"))
}

pub fn unlock(owner: &str) -> Vec<String> {
    eval(
        UNLOCK,
        &format!("3 k c latch 0 600000 {owner} PUBLISH 13500"),
    )
}

/// The replicated commands, without times, and normalised for native runs and Lua.
pub fn plain(commands: Vec<String>) -> Vec<String> {
    let is_moment = |word: &str| {
        word.parse()
            .is_ok_and(|number: i64| number > 1_000_000_000_000)
    };
    let plain = |command: String| {
        let words = command.split(' ');
        let words = words.map(|word| if is_moment(word) { "<ms>" } else { word });
        words
            .collect::<Vec<_>>()
            .join(" ")
            .replace(" pxat ", " PXAT ")
    };
    commands.into_iter().map(plain).collect()
}

#[test]
fn replicas_and_the_aof_get_what_the_script_would_give_them() {
    const AOF: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
    let native = TestServer::with(&[&AOF[..], &PROMPT_MASTER, &ON].concat());
    let lua = TestServer::with(&[&AOF[..], &PROMPT_MASTER].concat());
    let mut sides = [native, lua].map(|server| {
        let stream = ReplicationStream::attach(&server);
        (Side::of(server), stream)
    });
    for data in PLAIN {
        for (sha1, rest) in calls() {
            let [native, lua] = sides.each_mut().map(|(side, stream)| {
                side.prepare(data);
                stream.until_now(&side.server);
                side.caller.run(eval(sha1, &rest));
                plain(stream.until_now(&side.server))
            });
            assert_eq!(native, lua, "{data:?} {sha1} {rest}");
        }
    }
    assert_eq!(sides[0].0.server.stat("redisson_lua"), 0);
    // And the form that Lua writes instead.
    for data in [["HSET k u:1 0"], ["HSET k u:1 -7"]] {
        let [native, lua] = sides.each_mut().map(|(side, stream)| {
            side.prepare(&data);
            stream.until_now(&side.server);
            side.caller.run(acquire("u:1"));
            plain(stream.until_now(&side.server))
        });
        assert!(native.len() > 2, "{native:?}");
        assert_eq!(native, lua, "{data:?}");
    }
    assert_eq!(sides[0].0.server.stat("redisson_lua"), 2);
    let [native, lua] = sides
        .each_ref()
        .map(|(side, _)| plain(aof_text(&side.server)));
    assert_eq!(native, lua);
}

#[test]
fn a_replica_and_a_restart_have_the_same_locks() {
    let aof = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut master = TestServer::with(&[&aof[..], &PROMPT_MASTER, &ON].concat());
    let replica = TestServer::with(&ON);
    follow(&replica, &master);
    let mut subscriber = replica.conn();
    subscriber.line("SUBSCRIBE c");
    let mut c = master.conn();
    for (sha1, rest) in calls() {
        c.line("HSET k u:1 2 #token t7");
        c.run(eval(sha1, &rest));
    }
    c.run(acquire("u:5"));
    wait_until_in_sync(&replica, &master);
    let before = c.line("DEBUG DIGEST").text();
    assert_eq!(replica.conn().line("DEBUG DIGEST").text(), before);
    assert_eq!(subscriber.recv().list()[2].text(), "0");
    // On a replica the script runs in Lua, with the same refusal: it must not write.
    let mut reader = replica.conn();
    let refused = reader.run(acquire("u:6")).error();
    assert!(refused.starts_with("READONLY "), "{refused}");
    // On a writable replica, scripts run in Lua, too; its writes are local.
    reader.line("CONFIG SET replica-read-only no");
    assert!(reader.run(eval(ACQUIRE, "1 own 600000 u:6")).is_nil());
    assert_eq!(replica.stat("redisson_rlock"), 0);
    drop(c);
    master.crash_and_restart();
    assert_eq!(master.conn().line("DEBUG DIGEST").text(), before);
}

#[test]
fn in_a_transaction_a_script_runs_in_its_place() {
    let server = native();
    let mut c = server.conn();
    c.line("MULTI");
    for command in [acquire("u:1"), acquire("u:2"), unlock("u:1"), unlock("u:1")] {
        assert_eq!(c.run(&command).text(), "QUEUED");
    }
    let replies = c.line("EXEC").list();
    assert!(replies[0].is_nil());
    assert!((1..=600_000).contains(&replies[1].int()));
    assert_eq!(replies[2].int(), 1);
    assert_eq!(replies[3].int(), 1, "sent twice, done once");
    assert_eq!(server.stat("redisson_rlock"), 4);
    // A permission that is refused at the time of EXEC concerns that command alone.
    c.line("WATCH k");
    server.conn().run(acquire("u:3"));
    c.line("MULTI");
    c.run(acquire("u:1"));
    assert!(
        c.line("EXEC").is_nil(),
        "another client has changed a watched key"
    );
}

#[test]
fn a_full_memory_refuses_an_acquire_as_in_lua_and_lets_a_lock_be_released() {
    let sides = [(native(), true), (TestServer::start(), false)];
    let refusals = sides.map(|(server, is_native)| {
        let mut c = server.conn();
        for _ in 0..2 {
            assert!(c.run(acquire("u:1")).is_nil());
        }
        c.line("CONFIG SET maxmemory 1");
        let refused = [acquire("u:1"), eval(ACQUIRE, "1 free 600000 u:2")].map(|acquire| {
            let refused = c.run(acquire).error();
            assert!(refused.starts_with("OOM "), "{refused}");
            refused
        });
        assert!(c.run(acquire("u:2")).int() > 0, "a refusal needs no memory");
        assert_eq!(c.run(eval(RENEW, "1 k 600000 u:1")).list()[0].int(), 1);
        if is_native {
            assert_eq!(c.run(unlock("u:1")).int(), 0);
            let last = eval(UNLOCK, "3 k c latch2 0 600000 u:1 PUBLISH 13500");
            assert_eq!(c.run(last).int(), 1);
            assert_eq!(c.line("EXISTS k").int(), 0);
        } else {
            assert!(c.run(unlock("u:1")).error().starts_with("OOM "));
        }
        refused
    });
    assert_eq!(refusals[0], refusals[1]);
}

#[test]
fn a_native_unlock_is_a_foreign_release_to_waiters() {
    let server = native();
    let mut c = server.conn();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE c");
    for (released, release) in [
        (1, unlock("u:1")),
        (2, eval(FORCE, "2 k c 0 PUBLISH")),
        (3, eval(UNLOCK_3_10, "2 k c 0 600000 u:1")),
    ] {
        assert!(c.run(acquire("u:1")).is_nil());
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k u:2 PX 60000 BLOCK 0");
        server.wait_for_waiters(1);
        assert!(waiter.is_silent());
        assert_eq!(c.run(&release).int(), 1);
        assert!(waiter.recv().int() > 0, "granted at the end of the tick");
        assert_eq!(server.stat("foreign_wakeups"), released);
        assert_eq!(subscriber.recv().list()[2].text(), "0");
        assert!(c.run(acquire("u:1")).int() > 0, "held by the former waiter");
        assert_eq!(c.line("LOCK.RELEASE k u:2").int(), 1);
        c.line("DEL latch");
    }
    assert_eq!(server.stat("redisson_lua"), 0);
}

#[test]
fn a_lock_of_the_module_that_a_native_unlock_ends_is_a_lost_one() {
    let [native, lua] = [native(), TestServer::start()].map(|server| {
        let mut c = server.conn();
        c.line("CONFIG SET notify-keyspace-events Ed");
        let mut subscriber = server.conn();
        subscriber.line("PSUBSCRIBE __keyevent@0__:lock.*");
        let mut received = Vec::new();
        for end in [unlock("u:1"), eval(FORCE, "2 k c 0 PUBLISH")] {
            c.line("LOCK.ACQUIRE k u:1 PX 600000");
            assert_eq!(c.run(&end).int(), 1);
            c.line("LOCK.ACQUIRE k u:2 PX 600000");
            c.line("DEL k latch");
            for _ in 0..4 {
                received.push(subscriber.recv().list()[2].text());
            }
        }
        // The same with a waiter.
        c.line("LOCK.ACQUIRE k u:1 PX 600000");
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k u:2 PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        // In one tick: the loss is published before any grant.
        c.send_line("MULTI");
        c.send(unlock("u:1"));
        c.send_lines(&["PUBLISH __keyevent@0__:lock.marker x", "EXEC"]);
        for _ in 0..4 {
            c.recv();
        }
        waiter.recv();
        for _ in 0..5 {
            received.push(subscriber.recv().list()[2].text());
        }
        let lost = server.stat("grants_lost");
        (received, lost)
    });
    assert_eq!(native, lua);
    assert_eq!(native.1, 5);
}

#[test]
fn resp3_says_nil_as_it_does_in_lua() {
    let answers = [native(), TestServer::start()].map(|server| {
        let mut c = server.conn3();
        for command in [acquire("u:1"), unlock("u:2"), eval(RENEW, "1 k 600000 u:1")] {
            c.send(&command);
        }
        [(); 4].map(|()| c.raw_line())
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0][0], "_");
}

/// Key misses and new keys: a native script reads less, and writes in another order.
#[test]
fn with_a_partial_event_setting_the_events_come_from_lua() {
    for (class, last) in [("EAm", "GET the-end"), ("EAn", "SET the-end x")] {
        let answers = [native(), TestServer::start()].map(|server| {
            let mut c = server.conn();
            c.line(&format!("CONFIG SET notify-keyspace-events {class}"));
            let mut subscriber = server.conn();
            subscriber.line("PSUBSCRIBE __keyevent@0__:*");
            c.run(acquire("u:1"));
            c.run(unlock("u:1"));
            c.line(last);
            let mut received: Vec<String> = Vec::new();
            while received
                .last()
                .is_none_or(|last| !last.ends_with(" the-end"))
            {
                let message = subscriber.recv().list();
                received.push(format!("{} {}", message[2].text(), message[3].text()));
            }
            received
        });
        assert_eq!(answers[0], answers[1]);
        assert!(answers[0].len() > 2, "{class}: {answers:?}");
    }
}

#[test]
fn the_ttl_of_a_field_stays_on_servers_that_have_it() {
    let answers = [native(), TestServer::start()].map(|server| {
        let mut c = server.conn();
        if c.line("COMMAND INFO HPEXPIRE").list()[0].is_nil() {
            return None;
        }
        c.line("HSET k u:1 1");
        c.line("HPEXPIRE k 300000 FIELDS 1 u:1");
        let mut seen = Vec::new();
        for call in [acquire("u:1"), acquire("u:1"), unlock("u:1")] {
            c.run(call);
            let left = c.line("HPTTL k FIELDS 1 u:1").list()[0].int();
            seen.push((c.line("HGET k u:1").text(), (left + 30_000) / 60_000));
        }
        // An expired field is no hold.
        c.line("HPEXPIRE k 1 FIELDS 1 u:1");
        wait_for("the end of the field", || c.line("HGET k u:1").is_nil());
        seen.push((format!("{:?}", c.run(unlock("u:1"))), 0));
        Some(seen)
    });
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn paused_writes_wait_and_are_executed_once() {
    let server = native();
    let (mut c, mut caller) = (server.conn(), server.conn());
    c.line("CLIENT PAUSE 60000 WRITE");
    caller.send(acquire("u:1"));
    wait_for("the caller to be held back", || {
        c.line("INFO clients").text().contains("blocked_clients:1")
    });
    assert_eq!(c.line("EXISTS k").int(), 0);
    c.line("CLIENT UNPAUSE");
    assert!(caller.recv().is_nil());
    assert_eq!(c.line("HGET k u:1").text(), "1");
    assert_eq!(server.stat("redisson_rlock"), 1);
}

#[test]
fn a_script_cannot_call_the_native_command() {
    let server = native();
    let mut c = server.conn();
    let call = format!("return redis.call('lock.redisson', '{ACQUIRE}', 1, 'k', 600000, 'u:1')");
    let refused = c.run(["EVAL", &call, "1", "k"]).error();
    assert!(refused.contains("not allowed from script"), "{refused}");
    assert_eq!(c.line("EXISTS k").int(), 0);
}
