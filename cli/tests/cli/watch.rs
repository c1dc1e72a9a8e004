//! `watch`: the history of locks of real servers, with and without key events, over lost connections.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use redis_lock_harness::cluster::{move_slot, slot_of, two_nodes};
use redis_lock_harness::process::spawn;
use redis_lock_harness::{wait_for, Conn, TestServer};
use serde_json::Value;

use crate::program::{program, start, url, Running, PROGRAM};

const ALL_EVENTS: [&str; 2] = ["--notify-keyspace-events", "KA"];
/// The state is read again after that time only: what comes sooner comes by an event.
const BY_EVENTS: &str = "--interval 600";

/// A running `watch --json`.
struct Watching(Running);

impl Watching {
    /// Follows the lock `k` of this server, from its first state on.
    fn start(real: &TestServer, options: &str, first: &str) -> Watching {
        let watching = Watching(start(real, &format!("watch k --json {options}")));
        watching.next("connected");
        watching.next(first);
        watching
    }

    fn line(&self) -> Value {
        let line = self.0.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The next line, which is of this event.
    fn next(&self, event: &str) -> Value {
        let line = self.line();
        assert_eq!(line["event"], event, "{line}");
        line
    }

    /// The next line, which is of this event and owner.
    fn of(&self, event: &str, owner: &str) -> Value {
        let line = self.next(event);
        assert_eq!(line["owner"], owner, "{line}");
        line
    }

    /// The next line of this event, whatever comes before it.
    fn until(&self, event: &str) -> Value {
        loop {
            let line = self.line();
            if line["event"] == event {
                return line;
            }
        }
    }
}

fn parked(real: &TestServer, words: &str, count: u64) -> Conn {
    let mut waiter = real.conn();
    waiter.send_line(words);
    real.wait_for_waits(count);
    waiter
}

#[test]
fn every_event_of_a_lock_is_a_line() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching::start(&real, "--interval 1 --renewals", "free");
    let token = conn.line("LOCK.ACQUIRE k anna PX 600000").int();
    let line = watching.of("acquire", "anna");
    assert_eq!((&line["token"], &line["holds"]), (&token.into(), &1.into()));
    assert_eq!(
        (&line["mode"], &line["key"]),
        (&"exclusive".into(), &"k".into())
    );
    assert!(line["lease_ms"]
        .as_u64()
        .is_some_and(|lease| lease > 500_000));
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    assert_eq!(watching.of("re-entry", "anna")["holds"], 2);
    conn.line("LOCK.RELEASE k anna");
    assert_eq!(watching.of("drop", "anna")["holds"], 1);
    conn.line("LOCK.RENEW k anna PX 900000");
    let line = watching.of("renew", "anna");
    assert!(line["lease_ms"]
        .as_u64()
        .is_some_and(|lease| lease > 800_000));
    let mut bert = parked(&real, "LOCK.ACQUIRE k bert PX 600000 BLOCK 500000", 1);
    let line = watching.of("wait", "bert");
    assert!(line["left_ms"].as_u64().is_some_and(|left| left > 400_000));
    let cleo = parked(&real, "LOCK.ACQUIRE k cleo BLOCK 0", 2);
    assert_eq!(watching.of("wait", "cleo")["waiters"], 2);
    cleo.close();
    assert_eq!(watching.of("leave", "cleo")["waiters"], 1);
    conn.line("LOCK.RELEASE k anna");
    assert_eq!(watching.of("release", "anna")["token"], token);
    let line = watching.of("hand-off", "bert");
    assert_eq!(line["token"], bert.recv().int());
    assert!(line["waited_ms"].is_u64());
    conn.line("LOCK.BREAK k");
    watching.of("break", "bert");
    conn.line("LOCK.ACQUIRE k anna PX 3000");
    watching.of("acquire", "anna");
    watching.of("expire", "anna");
    conn.line("LOCK.ACQUIRE k anna");
    watching.of("acquire", "anna");
    conn.line("DEL k");
    assert_eq!(watching.of("lost", "anna")["cause"], "del");
    conn.line("LOCK.ACQUIRE k anna");
    watching.of("acquire", "anna");
    conn.line("SET k v");
    let cause = watching.of("lost", "anna")["cause"].to_string();
    assert!(cause.contains("set"), "{cause}");
    conn.line("DEL k");
    conn.line("LOCK.ACQUIRE k anna");
    watching.of("acquire", "anna");
    conn.line("FLUSHALL");
    watching.of("lost", "anna");
}

