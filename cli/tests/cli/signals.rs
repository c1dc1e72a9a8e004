//! Signals to `redis-lock`: passed on while the command runs, the end of a wait before.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{is_alive, program, script, start_args, Running, PROGRAM};

#[test]
fn signals_are_passed_on_to_the_command() {
    let real = TestServer::start();
    let names = ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "TERM"];
    let traps: String = names
        .iter()
        .map(|name| format!("trap 'echo {name}' {name}; "))
        .collect();
    let run = script(
        &real,
        "",
        &format!("{traps} trap 'echo TERM; exit 9' TERM; echo up; while :; do sleep 0.02; done"),
    );
    assert_eq!(run.line(), "up");
    for name in names {
        run.signal(format!("SIG{name}").parse().expect("a signal"));
        assert_eq!(run.line(), name);
    }
    assert_eq!(run.end().code(), 9);
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}

#[test]
fn all_of_the_commands_group_hears_them() {
    let real = TestServer::start();
    let run = script(&real, "", "sleep 100 & echo $!; wait");
    let left = run.line();
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    wait_for("the end of what it started", || !is_alive(&left));
}

#[test]
fn a_signal_ends_a_wait_and_withdraws_it() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k other");
    for (signal, status) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
    ] {
        let run = script(&real, "", "echo never");
        real.wait_for_waits(1);
        run.signal(signal);
        let end = run.end();
        assert_eq!((end.code(), end.out.as_str()), (status, ""));
        // There is no waiter, and no place in the queue is kept.
        assert_eq!((real.waits(), real.stat("places_kept")), (0, 0));
    }
    let run = script(&real, "", "echo got");
    real.wait_for_waits(1);
    run.signal(Signal::SIGWINCH);
    conn.line("LOCK.RELEASE k other");
    assert_eq!(run.end().ok(), "got\n");
}

#[test]
fn a_wait_that_is_killed_is_dropped_by_the_server() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k other");
    let run = script(&real, "", "echo never");
    real.wait_for_waits(1);
    run.signal(Signal::SIGKILL);
    real.wait_for_waits(0);
    conn.line("LOCK.RELEASE k other");
    assert!(conn.line("LOCK.ACQUIRE k third BLOCK 10000").int() > 0);
}

#[test]
fn killed_itself_it_leaves_the_command_running_until_the_lease_is_over() {
    let real = TestServer::start();
    let run = script(&real, "--lease 1", "echo $$; exec sleep 100");
    let command = run.line();
    run.signal(Signal::SIGKILL);
    let next = real.conn().line("LOCK.ACQUIRE k other BLOCK 10000");
    assert!(next.int() > 0);
    assert!(is_alive(&command));
    let command = nix::unistd::Pid::from_raw(command.parse().expect("a pid"));
    nix::sys::signal::kill(command, Signal::SIGKILL).expect("a signal");
}

#[test]
#[cfg(target_os = "linux")]
fn killed_itself_it_takes_the_command_along_if_asked_to() {
    let real = TestServer::start();
    let run = script(&real, "--die-with-parent", "echo $$; exec sleep 100");
    let command = run.line();
    run.signal(Signal::SIGKILL);
    wait_for("the end of the command", || !is_alive(&command));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let real = TestServer::start();
    let inner =
        "trap 'echo TERM; exit 0' TERM; kill -HUP $$; echo up; while :; do sleep 0.02; done";
    let mut command = Command::new("sh");
    command.env("REDIS_LOCK_URL", crate::program::url(&real));
    command.args([
        "-c",
        "trap '' HUP; exec \"$0\" \"$@\"",
        PROGRAM,
        "run",
        "k",
        "sh",
        "-c",
        inner,
    ]);
    let run = Running::of(&mut command);
    assert_eq!(run.line(), "up");
    run.signal(Signal::SIGHUP);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.line(), "TERM");
    assert_eq!(run.end().code(), 0);
}

