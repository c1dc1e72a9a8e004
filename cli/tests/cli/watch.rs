//! `watch`: the history of locks of real servers, with and without key events, over lost connections.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use redis_lock_harness::cluster::{move_slot, slot_of, two_nodes};
use redis_lock_harness::process::spawn;
use redis_lock_harness::{wait_for, Conn, TestServer};
use serde_json::{json, Value};

use crate::program::{program, start, url, Running, PROGRAM};

const ALL_EVENTS: [&str; 2] = ["--notify-keyspace-events", "KA"];
/// The state is read again after that time only: what comes sooner comes by an event.
const BY_EVENTS: &str = "--interval 600";

/// A running `watch --json`.
struct Watching(Running);

impl Watching {
    /// Follows the lock `k` of this server, from its first state on.
    fn start(real: &TestServer, options: &str, holder: &str) -> Watching {
        let watching = Watching(start(real, &format!("watch k --json {options}")));
        watching.connected();
        assert_eq!(holder_of(&watching.until("state")), holder);
        watching
    }

    fn line(&self) -> Value {
        let line = self.0.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn connected(&self) -> Value {
        let line = self.line();
        assert_eq!(line["events"], json!(["connected"]), "{line}");
        line
    }

    /// The next line with this event, whatever comes before it.
    fn until(&self, event: &str) -> Value {
        loop {
            let line = self.line();
            if events_of(&line).contains(&event.into()) {
                return line;
            }
        }
    }

    /// Reads until the module's events were these and no others, and the lock has this holder. A state may be read
    /// before its event has come.
    fn see(&self, events: &str, holder: &str) -> Value {
        let mut seen = String::new();
        loop {
            let line = self.line();
            for event in events_of(&line) {
                if let Some(name) = event.strip_prefix("lock.") {
                    seen += &format!("{}{name}", if seen.is_empty() { "" } else { " " });
                }
            }
            if seen == events && holder_of(&line) == holder {
                return line;
            }
            assert!(
                events.starts_with(&seen),
                "{seen} in place of {events}: {line}"
            );
        }
    }
}

fn events_of(line: &Value) -> Vec<String> {
    let events = line["events"].as_array().expect("a list");
    events
        .iter()
        .filter_map(|name| name.as_str().map(String::from))
        .collect()
}

fn holder_of(line: &Value) -> &str {
    line["holders"][0]["owner"].as_str().unwrap_or_default()
}

fn parked(real: &TestServer, words: &str, count: u64) -> Conn {
    let mut waiter = real.conn();
    waiter.send_line(words);
    real.wait_for_waits(count);
    waiter
}

#[test]
fn every_event_of_a_lock_comes_with_the_state_after_it() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching::start(&real, "--interval 1 --renewals", "");
    let token = conn.line("LOCK.ACQUIRE k anna PX 600000").int();
    let line = watching.see("acquire", "anna");
    let holder = &line["holders"][0];
    assert_eq!(
        (&holder["token"], &holder["holds"]),
        (&token.into(), &1.into())
    );
    assert_eq!(
        (&line["mode"], &line["key"]),
        (&"exclusive".into(), &"k".into())
    );
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    assert_eq!(watching.see("", "anna")["holders"][0]["holds"], 2);
    conn.line("LOCK.RELEASE k anna");
    assert_eq!(watching.see("", "anna")["holders"][0]["holds"], 1);
    conn.line("LOCK.RENEW k anna PX 900000");
    let lease = &watching.until("renewed")["holders"][0]["lease_ms"];
    assert!(
        lease.as_u64().is_some_and(|lease| lease > 800_000),
        "{lease}"
    );
    let mut bert = parked(&real, "LOCK.ACQUIRE k bert PX 600000 BLOCK 500000", 1);
    let line = watching.see("wait", "anna");
    assert_eq!(line["queue"][0]["owner"], "bert");
    let cleo = parked(&real, "LOCK.ACQUIRE k cleo BLOCK 0", 2);
    assert_eq!(watching.see("wait", "anna")["waiters"], 2);
    cleo.close();
    assert_eq!(watching.see("", "anna")["waiters"], 1);
    conn.line("LOCK.RELEASE k anna");
    let line = watching.see("release acquire", "bert");
    assert_eq!(line["holders"][0]["token"], bert.recv().int());
    conn.line("LOCK.BREAK k");
    watching.see("break", "");
    conn.line("LOCK.ACQUIRE k anna PX 3000");
    watching.see("acquire expire", "");
    conn.line("LOCK.ACQUIRE k anna");
    watching.see("acquire", "anna");
    // What happened to the key says why a hold was lost.
    for (words, cause) in [("DEL k", "del"), ("SET k v", "set"), ("FLUSHALL", "")] {
        conn.line(words);
        let mut line = watching.line();
        let mut causes = events_of(&line);
        while !causes.contains(&"lock.lost".into()) {
            line = watching.line();
            causes.extend(events_of(&line));
        }
        assert!(
            cause.is_empty() || causes.contains(&cause.into()),
            "{causes:?}"
        );
        assert_eq!(holder_of(&line), "");
        conn.line("DEL k");
        conn.line("LOCK.ACQUIRE k anna");
        watching.see("acquire", "anna");
    }
}

