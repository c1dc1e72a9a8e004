//! Every event that frees a lock, or makes the key no lock, while a request is parked: one test each. The module must
//! settle the key at once, whatever the event.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::{only_reply, Scene};
use crate::common::scripts::{GIVE, TAKE};
use crate::common::{wait_for, Conn, TestServer, Tries};

/// Runs the lines and asserts that bob becomes the holder; returns his token.
fn hands_off(lines: &[&str]) -> (Scene, i64) {
    let mut scene = Scene::new();
    for line in lines {
        let reply = scene.alice.line(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    let token = scene.assert_bob_is_granted();
    scene.assert_stats(&[("waits_granted", 1), ("waiters", 0), ("panics", 0)]);
    (scene, token)
}

/// Runs the lines and asserts that bob gets this error, and that alice's grant is counted as ended.
fn sends_away(code: &str, lines: &[&str]) {
    let mut scene = Scene::new();
    for line in lines {
        let reply = scene.alice.line(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    let error = only_reply(&mut scene.bob).error();
    assert!(error.starts_with(code), "{error} after {lines:?}");
    scene.assert_stats(&[("waits_failed", 1), ("waiters", 0), ("panics", 0)]);
    scene.assert_stats(&[("grants_lost", 1), ("grants_tracked", 0)]);
}

// Ends by commands of this module, and by time.

#[test]
fn release() {
    let (scene, _) = hands_off(&["LOCK.RELEASE k alice"]);
    scene.assert_stats(&[("grants_released", 1), ("foreign_wakeups", 0)]);
}

/// The timer is armed for the end of a lease that comes soon: work that is due now must arm it anew; otherwise only the
/// server's cron would notice it, here once a second.
#[test]
fn a_release_while_the_timer_is_armed_for_later() {
    const ROUNDS: u32 = 8;
    let server = TestServer::with(&["--hz", "1", "--dynamic-hz", "no"]);
    let mut scene = Scene::waiting(server, "BLOCK 60000");
    let (mut zoe, mut dan) = (scene.server.conn(), scene.server.conn());
    dan.line("SUBSCRIBE outcomes");
    let mut tries = Tries::of(&[ROUNDS]);
    while let Some(rounds) = tries.next_case() {
        let start = Instant::now();
        for _ in 0..rounds {
            // A machine that is so slow that this lease ends has no timer for later.
            zoe.line("LOCK.BREAK other TO zoe PX 1900");
            zoe.line("LOCK.ACQUIRE other dan BLOCK 0 NOTIFY outcomes tag");
            scene.alice.line("LOCK.RELEASE k alice");
            scene.bob.recv().int();
            scene.alice.send_line("LOCK.ACQUIRE k alice BLOCK 60000");
            scene.server.wait_for_waiters(1);
            scene.bob.line("LOCK.RELEASE k bob");
            scene.alice.recv().int();
            scene.bob.send_line("LOCK.ACQUIRE k bob BLOCK 60000");
            scene.server.wait_for_waiters(1);
        }
        let most = Duration::from_secs(1) * rounds;
        tries.took(rounds, start.elapsed(), Duration::ZERO, most);
    }
}

#[test]
fn lock_break() {
    let (scene, _) = hands_off(&["LOCK.BREAK k"]);
    scene.assert_stats(&[("grants_broken", 1), ("foreign_wakeups", 0)]);
}

#[test]
fn the_end_of_the_lease() {
    let (scene, _) = hands_off(&["LOCK.RENEW k alice PX 60"]);
    scene.assert_stats(&[("grants_expired", 1), ("foreign_wakeups", 0)]);
}

#[test]
fn the_end_of_the_lease_without_active_expiry() {
    let mut scene = Scene::new();
    scene.alice.line("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut delays: Vec<u128> = Vec::new();
    let mut holder = "alice".to_string();
    for round in 0..20 {
        scene.alice.line(&format!("LOCK.RENEW k {holder} PX 500"));
        let end = scene.alice.line("PEXPIRETIME k").int() as u128 * 1_000;
        scene.bob.recv().int();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock");
        assert!(
            now.as_micros() >= end,
            "granted before the end of the lease"
        );
        delays.push(now.as_micros() - end);
        // The present holder has a new waiter.
        holder = if round == 0 {
            "bob".into()
        } else {
            format!("w{round}")
        };
        scene.bob = scene.park(&format!("w{}", round + 1));
    }
    delays.sort_unstable();
    println!(
        "lease end to grant, 20 samples: p50 {} us, max {} us",
        delays[10], delays[19]
    );
    scene.assert_stats(&[("waits_granted", 20), ("grants_expired", 20)]);
}

#[test]
fn the_first_of_many_leases_on_many_keys() {
    let server = TestServer::start();
    let mut alice = server.conn();
    alice.line("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut waiters: Vec<Conn> = (0..20).map(|_| server.conn()).collect();
    // Later leases first, so that the timer has to be armed earlier each time.
    for (i, conn) in waiters.iter_mut().enumerate().rev() {
        alice.line(&format!("LOCK.ACQUIRE k{i} alice PX {}", 300 + i * 20));
        conn.send_line(&format!("LOCK.ACQUIRE k{i} bob BLOCK 0"));
    }
    for conn in &mut waiters {
        conn.recv().int();
    }
    assert_eq!(server.stat("grants_expired"), 20);
}

// The key is deleted or moved.

#[test]
fn del() {
    let (scene, _) = hands_off(&["DEL k"]);
    scene.assert_stats(&[("grants_lost", 1), ("foreign_wakeups", 1)]);
}

#[test]
fn unlink() {
    let (scene, _) = hands_off(&["UNLINK k"]);
    scene.assert_stats(&[("grants_lost", 1), ("foreign_wakeups", 1)]);
}

#[test]
fn del_inside_a_transaction_and_a_script() {
    hands_off(&["MULTI", "DEL k", "EXEC"]);
    let mut scene = Scene::new();
    let script = "return redis.call('DEL', KEYS[1])";
    assert_eq!(scene.alice.run(["EVAL", script, "1", "k"]).int(), 1);
    scene.assert_bob_is_granted();
}

#[test]
fn rename_away() {
    let (mut scene, _) = hands_off(&["RENAME k elsewhere"]);
    assert_eq!(scene.alice.line("HGET elsewhere alice").text(), "1");
}

/// By a client of its own: Valkey before the fix of June 2026 (valkey#4024) leaves a client that moved or copied a key
/// in the other database, once any module subscribes to events.
#[test]
fn move_to_another_database() {
    let mut scene = Scene::new();
    assert_eq!(scene.server.conn().line("MOVE k 5").int(), 1);
    scene.assert_bob_is_granted();
    scene.assert_stats(&[("grants_lost", 1), ("foreign_wakeups", 1)]);
}

#[test]
fn flushdb_and_flushall() {
    for flush in [
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "FLUSHALL ASYNC",
        "FLUSHALL SYNC",
    ] {
        let (scene, _) = hands_off(&[flush]);
        scene.assert_stats(&[("grants_lost", 1)]);
    }
}

#[test]
fn a_flush_of_another_database_grants_nothing() {
    let mut scene = Scene::new();
    let mut there = scene.server.conn();
    there.line("SELECT 5");
    there.line("FLUSHDB");
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.assert_held("alice", scene.first);
    scene.assert_stats(&[("grants_lost", 0), ("grants_tracked", 1)]);
}

#[test]
fn swapdb_with_an_empty_database() {
    for swap in ["SWAPDB 0 1", "SWAPDB 1 0"] {
        let (mut scene, token) = hands_off(&[swap]);
        // Alice's lock is in the other database now, where it has no waiter.
        scene.alice.line("SELECT 1");
        scene.assert_held("alice", scene.first);
        scene.alice.line("SELECT 0");
        scene.assert_held("bob", token);
    }
}

#[test]
fn swapdb_with_a_database_where_the_lock_is_held_too() {
    let mut scene = Scene::new();
    scene.alice.line("SELECT 1");
    scene.alice.line("LOCK.ACQUIRE k carol PX 60000");
    scene.alice.line("SWAPDB 0 1");
    assert_stays_silent(&scene.server, &mut scene.bob);
    // The waiter stays in the database of the same number: he waits for carol's lock now.
    scene.alice.line("SELECT 0");
    assert!(scene.alice.line("LOCK.RELEASE k alice").is_nil());
    assert_eq!(scene.alice.line("LOCK.RELEASE k carol").int(), 1);
    scene.assert_bob_is_granted();
}

#[test]
fn swapdb_brings_the_lock_of_the_waiter_of_the_other_database() {
    let mut scene = Scene::new();
    scene.alice.line("SWAPDB 0 1");
    let token = scene.assert_bob_is_granted();
    let mut carol = scene.server.conn();
    carol.line("SELECT 1");
    carol.send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
    scene.server.wait_for_waiters(1);
    // Carol waits for alice in database 1; after the swap bob holds the lock there.
    scene.alice.line("SWAPDB 0 1");
    scene.alice.line("SELECT 1");
    scene.assert_held("bob", token);
    scene.alice.line("LOCK.RELEASE k bob");
    assert!(only_reply(&mut carol).int() > token);
}

#[test]
fn swapdb_moves_a_grant_that_cannot_be_delivered() {
    let mut scene = Scene::new();
    scene.exec(&["LOCK.RELEASE k alice", "SWAPDB 0 1", "CLIENT KILL ID $BOB"]);
    scene.alice.line("SELECT 1");
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[("grants_undone", 1), ("waiters", 0)]);
}

#[test]
fn eviction() {
    let mut scene = Scene::new();
    scene
        .alice
        .line("CONFIG SET maxmemory-policy allkeys-random");
    scene.alice.line("CONFIG SET maxmemory 1");
    let token = only_reply(&mut scene.bob).int();
    assert!(token > scene.first);
    scene.alice.line("CONFIG SET maxmemory 0");
    // His own key might have been evicted next.
    scene.assert_becomes_free_or_held_by("bob", token);
    assert!(scene.server.stat("foreign_wakeups") >= 1);
    scene.assert_stats(&[("eviction_risk", 0), ("panics", 0)]);
}

#[test]
fn debug_reload_changes_nothing_for_waiters() {
    let mut scene = Scene::new();
    scene.alice.line("DEBUG RELOAD");
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.assert_held("alice", scene.first);
    assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 1);
    scene.assert_bob_is_granted();
}

#[test]
fn debug_reload_drops_a_lease_that_ended_meanwhile() {
    let mut scene = Scene::new();
    scene.alice.line("DEBUG SET-ACTIVE-EXPIRE 0");
    scene.alice.line("LOCK.RENEW k alice PX 30");
    scene.alice.send_lines(&["DEBUG SLEEP 0.1", "DEBUG RELOAD"]);
    assert_eq!(scene.alice.recv().text(), "OK");
    assert_eq!(scene.alice.recv().text(), "OK");
    scene.assert_bob_is_granted();
}

// The holder is removed from the hash.

#[test]
fn hdel_of_the_holder_leaves_a_free_lock() {
    hands_off(&["HDEL k alice"]);
}

#[test]
fn hdel_of_everything() {
    hands_off(&["HDEL k alice #token"]);
}

#[test]
fn the_holders_field_expires() {
    let mut scene = Scene::new();
    let expire = ["HPEXPIRE", "k", "50", "FIELDS", "1", "alice"];
    if scene.alice.run(expire).is_error() {
        println!("skipped: this server has no fields that expire");
        return;
    }
    scene.assert_bob_is_granted();
}

// Redisson's scripts.

fn redisson(conn: &mut Conn, script: &str, owner: &str, lease: &str) -> bool {
    let keys = ["2", "k", "redisson_lock__channel:{k}"];
    let words = [&["EVAL", script], &keys[..], &[lease, owner]].concat();
    let reply = conn.run(words);
    assert!(!reply.is_error(), "{reply:?}");
    reply.is_nil()
}

#[test]
fn a_redisson_client_releases() {
    for owner in ["alice", "uuid:1"] {
        let server = TestServer::start();
        let mut redisson_client = server.conn();
        assert!(redisson(&mut redisson_client, TAKE, owner, "60000"));
        assert!(redisson(&mut redisson_client, TAKE, owner, "60000"));
        let mut bob = server.conn();
        bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
        server.wait_for_waiters(1);
        redisson(&mut redisson_client, GIVE, owner, "60000");
        assert_stays_silent(&server, &mut bob);
        redisson(&mut redisson_client, GIVE, owner, "60000");
        assert!(only_reply(&mut bob).int() > 0);
        assert_eq!(redisson_client.line("HGET k bob").text(), "1");
    }
}

#[test]
fn a_redisson_client_releases_what_this_module_granted() {
    let mut scene = Scene::new();
    redisson(&mut scene.alice, GIVE, "alice", "60000");
    scene.assert_bob_is_granted();
}

#[test]
fn a_redisson_hold_taken_within_one_script_keeps_the_waiters_parked() {
    let mut scene = Scene::new();
    // One script frees the key and takes it again: the waiter cannot be granted between.
    let script = "redis.call('del', KEYS[1]); redis.call('hincrby', KEYS[1], 'uuid:1', 1); \
        redis.call('pexpire', KEYS[1], 60000)";
    scene.alice.run(["EVAL", script, "1", "k"]);
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.assert_stats(&[("waiters", 1), ("grants_lost", 1), ("grants_tracked", 0)]);
    redisson(&mut scene.alice, GIVE, "uuid:1", "60000");
    scene.assert_bob_is_granted();
}

#[test]
fn a_redisson_hold_taken_before_a_waiter_can_end_by_its_lease() {
    let mut scene = Scene::new();
    scene.alice.line("DEBUG SET-ACTIVE-EXPIRE 0");
    let script = "redis.call('del', KEYS[1]); redis.call('hincrby', KEYS[1], 'uuid:1', 1); \
        redis.call('pexpire', KEYS[1], 80)";
    scene.alice.run(["EVAL", script, "1", "k"]);
    scene.assert_bob_is_granted();
}

// The lease is changed from outside.

#[test]
fn pexpire_to_a_shorter_lease() {
    for line in ["PEXPIRE k 50", "PEXPIRE k 50 LT"] {
        hands_off(&["DEBUG SET-ACTIVE-EXPIRE 0", line]);
    }
}

#[test]
fn an_expiry_in_the_past() {
    for line in ["EXPIREAT k 1", "PEXPIRE k -1", "PEXPIREAT k 1"] {
        hands_off(&["DEBUG SET-ACTIVE-EXPIRE 0", line]);
    }
}

/// Waits until more time has passed than alice's lease had left when it was changed.
fn outlive_the_old_lease(scene: &mut Scene, change: &str) {
    scene.alice.line("LOCK.RENEW k alice PX 2000");
    scene.alice.line("SET later 1 PX 2100");
    assert_eq!(scene.alice.line(change).int(), 1);
    let alice = &mut scene.alice;
    wait_for("the end of the old lease", || {
        alice.line("EXISTS later").int() == 0
    });
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.assert_stats(&[("waiters", 1), ("waits_granted", 0)]);
}

#[test]
fn pexpire_to_a_longer_lease_makes_the_waiter_wait_longer() {
    let mut scene = Scene::new();
    outlive_the_old_lease(&mut scene, "PEXPIRE k 60000");
    scene.alice.line("PEXPIRE k 1");
    scene.assert_bob_is_granted();
}

#[test]
fn persist_makes_the_waiter_wait_for_the_release() {
    let mut scene = Scene::new();
    outlive_the_old_lease(&mut scene, "PERSIST k");
    assert_eq!(scene.alice.line("PTTL k").int(), -1);
    scene.alice.line("LOCK.RELEASE k alice");
    scene.assert_bob_is_granted();
}

// Another value replaces the lock.

#[test]
fn string_commands_overwrite_it() {
    for line in [
        "SET k v",
        "SETEX k 100 v",
        "MSET k v",
        "BITOP AND k none other",
    ] {
        let lines = ["SET other value", line];
        sends_away("WRONGTYPE", &lines);
    }
}

#[test]
fn store_commands_overwrite_it() {
    sends_away("WRONGTYPE", &["SADD s 1 2", "SUNIONSTORE k s"]);
    sends_away("WRONGTYPE", &["SADD s 1 2", "SINTERSTORE k s s"]);
    sends_away("WRONGTYPE", &["ZADD z 1 a", "ZUNIONSTORE k 1 z"]);
    sends_away("WRONGTYPE", &["ZADD z 1 a", "ZRANGESTORE k z 0 -1"]);
    sends_away(
        "WRONGTYPE",
        &[
            "GEOADD g 1 1 a",
            "GEOSEARCHSTORE k g FROMMEMBER a BYRADIUS 1 m",
        ],
    );
    sends_away("WRONGTYPE", &["RPUSH l 2 1", "SORT l STORE k"]);
}

#[test]
fn an_empty_result_stored_over_it_frees_it() {
    hands_off(&["SUNIONSTORE k none"]);
    hands_off(&["ZUNIONSTORE k 1 none"]);
    hands_off(&["SORT none STORE k"]);
}

#[test]
fn copy_and_rename_onto_it() {
    sends_away("WRONGTYPE", &["SET s v", "COPY s k REPLACE"]);
    sends_away("WRONGTYPE", &["SET s v", "RENAME s k"]);
    sends_away("WRONGTYPE", &["XADD s * a 1", "RENAME s k"]);
    sends_away("LOCKTYPE", &["HSET h name Ada", "RENAME h k"]);
}

#[test]
fn restore_onto_it() {
    let mut scene = Scene::new();
    scene.alice.line("RPUSH l 1");
    let dump = scene.alice.line("DUMP l").bytes();
    let restore: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &dump, b"REPLACE"];
    assert_eq!(scene.alice.run(restore).text(), "OK");
    assert!(only_reply(&mut scene.bob).error().starts_with("WRONGTYPE"));
}

#[test]
fn deleted_and_created_as_another_type() {
    for anew in [
        "RPUSH k 1",
        "ZADD k 1 a",
        "XADD k * a 1",
        "SADD k 1",
        "APPEND k v",
    ] {
        sends_away("WRONGTYPE", &["MULTI", "DEL k", anew, "EXEC"]);
    }
    sends_away("LOCKTYPE", &["MULTI", "DEL k", "HSET k name Ada", "EXEC"]);
}

#[test]
fn a_second_field_or_a_count_that_is_no_number_is_no_lock() {
    sends_away("LOCKTYPE", &["HSET k eve 1"]);
    sends_away("LOCKTYPE", &["HSET k alice many"]);
    sends_away("LOCKTYPE", &["HSET k #token 7"]);
    sends_away("LOCKTYPE", &["HINCRBY k alice -1"]);
}

#[test]
fn another_lock_renamed_onto_it_is_waited_for() {
    let mut scene = Scene::new();
    let carols = scene.alice.line("LOCK.ACQUIRE other carol PX 60000").int();
    scene.alice.line("RENAME other k");
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.assert_held("carol", carols);
    // Carol's hold is lost under its old name, alice's under the new one.
    scene.assert_stats(&[("grants_lost", 2), ("waiters", 1)]);
    assert_eq!(scene.alice.line("LOCK.RELEASE k carol").int(), 1);
    scene.assert_bob_is_granted();
}

#[test]
fn a_change_of_the_value_but_not_the_holder_grants_nothing() {
    let mut scene = Scene::new();
    scene.alice.line("HINCRBY k alice 1");
    scene.alice.line("TOUCH k");
    scene.alice.line("EXPIRE k 1000");
    assert_stays_silent(&scene.server, &mut scene.bob);
    assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 0);
    assert_stays_silent(&scene.server, &mut scene.bob);
    assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 1);
    scene.assert_bob_is_granted();
}
