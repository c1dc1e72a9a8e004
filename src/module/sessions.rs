//! Holds that are bound to connections: their renewals, and their releases when the connection has ended.

use std::slice;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::lock::{Bound, BoundRef, Effects, Mode, Planned, ReadDepth, Resource, SemState};
use crate::module::apply::{apply, apply_for_event, decide};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::{close_and_probe, Key};
use crate::module::keyspace::lock_key::{name_of, LockKey};
use crate::module::keyspace::sem_key::SemKey;
use crate::module::keyspace::siblings;
use crate::module::state::shell::{self, RETRY_MS, URGENT_BUDGET};
use crate::module::users;
use crate::module::view::view_for;

/// The least time for urgent renewals, in a tick that other work has made long.
const LEAST_URGENT: Duration = Duration::from_millis(1);

/// After this many refused renewals in one tick, all others wait for the next.
const REFUSALS_PER_TICK: usize = 50;

/// Before a command of this owner: releases its holds whose connection has ended, if the release is still due. Returns
/// whether there were any.
pub fn end_first(ctx: Ctx<'_>, resource: Resource, name: Str<'_>, owner: Str<'_>) -> bool {
    // Fast path: runs for every command, and usually no such hold exists.
    let has_ended = shell::with(|shell| shell.locks.shared.sessions.has_ended());
    if !has_ended || fault::is_on("ended-session-still-holds") {
        return false;
    }
    let key = ctx.key_ref(name).of(resource);
    let ended: SmallVec<[_; 1]> = shell::with(|shell| {
        let modes = [Mode::Exclusive, Mode::Read, Mode::Write].into_iter();
        modes
            .filter_map(|mode| {
                let what = BoundRef::lock(mode, key, owner.bytes());
                shell.locks.shared.sessions.ended(what)
            })
            .collect()
    });
    let are_due = !ended.is_empty() && ctx.may_write();
    for bound in ended.iter().filter(|_| are_due) {
        serve(ctx, bound, Duty::Release, true);
    }
    are_due
}

/// The work of one tick, on a server that may write. Renewals have half of the time, and releases the other half.
pub fn work(ctx: Ctx<'_>, budget: Duration, tick: Instant) {
    let start = Instant::now();
    let urgent = shell::with(|shell| shell.alarm.urgent_budget());
    let least = URGENT_BUDGET
        .saturating_sub(tick.elapsed())
        .max(LEAST_URGENT);
    let renewed = renew_due(
        ctx,
        || start.elapsed() < budget / 2,
        || match start.elapsed() {
            elapsed if elapsed < least => true,
            elapsed => elapsed < urgent && !is_awaited(ctx),
        },
    );
    shell::with(|shell| shell.alarm.renewed_at = Some(Instant::now()));
    let start = Instant::now();
    let released = release_ended(ctx, usize::MAX, || start.elapsed() >= budget / 2);
    if !(renewed && released) {
        let now = ctx.now();
        shell::with(|shell| shell.alarm.sessions_at_ms = now.mono_ms + RETRY_MS);
    }
}

/// Whether a key is to be settled, or a parked client has its answer and waits for the end of this tick.
fn is_awaited(ctx: Ctx<'_>) -> bool {
    let now = ctx.now();
    shell::with(|shell| {
        !shell.answered.is_empty() || shell.locks.shared.waiters.next_settle(now) == Some(0)
    })
}

/// Renews due holds, urgent ones for a longer time. False after too many refusals: the rest waits [`RETRY_MS`].
fn renew_due(ctx: Ctx<'_>, in_time: impl Fn() -> bool, in_urgent_time: impl Fn() -> bool) -> bool {
    let mut refused = 0;
    while refused < REFUSALS_PER_TICK || in_time() {
        if !in_urgent_time() {
            return true;
        }
        let now = ctx.now();
        let next = shell::with(|shell| shell.locks.shared.sessions.next_renewal(now, !in_time()));
        let Some(bound) = next else {
            return true;
        };
        if !perform(ctx, &bound, Duty::Renew) {
            refused += 1;
            shell::with(|shell| {
                let sessions = &mut shell.locks.shared.sessions;
                sessions.put_off_renewal(bound.as_ref().as_ref(), now, RETRY_MS);
            });
        }
    }
    false
}

