//! `acquire`, `renew` and `release`, as scripts and pipelines use them.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{program, reach, start, start_args, url, Ended, Running, PROGRAM};

/// A script of the shell, with `$lock` for the program.
fn shell(real: &TestServer, script: &str) -> Running {
    let mut command = Command::new("sh");
    reach(&mut command, &url(real)).env("lock", PROGRAM);
    Running::of(command.args(["-c", script]))
}

fn is_free(real: &TestServer) -> bool {
    real.conn().line("LOCK.INFO k").is_nil()
}

fn acquired(end: Ended) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').expect("a name and a value");
        (name.to_string(), value.to_string())
    };
    end.ok().lines().map(pair).collect()
}

#[test]
fn a_lock_is_held_over_several_commands() {
    let real = TestServer::start();
    let steps = "
        held=$(\"$lock\" acquire k --lease 600) && export $held || exit
        echo $LOCK_OWNER $LOCK_TOKEN; \"$lock\" info k --json
        \"$lock\" renew k --lease 900; echo $?
        \"$lock\" release k; echo $?; \"$lock\" release k; echo $?; \"$lock\" renew k; echo $?";
    let mut conn = real.conn();
    let end = shell(&real, steps).end();
    let lines: Vec<_> = end.out.lines().collect();
    assert_eq!(lines[2..], ["0", "0", "75", "75"], "{}", end.err);
    let (owner, token) = lines[0].split_once(' ').expect("an owner and a token");
    assert!(
        lines[1].contains(&format!(r#""owner":"{owner}""#)),
        "{}",
        lines[1]
    );
    assert!(
        lines[1].contains(&format!(r#""token":{token}"#)),
        "{}",
        lines[1]
    );
    assert!(end.err.contains("k: not held by this owner"), "{}", end.err);
    assert!(conn.line("LOCK.INFO k").is_nil());
}

#[test]
fn a_lock_stays_for_its_lease_until_the_next_step() {
    let real = TestServer::start();
    let names = acquired(start(&real, "acquire k --lease 600").end());
    let [(first, owner), (second, token)] = &names[..] else {
        panic!("{names:?}")
    };
    assert_eq!(
        (first.as_str(), second.as_str()),
        ("LOCK_OWNER", "LOCK_TOKEN")
    );
    let left = || real.conn().line("PTTL k").int();
    assert!(left() > 500_000);
    assert_eq!(start(&real, "acquire k -n -E 9").end().code(), 9);
    assert_eq!(start(&real, "renew k").end().code(), 64);
    let of = |token: &str| format!("--owner {owner} --token {token}");
    assert_eq!(
        start(&real, &format!("renew k --lease 900 {}", of("1")))
            .end()
            .code(),
        75
    );
    assert_eq!(
        start(&real, &format!("renew k --lease 900 {}", of(token)))
            .end()
            .code(),
        0
    );
    assert!(left() > 800_000);
    assert_eq!(
        start(&real, &format!("release k {}", of(token)))
            .end()
            .code(),
        0
    );
    assert!(is_free(&real));
    let json = start(&real, "acquire k --owner me --json --shared")
        .end()
        .ok();
    let of = |field: &str| json.contains(field);
    assert!(
        of(r#""key":"k""#) && of(r#""owner":"me""#) && of(r#""token":"#),
        "{json}"
    );
    assert_eq!(start(&real, "acquire j --owner a;b").end().code(), 64);
}

#[test]
fn a_lock_that_nobody_has_heard_of_is_released() {
    let real = TestServer::start();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = program(&real);
    let end = command
        .args(["acquire", "k"])
        .stdout(full.expect("a device"))
        .output();
    assert_eq!(end.expect("a program").status.code(), Some(71));
    assert!(is_free(&real));
}

/// A program whose standard output is closed, or open for reading, cannot show the token.
#[test]
fn a_lock_whose_token_cannot_be_printed_is_not_acquired() {
    let real = TestServer::start();
    for words in [
        "acquire k",
        "acquire k --json",
        "acquire k --permits 2",
        "leader k --json",
        "ls",
    ] {
        for closed in [">&-", "1</dev/null"] {
            let end = shell(&real, &format!("\"$lock\" {words} {closed}")).end();
            assert_eq!(end.code(), 71, "{words} {closed}: {}", end.err);
            assert!(end.err.contains("standard output is closed"), "{}", end.err);
        }
    }
    assert_eq!(
        (real.stat("grants"), real.conn().line("DBSIZE").int()),
        (0, 0)
    );
    // The reader goes while the acquisition waits.
    real.conn().line("LOCK.ACQUIRE k other");
    let steps = "{ \"$lock\" acquire k -q; echo $? >&2; } | exec true";
    let run = shell(&real, steps);
    real.wait_for_waits(1);
    real.conn().line("LOCK.RELEASE k other");
    let said = run.end().err;
    assert!(
        said.contains("Broken pipe") && said.contains("71"),
        "{said}"
    );
    assert!(is_free(&real));
}

#[test]
fn a_permit_is_renewed_and_released_without_a_token() {
    let real = TestServer::start();
    let held = || {
        real.conn()
            .line("SEM.INFO k")
            .field("held")
            .expect("held")
            .int()
    };
    let steps = "
        held=$(\"$lock\" acquire k --permits 2 --lease 600) && export $held || exit
        echo $held; \"$lock\" renew k --lease 900; echo $?; \"$lock\" renew k --and j; echo $?; read go
        \"$lock\" release k; echo $?; \"$lock\" release k; echo $?";
    let end = shell(&real, &steps.replace("read go", "\"$lock\" info k")).end();
    let lines: Vec<_> = end.out.lines().collect();
    assert!(lines[0].ends_with(" LOCK_TOKEN="), "{}", lines[0]);
    assert_eq!(lines[1..3], ["0", "64"], "{}", end.err);
    assert!(
        lines[4].contains("1 of 2 permits held, the next lease ends in 14m"),
        "{lines:?}"
    );
    assert_eq!(lines[lines.len() - 2..], ["0", "75"], "{}", end.err);
    assert!(
        end.err.contains("k: no permit of this owner"),
        "{}",
        end.err
    );
    assert_eq!(held(), 0);
    let json = start(&real, "acquire k --permits 2 --owner me --json")
        .end()
        .ok();
    assert!(json.contains(r#""token":null"#), "{json}");
    start(&real, "acquire k --permits 2 --owner you").end().ok();
    assert_eq!(
        (
            held(),
            start(&real, "acquire k --permits 2 -n").end().code()
        ),
        (2, 1)
    );
    assert_eq!(
        start_args(&real, ["release", "k", "--owner", "me", "--token", ""])
            .end()
            .code(),
        0
    );
    assert_eq!(held(), 1);
    // Another number of permits, and a lock beside them.
    assert_eq!(start(&real, "acquire k --permits 3").end().code(), 64);
    assert_eq!(
        start(&real, "acquire k --permits 2 --and j").end().code(),
        64
    );
    // In the background it is renewed.
    let steps = "held=$(\"$lock\" acquire b --permits 1 --hold-while $$) || exit; echo $held; exec sleep 1000";
    let run = shell(&real, steps);
    assert!(run.line().ends_with(" LOCK_TOKEN="));
    run.signal(Signal::SIGKILL);
    let held = || {
        real.conn()
            .line("SEM.INFO b")
            .field("held")
            .expect("held")
            .int()
    };
    wait_for("the release", || held() == 0);
}

#[test]
fn several_keys_are_acquired_and_ended_together() {
    let real = TestServer::start();
    let steps = "
        held=$(\"$lock\" acquire k --and j --lease 600) && export $held || exit
        echo $LOCK_TOKEN $LOCK_TOKENS; \"$lock\" renew k --and j --lease 900; echo $?
        \"$lock\" release k --and j --token 1; echo $?
        \"$lock\" break j --yes >&2; \"$lock\" release k --and j; echo $?";
    let end = shell(&real, steps).end();
    let lines: Vec<_> = end.out.lines().collect();
    let (first, all) = lines[0].split_once(' ').expect("tokens");
    let all: Vec<_> = all.split(',').collect();
    assert_eq!((all.len(), all[0]), (2, first));
    // The lock that was not broken is released.
    assert_eq!(lines[1..], ["0", "64", "75"], "{}", end.err);
    assert!(
        end.err.contains("2 keys need 2 tokens, not 1"),
        "{}",
        end.err
    );
    assert!(end.err.contains("redis-lock: j: not held"), "{}", end.err);
    assert!(is_free(&real));
    real.conn().line("LOCK.ACQUIRE j other");
    assert_eq!(start(&real, "acquire k --and j -n").end().code(), 1);
    assert!(is_free(&real));
    let json = start(&real, "acquire k --and i --json").end().ok();
    let tokens: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(tokens["tokens"][0], tokens["token"], "{json}");
}

#[test]
fn two_locks_have_variables_of_their_own_by_a_prefix() {
    let real = TestServer::start();
    let steps = "
        held=$(\"$lock\" acquire k) && export $held || exit
        held=$(\"$lock\" acquire j --prefix DB_) && export $held || exit
        \"$lock\" renew j; echo $?; \"$lock\" renew j --prefix DB_; echo $?
        \"$lock\" release j --prefix DB_; echo $?; \"$lock\" release k; echo $?
        \"$lock\" release k --prefix NO_; echo $?";
    let end = shell(&real, steps).end();
    assert_eq!(end.out, "75\n0\n0\n0\n64\n", "{}", end.err);
    assert!(
        end.err.contains("--owner is needed, or NO_LOCK_OWNER"),
        "{}",
        end.err
    );
    assert_eq!(start(&real, "acquire k --prefix 1_").end().code(), 64);
}

#[test]
fn an_acquire_waits_and_says_for_what() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k other");
    let wait = start(&real, "acquire k");
    assert!(wait.complaint().contains(", held by other, "));
    real.conn().line("LOCK.RELEASE k other");
    assert_eq!(acquired(wait.end()).len(), 2);
    let wait = start(&real, "acquire k -q");
    real.wait_for_waits(1);
    wait.signal(Signal::SIGTERM);
    assert_eq!(wait.end().code(), 143);
    assert_eq!((real.waits(), real.stat("places_kept")), (0, 0));
}

#[test]
fn a_lock_is_renewed_as_long_as_a_process_lives() {
    let real = TestServer::start();
    // The command substitution ends: the process in the background has left its output.
    let steps = "held=$(\"$lock\" acquire k --lease 9 --hold-while $$) || exit
        echo $held; exec sleep 1000";
    let run = shell(&real, steps);
    assert!(run.line().starts_with("LOCK_OWNER="));
    let before = real.stat("renewals");
    wait_for("renewals", || real.stat("renewals") > before);
    assert_eq!(real.stat("grants_expired"), 0);
    run.signal(Signal::SIGKILL);
    wait_for("the release", || is_free(&real));
    assert_eq!(real.stat("grants_released"), 1);
    let end = start(&real, "acquire k --hold-while 2147483647").end();
    assert_eq!(end.code(), 64);
    assert!(end.err.contains("there is no process"), "{}", end.err);
}

#[test]
fn a_holder_in_the_background_ends_with_its_lock_or_its_start() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k other");
    let steps = "\"$lock\" acquire k -n --hold-while $$; echo $?
        \"$lock\" acquire k -q --hold-while $$; echo $?; exec sleep 1000";
    let run = shell(&real, steps);
    assert_eq!(run.line(), "1");
    real.wait_for_waits(1);
    // Of the process that the shell waits for; the one in the background ends with it.
    let waiting = run.descendants("redis-lock");
    let parent = waiting.iter().min().expect("a process");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(*parent), Signal::SIGKILL).expect("a signal");
    assert_eq!(run.line(), "137");
    wait_for("the withdrawal", || real.waits() == 0);
    wait_for("the end", || run.descendants("redis-lock").is_empty());
    run.signal(Signal::SIGTERM);
}

#[test]
fn a_key_of_the_terminal_withdraws_the_wait_of_a_holder_in_the_background() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k other");
    let steps =
        "exec bash -c 'set -m; \"$lock\" acquire k -q --hold-while $$ & echo $!; wait $!; echo $?'";
    let run = shell(&real, steps);
    let group = run.line().parse().expect("a pid");
    real.wait_for_waits(1);
    let group = nix::unistd::Pid::from_raw(group);
    nix::sys::signal::killpg(group, Signal::SIGINT).expect("a signal");
    assert_eq!(run.line(), "130");
    wait_for("the end", || run.descendants("redis-lock").is_empty());
    assert_eq!((real.waits(), real.stat("places_kept")), (0, 0));
    run.end().ok();
}

#[test]
fn a_lock_whose_process_ends_while_the_server_is_away_is_released_later() {
    let real = TestServer::start();
    let road = Proxy::before(real.port);
    let steps = "\"$lock\" acquire k --lease 600 --timeout 1 --hold-while $$ >/dev/null; echo $?; exec sleep 1000";
    let steps = format!(
        "export REDIS_LOCK_URL=redis://127.0.0.1:{}; {steps}",
        road.port
    );
    let run = shell(&real, &steps);
    assert_eq!(run.line(), "0");
    road.lose(true);
    run.signal(Signal::SIGTERM);
    // sleep: longer than a reply may take
    std::thread::sleep(Duration::from_secs(3));
    assert!(!is_free(&real));
    road.lose(false);
    wait_for("the release", || is_free(&real));
    wait_for("the end", || run.descendants("redis-lock").is_empty());
}

/// Of a parent that ignores the ends of children, and with an open file, whose lock or end others wait for.
#[test]
fn a_holder_in_the_background_ends_as_it_should_and_keeps_no_file() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE other other");
    let steps = "trap '' CHLD; exec 7>file
        \"$lock\" acquire other -n -E 9 --hold-while $$; echo $?
        \"$lock\" acquire k --hold-while $$ >/dev/null; echo $?; echo up; exec sleep 1000";
    let steps = steps.replace("file", &real.dir().join("file").display().to_string());
    let run = shell(&real, &steps);
    assert_eq!([run.line(), run.line(), run.line()], ["9", "0", "up"]);
    let background = run.descendants("redis-lock");
    let [pid] = background[..] else {
        panic!("{background:?}")
    };
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("open files");
    let files = files
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
    assert!(
        !files
            .iter()
            .any(|file| file.ends_with("/file") || file.starts_with("pipe:")),
        "{files:?}"
    );
    run.signal(Signal::SIGTERM);
    wait_for("the release", || is_free(&real));
}

#[test]
fn a_lock_that_is_held_in_the_background_can_be_released() {
    let real = TestServer::start();
    let steps = "held=$(\"$lock\" acquire k --hold-while $$) && export $held || exit
        \"$lock\" release k; echo $?; exec sleep 1000";
    let run = shell(&real, steps);
    assert_eq!(run.line(), "0");
    assert!(is_free(&real));
    wait_for("the end", || run.descendants("redis-lock").is_empty());
    run.signal(Signal::SIGTERM);
}
