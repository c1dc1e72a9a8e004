//! The effect of Redisson's scripts on the keys: of the plain lock, and of the read-write lock acquire (3.11.1 and
//! later), unlock (the 3.44 line, without its latch), renewal (4.4 and later) and force.
//!
//! The caller lets the server expire keys first, as any command on these keys does.

use crate::lock::tests::sim::keyspace::{timeout_key, Keyspace};
use crate::lock::Now;

fn count(keys: &Keyspace, key: &str, field: &str) -> i64 {
    let fields = keys.fields(key);
    fields.get(field).map_or(0, |value| value.parse().unwrap())
}

fn add(keys: &mut Keyspace, key: &str, field: &str, by: i64) -> i64 {
    let count = count(keys, key, field) + by;
    keys.hash(key).insert(field.into(), count.to_string());
    count
}

fn mode(keys: &Keyspace, key: &str) -> Option<String> {
    keys.fields(key).get("mode").cloned()
}

fn write_of(owner: &str) -> String {
    format!("{owner}:write")
}

/// `tryLock` of the plain lock, which is free or held by this owner.
pub fn acquire(keys: &mut Keyspace, key: &str, owner: &str, end_ms: i64) {
    add(keys, key, owner, 1);
    keys.set_end(key, end_ms);
}

/// `unlock` of the plain lock, held by this owner.
pub fn release(keys: &mut Keyspace, key: &str, owner: &str, end_ms: i64) {
    match add(keys, key, owner, -1) {
        0 => drop(force(keys, key)),
        _ => keys.set_end(key, end_ms),
    }
}

/// True when taken.
pub fn read_acquire(keys: &mut Keyspace, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let end_ms = now.wall_ms + lease_ms;
    let own_write = keys.fields(key).contains_key(&write_of(owner));
    match mode(keys, key).as_deref() {
        None => {
            keys.hash(key).insert("mode".into(), "read".into());
            keys.hash(key).insert(owner.into(), "1".into());
            keys.set(timeout_key(key, owner.as_bytes(), 1), "1", Some(end_ms));
            keys.set_end(key, end_ms);
        }
        Some(mode) if mode == "read" || own_write => {
            let number = add(keys, key, owner, 1) as u32;
            let timeout = timeout_key(key, owner.as_bytes(), number);
            keys.set(timeout, "1", Some(end_ms));
            let longest = keys.end(key).unwrap_or(0).max(end_ms);
            keys.set_end(key, longest);
        }
        Some(_) => return false,
    }
    true
}

/// True when taken.
pub fn write_acquire(keys: &mut Keyspace, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let field = write_of(owner);
    match mode(keys, key).as_deref() {
        None => {
            keys.hash(key).insert("mode".into(), "write".into());
            keys.hash(key).insert(field, "1".into());
            keys.set_end(key, now.wall_ms + lease_ms);
        }
        Some("write") if keys.fields(key).contains_key(&field) => {
            add(keys, key, &field, 1);
            // It adds.
            let end_ms = keys.end(key).map_or(now.wall_ms - 1, |end| end);
            keys.set_end(key, end_ms + lease_ms);
        }
        Some(_) => return false,
    }
    true
}

/// True when it was held.
pub fn read_release(keys: &mut Keyspace, key: &str, owner: &str, now: Now) -> bool {
    let Some(mode) = mode(keys, key) else {
        return false;
    };
    if !keys.fields(key).contains_key(owner) {
        return false;
    }
    let left = add(keys, key, owner, -1);
    if left == 0 {
        keys.hash(key).remove(owner);
    }
    let timeout = timeout_key(key, owner.as_bytes(), left as u32 + 1);
    keys.remove(&timeout);
    let fields = keys.fields(key);
    if fields.len() > 1 {
        let longest = fields
            .iter()
            .filter_map(|(field, value)| Some((field, value.parse::<u32>().ok()?)))
            .flat_map(|(field, count)| (1..=count).map(move |n| (field, n)))
            .filter_map(|(field, n)| keys.end(&timeout_key(key, field.as_bytes(), n)))
            .max();
        if let Some(end_ms) = longest.filter(|end| *end > now.wall_ms) {
            keys.set_end(key, end_ms);
            return true;
        }
        if mode == "write" {
            return true;
        }
    }
    keys.remove(key);
    true
}

/// True when it was held.
pub fn write_release(keys: &mut Keyspace, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let field = write_of(owner);
    if mode(keys, key).as_deref() != Some("write") || !keys.fields(key).contains_key(&field) {
        return false;
    }
    if add(keys, key, &field, -1) > 0 {
        keys.set_end(key, now.wall_ms + lease_ms);
        return true;
    }
    keys.hash(key).remove(&field);
    if keys.fields(key).len() == 1 {
        keys.remove(key);
    } else {
        keys.hash(key).insert("mode".into(), "read".into());
    }
    true
}

/// The watchdog of a reader.
pub fn read_renew(keys: &mut Keyspace, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let end_ms = now.wall_ms + lease_ms;
    if !keys.fields(key).contains_key(owner) {
        return false;
    }
    for number in 1..=count(keys, key, owner) as u32 {
        keys.set_end(&timeout_key(key, owner.as_bytes(), number), end_ms);
    }
    keys.set_end(key, end_ms.max(keys.end(key).unwrap_or(0)));
    true
}

/// Force-unlock of either kind.
pub fn force(keys: &mut Keyspace, key: &str) -> bool {
    keys.remove(key)
}

/// A permit is taken. True if one was free.
pub fn take_permit(keys: &mut Keyspace, key: &str, id: &str, end_ms: i64) -> bool {
    let free = free_permits(keys, key);
    let mut permits = keys.permits(key);
    if free <= 0 {
        return false;
    }
    permits.insert(id.into(), end_ms);
    keys.set(key.into(), &(free - 1).to_string(), None);
    keys.set_permits(key, permits);
    true
}

/// A permit is given back. True if it was held.
pub fn give_permit(keys: &mut Keyspace, key: &str, id: &str) -> bool {
    let mut permits = keys.permits(key);
    if permits.remove(id).is_none() {
        return false;
    }
    let free = free_permits(keys, key) + 1;
    keys.set(key.into(), &free.to_string(), None);
    keys.set_permits(key, permits);
    true
}

fn free_permits(keys: &Keyspace, key: &str) -> i64 {
    keys.text(key).map_or(0, |free| free.parse().unwrap())
}
