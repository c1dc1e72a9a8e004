//! `SEQ` and `FINAL`: a request of an acquisition that was given up grants nothing, however late it is served.

use crate::common::{wait_for, TestServer};
use crate::tickets::scene::{message, subscribe};

fn finals(server: &TestServer) -> [u64; 3] {
    ["finals", "finals_refused", "finals_forgotten"].map(|field| server.stat(field))
}

/// Every request that acquires, of the owner o.
const REQUESTS: [&str; 5] = [
    "LOCK.ACQUIRE k o",
    "LOCK.ACQUIRE k o READ",
    "LOCK.ACQUIRE k o WRITE",
    "LOCK.MACQUIRE 2 other k o",
    "SEM.ACQUIRE k o LIMIT 1",
];

/// The release that gives it up.
fn give_up(request: &str) -> &'static str {
    match request.split_once('.') {
        Some(("SEM", _)) => "SEM.RELEASE k o",
        Some((_, rest)) if rest.starts_with('M') => "LOCK.MRELEASE 2 other k o",
        _ => "LOCK.RELEASE k o",
    }
}

#[test]
fn a_request_that_was_given_up_grants_nothing_and_keeps_no_place() {
    let server = TestServer::start();
    let mut c = server.conn();
    let _heard = subscribe(&server, "ch");
    for (round, request) in REQUESTS.iter().enumerate() {
        let last = 10 * (round + 1);
        let release = |number: usize| format!("{} FINAL {number}", give_up(request));
        assert_eq!(c.line(&release(last)).maybe_int().unwrap_or(0), 0);
        for how in ["", "BLOCK 0", "BLOCK 0 NOTIFY ch t", "SESSION", "EX 9"] {
            for seq in [last, 1] {
                let reply = c.line(&format!("{request} {how} SEQ {seq}"));
                assert!(reply.is_nil(), "{request} {how} SEQ {seq}: {reply:?}");
            }
        }
        assert_eq!(c.line("EXISTS k other").int(), 0, "{request}");
        assert_eq!(server.stat("places_kept"), 0);
        let present = [1, 1, 1, 2, 3][round];
        assert_eq!(finals(&server), [present, 10 * (round as u64 + 1), 0]);
        // The next acquisition, and one without a number.
        for seq in [format!("SEQ {}", last + 1), String::new()] {
            let granted = c.line(&format!("{request} {seq}"));
            assert!(!granted.is_nil() && !granted.is_error(), "{request} {seq}");
            assert!(c.line(&release(last + 1)).int() > 0, "{request} {seq}");
            c.line("DEL k");
        }
    }
    let refused = c.line("LOCK.ACQUIRE k o SEQ 7 WITHHOLDER").list();
    assert!(refused[0].is_nil() && refused[1].is_nil(), "{refused:?}");
}

#[test]
fn a_final_release_ends_every_hold_and_the_wait() {
    let server = TestServer::start();
    let (mut c, mut heard) = (server.conn(), subscribe(&server, "ch"));
    // Held twice; and a reader that writes too.
    for (grants, mode) in [
        (["LOCK.ACQUIRE k o", "LOCK.ACQUIRE k o"], ""),
        (["LOCK.ACQUIRE k o READ", "LOCK.ACQUIRE k o READ"], "READ"),
        (["LOCK.ACQUIRE k o WRITE", "LOCK.ACQUIRE k o READ"], "WRITE"),
    ] {
        for line in grants {
            assert!(c.line(line).int() > 0);
        }
        assert_eq!(c.line("LOCK.RELEASE k o FINAL 1").int(), 1, "{mode}");
        assert_eq!(c.line("EXISTS k").int(), 0, "{mode}");
    }
    // A reader that waits to write.
    c.line("LOCK.ACQUIRE k o READ PX 600000");
    c.line("LOCK.ACQUIRE k p READ PX 600000");
    c.line("LOCK.ACQUIRE k o WRITE BLOCK 0 NOTIFY ch upgrade");
    assert_eq!(c.line("LOCK.RELEASE k o FINAL 1").int(), 1);
    c.line("LOCK.RELEASE k p");
    assert_eq!(c.line("EXISTS k").int(), 0, "nothing was granted");
    // Waiters, parked or not, of a lock, of several, and of a semaphore.
    c.line("LOCK.ACQUIRE k holder PX 600000");
    c.line("SEM.SET s 0");
    for (wait, release) in [
        ("LOCK.ACQUIRE k o", "LOCK.RELEASE k o FINAL 2"),
        ("LOCK.MACQUIRE 2 j k o", "LOCK.RELEASE j o FINAL 3"),
        ("SEM.ACQUIRE s o", "SEM.RELEASE s o FINAL 2"),
    ] {
        let mut parked = server.conn();
        parked.send_line(&format!("{wait} BLOCK 0"));
        wait_for("a waiter", || {
            server.stat("waiters") + server.stat("sem_waiters") == 1
        });
        assert_eq!(c.line(release).int(), 1, "{release}");
        assert!(parked.recv().is_nil());
        assert_eq!(
            c.line(&format!("{wait} BLOCK 0 NOTIFY ch t")).text(),
            "QUEUED"
        );
        assert_eq!(c.line(release).int(), 1, "{release}");
        assert!(c.line(release).is_nil(), "{release}");
    }
    // The next waiter is granted what the owner held.
    assert_eq!(
        c.line("LOCK.ACQUIRE k next BLOCK 0 NOTIFY ch next").text(),
        "QUEUED"
    );
    assert_eq!(c.line("LOCK.RELEASE k holder FINAL 1").int(), 1);
    assert!(message(&mut heard).starts_with("granted "));
}

