//! Fencing tokens only rise, whatever ended the grant before.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::clock::{fake_clock, set_clock};
use crate::common::replica::{follow, wait_until_in_sync, ReplicationStream, PROMPT_MASTER};
use crate::common::{wait_for, Conn, TestServer};

const AOF_ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const HORIZON: &str = "redis_lock:horizon";

/// The highest token of one lock so far: each new one must be above it.
#[derive(Default)]
struct Climb(i64);

impl Climb {
    fn step(&mut self, token: i64, what: &str) {
        assert!(token > self.0, "{what}: {token} after {}", self.0);
        assert!(token < 1 << 53, "{what}: {token} is no safe integer");
        self.0 = token;
    }

    /// A grant of the free lock `k`.
    fn grant(&mut self, conn: &mut Conn, what: &str) {
        let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
        self.step(token, what);
    }
}

fn free(conn: &mut Conn) {
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
}

#[test]
fn they_rise_over_every_end_of_a_grant() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut climb = Climb::default();
    climb.grant(&mut conn, "first");
    free(&mut conn);
    climb.grant(&mut conn, "release");
    for ending in [
        "LOCK.BREAK k",
        "DEL k",
        "UNLINK k",
        "HDEL k a",
        "HDEL k a #token",
        "PEXPIREAT k 1",
        "RENAME k elsewhere",
        "MOVE k 5",
        "FLUSHDB",
        "FLUSHALL",
        "SWAPDB 0 7",
    ] {
        assert!(!conn.line(ending).is_error(), "{ending}");
        climb.grant(&mut conn, ending);
    }
    conn.line("PEXPIRE k 5");
    wait_for("the lease's end", || conn.line("EXISTS k").int() == 0);
    climb.grant(&mut conn, "expiry");
}

#[test]
fn they_rise_over_hand_offs() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut climb = Climb::default();
    climb.grant(&mut conn, "first");
    let mut holder = "a".to_string();
    for ending in ["RELEASE", "BREAK", "DEL", "FLUSHALL", "PEXPIRE"] {
        let mut waiter = server.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE k after:{ending} PX 60000 BLOCK 0"));
        server.wait_for_waiters(1);
        conn.line(&match ending {
            "RELEASE" => format!("LOCK.RELEASE k {holder}"),
            "BREAK" => "LOCK.BREAK k".into(),
            "PEXPIRE" => "PEXPIRE k 5".into(),
            _ => format!("{ending} k").replace("FLUSHALL k", "FLUSHALL"),
        });
        climb.step(waiter.recv().int(), ending);
        holder = format!("after:{ending}");
    }
}

#[test]
fn one_grant_has_one_token() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    for line in [
        "LOCK.ACQUIRE k a PX 60000",
        "LOCK.ACQUIRE k a PX 90000 ONCE",
        "LOCK.ACQUIRE k a BLOCK 0",
    ] {
        assert_eq!(conn.line(line).int(), token, "{line}");
    }
    conn.line("LOCK.RENEW k a");
    conn.line("LOCK.RELEASE k a");
    assert_eq!(conn.line("HGET k #token").text(), format!("t{token}"));
}

#[test]
fn two_databases_have_rising_tokens_each() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.conn(), server.conn());
    second.line("SELECT 3");
    let mut climbs = [Climb::default(), Climb::default()];
    for _ in 0..3 {
        for (conn, climb) in [&mut first, &mut second].into_iter().zip(&mut climbs) {
            climb.grant(conn, "in its database");
            free(conn);
        }
    }
    assert_eq!(
        second.line("DBSIZE").int(),
        0,
        "the horizon is in database 0"
    );
    first.line("SWAPDB 0 3");
    for (conn, climb) in [&mut first, &mut second].into_iter().zip(&mut climbs) {
        climb.grant(conn, "after SWAPDB");
    }
}

#[test]
fn they_rise_over_crashes_with_an_aof() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut climb = Climb::default();
    for round in 0..3 {
        let mut conn = server.conn();
        climb.grant(&mut conn, &format!("round {round}"));
        conn.line("DEL k");
        server.crash_and_restart();
    }
    climb.grant(&mut server.conn(), "the last crash");
}

