//! The samples of README.md and docs/MIGRATION.md with replies of a server, verbatim: typed into redis-cli(1), replies
//! compared. A token on the page stands for the token of the run, wherever it occurs again.

use std::collections::VecDeque;
use std::process::Command;

use crate::common::page::{block, root};
use crate::common::process::{tame, Family};
use crate::common::{module_path, server_binary, wait_for, TestServer};
use crate::docs::window::{Values, Window};

#[test]
fn the_command_of_the_first_screen() {
    let server = TestServer::start();
    let block = block("README.md", "text", "LOCK.ACQUIRE invoices:42 worker-7 PX");
    let replies = block
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("-> "));
    // The text after the reply is a comment.
    let mut replies: VecDeque<&str> = replies
        .map(|line| line.split("   ").next().unwrap())
        .collect();
    let mut window = Window::open(&server);
    window.enter(block.first_line());
    let granted = window.line();
    assert!(
        Values::default().agree(replies.pop_front().unwrap(), &granted),
        "{granted}"
    );
    // A lock held by another owner is waited for as long as the command says.
    let mut other = server.conn();
    other.line("DEL invoices:42");
    other.line("LOCK.ACQUIRE invoices:42 other EX 600");
    window.enter(block.first_line());
    server.wait_for_waiters(1);
    assert_eq!(window.line(), replies.pop_front().unwrap());
    assert!(replies.is_empty(), "{replies:?}");
}

/// `make demo` plays the same. It writes no escape codes into a pipe, nor where they are switched off.
#[test]
fn the_demo_plays_the_two_windows() {
    let mut demo = Command::new("sh");
    demo.arg(root().join("scripts/demo.sh"));
    demo.env("LOCK_SERVER", server_binary());
    demo.env("LOCK_MODULE", module_path());
    demo.env("TERM", "xterm");
    let family = Family::of(&mut demo);
    let out = tame(&mut demo).output().expect("the demo");
    family.kill();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{text}{complaints}");
    assert!(!text.contains('\x1b'), "{text:?}");
    // Each window in its column.
    let panes = text.lines().filter_map(|line| line.split_once('|'));
    let (left, right): (Vec<&str>, Vec<&str>) = panes
        .map(|(left, right)| (left.trim(), right.trim()))
        .unzip();
    let page = block("README.md", "console", "1> LOCK.ACQUIRE").text;
    for line in page
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("> "))
    {
        let pane = if line.starts_with('1') { &left } else { &right };
        assert!(pane.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn a_lock_for_a_connection() {
    let server = TestServer::start();
    let line = block(
        "README.md",
        "text",
        "LOCK.ACQUIRE invoices:42 worker-7 SESSION",
    );
    let mut window = Window::open(&server);
    window.enter(line.first_line());
    assert!(window.line().starts_with("(integer) "));
    assert_eq!(server.stat("session_holds"), 1);
    drop(window);
    let mut conn = server.conn();
    wait_for("the release", || conn.line("EXISTS invoices:42").int() == 0);
}

/// The lines for redis.conf, with the module's path in this run.
#[test]
fn the_lines_of_the_configuration() {
    let lines = block("README.md", "text", "loadmodule");
    let path = "/usr/lib/redis/modules/libredis_lock.so";
    assert!(lines.text.contains(path));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    let module = module_path();
    let quoted = format!("\"{}\"", module.display());
    std::fs::write(&file, lines.text.replace(path, &quoted)).unwrap();
    // The server reads options behind `include` as in a file.
    let server = TestServer::without_module(&["--include", &file.to_string_lossy()]);
    let mut conn = server.conn();
    assert_eq!(
        conn.line("CONFIG GET maxmemory-policy").list()[1].text(),
        "noeviction"
    );
    assert!(conn.line("LOCK.ACQUIRE invoices:42 alice").int() > 0);
}

/// The user may use the keys of the page's own examples, of every kind of lock, and no others.
#[test]
fn the_user_of_an_application() {
    let server = TestServer::start();
    let mut window = Window::open(&server);
    for line in block("README.md", "text", "ACL SETUSER app").text.lines() {
        window.enter(line);
        assert_eq!(window.line(), "OK");
    }
    let mut app = server.conn();
    assert_eq!(app.line("AUTH app secret").text(), "OK");
    for mode in ["", " READ", " WRITE"] {
        assert!(
            app.line(&format!("LOCK.ACQUIRE invoices:42 alice{mode}"))
                .int()
                > 0
        );
        assert_eq!(app.line("LOCK.RENEW invoices:42 alice").int(), 1);
        assert_eq!(app.line("LOCK.RELEASE invoices:42 alice").int(), 1);
    }
    for refused in [
        "LOCK.ACQUIRE other:42 alice",
        "LOCK.BREAK invoices:42",
        "GET invoices:42",
    ] {
        let error = app.line(refused).error();
        assert!(error.starts_with("NOPERM"), "{refused}: {error}");
    }
}

#[test]
fn both_kinds_are_listed() {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("SET lock:old value NX PX 60000");
    conn.line("LOCK.ACQUIRE lock:new alice PX 60000");
    let mut window = Window::open(&server);
    let lines = block("docs/MIGRATION.md", "text", "SCAN 0 MATCH").text;
    for (line, found) in lines.lines().zip(["lock:old", "lock:new"]) {
        window.enter(line);
        assert!(window.line().contains("1) \"0\""), "{line}: the end");
        assert!(window.line().contains(found), "{line}");
        window.enter("ECHO end");
        while window.line() != "\"end\"" {}
    }
}
