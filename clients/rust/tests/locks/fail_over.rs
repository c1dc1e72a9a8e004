//! Fail-overs by SIGKILL amid acquisitions: how often a second owner gets the lock while the first one believes that it
//! holds it. Without `replicas` the number is that of a replica behind by a few milliseconds; with as many as there are
//! it is 0. `LOCK_FAIL_OVERS=200 cargo test ... fail_over -- --nocapture` is the measurement.

use std::time::Duration;

use redis_lock_client::Lock;
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::replica::{wait_until_in_sync, PROMPT_MASTER};
use redis_lock_harness::{wait_for, TestServer};

use crate::servers::{client, prompt};
use crate::LEASE;

/// The fail-overs of each sort in the suite.
const FEW: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn no_fail_over_gives_a_second_holder_where_replicas_have_the_grant() {
    let wanted = std::env::var("LOCK_FAIL_OVERS").ok();
    let rounds = wanted.map_or(FEW, |wanted| wanted.parse().expect("a number"));
    let mut tally = Vec::new();
    for replicas in [None, Some(1)] {
        let (mut granted, mut second) = (0, 0);
        for round in 0..rounds {
            let ended = fail_over(replicas, round).await;
            granted += u64::from(ended.is_granted);
            second += u64::from(ended.has_second);
        }
        println!("replicas {replicas:?}: {rounds} fail-overs, {granted} granted before, {second} second holders");
        tally.push(second);
    }
    assert_eq!(tally[1], 0, "second holders with replicas(1)");
}

/// What was seen in one fail-over.
struct Ended {
    /// The first owner got the lock.
    is_granted: bool,
    /// Another one did too, while the first one believed.
    has_second: bool,
}

/// The replica is cut off at a moment of the acquisition or shortly after it, and the primary is killed behind that.
async fn fail_over(replicas: Option<u32>, round: u64) -> Ended {
    let (mut primary, replica) = (TestServer::with(&PROMPT_MASTER), TestServer::start());
    let link = Proxy::before(primary.port);
    let port = link.port.to_string();
    replica.conn().run(["REPLICAOF", "127.0.0.1", &port]);
    wait_for("the link", || {
        replica.info_field("replication", "master_link_status") == "up"
    });
    wait_until_in_sync(&replica, &primary);

    let lock = Lock::new(&prompt(&primary), "k").lease(LEASE);
    let lock = match replicas {
        Some(replicas) => lock.replicas(replicas),
        None => lock,
    };
    let acquisition = tokio::spawn(async move { lock.try_acquire().await });
    // Steps of a fifth of a millisecond, from before the request to behind its reply: they meet each part of it.
    let moment = Duration::from_micros(200 * (round % 20));
    // sleep: the moment of the fault, which no test waits for.
    tokio::time::sleep(moment).await;
    link.cut(true);
    // sleep: the same.
    tokio::time::sleep(Duration::from_micros(500 * (round % 3))).await;
    primary.crash();
    assert_eq!(replica.conn().line("REPLICAOF NO ONE").text(), "OK");

    let first = acquisition.await.unwrap().ok().flatten();
    let other = Lock::new(&client(&replica), "k").lease(LEASE);
    let second = other.try_acquire().await.unwrap();
    let believes = first
        .as_ref()
        .is_some_and(|first| !first.valid_for().is_zero());
    // The background releases of the first owner come to an end.
    primary.start_again();
    Ended {
        is_granted: first.is_some(),
        has_second: believes && second.is_some(),
    }
}
