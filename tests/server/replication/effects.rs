//! The commands that replicas and the AOF get: the effects of each decision as plain commands, in one transaction for
//! each decision, and none if nothing changed.

use crate::common::replica::{
    aof_text, follow, wait_until_in_sync, ReplicationStream, PROMPT_MASTER,
};
use crate::common::{wait_for, Conn, Reply, TestServer};

const HORIZON: &str = "redis_lock:horizon";

/// A server, a client, and the server's replication stream.
struct Stage {
    server: TestServer,
    stream: ReplicationStream,
    conn: Conn,
}

impl Stage {
    /// A fresh server that has not granted any token.
    fn fresh() -> Stage {
        Stage::with(&[])
    }

    /// A server with a horizon, which is not stored again for half an hour.
    fn settled() -> Stage {
        let mut stage = Stage::fresh();
        stage.take("warm:up", "first");
        stage.conn.line("LOCK.RELEASE warm:up first");
        stage.seen();
        stage
    }

    fn with(options: &[&str]) -> Stage {
        let server = TestServer::with(options);
        let stream = ReplicationStream::attach(&server);
        let conn = server.conn();
        Stage {
            server,
            stream,
            conn,
        }
    }

    /// The commands replicated since the last call.
    fn seen(&mut self) -> Vec<String> {
        self.stream.until_now(&self.server)
    }

    /// An acquire that is granted at once; returns its token.
    fn take(&mut self, key: &str, owner: &str) -> i64 {
        let line = format!("LOCK.ACQUIRE {key} {owner} PX 60000");
        self.conn.line(&line).int()
    }

    /// A second client that is parked, after the stream was read to its end.
    fn park(&mut self, line: &str) -> Conn {
        let mut waiter = self.server.conn();
        waiter.send_line(line);
        self.server.wait_for_waiters(1);
        self.seen();
        waiter
    }

    /// The deadline of a lock in the server.
    fn deadline(&mut self, key: &str) -> i64 {
        self.conn.run(["PEXPIRETIME", key]).int()
    }

    /// The commands of the present grant.
    fn grant_of(&mut self, key: &str, owner: &str, token: i64) -> Vec<String> {
        let deadline = self.deadline(key);
        vec![
            format!("HSET {key} {owner} 1 #token t{token}"),
            format!("PEXPIREAT {key} {deadline}"),
        ]
    }

    /// The command that stored the horizon.
    fn horizon(&mut self) -> String {
        let horizon = self.conn.run(["GET", HORIZON]).text();
        format!("SET {HORIZON} {horizon}")
    }
}

/// These commands as one transaction.
fn atomic(commands: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let inner = commands.into_iter().map(Into::into);
    let mut all = vec!["MULTI".to_string()];
    all.extend(inner);
    all.push("EXEC".into());
    all
}

/// The commands of a freed key.
fn freed(key: &str) -> Vec<String> {
    atomic([
        format!("DEL {key}"),
        format!("PUBLISH redisson_lock__channel:{{{key}}} 0"),
    ])
}

/// A hand-off: the former hold is removed and the new one added in one transaction.
fn handed_off(key: &str, grant: Vec<String>) -> Vec<String> {
    atomic([vec![format!("DEL {key}")], grant].concat())
}

#[test]
fn the_first_grant_stores_the_horizon_and_the_hold_in_one_transaction() {
    let mut s = Stage::fresh();
    let token = s.take("k", "a");
    let expected = [vec![s.horizon()], s.grant_of("k", "a", token)].concat();
    assert_eq!(s.seen(), atomic(expected));
}

#[test]
fn a_later_grant_is_the_hold_and_its_lease() {
    let mut s = Stage::settled();
    let token = s.take("k", "a");
    let expected = s.grant_of("k", "a", token);
    assert_eq!(s.seen(), atomic(expected));
}

#[test]
fn a_re_entry_is_the_new_count_and_a_longer_lease_only_if_it_is_longer() {
    let mut s = Stage::settled();
    s.take("k", "a");
    s.seen();
    s.conn.line("LOCK.ACQUIRE k a PX 90000");
    let longer = format!("PEXPIREAT k {}", s.deadline("k"));
    assert_eq!(s.seen(), atomic(["HSET k a 2", &longer]));
    s.conn.line("LOCK.ACQUIRE k a PX 1000");
    assert_eq!(s.seen(), ["HSET k a 3"]);
}

