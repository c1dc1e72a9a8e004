//! Locks whose server is not always the same one: in a cluster, and behind sentinels.

use std::time::Duration;

use redis_lock_client::{Lock, Released, Server};
use redis_lock_harness::cluster::{
    begin_move, end_move, migrate_keys, move_slot, slot_of, two_nodes, Cluster,
};
use redis_lock_harness::replica::wait_until_in_sync;
use redis_lock_harness::sentinel::{Watched, NAME};
use redis_lock_harness::TestServer;

use crate::servers::{patient, until, until_waits};
use crate::{until_free, wait};

fn cluster_client(seeds: &[&TestServer]) -> Server {
    let seeds: Vec<_> = seeds
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port))
        .collect();
    patient(&format!("redis+cluster://{}", seeds.join(",")))
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_node_is_asked_first() {
    let (first, second) = two_nodes(&[]);
    for seed in [&first, &second] {
        let lock = Lock::new(&cluster_client(&[seed]), "k");
        let guard = lock.acquire().await.unwrap();
        assert_eq!(first.conn().line("EXISTS k").int(), 1);
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_moves_while_it_is_held_and_waited_for() {
    let (first, second) = two_nodes(&[]);
    let lock = Lock::new(&cluster_client(&[&first]), "k");
    let holder = lock.acquire().await.unwrap();
    let waiter = wait(&lock);
    until_waits(&first, 1);
    let slot = slot_of(&mut first.conn(), "k");
    tokio::task::block_in_place(|| move_slot(&first, &second, slot));
    until_waits(&second, 1);
    assert_eq!(second.stat("tickets"), 1);
    until("a renewal at the new node", || second.stat("renewals") > 0);
    let token = holder.token();
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = waiter.await.unwrap();
    assert!(guard.token() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&second);
}

/// The key has gone to the new node, and the slot has not: `-ASK`.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_renewed_in_the_middle_of_its_move() {
    let (first, second) = two_nodes(&[]);
    let lock = Lock::new(&cluster_client(&[&first]), "k");
    let holder = lock.acquire().await.unwrap();
    let slot = slot_of(&mut first.conn(), "k");
    tokio::task::block_in_place(|| {
        begin_move(&first, &second, slot);
        migrate_keys(&first, &second, slot);
    });
    until("a renewal at the new node", || second.stat("renewals") > 0);
    assert!(!holder.valid_for().is_zero());
    // Other acquisitions wait at most for the end of the move.
    let waiter = wait(&lock);
    assert!(lock
        .try_acquire()
        .await
        .map_or(true, |guard| guard.is_none()));
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    tokio::task::block_in_place(|| end_move(&first, &second, slot));
    let guard = waiter.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_is_dead_is_no_harm() {
    let (first, mut second) = two_nodes(&[]);
    let server = cluster_client(&[&second, &first]);
    let lock = Lock::new(&server, "k");
    second.crash();
    let guard = lock.try_acquire().await.unwrap().expect("a free lock");
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    second.start_again();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_death_of_its_node() {
    let mut cluster = tokio::task::block_in_place(|| Cluster::with(1_000, &[]));
    let key = cluster.key_of(0, "k");
    // Only the node that dies is named: the others are learnt.
    let server = cluster_client(&[&cluster.nodes[0], &cluster.nodes[1]]);
    let lock = Lock::new(&server, &key);
    let holder = lock.acquire().await.unwrap();
    let waiter = wait(&lock);
    until_waits(&cluster.nodes[0], 1);
    tokio::task::block_in_place(|| {
        wait_until_in_sync(&cluster.nodes[3], &cluster.nodes[0]);
        cluster.nodes[0].crash();
        cluster.wait_for_primary(3);
    });
    until_waits(&cluster.nodes[3], 1);
    assert_eq!(cluster.nodes[3].stat("tickets"), 1);
    until("a renewal", || cluster.nodes[3].stat("renewals") > 0);
    let token = holder.token();
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = waiter.await.unwrap();
    assert!(guard.token() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    cluster.nodes[0].start_again();
}

/// The primary that these sentinels name.
pub fn sentinel_client(watched: &Watched, query: &str) -> Server {
    let ports = watched.sentinel_ports();
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let url = format!("redis+sentinel://{}/{NAME}/0{query}", hosts.join(","));
    patient(&url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_death_of_the_primary_that_sentinels_name() {
    let mut watched = tokio::task::block_in_place(Watched::start);
    let server = sentinel_client(&watched, "");
    let lock = Lock::new(&server, "k").lease(Duration::from_secs(24));
    let holder = lock.acquire().await.unwrap();
    let waiter = wait(&lock);
    // A program that only waits, and knows of one sentinel: no holder's renewals find the new primary for it.
    let first = &watched.servers[0];
    first.conn().line("LOCK.ACQUIRE other raw PX 600000");
    let url = format!(
        "redis+sentinel://127.0.0.1:{}/{NAME}",
        watched.sentinel_ports()[0]
    );
    let lone = Lock::new(&patient(&url), "other");
    let lone = wait(&lone);
    until_waits(first, 2);
    let new = tokio::task::block_in_place(|| {
        for replica in &watched.servers[1..] {
            wait_until_in_sync(replica, &watched.servers[0]);
        }
        watched.servers[0].crash();
        watched.wait_for_another_primary_than(0)
    });
    let primary = &watched.servers[new];
    until_waits(primary, 2);
    assert_eq!(primary.stat("tickets"), 2);
    primary.conn().line("LOCK.RELEASE other raw");
    assert_eq!(lone.await.unwrap().release().await.unwrap(), Released::Yes);
    until("a renewal", || primary.stat("renewals") > 0);
    let token = holder.token();
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = waiter.await.unwrap();
    assert!(guard.token() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    watched.servers[0].start_again();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_by_a_user_of_their_own() {
    let watched = tokio::task::block_in_place(Watched::start);
    for port in watched.sentinel_ports() {
        let mut conn = redis_lock_harness::Conn::open(port);
        let rules = "ACL SETUSER app on >secret +sentinel|get-master-addr-by-name";
        assert_eq!(conn.line(rules).text(), "OK");
        assert_eq!(conn.line("ACL SETUSER default -sentinel").text(), "OK");
    }
    let stranger = Lock::new(&sentinel_client(&watched, ""), "k");
    let error = stranger.try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error}");
    let query = "?sentinel-user=app&sentinel-password=secret";
    let lock = Lock::new(&sentinel_client(&watched, query), "k");
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_sentinel_is_named_as_such() {
    let real = TestServer::start();
    let url = format!("redis+sentinel://127.0.0.1:{}/{NAME}", real.port);
    let lock = Lock::new(&patient(&url), "k");
    let error = lock.try_acquire().await.unwrap_err().to_string();
    assert_eq!(error, format!("127.0.0.1:{}/0 is no sentinel", real.port));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_no_sentinel_knows_is_an_error_at_once() {
    let watched = tokio::task::block_in_place(Watched::start);
    let ports = watched.sentinel_ports();
    let url = format!("redis+sentinel://127.0.0.1:{}/nobody", ports[0]);
    let lock = Lock::new(&patient(&url), "k");
    let error = lock.acquire().await.unwrap_err();
    assert!(error.to_string().contains("'nobody'"), "{error}");
}