#[test]
fn an_eviction_is_among_the_events_of_a_loss() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching::start(&real, BY_EVENTS, "");
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.see("acquire", "anna");
    conn.line("CONFIG SET maxmemory-policy volatile-ttl");
    conn.line("CONFIG SET maxmemory 1");
    conn.line("SET x y");
    watching.until("evicted");
    conn.line("CONFIG SET maxmemory 0");
}

#[test]
fn readers_and_writers_have_their_mode() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    let watching = Watching::start(&real, "--interval 0.1", "");
    conn.line("LOCK.ACQUIRE k anna READ PX 600000");
    assert_eq!(watching.see("acquire", "anna")["mode"], "read");
    conn.line("LOCK.ACQUIRE k bert READ PX 600000");
    let line = watching.until("lock.acquire");
    assert!(line["holders"].to_string().contains("\"bert\""), "{line}");
    conn.line("LOCK.RELEASE k bert READ");
    watching.see("release", "anna");
    conn.line("LOCK.ACQUIRE k anna WRITE PX 600000");
    assert_eq!(watching.see("acquire", "anna")["mode"], "write");
    conn.line("LOCK.RELEASE k anna WRITE");
    assert_eq!(watching.see("release", "anna")["mode"], "read");
    conn.line("LOCK.RELEASE k anna READ");
    watching.see("release", "");
}

/// Tracking and the messages of releases need no setting.
#[test]
fn without_key_events_changes_are_seen_without_their_names() {
    let real = TestServer::start();
    let mut conn = real.conn();
    let watching = Watching(start(&real, &format!("watch k --json {BY_EVENTS}")));
    let line = watching.connected();
    assert_eq!(line["server"], format!("127.0.0.1:{}/0", real.port));
    let note = line["note"].as_str().expect("a note");
    assert!(
        note.contains("notify-keyspace-events is \"\"") && note.contains("K and A"),
        "{note}"
    );
    watching.until("state");
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.see("", "anna");
    let mut bert = parked(&real, "LOCK.ACQUIRE k bert PX 600000 BLOCK 0", 1);
    conn.line("LOCK.RELEASE k anna ALL");
    bert.recv();
    watching.see("", "bert");
    conn.line("LOCK.RELEASE k bert");
    assert_eq!(events_of(&watching.see("", "")), ["changed"]);
    let setting = conn.line("CONFIG GET notify-keyspace-events").list()[1].text();
    assert_eq!(setting, "");
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

/// The module opens a window for Redisson's waiters where the channel of a lock has a subscriber by name.
#[test]
fn a_watched_lock_is_handed_off_as_any_other() {
    let real = TestServer::with(&ALL_EVENTS);
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k w0");
    let watching = Watching::start(&real, BY_EVENTS, "w0");
    let mut waiters: Vec<Conn> = (1..=4)
        .map(|i| parked(&real, &format!("LOCK.ACQUIRE k w{i} BLOCK 0"), i))
        .collect();
    for (i, waiter) in waiters.iter_mut().enumerate() {
        conn.line(&format!("LOCK.RELEASE k w{i}"));
        waiter.recv();
        let next = format!("w{}", i + 1);
        while holder_of(&watching.line()) != next {}
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
        watching.until("state");
    }
    conn.run([b"LOCK.ACQUIRE".as_slice(), b"k\xff\x1b", b"o\xfe"]);
    let line = watching.until("lock.acquire");
    assert_eq!(
        (&line["key_hex"], &line["holders"][0]["owner_hex"]),
        (&"6bff1b".into(), &"6ffe".into())
    );
    conn.line("LOCK.ACQUIRE b anna");
    assert_eq!(watching.until("lock.acquire")["key"], "b");
    conn.run(["LOCK.ACQUIRE", "a", "x, token 9"]);
    let text = start(&real, "watch a b --key-hex 6bff1b");
    let lines: Vec<String> = (0..6).map(|_| text.line()).collect();
    for part in [
        "  k\\xff\\u{1b}  state         held by o\\xfe, token ",
        "  b  state         held by anna, token ",
        "  a  state         held by \"x, token 9\", token ",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(part)),
            "{part}: {lines:?}"
        );
    }
}

