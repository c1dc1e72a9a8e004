//! The exclusive lock: parked waiters, tickets, sessions, kept places, and what others do to the key.

use crate::lock::tests::explore::digest::BEGIN_MS;
use crate::lock::tests::explore::{explore, has_few_holds, step, Action, Scene, MOST_HOLDS};
use crate::lock::tests::model::exclusive::{Case, Names, Op};
use crate::lock::tests::model::naive::{Ask, Owner, Terms};
use crate::lock::tests::model::{lease, Case as _, Step};
use crate::lock::tests::sim::Settings;
use crate::lock::{Grace, Limits, Mode, WindowRule};

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
    let ask = Ask::new(key, (owner, conn), (Mode::Exclusive, terms), wait);
    let op = Op::Acquire(ask.notify(notify));
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
        is_within: |case| has_few_holds(&case.sim, &["k0", "k1"], MOST_HOLDS),
        depth,
        exact: false,
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

/// The same behind a third owner, which holds the lock: two owners leave the queue and return to it.
#[test]
fn one_lock_with_kept_places_behind_a_holder() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        let terms = Terms::Named(LEASE_MS);
        actions.push(acquire((0, owner, 0), terms, Some(None), None));
        actions.push(act(Some(owner), Op::Disconnect(owner, 0)));
        let withdraw = Op::Release(0, owner, true, Names::Nothing);
        actions.push(act(Some(owner), withdraw));
    }
    let release = Op::Release(0, 2, true, Names::Nothing);
    actions.push(act(None, release));
    let name = "one lock, kept places behind a holder";
    let mut scene = scene((name, 3, 2), actions);
    let holds = acquire((0, 2, 0), Terms::Named(9), None, None).step;
    scene.first.push(holds);
    explore(&scene);
}

/// A grant in flight while another owner waits. Its owner asks again, its connection closes, the key changes.
#[test]
fn one_lock_with_a_grant_in_flight() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        let terms = Terms::Named(LEASE_MS);
        for wait in [None, Some(None)] {
            actions.push(acquire((0, owner, 1), terms, wait, None));
        }
        actions.push(act(None, Op::Disconnect(owner, 0)));
        let release = Op::Release(0, owner, true, Names::Nothing);
        actions.push(act(None, release));
        let takes = Op::RedissonAcquires(0, owner, LEASE_MS);
        actions.push(act(None, takes));
    }
    let of_others = [Op::Del(0), Op::Hdel(0), Op::MayGrant(false)];
    actions.extend(of_others.map(|op| act(None, op)));
    let name = "one lock, a grant in flight";
    let mut scene = scene((name, 2, 2), without_order(actions));
    let waits = |owner| acquire((0, owner, 0), Terms::Named(4), Some(None), None).step;
    let hands_off = step(Op::Release(0, 2, true, Names::Nothing), false, false);
    scene
        .first
        .extend([waits(2), waits(0), waits(1), hands_off]);
    explore(&scene);
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
    actions.push(act(None, Op::Del(0)));
    actions.push(act(Some(0), Op::RedissonAcquires(0, 0, LEASE_MS)));
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
        break_to(1, Names::Nothing),
        Op::DropAddressee,
        Op::MayGrant(false),
        Op::MayGrant(true),
    ];
    actions.extend(of_others.map(|op| act(None, op)));
    explore(&scene(("one lock, other clients", 2, 0), actions));
}

fn break_to(owner: Owner, names: Names) -> Op {
    let how = (Mode::Exclusive, Terms::Named(LEASE_MS));
    let ask = Ask::new(0, (owner, 0), how, None);
    Op::BreakTo(Ask { once: true, ..ask }, names)
}

