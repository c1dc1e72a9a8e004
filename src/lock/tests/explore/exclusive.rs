//! The exclusive lock: parked waiters, tickets, sessions, kept places, and what others do to the key.

use crate::lock::tests::explore::digest::BEGIN_MS;
use crate::lock::tests::explore::{explore, has_few_holds, step, Action, Scene};
use crate::lock::tests::model::exclusive::{Case, Names, Op, Terms};
use crate::lock::tests::model::{lease, Case as _, Step};
use crate::lock::tests::sim::Settings;
use crate::lock::{Grace, WindowRule};

const LEASE_MS: i64 = 2;

fn settings(grace_ms: u64) -> Settings {
    Settings {
        grace: Grace {
            ms: grace_ms,
            max_places: 100,
        },
        deadlocks: false,
        default_lease: lease(LEASE_MS),
        session_lease: lease(3),
        windows: WindowRule::default(),
        ..Settings::default()
    }
}

/// A command or an event; the tick goes on.
fn act(owner: Option<usize>, op: Op) -> Action<Op> {
    Action {
        owner,
        step: step(op, false, false),
    }
}

fn acquire(
    (key, owner, conn): (usize, usize, u64),
    terms: Terms,
    wait: Option<Option<u64>>,
    notify: Option<usize>,
) -> Action<Op> {
    let op = Op::Acquire {
        key,
        owner,
        conn,
        terms,
        wait,
        once: false,
        notify,
    };
    act(Some(owner), op)
}

/// The end of the tick, the delivery of replies, time with its timer and without.
fn server() -> Vec<Action<Op>> {
    let of = |op, ends_tick, delivers| Action {
        owner: None,
        step: step(op, ends_tick, delivers),
    };
    vec![
        of(Op::Pass(0), true, false),
        of(Op::Pass(0), false, true),
        of(Op::Pass(1), false, false),
        of(Op::Alarm, false, false),
    ]
}

fn begin() -> Vec<Step<Op>> {
    vec![step(Op::Pass(BEGIN_MS), true, true)]
}

fn scene(
    (name, depth, grace_ms): (&'static str, usize, u64),
    actions: Vec<Action<Op>>,
) -> Scene<Case> {
    let mut all = server();
    all.extend(actions);
    Scene {
        name,
        settings: settings(grace_ms),
        first: begin(),
        actions: all,
        rest: Case::come_to_rest,
        is_within: |case| has_few_holds(&case.sim, &["k0", "k1"]),
        depth,
    }
}

/// Acquire without waiting, with and without an end, release and disconnect, of each owner with one connection.
fn plain(key: usize, owners: usize) -> Vec<Action<Op>> {
    let mut actions = Vec::new();
    for owner in 0..owners {
        let who = (key, owner, 0);
        for wait in [None, Some(None), Some(Some(1))] {
            actions.push(acquire(who, Terms::Named(LEASE_MS), wait, None));
        }
        let release = Op::Release(key, owner, true, Names::Nothing);
        actions.push(act(Some(owner), release));
        actions.push(act(Some(owner), Op::Disconnect(owner, 0)));
    }
    actions
}

/// A parked request, one of an owner that holds already, a lost reply, and DEL.
#[test]
fn one_lock_of_two_owners() {
    let mut actions = plain(0, 2);
    actions.push(act(None, Op::Del(0)));
    explore(&scene(("one lock, two owners", 4, 0), actions));
}

/// The place of a connection that closed, of a wait that ran out and of an undone grant is kept; owners ask again.
#[test]
fn one_lock_with_kept_places() {
    let mut actions = plain(0, 2);
    for owner in 0..2 {
        let again = (0, owner, 1);
        actions.push(acquire(again, Terms::Named(1), Some(Some(2)), None));
        actions.push(act(Some(owner), Op::Unblock(owner, 0)));
    }
    explore(&scene(("one lock, kept places", 3, 2), actions));
}

/// Holds that are bound to connections. A request of the holder comes from the same connection or from another.
#[test]
fn one_lock_with_sessions() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        for conn in 0..2 {
            let who = (0, owner, conn);
            actions.push(acquire(who, Terms::Session, Some(None), None));
            actions.push(act(Some(owner), Op::Disconnect(owner, conn)));
        }
        actions.push(acquire((0, owner, 1), Terms::Unnamed, Some(None), None));
        let release = Op::Release(0, owner, false, Names::Nothing);
        actions.push(act(Some(owner), release));
        let renew = Op::Renew(0, owner, Terms::Named(LEASE_MS), Names::Nothing);
        actions.push(act(Some(owner), renew));
    }
    explore(&scene(("one lock, sessions", 3, 1), actions));
}

