//! `repl-diskless-load swapdb`: a replica loads a snapshot of its master beside its data, answers reads from its data
//! meanwhile, and exchanges the two at the end.

use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{wait_for, Conn, TestServer};

/// A replica that loads beside its data, and serves its clients after each kilobyte of it.
const SWAPS: [&str; 4] = [
    "--repl-diskless-load",
    "swapdb",
    "--loading-process-events-interval-bytes",
    "1024",
];

/// A master with a small backlog and a snapshot without compression: a hundred compressed keys would be one packet.
const RAW: [&str; 4] = ["--repl-backlog-size", "16kb", "--rdbcompression", "no"];

/// A replica with its data of before, and a snapshot that it loads as slowly as the test wants.
struct Load {
    master: TestServer,
    replica: TestServer,
    /// The token of alice at `k`, in the data of before. In the snapshot bob holds it.
    alice: i64,
    /// The token of bob, the last one of the master.
    bob: i64,
}

impl Load {
    /// The load of a snapshot that is sent at once.
    fn begin() -> Load {
        Load::with("10000 filler 100", "0", &[])
    }

    /// The load of a snapshot that is not sent to its end.
    fn of_endless(options: &[&str]) -> Load {
        Load::with("1000 filler 20000", "100000", options)
    }

    /// `filler`: arguments of `DEBUG POPULATE`. `save_delay`: microseconds that the master takes for each key.
    fn with(filler: &str, save_delay: &str, options: &[&str]) -> Load {
        let master = TestServer::with(&[&PROMPT_MASTER[..], &RAW].concat());
        let replica = TestServer::with(&[&SWAPS[..], options].concat());
        let mut conn = master.conn();
        conn.line(&format!("DEBUG POPULATE {filler}"));
        let alice = conn.line("LOCK.ACQUIRE k alice PX 600000").int();
        conn.line("LOCK.ACQUIRE ends a PX 500");
        conn.line("SEM.SET permits 1");
        conn.line("SEM.ACQUIRE permits a PX 600000");
        conn.line("LATCH.SET latch 1");
        follow(&replica, &master);
        replica.conn().line("CONFIG SET key-load-delay 5000");
        conn.line(&format!("CONFIG SET rdb-key-save-delay {save_delay}"));
        // The replica misses more than the backlog keeps, so it needs a snapshot.
        let more = "x".repeat(100_000);
        conn.line("MULTI");
        conn.line("CLIENT KILL TYPE replica");
        conn.line("LOCK.RELEASE k alice");
        conn.line("LOCK.ACQUIRE k bob PX 600000");
        conn.line("SEM.RELEASE permits a");
        conn.line("LATCH.DOWN latch");
        (0..5).for_each(|_| drop(conn.run(["SET", "more", &more])));
        let bob = conn.line("EXEC").list()[2].int();
        assert!(bob > alice);
        let load = Load {
            master,
            replica,
            alice,
            bob,
        };
        load.wait_for_loading("1");
        load
    }

    fn wait_for_loading(&self, is_loading: &str) {
        wait_for("the state of the load", || {
            self.replica.info_field("persistence", "async_loading") == is_loading
        });
    }

    /// Lets the load reach its end.
    fn succeed(&self) {
        self.replica.conn().line("CONFIG SET key-load-delay 0");
        wait_for("the link to the master", || {
            self.replica.info_field("replication", "master_link_status") == "up"
        });
        wait_until_in_sync(&self.replica, &self.master);
        assert_eq!(exchanges(&self.replica), 2);
    }

    /// The master ends the load, and itself before the next one.
    fn abort(&mut self) {
        let mut conn = self.master.conn();
        conn.line("CONFIG SET repl-diskless-sync-delay 3600");
        conn.line("CLIENT KILL TYPE replica");
        self.master.crash();
        self.wait_for_loading("0");
        assert_eq!(exchanges(&self.replica), 1);
    }

    fn promote(&self) -> Conn {
        let mut conn = self.replica.conn();
        assert_eq!(conn.line("REPLICAOF NO ONE").text(), "OK");
        conn
    }
}

/// How many times the server has exchanged its data for a snapshot.
fn exchanges(server: &TestServer) -> usize {
    server.log().matches("Swapping active DB").count()
}

fn holder_of(conn: &mut Conn, key: &str) -> String {
    let info = conn.run(["LOCK.INFO", key]);
    let holder = info.field("holders").unwrap().list()[0].clone();
    holder.field("owner").unwrap().text()
}

