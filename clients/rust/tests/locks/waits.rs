//! Waits during failures of the server and of the connection.

use std::time::{Duration, Instant};

use redis_lock_client::{Guard, Lock, Released, Server};
use redis_lock_harness::{patience, TestServer, Tries};

use crate::servers::{client, prompt, through, until, until_waits, with_timeout, LONG};
use crate::{lock, until_free, wait};
use redis_lock_harness::proxy::Proxy;

/// Ends every connection except that of the command.
fn kill_connections(real: &TestServer) {
    real.conn().line("CLIENT KILL TYPE pubsub");
    real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
}

/// How many requests have waited so far, parked or as tickets.
fn waited(real: &TestServer) -> u64 {
    real.stat("waits_parked") + real.stat("tickets_queued")
}

/// One hold, of this guard's grant.
fn assert_held_once(real: &TestServer, guard: &Guard) {
    let info = real.conn().line("LOCK.INFO k");
    let holders = info.field("holders").unwrap().list();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].field("owner").unwrap().bytes(), guard.owner());
    assert_eq!(holders[0].field("holds").unwrap().int(), 1);
    let token = u64::try_from(holders[0].field("token").unwrap().int()).unwrap();
    assert_eq!(token, guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_loses_its_connection_keeps_its_place() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    for round in 0..3 {
        let holder = lock.acquire().await.unwrap();
        let first = wait(&lock);
        until_waits(&real, 1);
        let second = wait(&lock);
        until_waits(&real, 2);
        let before = waited(&real);
        kill_connections(&real);
        until("both wait again", || {
            waited(&real) >= before + 2 && real.waits() == 2
        });
        assert_eq!(holder.release().await.unwrap(), Released::Yes);
        let first = first.await.unwrap();
        assert!(!second.is_finished(), "round {round}");
        assert_held_once(&real, &first);
        assert_eq!(first.release().await.unwrap(), Released::Yes);
        assert_eq!(
            second.await.unwrap().release().await.unwrap(),
            Released::Yes
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_on_a_server_that_was_started_again() {
    let mut real = TestServer::with(&["--appendonly", "yes"]);
    let lock = lock(&client(&real));
    real.conn().line("LOCK.ACQUIRE k raw PX 60000");
    let waiter = wait(&lock);
    until_waits(&real, 1);
    tokio::task::block_in_place(|| real.crash_and_restart());
    until_waits(&real, 1);
    assert_eq!(real.conn().line("LOCK.RELEASE k raw").int(), 1);
    assert_held_once(&real, &waiter.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_while_the_server_loads_its_data() {
    let mut real = TestServer::with(&["--appendonly", "yes"]);
    real.conn().line("DEBUG POPULATE 2000");
    real.conn().line("LOCK.ACQUIRE k raw PX 60000");
    real.conn().line("BGREWRITEAOF");
    until("a small AOF", || {
        real.info_field("persistence", "aof_rewrite_in_progress") == "0"
            && real.info_field("persistence", "aof_rewrite_scheduled") == "0"
    });
    let waiter = wait(&lock(&client(&real)));
    until_waits(&real, 1);
    real.add_option("--key-load-delay", "500");
    real.add_option("--loading-process-events-interval-bytes", "1024");
    tokio::task::block_in_place(|| real.crash_and_restart());
    assert!(real
        .conn()
        .line("INFO errorstats")
        .text()
        .contains("LOADING"));
    until_waits(&real, 1);
    assert_eq!(real.conn().line("LOCK.RELEASE k raw").int(), 1);
    assert_held_once(&real, &waiter.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_through_the_delay_after_a_start() {
    let real = TestServer::with(&["--lock.startup-delay", "60000"]);
    let lock = lock(&client(&real));
    let error = lock.try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("LOCKDELAY"), "{error}");
    let waiter = wait(&lock);
    until_waits(&real, 1);
    real.conn().line("CONFIG SET lock.startup-delay 0");
    assert_held_once(&real, &waiter.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_while_its_server_is_a_replica_for_a_while() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k raw PX 60000");
    let waiter = wait(&lock(&client(&real)));
    until_waits(&real, 1);
    // The replica of a server that does not exist: its data stays.
    real.conn().line("REPLICAOF 127.0.0.1 1");
    until("a request that was refused", || {
        real.conn()
            .line("INFO errorstats")
            .text()
            .contains("READONLY")
    });
    assert!(!waiter.is_finished());
    real.conn().line("REPLICAOF NO ONE");
    until_waits(&real, 1);
    assert_eq!(real.conn().line("LOCK.RELEASE k raw").int(), 1);
    assert_held_once(&real, &waiter.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_reply_was_lost_is_repeated() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let lock = lock(&through(&proxy));
    proxy.swallow_reply_to("LOCK.ACQUIRE");
    let guard = lock.try_acquire().await.unwrap().expect("a free lock");
    assert!(proxy.has_swallowed());
    assert_eq!(real.stat("grants"), 1);
    assert_held_once(&real, &guard);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_whose_reply_was_lost_is_repeated() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let holder = lock(&client(&real)).acquire().await.unwrap();
    proxy.swallow_reply_to("BLOCK");
    let waiter = wait(&lock(&through(&proxy)));
    until("a request that waits", || proxy.has_swallowed());
    until_waits(&real, 1);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = waiter.await.unwrap();
    assert_eq!(real.stat("grants"), 2);
    assert_held_once(&real, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_reply_was_lost_is_sent_again() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let guard = lock(&through(&proxy)).acquire().await.unwrap();
    proxy.swallow_reply_to("LOCK.RELEASE");
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    assert!(proxy.has_swallowed());
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_waits_for_a_server_that_starts_again() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let guard = lock(&client(&real)).acquire().await.unwrap();
    real.crash();
    let release = tokio::spawn(guard.release());
    tokio::task::block_in_place(|| real.start_again());
    assert_eq!(release.await.unwrap().unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_where_nothing_listens_is_an_error_at_once() {
    let mut real = TestServer::start();
    let known = client(&real);
    known.ping().await.unwrap();
    let no_database = Server::open(&format!("redis://127.0.0.1:{}/99", real.port)).unwrap();
    assert!(no_database.ping().await.is_err());
    real.crash();
    for server in [client(&real), known] {
        let lock = lock(&server);
        let told = [
            lock.acquire().await.unwrap_err(),
            lock.acquire_within(LONG).await.unwrap_err(),
            lock.session().acquire().await.unwrap_err(),
        ];
        for error in told {
            assert!(error.is_passing(), "{error}");
            let text = error.to_string();
            for part in [&real.port.to_string(), "Connection refused"] {
                assert!(text.contains(part), "{text}");
            }
        }
        let now = server.statistics();
        assert_eq!((now.waits, now.acquisitions_failed), (0, 3));
        assert_eq!((now.waiting, now.unreached), (0, 0));
    }
    real.start_again();
    let nowhere = Server::open("redis://no-such-host.invalid").unwrap();
    let error = lock(&nowhere).acquire().await.unwrap_err();
    assert!(error.to_string().contains("lookup"), "{error}");
}

/// The name of an address may lead to another server soon, so it is connected to once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_an_error_where_there_is_no_other_node() {
    let real = TestServer::start();
    real.conn().line("REPLICAOF 127.0.0.1 1");
    let server = client(&real);
    let lock = lock(&server);
    let told = [
        lock.acquire().await.map(drop),
        lock.try_acquire().await.map(drop),
        lock.acquire_within(Duration::from_millis(500))
            .await
            .map(drop),
    ];
    for error in told.map(Result::unwrap_err) {
        assert!(error.to_string().contains("READONLY"), "{error}");
    }
    // Within its limit a wait outlasts a failover.
    let waiting = tokio::spawn(async move { lock.acquire_within(patience()).await });
    until("a wait that is refused", || {
        server.statistics().unreached == 1
    });
    real.conn().line("REPLICAOF NO ONE");
    assert_held_once(
        &real,
        &waiting.await.unwrap().unwrap().expect("a free lock"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_server_is_gone_is_told_from_one_in_the_queue() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    real.conn().line("LOCK.ACQUIRE k raw PX 600000");
    let server = client(&real);
    let waiter = wait(&lock(&server));
    until_waits(&real, 1);
    let now = || (server.statistics().waiting, server.statistics().unreached);
    until("a wait in the queue", || now() == (1, 0));
    real.crash();
    until("a wait that is not reached", || now() == (1, 1));
    tokio::task::block_in_place(|| real.start_again());
    until_waits(&real, 1);
    until("a wait that is reached", || now() == (1, 0));
    assert_eq!(real.conn().line("LOCK.RELEASE k raw").int(), 1);
    drop(waiter.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_times_out_and_comes_back() {
    let real = TestServer::start();
    let server = with_timeout(real.port, Duration::from_secs(3));
    let holder = lock(&client(&real)).acquire().await.unwrap();
    let waiter = wait(&lock(&server));
    until_waits(&real, 1);
    real.signal(libc::SIGSTOP);
    let start = Instant::now();
    assert!(lock(&server).try_acquire().await.is_err());
    assert!(start.elapsed() < LONG);
    real.signal(libc::SIGCONT);
    until_waits(&real, 1);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    assert_held_once(&real, &waiter.await.unwrap());
}

/// Two runtimes, the first of which is blocked or has ended.
#[test]
fn a_program_of_two_runtimes_may_share_a_server() {
    let real = TestServer::start();
    let server: Server = client(&real);
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let start = Instant::now();
    let guard = first.block_on(lock(&server).acquire()).unwrap();
    let free = second.block_on(lock(&server).try_acquire()).unwrap();
    assert!(free.is_none());
    let same = lock(&server);
    let waiter = std::thread::spawn(move || second.block_on(same.acquire()).unwrap());
    real.wait_for_waits(1);
    drop(first);
    drop(guard);
    assert_held_once(&real, &waiter.join().unwrap());
    assert!(start.elapsed() < LONG);
}

/// "Not granted" would mean that another owner holds the lock, which a server that hangs has not said.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_server_hangs_at_its_end_is_an_error() {
    let real = TestServer::start();
    let server = client(&real);
    let _holder = lock(&server).acquire().await.unwrap();
    let waits = lock(&server);
    let wait = tokio::spawn(async move { waits.acquire_within(Duration::from_secs(3)).await });
    until_waits(&real, 1);
    real.signal(libc::SIGSTOP);
    let end = wait.await.unwrap();
    real.signal(libc::SIGCONT);
    assert!(end.is_err_and(|error| error.is_passing()));
}

/// A wait ends at its limit, or slightly later, whatever the server does.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_wait_holds_on_a_paused_server() {
    let real = TestServer::start();
    let known = prompt(&real);
    known.ping().await.unwrap();
    let holder = lock(&known).acquire().await.unwrap();
    let bounds = [0, 300, 1_000].map(Duration::from_millis);
    for is_known in [true, false] {
        let mut tries = Tries::of(&bounds);
        while let Some(bound) = tries.next_case() {
            // One that has connections, and one that has to open them.
            let server = if is_known {
                known.clone()
            } else {
                prompt(&real)
            };
            let mut waiter = None;
            if is_known && !bound.is_zero() {
                // Stopped while it is parked, too.
                waiter = Some(wait(&lock(&known)));
                until_waits(&real, 1);
            }
            real.signal(libc::SIGSTOP);
            let start = Instant::now();
            let end = lock(&server).acquire_within(bound).await;
            let took = start.elapsed();
            real.signal(libc::SIGCONT);
            assert!(end.is_err_and(|error| error.is_passing()));
            tries.took(bound, took, bound, Duration::from_millis(300));
            if let Some(waiter) = waiter {
                waiter.abort();
            }
            until_waits(&real, 0);
        }
    }
    assert_held_once(&real, &holder);
}

/// Holders keep their locks when no connection can be opened for waiters.
#[tokio::test(flavor = "multi_thread")]
async fn waits_that_cannot_connect_cost_no_holder_its_lock() {
    let real = TestServer::start();
    let server = client(&real);
    let held = Lock::new(&server, "other").acquire().await.unwrap();
    let holder = lock(&server).acquire().await.unwrap();
    let mut conn = real.conn();
    // No room for one more than the holders' and this one.
    until("the other connections are closed", || {
        let info = conn.line("INFO clients");
        info.text().contains("connected_clients:2\r\n")
    });
    conn.line("CONFIG SET maxclients 2");
    let waiters = (0..40).map(|_| {
        let lock = lock(&server);
        tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
    });
    let waiters: Vec<_> = waiters.collect();
    let mut info = |section: &str, field: &str| -> u64 {
        let info = conn.line(&format!("INFO {section}"));
        let text = info.text();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap()
            .trim_start_matches(':')
            .trim()
            .parse()
            .unwrap()
    };
    until("refused connections", || {
        info("stats", "rejected_connections") > 20
    });
    let renewals = info("lock", "lock_renewals");
    until("renewals of both", || {
        info("lock", "lock_renewals") >= renewals + 2
    });
    assert!(!held.valid_for().is_zero());
    conn.line("CONFIG SET maxclients 1000");
    drop(holder);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), Released::Yes);
    }
    assert_eq!(held.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlives_a_server_without_memory() {
    let real = TestServer::start();
    let server = client(&real);
    let other = lock(&server).acquire().await.unwrap();
    let waiting = wait(&lock(&server));
    until_waits(&real, 1);
    let mut conn = real.conn();
    conn.line("CONFIG SET maxmemory 1");
    // The wait is told that it has ended, and asks again.
    conn.line("REPLICAOF 127.0.0.1 1");
    conn.line("REPLICAOF NO ONE");
    until("a refusal", || {
        conn.line("INFO errorstats")
            .text()
            .contains("errorstat_OOM")
    });
    conn.line("CONFIG SET maxmemory 0");
    until_waits(&real, 1);
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    assert_eq!(
        waiting.await.unwrap().release().await.unwrap(),
        Released::Yes
    );
}
