//! MultiLock on real servers that die, are silent, and come back.

use std::time::Duration;

use crate::fleet::{
    in_time, measured, patient, soon, ten_count, timed, Counter, Fleet, MAX_TRIES, OVERTIME,
};
use redis_lock_client::{Lock, LostReason, Mode, MultiLock, Released, Server};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{patience, wait_for, TestServer, Tries};
use tokio::time::timeout;

const LEASE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(60);

fn fleet() -> Fleet {
    Fleet::of_three(Duration::ZERO)
}

fn multi(servers: &[Server], lease: Duration) -> MultiLock {
    let locks = servers
        .iter()
        .map(|server| Lock::new(server, "k").lease(lease));
    MultiLock::new(locks).expect("different locks")
}

#[tokio::test(flavor = "multi_thread")]
async fn all_locks_are_acquired_in_the_callers_order() {
    let fleet = fleet();
    let mut servers = fleet.clients();
    servers.reverse();
    let guard = multi(&servers, LONG).try_acquire().await.unwrap().unwrap();
    let told: Vec<u64> = fleet
        .servers
        .iter()
        .rev()
        .map(|real| {
            let info = real.conn().line("LOCK.INFO k");
            let holder = info.field("holders").unwrap().list().remove(0);
            u64::try_from(holder.field("token").unwrap().int()).unwrap()
        })
        .collect();
    assert_eq!(guard.tokens(), told);
    assert!(guard.valid_for() > LONG / 2);
    assert!(multi(&servers, LONG).try_acquire().await.unwrap().is_none());
    drop(guard);
    fleet.wait_until_free("k");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_wait_holds_with_the_last_server_paused() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let last = fleet.in_line(2);
    let mut tries = Tries::of(&[0, 300].map(Duration::from_millis));
    while let Some(wait) = tries.next_case() {
        fleet.stop(last);
        let (got, took) = timed(multi(&servers, LONG).acquire_within(wait)).await;
        fleet.go_on(last);
        assert!(got.is_err(), "{got:?}");
        tries.took(wait, took, wait, OVERTIME);
        fleet.wait_until_free("k");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_acquired_when_one_is_not_free() {
    let fleet = fleet();
    let servers = fleet.clients();
    for (place, server) in servers.iter().enumerate() {
        let other = Lock::new(server, "k").try_acquire().await.unwrap().unwrap();
        assert!(multi(&servers, LONG).try_acquire().await.unwrap().is_none());
        // Given back before the answer, where the servers live.
        let free = |other: usize| other == place || fleet.is_free(other, "k");
        assert!((0..3).all(free), "held by another on {place}");
        assert_eq!(other.release().await.unwrap(), Released::Yes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_bounded_and_held_parts_are_given_back() {
    let fleet = fleet();
    let servers = fleet.clients();
    let last = fleet.in_line(2);
    let other = Lock::new(&servers[last], "k").acquire().await.unwrap();
    let wait = Duration::from_millis(600);
    let (got, took) = timed(multi(&servers, LONG).acquire_within(wait)).await;
    assert!(got.unwrap().is_none());
    assert!(took >= wait && took < LONG, "{took:?}");
    assert!(fleet.is_free(fleet.in_line(0), "k") && fleet.is_free(fleet.in_line(1), "k"));

    // A longer wait goes on round by round, and leaves the others a chance in between.
    let waiting = tokio::spawn({
        let multi = multi(&servers, LONG).round(wait);
        async move { multi.acquire_within(LONG).await.unwrap().is_some() }
    });
    let first = Lock::new(&servers[fleet.in_line(0)], "k");
    assert!(first.acquire_within(LONG).await.unwrap().is_some());
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    assert!(waiting.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_in_opposite_orders_do_not_wait_for_each_other() {
    let fleet = fleet();
    let (one, mut other) = (fleet.clients(), fleet.clients());
    other.reverse();
    let counter = Counter::default();
    let rounds = 40;
    let both = [one, other].map(|servers| {
        let (multi, counter) = (multi(&servers, LONG), counter.clone());
        tokio::spawn(async move {
            for _ in 0..rounds {
                // Two acquisitions that block each other would need a whole round.
                let (guard, took) = timed(multi.acquire()).await;
                let guard = guard.unwrap();
                assert!(took < Duration::from_millis(4_000), "{took:?}");
                counter.add_one().await;
                assert_eq!(guard.release().await.unwrap(), Released::Yes);
            }
        })
    });
    for task in both {
        task.await.unwrap();
    }
    assert_eq!(counter.value(), 2 * rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_count_without_a_lost_update() {
    ten_count("MultiLock", &fleet(), |servers, counter| async move {
        let lock = multi(&servers, LONG);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let (guard, took) = timed(lock.acquire_within(LONG)).await;
            let guard = guard.unwrap().expect("its turn");
            counter.add_one().await;
            waits.push(took);
            assert_eq!(guard.release().await.unwrap(), Released::Yes);
        }
        waits
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_lost_lock_is_a_loss_and_a_release_reports_each() {
    let fleet = fleet();
    let servers = fleet.clients();
    let mut released = Vec::new();
    for _ in 0..MAX_TRIES {
        let guard = multi(&servers, LONG).acquire().await.unwrap();
        let lost = guard.lost();
        fleet.servers[1].conn().line("LOCK.BREAK k");
        assert_eq!(soon(lost).await, Some(LostReason::Taken));
        assert!(guard.valid_for().is_zero());
        assert!(!fleet.is_free(0, "k") && !fleet.is_free(2, "k"));
        released = guard.release_each().await;
        // One of a busy server may go on in the background.
        if released.iter().all(Result::is_ok) {
            break;
        }
    }
    let released: Vec<_> = released.into_iter().map(Result::unwrap).collect();
    assert_eq!(released, [Released::Yes, Released::NotHeld, Released::Yes]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_reports_the_combined_result() {
    let fleet = fleet();
    let servers = fleet.clients();
    let guard = multi(&servers, LONG).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let guard = multi(&servers, LONG).acquire().await.unwrap();
    fleet.servers[2].conn().line("DEL k");
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    fleet.wait_until_free("k");
}

/// As of one lock: a server that is away is no error before the wait's end.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlives_a_server_that_starts_again() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let last = fleet.in_line(2);
    let other = Lock::new(&fleet.clients()[last], "k")
        .acquire()
        .await
        .unwrap();
    let multi = multi(&servers, LONG).round(Duration::from_millis(300));
    let waiting = tokio::spawn(async move { multi.acquire().await });
    fleet.servers[last].wait_for_waits(1);
    fleet.kill(last);
    drop(other);
    for _ in 0..2 {
        let is_free = || fleet.is_free(fleet.in_line(0), "k");
        wait_for("the end of a round", is_free);
        wait_for("a part of the locks", || !is_free());
    }
    fleet.revive(last);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.tokens().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_is_a_loss_within_the_lease_and_delays_no_other_lock() {
    for dying in [&[1][..], &[0, 2]] {
        in_time(Duration::from_millis(500), || die_under_a_hold(dying)).await;
    }
}

/// How late the loss was reported.
async fn die_under_a_hold(dying: &[usize]) -> Duration {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let guard = multi(&servers, LEASE).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let multi = multi(&servers, LEASE);
        async move { timed(multi.acquire_within(LEASE * 3 / 2)).await }
    });
    let line = fleet.in_line(0);
    fleet.servers[line].wait_for_waits(1);
    dying.iter().for_each(|place| fleet.kill(*place));
    let (why, told) = timed(soon(guard.lost())).await;
    assert_eq!(why, Some(LostReason::Unconfirmed));
    let what = format!("MultiLock, {} of 3 killed, told", dying.len());
    measured(&what, vec![told]);

    let (released, took) = timed(guard.release_each()).await;
    assert!(took < LONG, "{took:?}");
    for (place, word) in released.iter().enumerate() {
        assert_eq!(word.is_err(), dying.contains(&place), "{place}: {word:?}");
    }
    let (got, waited) = waiting.await.unwrap();
    let why = "a waiter is told that a server is away";
    assert!(got.is_err(), "{why}: {got:?}");
    assert!(waited < LONG, "{waited:?}");
    fleet.wait_until_free("k");
    told.saturating_sub(LEASE)
}

/// A server that hangs: what is held at the others stays for as long as it is left, whichever it is.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_left_held_beside_a_server_that_hangs() {
    let mut fleet = fleet();
    // They wait for a reply longer than this test does.
    let servers = fleet.clients();
    for place in 0..3 {
        let guard = multi(&servers, LEASE).acquire().await.unwrap();
        fleet.stop(place);
        let leaving = tokio::spawn(guard.leave_each(LEASE * 100));
        for real in (0..3)
            .filter(|other| *other != place)
            .map(|other| &fleet.servers[other])
        {
            let mut conn = real.conn();
            wait_for("the time for which it is left", || {
                let holders = conn.line("LOCK.INFO k").field("holders").expect("a list");
                let rest = holders.list()[0].field("pttl").expect("a time").int();
                rest > 50 * LEASE.as_millis() as i64
            });
        }
        fleet.go_on(place);
        for left in leaving.await.unwrap() {
            assert_eq!(left.unwrap(), Released::Yes);
        }
        for real in &fleet.servers {
            assert_eq!(real.conn().line("LOCK.BREAK k").int(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_undo_meets_a_silent_server_and_reaches_it_later() {
    let mut fleet = fleet();
    let servers = fleet.clients_with(Duration::from_secs(20));
    let (first, last) = (fleet.in_line(0), fleet.in_line(2));
    let other = Lock::new(&servers[last], "k")
        .lease(LONG)
        .acquire()
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let multi = multi(&servers, LONG);
        async move { timed(multi.acquire_within(Duration::from_secs(5))).await }
    });
    fleet.servers[last].wait_for_waits(1);
    fleet.stop(first);
    let (got, took) = waiting.await.unwrap();
    assert!(got.unwrap().is_none());
    assert!(took < LONG, "{took:?}");
    fleet.go_on(first);
    // Its lease is a minute, so the lock was released.
    wait_for("the hold is given back", || fleet.is_free(first, "k"));
    assert_eq!(other.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_is_dropped_leaves_nothing_behind() {
    let fleet = fleet();
    let servers = fleet.clients();
    let last = fleet.in_line(2);
    let other = Lock::new(&servers[last], "k")
        .lease(LONG)
        .acquire()
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let multi = multi(&servers, LONG);
        async move { multi.acquire().await }
    });
    fleet.servers[last].wait_for_waits(1);
    waiting.abort();
    fleet.servers[last].wait_for_waits(0);
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    fleet.wait_until_free("k");
}

/// The locks `a`, `b` and `c` of one server.
fn of_one(server: &Server) -> [Lock; 3] {
    ["a", "b", "c"].map(|key| Lock::new(server, key).lease(LONG))
}

fn calls(real: &TestServer, command: &str) -> u64 {
    let stats = real.conn().line("INFO commandstats").text();
    let line = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|text| text.strip_prefix(&line));
    count.map_or(0, |text| text.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_one_server_are_one_request_that_holds_nothing_while_it_waits() {
    let real = TestServer::start();
    let server = patient(real.port);
    let [a, b, c] = of_one(&server);
    let other = b.clone().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let multi = MultiLock::new([c, b, a.clone()]).unwrap();
        async move { multi.acquire().await }
    });
    real.wait_for_waits(1);
    assert_eq!(real.conn().line("EXISTS a c").int(), 0);
    let newest = other.token();
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    let guard = waiting.await.unwrap().unwrap();
    // In the caller's order: c, b, a.
    assert!(guard.tokens()[1] > newest, "{:?}", guard.tokens());
    let owners: Vec<_> = guard
        .members()
        .iter()
        .map(redis_lock_client::Guard::owner)
        .collect();
    assert!(owners[0] == owners[1] && owners[1] == owners[2]);
    assert_eq!(calls(&real, "lock.acquire"), 1);
    // At first, after the subscription, and after the message.
    assert_eq!(calls(&real, "lock.macquire"), 3);
    assert_eq!(real.stat("tickets_granted"), 1);
    assert!(a.try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    wait_for("free", || real.conn().line("EXISTS a b c").int() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_several_locks_that_is_dropped_leaves_nothing_behind() {
    let real = TestServer::start();
    let server = patient(real.port);
    let other = of_one(&server)[2].acquire().await.unwrap();
    let multi = MultiLock::new(of_one(&server)).unwrap();
    let waiting = tokio::spawn({
        let multi = multi.clone();
        async move { multi.acquire().await }
    });
    real.wait_for_waits(1);
    waiting.abort();
    real.wait_for_waits(0);
    assert!(multi.try_acquire().await.unwrap().is_none());
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    let guard = multi.try_acquire().await.unwrap().unwrap();
    drop(guard);
    assert!(server.settled().await.is_empty());
    assert_eq!(real.conn().line("EXISTS a b c").int(), 0);
}

/// One key is lost between the message about the grant and the request that confirms it.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_several_locks_holds_none_when_its_grant_is_broken() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = patient(proxy.port);
    for (is_named, end) in [(false, "LOCK.BREAK a"), (true, "DEL a")] {
        let locks = of_one(&server).map(|lock| match is_named {
            true => lock.owner("me"),
            false => lock,
        });
        let multi = MultiLock::new(locks).unwrap();
        real.conn().line("LOCK.ACQUIRE a other PX 60000");
        let waiting = tokio::spawn(async move { multi.acquire().await });
        real.wait_for_waits(1);
        proxy.delay("LOCK.MACQUIRE");
        real.conn().line("LOCK.RELEASE a other");
        wait_for("the confirmation", || proxy.has_delayed());
        assert_eq!(real.conn().line("EXISTS b c").int(), 2);
        real.conn().line(end);
        real.conn().line("LOCK.ACQUIRE a third PX 60000");
        proxy.let_go();
        wait_for("the release of the other keys", || {
            real.conn().line("EXISTS b c").int() == 0
        });
        real.wait_for_waits(1);
        real.conn().line("LOCK.RELEASE a third");
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        wait_for("free", || real.conn().line("EXISTS a b c").int() == 0);
    }
}

/// Locks of a fixed owner are one request; readers and another lease have requests of their own.
#[tokio::test(flavor = "multi_thread")]
async fn locks_that_differ_are_requests_of_their_own() {
    let real = TestServer::start();
    let server = patient(real.port);
    let named = MultiLock::new(of_one(&server).map(|lock| lock.owner("me"))).unwrap();
    let guard = named.acquire().await.unwrap();
    assert_eq!(guard.members()[0].owner(), b"me");
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let [a, b, c] = of_one(&server);
    let mixed = MultiLock::new([a, b.mode(Mode::Read), c]).unwrap();
    let guard = mixed.acquire().await.unwrap();
    assert_eq!(calls(&real, "lock.acquire"), 3);
    let reader = of_one(&server)[1].clone().mode(Mode::Read);
    assert!(reader.try_acquire().await.unwrap().is_some());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_never_reached_is_an_error_at_once() {
    let mut fleet = fleet();
    let dead = fleet.in_line(1);
    fleet.kill(dead);
    let servers = fleet.clients();
    let error = multi(&servers, LONG).acquire().await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    fleet.wait_until_free("k");
}

fn refusals(real: &TestServer) -> usize {
    let errors = real.info_field("errorstats", "errorstat_READONLY");
    let count = errors.trim_start_matches("count=").parse();
    count.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_an_error_where_the_wait_has_no_limit() {
    let fleet = fleet();
    let servers = fleet.clients();
    for (real, server) in fleet.servers.iter().zip(&servers) {
        // The replica of a server that does not exist: its data stays.
        real.conn().line("REPLICAOF 127.0.0.1 1");
        let acquired = timeout(patience(), multi(&servers, LONG).acquire()).await;
        let error = acquired.expect("an answer").unwrap_err().to_string();
        assert!(error.contains("READONLY"), "{error}");
        assert!(error.contains(server.name()), "{error}");
        fleet.wait_until_free("k");
        // Within its limit a wait outlasts a failover.
        let waiting = multi(&servers, LONG);
        let waiting = tokio::spawn(async move { waiting.acquire_within(patience()).await });
        let before = refusals(real);
        wait_for("a wait that is refused", || refusals(real) > before);
        real.conn().line("REPLICAOF NO ONE");
        drop(waiting.await.unwrap().unwrap().expect("free locks"));
        fleet.wait_until_free("k");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_while_the_last_server_is_a_replica_for_a_while() {
    let fleet = fleet();
    let servers = fleet.clients();
    let (first, last) = (fleet.in_line(0), fleet.in_line(2));
    let [first, real] = [first, last].map(|place| &fleet.servers[place]);
    let held = Lock::new(&servers[last], "k").acquire().await.unwrap();
    let multi = multi(&servers, LONG).round(Duration::from_millis(300));
    let waiting = tokio::spawn(async move { multi.acquire().await });
    wait_for("its wait", || real.waits() == 1);
    real.conn().line("REPLICAOF 127.0.0.1 1");
    // The second one meets nothing but a replica.
    let rounds = first.stat("grants");
    wait_for("two more rounds", || first.stat("grants") >= rounds + 2);
    assert!(!waiting.is_finished());
    real.conn().line("REPLICAOF NO ONE");
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    drop(waiting.await.unwrap().unwrap());
    fleet.wait_until_free("k");
}
