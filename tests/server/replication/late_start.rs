//! Replication that begins late. While there is neither an AOF nor a replica, the module does not prepare changes for
//! them: a replica still gets every lock, whenever it connects.

use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{wait_for, Conn, TestServer};

/// All kinds of change of a lock, on names of this round. Locks that stay held have leases too long to end meanwhile.
fn change_locks(conn: &mut Conn, round: usize) {
    for line in [
        format!("LOCK.ACQUIRE kept:{round} a PX 600000"),
        format!("LOCK.ACQUIRE kept:{round} a PX 700000"),
        format!("LOCK.RENEW kept:{round} a PX 800000"),
        format!("LOCK.ACQUIRE freed:{round} a PX 600000"),
        format!("LOCK.RELEASE freed:{round} a"),
        // The same name again and again: the replica must have its latest hold.
        "LOCK.BREAK again".into(),
        format!("LOCK.ACQUIRE again owner:{round} PX 600000"),
    ] {
        assert!(!conn.line(&line).is_error(), "{line}");
    }
}

fn same_data(one: &TestServer, other: &TestServer) {
    let digest = |server: &TestServer| server.conn().line("DEBUG DIGEST").text();
    assert_eq!(digest(one), digest(other));
}

/// Locks change all the time from before the replica asks until its link has been up for a while.
fn follows_a_busy_master(options: &[&str]) {
    let (master, replica) = (TestServer::with(options), TestServer::without_module(&[]));
    let mut conn = master.conn();
    (0..20).for_each(|round| change_locks(&mut conn, round));
    let port = master.port.to_string();
    replica.conn().run(["REPLICAOF", "127.0.0.1", &port]);
    let (mut round, mut rounds_up) = (20, 0);
    wait_for("a link to the busy master", || {
        change_locks(&mut conn, round);
        round += 1;
        if replica.info_field("replication", "master_link_status") == "up" {
            rounds_up += 1;
        }
        rounds_up > 20
    });
    wait_until_in_sync(&replica, &master);
    same_data(&master, &replica);
}

#[test]
fn the_first_replica_attached_while_locks_change_gets_them_all() {
    follows_a_busy_master(&PROMPT_MASTER);
}

#[test]
fn the_first_replica_gets_all_locks_from_a_snapshot_delayed_by_a_second() {
    follows_a_busy_master(&["--repl-diskless-sync-delay", "1"]);
}

#[test]
fn the_first_replica_gets_all_locks_from_a_snapshot_on_disk() {
    follows_a_busy_master(&["--repl-diskless-sync", "no"]);
}

#[test]
fn a_replica_attached_after_a_background_save_has_every_lock() {
    let (master, replica) = (
        TestServer::with(&PROMPT_MASTER),
        TestServer::without_module(&[]),
    );
    let mut conn = master.conn();
    change_locks(&mut conn, 0);
    conn.line("BGSAVE");
    wait_for("the save", || {
        change_locks(&mut conn, 1);
        master.info_field("persistence", "rdb_bgsave_in_progress") == "0"
    });
    follow(&replica, &master);
    change_locks(&mut conn, 2);
    wait_until_in_sync(&replica, &master);
    same_data(&master, &replica);
}

#[test]
fn a_replica_of_a_restarted_master_has_the_changes_before_its_reconnection() {
    let mut options = PROMPT_MASTER.to_vec();
    options.extend(["--save", "3600 1000000"]);
    let mut master = TestServer::with(&options);
    let replica = TestServer::without_module(&[]);
    follow(&replica, &master);
    change_locks(&mut master.conn(), 0);
    wait_until_in_sync(&replica, &master);
    master.restart();
    let mut conn = master.conn();
    (1..20).for_each(|round| change_locks(&mut conn, round));
    wait_for("the link to the restarted master", || {
        replica.info_field("replication", "master_link_status") == "up"
    });
    assert_eq!(master.info_field("stats", "sync_partial_ok"), "1");
    wait_until_in_sync(&replica, &master);
    same_data(&master, &replica);
}

