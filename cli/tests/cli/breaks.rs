//! `break`: whom it broke, and the question at a terminal.

use redis_lock_harness::{wait_for, TestServer};

use crate::console::Console;
use crate::program::{script, start, url};

fn is_held(real: &TestServer) -> bool {
    real.conn().line("EXISTS k").int() == 1
}

#[test]
fn break_says_whom_it_broke() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("CLIENT SETNAME nightly");
    let token = conn.line("LOCK.ACQUIRE k me").int();
    let broken = start(&real, "break k").end().ok();
    let whom = format!("k: broken, was held by me, token {token}, for ");
    assert!(
        broken.starts_with(&whom) && broken.ends_with("(nightly)\n"),
        "{broken}"
    );
    let token = conn.line("LOCK.ACQUIRE k me").int();
    let broken = start(&real, "break k --json").end().ok();
    for field in [
        r#""broken":true"#,
        r#""owner":"me""#,
        &format!(r#""token":{token}"#),
    ] {
        assert!(broken.contains(field), "{broken}");
    }
    let broken = start(&real, "break k --json").end();
    assert_eq!(
        (broken.code(), broken.out.contains(r#""holders":[]"#)),
        (1, true)
    );
}

/// A user may be permitted to break locks, and not to see their holders.
#[test]
fn break_needs_no_permission_to_look() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k me");
    conn.line("ACL SETUSER may on >pass ~* +@all -lock.info");
    let server = url(&real).replace("//", "//may:pass@");
    let broken = start(&real, &format!("break k --server {server}"))
        .end()
        .ok();
    assert_eq!(broken, "k: broken\n");
}

#[test]
fn break_asks_at_a_terminal() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    for (answer, status) in [("n", "1"), ("", "1"), ("y", "0")] {
        real.conn().line("LOCK.ACQUIRE k me ONCE");
        console.line("\"$L\" break k");
        console.see("k: held by me, token ");
        console.see("break it? [y/N] ");
        console.line(answer);
        assert_eq!(console.status(), status, "{answer}");
        assert_eq!(is_held(&real), status == "1", "{answer}");
    }
    real.conn().line("LOCK.ACQUIRE k me");
    console.line("\"$L\" break -y k");
    console.see("k: broken, was held by me");
    assert_eq!(console.status(), "0");
}

#[test]
fn the_permit_of_one_owner_is_broken() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("SEM.ACQUIRE {s}1 anna LIMIT 2 PX 600000");
    conn.line("SEM.ACQUIRE {s}1 bert PX 500000");
    let shown = start(&real, "info {s}1").end().ok();
    let holders: Vec<_> = shown.lines().skip(2).collect();
    assert!(
        holders[0].starts_with("  held by bert, lease 8m"),
        "{shown}"
    );
    assert!(
        holders[1].starts_with("  held by anna, lease 9m"),
        "{shown}"
    );
    let shown = start(&real, "info {s}1 --json").end().ok();
    assert!(shown.contains(r#""owner":"anna","#), "{shown}");
    let end = start(&real, "break {s}1").end();
    assert_eq!(end.code(), 65);
    assert!(
        end.err
            .contains("of a semaphore name --permits (run), --owner (break)"),
        "{}",
        end.err
    );
    // It asks.
    let mut console = Console::start(&real);
    console.line("\"$L\" break {s}1 --owner anna");
    console.see("{s}1: held by anna, lease 9m");
    console.see("break it? [y/N] ");
    console.line("n");
    assert_eq!(console.status(), "1");
    let broken = start(&real, "break {s}1 --owner anna").end().ok();
    assert!(
        broken.starts_with("{s}1: broken, was held by anna, lease 9m"),
        "{broken}"
    );
    let again = start(&real, "break {s}1 --owner anna").end();
    assert_eq!((again.code(), again.out.as_str()), (1, "{s}1: not held\n"));
    assert_eq!(conn.line("SEM.RENEW {s}1 bert").int(), 1);
    // A run learns of it as of a lock's end.
    let run = script(&real, "--permits 1 --owner me --lease 20", "exec sleep 100");
    wait_for("a permit", || !conn.line("SEM.INFO k").is_nil());
    start(&real, "break k --owner me --json").end().ok();
    assert_eq!(run.end().code(), 75);
}

#[test]
fn a_lock_is_taken_before_those_that_wait() {
    let real = TestServer::start();
    let mut conn = real.conn();
    let broken = script(&real, "--owner first --lease 60", "exec sleep 100");
    wait_for("a lock", || is_held(&real));
    let waits = script(&real, "", "echo waited");
    real.wait_for_waits(1);
    let steals = script(
        &real,
        "--steal --owner thief --note repair",
        "echo $LOCK_TOKEN; read x",
    );
    let end = steals.end();
    assert!(
        end.err
            .starts_with("redis-lock: k: broken, was held by first, token "),
        "{}",
        end.err
    );
    let token: u64 = end.out.trim().parse().expect("a token");
    assert!(end.code() == 1 && token > 0, "{}", end.err);
    // It has learnt of it at once, and the wait goes on.
    assert_eq!(broken.end().code(), 75);
    assert_eq!(waits.end().ok(), "waited\n");
    // A free lock is taken without a word; what is held in another way is not.
    let free = script(&real, "--steal", "echo free").end();
    assert_eq!((free.out.as_str(), free.err.as_str()), ("free\n", ""));
    conn.line("LOCK.ACQUIRE k reader READ");
    assert_eq!(script(&real, "--steal", "").end().code(), 65);
    for options in ["--shared", "--permits 2", "--and j"] {
        let end = script(&real, &format!("--steal {options}"), "").end();
        assert_eq!(end.code(), 64, "{options}: {}", end.err);
    }
    conn.line("DEL k");
    // For several commands.
    conn.line("LOCK.ACQUIRE k first");
    let taken = start(&real, "acquire --steal --lease 600 --owner op k").end();
    assert!(
        taken.err.contains("broken, was held by first"),
        "{}",
        taken.err
    );
    assert_eq!(
        start(&real, "info k")
            .end()
            .ok()
            .matches("held by op")
            .count(),
        1
    );
    let denied = "ACL SETUSER default -lock.break";
    conn.line(denied);
    let end = script(&real, "--steal", "").end();
    assert_eq!(end.code(), 77);
    assert!(end.err.contains("+lock.break"), "{}", end.err);
    conn.line("ACL SETUSER default +@all");
}

#[test]
fn a_lock_is_taken_at_a_terminal_after_a_question() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    real.conn().line("LOCK.ACQUIRE k first");
    console.line("\"$L\" run --steal k echo st''olen");
    console.see("k: held by first, token ");
    console.see("break it? [y/N] ");
    console.line("n");
    assert_eq!(console.status(), "1");
    // A signal ends the question.
    console.line("\"$L\" run --steal k echo st''olen");
    console.see("break it? [y/N] ");
    console.press("\x03");
    console.see("ready> ");
    assert_eq!(console.status(), "130");
    assert!(is_held(&real));
    console.line("\"$L\" run --steal k echo st''olen");
    console.see("break it? [y/N] ");
    console.line("y");
    console.see("k: broken, was held by first");
    console.see("stolen");
    assert_eq!(console.status(), "0");
    real.conn().line("LOCK.ACQUIRE k first");
    console.line("\"$L\" run --steal -y k echo st''olen");
    console.see("stolen");
}
