//! `LOCK.IF`: the command inside runs while the lock is held under the token, as it would run without the fence, and at
//! no other time.

use crate::common::clock::{fake_clock, set_clock};
use crate::common::cluster::{
    begin_move, id_of, migrate_keys, one_node, slot_of, start_node, two_nodes,
};
use crate::common::replica::{aof_text, follow, wait_until_in_sync, ReplicationStream};
use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

const FENCED: &str = "FENCED the lock is not held under this token";

fn take(conn: &mut Conn, owner: &str) -> i64 {
    conn.line(&format!("LOCK.ACQUIRE k {owner} PX 600000"))
        .int()
}

/// `LOCK.IF k token line`
fn under(conn: &mut Conn, token: i64, line: &str) -> Reply {
    conn.line(&format!("LOCK.IF k {token} {line}"))
}

#[test]
fn the_reply_is_that_of_the_command() {
    let server = TestServer::start();
    for mut c in [server.conn(), server.conn3()] {
        c.line("FLUSHALL");
        let token = take(&mut c, "o");
        for line in [
            "SET d 1",
            "SET d 2 GET",
            "GET d",
            "GET nothing",
            "INCRBYFLOAT d 0.5",
            "LPUSH d 1",
            "HSET h a 1 b 2",
            "HGETALL h",
            "SADD s x",
            "SMEMBERS s",
            "ZADD z 1.5 x",
            "ZSCORE z x",
            "XADD x 1-1 a b",
            "XRANGE x - +",
            "LMPOP 1 nothing LEFT",
            "BLPOP nothing 0",
            "PUBLISH channel message",
            "GET d d",
            "NONSENSE d",
            "SET d 1 EX 0",
        ] {
            let fenced = under(&mut c, token, line);
            let plain = match line.split(' ').next().unwrap() {
                // These change the data: what they reply is known.
                "SET" if !fenced.is_error() && line.ends_with("GET") => {
                    assert_eq!(fenced.text(), "1");
                    continue;
                }
                "INCRBYFLOAT" | "HSET" | "SADD" | "ZADD" | "XADD" => {
                    assert!(!fenced.is_error(), "{line}: {fenced:?}");
                    continue;
                }
                "BLPOP" => {
                    // Redis 7.0 runs no such command in a script.
                    assert!(fenced.is_nil() || fenced.is_error(), "{fenced:?}");
                    continue;
                }
                _ => c.line(line),
            };
            assert_eq!(fenced, plain, "{line}");
        }
    }
}

#[test]
fn an_old_token_changes_nothing() {
    let mut server = TestServer::with(&[]);
    fake_clock(&mut server);
    server.restart();
    let mut c = server.conn();
    c.line("SET d before");
    let assert_fenced = |c: &mut Conn, token: i64, why: &str| {
        let bystanders = ["d", "k"].map(|key| Bystander::of(&server, key));
        assert_eq!(under(c, token, "SET d after").error(), FENCED, "{why}");
        for bystander in bystanders {
            bystander.saw_nothing(why);
        }
    };
    assert_fenced(&mut c, 1, "not held");
    let first = take(&mut c, "o");
    assert_eq!(under(&mut c, first, "SET d held").text(), "OK");
    assert_fenced(&mut c, first - 1, "another token");
    assert_fenced(&mut c, 0, "no token");
    assert_fenced(&mut c, i64::MAX, "a number that is no token");
    let mut waiter = server.conn();
    waiter.line("SELECT 0");
    waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    c.line("LOCK.BREAK k");
    let second = waiter.recv().int();
    assert_fenced(&mut c, first, "broken, and handed off");
    assert_eq!(under(&mut c, second, "SET d handed").text(), "OK");
    c.line("DEL k");
    assert_fenced(&mut c, second, "deleted");
    let third = take(&mut c, "o");
    set_clock(&server, 601);
    // The server may delete the expired key meanwhile.
    assert_eq!(under(&mut c, third, "SET d after").error(), FENCED);
    set_clock(&server, 0);
    c.line("DEL k");
    for note in ["", "NOTE n"] {
        let noted = c.line(&format!("LOCK.ACQUIRE k o PX 600000 {note}")).int();
        assert_eq!(under(&mut c, noted, "GET d").text(), "handed");
        c.line("HDEL k o");
        assert_fenced(&mut c, noted, "without the holder's field");
        c.line("DEL k");
    }
    c.line("HSET k redisson 1");
    c.line("PEXPIRE k 600000");
    assert_fenced(&mut c, third, "a hold of a script, without a token");
    assert_eq!(c.line("GET d").text(), "handed");
    assert_eq!(server.stat("fenced"), 10);
}

