//! The ordinary use of a lock.

use std::time::Duration;

use redis_lock_client::{
    block_on, Error, Guard, Lock, LockInfo, LostReason, Mode, MultiLock, Released, Reply, Search,
    Semaphore,
};
use redis_lock_harness::TestServer;

use crate::servers::{at, client, patient, until, until_waits, with_timeout, LONG, PATIENT};
use crate::{lock, until_free, wait, LEASE, RENEWED};

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
    until_waits(&real, 1);
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
    until_waits(&real, 1);
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
    let server = with_timeout(real.port, Duration::MAX);
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

    // Work to which the guard is lent.
    let guard = lock.acquire().await.unwrap();
    let count = async |guard: &Guard| guard.execute(["INCR", "n"]).await;
    let counted = tokio::spawn(guard.run_with(count)).await.unwrap();
    assert_eq!(counted.unwrap().unwrap(), Reply::Integer(1));
    until_free(&real);

    let guard = lock.acquire().await.unwrap();
    let work = guard.run_with(async |_| std::future::pending::<()>().await);
    let work = tokio::spawn(work);
    real.conn().line("LOCK.BREAK k");
    let stopped = work.await.unwrap().unwrap_err();
    assert!(matches!(stopped, Error::Lost(_)), "{stopped}");

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

/// One process acquires, a second resumes, a third finds the hold gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_left_for_its_time_and_resumed_by_its_owner_and_token() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = lock(&server);
    let guard = lock.acquire().await.unwrap();
    let (owner, token) = (guard.owner().to_vec(), guard.token());
    assert_eq!(guard.leave(LONG).await.unwrap(), Released::Yes);
    let left = real.conn().line("PTTL k").int();
    assert!(
        u128::try_from(left).unwrap() > LONG.as_millis() / 2,
        "{left}"
    );
    let session = lock.clone().session().resume(&owner, token).await;
    assert!(matches!(session.unwrap_err(), Error::Config { .. }));
    let wrong = lock.resume(&owner, token + 1).await.unwrap_err();
    assert!(matches!(wrong, Error::Lost(LostReason::Taken)), "{wrong}");
    let resumed = lock.resume(&owner, token).await.unwrap();
    assert_eq!((resumed.owner(), resumed.token()), (&owner[..], token));
    assert!(resumed.valid_for() > LEASE / 2);
    let statistics = server.statistics();
    assert_eq!((statistics.acquisitions, statistics.releases), (2, 1));
    assert_eq!(resumed.release().await.unwrap(), Released::Yes);
    let gone = lock.resume(&owner, token).await.unwrap_err();
    assert!(matches!(gone, Error::Lost(LostReason::Taken)), "{gone}");
    real.conn().line("SET k 1");
    let other = lock.resume(&owner, token).await.unwrap_err();
    assert!(matches!(other, Error::Lost(LostReason::Taken)), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_hold_is_renewed_and_lost_as_any_other() {
    let real = TestServer::start();
    let reader = lock(&client(&real)).mode(Mode::Read).lease(RENEWED);
    let token = real
        .conn()
        .line("LOCK.ACQUIRE k me READ PX 600000")
        .int()
        .try_into()
        .unwrap();
    let resumed = reader.resume("me", token).await.unwrap();
    until("a renewal", || real.stat("renewals") > 1);
    real.conn().line("DEL k");
    assert_eq!(resumed.lost().await, Some(LostReason::Taken));
}

/// The hold is the other process's still.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumption_without_an_answer_gives_nothing_up() {
    let real = TestServer::start();
    let token = real.conn().line("LOCK.ACQUIRE k me PX 600000").int();
    let server = with_timeout(real.port, Duration::from_millis(500));
    server.ping().await.unwrap();
    real.signal(libc::SIGSTOP);
    let resumed = lock(&server).resume("me", token.try_into().unwrap()).await;
    let error = resumed.unwrap_err();
    assert!(matches!(error, Error::Unheard { .. }), "{error}");
    real.signal(libc::SIGCONT);
    assert!(server.settled().await.is_empty());
    assert_eq!(real.conn().line("HGET k me").text(), "1");
}

