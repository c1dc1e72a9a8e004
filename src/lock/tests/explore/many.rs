//! Requests on one lock and on two at once, with the search for deadlocks and without.

use crate::lock::tests::explore::digest::BEGIN_MS;
use crate::lock::tests::explore::{explore, has_few_holds, step, Action, Scene};
use crate::lock::tests::model::many::{Ask, Case, Op};
use crate::lock::tests::model::{conn_of, Case as _};
use crate::lock::tests::sim::Settings;
use crate::lock::{Grace, Lease};

const LEASE_MS: i64 = 2;

fn act(owner: Option<usize>, op: Op) -> Action<Op> {
    Action {
        owner,
        step: step(op, false, false),
    }
}

fn acquire(owner: usize, keys: &[usize], wait: Option<Option<u64>>) -> Op {
    Op::Acquire(Ask {
        keys: keys.to_vec(),
        owner,
        conn: conn_of(owner, 0),
        lease_ms: LEASE_MS,
        wait,
        once: false,
        notify: None,
    })
}

/// Of each owner: one lock or the other, both in either order, with an end of the wait and without.
fn commands(owners: usize) -> Vec<Action<Op>> {
    let mut actions = Vec::new();
    for owner in 0..owners {
        let ops = [
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
        settings: Settings {
            grace: Grace {
                ms: grace_ms,
                max_places: 1_000,
            },
            default_lease: Lease::TEN_SECONDS,
            deadlocks,
            ..Settings::default()
        },
        first: vec![step(Op::Pass(BEGIN_MS), true, true)],
        actions: all,
        rest: Case::come_to_rest,
        is_within: |case| has_few_holds(&case.sim, &["k0", "k1"]),
        depth,
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
