//! One timer for everything that is due: answers to deliver, waits that run out, leases that end,
//! keys to settle afresh.
//!
//! It exists only while something is pending (a live timer forbids `MODULE UNLOAD`), and what it
//! does is safe to do early or twice.

use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use crate::lock::{
    Effect, Effects, Ending, KeyId, KeyRef, KeyState, LockError, Locks, Mode, Now, PermitChange,
    Resource, WaiterId,
};
use crate::module::api::api;
use crate::module::apply::{apply_all_unasked, apply_unasked, decide, decide_all};
use crate::module::beside;
use crate::module::count_key::CountKey;
use crate::module::ctx::Ctx;
use crate::module::fence;
use crate::module::guard;
use crate::module::key::{name_of, LockKey};
use crate::module::parked::Parked;
use crate::module::replication::Replication;
use crate::module::sem_key::SemKey;
use crate::module::sessions;
use crate::module::settings;
use crate::module::shell::{self, Shell};

/// Keys settled in one turn; more wait for the next, so that other clients are served in between.
const KEYS_PER_TICK: usize = 500;

/// While writes are refused (a pause, too few replicas, a full disk) keys are looked at this often.
pub const RETRY_MS: u64 = 20;

/// So many keys may be refused in one turn before those that stood back wait for the next.
const RETRIES_PER_TICK: usize = 50;

/// After a panic no key is settled for so long.
const PAUSE_AFTER_PANIC_MS: u64 = 1_000;

/// No timer is armed for longer: the server's timers mix the wall clock into their period.
const LONGEST_MS: u64 = 60_000;

/// So many times in a row the timer may fire too early and be armed again at once.
const EARLY_FIRINGS: u32 = 3;

/// The state of the timer.
#[derive(Default)]
pub struct Alarm {
    /// The timer, and when it fires on the monotonic clock; 0: at the end of this turn.
    armed: Option<(raw::RedisModuleTimerID, u64)>,
    /// The timer fires just now: it is armed again at the end of that.
    ringing: bool,
    /// How many times in a row it has fired too early, by the monotonic clock.
    early: u32,
    /// No key is settled before this moment of the monotonic clock.
    paused_until_ms: u64,
    /// No key that stood back is settled again, and no lost horizon written, before this moment.
    retry_at_ms: u64,
    /// Nothing that is bound to a connection is renewed or released before this moment.
    pub sessions_at_ms: u64,
    /// The server will call back when the present unit of execution is over: until then the timer is armed.
    pub job: bool,
}

impl Alarm {
    /// No key is settled for a second: after a bug in that very place, rather slow than spinning.
    pub fn pause(&mut self, now: Now) {
        self.paused_until_ms = now.mono_ms + PAUSE_AFTER_PANIC_MS;
    }

    fn fires(&mut self, now: Now) {
        self.ringing = true;
        self.job = false;
        let is_early = self.armed.is_some_and(|(_, at)| now.mono_ms < at);
        self.early = if is_early { self.early + 1 } else { 0 };
    }
}

impl Shell {
    /// Whether nothing is pending and no timer is armed: then there is no need to read the clocks,
    /// which every command would do otherwise, for 170 instructions.
    fn is_quiet(&self) -> bool {
        self.alarm.armed.is_none()
            && self.answered.is_empty()
            && self.locks.is_quiet()
            && !self.locks.has_rechecks()
            && self.locks.sessions.holds() == 0
            && !self.alarm.job
            && !self.locks.tokens.has_lost()
    }

    /// Milliseconds until something is to be done; `None`: nothing is pending.
    fn next_due(&self, now: Now) -> Option<u64> {
        if !self.answered.is_empty() || self.alarm.job {
            return Some(0);
        }
        let next = [self.locks.next_wait(now), self.next_settle(now)];
        next.into_iter().flatten().min()
    }

    /// Milliseconds until the next key is to be settled.
    fn next_settle(&self, now: Now) -> Option<u64> {
        let until = |moment: u64| moment.saturating_sub(now.mono_ms);
        let retry_at_ms = self.alarm.retry_at_ms;
        let lost = self.locks.tokens.has_lost().then(|| until(retry_at_ms));
        let grants_ms = retry_at_ms.max(self.locks.startup_delay.end_ms());
        let postponed = self.locks.has_postponed().then(|| until(grants_ms));
        let bound = self.locks.sessions.next_due(now);
        let bound = bound.map(|due| due.max(until(self.alarm.sessions_at_ms)));
        // While the module is drained, no timer waits for a later renewal: it would forbid the unloading.
        // The cron finds what is due.
        let bound = bound.filter(|due| *due == 0 || !settings::drain());
        let recheck = self.locks.has_rechecks().then_some(0);
        let next = [self.locks.next_settle(now), recheck, lost, postponed, bound]
            .into_iter()
            .flatten()
            .min();
        next.map(|due| due.max(until(self.alarm.paused_until_ms)))
    }
}

