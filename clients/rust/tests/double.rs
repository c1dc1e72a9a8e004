//! The double of a server: what a program's own tests do with it.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use redis_lock_client::testing::Double;
use redis_lock_client::{
    Error, Guard, Lock, LockInfo, LostReason, Mode, MultiLock, Released, Reply, Semaphore, Server,
};

const LEASE: Duration = Duration::from_secs(30);

fn server(double: &Double) -> Server {
    double.builder().build().unwrap()
}

fn wait(lock: &Lock) -> tokio::task::JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

async fn until_waits(lock: &Lock, count: u64) {
    while lock.info().await.unwrap().waiters != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_by_one_owner_and_waited_for_in_order() {
    let double = Double::new();
    let lock = Lock::new(&server(&double), "k");
    assert_eq!(lock.info().await.unwrap(), LockInfo::default());
    let guard = lock.acquire().await.unwrap();
    let info = lock.info().await.unwrap();
    assert_eq!((info.mode, info.waiters), (Some(Mode::Exclusive), 0));
    assert_eq!(info.holders[0].token, Some(guard.token()));
    assert_eq!(info.holders[0].remaining, Some(LEASE));
    let other = Lock::new(&server(&double), "k");
    assert!(other.try_acquire().await.unwrap().is_none());
    let wait_of = Duration::from_millis(20);
    assert!(other.acquire_within(wait_of).await.unwrap().is_none());
    let first = wait(&other);
    until_waits(&lock, 1).await;
    let second = wait(&lock);
    until_waits(&lock, 2).await;
    let full = lock.clone().queue(2).acquire().await.unwrap_err();
    assert!(matches!(full, Error::QueueFull { .. }), "{full}");
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let first = first.await.unwrap();
    assert!(first.token() > token && !second.is_finished());
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    assert_eq!(
        second.await.unwrap().release().await.unwrap(),
        Released::Yes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_is_withdrawn() {
    let double = Double::new();
    let server = server(&double);
    let lock = Lock::new(&server, "k");
    let guard = lock.acquire().await.unwrap();
    let waiting = wait(&lock);
    until_waits(&lock, 1).await;
    waiting.abort();
    assert!(server.settled().await.is_empty());
    until_waits(&lock, 0).await;
    drop(guard);
    assert!(server.settled().await.is_empty());
    assert_eq!(lock.info().await.unwrap(), LockInfo::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_hold_together_and_a_writer_alone() {
    let double = Double::new();
    let lock = Lock::new(&server(&double), "k");
    let (reader, writer) = (lock.clone().mode(Mode::Read), lock.mode(Mode::Write));
    let readers = [
        reader.acquire().await.unwrap(),
        reader.acquire().await.unwrap(),
    ];
    assert_eq!(reader.info().await.unwrap().holders.len(), 2);
    let writing = wait(&writer);
    until_waits(&writer, 1).await;
    assert!(
        reader.try_acquire().await.unwrap().is_none(),
        "it waits behind"
    );
    drop(readers);
    let written = writing.await.unwrap();
    assert!(reader.try_acquire().await.unwrap().is_none());
    assert_eq!(written.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_limited() {
    let double = Double::new();
    let permits = Semaphore::new(&server(&double), "s");
    let missing = permits.try_acquire().await.unwrap_err();
    assert!(matches!(missing, Error::NoSemaphore { .. }), "{missing}");
    permits.set(3).await.unwrap();
    let two = permits.clone().count(2).acquire().await.unwrap();
    assert!(permits
        .clone()
        .count(2)
        .try_acquire()
        .await
        .unwrap()
        .is_none());
    let one = permits.acquire().await.unwrap();
    let info = permits.info().await.unwrap().unwrap();
    assert_eq!((info.permits, info.free, info.held), (3, 0, 3));
    assert_eq!(one.release().await.unwrap(), Released::Yes);
    assert_eq!(two.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_keys_are_held_together_or_not_at_all() {
    let double = Double::new();
    let server = server(&double);
    let [a, b] = ["a", "b"].map(|key| Lock::new(&server, key));
    let both = MultiLock::new([a.clone(), b.clone()]).unwrap();
    let held = both.acquire().await.unwrap();
    assert!(a.try_acquire().await.unwrap().is_none());
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    let one = b.acquire().await.unwrap();
    assert!(both.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { both.acquire().await.unwrap() });
    until_waits(&a, 1).await;
    assert_eq!(one.release().await.unwrap(), Released::Yes);
    drop(waiting.await.unwrap());
}

/// What a client renews stays held, also when it has waited for it meanwhile; what was left ends, and waits with their
/// bounds.
#[tokio::test(flavor = "multi_thread")]
async fn time_passes_for_the_server_and_its_clients() {
    let double = Double::new();
    let server = server(&double);
    let [kept, left] = ["kept", "left"].map(|key| Lock::new(&server, key));
    let guard = kept.acquire().await.unwrap();
    let session = Lock::new(&server, "session").session();
    let bound = session.acquire().await.unwrap();
    let leaving = left.acquire().await.unwrap();
    assert_eq!(leaving.leave(LEASE).await.unwrap(), Released::Yes);
    let within = |lock: &Lock, bound| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire_within(bound).await.unwrap() })
    };
    let short = within(&left, LEASE / 2);
    until_waits(&left, 1).await;
    let long = within(&left, LEASE * 3);
    until_waits(&left, 2).await;
    let both = MultiLock::new([kept.clone(), left.clone()]).unwrap();
    let both = tokio::spawn(async move { both.acquire_within(LEASE * 5).await.unwrap() });
    until_waits(&kept, 1).await;
    double.advance(LEASE * 4);
    assert!(short.await.unwrap().is_none());
    let next = long.await.unwrap().expect("granted when the lease ended");
    double.advance(LEASE * 4);
    assert!(both.await.unwrap().is_none());
    for held in [guard, next, bound] {
        assert!(held.valid_for() > Duration::ZERO);
        assert_eq!(held.release().await.unwrap(), Released::Yes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_comes_on_demand() {
    let double = Double::new();
    let lock = Lock::new(&server(&double), "k");
    let guard = lock.acquire().await.unwrap();
    let next = wait(&lock);
    until_waits(&lock, 1).await;
    double.lose("k");
    assert_eq!(guard.lost().reason(), Some(LostReason::Taken));
    assert!(next.await.unwrap().token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_when_replicas_have_it() {
    let double = Double::new();
    let lock = Lock::new(&server(&double), "k").replicas(2);
    let refused = lock.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::NotReplicated { had: 0, .. }));
    double.replicas(2);
    drop(lock.acquire().await.unwrap());
}

/// One owner may hold both: an upgrade overtakes a writer that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_writes_reads_under_the_same_token() {
    let double = Double::new();
    let lock = Lock::new(&server(&double), "k").owner("me");
    let reading = lock.clone().mode(Mode::Read).acquire().await.unwrap();
    let other = wait(&lock.clone().owner("other").mode(Mode::Write));
    until_waits(&lock, 1).await;
    let writing = lock.clone().mode(Mode::Write).acquire().await.unwrap();
    assert!(writing.token() > reading.token());
    let fenced = reading.execute(["GET", "n"]).await.unwrap_err();
    assert!(fenced.to_string().contains("FENCED"), "{fenced}");
    assert_eq!(writing.execute(["GET", "n"]).await.unwrap(), Reply::Nil);
    assert_eq!(writing.release().await.unwrap(), Released::Yes);
    assert_eq!(reading.release().await.unwrap(), Released::Yes);
    drop(other.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_under_the_fence() {
    let double = Double::new();
    let lock = Lock::new(&server(&double), "k");
    let guard = lock.acquire().await.unwrap();
    let ok = Reply::Bytes(b"OK".to_vec());
    assert_eq!(guard.execute(["SET", "n", "6"]).await.unwrap(), ok);
    assert_eq!(
        guard.execute(["INCR", "n"]).await.unwrap(),
        Reply::Integer(7)
    );
    let seven = Reply::Bytes(b"7".to_vec());
    assert_eq!(guard.execute(["GET", "n"]).await.unwrap(), seven);
    double.lose("k");
    let late = guard.execute(["DEL", "n"]).await.unwrap_err();
    assert!(matches!(late, Error::Lost(LostReason::Taken)), "{late}");
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.execute(["GET", "n"]).await.unwrap(), seven);
    let (owner, token) = (guard.owner().to_vec(), guard.token());
    assert_eq!(guard.leave(LEASE).await.unwrap(), Released::Yes);
    let resumed = lock.resume(&owner, token).await.unwrap();
    assert_eq!(
        resumed.execute(["DEL", "n"]).await.unwrap(),
        Reply::Integer(1)
    );
    assert!(!resumed.valid_for().is_zero());
}