/// Without the lease, `WAIT` would not wait for the hold.
#[test]
fn once_replicates_the_lease_and_nothing_else() {
    let mut s = Stage::settled();
    s.take("k", "a");
    s.seen();
    let present = format!("PEXPIREAT k {}", s.deadline("k"));
    s.conn.line("LOCK.ACQUIRE k a PX 1000 ONCE");
    assert_eq!(s.seen(), [present]);
    s.conn.line("LOCK.ACQUIRE k a PX 90000 ONCE");
    let longer = format!("PEXPIREAT k {}", s.deadline("k"));
    assert_eq!(s.seen(), [longer]);
}

#[test]
fn a_partial_release_is_a_count_and_the_final_one_a_del_with_redissons_message() {
    let mut s = Stage::settled();
    s.take("k", "a");
    s.take("k", "a");
    s.seen();
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 0);
    assert_eq!(s.seen(), ["HSET k a 1"]);
    assert_eq!(s.conn.line("LOCK.RELEASE k a").int(), 1);
    assert_eq!(s.seen(), freed("k"));
}

#[test]
fn without_the_message_the_final_release_is_a_bare_del() {
    let mut s = Stage::settled();
    s.conn.line("CONFIG SET lock.publish no");
    s.take("k", "a");
    s.seen();
    s.conn.line("LOCK.RELEASE k a");
    assert_eq!(s.seen(), ["DEL k"]);
}

#[test]
fn a_hand_off_is_one_transaction() {
    for ending in ["LOCK.RELEASE k a", "LOCK.BREAK k"] {
        let mut s = Stage::settled();
        s.take("k", "a");
        let mut b = s.park("LOCK.ACQUIRE k b PX 70000 BLOCK 0");
        assert_eq!(s.conn.line(ending).int(), 1);
        let grant = s.grant_of("k", "b", b.recv().int());
        assert_eq!(s.seen(), handed_off("k", grant), "{ending}");
    }
}

#[test]
fn a_renewal_is_the_lease_and_a_break_is_a_release() {
    let mut s = Stage::settled();
    s.take("k", "a");
    s.seen();
    s.conn.line("LOCK.RENEW k a PX 5000");
    let shorter = format!("PEXPIREAT k {}", s.deadline("k"));
    // Redisson's waiters sleep until the end that they have read.
    let told = "PUBLISH redisson_lock__channel:{k} 0";
    assert_eq!(s.seen(), ["MULTI", &shorter, told, "EXEC"]);
    s.conn.line("LOCK.RENEW k a PX 70000");
    let longer = format!("PEXPIREAT k {}", s.deadline("k"));
    assert_eq!(s.seen(), [longer]);
    assert_eq!(s.conn.line("LOCK.BREAK k").int(), 1);
    assert_eq!(s.seen(), freed("k"));
}

#[test]
fn a_hold_of_redisson_gets_its_token_at_the_first_command() {
    let mut s = Stage::settled();
    s.conn.line("HSET k uuid:1 1");
    s.conn.line("PEXPIRE k 50000");
    s.seen();
    let token = s.take("k", "uuid:1");
    let deadline = s.deadline("k");
    let seen = s.seen();
    assert_eq!(seen[1], format!("HSET k uuid:1 2 #token t{token}"));
    assert_eq!(
        seen,
        atomic([seen[1].clone(), format!("PEXPIREAT k {deadline}")])
    );
}

#[test]
fn redissons_counter_is_written_back_with_the_grant_where_it_exists() {
    let mut s = Stage::settled();
    s.conn.line("SET redisson_lock_token:{k} 41");
    s.seen();
    let token = s.take("k", "a");
    let counter = vec![format!("SET redisson_lock_token:{{k}} {token}")];
    let expected = [counter, s.grant_of("k", "a", token)].concat();
    assert_eq!(s.seen(), atomic(expected));
}