/// Arms, moves or stops the timer: called at the end of every event that may have changed what is
/// due. A timer that comes too early is left alone, but what is due now does not wait for one that
/// was armed for a later moment of this same millisecond.
pub fn rearm(ctx: Ctx) {
    if !shell::with(|shell| shell.alarm.ringing) {
        arm(ctx, 0);
    }
}

/// Arms the timer for what is due, but not sooner than in so many milliseconds.
fn arm(ctx: Ctx, soonest: u64) {
    if shell::with(|shell| shell.is_quiet()) {
        return;
    }
    let now = ctx.now();
    let (armed, due) = shell::with(|shell| (shell.alarm.armed, shell.next_due(now)));
    let due = due.map(|due| due.clamp(soonest, LONGEST_MS));
    let due_at = due.map(|due| match due {
        0 => 0,
        due => now.mono_ms.saturating_add(due),
    });
    match (armed, due_at) {
        (Some((_, armed_at)), Some(due_at)) if armed_at <= due_at => return,
        (None, None) => return,
        _ => stop(ctx),
    }
    if let (Some(due), Some(due_at)) = (due, due_at) {
        // SAFETY: the context is live; the callback takes no data. (It cannot fail: the server tries ids until one
        // is free.)
        let id = unsafe {
            api!(RedisModule_CreateTimer)(ctx.as_ptr(), due as i64, Some(on_timer), null_mut())
        };
        shell::with(|shell| shell.alarm.armed = Some((id, due_at)));
    }
}

/// Stops the timer, if it is armed.
pub fn stop(ctx: Ctx) {
    if let Some((id, _)) = shell::with(|shell| shell.alarm.armed.take()) {
        // SAFETY: the id is of a live timer: it leaves `armed` here and when the timer fires. (An unknown id is
        // refused, and then there is nothing to stop.)
        unsafe { api!(RedisModule_StopTimer)(ctx.as_ptr(), id, null_mut()) };
    }
}

/// Something is overdue although a timer may be armed for later, or none is armed: the wall clock was
/// set back under the server's timers. Called about ten times a second.
pub fn check(ctx: Ctx) {
    let now = ctx.now();
    if shell::with(|shell| shell.next_due(now) == Some(0)) {
        stop(ctx);
    }
    if shell::with(|shell| shell.alarm.armed.is_none()) {
        rearm(ctx);
    }
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's context for this callback.
    let ctx = unsafe { Ctx::new(ctx) };
    // The timer that fires is gone: stopping it from here would free it twice. And one created from
    // here does not fire in this turn, so it is armed for the next millisecond at the soonest, for
    // an answer that comes earlier to move it.
    let fired = guard::entry("alarm", || {
        shell::with(|shell| shell.alarm.fires(ctx.now()));
        ring(ctx);
        again(ctx);
    });
    if fired.is_none() {
        guard::entry("alarm-again", || again(ctx));
    }
}

/// The server reads the clock once and then lets every timer fire that is due by it. If the wall clock is set
/// back in the meantime, a timer that is armed here is due by the former reading: it fires at once, and so
/// do all after it, in one turn that lasts until the clock has caught up. So one that fires too early
/// again and again is left to the cron.
fn again(ctx: Ctx) {
    let is_early = shell::with(|shell| {
        let alarm = &mut shell.alarm;
        (alarm.armed, alarm.ringing) = (None, false);
        alarm.early > EARLY_FIRINGS
    });
    if !is_early {
        arm(ctx, 1);
    }
}

fn ring(ctx: Ctx) {
    let now = ctx.now();
    end_waits(now);
    Parked::deliver_all();
    if shell::with(|shell| shell.next_settle(now)) != Some(0) {
        return;
    }
    if ctx.is_replica() {
        shell::with(|shell| shell.locks.demoted());
    } else if ctx.may_write() {
        shell::with(|shell| shell.alarm.paused_until_ms = 0);
        settle_due(ctx, now);
        answer(decide(|locks, fx| locks.verify_parked(now, fx)).1);
        recheck_all(ctx, now);
        sessions::work(ctx);
        Parked::deliver_all();
        if !fence::restore_horizons(ctx, now, KEYS_PER_TICK) {
            shell::with(|shell| shell.alarm.retry_at_ms = now.mono_ms + RETRY_MS);
        }
    } else {
        shell::with(|shell| shell.alarm.paused_until_ms = now.mono_ms + RETRY_MS);
    }
}

