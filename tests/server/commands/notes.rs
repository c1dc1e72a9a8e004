//! `NOTE`: a text beside an exclusive hold and beside a waiter.

use crate::common::replica::ReplicationStream;
use crate::common::{wait_for, Conn, Reply, TestServer};
use crate::tickets::scene::subscribe;

/// The notes of the holder and of the waiters; `None`: nil.
fn notes(conn: &mut Conn) -> (Option<String>, Vec<Option<String>>) {
    let info = conn.line("LOCK.INFO k WAITERS");
    let text = |of: &Reply| {
        let note = of.field("note").unwrap();
        (!note.is_nil()).then(|| note.text())
    };
    let list = |name| info.field(name).map_or(Vec::new(), |list| list.list());
    let holder = list("holders").first().and_then(text);
    (holder, list("queue").iter().map(text).collect())
}

fn some(note: &str) -> Option<String> {
    Some(note.into())
}

#[test]
fn a_note_comes_with_the_hold_and_goes_with_it() {
    let server = TestServer::start();
    let mut stream = ReplicationStream::attach(&server);
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k o PX 60000 NOTE one").int();
    assert_eq!(notes(&mut c).0, some("one"));
    assert_eq!(c.line("HGET k #note:o").text(), "one");
    assert_eq!(
        c.line("LOCK.ACQUIRE k o PX 60000 ONCE NOTE two").int(),
        token
    );
    assert_eq!(notes(&mut c).0, some("two"));
    assert_eq!(c.line("LOCK.ACQUIRE k o PX 60000").int(), token);
    assert_eq!(c.line("LOCK.RENEW k o PX 70000").int(), 1);
    assert_eq!(notes(&mut c).0, some("two"));
    assert_eq!(c.line("LOCK.RENEW k o PX 80000 NOTE three").int(), 1);
    assert_eq!(notes(&mut c).0, some("three"));
    assert_eq!(c.line("LOCK.IF k 1 GET d").error()[..6], *"FENCED");
    assert_eq!(c.line(&format!("LOCK.IF k {token} SET d 1")).text(), "OK");
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 0);
    assert_eq!(c.line("LOCK.ACQUIRE k p WITHHOLDER").list()[1].text(), "o");
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
    c.line("LOCK.ACQUIRE k o PX 60000");
    assert_eq!(notes(&mut c).0, None);
    let seen = stream.until_now(&server).join("\n").to_lowercase();
    for note in ["one", "two", "three"] {
        assert!(seen.contains(&format!("hset k #note:o {note}")), "{seen}");
    }
}

#[test]
fn a_waiter_shows_its_note_and_brings_it_with_the_grant() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 60000 NOTE holder");
    let bytes = || server.stat("wait_bytes");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k p PX 60000 BLOCK 0 NOTE waiting");
    server.wait_for_waiters(1);
    assert_eq!(notes(&mut c), (some("holder"), vec![some("waiting")]));
    let with_note = bytes();
    // The newer request takes the place, and has no note.
    let mut newer = server.conn();
    newer.send_line("LOCK.ACQUIRE k p PX 60000 BLOCK 0");
    assert!(waiter.recv().is_nil());
    assert_eq!(notes(&mut c), (some("holder"), vec![None]));
    assert_eq!(bytes(), with_note - "waiting".len() as u64);
    let mut third = server.conn();
    third.send_line("LOCK.ACQUIRE k q PX 60000 BLOCK 0 NOTE last");
    server.wait_for_waiters(2);
    c.line("LOCK.RELEASE k o");
    newer.recv().int();
    assert_eq!(notes(&mut c), (None, vec![some("last")]));
    c.line("LOCK.RELEASE k p");
    third.recv().int();
    assert_eq!(notes(&mut c), (some("last"), vec![]));
    assert_eq!(bytes(), 0);
}

#[test]
fn a_ticket_brings_its_note_too() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 60000");
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE ch");
    let queued = c.line("LOCK.ACQUIRE k p PX 60000 BLOCK 0 NOTIFY ch t NOTE ticket");
    assert_eq!(queued.text(), "QUEUED");
    assert_eq!(notes(&mut c), (None, vec![some("ticket")]));
    c.line("LOCK.RELEASE k o");
    assert_eq!(notes(&mut c).0, some("ticket"));
}

