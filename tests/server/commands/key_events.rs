//! `lock.wait`, `lock.lost` and `lock.expire`: published in every case for which the setting enables them; and the
//! recipe based on them: a holder that yields when there is a waiter.

use crate::common::replica::{follow, wait_until_in_sync};
use crate::common::{wait_for, Conn, Events, TestServer};

/// The module's own events since the last call.
fn module_events(events: &mut Events) -> Vec<String> {
    let mut seen = events.so_far();
    seen.retain(|event| event.starts_with("lock."));
    seen
}

/// Waits until this number of the module's events have come; returns them.
fn ours_until(events: &mut Events, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    wait_for(last, || {
        seen.extend(module_events(events));
        seen.iter().any(|event| event == last)
    });
    seen
}

fn is_tracked(server: &TestServer) -> bool {
    server.stat("grants_tracked") == 1
}

/// Ways in which the owner `o` loses the lock `k`.
const LOSSES: [&str; 16] = [
    "DEL k",
    "a script's DEL and SET",
    "UNLINK k",
    "SET k other",
    "a script's DEL",
    "RENAME k elsewhere",
    "MOVE k 1",
    "HDEL k o",
    "HSET k another 1",
    "HSET k o text",
    "RENAME other k",
    "COPY other k REPLACE",
    "SORT list STORE k",
    "FLUSHDB",
    "FLUSHALL",
    "SWAPDB 0 1",
];

fn lose_by(c: &mut Conn, way: &str) {
    match way {
        "a script's DEL" => c.run(["EVAL", "return redis.call('del', KEYS[1])", "1", "k"]),
        "a script's DEL and SET" => {
            let script = "redis.call('del', KEYS[1]); return redis.call('set', KEYS[1], 'other')";
            c.run(["EVAL", script, "1", "k"])
        }
        "SORT list STORE k" => {
            c.line("RPUSH list a");
            c.line("SORT list ALPHA STORE k")
        }
        way => c.line(way),
    };
}

fn clean_up(c: &mut Conn) {
    for line in ["FLUSHALL", "SELECT 0"] {
        c.line(line);
    }
}

#[test]
fn a_lost_tracked_lock_has_an_event_without_waiters() {
    for way in LOSSES {
        let server = TestServer::start();
        let mut c = server.conn();
        let mut events = Events::of(&server);
        c.line("SET other x");
        c.line("LOCK.ACQUIRE k o PX 600000");
        assert!(is_tracked(&server));
        assert_eq!(module_events(&mut events), ["lock.acquire k"]);
        lose_by(&mut c, way);
        assert_eq!(
            ours_until(&mut events, "lock.lost k"),
            ["lock.lost k"],
            "{way}"
        );
        clean_up(&mut c);
        // A swap takes the lock away from its owner, and the hold is lost again in the other database.
        let again = ["lock.lost k"];
        let again = &again[usize::from(!way.starts_with("SWAPDB"))..];
        assert_eq!(module_events(&mut events), again, "{way}: response once");
    }
}

#[test]
fn a_lost_tracked_lock_with_waiters_has_one_event() {
    let server = TestServer::start();
    let mut c = server.conn();
    for way in LOSSES {
        let mut events = Events::of(&server);
        c.line("SET other x");
        c.line("LOCK.ACQUIRE k o PX 600000");
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        assert_eq!(
            module_events(&mut events),
            ["lock.acquire k", "lock.wait k"]
        );
        lose_by(&mut c, way);
        let is_granted = waiter.recv().maybe_int().is_some();
        let response = module_events(&mut events);
        let mut expected = vec!["lock.lost k"];
        expected.extend(is_granted.then_some("lock.acquire k"));
        if way == "HSET k o text"
            || way == "HSET k another 1"
            || way.contains("other")
            || way.contains("SET")
            || way.contains("list")
        {
            assert!(!is_granted, "{way}");
        }
        assert_eq!(response, expected, "{way}");
        c.line("LOCK.RELEASE k p");
        clean_up(&mut c);
    }
}

#[test]
fn a_lost_foreign_lock_with_waiters_has_one_event() {
    let server = TestServer::start();
    let mut c = server.conn();
    for way in LOSSES {
        let mut events = Events::of(&server);
        c.line("SET other x");
        // As a Redisson client takes it; with `#token`, so that HDEL leaves a free lock.
        c.line("HSET k o 1 #token t1");
        c.line("PEXPIRE k 600000");
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        assert_eq!(module_events(&mut events), ["lock.wait k"]);
        lose_by(&mut c, way);
        waiter.recv();
        let mut response = module_events(&mut events);
        response.retain(|event| event != "lock.acquire k");
        assert_eq!(response, ["lock.lost k"], "{way}");
        c.line("LOCK.RELEASE k p");
        clean_up(&mut c);
        events.so_far();
    }
}

