//! The messages of failures and their exit statuses.

use std::process::Command;
use std::time::{Duration, Instant};

use redis_lock_harness::{free_port, TestServer, Tries};

use crate::console::Console;
use crate::program::{program, script, start, start_args, url, Running, PATIENT, PROGRAM};

#[test]
fn without_the_module_it_says_what_to_load() {
    let real = TestServer::without_module(&[]);
    let end = script(&real, "", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (69, ""));
    assert!(end.err.contains("loadmodule"), "{}", end.err);
}

#[test]
fn an_unreachable_server_is_named() {
    let port = free_port();
    for wait in [&["-n"][..], &["-w", "0.1"]] {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--server", &format!("redis://127.0.0.1:{port}")]);
        let end = Running::of(command.args(PATIENT).args(wait).args(["k", "true"])).end();
        assert_eq!(end.code(), 69);
        assert!(
            end.err.contains(&format!("127.0.0.1:{port}")),
            "{}",
            end.err
        );
        assert!(end.err.contains("REDIS_LOCK_URL"), "{}", end.err);
    }
}

#[test]
fn a_wait_goes_on_until_a_server_that_is_down_serves() {
    let mut real = TestServer::start();
    real.crash();
    let run = script(&real, "", "echo ran");
    let said = run.complaint();
    assert!(said.contains("refused"), "{said}");
    real.start_again();
    assert_eq!(run.end().ok(), "ran\n");
}

#[test]
fn a_key_of_another_type_is_no_lock() {
    let real = TestServer::start();
    real.conn().line("SET k v");
    let end = script(&real, "", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (65, ""));
    assert!(end.err.contains("WRONGTYPE"), "{}", end.err);
    assert_eq!(real.conn().line("GET k").text(), "v");
}

/// The advice is for what the key holds: a lock of the other kind, or a hash that is none.
#[test]
fn a_hash_and_a_lock_of_the_other_kind_are_told_apart() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k other READ");
    let end = script(&real, "", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (65, ""));
    assert!(end.err.contains("holds a read-write lock"), "{}", end.err);
    assert!(end.err.contains("--shared or --exclusive"), "{}", end.err);
    conn.line("DEL k");
    conn.line("HSET k name Ada");
    let end = script(&real, "", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (65, ""));
    assert!(end.err.contains("choose another name"), "{}", end.err);
    assert!(!end.err.contains("--shared"), "{}", end.err);
}

#[test]
fn the_missing_permission_is_named() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("ACL SETUSER may on >pass ~other* +@all");
    conn.line("ACL SETUSER maynot on >pass ~* +@all -lock.acquire");
    let run = |user: &str, password: &str, key: &str| {
        let mut command = program(&real);
        command.env(
            "REDIS_LOCK_URL",
            url(&real).replace("//", &format!("//{user}@")),
        );
        command.env("REDISCLI_AUTH", password);
        Running::of(
            command
                .arg("run")
                .args(PATIENT)
                .args(["-w", "60", key, "--", "true"]),
        )
        .end()
    };
    let keys = run("may", "pass", "k");
    assert_eq!(keys.code(), 77, "{}", keys.err);
    assert!(
        keys.err.contains("NOPERM") && keys.err.contains("~k"),
        "{}",
        keys.err
    );
    let command = run("maynot", "pass", "k");
    assert_eq!(command.code(), 77, "{}", command.err);
    assert!(command.err.contains("+lock.acquire"), "{}", command.err);
    conn.line("ACL SETUSER mute on >pass ~* +@all resetchannels");
    conn.line("LOCK.ACQUIRE held a PX 600000");
    for rule in ["+@all", "&lock:tickets:* -publish"] {
        conn.line(&format!("ACL SETUSER mute {rule}"));
        let waits = run("mute", "pass", "held");
        assert_eq!(waits.code(), 77, "{}", waits.err);
        assert!(
            waits.err.contains("&lock:tickets:* +publish"),
            "{}",
            waits.err
        );
        assert!(!waits.err.contains("~held"), "{}", waits.err);
    }
    let password = run("may", "wrong", "k");
    assert_eq!(password.code(), 77, "{}", password.err);
    assert!(password.err.contains("REDISCLI_AUTH"), "{}", password.err);
    assert_eq!(run("may", "pass", "other").code(), 0);
}

