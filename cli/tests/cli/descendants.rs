//! What the command starts outside of its process group, or leaves behind: it ends before the lock is free, where the
//! lock is lost or a signal ends the command.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{is_alive, script, url, Running, PROGRAM};

/// How a command may put work outside of its process group, and the program that then runs there.
const WAYS_OUT: [&str; 4] = [
    "timeout 60 sleep 31",
    "setsid sleep 31",
    "bash -mc 'sleep 31 & wait'",
    // Its parents have ended: a daemon.
    "(setsid sh -c 'sleep 31 & exit' &); while :; do read line </dev/zero; done",
];

fn is_held(real: &TestServer) -> bool {
    !real.conn().line("LOCK.INFO k").is_nil()
}

fn wait_for_sleep(run: &Running) -> String {
    wait_for("what it starts", || !run.descendants("sleep").is_empty());
    run.descendants("sleep")[0].to_string()
}

fn killed(process: &str) {
    let pid = Pid::from_raw(process.parse().expect("a pid"));
    kill(pid, Signal::SIGKILL).expect("a signal");
}

#[test]
fn a_lost_lock_ends_descendants_outside_of_the_group() {
    let real = TestServer::start();
    for way_out in WAYS_OUT {
        let run = script(&real, "", &format!("{way_out}; :"));
        let left = wait_for_sleep(&run);
        real.conn().line("LOCK.BREAK k");
        let end = run.end();
        assert_eq!(end.code(), 75, "{way_out}: {}", end.err);
        assert!(!is_alive(&left), "{way_out}");
    }
}

#[test]
fn a_signal_that_ends_the_command_ends_its_descendants() {
    let real = TestServer::start();
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        for way_out in WAYS_OUT {
            let run = script(&real, "", &format!("{way_out} & wait"));
            let left = wait_for_sleep(&run);
            run.signal(signal);
            let end = run.end();
            assert_eq!(end.code(), status, "{way_out}: {}", end.err);
            assert!(!is_alive(&left), "{way_out}");
            assert!(!is_held(&real));
        }
    }
}

/// A shell without job control has its background jobs ignore SIGINT.
#[test]
fn a_descendant_that_ignores_the_signal_is_sent_sigterm() {
    let real = TestServer::start();
    let run = script(&real, "", "sleep 100 & echo up; wait");
    assert_eq!(run.line(), "up");
    let left = wait_for_sleep(&run);
    run.signal(Signal::SIGINT);
    assert_eq!(run.end().code(), 130);
    assert!(!is_alive(&left));
}

/// As Ctrl-C does at a terminal, where the command has the foreground.
#[test]
fn a_signal_that_did_not_come_through_redis_lock_ends_descendants_too() {
    let real = TestServer::start();
    let run = script(&real, "", "sleep 100 & echo $!; kill -INT $$");
    let left = run.line();
    assert_eq!(run.end().code(), 130);
    assert!(!is_alive(&left));
}

#[test]
fn the_lock_is_free_only_when_the_last_descendant_has_ended() {
    let real = TestServer::start();
    let go = real.dir().join("go");
    let orderly = format!(
        "trap 'echo ending; while [ ! -e {} ]; do sleep 0.02; done; exit' TERM; \
         echo up; while :; do sleep 0.02; done",
        go.display()
    );
    let inner = format!("echo $$; setsid sh -c \"{orderly}\" & wait");
    let run = script(&real, "", &inner);
    let command = run.line();
    assert_eq!(run.line(), "up");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.line(), "ending");
    wait_for("the end of the command", || !is_alive(&command));
    let renewals = real.stat("renewals");
    wait_for("a renewal", || real.stat("renewals") > renewals);
    assert!(is_held(&real));
    std::fs::write(go, "").expect("a file");
    let end = run.end();
    assert_eq!(end.code(), 143, "{}", end.err);
    assert!(!is_held(&real));
}

