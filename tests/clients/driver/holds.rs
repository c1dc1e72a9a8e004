//! The scenarios of a hold that every package passes, whatever the language: each way to lose it, a closed client, a
//! program that stood still, a node that hangs, a connection that breaks at each of its requests, and what errors say.
//! `main.rs` has the table of the scenarios and the packages; `clients/README.md` that of the errors.

use std::time::{Duration, Instant};

use libc::{SIGCONT, SIGSTOP};
use redis_lock_harness::clock::clock_of;
use redis_lock_harness::cluster::{lock_scenes, slot_of, two_nodes};
use redis_lock_harness::loss::{lose, restore, LOSSES};
use redis_lock_harness::{wait_for, Conn, TestServer};

use crate::agent::{token_in, Agent};
use crate::proxy::Proxy;
use crate::ticket_agent::TicketAgent;
use crate::TicketSubject;

/// No renewal falls into a test with this lease, in milliseconds.
const LONG: u32 = 600_000;

/// With this one a renewal follows within a second.
const SHORT: u32 = 3_000;

/// How the holder may learn of it: by an order, with the answers that tell it.
const PROBES: [(&str, &[&str]); 4] = [
    ("lost", &["lost"]),
    ("do SET data late", &["error lost "]),
    ("renew 5000", &["0", "error lost "]),
    ("release", &["0", "error lost "]),
];

/// Whatever ends a hold, the holder learns of it from the reply to any request, changes nothing, and leaves what
/// another owner has.
pub fn every_end_of_a_hold_is_a_loss(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut agent = TicketAgent::start(subject, server.port);
    for (way, commands) in LOSSES {
        for (probe, answers) in PROBES {
            // The renewal of the library tells it, or else no renewal falls into the test.
            let token = match probe {
                "lost" => agent.keep("k", SHORT),
                _ => agent.hold("k", LONG),
            };
            lose(&mut conn, commands);
            let (order, more) = probe.split_once(' ').unwrap_or((probe, ""));
            let answer = agent.ask(format!("{order} k a {token} {more}").trim_end());
            let tells = answers.iter().any(|expected| answer.starts_with(expected));
            assert!(tells, "{way}, {order}: {answer}");
            if order != "release" {
                assert_eq!(
                    agent.ask(&format!("lost k a {token}")),
                    "lost",
                    "{way}, {order}"
                );
                assert_eq!(
                    agent.ask(&format!("state k a {token}")),
                    "lost",
                    "{way}, {order}"
                );
            }
            assert_eq!(conn.line("EXISTS data").int(), 0, "{way}, {order}");
            restore(&mut conn, commands, &format!("{way}, {order}"));
        }
    }
}

/// A closed client has let go of everything: its waits end, its holds are released and do not count as held, nothing
/// is left at the server, and it takes no further order.
pub fn closed_while_it_holds_and_waits(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE other holder PX 600000");
    let mut agent = TicketAgent::start(subject, server.port);
    let token = agent.keep("k", LONG);
    agent.acquire("other", "waiter", LONG);
    wait_for("a wait", || server.stat("tickets") == 1);
    assert_eq!(agent.ask("close"), "closed");
    let answer = agent.answer_to("waiter");
    assert!(answer.starts_with("error closed "), "{answer}");
    assert_eq!(agent.ask(&format!("state k a {token}")), "lost");
    wait_for("the release", || conn.line("EXISTS k").int() == 0);
    wait_for("no wait", || server.stat("tickets") == 0);
    assert_eq!(agent.ask("close"), "closed", "a second time");
    let answer = agent.ask("acquire k a 1000 30000");
    assert!(answer.starts_with("error closed "), "{answer}");
}

