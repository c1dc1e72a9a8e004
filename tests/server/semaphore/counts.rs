//! `SEM.ACQUIRE ... COUNT`: several permits of one grant.

use crate::common::barrier::assert_stays_silent;
use crate::common::replica::{follow, wait_until_in_sync};
use crate::common::scene::only_reply;
use crate::common::{wait_for, Bystander, Conn, TestServer};

fn parked(server: &TestServer, line: &str) -> Conn {
    let before = server.stat("sem_waiters");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("one more waiter", || server.stat("sem_waiters") > before);
    conn
}

/// The entries of the set, and the number of free permits.
fn content(c: &mut Conn) -> (Vec<String>, String) {
    let set = c.line("ZRANGE {k}:timeout 0 -1").list();
    let mut entries: Vec<String> = set.iter().map(|entry| entry.text()).collect();
    entries.sort();
    (entries, c.line("GET k").text())
}

fn assert_content(c: &mut Conn, entries: &[&str], free: &str) {
    let (there, left) = content(c);
    assert_eq!(
        (&there[..], left.as_str()),
        (
            &entries.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
            free
        )
    );
}

#[test]
fn the_permits_of_a_grant_are_taken_renewed_and_given_back_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("SEM.ACQUIRE k a COUNT 3 LIMIT 5 PX 60000").int();
    assert_content(&mut c, &["#2:a", "#3:a", "a"], "2");
    assert_eq!(c.line("SEM.INFO k").field("held").expect("held").int(), 3);
    assert!(c.line("SEM.ACQUIRE k b COUNT 3").is_nil(), "two are free");
    let bystander = Bystander::of(&server, "{k}:timeout");
    assert_eq!(c.line("SEM.ACQUIRE k a COUNT 1 PX 10").int(), token);
    bystander.saw_nothing("a repeated request with another number");
    assert!(c.line("SEM.ACQUIRE k b COUNT 2").int() > token);
    assert_eq!(c.line("SEM.RENEW k a PX 500000").int(), 1);
    let end = |c: &mut Conn, entry: &str| c.run(["ZSCORE", "{k}:timeout", entry]).text();
    let first = end(&mut c, "a");
    assert_eq!(
        (end(&mut c, "#2:a"), end(&mut c, "#3:a")),
        (first.clone(), first)
    );
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    assert_content(&mut c, &["#2:b", "b"], "3");
    assert!(c.line("SEM.RELEASE k a").is_nil());
    assert_eq!(c.line("SEM.RELEASE k b FINAL 1").int(), 1);
    assert_content(&mut c, &[], "5");
    assert_eq!(server.stat("sem_grants"), 2, "a grant of several is one");
}

#[test]
fn a_request_for_many_is_not_passed_by_requests_for_few() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 3");
    c.line("SEM.ACQUIRE k a COUNT 2 PX 600000");
    let mut many = parked(&server, "SEM.ACQUIRE k many COUNT 3 BLOCK 0");
    let mut few = parked(&server, "SEM.ACQUIRE k few BLOCK 0");
    assert!(
        c.line("SEM.ACQUIRE k other").is_nil(),
        "one is free, and is not for it"
    );
    let info = c.line("SEM.INFO k WAITERS");
    let queue = info.field("queue").expect("a queue").list();
    let asked = queue.iter().map(|one| one.field("count").expect("a count"));
    assert_eq!(asked.map(|count| count.int()).collect::<Vec<_>>(), [3, 1]);
    assert_stays_silent(&server, &mut few);
    c.line("SEM.RELEASE k a");
    assert!(only_reply(&mut many).int() > 0);
    assert_stays_silent(&server, &mut few);
    c.line("SEM.RELEASE k many");
    assert!(only_reply(&mut few).int() > 0);
    assert_content(&mut c, &["few"], "2");
}

