//! Several keys, permits, and the least and the most time of a run.

use std::time::Duration;

use nix::sys::signal::Signal;
use redis_lock_harness::replica::follow;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{program, script, start, Running, PROGRAM};

/// The time that the lease of this key has left.
fn lease(real: &TestServer, key: &str) -> Duration {
    let left = real.conn().line(&format!("PTTL {key}")).int();
    Duration::from_millis(u64::try_from(left).unwrap_or_default())
}

fn is_free(real: &TestServer, key: &str) -> bool {
    real.conn().line(&format!("LOCK.INFO {key}")).is_nil()
}

#[test]
fn several_keys_are_locked_together_or_not_at_all() {
    let real = TestServer::start();
    let tells = "echo $LOCK_KEY $LOCK_KEY_HEX; echo $LOCK_TOKEN $LOCK_TOKENS; exec sleep 100";
    let run = script(&real, "--and j --and i", tells);
    assert_eq!(run.line(), "k 6b 6a 69");
    let tokens = run.line();
    let [first, tokens @ ..] = &tokens.split(' ').collect::<Vec<_>>()[..] else {
        panic!("no tokens")
    };
    for (key, token) in ["k", "j", "i"].iter().zip(tokens) {
        let info = real.conn().line(&format!("LOCK.INFO {key}"));
        let holder = &info.field("holders").expect("holders").list()[0];
        assert_eq!(
            holder.field("token").expect("a token").int().to_string(),
            **token
        );
    }
    assert_eq!((tokens.len(), tokens[0]), (3, *first));
    let waits = script(&real, "--and h", "echo ran");
    assert!(waits.complaint().contains("redis-lock: k, h: waiting for "));
    assert_eq!(real.conn().line("EXISTS h").int(), 0);
    let end = start(&real, "run -n -v h --and j -- echo never").end();
    assert_eq!(end.code(), 1);
    assert!(end.err.contains("not to be had: j held by"), "{}", end.err);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    assert_eq!(waits.end().ok(), "ran\n");
    assert!(["k", "j", "i", "h"].iter().all(|key| is_free(&real, key)));
}

/// As with one key: a lock that is lost ends the command, and the others are released.
#[test]
fn of_several_keys_one_that_is_lost_stops_the_command() {
    let real = TestServer::start();
    let run = script(&real, "--and j", "echo up; exec sleep 100");
    assert_eq!(run.line(), "up");
    assert_eq!(real.conn().line("LOCK.BREAK j").int(), 1);
    assert_eq!(run.end().code(), 75);
    assert!(is_free(&real, "k"));
}

#[test]
fn below_a_run_of_several_keys_none_of_them_is_waited_for() {
    let real = TestServer::start();
    let nested = |options: &str| {
        let inner = format!("'{PROGRAM}' run {options} -- echo inner; echo $?");
        script(&real, "--and j", &inner).end().out
    };
    assert_eq!(nested("j"), "64\n");
    assert_eq!(nested("--reentrant j --and i"), "64\n");
    assert_eq!(nested("--reentrant j --and k"), "inner\n0\n");
    assert_eq!(nested("i"), "inner\n0\n");
}

#[test]
fn a_majority_has_no_least_time_from_the_environment_either() {
    let real = TestServer::start();
    let mut command = program(&real);
    let words = ["run", "--quorum", "k", "true"];
    let end = Running::of(command.args(words).env("REDIS_LOCK_AT_LEAST", "60")).end();
    assert_eq!(end.code(), 64);
    assert!(end.err.contains("--at-least"), "{}", end.err);
}

#[test]
fn a_quick_job_leaves_the_lock_for_the_rest_of_its_time() {
    let real = TestServer::start();
    let at_most = Duration::from_secs(600);
    for (options, status) in [("", 0), ("--and j", 5), ("--keep", 0)] {
        let options = format!("--lease 10 --at-least 10m {options}");
        let end = script(&real, &options, &format!("exit {status}")).end();
        assert_eq!((end.code(), end.err.as_str()), (status, ""), "{options}");
        let left = lease(&real, "k");
        assert!(
            left <= at_most && left > Duration::from_secs(10),
            "{left:?}"
        );
        assert_eq!(script(&real, "-n", "echo never").end().code(), 1);
        for key in ["k", "j"] {
            real.conn().line(&format!("LOCK.BREAK {key}"));
        }
    }
    // A slow one releases it, and one that was not started has done nothing.
    assert_eq!(
        script(&real, "--at-least 0.01", "sleep 0.05").end().code(),
        0
    );
    assert!(is_free(&real, "k"));
    let end = start(&real, "run --at-least 60 k ./no-such-thing").end();
    assert_eq!(end.code(), 127);
    assert!(is_free(&real, "k"));
}