#[test]
fn readers_write_under_the_token_of_their_phase() {
    let server = TestServer::start();
    let mut c = server.conn();
    let read = c.line("LOCK.ACQUIRE k r READ PX 600000").int();
    assert_eq!(under(&mut c, read, "INCR d").int(), 1);
    let write = c.line("LOCK.ACQUIRE k r WRITE PX 600000").int();
    assert_eq!(under(&mut c, read, "INCR d").error(), FENCED);
    assert_eq!(under(&mut c, write, "INCR d").int(), 2);
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
    assert_eq!(under(&mut c, write, "INCR d").error(), FENCED);
}

#[test]
fn commands_without_a_key_those_of_the_module_and_scripts_are_refused() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = take(&mut c, "o");
    for line in [
        "FLUSHALL ASYNC",
        "SELECT 1",
        "CONFIG GET port",
        "AUTH x",
        "CLIENT KILL TYPE normal",
        "WAIT 1 0",
        "DEBUG SLEEP 0",
        "PSYNC ? -1",
        "SUBSCRIBE c",
        "OBJECT HELP",
        "LOCK.RELEASE k o",
        "sem.acquire k o",
        "Latch.Wait d",
        "lock.if k 1 GET d",
    ] {
        let name = line.split(' ').next().unwrap();
        assert_eq!(
            under(&mut c, token, line).error(),
            format!("ERR LOCK.IF runs commands of the server that have a key, PUBLISH and SPUBLISH, not '{name}'")
        );
    }
    for line in ["EVAL return 1 d", "FCALL f 1 d", "WATCH d", "SSUBSCRIBE d"] {
        let error = under(&mut c, token, line).error();
        assert!(error.starts_with("ERR "), "{line}: {error}");
    }
    let nul = c.run(["LOCK.IF", "k", &token.to_string(), "GET\0", "d"]);
    assert!(nul.error().ends_with("not 'GET\\x00'"), "{nul:?}");
    let error = c.line("LOCK.IF k x GET d").error();
    assert_eq!(
        error,
        "ERR value is not an integer or out of range: token 'x'"
    );
    for (line, code) in [("SET f 1", "WRONGTYPE"), ("HSET h a b c d", "LOCKTYPE")] {
        c.line(line);
        let key = line.split(' ').nth(1).unwrap();
        let error = c.line(&format!("LOCK.IF {key} 1 GET d")).error();
        assert!(error.starts_with(code), "{error}");
    }
    assert!(c.line("GET d").is_nil());
    // Only `COMMAND GETKEYS` finds the keys of this one.
    if c.line("COMMAND INFO MSETEX").list()[0].is_array() {
        assert_eq!(under(&mut c, token, "MSETEX 1 d 2").int(), 1);
    }
}

#[test]
fn the_command_needs_the_rights_of_the_caller() {
    let server = TestServer::start();
    let mut admin = server.conn();
    let token = take(&mut admin, "o");
    for (rules, line, is_allowed) in [
        ("~k ~d +lock.if +set", "SET d 1", true),
        ("~k ~d +lock.if +get", "SET d 1", false),
        ("~k +lock.if +set", "SET d 1", false),
        ("~k %R~d +lock.if +set", "SET d 1", false),
        ("%R~k %W~d +lock.if +set", "SET d 1", true),
        ("~d +lock.if +set", "SET d 1", false),
        ("~k ~d +set", "SET d 1", false),
        ("~k &c +lock.if +publish", "PUBLISH c m", true),
        ("~k resetchannels +lock.if +publish", "PUBLISH c m", false),
        ("~k ~d +lock.if +copy", "COPY d e", false),
    ] {
        admin.line("ACL LOG RESET");
        admin.line(&format!("ACL SETUSER u reset on nopass {rules}"));
        let mut c = server.conn();
        c.line("AUTH u any");
        let reply = under(&mut c, token, line);
        if is_allowed {
            assert!(!reply.is_error(), "{rules}: {reply:?}");
            continue;
        }
        assert!(reply.error().starts_with("NOPERM "), "{rules}: {reply:?}");
        let entry = &admin.line("ACL LOG").list()[0];
        assert_eq!(entry.field("username").unwrap().text(), "u", "{rules}");
    }
    // A script has the rights of its caller.
    admin.line("ACL SETUSER u reset on nopass ~k ~d +lock.if +eval");
    let mut c = server.conn();
    c.line("AUTH u any");
    let script = "return redis.call('LOCK.IF', KEYS[1], ARGV[1], 'SET', KEYS[2], '1')";
    let error = c.run(["EVAL", script, "2", "k", "d", &token.to_string()]);
    assert!(
        error.error().contains("NOPERM") || error.error().contains("permission"),
        "{error:?}"
    );
}