#[test]
fn a_repeated_release_ends_no_later_acquisition() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (acquire, release) in [
        ("LOCK.ACQUIRE k o", "LOCK.RELEASE k o"),
        ("SEM.ACQUIRE s o LIMIT 1", "SEM.RELEASE s o"),
    ] {
        assert!(c.line(&format!("{release} FINAL 1")).is_nil());
        assert!(c.line(&format!("{acquire} SEQ 2")).int() > 0);
        assert!(c.line(&format!("{release} FINAL 1")).is_nil(), "{release}");
        assert_eq!(c.line(&format!("{release} FINAL 2")).int(), 1, "{release}");
    }
    c.line("LOCK.MRELEASE 2 a b o FINAL 1");
    c.line("LOCK.MACQUIRE 2 a b o SEQ 2");
    assert_eq!(c.line("LOCK.MRELEASE 2 a b o FINAL 1").int(), 0);
    assert_eq!(c.line("EXISTS a b").int(), 2);
}

#[test]
fn a_release_that_failed_can_be_repeated() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o WRITE PX 600000 SEQ 1");
    c.line("MULTI");
    c.line("CLIENT PAUSE 600000 WRITE");
    c.line("LOCK.RELEASE k o FINAL 1");
    let failed = c.line("EXEC").list();
    assert!(failed[1].error().starts_with("TRYAGAIN"), "{failed:?}");
    c.line("CLIENT UNPAUSE");
    assert!(c.line("LOCK.ACQUIRE k o WRITE SEQ 1").is_nil());
    assert!(c.line("LOCK.ACQUIRE k o WRITE SEQ 2").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k o FINAL 1").int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

/// Its user may not write the keys beside a semaphore: the release is refused, and the wait that it ended is answered
/// in the same tick.
#[test]
fn a_wait_that_a_refused_release_ended_is_answered_at_once() {
    let server = TestServer::with(&["--hz", "1", "--dynamic-hz", "no"]);
    let mut admin = server.conn();
    admin.line("ACL SETUSER w reset on nopass +@all ~j &*");
    admin.line("SEM.ACQUIRE j one LIMIT 1 PX 600000");
    let mut parked = server.conn();
    parked.send_line("SEM.ACQUIRE j q BLOCK 0 SEQ 1");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    let mut user = server.conn();
    user.line("AUTH w any");
    let refused = user.line("SEM.RELEASE j q FINAL 1");
    assert!(refused.error().starts_with("NOPERM"));
    assert!(parked.recv().is_nil());
    assert_eq!(server.stat("sem_waits_withdrawn"), 1);
}

#[test]
fn several_keys_are_given_up_in_one_command() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.MACQUIRE 2 a b o SEQ 1");
    c.line("LOCK.ACQUIRE b o");
    c.line("SET foreign text");
    assert_eq!(c.line("LOCK.MRELEASE 3 a b c o FINAL 1").int(), 2);
    assert_eq!(c.line("EXISTS a b").int(), 0);
    for line in ["LOCK.ACQUIRE c o SEQ 1", "LOCK.MACQUIRE 2 x b o SEQ 1"] {
        assert!(c.line(line).is_nil(), "{line}");
    }
    // An error at one key keeps no other.
    c.line("LOCK.MACQUIRE 2 a b o SEQ 2");
    let wrong = c.line("LOCK.MRELEASE 3 a foreign b o FINAL 2");
    assert!(wrong.error().starts_with("WRONGTYPE"));
    assert_eq!(c.line("EXISTS a b").int(), 0);
}