/// The callback of a loss closes the client: nothing hangs, and all else ends as by any close.
pub fn closed_in_the_callback_of_a_loss(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE other holder PX 600000");
    let mut agent = TicketAgent::start(subject, server.port);
    let kept = agent.keep("kept", LONG);
    agent.keep_and("closing", "k", "close");
    agent.acquire("other", "waiter", LONG);
    wait_for("a wait", || server.stat("tickets") == 1);
    conn.line("DEL k");
    assert_eq!(agent.answer_to("closing"), "closed");
    let answer = agent.answer_to("waiter");
    assert!(answer.starts_with("error closed "), "{answer}");
    assert_eq!(agent.ask(&format!("state kept a {kept}")), "lost");
    wait_for("the release", || conn.line("EXISTS kept").int() == 0);
    wait_for("no wait", || server.stat("tickets") == 0);
}

/// The program closes its own client under a hold and a wait: both end, what comes later is refused, nothing stays at
/// the server for longer than the lease, and nothing keeps the process.
pub fn the_programs_client_is_closed(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE other holder PX 600000");
    let mut agent = TicketAgent::start(subject, server.port);
    let token = agent.keep("k", SHORT);
    agent.acquire("other", "waiter", LONG);
    wait_for("a wait", || server.stat("tickets") == 1);
    assert_eq!(agent.ask("disconnect"), "disconnected");
    let answer = agent.answer_to("waiter");
    assert!(answer.starts_with("error closed "), "{answer}");
    let answer = agent.ask("acquire k a 1000 30000");
    assert!(answer.starts_with("error closed "), "{answer}");
    assert_eq!(agent.ask(&format!("lost k a {token}")), "lost");
    conn.line("LOCK.RELEASE other holder");
    wait_for("no hold", || conn.line("EXISTS k other").int() == 0);
    wait_for("no wait", || server.stat("tickets") == 0);
    agent.end();
}

/// Callbacks and handlers of the log that block, more of them than most pools have threads, delay nothing else.
pub fn what_blocks_delays_nothing(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut agent = TicketAgent::start(subject, server.port);
    // Forty threads more may stop a process on a busy machine for as long as a short lease.
    let kept = agent.keep("kept", 3 * SHORT);
    let ids: Vec<String> = match subject.client {
        // This crate has no callbacks.
        "rust-package" => vec![],
        _ => (0..40).map(|i| format!("blocking{i}")).collect(),
    };
    for id in &ids {
        agent.keep_and(id, id, "block");
    }
    agent.order("logging", "block-log");
    assert_eq!(agent.answer_to("logging"), "blocks");
    agent.keep("unheard", SHORT);
    conn.line(&format!("DEL unheard {}", ids.join(" ")));
    for id in ids.iter().map(String::as_str).chain(["logging"]) {
        assert_eq!(agent.answer_to(id), "blocked");
    }
    let renewed = renewals(&mut conn);
    wait_for("renewals", || renewals(&mut conn) >= renewed + 3);
    assert_eq!(agent.ask(&format!("state kept a {kept}")), "held");
    conn.line("LOCK.ACQUIRE k holder PX 600000");
    agent.acquire("k", "waiter", LONG);
    wait_for("a wait", || server.stat("tickets") == 1);
    conn.line("LOCK.RELEASE k holder");
    let token = token_in(&agent.answer_to("waiter"));
    assert_eq!(agent.release("k", "waiter", token), "1");
    assert_eq!(agent.ask(&format!("release kept a {kept}")), "1");
    assert_eq!(agent.ask("unblock"), "unblocked");
}

/// A program that stood still for longer than its lease does not believe that it holds the lock.
pub fn frozen_past_the_lease(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut agent = TicketAgent::start(subject, server.port);
    for order in ["state", "do"] {
        let token = agent.keep("k", SHORT);
        agent.signal(SIGSTOP);
        wait_for("the end of the lease", || conn.line("EXISTS k").int() == 0);
        let next = conn.line("LOCK.ACQUIRE k next PX 600000").int();
        let more = if order == "do" { " SET data late" } else { "" };
        agent.order("thawed", &format!("{order} k a {token}{more}"));
        agent.signal(SIGCONT);
        let answer = agent.answer_to("thawed");
        assert!(
            answer == "lost" || answer.starts_with("error lost "),
            "{order}: {answer}"
        );
        assert_eq!(agent.ask(&format!("release k a {token}")), "0");
        assert_eq!(conn.line("EXISTS data").int(), 0);
        assert_eq!(
            conn.line(&format!("LOCK.RELEASE k next TOKEN {next}"))
                .int(),
            1
        );
    }
}

