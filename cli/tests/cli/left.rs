//! The release at the end, and the withdrawal of a wait, where the network or the server fails.

use std::process::Command;

use nix::sys::signal::Signal;
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{url, Ended, Running, PROGRAM};

/// A run by way of these servers' URLs. Half of the time for a reply is for a connection that has gone silent.
fn run(urls: &str, options: &str, script: &str) -> Running {
    let mut command = Command::new(PROGRAM);
    command.env("REDIS_LOCK_URL", urls);
    command.args(["run", "--timeout", "8", "--lease", "600"]);
    command.args(options.split_whitespace());
    Running::of(command.args(["k", "--", "sh", "-c", script]))
}

fn by(road: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", road.port)
}

fn is_free(real: &TestServer) -> bool {
    real.conn().line("LOCK.INFO k").is_nil()
}

#[test]
fn a_release_on_a_silent_connection_is_sent_on_a_new_one() {
    let (real, other) = (TestServer::start(), TestServer::start());
    let road = Proxy::before(real.port);
    for (urls, options) in [
        (by(&road), ""),
        (format!("{} {}", by(&road), url(&other)), "--all"),
    ] {
        road.delay("LOCK.RELEASE");
        let end = run(&urls, options, "exit 0").end();
        assert!(road.has_delayed());
        assert_eq!((end.code(), end.err.as_str()), (0, ""), "{options}");
        assert!(is_free(&real) && is_free(&other), "{options}");
        road.let_go();
    }
}

#[test]
fn a_wait_on_a_silent_connection_is_withdrawn_on_a_new_one() {
    let real = TestServer::start();
    let road = Proxy::before(real.port);
    real.conn().line("LOCK.ACQUIRE k other");
    let wait = run(&by(&road), "-q", "echo never");
    real.wait_for_waits(1);
    road.delay("LOCK.RELEASE");
    wait.signal(Signal::SIGTERM);
    let end = wait.end();
    assert_eq!((end.code(), end.err.as_str()), (143, ""));
    assert!(road.has_delayed());
    assert_eq!((real.waits(), real.stat("places_kept")), (0, 0));
    road.let_go();
}

#[test]
fn one_signal_during_a_release_does_not_end_it() {
    let real = TestServer::start();
    let road = Proxy::before(real.port);
    road.delay("LOCK.RELEASE");
    let run = run(&by(&road), "", "true");
    wait_for("the first release", || road.has_delayed());
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!((end.code(), end.err.as_str()), (0, ""));
    assert!(is_free(&real));
    road.let_go();
}

#[test]
fn a_lock_that_stays_is_named_and_no_success() {
    let real = TestServer::start();
    let left = |options: &str, status: i32| -> Ended {
        let road = Proxy::before(real.port);
        let go = real.dir().join("go");
        let waits = format!(
            "echo up; while [ ! -e {} ]; do sleep 0.02; done; exit {status}",
            go.display()
        );
        let run = run(&by(&road), options, &waits);
        assert_eq!(run.line(), "up");
        road.cut(true);
        std::fs::write(&go, "").expect("a file");
        let end = run.end();
        std::fs::remove_file(&go).expect("a file");
        assert!(!is_free(&real));
        real.conn().line("LOCK.BREAK k");
        wait_for("the end of the lock", || is_free(&real));
        end
    };
    let end = left("", 0);
    assert_eq!(end.code(), 74);
    assert!(
        end.err.contains("k: not released, held until 20") && end.err.contains(" at the latest"),
        "{}",
        end.err
    );
    assert_eq!(left("", 5).code(), 5);
    assert_eq!(left("--keep", 0).code(), 0);
}