/// Its owner is enough for a permit.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_resumed_by_its_owner() {
    let real = TestServer::start();
    let server = client(&real);
    let token = real.conn().line("SEM.ACQUIRE k me LIMIT 2 PX 600000").int();
    let token = token.try_into().unwrap();
    let permits = Semaphore::new(&server, "k").lease(LONG * 2);
    let other = permits.resume("other", token).await.unwrap_err();
    assert!(matches!(other, Error::Lost(LostReason::Taken)), "{other}");
    let resumed = permits.resume("me", token).await.unwrap();
    assert_eq!((resumed.owner(), resumed.token()), (&b"me"[..], token));
    assert_eq!(resumed.release().await.unwrap(), Released::Yes);
    let held = permits.info().await.unwrap().map(|info| info.held);
    assert_eq!(held, Some(0));
    assert!(permits.resume("me", token).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_left_for_more_than_no_time() {
    let real = TestServer::start();
    let server = client(&real);
    let guard = lock(&server).acquire().await.unwrap();
    let error = guard.leave(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(server.settled().await.is_empty());
    until_free(&real);
}

/// Over both protocols: RESP2 has no maps.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_tells_who_holds_it_and_how_many_wait() {
    let real = TestServer::with(&["--lock.string-holders", "yes"]);
    for protocol in [2, 3] {
        let url = format!("redis://127.0.0.1:{}?protocol={protocol}", real.port);
        let lock = lock(&patient(&url));
        assert_eq!(lock.info().await.unwrap(), LockInfo::default());
        let mut conn = real.conn();
        let token = conn.line("LOCK.ACQUIRE k me PX 600000 NOTE here").int();
        conn.line("LOCK.ACQUIRE k me PX 600000");
        let mut waiting = real.conn();
        waiting.send_line("LOCK.ACQUIRE k other BLOCK 0");
        until_waits(&real, 1);
        let info = lock.info().await.unwrap();
        assert_eq!((info.mode, info.waiters), (Some(Mode::Exclusive), 1));
        let [holder] = &info.holders[..] else {
            panic!("{info:?}")
        };
        assert_eq!((&holder.owner[..], holder.holds), (&b"me"[..], 2));
        assert_eq!(holder.note.as_deref(), Some(&b"here"[..]));
        assert_eq!(holder.token, Some(token.try_into().unwrap()));
        assert!(holder.remaining > Some(LONG) && holder.held < Some(LONG));
        conn.line("LOCK.BREAK k PURGE");
        assert!(waiting.recv().is_error());
        conn.line("LOCK.ACQUIRE k one READ");
        conn.line("LOCK.ACQUIRE k two READ");
        let info = lock.info().await.unwrap();
        assert_eq!((info.mode, info.holders.len()), (Some(Mode::Read), 2));
        conn.line("DEL k");
        conn.line("SET k secret PX 600000");
        let info = lock.info().await.unwrap();
        assert_eq!(
            (info.mode, info.holders[0].token),
            (Some(Mode::String), None)
        );
        conn.line("DEL k");
        conn.line("RPUSH k 1");
        let error = lock.info().await.unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"));
        conn.line("DEL k");
    }
    let asked = lock(&client(&real)).mode(Mode::String).try_acquire().await;
    assert!(matches!(asked.unwrap_err(), Error::Config { .. }));
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
    let ready = server.readiness("k").await.unwrap();
    assert!(ready.is_primary && ready.wait_error.is_none());
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
    until_waits(&real, 1);
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

/// The time of the program's runtime is no measure of a lease.
#[tokio::test(start_paused = true)]
async fn a_runtime_whose_time_is_paused_has_the_time_of_the_machine() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let guard = lock.acquire().await.unwrap();
    tokio::time::advance(LONG * 10).await;
    let left = guard.valid_for();
    assert!(
        !left.is_zero() && left <= Duration::from_secs(30),
        "{left:?}"
    );
    assert_eq!(guard.lost().reason(), None);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let again = lock
        .acquire_within(LONG)
        .await
        .unwrap()
        .expect("a free lock");
    assert_eq!(again.release().await.unwrap(), Released::Yes);
}

/// It is given back after a lease, and acquired anew when the future is polled.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_not_kept_for_a_future_that_is_not_polled() {
    let real = TestServer::start();
    let server = client(&real);
    let short = lock(&server).lease(Duration::from_secs(1));
    let several = MultiLock::new([short.clone()]).unwrap();
    let (mut one, mut all) = (Box::pin(short.acquire()), Box::pin(several.acquire()));
    // One poll sends a request over an open connection.
    server.ping().await.unwrap();
    for is_one in [true, false] {
        let before = real.stat("grants");
        let poll = std::future::poll_fn(|context| {
            use std::future::Future;
            let is_pending = match is_one {
                true => one.as_mut().poll(context).is_pending(),
                false => all.as_mut().poll(context).is_pending(),
            };
            std::task::Poll::Ready(is_pending)
        });
        // No answer comes within that poll.
        real.signal(libc::SIGSTOP);
        assert!(poll.await);
        real.signal(libc::SIGCONT);
        until("the grant", || real.stat("grants") > before);
        until_free(&real);
        match is_one {
            true => drop(one.as_mut().await.unwrap()),
            false => drop(all.as_mut().await.unwrap()),
        }
        until_free(&real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_may_be_left_held_for_ever() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).acquire().await.unwrap();
    assert_eq!(guard.leave(Duration::MAX).await.unwrap(), Released::Yes);
    let holders = real.conn().line("LOCK.INFO k").field("holders").unwrap();
    assert!(holders.list()[0].field("pttl").unwrap().int() > 3_000_000_000_000);
}

/// A hold of another lock is renewed while the program's source of credentials blocks.
#[test]
fn a_source_of_credentials_may_block() {
    let real = TestServer::start();
    let kept = block_on(lock(&client(&real)).lease(Duration::from_secs(3)).acquire()).unwrap();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let slow = at(real.port).credentials(move || {
        let _ = blocked.lock().unwrap().recv();
        (None, "secret".into())
    });
    let slow = slow.response_timeout(PATIENT).build().unwrap();
    let asking = std::thread::spawn(move || block_on(slow.ping()));
    let renewals = real.stat("renewals");
    until("renewals", || real.stat("renewals") >= renewals + 3);
    assert_eq!(kept.lost().reason(), None);
    drop(release);
    drop(asking.join().unwrap());
    drop(kept);
}