#[test]
fn an_eviction_is_the_cause_of_a_loss() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching::start(&real, BY_EVENTS, "free");
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.of("acquire", "anna");
    conn.line("CONFIG SET maxmemory-policy volatile-ttl");
    conn.line("CONFIG SET maxmemory 1");
    conn.line("SET x y");
    let line = watching.of("lost", "anna");
    assert!(
        line["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("evicted")),
        "{line}"
    );
    conn.line("CONFIG SET maxmemory 0");
}

#[test]
fn readers_and_writers_have_their_mode() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching::start(&real, "--interval 0.1", "free");
    for owner in ["anna", "bert"] {
        conn.line(&format!("LOCK.ACQUIRE k {owner} READ PX 600000"));
        assert_eq!(watching.of("acquire", owner)["mode"], "read");
    }
    conn.line("LOCK.RELEASE k bert READ");
    watching.of("release", "bert");
    conn.line("LOCK.ACQUIRE k anna WRITE PX 600000");
    assert_eq!(watching.of("upgrade", "anna")["mode"], "write");
    conn.line("LOCK.RELEASE k anna WRITE");
    assert_eq!(watching.of("downgrade", "anna")["mode"], "read");
    conn.line("LOCK.RELEASE k anna READ");
    watching.of("release", "anna");
}

/// Tracking and the messages of releases need no setting.
#[test]
fn without_key_events_an_end_is_just_an_end_and_comes_at_once() {
    let real = TestServer::start();
    let mut conn = real.conn();
    let watching = Watching(start(&real, &format!("watch k --json {BY_EVENTS}")));
    let line = watching.next("connected");
    assert_eq!(line["server"], format!("127.0.0.1:{}/0", real.port));
    let unseen: Vec<&str> = ["release", "break", "expire", "lost", "cause"].into();
    assert_eq!(line["unseen"], serde_json::json!(unseen));
    watching.next("free");
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.of("acquire", "anna");
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.of("re-entry", "anna");
    let mut bert = parked(&real, "LOCK.ACQUIRE k bert PX 600000 BLOCK 0", 1);
    conn.line("LOCK.RELEASE k anna ALL");
    bert.recv();
    // The wait began between two looks.
    watching.of("end", "anna");
    watching.of("acquire", "bert");
    conn.line("LOCK.RELEASE k bert");
    let line = watching.of("end", "bert");
    assert!(
        line["cause"].is_null() || line["cause"] == "release message",
        "{line}"
    );
    assert_eq!(
        conn.line("CONFIG GET notify-keyspace-events").list()[1].text(),
        ""
    );
}

#[test]
fn what_cannot_be_seen_is_said_at_the_start() {
    let real = TestServer::start();
    let note = |setting: &str| {
        real.conn()
            .run(["CONFIG", "SET", "notify-keyspace-events", setting]);
        let watching = start(&real, "watch k");
        watching.line();
        watching.line();
        watching.signal(Signal::SIGINT);
        let end = watching.end();
        assert_eq!(end.code(), 0, "{}", end.err);
        end.err
    };
    let none = note("");
    assert!(
        none.contains("notify-keyspace-events is \"\"") && none.contains("listed as end"),
        "{none}"
    );
    assert!(none.contains("without K and d"), "{none}");
    let causes = note("Kd");
    assert!(
        causes.contains("the causes of losses are not seen"),
        "{causes}"
    );
    assert_eq!(note("KA"), "");
    assert!(note("KEg").contains("listed as end"));
}

#[test]
fn a_note_is_said_once_for_many_locks_and_connections() {
    let mut real = TestServer::start();
    let watching = start(&real, "watch a b c --interval 0.1");
    for _ in 0..6 {
        watching.line();
    }
    real.restart();
    while !watching.line().contains("  connected") {}
    watching.signal(Signal::SIGINT);
    let end = watching.end();
    assert_eq!(
        end.err.matches("notify-keyspace-events").count(),
        1,
        "{}",
        end.err
    );
}

