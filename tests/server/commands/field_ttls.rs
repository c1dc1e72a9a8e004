//! Fields of a lock's hash that have a TTL of their own (Redis 7.4 and Valkey 9.0). The server counts them until it
//! removes them, which may be long after they expire.

use crate::common::{wait_for, Conn, TestServer};

/// A server that removes no field by itself; `None` and a printed line if fields have no TTL.
fn lazy() -> Option<(TestServer, Conn)> {
    let server = TestServer::start();
    let mut c = server.conn();
    if c.line("COMMAND INFO HPEXPIRE").list()[0].is_nil() {
        println!("skipped: this server has no fields that expire");
        return None;
    }
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    Some((server, c))
}

/// Lets these fields expire, and checks that the server still counts them.
fn run_out(c: &mut Conn, key: &str, fields: &[&str]) {
    let before = c.line(&format!("HLEN {key}")).int();
    for field in fields {
        c.line(&format!("HPEXPIRE {key} 1 FIELDS 1 {field}"));
        // Reading the field itself would remove it.
        wait_for("a field that is over", || {
            let fields = c.line(&format!("HKEYS {key}")).list();
            fields.iter().all(|found| found.text() != *field)
        });
    }
    assert_eq!(c.line(&format!("HLEN {key}")).int(), before);
}

#[test]
fn an_expired_field_does_not_make_a_lock_another_hash() {
    let Some((_server, mut c)) = lazy() else {
        return;
    };
    for over in [&["x"][..], &["x", "y"], &["x", "y", "z", "v", "w"]] {
        let token = c.line("LOCK.ACQUIRE k alice PX 60000").int();
        for field in over {
            c.line(&format!("HSET k {field} foreign"));
        }
        let refused = c.line("LOCK.RENEW k alice").error();
        assert!(refused.starts_with("LOCKTYPE"), "{refused}");
        run_out(&mut c, "k", over);
        assert_eq!(c.line("LOCK.RENEW k alice PX 60000").int(), 1);
        assert!(c.line("LOCK.ACQUIRE k bob").is_nil());
        assert_eq!(c.line("LOCK.ACQUIRE k alice ONCE").int(), token);
        assert_eq!(c.line("LOCK.RELEASE k alice").int(), 1);
        assert_eq!(c.line("EXISTS k").int(), 0);
    }
}

#[test]
fn a_holder_with_an_expired_field_holds_nothing() {
    let Some((server, mut c)) = lazy() else {
        return;
    };
    // As Redisson takes it, and as the module does: with an expired token, and with a live one.
    for over in [&["alice"][..], &["alice", "#token"]] {
        let first = c.line("LOCK.ACQUIRE k alice PX 60000").int();
        run_out(&mut c, "k", over);
        let fenced = c.line(&format!("LOCK.IF k {first} SET d 1"));
        assert!(fenced.error().starts_with("FENCED"), "{over:?}");
        assert_eq!(c.line("LOCK.RENEW k alice").int(), 0);
        assert!(c.line("LOCK.RELEASE k alice").is_nil());
        let second = c.line("LOCK.ACQUIRE k bob PX 60000").int();
        assert!(second > first);
        assert_eq!(
            c.line("HLEN k").int(),
            2,
            "nothing is left of the former hold"
        );
        c.line("LOCK.RELEASE k bob");
    }
    for next in ["", "READ", "WRITE"] {
        c.line("HSET k u:1 1");
        c.line("PEXPIRE k 60000");
        run_out(&mut c, "k", &["u:1"]);
        assert!(c.line(&format!("LOCK.ACQUIRE k bob {next}")).int() > 0);
        c.line("LOCK.RELEASE k bob");
    }
    server.check_counters();
}

#[test]
fn a_waiter_is_granted_the_lock_of_an_expired_field() {
    let Some((server, mut c)) = lazy() else {
        return;
    };
    for mode in ["", "READ"] {
        c.line(&format!("LOCK.ACQUIRE k alice {mode} PX 60000"));
        let mut waiter = server.conn();
        let asked = if mode.is_empty() { "" } else { "WRITE" };
        waiter.send_line(&format!("LOCK.ACQUIRE k bob {asked} BLOCK 0"));
        c.wait_for_waiters_on("k", 1);
        run_out(&mut c, "k", &["alice"]);
        // After any write to the key, the module reads it again.
        c.line("PEXPIRE k 50000");
        assert!(waiter.recv().int() > 0);
        c.line("LOCK.RELEASE k bob");
    }
    server.check_counters();
}

#[test]
fn readers_and_writers_with_expired_fields_do_not_block() {
    let Some((server, mut c)) = lazy() else {
        return;
    };
    c.line("LOCK.ACQUIRE k a READ PX 60000");
    c.line("LOCK.ACQUIRE k b READ PX 60000");
    run_out(&mut c, "k", &["b"]);
    assert!(c.line("LOCK.ACQUIRE k a WRITE PX 60000").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k a WRITE").int(), 1);
    assert!(c.line("LOCK.ACQUIRE k b READ PX 60000").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k a READ").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k b READ").int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);

    c.line("LOCK.ACQUIRE k a WRITE PX 60000");
    run_out(&mut c, "k", &["mode", "a:write"]);
    assert!(c.line("LOCK.ACQUIRE k c WRITE PX 60000").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k c").int(), 1);
    server.check_counters();
}