#[test]
fn it_connects_again_after_a_restart_and_a_crash() {
    let mut real = TestServer::with(&ALL_EVENTS);
    let watching = Watching::start(&real, "--interval 0.1", "");
    real.conn().line("LOCK.ACQUIRE k anna PX 600000");
    watching.see("acquire", "anna");
    real.restart();
    let line = watching.until("disconnected");
    assert!(line["cause"].is_string(), "{line}");
    let line = watching.connected();
    assert_eq!(line["server"], format!("127.0.0.1:{}/0", real.port));
    // The server has no persistence, so the lock is gone.
    assert_eq!(holder_of(&watching.until("state")), "");
    real.conn().line("LOCK.ACQUIRE k bert");
    watching.see("acquire", "bert");
    real.crash_and_restart();
    watching.until("connected");
    assert_eq!(holder_of(&watching.until("state")), "");
    real.conn().line("LOCK.ACQUIRE k cleo");
    watching.see("acquire", "cleo");
    real.conn().line("LOCK.RELEASE k cleo");
    watching.see("release", "");
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
    let watching = Watching::start(&real, "--interval 0.1 --timeout 3", "");
    real.signal(libc::SIGSTOP);
    let first = start(&real, "watch k --timeout 3").end();
    assert_eq!(first.code(), 69, "{}", first.err);
    assert!(first.err.contains("no answer in time"), "{}", first.err);
    watching.until("disconnected");
    real.signal(libc::SIGCONT);
    watching.until("state");
    real.conn().line("LOCK.ACQUIRE k anna");
    watching.see("acquire", "anna");
}

#[test]
fn it_ends_cleanly_on_ctrl_c_and_with_the_signal_on_others() {
    let real = TestServer::start();
    for (signal, status) in [(Signal::SIGINT, 0), (Signal::SIGTERM, 143)] {
        let watching = Watching::start(&real, "", "");
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
    assert!(deaf.line().contains("changed       held by anna, token "));
    conn.line("LOCK.RELEASE k anna");
    assert!(deaf.line().contains("changed       free"));
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
                        "INFO" => "$0\r\n\r\n",
                        "HELLO" | "CLIENT" | "PING" => "+OK\r\n",
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
    let line = watching.connected();
    assert_eq!(line["server"], format!("127.0.0.1:{}/0", one.port));
    watching.until("state");
    let mut conn = one.conn();
    conn.line("LOCK.ACQUIRE k anna PX 600000");
    watching.see("acquire", "anna");
    let slot = slot_of(&mut conn, "k");
    move_slot(&one, &two, slot);
    let there = format!("127.0.0.1:{}/0", two.port);
    while watching.until("connected")["server"] != there {}
    watching.until("state");
    two.conn().line("LOCK.RELEASE k anna");
    watching.see("release", "");
    two.conn().line("LOCK.ACQUIRE k bert");
    watching.see("acquire", "bert");
}

/// Whatever the looks see of them: as many grants and ends as there were.
#[test]
fn each_of_many_quick_grants_is_listed() {
    let real = TestServer::with(&ALL_EVENTS);
    let watching = Watching::start(&real, BY_EVENTS, "");
    let mut conn = real.conn();
    for i in 0..200 {
        conn.send_line(&format!("LOCK.ACQUIRE k w{i}"));
        conn.send_line(&format!("LOCK.RELEASE k w{i}"));
    }
    for _ in 0..400 {
        conn.recv();
    }
    conn.line("LOCK.ACQUIRE k last");
    watching.see(&("acquire release ".repeat(200) + "acquire"), "last");
    // As text they are counted.
    let text = start(&real, "watch k");
    while !text.line().contains("  state ") {}
    for _ in 0..3 {
        conn.send_line("LOCK.RELEASE k last");
        conn.send_line("LOCK.ACQUIRE k last");
    }
    let (mut line, mut count) = (text.line(), 0);
    loop {
        let events = line
            .split_whitespace()
            .skip(1)
            .filter(|word| word.starts_with("lock.acquire"));
        let numbers = events.map(|word| word.split('*').nth(1).map_or(Ok(1), str::parse));
        count += numbers
            .map(|number: Result<u32, _>| number.expect("a number"))
            .sum::<u32>();
        if count == 3 {
            break;
        }
        line = text.line();
    }
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
    let mut lines: Vec<String> = (0..2).map(|_| watching.line()).collect();
    for words in [
        "ls --json",
        "info k --json",
        "top --json --once",
        "ls --graph --json",
    ] {
        let out = start(&real, words).end().ok();
        lines.extend(out.lines().map(String::from));
    }
    assert_eq!(lines.len(), 2 + 2 + 1 + 1 + 3);
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
