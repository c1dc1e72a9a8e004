//! One timer for everything that is due: answers to deliver, waits that run out, leases that end,
//! keys to settle afresh.
//!
//! It exists only while something is pending (a live timer forbids `MODULE UNLOAD`), and what it
//! does is safe to do early or twice.

use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use crate::lock::{KeyRef, Now};
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::ffi::api::api;
use crate::module::ffi::ctx::{now, Callback, Ctx};
use crate::module::ffi::guard;
use crate::module::keyspace::horizon;
use crate::module::sessions;
use crate::module::settle::{self, KEYS_PER_TICK};
use crate::module::state::alarm::RETRY_MS;
use crate::module::state::settings;
use crate::module::state::shell::{self, Shell};

/// No timer is armed for longer: the server's timers mix the wall clock into their period.
const LONGEST_MS: u64 = 60_000;

/// So many times in a row the timer may fire too early and be armed again at once.
const EARLY_FIRINGS: u32 = 3;

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
pub fn rearm(ctx: Ctx<'_>) {
    if !shell::with(|shell| shell.alarm.firing) {
        arm(ctx, 0);
    }
}

/// Arms the timer for what is due, but not sooner than in so many milliseconds.
fn arm(ctx: Ctx<'_>, soonest: u64) {
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
pub fn stop(ctx: Ctx<'_>) {
    if let Some((id, _)) = shell::with(|shell| shell.alarm.armed.take()) {
        // SAFETY: the id is of a live timer: it leaves `armed` here and when the timer fires. (An unknown id is
        // refused, and then there is nothing to stop.)
        unsafe { api!(RedisModule_StopTimer)(ctx.as_ptr(), id, null_mut()) };
    }
}

/// Something is overdue although a timer may be armed for later, or none is armed: the wall clock was
/// set back under the server's timers. Called about ten times a second.
pub fn check(ctx: Ctx<'_>) {
    let now = ctx.now();
    if shell::with(|shell| shell.next_due(now) == Some(0)) {
        stop(ctx);
    }
    if shell::with(|shell| shell.alarm.armed.is_none()) {
        rearm(ctx);
    }
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(ctx) };
    let ctx = callback.ctx();
    // The timer that fires is gone: stopping it from here would free it twice. And one created from
    // here does not fire in this turn, so it is armed for the next millisecond at the soonest, for
    // an answer that comes earlier to move it.
    let fired = guard::entry("alarm", || {
        shell::with(|shell| shell.alarm.fires(ctx.now()));
        fire(ctx);
        rearm_after_firing(ctx);
    });
    if fired.is_none() {
        guard::entry("alarm-again", || rearm_after_firing(ctx));
    }
}

/// The server reads the clock once and then lets every timer fire that is due by it. If the wall clock is set
/// back in the meantime, a timer that is armed here is due by the former reading: it fires at once, and so
/// do all after it, in one turn that lasts until the clock has caught up. So one that fires too early
/// again and again is left to the cron.
fn rearm_after_firing(ctx: Ctx<'_>) {
    let is_early = shell::with(|shell| {
        let alarm = &mut shell.alarm;
        (alarm.armed, alarm.firing) = (None, false);
        alarm.early > EARLY_FIRINGS
    });
    if !is_early {
        arm(ctx, 1);
    }
}

fn fire(ctx: Ctx<'_>) {
    let now = ctx.now();
    end_waits(now);
    answers::deliver_all();
    if shell::with(|shell| shell.next_settle(now)) != Some(0) {
        return;
    }
    if ctx.is_replica() {
        shell::with(|shell| shell.locks.demoted());
    } else if ctx.may_write() {
        shell::with(|shell| shell.alarm.paused_until_ms = 0);
        settle::settle_due(ctx, now);
        answers::note_all(&decide(now, |locks, cx| locks.verify_parked(cx)).1);
        settle::recheck_all(ctx, now);
        sessions::work(ctx);
        answers::deliver_all();
        if !horizon::restore_horizons(ctx, now, KEYS_PER_TICK) {
            shell::with(|shell| shell.alarm.retry_at_ms = now.mono_ms + RETRY_MS);
        }
    } else {
        shell::with(|shell| shell.alarm.paused_until_ms = now.mono_ms + RETRY_MS);
    }
}

/// A setting was changed: waiters may have to leave, or locks may be granted at last.
pub fn follow_settings() {
    if settings::drain() {
        answers::note_all(&decide(now(), |locks, cx| locks.drain(cx)).1);
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
pub fn settle_first(ctx: Ctx<'_>, key: KeyRef<'_>) {
    if !shell::with(|shell| shell.locks.waiters.take_unsettled(key)) {
        return;
    }
    let id = key.to_id();
    if !(ctx.may_write() && settle::settle(ctx, &id, ctx.now())) {
        shell::with(|shell| shell.locks.waiters.schedule_settle_id(id));
    }
    rearm(ctx);
}

fn end_waits(now: Now) {
    answers::note_all(&decide(now, |locks, cx| while locks.end_next_wait(cx) {}).1);
}
