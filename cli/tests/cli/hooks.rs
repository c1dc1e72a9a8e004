//! `--on-acquire` and `--on-loss`: scripts beside the command.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{start_args, Running};

fn run(real: &TestServer, options: &[&str], script: &str) -> Running {
    let command = ["k", "--", "sh", "-c", script];
    let args = ["run"].iter().chain(options).chain(&command);
    start_args(real, args.copied())
}

/// The file that a script writes, and what is in it.
fn note(real: &TestServer) -> (PathBuf, impl Fn() -> String) {
    let file = real.dir().join("note");
    let of = file.clone();
    (file, move || {
        std::fs::read_to_string(&of).unwrap_or_default()
    })
}

#[test]
fn a_script_is_started_when_the_lock_is_granted() {
    let real = TestServer::start();
    let (file, written) = note(&real);
    let script = format!("echo $LOCK_KEY $LOCK_TOKEN > {}; exit 9", file.display());
    let command = format!(
        "until [ -s {} ]; do sleep 0.02; done; echo $LOCK_TOKEN",
        file.display()
    );
    let end = run(&real, &["--on-acquire", &script], &command).end();
    assert_eq!(format!("k {}", end.ok()), written());
    // It does not keep the lock, and no signal reaches it.
    let end = run(
        &real,
        &["--on-acquire", "trap '' TERM; exec sleep 5"],
        "kill -TERM $$",
    )
    .end();
    assert_eq!((end.code(), end.err.as_str()), (143, ""));
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}

#[test]
fn a_script_is_started_when_the_lock_is_lost() {
    let real = TestServer::start();
    let (file, written) = note(&real);
    // Slower than the command, which ends at once.
    let script = format!("sleep 0.3; echo $LOCK_OWNER >> {}", file.display());
    for (options, status) in [
        (&["--owner", "me"][..], 75),
        (&["--owner", "me", "--keep"], 0),
    ] {
        let options = [options, &["--on-loss", &script, "--grace", "1000"]].concat();
        let go = real.dir().join("go");
        let command = format!(
            "echo up; until [ -e {} ]; do sleep 0.02; done",
            go.display()
        );
        let run = run(&real, &options, &command);
        assert_eq!(run.line(), "up");
        real.conn().line("LOCK.BREAK k");
        assert!(run.complaint().contains("the lock was lost"));
        std::fs::write(&go, "").expect("a file");
        assert_eq!(run.end().code(), status);
        wait_for("the script", || written() == "me\n");
        std::fs::remove_file(&go).expect("a file");
        std::fs::remove_file(&file).expect("a file");
    }
}

#[test]
fn a_script_that_does_not_end_is_killed_with_the_command() {
    let real = TestServer::start();
    let options = [
        "--on-loss",
        "trap '' TERM; exec sleep 1000",
        "--grace",
        "0.5",
    ];
    let run = run(&real, &options, "echo up; exec sleep 1000");
    assert_eq!(run.line(), "up");
    real.conn().line("LOCK.BREAK k");
    assert_eq!(run.end().code(), 75);
}

#[test]
fn a_loss_that_is_found_at_the_release_starts_the_script_too() {
    let real = TestServer::start();
    let (file, written) = note(&real);
    let go = real.dir().join("go");
    let command = format!(
        "echo up; until [ -e {} ]; do sleep 0.02; done",
        go.display()
    );
    let script = format!("echo lost > {}", file.display());
    let run = run(&real, &["--on-loss", &script], &command);
    assert_eq!(run.line(), "up");
    run.signal(Signal::SIGSTOP);
    real.conn().line("LOCK.BREAK k");
    std::fs::write(&go, "").expect("a file");
    run.signal(Signal::SIGCONT);
    assert_eq!(run.end().code(), 75);
    wait_for("the script", || written() == "lost\n");
}
