//! Grants that replicas have to have.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use redis_lock_client::{Error, Lock, Mode, MultiLock, Released, Semaphore, Server};
use redis_lock_harness::cluster::{move_slot, slot_of, Cluster};
use redis_lock_harness::replica::follow;
use redis_lock_harness::sentinel::Watched;
use redis_lock_harness::TestServer;

use crate::places::sentinel_client;
use crate::servers::{client, patient, until, until_waits, LONG, PATIENT};
use crate::{lock, until_free};

/// Enough for the replica that there is, also on a busy machine.
const REFUSED: Duration = Duration::from_secs(2);

/// A primary, and a replica that has its data.
fn pair() -> (TestServer, TestServer) {
    let (primary, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &primary);
    (primary, replica)
}

/// The lock whose grant this number of replicas is to have: one there is, two there are not.
fn replicated(lock: &Lock, wanted: u32) -> Lock {
    let within = if wanted == 1 { LONG } else { REFUSED };
    lock.clone().replicas(wanted).replicas_within(within)
}

/// Is granted, and released.
async fn is_confirmed(lock: &Lock) {
    let held = replicated(lock, 1).acquire().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Yes);
}

fn is_refused(error: &Error) {
    let says = "1 of 2 replicas have the grant within 2000 ms";
    assert!(error.to_string().ends_with(says), "{error}");
    let (wanted, had) = match error {
        Error::NotReplicated { wanted, had, .. } => (*wanted, *had),
        other => panic!("{other:?}"),
    };
    assert_eq!((wanted, had), (2, 1));
}

/// Nothing is left of it, and another owner gets the lock.
async fn is_given_up(error: Error, real: &TestServer, server: &Server) {
    is_refused(&error);
    assert!(server.settled().await.is_empty());
    until_free(real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_confirmed_by_replicas_or_given_up() {
    let (primary, replica) = pair();
    let server = client(&primary);
    let lock = lock(&server);
    let guard = replicated(&lock, 1).acquire().await.unwrap();
    let owner = String::from_utf8(guard.owner().to_vec()).unwrap();
    let copy = replica.conn().line(&format!("HGET k {owner}")).text();
    assert_eq!(copy, "1");
    assert!(!guard.valid_for().is_zero());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);

    let error = replicated(&lock, 2).try_acquire().await.unwrap_err();
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
    for wanted in [1, 2] {
        let holder = lock.acquire().await.unwrap();
        let waiter = replicated(&lock, wanted);
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
        is_confirmed(&lock).await;
        let error = replicated(&lock, 2).acquire().await.unwrap_err();
        is_given_up(error, &primary, &server).await;
    }
    let both = |wanted| {
        let lock = |key| replicated(&Lock::new(&server, key), wanted);
        MultiLock::new(["k", "l"].map(lock)).unwrap()
    };
    let held = both(1).acquire().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    let error = both(2).acquire().await;
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
        let lock = replicated(&Lock::new(&server, key), 1);
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
    let says = "0 of 1 replicas have the grant within 100 ms";
    assert!(error.to_string().ends_with(says), "{error}");
    replica.signal(libc::SIGCONT);
}

/// A connection of the looks that has ended is opened anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_of_the_looks_costs_no_grant() {
    let (primary, _replica) = pair();
    let server = client(&primary);
    for _ in 0..3 {
        is_confirmed(&lock(&server)).await;
        primary.conn().line("CLIENT KILL TYPE normal SKIPME yes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_the_replicas_of_the_node_of_the_key_are_asked() {
    let mut cluster = Cluster::with(2_000, &[]);
    let url = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[0].port);
    let server = patient(&url);
    for node in 0..3 {
        let lock = Lock::new(&server, cluster.key_of(node, "k"));
        is_confirmed(&lock).await;
        is_refused(&replicated(&lock, 2).acquire().await.unwrap_err());
    }

    // The slot moves between the grant and the look, whose connection is the second one. The former node, which has no
    // replica, is not waited for.
    cluster.nodes[3].crash();
    let key = cluster.key_of(0, "moves");
    let (opens, opened) = sync_channel(0);
    let count = AtomicUsize::new(0);
    let server = Server::builder(&url).response_timeout(PATIENT);
    let server = server.credentials(move || {
        if count.fetch_add(1, Ordering::Relaxed) == 1 {
            // Received before the move, and behind it.
            opens.send("before").unwrap();
            opens.send("behind").unwrap();
        }
        (Some("default".into()), "any".into())
    });
    let lock = Lock::new(&server.build().unwrap(), &key).lease(LONG);
    let held = lock.replicas(1).replicas_within(Duration::from_secs(600));
    let held = tokio::spawn(async move { held.acquire().await.unwrap() });
    tokio::task::block_in_place(|| {
        opened.recv().unwrap();
        let source = &cluster.nodes[0];
        assert_eq!(source.conn().run(["EXISTS", &key]).int(), 1);
        let slot = slot_of(&mut source.conn(), &key);
        move_slot(source, &cluster.nodes[1], slot);
        opened.recv().unwrap();
    });
    let held = held.await.unwrap();
    let mut replica = cluster.nodes[4].conn();
    assert_eq!(replica.run(["READONLY"]).text(), "OK");
    assert_eq!(replica.run(["EXISTS", &key]).int(), 1);
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    cluster.nodes[3].start_again();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replicas_of_the_primary_that_sentinels_name_are_asked() {
    let watched = tokio::task::block_in_place(Watched::start);
    let lock = lock(&sentinel_client(&watched, ""));
    let both = lock.clone().replicas(2).replicas_within(LONG);
    let held = both.acquire().await.unwrap();
    for replica in &watched.servers[1..] {
        assert_eq!(replica.conn().line("EXISTS k").int(), 1);
    }
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    let three = lock.replicas(3).acquire().await.unwrap_err();
    assert!(
        matches!(three, Error::NotReplicated { wanted: 3, .. }),
        "{three}"
    );
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
