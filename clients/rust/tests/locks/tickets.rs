//! Waits that share one subscription: connections, order, breaks of the subscription, and servers without tickets.

use std::time::{Duration, Instant};

use redis_lock_client::{Lock, Mode, Released};
use redis_lock_harness::cluster::{slot_of, two_nodes};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::TestServer;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::order::{connections, joined, until_connections, waits, Order};
use crate::servers::{client, patient, prompt, through, until, until_waits, with_timeout, LONG};
use crate::{lock, until_free, wait, LEASE};

/// The place of a waiter is kept for a minute, unless it is withdrawn.
const PLACES_STAY: [&str; 2] = ["--lock.queue-grace", "60000"];

/// The channels with subscribers.
fn channels(real: &TestServer) -> Vec<String> {
    let reply = real.conn().line("PUBSUB CHANNELS lock:tickets:*");
    reply.list().iter().map(|name| name.text()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_whose_reply_was_lost_is_asked_for_again() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let holder = lock(&client(&real)).acquire().await.unwrap();
    let server = through(&proxy);
    let first = wait(&lock(&server));
    until_waits(&real, 1);
    proxy.swallow_reply_to("NOTIFY");
    let second = wait(&lock(&server));
    until("a lost reply", || proxy.has_swallowed());
    until("another request", || real.stat("tickets_queued") >= 3);
    until_waits(&real, 2);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    assert_eq!(first.await.unwrap().release().await.unwrap(), Released::Yes);
    assert_eq!(
        second.await.unwrap().release().await.unwrap(),
        Released::Yes
    );
    assert_eq!(real.stat("grants"), 3);
}

/// The network is cut while the lock is granted. The client gives the connections up, and the message with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_message_died_is_found_again() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(1));
    let holder = lock(&client(&real)).acquire().await.unwrap();
    let waiter = wait(&lock(&server));
    until_waits(&real, 1);
    proxy.cut(true);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    until("a grant", || real.stat("grants") == 2);
    // sleep: longer than a probe of the subscription and its reply may take
    tokio::time::sleep(Duration::from_secs(5)).await;
    proxy.cut(false);
    // Sooner than a ticket is asked for again by itself.
    let guard = timeout(LONG / 3, waiter).await.expect("a grant").unwrap();
    assert_eq!(real.stat("grants"), 2);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

/// Any client may publish to the channel.
#[tokio::test(flavor = "multi_thread")]
async fn a_false_message_grants_nothing() {
    let real = TestServer::start();
    let server = client(&real);
    let holder = lock(&server).acquire().await.unwrap();
    let waiter = wait(&lock(&server));
    until_waits(&real, 1);
    let channel = channels(&real).remove(0);
    let mut conn = real.conn();
    for message in ["granted 7 1", "granted 7 99", "granted", "x y z"] {
        let heard = conn.run(["PUBLISH", channel.as_str(), message]);
        assert_eq!(heard.int(), 1);
    }
    until("a ticket again", || real.stat("tickets_queued") == 2);
    assert!(!waiter.is_finished());
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    assert_eq!(
        waiter.await.unwrap().release().await.unwrap(),
        Released::Yes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_waits_are_withdrawn() {
    let real = TestServer::with(&PLACES_STAY);
    let server = client(&real);
    let holder = lock(&server).acquire().await.unwrap();
    let order = Order::default();
    let tasks = waits(&lock(&server), 100, &order);
    until_waits(&real, 100);
    tasks.iter().for_each(JoinHandle::abort);
    until("no ticket", || {
        real.stat("tickets") + real.stat("places_kept") == 0
    });
    assert!(server.settled().await.is_empty());
    assert_eq!(real.stat("tickets_withdrawn"), 100);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    until_free(&real);
    assert_eq!(real.stat("grants"), 1);
}

/// The grant and the withdrawal cross each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_dropped_at_any_moment_of_its_grant_leaves_nothing() {
    let real = TestServer::start();
    let server = client(&real);
    for round in 0..100 {
        let holder = lock(&server).acquire().await.unwrap();
        let waiter = wait(&lock(&server));
        until_waits(&real, 1);
        let release = tokio::spawn(holder.release());
        // sleep: sweeps the moment at which the grant arrives
        tokio::time::sleep(Duration::from_micros(10 * round)).await;
        waiter.abort();
        assert_eq!(release.await.unwrap().unwrap(), Released::Yes);
        drop(waiter.await);
        until_free(&real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bounded_waits_end_with_their_tickets() {
    let real = TestServer::start();
    let server = client(&real);
    let _holder = lock(&server).acquire().await.unwrap();
    let bound = Duration::from_millis(300);
    let wait = |_| {
        let lock = lock(&server);
        tokio::spawn(async move {
            let start = Instant::now();
            let end = lock.acquire_within(bound).await.unwrap();
            // The server counts in whole milliseconds.
            end.is_none() && start.elapsed() >= bound - Duration::from_millis(1)
        })
    };
    for task in (0..100).map(wait).collect::<Vec<_>>() {
        assert!(task.await.unwrap());
    }
    assert_eq!(server.statistics().acquisitions_refused, 100);
    assert!(server.settled().await.is_empty());
    assert_eq!(real.stat("tickets"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bounded_waits_end_on_a_server_that_hangs() {
    let real = TestServer::start();
    let server = prompt(&real);
    let holder = lock(&server).acquire().await.unwrap();
    let bound = Duration::from_secs(8);
    let wait = |_| {
        let lock = lock(&server);
        tokio::spawn(async move {
            let start = Instant::now();
            let end = lock.acquire_within(bound).await;
            end.is_err_and(|error| error.is_passing()) && start.elapsed() >= bound
        })
    };
    let tasks: Vec<_> = (0..200).map(wait).collect();
    // The client has the replies: a wait that was never answered ends earlier.
    until("places", || server.statistics().waiting == 200);
    real.signal(libc::SIGSTOP);
    for task in tasks {
        assert!(task.await.unwrap());
    }
    real.signal(libc::SIGCONT);
    until_waits(&real, 0);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    assert!(server.settled().await.is_empty());
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_granted_together() {
    let real = TestServer::start();
    let server = client(&real);
    let reader = lock(&server).mode(Mode::Read);
    let writer = lock(&server).mode(Mode::Write).acquire().await.unwrap();
    let readers = [wait(&reader), wait(&reader), wait(&reader)];
    until_waits(&real, 3);
    assert_eq!(writer.release().await.unwrap(), Released::Yes);
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap());
    }
    let next = wait(&lock(&server).mode(Mode::Write));
    until_waits(&real, 1);
    drop(guards);
    assert_eq!(next.await.unwrap().release().await.unwrap(), Released::Yes);
    assert_eq!(real.stat("tickets_granted"), 4);
}

/// The lease is so short that a grant would be over if it were counted from the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_after_a_long_wait_is_valid_and_never_longer_than_on_the_server() {
    let real = TestServer::start();
    let server = client(&real);
    let lease = Duration::from_secs(10);
    let holder = lock(&server).acquire().await.unwrap();
    let waiter = wait(&lock(&server).lease(lease));
    until_waits(&real, 1);
    // sleep: a wait of more than the lease
    tokio::time::sleep(lease + lease / 10).await;
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = waiter.await.unwrap();
    let mut conn = real.conn();
    for _ in 0..5 {
        let left = conn.line("PTTL k").int();
        let valid = guard.valid_for();
        assert!(
            valid <= Duration::from_millis(left.unsigned_abs() + 1),
            "{valid:?} {left}"
        );
        assert!(!valid.is_zero());
        // sleep: over some renewals
        tokio::time::sleep(lease / 10).await;
    }
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_an_error_where_tickets_are_turned_off() {
    let real = TestServer::with(&["--lock.max-tickets", "0"]);
    let lock = lock(&client(&real));
    let holder = lock.acquire().await.unwrap();
    let error = lock.acquire().await.unwrap_err();
    assert!(error.to_string().contains("lock.max-tickets"), "{error}");
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_beyond_the_limit_of_tickets_are_queued_when_there_is_a_place() {
    let real = TestServer::with(&["--lock.max-tickets", "2"]);
    let server = client(&real);
    let holder = lock(&server).acquire().await.unwrap();
    let order = Order::default();
    let tasks = waits(&lock(&server), 4, &order);
    until("two tickets", || real.stat("tickets") == 2);
    until("two without a place", || server.statistics().unreached == 2);
    assert_eq!(server.statistics().waiting, 2);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    joined(tasks).await;
    assert_eq!(real.stat("grants"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_of_users_without_permission_are_refused() {
    let real = TestServer::start();
    let holder = lock(&client(&real)).acquire().await.unwrap();
    let all = "~* &* +lock.acquire +lock.renew +lock.release";
    let rules = [
        ("none", format!("{all} resetchannels")),
        (
            "channel",
            format!("{all} resetchannels +publish +subscribe"),
        ),
        ("publish", format!("{all} +subscribe")),
        ("subscribe", format!("{all} +publish")),
    ];
    for (user, rules) in rules {
        let set = format!("ACL SETUSER {user} on >secret {rules}");
        assert_eq!(real.conn().line(&set).text(), "OK");
        let url = format!("redis://{user}:secret@127.0.0.1:{}", real.port);
        let server = patient(&url);
        let error = lock(&server).acquire().await.unwrap_err();
        assert!(error.to_string().contains("NOPERM"), "{user}: {error}");
    }
    let rules = format!("{all} resetchannels &lock:tickets:* +publish +subscribe");
    real.conn()
        .line(&format!("ACL SETUSER app on >secret {rules}"));
    let url = format!("redis://app:secret@127.0.0.1:{}", real.port);
    let server = patient(&url);
    let waiter = wait(&lock(&server));
    until_waits(&real, 1);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    assert_eq!(
        waiter.await.unwrap().release().await.unwrap(),
        Released::Yes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_for_keys_of_many_slots_share_a_connection_to_each_node() {
    let (first, second) = two_nodes(&[]);
    let url = format!("redis+cluster://127.0.0.1:{}", first.port);
    let server = patient(&url);
    let idle = [&first, &second].map(connections);
    let mut conn = first.conn();
    let mut waiters = Vec::new();
    let mut slots = std::collections::BTreeSet::new();
    for n in 0..40 {
        let lock = Lock::new(&server, format!("k{n}")).lease(LEASE);
        slots.insert(slot_of(&mut conn, &format!("k{n}")));
        let holder = lock.acquire().await.unwrap();
        waiters.push((holder, wait(&lock)));
    }
    until("40 tickets", || {
        first.stat("tickets") + second.stat("tickets") == 40
    });
    let channels = |real: &TestServer| {
        let reply = real.conn().line("PUBSUB SHARDCHANNELS lock:tickets:*");
        reply.list().len()
    };
    assert_eq!(channels(&first) + channels(&second), slots.len());
    for (real, idle) in [(&first, idle[0]), (&second, idle[1])] {
        until_connections(real, idle + 3);
    }
    for (holder, waiter) in waiters {
        assert_eq!(holder.release().await.unwrap(), Released::Yes);
        assert_eq!(
            waiter.await.unwrap().release().await.unwrap(),
            Released::Yes
        );
    }
}
