//! A network of the trial's own, in which it may use up the local ports. That takes root.

use std::fs;
use std::process::Command;

use redis_lock_harness::process::tame;

/// Set for the trial that is run inside.
const INSIDE: &str = "LOCK_IN_NETWORK_NAMESPACE";
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const ALL: &str = "32768 60999";
/// So many connections to each server at the same time, and those that are open already use other ports.
const FEW: &str = "60998 60999";

/// Runs this test in a network namespace. False: this is the run inside, or there is no right to make one.
pub fn was_run_inside(test: &str) -> bool {
    if is_own() || !may_make_one() {
        return false;
    }
    let me = std::env::current_exe().expect("this test's own program");
    let done = tame(&mut Command::new("unshare"))
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ])
        .arg(me)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(done.is_ok_and(|status| status.success()), "the run inside");
    true
}

/// Whether local ports may be used up.
pub fn is_own() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn may_make_one() -> bool {
    let mut link = Command::new("unshare");
    let made = link.args(["--net", "ip", "link", "set", "lo", "up"]);
    made.output().is_ok_and(|done| done.status.success())
}

/// No new connection, but for two to each server.
pub fn take_ports() {
    set(FEW);
}

/// As before.
pub fn give_ports() {
    set(ALL);
}

fn set(range: &str) {
    fs::write(RANGE, range).expect("the right to set it in a namespace of our own");
}