#[test]
fn what_ends_a_wait_for_many_grants_those_behind_it() {
    let server = TestServer::with(&["--lock.queue-grace", "0"]);
    let mut c = server.conn();
    c.line("SEM.SET k 1");
    // Its time is over, its id withdraws it, its connection closes, it asks for fewer.
    for end in ["BLOCK 30", "withdrawn", "closed", "fewer"] {
        let wait = if end.starts_with("BLOCK") {
            end
        } else {
            "BLOCK 0"
        };
        let mut many = parked(&server, &format!("SEM.ACQUIRE k many COUNT 2 {wait}"));
        let mut few = server.conn();
        few.send_line("SEM.ACQUIRE k few BLOCK 0");
        let mut again = server.conn();
        match end {
            "withdrawn" => assert!(c.line("SEM.RELEASE k many").is_nil()),
            "closed" => many.close(),
            "fewer" => {
                assert!(again.line("SEM.ACQUIRE k many COUNT 1 BLOCK 0").int() > 0);
                assert!(many.recv().is_nil());
                c.line("SEM.RELEASE k many");
            }
            _ => assert!(many.recv().is_nil()),
        }
        assert!(only_reply(&mut few).int() > 0, "{end}");
        c.line("SEM.RELEASE k few");
        assert_content(&mut c, &[], "1");
    }
}

#[test]
fn permits_that_end_are_enough_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 3");
    c.line("SEM.ACQUIRE k a COUNT 2 PX 40");
    c.line("SEM.ACQUIRE k b PX 80");
    let mut many = parked(&server, "SEM.ACQUIRE k many COUNT 3 BLOCK 0");
    assert!(only_reply(&mut many).int() > 0);
    assert_content(&mut c, &["#2:many", "#3:many", "many"], "0");
    // Without a waiter they stay in the set until a request needs them.
    c.line("SEM.RENEW k many PX 1");
    wait_for("their end", || {
        c.line("SEM.INFO k").field("free").expect("free").int() == 3
    });
    assert!(c.line("SEM.ACQUIRE k many COUNT 2 PX 60000").int() > 0);
    assert_content(&mut c, &["#2:many", "many"], "1");
    assert!(c.line("SEM.ACQUIRE k other PX 60000").int() > 0);
    assert_content(&mut c, &["#2:many", "many", "other"], "0");
    assert_eq!(c.line("SEM.RELEASE k many").int(), 1);
    assert_content(&mut c, &["other"], "2");
}

#[test]
fn set_raises_the_permits_for_a_request_for_more_than_there_are() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 2");
    assert!(c.line("SEM.ACQUIRE k a COUNT 3").is_nil());
    let mut many = parked(&server, "SEM.ACQUIRE k a COUNT 64 BLOCK 0");
    c.line("SEM.SET k 63");
    assert_stays_silent(&server, &mut many);
    c.line("SEM.SET k 64");
    assert!(only_reply(&mut many).int() > 0);
    assert_eq!(c.line("ZCARD {k}:timeout").int(), 64);
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    assert_content(&mut c, &[], "64");
}

#[test]
fn the_end_of_a_connection_gives_all_permits_back() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut bound = server.conn();
    assert!(bound.line("SEM.ACQUIRE k a COUNT 2 LIMIT 2 SESSION").int() > 0);
    let mut next = parked(&server, "SEM.ACQUIRE k b COUNT 2 BLOCK 0");
    bound.close();
    assert!(only_reply(&mut next).int() > 0);
    assert_content(&mut c, &["#2:b", "b"], "0");
}

#[test]
fn a_replica_and_a_restart_know_how_many() {
    let server = TestServer::start();
    let replica = TestServer::start();
    follow(&replica, &server);
    let mut c = server.conn();
    c.line("SEM.ACQUIRE k a COUNT 3 LIMIT 4 PX 600000");
    wait_until_in_sync(&replica, &server);
    let mut there = replica.conn();
    there.line("REPLICAOF NO ONE");
    assert_eq!(there.line("SEM.RELEASE k a").int(), 1);
    assert_content(&mut there, &[], "4");
    assert_eq!(c.line("DEBUG RELOAD").text(), "OK");
    assert_eq!(c.line("SEM.RENEW k a PX 500000").int(), 1);
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    assert_content(&mut c, &[], "4");
}