#[test]
fn a_note_is_any_bytes_and_changes_nothing_for_others() {
    let server = TestServer::start();
    let mut c = server.conn();
    let note: Vec<u8> = (0..=255).collect();
    let words = [b"LOCK.ACQUIRE".as_slice(), b"k", b"o", b"NOTE", &note];
    let token = c.run(words).int();
    let holder = c.line("LOCK.INFO k").field("holders").unwrap().list()[0].clone();
    assert_eq!(holder.field("note").unwrap().bytes(), note);
    // The scripts of Redisson's lock look at the owner's field alone.
    let take = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
                return redis.call('hincrby', KEYS[1], ARGV[1], 1) end return -1";
    assert_eq!(c.run(["EVAL", take, "1", "k", "o"]).int(), 2);
    assert_eq!(c.run(["EVAL", take, "1", "k", "p"]).int(), -1);
    assert_eq!(c.line("LOCK.ACQUIRE k o ONCE").int(), token);
    // A holder that was removed by hand leaves a free lock.
    c.line("HDEL k o");
    assert!(c.line("LOCK.ACQUIRE k p NOTE p").int() > token);
    assert_eq!(c.line("HLEN k").int(), 3);
}

#[test]
fn a_note_belongs_to_one_holder() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 60000 NOTE mine");
    // A script changes the owner, and no more.
    c.line("HDEL k o");
    c.line("HSET k p 1");
    assert_eq!(notes(&mut c).0, None);
    assert_eq!(c.line("LOCK.RENEW k p PX 60000 NOTE other").int(), 1);
    assert_eq!(notes(&mut c).0, some("other"));
    assert_eq!(c.line("LOCK.RELEASE k p").int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

/// What `HDEL`, or the TTLs of fields, leave of a lock, and fields of a later version.
const LEFT: [&str; 6] = [
    "#token t5",
    "#note:o text",
    "#token t5 #note:o text",
    "#later 1",
    "#later x #token t5",
    "#a 1 #b 2 #c 3",
];

fn leave(c: &mut Conn, fields: &str) {
    c.line("DEL k");
    c.line(&format!("HSET k {fields}"));
    c.line("PEXPIRE k 600000");
}

#[test]
fn a_hash_of_the_modules_own_fields_is_a_free_lock() {
    let server = TestServer::start();
    let mut c = server.conn();
    for left in LEFT {
        for take in [
            "LOCK.ACQUIRE k p PX 60000",
            "LOCK.ACQUIRE k p PX 60000 NOTE x",
            "LOCK.ACQUIRE k p PX 60000 READ",
            "LOCK.ACQUIRE k p PX 60000 WRITE",
            "LOCK.ACQUIRE k p PX 60000 BLOCK 0",
            "LOCK.BREAK k TO p PX 60000",
        ] {
            leave(&mut c, left);
            assert!(c.line(take).int() > 5, "{left}: {take}");
            let fields = c.line("HKEYS k").list();
            let is_old = |field: &Reply| {
                !["p", "#token", "#note:p", "mode", "p:write"].contains(&&*field.text())
            };
            assert!(!fields.iter().any(is_old), "{left}: {take}: {fields:?}");
            assert_eq!(c.line("LOCK.RELEASE k p").int(), 1, "{left}: {take}");
            assert_eq!(c.line("EXISTS k").int(), 0);
        }
        leave(&mut c, left);
        assert_eq!(c.line("LOCK.MACQUIRE 2 j k p").list().len(), 2, "{left}");
        c.line("LOCK.MRELEASE 2 j k p");
        leave(&mut c, left);
        assert!(c.line("LOCK.RELEASE k o").is_nil(), "{left}");
        assert_eq!(c.line("LOCK.RENEW k o").int(), 0, "{left}");
        assert_eq!(c.line("LOCK.MRENEW 1 k o").int(), 0, "{left}");
        assert_eq!(c.line("LOCK.MRELEASE 1 k o").int(), 0, "{left}");
        assert_eq!(c.line("LOCK.BREAK k").int(), 0, "{left}");
        assert!(c.line("LOCK.INFO k").is_nil(), "{left}");
        assert_eq!(c.line("LOCK.SCAN 0").list()[1].list().len(), 0, "{left}");
        assert!(c.line("LOCK.IF k 5 SET d 1").error().starts_with("FENCED"));
    }
}

#[test]
fn a_waiter_is_granted_the_lock_when_the_owners_field_goes() {
    let server = TestServer::start();
    let mut c = server.conn();
    for fields in ["o", "o #token", "o #note:o"] {
        c.line("LOCK.ACQUIRE k o PX 600000 NOTE text");
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        c.line(&format!("HDEL k {fields}"));
        assert!(waiter.recv().int() > 0, "{fields}");
        assert_eq!(c.line("HLEN k").int(), 2);
        c.line("LOCK.RELEASE k p");
    }
    server.check_counters();
}

#[test]
fn fields_of_a_later_version_are_kept_and_ignored() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k o PX 60000").int();
    c.line("HSET k #later x #more 1");
    assert_eq!(c.line("LOCK.ACQUIRE k o ONCE").int(), token);
    assert_eq!(c.line("LOCK.ACQUIRE k o NOTE text").int(), token);
    assert_eq!(c.line("LOCK.RENEW k o").int(), 1);
    assert!(c.line("LOCK.ACQUIRE k p").is_nil());
    assert_eq!(c.line(&format!("LOCK.IF k {token} SET d 1")).text(), "OK");
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 0);
    assert_eq!(c.line("HGET k #later").text(), "x");
    assert_eq!(c.line("HGET k #more").text(), "1");
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    // So many fields are no lock's.
    let many: Vec<_> = (0..17).map(|n| format!("#{n} x")).collect();
    c.line(&format!("HSET k o 1 {}", many.join(" ")));
    assert!(c.line("LOCK.RENEW k o").error().starts_with("LOCKTYPE"));
    // Redisson counts the fields of a read-write lock: there it is foreign data.
    c.line("LOCK.ACQUIRE r o READ");
    c.line("HSET r #later x");
    assert!(c.line("LOCK.RENEW r o").error().starts_with("LOCKTYPE"));
}

