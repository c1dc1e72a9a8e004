//! `LOCK.BREAK ... TO`: a hold is broken and the lock granted to an owner, before all waiters.

use crate::commands::acl;
use crate::common::replica::ReplicationStream;
use crate::common::{wait_for, TestServer};

#[test]
fn the_lock_passes_to_the_owner_before_the_waiters() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = c.line("LOCK.ACQUIRE k a PX 600000").int();
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k b PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    let mut stream = ReplicationStream::attach(&server);
    let taken = "LOCK.BREAK k TO op PX 500000 NOTE repair";
    let token = c.line(taken).int();
    assert!(token > first);
    assert_eq!(c.line(taken).int(), token, "it can be sent again");
    assert_eq!(
        c.line("HGETALL k").list().len(),
        6,
        "a plain hold, its token, its note"
    );
    let info = c.line("LOCK.INFO k");
    let holder = &info.field("holders").unwrap().list()[0];
    assert_eq!(holder.field("owner").unwrap().text(), "op");
    assert_eq!(holder.field("note").unwrap().text(), "repair");
    let ttl = c.line("PTTL k").int();
    assert!((1..=500_000).contains(&ttl), "{ttl}");
    assert!(c.line("LOCK.RELEASE k a").is_nil());
    assert_eq!(c.line("LOCK.RENEW k a").int(), 0);
    let seen = stream.until_now(&server).join("\n").to_lowercase();
    assert!(seen.contains("hset k op 1 #token"), "{seen}");
    assert_eq!(server.stat("grants_broken"), 1);
    assert_eq!(c.line("LOCK.RELEASE k op").int(), 1);
    assert!(waiter.recv().int() > token);
}

#[test]
fn with_a_token_it_ends_only_that_hold() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k a").int();
    assert_eq!(
        c.line(&format!("LOCK.BREAK k TOKEN {} TO op", token + 1))
            .int(),
        0
    );
    let line = format!("LOCK.BREAK k TO op TOKEN {token}");
    assert!(c.line(&line).int() > token);
    c.line("LOCK.RELEASE k op");
    assert_eq!(c.line(&line).int(), 0, "the lock is free");
    assert!(c.line("LOCK.BREAK k TO op").int() > token);
}

#[test]
fn what_cannot_be_taken_stays() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE r a READ");
    c.line("SET string x");
    c.line("HSET hash field x");
    for (key, code) in [
        ("r", "LOCKTYPE"),
        ("string", "WRONGTYPE"),
        ("hash", "LOCKTYPE"),
    ] {
        let refused = c.line(&format!("LOCK.BREAK {key} TO op")).error();
        assert!(refused.starts_with(code), "{refused}");
    }
    assert_eq!(c.line("LOCK.RELEASE r a").int(), 1);
    assert_eq!(server.stat("grants_broken"), 0);
}

#[test]
fn an_acquisition_that_was_given_up_takes_nothing() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k a").int();
    assert!(c.line("LOCK.RELEASE k op FINAL 3").is_nil());
    assert_eq!(c.line("LOCK.BREAK k TO op SEQ 3").int(), 0);
    assert!(c.line("LOCK.BREAK k TO op SEQ 4").int() > token);
    assert_eq!(c.line("LOCK.RELEASE k op FINAL 4").int(), 1);
}

#[test]
fn a_session_ends_with_the_hold_that_is_broken() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut bound = server.conn();
    bound.line("LOCK.ACQUIRE k a SESSION");
    assert_eq!(server.stat("session_holds"), 1);
    let token = c.line("LOCK.BREAK k TO op PX 600000").int();
    assert_eq!(server.stat("session_holds"), 0);
    let id = bound.line("CLIENT ID").int();
    drop(bound);
    wait_for("the end of the connection", || {
        c.line(&format!("CLIENT LIST ID {id}")).text().is_empty()
    });
    let line = format!("LOCK.IF k {token} SET data 1");
    assert_eq!(c.line(&line).text(), "OK");
}

#[test]
fn it_needs_the_permission_to_break() {
    let server = TestServer::start();
    server.conn().line("LOCK.ACQUIRE k a");
    let mut plain = acl::user(&server, "plain", "+@all -@dangerous ~*");
    assert!(acl::is_denied(&mut plain, "LOCK.BREAK k TO op"));
    let mut operator = acl::user(&server, "operator", "+lock.break +del +client ~k");
    assert!(operator.line("LOCK.BREAK k TO op").int() > 0);
}
