//! The scripts of `RReadWriteLock`'s readers, natively.
//!
//! They use keys that the call does not name: one timeout for each hold. The names of these keys and the caller's
//! permission are determined before the first access. From then on every step follows the order of the script and uses
//! the server's own commands, because reading a key after its deadline deletes it, and the server publishes an event
//! for that.

use std::ffi::CStr;

use crate::lock::LockError;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::{Fields, RawKey};
use crate::module::keyspace::beside;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::state::constants::constants;
use crate::redisson::scripts::read_write::{
    read_acquire, read_unlock, Form, Give, Lock, Mode, Take,
};
use crate::redisson::scripts::readers::{own_timeout, timeout_of, Reader, Readers};
use crate::redisson::scripts::{time_to_live, Inner};
use crate::redisson::server::effects::{count, field};
use crate::redisson::server::permission::may_also;
use crate::redisson::server::server_command::run as server;
use crate::redisson::server::write_lock::{lock_of, set_mode, Answer};
use crate::redisson::server::{Call, OwnedStr, Reply, Str, Surroundings};

impl Fields for Readers {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        Readers::field(self, field, value);
    }
}

/// Adds a reader, or a hold of a reader.
pub fn acquire(
    ctx: Ctx<'_>,
    call: &Call<'_>,
    shortens: bool,
    around: Surroundings,
) -> Option<Reply> {
    let (name, prefix) = (call.key(0)?, call.key(1)?);
    let (lease, owner, writer) = (call.arg(0)?, call.arg(1)?, call.arg(2)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let left_ms = time_to_live(key.handle().and_then(RawKey::end_ms), now_ms)?;
    let lock = lock_of(&key, owner)?;
    let is_writer = match lock {
        Lock::Held(Mode::Write, _) => field(key.handle()?, writer)?.is_some(),
        _ => false,
    };
    let decided = read_acquire(lock, is_writer, lease.bytes(), left_ms, now_ms, shortens)?;
    drop(key);
    if decided == Take::Refused {
        return Some(Reply::Number(left_ms));
    }
    let is_new = matches!(lock, Lock::Free | Lock::Held(_, None));
    if is_new && beside::siblings_are_taken(ctx, name, owner.bytes(), lock != Lock::Free) {
        return Some(Reply::Refused(LockError::SiblingsTaken));
    }
    let holds = match lock {
        Lock::Held(_, Some(holds)) => holds + 1,
        _ => 1,
    };
    let timeout = OwnedStr::new(&own_timeout(prefix.bytes(), holds));
    let timeout = timeout.as_str();
    let is_plain = owner.bytes() != b"mode" && timeout.bytes() != name.bytes();
    if !is_plain
        || around.are_short_of_memory()
        || !may_also(ctx, &[(Inner::Set, timeout), (Inner::Pexpire, timeout)])
    {
        return None;
    }
    let constants = constants();
    let one = constants.one();
    let hash_lease = match decided {
        Take::Again(lease) => {
            count(ctx, name, owner, 1)?;
            Some(OwnedStr::of_number(lease))
        }
        _ => {
            set_mode(ctx, name, Mode::Read)?;
            server(ctx, c"HSET", &[name, owner, one])?;
            None
        }
    };
    server(ctx, c"SET", &[timeout, one])?;
    server(ctx, c"PEXPIRE", &[timeout, lease])?;
    let hash_lease = hash_lease.as_ref().map_or(lease, OwnedStr::as_str);
    server(ctx, c"PEXPIRE", &[name, hash_lease])?;
    Some(Reply::Nil)
}

/// Removes one hold of a reader.
pub fn unlock(ctx: Ctx<'_>, call: &Call<'_>, form: Form) -> Option<Reply> {
    let (name, own, all, owner) = (call.key(0)?, call.key(2)?, call.key(3)?, call.arg(1)?);
    let answer = match Answer::of(ctx, call, form, 4, 2)? {
        Answer::Known(number) => return Some(Reply::Number(number)),
        Answer::Open(answer) => answer,
    };
    let key = LockKey::open(ctx, name);
    let (holds, is_write) = match (lock_of(&key, owner)?, key.handle()) {
        (Lock::Held(mode, Some(holds)), Some(_)) => (holds, mode == Mode::Write),
        (lock, _) => {
            drop(key);
            return match read_unlock(lock) {
                Give::OfNone => answer.of_none(ctx, form),
                _ => Some(Reply::Nil),
            };
        }
    };
    let (handle, mut readers) = (key.handle()?, Readers::default());
    handle.scan(&mut readers, |readers| !readers.are_undecidable());
    if readers.fields() < handle.len() {
        // Of the rest the TTL of their own is over: the script counts them.
        return None;
    }
    drop(key);
    let readers = readers.without_one(owner.bytes(), all.bytes())?;
    let ended = OwnedStr::new(&own_timeout(own.bytes(), holds));
    let ended = ended.as_str();
    let timeouts = timeouts_of(&readers, all.bytes());
    let mut unsettled: Vec<_> = timeouts
        .iter()
        .map(|timeout| (Inner::Pttl, timeout.as_str()))
        .collect();
    unsettled.push((Inner::Del, ended));
    if ended.bytes() == name.bytes() || !may_also(ctx, &unsettled) {
        return None;
    }
    count(ctx, name, owner, -1)?;
    if holds == 1 {
        server(ctx, c"HDEL", &[name, owner])?;
    }
    server(ctx, c"DEL", &[ended])?;
    let others = readers.iter().any(|(_, count)| *count > 0);
    if others && goes_on(ctx, name, &timeouts, is_write)? {
        answer.leave(ctx, 0)?;
        return Some(Reply::Number(0));
    }
    server(ctx, c"DEL", &[name])?;
    answer.publish(ctx)?;
    answer.leave(ctx, 1)?;
    Some(Reply::Number(1))
}

/// Whether the lock stays held: as long as the longest of these timeouts, or because it has a writer.
fn goes_on(ctx: Ctx<'_>, name: Str<'_>, timeouts: &[OwnedStr], is_write: bool) -> Option<bool> {
    const PTTL: &CStr = c"PTTL";
    let mut longest = 0;
    for timeout in timeouts {
        longest = longest.max(server(ctx, PTTL, &[timeout.as_str()])?);
    }
    if longest > 0 {
        let longest = OwnedStr::of_number(longest);
        server(ctx, c"PEXPIRE", &[name, longest.as_str()])?;
    }
    Some(longest > 0 || is_write)
}

/// The timeouts of all these holds, the newest of each reader first: the order in which the script reads them.
fn timeouts_of(readers: &[Reader], prefix: &[u8]) -> Vec<OwnedStr> {
    let of_reader = |(reader, count): &Reader| {
        let numbers = (1..=*count).rev();
        let names = numbers.map(|number| OwnedStr::new(&timeout_of(prefix, reader, number)));
        names.collect::<Vec<_>>()
    };
    readers.iter().flat_map(of_reader).collect()
}
