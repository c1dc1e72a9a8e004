//! The ordinary use of a lock.

use std::time::Duration;

use redis_lock_client::{Error, Lock, LostReason, Mode, Released, Search};
use redis_lock_harness::TestServer;

use crate::{client, lock, until, until_free, until_waited, wait, LONG, RENEWED};

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_holds_a_lock_at_a_time_and_its_tokens_rise() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let first = lock.try_acquire().await.unwrap().expect("a free lock");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let token = first.token();
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    let second = lock.try_acquire().await.unwrap().expect("a free lock");
    assert!(second.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_validity_is_the_lease_less_a_millisecond() {
    let real = TestServer::start();
    let lock = |lease| lock(&client(&real)).lease(Duration::from_millis(lease));
    let guard = lock(10_000).acquire().await.unwrap();
    assert!(guard.valid_for() < Duration::from_millis(9_999));
    let error = lock(1).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("two milliseconds"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_granted_when_the_holder_drops_its_guard() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let first = lock.acquire().await.unwrap();
    let waiter = wait(&lock);
    until_waited(&real, 1);
    let token = first.token();
    drop(first);
    assert!(waiter.await.unwrap().token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_was_not_enough_leaves_nothing() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let first = lock.acquire().await.unwrap();
    let wait = Duration::from_millis(50);
    assert!(lock.acquire_within(wait).await.unwrap().is_none());
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    until_free(&real);
    assert_eq!(real.stat("grants"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lock_is_reported_as_lost() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).acquire().await.unwrap();
    real.conn().line("LOCK.BREAK k");
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_for_as_long_as_it_is_held() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).lease(RENEWED).acquire().await.unwrap();
    for renewals in 1..=2 {
        until("a renewal", || {
            assert!(guard.valid_for() > Duration::ZERO);
            real.stat("renewals") >= renewals
        });
    }
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_hold_together_and_a_writer_alone() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let (reading, writing) = (
        lock.clone().mode(Mode::Read),
        lock.clone().mode(Mode::Write),
    );
    let readers = [
        reading.acquire().await.unwrap(),
        reading.acquire().await.unwrap(),
    ];
    assert!(writing.try_acquire().await.unwrap().is_none());
    let writer = wait(&writing);
    until_waited(&real, 1);
    for reader in readers {
        assert_eq!(reader.release().await.unwrap(), Released::Yes);
    }
    let writer = writer.await.unwrap();
    assert!(reading.try_acquire().await.unwrap().is_none());
    assert_eq!(writer.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_by_name_holds_is_granted_to_it_again_and_may_be_released_elsewhere() {
    let real = TestServer::start();
    let here = lock(&client(&real)).owner("worker-7");
    let there = lock(&client(&real)).owner("worker-7");
    let first = here.acquire().await.unwrap();
    assert_eq!(first.owner(), b"worker-7");
    let same = there.try_acquire().await.unwrap().expect("its own");
    assert_eq!(same.token(), first.token());
    assert_eq!(same.release().await.unwrap(), Released::Yes);
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(real.stat("finals"), 0);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_by_name_reads_and_writes() {
    let real = TestServer::start();
    let lock = lock(&client(&real)).owner("worker-7");
    let reader = lock.clone().mode(Mode::Read).acquire().await.unwrap();
    let writer = lock.clone().mode(Mode::Write).acquire().await.unwrap();
    assert!(writer.token() > reader.token());
    assert_eq!(writer.release().await.unwrap(), Released::Yes);
    assert_eq!(reader.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_has_the_code_and_text_of_the_server() {
    let real = TestServer::start();
    real.conn().line("SET k plain");
    let error = lock(&client(&real)).acquire_within(LONG).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let nothing = lock(&client(&real)).lease(Duration::ZERO);
    assert!(nothing.try_acquire().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_module_the_error_says_what_to_load() {
    let real = TestServer::without_module(&[]);
    let error = Lock::new(&client(&real), "k").acquire_within(LONG).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("loadmodule"), "{error}");
    assert!(error.contains(&real.port.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_locks_are_held_through_one_connection() {
    const LOCKS: usize = 500;
    let real = TestServer::start();
    let server = client(&real);
    let mut guards = Vec::new();
    for i in 0..LOCKS {
        let lock = Lock::new(&server, format!("k{i}"));
        guards.push(lock.try_acquire().await.unwrap().expect("a free lock"));
    }
    until("renewals of all", || {
        server.statistics().renewals >= LOCKS as u64
    });
    assert!(guards.iter().all(|guard| !guard.valid_for().is_zero()));
    // Beside ours: the harness' own.
    let clients = real.info_field("stats", "total_connections_received");
    let clients: usize = clients.parse().unwrap();
    assert!(clients < LOCKS, "{clients} connections");
    assert_eq!(real.stat("grants_expired"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_response_timeout_still_acquires() {
    let real = TestServer::start();
    let server = client(&real).response_timeout(Duration::MAX);
    let guard = lock(&server).try_acquire().await.unwrap().unwrap();
    assert!(lock(&server)
        .acquire_within(Duration::from_millis(20))
        .await
        .unwrap()
        .is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_runs_under_a_lock_until_its_end_or_the_loss() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    until_free(&real);

    let guard = lock.acquire().await.unwrap();
    let work = tokio::spawn(guard.run(std::future::pending::<()>()));
    real.conn().line("LOCK.BREAK k");
    let stopped = work.await.unwrap().unwrap_err();
    assert!(
        matches!(stopped, Error::Lost(LostReason::Taken)),
        "{stopped}"
    );

    // The loss is found at the release.
    let guard = lock.acquire().await.unwrap();
    let broken = guard
        .run(async { real.conn().line("LOCK.BREAK k").int() })
        .await;
    assert!(matches!(broken, Err(Error::Lost(_))), "{broken:?}");
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_watcher_of_losses_outlives_the_releases() {
    let real = TestServer::start();
    let server = client(&real);
    let mut watchers = Vec::new();
    for n in 0..1_000 {
        let guard = Lock::new(&server, format!("k{n}")).acquire().await.unwrap();
        watchers.push(tokio::spawn(guard.lost()));
        match n % 2 {
            0 => drop(guard),
            _ => assert_eq!(guard.release().await.unwrap(), Released::Yes),
        }
    }
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), None);
    }
}

/// One process acquires, a second takes the hold over, a third finds it gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_left_for_its_time_and_taken_over_by_its_owner_and_token() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let guard = lock.acquire().await.unwrap();
    let (owner, token) = (guard.owner().to_vec(), guard.token());
    assert_eq!(guard.leave(LONG).await.unwrap(), Released::Yes);
    let left = real.conn().line("PTTL k").int();
    assert!(
        u128::try_from(left).unwrap() > LONG.as_millis() / 2,
        "{left}"
    );
    assert!(lock.adopt(token).await.is_err(), "without its owner");
    let named = lock.owner(owner);
    assert!(named.adopt(token + 1).await.unwrap().is_none());
    let adopted = named.adopt(token).await.unwrap().expect("the hold");
    assert_eq!(adopted.token(), token);
    assert_eq!(adopted.release().await.unwrap(), Released::Yes);
    assert!(named.adopt(token).await.unwrap().is_none());
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_asked_for_its_locks() {
    let real = TestServer::start();
    let server = client(&real);
    assert!(server.info("k", 0).await.unwrap().is_none());
    let guard = lock(&server).acquire().await.unwrap();
    let info = server.info("k", 0).await.unwrap().unwrap();
    assert_eq!(info.holders[0].token, Some(guard.token()));
    assert_eq!(server.module_counters().await.unwrap()["grants"], 1);
    assert!(server.readiness("k").await.unwrap().is_primary);
    let mut scan = server.scan(Search::held()).await.unwrap();
    let mut found = Vec::new();
    while let Some(keys) = scan.step().await.unwrap() {
        found.extend(keys);
    }
    assert_eq!(found, [b"k"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_beside_the_hold_and_beside_the_wait() {
    let real = TestServer::start();
    let server = client(&real);
    let guard = Lock::new(&server, "k")
        .note("first")
        .acquire()
        .await
        .unwrap();
    let noted = Lock::new(&server, "k").note(b"\xff");
    let waiting = tokio::spawn(async move { noted.acquire().await });
    until_waited(&real, 1);
    let info = server.info("k", 1).await.unwrap().unwrap();
    assert_eq!(info.holders[0].note.as_deref(), Some(&b"first"[..]));
    assert_eq!(info.queue[0].note.as_deref(), Some(&b"\xff"[..]));
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let next = waiting.await.unwrap().unwrap();
    let info = server.info("k", 0).await.unwrap().unwrap();
    assert_eq!(info.holders[0].note.as_deref(), Some(&b"\xff"[..]));
    assert_eq!(next.release().await.unwrap(), Released::Yes);
    for mode in [Mode::Read, Mode::Write] {
        let refused = Lock::new(&server, "k").mode(mode).note("x").acquire().await;
        assert!(refused.unwrap_err().to_string().contains("note"), "{mode}");
    }
    let noted = Lock::new(&server, "k").note("x");
    assert!(redis_lock_client::MultiLock::new([noted]).is_err());
}