#[test]
fn replicas_and_the_aof_get_the_command_alone() {
    let server = TestServer::with(&["--appendonly", "yes"]);
    let replica = TestServer::without_module(&[]);
    follow(&replica, &server);
    let mut c = server.conn();
    let token = take(&mut c, "o");
    let mut stream = ReplicationStream::attach(&server);
    under(&mut c, token, "SET d 1");
    under(&mut c, token - 1, "SET d 2");
    under(&mut c, token, "GET d");
    c.line("MULTI");
    under(&mut c, token, "INCR d");
    under(&mut c, token, "INCR d");
    let both = c.line("EXEC").list();
    assert_eq!((both[0].int(), both[1].int()), (2, 3));
    let script = "return redis.call('LOCK.IF', KEYS[1], ARGV[1], 'INCR', KEYS[2])";
    let token = token.to_string();
    let four = c.run(["EVAL", script, "2", "k", "d", &token]);
    assert_eq!(four.int(), 4);
    let seen = stream.until_now(&server).join(", ").to_lowercase();
    assert_eq!(seen, "set d 1, multi, incr d, incr d, exec, incr d");
    wait_until_in_sync(&replica, &server);
    assert_eq!(replica.conn().line("GET d").text(), "4");
    let aof = || aof_text(&server).join("\n").to_lowercase();
    wait_for("the last command in the AOF", || {
        aof().matches("incr d").count() == 3
    });
    assert!(!aof().contains("lock.if"), "{}", aof());
    // A replica that knows the lock runs what reads, and nothing that writes.
    let replica = TestServer::start();
    follow(&replica, &server);
    wait_until_in_sync(&replica, &server);
    let mut there = replica.conn();
    assert_eq!(there.run(["LOCK.IF", "k", &token, "GET", "d"]).text(), "4");
    let error = there.run(["LOCK.IF", "k", &token, "SET", "d", "5"]).error();
    assert!(error.starts_with("READONLY"), "{error}");
}

#[test]
fn what_refuses_the_command_without_the_fence_refuses_it_inside() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = take(&mut c, "o");
    c.line("SET d 1");
    for (setting, back, code) in [
        ("maxmemory 1", "maxmemory 0", "OOM"),
        (
            "min-replicas-to-write 1",
            "min-replicas-to-write 0",
            "NOREPLICAS",
        ),
    ] {
        c.line(&format!("CONFIG SET {setting}"));
        let error = under(&mut c, token, "SET d 2").error();
        assert!(error.starts_with(code), "{error}");
        assert_eq!(under(&mut c, token, "GET d").text(), "1");
        c.line(&format!("CONFIG SET {back}"));
    }
    let script = "return redis.call('LOCK.IF', KEYS[1], ARGV[1], 'SET', KEYS[2], '2')";
    let read_only = c.run(["EVAL_RO", script, "2", "k", "d", &token.to_string()]);
    assert!(
        read_only.error().contains("rite commands are not allowed"),
        "{read_only:?}"
    );
    // Paused writes wait.
    c.line("CLIENT PAUSE 600000 WRITE");
    let mut paused = server.conn();
    paused.send_line(&format!("LOCK.IF k {token} SET d 3"));
    wait_for("the paused client", || {
        server.info_field("clients", "blocked_clients") != "0"
    });
    assert_eq!(c.line("GET d").text(), "1");
    c.line("CLIENT UNPAUSE");
    assert_eq!(paused.recv().text(), "OK");
}

#[test]
fn the_lock_may_end_inside() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = take(&mut c, "o");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(under(&mut c, token, "DEL k").int(), 1);
    assert!(waiter.recv().int() > token);
    assert_eq!(under(&mut c, token, "GET d").error(), FENCED);
}

#[test]
fn a_lease_may_end_in_the_middle_of_a_transaction() {
    let server = TestServer::start();
    let mut c = server.conn();
    wait_for("a transaction that begins within the lease", || {
        let token = c.line("LOCK.ACQUIRE k o PX 500").int();
        c.line("DEL d");
        c.line("MULTI");
        under(&mut c, token, "INCR d");
        c.line("DEBUG SLEEP 0.6");
        under(&mut c, token, "INCR d");
        let replies = c.line("EXEC").list();
        assert_eq!(replies[2].error(), FENCED);
        !replies[0].is_error()
    });
    assert_eq!(c.line("GET d").text(), "1");
}