#[test]
fn an_evicted_lock_has_an_event() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("LOCK.ACQUIRE k o PX 600000");
    c.line("CONFIG SET maxmemory-policy allkeys-random");
    c.line("CONFIG SET maxmemory 1");
    wait_for("an eviction", || {
        c.line("SET more x");
        c.line("EXISTS k").int() == 0
    });
    assert_eq!(
        module_events(&mut events),
        ["lock.acquire k", "lock.lost k"]
    );
    c.line("CONFIG SET maxmemory 0");
}

#[test]
fn changes_by_others_that_end_no_hold_are_no_loss() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("LOCK.ACQUIRE k o PX 600000");
    for line in [
        "PEXPIRE k 700000",
        "PERSIST k",
        "HINCRBY k o 1",
        "RENAME k k",
        "COPY k copy",
        "SWAPDB 0 0",
        "SELECT 0",
        "FLUSHDB ASYNC",
    ] {
        if line.starts_with("FLUSHDB") {
            c.line("SELECT 1");
        }
        c.line(line);
    }
    c.line("SELECT 0");
    assert_eq!(module_events(&mut events), ["lock.acquire k"]);
    assert!(is_tracked(&server));
    let digest = c.line("DEBUG DIGEST").text();
    c.line("LOCK.INFO k");
    assert_eq!(
        c.line("DEBUG DIGEST").text(),
        digest,
        "reading changes nothing"
    );
}

#[test]
fn reading_a_changed_lock_writes_nothing() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("LOCK.ACQUIRE k o PX 600000");
    c.line("HDEL k o");
    ours_until(&mut events, "lock.lost k");
    assert_eq!(c.line("HLEN k").int(), 1, "the remaining field stays");
    assert_eq!(server.stat("grants_lost"), 1);
}

#[test]
fn every_lock_of_a_flushed_database_has_an_event_in_that_database() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    let mut waiters = Vec::new();
    for db in 0..3 {
        c.line(&format!("SELECT {db}"));
        for i in 0..3 {
            c.line(&format!("LOCK.ACQUIRE k:{db}:{i} o PX 600000"));
        }
        let mut waiter = server.conn();
        waiter.line(&format!("SELECT {db}"));
        waiter.send_line(&format!("LOCK.ACQUIRE k:{db}:0 p PX 600000 BLOCK 0"));
        waiters.push(waiter);
    }
    server.wait_for_waiters(3);
    module_events(&mut events);
    c.line("SELECT 1");
    c.line("FLUSHDB");
    assert!(waiters[1].recv().int() > 0);
    let mut response = module_events(&mut events);
    response.sort();
    let expected = [
        "lock.acquire k:1:0",
        "lock.lost k:1:0",
        "lock.lost k:1:1",
        "lock.lost k:1:2",
    ];
    assert_eq!(response, expected);
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE __keyevent@2__:lock.lost");
    c.line("FLUSHALL");
    let mut response: Vec<String> = (0..3).map(|_| subscriber.recv().list()[2].text()).collect();
    response.sort();
    assert_eq!(response, ["k:2:0", "k:2:1", "k:2:2"]);
    assert!(waiters[0].recv().int() > 0 && waiters[2].recv().int() > 0);
    server.check_counters();
}

#[test]
fn lost_holds_of_a_read_write_lock_have_events() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("LOCK.ACQUIRE k a READ PX 600000");
    c.line("LOCK.ACQUIRE k b READ PX 600000");
    assert_eq!(
        module_events(&mut events),
        ["lock.acquire k", "lock.acquire k"]
    );
    // One reader is removed by a script; the other stays.
    c.line("HDEL k a");
    assert_eq!(ours_until(&mut events, "lock.lost k"), ["lock.lost k"]);
    assert_eq!(server.stat("grants_tracked"), 1);
    c.line("FLUSHALL");
    assert_eq!(module_events(&mut events), ["lock.lost k"]);
    c.line("LOCK.ACQUIRE k a WRITE PX 600000");
    c.line("SET k other");
    assert_eq!(
        ours_until(&mut events, "lock.lost k"),
        ["lock.acquire k", "lock.lost k"]
    );
}

/// A script gives each hold of one owner an end of its own, and a check of many readers reads few of them of each.
#[test]
fn a_reader_of_which_one_hold_of_many_lasts_is_not_lost() {
    const HOLDS: usize = 100;
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    for number in 0..200 {
        c.line(&format!("LOCK.ACQUIRE k r{number} READ PX 600000"));
    }
    let lasting = [1, 2, 3].map(|number| format!("last{number}"));
    for owner in &lasting {
        for _ in 0..HOLDS {
            c.line(&format!("LOCK.ACQUIRE k {owner} READ PX 600000"));
        }
        for number in (1..=HOLDS).filter(|number| *number != 2) {
            c.line(&format!("DEL {{k}}:{owner}:rwlock_timeout:{number}"));
        }
    }
    c.line("HDEL k r0");
    ours_until(&mut events, "lock.lost k");
    assert_eq!(server.stat("grants_lost"), 1);
    assert_eq!(server.stat("grants_tracked"), 202);
}

