//! More tickets without a subscriber than one decision passes over: what a newcomer is answered meanwhile.

use crate::lock::tests::sim::{Settings, Sim, Terms, DEFAULT_LEASE_MS};
use crate::lock::wait::passed::PASSED_AT_ONCE;
use crate::lock::{Answer, KeyState, Lease, Limits, ManyAnswer, Mode, Wait};

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
    let lease = Lease::from_ms(DEFAULT_LEASE_MS as i64).unwrap();
    let how = (Mode::Exclusive, lease, Wait::No, false);
    let answer = sim.acquire_many(&["k", "l"], "newcomer", 0, how);
    assert_eq!(answer, Ok(ManyAnswer::Refused(0)));
    check_granted_to_last(sim);
}
