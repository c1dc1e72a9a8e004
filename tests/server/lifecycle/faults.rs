//! A panic in each entry from the server: a waiting client gets a reply, the panic is counted, and locks and waiters
//! work as before.
//!
//! These tests run a build of the module that can panic on request (`LOCK.FAULT entry`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{wait_for, Conn, TestServer};

/// The module with LOCK.FAULT: `LOCK_FAULT_MODULE`, or built here, once.
pub fn fault_module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Some(path) = std::env::var_os("LOCK_FAULT_MODULE") {
            return path.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--profile", "quick"])
            .args(["-p", "redis_lock_fault_module"])
            .current_dir(root)
            .status();
        assert!(
            status.expect("cargo").success(),
            "the module does not build"
        );
        target.join("quick/libredis_lock_fault_module.so")
    })
}

/// A server where `a` holds the lock `k` and `b`, later `c`, are parked on it.
struct Stage {
    server: TestServer,
    conn: Conn,
    b: Conn,
    c: Conn,
    token: i64,
}

impl Stage {
    fn new() -> Stage {
        let server = TestServer::with_module(fault_module(), &[]);
        let mut conn = server.conn();
        let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
        let [mut b, mut c] = [server.conn(), server.conn()];
        b.send_line("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        server.wait_for_waiters(1);
        c.send_line("LOCK.ACQUIRE k c PX 60000 BLOCK 0");
        server.wait_for_waiters(2);
        Stage {
            server,
            conn,
            b,
            c,
            token,
        }
    }

    /// The next entry of this name panics.
    fn arm(&mut self, entry: &str) {
        assert_eq!(self.conn.run(["LOCK.FAULT", entry]).text(), "OK");
    }

    /// A transaction that arms the fault first, so that no other entry of that name comes before.
    fn arm_and(&mut self, entry: &str, lines: &[&str]) {
        let fault = format!("LOCK.FAULT {entry}");
        let all = [&["MULTI", &fault], lines, &["EXEC"]].concat();
        self.conn.send_lines(&all);
        for _ in 1..all.len() {
            self.conn.recv();
        }
        let done = self.conn.recv().list();
        assert!(!done.iter().any(|reply| reply.is_error()), "{done:?}");
    }

    fn id_of_b(&mut self) -> i64 {
        let info = self.conn.line("LOCK.INFO k WAITERS");
        let first = info.field("queue").unwrap().list()[0].clone();
        first.field("client-id").unwrap().int()
    }

    fn wait_for_the_panic(&self) {
        let server = &self.server;
        wait_for("the injected panic", || server.stat("panics") == 1);
    }

    /// The parked `b` is granted and hands off to `c`, and `c` frees the lock.
    fn b_and_c_are_granted(mut self) {
        let second = self.b.recv().int();
        assert!(second > self.token);
        self.c_is_granted("LOCK.RELEASE k b", second);
    }

    /// `c` is granted when `ending` frees the lock, and everything works as before.
    fn c_is_granted(mut self, ending: &str, above: i64) {
        assert!(self.c.is_silent());
        assert_eq!(self.conn.line(ending).int(), 1, "{ending}");
        assert!(self.c.recv().int() > above);
        assert_eq!(self.conn.line("LOCK.RELEASE k c").int(), 1);
        assert_eq!(self.conn.line("EXISTS k").int(), 0);
        locks_still_work(&self.server);
    }
}

/// Every operation once, on another lock; no client is left parked and one panic was counted.
fn locks_still_work(server: &TestServer) {
    let [mut x, mut y] = [server.conn(), server.conn()];
    let first = x.line("LOCK.ACQUIRE other x PX 60000").int();
    y.send_line("LOCK.ACQUIRE other y PX 200 BLOCK 0");
    x.wait_for_waiters_on("other", 1);
    assert_eq!(x.line("LOCK.RENEW other x").int(), 1);
    assert_eq!(x.line("LOCK.RELEASE other x").int(), 1);
    let second = y.recv().int();
    assert!(second > first);
    // Granted by the timer at the end of y's lease.
    x.send_line("LOCK.ACQUIRE other x BLOCK 0");
    assert!(x.recv().int() > second);
    assert_eq!(x.line("LOCK.BREAK other").int(), 1);
    server.wait_for_waiters(0);
    assert_eq!(server.stat("panics"), 1);
    let log = server.log();
    assert!(log.contains("injected fault") && log.contains("panic at"));
}

const INTERNAL: &str = "ERR internal error in the lock module";

#[test]
fn in_a_command_its_client_gets_an_error() {
    let mut s = Stage::new();
    s.arm("command");
    let error = s.conn.line("LOCK.RELEASE k a").error();
    assert!(error.starts_with(INTERNAL), "{error}");
    s.wait_for_the_panic();
    assert!(s.b.is_silent());
    assert_eq!(
        s.conn.line("LOCK.RELEASE k a").int(),
        1,
        "the lock is still held"
    );
    s.b_and_c_are_granted();
}

/// The core has removed `b`, and none of its effects were carried out.
#[test]
fn between_a_decision_and_its_effects_the_removed_waiter_is_answered() {
    let mut s = Stage::new();
    s.arm("apply");
    let error = s.conn.line("LOCK.RELEASE k a").error();
    assert!(error.starts_with(INTERNAL), "{error}");
    s.wait_for_the_panic();
    let error = s.b.recv().error();
    assert!(error.starts_with(INTERNAL), "{error}");
    let token = s.token;
    s.c_is_granted("LOCK.RELEASE k a", token);
}

/// The same in a decision of the timer, which then fires again.
#[test]
fn between_a_decision_of_the_alarm_and_its_effects_the_next_one_is_granted() {
    let mut s = Stage::new();
    s.arm("apply");
    s.conn.line("DEL k");
    s.wait_for_the_panic();
    let error = s.b.recv().error();
    assert!(error.starts_with(INTERNAL), "{error}");
    assert!(s.c.recv().int() > s.token);
    assert_eq!(s.conn.line("LOCK.RELEASE k c").int(), 1);
    locks_still_work(&s.server);
}

#[test]
fn in_a_transaction_its_other_commands_are_served() {
    let mut s = Stage::new();
    s.conn.send_lines(&[
        "MULTI",
        "LOCK.FAULT command",
        "LOCK.RENEW k a",
        "LOCK.RELEASE k a",
        "EXEC",
    ]);
    (0..4).for_each(|_| drop(s.conn.recv()));
    let replies = s.conn.recv().list();
    assert!(replies[1].error().starts_with(INTERNAL));
    assert_eq!(replies[2].int(), 1);
    s.b_and_c_are_granted();
}

#[test]
fn in_the_reply_of_a_grant_the_lock_goes_to_the_next_waiter() {
    let mut s = Stage::new();
    s.arm("answer");
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 1);
    let error = s.b.recv().error();
    assert!(error.starts_with(INTERNAL), "{error}");
    s.wait_for_the_panic();
    // An owner that got an error holds nothing.
    let third = s.c.recv().int();
    assert!(third > s.token);
    assert_eq!(s.b.line("LOCK.RELEASE k c").int(), 1);
    locks_still_work(&s.server);
}

