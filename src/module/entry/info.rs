//! The section `INFO lock`: gauges of this moment and the counters of `lock::stats`.

use std::ffi::{c_int, CString};

use redis_module::raw;

use crate::lock::{Histogram, Resource, Shared};
use crate::module::ffi::api::api;
use crate::module::ffi::ctx::{is_out_of_memory, now, Ctx};
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
        let is_out_of_memory = is_out_of_memory();
        let (fields, histograms) = shell::with(|shell| {
            let finals = shell.locks.shared.finals.fields();
            let shared = &shell.locks.shared;
            let Shared {
                waiters, sessions, ..
            } = shared;
            let (limits, waits) = (settings::limits(), waiters.gauges());
            let gauges = [
                ("sessions", sessions.clients() as u64),
                ("session_holds", sessions.holds() as u64),
                ("session_waits", shell.locks.shared.holds_to_bind() as u64),
                ("max_session_holds", sessions.max_holds() as u64),
                ("wait_bytes", waiters.wait_bytes() as u64),
                ("users_with_usage", shared.users_with_usage() as u64),
                ("max_waiters", limits.max_waiters as u64),
                ("max_tickets", limits.max_tickets as u64),
                ("max_wait_bytes", limits.max_wait_bytes as u64),
                ("max_tracked", limits.max_tracked as u64),
                ("startup_delay_ms", settings::startup_delay_ms()),
                (
                    "startup_delay_left_ms",
                    shell.locks.shared.startup_delay.left(now),
                ),
                ("eviction_risk", u64::from(shell.eviction_risk)),
                ("out_of_memory", u64::from(is_out_of_memory)),
                ("keys_withheld", shell.locks.withheld(now) as u64),
                ("grants_withheld", shell.grants_withheld),
                ("writes_refused", shell.writes_refused),
                ("panics", guard::panics()),
                ("replication_failures", replication::failures()),
            ];
            let unnoted = waits[Resource::Lock].oldest_ms_without_note(now);
            let mut fields = named("", gauges);
            fields.extend(named("", waiters.percents_used()));
            fields.extend(named("", [("oldest_wait_without_note_ms", unnoted)]));
            for resource in Resource::ALL {
                let prefix = resource.prefix();
                let oldest = [("oldest_wait_ms", waits[resource].oldest_ms(now))];
                fields.extend(named(prefix, oldest));
                fields.extend(named(prefix, shell.locks.fields(resource, &waits)));
            }
            fields.extend(named("", waiters.ticket_fields(&waits)));
            fields.extend(named("", finals));
            let histograms = shell.locks.histograms();
            for (name, histogram) in &histograms {
                fields.extend(named(name, [("_sum", histogram.sum_ms())]));
            }
            (fields, histograms)
        });
        // SAFETY: the server's info context for this callback; the names end with a NUL. (The server refuses a section
        // that the client has not requested, and then its fields.)
        unsafe {
            api!(RedisModule_InfoAddSection)(info, c"".as_ptr());
            for (name, value) in fields {
                api!(RedisModule_InfoAddFieldULongLong)(info, name.as_ptr(), value);
            }
        }
        for (name, histogram) in histograms {
            add_histogram(info, name, &histogram);
        }
    });
}

/// Adds a field of the form `name:le_1=2,le_5=3,le_inf=4,count=4`.
fn add_histogram(info: *mut raw::RedisModuleInfoCtx, name: &str, histogram: &Histogram) {
    // No name has a NUL.
    let Ok(name) = CString::new(name) else {
        return;
    };
    let mut parts = Vec::new();
    for (bound, count) in histogram.up_to() {
        match bound {
            Some(ms) => parts.push((format!("le_{ms}"), count)),
            None => parts.extend([("le_inf".to_string(), count), ("count".to_string(), count)]),
        }
    }
    // SAFETY: the server's info context, during its callback; the names end with a NUL, and the dictionary that is
    // begun is ended.
    unsafe {
        api!(RedisModule_InfoBeginDictField)(info, name.as_ptr());
        for (part, count) in parts {
            if let Ok(part) = CString::new(part) {
                api!(RedisModule_InfoAddFieldULongLong)(info, part.as_ptr(), count);
            }
        }
        api!(RedisModule_InfoEndDictField)(info);
    }
}

/// The fields with their prefix, as the server takes them.
fn named(
    prefix: &str,
    fields: impl IntoIterator<Item = (&'static str, u64)>,
) -> Vec<(CString, u64)> {
    let fields = fields.into_iter();
    // No name has a NUL.
    let named = fields.filter_map(|(name, value)| {
        let name = CString::new([prefix, name].concat()).ok()?;
        Some((name, value))
    });
    named.collect()
}