/// One node of a cluster hangs: what is held at another one stays held.
pub fn a_node_that_hangs_costs_no_hold_of_another(subject: &TicketSubject) {
    let _scene = lock_scenes();
    // A node that is silent is not declared dead.
    let (node, hung) = two_nodes(&["--cluster-node-timeout", "600000"]);
    let mut conn = node.conn();
    let mut agent = TicketAgent::start_in_cluster(subject, node.port, "{a}");
    // The second node has one slot.
    let there = (0..)
        .map(|i| format!("{{{i}}}k"))
        .find(|key| slot_of(&mut conn, key) == 16_383)
        .expect("a key");
    let (mine, other) = (agent.keep("{a}k", SHORT), agent.keep(&there, SHORT));
    hung.signal(SIGSTOP);
    let answer = agent.ask(&format!("lost {there} a {other}"));
    assert_eq!(answer, "lost", "the loss of what no node confirms");
    let renewed = renewals(&mut conn);
    wait_for("renewals at the other node", || {
        renewals(&mut conn) >= renewed + 3
    });
    hung.signal(SIGCONT);
    assert_eq!(agent.ask(&format!("state {{a}}k a {mine}")), "held");
    assert_eq!(agent.ask(&format!("release {{a}}k a {mine}")), "1");
}

fn renewals(conn: &mut Conn) -> u64 {
    let stats = conn.line("INFO commandstats").text();
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_lock.renew:calls=")?;
        rest.split(',').next()?.parse().ok()
    };
    stats.lines().find_map(calls).unwrap_or(0)
}

/// The connection breaks at the first, second, ... piece that the client sends, until an acquisition, a grant after a
/// wait and a release need no further one: the client gets the lock or an error, and nothing is left at the server.
pub fn a_break_at_each_request_leaves_nothing(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let proxy = Proxy::before(server.port);
    let mut agent = TicketAgent::start(subject, proxy.port);
    let mut granted = 0;
    for broken in 1.. {
        let lost = proxy.lost();
        proxy.lose_reply_to_piece(broken);
        let owner = format!("o{broken}");
        conn.line("LOCK.ACQUIRE k holder PX 600000");
        agent.acquire("k", &owner, 20_000);
        let mut answer = None;
        wait_for("a wait, or an answer", || {
            answer = agent.so_far(&owner);
            answer.is_some() || server.stat("tickets") == 1
        });
        conn.line("LOCK.RELEASE k holder");
        let answer = answer.unwrap_or_else(|| agent.answer_to(&owner));
        if let Some(token) = answer.strip_prefix("token ") {
            granted += 1;
            let released = agent.ask(&format!("release k {owner} {token}"));
            let is_unheard = released.starts_with("error ");
            assert!(released == "1" || is_unheard, "piece {broken}: {released}");
        }
        wait_for("nothing is held", || conn.line("EXISTS k").int() == 0);
        wait_for("nothing waits", || server.stat("tickets") == 0);
        let is_over = proxy.lost() == lost;
        proxy.lose_reply_to_piece(0);
        if is_over {
            break;
        }
        assert!(broken < 100, "the acquisition ends");
    }
    assert!(granted > 0);
    let token = agent.keep("k", LONG);
    assert_eq!(agent.ask(&format!("release k a {token}")), "1");
}