#[test]
fn a_grant_at_the_leases_end_comes_after_the_deletion() {
    let mut s = Stage::settled();
    s.conn.line("LOCK.ACQUIRE k a PX 3000");
    let mut b = s.park("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    let token = b.recv().int();
    let grant = s.grant_of("k", "b", token);
    // Newer servers delete expired keys by UNLINK.
    let seen: Vec<_> = s
        .seen()
        .iter()
        .map(|c| c.replace("UNLINK", "DEL"))
        .collect();
    // The timer deletes the key, unless the server's own expiry came first.
    let cleaned_first = [vec!["DEL k".to_string()], atomic(grant.clone())].concat();
    assert!(
        seen == handed_off("k", grant) || seen == cleaned_first,
        "{seen:?}"
    );
}

#[test]
fn a_grant_after_a_foreign_deletion_comes_after_it() {
    for deletion in ["DEL k", "UNLINK k", "HDEL k a #token"] {
        let mut s = Stage::settled();
        s.take("k", "a");
        let mut b = s.park("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        s.conn.line(deletion);
        let grant = s.grant_of("k", "b", b.recv().int());
        let expected = [vec![deletion.to_string()], atomic(grant)].concat();
        assert_eq!(s.seen(), expected);
    }
}

#[test]
fn a_grant_after_a_rename_comes_after_it() {
    let mut s = Stage::settled();
    s.take("k", "a");
    let mut b = s.park("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    s.conn.line("RENAME k elsewhere");
    let grant = s.grant_of("k", "b", b.recv().int());
    assert_eq!(
        s.seen(),
        [vec!["RENAME k elsewhere".to_string()], atomic(grant)].concat()
    );
}

#[test]
fn a_grant_after_a_flush_stores_the_horizon_again() {
    for flush in ["FLUSHALL", "FLUSHDB"] {
        let mut s = Stage::settled();
        s.take("k", "a");
        let mut b = s.park("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        s.conn.line(flush);
        let token = b.recv().int();
        let written = [vec![s.horizon()], s.grant_of("k", "b", token)].concat();
        let expected = [vec![flush.to_string()], atomic(written)].concat();
        assert_eq!(s.seen(), expected);
    }
}

#[test]
fn an_undone_grant_is_replicated_like_a_release() {
    let mut s = Stage::settled();
    s.take("k", "a");
    let mut b = s.server.conn();
    let id = b.id();
    b.send_line("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    s.server.wait_for_waiters(1);
    s.seen();
    let kill = format!("CLIENT KILL ID {id}");
    s.conn
        .send_lines(&["MULTI", "LOCK.RELEASE k a", &kill, "EXEC"]);
    (0..4).for_each(|_| drop(s.conn.recv()));
    let server = &s.server;
    wait_for("the undo", || server.stat("grants_undone") == 1);
    let seen = s.seen();
    assert_eq!(seen.len(), 5 + 4, "{seen:?}");
    assert_eq!(seen[1], "DEL k");
    assert!(seen[2].starts_with("HSET k b 1 #token t"));
    assert_eq!(seen[5..], freed("k"));
}

#[test]
fn commands_without_a_change_replicate_nothing() {
    let mut s = Stage::settled();
    s.take("k", "a");
    s.conn.line("RPUSH list x");
    s.conn.line("HSET hash name Ada");
    s.seen();
    for line in [
        "LOCK.ACQUIRE k b",
        "LOCK.ACQUIRE k b WITHHOLDER",
        "LOCK.ACQUIRE k b BLOCK 1",
        "LOCK.ACQUIRE k b PX 0",
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE list b",
        "LOCK.ACQUIRE hash b BLOCK 0",
        "LOCK.RELEASE k b",
        "LOCK.RELEASE k a TOKEN 1",
        "LOCK.RELEASE nothing a",
        "LOCK.RENEW k b",
        "LOCK.RENEW nothing a",
        "LOCK.BREAK nothing",
        "LOCK.BREAK k TOKEN 1",
        "LOCK.BREAK hash",
        "LOCK.INFO k WAITERS",
        "LOCK.OWNER",
        "LOCK.HELP",
    ] {
        s.conn.line(line);
        assert_eq!(s.seen(), [""; 0], "{line}");
    }
    let mut b = s.server.conn();
    b.send_line("LOCK.ACQUIRE k b BLOCK 0");
    s.server.wait_for_waiters(1);
    s.conn.line("LOCK.RELEASE k b");
    assert!(b.recv().is_nil());
    assert_eq!(s.seen(), [""; 0], "parked and withdrawn");
}

#[test]
fn a_grant_in_another_database_keeps_the_horizon_in_the_first() {
    let mut s = Stage::fresh();
    s.conn.line("SELECT 3");
    let token = s.take("k", "a");
    let grant = s.grant_of("k", "a", token);
    s.conn.line("SET after 1");
    let horizon = s.server.conn().run(["GET", HORIZON]).text();
    assert!(s.conn.run(["GET", HORIZON]).is_nil());
    let horizon = vec![format!("SET {HORIZON} {horizon}"), "SELECT 3".into()];
    let mut expected = atomic([horizon, grant].concat());
    // The marker of this test is written to database 0.
    expected.extend(["SET after 1".to_string(), "SELECT 0".to_string()]);
    assert_eq!(s.seen(), expected);
}

#[test]
fn a_deferred_grant_in_another_database_is_replicated_there() {
    let mut s = Stage::settled();
    s.conn.line("SELECT 3");
    s.take("k", "a");
    let mut b = s.server.conn();
    b.line("SELECT 3");
    b.send_line("LOCK.ACQUIRE k b PX 60000 BLOCK 0");
    s.server.wait_for_waiters(1);
    s.seen();
    s.conn.line("DEL k");
    let grant = s.grant_of("k", "b", b.recv().int());
    let seen = s.seen();
    assert_eq!(seen[..2], ["SELECT 3", "DEL k"]);
    assert_eq!(seen[2..6], atomic(grant));
    assert_eq!(seen[6..], ["SELECT 0"]);
}

#[test]
fn a_transaction_and_a_script_replicate_the_effects_in_one_transaction() {
    let mut s = Stage::settled();
    let lines = ["LOCK.ACQUIRE k a", "SET x 1", "LOCK.RELEASE k a"];
    s.conn
        .send_lines(&["MULTI", lines[0], lines[1], lines[2], "EXEC"]);
    (0..4).for_each(|_| drop(s.conn.recv()));
    let token = s.conn.recv().list()[0].int();
    let seen = s.seen();
    let hold = format!("HSET k a 1 #token t{token}");
    let last = "PUBLISH redisson_lock__channel:{k} 0";
    let expected = [&hold[..], &seen[2].clone(), "SET x 1", "DEL k", last];
    assert_eq!(seen, atomic(expected));

    let script = "local t = redis.call('LOCK.ACQUIRE', KEYS[1], 'a')
                  redis.call('SET', 'x', 2)
                  redis.call('LOCK.RELEASE', KEYS[1], 'a')
                  return t";
    let token = s.conn.run(["EVAL", script, "1", "k"]).int();
    let seen = s.seen();
    let hold = format!("HSET k a 1 #token t{token}");
    let expected = [&hold[..], &seen[2].clone(), "SET x 2", "DEL k", last];
    assert_eq!(seen, atomic(expected));
}

/// One command of each kind; at the end there are locks in several states.
fn mixed_run(server: &TestServer) {
    let mut conn = server.conn();
    let mut waiter = server.conn();
    let mut park = |conn: &mut Conn, key: &str, ending: &str| {
        waiter.send(["LOCK.ACQUIRE", key, "w", "PX", "60000", "BLOCK", "0"]);
        conn.wait_for_waiters_on(key, 1);
        conn.line(ending);
        assert!(waiter.recv().int() > 0, "{ending}");
    };
    conn.line("LOCK.ACQUIRE held a PX 60000");
    conn.line("LOCK.ACQUIRE held a PX 70000");
    conn.line("LOCK.ACQUIRE renewed a PX 60000");
    conn.line("LOCK.RENEW renewed a PX 90000");
    conn.line("LOCK.ACQUIRE freed a");
    conn.line("LOCK.RELEASE freed a");
    for (key, ending) in [
        ("released", "LOCK.RELEASE released a"),
        ("broken", "LOCK.BREAK broken"),
        ("deleted", "DEL deleted"),
        ("renamed", "RENAME renamed moved"),
        ("expired", "PEXPIRE expired 20"),
    ] {
        conn.run(["LOCK.ACQUIRE", key, "a", "PX", "60000"]);
        park(&mut conn, key, ending);
    }
    conn.run([
        "EVAL",
        "return redis.call('LOCK.ACQUIRE', KEYS[1], 'a', 'PX', 60000)",
        "1",
        "scripted",
    ]);
    conn.line("SELECT 3");
    conn.line("LOCK.ACQUIRE held a PX 60000");
}

#[test]
fn the_aof_has_the_same_text_without_the_messages() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut s = Stage::with(&options);
    mixed_run(&s.server);
    let mut replicated = s.seen();
    assert!(replicated.iter().any(|line| line.starts_with("PUBLISH")));
    replicated.retain(|line| !line.starts_with("PUBLISH"));
    let written = aof_text(&s.server);
    assert!(!written.iter().any(|line| line.starts_with("LOCK.")));
    // Before the stream was attached, only the SELECT of its first marker had been written.
    assert_eq!(written[0], "SELECT 0");
    assert_eq!(written[1..], replicated);
}

#[test]
fn replicas_with_and_without_the_module_hold_the_same_data() {
    let master = TestServer::with(&PROMPT_MASTER);
    let replicas = [TestServer::start(), TestServer::without_module(&[])];
    for replica in &replicas {
        follow(replica, &master);
    }
    mixed_run(&master);
    let digest = master.conn().line("DEBUG DIGEST").text();
    for replica in &replicas {
        wait_until_in_sync(replica, &master);
        assert_eq!(replica.conn().line("DEBUG DIGEST").text(), digest);
        for key in [
            "held", "renewed", "released", "expired", "moved", "scripted",
        ] {
            let on_master = master.conn().snapshot_of(key);
            assert!(on_master.1 > 0, "{key}");
            assert_eq!(replica.conn().snapshot_of(key), on_master, "{key}");
        }
    }
    let [with, without] = &replicas;
    let info = with.conn().line("LOCK.INFO held");
    let holder = info.field("holders").unwrap().list()[0].clone();
    assert_eq!(holder.field("owner").unwrap().text(), "a");
    assert_eq!(holder.field("holds").unwrap().int(), 2);
    for line in ["LOCK.ACQUIRE k x", "LOCK.RELEASE held a", "LOCK.BREAK held"] {
        let refusal = with.conn().line(line).error();
        assert!(refusal.starts_with("READONLY"), "{refusal}");
    }
    assert!(without.conn().line("LOCK.INFO held").is_error());
}

#[test]
fn a_subscriber_of_a_replica_gets_the_release_message() {
    let master = TestServer::with(&PROMPT_MASTER);
    let replica = TestServer::without_module(&[]);
    follow(&replica, &master);
    let mut subscriber = replica.conn();
    subscriber.line("SUBSCRIBE redisson_lock__channel:{k}");
    let mut conn = master.conn();
    conn.line("LOCK.ACQUIRE k a");
    conn.line("LOCK.RELEASE k a");
    let message: Vec<_> = subscriber.recv().list().iter().map(Reply::text).collect();
    assert_eq!(message, ["message", "redisson_lock__channel:{k}", "0"]);
}

#[test]
fn a_demotion_sends_parked_clients_away() {
    let (demoted, master) = (TestServer::start(), TestServer::with(&PROMPT_MASTER));
    let mut conn = demoted.conn();
    conn.line("LOCK.ACQUIRE k a PX 60000");
    let mut waiter = demoted.conn();
    waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
    demoted.wait_for_waiters(1);
    conn.run(["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
    let refusal = waiter.recv().error();
    assert!(refusal.starts_with("UNBLOCKED"), "{refusal}");
    assert!(waiter.is_closed());
    demoted.wait_for_waiters(0);
    // As a master again it grants as before.
    follow(&demoted, &master);
    conn = demoted.conn();
    conn.line("REPLICAOF NO ONE");
    assert!(conn.line("LOCK.ACQUIRE k c").int() > 0);
}

#[test]
fn a_promoted_replica_keeps_the_hold_and_serves_it() {
    let mut master = TestServer::with(&PROMPT_MASTER);
    let replica = TestServer::start();
    follow(&replica, &master);
    let mut conn = master.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    conn.line("LOCK.ACQUIRE k a PX 60000");
    let other = conn.line("LOCK.ACQUIRE other x").int();
    conn.line("LOCK.RELEASE other x");
    wait_until_in_sync(&replica, &master);
    let before = master.conn().snapshot_of("k");
    master.crash();

    let mut conn = replica.conn();
    conn.line("REPLICAOF NO ONE");
    assert_eq!(replica.conn().snapshot_of("k"), before);
    assert!(conn.line("LOCK.ACQUIRE k b").is_nil());
    assert_eq!(conn.line("LOCK.ACQUIRE k a PX 60000 ONCE").int(), token);
    let mut waiter = replica.conn();
    waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
    replica.wait_for_waiters(1);
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 0, "a count of two");
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
    assert!(waiter.recv().int() > other);
    assert!(conn.line("LOCK.ACQUIRE other y").int() > other);
    master.start_again();
}
