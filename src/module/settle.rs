//! Settles keys whose state changed by other means than a command: brings each to a decision.

use std::slice;

use crate::lock::{
    Due, KeyId, KeyState, Latches, LockError, Mode, Now, OwnerId, PendingRequest, Planned,
    ReadDepth, Resource, SemState, Semaphores, View, WaiterId,
};
use crate::module::answers;
use crate::module::apply::{apply_for_event, decide, decide_all};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::count_key::CountKey;
use crate::module::keyspace::horizon;
use crate::module::keyspace::key::close_and_probe;
use crate::module::keyspace::lock_key::{name_of, LockKey};
use crate::module::keyspace::sem_key::SemKey;
use crate::module::keyspace::siblings;
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;
use crate::module::state::shell::RETRY_MS;
use crate::module::tickets;
use crate::module::view::view_for;

/// The most horizons stored again in one tick.
pub const HORIZONS_PER_TICK: usize = 500;

/// After this many refusals in one tick, postponed keys wait for the next.
const RETRIES_PER_TICK: usize = 50;

/// Settles what is due: one key at least, and more while there is time, so that other clients are served in between.
/// One key may take longer than the time: a hundred permits, the readers that one decision reads. A grant of many keys
/// is the only item of its tick.
pub fn settle_due(ctx: Ctx<'_>, now: Now, in_time: impl Fn() -> bool) {
    let mut refused = Vec::new();
    let mut first = true;
    let cluster = tickets::Cluster::default();
    // The moment of the decisions stays that of the tick.
    while first || in_time() {
        let next = shell::with(|shell| {
            let retries = refused.len() < RETRIES_PER_TICK
                && shell.alarm.retry_at_ms <= now.mono_ms
                && !shell.locks.shared.startup_delay.is_on(now);
            shell.locks.shared.waiters.pass_more();
            shell.locks.shared.waiters.pop_due(now, retries, first)
        });
        first = false;
        let key = match next {
            None => break,
            Some(Due::Key(key)) => key,
            Some(Due::Many(request)) => {
                refused.extend(settle_many(ctx, request, now).err());
                continue;
            }
        };
        if !fault::is_on("settled-in-another-database") {
            ctx.select(key.as_ref().db);
        }
        let name = name_of(&key);
        let settled = match key.as_ref().resource {
            Resource::Lock => settle(ctx, &key, name.as_str(), now),
            Resource::Semaphore => settle_semaphore(ctx, &key, name.as_str(), now),
            Resource::Latch => settle_latch(ctx, &key, name.as_str(), now),
        };
        if !settled {
            cluster.fail_if_elsewhere(ctx, &key, now);
            refused.push(key);
        }
    }
    if !refused.is_empty() {
        shell::with(|shell| {
            shell.alarm.retry_at_ms = now.mono_ms + RETRY_MS;
            if !shell.locks.shared.startup_delay.is_on(now) {
                shell.grants_withheld += refused.len() as u64;
            }
            if fault::is_on("withheld-grant-forgotten") {
                refused.clear();
            }
            for key in refused {
                shell.locks.shared.waiters.postpone(key);
            }
        });
    }
}

/// Repeats the searches for deadlocks that met keys which were still to be settled: one at least, and more while there
/// is time.
pub fn verify_waiters(ctx: Ctx<'_>, now: Now, in_time: impl Fn() -> bool) {
    for _ in 0..shell::with(|shell| shell.locks.unverified()) {
        let ((), fx) = decide(now, |locks, cx| locks.verify_next(cx));
        answers::note_all(ctx, &fx);
        if !in_time() {
            return;
        }
    }
    shell::with(|shell| shell.locks.verified());
}