/// Re-entries: sent twice, with a shorter lease, three deep. Releases and renewals name the token of this grant or of
/// an older one.
#[test]
fn one_lock_with_reentries() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        for (lease_ms, once) in [(LEASE_MS, true), (LEASE_MS, false), (1, false)] {
            let how = (Mode::Exclusive, Terms::Named(lease_ms));
            let ask = Ask::new(0, (owner, 0), how, None);
            actions.push(act(Some(owner), Op::Acquire(Ask { once, ..ask })));
        }
        actions.push(acquire(
            (0, owner, 0),
            Terms::Named(LEASE_MS),
            Some(None),
            None,
        ));
        for names in [Names::Present, Names::Past(1)] {
            for all in [false, true] {
                actions.push(act(Some(owner), Op::Release(0, owner, all, names)));
            }
            for ms in [1, LEASE_MS + 1] {
                let renew = Op::Renew(0, owner, Terms::Named(ms), names);
                actions.push(act(Some(owner), renew));
            }
        }
    }
    for purge in [false, true] {
        actions.push(act(None, Op::Break(0, Names::Past(1), purge)));
        actions.push(act(None, Op::Break(0, Names::Present, purge)));
    }
    for owner in 0..2 {
        for names in [Names::Past(1), Names::Present] {
            actions.push(act(Some(owner), break_to(owner, names)));
        }
    }
    let mut scene = scene(("one lock, re-entries", 2, 0), actions);
    scene.is_within = |case| has_few_holds(&case.sim, &["k0"], MOST_HOLDS + 1);
    explore(&scene);
}

/// Events of the server's life: the startup delay, a change of role and back, FLUSHALL.
#[test]
fn one_lock_with_changes_of_the_server() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        for wait in [None, Some(None), Some(Some(2))] {
            actions.push(acquire((0, owner, 0), Terms::Named(LEASE_MS), wait, None));
        }
        actions.push(acquire((0, owner, 1), Terms::Session, None, None));
        actions.push(acquire(
            (0, owner, 2),
            Terms::Named(LEASE_MS),
            Some(None),
            Some(0),
        ));
        let release = Op::Release(0, owner, true, Names::Nothing);
        actions.push(act(Some(owner), release));
        actions.push(act(Some(owner), Op::Disconnect(owner, 0)));
        actions.push(act(Some(owner), Op::Disconnect(owner, 1)));
    }
    let of_the_server = [
        break_to(1, Names::Nothing),
        Op::Advance(1),
        Op::Delay(2),
        Op::ChangeRole,
        Op::Flush,
        Op::DropAddressee,
    ];
    actions.extend(of_the_server.map(|op| act(None, op)));
    let mut scene = scene(("one lock, changes of the server", 2, 2), actions);
    // The model settles a lock at the end of the delay, the server with its timer: both run together here.
    let passes = |action: &Action<Op>| matches!(action.step.op, Op::Pass(1));
    scene.actions.retain(|action| !passes(action));
    explore(&scene);
}

/// What tokens depend on: restarts, the clock set back, a forged horizon, Redisson's counter, FLUSHALL.
#[test]
fn one_lock_with_restarts() {
    let mut actions = Vec::new();
    for owner in 0..2 {
        actions.push(acquire((0, owner, 0), Terms::Named(LEASE_MS), None, None));
        let release = Op::Release(0, owner, true, Names::Nothing);
        actions.push(act(Some(owner), release));
    }
    let renew = Op::Renew(0, 0, Terms::Named(LEASE_MS), Names::Nothing);
    let waits = acquire((0, 1, 1), Terms::Named(LEASE_MS), Some(None), None);
    actions.push(act(None, renew));
    actions.push(waits);
    let of_others = [
        Op::RedissonAcquires(0, 0, LEASE_MS),
        Op::Restart(0),
        Op::Restart(7_200_000),
        Op::SetClock(-3),
        Op::Forge(0, 3),
        Op::Forge(0, (1 << 53) - 1),
        Op::Counter(0, 300_000_000_000),
        Op::Flush,
        Op::ChangeRole,
        Op::DropAddressee,
    ];
    actions.extend(of_others.map(|op| act(None, op)));
    let mut scene = scene(("one lock, restarts", 2, 1), without_order(actions));
    scene.exact = true;
    // One grant has been: there is a token, and a horizon.
    let takes = acquire((0, 0, 0), Terms::Named(LEASE_MS), None, None).step;
    let gives = step(Op::Release(0, 0, true, Names::Nothing), false, false);
    scene.first.extend([takes, gives]);
    explore(&scene);
}