#[test]
fn they_rise_over_a_restart_with_an_rdb_file() {
    let mut server = TestServer::start();
    let mut climb = Climb::default();
    for round in 0..3 {
        let mut conn = server.conn();
        conn.run(["CONFIG", "SET", "save", "3600 1"]);
        climb.grant(&mut conn, &format!("round {round}"));
        free(&mut conn);
        server.restart();
    }
    climb.grant(&mut server.conn(), "the last restart");
}

#[test]
fn they_rise_when_all_since_the_last_snapshot_is_lost_again_and_again() {
    let mut server = TestServer::start();
    let mut climb = Climb::default();
    climb.grant(&mut server.conn(), "first");
    free(&mut server.conn());
    server.conn().line("SAVE");
    for round in 0..3 {
        server.crash_and_restart();
        for _ in 0..3 {
            climb.grant(&mut server.conn(), &format!("round {round}"));
            free(&mut server.conn());
        }
    }
}

#[test]
fn they_rise_over_a_flush_and_a_crash_while_they_run_ahead_of_the_clock() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut climb = Climb::default();
    climb.grant(&mut server.conn(), "first");
    free(&mut server.conn());
    server.crash_and_restart();
    climb.grant(&mut server.conn(), "a restart");
    assert!(
        climb.0 > now_us(),
        "from here on tokens are ahead of the clock"
    );
    server.conn().line("FLUSHALL");
    server.crash_and_restart();
    climb.grant(&mut server.conn(), "FLUSHALL and a crash");
}

#[test]
fn tokens_rise_over_a_deleted_or_overwritten_horizon() {
    let in_two_hours = now_us() + 7_200_000_000;
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut climb = Climb::default();
    let mut conn = server.conn();
    climb.grant(&mut conn, "first");
    free(&mut conn);
    for spoil in [
        format!("DEL {HORIZON}"),
        format!("SET {HORIZON} rubbish"),
        format!("SET {HORIZON} -5"),
        format!("RENAME {HORIZON} elsewhere"),
        format!("SET {HORIZON} 1"),
        format!("SET {HORIZON} {in_two_hours}"),
    ] {
        spoil.split('|').for_each(|line| drop(conn.line(line)));
        climb.grant(&mut conn, &spoil);
        free(&mut conn);
        server.crash_and_restart();
        conn = server.conn();
        climb.grant(&mut conn, &format!("{spoil} and a restart"));
        free(&mut conn);
    }
    assert!(climb.0 > in_two_hours, "a horizon is accepted");
    // A value that is no string is not the module's: it stays, and no token is granted until it is gone.
    conn.line("RPUSH list x");
    conn.line(&format!("RENAME list {HORIZON}"));
    server.crash_and_restart();
    conn = server.conn();
    let refused = conn.line("LOCK.ACQUIRE k a").error();
    assert!(
        refused.starts_with("WRONGTYPE the key redis_lock:horizon"),
        "{refused}"
    );
    assert_eq!(conn.line(&format!("LLEN {HORIZON}")).int(), 1);
    conn.line(&format!("DEL {HORIZON}"));
    assert!(conn.line("LOCK.ACQUIRE k a").int() > 0);
}

fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_micros() as i64
}

#[test]
fn tokens_surpass_that_of_an_imported_lock() {
    let source = TestServer::start();
    let mut high = now_us();
    let server = TestServer::start();
    for ending in [
        "LOCK.RELEASE k a",
        "LOCK.BREAK k",
        "HDEL k a",
        "PEXPIREAT k 1",
        "LOCK.RENEW k a|DEL k",
        "LOCK.ACQUIRE k other|FLUSHALL",
    ] {
        high += 600_000_000;
        let mut far = source.conn();
        far.line("DEL k");
        far.line(&format!("HSET k a 1 #token t{high}"));
        far.line("PEXPIRE k 60000");
        let dump = far.line("DUMP k").bytes();
        let mut conn = server.conn();
        let mut climb = Climb::default();
        climb.grant(&mut conn, "a grant of this server");
        conn.line("DEL k");
        conn.run([b"RESTORE", &b"k"[..], b"60000", &dump]);
        assert_eq!(conn.line("LOCK.ACQUIRE k a ONCE").int(), high);
        climb.step(high, "restored");
        ending.split('|').for_each(|line| drop(conn.line(line)));
        climb.grant(&mut conn, ending);
        conn.line("DEL k");
    }
}

