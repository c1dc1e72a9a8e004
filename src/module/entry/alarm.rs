//! The one timer of the module: for answers to deliver, ends of waits and leases, keys to settle.
//!
//! It is armed only while work is due soon. It may fire in vain, and the work may be done early or twice.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use redis_module::raw;

use crate::lock::{Locks, Now};
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::entry::events;
use crate::module::ffi::api::api;
use crate::module::ffi::ctx::{Callback, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::guard;
use crate::module::keyspace::horizon;
use crate::module::sessions;
use crate::module::settle::{self, HORIZONS_PER_TICK};
use crate::module::state::shell::RETRY_MS;
use crate::module::state::shell::{self, Shell};
use crate::module::tickets;

/// Work that is due later than this is left to the server's cron, which runs once a second at least and arms the timer
/// in time: nearly every wait and lease is over before, and a timer made in vain takes 3,000 instructions.
const SOON_MS: u64 = 2_000;

/// After this many places of waits that have ended, the clock is read: the message to a channel with thousands of
/// subscribers takes milliseconds.
const PLACES_PER_STEP: usize = 1;

/// After more early firings in a row than this, the timer is not armed again at once.
const EARLY_FIRINGS: u32 = 3;

impl Shell {
    /// Whether nothing is pending and no timer is armed. Then a command need not read the clocks, which takes 170
    /// instructions.
    fn is_quiet(&self) -> bool {
        self.alarm.armed.is_none()
            && self.answered.is_empty()
            && self.locks.shared.waiters.is_quiet()
            && !self.locks.has_rechecks()
            && !self.locks.verifies()
            && self.locks.shared.sessions.holds() == 0
            && !self.alarm.job
            && !self.locks.shared.tokens.has_lost()
    }

    /// Milliseconds until work is due; `None` if none is pending.
    fn next_due(&self, now: Now) -> Option<u64> {
        if !self.answered.is_empty() || self.alarm.job {
            return Some(0);
        }
        let next = [
            self.locks.shared.waiters.next_wait(now),
            self.next_settle(now),
        ];
        next.into_iter().flatten().min()
    }

    /// Milliseconds until work on keys is due: settling, checks, horizons, bound holds.
    fn next_settle(&self, now: Now) -> Option<u64> {
        let until = |moment: u64| moment.saturating_sub(now.mono_ms);
        let retry_at_ms = self.alarm.retry_at_ms;
        let lost = self
            .locks
            .shared
            .tokens
            .has_lost()
            .then(|| until(retry_at_ms));
        let grants_ms = retry_at_ms.max(self.locks.shared.startup_delay.end_ms());
        let postponed = self
            .locks
            .shared
            .waiters
            .has_postponed()
            .then(|| until(grants_ms));
        let bound = self.locks.shared.sessions.next_due(now);
        let bound = bound.map(|due| due.max(until(self.alarm.sessions_at_ms)));
        let more = (self.locks.has_rechecks() || self.locks.verifies()).then_some(0);
        let next = [
            self.locks.shared.waiters.next_settle(now),
            more,
            lost,
            postponed,
            bound,
        ]
        .into_iter()
        .flatten()
        .min();
        next.map(|due| due.max(until(self.alarm.paused_until_ms)))
    }
}

/// Arms the timer, or moves it up. Called at the end of every event that may have changed what is due. A timer that is
/// armed for an earlier time stays. Work that is due at the end of this tick moves a timer of the same millisecond.
pub fn rearm(ctx: Ctx<'_>) {
    if !shell::with(|shell| shell.alarm.firing) {
        arm(ctx, 0);
    }
}

/// Arms the timer for the next work that is due soon, but for `soonest` milliseconds from now at the earliest. Returns
/// whether some is due now.
fn arm(ctx: Ctx<'_>, soonest: u64) -> bool {
    if shell::with(|shell| shell.is_quiet()) {
        return false;
    }
    let now = ctx.now();
    let (armed, due) = shell::with(|shell| (shell.alarm.armed, shell.next_due(now)));
    let Some(due) = due.filter(|due| *due < SOON_MS) else {
        return false;
    };
    let (is_due, due) = (due == 0, due.max(soonest));
    let due_at = match due {
        0 => 0,
        due => now.mono_ms.saturating_add(due),
    };
    let stays = |armed_at| armed_at <= due_at || fault::is_on("alarm-not-moved-up");
    if armed.is_some_and(|(_, armed_at)| stays(armed_at)) {
        return is_due;
    }
    stop(ctx);
    // SAFETY: the context is live; the callback uses no data. (It cannot fail: the server tries ids until one is free.)
    let id = unsafe {
        api!(RedisModule_CreateTimer)(ctx.as_ptr(), due as i64, Some(on_timer), null_mut())
    };
    shell::with(|shell| shell.alarm.armed = Some((id, due_at)));
    is_due
}

/// Stops the timer, if it is armed.
pub fn stop(ctx: Ctx<'_>) {
    if let Some((id, _)) = shell::with(|shell| shell.alarm.armed.take()) {
        // SAFETY: the context is live, and the id is that of the armed timer: it leaves `armed` here and when the timer
        // fires. (The server refuses an unknown id.)
        unsafe { api!(RedisModule_StopTimer)(ctx.as_ptr(), id, null_mut()) };
    }
}

/// Arms the timer if none is armed, or again if work is overdue: the server's timers are late when the wall clock was
/// set back. Called by the server's cron, about ten times a second.
pub fn check(ctx: Ctx<'_>) {
    let now = ctx.now();
    shell::with(|shell| {
        shell.locks.shared.waiters.forget_closing();
        if !fault::is_on("final-number-stays") {
            shell.locks.shared.finals.forget(now);
        }
    });
    events::look(ctx);
    tickets::sweep(ctx, now);
    let is_late = shell::with(|shell| shell.next_due(now) == Some(0));
    if is_late && !fault::is_on("late-alarm-not-noticed") {
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
    // The server frees the timer that fires: stopping it from here would free it twice. A timer that is created here
    // does not fire in this tick, so it is armed for the next millisecond at the earliest; an answer that is noted
    // before moves it to the end of the tick.
    let fired = guard::entry("alarm", || {
        shell::with(|shell| shell.alarm.fires(ctx.now()));
        fire(ctx);
        rearm_after_firing(ctx);
    });
    if fired.is_none() && !fault::is_on("alarm-not-armed-after-a-panic") {
        guard::entry("alarm-again", || rearm_after_firing(ctx));
    }
}

/// Arms the timer after its callback, unless it has fired too early several times in a row: then the cron arms it.
///
/// The server reads the clock once and then fires every timer that is due by it. If the wall clock is set back
/// meanwhile, a timer that is armed here is due by the former reading. It fires at once, and so does each after it, in
/// one tick that lasts until the clock has caught up.
fn rearm_after_firing(ctx: Ctx<'_>) {
    let is_early = shell::with(|shell| {
        let alarm = &mut shell.alarm;
        (alarm.armed, alarm.firing) = (None, false);
        alarm.early > EARLY_FIRINGS
    });
    if !is_early {
        let left = arm(ctx, 1);
        shell::with(|shell| shell.alarm.left_at = left.then(Instant::now));
    }
}

fn fire(ctx: Ctx<'_>) {
    let (start, now) = (Instant::now(), ctx.now());
    let budget = shell::with(|shell| shell.alarm.budget());
    let in_time = || start.elapsed() < budget;
    // Ends of waits leave half of the time to hand-offs.
    while end_waits(ctx, now) && start.elapsed() < budget / 2 {}
    if shell::with(|shell| shell.next_settle(now)) != Some(0) {
        return;
    }
    if ctx.is_replica() {
        answers::note_all(ctx, &decide(now, Locks::demoted).1);
    } else if ctx.may_write() {
        shell::with(|shell| shell.alarm.paused_until_ms = 0);
        settle::settle_due(ctx, now, in_time);
        settle::verify_waiters(ctx, now, in_time);
        settle::recheck_all(ctx, now, in_time);
        sessions::work(ctx, budget, start);
        answers::deliver_all(ctx);
        if !horizon::restore_horizons(ctx, now, HORIZONS_PER_TICK) {
            shell::with(|shell| shell.alarm.retry_at_ms = now.mono_ms + RETRY_MS);
        }
    } else {
        shell::with(|shell| shell.alarm.paused_until_ms = now.mono_ms + RETRY_MS);
    }
}

/// Ends some of the waits that are due. Returns whether more may be.
fn end_waits(ctx: Ctx<'_>, now: Now) -> bool {
    let (more, fx) = decide(now, |locks, cx| {
        locks.shared.waiters.end_waits(PLACES_PER_STEP, cx)
    });
    answers::note_all(ctx, &fx);
    answers::deliver_all(ctx);
    more
}