/// Reads keys that other clients have changed and that only the module remembers as locks, and sends the events of
/// those that are lost: one key at least, and more while there is time.
pub fn recheck_all(ctx: Ctx<'_>, now: Now, in_time: impl Fn() -> bool) {
    while let Some(step) = shell::with(|shell| shell.locks.pop_recheck()) {
        let name = name_of(&step.key);
        ctx.select(step.key.as_ref().db);
        let mut key = LockKey::peek(ctx, name.as_str(), None);
        key.read_also(step.owners.iter().map(|owner| OwnerId::from_slice(owner)));
        let state = key.read_to(ReadDepth::Own, now);
        let view = view_for(&key, state, &Planned::Nothing, now);
        let ((), fx) = decide(now, |locks, cx| locks.recheck(&view, step.below, cx));
        apply_for_event([key], slice::from_ref(&fx));
        if !in_time() {
            return;
        }
    }
}

/// Looks at the keys of a waiting request that may have become free for it, some at a time; when they are all its keys
/// and none excludes it, grants all. An error is the first key, which the caller postpones: a grant is due that cannot
/// be made now.
fn settle_many(ctx: Ctx<'_>, request: WaiterId, now: Now) -> Result<(), KeyId> {
    let next = shell::with(|shell| {
        let waiters = &mut shell.locks.shared.waiters;
        let (to_look_at, ids) = (waiters.next_look(request, now)?, waiters.keys_of(request));
        Some((to_look_at, ids, shell.locks.pending_request(request)?))
    });
    let Some((to_look_at, ids, asking)) = next else {
        return Ok(());
    };
    let Some(first) = ids.first() else {
        return Ok(());
    };
    ctx.select(first.as_ref().db);
    let names = ids.get(to_look_at.clone()).unwrap_or_default().iter();
    let names: Vec<_> = names.map(name_of).collect();
    let owner = OwnedStr::new(&asking.owner);
    let open = || -> (Vec<LockKey<'_>>, Vec<KeyState>) {
        let names: Vec<_> = names.iter().map(OwnedStr::as_str).collect();
        let keys = LockKey::open_some(ctx, &names, owner.as_str(), ids.len());
        let states = keys.iter().map(|key| key.read_to(ReadDepth::Two, now));
        let states = states.collect();
        (keys, states)
    };
    let (mut keys, mut states) = open();
    if keys.len() < ids.len() {
        let first = to_look_at.start;
        shell::with(|shell| shell.locks.look_at(request, first, &states, now));
        return Ok(());
    }
    if let Err(error) = may_begin_all(&asking, &keys, &states, now) {
        let ((), fx) = decide(now, |locks, cx| locks.dismiss(request, &error, cx));
        answers::note_all(ctx, &fx);
        return Ok(());
    }
    let asked = shell::with(|shell| shell.locks.may_grant_many(request, &states, now));
    if asked.is_some() {
        if shell::with(|shell| shell.locks.shared.startup_delay.is_on(now)) {
            return Err(first.clone());
        }
        if is_cluster() {
            // Closed, as for `close_and_probe`.
            drop(keys);
            if !names.iter().all(|name| ctx.probe_write(name.as_str())) {
                return Err(first.clone());
            }
            (keys, states) = open();
        } else if !horizon::probe_write(ctx) {
            // The horizon is none of these keys: they stay open.
            return Err(first.clone());
        }
    }
    let planned = match asked {
        Some(_) => Planned::Grant,
        None => Planned::Nothing,
    };
    let of_each = keys.iter().zip(states);
    let views: Vec<_> = of_each
        .map(|(key, state)| view_for(key, state, &planned, now))
        .collect();
    for asked in asked.into_iter().flatten() {
        let mut of_its = views.iter().filter(|view| view.key == asked.key.as_ref());
        tickets::hear(ctx, &asked, of_its.any(View::has_counter), now);
    }
    let (settled, fx) = decide_all(ids.len(), now, |locks, fx| {
        locks.settle_many(request, &views, now, fx)
    });
    apply_for_event(keys, &fx);
    match settled {
        true => Ok(()),
        false => Err(first.clone()),
    }
}