#[test]
fn a_lock_that_is_lost_is_not_left_for_the_rest() {
    let real = TestServer::start();
    let run = script(&real, "--at-least 60", "echo up; exec sleep 100");
    assert_eq!(run.line(), "up");
    real.conn().line("LOCK.BREAK k");
    assert_eq!(run.end().code(), 75);
    assert!(is_free(&real, "k"));
}

#[test]
fn a_command_is_ended_when_its_time_is_over() {
    let real = TestServer::start();
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let heeds = "trap 'echo stopped; exit 3' TERM; while :; do sleep 0.05; done";
    let ended = |times: &str, command: &str| {
        let end = script(&real, times, command).end();
        assert_eq!(end.code(), 124, "{}", end.err);
        assert!(end.err.contains("(--at-most)"), "{}", end.err);
        assert!(is_free(&real, "k"));
        end.out
    };
    for command in [stubborn, "setsid sleep 100 & wait"] {
        assert_eq!(ended("--at-most 0.3 --grace 0.5", command), "");
    }
    // A slow machine needs longer to set the trap.
    let mut times = ["0.3", "3", "15"].iter();
    assert!(times.any(|at_most| {
        ended(&format!("--at-most {at_most} --grace 60"), heeds) == "stopped\n"
    }));
    assert_eq!(script(&real, "--at-most 100", "exit 7").end().code(), 7);
}

#[test]
fn so_many_runs_hold_a_permit_at_a_time() {
    let real = TestServer::start();
    let tells = "echo \"up ${LOCK_TOKEN-none} $LOCK_OWNER\"; exec sleep 100";
    let runs: Vec<Running> = (0..2)
        .map(|_| script(&real, "--permits 2", tells))
        .collect();
    for run in &runs {
        let line = run.line();
        assert!(line.starts_with("up none ") && line.contains(':'), "{line}");
    }
    assert_eq!(
        script(&real, "--permits 2 -n", "echo never").end().code(),
        1
    );
    let waits = script(&real, "--permits 2", "echo ran");
    let said = waits.complaint();
    assert!(
        said.contains("2 of 2 permits held") && said.contains("1 waiting"),
        "{said}"
    );
    for other in ["3", "1"] {
        let end = script(&real, &format!("--permits {other} -n"), "echo never").end();
        assert_eq!((end.code(), end.out.as_str()), (64, ""));
        assert!(end.err.contains("k has 2 permits, not "), "{}", end.err);
    }
    runs[0].signal(Signal::SIGTERM);
    assert_eq!(waits.end().ok(), "ran\n");
    for run in runs {
        run.signal(Signal::SIGTERM);
        assert_eq!(run.end().code(), 143);
    }
    let held = real
        .conn()
        .line("SEM.INFO k")
        .field("held")
        .expect("a number")
        .int();
    assert_eq!(held, 0);
    let end = script(&real, "--permits 2 --at-least 60", "exit 0").end();
    assert_eq!(end.code(), 0);
    assert_eq!(
        real.conn()
            .line("SEM.INFO k")
            .field("held")
            .expect("a number")
            .int(),
        1
    );
}

#[test]
fn a_permit_is_renewed_and_its_loss_ends_the_command() {
    let real = TestServer::start();
    let run = script(&real, "--permits 2 --lease 9", "echo up; exec sleep 100");
    assert_eq!(run.line(), "up");
    wait_for("a renewal", || real.stat("sem_renewals") > 0);
    real.conn().line("DEL k {k}:timeout");
    let end = run.end();
    assert_eq!(end.code(), 75, "{}", end.err);
}

