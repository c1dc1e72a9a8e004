//! The shell lines of cli/README.md and docs/REDLOCK.md, as they stand there: run by a shell that finds `redis-lock`
//! in its PATH, beside a `report.sh` and a `deploy.sh`. Only the addresses of the page's servers are replaced by
//! those of the run, and a token by the one of the lock.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use redis_lock_harness::page::block;
use redis_lock_harness::{wait_for, Conn, TestServer};

use crate::console::Console;
use crate::program::{url, Ended, Running, PATIENT, PROGRAM};

/// A directory with the programs that the pages run: each prints its arguments and variables. The `redis-lock` there
/// is patient in a `run`.
fn sandbox(real: &TestServer) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(real.dir()).expect("a directory");
    let report = |name: &str| format!("echo \"{name} under $LOCK_TOKEN $*\"");
    let patient = PATIENT.join(" ");
    let redis_lock = format!(
        "[ \"$1\" != run ] || {{ shift; exec '{PROGRAM}' run {patient} \"$@\"; }}; exec '{PROGRAM}' \"$@\""
    );
    for (name, text) in [
        ("report.sh", report("report.sh")),
        ("deploy.sh", report("deploy.sh")),
        ("redis-lock", redis_lock),
    ] {
        let file = dir.path().join(name);
        let text = format!("#!/bin/sh\n{text}\n");
        std::fs::write(&file, text).expect("a file");
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, runs).expect("a file");
    }
    dir
}

/// A line of the page, by a shell in the directory.
fn run(real: &TestServer, dir: &Path, line: &str) -> Ended {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(dir);
    shell.env("PATH", format!("{}:{path}", dir.display()));
    shell.env("REDIS_LOCK_URL", url(real));
    Running::of(&mut shell).end()
}

/// The lines behind a `$` of the block that begins so, and what the page shows below each.
fn lines(page: &str, first: &str) -> Vec<(String, Vec<String>)> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for line in block(page, "console", first).text.lines() {
        match (line.strip_prefix("$ "), lines.last_mut()) {
            (Some(command), _) => lines.push((command.into(), Vec::new())),
            (None, Some((_, shown))) => shown.push(line.into()),
            (None, None) => panic!("{line}"),
        }
    }
    lines
}

/// What a program of the sandbox says under a lock: with a token.
fn ran(end: Ended, name: &str) {
    let said = end.ok();
    let rest = said.strip_prefix(&format!("{name} under ")).expect("a run");
    let token = rest.split_whitespace().next().expect("a token");
    assert!(token.parse::<u64>().is_ok(), "{said}");
}

/// `redis-lock top` at a terminal.
fn top(real: &TestServer, line: &str) {
    let mut console = Console::start(real);
    console.line(&line.replace("redis-lock", "\"$L\""));
    console.see("hand-offs/s");
    console.see("nightly");
    console.quit();
}

#[test]
fn a_quorum_of_three() {
    let delay = ["--lock.startup-delay", "30000"];
    let servers: Vec<TestServer> = (0..3).map(|_| TestServer::with(&delay)).collect();
    let all = lines("docs/REDLOCK.md", "$ redis-lock run --quorum");
    let [(line, _)] = &all[..] else {
        panic!("{all:?}")
    };
    let mut line = line.clone();
    for (number, real) in servers.iter().enumerate() {
        let named = format!("127.0.0.1:{}", 7001 + number);
        assert!(line.contains(&named), "{line}");
        line = line.replace(&named, &format!("127.0.0.1:{}", real.port));
        // It is in force, and not waited for here.
        let mut conn = real.conn();
        conn.line("CONFIG SET lock.startup-delay 0");
        assert_eq!(
            conn.line("CONFIG SET lock.startup-delay 30000").text(),
            "OK"
        );
    }
    let dir = sandbox(&servers[0]);
    ran(run(&servers[0], dir.path(), &line), "deploy.sh");
    // With the default it is refused, as the page says.
    servers[1].conn().line("CONFIG SET lock.startup-delay 0");
    assert_eq!(run(&servers[0], dir.path(), &line).code(), 64);
}

#[test]
fn the_shell_lines_of_the_clients_page() {
    let real = TestServer::start();
    let dir = sandbox(&real);
    let all = lines("cli/README.md", "$ redis-lock run nightly");
    let [(waits, _), (ends, _), (fenced, _), (ls, table), (info, _), (breaks, _), (looks, _)] =
        &all[..]
    else {
        panic!("{all:?}")
    };
    ran(run(&real, dir.path(), waits), "report.sh");
    ran(run(&real, dir.path(), ends), "report.sh");
    let deployed = run(&real, dir.path(), fenced).ok();
    let words: Vec<&str> = deployed.split_whitespace().collect();
    let ["deploy.sh", "under", token, "--fence", fence] = words[..] else {
        panic!("{deployed}")
    };
    assert_eq!(token, fence);
    // One that holds and two that wait, as the table has them.
    let holders = hold_nightly(&real, 2);
    assert_eq!(run(&real, dir.path(), ends).ok(), "", "another runs it");
    let shown = run(&real, dir.path(), ls).ok();
    is_the_table(&shown, table);
    let told = run(&real, dir.path(), info).ok();
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["key"], "nightly");
    let token = token_of(&mut real.conn());
    top(&real, looks);
    let breaks = breaks.replace("1795215970798000", &token);
    assert_eq!(run(&real, dir.path(), &breaks).code(), 0);
    wait_for("another holder", || token_of(&mut real.conn()) != token);
    drop(holders);
}