#[test]
fn an_ended_lease_has_an_expire_event() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("LOCK.ACQUIRE k o PX 5");
    assert_eq!(
        ours_until(&mut events, "lock.expire k"),
        ["lock.acquire k", "lock.expire k"]
    );
    c.line("LOCK.ACQUIRE k o PX 600000");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    c.line("PEXPIRE k 5");
    assert!(waiter.recv().int() > 0);
    let response = module_events(&mut events);
    let expected = [
        "lock.acquire k",
        "lock.wait k",
        "lock.expire k",
        "lock.acquire k",
    ];
    assert_eq!(response, expected);
}

/// A client that subscribes to the server's own `expired` (a Redisson listener, for example) gets one event for every
/// lease that ends, even if the waiter is granted in the same millisecond, in which the server does not count the key
/// as expired yet.
#[test]
fn the_key_of_a_lease_that_ends_expires_beside_a_waiter_too() {
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    let mut events = Events::of(&server);
    let mut expiries = |way: &str| {
        let response = events.so_far();
        let count = response
            .iter()
            .filter(|event| *event == "expired k")
            .count();
        assert_eq!(count, 1, "{way}: {response:?}");
    };
    for round in 0..20 {
        for (way, take) in [
            ("by others", "HSET k u:1 1"),
            ("by the module", "LOCK.ACQUIRE k u:1 PX 600000"),
            ("by readers", "LOCK.ACQUIRE k u:1 READ PX 600000"),
        ] {
            let mode = if way == "by readers" { "WRITE" } else { "" };
            c.line(take);
            c.line(&format!("PEXPIRE k {}", 20 + round));
            let acquire = format!("LOCK.ACQUIRE k p {mode} PX 600000 BLOCK 0");
            waiter.send_line(acquire.replace("  ", " ").as_str());
            assert!(waiter.recv().int() > 0);
            expiries(way);
            c.line("LOCK.BREAK k");
        }
    }
    assert_eq!(server.stat("grants_tracked"), 0);
}

#[test]
fn a_lease_cut_to_nothing_has_the_event_of_the_server() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("LOCK.ACQUIRE k o PX 600000");
    module_events(&mut events);
    c.line("EXPIRE k -1");
    // Some servers report a deletion, others an expiry.
    let response = module_events(&mut events);
    assert!(
        response == ["lock.lost k"] || response == ["lock.expire k"],
        "{response:?}"
    );
}

#[test]
fn ends_by_the_owner_or_an_operator_are_no_loss() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    for (end, name) in [
        ("LOCK.RELEASE k o", "lock.release k"),
        ("LOCK.BREAK k", "lock.break k"),
    ] {
        c.line("LOCK.ACQUIRE k o PX 600000");
        c.line(end);
        assert_eq!(module_events(&mut events), ["lock.acquire k", name]);
    }
}

