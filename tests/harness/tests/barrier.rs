//! A barrier notices a reply in each of the ways in which the module sends one.

use redis_lock_harness::barrier::{assert_stays_silent, Barrier};
use redis_lock_harness::scene::Scene;

#[test]
fn a_parked_client_without_reply_is_silent() {
    let mut scene = Scene::new();
    assert_stays_silent(&scene.server, &mut scene.bob);
}

#[test]
#[should_panic(expected = "unexpected")]
fn a_grant_by_a_release_is_noticed() {
    let mut scene = Scene::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.alice.send_line("LOCK.RELEASE k alice");
    barrier.assert_silent(&mut scene.bob);
}

/// The key is settled by the timer at the end of the tick.
#[test]
#[should_panic(expected = "unexpected")]
fn a_grant_by_the_timer_is_noticed() {
    let mut scene = Scene::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.alice.send_line("DEL k");
    barrier.assert_silent(&mut scene.bob);
}

/// Refused at first, the key is settled again after the retry interval at the latest.
#[test]
#[should_panic(expected = "unexpected")]
fn a_grant_by_a_retry_is_noticed() {
    let mut scene = Scene::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.exec(&["DEL k", "CONFIG SET min-replicas-to-write 1"]);
    barrier.assert_silent(&mut scene.alice);
    scene.alice.line("CONFIG SET min-replicas-to-write 0");
    barrier.assert_silent(&mut scene.bob);
}
