//! The command when its lock is lost, and when only a fault occurs: a loss stops it, a fault does not.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use redis_lock_harness::clock::clock_of;
use redis_lock_harness::loss::{lose, restore, LOSSES};
use redis_lock_harness::{wait_for, Conn, TestServer};

use crate::program::{is_alive, program, script, start, url, Running, PROGRAM};

/// A command that reports SIGTERM.
const TELLS: &str = "trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.05; done";

#[test]
fn a_broken_lock_stops_the_command_and_all_that_it_started() {
    let real = TestServer::start();
    let inner = "sleep 100 & echo $!; trap 'echo stopped; exit 0' TERM; echo up; wait";
    let run = script(&real, "", inner);
    let left = run.line();
    assert_eq!(run.line(), "up");
    assert_eq!(real.conn().line("LOCK.BREAK k").int(), 1);
    let end = run.end();
    assert_eq!((end.code(), end.out.as_str()), (75, "stopped\n"));
    assert!(
        end.err.contains("redis-lock: k: the lock was lost"),
        "{}",
        end.err
    );
    wait_for("the end of what it started", || !is_alive(&left));
}

/// Whatever ends a hold: a renewal of `run` tells it, its release, `renew`, and `release`.
///
/// This is the scenario of packages in tests/clients/driver/holds.rs. Of the others there, those of a client object do
/// not apply, as each process has one hold: what is closed, a node beside another one, callbacks, commands under a
/// lock. What errors say and which arguments are refused: errors.rs; lost replies and requests: left.rs and, of the
/// library, that driver.
#[test]
fn every_end_of_a_hold_is_a_loss() {
    let real = TestServer::start();
    let mut conn = real.conn();
    for (way, commands) in LOSSES {
        for told in ["renewal", "end", "renew", "release"] {
            let end = match told {
                "renewal" => {
                    let run = script(&real, "--lease 3", TELLS);
                    assert_eq!(run.line(), "up");
                    lose(&mut conn, commands);
                    run.end()
                }
                "end" => {
                    let (run, go) = until_told(&real, "--lease 600");
                    // It hears of the command's end before any notice of the loss.
                    run.signal(Signal::SIGSTOP);
                    lose(&mut conn, commands);
                    std::fs::write(&go, "").expect("a file");
                    wait_for("the end of the command", || {
                        run.descendants("sh").is_empty()
                    });
                    run.signal(Signal::SIGCONT);
                    let end = run.end();
                    std::fs::remove_file(go).expect("a file");
                    end
                }
                step => {
                    let printed = start(&real, "acquire k --lease 600 --owner me").end().ok();
                    let token = printed.lines().find_map(|l| l.strip_prefix("LOCK_TOKEN="));
                    let token = token.expect("a token");
                    lose(&mut conn, commands);
                    start(&real, &format!("{step} k --owner me --token {token}")).end()
                }
            };
            let context = format!("{way}, {told}: {}", end.err);
            assert_eq!(end.code(), 75, "{context}");
            restore(&mut conn, commands, &context);
        }
    }
}

/// The server has had the lock all the time, as its answer to the release says.
#[test]
fn a_clock_that_is_set_forward_is_no_loss() {
    let fleet: Vec<_> = (0..3)
        .map(|_| TestServer::with(&["--lock.startup-delay", "9000"]))
        .collect();
    for real in &fleet {
        let mut conn = real.conn();
        for delay in [0, 9000] {
            conn.line(&format!("CONFIG SET lock.startup-delay {delay}"));
        }
    }
    let urls: Vec<_> = fleet.iter().map(url).collect();
    for (servers, options, broken, status) in [
        (1, "--lease 9", false, 5),
        (3, "--lease 9 --all", false, 5),
        (3, "--lease 9 --quorum", false, 5),
        (1, "--lease 9 --at-least 60", false, 5),
        (1, "--lease 9", true, 75),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(PROGRAM);
        let clock = clock_of(&mut command, dir.path());
        command.env("REDIS_LOCK_URL", urls[..servers].join(" "));
        command.arg("run").args(options.split(' '));
        let waits = "echo up; while [ ! -e go ]; do sleep 0.02; done; exit 5";
        let run = Running::of(command.args(["k", "--", "sh", "-c", waits]));
        assert_eq!(run.line(), "up");
        // No renewal comes between the step and the release.
        run.signal(Signal::SIGSTOP);
        std::fs::write(clock, "3600").expect("a file");
        if broken {
            fleet[0].conn().line("LOCK.BREAK k");
        }
        std::fs::write(dir.path().join("go"), "").expect("a file");
        run.signal(Signal::SIGCONT);
        let end = run.end();
        assert_eq!(end.code(), status, "{options} {broken}: {}", end.err);
        for real in &fleet {
            real.conn().line("LOCK.BREAK k");
        }
    }
}

