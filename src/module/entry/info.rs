//! The section `INFO lock`: gauges of this moment and the counters of `lock::stats`.

use std::ffi::{c_int, CStr};

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::ctx::{now, Ctx};
use crate::module::ffi::guard;
use crate::module::keyspace::replication;
use crate::module::state::settings;
use crate::module::state::shell;

/// Registers the section.
pub fn register(ctx: Ctx<'_>) -> Option<()> {
    // SAFETY: the context is OnLoad's.
    let status = unsafe { api!(RedisModule_RegisterInfoFunc)(ctx.as_ptr(), Some(on_info)) };
    (status == raw::REDISMODULE_OK as c_int).then_some(())
}

unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return;
    }
    guard::entry("info", || {
        let now = now();
        let (gauges, locks, sems, latches, redisson) = shell::with(|shell| {
            let waiters = &shell.locks.waiters;
            let sessions = &shell.locks.sessions;
            let (sems, latches) = (&shell.locks.sems, &shell.locks.latches);
            let gauges: [(&CStr, u64); 20] = [
                (c"waiters", waiters.live() as u64),
                (c"places", waiters.live_places() as u64),
                (c"keys_waited", waiters.keys_waited() as u64),
                (c"places_kept", waiters.kept_places() as u64),
                (c"sem_waiters", sems.waiters.live() as u64),
                (c"sem_keys_waited", sems.waiters.keys_waited() as u64),
                (c"sem_places_kept", sems.waiters.kept_places() as u64),
                (c"sem_grants_tracked", sems.remembered_len() as u64),
                (c"latch_waiters", latches.waiters.live() as u64),
                (c"latch_keys_waited", latches.waiters.keys_waited() as u64),
                (c"grants_tracked", shell.locks.tracked_len() as u64),
                (c"windows_open", shell.locks.windows.open() as u64),
                (c"sessions", sessions.clients() as u64),
                (c"session_holds", sessions.holds() as u64),
                (c"startup_delay_ms", settings::startup_delay_ms()),
                (
                    c"startup_delay_left_ms",
                    shell.locks.startup_delay.left(now),
                ),
                (c"eviction_risk", u64::from(shell.eviction_risk)),
                (c"writes_refused", shell.writes_refused),
                (c"panics", guard::panics()),
                (c"replication_failures", replication::failures()),
            ];
            (
                gauges,
                shell.locks.stats.clone(),
                sems.stats.clone(),
                latches.stats.clone(),
                shell.redisson.clone(),
            )
        });
        let fields = gauges
            .into_iter()
            .chain(locks.fields())
            .chain(sems.fields())
            .chain(latches.fields())
            .chain(redisson.fields());
        // SAFETY: the server's info context for this callback; names are constants. (A section that was not asked
        // for is refused, and then its fields are.)
        unsafe {
            api!(RedisModule_InfoAddSection)(info, c"".as_ptr());
            for (name, value) in fields {
                api!(RedisModule_InfoAddFieldULongLong)(info, name.as_ptr(), value);
            }
        }
    });
}
