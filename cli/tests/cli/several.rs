//! `run` with several servers: all of them, or most of them.

use std::collections::BTreeMap;
use std::process::Command;

use nix::sys::signal::Signal;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{url, Ended, Running, PROGRAM};

/// So that RedLock trusts servers that grant at once.
const DELAY: [&str; 2] = ["--lock.startup-delay", "30000"];

struct Fleet {
    servers: Vec<TestServer>,
}

impl Fleet {
    fn start(options: &[&str]) -> Fleet {
        let servers: Vec<TestServer> = (0..3).map(|_| TestServer::with(options)).collect();
        for real in &servers {
            // Ends the delay that is under way, and leaves the setting as it was.
            let mut conn = real.conn();
            let delay = conn.line("CONFIG GET lock.startup-delay").list()[1].text();
            for delay in ["0", &delay] {
                conn.line(&format!("CONFIG SET lock.startup-delay {delay}"));
            }
        }
        Fleet { servers }
    }

    fn script(&self, options: &str, script: &str) -> Running {
        let urls: Vec<String> = self.servers.iter().map(url).collect();
        let mut command = Command::new(PROGRAM);
        command.env("REDIS_LOCK_URL", urls.join(" "));
        command
            .env("LOCK_TOKEN", "outer")
            .env("LOCK_TOKENS", "outer");
        command.arg("run").args(options.split_whitespace());
        Running::of(command.args(["k", "--", "sh", "-c", script]))
    }

    /// A command that runs until these servers' locks are broken, and ends with 5. redis-lock is stopped meanwhile.
    fn broken_unnoticed(&self, options: &str, broken: &[usize]) -> Ended {
        let go = self.servers[0].dir().join("go");
        let waits = format!(
            "echo up; while [ ! -e {} ]; do sleep 0.02; done; exit 5",
            go.display()
        );
        let run = self.script(options, &waits);
        assert_eq!(run.line(), "up");
        run.signal(Signal::SIGSTOP);
        for place in broken {
            // A majority is enough: the last server may be granting at the moment.
            let mut conn = self.servers[*place].conn();
            wait_for("a lock to break", || conn.line("LOCK.BREAK k").int() == 1);
        }
        std::fs::write(&go, "").expect("a file");
        run.signal(Signal::SIGCONT);
        let end = run.end();
        std::fs::remove_file(go).expect("a file");
        end
    }

    /// The rest of the lease there, in milliseconds; 0 where it is not held.
    fn rest(&self, place: usize) -> i64 {
        let info = self.servers[place].conn().line("LOCK.INFO k");
        let holders = info.field("holders").map(|holders| holders.list());
        let rest = holders
            .as_deref()
            .and_then(|list| list.first()?.field("pttl"));
        rest.map_or(0, |rest| rest.int())
    }

    /// On how many the lock is held.
    fn held(&self) -> usize {
        let held = |real: &&TestServer| {
            let info = real.conn().line("LOCK.INFO k");
            info.field("holders")
                .is_some_and(|holders| !holders.list().is_empty())
        };
        self.servers.iter().filter(held).count()
    }
}

const TELLS: &str = "trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.05; done";
const NAMES: &str = "echo \"${LOCK_TOKEN-none}\"; echo \"$LOCK_TOKENS\"; exec sleep 100";

fn tokens(line: &str) -> BTreeMap<String, u64> {
    let pairs = line
        .split(' ')
        .map(|pair| pair.split_once('=').expect("server=token"));
    pairs
        .map(|(server, token)| (server.to_string(), token.parse().expect("a token")))
        .collect()
}

#[test]
fn all_are_held_with_a_token_each() {
    let fleet = Fleet::start(&[]);
    let run = fleet.script("--all", NAMES);
    assert_eq!(run.line(), "none");
    let tokens = tokens(&run.line());
    assert_eq!((tokens.len(), fleet.held()), (3, 3));
    for real in &fleet.servers {
        let holder = &real
            .conn()
            .line("LOCK.INFO k")
            .field("holders")
            .expect("holders")
            .list()[0];
        let token = holder.field("token").expect("a token").int();
        assert_eq!(tokens[&format!("127.0.0.1:{}/0", real.port)], token as u64);
    }
    assert_eq!(
        fleet
            .script("--all -n --timeout 100", "echo never")
            .end()
            .code(),
        1
    );
    run.signal(Signal::SIGTERM);
    assert_eq!((run.end().code(), fleet.held()), (143, 0));
}