/// A command that was stopped goes on when a renewal proves that the lock is held.
#[test]
fn a_command_is_continued_after_a_step_of_the_clock() {
    let real = TestServer::start();
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = program(&real);
    let clock = clock_of(&mut command, dir.path());
    let waits = "echo up; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    command.args(["run", "--lease", "9", "k", "--", "sh", "-c", waits]);
    let run = Running::of(&mut command);
    assert_eq!(run.line(), "up");
    let [shell] = run.descendants("sh")[..] else {
        panic!("one shell");
    };
    // As the terminal stops both.
    kill(Pid::from_raw(shell), Signal::SIGSTOP).expect("a signal");
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{shell}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    wait_for("the stop", is_stopped);
    std::fs::write(clock, "3600").expect("a file");
    std::fs::write(dir.path().join("go"), "").expect("a file");
    run.signal(Signal::SIGCONT);
    assert_eq!(run.end().code(), 5);
}

#[test]
fn a_command_that_does_not_heed_is_killed_after_the_grace() {
    let real = TestServer::start();
    let stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let run = script(&real, "--grace 1", stubborn);
    assert_eq!(run.line(), "up");
    let broken = Instant::now();
    real.conn().line("LOCK.BREAK k");
    let complaint = run.complaint();
    assert!(complaint.contains("the lock was lost"), "{complaint}");
    assert_eq!(run.end().code(), 75);
    assert!(broken.elapsed() >= Duration::from_secs(1));
}

/// TERM, the grace and KILL fit into the margin: no process of the command outlives the lease.
#[test]
fn a_command_is_killed_before_its_lease_is_over() {
    let real = TestServer::start();
    let stubborn = "trap '' TERM; setsid sleep 100 & echo $!; while :; do sleep 0.05; done";
    let lease = Duration::from_secs(20);
    let run = script(&real, "--lease 20 --margin 10 --grace 1", stubborn);
    let left = run.line();
    wait_for("a renewal", || real.stat("renewals") > 0);
    real.signal(libc::SIGSTOP);
    // The last renewal that was confirmed was sent before.
    let over = Instant::now() + lease;
    assert_eq!(run.end().code(), 75);
    assert!(Instant::now() < over && !is_alive(&left));
    real.signal(libc::SIGCONT);
    // The server may have read a renewal after its stop, which is good for another lease.
    real.conn().line("LOCK.BREAK k");
    for (options, status) in [("--margin 16", 64), ("--margin 15", 0)] {
        assert_eq!(
            script(&real, &format!("-w 60 {options}"), "true")
                .end()
                .code(),
            status
        );
    }
}

#[test]
fn what_the_command_leaves_behind_in_its_group_is_killed_as_well() {
    let real = TestServer::start();
    let stubborn = "(trap '' TERM; while :; do sleep 0.05; done) & echo $!; wait";
    let run = script(&real, "--grace 0.2", stubborn);
    let left = run.line();
    real.conn().line("LOCK.BREAK k");
    assert_eq!(run.end().code(), 75);
    wait_for("the end of what it started", || !is_alive(&left));
}