#[test]
fn notes_that_are_too_long_or_of_other_holds_are_refused() {
    let server = TestServer::start();
    let mut c = server.conn();
    let long = "x".repeat(257);
    for command in ["LOCK.ACQUIRE", "LOCK.RENEW"] {
        let error = c.run([command, "k", "o", "NOTE", &long]).error();
        assert_eq!(error, "ERR the note is longer than 256 bytes");
        let error = c.line(&format!("{command} k o READ NOTE x")).error();
        assert_eq!(
            error,
            "ERR syntax error: NOTE is for exclusive locks, without READ and WRITE"
        );
    }
    assert!(c.line("LOCK.MACQUIRE 1 k o NOTE x").is_error());
    c.line("LOCK.ACQUIRE k o WRITE");
    let error = c.line("LOCK.RENEW k o NOTE x").error();
    assert!(error.starts_with("LOCKTYPE"), "{error}");
}

/// What ends the wait of `o` for `k`, a ticket of the user eve with a note, and what begins it again.
const ENDS: [(&str, &[&str]); 12] = [
    ("granted", &["LOCK.RELEASE k holder", "LOCK.RELEASE k o"]),
    ("withdrawn", &["LOCK.RELEASE k o"]),
    ("final", &["LOCK.RELEASE k o FINAL 9"]),
    (
        "taken over",
        &["LOCK.ACQUIRE k o BLOCK 0 NOTIFY ch t", "LOCK.RELEASE k o"],
    ),
    (
        "taken over by one of several",
        &[
            "LOCK.MACQUIRE 1 k o BLOCK 0 NOTIFY ch t",
            "LOCK.RELEASE k o",
        ],
    ),
    (
        "taken over by several",
        &[
            "LOCK.MACQUIRE 2 k l o BLOCK 0 NOTIFY ch t",
            "LOCK.MRELEASE 2 k l o",
        ],
    ),
    ("purged", &["LOCK.BREAK k PURGE"]),
    ("purged by user", &["LOCK.BREAK k PURGE USER eve"]),
    (
        "not permitted",
        &["ACL SETUSER eve resetkeys", "LOCK.RELEASE k holder"],
    ),
    ("deleted", &["ACL DELUSER eve"]),
    ("wrong type", &["SET k string"]),
    ("demoted", &["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"]),
];

#[test]
fn the_bytes_of_a_note_return_whatever_ends_its_wait() {
    let server = TestServer::with(&["--lock.queue-grace", "0"]);
    let mut c = server.conn();
    let _subscriber = subscribe(&server, "ch");
    let note = "n".repeat(256);
    for (name, end) in ENDS {
        c.line("FLUSHALL");
        c.line("ACL SETUSER eve reset on nopass +@all ~* &*");
        c.line("LOCK.ACQUIRE k holder PX 600000");
        let mut eve = server.conn();
        eve.line("AUTH eve x");
        let waits = eve.line(&format!("LOCK.ACQUIRE k o BLOCK 0 NOTIFY ch t NOTE {note}"));
        assert_eq!(waits.text(), "QUEUED", "{name}");
        assert!(server.stat("wait_bytes") > 512, "{name}");
        for line in end {
            let reply = c.line(line);
            assert!(!reply.is_error(), "{name}: {line}: {reply:?}");
        }
        wait_for(name, || server.stat("wait_bytes") == 0);
    }
}
