//! `ls`, `info`, `break` and `top`: what they show of the locks of real servers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use redis_lock_harness::cluster::{start_node, wait_until_served};
use redis_lock_harness::{wait_for, TestServer};
use serde_json::Value;

use crate::program::{program, start, start_args, Running, PROGRAM};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Two held locks, one of them waited for, and a free key beside them.
fn scene() -> (TestServer, Vec<redis_lock_harness::Conn>) {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("CLIENT SETNAME worker");
    conn.line("LOCK.ACQUIRE orders:1 anna PX 600000");
    conn.line("LOCK.ACQUIRE orders:2 bert PX 600000");
    conn.line("LOCK.ACQUIRE other anna PX 600000");
    conn.line("HSET data field value");
    let mut waiter = real.conn();
    waiter.send_line("LOCK.ACQUIRE orders:2 cleo BLOCK 600000");
    real.wait_for_waits(1);
    (real, vec![conn, waiter])
}

#[test]
fn semaphores_are_listed_by_their_permits() {
    let real = TestServer::start();
    let mut conn = real.conn();
    for key in ["jobs", "{tag}loads", "done"] {
        conn.line(&format!("SEM.ACQUIRE {key} anna LIMIT 3 PX 600000"));
    }
    conn.line("SEM.RELEASE done anna");
    conn.line("LATCH.SET latch 2");
    conn.line("ZADD {other}:timeout 1 x");
    let listed = |options: &str| {
        let out = start(&real, &format!("ls --semaphores {options}"))
            .end()
            .ok();
        let mut lines: Vec<String> = out.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(listed("--names"), ["jobs", "{tag}loads"]);
    assert_eq!(listed("--names --match j*"), ["jobs"]);
    assert!(listed("")[1].contains("1 of 3 permits"), "{:?}", listed(""));
    assert_eq!(listed("--json").len(), 2);
}

#[test]
fn leader_shows_each_leader_once() {
    let real = TestServer::start();
    let mut conn = real.conn();
    let none = start(&real, "leader k").end();
    assert_eq!((none.code(), none.out.as_str()), (1, ""));
    let follower = start(&real, "leader k --follow");
    assert_eq!(follower.line(), "none");
    conn.line("LOCK.ACQUIRE k a PX 600000 NOTE 10.0.0.7:8080");
    assert_eq!(start(&real, "leader k").end().ok(), "10.0.0.7:8080\n");
    assert_eq!(follower.line(), "10.0.0.7:8080");
    conn.line("LOCK.RENEW k a PX 600000 NOTE elsewhere");
    assert_eq!(follower.line(), "elsewhere");
    conn.line("LOCK.RELEASE k a");
    assert_eq!(follower.line(), "none");
    let token = conn.line("LOCK.ACQUIRE k a PX 600000").int();
    assert_eq!(follower.line(), format!("token {token}"));
    // As a note, the word for no leader would not tell them apart.
    conn.line("LOCK.BREAK k");
    assert_eq!(follower.line(), "none");
    let token = conn.line("LOCK.ACQUIRE k a PX 600000 NOTE none").int();
    assert_eq!(follower.line(), format!("token {token}"));
    // A hold of Redisson.
    conn.line("DEL k");
    assert_eq!(follower.line(), "none");
    conn.line("HSET k other 1");
    assert_eq!(follower.line(), "no token");
    assert_eq!(start(&real, "leader k").end().ok(), "no token\n");
}

#[test]
fn leader_is_an_object_and_a_status() {
    let real = TestServer::start();
    let mut conn = real.conn();
    let ask = |words: &str| {
        let end = start(&real, &format!("leader k {words}")).end();
        (end.code(), end.out)
    };
    assert_eq!(ask("--json"), (1, "null\n".into()));
    assert_eq!(ask("--is me").0, 1);
    let follower = start(&real, "leader k --follow --json");
    assert_eq!(follower.line(), "null");
    let token = conn.line("LOCK.ACQUIRE k a PX 600000 NOTE me").int();
    let line = format!(r#"{{"key":"k","note":"me","token":{token}}}"#);
    assert_eq!(follower.line(), line);
    assert_eq!(ask("--json"), (0, line + "\n"));
    assert_eq!(ask("--is me"), (0, "me\n".into()));
    assert_eq!(ask("--is other"), (1, "me\n".into()));
    assert_eq!(ask("--is me --follow").0, 64);
    conn.line("LOCK.BREAK k");
    assert_eq!(follower.line(), "null");
    // A hold of Redisson has neither.
    conn.line("HSET k other 1");
    assert_eq!(follower.line(), r#"{"key":"k","note":null,"token":null}"#);
    assert_eq!(ask("--is other").0, 1);
}

#[test]
fn names_with_spaces_and_bytes_that_are_no_text_are_told_apart() {
    let real = TestServer::start();
    for (key, owner) in [
        (&b"two words"[..], &b"an owner"[..]),
        (b"\xff\n", b"\x1b[m"),
    ] {
        let reply = real
            .conn()
            .run([b"LOCK.ACQUIRE", key, owner, b"PX", b"600000"]);
        assert!(reply.int() > 0);
    }
    for words in ["ls", "top --once -i 0.01"] {
        let out = start(&real, words).end().ok();
        assert!(out.contains("\n\"two words\"  "), "{out}");
        assert!(out.contains("  \"an owner\"  "), "{out}");
        assert!(out.contains("\n\\xff\\n "), "{out}");
        assert!(out.contains("  \\u{1b}[m "), "{out}");
    }
}

#[test]
fn ls_lists_what_is_asked_for() {
    let (real, _conns) = scene();
    let names = |options: &str| {
        let out = start(&real, &format!("ls --names {options}")).end().ok();
        let mut names: Vec<String> = out.lines().map(String::from).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names(""), "orders:1 orders:2 other");
    assert_eq!(names("--match orders:*"), "orders:1 orders:2");
    assert_eq!(names("--owner anna"), "orders:1 other");
    assert_eq!(names("--owner anna --match o*:*"), "orders:1");
    assert_eq!(names("--waited"), "orders:2");
    assert_eq!(names("--waited --owner anna"), "");
    let table = start(&real, "ls").end().ok();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("KEY       MODE       HOLDER  LEASE"),
        "{table}"
    );
    assert!(
        lines[2].starts_with("orders:2  exclusive  bert    9m"),
        "{table}"
    );
    assert_eq!(
        lines[1].split_whitespace().collect::<Vec<_>>()[4..],
        ["0", "-"]
    );
    assert_eq!(lines.len(), 4);
    let objects = start(&real, "ls --json --waited").end().ok();
    let object = json(&objects);
    assert_eq!(object["key"], "orders:2");
    assert_eq!(object["waiters"], 1);
    assert_eq!(object["holders"][0]["owner"], "bert");
}

#[test]
fn ls_lists_a_thousand_locks_once_each() {
    let real = TestServer::start();
    let mut conn = real.conn();
    for i in 0..2_500 {
        conn.send_line(&format!("LOCK.ACQUIRE lock:{i} me"));
        conn.send_line(&format!("SET key:{i} v"));
    }
    for _ in 0..5_000 {
        conn.recv();
    }
    assert_eq!(start(&real, "ls --names").end().ok().lines().count(), 2_500);
    assert_eq!(start(&real, "ls --json").end().ok().lines().count(), 2_500);
}

#[test]
fn ls_asks_every_node_of_a_cluster() {
    let ((one, _), (two, bus)) = (start_node(&[]), start_node(&[]));
    one.conn().line("CLUSTER SET-CONFIG-EPOCH 1");
    two.conn().line("CLUSTER SET-CONFIG-EPOCH 2");
    one.conn().line("CLUSTER ADDSLOTSRANGE 0 8191");
    two.conn().line("CLUSTER ADDSLOTSRANGE 8192 16383");
    one.conn()
        .line(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", two.port));
    wait_until_served(&one);
    wait_until_served(&two);
    let url = format!("redis+cluster://127.0.0.1:{}", one.port);
    let mut conns = [one.conn(), two.conn()];
    let mut held = [0, 0];
    for i in 0..30 {
        for (conn, held) in conns.iter_mut().zip(&mut held) {
            *held += i32::from(!conn.line(&format!("LOCK.ACQUIRE lock:{i} me")).is_error());
        }
    }
    assert!(
        held[0] > 0 && held[1] > 0 && held[0] + held[1] == 30,
        "{held:?}"
    );
    let run = |words: &str| {
        let mut command = std::process::Command::new(PROGRAM);
        Running::of(command.env("REDIS_LOCK_URL", &url).args(words.split(' '))).end()
    };
    assert_eq!(run("ls --names").ok().lines().count(), 30);
    assert!(run("info lock:7").ok().contains("held by me"));
    assert_eq!(run("break lock:8").code(), 0);
    assert_eq!(run("ls --json --owner me").ok().lines().count(), 29);
    assert!(run("top --once --interval 0.1").ok().contains("held 29 "));
    for i in 0..10 {
        assert_eq!(run(&format!("run free:{i} -- echo up")).ok(), "up\n");
    }
    // As a single server it does not serve all keys: {a} has the slot 15495.
    let moved = start(&one, "run -n {a} true").end();
    assert_eq!(moved.code(), 69);
    assert!(
        moved.err.contains("name it redis+cluster://"),
        "{}",
        moved.err
    );
}

#[test]
fn info_shows_holders_and_waiters() {
    let (real, _conns) = scene();
    let text = start(&real, "info orders:2").end().ok();
    for part in [
        "orders:2: exclusive",
        "held by bert, token 1",
        "lease 9m5",
        "(worker)",
        "1 waiting, the first for ",
        "cleo, exclusive, for ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let object = json(&start(&real, "info orders:2 --json").end().ok());
    assert_eq!(object["queue"][0]["owner"], "cleo");
    assert!(object["holders"][0]["token"].is_u64());
    assert!(object["queue"][0]["left_ms"].as_u64().expect("a span") > 500_000);
    real.conn().line("LOCK.ACQUIRE plain me");
    let object = json(&start(&real, "info plain --json").end().ok());
    assert_eq!(object["holders"][0].get("client_name"), Some(&Value::Null));
    let few = json(&start(&real, "info orders:2 --json --waiters 0").end().ok());
    assert_eq!(
        (&few["waiters"], &few["queue"]),
        (&Value::from(1), &Value::Array(vec![]))
    );
    let free = start(&real, "info free").end();
    assert_eq!(
        (free.code(), free.out.as_str()),
        (1, "free: neither held nor waited for\n")
    );
    let free = start(&real, "info free --json").end();
    assert_eq!((free.code(), free.out.as_str()), (1, "null\n"));
    let wrong = start(&real, "info data").end();
    assert_eq!(wrong.code(), 65, "{}", wrong.err);
}

#[test]
fn break_ends_a_hold_or_just_that_grant() {
    let (real, mut conns) = scene();
    let token =
        json(&start(&real, "info orders:2 --json").end().ok())["holders"][0]["token"].to_string();
    let late = start(&real, "break orders:2 --token 17").end();
    assert_eq!(
        (late.code(), late.out.as_str()),
        (1, "orders:2: not held under that token\n")
    );
    let end = start(&real, &format!("break orders:2 --token {token}")).end();
    let whom = format!("orders:2: broken, was held by bert, token {token}, ");
    assert!(end.ok().starts_with(&whom));
    assert!(conns[1].recv().int() > 0);
    conns[1].send_line("LOCK.ACQUIRE orders:1 cleo BLOCK 600000");
    real.wait_for_waits(1);
    let end = start(&real, "break orders:1 --purge --json").end();
    assert_eq!(json(&end.ok())["broken"], true);
    assert!(conns[1].recv().error().contains("LOCKBROKEN"));
    conns[1].line("LOCK.ACQUIRE orders:1 cleo");
    let run = start(&real, "run orders:1 true");
    real.wait_for_waits(1);
    start(&real, "break orders:1 --purge").end().ok();
    let end = run.end();
    assert_eq!(end.code(), 1, "{}", end.err);
    assert!(
        end.err.contains("an operator has ended the wait"),
        "{}",
        end.err
    );
    let end = start(&real, "break orders:1").end();
    assert_eq!((end.code(), end.out.as_str()), (1, "orders:1: not held\n"));
}

#[test]
fn a_lock_that_a_run_holds_is_found_and_broken() {
    let real = TestServer::start();
    let run = crate::program::script(&real, "", "echo up; exec sleep 100");
    run.line();
    let name = start(&real, "ls --names").end().ok();
    let mut command = program(&real);
    let end = Running::of(command.arg("break").arg(name.trim())).end();
    assert_eq!((end.code(), run.end().code()), (0, 75));
}

#[test]
fn names_of_any_bytes_do_nothing_to_a_terminal() {
    let real = TestServer::start();
    let key: &[u8] = b"\x1b[2Jk\xff\r\n\x07";
    let owner: &[u8] = "o\u{202e}\u{9b}".as_bytes();
    let mut conn = real.conn();
    conn.run([b"LOCK.ACQUIRE", key, owner]);
    let words = [OsStr::new("info"), OsStr::from_bytes(key)];
    for end in [
        start(&real, "ls").end(),
        start(&real, "ls --names").end(),
        start_args(&real, words).end(),
        start(&real, "top --once --interval 0").end(),
    ] {
        let out = end.ok();
        assert!(out.contains("\\u{1b}[2Jk\\xff\\r\\n\\u{7}"), "{out}");
        assert!(
            !out.chars().any(|char| char.is_control() && char != '\n'),
            "{out:?}"
        );
    }
    let object = json(&start(&real, "ls --json").end().ok());
    assert_eq!(object["key_hex"], "1b5b324a6bff0d0a07");
    assert_eq!(object["holders"][0]["owner"], "o\u{202e}\u{9b}");
    let words = [OsStr::new("break"), OsStr::from_bytes(key)];
    assert_eq!(start_args(&real, words).end().code(), 0);
    conn.run([b"SET", key, b"v"]);
    let words = [OsStr::new("info"), OsStr::from_bytes(key)];
    let end = start_args(&real, words).end();
    assert_eq!(end.code(), 65);
    assert!(!end.err.contains('\x1b'), "{}", end.err);
}

#[test]
fn top_shows_one_frame_where_no_terminal_is() {
    let (real, mut conns) = scene();
    let mut handed = real.conn();
    handed.send_line("LOCK.ACQUIRE orders:1 dora BLOCK 600000");
    real.wait_for_waits(2);
    let run = start(&real, "top --interval 2");
    // Between its two looks:
    wait_for("the first look", || {
        !real
            .info_field("commandstats", "cmdstat_lock.info")
            .is_empty()
    });
    conns[0].line("LOCK.RELEASE orders:1 anna");
    conns[0].line("LOCK.ACQUIRE free:1 anna");
    conns[0].line("LOCK.ACQUIRE free:2 anna");
    let frame = run.end().ok();
    let lines: Vec<&str> = frame.lines().collect();
    assert!(
        lines[1].starts_with("held 5  waited for 1  waiters 1  longest wait "),
        "{frame}"
    );
    let rate = |name: &str| -> f64 {
        let rest = lines[1].split(name).nth(1).expect("a rate");
        rest.split_whitespace()
            .next()
            .expect("a number")
            .parse()
            .expect("a number")
    };
    // One hand-off among three grants.
    let (hand_offs, grants) = (rate("hand-offs/s "), rate("grants/s "));
    assert!(hand_offs > 0.0 && grants > 2.0 * hand_offs, "{frame}");
    assert!(lines[4].starts_with("orders:2 "), "{frame}");
    assert_eq!(frame.matches("dora").count(), 1, "{frame}");
}

/// `run` waits by a ticket, other clients are parked.
#[test]
fn top_counts_both_kinds_of_waiters() {
    let (real, mut conns) = scene();
    let _run = start(&real, "run orders:2 true");
    real.wait_for_waits(2);
    let sample = json(&start(&real, "top --json --once -i 0.1").end().ok());
    assert_eq!(sample["waiters"], 2, "{sample}");
    // The parked client goes, so that the hand-off is that of the ticket.
    drop(conns.pop());
    real.wait_for_waits(1);
    let samples = start(&real, "top --json -i 0.05");
    samples.line();
    conns[0].line("LOCK.BREAK orders:2");
    while json(&samples.line())["hand_offs_per_s"] == 0.0 {}
}

#[test]
fn the_permission_missing_for_a_look_is_named() {
    let real = TestServer::start();
    real.conn()
        .line("ACL SETUSER default -lock.scan -lock.info -lock.break");
    for (words, command) in [
        ("ls", "+lock.scan"),
        ("info k", "+lock.info"),
        ("break k", "+lock.break"),
        ("top --once", "+lock.scan"),
    ] {
        let end = start(&real, words).end();
        assert_eq!(end.code(), 77, "{words}: {}", end.err);
        assert!(end.err.contains(command), "{words}: {}", end.err);
    }
    real.conn().line("ACL SETUSER default +@all");
}