/// As the first process of a container, which has the orphans to wait for.
#[test]
fn what_has_ended_with_the_command_is_not_waited_for() {
    let namespace = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
    ];
    let tried = Command::new("unshare").args(namespace).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("not run: this machine gives us no namespace of processes");
        return;
    }
    let real = TestServer::start();
    let mut command = Command::new("unshare");
    command.env("REDIS_LOCK_URL", url(&real)).args(namespace);
    command.args([PROGRAM, "run", "--grace", "1000", "k", "--"]);
    let inner = "sleep 1000 & sleep 1000 & echo up; wait";
    let run = Running::of(command.args(["sh", "-c", inner]));
    assert_eq!(run.line(), "up");
    real.conn().line("LOCK.BREAK k");
    assert_eq!(run.end().code(), 75);
}

#[test]
fn a_stopped_command_is_ended_all_the_same() {
    let real = TestServer::start();
    let run = script(&real, "", "echo $$; kill -STOP $$; echo never; sleep 100");
    let command = run.line();
    wait_for("the stop", || is_stopped(&command));
    real.conn().line("LOCK.BREAK k");
    let end = run.end();
    assert_eq!((end.code(), end.out.as_str()), (75, ""));
}

#[test]
fn with_keep_the_command_goes_on_and_its_status_counts() {
    let real = TestServer::start();
    let waits = "trap 'echo stopped' TERM; echo up; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    let dir = real.dir().join("keep");
    std::fs::create_dir(&dir).expect("a directory");
    let run = script(&real, "--keep", &format!("cd {}; {waits}", dir.display()));
    assert_eq!(run.line(), "up");
    real.conn().line("LOCK.BREAK k");
    assert!(run.complaint().contains("the command goes on"));
    std::fs::write(dir.join("go"), "").expect("a file");
    let end = run.end();
    assert_eq!((end.code(), end.out.as_str()), (5, ""));
}

/// The lease is long: nothing is renewed before the command ends.
#[test]
fn a_loss_that_is_found_at_the_release_is_the_status() {
    let real = TestServer::start();
    for (options, status) in [("", 75), ("--keep", 5)] {
        let (run, go) = until_told(&real, options);
        // Stopped, it hears of the command's end at once, and of the loss only by a request.
        run.signal(Signal::SIGSTOP);
        assert_eq!(real.conn().line("LOCK.BREAK k").int(), 1);
        std::fs::write(&go, "").expect("a file");
        wait_for("the end of the command", || {
            run.descendants("sh").is_empty()
        });
        run.signal(Signal::SIGCONT);
        let end = run.end();
        assert_eq!(end.code(), status, "{}", end.err);
        assert!(end.err.contains("lost before it could be released"));
        std::fs::remove_file(go).expect("a file");
    }
}

/// Stopped itself, `redis-lock` hears of the command's end when the lease is over, and has no server to ask.
#[test]
fn a_lease_that_was_over_at_the_commands_end_is_a_loss() {
    let mut real = TestServer::start();
    for (options, status) in [("--lease 1", 75), ("--lease 1 --keep", 5)] {
        let (run, go) = until_told(&real, options);
        run.signal(Signal::SIGSTOP);
        let stopped = Instant::now();
        real.crash();
        std::fs::write(&go, "").expect("a file");
        wait_for("the lease's end", || {
            stopped.elapsed() > Duration::from_secs(1)
        });
        run.signal(Signal::SIGCONT);
        let end = run.end();
        assert_eq!(end.code(), status, "{}", end.err);
        assert!(end.err.contains("the lock was lost"), "{}", end.err);
        std::fs::remove_file(go).expect("a file");
        real.start_again();
    }
}

/// A command that ends with 5 when the file is there.
fn until_told(real: &TestServer, options: &str) -> (Running, PathBuf) {
    let go = real.dir().join("go");
    let waits = format!(
        "echo up; while [ ! -e {} ]; do sleep 0.02; done; exit 5",
        go.display()
    );
    let run = script(real, options, &waits);
    assert_eq!(run.line(), "up");
    (run, go)
}