#[test]
fn in_the_reply_of_an_unblocked_client_it_is_no_longer_parked() {
    let mut s = Stage::new();
    let id = s.id_of_b();
    s.arm("answer");
    s.conn.line(&format!("CLIENT UNBLOCK {id}"));
    assert!(s.b.recv().error().starts_with(INTERNAL));
    s.wait_for_the_panic();
    s.server.wait_for_waiters(1);
    let token = s.token;
    s.c_is_granted("LOCK.RELEASE k a", token);
}

#[test]
fn in_the_reply_of_a_wait_that_timed_out_its_client_gets_an_error() {
    let mut s = Stage::new();
    s.arm("answer");
    let error = s.conn.line("LOCK.ACQUIRE k d BLOCK 20").error();
    assert!(error.starts_with(INTERNAL), "{error}");
    s.wait_for_the_panic();
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 1);
    s.b_and_c_are_granted();
}

#[test]
fn in_a_disconnect_the_dead_client_is_not_granted() {
    let mut s = Stage::new();
    s.arm("disconnect");
    std::mem::replace(&mut s.b, s.server.conn()).close();
    s.wait_for_the_panic();
    s.server.wait_for_waiters(1);
    let token = s.token;
    s.c_is_granted("LOCK.RELEASE k a", token);
}

#[test]
fn in_a_disconnect_after_a_grant_the_grant_goes_to_the_next_waiter() {
    let mut s = Stage::new();
    let id = s.id_of_b();
    let kill = format!("CLIENT KILL ID {id}");
    s.arm_and("disconnect", &["LOCK.RELEASE k a", &kill]);
    let third = s.c.recv().int();
    assert!(third > s.token);
    assert_eq!(s.conn.line("LOCK.RELEASE k c").int(), 1);
    locks_still_work(&s.server);
}

#[test]
fn in_the_event_of_another_type_waiters_still_get_an_error() {
    let mut s = Stage::new();
    s.arm_and("key-ready", &["DEL k", "RPUSH k x"]);
    for waiter in [&mut s.b, &mut s.c] {
        assert!(waiter.recv().error().starts_with("WRONGTYPE"));
    }
    s.wait_for_the_panic();
    s.conn.line("DEL k");
    assert!(s.conn.line("LOCK.ACQUIRE k d").int() > s.token);
    locks_still_work(&s.server);
}