#[test]
fn in_a_cluster_the_keys_are_in_the_slot_of_the_lock() {
    let node = one_node(&[]);
    let mut c = node.conn();
    let token = take(&mut c, "o");
    assert_eq!(under(&mut c, token, "MSET {k}a 1 {k}b 2").text(), "OK");
    for line in [
        "SET other 1",
        "MSET {k}a 1 other 2",
        "COPY {k}a other",
        "SPUBLISH other text",
    ] {
        let error = under(&mut c, token, line).error();
        assert!(error.starts_with("CROSSSLOT"), "{line}: {error}");
    }
    drop(node);
    let (source, target) = two_nodes(&[]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let token = take(&mut here, "o");
    here.line("SET {k}data 7");
    let slot = slot_of(&mut here, "k");
    begin_move(&source, &target, slot);
    let error = under(&mut here, token, "SET {k}new 1").error();
    assert!(error.starts_with("TRYAGAIN"), "{error}");
    let migrate = format!("MIGRATE 127.0.0.1 {} k 0 10000", target.port);
    assert_eq!(here.line(&migrate).text(), "OK");
    let error = under(&mut here, token, "INCR {k}data").error();
    assert!(error.starts_with("ASK"), "{error}");
    // The lock has moved, and the data perhaps has not.
    there.line("ASKING");
    let error = under(&mut there, token, "INCR {k}data").error();
    assert!(error.starts_with("TRYAGAIN"), "{error}");
    migrate_keys(&source, &target, slot);
    there.line("ASKING");
    assert_eq!(under(&mut there, token, "INCR {k}data").int(), 8);
}

#[test]
fn on_a_replica_of_a_cluster_a_write_is_redirected_as_without_the_fence() {
    let primary = one_node(&[]);
    let (replica, bus) = start_node(&[]);
    let (mut here, mut there) = (primary.conn(), replica.conn());
    here.line(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", replica.port));
    let replicate = format!("CLUSTER REPLICATE {}", id_of(&primary));
    wait_for("a replica", || !there.line(&replicate).is_error());
    let token = take(&mut here, "o");
    here.line("SET {k}d 1");
    there.line("READONLY");
    wait_for("the replica's data", || {
        let read = under(&mut there, token, "GET {k}d");
        !read.is_error() && read.text() == "1"
    });
    let writes = ["SET {k}d 2", "DEL {k}d {k}e", "MSET {k}d 2 {k}e 2"];
    for endpoint in ["ip", "hostname", "unknown-endpoint"] {
        there.line(&format!(
            "CONFIG SET cluster-preferred-endpoint-type {endpoint}"
        ));
        for line in writes {
            let error = under(&mut there, token, line).error();
            assert!(error.starts_with("MOVED "), "{endpoint} {line}: {error}");
            assert_eq!(error, there.line(line).error(), "{endpoint} {line}");
        }
    }
    let script = "return redis.pcall('LOCK.IF', KEYS[1], ARGV[1], 'SET', KEYS[2], '2')";
    let error = there.run(["EVAL", script, "2", "k", "{k}d", &token.to_string()]);
    assert!(error.error().starts_with("READONLY"), "{error:?}");
    assert_eq!(under(&mut there, token - 1, writes[0]).error(), FENCED);
    there.line("READWRITE");
    let error = under(&mut there, token, writes[0]).error();
    assert_eq!(error, there.line(writes[0]).error());
    assert_eq!(here.line("GET {k}d").text(), "1");
}

/// docs/COMMANDS.md says so: the command has the flags of `EVAL`.
#[test]
fn a_script_that_wrote_by_it_alone_can_be_ended_by_script_kill() {
    let server = TestServer::with(&["--busy-reply-threshold", "1"]);
    let mut c = server.conn();
    let token = take(&mut c, "o").to_string();
    let mut other = server.conn();
    let script = "redis.call('LOCK.IF', KEYS[1], ARGV[1], 'INCR', KEYS[2]) while true do end";
    c.send(["EVAL", script, "2", "k", "d", &token]);
    wait_for("the end of the script", || {
        !other.line("SCRIPT KILL").is_error()
    });
    assert!(c.recv().is_error());
    assert_eq!(other.line("GET d").text(), "1");
}
