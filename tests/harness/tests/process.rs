//! Processes that tests start: they begin with the signals of a fresh login, and end with the test run.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use redis_lock_harness::process::{spawn, tame, Family};
use redis_lock_harness::wait_for;

/// A shell command with piped output.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped());
    command
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a line");
    line.trim().to_string()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

const STATUS: &str = "grep -E '^Sig(Blk|Ign):' /proc/self/status";

/// The signals that a child blocks and those that it ignores, of the first 15 (SIGHUP, SIGINT and the like).
fn ignored(command: &mut Command) -> [u64; 2] {
    let output = command.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let set = |line: &str| {
        let mask = line.split_whitespace().last().expect("a mask");
        u64::from_str_radix(mask, 16).expect("a number") & 0x7fff
    };
    let sets: Vec<u64> = text.lines().map(set).collect();
    sets.try_into().expect("two lines")
}

/// As in the background of a shell without job control, and below nohup(1).
#[test]
fn a_child_begins_with_no_signal_ignored_or_blocked() {
    // SAFETY: this test run ignores two signals from here on; no handler is set.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
    let interrupt_and_hangup = 0b11;
    let [_, inherited] = ignored(&mut shell(STATUS));
    assert_eq!(inherited & interrupt_and_hangup, interrupt_and_hangup);
    assert_eq!(ignored(tame(&mut shell(STATUS))), [0, 0]);
}

/// Started from a thread that has ended since.
#[test]
fn a_child_outlives_the_thread_that_started_it() {
    let start = || spawn(&mut shell("echo up; exec sleep 1000")).expect("a shell");
    let mut child = std::thread::spawn(start).join().expect("no panic");
    assert_eq!(first_line(&mut child), "up");
    assert!(child.try_wait().expect("a child").is_none());
    child.kill().expect("a child");
    child.wait().expect("a child");
}

/// The test below runs as a program of its own, which is killed.
#[test]
#[cfg(target_os = "linux")]
fn a_child_ends_with_a_test_run_that_is_killed() {
    let mut run = Command::new(std::env::current_exe().expect("this program"));
    run.args(["--exact", "leaves_a_child", "--ignored", "--nocapture"]);
    let mut run = spawn(run.stdout(Stdio::piped())).expect("this program");
    let out = BufReader::new(run.stdout.take().expect("a pipe"));
    let response = out.lines().map_while(Result::ok);
    let child = response
        .filter_map(|line| Some(line.strip_prefix("child ")?.to_string()))
        .next();
    let child = child.expect("a child");
    assert!(is_alive(&child));
    run.kill().expect("a child");
    run.wait().expect("a child");
    wait_for("the child's end", || !is_alive(&child));
}

#[test]
#[ignore = "the other half of a_child_ends_with_a_test_run_that_is_killed"]
fn leaves_a_child() {
    let mut child = spawn(&mut shell("echo child $$; exec sleep 1000")).expect("a shell");
    println!("{}", first_line(&mut child));
    child.wait().expect("a child");
}

/// A process that has left its process group, and whose parent has ended.
#[test]
fn a_family_is_killed_as_a_whole() {
    let mut command = shell("setsid sleep 1000 >/dev/null & echo $!");
    let family = Family::of(&mut command);
    let mut child = spawn(&mut command).expect("a shell");
    let left = first_line(&mut child);
    child.wait().expect("a child");
    assert!(is_alive(&left));
    family.kill();
    wait_for("the end of what it left", || !is_alive(&left));
    assert_eq!(family.members(), []);
}