#[test]
fn a_password_alone_is_taken_from_the_environment() {
    let real = TestServer::start();
    real.conn().line("CONFIG SET requirepass se@cret");
    let without = start(&real, "run k true").end();
    assert_eq!(without.code(), 77, "{}", without.err);
    let mut command = program(&real);
    command
        .env("REDISCLI_AUTH", "se@cret")
        .args(["run", "k", "true"]);
    assert_eq!(Running::of(&mut command).end().code(), 0);
    let mut conn = real.conn();
    conn.line("AUTH se@cret");
    conn.run(["CONFIG", "SET", "requirepass", ""]);
}

#[test]
fn an_invalid_command_line_is_a_usage_error() {
    let real = TestServer::start();
    for words in [
        "",
        "nonsense",
        "run",
        "run k",
        "run --lease x k true",
        "run --lease 0 k true",
        "run -w -1 k true",
        "run -n -w 1 k true",
        "run -s -x k true",
        "run -E 256 k true",
        "run --cert x k true",
        "run --cacert /no/such/file k true",
        "run --server nonsense://x k true",
        "run --server redis://a --server redis://b k true",
    ] {
        let end = start(&real, words).end();
        assert_eq!(end.code(), 64, "{words}: {}", end.err);
        assert!(!end.err.is_empty(), "{words}");
    }
    for words in ["--help", "--version", "help run", "run -h"] {
        assert!(!start(&real, words).end().ok().is_empty());
    }
}

/// An argument that only the server can refuse is a usage error, too.
#[test]
fn an_argument_that_the_server_refuses_is_a_usage_error() {
    let real = TestServer::start();
    let note = "x".repeat(257);
    let other = format!("{}/99999", url(&real));
    for words in [
        ["run", "k", "--note", &note],
        ["run", "k", "--owner", ""],
        ["run", "k", "--owner", "#me"],
        ["run", "k", "--server", &other],
        ["run", "{k}", "--permits", "2"],
        ["run", "redis_lock:horizon", "--lease", "9"],
        ["acquire", "k", "--note", &note],
        ["acquire", "k", "--owner", ""],
        ["acquire", "k", "--server", &other],
        ["info", "k", "--server", &other],
        ["check", "k", "--server", &other],
        ["leader", "k", "--server", &other],
        ["break", "k", "--owner", ""],
        ["ls", "--names", "--owner", ""],
    ] {
        let command: &[&str] = if words[0] == "run" {
            &["--", "true"]
        } else {
            &[]
        };
        let [subcommand, key, option, value] = words;
        let end = start_args(&real, [&[subcommand, option, value, key], command].concat()).end();
        assert_eq!(end.code(), 64, "{words:?}: {}", end.err);
        assert!(!end.err.is_empty(), "{words:?}");
    }
    let end = start_args(&real, ["renew", "k", "--owner", "", "--token", "1"]).end();
    assert_eq!(end.code(), 64, "{}", end.err);
}

/// Named in the environment, the server is no part of what is missing.
#[test]
fn a_usage_error_does_not_ask_for_a_server_that_is_named() {
    let real = TestServer::start();
    for words in [
        "run",
        "run k",
        "info",
        "break",
        "ls --nonsense",
        "top x",
        "run -w -1 k true",
    ] {
        let end = start(&real, words).end();
        assert_eq!(end.code(), 64, "{words}");
        assert!(
            end.err.contains("Usage: redis-lock"),
            "{words}: {}",
            end.err
        );
        assert!(!end.err.contains("--server"), "{words}: {}", end.err);
    }
}