#[test]
fn tokens_surpass_that_of_a_copied_lock() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut climb = Climb::default();
    climb.grant(&mut conn, "first");
    let copied = conn.line("LOCK.ACQUIRE other a PX 60000").int();
    climb.step(copied, "the copied lock's");
    conn.line("COPY other k REPLACE");
    assert_eq!(conn.line("LOCK.ACQUIRE k a ONCE").int(), copied);
    free(&mut conn);
    climb.grant(&mut conn, "after the copy");
}

#[test]
fn they_rise_over_promotions_back_and_forth() {
    let servers = [
        TestServer::with(&PROMPT_MASTER),
        TestServer::with(&PROMPT_MASTER),
    ];
    let mut climb = Climb::default();
    for round in 0..3 {
        let (master, replica) = (&servers[round % 2], &servers[(round + 1) % 2]);
        follow(replica, master);
        climb.grant(&mut master.conn(), &format!("round {round}"));
        free(&mut master.conn());
        wait_until_in_sync(replica, master);
        replica.conn().line("REPLICAOF NO ONE");
        climb.grant(&mut replica.conn(), "the promoted replica");
        free(&mut replica.conn());
    }
}

#[test]
fn a_replica_that_missed_the_last_grants_still_surpasses_them() {
    let master = TestServer::with(&PROMPT_MASTER);
    let replica = TestServer::start();
    let mut climb = Climb::default();
    climb.grant(&mut master.conn(), "first");
    free(&mut master.conn());
    follow(&replica, &master);
    replica.conn().line("REPLICAOF NO ONE");
    for _ in 0..50 {
        climb.grant(&mut master.conn(), "not replicated");
        free(&mut master.conn());
    }
    climb.grant(&mut replica.conn(), "the promoted replica");
}

fn clock_is_back(server: &TestServer) -> bool {
    let seconds = server.conn().line("TIME").list()[0].text();
    seconds.parse::<i64>().unwrap() < now_us() / 1_000_000 - 3_000
}

#[test]
fn they_rise_over_a_restart_with_the_clock_set_back() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut climb = Climb::default();
    climb.grant(&mut server.conn(), "first");
    free(&mut server.conn());
    server.crash();
    fake_clock(&mut server);
    for hours in 1..4 {
        set_clock(&server, hours * -3_600);
        server.start_again();
        assert!(clock_is_back(&server));
        let mut conn = server.conn();
        for _ in 0..3 {
            climb.grant(&mut conn, &format!("a restart {hours} hours back"));
            free(&mut conn);
        }
        server.crash();
    }
    server.start_again();
}

#[test]
fn a_horizon_flushed_with_its_database_is_stored_again_at_once() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut climb = Climb::default();
    for gone in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1"] {
        let mut conn = server.conn();
        climb.grant(&mut conn, gone);
        free(&mut conn);
        conn.line(gone);
        wait_for("the horizon", || {
            conn.line(&format!("EXISTS {HORIZON}")).int() == 1
        });
        // No grant comes between, and the clock is set back.
        server.crash();
        fake_clock(&mut server);
        set_clock(&server, -7_200);
        server.start_again();
        climb.grant(&mut server.conn(), &format!("{gone}, a crash, the clock"));
        free(&mut server.conn());
    }
}

#[test]
fn they_rise_when_a_former_master_that_missed_its_successor_is_promoted_again() {
    let (first, second) = (TestServer::start(), TestServer::start());
    let mut climb = Climb::default();
    climb.grant(&mut first.conn(), "the first master");
    free(&mut first.conn());
    follow(&second, &first);
    second.conn().line("REPLICAOF NO ONE");
    climb.grant(&mut second.conn(), "the second master");
    free(&mut second.conn());
    // The first is demoted, but never follows the second, which is lost.
    first.conn().line("REPLICAOF 127.0.0.1 1");
    first.conn().line("REPLICAOF NO ONE");
    climb.grant(&mut first.conn(), "the first again");
}

#[test]
fn they_rise_over_a_swap_before_the_first_grant() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut climb = Climb::default();
    for round in 0..3 {
        climb.grant(&mut server.conn(), &format!("round {round}"));
        free(&mut server.conn());
        server.crash_and_restart();
        server.conn().line("SWAPDB 0 1");
        climb.grant(&mut server.conn(), &format!("a swap, round {round}"));
        free(&mut server.conn());
    }
}

