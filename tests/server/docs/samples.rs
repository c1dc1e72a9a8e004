//! The samples of README.md and docs/MIGRATION.md with replies of a server, verbatim: typed into redis-cli(1), replies
//! compared. A token on the page stands for the token of the run, wherever it occurs again.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};

use crate::common::page::{block, root};
use crate::common::process::{spawn, tame, Family};
use crate::common::{module_path, patience, server_binary, wait_for, TestServer};

/// A `redis-cli` with typed input, and the lines that it prints.
struct Window {
    cli: Child,
    keys: ChildStdin,
    lines: Receiver<String>,
}

impl Window {
    fn open(server: &TestServer) -> Window {
        let mut cli = Command::new(cli_binary());
        // Into a pipe it would print bare values instead of the terminal's form.
        cli.args(["--no-raw", "-p", &server.port.to_string()]);
        cli.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cli = spawn(&mut cli).expect("redis-cli");
        let out = BufReader::new(cli.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            out.lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        let keys = cli.stdin.take().expect("a pipe");
        Window { cli, keys, lines }
    }

    fn enter(&mut self, line: &str) {
        writeln!(self.keys, "{line}").expect("redis-cli reads");
    }

    /// The next line, without lines of elapsed time such as `(1.02s)`.
    fn line(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(patience()).expect("a line");
            let is_time = line.starts_with('(') && line.ends_with("s)");
            if !is_time {
                return line;
            }
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.cli.kill();
        let _ = self.cli.wait();
    }
}

/// The client in the package of the tested server.
fn cli_binary() -> &'static str {
    let works = |name: &&&str| tame(Command::new(name).arg("--version")).output().is_ok();
    ["redis-cli", "valkey-cli"]
        .iter()
        .find(works)
        .expect("redis-cli or valkey-cli")
}

/// The tokens of a page, and their values in this run.
#[derive(Default)]
struct Tokens(HashMap<String, String>);

impl Tokens {
    /// Whether the reply is the page's, except for tokens; a token of the page always has the same value.
    fn agree(&mut self, page: &str, shown: &str) -> bool {
        let (page, shown) = (parts(page), parts(shown));
        page.len() == shown.len()
            && page.iter().zip(&shown).all(|(page, shown)| {
                let is_token = |part: &str| part.len() == 16 && part.parse::<u64>().is_ok();
                match is_token(page) && is_token(shown) {
                    true => self.0.entry(page.clone()).or_insert(shown.clone()) == shown,
                    false => page == shown,
                }
            })
    }
}

/// Splits a line into runs of digits and of other characters.
fn parts(line: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for c in line.trim().chars() {
        match parts.last_mut() {
            Some(last) if last.ends_with(|d: char| d.is_ascii_digit()) == c.is_ascii_digit() => {
                last.push(c);
            }
            _ => parts.push(c.into()),
        }
    }
    parts
}

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
        Tokens::default().agree(replies.pop_front().unwrap(), &granted),
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

/// Two columns: indented lines belong to the second window.
#[test]
fn the_two_windows() {
    let server = TestServer::start();
    let mut windows = [Window::open(&server), Window::open(&server)];
    let mut tokens = Tokens::default();
    let page = block("README.md", "console", "1> LOCK.ACQUIRE").text;
    for line in page.lines() {
        let window = usize::from(line.starts_with("      "));
        let line = line.trim();
        match line.split_once("> ") {
            Some((number, command)) => {
                assert_eq!(number, (window + 1).to_string(), "{line}");
                windows[window].enter(command);
            }
            None if line.starts_with("(silent") => server.wait_for_waiters(1),
            None => {
                let shown = windows[window].line();
                assert!(tokens.agree(line, &shown), "{shown}, not {line}");
            }
        }
    }
    assert_eq!(tokens.0.len(), 2);
    assert!(server.conn().line("LOCK.INFO invoices:42").is_nil());
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
    let shown: Vec<&str> = text.lines().collect();
    let page = block("README.md", "console", "1> LOCK.ACQUIRE").text;
    for line in page
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("> "))
    {
        assert!(shown.contains(&line), "{line}\n{text}");
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
    std::fs::write(&file, lines.text.replace(path, &module.to_string_lossy())).unwrap();
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
    window.enter(block("README.md", "text", "ACL SETUSER app").first_line());
    assert_eq!(window.line(), "OK");
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
