//! The read-write lock: READ and WRITE, upgrades and downgrades, and tickets. The timer runs after every step, as in
//! the random histories.

use crate::lock::tests::explore::digest::BEGIN_MS;
use crate::lock::tests::explore::{explore, has_few_holds, step, Action, Scene, MOST_HOLDS};
use crate::lock::tests::model::naive::{Ask, Terms};
use crate::lock::tests::model::read_write::{Case, Op, Script, Setup};
use crate::lock::Mode;

const LEASE_MS: i64 = 2;

fn act(owner: Option<usize>, op: Op) -> Action<Op> {
    Action {
        owner,
        step: step(op, true, false),
    }
}

fn acquire(owner: usize, writes: bool, wait: Option<Option<u64>>, notify: Option<usize>) -> Op {
    asks((owner, 0), writes, Terms::Named(LEASE_MS), wait, notify)
}

/// Bound to a connection.
fn session(owner: usize, writes: bool, wait: Option<Option<u64>>, notify: Option<usize>) -> Op {
    asks((owner, 0), writes, Terms::Session, wait, notify)
}

fn asks(
    who: (usize, u64),
    writes: bool,
    terms: Terms,
    wait: Option<Option<u64>>,
    notify: Option<usize>,
) -> Op {
    let mode = if writes { Mode::Write } else { Mode::Read };
    Op::Acquire(Ask::new(0, who, (mode, terms), wait).notify(notify))
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
        is_within: |case| has_few_holds(&case.sim, &["k"], MOST_HOLDS),
        depth,
        exact: false,
    }
}

fn rest(case: &mut Case) {
    let sim = &mut case.sim;
    for _ in 0..3 {
        sim.deliver_all();
        // A bound hold lasts as long as its connection.
        (0..9).for_each(|conn| match sim.is_blocked(conn) {
            true => {}
            false => drop(sim.disconnect(conn)),
        });
        sim.advance(100);
    }
    sim.advance(10_000);
    sim.deliver_all();
    assert!(sim.parked.is_empty(), "never answered");
    assert!(sim.tickets.is_empty(), "never told");
    let waiters = &sim.locks.shared.waiters;
    assert_eq!((waiters.live(), waiters.places.used().kept), (0, 0));
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

/// Redisson's scripts beside the module, sessions and tickets. There is no naive model: only what must hold in any case
/// is asserted.
#[test]
fn a_read_write_lock_with_scripts() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        let scripts = [
            Script::Read,
            Script::Write,
            Script::Unread,
            Script::Unwrite,
            Script::Renew,
        ];
        let scripts = scripts.map(|script| Op::Script(script, owner, LEASE_MS + 1));
        actions.extend(scripts.map(|op| act(None, op)));
        let ops = [
            acquire(owner, false, Some(None), None),
            acquire(owner, true, Some(None), None),
            session(owner, false, None, None),
            session(owner, false, Some(None), Some(0)),
            Op::Release(owner, None, false),
            Op::Disconnect(owner, 0),
        ];
        actions.extend(ops.map(|op| act(None, op)));
    }
    let name = "read-write, scripts and sessions";
    let mut scene = scene((name, 2, 1), actions);
    scene.settings.with_scripts = true;
    explore(&scene);
}

/// The same, from a lock that is held for writing and for which two readers wait with tickets.
#[test]
fn a_read_write_lock_with_readers_that_wait() {
    let mut actions = Vec::new();
    for owner in 0..3 {
        let ops = [
            Op::Release(owner, None, true),
            Op::Disconnect(owner, 0),
            acquire(owner, false, None, None),
        ];
        actions.extend(ops.map(|op| act(None, op)));
    }
    actions.push(act(None, Op::Hear(0, false)));
    actions.push(act(None, Op::DropAddressee));
    actions.push(act(None, Op::Script(Script::Unwrite, 2, LEASE_MS)));
    let name = "read-write, readers that wait";
    let mut scene = scene((name, 2, 1), actions);
    scene.settings.with_scripts = true;
    let steps = [
        acquire(2, true, None, None),
        acquire(0, false, Some(None), Some(0)),
        session(1, false, Some(None), Some(0)),
    ];
    scene.first.extend(steps.map(|op| step(op, true, true)));
    explore(&scene);
}

/// A READ grant in flight whose lease is over, beside another owner that reads.
#[test]
fn a_read_write_lock_with_an_expired_grant_in_flight() {
    let mut actions = Vec::new();
    for wait in [None, Some(None)] {
        actions.push(act(None, acquire(0, false, wait, None)));
    }
    for op in [acquire(0, true, Some(None), None), Op::DropAddressee] {
        actions.push(act(None, op.clone()));
        actions.push(Action {
            owner: None,
            step: step(op, false, false),
        });
    }
    let name = "read-write, an expired grant in flight";
    let mut scene = scene((name, 3, 0), actions);
    let asks = |owner, conn, writes, lease_ms, wait| {
        asks((owner, conn), writes, Terms::Named(lease_ms), wait, None)
    };
    let steps = [
        asks(1, 0, false, 60, None),
        asks(2, 0, true, 1, Some(Some(1))),
        asks(0, 1, false, 1, Some(None)),
        // The wait of the writer ends: the reader behind it is granted.
        Op::Pass(1),
        asks(0, 2, true, 1, Some(None)),
        // Its lease ends.
        Op::Pass(1),
    ];
    scene.first.extend(steps.map(|op| step(op, true, false)));
    explore(&scene);
}