/// A setting was changed: waiters may have to leave, or locks may be granted at last.
pub fn follow_settings() {
    if settings::drain() {
        answer(decide(|locks, fx| locks.drain(fx)).1);
    }
    shell::with(|shell| {
        shell
            .locks
            .startup_delay
            .limit(settings::startup_delay_ms());
        shell.locks.set_window_rule(settings::window_rule());
    });
}

/// A script is about to look at a lock that may have been freed in this very turn: whoever is parked comes first,
/// as before an acquire of ours.
pub fn serve_first(ctx: Ctx, key: KeyRef<'_>) {
    if !shell::with(|shell| shell.locks.waiters.take_unsettled(key)) {
        return;
    }
    let id = key.to_id();
    if !(ctx.may_write() && settle(ctx, &id, ctx.now())) {
        shell::with(|shell| shell.locks.waiters.schedule_settle_id(id));
    }
    rearm(ctx);
}

fn end_waits(now: Now) {
    answer(decide(|locks, fx| while locks.end_next_wait(now, fx) {}).1);
}

/// Carries out what writes nothing.
pub(crate) fn answer(fx: Effects) {
    for effect in fx {
        if let Effect::Answer(waiter, outcome) = effect {
            Parked::answer(waiter, outcome);
        }
    }
}

fn settle_due(ctx: Ctx, now: Now) {
    let mut refused = Vec::new();
    let mut keys_left = KEYS_PER_TICK;
    while keys_left > 0 {
        keys_left -= 1;
        let next = shell::with(|shell| {
            // What stood back comes last, so that it holds nobody else back.
            let retry = refused.len() < RETRIES_PER_TICK
                && shell.alarm.retry_at_ms <= now.mono_ms
                && !shell.locks.startup_delay.is_on(now);
            if let Some((resource, key)) = shell.locks.pop_unsettled(now) {
                return Some(Due::Key(resource, key));
            }
            if let Some(request) = shell.locks.pop_unsettled_request(now) {
                return Some(Due::Many(request));
            }
            let next = retry.then(|| shell.locks.pop_postponed()).flatten();
            next.map(|(resource, key)| Due::Key(resource, key))
        });
        let (resource, key) = match next {
            None => break,
            Some(Due::Key(resource, key)) => (resource, key),
            Some(Due::Many(request)) => {
                let keys = shell::with(|shell| shell.locks.waiters.keys_of(request));
                keys_left = keys_left.saturating_sub(keys.len());
                if !settle_many(ctx, request, &keys, now) {
                    let first = keys.into_iter().next();
                    refused.extend(first.map(|key| (Resource::Lock, key)));
                }
                continue;
            }
        };
        let settled = match resource {
            Resource::Lock => settle(ctx, &key, now),
            Resource::Semaphore => settle_semaphore(ctx, &key, now),
            Resource::Latch => settle_latch(ctx, &key, now),
        };
        if !settled {
            refused.push((resource, key));
        }
    }
    if !refused.is_empty() {
        shell::with(|shell| {
            shell.alarm.retry_at_ms = now.mono_ms + RETRY_MS;
            for (resource, key) in refused {
                shell.locks.postpone(resource, key);
            }
        });
    }
}

/// Looks at keys that others changed and only we remember as locks, and tells of those that are lost.
fn recheck_all(ctx: Ctx, now: Now) {
    for _ in 0..KEYS_PER_TICK {
        let Some(id) = shell::with(|shell| shell.locks.pop_recheck()) else {
            return;
        };
        let name = name_of(&id);
        ctx.select(id.as_ref().db);
        let key = LockKey::peek(ctx, name.as_str(), None);
        let view = fence::plain_view(&key, key.read());
        let ((), fx) = decide(|locks, fx| locks.recheck(&view, now, fx));
        apply_unasked(key, &fx);
    }
}

/// What is to be looked at.
enum Due {
    Key(Resource, KeyId),
    Many(WaiterId),
}