/// The former process has stored the horizon, this one has not read it yet, and the clock is set back.
#[test]
fn a_horizon_deleted_before_the_first_grant_is_respected() {
    for gone in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = TestServer::with(&AOF_ALWAYS);
        let mut climb = Climb::default();
        climb.grant(&mut server.conn(), "the process before");
        free(&mut server.conn());
        server.crash();
        fake_clock(&mut server);
        set_clock(&server, -7_200);
        server.start_again();
        server.conn().line(gone);
        climb.grant(&mut server.conn(), gone);
    }
}

#[test]
fn a_flush_of_a_server_without_locks_leaves_it_empty() {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("SET k v");
    conn.line("FLUSHALL");
    wait_for("the next tick", || conn.line("PING").text() == "PONG");
    assert_eq!(conn.line("DBSIZE").int(), 0);
}

#[test]
fn they_rise_under_a_running_server_whose_clock_is_set_back() {
    let mut server = TestServer::start();
    server.crash();
    fake_clock(&mut server);
    server.start_again();
    let mut conn = server.conn();
    let mut climb = Climb::default();
    climb.grant(&mut conn, "first");
    set_clock(&server, -3_600);
    wait_for("the clock to be back", || clock_is_back(&server));
    for what in ["release", "release again"] {
        free(&mut conn);
        climb.grant(&mut conn, what);
    }
    conn.line("FLUSHALL");
    climb.grant(&mut conn, "FLUSHALL");
}

#[test]
fn they_rise_over_a_promotion_together_with_a_clock_set_back() {
    let master = TestServer::with(&PROMPT_MASTER);
    let mut replica = TestServer::start();
    replica.crash();
    fake_clock(&mut replica);
    set_clock(&replica, -3_600);
    replica.start_again();
    follow(&replica, &master);
    let mut climb = Climb::default();
    climb.grant(&mut master.conn(), "first");
    free(&mut master.conn());
    wait_until_in_sync(&replica, &master);
    replica.conn().line("REPLICAOF NO ONE");
    assert!(clock_is_back(&replica));
    climb.grant(&mut replica.conn(), "the promoted replica");
}

/// The number of writes of the horizon while `body` runs.
fn horizons_written(server: &TestServer, body: impl FnOnce(&mut Conn)) -> usize {
    let mut stream = ReplicationStream::attach(server);
    body(&mut server.conn());
    let is_horizon = |line: &&String| line.starts_with(&format!("SET {HORIZON}"));
    stream.until_now(server).iter().filter(is_horizon).count()
}

#[test]
fn the_horizon_is_written_once_for_many_grants() {
    let server = TestServer::start();
    let written = horizons_written(&server, |conn| {
        let mut climb = Climb::default();
        for _ in 0..200 {
            climb.grant(conn, "a grant of many");
            free(conn);
        }
    });
    assert_eq!(written, 1);
}

#[test]
fn after_a_restart_the_horizon_is_written_once_for_many_grants() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    server.conn().line("LOCK.ACQUIRE k a PX 60000");
    server.crash_and_restart();
    let written = horizons_written(&server, |conn| {
        for _ in 0..200 {
            free(conn);
            conn.line("LOCK.ACQUIRE k a PX 60000");
        }
    });
    assert_eq!(written, 1);
}

#[test]
fn reading_the_own_horizon_again_raises_no_token() {
    let server = TestServer::start();
    let mut last = 0;
    let written = horizons_written(&server, |conn| {
        for _ in 0..20 {
            last = conn.line("LOCK.ACQUIRE k a PX 60000").int();
            free(conn);
            // Swapped databases make the module read the horizon again; so do evictions.
            conn.line("SWAPDB 5 6");
        }
    });
    assert_eq!(written, 1);
    assert!(last <= now_us(), "tokens ran ahead of the clock");
}

#[test]
fn no_data_of_a_lock_stays_for_ever() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for number in 0..1_000 {
        let key = format!("lock:{number}");
        conn.run(["LOCK.ACQUIRE", &key, "a"]);
        conn.run(["LOCK.RELEASE", &key, "a"]);
    }
    assert_eq!(conn.line("DBSIZE").int(), 1);
    assert_eq!(conn.run(["EXISTS", HORIZON]).int(), 1);
}