#[test]
fn reads_during_the_load_show_the_data_of_before_and_park_no_client() {
    let load = Load::begin();
    let mut conn = load.replica.conn();
    assert_eq!(holder_of(&mut conn, "k"), "alice");
    assert_eq!(
        conn.line("SEM.INFO permits").field("held").unwrap().int(),
        1
    );
    assert_eq!(conn.line("LATCH.WAIT latch BLOCK 0").int(), 0);
    assert_eq!(load.replica.stat("latch_waiters"), 0);
    assert!(!conn.line("LOCK.SCAN 0 COUNT 100000").list()[1]
        .list()
        .is_empty());
    let refusal = conn.line("LOCK.ACQUIRE k bob BLOCK 0").error();
    assert!(refusal.starts_with("READONLY"), "{refusal}");
    // The server itself lets no key expire while it loads.
    wait_for("the end of the lease", || {
        conn.line("LOCK.INFO ends").is_nil()
    });
    load.wait_for_loading("1");
    load.succeed();
    assert_eq!(holder_of(&mut conn, "k"), "bob");
    assert_eq!(conn.line("LATCH.WAIT latch BLOCK 0").int(), 1);
}

#[test]
fn a_replica_promoted_after_the_load_continues_with_the_new_data() {
    let load = Load::begin();
    load.succeed();
    let mut conn = load.promote();
    assert_eq!(holder_of(&mut conn, "k"), "bob");
    assert!(conn.line("LOCK.RELEASE k alice").is_nil());
    let mut waiter = load.replica.conn();
    waiter.send_line("LOCK.ACQUIRE k carol BLOCK 0");
    load.replica.wait_for_waiters(1);
    assert_eq!(
        conn.run(["LOCK.RELEASE", "k", "bob", "TOKEN", &load.bob.to_string()])
            .int(),
        1
    );
    assert!(waiter.recv().int() > load.bob);
    assert!(conn.line("SEM.ACQUIRE permits b").int() > load.bob);
}

#[test]
fn a_replica_promoted_after_an_aborted_load_continues_with_the_data_of_before() {
    let mut load = Load::of_endless(&[]);
    load.abort();
    let mut conn = load.promote();
    assert_eq!(holder_of(&mut conn, "k"), "alice");
    assert!(conn.line("SEM.ACQUIRE permits b").is_nil());
    let mut waiters = [load.replica.conn(), load.replica.conn()];
    waiters[0].send_line("LOCK.ACQUIRE k carol BLOCK 0");
    waiters[1].send_line("LATCH.WAIT latch BLOCK 0");
    load.replica.wait_for_waits(2);
    assert_eq!(
        conn.run([
            "LOCK.RELEASE",
            "k",
            "alice",
            "TOKEN",
            &load.alice.to_string()
        ])
        .int(),
        1
    );
    assert!(waiters[0].recv().int() > load.alice);
    assert_eq!(conn.line("LATCH.DOWN latch").int(), 0);
    assert_eq!(waiters[1].recv().int(), 1);
    load.master.start_again();
}

/// A server with one hold of each kind, which it tracks.
fn with_holds(options: &[&str]) -> TestServer {
    let server = TestServer::with(&[&SWAPS[..], options].concat());
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE mine a PX 600000");
    conn.line("LOCK.ACQUIRE read a READ PX 600000");
    conn.line("SEM.SET permits 1");
    conn.line("SEM.ACQUIRE permits a PX 600000");
    assert_eq!(
        (
            server.stat("grants_tracked"),
            server.stat("sem_grants_tracked")
        ),
        (2, 1)
    );
    server
}

#[test]
fn a_flush_by_a_client_of_the_replica_during_the_load_ends_its_tracked_grants() {
    let mut load = Load::of_endless(&["--replica-read-only", "no"]);
    let mut conn = load.replica.conn();
    let last = conn.line("LOCK.ACQUIRE mine a PX 600000").int();
    conn.line("FLUSHALL");
    load.wait_for_loading("1");
    assert_eq!(load.replica.stat("grants_lost"), 1);
    load.abort();
    assert!(load.promote().line("LOCK.ACQUIRE mine b").int() > last);
    load.master.start_again();
}

#[test]
fn a_demoted_master_that_exchanged_its_data_tracks_no_grant_of_before() {
    let (master, demoted) = (TestServer::with(&PROMPT_MASTER), with_holds(&[]));
    let last = demoted.conn().line("LOCK.ACQUIRE last a PX 600000").int();
    follow(&demoted, &master);
    assert_eq!(exchanges(&demoted), 1);
    assert_eq!(demoted.stat("grants_tracked"), 0);
    assert_eq!(demoted.stat("sem_grants_tracked"), 0);
    demoted.check_counters();
    let mut conn = demoted.conn();
    conn.line("REPLICAOF NO ONE");
    assert!(conn.line("LOCK.ACQUIRE mine b").int() > last);
}