/// An entry of a former grant, beside those of a later one of its id, is taken back like any other.
#[test]
fn a_leftover_of_a_former_grant_is_a_free_permit() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 3");
    c.line("SEM.ACQUIRE k a COUNT 3 PX 1");
    wait_for("their end", || {
        c.line("SEM.INFO k").field("free").expect("free").int() == 3
    });
    c.line("SEM.ACQUIRE k other").int();
    c.line("SEM.RELEASE k other").int();
    assert!(c.line("SEM.ACQUIRE k a COUNT 2 PX 600000").int() > 0);
    let mut many = parked(&server, "SEM.ACQUIRE k many COUNT 3 BLOCK 0");
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    assert!(only_reply(&mut many).int() > 0);
    assert_content(&mut c, &["#2:many", "#3:many", "many"], "0");
}

/// There is no place for a request that creates the semaphore: those that have the places are granted its permits, and
/// then so is the request, if there is one more.
#[test]
fn a_full_queue_does_not_keep_a_semaphore_from_being_created() {
    for (limit, is_granted) in [(2, true), (1, false)] {
        for (settings, queue) in [
            (&["--lock.max-waiters-per-key", "1"], ""),
            (&["--lock.max-waiters-per-key", "9"], " QUEUE 1"),
        ] {
            let server = TestServer::with(settings);
            let mut c = server.conn();
            let mut first = parked(&server, "SEM.ACQUIRE k first BLOCK 0");
            let asked = format!("SEM.ACQUIRE k second LIMIT {limit} BLOCK 0{queue}");
            let answer = c.line(&asked);
            assert!(only_reply(&mut first).int() > 0);
            assert_eq!(answer.is_error(), !is_granted, "{asked}");
            assert_eq!(server.stat("sem_busy"), u64::from(!is_granted));
            c.line("SEM.RELEASE k first");
            c.line("SEM.RELEASE k second");
            assert_content(&mut c, &[], &limit.to_string());
        }
    }
}

/// More permits are over than one request reads, and they are owed: the next request for many gets its permits.
#[test]
fn a_debt_that_is_over_is_paid_for_a_request_for_many() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 1000");
    for i in 0..15 {
        assert!(c.line(&format!("SEM.ACQUIRE k {i} COUNT 64 PX 100")).int() > 0);
    }
    c.line("SEM.SET k 500");
    wait_for("the ends of all", || {
        c.line("SEM.INFO k").field("held").expect("held").int() == 0
    });
    wait_for("the permits", || {
        c.line("SEM.ACQUIRE k many COUNT 64").maybe_int().is_some()
    });
}

/// The lease of an id ends unnoticed while another one waits, and the id asks again: its former grant has ended.
#[test]
fn a_grant_that_is_over_is_forgotten_when_its_permit_goes_to_a_waiter() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 1");
    c.line("SEM.ACQUIRE k a PX 600000");
    let mut waiter = parked(&server, "SEM.ACQUIRE k b BLOCK 0");
    c.line("MULTI");
    c.line("SEM.RENEW k a PX 10");
    let busy = "local t = redis.call('TIME') local e = t[1] * 1000 + t[2] / 1000 + 60 \
                repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > e";
    c.run(["EVAL", busy, "0"]);
    c.line("SEM.ACQUIRE k a");
    assert!(c.line("EXEC").list()[2].is_nil());
    assert!(only_reply(&mut waiter).int() > 0);
    c.line("SEM.RELEASE k b");
    assert_eq!(server.stat("sem_grants_tracked"), 0);
    assert_content(&mut c, &[], "1");
    server.check_counters();
}