#[test]
fn a_semaphore_is_shown() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("SEM.ACQUIRE k me LIMIT 2");
    let shown = start(&real, "info k").end().ok();
    assert!(
        shown.starts_with("k: semaphore\n  1 of 2 permits held, the next lease ends in "),
        "{shown}"
    );
    let shown = start(&real, "info k --json").end().ok();
    assert!(
        shown.contains(r#""mode":"semaphore""#) && shown.contains(r#""permits":2"#),
        "{shown}"
    );
    // The module names those that have waiters.
    conn.line("SEM.ACQUIRE k you");
    conn.line("LATCH.SET l 1");
    let mut waiters = [real.conn(), real.conn()];
    for (waiter, command) in waiters.iter_mut().zip(["SEM.ACQUIRE k we", "LATCH.WAIT l"]) {
        waiter.send_line(&format!("{command} BLOCK 0"));
    }
    let mut waited = || conn.line("LOCK.SCAN 0 WAITED").list()[1].list().len();
    wait_for("two waiters", || waited() == 2);
    real.conn().line("LOCK.ACQUIRE m me");
    let listed = start(&real, "ls --waited").end().ok();
    let words: Vec<_> = listed
        .lines()
        .skip(1)
        .flat_map(str::split_whitespace)
        .collect();
    assert_eq!(words[..5], ["k", "semaphore", "2", "of", "2"], "{listed}");
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let listed = start(&real, "ls --waited --json").end().ok();
    assert!(listed.contains(r#""waiters":1"#), "{listed}");
    assert_eq!(start(&real, "ls --graph").end().ok(), "");
    let latch = start(&real, "info l").end();
    assert_eq!(
        (
            latch.code(),
            latch.out.starts_with("l: semaphore, or another number\n")
        ),
        (1, true)
    );
    real.conn().line("SET j other");
    assert_eq!(start(&real, "info j").end().code(), 65);
}

#[test]
fn a_note_is_shown_to_those_who_look_and_wait() {
    let real = TestServer::start();
    let run = script(&real, "--note deploy:1412", "echo up; exec sleep 100");
    assert_eq!(run.line(), "up");
    let info = start(&real, "info k").end().ok();
    assert!(info.contains(", note: deploy:1412\n"), "{info}");
    for look in ["ls", "top --once"] {
        let rows = start(&real, look).end().ok();
        assert!(rows.contains(" (deploy:1412)  "), "{rows}");
    }
    let waits = script(&real, "--note next", "echo ran");
    let said = waits.complaint();
    assert!(said.contains("note: deploy:1412"), "{said}");
    let json = start(&real, "info k --json").end().ok();
    assert!(
        json.contains(r#""note":"deploy:1412""#) && json.contains(r#""note":"next""#),
        "{json}"
    );
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    assert_eq!(waits.end().ok(), "ran\n");
    for options in ["--permits 2", "--and j", "--shared"] {
        let end = start(&real, &format!("run --note x {options} k -- true")).end();
        assert_eq!(end.code(), 64, "{options}: {}", end.err);
    }
}

#[test]
fn a_long_queue_is_not_joined() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k other PX 600000");
    let end = script(&real, "-E 5 -v --queue 0", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (5, ""));
    assert!(end.err.contains("--queue"), "{}", end.err);
    assert_eq!(real.waits(), 0);
    conn.line("LOCK.RELEASE k other");
    let end = script(&real, "--queue 0", "echo free").end();
    assert_eq!(end.ok(), "free\n");
}

#[test]
fn several_permits_are_taken_in_one_step() {
    let real = TestServer::start();
    let run = script(&real, "--permits 3 --count 2", "echo up; exec sleep 100");
    assert_eq!(run.line(), "up");
    let held = start(&real, "info k").end().ok();
    assert!(held.contains("2 of 3 permits held"), "{held}");
    assert!(held.contains(", 2 times"), "{held}");
    let one = |count: &str| {
        let options = format!("-n --permits 3 {count}");
        script(&real, &options, "true").end().code()
    };
    assert_eq!((one(""), one("--count 2")), (0, 1));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    assert_eq!(one("--count 3"), 0);
    for wrong in [
        "--count 2",
        "--permits 1 --count 2",
        "--permits 1 --count 0",
    ] {
        assert_eq!(script(&real, wrong, "true").end().code(), 64, "{wrong}");
    }
}

#[test]
fn a_lock_that_too_few_replicas_have_is_given_up() {
    let (primary, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &primary);
    let end = script(&primary, "--replicas 1 --replicas-within 60", "echo held").end();
    assert_eq!(end.ok(), "held\n");
    let end = script(&primary, "--replicas 2 --replicas-within 2", "echo never").end();
    assert_eq!((end.code(), end.out.as_str()), (69, ""));
    assert!(end.err.contains("1 of 2 replicas"), "{}", end.err);
    assert!(is_free(&primary, "k"));
}