/// A mask of signals of its own, as the command shows it.
fn mask_of(run: Running) -> u64 {
    let line = run.end().ok();
    let mask = line.split_whitespace().nth(1).expect("a mask");
    u64::from_str_radix(mask, 16).expect("a mask")
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_has_the_signals_as_the_parent_left_them() {
    let real = TestServer::start();
    let bit = |signal: Signal| 1 << (signal as u32 - 1);
    // With SIGCHLD blocked its end would not be noticed.
    let some = bit(Signal::SIGCHLD) | bit(Signal::SIGTERM);
    let all = some | bit(Signal::SIGPIPE);
    for (parent, masks) in [
        ("--block-signal=CHLD,TERM", [some, 0]),
        ("--ignore-signal=CHLD,TERM", [0, some]),
        ("--ignore-signal=PIPE", [0, bit(Signal::SIGPIPE)]),
        ("--default-signal=PIPE", [0, 0]),
    ] {
        for (name, mask) in ["SigBlk", "SigIgn"].into_iter().zip(masks) {
            let mut command = Command::new("env");
            command.env("REDIS_LOCK_URL", crate::program::url(&real));
            command.args([parent, PROGRAM, "run", "k", "grep", name]);
            let run = Running::of(command.arg("/proc/self/status"));
            assert_eq!(mask_of(run) & all, mask, "{parent}: {name}");
        }
    }
}

#[test]
fn a_script_without_a_first_line_is_one_of_the_shell() {
    let real = TestServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("script");
    std::fs::write(&file, "echo of the shell").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("a mode");
    let run = start_args(&real, ["run".as_ref(), "k".as_ref(), file.as_os_str()]);
    assert_eq!(run.end().ok(), "of the shell\n");
}

#[test]
fn the_command_has_a_process_group_of_its_own() {
    let real = TestServer::start();
    let mut command = program(&real);
    // The process group is the third word behind the program's name (proc(5)).
    let inner = "group() { read stat </proc/$1/stat; set ${stat##*) }; echo $3; }; \
                 echo $$ $(group $$); group $PPID";
    command
        .process_group(0)
        .args(["run", "k", "--", "sh", "-c", inner]);
    let run = Running::of(&mut command);
    let line = run.line();
    let (process, group) = line.split_once(' ').expect("two numbers");
    assert_eq!(process, group);
    assert_eq!(run.line(), run.pid().to_string());
}

/// timeout(1) sends its signal to the process and to its group.
#[test]
fn a_signal_that_comes_twice_withdraws_a_wait_and_a_later_one_ends_the_withdrawal() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k other");
    for is_again in [false, true] {
        let mut run = start_args(&real, ["run", "-q", "k", "true"]);
        real.wait_for_waits(1);
        real.signal(libc::SIGSTOP);
        for _ in 0..2 {
            run.signal(Signal::SIGTERM);
            // sleep: so that it is a second signal
            std::thread::sleep(Duration::from_millis(20));
        }
        wait_for("the end", || {
            let signal = is_again.then_some(Signal::SIGTERM);
            let _ = kill(crate::program::pid(run.pid()), signal);
            !is_again || !run.is_running()
        });
        real.signal(libc::SIGCONT);
        let end = run.end();
        assert_eq!(end.code(), 143);
        assert_eq!(
            end.err.contains("the wait may stay"),
            is_again,
            "{}",
            end.err
        );
        assert!(is_again || (real.waits(), real.stat("places_kept")) == (0, 0));
    }
}

/// A unit of systemd: with its KillMode=control-group all processes are signalled, with `mixed` redis-lock alone.
#[test]
fn a_signal_to_the_whole_control_group_reaches_the_command_once() {
    let real = TestServer::start();
    let counts = "trap 'echo TERM' TERM; trap 'echo last; exit 7' USR1; echo up; while :; do sleep 0.02; done";
    let signalled = |to_others: bool, is_first: bool, is_stopped: bool| {
        let mut command = program(&real);
        command.env("INVOCATION_ID", "0123456789abcdef");
        let run = Running::of(command.args(["run", "k", "--", "sh", "-c", counts]));
        assert_eq!(run.line(), "up");
        let mut pids = [run.descendants("sh"), run.descendants("redis-lock")].concat();
        pids.retain(|pid| to_others && *pid != run.pid() as i32);
        let witness = run.descendants("redis-lock").into_iter().max();
        for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
            if is_stopped {
                kill(Pid::from_raw(witness.expect("a witness")), signal).expect("a signal");
                // sleep: redis-lock has seen the stop
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        pids.insert(if is_first { 0 } else { pids.len() }, run.pid() as i32);
        let is_own = |pid: i32| pid == run.pid() as i32;
        for pid in pids {
            if is_stopped && is_own(pid) {
                assert_eq!(run.line(), "TERM");
            }
            // What the shell has forked for a sleep may have ended.
            let sent = kill(Pid::from_raw(pid), Signal::SIGTERM);
            assert!(sent.is_ok() || !is_own(pid), "{sent:?}");
        }
        if !is_stopped {
            assert_eq!(run.line(), "TERM");
        }
        // sleep: a signal that is passed on would be held back for a quarter of that
        std::thread::sleep(Duration::from_secs(1));
        run.signal(Signal::SIGUSR1);
        let end = run.end();
        assert_eq!(end.code(), 7);
        assert!(real.conn().line("LOCK.INFO k").is_nil());
        end.out
    };
    assert_eq!(signalled(true, false, false), "last\n");
    assert_eq!(signalled(true, false, true), "last\n");
    assert_eq!(signalled(false, true, false), "last\n");
    // A busy machine may take longer from one to the next.
    assert!((0..5).any(|_| signalled(true, true, false) == "last\n"));
}
