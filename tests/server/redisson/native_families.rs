//! Redisson's scripts of fenced, spin and read-write locks run natively: beside waiters of the module, with full
//! memory, and for users with limited permissions. `make test-differential` compares their effects with Lua's.

use crate::common::redisson::{self, *};
use crate::common::{Conn, TestServer};
use crate::redisson::native::{call, native, Side};

fn eval(sha1: &str, rest: &str) -> Vec<String> {
    call("EVAL", &redisson::text(sha1), rest)
}

fn write(owner: &str) -> Vec<String> {
    eval(WRITE_ACQUIRE, &format!("1 k 600000 {owner}:write"))
}

fn unwrite(owner: &str) -> Vec<String> {
    let rest = format!("3 k c latch:w:{owner} 1 600000 {owner}:write PUBLISH 13500");
    eval(WRITE_UNLOCK, &rest)
}

fn read(owner: &str) -> Vec<String> {
    let rest = format!("2 k {{k}}:{owner}:rwlock_timeout 600000 {owner} {owner}:write");
    eval(READ_ACQUIRE, &rest)
}

fn unread(owner: &str) -> Vec<String> {
    let keys = format!("5 k c {{k}}:{owner}:rwlock_timeout {{k}} latch:r:{owner}");
    eval(READ_UNLOCK, &format!("{keys} 0 {owner} PUBLISH 13500"))
}

fn parked(server: &TestServer, line: &str) -> Conn {
    let mut waiter = server.conn();
    waiter.send_line(line);
    server.wait_for_waiters(1);
    waiter
}

#[test]
fn a_parked_waiter_is_granted_by_a_native_unlock() {
    let server = native();
    let mut c = server.conn();
    for (acquire, unlock) in [(write("u:1"), unwrite("u:1")), (read("u:1"), unread("u:1"))] {
        assert!(c.run(&acquire).is_nil());
        let mut waiter = parked(&server, "LOCK.ACQUIRE k u:2 WRITE PX 600000 BLOCK 0");
        assert_eq!(c.run(&unlock).int(), 1);
        assert!(waiter.recv().int() > 0);
        assert!(
            c.run(read("u:3")).int() > 0,
            "refused with its time to live"
        );
        assert_eq!(c.line("LOCK.RELEASE k u:2 WRITE").int(), 1);
        c.line("DEL latch:w:u:1 latch:r:u:1");
    }
    // The writer also holds READ: a waiting reader is compatible.
    assert!(c.run(write("u:1")).is_nil());
    assert!(c.run(read("u:1")).is_nil());
    let mut waiter = parked(&server, "LOCK.ACQUIRE k u:2 READ PX 600000 BLOCK 0");
    assert_eq!(c.run(unwrite("u:1")).int(), 1);
    assert!(waiter.recv().int() > 0);
    // An unlock by force, for each mode.
    let force = eval(READ_FORCE, "2 k c 0 PUBLISH");
    let mut waiter = parked(&server, "LOCK.ACQUIRE k u:4 WRITE PX 600000 BLOCK 0");
    assert_eq!(c.run(&force).int(), 1);
    assert!(waiter.recv().int() > 0);
    assert_eq!(c.run(&force).int(), 0, "now it is written");
    assert_eq!(server.stat("redisson_lua"), 0);
    assert!(server.stat("redisson_read_write") > 9);
}

#[test]
fn tokens_of_both_sides_rise_on_one_name() {
    let server = native();
    let mut c = server.conn();
    let rest = "2 k redisson_lock_token:{k} 600000 u:1";
    let fenced = |c: &mut Conn| {
        let reply = c.run(eval(FENCED_ACQUIRE_TOKEN, rest)).list();
        assert_eq!(reply[0].int(), -1);
        reply[1].int()
    };
    assert_eq!(fenced(&mut c), 1);
    assert_eq!(fenced(&mut c), 2, "of every acquire");
    c.line("DEL k");
    let ours = c.line("LOCK.ACQUIRE k u:2").int();
    assert!(ours > 2);
    let refused = c.run(eval(FENCED_ACQUIRE_TOKEN, rest)).list();
    assert!(refused[0].int() > 0);
    assert_eq!(refused[1].int(), -1);
    assert_eq!(c.line("LOCK.RELEASE k u:2").int(), 1);
    assert_eq!(fenced(&mut c), ours + 1);
    assert_eq!(server.stat("redisson_fenced"), 4);
    assert_eq!(server.stat("redisson_lua"), 0);
}

#[test]
fn out_of_memory_scripts_that_need_memory_are_refused_and_releases_work() {
    let server = native();
    let mut c = server.conn();
    assert!(c.run(read("u:1")).is_nil());
    c.line("CONFIG SET maxmemory 1");
    let spin = "1 free 600000 u:1";
    for refused in [read("u:2"), read("u:1"), eval(ACQUIRE_3_12, spin)] {
        assert!(c.run(refused).error().starts_with("OOM "));
    }
    assert_eq!(c.run(unread("u:1")).int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert!(c.run(write("u:1")).error().starts_with("OOM "));
    assert_eq!(c.line("DBSIZE").int(), 1, "the latch alone");
}

/// The replies to a user's calls on a server with the setting and on one without.
#[test]
fn permissions_are_checked_for_keys_that_no_call_names() {
    let mut sides = [Side::of(native()), Side::of(TestServer::start())];
    let timeouts = "{k}:u:1:rwlock_timeout:1";
    for (rules, is_native) in [
        ("+@all ~* &*", true),
        ("+@all ~k ~c ~latch* ~{k} ~{k}:u:?:rwlock_timeout &*", false),
        (
            "+@all -set ~* &* (+set ~latch* ~{k}:u:1:rwlock_timeout)",
            false,
        ),
        ("+@all -del ~* &* (+del ~k)", false),
        ("+@all -pttl ~* &* (+pttl ~k)", false),
    ] {
        let before = sides[0].server.stat("redisson_lua");
        let results = sides.each_mut().map(|side| {
            let rules = format!("ACL SETUSER u reset on nopass {rules}");
            side.conn.line(&rules);
            // A server without this command refuses it, and changes nothing.
            side.conn.line("ACL SETUSER u +lock.redisson");
            assert_eq!(side.caller.line("AUTH u any").text(), "OK");
            let second = [
                "HSET k mode read u:1 1 u:2 1",
                "SET {k}:u:2:rwlock_timeout:1 1",
            ];
            [
                (&[][..], read("u:1")),
                (&["HSET k mode read u:1 1"][..], unread("u:1")),
                (&second[..], unread("u:1")),
            ]
            .map(|(data, call)| {
                let outcome = side.outcome(data, &call);
                let held = side.conn.line("HGETALL k");
                let there = side.conn.run(["EXISTS", timeouts]);
                (plain(&outcome.reply), held, there)
            })
        });
        assert_eq!(results[0], results[1], "{rules}");
        let in_lua = sides[0].server.stat("redisson_lua") - before;
        assert_eq!(in_lua == 0, is_native, "{rules}: {in_lua}");
    }
}

/// Normalises the text of a refusal, which differs between versions, and between script and command.
fn plain(reply: &str) -> String {
    reply.split(' ').next().unwrap_or(reply).to_string()
}
