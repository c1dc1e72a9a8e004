//! The state of a lock as text and as JSON.

use std::time::{Duration, SystemTime};

use redis_lock_client::{Holder, LockInfo, SemaphoreInfo, Waiter};
use serde_json::{json, Map, Value};

use crate::escape::shown;
use crate::info::State;
use crate::key::hex;

/// A lock as an object: durations in milliseconds, null for no end or an unknown value.
pub fn lock(key: &[u8], info: &LockInfo) -> Value {
    fields(key, info).into()
}

pub fn fields(key: &[u8], info: &LockInfo) -> Map<String, Value> {
    let mut object = Map::new();
    put(&mut object, "key", key);
    object.insert("mode".into(), json!(info.mode.to_string()));
    object.insert("holders".into(), info.holders.iter().map(holder).collect());
    object.insert("waiters".into(), json!(info.waiters));
    object.insert("longest_wait_ms".into(), millis(Some(info.longest_wait)));
    object.insert("queue".into(), info.queue.iter().map(waiter).collect());
    object
}

/// A lock or a semaphore, likewise.
pub fn state(key: &[u8], state: &State) -> Value {
    match state {
        State::Lock(info) => lock(key, info),
        State::Semaphore(info, holders) => semaphore(key, info, holders),
    }
}

fn semaphore(key: &[u8], info: &SemaphoreInfo, holders: &[Holder]) -> Value {
    let fields = json!({
        "mode": "semaphore",
        "permits": info.permits,
        "free": info.free,
        "held": info.held,
        "holders": holders.iter().map(holder).collect::<Vec<_>>(),
        "next_end_ms": millis(info.next_end),
        "waiters": info.waiters,
        "longest_wait_ms": millis(Some(info.longest_wait)),
    });
    let mut object = fields.as_object().cloned().unwrap_or_default();
    put(&mut object, "key", key);
    object.into()
}

pub fn holder(holder: &Holder) -> Value {
    let mut object = Map::new();
    put(&mut object, "owner", &holder.owner);
    object.insert("holds".into(), json!(holder.holds));
    object.insert("token".into(), json!(holder.token));
    object.insert("lease_ms".into(), millis(holder.lease));
    object.insert("held_ms".into(), millis(holder.held));
    object.insert("client_id".into(), json!(holder.client_id));
    object.insert("addr".into(), json!(holder.addr));
    put_or_null(&mut object, "client_name", &holder.client_name);
    object.insert("session".into(), json!(holder.session));
    put_or_null(&mut object, "note", &holder.note);
    object.into()
}

fn put_or_null(object: &mut Map<String, Value>, field: &str, name: &Option<Vec<u8>>) {
    match name {
        Some(name) => put(object, field, name),
        None => drop(object.insert(field.into(), Value::Null)),
    }
}

fn waiter(waiter: &Waiter) -> Value {
    let mut object = Map::new();
    put(&mut object, "owner", &waiter.owner);
    object.insert("mode".into(), json!(waiter.mode.to_string()));
    object.insert("waited_ms".into(), millis(Some(waiter.waited)));
    object.insert("left_ms".into(), millis(waiter.left));
    object.insert("client_id".into(), json!(waiter.client_id));
    put_or_null(&mut object, "note", &waiter.note);
    object.into()
}

/// A name. Where it is not UTF-8, which JSON must be, or has a NUL, which no argument can have, its bytes follow
/// under `<field>_hex`.
pub fn put(object: &mut Map<String, Value>, field: &str, name: &[u8]) {
    object.insert(field.into(), json!(String::from_utf8_lossy(name)));
    if std::str::from_utf8(name).is_err() || name.contains(&0) {
        object.insert(format!("{field}_hex"), json!(hex(name)));
    }
}

/// Milliseconds, or null.
pub fn millis(span: Option<Duration>) -> Value {
    json!(span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}

/// `2026-11-24T01:54:54.123Z`.
pub fn utc(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// `350ms`, `4.2s`, `3m05s`, `2h10m`, `3d04h`; `-` for none.
pub fn span(span: Option<Duration>) -> String {
    let Some(span) = span else {
        return "-".into();
    };
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{seconds}.{}s", span.subsec_millis() / 100),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// The holders of a lock in short form.
pub fn holders(info: &LockInfo) -> String {
    match info.holders.as_slice() {
        [] => "-".into(),
        [holder] => shown(&holder.owner),
        [holder, others @ ..] => format!("{} and {} more", shown(&holder.owner), others.len()),
    }
}

/// The longest time for which a holder has held the lock.
pub fn held(info: &LockInfo) -> Option<Duration> {
    info.holders.iter().filter_map(|holder| holder.held).max()
}

/// The rest of the lease that ends last; none when a hold has no end, or without a holder.
pub fn lease(info: &LockInfo) -> Option<Duration> {
    let leases: Option<Vec<Duration>> = info.holders.iter().map(|holder| holder.lease).collect();
    leases?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_two_units() {
        let shown = |millis| span(Some(Duration::from_millis(millis)));
        assert_eq!(shown(350), "350ms");
        assert_eq!(shown(4_250), "4.2s");
        assert_eq!(shown(185_000), "3m05s");
        assert_eq!(shown(7_800_000), "2h10m");
        assert_eq!(shown(273_600_000), "3d04h");
        assert_eq!(span(None), "-");
    }

    #[test]
    fn a_name_that_is_not_utf8_has_its_bytes_in_hexadecimal() {
        let mut object = Map::new();
        put(&mut object, "key", b"a\xff");
        assert_eq!(
            Value::from(object).to_string(),
            r#"{"key":"a�","key_hex":"61ff"}"#
        );
    }
}