#[test]
fn descendants_that_do_not_heed_are_killed_after_the_grace() {
    let real = TestServer::start();
    let stubborn = "trap '' TERM; echo $$; while :; do sleep 0.02; done";
    let inner = format!("setsid sh -c \"{}\" & wait", stubborn.replace('$', "\\$"));
    for (is_broken, status) in [(true, 75), (false, 143)] {
        let run = script(&real, "--grace 0.2", &inner);
        let left = run.line();
        if is_broken {
            real.conn().line("LOCK.BREAK k");
        } else {
            run.signal(Signal::SIGTERM);
        }
        assert_eq!(run.end().code(), status);
        assert!(!is_alive(&left));
    }
}

/// Lost while what the command has left behind is waited for.
#[test]
fn a_loss_after_the_commands_end_counts() {
    let real = TestServer::start();
    let inner = "setsid sh -c \"trap '' TERM; echo up; while :; do sleep 0.02; done\" & wait";
    let run = script(&real, "--grace 3", inner);
    assert_eq!(run.line(), "up");
    run.signal(Signal::SIGTERM);
    assert!(run.complaint().contains("waiting for"));
    real.conn().line("LOCK.BREAK k");
    assert!(run.complaint().contains("the lock was lost"));
    assert_eq!(run.end().code(), 75);
}

#[test]
fn children_that_it_had_before_are_left_alone() {
    let real = TestServer::start();
    let mut command = Command::new("sh");
    command.env("REDIS_LOCK_URL", url(&real));
    let outer = "sleep 100 & echo $!; exec \"$0\" run k -- timeout 60 sleep 31";
    let run = Running::of(command.args(["-c", outer, PROGRAM]));
    let stranger = run.line();
    wait_for("the command", || run.descendants("sleep").len() == 2);
    real.conn().line("LOCK.BREAK k");
    assert_eq!(run.end().code(), 75);
    assert!(is_alive(&stranger));
    killed(&stranger);
}

#[test]
fn with_verbose_it_names_what_goes_on_without_the_lock() {
    let real = TestServer::start();
    let inner = "setsid sleep 100 >/dev/null 2>&1 & echo $!";
    let run = script(&real, "--verbose", inner);
    let left = run.line();
    let end = run.end();
    assert_eq!(end.code(), 0, "{}", end.err);
    assert!(is_alive(&left));
    killed(&left);
    let named =
        format!("left running without the lock: 1 process that the command started (pid {left})");
    assert!(end.err.contains(&named), "{}", end.err);
}

/// Of another user, by a program with the set-user-ID bit.
#[test]
fn a_process_that_cannot_be_killed_is_named_and_keeps_the_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(become_root) = set_user_id_program(dir.path()) else {
        eprintln!("not run: this needs root, and setpriv");
        return;
    };
    let real = TestServer::start();
    let inner = format!("{become_root} --reuid 0 sleep 100 & wait");
    let mut command = Command::new("setpriv");
    command.env("REDIS_LOCK_URL", url(&real));
    command.args(["--reuid", "65534", "--clear-groups"]);
    command.args([PROGRAM, "run", "--grace", "0.1", "k", "--", "sh", "-c"]);
    let run = Running::of(command.arg(inner));
    let left = wait_for_sleep(&run);
    run.signal(Signal::SIGTERM);
    let named = format!("1 process that the command started (pid {left})");
    let cannot = format!("cannot end {named}");
    while !run.complaint().contains(&cannot) {}
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code(), 143, "{}", end.err);
    assert!(
        end.err.contains(&format!("left running: {named}")),
        "{}",
        end.err
    );
    assert!(end.err.contains("not released"), "{}", end.err);
    assert!(is_alive(&left) && is_held(&real));
    killed(&left);
}

/// A setpriv(1) that may become root, for others than root; None where that is not possible.
fn set_user_id_program(dir: &Path) -> Option<String> {
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, open).ok()?;
    let copy = dir.join("become-root");
    let which = Command::new("sh")
        .args(["-c", "command -v setpriv"])
        .output();
    let original = String::from_utf8(which.ok()?.stdout).ok()?;
    std::fs::copy(original.trim(), &copy).ok()?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).ok()?;
    let mut tried = Command::new("setpriv");
    tried
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(&copy);
    let tried = tried.args(["--reuid", "0", "id", "-ru"]).output().ok()?;
    (tried.stdout == b"0\n").then(|| copy.display().to_string())
}