#[test]
fn numbers_stay_for_their_time_whatever_becomes_of_the_data() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.RELEASE k o FINAL 1");
    for line in ["FLUSHALL", "SWAPDB 0 1", "SWAPDB 0 1"] {
        c.line(line);
        assert!(c.line("LOCK.ACQUIRE k o SEQ 1").is_nil(), "{line}");
    }
    c.line("SELECT 1");
    assert!(
        c.line("LOCK.ACQUIRE k o SEQ 1").int() > 0,
        "another database"
    );
    c.line("SELECT 0");
    c.line("CONFIG SET lock.max-finals 1");
    c.line("LOCK.RELEASE other o FINAL 1");
    assert!(c.line("LOCK.ACQUIRE other o SEQ 1").is_nil());
    assert!(c.line("LOCK.ACQUIRE k o SEQ 1").int() > 0, "forgotten");
    assert_eq!(finals(&server), [1, 4, 1]);
    c.line("CONFIG SET lock.final-time 1");
    c.line("LOCK.RELEASE k o FINAL 1");
    wait_for("the end of its time", || {
        !c.line("LOCK.ACQUIRE k o SEQ 1").is_nil()
    });
    wait_for("nothing final", || server.stat("finals") == 0);
    // Nothing is remembered, for no time or for want of room.
    for (time, most) in [("0", "100"), ("60000", "0")] {
        c.line(&format!(
            "CONFIG SET lock.final-time {time} lock.max-finals {most}"
        ));
        c.line("LOCK.RELEASE k o FINAL 9");
        assert!(!c.line("LOCK.ACQUIRE k o SEQ 9").is_nil(), "{time} {most}");
    }
}

/// The server stands still. An acquire lies in its socket, the connection is closed, and the release comes through
/// another one. Whichever it serves first, nothing is held afterwards.
#[test]
fn a_request_in_the_socket_of_a_server_that_stood_still_grants_nothing() {
    let server = TestServer::start();
    for round in 0..20 {
        for (number, request) in REQUESTS.iter().enumerate() {
            let how = ["", "BLOCK 0", "BLOCK 0 NOTIFY ch t"][(round + number) % 3];
            // The one that was opened first may be served first, or the other one.
            let (mut one, mut other) = (server.conn(), server.conn());
            assert!(one.line("PING").text() == "PONG" && other.line("PING").text() == "PONG");
            let (mut late, mut releasing) = match round % 2 {
                0 => (one, other),
                _ => (other, one),
            };
            server.signal(libc::SIGSTOP);
            let seq = round * REQUESTS.len() + number + 1;
            late.send_line(&format!("{request} PX 600000 {how} SEQ {seq}"));
            drop(late);
            releasing.send_line(&format!("{} FINAL {seq}", give_up(request)));
            server.signal(libc::SIGCONT);
            releasing.recv();
            let mut c = server.conn();
            wait_for("the end of the connection", || {
                let clients = c.line("CLIENT LIST").text();
                clients.lines().count() == 2
            });
            for key in ["k", "other"] {
                let info = c.line(&format!("LOCK.INFO {key}"));
                assert!(
                    info.is_nil() || info.is_error(),
                    "{request} {how}: {info:?}"
                );
            }
            let info = c.line("SEM.INFO k");
            let held =
                (!info.is_nil() && !info.is_error()).then(|| info.field("held").unwrap().int());
            assert!(
                held.is_none_or(|held| held == 0),
                "{request} {how}: {info:?}"
            );
            assert_eq!(server.stat("waiters") + server.stat("sem_waiters"), 0);
            c.line("FLUSHALL");
        }
    }
}

