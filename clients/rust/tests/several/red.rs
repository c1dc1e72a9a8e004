//! RedLock on real servers that die, lose their data, are paused, and come back.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use crate::fleet::{
    in_time, measured, patient, soon, ten_count, timed, Fleet, MAX_TRIES, OVERTIME,
};
use redis_lock_client::{
    Error, Lock, LostReason, MultiLock, RedGuard, RedLock, Released, Server, Statistics,
};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{patience, wait_for, TestServer, Tries};

const LEASE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

fn fleet() -> Fleet {
    Fleet::of_three(LEASE)
}

/// Why the servers refuse the lock. One that is busy may not answer within a round, whose length follows the lease.
async fn refusal(servers: &[Server], wait: Duration) -> String {
    let mut told = String::new();
    for _ in 0..MAX_TRIES {
        told = red(servers)
            .acquire_within(wait)
            .await
            .unwrap_err()
            .to_string();
        if !told.contains("no answer in time") {
            break;
        }
    }
    told
}

fn red(servers: &[Server]) -> RedLock {
    RedLock::new(servers, "k")
        .expect("three servers")
        .lease(LEASE)
}

/// On a majority: the others may have answered too late to be counted.
async fn held_by_most(servers: &[Server]) -> RedGuard {
    let got = red(servers).acquire_within(LONG).await;
    got.expect("a majority").expect("a free lock")
}

/// On all three: a renewal takes it where the answer was late.
async fn held(servers: &[Server]) -> RedGuard {
    let guard = held_by_most(servers).await;
    wait_for("the hold on all three", || on_how_many(&guard) == 3);
    guard
}