/// Releases holds of connections that have ended, `at_most` of them. False if only refused holds are left: they wait
/// [`RETRY_MS`].
pub fn release_ended(ctx: Ctx<'_>, at_most: usize, is_late: impl Fn() -> bool) -> bool {
    let mut refused = Vec::new();
    for _ in 0..at_most {
        if is_late() {
            break;
        }
        let Some(bound) = shell::with(|shell| shell.locks.shared.sessions.next_ended()) else {
            break;
        };
        if !perform(ctx, &bound, Duty::Release) {
            refused.push(bound);
        }
    }
    shell::with(|shell| {
        let sessions = &mut shell.locks.shared.sessions;
        sessions.put_off_ended(&refused);
        refused.is_empty() || sessions.has_fresh_ended()
    })
}

/// Performs the work that is due for one hold. False when the server refuses writes to its key at the moment. A hold is
/// not renewed any more when its user has lost the permission to take it: its lease ends it.
fn perform(ctx: Ctx<'_>, bound: &Bound, duty: Duty) -> bool {
    ctx.select(bound.key.as_ref().db);
    if duty == Duty::Renew && !users::may_renew(ctx, bound.as_ref()) {
        shell::with(|shell| shell.locks.shared.sessions.unbind(bound.as_ref()));
        return true;
    }
    serve(ctx, bound, duty, false)
}

/// Performs this work in an event, or before a command: the server has admitted that, so it accepts a write to the key.
fn serve(ctx: Ctx<'_>, bound: &Bound, duty: Duty, is_command: bool) -> bool {
    match bound.key.as_ref().resource {
        Resource::Semaphore => serve_permit(ctx, bound, duty, is_command),
        Resource::Lock | Resource::Latch => serve_lock(ctx, bound, duty, is_command),
    }
}

fn serve_lock(ctx: Ctx<'_>, bound: &Bound, duty: Duty, is_command: bool) -> bool {
    let (name, owner) = (name_of(&bound.key), OwnedStr::new(&bound.owner));
    let (name, now) = (name.as_str(), ctx.now());
    let (depth, planned) = match duty {
        Duty::Release => (ReadDepth::Holder, Planned::EndSession(bound)),
        Duty::Renew => (ReadDepth::Own, Planned::Nothing),
    };
    let open = || {
        let key = LockKey::open_for(ctx, name, owner.as_str());
        let state = key.read_to(depth, now);
        (key, state)
    };
    let (mut key, mut state) = open();
    if !is_command {
        if !siblings::siblings_are_here(&key, &state) {
            return false;
        }
        if shell::with(|shell| shell.locks.is_bound_hold(bound, &state, now)) {
            if !close_and_probe(key) {
                return false;
            }
            (key, state) = open();
        }
    }
    let view = view_for(&key, state, &planned, now);
    let ((), fx) = decide(now, |locks, cx| match duty {
        Duty::Release => locks.end_session(&view, bound, cx),
        Duty::Renew => locks.renew_session(&view, bound, cx),
    });
    apply_by(key, &fx, is_command);
    true
}

fn serve_permit(ctx: Ctx<'_>, bound: &Bound, duty: Duty, is_command: bool) -> bool {
    let (name, id) = (name_of(&bound.key), OwnedStr::new(&bound.owner));
    let (name, id, now) = (name.as_str(), id.as_str(), ctx.now());
    let open = |may_write| {
        let key = SemKey::open(ctx, name).ok()?;
        let view = match duty {
            Duty::Release if may_write => key.hand_off_view(Some((id, 1)), now),
            _ => key.plain_view(Some((id, 1)), now),
        };
        Some((key, view))
    };
    let Some((mut key, mut view)) = open(is_command) else {
        return false;
    };
    let is_there = matches!(&view.state, SemState::There(there) if !there.own.is_empty());
    if is_there && !is_command {
        if !close_and_probe(key) {
            return false;
        }
        match open(true) {
            Some(again) => (key, view) = again,
            None => return false,
        }
    }
    let ((), fx) = decide(now, |locks, cx| {
        let (sems, shared) = (&mut locks.sems, &mut locks.shared);
        match duty {
            Duty::Release => sems.end_session(shared, &view, id.bytes(), cx),
            Duty::Renew => sems.renew_session(shared, &view, id.bytes(), cx),
        }
    });
    apply_by(key, &fx, is_command);
    true
}

/// A refusal is counted and logged; no client waits for a reply.
fn apply_by<'a>(key: impl Key<'a>, fx: &Effects, is_command: bool) {
    match is_command {
        true => _ = apply([key], slice::from_ref(fx)),
        false => apply_for_event([key], slice::from_ref(fx)),
    }
}

/// The work for a bound hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Release: its connection has ended.
    Release,
    /// Renew its lease.
    Renew,
}
