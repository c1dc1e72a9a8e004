//! Random histories: what can happen, and how often each thing does.

use proptest::prelude::*;

use crate::lock::tests::model::exclusive::{KEYS, OWNERS};
use crate::lock::tests::model::naive::{Ask, Key, Owner, Terms};
use crate::lock::tests::model::tickets::{Channel, CHANNELS};
use crate::lock::tests::model::{ask, grace, lease, limits, wait, CONNS_PER_OWNER};
use crate::lock::tests::sim::Settings;
use crate::lock::{Mode, WindowRule};

/// Which token a command names.
#[derive(Debug, Clone, Copy)]
pub enum Names {
    Nothing,
    Present,
    /// A token of the past of this key.
    Past(usize),
}

#[derive(Debug, Clone)]
pub enum Op {
    Acquire(Ask),
    /// The present holder asks again, from any of its connections.
    HolderAsks(Key, u64, Terms, bool),
    Release(Key, Owner, bool, Names),
    Renew(Key, Owner, Terms, Names),
    Break(Key, Names, bool),
    /// `LOCK.BREAK ... TO`
    BreakTo(Ask, Names),
    Pass(u64),
    Alarm,
    /// The timer, without time for renewals that are not urgent.
    ShortAlarm,
    /// The wall clock alone is set, by so many milliseconds.
    SetClock(i64),
    Disconnect(Owner, u64),
    /// A connection with a grant in flight closes.
    DropAddressee,
    Unblock(Owner, u64),
    Del(Key),
    ServerExpires(Key),
    Hdel(Key),
    SetTtl(Key, Option<i64>),
    Overwrite(Key, bool),
    RedissonAcquires(Key, Owner, i64),
    RedissonReleases(Key, Owner, i64),
    /// Redisson's token counter, so far above the highest token of the key.
    Counter(Key, u64),
    /// A client writes this number over the horizon, which is then read again.
    Forge(Key, u64),
    Flush,
    Restart(i64),
    MayGrant(bool),
    /// The channel of a lock has a subscriber, or none.
    Subscribe(Key, bool),
    SetWindowRule(WindowRule),
    /// A channel of tickets has a subscriber, or none.
    Hear(Channel, bool),
    /// Time passes, and the timer runs. (Of the exploration, as what follows.)
    Advance(u64),
    /// The startup delay begins: so many milliseconds.
    Delay(u64),
    /// The server becomes a replica and, before any other event, the primary again.
    ChangeRole,
}

fn names() -> impl Strategy<Value = Names> {
    prop_oneof![
        6 => Just(Names::Nothing),
        2 => Just(Names::Present),
        1 => (0usize..8).prop_map(Names::Past),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let (key, owner, conn) = (0..KEYS, 0..OWNERS.len(), 0..CONNS_PER_OWNER);
    let at = (key.clone(), owner.clone());
    let lease = 1..20i64;
    let terms = || {
        prop_oneof![
            4 => (1..20i64).prop_map(Terms::Named),
            2 => Just(Terms::Unnamed),
            4 => Just(Terms::Session),
        ]
    };
    let how = terms().prop_map(|terms| (Mode::Exclusive, terms));
    let keys = key.clone().prop_map(|key| vec![key]);
    let ask = ask(keys, OWNERS.len(), how, wait([2, 1, 6], 20));
    let thief = (at.clone(), conn.clone(), lease.clone());
    let thief = thief.prop_map(|((k, o), c, ms)| {
        let how = (Mode::Exclusive, Terms::Named(ms));
        let once = Ask::new(k, (o, c), how, None);
        Ask { once: true, ..once }
    });
    let connection = (owner, conn.clone());
    prop_oneof![
        24 => ask.prop_map(Op::Acquire),
        6 => (key.clone(), conn.clone(), terms(), any::<bool>())
            .prop_map(|(k, c, ms, once)| Op::HolderAsks(k, c, ms, once)),
        12 => (at.clone(), any::<bool>(), names()).prop_map(|((k, o), all, t)| Op::Release(k, o, all, t)),
        4 => (at.clone(), terms(), names()).prop_map(|((k, o), ms, t)| Op::Renew(k, o, ms, t)),
        2 => (key.clone(), names(), any::<bool>()).prop_map(|(k, t, purge)| Op::Break(k, t, purge)),
        1 => (thief, names()).prop_map(|(ask, t)| Op::BreakTo(ask, t)),
        10 => (0..8u64).prop_map(Op::Pass),
        1 => (0..40u64).prop_map(Op::Pass),
        8 => Just(Op::Alarm),
        4 => Just(Op::ShortAlarm),
        1 => (-20..20i64).prop_map(Op::SetClock),
        8 => connection.clone().prop_map(|(o, c)| Op::Disconnect(o, c)),
        6 => Just(Op::DropAddressee),
        2 => connection.prop_map(|(o, c)| Op::Unblock(o, c)),
        3 => key.clone().prop_map(Op::Del),
        2 => key.clone().prop_map(Op::ServerExpires),
        2 => key.clone().prop_map(Op::Hdel),
        2 => (key.clone(), prop::option::of(1..20i64)).prop_map(|(k, ms)| Op::SetTtl(k, ms)),
        1 => (key.clone(), any::<bool>()).prop_map(|(k, hash)| Op::Overwrite(k, hash)),
        3 => (at.clone(), lease.clone()).prop_map(|((k, o), ms)| Op::RedissonAcquires(k, o, ms)),
        3 => (at, lease).prop_map(|((k, o), ms)| Op::RedissonReleases(k, o, ms)),
        1 => (key.clone(), prop_oneof![0..50u64, 0..400_000_000_000u64])
            .prop_map(|(k, above)| Op::Counter(k, above)),
        1 => (key, forged()).prop_map(|(k, horizon)| Op::Forge(k, horizon)),
        1 => Just(Op::Flush),
        1 => prop_oneof![Just(0), Just(7_200_000i64), 1..50i64].prop_map(Op::Restart),
        2 => prop::bool::weighted(0.8).prop_map(Op::MayGrant),
        3 => (0..KEYS, prop::bool::weighted(0.8)).prop_map(|(k, on)| Op::Subscribe(k, on)),
        1 => windows().prop_map(Op::SetWindowRule),
        8 => (0..CHANNELS.len(), prop::bool::weighted(0.6)).prop_map(|(c, on)| Op::Hear(c, on)),
    ]
}

/// A horizon that no process of ours wrote: too low, or more than a century ahead of any clock here.
fn forged() -> impl Strategy<Value = u64> {
    prop_oneof![0..50u64, (1u64 << 53) - 50..1 << 53, Just(u64::MAX)]
}

fn windows() -> impl Strategy<Value = WindowRule> {
    let after = prop::sample::select(vec![0, 1, 1, 2, 3]);
    (after, 1..12u64, any::<bool>()).prop_map(|(after, window_ms, polled)| WindowRule {
        after,
        window_ms,
        polled,
    })
}

pub fn settings(cluster: bool) -> impl Strategy<Value = Settings> {
    // Room for 15 bound holds and more: all that the owners can ask for at once.
    let session = prop::sample::select(vec![3, 6, 15]);
    let grace = grace(prop::sample::select(vec![0, 1, 100]));
    (limits(), grace, session, windows()).prop_map(move |(limits, grace, session, windows)| {
        Settings {
            limits,
            grace,
            cluster,
            // Histories with deadlocks have a model of their own.
            deadlocks: false,
            default_lease: lease(9),
            session_lease: lease(session),
            windows,
        }
    })
}