/// The queues, the chain and the history of the page, but for names and numbers.
#[test]
fn the_waits_of_the_clients_page() {
    let real = TestServer::with(&["--notify-keyspace-events", "KA"]);
    let dir = sandbox(&real);
    let all = lines("cli/README.md", "$ redis-lock ls --graph");
    let [(graph, queues), (watch, history)] = &all[..] else {
        panic!("{all:?}")
    };
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE orders:1 anna");
    conn.line("LOCK.ACQUIRE orders:2 bert");
    let waits = ["orders:1 bert", "orders:2 cleo", "orders:2 dora"];
    let waiters: Vec<Conn> = (1..)
        .zip(waits)
        .map(|(count, wait)| {
            let mut waiter = real.conn();
            waiter.send_line(&format!("LOCK.ACQUIRE {wait} BLOCK 60000"));
            real.wait_for_waits(count);
            waiter
        })
        .collect();
    let shape = |line: &str| -> Vec<String> {
        let word = |word: &str| match word.split_once('=') {
            Some((name, _)) => name.to_string(),
            None if word.contains(|char: char| char.is_ascii_digit()) => "#".into(),
            None => word.into(),
        };
        line.split_whitespace().map(word).collect()
    };
    let shapes =
        |lines: &[String]| -> Vec<Vec<String>> { lines.iter().map(|line| shape(line)).collect() };
    let shown = run(&real, dir.path(), graph).ok();
    let shown: Vec<String> = shown.lines().map(String::from).collect();
    assert_eq!(shapes(&shown), shapes(queues));
    let words = watch.strip_prefix("redis-lock ").expect("a command");
    let watching = crate::program::start(&real, words);
    let mut told: Vec<String> = (0..2).map(|_| watching.line()).collect();
    for end in ["LOCK.RELEASE orders:2 bert", "LOCK.BREAK orders:2"] {
        conn.line(end);
        told.push(watching.line());
    }
    assert_eq!(shapes(&told), shapes(history));
    drop(waiters);
}

#[test]
fn the_file_and_the_probe_of_the_clients_page() {
    let real = TestServer::start();
    let dir = sandbox(&real);
    let file = dir.path().join("redis-lock.toml");
    let text = block("cli/README.md", "toml", "# ~/.config/redis-lock.toml").text;
    std::fs::write(&file, text).expect("a file");
    let help = format!(
        "REDIS_LOCK_CONFIG='{}' redis-lock run --help",
        file.display()
    );
    let help = run(&real, dir.path(), &help).ok();
    for default in ["[default: 1m]", "[default: 20]"] {
        assert!(help.contains(default), "{help}");
    }
    for (check, shown) in lines("cli/README.md", "$ redis-lock check") {
        let place = format!("127.0.0.1:{}/0", real.port);
        let shown = shown.join("\n").replace("127.0.0.1:6379/0", &place);
        let ready = |line: &str| {
            line.rsplit_once(' ')
                .map(|(start, _version)| start.to_string())
        };
        assert_eq!(ready(&run(&real, dir.path(), &check).ok()), ready(&shown));
    }
}

/// One run under the lock `nightly`, and so many behind it.
fn hold_nightly(real: &TestServer, waiting: u64) -> Vec<Running> {
    let nightly = || {
        let mut command = crate::program::program(real);
        let held = [
            "run",
            "nightly",
            "--",
            "sh",
            "-c",
            "echo up; exec sleep 100",
        ];
        Running::of(command.args(held))
    };
    let first = nightly();
    assert_eq!(first.line(), "up");
    let mut runs = vec![first];
    for count in 1..=waiting {
        runs.push(nightly());
        real.wait_for_waits(count);
    }
    runs
}

fn token_of(conn: &mut Conn) -> String {
    let holders = conn.line("LOCK.INFO nightly").field("holders");
    let holder = holders.and_then(|holders| holders.list().into_iter().next());
    let token = holder.and_then(|holder| holder.field("token"));
    token.map_or_else(String::new, |token| token.int().to_string())
}

/// The same heads and rows: names and numbers of the machine differ, what they are does not.
fn is_the_table(shown: &str, page: &[String]) {
    let kind = |word: &str| -> String {
        let parts: Vec<&str> = word.split(':').collect();
        match parts[..] {
            [_, process, random] if process.parse::<u32>().is_ok() && random.len() == 32 => {
                "an owner".into()
            }
            _ if word.ends_with('s')
                && word
                    .trim_end_matches("ms")
                    .trim_end_matches('s')
                    .parse::<f64>()
                    .is_ok() =>
            {
                "a time".into()
            }
            _ => word.into(),
        }
    };
    let kinds = |line: &str| -> Vec<String> { line.split_whitespace().map(kind).collect() };
    let shown: Vec<_> = shown.lines().map(kinds).collect();
    let page: Vec<_> = page.iter().map(|line| kinds(line)).collect();
    assert_eq!(shown, page);
}