#[test]
fn all_means_none_where_one_is_missing() {
    let mut fleet = Fleet::start(&[]);
    fleet.servers[1].conn().line("LOCK.ACQUIRE k other");
    let end = fleet
        .script("--all -w 0.2 --timeout 100", "echo never")
        .end();
    assert_eq!((end.code(), end.out.as_str(), fleet.held()), (1, "", 1));
    fleet.servers[1].conn().line("LOCK.RELEASE k other");
    fleet.servers[2].crash();
    let end = fleet.script("--all -w 1", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (69, ""), "{}", end.err);
    fleet.servers[2].start_again();
    assert_eq!(fleet.held(), 0);
}

#[test]
fn a_wait_is_withdrawn_everywhere() {
    let fleet = Fleet::start(&DELAY);
    for real in &fleet.servers {
        real.conn().line("LOCK.ACQUIRE k other");
    }
    for options in ["--all", "--quorum --lease 9"] {
        let run = fleet.script(options, "echo never");
        wait_for("a waiter", || {
            fleet.servers.iter().any(|real| real.waits() == 1)
        });
        run.signal(Signal::SIGTERM);
        assert_eq!(run.end().code(), 143);
        for real in &fleet.servers {
            assert_eq!((real.waits(), real.stat("places_kept")), (0, 0));
        }
    }
}

#[test]
fn of_all_one_that_is_lost_stops_the_command() {
    let fleet = Fleet::start(&[]);
    let run = fleet.script("--all", TELLS);
    assert_eq!(run.line(), "up");
    fleet.servers[1].conn().line("LOCK.BREAK k");
    let end = run.end();
    assert_eq!(
        (end.code(), end.out.as_str()),
        (75, "stopped\n"),
        "{}",
        end.err
    );
    assert_eq!(fleet.held(), 0, "the others are not kept for a lease");
}

#[test]
fn of_all_one_that_is_lost_at_the_release_is_a_loss() {
    let fleet = Fleet::start(&[]);
    for (options, broken, status) in [
        ("--all", &[][..], 5),
        ("--all", &[1], 75),
        ("--all --keep", &[1], 5),
        ("--all", &[0, 1, 2], 75),
    ] {
        let end = fleet.broken_unnoticed(options, broken);
        assert_eq!(end.code(), status, "{options} {broken:?}: {}", end.err);
        assert_eq!(fleet.held(), 0);
    }
}

#[test]
fn of_most_a_majority_that_is_lost_at_the_release_is_a_loss() {
    let delay = ["--lock.startup-delay", "30000"];
    let fleet = Fleet::start(&delay);
    for (options, broken, status) in [
        ("--quorum", &[2][..], 5),
        ("--quorum", &[0, 2], 75),
        ("--quorum --keep", &[0, 2], 5),
    ] {
        let end = fleet.broken_unnoticed(options, broken);
        assert_eq!(end.code(), status, "{options} {broken:?}: {}", end.err);
        assert_eq!(fleet.held(), 0);
    }
}

#[test]
fn most_are_enough_and_the_token_is_the_highest() {
    let mut fleet = Fleet::start(&DELAY);
    fleet.servers[0].crash();
    let run = fleet.script("--quorum --lease 9", NAMES);
    let token: u64 = run.line().parse().expect("a token");
    let tokens = tokens(&run.line());
    assert_eq!((tokens.len(), tokens.values().max()), (2, Some(&token)));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    fleet.servers[0].start_again();
    assert_eq!(fleet.held(), 0);
}

#[test]
fn of_most_one_that_dies_does_not_disturb_and_two_do() {
    let mut fleet = Fleet::start(&DELAY);
    let run = fleet.script("--quorum --lease 9", TELLS);
    assert_eq!(run.line(), "up");
    fleet.servers[0].crash();
    let before = fleet.servers[1].stat("renewals");
    wait_for("two renewals", || {
        fleet.servers[1].stat("renewals") >= before + 2
    });
    fleet.servers[1].crash();
    let end = run.end();
    assert_eq!(
        (end.code(), end.out.as_str()),
        (75, "stopped\n"),
        "{}",
        end.err
    );
    fleet.servers[0].start_again();
    fleet.servers[1].start_again();
}