#[test]
fn in_the_timer_that_delivers_a_grant_it_is_still_delivered() {
    let mut s = Stage::new();
    s.arm_and("alarm", &["LOCK.RELEASE k a"]);
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_timer_at_a_leases_end_the_waiter_is_still_granted() {
    let mut s = Stage::new();
    s.conn.line("PEXPIRE k 300");
    s.arm("alarm");
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_timer_at_a_waits_end_the_wait_still_ends() {
    let mut s = Stage::new();
    s.arm("alarm");
    assert!(s.conn.line("LOCK.ACQUIRE k d BLOCK 50").is_nil());
    s.wait_for_the_panic();
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 1);
    s.b_and_c_are_granted();
}

#[test]
fn in_the_event_of_an_expiry_the_waiter_is_still_granted() {
    let mut s = Stage::new();
    // In one tick, so that EXISTS notices the expiry, not the timer.
    s.conn.send_lines(&[
        "LOCK.FAULT gone",
        "PEXPIRE k 1",
        "DEBUG SLEEP 0.05",
        "EXISTS k",
    ]);
    (0..3).for_each(|_| drop(s.conn.recv()));
    assert_eq!(s.conn.recv().int(), 0);
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_event_of_a_deletion_the_waiter_is_still_granted() {
    let mut s = Stage::new();
    s.arm_and("changed", &["DEL k"]);
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_event_of_an_eviction_the_waiter_is_still_granted() {
    let mut s = Stage::new();
    // The lock is the only key with a TTL, so it is evicted.
    s.conn.line("CONFIG SET maxmemory-policy volatile-ttl");
    s.arm("gone");
    s.conn.line("CONFIG SET maxmemory 1");
    s.conn.line("SET x 1");
    s.conn.line("CONFIG SET maxmemory 0");
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_event_of_swapped_databases_the_waiter_is_still_granted() {
    let mut s = Stage::new();
    s.arm_and("server-event", &["SWAPDB 0 1"]);
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_event_of_a_flush_the_waiter_is_still_granted() {
    let mut s = Stage::new();
    s.arm_and("server-event", &["FLUSHALL"]);
    s.wait_for_the_panic();
    s.b_and_c_are_granted();
}

#[test]
fn in_the_cron_of_the_server_no_client_is_affected() {
    let mut s = Stage::new();
    // The cron loop is the next event of the server.
    s.arm("server-event");
    s.wait_for_the_panic();
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 1);
    s.b_and_c_are_granted();
}

#[test]
fn in_the_info_section_the_rest_of_info_is_served() {
    let mut s = Stage::new();
    s.arm_and("info", &["INFO everything"]);
    s.wait_for_the_panic();
    s.arm("no-such-entry");
    assert!(s
        .conn
        .line("INFO everything")
        .text()
        .contains("lock_panics:1"));
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 1);
    s.b_and_c_are_granted();
}

/// A hold of a closed connection is not renewed for ever, even if a panic occurred at the close.
#[test]
fn in_the_end_of_a_session() {
    for entry in ["client-gone", "session-end", "apply"] {
        let server = TestServer::with_module(fault_module(), &["--lock.session-lease", "2000"]);
        let (mut conn, mut alice, mut bob) = (server.conn(), server.conn(), server.conn());
        let id = alice.id();
        alice.line("LOCK.ACQUIRE k alice SESSION");
        alice.line("LOCK.ACQUIRE k2 alice SESSION");
        bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
        server.wait_for_waiters(1);
        let fault = format!("LOCK.FAULT {entry}");
        let kill = format!("CLIENT KILL ID {id}");
        conn.send_lines(&["MULTI", &fault, &kill, "EXEC"]);
        for _ in 0..3 {
            conn.recv();
        }
        assert_eq!(conn.recv().list().len(), 2);
        // During the hand-off: the waiter that the core has removed gets a reply, and the lease ends the hold.
        let answer = bob.recv();
        assert_eq!(answer.is_error(), entry == "apply", "{entry}: {answer:?}");
        wait_for("alice's end", || {
            !conn
                .line("HGETALL k")
                .list()
                .iter()
                .any(|f| f.text() == "alice")
        });
        wait_for("both released", || conn.line("EXISTS k2").int() == 0);
        wait_for("nothing bound", || server.stat("session_holds") == 0);
        assert_eq!(server.stat("panics"), 1, "{entry}");
        locks_still_work(&server);
    }
}

#[test]
fn in_a_renewal() {
    let server = TestServer::with_module(fault_module(), &["--lock.session-lease", "3000"]);
    let (mut conn, mut alice) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    conn.line("LOCK.FAULT apply");
    wait_for("the injected panic", || server.stat("panics") == 1);
    let renewals = server.stat("session_renewals");
    wait_for("renewals after it", || {
        server.stat("session_renewals") > renewals + 1
    });
    let info = conn.line("LOCK.INFO k").field("holders").unwrap().list();
    assert_eq!(info[0].field("session").unwrap().int(), 1);
    alice.line("LOCK.RELEASE k alice");
    locks_still_work(&server);
}
