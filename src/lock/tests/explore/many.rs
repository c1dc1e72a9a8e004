//! Requests on one lock and on two at once, with the search for deadlocks and without.

use crate::lock::tests::explore::digest::BEGIN_MS;
use crate::lock::tests::explore::{explore, has_few_holds, step, Action, Scene, MOST_HOLDS};
use crate::lock::tests::model::many::{Case, Op, Setup};
use crate::lock::tests::model::naive::{Ask, Terms};
use crate::lock::tests::model::Case as _;
use crate::lock::tests::sim::Settings;
use crate::lock::{Grace, Lease, Mode};

const LEASE_MS: i64 = 2;

fn act(owner: Option<usize>, op: Op) -> Action<Op> {
    Action {
        owner,
        step: step(op, false, false),
    }
}

fn acquire(owner: usize, keys: &[usize], wait: Option<Option<u64>>) -> Op {
    from(owner, 0, keys, wait)
}

fn from(owner: usize, conn: u64, keys: &[usize], wait: Option<Option<u64>>) -> Op {
    let how = (Mode::Exclusive, Terms::Named(LEASE_MS));
    Op::Acquire(Ask {
        keys: keys.to_vec(),
        ..Ask::new(0, (owner, conn), how, wait)
    })
}

/// Of each owner: one lock or the other, both in either order, with an end of the wait, without, and without waiting.
fn commands(owners: usize) -> Vec<Action<Op>> {
    let mut actions = Vec::new();
    for owner in 0..owners {
        let ops = [
            acquire(owner, &[0], None),
            acquire(owner, &[0], Some(None)),
            acquire(owner, &[1], Some(None)),
            acquire(owner, &[0, 1], None),
            acquire(owner, &[0, 1], Some(None)),
            acquire(owner, &[1, 0], Some(Some(1))),
            Op::Release(vec![0], owner, true),
            Op::Release(vec![0, 1], owner, true),
            Op::Disconnect(owner, 0),
        ];
        actions.extend(ops.map(|op| act(Some(owner), op)));
    }
    actions
}

fn scene(
    (name, depth, grace_ms): (&'static str, usize, u64),
    deadlocks: bool,
    actions: Vec<Action<Op>>,
) -> Scene<Case> {
    let nothing = || Op::Hear(0, true);
    let mut all = vec![act(None, Op::Pass(1)), act(None, Op::Alarm)];
    for (ends_tick, delivers) in [(true, false), (false, true)] {
        all.push(Action {
            owner: None,
            step: step(nothing(), ends_tick, delivers),
        });
    }
    all.extend(actions);
    Scene {
        name,
        settings: Setup {
            server: Settings {
                grace: Grace {
                    ms: grace_ms,
                    max_places: 1_000,
                },
                default_lease: Lease::TEN_SECONDS,
                deadlocks,
                ..Settings::default()
            },
            with_tickets: false,
        },
        first: vec![step(Op::Pass(BEGIN_MS), true, true)],
        actions: all,
        rest: Case::come_to_rest,
        is_within: |case| has_few_holds(&case.sim, &["k0", "k1"], MOST_HOLDS),
        depth,
        exact: false,
    }
}

/// Without the search for deadlocks, with kept places and lost replies.
#[test]
fn two_locks_at_once_of_two_owners() {
    let mut actions = commands(2);
    let of_others = [
        Op::DropAddressee,
        Op::Del(0),
        Op::Break(1, true),
        Op::Overwrite(0),
    ];
    actions.extend(of_others.map(|op| act(None, op)));
    let name = "two locks at once, two owners";
    explore(&scene((name, 2, 1), false, actions));
}

#[test]
fn two_locks_at_once_of_three_owners_with_deadlocks() {
    let name = "two locks at once, three owners, deadlocks";
    explore(&scene((name, 2, 0), true, commands(3)));
}

/// After a hand-off the second owner holds one lock and the first the other. An owner also asks again for both.
#[test]
fn two_locks_at_once_with_deadlocks_after_a_hand_off() {
    let name = "two locks at once, deadlocks after a hand-off";
    let mut actions = commands(2);
    for owner in 0..2 {
        actions.push(act(Some(owner), from(owner, 1, &[0, 1], Some(None))));
    }
    let mut scene = scene((name, 2, 0), true, actions);
    let steps = [
        acquire(0, &[0], None),
        acquire(1, &[0], Some(None)),
        Op::Release(vec![0], 0, true),
        acquire(0, &[1], Some(None)),
    ];
    scene.first.extend(steps.map(|op| step(op, true, true)));
    explore(&scene);
}

/// Two places are the limit of all requests together.
#[test]
fn two_locks_at_once_with_a_limit() {
    let name = "two locks at once, a limit";
    let mut actions = commands(3);
    actions.push(act(Some(1), from(1, 1, &[0, 1], Some(None))));
    let mut scene = scene((name, 2, 1), false, actions);
    scene.settings.server.limits.max_waiters = 2;
    explore(&scene);
}

/// Two owners wait for each of two locks, in opposite orders, and ask for both at once.
#[test]
fn two_locks_at_once_of_owners_that_wait_for_each() {
    let name = "two locks at once, waiting for each";
    let mut actions = commands(2);
    for (owner, keys) in [(0, [0, 1]), (1, [0, 1])] {
        actions.push(act(Some(owner), from(owner, 2, &keys, Some(None))));
    }
    actions.push(act(None, Op::Release(vec![0, 1], 2, true)));
    let mut scene = scene((name, 2, 2), false, actions);
    let steps = [
        acquire(2, &[0, 1], None),
        from(0, 0, &[0], Some(None)),
        from(1, 0, &[1], Some(None)),
        from(1, 1, &[0], Some(None)),
        from(0, 1, &[1], Some(None)),
    ];
    scene.first.extend(steps.map(|op| step(op, true, true)));
    explore(&scene);
}

/// A grant of both locks is in flight to an owner that held one of them before.
#[test]
fn two_locks_at_once_with_a_reentry_in_flight() {
    let name = "two locks at once, a re-entry in flight";
    let mut actions = commands(2);
    actions.push(act(None, Op::DropAddressee));
    actions.push(act(Some(0), from(0, 1, &[0, 1], None)));
    actions.push(act(Some(0), Op::Release(vec![0], 0, false)));
    let mut scene = scene((name, 2, 2), false, actions);
    let steps = [
        acquire(0, &[0], None),
        acquire(1, &[1], None),
        acquire(0, &[0, 1], Some(None)),
        Op::Release(vec![1], 1, true),
    ];
    scene.first.extend(steps.map(|op| step(op, true, false)));
    explore(&scene);
}
