//! Servers that are named in other ways: by sentinels, by a socket.

use std::process::Command;

use nix::sys::signal::Signal;
use redis_lock_harness::replica::wait_until_in_sync;
use redis_lock_harness::sentinel::{Watched, NAME};
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{Ended, Running, PROGRAM};

fn at(url: &str, args: &[&str]) -> Running {
    let mut command = Command::new(PROGRAM);
    Running::of(command.env("REDIS_LOCK_URL", url).args(args))
}

fn end(url: &str, args: &[&str]) -> Ended {
    at(url, args).end()
}

#[test]
fn a_primary_that_dies_and_is_replaced_does_not_disturb_the_command() {
    let mut watched = Watched::start();
    let ports = watched.sentinel_ports();
    let hosts: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let url = format!("redis+sentinel://{}/{NAME}", hosts.join(","));
    let inner = "echo up; exec sleep 100";
    let run = at(
        &url,
        &["run", "--margin", "0.1", "k", "--", "sh", "-c", inner],
    );
    assert_eq!(run.line(), "up");
    for replica in &watched.servers[1..] {
        wait_until_in_sync(replica, &watched.servers[0]);
    }
    watched.servers[0].crash();
    let new = watched.wait_for_another_primary_than(0);
    let primary = &watched.servers[new];
    wait_for("a renewal", || primary.stat("renewals") > 0);
    assert_eq!(end(&url, &["ls", "--names"]).ok(), "k\n");
    assert!(end(&url, &["info", "k"]).ok().contains("held by"));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    assert_eq!(end(&url, &["ls", "--names"]).ok(), "");
    watched.servers[0].start_again();
}

#[test]
fn a_server_may_be_named_by_its_socket() {
    let real = TestServer::with(&["--unixsocket", "socket"]);
    let mut conn = real.conn();
    conn.line("CONFIG SET requirepass se?cret");
    let url = format!("redis+unix://{}", real.dir().join("socket").display());
    assert_eq!(
        end(&url, &["run", "--timeout", "100", "-n", "k", "true"]).code(),
        77
    );
    let mut command = Command::new(PROGRAM);
    command
        .env("REDISCLI_AUTH", "se?cret")
        .env("REDIS_LOCK_URL", &url);
    assert_eq!(
        Running::of(command.args(["run", "--timeout", "100", "-n", "k", "--", "echo", "up"]))
            .end()
            .ok(),
        "up\n"
    );
    conn.line("AUTH se?cret");
    conn.run(["CONFIG", "SET", "requirepass", ""]);
}
