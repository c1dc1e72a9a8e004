//! `lock.startup-delay`: after a start or a promotion no lock is granted that may still be held elsewhere. The delay is
//! a minute here and is cut short by its setting, so that no test waits for its end.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::barrier::assert_stays_silent;
use crate::common::process::spawn;
use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{module_path, server_binary, wait_for, Conn, TestServer};

const MINUTE: [&str; 2] = ["--lock.startup-delay", "60000"];

/// The reply to a request without BLOCK during the delay; returns the milliseconds left.
fn refusal(conn: &mut Conn, line: &str) -> u64 {
    let error = conn.line(line).error();
    let rest = error
        .strip_prefix("LOCKDELAY no lock is granted for ")
        .unwrap_or_else(|| panic!("{line}: {error}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

fn end_delay(conn: &mut Conn) {
    assert_eq!(conn.line("CONFIG SET lock.startup-delay 0").text(), "OK");
}

/// A connection that is parked on `k` when this returns.
pub fn park(server: &TestServer, owner: &str) -> Conn {
    let waiters = server.stat("waiters");
    let mut conn = server.conn();
    conn.send_line(&format!("LOCK.ACQUIRE k {owner} PX 60000 BLOCK 0"));
    server.wait_for_waiters(waiters + 1);
    conn
}

#[test]
fn a_request_gets_the_time_left_and_a_waiter_is_granted_afterwards() {
    let server = TestServer::with(&MINUTE);
    let mut conn = server.conn();
    let left = refusal(&mut conn, "LOCK.ACQUIRE k a");
    assert!((1..=60_000).contains(&left), "{left}");
    assert!(server.stat("startup_delay_left_ms") <= left);
    let in_transaction = {
        conn.line("MULTI");
        conn.line("LOCK.ACQUIRE k a BLOCK 0");
        conn.line("EXEC").list()[0].error()
    };
    assert!(in_transaction.starts_with("LOCKDELAY"), "{in_transaction}");

    let (mut b, mut c) = (park(&server, "b"), park(&server, "c"));
    assert_stays_silent(&server, &mut b);
    // No caller passes the waiters, and nothing is written.
    refusal(&mut conn, "LOCK.ACQUIRE k a");
    assert_eq!(conn.line("DBSIZE").int(), 0);
    end_delay(&mut conn);
    let first = b.recv().int();
    assert!(conn.line("LOCK.ACQUIRE k a").is_nil());
    assert_eq!(conn.line("LOCK.RELEASE k b").int(), 1);
    assert!(c.recv().int() > first);
    assert_eq!(server.stat("startup_delay_left_ms"), 0);
}

/// The hash names the holder, so this hold is not lost.
#[test]
fn holds_that_are_in_the_data_are_served() {
    let mut server = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    conn.line("HSET old uuid:1 1");
    conn.line("PEXPIRE old 60000");
    server.add_option(MINUTE[0], MINUTE[1]);
    server.crash_and_restart();

    let mut conn = server.conn();
    assert_eq!(conn.line("LOCK.ACQUIRE k a PX 60000 ONCE").int(), token);
    assert!(conn.line("LOCK.ACQUIRE k b").is_nil());
    assert_eq!(conn.line("LOCK.RENEW k a PX 60000").int(), 1);
    // Redisson's hold gets its token: that is no grant.
    assert_eq!(conn.line("LOCK.RENEW old uuid:1 PX 60000").int(), 1);
    assert!(conn.line("HGET old #token").text().starts_with('t'));

    // A released lock may still be held elsewhere: the release may be a repeated one.
    let mut b = park(&server, "b");
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
    assert_eq!(conn.line("EXISTS k").int(), 0);
    assert_stays_silent(&server, &mut b);
    refusal(&mut conn, "LOCK.ACQUIRE k a");
    end_delay(&mut conn);
    assert!(b.recv().int() > token);
}

#[test]
fn a_lease_that_ends_in_the_delay_is_handed_off_after_it() {
    let mut server = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let token = server.conn().line("LOCK.ACQUIRE k a PX 60000").int();
    server.add_option(MINUTE[0], MINUTE[1]);
    server.crash_and_restart();
    let mut conn = server.conn();
    let mut b = park(&server, "b");
    assert_eq!(conn.line("LOCK.RENEW k a PX 20").int(), 1);
    wait_for("the end of the lease", || conn.line("EXISTS k").int() == 0);
    assert_stays_silent(&server, &mut b);
    end_delay(&mut conn);
    assert!(b.recv().int() > token);
}

#[test]
fn waits_end_in_the_delay() {
    let server = TestServer::with(&MINUTE);
    let mut conn = server.conn();
    assert!(conn.line("LOCK.ACQUIRE k a BLOCK 30").is_nil());
    let mut b = park(&server, "b");
    conn.line("SET k string");
    assert!(b.recv().error().starts_with("WRONGTYPE"));
    conn.line("DEL k");
    let mut c = park(&server, "c");
    assert_eq!(conn.line("LOCK.BREAK k PURGE").int(), 0);
    assert!(c.recv().error().starts_with("LOCKBROKEN"));
}

#[test]
fn a_promotion_begins_the_delay() {
    let master = TestServer::with(&PROMPT_MASTER);
    let replica = TestServer::with(&MINUTE);
    end_delay(&mut replica.conn());
    follow(&replica, &master);
    let token = master.conn().line("LOCK.ACQUIRE held a PX 60000").int();
    wait_until_in_sync(&replica, &master);
    let mut conn = replica.conn();
    conn.line("CONFIG SET lock.startup-delay 60000");
    assert_eq!(conn.line("REPLICAOF NO ONE").text(), "OK");

    refusal(&mut conn, "LOCK.ACQUIRE k b");
    assert_eq!(conn.line("LOCK.ACQUIRE held a ONCE").int(), token);
    let mut b = park(&replica, "b");
    end_delay(&mut conn);
    assert!(b.recv().int() > token);
}

/// No lock was lost: the data is that of the running server.
#[test]
fn a_module_loaded_into_a_running_server_grants_at_once() {
    let server = TestServer::without_module(&[]);
    let mut conn = server.conn();
    let module = module_path();
    let module = module.to_str().expect("a path");
    let setting = ["CONFIG", "lock.startup-delay", "60000"];
    let loaded = conn.run(["MODULE", "LOADEX", module].into_iter().chain(setting));
    assert_eq!(loaded.text(), "OK");
    assert!(conn.line("LOCK.ACQUIRE k a").int() > 0);
}

#[test]
fn the_setting_can_shorten_the_delay_and_never_begins_it() {
    let server = TestServer::with(&MINUTE);
    let mut conn = server.conn();
    let before = refusal(&mut conn, "LOCK.ACQUIRE k a");
    assert_eq!(server.stat("startup_delay_ms"), 60_000);
    conn.line("CONFIG SET lock.startup-delay 50000");
    assert_eq!(server.stat("startup_delay_ms"), 50_000);
    assert!(refusal(&mut conn, "LOCK.ACQUIRE k a") <= before.min(50_000));
    conn.line("CONFIG SET lock.startup-delay 90000");
    assert!(refusal(&mut conn, "LOCK.ACQUIRE k a") <= 50_000);
    end_delay(&mut conn);
    conn.line("CONFIG SET lock.startup-delay 90000");
    assert!(conn.line("LOCK.ACQUIRE k a").int() > 0);
}

/// While no grant is possible the timer does not try again and again.
#[test]
fn waiters_cost_no_work_in_the_delay() {
    let server = TestServer::with(&MINUTE);
    let mut conn = server.conn();
    let _b = park(&server, "b");
    let asked = |server: &TestServer| server.info_field("commandstats", "cmdstat_hdel");
    let mut other = server.conn();
    // Waits that end make the timer fire.
    for _ in 0..5 {
        assert!(other.line("LOCK.ACQUIRE other x BLOCK 20").is_nil());
    }
    assert_eq!(asked(&server), "", "no check whether a write is possible");
    end_delay(&mut conn);
    wait_for("the grant", || server.stat("waits_granted") == 1);
}

#[test]
fn a_horizon_deleted_in_the_delay_is_written_again_at_once() {
    let server = TestServer::with(&MINUTE);
    let mut conn = server.conn();
    conn.line("HSET old uuid:1 1");
    conn.line("PEXPIRE old 60000");
    assert_eq!(conn.line("LOCK.RENEW old uuid:1 PX 60000").int(), 1);
    let _b = park(&server, "b");
    assert!(server.conn().line("LOCK.ACQUIRE x c BLOCK 20").is_nil());
    assert_eq!(conn.line("DEL redis_lock:horizon").int(), 1);
    wait_for("the horizon", || {
        conn.line("EXISTS redis_lock:horizon").int() == 1
    });
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time passes while a server reads its configuration, here from a slow pipe.
#[test]
fn a_start_that_takes_seconds_is_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut command = Command::new(server_binary());
    command.arg("-").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut server = spawn(&mut command).map(Ended).unwrap();
    let second = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let begun = second();
    wait_for("two seconds", || second() > begun + 2);
    let socket = dir.path().join("socket");
    let config = format!(
        "port 0\nunixsocket {}\nlogfile {}\nsave \"\"\nloadmodule \"{}\"\nlock.startup-delay 60000\n",
        socket.display(),
        log.display(),
        module_path().display(),
    );
    let mut pipe = server.0.stdin.take().unwrap();
    pipe.write_all(config.as_bytes()).unwrap();
    drop(pipe);
    let mut conn = None;
    // The socket exists a moment before the server listens on it.
    wait_for("the socket", || {
        conn = std::os::unix::net::UnixStream::connect(&socket).ok();
        conn.is_some()
    });
    let mut conn = conn.unwrap();
    conn.write_all(b"LOCK.ACQUIRE k a\r\n").unwrap();
    let mut answer = [0; 9];
    std::io::Read::read_exact(&mut conn, &mut answer).unwrap();
    assert_eq!(&answer, b"-LOCKDELA");
}
