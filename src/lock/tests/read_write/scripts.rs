//! What Redisson's read-write scripts do to the keys, in our words: acquire (3.11.1 and later), unlock (the
//! 3.44 line, without its latch), renewal (4.4 and later) and force.
//!
//! Each first lets the server expire what is over, as any command on these keys would.

use crate::lock::tests::read_write::world::{timeout_of, World};
use crate::lock::Now;

fn count(world: &World, key: &str, field: &str) -> i64 {
    let fields = world.fields(key);
    fields.get(field).map_or(0, |value| value.parse().unwrap())
}

fn add(world: &mut World, key: &str, field: &str, by: i64) -> i64 {
    let count = count(world, key, field) + by;
    world.hash(key).insert(field.into(), count.to_string());
    count
}

fn mode(world: &World, key: &str) -> Option<String> {
    world.fields(key).get("mode").cloned()
}

fn write_of(owner: &str) -> String {
    format!("{owner}:write")
}

/// True when taken.
pub fn read_acquire(world: &mut World, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let end_ms = now.wall_ms + lease_ms;
    let own_write = world.fields(key).contains_key(&write_of(owner));
    match mode(world, key).as_deref() {
        None => {
            world.hash(key).insert("mode".into(), "read".into());
            world.hash(key).insert(owner.into(), "1".into());
            world.set(timeout_of(key, owner.as_bytes(), 1), "1", Some(end_ms));
            world.set_end(key, end_ms);
        }
        Some(mode) if mode == "read" || own_write => {
            let number = add(world, key, owner, 1) as u32;
            let timeout = timeout_of(key, owner.as_bytes(), number);
            world.set(timeout, "1", Some(end_ms));
            let longest = world.end(key).unwrap_or(0).max(end_ms);
            world.set_end(key, longest);
        }
        Some(_) => return false,
    }
    true
}

/// True when taken.
pub fn write_acquire(world: &mut World, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let field = write_of(owner);
    match mode(world, key).as_deref() {
        None => {
            world.hash(key).insert("mode".into(), "write".into());
            world.hash(key).insert(field, "1".into());
            world.set_end(key, now.wall_ms + lease_ms);
        }
        Some("write") if world.fields(key).contains_key(&field) => {
            add(world, key, &field, 1);
            // It adds.
            let end_ms = world.end(key).map_or(now.wall_ms - 1, |end| end);
            world.set_end(key, end_ms + lease_ms);
        }
        Some(_) => return false,
    }
    true
}

/// True when it was held.
pub fn read_release(world: &mut World, key: &str, owner: &str, now: Now) -> bool {
    let Some(mode) = mode(world, key) else {
        return false;
    };
    if !world.fields(key).contains_key(owner) {
        return false;
    }
    let left = add(world, key, owner, -1);
    if left == 0 {
        world.hash(key).remove(owner);
    }
    let timeout = timeout_of(key, owner.as_bytes(), left as u32 + 1);
    world.keys.remove(&timeout);
    let fields = world.fields(key);
    if fields.len() > 1 {
        let longest = fields
            .iter()
            .filter_map(|(field, value)| Some((field, value.parse::<u32>().ok()?)))
            .flat_map(|(field, count)| (1..=count).map(move |n| (field, n)))
            .filter_map(|(field, n)| world.end(&timeout_of(key, field.as_bytes(), n)))
            .max();
        if let Some(end_ms) = longest.filter(|end| *end > now.wall_ms) {
            world.set_end(key, end_ms);
            return true;
        }
        if mode == "write" {
            return true;
        }
    }
    world.keys.remove(key);
    true
}

/// True when it was held.
pub fn write_release(world: &mut World, key: &str, owner: &str, lease_ms: i64, now: Now) -> bool {
    let field = write_of(owner);
    if mode(world, key).as_deref() != Some("write") || !world.fields(key).contains_key(&field) {
        return false;
    }
    if add(world, key, &field, -1) > 0 {
        world.set_end(key, now.wall_ms + lease_ms);
        return true;
    }
    world.hash(key).remove(&field);
    if world.fields(key).len() == 1 {
        world.keys.remove(key);
    } else {
        world.hash(key).insert("mode".into(), "read".into());
    }
    true
}

/// The watchdog of a reader.
pub fn read_renew(world: &mut World, key: &str, owner: &str, lease_ms: i64, now: Now) {
    let end_ms = now.wall_ms + lease_ms;
    if !world.fields(key).contains_key(owner) {
        return;
    }
    for number in 1..=count(world, key, owner) as u32 {
        world.set_end(&timeout_of(key, owner.as_bytes(), number), end_ms);
    }
    world.set_end(key, end_ms.max(world.end(key).unwrap_or(0)));
}

/// Force-unlock of either kind.
pub fn force(world: &mut World, key: &str) {
    world.keys.remove(key);
}
