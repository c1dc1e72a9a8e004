//! The network to the server: cut for a while, cut for too long, and a lost reply.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{Running, PATIENT, PROGRAM};
use redis_lock_harness::proxy::Proxy;

const TELLS: &str = "trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.05; done";

fn run(road: &Proxy, options: &str, script: &str) -> Running {
    let mut command = Command::new(PROGRAM);
    command.env("REDIS_LOCK_URL", format!("redis://127.0.0.1:{}", road.port));
    command.arg("run").args(PATIENT);
    command.args(options.split_whitespace());
    Running::of(command.args(["k", "--", "sh", "-c", script]))
}

#[test]
fn a_network_cut_for_less_than_the_lease_does_not_disturb() {
    let real = TestServer::start();
    let road = Proxy::before(real.port);
    // Renewed after four seconds, lost after twelve without.
    let run = run(&road, "--lease 12 --margin 0.1", TELLS);
    assert_eq!(run.line(), "up");
    for _ in 0..2 {
        road.cut(true);
        let before = real.stat("renewals");
        // sleep: the cut lasts longer than the interval of renewals
        std::thread::sleep(Duration::from_millis(4_500));
        road.cut(false);
        wait_for("a renewal", || real.stat("renewals") > before);
    }
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code(), 3);
    assert!(!end.err.contains("redis-lock"), "{}", end.err);
    assert_eq!((real.stat("grants"), real.stat("grants_released")), (1, 1));
}

#[test]
fn a_network_cut_stops_the_command_before_the_next_grant() {
    let real = TestServer::start();
    let road = Proxy::before(real.port);
    let run = run(&road, "--lease 2", TELLS);
    assert_eq!(run.line(), "up");
    road.cut(true);
    let next = crate::program::script(&real, "", "echo next; exec sleep 100");
    let end = run.end();
    assert_eq!(
        (end.code(), end.out.as_str()),
        (75, "stopped\n"),
        "{}",
        end.err
    );
    assert_eq!(next.line(), "next");
    next.signal(Signal::SIGTERM);
    assert_eq!(next.end().code(), 143);
    road.cut(false);
}

#[test]
fn a_grant_whose_reply_is_lost_counts_once() {
    let real = TestServer::start();
    let road = Proxy::before(real.port);
    for (round, options) in ["-n", "--wait 10", ""].into_iter().enumerate() {
        road.swallow_reply_to("LOCK.ACQUIRE");
        assert_eq!(run(&road, options, "echo got").end().ok(), "got\n");
        assert!(road.has_swallowed());
        assert_eq!(real.stat("grants"), round as u64 + 1);
        assert!(real.conn().line("LOCK.INFO k").is_nil());
    }
}