/// Redisson's scripts, plain commands on the key, BREAK, and times at which no token can be minted.
#[test]
fn one_lock_with_other_clients() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        let who = (0, owner, 0);
        for wait in [None, Some(None)] {
            actions.push(acquire(who, Terms::Named(LEASE_MS), wait, None));
        }
        let release = Op::Release(0, owner, false, Names::Nothing);
        actions.push(act(Some(owner), release));
        let of_past = Op::Release(0, owner, false, Names::Past(1));
        actions.push(act(Some(owner), of_past));
        let renew = Op::Renew(0, owner, Terms::Named(1), Names::Nothing);
        actions.push(act(Some(owner), renew));
        let takes = Op::RedissonAcquires(0, owner, LEASE_MS);
        actions.push(act(Some(owner), takes));
        let gives = Op::RedissonReleases(0, owner, LEASE_MS);
        actions.push(act(Some(owner), gives));
    }
    let of_others = [
        Op::Del(0),
        Op::Overwrite(0, false),
        Op::Overwrite(0, true),
        Op::Hdel(0),
        Op::ServerExpires(0),
        Op::SetTtl(0, Some(1)),
        Op::Break(0, Names::Nothing, false),
        Op::Break(0, Names::Nothing, true),
        Op::DropAddressee,
        Op::MayGrant(false),
        Op::MayGrant(true),
    ];
    actions.extend(of_others.map(|op| act(None, op)));
    explore(&scene(("one lock, other clients", 2, 0), actions));
}

/// Redisson windows: one after each hand-off while the channel of the lock has a subscriber.
#[test]
fn one_lock_with_windows() {
    let mut actions = plain(0, 2);
    for owner in 0..2 {
        let takes = Op::RedissonAcquires(0, owner, 1);
        actions.push(act(Some(owner), takes));
    }
    actions.push(act(None, Op::Subscribe(0, true)));
    actions.push(act(None, Op::Subscribe(0, false)));
    let mut scene = scene(("one lock, windows", 3, 0), actions);
    scene.settings.windows = WindowRule {
        after: 1,
        window_ms: 2,
    };
    explore(&scene);
}

/// Tickets on two channels and parked requests in one queue; subscribers come and go.
fn tickets(keys: usize) -> Vec<Action<Op>> {
    let mut actions = Vec::new();
    for key in 0..keys {
        for owner in 0..3 {
            let who = (key, owner, 0);
            let term = Terms::Named(LEASE_MS);
            for (wait, channel) in [(Some(None), owner % 2), (Some(Some(1)), 0)] {
                actions.push(acquire(who, term, wait, Some(channel)));
            }
            actions.push(acquire(who, term, Some(None), None));
            let release = Op::Release(key, owner, true, Names::Nothing);
            actions.push(act(Some(owner), release));
        }
    }
    for channel in 0..2 {
        for is_subscribed in [false, true] {
            actions.push(act(None, Op::Hear(channel, is_subscribed)));
        }
    }
    actions.push(act(None, Op::DropAddressee));
    actions
}

/// The owners differ by their channels: none has to act before another.
fn without_order(mut actions: Vec<Action<Op>>) -> Vec<Action<Op>> {
    actions.iter_mut().for_each(|action| action.owner = None);
    actions
}

#[test]
fn one_lock_with_tickets_of_three_owners() {
    let actions = without_order(tickets(1));
    explore(&scene(("one lock, tickets, three owners", 2, 1), actions));
}

#[test]
fn two_locks_with_tickets_of_three_owners() {
    let actions = without_order(tickets(2));
    let name = "two locks, tickets, three owners";
    explore(&scene((name, 2, 0), actions));
}