#[test]
fn the_channels_of_events_do_where_those_of_keys_are_off() {
    let real = TestServer::with(&["--notify-keyspace-events", "Ed"]);
    let mut conn = real.conn();
    let watching = Watching::start(&real, BY_EVENTS, "free");
    conn.line("LOCK.ACQUIRE other bert");
    conn.line("LOCK.ACQUIRE k anna");
    watching.of("acquire", "anna");
    conn.line("LOCK.RELEASE other bert");
    conn.line("LOCK.BREAK k");
    watching.of("break", "anna");
}

/// The module opens a window for Redisson's waiters where the channel of a lock has a subscriber by name.
#[test]
fn a_watched_lock_is_handed_off_as_any_other() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k w0");
    let watching = Watching::start(&real, BY_EVENTS, "held");
    let mut waiters: Vec<Conn> = (1..=4)
        .map(|i| parked(&real, &format!("LOCK.ACQUIRE k w{i} BLOCK 0"), i))
        .collect();
    for (i, waiter) in waiters.iter_mut().enumerate() {
        conn.line(&format!("LOCK.RELEASE k w{i}"));
        waiter.recv();
        assert_eq!(watching.until("hand-off")["owner"], format!("w{}", i + 1));
    }
    assert_eq!(real.stat("windows"), 0);
    let subscribers = conn.line("PUBSUB NUMSUB redisson_lock__channel:{k}").list();
    assert_eq!(subscribers[1].int(), 0);
}

#[test]
fn several_locks_and_names_of_any_bytes_are_told_apart() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching(start(&real, "watch a b --key-hex 6bff1b --json"));
    for _ in 0..3 {
        watching.until("free");
    }
    conn.run([b"LOCK.ACQUIRE".as_slice(), b"k\xff\x1b", b"o\xfe"]);
    let line = watching.next("acquire");
    assert_eq!(
        (&line["key_hex"], &line["owner_hex"]),
        (&"6bff1b".into(), &"6ffe".into())
    );
    conn.line("LOCK.ACQUIRE b anna");
    assert_eq!(watching.next("acquire")["key"], "b");
    let text = start(&real, "watch a b --key-hex 6bff1b");
    let held: Vec<String> = (0..6).map(|_| text.line()).collect();
    assert!(
        held.iter()
            .any(|line| line.contains("held         key=k\\xff\\u{1b} owner=o\\xfe token=")),
        "{held:?}"
    );
    assert!(
        held.iter()
            .any(|line| line.contains("free         key=a waiters=0")),
        "{held:?}"
    );
}

#[test]
fn it_connects_again_after_a_restart_and_a_crash() {
    let mut real = TestServer::with(&ALL_EVENTS);
    let watching = Watching::start(&real, "--interval 0.1", "free");
    real.conn().line("LOCK.ACQUIRE k anna PX 600000");
    watching.of("acquire", "anna");
    real.restart();
    let line = watching.until("disconnected");
    assert!(line["cause"].is_string(), "{line}");
    let line = watching.next("connected");
    assert_eq!(line["server"], format!("127.0.0.1:{}/0", real.port));
    // The server has no persistence, so the lock is gone.
    assert_eq!(watching.of("end", "anna")["cause"], "not connected");
    real.conn().line("LOCK.ACQUIRE k bert");
    watching.of("acquire", "bert");
    real.crash_and_restart();
    watching.until("connected");
    watching.of("end", "bert");
    real.conn().line("LOCK.ACQUIRE k cleo");
    watching.of("acquire", "cleo");
    real.conn().line("LOCK.RELEASE k cleo");
    watching.of("release", "cleo");
    // Without the module there is nothing to follow.
    real.set_module(None);
    real.restart();
    let end = watching.0.end();
    assert_eq!(end.code(), 69);
    assert!(end.err.contains("loadmodule"), "{}", end.err);
}

#[test]
fn a_server_that_hangs_is_an_error_at_the_start_and_a_gap_later() {
    let real = TestServer::with(&ALL_EVENTS);
    let watching = Watching::start(&real, "--interval 0.1 --timeout 3", "free");
    real.signal(libc::SIGSTOP);
    let first = start(&real, "watch k --timeout 3").end();
    assert_eq!(first.code(), 69, "{}", first.err);
    assert!(first.err.contains("no answer in time"), "{}", first.err);
    watching.next("disconnected");
    real.signal(libc::SIGCONT);
    watching.next("connected");
    real.conn().line("LOCK.ACQUIRE k anna");
    watching.of("acquire", "anna");
}

