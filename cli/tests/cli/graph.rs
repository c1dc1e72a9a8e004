//! `ls --graph`, the same in `top`, and the objects of `top --json`.

use redis_lock_harness::{Conn, TestServer};
use serde_json::Value;

use crate::console::Console;
use crate::program::{start, url, Running, PROGRAM};

fn objects(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

/// Three owners in a chain: cleo waits for bert, who waits for anna. And dora waits behind cleo.
fn chain(real: &TestServer) -> Vec<Conn> {
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE orders:1 anna PX 600000");
    conn.line("LOCK.ACQUIRE orders:2 bert PX 600000");
    conn.line("LOCK.ACQUIRE other anna PX 600000");
    let mut conns = vec![conn];
    for (count, wait) in ["orders:1 bert", "orders:2 cleo", "orders:2 dora"]
        .iter()
        .enumerate()
    {
        let mut waiter = real.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE {wait} BLOCK 600000"));
        real.wait_for_waits(count as u64 + 1);
        conns.push(waiter);
    }
    conns
}

#[test]
fn the_graph_shows_queues_and_a_chain_over_three_owners() {
    let real = TestServer::start();
    let _conns = chain(&real);
    let text = start(&real, "ls --graph").end().ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "orders:1: exclusive");
    assert!(lines[1].starts_with("  held by anna, token "), "{text}");
    assert!(
        lines[2].starts_with("  1 waiting, the first for "),
        "{text}"
    );
    assert!(lines[3].starts_with("    bert, exclusive, for "), "{text}");
    assert_eq!(lines[4], "orders:2: exclusive");
    assert!(lines[7].starts_with("    cleo, "), "{text}");
    assert!(lines[8].starts_with("    dora, "), "{text}");
    assert_eq!(
        lines[9],
        "chain: cleo -> orders:2 -> bert -> orders:1 -> anna"
    );
    assert_eq!(lines.len(), 10, "{text}");
    let all = objects(&start(&real, "ls --graph --json").end().ok());
    assert_eq!(all.len(), 3);
    assert_eq!(all[0]["key"], "orders:1");
    assert_eq!(all[0]["server"], format!("127.0.0.1:{}/0", real.port));
    assert_eq!(all[1]["queue"][1]["owner"], "dora");
    assert_eq!(all[2]["cycle"], false);
    let links: Vec<(&str, Option<&str>)> = all[2]["chain"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|link| {
            (
                link["owner"].as_str().expect("a name"),
                link["waits_for"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        links,
        [
            ("cleo", Some("orders:2")),
            ("bert", Some("orders:1")),
            ("anna", None)
        ]
    );
    let few = start(&real, "ls --graph --match *:2 --waiters 1")
        .end()
        .ok();
    assert!(few.contains("2 waiting") && few.contains("cleo"), "{few}");
    assert!(!few.contains("dora") && !few.contains("chain"), "{few}");
}

#[test]
fn without_waits_the_graph_is_empty() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k anna");
    assert_eq!(start(&real, "ls --graph").end().ok(), "");
    assert_eq!(start(&real, "ls --graph --json").end().ok(), "");
}

/// No server sees such a cycle.
#[test]
fn owners_that_wait_for_each_other_at_two_servers_are_a_cycle() {
    let (one, two) = (TestServer::start(), TestServer::start());
    one.conn().line("LOCK.ACQUIRE a anna PX 600000");
    two.conn().line("LOCK.ACQUIRE b bert PX 600000");
    let (mut bert, mut anna) = (one.conn(), two.conn());
    bert.send_line("LOCK.ACQUIRE a bert BLOCK 600000");
    anna.send_line("LOCK.ACQUIRE b anna BLOCK 600000");
    one.wait_for_waits(1);
    two.wait_for_waits(1);
    let servers = format!("--server {} --server {}", url(&one), url(&two));
    let text = start(&one, &format!("ls --graph {servers}")).end().ok();
    let cycle = format!(
        "cycle: anna -> b at 127.0.0.1:{}/0 -> bert -> a at 127.0.0.1:{}/0 -> anna",
        two.port, one.port
    );
    assert_eq!(text.lines().last(), Some(cycle.as_str()), "{text}");
    let all = objects(
        &start(&one, &format!("ls --graph --json {servers}"))
            .end()
            .ok(),
    );
    assert_eq!(all[2]["cycle"], true);
    assert_eq!(all[2]["chain"].as_array().map(Vec::len), Some(2));
    let alone = start(&one, "ls --graph").end().ok();
    assert!(
        !alone.contains("cycle") && !alone.contains(" at "),
        "{alone}"
    );
    // Without --graph it is asked of one server.
    assert_eq!(start(&one, &format!("ls {servers}")).end().code(), 64);
}

#[test]
fn top_shows_the_graph_at_a_key() {
    let real = TestServer::start();
    let _conns = chain(&real);
    let mut console = Console::start(&real);
    console.line("\"$L\" top -i 0.2");
    console.see("? help");
    console.press("g");
    console.see("chain: cleo");
    console.press("g");
    console.see("KEY");
    console.quit();
}

#[test]
fn top_prints_an_object_for_each_sample() {
    let real = TestServer::start();
    let _conns = chain(&real);
    let sample = &objects(&start(&real, "top --json --once -i 0.1").end().ok())[0];
    assert_eq!((&sample["held"], &sample["waited"]), (&3.into(), &2.into()));
    assert_eq!(sample["waiters"], 3);
    assert_eq!(sample["grants_per_s"], 0.0);
    assert_eq!(sample["hand_offs_per_s"], 0.0);
    assert!(sample["longest_wait_ms"].is_u64() && sample["whole"] == true);
    assert!(
        sample["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z')),
        "{sample}"
    );
    let locks = sample["locks"].as_array().expect("a list");
    let keys: Vec<&str> = locks
        .iter()
        .filter_map(|lock| lock["key"].as_str())
        .collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    let mut samples = start(&real, "top --json -i 0.05");
    for _ in 0..3 {
        assert_eq!(objects(&samples.line())[0]["waiters"], 3);
    }
    assert!(samples.is_running());
    samples.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(samples.end().code(), 0);
    // A sample that fails is an object, too.
    let samples = start(&real, "top --json -i 0.05 --timeout 0.3");
    samples.line();
    real.signal(libc::SIGSTOP);
    while objects(&samples.line())[0]["error"].is_null() {}
    real.signal(libc::SIGCONT);
    while !objects(&samples.line())[0]["error"].is_null() {}
}

#[test]
fn names_of_any_bytes_are_unambiguous_in_the_graph() {
    let real = TestServer::start();
    let (key, owner): (&[u8], &[u8]) = (b"k\x1b\xff", b"o\xfe");
    real.conn().run([b"LOCK.ACQUIRE", key, owner]);
    let mut waiter = real.conn();
    waiter.send([
        b"LOCK.ACQUIRE".as_slice(),
        key,
        b"w\xfd",
        b"BLOCK",
        b"600000",
    ]);
    real.wait_for_waits(1);
    let text = start(&real, "ls --graph").end().ok();
    assert!(
        text.contains("k\\u{1b}\\xff: exclusive") && text.contains("w\\xfd"),
        "{text}"
    );
    let lock = &objects(&start(&real, "ls --graph --json").end().ok())[0];
    assert_eq!(lock["key_hex"], "6b1bff");
    assert_eq!(lock["queue"][0]["owner_hex"], "77fd");
}

#[test]
fn a_graph_that_is_refused_names_the_permission() {
    let real = TestServer::start();
    let _conns = chain(&real);
    for (refused, command) in [("-lock.scan", "+lock.scan"), ("-lock.info", "+lock.info")] {
        real.conn()
            .line(&format!("ACL SETUSER default +@all {refused}"));
        for words in ["ls --graph", "ls --graph --json", "top --json"] {
            let end = start(&real, words).end();
            assert_eq!(end.code(), 77, "{words}: {}", end.err);
            assert!(end.err.contains(command), "{words}: {}", end.err);
        }
    }
    real.conn().line("ACL SETUSER default +@all");
    let mut command = std::process::Command::new(PROGRAM);
    let without = TestServer::without_module(&[]);
    command
        .env("REDIS_LOCK_URL", url(&without))
        .args(["ls", "--graph"]);
    let end = Running::of(&mut command).end();
    assert_eq!(end.code(), 69);
    assert!(end.err.contains("loadmodule"), "{}", end.err);
}