/// Each server in turn hangs.
#[test]
fn most_are_enough_while_one_hangs() {
    let fleet = Fleet::start(&DELAY);
    for real in &fleet.servers {
        real.signal(Signal::SIGSTOP as i32);
        // The time of -n is short, and the machine may be slow.
        for options in ["--quorum --lease 9 -n", "--quorum --lease 9 -w 60"] {
            wait_for("a grant beside the server that hangs", || {
                fleet.script(options, "echo up").end().out == "up\n"
            });
        }
        real.signal(Signal::SIGCONT as i32);
        wait_for("the release", || fleet.held() == 0);
    }
}

/// Each of two servers in turn hangs: before a short command ends, and until the lock is lost there.
#[test]
fn of_all_the_rest_is_left_held_beside_one_that_hangs() {
    for script in ["exit 0", TELLS] {
        for hanging in 0..2 {
            let mut fleet = Fleet::start(&[]);
            fleet.servers.truncate(2);
            let go = fleet.servers[0].dir().join("go");
            let waits = format!(
                "echo up; while [ ! -e {} ]; do sleep 0.02; done; {script}",
                go.display()
            );
            let options = "--all --lease 6 --at-least 600 --timeout 3";
            let run = fleet.script(options, &waits);
            assert_eq!(run.line(), "up");
            fleet.servers[hanging].signal(Signal::SIGSTOP as i32);
            std::fs::write(&go, "").expect("a file");
            let end = run.end();
            let status = if script == TELLS { 75 } else { 74 };
            assert_eq!(end.code(), status, "{}", end.err);
            let rest = fleet.rest(1 - hanging);
            assert!(rest > 300_000, "{script}: {rest}: {}", end.err);
            fleet.servers[hanging].signal(Signal::SIGCONT as i32);
        }
    }
}

#[test]
fn of_all_none_is_kept_where_one_hangs_at_the_start() {
    let fleet = Fleet::start(&[]);
    for hanging in 0..3 {
        fleet.servers[hanging].signal(Signal::SIGSTOP as i32);
        let end = fleet.script("--all -n", "echo never").end();
        assert_eq!((end.code(), end.out.as_str()), (69, ""), "{}", end.err);
        let waiting = fleet.script("--all -w 60", "echo up");
        while !waiting.complaint().contains("trying again") {}
        fleet.servers[hanging].signal(Signal::SIGCONT as i32);
        assert_eq!(waiting.end().ok(), "up\n");
        assert_eq!(fleet.held(), 0);
    }
}

#[test]
fn a_server_that_could_grant_again_too_soon_is_refused() {
    let fleet = Fleet::start(&[]);
    let end = fleet.script("--quorum --lease 9", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (64, ""), "{}", end.err);
    assert!(end.err.contains("lock.startup-delay"), "{}", end.err);
    assert_eq!(fleet.held(), 0);
}

#[test]
fn without_a_majority_it_ends_at_once_if_it_is_not_to_wait() {
    let mut fleet = Fleet::start(&DELAY);
    for real in &mut fleet.servers[..2] {
        real.crash();
    }
    let end = fleet
        .script("--quorum --lease 9 -n --timeout 100", "echo never")
        .end();
    assert_eq!((end.code(), end.out.as_str()), (69, ""), "{}", end.err);
    assert!(end.err.contains("no majority"), "{}", end.err);
    // The third one may have had no time to answer: two are enough to know.
    for real in &fleet.servers {
        let line = format!("  127.0.0.1:{}/0: Connection refused", real.port);
        let is_gone = real.port != fleet.servers[2].port;
        assert_eq!(end.err.contains(&line), is_gone, "{}", end.err);
    }
    let advice = end.err.matches("is the server running").count();
    assert_eq!(advice, 1, "{}", end.err);
    for real in &mut fleet.servers[..2] {
        real.start_again();
    }
}

