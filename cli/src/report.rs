//! The state of a lock as text and as JSON.

use std::time::{Duration, SystemTime};

use redis_lock_client::{Holder, LockInfo, Mode, Waiter};
use serde_json::{json, Value};

use crate::escape::{shown, word};
use crate::info::State;
use crate::key::hex;

/// A lock as an object: durations in milliseconds, null for no end or an unknown value.
pub fn lock(key: &[u8], info: &LockInfo) -> Value {
    let fields = json!({
        "mode": mode(info).to_string(),
        "holders": info.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiters": info.waiters,
        "longest_wait_ms": millis(Some(info.longest_wait)),
        "queue": info.queue.iter().map(waiter).collect::<Vec<_>>(),
    });
    with_names(fields, [("key", Some(key))])
}

/// A lock or a semaphore, likewise.
pub fn state(key: &[u8], state: &State) -> Value {
    let (info, holders) = match state {
        State::Lock(info) => return lock(key, info),
        State::Semaphore(info, holders) => (info, holders),
    };
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
    with_names(fields, [("key", Some(key))])
}

pub fn holder(holder: &Holder) -> Value {
    let fields = json!({
        "holds": holder.holds,
        "token": holder.token,
        "lease_ms": millis(holder.remaining),
        "held_ms": millis(holder.held),
        "client_id": holder.client_id,
        "addr": holder.addr,
        "session": holder.session,
    });
    let names = [
        ("owner", Some(&holder.owner[..])),
        ("client_name", holder.client_name.as_deref()),
        ("note", holder.note.as_deref()),
    ];
    with_names(fields, names)
}

fn waiter(waiter: &Waiter) -> Value {
    let fields = json!({
        "mode": waiter.mode.to_string(),
        "waited_ms": millis(Some(waiter.waited)),
        "left_ms": millis(waiter.left),
        "client_id": waiter.client_id,
    });
    let names = [
        ("owner", Some(&waiter.owner[..])),
        ("note", waiter.note.as_deref()),
    ];
    with_names(fields, names)
}

/// The fields, and names, or null. Where one is not UTF-8, which JSON must be, or has a NUL, which no argument can
/// have, its bytes follow under `<field>_hex`.
pub fn with_names<'a>(
    mut fields: Value,
    names: impl IntoIterator<Item = (&'static str, Option<&'a [u8]>)>,
) -> Value {
    for (field, name) in names {
        fields = merged(fields, json!({ field: name.map(String::from_utf8_lossy) }));
        let is_plain = |name: &&[u8]| std::str::from_utf8(name).is_ok() && !name.contains(&0);
        if let Some(name) = name.filter(|name| !is_plain(name)) {
            fields = merged(fields, json!({ format!("{field}_hex"): hex(name) }));
        }
    }
    fields
}

/// The fields of both.
pub fn merged(mut fields: Value, others: Value) -> Value {
    if let (Some(fields), Value::Object(others)) = (fields.as_object_mut(), others) {
        fields.extend(others);
    }
    fields
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

/// The holders of a lock in short form, with the note of an exclusive one.
pub fn holders(info: &LockInfo) -> String {
    match info.holders.as_slice() {
        [] => "-".into(),
        [holder] => match &holder.note {
            Some(note) => format!("{} ({})", word(&holder.owner), shown(note)),
            None => word(&holder.owner),
        },
        [holder, others @ ..] => format!("{} and {} more", word(&holder.owner), others.len()),
    }
}

/// The mode; that of a free lock is the usual one.
pub fn mode(info: &LockInfo) -> Mode {
    info.mode.unwrap_or_default()
}

/// The longest time for which a holder has held the lock.
pub fn held(info: &LockInfo) -> Option<Duration> {
    info.holders.iter().filter_map(|holder| holder.held).max()
}

/// The rest of the lease that ends last; none when a hold has no end, or without a holder.
pub fn lease(info: &LockInfo) -> Option<Duration> {
    let leases: Option<Vec<Duration>> =
        info.holders.iter().map(|holder| holder.remaining).collect();
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
        let object = with_names(json!({}), [("key", Some(&b"a\xff"[..]))]);
        assert_eq!(object.to_string(), r#"{"key":"a�","key_hex":"61ff"}"#);
    }
}