#[test]
fn an_option_names_the_server_rather_than_the_environment() {
    let real = TestServer::start();
    let mut command = Command::new(PROGRAM);
    command.env("REDIS_LOCK_URL", "nonsense://x");
    command.args(["ls", "--server", &url(&real)]);
    assert_eq!(Running::of(&mut command).end().code(), 0);
    let mut command = Command::new(PROGRAM);
    let end = Running::of(command.env("REDIS_LOCK_URL", "").arg("ls")).end();
    assert_eq!(end.code(), 64);
    assert!(end.err.contains("REDIS_LOCK_URL is empty"), "{}", end.err);
}

/// A wait ends at its limit, or slightly later, whatever the server does.
#[test]
fn the_limit_of_a_wait_holds_on_a_paused_server() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k other PX 600000");
    let cases = ["-n --timeout 5", "-w 1 --timeout 5", "-w 2 --timeout 5"];
    let mut tries = Tries::of(&[(cases[0], 0), (cases[1], 1_000), (cases[2], 2_000)]);
    while let Some((options, ms)) = tries.next_case() {
        real.signal(libc::SIGSTOP);
        let start = Instant::now();
        let end = script(&real, options, "echo never").end();
        let took = start.elapsed();
        real.signal(libc::SIGCONT);
        assert_eq!((end.code(), end.out.as_str()), (69, ""), "{}", end.err);
        let bound = Duration::from_millis(ms);
        // With the start of a process.
        tries.took((options, ms), took, bound, Duration::from_secs(1));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_printed_is_a_failure() {
    for words in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = Command::new(PROGRAM);
        let end = command.args(words).stdout(full.expect("a device")).output();
        let end = end.expect("a program");
        assert_eq!(end.status.code(), Some(71), "{words:?}");
        assert!(String::from_utf8_lossy(&end.stderr).contains("No space left"));
        let closed = format!("'{PROGRAM}' {} >&-", words.join(" "));
        let end = Running::of(Command::new("sh").args(["-c", &closed])).end();
        assert_eq!(end.code(), 71, "{words:?}");
    }
}

#[test]
fn too_few_descriptors_are_an_error_of_the_machine() {
    let real = TestServer::start();
    for limit in 5..14 {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {limit}; exec '{PROGRAM}' run k true");
        command.env("REDIS_LOCK_URL", url(&real));
        let end = Running::of(command.args(["-c", &limited])).end();
        assert_eq!(end.code(), 71, "{limit}: {}", end.err);
        assert_eq!(end.err, "redis-lock: Too many open files (os error 24)\n");
    }
}

/// The limit is one of a user: a user of this test's own.
#[test]
#[cfg(target_os = "linux")]
fn a_thread_that_cannot_be_started_is_an_error() {
    let real = TestServer::start();
    let limited = |threads: u32| {
        let user = 4_000_000_000 + std::process::id();
        format!("setpriv --reuid {user} --clear-groups prlimit --nproc={threads} \"$L\"")
    };
    let mut console = Console::start(&real);
    console.line(&format!("{} --version", limited(1)));
    if console.status() != "0" {
        eprintln!("not run: this needs root, and setpriv");
        return;
    }
    // The main one, that of the library, and one that asks for the addresses of a name.
    console.line(&format!("{} check", limited(3)));
    assert_eq!(console.status(), "0");
    console.line(&format!(
        "{} check --server redis://localhost:{}",
        limited(2),
        real.port
    ));
    console.see(&format!(
        "redis-lock: localhost:{}/0: Resource temporarily unavailable",
        real.port
    ));
    assert_eq!(console.status(), "69");
    // For the keyboard.
    console.line(&format!("{} top", limited(2)));
    console.see("redis-lock: Resource temporarily unavailable (os error 11)");
    assert_eq!(console.status(), "71");
}