fn on_how_many(guard: &RedGuard) -> usize {
    guard.tokens().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_holds_it_at_a_time_with_a_token_of_each_server() {
    let fleet = fleet();
    let servers = fleet.clients();
    let first = held(&servers).await;
    assert!(!first.valid_for().is_zero() && first.valid_for() < LEASE);
    assert!(red(&servers).try_acquire().await.unwrap().is_none());
    let before = first.tokens();
    let highest = before.iter().map(|(_, token)| *token).max().unwrap();
    assert_eq!(first.token(), highest);
    for (server, released) in first.release_each().await {
        assert_eq!(released.unwrap(), Released::Yes, "{server}");
    }
    fleet.wait_until_free("k");
    let second = held(&servers).await;
    for (then, now) in before.iter().zip(second.tokens()) {
        assert!(then.0 == now.0 && then.1 < now.1, "{then:?} {now:?}");
    }
    drop(second);
    fleet.wait_until_free("k");
}

/// The reply to a release is lost, and the second request finds nothing: that is no loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_reply_is_lost_was_one() {
    let fleet = fleet();
    let mut servers = fleet.clients();
    let proxies: Vec<_> = fleet
        .servers
        .iter()
        .map(|real| Proxy::before(real.port))
        .collect();
    for place in [0, 1] {
        let url = format!("redis://127.0.0.1:{}", proxies[place].port);
        servers[place] = Server::open(&url).expect("a URL");
    }
    let guard = held(&servers).await;
    proxies[0].swallow_reply_to("LOCK.RELEASE");
    proxies[1].swallow_reply_to("LOCK.RELEASE");
    for (server, released) in guard.release_each().await {
        assert_eq!(released.unwrap(), Released::Yes, "{server}");
    }
    assert!(proxies[0].has_swallowed() && proxies[1].has_swallowed());
    fleet.wait_until_free("k");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_up_delay_below_the_lease_is_refused_with_both_figures() {
    let fleet = fleet();
    // On two of three: a server that answers too late for the majority is not asked further.
    let set = |delay| [1, 2].map(|place| fleet.set_startup_delay(place, delay));
    set(LEASE / 2);
    let servers = fleet.clients();
    for wait in [Duration::ZERO, LONG] {
        let error = refusal(&servers, wait).await;
        let named = servers[1..]
            .iter()
            .any(|server| error.contains(server.name()));
        assert!(named, "{error}");
        for part in ["lock.startup-delay", "5000 ms", "10000 ms"] {
            assert!(error.contains(part), "{error}");
        }
        fleet.wait_until_free("k");
    }
    set(LEASE);
    drop(held(&servers).await);
}

/// A server has one vote under any name; a duplicate is an error.
#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_is_refused() {
    let fleet = Fleet::of_three(LONG);
    let (one, other) = (fleet.in_line(0), fleet.in_line(1));
    let again = format!("redis://localhost:{}", fleet.servers[one].port);
    let clients = fleet.clients();
    let servers = [
        clients[one].clone(),
        clients[other].clone(),
        Server::open(&again).unwrap(),
    ];
    let holder = Lock::new(&servers[1], "k").acquire().await.unwrap();
    let red = red(&servers).lease(LONG);
    let mut refused = Ok(None);
    // On a busy machine a name may have no answer in time.
    for _ in 0..20 {
        refused = red.try_acquire().await;
        if refused.is_err() {
            break;
        }
    }
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("lead to one server"), "{error}");
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    fleet.wait_until_free("k");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_is_enough_and_a_minority_is_given_back() {
    let fleet = fleet();
    let servers = fleet.clients();
    let (a, b) = (fleet.in_line(0), fleet.in_line(1));
    let other = |place: usize| Lock::new(&servers[place], "k").lease(LONG);
    let one = other(b).acquire().await.unwrap();
    let guard = held_by_most(&servers).await;
    assert_eq!(on_how_many(&guard), 2);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    fleet.servers[a].conn().line("LOCK.INFO k");
    let two = other(fleet.in_line(2)).acquire().await.unwrap();
    assert!(red(&servers).try_acquire().await.unwrap().is_none());
    assert!(fleet.is_free(a, "k"), "given back before the answer");
    // A waiter gets the lock when one holder releases it, on any server.
    let waiting = tokio::spawn({
        let red = red(&servers);
        async move { red.acquire_within(LONG).await.unwrap().is_some() }
    });
    assert_eq!(two.release().await.unwrap(), Released::Yes);
    assert!(waiting.await.unwrap());
    assert_eq!(one.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_minority_is_taken_again_and_a_broken_majority_is_lost() {
    let fleet = fleet();
    let servers = fleet.clients();
    let guard = held(&servers).await;
    let before = guard.tokens();
    fleet.servers[0].conn().line("LOCK.BREAK k");
    let broken = servers[0].name();
    let token_there = |tokens: &[(String, u64)]| {
        tokens
            .iter()
            .find(|(name, _)| name == broken)
            .map(|(_, token)| *token)
    };
    wait_for("a new token of the server where it was broken", || {
        token_there(&guard.tokens()) > token_there(&before)
    });
    assert!(!guard.valid_for().is_zero());

    let (lost, begin) = (guard.lost(), Instant::now());
    fleet.servers[1].conn().line("LOCK.BREAK k");
    fleet.servers[2].conn().line("LOCK.BREAK k");
    assert_eq!(soon(lost).await, Some(LostReason::Taken));
    assert!(begin.elapsed() < LEASE, "told with the next renewal");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_and_a_waiter_survive_the_death_of_one_server() {
    for n in 0..3 {
        let mut fleet = fleet();
        let servers = fleet.hasty();
        let guard = held(&servers).await;
        let waiting = tokio::spawn({
            let red = red(&servers);
            async move { (red.acquire_within(LONG).await, Instant::now()) }
        });
        fleet.servers[fleet.in_line(0)].wait_for_waits(1);
        fleet.kill(fleet.in_line(n));
        let watched = tokio::time::timeout(LEASE * 2, guard.lost().into_future()).await;
        assert!(watched.is_err(), "two of three are a majority: {watched:?}");
        let begin = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        let (next, granted) = waiting.await.unwrap();
        let next = next.unwrap().expect("its turn");
        assert_eq!(on_how_many(&next), 2);
        measured("RedLock, 1 of 3 killed, hand-on", vec![granted - begin]);
        assert_eq!(next.release().await.unwrap(), Released::Yes);
    }
}

/// All guards are renewed, and report a loss, after the end of the runtime that acquired them.
#[test]
fn guards_outlive_the_runtime_that_acquired_them() {
    let fleet = fleet();
    let servers = fleet.clients();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (red, multi) = runtime.block_on(async {
        let locks = servers
            .iter()
            .map(|server| Lock::new(server, "m").lease(LEASE));
        let multi = MultiLock::new(locks).unwrap().acquire().await.unwrap();
        (held(&servers).await, multi)
    });
    drop(runtime);
    wait_for("renewals over a lease", || {
        fleet.servers.iter().all(|real| real.stat("renewals") >= 6)
    });
    assert!(!red.valid_for().is_zero() && !multi.valid_for().is_zero());
    for real in &fleet.servers {
        real.conn().line("LOCK.BREAK k");
        real.conn().line("LOCK.BREAK m");
    }
    let other = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let told = other.block_on(async { (red.lost().await, multi.lost().await) });
    assert_eq!(told, (Some(LostReason::Taken), Some(LostReason::Taken)));
    assert!(red.valid_for().is_zero() && multi.valid_for().is_zero());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_wait_holds_with_two_servers_paused() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    for lock in [red(&servers), red(&servers).lease(LONG)] {
        let mut tries = Tries::of(&[0, 300].map(Duration::from_millis));
        while let Some(wait) = tries.next_case() {
            for count in 0..=2 {
                fleet.stop(fleet.in_line(count));
            }
            let (got, took) = timed(lock.acquire_within(wait)).await;
            for count in 0..=2 {
                fleet.go_on(fleet.in_line(count));
            }
            assert!(got.is_err(), "{got:?}");
            tries.took(wait, took, wait, OVERTIME);
            fleet.wait_until_free("k");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_two_servers_is_a_loss_within_the_lease_until_one_is_back() {
    in_time(Duration::from_millis(500), two_die_and_one_is_back).await;
}

/// By how much the loss, or the end of the bounded wait, was late.
async fn two_die_and_one_is_back() -> Duration {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let guard = held(&servers).await;
    let spawn = |wait: Duration| {
        let red = red(&servers);
        tokio::spawn(async move { timed(red.acquire_within(wait)).await })
    };
    let (short, long) = (spawn(LEASE * 2), spawn(LONG));
    fleet.servers[fleet.in_line(0)].wait_for_waits(2);
    let died = Instant::now();
    fleet.kill(fleet.in_line(0));
    fleet.kill(fleet.in_line(2));
    assert_eq!(soon(guard.lost()).await, Some(LostReason::Unconfirmed));
    let told = died.elapsed();
    measured("RedLock, 2 of 3 killed, told", vec![told]);
    assert!(guard.valid_for() <= LEASE / 6, "the margin");

    let (got, waited) = short.await.unwrap();
    // An error, or None where the other waiter holds the living server at that moment.
    assert!(!matches!(got, Ok(Some(_))), "no majority: {got:?}");
    let back = Instant::now();
    fleet.revive(fleet.in_line(2));
    let next = long.await.unwrap().0.unwrap().expect("a majority again");
    measured("RedLock, one is back, granted after", vec![back.elapsed()]);
    assert!(back.elapsed() >= LEASE / 2, "not in its start-up delay");
    drop((guard, next));
    fleet.wait_until_free("k");
    told.saturating_sub(LEASE)
        .max(waited.saturating_sub(LEASE * 2))
}

/// Without this a lock that is held for long would be lost to the restart of one server after another.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_survives_the_restart_of_each_server_one_after_another() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let guard = held(&servers).await;
    let lost = tokio::spawn(guard.lost().into_future());
    for place in 0..3 {
        fleet.kill(place);
        fleet.revive(place);
        assert!(fleet.is_free(place, "k"), "it has forgotten");
        wait_for("the hold is there again", || !fleet.is_free(place, "k"));
    }
    assert!(!lost.is_finished());
    assert!(red(&servers).try_acquire().await.unwrap().is_none());
    wait_for("its holder knows", || on_how_many(&guard) == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_with_a_shorter_delay_is_seen() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let guard = held(&servers).await;
    let (place, another) = (fleet.in_line(0), fleet.in_line(1));
    fleet.servers[place].add_option("--lock.startup-delay", "0");
    fleet.kill(place);
    fleet.revive(place);
    // None if the two others, where it is held, answer first.
    soon(async {
        let is_seen = |error: &Error| error.to_string().contains("shorter than the lease");
        while !red(&servers)
            .try_acquire()
            .await
            .is_err_and(|error| is_seen(&error))
        {}
    })
    .await;
    // It has no vote any more: with another one's death there is no majority.
    fleet.kill(another);
    assert_eq!(soon(guard.lost()).await, Some(LostReason::Unconfirmed));
}

/// The first server grants nothing for a minute.
#[tokio::test(flavor = "multi_thread")]
async fn no_wait_is_parked_at_a_server_in_its_startup_delay() {
    let mut fleet = Fleet::of_three(LONG);
    let servers = fleet.hasty();
    let line = fleet.in_line(0);
    fleet.kill(line);
    fleet.revive(line);
    let guard = soon(held_by_most(&servers)).await;
    assert_eq!(on_how_many(&guard), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_minority_costs_little_and_a_paused_majority_is_released_later() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    for n in 0..3 {
        let place = fleet.in_line(n);
        fleet.stop(place);
        let (guard, took) = timed(held_by_most(&servers)).await;
        assert!(took < LONG, "{took:?}");
        measured(
            &format!("RedLock, server {n} in line is silent, acquired"),
            vec![took],
        );
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        fleet.go_on(place);
        fleet.wait_until_free("k");
    }
    fleet.stop(0);
    fleet.stop(1);
    let (got, took) = timed(red(&servers).try_acquire()).await;
    assert!(got.is_err() && took < LONG, "{got:?} {took:?}");
    fleet.go_on(0);
    fleet.go_on(1);
    fleet.wait_until_free("k");
}

/// With the response timeout of every program, of which a try has a part: it is repeated because the machine may be
/// slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_try_passes_each_server_that_hangs() {
    let mut fleet = fleet();
    let servers = fleet.clients_with(Duration::from_secs(5));
    for n in 0..3 {
        let place = fleet.in_line(n);
        fleet.stop(place);
        let begun = Instant::now();
        let guard = loop {
            match red(&servers).try_acquire().await {
                Ok(Some(guard)) => break guard,
                other => assert!(begun.elapsed() < patience(), "server {n}: {other:?}"),
            }
        };
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        fleet.go_on(place);
        fleet.wait_until_free("k");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_and_a_waiter_pass_each_server_that_hangs() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    for n in 0..3 {
        let guard = held(&servers).await;
        let waiting = tokio::spawn({
            let red = red(&servers);
            async move { red.acquire_within(LONG).await }
        });
        fleet.servers[fleet.in_line(0)].wait_for_waits(1);
        let place = fleet.in_line(n);
        fleet.stop(place);
        let alive = fleet.in_line((n + 1) % 3);
        let before = fleet.servers[alive].stat("renewals");
        wait_for("two renewals", || {
            fleet.servers[alive].stat("renewals") >= before + 2
        });
        assert_eq!(guard.lost().reason(), None, "server {n}");
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        let next = waiting.await.unwrap().unwrap().expect("its turn");
        assert_eq!(next.release().await.unwrap(), Released::Yes);
        fleet.go_on(place);
        fleet.wait_until_free("k");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_are_cut_off_get_the_loss_before_the_next_grant() {
    let mut fleet = fleet();
    let servers = fleet.hasty();
    let guard = held(&servers).await;
    fleet.stop(0);
    fleet.stop(1);
    let (why, told) = timed(soon(guard.lost())).await;
    assert_eq!(why, Some(LostReason::Unconfirmed));
    measured("RedLock, 2 of 3 silent, told", vec![told]);
    // No server's lease is over yet when the loss is reported: the drift covers that.
    fleet.go_on(0);
    fleet.go_on(1);
    drop(guard);
    drop(held(&servers).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_count_without_a_lost_update() {
    ten_count("RedLock", &fleet(), |servers, counter| async move {
        let lock = red(&servers);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let (guard, took) = timed(async {
                loop {
                    // On a busy machine no majority may answer a first request within a tenth of the lease.
                    match lock.acquire_within(LONG).await {
                        Err(Error::Connection { .. }) => {}
                        got => return got.unwrap().expect("its turn"),
                    }
                }
            })
            .await;
            counter.add_one().await;
            waits.push(took);
            assert_eq!(guard.release().await.unwrap(), Released::Yes);
        }
        waits
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_is_dropped_leaves_nothing_behind() {
    let fleet = fleet();
    let servers = fleet.clients();
    let guard = held(&servers).await;
    let line = fleet.in_line(0);
    let waiting = tokio::spawn({
        let red = red(&servers);
        async move { red.acquire_within(LONG).await }
    });
    fleet.servers[line].wait_for_waits(1);
    waiting.abort();
    fleet.servers[line].wait_for_waits(0);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    fleet.wait_until_free("k");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_module_the_error_says_what_to_load() {
    let fleet = fleet();
    // Of one of three a majority would not wait.
    let bare = [(); 2].map(|()| TestServer::without_module(&[]));
    let mut servers = fleet.clients();
    for (server, bare) in servers.iter_mut().zip(&bare) {
        *server = patient(bare.port);
    }
    let error = red(&servers).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("loadmodule"), "{error}");
    fleet.wait_until_free("k");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_info_beside_the_locks_own_commands() {
    let fleet = fleet();
    let allow = |rule: &str| {
        for real in &fleet.servers {
            let set = format!("ACL SETUSER worker on >secret ~k {rule}");
            assert_eq!(real.conn().line(&set).text(), "OK");
        }
    };
    allow("+lock.acquire +lock.renew +lock.release");
    let url = |real: &TestServer| format!("redis://worker:secret@127.0.0.1:{}", real.port);
    let opened = fleet.servers.iter().map(|real| Server::open(&url(real)));
    let servers: Vec<Server> = opened.map(|server| server.unwrap()).collect();
    let error = refusal(&servers, Duration::ZERO).await;
    assert!(
        error.contains("NOPERM") && error.contains("info"),
        "{error}"
    );
    allow("+info");
    let guard = held(&servers).await;
    for (server, released) in guard.release_each().await {
        assert_eq!(released.unwrap(), Released::Yes, "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_example_file_may_wait() {
    let fleet = fleet();
    let example = include_str!("../../../../users.acl.example");
    let user = example
        .lines()
        .find(|line| line.starts_with("user redlock "));
    let rules = user.unwrap().replacen("user", "ACL SETUSER", 1);
    let mut servers = Vec::new();
    for real in &fleet.servers {
        assert_eq!(real.conn().line(&rules).text(), "OK");
        let url = format!("redis://redlock:change-me-redlock@127.0.0.1:{}", real.port);
        servers.push(Server::open(&url).unwrap());
    }
    let red = RedLock::new(&servers, "lock:k").unwrap().lease(LEASE);
    let first = red.acquire_within(LONG).await.unwrap().unwrap();
    let waiting = tokio::spawn(async move { red.acquire_within(LONG).await });
    fleet.servers[fleet.in_line(0)].wait_for_waits(1);
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    assert!(waiting.await.unwrap().unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_was_never_reached_is_an_error_at_once() {
    let mut fleet = fleet();
    fleet.kill(0);
    fleet.kill(1);
    let error = red(&fleet.clients()).acquire().await.unwrap_err();
    assert!(
        error.to_string().contains("no majority of 3 servers"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn it_counts_at_each_of_its_servers() {
    let fleet = fleet();
    let servers = fleet.clients();
    let sum = |read: fn(Statistics) -> u64| -> u64 {
        servers.iter().map(|server| read(server.statistics())).sum()
    };
    let guard = held_by_most(&servers).await;
    assert!((2..=3).contains(&sum(|now| now.acquisitions)));
    assert_eq!(sum(|now| now.holds), 3);
    assert!(red(&servers).try_acquire().await.unwrap().is_none());
    assert_eq!(sum(|now| now.acquisitions_refused), 3);
    wait_for("renewals by a majority", || sum(|now| now.renewals) >= 2);
    for real in &fleet.servers {
        real.conn().line("LOCK.BREAK k");
    }
    assert_eq!(soon(guard.lost()).await, Some(LostReason::Taken));
    assert_eq!(sum(|now| now.losses), 3);
    assert!(sum(|now| now.renewals_failed) >= 2);
    assert_eq!(sum(|now| now.releases), 0);
    drop(guard);
    for server in &servers {
        server.settled().await;
    }
    assert_eq!(sum(|now| now.releases), 3);
    assert_eq!(sum(|now| now.releases_failed + now.holds), 0);
    let guard = held_by_most(&servers).await;
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    assert_eq!(sum(|now| now.releases), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_of_replicas_is_an_error_where_the_wait_has_no_limit() {
    let fleet = fleet();
    let servers = fleet.clients();
    for real in &fleet.servers[1..] {
        real.conn().line("REPLICAOF 127.0.0.1 1");
    }
    let acquired = tokio::time::timeout(patience(), red(&servers).acquire()).await;
    let error = acquired.expect("an answer").unwrap_err().to_string();
    assert!(error.contains("READONLY"), "{error}");
    // Within its limit a wait outlasts a failover.
    let waiting = red(&servers);
    let waiting = tokio::spawn(async move { waiting.acquire_within(patience()).await });
    wait_for("a wait that is refused", || {
        servers
            .iter()
            .any(|server| server.statistics().unreached > 0)
    });
    for real in &fleet.servers[1..] {
        real.conn().line("REPLICAOF NO ONE");
    }
    drop(waiting.await.unwrap().unwrap().expect("a free lock"));
    fleet.wait_until_free("k");
}