#[test]
fn it_ends_cleanly_on_ctrl_c_and_with_the_signal_on_others() {
    let real = TestServer::start();
    for (signal, status) in [(Signal::SIGINT, 0), (Signal::SIGTERM, 143)] {
        let watching = Watching::start(&real, "", "free");
        watching.0.signal(signal);
        let end = watching.0.end();
        assert_eq!((end.code(), end.err.as_str()), (status, ""));
    }
}

#[test]
fn it_ends_when_its_reader_does_although_no_event_comes() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut watch = program(&real);
    let watch = watch.args(["watch", "k"]).stdout(Stdio::piped());
    let mut child = spawn(watch).expect("redis-lock");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()));
    assert!(lines.next().is_some_and(|line| line.is_ok()));
    assert!(child.try_wait().expect("a child").is_none());
    drop(lines);
    wait_for("the end of redis-lock", || {
        child.try_wait().expect("a child").is_some()
    });
    assert!(child.wait().expect("a child").success());
}

#[test]
fn a_refusal_ends_it_and_a_refused_source_does_not() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    conn.line("ACL SETUSER blind on nopass ~* &* +@all -lock.info");
    conn.line("ACL SETUSER deaf on nopass ~* resetchannels +lock.info +ping");
    conn.line("ACL SETUSER keyless on nopass ~other &* +@all");
    let run = |user: &str, words: &str| {
        let mut command = program(&real);
        let own = url(&real).replace("//", &format!("//{user}:x@"));
        Running::of(command.env("REDIS_LOCK_URL", own).args(words.split(' ')))
    };
    let end = run("blind", "watch k").end();
    assert_eq!(end.code(), 77, "{}", end.err);
    assert!(end.err.contains("+lock.info"), "{}", end.err);
    let end = run("keyless", "watch k").end();
    assert_eq!(end.code(), 77, "{}", end.err);
    assert!(end.err.contains("~k"), "{}", end.err);
    let deaf = run("deaf", "watch k --interval 0.05");
    assert!(deaf.line().contains("connected"));
    assert!(deaf.complaint().contains("cannot be subscribed to"));
    assert!(deaf.line().contains("free"));
    conn.line("LOCK.ACQUIRE k anna");
    assert!(deaf.line().contains("acquire      owner=anna token="));
    conn.line("LOCK.RELEASE k anna");
    assert!(deaf.line().contains("end          owner=anna token="));
    // A permission that is taken away later ends it, too.
    conn.line("ACL SETUSER deaf -lock.info");
    let end = deaf.end();
    assert_eq!(end.code(), 77, "{}", end.err);
}

#[test]
fn a_key_that_is_no_lock_a_bad_option_and_no_module_are_errors() {
    let real = TestServer::start();
    real.conn().line("SET k v");
    let end = start(&real, "watch k").end();
    assert_eq!(end.code(), 65, "{}", end.err);
    assert!(end.err.contains("WRONGTYPE"), "{}", end.err);
    for words in [
        "watch",
        "watch --nonsense k",
        "watch k --interval x",
        "watch k --waiters 0",
        "watch --key-hex 6",
        "ls --waiters 5",
        "ls --graph --names",
        "watch k --server redis://a --server redis://b",
    ] {
        let end = start(&real, words).end();
        assert_eq!(end.code(), 64, "{words}: {}", end.err);
    }
    let without = TestServer::without_module(&[]);
    let end = start(&without, "watch k").end();
    assert_eq!(end.code(), 69);
    assert!(end.err.contains("loadmodule"), "{}", end.err);
}