/// Grants all keys of a parked request, if each of them is to be had. False as below; then its first key
/// stands back for it.
fn settle_many(ctx: Ctx, request: WaiterId, ids: &[KeyId], now: Now) -> bool {
    let Some(first) = ids.first() else {
        return true;
    };
    ctx.select(first.as_ref().db);
    let names: Vec<_> = ids.iter().map(name_of).collect();
    let open = || -> Vec<_> {
        let names = names.iter();
        names
            .map(|name| LockKey::open(ctx, name.as_str()))
            .collect()
    };
    let read = |keys: &[LockKey<'_>]| -> Vec<_> { keys.iter().map(LockKey::read).collect() };
    let mut keys = open();
    let mut states = read(&keys);
    if let Err(error) = may_begin_all(request, &keys, &states, now) {
        answer(decide(|locks, fx| locks.dismiss(request, &error, fx)).1);
        return true;
    }
    let grant = shell::with(|shell| shell.locks.may_grant_many(request, &states, now));
    if grant {
        // As below, the question is asked with the keys closed.
        drop(keys);
        if shell::with(|shell| shell.locks.startup_delay.is_on(now))
            || !names.iter().all(|name| ctx.probe_write(name.as_str()))
        {
            return false;
        }
        keys = open();
        states = read(&keys);
    }
    let view = match grant {
        true => fence::minting_view,
        false => fence::plain_view,
    };
    let views: Vec<_> = keys
        .iter()
        .zip(states)
        .map(|(key, state)| view(key, state))
        .collect();
    let (settled, fx) = decide_all(ids.len(), |locks, fx| {
        locks.settle_many(request, &views, now, fx)
    });
    apply_all_unasked(keys, &fx);
    settled
}

/// Whether the keys beside all these locks are free for a parked request.
fn may_begin_all(
    request: WaiterId,
    keys: &[LockKey<'_>],
    states: &[KeyState],
    now: Now,
) -> Result<(), LockError> {
    let asking = shell::with(|shell| shell.locks.pending_request(request));
    let Some(asking) = asking.filter(|asking| asking.mode != Mode::Exclusive) else {
        return Ok(());
    };
    let mut all = keys.iter().zip(states);
    all.try_for_each(|(key, state)| {
        beside::may_begin(key, state, (asking.mode, &asking.owner), now)
    })
}

/// Settles one key. False when a grant is due but no lock is granted yet, or the server refuses writes
/// just now.
fn settle(ctx: Ctx, id: &KeyId, now: Now) -> bool {
    let name = name_of(id);
    let name = name.as_str();
    ctx.select(id.as_ref().db);
    let mut key = LockKey::open(ctx, name);
    let mut state = key.read();
    if !fence::siblings_are_here(&key, &state) {
        return false;
    }
    let changes = shell::with(|shell| shell.locks.may_change(id.as_ref(), &state, now));
    let grant = changes && shell::with(|shell| shell.locks.waiters.live_on(id.as_ref()) > 0);
    if grant && shell::with(|shell| shell.locks.startup_delay.is_on(now)) {
        return false;
    }
    if changes {
        // The question itself may delete the key, if its TTL ends just now: it is asked with the
        // key closed.
        drop(key);
        if !ctx.probe_write(name) {
            return false;
        }
        key = LockKey::open(ctx, name);
        state = key.read();
    }
    let view = if changes {
        fence::ending_view(&key, state, &Ending::Undone)
    } else {
        fence::plain_view(&key, state)
    };
    let ((), fx) = decide(|locks, fx| locks.settle(&view, now, fx));
    apply_unasked(key, &fx);
    !changes || view.may_grant()
}

/// Settles one semaphore; the answer is as above.
fn settle_semaphore(ctx: Ctx, id: &KeyId, now: Now) -> bool {
    let name = name_of(id);
    let name = name.as_str();
    ctx.select(id.as_ref().db);
    let Ok(mut key) = SemKey::open(ctx, name) else {
        return false;
    };
    let mut view = key.plain_view(None, now);
    let (changes, grant) = shell::with(|shell| {
        let changes = shell.locks.sem_may_change(&view);
        (
            changes,
            changes && shell.locks.sems.queue(id.as_ref()).is_some(),
        )
    });
    if grant && shell::with(|shell| shell.locks.startup_delay.is_on(now)) {
        return false;
    }
    if changes {
        drop(key);
        if !ctx.probe_write(name) {
            return false;
        }
        key = match SemKey::open(ctx, name) {
            Ok(key) => key,
            Err(_) => return false,
        };
        view = key.minting_view(None, now);
        if key.probe_twin() {
            // Those whose end has come may be permits of the other semaphore.
            view.may_grant = Some(false);
        }
    }
    let mut change = PermitChange::default();
    let ((), fx) = decide(|locks, fx| change = locks.sem_settle(&view, now, fx));
    let _ = key.apply(&change, &fx, Replication::of_event(ctx));
    !changes || view.may_grant == Some(true)
}

/// Settles one latch. Nothing is written; but a key that is absent because its slot is on its way to another
/// node is no open latch.
fn settle_latch(ctx: Ctx, id: &KeyId, now: Now) -> bool {
    let name = name_of(id);
    let name = name.as_str();
    ctx.select(id.as_ref().db);
    let state = CountKey::open(ctx, name).read();
    if Locks::is_latch_open(state, now) && !ctx.probe_write(name) {
        return false;
    }
    answer(decide(|locks, fx| locks.latch_settle(id.as_ref(), state, now, fx)).1);
    true
}