/// The reply to a command under the lock is lost: it may have run.
pub fn a_command_without_a_reply_may_have_run(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let proxy = Proxy::before(server.port);
    let mut agent = TicketAgent::start(subject, proxy.port);
    let token = agent.keep("k", LONG);
    assert_eq!(agent.ask(&format!("do k a {token} INCR number")), "did 1");
    proxy.lose_reply_to("LOCK.IF");
    let answer = agent.ask(&format!("do k a {token} INCR number"));
    assert_eq!(proxy.lost(), 1);
    let ran = conn.line("GET number").text();
    let is_told = answer.starts_with("error unheard ") && ran == "2";
    // By default these send a command again themselves; the README says so.
    let is_repeated = ["ioredis", "iovalkey"].contains(&subject.mode) && ran == "3";
    assert!(is_told || is_repeated, "{answer}; the number is {ran}");
    assert_eq!(agent.ask(&format!("state k a {token}")), "held");
    assert_eq!(agent.ask(&format!("release k a {token}")), "1");
}

/// A command under a hold writes each value as the program's own client does, or refuses it as a wrong use.
pub fn arguments_are_written_as_by_the_programs_client(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut agent = TicketAgent::start(subject, server.port);
    let token = agent.keep("k", LONG);
    let answer = agent.ask(&format!("types k a {token}"));
    let types = answer.strip_prefix("types ").expect("types");
    let mut compared = 0;
    for (name, result) in types.split(' ').filter_map(|one| one.split_once('=')) {
        let mut get = |of: &str| conn.run(["GET", &format!("{of}:{name}")]);
        let (own, done) = (get("own"), get("do"));
        match result {
            "ok" if own.is_nil() => assert!(!done.is_nil(), "{name}"),
            "ok" => {
                assert_eq!(done.bytes(), own.bytes(), "{name}");
                compared += 1;
            }
            _ => assert!(result == "usage" && done.is_nil(), "{name}: {result}"),
        }
    }
    assert!(compared >= 3, "{answer}");
}

/// What helps is in the error: another argument, a semaphore that is created first, a right, another server, a module.
pub fn errors_say_what_is_wrong(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut agent = TicketAgent::start(subject, server.port);
    agent.fails("keep k a 1000 0", "usage", "");
    for wait in [0, 60_000] {
        agent.fails(
            &format!("permit none a {wait} 30000"),
            "no-semaphore",
            "none",
        );
    }
    conn.line("ACL SETUSER default -lock.acquire");
    agent.fails("acquire k a 1000 30000", "other", "lock.acquire");
    conn.line("ACL SETUSER default +lock.acquire");
    let token = agent.keep("k", LONG);
    conn.line("ACL SETUSER default -lock.release");
    agent.fails(&format!("release k a {token}"), "other", "lock.release");
    conn.line("ACL SETUSER default +lock.release");
    conn.line("REPLICAOF 127.0.0.1 1");
    agent.fails("acquire other a 1000 30000", "other", "READONLY");
    conn.line("REPLICAOF NO ONE");

    let bare = TestServer::without_module(&[]);
    let mut agent = TicketAgent::start(subject, bare.port);
    agent.fails("acquire k a 1000 30000", "other", "module");
}