/// A server that knows `LOCK.INFO` and no `LOCK.SCAN`: an older build of the module.
#[test]
fn a_module_that_lacks_a_command_is_named_as_too_old() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        for stream in socket.incoming().map_while(Result::ok) {
            let mut answers = stream.try_clone().expect("a socket");
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let answer = match line.to_uppercase().as_str() {
                        "LOCK.SCAN" => {
                            "-ERR unknown command 'LOCK.SCAN', with args beginning with: '0'\r\n"
                        }
                        "HELLO" => {
                            "-ERR unknown command 'HELLO', with args beginning with: '3'\r\n"
                        }
                        "INFO" => "$0\r\n\r\n",
                        "CLIENT" | "PING" => "+OK\r\n",
                        _ => continue,
                    };
                    if answers.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    for words in ["ls", "ls --graph", "top --once"] {
        let mut command = Command::new(PROGRAM);
        command.env("REDIS_LOCK_URL", format!("redis://127.0.0.1:{port}"));
        let end = Running::of(command.args(words.split(' '))).end();
        assert_eq!(end.code(), 69, "{words}: {}", end.err);
        assert!(
            end.err.contains("does not know LOCK.SCAN"),
            "{words}: {}",
            end.err
        );
        assert!(end.err.contains("a newer one"), "{words}: {}", end.err);
    }
}

#[test]
fn it_follows_the_slot_of_its_key() {
    let (one, two) = two_nodes(&ALL_EVENTS);
    let mut command = Command::new(PROGRAM);
    let server = format!("redis+cluster://127.0.0.1:{}", one.port);
    command.env("REDIS_LOCK_URL", server);
    let watching = Watching(Running::of(command.args([
        "watch",
        "k",
        "--json",
        "--interval",
        "0.1",
    ])));
    let line = watching.next("connected");
    assert_eq!(line["server"], format!("127.0.0.1:{}/0", one.port));
    watching.next("free");
    let mut conn = one.conn();
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.of("acquire", "anna");
    let slot = slot_of(&mut conn, "k");
    move_slot(&one, &two, slot);
    let there = format!("127.0.0.1:{}/0", two.port);
    while watching.until("connected")["server"] != there {}
    two.conn().line("LOCK.RELEASE k anna");
    assert_eq!(watching.until("release")["owner"], "anna");
    two.conn().line("LOCK.ACQUIRE k bert");
    watching.of("acquire", "bert");
}

/// Whatever the looks see of them: as many grants and ends as there were.
#[test]
fn each_of_many_quick_grants_is_a_line() {
    let real = TestServer::with(&ALL_EVENTS);
    let watching = Watching::start(&real, BY_EVENTS, "free");
    let mut conn = real.conn();
    for i in 0..200 {
        conn.send_line(&format!("LOCK.ACQUIRE k w{i}"));
        conn.send_line(&format!("LOCK.RELEASE k w{i}"));
    }
    for _ in 0..400 {
        conn.recv();
    }
    conn.line("LOCK.ACQUIRE k last");
    let (mut grants, mut ends) = (0, 0);
    while grants <= 200 {
        let line = watching.line();
        match line["event"].as_str() {
            Some("acquire") => grants += 1,
            Some("release") => ends += 1,
            _ => panic!("{line}"),
        }
        assert!(grants - ends <= 1 && ends <= grants, "{line}");
        let is_last = line["owner"] == "last";
        assert_eq!(is_last, grants > 200, "{line}");
    }
    assert_eq!(ends, 200);
    conn.line("LOCK.RELEASE k last");
    watching.of("release", "last");
}

#[test]
fn every_field_of_an_object_is_on_the_page() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    conn.run([b"LOCK.ACQUIRE".as_slice(), b"k", b"o\xff"]);
    conn.line("LOCK.ACQUIRE other anna");
    let mut conns = vec![parked(&real, "LOCK.ACQUIRE k anna BLOCK 0", 1)];
    conns.push(parked(&real, "LOCK.ACQUIRE other bert BLOCK 0", 2));
    let page = redis_lock_harness::page::text("cli/README.md");
    let watching = start(&real, "watch k --json");
    let mut lines: Vec<String> = (0..3).map(|_| watching.line()).collect();
    for words in [
        "ls --json",
        "info k --json",
        "top --json --once",
        "ls --graph --json",
    ] {
        let out = start(&real, words).end().ok();
        lines.extend(out.lines().map(String::from));
    }
    assert_eq!(lines.len(), 3 + 2 + 1 + 1 + 3);
    let mut fields = Vec::new();
    for line in &lines {
        collect(&serde_json::from_str(line).expect("JSON"), &mut fields);
    }
    assert!(fields.len() > 20);
    for field in fields {
        assert!(page.contains(&format!("`{field}`")), "{field}");
    }
}

/// The names of all fields of a value.
fn collect(value: &Value, fields: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                fields.push(name.clone());
                collect(value, fields);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, fields)),
        _ => {}
    }
}
