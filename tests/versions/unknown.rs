//! Data that a version does not know, such as a later version may write: nothing is granted on it, and it stays.

use crate::common::{Reply, TestServer};
use crate::directions;

const LOCKED: &str = "LOCKTYPE the key holds a hash that is no lock";

/// From the first release on: the builds before it that `make test-versions` compares with refuse such a lock.
#[test]
fn a_lock_with_an_unknown_field_is_continued_and_keeps_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k a PX 600000").int();
    c.line("HSET k #later 1-2");
    assert!(c.line("LOCK.ACQUIRE k b").is_nil());
    assert_eq!(c.line("LOCK.ACQUIRE k a ONCE").int(), token);
    assert_eq!(c.line("LOCK.RENEW k a").int(), 1);
    assert_eq!(c.line("HGET k #later").text(), "1-2");
    assert_eq!(c.line("LOCK.RELEASE k a").int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

#[test]
fn a_token_of_an_unknown_form_is_refused_and_stays() {
    for (module, _) in directions() {
        let server = TestServer::with_module(&module, &[]);
        let mut c = server.conn();
        let token = c.line("LOCK.ACQUIRE k a PX 600000").int();
        let known = c.line("HGET k #token").text();
        c.line("HSET k #token u1");
        let before = c.snapshot_of("k");
        for command in [
            "ACQUIRE k b",
            "ACQUIRE k a ONCE",
            "RENEW k a",
            "RELEASE k a",
        ] {
            let reply = c.line(&format!("LOCK.{command}"));
            assert!(
                reply.is_error() && reply.error() == LOCKED,
                "{command}: {reply:?}"
            );
        }
        assert_eq!(c.snapshot_of("k"), before);
        c.run(["HSET", "k", "#token", &known]);
        assert_eq!(c.line("LOCK.ACQUIRE k a ONCE").int(), token);
    }
}

#[test]
fn an_unknown_word_is_a_syntax_error_and_changes_nothing() {
    for (module, _) in directions() {
        let server = TestServer::with_module(&module, &[]);
        let mut c = server.conn();
        for line in [
            "LOCK.ACQUIRE k a LATER 1",
            "SEM.ACQUIRE k a LATER 1",
            "LATCH.WAIT k LATER 1",
        ] {
            let error = Reply::error(&c.line(line));
            assert!(error.starts_with("ERR syntax error"), "{line}: {error}");
        }
        assert_eq!(c.line("DBSIZE").int(), 0);
    }
}

#[test]
fn a_horizon_of_an_unknown_form_is_replaced() {
    for (module, _) in directions() {
        let server = TestServer::with_module(&module, &[]);
        let mut c = server.conn();
        c.line("SET redis_lock:horizon later:1");
        let token = c.line("LOCK.ACQUIRE k a PX 600000").int();
        let horizon: i64 = c.line("GET redis_lock:horizon").text().parse().unwrap();
        assert!(horizon >= token, "{horizon} is below {token}");
    }
}