/// Whether the sibling keys of all these locks are free for a waiting request.
fn may_begin_all(
    asking: &PendingRequest,
    keys: &[LockKey<'_>],
    states: &[KeyState],
    now: Now,
) -> Result<(), LockError> {
    if asking.mode == Mode::Exclusive {
        return Ok(());
    }
    let mut all = keys.iter().zip(states);
    all.try_for_each(|(key, state)| {
        siblings::may_begin(key, state, (asking.mode, &asking.owner), now)
    })
}

/// Settles one lock. False when a grant is due but may not be made yet, or the server refuses writes at the moment.
fn settle(ctx: Ctx<'_>, id: &KeyId, name: Str<'_>, now: Now) -> bool {
    let open = || {
        let mut key = LockKey::open(ctx, name);
        let state = key.read_to_settle(now);
        (key, state)
    };
    let (mut key, mut state) = open();
    if !siblings::siblings_are_here(&key, &state) {
        return false;
    }
    let changes = shell::with(|shell| shell.locks.may_change(id.as_ref(), &state, now));
    if !may_settle(id, changes, now) {
        return false;
    }
    let mut planned = Planned::Nothing;
    if changes {
        if !close_and_probe(key) {
            return false;
        }
        (key, state) = open();
        planned = Planned::Settle;
    }
    let view = view_for(&key, state, &planned, now);
    let ((), fx) = decide(now, |locks, cx| locks.settle(&view, cx));
    apply_for_event([key], slice::from_ref(&fx));
    !changes || view.may_grant()
}

/// Whether a key may be settled now, if that `changes` it: during the startup delay no waiter is granted.
fn may_settle(id: &KeyId, changes: bool, now: Now) -> bool {
    !changes
        || shell::with(|shell| {
            let shared = &shell.locks.shared;
            shared.waiters.waiting_on(id.as_ref()) == 0 || !shared.startup_delay.is_on(now)
        })
}

/// Settles one semaphore. False as for [`settle`].
fn settle_semaphore(ctx: Ctx<'_>, id: &KeyId, name: Str<'_>, now: Now) -> bool {
    let Ok(mut key) = SemKey::open(ctx, name) else {
        return false;
    };
    let mut view = key.plain_view(None, now);
    let (changes, is_gone) = shell::with(|shell| {
        let shared = &shell.locks.shared;
        // Absent, it owes nothing to requests without LIMIT; their tickets fail if it is at another node.
        let is_gone =
            view.state == SemState::Absent && is_cluster() && shared.waiters.has_tickets(view.key);
        (Semaphores::may_change(shared, &view, now), is_gone)
    });
    if !may_settle(id, changes, now) {
        return false;
    }
    if changes || is_gone {
        if !close_and_probe(key) {
            return false;
        }
        let Ok(again) = SemKey::open(ctx, name) else {
            return false;
        };
        key = again;
        view = match changes {
            true => key.minting_view(None, now),
            false => key.plain_view(None, now),
        };
    }
    let ((), fx) = decide(now, |locks, cx| {
        locks.sems.settle(&mut locks.shared, &view, cx);
    });
    apply_for_event([key], slice::from_ref(&fx));
    !changes || view.may_grant == Some(true)
}

/// Settles one latch. Nothing is written; the probe is for a key that is absent because its slot moves to another node,
/// which is no open latch for those who wait.
fn settle_latch(ctx: Ctx<'_>, id: &KeyId, name: Str<'_>, now: Now) -> bool {
    let mut key = CountKey::open(ctx, name);
    let waits = shell::with(|shell| shell.locks.shared.waiters.waiting_on(id.as_ref()) > 0);
    if waits && key.read().is_open(now) {
        if !close_and_probe(key) {
            return false;
        }
        key = CountKey::open(ctx, name);
    }
    let state = key.read();
    let ((), fx) = decide(now, |locks, cx| {
        Latches::settle(&mut locks.shared, id.as_ref(), state, cx);
    });
    apply_for_event([key], slice::from_ref(&fx));
    true
}