#[test]
fn each_parked_request_has_an_event() {
    let server = TestServer::start();
    let mut a = server.conn();
    let mut events = Events::of(&server);
    a.line("LOCK.ACQUIRE k o PX 600000");
    module_events(&mut events);
    let (mut b, mut again, mut c) = (server.conn(), server.conn(), server.conn());
    b.send_line("LOCK.ACQUIRE k p BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(module_events(&mut events), ["lock.wait k"]);
    // The place is taken over by another request of the same owner.
    again.send_line("LOCK.ACQUIRE k p BLOCK 0");
    assert!(b.recv().is_nil());
    assert_eq!(module_events(&mut events), ["lock.wait k"]);
    c.send_line("LOCK.ACQUIRE k q BLOCK 0");
    server.wait_for_waiters(2);
    assert_eq!(module_events(&mut events), ["lock.wait k"]);
    // The owner returns to a kept place.
    again.close();
    server.wait_for_waiters(1);
    b.send_line("LOCK.ACQUIRE k p BLOCK 0");
    server.wait_for_waiters(2);
    assert_eq!(module_events(&mut events), ["lock.wait k"]);
    // None of these requests is parked.
    for line in [
        "LOCK.ACQUIRE k r",
        "LOCK.ACQUIRE k o BLOCK 0",
        "LOCK.ACQUIRE k r BLOCK x",
    ] {
        a.line(line);
    }
    a.line("MULTI");
    a.line("LOCK.ACQUIRE k r BLOCK 0");
    a.line("EXEC");
    assert_eq!(module_events(&mut events), [""; 0]);
    a.line("LOCK.RELEASE k o ALL");
    assert!(b.recv().int() > 0);
}

#[test]
fn a_parked_request_for_several_keys_has_an_event_at_each() {
    let server = TestServer::start();
    let mut a = server.conn();
    let mut events = Events::of(&server);
    a.line("LOCK.ACQUIRE j o PX 600000");
    module_events(&mut events);
    let mut b = server.conn();
    b.send_line("LOCK.MACQUIRE 2 j k p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(module_events(&mut events), ["lock.wait j", "lock.wait k"]);
    a.line("LOCK.RELEASE j o");
    assert_eq!(b.recv().list().len(), 2);
    let mut response = module_events(&mut events);
    response.sort();
    assert_eq!(
        response,
        ["lock.acquire j", "lock.acquire k", "lock.release j"]
    );
}

#[test]
fn without_the_setting_there_are_no_events() {
    let server = TestServer::start();
    let (mut c, mut subscriber) = (server.conn(), server.conn());
    subscriber.line("PSUBSCRIBE __key*");
    for classes in ["", "KEg$lshzxetn"] {
        c.line("CONFIG SET notify-keyspace-events \"\"");
        c.run(["CONFIG", "SET", "notify-keyspace-events", classes]);
        c.line("LOCK.ACQUIRE k o PX 600000");
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        c.line("SET k other");
        assert!(waiter.recv().is_error());
        c.line("FLUSHALL");
    }
    c.run(["CONFIG", "SET", "notify-keyspace-events", ""]);
    c.line("PUBLISH __key:end x");
    loop {
        let message = subscriber.recv().list();
        let (channel, text) = (message[2].text(), message[3].text());
        assert!(
            !channel.contains("lock.") && !text.starts_with("lock."),
            "{message:?}"
        );
        if channel == "__key:end" {
            return;
        }
    }
}

#[test]
fn the_setting_of_the_configuration_file_works_from_the_start() {
    let server = TestServer::with(&["--notify-keyspace-events", "Ed"]);
    let (mut c, mut subscriber) = (server.conn(), server.conn());
    subscriber.line("SUBSCRIBE __keyevent@0__:lock.lost");
    c.line("LOCK.ACQUIRE k o PX 600000");
    c.line("SET k other");
    assert_eq!(subscriber.recv().list()[2].text(), "k");
}

#[test]
fn a_replica_has_events_only_for_locks_that_it_granted() {
    let (master, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &master);
    let mut events = Events::of(&replica);
    let mut c = master.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    c.line("DEL k");
    c.line("LOCK.ACQUIRE k o PX 600000");
    c.line("FLUSHALL");
    wait_until_in_sync(&replica, &master);
    assert_eq!(module_events(&mut events), [""; 0]);
}

/// The recipe of docs/COMMANDS.md: a holder with a long job subscribes to the waiters' event of its key and yields
/// between two steps; the lock goes through the queue and returns each time.
#[test]
fn a_holder_with_a_waiter_event_yields() {
    let server = TestServer::with(&["--notify-keyspace-events", "Kd"]);
    let (mut holder, mut subscriber) = (server.conn(), server.conn());
    subscriber.line("SUBSCRIBE __keyspace@0__:batch");
    let mut token = holder
        .line("LOCK.ACQUIRE batch nightly PX 600000 ONCE")
        .int();
    assert_eq!(subscriber.recv().list()[2].text(), "lock.acquire");
    for round in 0..3 {
        let mut urgent = server.conn();
        urgent.send_line("LOCK.ACQUIRE batch urgent PX 600000 BLOCK 0 ONCE");
        // The holder reads the event between two steps, and lets the waiter run first.
        assert_eq!(subscriber.recv().list()[2].text(), "lock.wait");
        assert_eq!(
            holder
                .line(&format!("LOCK.RELEASE batch nightly TOKEN {token}"))
                .int(),
            1
        );
        let urgents = urgent.recv().int();
        assert!(urgents > token, "round {round}");
        holder.send_line("LOCK.ACQUIRE batch nightly PX 600000 BLOCK 0 ONCE");
        wait_for("the holder to queue up again", || {
            server.stat("waiters") == 1
        });
        assert_eq!(urgent.line("LOCK.RELEASE batch urgent").int(), 1);
        token = holder.recv().int();
        assert!(token > urgents);
        let response: Vec<String> = (0..5).map(|_| subscriber.recv().list()[2].text()).collect();
        let expected = [
            "lock.release",
            "lock.acquire",
            "lock.wait",
            "lock.release",
            "lock.acquire",
        ];
        assert_eq!(response, expected);
    }
    assert_eq!(holder.line("LOCK.RELEASE batch nightly").int(), 1);
}
