//! docs/MIGRATION.md about migrating from `SET key value NX PX` with its scripts: both kinds of client on one name, in
//! either order, and the ways to migrate. The scripts are those of the page.

use crate::common::{Bystander, Conn, Reply, TestServer};

const PAGE: &str = include_str!("../../../docs/MIGRATION.md");

/// The page's scripts: release, then renew.
fn scripts() -> [String; 2] {
    let blocks = PAGE.split("```lua\n").skip(1);
    let texts: Vec<String> = blocks
        .map(|block| block.split("```").next().unwrap().to_string())
        .collect();
    texts.try_into().unwrap()
}

/// A client as in the left column of the page.
struct Old(Conn);

impl Old {
    fn on(server: &TestServer) -> Old {
        Old(server.conn())
    }

    fn acquire(&mut self, value: &str) -> bool {
        !self
            .0
            .run(["SET", "lock:42", value, "NX", "PX", "60000"])
            .is_nil()
    }

    fn release(&mut self, value: &str) -> Reply {
        let [release, _] = scripts();
        self.0.run(["EVAL", &release, "1", "lock:42", value])
    }

    fn renew(&mut self, value: &str) -> Reply {
        let [_, renew] = scripts();
        self.0.run(["EVAL", &renew, "1", "lock:42", value, "60000"])
    }
}

fn is_wrong_type(reply: &Reply) -> bool {
    reply.is_error() && reply.error().contains("WRONGTYPE")
}

#[test]
fn side_by_side_both_answer_alike() {
    let server = TestServer::start();
    let (mut old, mut new) = (Old::on(&server), server.conn());
    // With SET and the scripts.
    assert!(old.acquire("a") && !old.acquire("b"));
    assert_eq!((old.renew("a").int(), old.renew("b").int()), (1, 0));
    assert_eq!((old.release("b").int(), old.release("a").int()), (0, 1));
    assert_eq!(old.release("a").int(), 0);
    // With the module.
    assert!(new.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE").int() > 0);
    assert!(new.line("LOCK.ACQUIRE lock:42 b PX 60000 ONCE").is_nil());
    assert_eq!(new.line("LOCK.RENEW lock:42 a PX 60000").int(), 1);
    assert_eq!(new.line("LOCK.RENEW lock:42 b PX 60000").int(), 0);
    assert!(new.line("LOCK.RELEASE lock:42 b ALL").is_nil());
    assert_eq!(new.line("LOCK.RELEASE lock:42 a ALL").int(), 1);
    assert!(new.line("LOCK.RELEASE lock:42 a ALL").is_nil());
}

/// The reply to an acquire is lost, and the client repeats it.
#[test]
fn after_a_lost_reply_only_the_module_repeats_the_grant() {
    let server = TestServer::start();
    let (mut old, mut new) = (Old::on(&server), server.conn());
    assert!(old.acquire("a") && !old.acquire("a"));
    old.release("a");
    let token = new.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE");
    assert_eq!(new.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE"), token);
    assert_eq!(
        new.line("LOCK.RELEASE lock:42 a").int(),
        1,
        "one hold, not two"
    );
}

#[test]
fn a_parked_waiter_is_granted_without_asking_again() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    a.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE");
    b.send_line("LOCK.ACQUIRE lock:42 b PX 60000 BLOCK 5000 ONCE");
    server.wait_for_waiters(1);
    assert_eq!(a.line("LOCK.RELEASE lock:42 a ALL").int(), 1);
    assert!(b.recv().int() > 0);
}

/// An old client holds the lock: the module takes nothing, changes nothing, parks no client.
#[test]
fn a_string_is_left_alone_by_the_module() {
    let server = TestServer::start();
    let (mut old, mut new) = (Old::on(&server), server.conn());
    assert!(old.acquire("a"));
    let bystander = Bystander::of(&server, "lock:42");
    for line in [
        "LOCK.ACQUIRE lock:42 b PX 60000 ONCE",
        "LOCK.ACQUIRE lock:42 b PX 60000 BLOCK 0 ONCE",
        "LOCK.ACQUIRE lock:42 a PX 60000 ONCE",
        "LOCK.RENEW lock:42 a",
        "LOCK.RELEASE lock:42 a ALL",
        "LOCK.BREAK lock:42",
        "LOCK.INFO lock:42",
    ] {
        assert!(is_wrong_type(&new.line(line)), "{line}");
    }
    bystander.saw_nothing("a lock of the old kind");
    assert_eq!(server.stat("waits_parked"), 0);
    assert_eq!(old.release("a").int(), 1);
    assert!(new.line("LOCK.ACQUIRE lock:42 b PX 60000 ONCE").int() > 0);
}

/// A client of the module holds the lock: an old client that follows the scripts takes nothing and ends nothing.
#[test]
fn a_hash_is_held_for_old_clients_too() {
    let server = TestServer::start();
    let (mut old, mut new) = (Old::on(&server), server.conn());
    new.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE");
    let bystander = Bystander::of(&server, "lock:42");
    assert!(!old.acquire("b"));
    // The owner's own name makes no difference.
    for value in ["a", "b"] {
        assert!(is_wrong_type(&old.release(value)) && is_wrong_type(&old.renew(value)));
    }
    for line in ["GET lock:42", "GETDEL lock:42"] {
        assert!(is_wrong_type(&old.0.line(line)), "{line}");
    }
    bystander.saw_nothing("an old client that compares");
    assert_eq!(new.line("LOCK.RELEASE lock:42 a ALL").int(), 1);
    assert!(old.acquire("b"));
}

/// The server's own compare-and-delete, if it has one, refuses a hash as the script does.
#[test]
fn compare_and_delete_of_newer_servers_spares_a_hash() {
    let server = TestServer::start();
    let mut c = server.conn();
    for delete in ["DELEX lock:42 IFEQ a", "DELIFEQ lock:42 a"] {
        c.line("SET lock:42 a NX PX 60000");
        let known = !c.line(delete).is_error();
        assert_eq!(
            c.line("EXISTS lock:42").int(),
            i64::from(!known),
            "{delete}"
        );
        c.line("DEL lock:42");
        c.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE");
        let reply = c.line(delete);
        assert!(reply.is_error(), "{delete}: {reply:?}");
        assert_eq!(c.line("LOCK.RELEASE lock:42 a").int(), 1);
    }
}

/// A client that does not compare ends or renews any hold.
#[test]
fn old_clients_that_do_not_compare_end_any_hold() {
    let server = TestServer::start();
    let mut c = server.conn();
    let take = |c: &mut Conn| c.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE").int();
    take(&mut c);
    assert_eq!(c.line("PEXPIRE lock:42 90000").int(), 1);
    assert!(c.line("PTTL lock:42").int() > 60_000);
    assert_eq!(c.line("DEL lock:42").int(), 1);
    assert_eq!(c.line("LOCK.RENEW lock:42 a").int(), 0);
    take(&mut c);
    assert_eq!(c.line("SET lock:42 b PX 60000").text(), "OK");
    assert!(is_wrong_type(&c.line("LOCK.RENEW lock:42 a")));
}

/// An old client that polls gets the lock only when no client is parked; parked clients are granted before it.
#[test]
fn hand_offs_leave_no_gap_for_polling_clients() {
    let server = TestServer::start();
    let (mut old, mut a, mut b) = (Old::on(&server), server.conn(), server.conn());
    a.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE");
    b.send_line("LOCK.ACQUIRE lock:42 b PX 60000 BLOCK 0 ONCE");
    server.wait_for_waiters(1);
    // In one tick: the release, and the command right after it.
    a.send_lines(&["LOCK.RELEASE lock:42 a ALL", "SET lock:42 old NX PX 60000"]);
    assert_eq!(a.recv().int(), 1);
    assert!(a.recv().is_nil());
    assert!(b.recv().int() > 0);
    assert_eq!(b.line("LOCK.RELEASE lock:42 b ALL").int(), 1);
    assert!(old.acquire("old"));
}

/// The only way past a queue: the key is deleted and set before the module settles it.
#[test]
fn a_key_that_is_deleted_and_set_in_one_tick_sends_parked_clients_away() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    a.line("LOCK.ACQUIRE lock:42 a PX 60000 ONCE");
    b.send_line("LOCK.ACQUIRE lock:42 b PX 60000 BLOCK 0 ONCE");
    server.wait_for_waiters(1);
    a.send_lines(&[
        "MULTI",
        "DEL lock:42",
        "SET lock:42 old NX PX 60000",
        "EXEC",
    ]);
    assert!(is_wrong_type(&b.recv()));
}