#[test]
fn a_server_that_dies_stops_the_command_when_the_lease_is_over() {
    let mut real = TestServer::start();
    let run = script(&real, "--lease 1", TELLS);
    assert_eq!(run.line(), "up");
    real.crash();
    let end = run.end();
    assert_eq!((end.code(), end.out.as_str()), (75, "stopped\n"));
    assert!(end.err.contains("no renewal was confirmed"), "{}", end.err);
    real.start_again();
}

#[test]
fn a_server_that_dies_and_comes_back_with_its_data_does_not_disturb() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let run = script(&real, "", "echo up; exec sleep 100");
    assert_eq!(run.line(), "up");
    real.crash_and_restart();
    wait_for("a renewal", || real.stat("renewals") > 0);
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!((end.code(), end.err.as_str()), (143, ""));
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}

#[test]
fn a_connection_that_drops_does_not_disturb() {
    let real = TestServer::start();
    let run = script(&real, "", TELLS);
    assert_eq!(run.line(), "up");
    for _ in 0..2 {
        let before = real.stat("renewals");
        kill_others(&mut real.conn());
        wait_for("a renewal", || real.stat("renewals") > before);
    }
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code(), 3);
    assert!(!end.err.contains("redis-lock"), "{}", end.err);
    assert_eq!(real.stat("grants_expired") + real.stat("grants_broken"), 0);
    assert_eq!(real.stat("grants"), 1);
}

#[test]
fn a_connection_that_drops_does_not_end_a_wait() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k other");
    let run = script(&real, "", "echo got");
    for round in 1..=3 {
        real.wait_for_waits(1);
        kill_others(&mut conn);
        conn.line("CLIENT KILL TYPE pubsub");
        wait_for("another wait", || real.stat("tickets_queued") > round);
    }
    real.wait_for_waits(1);
    conn.line("LOCK.RELEASE k other");
    assert_eq!(run.end().ok(), "got\n");
}

#[test]
fn a_server_paused_for_less_than_the_lease_does_not_disturb() {
    let real = TestServer::start();
    let run = script(&real, "", TELLS);
    assert_eq!(run.line(), "up");
    real.signal(Signal::SIGSTOP as i32);
    // sleep: the server stands still for a part of the lease in which a renewal is due
    std::thread::sleep(Duration::from_secs(12));
    real.signal(Signal::SIGCONT as i32);
    wait_for("a renewal", || real.stat("renewals") > 0);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 3);
}

#[test]
fn a_server_paused_for_longer_than_the_lease_stops_the_command() {
    let real = TestServer::start();
    let run = script(&real, "--lease 1", TELLS);
    assert_eq!(run.line(), "up");
    real.signal(Signal::SIGSTOP as i32);
    let end = run.end();
    real.signal(Signal::SIGCONT as i32);
    assert_eq!((end.code(), end.out.as_str()), (75, "stopped\n"));
}

#[test]
fn a_release_without_a_server_delays_the_end_only_briefly() {
    let mut real = TestServer::start();
    let options = "--lease 60 --timeout 5";
    let run = script(&real, options, "echo $$; kill -STOP $$; exit 4");
    let command = run.line();
    real.crash();
    wait_for("the stop", || is_stopped(&command));
    let command = nix::unistd::Pid::from_raw(command.parse().expect("a pid"));
    nix::sys::signal::kill(command, Signal::SIGCONT).expect("a signal");
    let start = Instant::now();
    let end = run.end();
    assert_eq!(end.code(), 4);
    assert!(end.err.contains("not released"), "{}", end.err);
    assert!(
        start.elapsed() < Duration::from_secs(45),
        "before its lease is over"
    );
    real.start_again();
}

fn kill_others(conn: &mut Conn) {
    conn.line("CLIENT KILL TYPE normal SKIPME yes");
}

fn is_stopped(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.contains(") T ")
}
