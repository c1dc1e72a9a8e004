//! Semaphores whose names differ in the braces only share the key of their permits: after one was deleted, its permits
//! do not count as those of the other.

use crate::commands::names_collide::{dump, refused, TAKEN};
use crate::common::{wait_for, Conn, TestServer};

/// Deletes `s` while a permit of it is held, lets these commands grant the same id a permit of `{s}`, and sets a number
/// at `s` again.
fn let_the_twin_follow(c: &mut Conn, second: &[&str]) {
    c.line("DEL s");
    for line in second {
        let response = c.line(line);
        assert!(!response.is_error(), "{line}: {response:?}");
    }
    c.line("SET s 5");
}

#[test]
fn a_permit_of_a_deleted_semaphore_does_not_become_its_twins() {
    let at_one_moment = [
        "MULTI",
        "SEM.ACQUIRE s o LIMIT 1 EX 1000",
        "DEL s",
        "SEM.SET {s} 1",
        "SEM.ACQUIRE {s} o EX 1000",
        "EXEC",
    ];
    for second in [
        &["SEM.SET {s} 1", "SEM.ACQUIRE {s} o EX 1000"][..],
        &["SET {s} 0", "ZADD {s}:timeout 922337203685477 o"],
        &at_one_moment,
    ] {
        let server = TestServer::start();
        let mut c = server.conn();
        c.line("SEM.SET s 1");
        c.line("SEM.ACQUIRE s o").int();
        let_the_twin_follow(&mut c, second);
        let before = dump(&mut c, "{s}:timeout");
        for line in [
            "SEM.RELEASE s o",
            "SEM.RENEW s o EX 5",
            "SEM.ACQUIRE s o EX 5000",
            "SEM.ACQUIRE s o SESSION BLOCK 0",
        ] {
            refused(&mut c, line, TAKEN);
        }
        assert_eq!(dump(&mut c, "{s}:timeout"), before, "{second:?}");
        assert_eq!(c.line("GET s").text(), "5");
        // The twin is unchanged, and the permit is its own once the number is gone.
        c.line("DEL s");
        assert_eq!(c.line("SEM.RENEW {s} o EX 5").int(), 1);
        assert_eq!(c.line("SEM.RELEASE {s} o").int(), 1);
        assert_eq!(c.line("GET {s}").text(), "1");
        server.check_counters();
    }
}

#[test]
fn a_session_does_not_end_or_renew_the_permit_of_a_twin() {
    for renews in [false, true] {
        let lease = if renews { "300" } else { "60000" };
        let server = TestServer::with(&["--lock.session-lease", lease]);
        let (mut bound, mut c) = (server.conn(), server.conn());
        c.line("SEM.SET s 1");
        bound.line("SEM.ACQUIRE s o SESSION").int();
        c.line("MULTI");
        let_the_twin_follow(&mut c, &["SET {s} 0", "ZADD {s}:timeout 922337203685477 o"]);
        c.line("INFO lock");
        // Renewals may have been due before.
        let info = c.line("EXEC").list().pop().expect("INFO").text();
        let before = dump(&mut c, "{s}:timeout");
        if !renews {
            bound.close();
        }
        wait_for("the end of the binding", || {
            server.stat("session_losses") == 1
        });
        assert_eq!(server.stat("session_holds"), 0);
        let renewals = format!("lock_session_renewals:{}", server.stat("session_renewals"));
        assert!(
            info.lines().any(|line| line == renewals),
            "{renewals}, after {info}"
        );
        assert_eq!(dump(&mut c, "{s}:timeout"), before);
        assert_eq!(c.line("GET s").text(), "5");
        assert_eq!(c.line("GET {s}").text(), "0");
    }
}

#[test]
fn a_permit_stays_its_semaphores_own_after_renewals_beside_a_twin() {
    let server = TestServer::with(&["--lock.session-lease", "600"]);
    let (mut bound, mut c) = (server.conn(), server.conn());
    c.line("SEM.SET k 4");
    for id in ["a", "b", "c"] {
        c.line(&format!("SEM.ACQUIRE k {id} PX 60000")).int();
    }
    bound.line("SEM.ACQUIRE k d SESSION").int();
    wait_for("renewals", || server.stat("session_renewals") >= 2);
    c.line("SET {k} 1");
    assert_eq!(c.line("SEM.RENEW k a PX 70000").int(), 1);
    assert_eq!(c.line("SEM.RENEW k a PX 50000").int(), 1);
    assert!(c.line("SEM.ACQUIRE k b PX 90000").int() > 0);
    for id in ["a", "b"] {
        assert_eq!(c.line(&format!("SEM.RELEASE k {id}")).int(), 1, "{id}");
    }
    bound.close();
    wait_for("the end of the session", || c.line("GET k").text() == "3");
    // After a renewal by a script, like that of a Redisson client, it may be the twin's; without a twin it is not.
    c.line("ZADD {k}:timeout XX 922337203685477 c");
    refused(&mut c, "SEM.RELEASE k c", TAKEN);
    c.line("DEL {k}");
    assert!(c.line("SEM.ACQUIRE k c").int() > 0);
    c.line("SET {k} 1");
    assert_eq!(c.line("SEM.RELEASE k c").int(), 1);
    assert_eq!(c.line("GET k").text(), "4");
    server.check_counters();
}

#[test]
fn a_debt_is_not_paid_with_permits_of_a_twin() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 2");
    c.line("SEM.ACQUIRE k a PX 60000").int();
    c.line("SEM.ACQUIRE k b PX 60000").int();
    for i in 0..150 {
        c.line(&format!("ZADD {{k}}:timeout 1000000000000 {i}"));
    }
    c.line("SET {k} 1");
    c.line("SET k -200");
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    // A permit that the timer grants later: by then it has settled the semaphore.
    c.line("SEM.ACQUIRE z a LIMIT 1 PX 30").int();
    assert!(c.line("SEM.ACQUIRE z b BLOCK 0").int() > 0);
    assert_eq!(c.line("ZCARD {k}:timeout").int(), 151);
    assert_eq!(c.line("GET k").text(), "-199");
    c.line("DEL {k}");
    wait_for("the permits that are owed", || {
        c.line("GET k").text() == "-49"
    });
}
