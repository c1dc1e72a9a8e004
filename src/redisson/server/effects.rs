//! What all native scripts do alike: look at a key, count, prolong, leave an answer, publish.

use redis_module::raw;

use crate::module::ffi::checked::Written;
use crate::module::ffi::ctx::Ctx;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::state::shell;
use crate::redisson::scripts::Inner;
use crate::redisson::server::server_command::run as server;
use crate::redisson::server::{Call, OwnedStr, Str, Surroundings};

/// What kind of value a key has.
pub enum KeyKind {
    /// No key.
    Absent,
    /// A hash.
    Hash,
    /// Anything else.
    Other,
}

/// What kind of value this key has.
pub fn kind(key: &LockKey<'_>) -> KeyKind {
    let Some(handle) = key.handle() else {
        return KeyKind::Absent;
    };
    match handle.kind() {
        raw::REDISMODULE_KEYTYPE_EMPTY => KeyKind::Absent,
        raw::REDISMODULE_KEYTYPE_HASH => KeyKind::Hash,
        _ => KeyKind::Other,
    }
}

/// Whether the lock has the owner's field, whatever is in it.
pub fn has_field(key: &LockKey<'_>, owner: Str<'_>) -> Option<bool> {
    match (kind(key), key.handle()) {
        (KeyKind::Hash, Some(handle)) => Some(handle.field(owner).is_some()),
        (KeyKind::Other, _) => None,
        _ => Some(false),
    }
}

/// Counts a hold that is there up or down, by the server's own command: fields may have a TTL, of which a
/// module on most servers knows nothing. `None`: it was refused.
pub fn count(ctx: Ctx<'_>, name: Str<'_>, owner: Str<'_>, by: i64) -> Option<i64> {
    let by = OwnedStr::of_number(by);
    server(ctx, c"HINCRBY", &[name, owner, by.as_str()])
}

/// Whether the server has made a write. If not, the script is left to its own commands.
pub fn made(written: Written) -> Option<()> {
    written.map_err(shell::note_refusal).ok()
}

/// Gives a key another end, and tells of it. `None`: it was refused.
pub fn prolong(mut key: LockKey<'_>, end_ms: i64, replication: Replication<'_>) -> Option<()> {
    let (ctx, name) = (key.ctx(), key.name());
    made(key.set_deadline(end_ms, replication))?;
    key.signal();
    drop(key);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
    Some(())
}

/// The same for a hold that was just counted up or down by so much; if it is refused, that is taken back.
pub fn prolong_counted(
    ctx: Ctx<'_>,
    (name, owner, by): (Str<'_>, Str<'_>, i64),
    end_ms: i64,
    replication: Replication<'_>,
) -> Option<()> {
    let prolonged = prolong(LockKey::open(ctx, name), end_ms, replication);
    if prolonged.is_none() {
        count(ctx, name, owner, -by)?;
    }
    prolonged
}

/// What the body makes of the string that a key holds, if it is there; `None` where it holds anything else.
fn text<T>(key: &LockKey<'_>, body: impl FnOnce(&[u8]) -> T) -> Option<Option<T>> {
    match key.handle().filter(|handle| !handle.is_empty()) {
        Some(handle) => handle.with_string(body).map(Some),
        None => Some(None),
    }
}

/// A copy of the string at this key, if it is there; `None` where anything else is.
pub fn string(ctx: Ctx<'_>, name: Str<'_>) -> Option<Option<Vec<u8>>> {
    text(&LockKey::open(ctx, name), <[u8]>::to_vec)
}

/// The key in which an unlock leaves its answer.
pub enum Latch<'a> {
    /// This unlock was answered before.
    Says(i64),
    /// It was not.
    Unset(LockKey<'a>),
}

impl<'a> Latch<'a> {
    /// Opens it, by its name; `None` where it is no latch.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>) -> Option<Latch<'a>> {
        let key = LockKey::open(ctx, name);
        let said = text(&key, |value| match value {
            b"0" => Some(Latch::Says(0)),
            b"1" => Some(Latch::Says(1)),
            _ => None,
        });
        match said? {
            Some(latch) => latch,
            None => Some(Latch::Unset(key)),
        }
    }
}

/// Leaves an answer in a latch that is not set. The event for the returned name is sent after all writes. (The unlock
/// is done even if the server refuses this write.)
pub fn write_latch<'a>(
    latch: LockKey<'a>,
    answer: i64,
    end_ms: i64,
    replication: Replication<'_>,
) -> Str<'a> {
    let name = latch.name();
    let value = OwnedStr::of_number(answer);
    if made(set_until(&latch, &value, end_ms)).is_some() {
        replication.set_until(name, value.as_str(), end_ms);
    }
    name
}

fn set_until(latch: &LockKey<'_>, value: &OwnedStr, end_ms: i64) -> Written {
    let handle = latch.open_key()?;
    handle.set_string(value.as_str())?;
    let ends = handle.expire_at(end_ms);
    if ends.is_err() {
        // Never a latch that stays.
        let _ = handle.delete();
    }
    ends
}

/// Tells of a latch that was set.
pub fn notify_latch(ctx: Ctx<'_>, name: Str<'_>) {
    ctx.signal_modified(name);
    ctx.notify(raw::REDISMODULE_NOTIFY_STRING, c"set", name);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
}

/// What a script publishes: the call's first argument, on the channel that is its second key.
pub struct Message<'a> {
    channel: Str<'a>,
    text: Str<'a>,
    in_shard: bool,
    in_cluster: bool,
}

impl<'a> Message<'a> {
    /// The message of a call, published by this command.
    pub fn of(call: &Call<'a>, publisher: Inner, around: Surroundings) -> Option<Message<'a>> {
        Some(Message {
            channel: call.key(1)?,
            text: call.arg(0)?,
            in_shard: publisher == Inner::Spublish,
            in_cluster: around.is_cluster(),
        })
    }

    /// To the subscribers of this server.
    pub fn publish(&self, ctx: Ctx<'_>) {
        match self.in_shard {
            true => ctx.publish_in_shard(self.channel, self.text),
            false => ctx.publish(self.channel, self.text),
        }
    }

    /// To those of its replicas. In a cluster they get the message by another way.
    pub fn replicate(&self, replication: Replication<'_>) {
        match self.in_shard {
            _ if self.in_cluster => {}
            true => replication.publish_in_shard(self.channel, self.text),
            false => replication.publish(self.channel, self.text),
        }
    }
}