#[test]
fn who_holds_the_lock_is_not_told_to_a_user_who_may_not_ask() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("ACL SETUSER eve on nopass ~k &* +@all -@dangerous");
    c.line("LOCK.ACQUIRE k holder READ PX 600000");
    let mut eve = server.conn();
    eve.line("AUTH eve any");
    eve.line("LOCK.RELEASE k o FINAL 1");
    eve.line("SEM.RELEASE k o FINAL 1");
    for line in [
        "LOCK.ACQUIRE k o READ SEQ 1 WITHHOLDER",
        "LOCK.MACQUIRE 1 k o READ SEQ 1",
        "SEM.ACQUIRE k o SEQ 1",
    ] {
        assert!(eve.line(line).error().starts_with("NOPERM"), "{line}");
    }
}

/// Late or not: a client learns of its mistake.
#[test]
fn a_late_request_with_a_wrong_option_is_refused() {
    let server = TestServer::start();
    let mut c = server.conn();
    for request in REQUESTS {
        c.line(&format!("{} FINAL 1", give_up(request)));
        let unheard = c.line(&format!("{request} BLOCK 0 NOTIFY ch t SEQ 1"));
        assert_eq!(unheard.error().split_once(' ').unwrap().0, "NOSUBSCRIBER");
    }
}

#[test]
fn a_late_request_releases_no_hold_of_a_closed_connection() {
    let server = TestServer::start();
    let mut c = server.conn();
    for request in REQUESTS {
        c.line(&format!("{} FINAL 1", give_up(request)));
        let mut holder = server.conn();
        let kill = format!("CLIENT KILL ID {}", holder.id());
        assert!(!holder.line(&format!("{request} SESSION SEQ 2")).is_nil());
        // In one transaction: the hold is due to be released, and nothing but a request of its owner does it before the
        // end.
        let late = format!("{request} SEQ 1");
        let held = match request.starts_with("SEM") {
            true => "ZCARD {k}:timeout",
            false => "EXISTS k",
        };
        c.send_lines(&["MULTI", &kill, &late, held, "EXEC"]);
        (0..4).for_each(|_| drop(c.recv()));
        let replies = c.recv().list();
        assert!(replies[1].is_nil(), "{request}: {replies:?}");
        assert_eq!(replies[2].int(), 1, "{request}: {replies:?}");
        wait_for("the hold is released", || server.stat("session_holds") == 0);
        c.line("DEL k");
    }
}

/// One user's numbers do not push out those of another, however many it notes.
#[test]
fn a_user_makes_the_server_forget_its_own_numbers_only() {
    let server = TestServer::with(&["--lock.max-finals", "50"]);
    let mut admin = server.conn();
    let mut login = |name: &str| {
        admin.line(&format!("ACL SETUSER {name} reset on nopass +@all ~* &*"));
        let mut conn = server.conn();
        assert_eq!(conn.line(&format!("AUTH {name} x")).text(), "OK");
        conn
    };
    let (mut eve, mut victim) = (login("eve"), login("victim"));
    // Alone, a user has room for as many as there may be.
    for number in 0..50 {
        eve.line(&format!("LOCK.RELEASE k eve{number} FINAL 1"));
    }
    assert_eq!(finals(&server), [50, 0, 0]);
    victim.line("LOCK.RELEASE k victim FINAL 1");
    victim.line("LOCK.MRELEASE 2 k j victims FINAL 1");
    victim.line("SEM.RELEASE s victim FINAL 1");
    let script = "return redis.call('lock.release', KEYS[1], 'scripted', 'FINAL', '1')";
    victim.run(["EVAL", script, "1", "k"]);
    for number in 0..200 {
        eve.line(&format!("LOCK.RELEASE k more{number} FINAL 1"));
    }
    for late in [
        "LOCK.ACQUIRE k victim SEQ 1",
        "LOCK.ACQUIRE j victims SEQ 1",
        "LOCK.MACQUIRE 2 k j victims SEQ 1",
        "SEM.ACQUIRE s victim LIMIT 1 SEQ 1",
        "LOCK.ACQUIRE k scripted SEQ 1",
        "LOCK.ACQUIRE k more199 SEQ 1",
    ] {
        assert!(victim.line(late).is_nil(), "{late}");
    }
    assert!(eve.line("LOCK.ACQUIRE k more0 SEQ 1").int() > 0, "its own");
    assert_eq!(finals(&server), [50, 6, 205]);
}
