//! Grants that replicas have to have.

use std::time::Duration;

use redis_lock_client::{Error, Lock, Mode, MultiLock, Released, Semaphore, Server};
use redis_lock_harness::cluster::Cluster;
use redis_lock_harness::replica::follow;
use redis_lock_harness::TestServer;

use crate::servers::{client, patient, until, until_waits, LONG};
use crate::{lock, until_free};

/// Enough for the replica that there is, also on a busy machine.
const REFUSED: Duration = Duration::from_secs(2);

/// A primary, and a replica that has its data.
fn pair() -> (TestServer, TestServer) {
    let (primary, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &primary);
    (primary, replica)
}

/// Nothing is left of it, and another owner gets the lock.
async fn is_given_up(error: Error, real: &TestServer, server: &Server) {
    assert!(
        error
            .to_string()
            .ends_with("1 of 2 replicas have the grant within 2000 ms"),
        "{error}"
    );
    let expected = matches!(
        error,
        Error::NotReplicated {
            wanted: 2,
            had: 1,
            ..
        }
    );
    assert!(expected, "{error:?}");
    assert!(server.settled().await.is_empty());
    until_free(real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_confirmed_by_replicas_or_given_up() {
    let (primary, replica) = pair();
    let server = client(&primary);
    let lock = lock(&server);
    let guard = lock.clone().replicas(1).replicas_within(LONG);
    let guard = guard.acquire().await.unwrap();
    let owner = String::from_utf8(guard.owner().to_vec()).unwrap();
    let copy = replica.conn().line(&format!("HGET k {owner}")).text();
    assert_eq!(copy, "1");
    assert!(!guard.valid_for().is_zero());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);

    let of_two = lock.clone().replicas(2).replicas_within(REFUSED);
    let error = of_two.try_acquire().await.unwrap_err();
    assert_eq!(primary.conn().line("EXISTS k").int(), 0);
    let next = lock.try_acquire().await.unwrap().expect("a free lock");
    assert_eq!(next.release().await.unwrap(), Released::Yes);
    is_given_up(error, &primary, &server).await;
    assert_eq!(server.statistics().acquisitions_failed, 1);
    assert_eq!(server.statistics().holds, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_after_a_wait_is_confirmed_or_given_up() {
    let (primary, _replica) = pair();
    let server = client(&primary);
    let lock = lock(&server);
    for (wanted, within) in [(1, LONG), (2, REFUSED)] {
        let holder = lock.acquire().await.unwrap();
        let waiter = lock.clone().replicas(wanted).replicas_within(within);
        let waiter = tokio::spawn(async move { waiter.acquire().await });
        until_waits(&primary, 1);
        assert_eq!(holder.release().await.unwrap(), Released::Yes);
        match waiter.await.unwrap() {
            Ok(guard) if wanted == 1 => {
                assert_eq!(guard.release().await.unwrap(), Released::Yes);
            }
            Err(error) if wanted == 2 => is_given_up(error, &primary, &server).await,
            other => panic!("{wanted}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_permits_and_several_keys_are_confirmed_or_given_up() {
    let (primary, _replica) = pair();
    let server = client(&primary);
    for mode in [Mode::Read, Mode::Write] {
        let lock = lock(&server).mode(mode);
        let held = lock.clone().replicas(1).replicas_within(LONG);
        let held = held.acquire().await.unwrap();
        assert_eq!(held.release().await.unwrap(), Released::Yes);
        let error = lock
            .replicas(2)
            .replicas_within(REFUSED)
            .acquire()
            .await
            .unwrap_err();
        is_given_up(error, &primary, &server).await;
    }
    let both = |wanted, within| {
        let lock = |key| {
            Lock::new(&server, key)
                .replicas(wanted)
                .replicas_within(within)
        };
        MultiLock::new(["k", "l"].map(lock)).unwrap()
    };
    let held = both(1, LONG).acquire().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    let error = both(2, REFUSED).acquire().await;
    is_given_up(error.unwrap_err(), &primary, &server).await;
    let permits = Semaphore::new(&server, "s").limit(1);
    let held = permits.clone().replicas(1).replicas_within(LONG);
    let held = held.acquire().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    let error = permits.clone().replicas(2).replicas_within(REFUSED);
    let error = error.acquire().await.unwrap_err();
    is_given_up(error, &primary, &server).await;
    let held = permits.info().await.unwrap().map(|info| info.held);
    assert_eq!(held, Some(0));
}

/// What is asked meanwhile goes by other connections, and further looks go together.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stands_still_delays_nothing_else() {
    let (primary, replica) = pair();
    let server = client(&primary);
    replica.signal(libc::SIGSTOP);
    let confirmed = |key: &str| {
        let lock = Lock::new(&server, key).replicas(1).replicas_within(LONG);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let is_blocked = |count: &str| primary.info_field("clients", "blocked_clients") == count;
    let first = confirmed("k");
    until("a WAIT", || is_blocked("1"));
    let others = ["a", "b", "c"].map(confirmed);
    until("the grants of the others", || {
        let mut conn = primary.conn();
        conn.line("EXISTS a b c").int() == 3
    });
    let free = Lock::new(&server, "free").acquire().await.unwrap();
    assert_eq!(free.release().await.unwrap(), Released::Yes);
    assert!(is_blocked("1"));
    replica.signal(libc::SIGCONT);
    for held in [first].into_iter().chain(others) {
        assert_eq!(held.await.unwrap().release().await.unwrap(), Released::Yes);
    }
    replica.signal(libc::SIGSTOP);
    let error = lock(&server).replicas(1).acquire().await.unwrap_err();
    let expected = matches!(
        error,
        Error::NotReplicated {
            wanted: 1,
            had: 0,
            ..
        }
    );
    assert!(expected, "{error:?}");
    replica.signal(libc::SIGCONT);
}

/// A connection of the looks that has ended is opened anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_of_the_looks_costs_no_grant() {
    let (primary, _replica) = pair();
    let server = client(&primary);
    let lock = lock(&server).replicas(1).replicas_within(LONG);
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        primary.conn().line("CLIENT KILL TYPE normal SKIPME yes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_the_replicas_of_the_node_of_the_key_are_asked() {
    let cluster = Cluster::with(2_000, &[]);
    cluster.wait_until_whole();
    let nodes: Vec<_> = cluster.nodes.iter().take(3).collect();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes[0].port);
    let server = patient(&url);
    for node in 0..3 {
        let key = cluster.key_of(node, "k");
        let lock = Lock::new(&server, &key);
        let held = lock.clone().replicas(1).replicas_within(LONG);
        let held = held.acquire().await.unwrap();
        assert_eq!(held.release().await.unwrap(), Released::Yes);
        let error = lock
            .replicas(2)
            .replicas_within(REFUSED)
            .acquire()
            .await
            .unwrap_err();
        let expected = matches!(
            error,
            Error::NotReplicated {
                wanted: 2,
                had: 1,
                ..
            }
        );
        assert!(expected, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replicas_cannot_confirm_is_an_error_of_use() {
    let server = Server::open("redis://127.0.0.1:1").unwrap();
    let lock = lock(&server);
    for wrong in [
        lock.clone().replicas(0),
        lock.clone().replicas(101),
        lock.clone().replicas_within(LONG),
        lock.clone().replicas(1).replicas_within(Duration::ZERO),
        lock.clone().session().replicas(1),
    ] {
        let error = wrong.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    }
}
