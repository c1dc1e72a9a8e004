//! More tickets without a subscriber, or requests of a user that is not permitted any more, than one decision passes
//! over.

use crate::lock::tests::sim::{Settings, Sim, Terms, DEFAULT_LEASE_MS};
use crate::lock::wait::hearing::PASSED_AT_ONCE;
use crate::lock::{
    Answer, Cx, Effects, KeyRef, KeyState, Lease, Limits, LockError, Mode, Now, Resource, Token,
    UserId, Wait,
};

/// A server whose lock `k` was deleted in this tick. Of its tickets the last one alone is heard.
fn crowded() -> Sim {
    let default = Settings::default();
    let limits = Limits {
        max_tickets: PASSED_AT_ONCE + 2,
        ..default.limits
    };
    let mut sim = Sim::new(&Settings { limits, ..default });
    sim.subscribe_channel("heard", true);
    acquire(&mut sim, "holder", Wait::No).unwrap();
    for tag in 0..=PASSED_AT_ONCE {
        sim.notify = Some(("gone".into(), tag.to_string()));
        acquire(&mut sim, &format!("gone {tag}"), Wait::ForEver).unwrap();
    }
    sim.notify = Some(("heard".into(), "last".into()));
    acquire(&mut sim, "last", Wait::ForEver).unwrap();
    sim.settle_all();
    sim.del("k");
    sim
}

fn acquire(sim: &mut Sim, owner: &str, wait: Wait) -> Result<Answer, crate::lock::LockError> {
    sim.acquire(
        "k",
        owner,
        0,
        (Mode::Exclusive, Terms::Unnamed, wait, false),
    )
}

/// The rest of the tickets is passed over in the same tick.
fn check_granted_to_last(mut sim: Sim) {
    sim.settle_all();
    assert!(sim.tickets.is_empty());
    let state = sim.state("k");
    assert!(matches!(&state, KeyState::Held(hold) if &hold.owner[..] == b"last"));
}

#[test]
fn a_newcomer_does_not_pass_tickets_that_are_to_be_asked_for() {
    let mut sim = crowded();
    let answer = acquire(&mut sim, "newcomer", Wait::No);
    assert_eq!(answer, Ok(Answer::Refused));
    check_granted_to_last(sim);
}

#[test]
fn a_newcomer_for_several_keys_does_not_pass_tickets_that_are_to_be_asked_for() {
    let mut sim = crowded();
    let answer = acquire_many(&mut sim, &["k", "l"], ("newcomer", 0), Wait::No);
    assert_eq!(answer, Answer::Refused);
    check_granted_to_last(sim);
}

fn acquire_many(
    sim: &mut Sim,
    keys: &[&str],
    (owner, conn): (&str, u64),
    wait: Wait,
) -> Answer<Vec<Token>> {
    let lease = Lease::from_ms(DEFAULT_LEASE_MS as i64).unwrap();
    let how = (Mode::Exclusive, Terms::Named(lease), wait, false);
    sim.acquire_many(keys, owner, conn, how).unwrap()
}

/// A server whose lock `k` is held, and five requests of a user, each on 301 keys, `k` among them.
fn crowded_by(user: UserId, channel: Option<&str>) -> Sim {
    let default = Settings::default();
    let limits = Limits {
        max_waiters: 10 * PASSED_AT_ONCE,
        max_tickets: 10 * PASSED_AT_ONCE,
        ..default.limits
    };
    let mut sim = Sim::new(&Settings { limits, ..default });
    sim.subscribe_channel("heard", true);
    acquire(&mut sim, "holder", Wait::No).unwrap();
    let mut keys: Vec<String> = (0..300).map(|number| format!("l{number}")).collect();
    keys.push("k".into());
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    sim.user = user;
    for conn in 1..=5 {
        let owner = format!("owner {conn}");
        sim.notify = channel.map(|channel| (channel.into(), owner.clone()));
        acquire_many(&mut sim, &keys, (&owner, conn), Wait::ForEver);
    }
    sim.settle_all();
    sim
}

#[test]
fn requests_of_a_revoked_user_fail_until_as_many_places_are_passed_over() {
    let mut sim = crowded_by(UserId(2), None);
    sim.forbidden.insert(UserId(2));
    sim.release("k", "holder", (None, false, None)).unwrap();
    assert_eq!(
        sim.locks.shared.waiters.stats[Resource::Lock].waits_failed,
        2
    );
    sim.settle_all();
    assert_eq!(
        sim.locks.shared.waiters.stats[Resource::Lock].waits_failed,
        5
    );
}

#[test]
fn tickets_of_a_deleted_user_end_in_steps() {
    let mut sim = crowded_by(UserId(2), Some("heard"));
    sim.locks.shared.waiters.user_is_deleted(UserId(2));
    let failed = |sim: &Sim| sim.locks.shared.waiters.ticket_stats.waits_failed;
    while sim.locks.shared.waiters.has_gone() {
        let before = failed(&sim);
        let mut fx = Effects::new();
        sim.locks
            .shared
            .waiters
            .end_gone(&mut Cx::new(sim.now, &mut fx));
        assert!(failed(&sim) <= before + 1);
    }
    assert_eq!(failed(&sim), 5);
}

/// Five tickets on a channel with thousands of subscribers, for READ or not, behind a holder.
fn behind_many_subscribers(mode: Mode) -> Sim {
    let mut sim = Sim::new(&Settings::default());
    sim.subscribe_channel("heard", true);
    sim.subscribers = 10_000;
    let how = |mode, wait| (mode, Terms::Unnamed, wait, false);
    let holds = how(Mode::Write, Wait::No);
    sim.acquire("k", "holder", 0, holds).unwrap();
    for tag in 1..=5 {
        let owner = format!("owner {tag}");
        sim.notify = Some(("heard".into(), owner.clone()));
        let waits = how(mode, Wait::ForEver);
        sim.acquire("k", &owner, tag, waits).unwrap();
    }
    sim.settle_all();
    sim
}

#[test]
fn one_decision_grants_to_one_ticket_that_thousands_of_subscribers_hear() {
    let mut sim = behind_many_subscribers(Mode::Read);
    sim.release("k", "holder", (None, false, None)).unwrap();
    let granted = |sim: &Sim| sim.locks.shared.waiters.ticket_stats.waits_granted;
    assert_eq!(granted(&sim), 1);
    sim.settle_all();
    assert_eq!(granted(&sim), 5);
}

#[test]
fn one_decision_ends_one_ticket_that_thousands_of_subscribers_hear() {
    let mut sim = behind_many_subscribers(Mode::Write);
    let waiters = &mut sim.locks.shared.waiters;
    for channel in waiters.channels_to_ask(10, Now::at_mono(1_000)) {
        channel.counted(10_000);
    }
    let mut fx = Effects::new();
    let cx = &mut Cx::new(sim.now, &mut fx);
    waiters.fail_all(KeyRef::lock(0, b"k"), &LockError::Broken, cx);
    assert_eq!(waiters.ticket_stats.waits_failed, 1);
    while waiters.next_wait(sim.now) == Some(0) {
        let before = waiters.ticket_stats.waits_failed;
        waiters.end_waits(20, &mut Cx::new(sim.now, &mut fx));
        assert_eq!(waiters.ticket_stats.waits_failed, before + 1);
    }
    assert_eq!(waiters.ticket_stats.waits_failed, 5);
}