/// With the setting each kind of client waits for the other's hold.
#[test]
fn one_name_for_both_with_the_setting() {
    let server = TestServer::with(&["--lock.string-holders", "yes"]);
    let (mut old, mut new) = (Old::on(&server), server.conn());
    assert!(old.acquire("a"));
    assert!(new.line("LOCK.ACQUIRE lock:42 b PX 60000 ONCE").is_nil());
    assert_eq!(new.line("LOCK.RENEW lock:42 a").int(), 0);
    assert!(new.line("LOCK.RELEASE lock:42 a ALL").is_nil());
    new.send_line("LOCK.ACQUIRE lock:42 b PX 60000 BLOCK 0 ONCE");
    server.wait_for_waiters(1);
    assert_eq!((old.renew("a").int(), old.release("a").int()), (1, 1));
    assert!(new.recv().int() > 0);
    assert!(!old.acquire("a"));
    assert_eq!(new.line("LOCK.RELEASE lock:42 b ALL").int(), 1);
    assert!(old.acquire("a"));
    // Without NX.
    assert_eq!(old.release("a").int(), 1);
    new.line("LOCK.ACQUIRE lock:42 b PX 60000 ONCE");
    old.0.line("SET lock:42 a PX 60000");
    assert_eq!(new.line("LOCK.RENEW lock:42 b").int(), 0);
    // Without a TTL.
    old.0.line("PERSIST lock:42");
    assert!(is_wrong_type(&new.line("LOCK.ACQUIRE lock:42 b BLOCK 0")));
}

/// Lists the locks of the old kind, and a string without a TTL.
#[test]
fn remaining_locks_of_the_old_kind_can_be_listed() {
    let server = TestServer::start();
    let (mut old, mut c) = (Old::on(&server), server.conn());
    assert!(old.acquire("a"));
    c.line("SET lock:forgotten x");
    c.line("LOCK.ACQUIRE lock:new a PX 60000");
    let listed = |c: &mut Conn, line: &str| {
        let mut keys: Vec<String> = c.line(line).list()[1]
            .list()
            .iter()
            .map(Reply::text)
            .collect();
        keys.sort();
        keys
    };
    let strings = listed(&mut c, "SCAN 0 MATCH lock:* TYPE string COUNT 1000");
    assert_eq!(strings, ["lock:42", "lock:forgotten"]);
    assert_eq!(
        listed(&mut c, "LOCK.SCAN 0 MATCH lock:* COUNT 1000"),
        ["lock:new"]
    );
    assert_eq!(c.line("PTTL lock:forgotten").int(), -1);
    assert_eq!(c.line("PTTL lock:new").int().signum(), 1);
}