/// A paused server has no answer; a refusal takes precedence over an unreachable server.
#[test]
fn each_server_has_its_own_reason() {
    let mut fleet = Fleet::start(&DELAY);
    fleet.servers[0].crash();
    fleet.servers[1]
        .conn()
        .line("CONFIG SET requirepass secret");
    fleet.servers[2].signal(Signal::SIGSTOP as i32);
    let quorum = fleet.script("--quorum --lease 9", "echo never").end();
    let all = fleet.script("--all", "echo never").end();
    fleet.servers[2].signal(Signal::SIGCONT as i32);
    for (end, headline) in [(quorum, "no majority of 3"), (all, "not all of 3")] {
        assert_eq!((end.code(), end.out.as_str()), (77, ""), "{}", end.err);
        assert!(end.err.contains(headline), "{}", end.err);
        for (real, reason) in fleet.servers.iter().zip(["refused", "NOAUTH", "no answer"]) {
            let name = format!("127.0.0.1:{}/0: ", real.port);
            let said = |line: &str| line.contains(&name) && line.contains(reason);
            assert!(end.err.lines().any(said), "{name}{reason}: {}", end.err);
        }
    }
    let mut conn = fleet.servers[1].conn();
    conn.line("AUTH secret");
    conn.run(["CONFIG", "SET", "requirepass", ""]);
    fleet.servers[0].start_again();
}

/// The user of users.acl.example for it, and that user alone.
#[test]
fn the_user_redlock_of_the_example_takes_a_quorum() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("users.acl");
    std::fs::write(&file, include_str!("../../../users.acl.example")).expect("a file");
    let users = file.display().to_string();
    let fleet = Fleet::start(&["--aclfile", &users, DELAY[0], DELAY[1]]);
    let run = |user: &str| {
        let named = |real| url(real).replace("//", &format!("//{user}@"));
        let urls: Vec<String> = fleet.servers.iter().map(named).collect();
        let mut command = Command::new(PROGRAM);
        command.env("REDIS_LOCK_URL", urls.join(" "));
        command.env("REDISCLI_AUTH", format!("change-me-{user}"));
        command.args(["run", "--quorum", "--lease", "9", "lock:k", "--"]);
        Running::of(command.args(["sh", "-c", "echo $LOCK_TOKENS; exec sleep 100"]))
    };
    let held = run("redlock");
    // The third server may answer too late to be counted.
    assert!(tokens(&held.line()).len() >= 2);
    let renewals = fleet.servers[0].stat("renewals");
    wait_for("renewals", || {
        fleet.servers[0].stat("renewals") >= renewals + 2
    });
    held.signal(Signal::SIGTERM);
    assert_eq!(held.end().code(), 143);
    let without = run("app").end();
    assert_eq!(without.code(), 77, "{}", without.err);
    assert!(without.err.contains("+info"), "{}", without.err);
    let mut conn = fleet.servers[0].conn();
    conn.line("AUTH redlock change-me-redlock");
    for denied in [
        "LOCK.BREAK lock:k",
        "LOCK.INFO lock:k",
        "LOCK.ACQUIRE k o",
        "GET lock:k",
    ] {
        assert!(conn.line(denied).error().starts_with("NOPERM"), "{denied}");
    }
}

#[test]
fn several_servers_need_a_word() {
    let fleet = Fleet::start(&[]);
    for (options, said) in [
        ("", "--all or --quorum"),
        ("--all --quorum", "--quorum"),
        ("--quorum --owner me", "--owner"),
    ] {
        let end = fleet.script(options, "echo never").end();
        assert_eq!(end.code(), 64, "{options}");
        assert!(end.err.contains(said), "{options}: {}", end.err);
    }
    let single = crate::program::start(&fleet.servers[0], "run --quorum k true").end();
    assert_eq!(single.code(), 64, "{}", single.err);
    let single = crate::program::start(&fleet.servers[0], "run --all k true").end();
    assert_eq!(single.code(), 0, "{}", single.err);
}

/// With a named owner the second name would be a re-entry; without one the run would wait for itself.
#[test]
fn two_names_of_one_server_are_refused() {
    let (real, other) = (TestServer::with(&DELAY), TestServer::with(&DELAY));
    let urls = format!(
        "{} redis://localhost:{} {}",
        url(&real),
        real.port,
        url(&other)
    );
    for options in ["--all", "--all --owner me", "--quorum --lease 9"] {
        let mut command = Command::new(PROGRAM);
        command.env("REDIS_LOCK_URL", &urls).arg("run");
        command.args(options.split(' ')).args(["-w", "60"]);
        let end = Running::of(command.args(["k", "echo", "never"])).end();
        assert_eq!(
            (end.code(), end.out.as_str()),
            (64, ""),
            "{options}: {}",
            end.err
        );
        assert!(end.err.contains("are one server"), "{options}: {}", end.err);
        assert_eq!(real.stat("grants"), 0);
    }
}