/// A server that is full, or that loads its data: the error says so in time, what is held stays held, and nothing is
/// left.
pub fn a_full_or_loading_server_says_so(subject: &TicketSubject) {
    // It serves its clients after each kilobyte that it has loaded.
    let server = TestServer::with(&[
        "--loading-process-events-interval-bytes",
        "1024",
        "--rdbcompression",
        "no",
    ]);
    let mut conn = server.conn();
    let mut agent = TicketAgent::start(subject, server.port);
    let full = agent.keep("full", LONG);
    conn.line("CONFIG SET maxmemory 1");
    agent.fails("acquire other a 1000 30000", "other", "OOM");
    assert_eq!(agent.ask(&format!("release full a {full}")), "1");
    conn.line("CONFIG SET maxmemory 0");

    let loading = agent.keep("loading", LONG);
    conn.line("DEBUG POPULATE 20000 filler 1100");
    // Microseconds for each key: the load lasts until it is set back.
    conn.line("CONFIG SET key-load-delay 5000");
    let mut load = server.conn();
    load.send_line("DEBUG RELOAD");
    wait_for("the load", || {
        server.info_field("persistence", "loading") == "1"
    });
    // redis-py repeats the request itself until the wait is over, and keeps the reply.
    let says = match subject.client {
        "python-package" => "no answer in time",
        _ => "LOADING",
    };
    agent.fails("acquire other a 5000 30000", "other", says);
    assert_eq!(server.info_field("persistence", "loading"), "1");
    conn.line("CONFIG SET key-load-delay 0");
    assert_eq!(load.recv().text(), "OK");
    assert_eq!(agent.ask(&format!("state loading a {loading}")), "held");
    assert_eq!(agent.ask(&format!("release loading a {loading}")), "1");
    wait_for("no wait", || server.stat("tickets") == 0);
    assert_eq!(conn.line("EXISTS other").int(), 0);
}

/// A module that lacks a command, as an older one does: the error names the command and the module.
pub fn an_older_module_is_named(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("SEM.SET permits 1");
    let proxy = Proxy::before(server.port);
    let mut agent = TicketAgent::start(subject, proxy.port);
    let token = agent.hold("k", LONG);
    for (command, order) in [
        ("LOCK.IF", format!("do k a {token} SET data late")),
        ("SEM.ACQUIRE", "permit permits a 1000 30000".into()),
        ("LOCK.ACQUIRE", "acquire other a 1000 30000".into()),
        ("LOCK.RENEW", format!("renew k a {token} 600000")),
        ("LOCK.RELEASE", format!("release k a {token}")),
    ] {
        proxy.make_unknown(command);
        let answer = agent.ask(&order);
        let changed = format!("{}_", &command[..command.len() - 1]);
        let says = answer.starts_with("error other ") && answer.contains(&changed);
        assert!(says && answer.contains("module"), "{order}: {answer}");
    }
    assert_eq!(conn.line("EXISTS data other").int(), 0);
    wait_for("no wait", || server.stat("tickets") == 0);
}

/// The wall clock is set back and forward under a hold and a wait: the wait ends in time, a hold is kept or its loss is
/// told, and later ones are kept. (A program in Go has the time from the kernel: its clock stays.)
pub fn a_clock_that_is_set_changes_no_bound(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE other holder PX 600000");
    let place = tempfile::tempdir().expect("a directory");
    let mut program = Agent::program(subject.client);
    let clock = clock_of(&mut program, place.path());
    let mut agent = TicketAgent::start_by(subject, program, server.port);
    for seconds in ["-3600", "3600"] {
        let token = agent.keep("k", SHORT);
        let start = Instant::now();
        agent.acquire("other", "waiter", 3_000);
        wait_for("a wait", || server.stat("tickets") == 1);
        std::fs::write(&clock, seconds).expect("a file");
        let renewed = renewals(&mut conn);
        let mut state = String::new();
        wait_for("renewals, or a loss", || {
            state = agent.ask(&format!("state k a {token}"));
            state == "lost" || renewals(&mut conn) >= renewed + 3
        });
        // An hour that passes by the wall clock alone may be that of a machine that slept.
        assert!(state == "held" || seconds == "3600", "{state}");
        assert_eq!(agent.answer_to("waiter"), "nil");
        assert!(start.elapsed() >= Duration::from_millis(2_999));
        let released = agent.ask(&format!("release k a {token}"));
        assert!(["0", "1"].contains(&released.as_str()) || released.starts_with("error lost "));
        wait_for("no hold", || conn.line("EXISTS k").int() == 0);
    }
    let token = agent.keep("k", SHORT);
    assert_eq!(agent.ask(&format!("state k a {token}")), "held");
    assert_eq!(agent.ask(&format!("release k a {token}")), "1");
}