/// A replica asks for a snapshot that is never sent, or only after the test. From then on the master has a backlog. A
/// file that is saved now starts a server that continues from that backlog.
fn goes_on_from_a_saved_file(stays: bool) {
    let master = TestServer::with(&["--repl-diskless-sync-delay", "3600"]);
    let mut conn = master.conn();
    change_locks(&mut conn, 0);
    let mut asking = master.conn();
    asking.line("REPLCONF capa eof capa psync2");
    asking.send_line("PSYNC ? -1");
    wait_for("the backlog", || {
        master.info_field("replication", "repl_backlog_active") == "1"
    });
    change_locks(&mut conn, 1);
    if !stays {
        asking.close();
        wait_for("the replica to be gone", || {
            master.info_field("replication", "connected_slaves") == "0"
        });
    }
    change_locks(&mut conn, 2);
    conn.line("SAVE");
    change_locks(&mut conn, 3);

    let mut seeded = TestServer::without_module(&[]);
    seeded.crash();
    std::fs::copy(master.dir().join("dump.rdb"), seeded.dir().join("dump.rdb")).unwrap();
    seeded.add_option("--replicaof", &format!("127.0.0.1 {}", master.port));
    seeded.start_again();
    wait_for("the link of the seeded replica", || {
        seeded.info_field("replication", "master_link_status") == "up"
    });
    assert_eq!(master.info_field("stats", "sync_partial_ok"), "1");
    change_locks(&mut conn, 4);
    wait_until_in_sync(&seeded, &master);
    same_data(&master, &seeded);
}

#[test]
fn a_server_made_from_a_saved_file_gets_the_changes_since() {
    goes_on_from_a_saved_file(true);
}

#[test]
fn a_saved_file_gets_later_changes_after_the_first_replica_disconnected() {
    goes_on_from_a_saved_file(false);
}

#[test]
fn a_module_loaded_into_a_master_replicates_its_first_lock() {
    let mut options = PROMPT_MASTER.to_vec();
    options.extend(["--enable-module-command", "yes"]);
    let (master, replica) = (
        TestServer::without_module(&options),
        TestServer::without_module(&[]),
    );
    follow(&replica, &master);
    let module = crate::common::module_path();
    let mut conn = master.conn();
    conn.run(["MODULE", "LOAD", &module.to_string_lossy()]);
    change_locks(&mut conn, 0);
    wait_until_in_sync(&replica, &master);
    same_data(&master, &replica);
}

#[test]
fn an_aof_that_is_switched_on_has_the_changes_from_then_on() {
    let mut server = TestServer::with(&["--appendfsync", "always"]);
    let mut conn = server.conn();
    change_locks(&mut conn, 0);
    conn.line("CONFIG SET appendonly yes");
    change_locks(&mut conn, 1);
    wait_for("the first rewrite", || {
        change_locks(&mut conn, 2);
        server.info_field("persistence", "aof_rewrite_in_progress") == "0"
            && server.info_field("persistence", "aof_rewrite_scheduled") == "0"
    });
    change_locks(&mut conn, 3);
    let digest = conn.line("DEBUG DIGEST").text();
    drop(conn);
    server.add_option("--appendonly", "yes");
    server.crash_and_restart();
    assert_eq!(server.conn().line("DEBUG DIGEST").text(), digest);
}

#[test]
fn unreplicated_changes_count_for_the_save_points() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let changes = || {
        let count = server.info_field("persistence", "rdb_changes_since_last_save");
        count.parse::<u64>().unwrap()
    };
    let mut before = changes();
    for line in [
        "LOCK.ACQUIRE k a",
        "LOCK.ACQUIRE k a",
        "LOCK.RENEW k a",
        "LOCK.RELEASE k a ALL",
        "LOCK.ACQUIRE k a",
        "LOCK.BREAK k",
    ] {
        conn.line(line);
        let after = changes();
        assert!(after > before, "{line}");
        before = after;
    }
    for line in [
        "LOCK.RELEASE k a",
        "LOCK.RENEW k a",
        "LOCK.BREAK k",
        "LOCK.INFO k",
    ] {
        conn.line(line);
        assert_eq!(changes(), before, "{line}");
    }
}