/// Limits of one request in all and of one on each key, one ticket, one kept place.
#[test]
fn two_locks_with_limits() {
    let limits = |max_waiters, max_waiters_per_key| Limits {
        max_waiters,
        max_waiters_per_key,
        max_tickets: 1,
        max_wait_bytes: 10_000_000,
        user_share: 100,
        max_tracked: 1,
    };
    for (name, limits) in [
        ("two locks, a limit of all", limits(1, 100)),
        ("two locks, a limit of each", limits(100, 1)),
    ] {
        let mut actions = Vec::new();
        for owner in 0..3 {
            for key in 0..2 {
                let who = (key, owner, 0);
                for notify in [None, Some(0)] {
                    let terms = Terms::Named(LEASE_MS);
                    actions.push(acquire(who, terms, Some(None), notify));
                }
            }
            let release = Op::Release(0, owner, true, Names::Nothing);
            actions.push(act(Some(owner), release));
            actions.push(act(Some(owner), Op::Disconnect(owner, 0)));
        }
        let mut scene = scene((name, 2, 1), actions);
        scene.settings.limits = limits;
        scene.settings.grace.max_places = 1;
        let holds = |key| acquire((key, 3, 0), Terms::Named(LEASE_MS), None, None).step;
        scene.first.extend([holds(0), holds(1)]);
        explore(&scene);
    }
}

const EVERY_HAND_OFF: WindowRule = WindowRule {
    after: 1,
    window_ms: 2,
    polled: false,
};

fn window_actions() -> Vec<Action<Op>> {
    let mut actions = plain(0, 2);
    for owner in 0..2 {
        let takes = Op::RedissonAcquires(0, owner, 1);
        actions.push(act(Some(owner), takes));
    }
    actions.push(act(None, Op::Subscribe(0, true)));
    actions.push(act(None, Op::Subscribe(0, false)));
    actions
}

/// Redisson windows: one after each hand-off while the channel of the lock has a subscriber.
#[test]
fn one_lock_with_windows() {
    let mut scene = scene(("one lock, windows", 3, 0), window_actions());
    scene.settings.windows = EVERY_HAND_OFF;
    explore(&scene);
}

/// The same, from a lock on whose next hand-off a window follows. The setting changes, too.
#[test]
fn one_lock_before_a_window() {
    let mut actions = window_actions();
    let gives = Op::RedissonReleases(0, 0, 1);
    actions.push(act(None, gives));
    let rule = WindowRule::default();
    let of_the_server = [Op::SetWindowRule(rule), Op::ChangeRole];
    actions.extend(of_the_server.map(|op| act(None, op)));
    let mut scene = scene(("one lock, before a window", 2, 0), without_order(actions));
    scene.settings.windows = EVERY_HAND_OFF;
    let asks = |owner| acquire((0, owner, 0), Terms::Named(4), Some(None), None).step;
    let hands_off = step(Op::Release(0, 0, true, Names::Nothing), true, true);
    let subscribes = step(Op::Subscribe(0, true), false, false);
    scene
        .first
        .extend([subscribes, asks(0), asks(1), hands_off, asks(0)]);
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

/// From a lock that is held and has two tickets on one channel. The grace time is longer.
#[test]
fn one_lock_with_tickets_that_wait() {
    let mut actions = tickets(1);
    actions.extend((0..3).map(|owner| act(None, Op::Disconnect(owner, 0))));
    let mut scene = scene(
        ("one lock, tickets that wait", 2, 3),
        without_order(actions),
    );
    let waits = |owner, wait, notify| acquire((0, owner, 0), Terms::Named(4), wait, notify).step;
    let tickets = [0, 1].map(|owner| waits(owner, Some(None), Some(0)));
    scene.first.push(waits(2, None, None));
    scene.first.extend(tickets);
    explore(&scene);
}

#[test]
fn two_locks_with_tickets_of_three_owners() {
    let actions = without_order(tickets(2));
    let name = "two locks, tickets, three owners";
    explore(&scene((name, 2, 0), actions));
}
