//! The read-write lock: READ and WRITE, upgrades and downgrades, and tickets. The timer runs after every step, as in
//! the random histories.

use crate::lock::tests::explore::digest::BEGIN_MS;
use crate::lock::tests::explore::{explore, has_few_holds, step, Action, Scene};
use crate::lock::tests::model::read_write::{Case, Op, Setup};
use crate::lock::Mode;

const LEASE_MS: i64 = 2;

fn act(owner: Option<usize>, op: Op) -> Action<Op> {
    Action {
        owner,
        step: step(op, true, false),
    }
}

fn acquire(owner: usize, writes: bool, wait: Option<Option<u64>>, notify: Option<usize>) -> Op {
    Op::Acquire {
        owner,
        conn: 0,
        writes,
        lease_ms: LEASE_MS,
        wait,
        once: false,
        session: false,
        notify,
    }
}

fn scene(
    (name, depth, grace_ms): (&'static str, usize, u64),
    actions: Vec<Action<Op>>,
) -> Scene<Case> {
    let mut all = vec![act(None, Op::Pass(1))];
    all.push(Action {
        owner: None,
        step: step(Op::Pass(0), true, true),
    });
    all.extend(actions);
    Scene {
        name,
        settings: Setup {
            grace_ms,
            with_scripts: false,
        },
        first: vec![step(Op::Pass(BEGIN_MS), true, true)],
        actions: all,
        rest,
        is_within: |case| has_few_holds(&case.sim, &["k"]),
        depth,
    }
}

fn rest(case: &mut Case) {
    let sim = &mut case.sim;
    sim.deliver_all();
    sim.advance(10_000);
    sim.deliver_all();
    assert!(sim.parked.is_empty(), "never answered");
    assert!(sim.tickets.is_empty(), "never told");
    let waiters = &sim.locks.waiters;
    assert_eq!((waiters.live(), waiters.kept_places()), (0, 0));
    assert_eq!(waiters.next_wait(sim.now), None);
}

fn commands(owner: usize) -> Vec<Op> {
    let mut ops = Vec::new();
    for writes in [false, true] {
        for wait in [None, Some(None), Some(Some(1))] {
            ops.push(acquire(owner, writes, wait, None));
        }
    }
    ops.push(Op::Release(owner, Some(Mode::Read), false));
    ops.push(Op::Release(owner, Some(Mode::Write), false));
    ops.push(Op::Disconnect(owner, 0));
    ops
}

/// Both modes with and without waiting, releases, disconnects and DEL.
#[test]
fn a_read_write_lock_of_two_owners() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        let ops = commands(owner).into_iter();
        actions.extend(ops.map(|op| act(Some(owner), op)));
    }
    actions.push(act(None, Op::Del));
    explore(&scene(("read-write, two owners", 3, 0), actions));
}

/// Three owners, kept places, grants in flight, BREAK, and the end of a lease in the key.
#[test]
fn a_read_write_lock_of_three_owners() {
    let mut actions = Vec::new();
    for owner in 0..3 {
        let ops = [
            acquire(owner, false, None, None),
            acquire(owner, false, Some(None), None),
            acquire(owner, true, Some(None), None),
            acquire(owner, true, Some(Some(1)), None),
            Op::Release(owner, None, true),
            Op::Renew(owner, Some(Mode::Read), LEASE_MS + 1),
            Op::Disconnect(owner, 0),
        ];
        actions.extend(ops.map(|op| act(Some(owner), op)));
    }
    let of_others = [
        Op::DropAddressee,
        Op::Expire,
        Op::Break(false),
        Op::Break(true),
    ];
    actions.extend(of_others.map(|op| act(None, op)));
    explore(&scene(("read-write, three owners", 2, 1), actions));
}

/// Tickets on two channels beside parked requests; subscribers come and go.
#[test]
fn a_read_write_lock_with_tickets() {
    let mut actions = Vec::new();
    for owner in 0..3 {
        let ops = [
            acquire(owner, false, Some(None), Some(owner % 2)),
            acquire(owner, true, Some(None), Some(owner % 2)),
            acquire(owner, false, Some(Some(1)), None),
            Op::Release(owner, None, true),
        ];
        actions.extend(ops.map(|op| act(None, op)));
    }
    for channel in 0..2 {
        for is_subscribed in [false, true] {
            actions.push(act(None, Op::Hear(channel, is_subscribed)));
        }
    }
    let name = "read-write, tickets, three owners";
    explore(&scene((name, 2, 1), actions));
}
