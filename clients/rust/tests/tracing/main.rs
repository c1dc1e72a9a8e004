//! The events that the crate emits through `tracing`. The subscriber is that of the whole process, because the thread
//! of the crate emits renewals and losses; so each test has a key of its own.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod collector;

use std::sync::Once;
use std::thread;
use std::time::Duration;

use redis_lock_client::{block_on, Lock, LostReason, RedLock, Released, Server};
use redis_lock_harness::{wait_for, TestServer};
use tracing::Level;

use collector::{event, events, is_blocked, unblock, Collector, Recorded, BLOCKING};

const LONG: Duration = Duration::from_secs(60);
/// The longest time for a reply, of which a twentieth is for that to a `try_acquire`.
const PATIENT: Duration = Duration::from_secs(100);

fn client(real: &TestServer) -> Server {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
    let server = Server::builder(&format!("redis://127.0.0.1:{}", real.port));
    server.response_timeout(PATIENT).build().unwrap()
}

/// The event, as soon as it is there: the thread that emits events may stand in the subscriber of another test.
fn emitted(key: &str, name: &str) -> Recorded {
    wait_for("the event", || event(key, name).is_some());
    event(key, name).unwrap()
}

fn assert_recorded(recorded: &Recorded, level: Level, fields: &[(&str, &str)]) {
    assert_eq!(recorded.level, level, "{recorded:?}");
    for (name, value) in fields {
        assert_eq!(recorded.field(name), *value, "{recorded:?}");
    }
}

#[test]
fn a_subscriber_that_blocks_does_not_delay_renewals() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = |key| Lock::new(&server, key).lease(Duration::from_secs(3));
    let kept = block_on(lock("kept").acquire()).unwrap();
    let lost = block_on(lock(BLOCKING).acquire()).unwrap();
    real.conn().line(&format!("LOCK.BREAK {BLOCKING}"));
    wait_for("a subscriber that blocks", is_blocked);
    let renewals = real.stat("renewals");
    wait_for("renewals", || real.stat("renewals") >= renewals + 4);
    assert_eq!(kept.lost().reason(), None);
    unblock();
    emitted(BLOCKING, "lost");
    drop((kept, lost));
}

#[test]
fn a_hold_from_its_grant_to_its_release() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = Lock::new(&server, "whole").owner("worker-7");
    let guard = block_on(lock.acquire()).unwrap();
    let token = guard.token().to_string();
    emitted("whole", "renewed");
    assert_eq!(block_on(guard.release()).unwrap(), Released::Yes);

    let fields = [
        ("server", server.name()),
        ("owner", "worker-7"),
        ("token", &token),
    ];
    for name in ["granted", "renewed", "released"] {
        assert_recorded(&emitted("whole", name), Level::DEBUG, &fields);
    }
    assert!(event("whole", "lost").is_none());
    let granted = emitted("whole", "granted");
    assert!(granted.field("waited_ms").parse::<u64>().is_ok());
    let span = granted.span.expect("the span of the acquisition");
    assert_eq!(span.name, "redis_lock.acquire");
    assert_recorded(
        &span,
        Level::DEBUG,
        &[("key", "whole"), fields[0], fields[1]],
    );
}

#[test]
fn a_granted_and_an_expired_wait() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "wait");
    let first = block_on(lock.acquire()).unwrap();
    assert!(block_on(lock.try_acquire()).unwrap().is_none());
    let refused = emitted("wait", "not granted");
    assert_recorded(&refused, Level::DEBUG, &[]);
    assert!(!refused.fields.contains_key("error"));
    assert!(event("wait", "parked").is_none());

    let waiting = lock.clone();
    let waiter = thread::spawn(move || block_on(waiting.acquire()).unwrap());
    real.wait_for_waits(1);
    drop(first);
    let second = waiter.join().unwrap();
    let parked = emitted("wait", "parked");
    let owner = String::from_utf8(second.owner().to_vec()).unwrap();
    assert_recorded(&parked, Level::DEBUG, &[("owner", &owner)]);
    assert_eq!(parked.span.unwrap().name, "redis_lock.acquire");

    real.conn().line("SET wait plain");
    let error = block_on(lock.try_acquire()).unwrap_err().to_string();
    let failed = || {
        let mut recorded = events("wait").into_iter();
        recorded.find(|recorded| recorded.fields.contains_key("error"))
    };
    wait_for("an error", || failed().is_some());
    assert_recorded(&failed().unwrap(), Level::DEBUG, &[("error", &error)]);
}

#[test]
fn a_loss_is_a_warning() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "broken").lease(LONG);
    let guard = block_on(lock.acquire()).unwrap();
    real.conn().line("LOCK.BREAK broken");
    assert_eq!(guard.lost().wait(LONG), Some(LostReason::Taken));
    let token = guard.token().to_string();
    let reason = LostReason::Taken.to_string();
    let lost = emitted("broken", "lost");
    assert_recorded(
        &lost,
        Level::WARN,
        &[("token", &token), ("reason", &reason)],
    );
}

#[test]
fn a_failed_background_release_is_a_warning() {
    let mut real = TestServer::start();
    let server = client(&real);
    let lock = Lock::new(&server, "left").lease(Duration::from_secs(2));
    let guard = block_on(lock.acquire()).unwrap();
    let token = guard.token().to_string();
    real.crash();
    drop(guard);
    let left = block_on(server.settled()).remove(0);
    let recorded = emitted("left", "left behind");
    let error = left.error.to_string();
    assert_recorded(
        &recorded,
        Level::WARN,
        &[("token", &token), ("error", &error)],
    );
    assert!(event("left", "lost").is_none());
    real.start_again();
}

#[test]
fn a_red_lock_emits_events_for_each_of_its_servers() {
    let reals = [(); 3].map(|()| {
        let real = TestServer::start();
        real.conn().line("CONFIG SET lock.startup-delay 60000");
        real
    });
    let servers = [0, 1, 2].map(|place: usize| client(&reals[place]));
    let lock = RedLock::new(&servers, "red").unwrap();
    let guard = block_on(lock.acquire()).unwrap();
    let tokens = guard.tokens();
    assert_eq!(block_on(guard.release()).unwrap(), Released::Yes);
    for name in ["granted", "released"] {
        for (server, token) in &tokens {
            let fields = [("server", server.clone()), ("token", token.to_string())];
            wait_for(&format!("{name} at {server}"), || {
                events("red").into_iter().any(|recorded| {
                    let is_there =
                        |(of, value): &(&str, String)| recorded.fields.get(of) == Some(value);
                    recorded.name == name && fields.iter().all(is_there)
                })
            });
        }
    }
    let span = emitted("red", "granted").span.unwrap();
    assert_eq!(span.name, "redis_lock.acquire");
    assert_eq!(span.field("server").split(',').count(), 3);
}

#[test]
fn a_wait_whose_server_is_gone_is_a_warning_with_the_cause() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    real.conn().line("LOCK.ACQUIRE gone raw PX 600000");
    let lock = Lock::new(&client(&real), "gone");
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    real.wait_for_waits(1);
    real.crash();
    let warning = emitted("gone", "unreached");
    assert_recorded(&warning, Level::WARN, &[]);
    let error = warning.field("error");
    assert!(error.contains("Connection refused"), "{error}");
    assert!(warning.field("unreached_ms").parse::<u64>().unwrap() >= 3_000);
    real.start_again();
    real.wait_for_waits(1);
    real.conn().line("LOCK.RELEASE gone raw");
    drop(waiter.join().unwrap());
}
