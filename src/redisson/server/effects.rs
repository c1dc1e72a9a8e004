//! What all native scripts have in common: reading a key, counting a hold, setting a lease, writing a latch,
//! publishing.

use std::ffi::CStr;

use redis_module::raw;

use crate::module::ffi::api::Written;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::raw_key::{Fields, RawKey};
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::state::shell;
use crate::redisson::scripts::Inner;
use crate::redisson::server::filter;
use crate::redisson::server::{Call, OwnedStr, Surroundings};

/// The type of a key's value, as far as a script distinguishes types.
pub enum KeyKind {
    /// No key.
    Absent,
    /// A hash.
    Hash,
    /// Anything else.
    Other,
}

/// The type of this key's value.
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

/// The most fields of a hash that are counted. Counting more takes longer than the script.
const MOST_COUNTED: usize = 32;

struct Count(usize);

impl Fields for Count {
    fn field(&mut self, _field: &[u8], _value: &[u8]) {
        self.0 += 1;
    }
}

/// The value of a field. `None`: the field may be there with a TTL of its own that is over. A script that reads such a
/// field deletes it; a module sees no field.
pub fn field(handle: &RawKey<'_>, name: Str<'_>) -> Option<Option<OwnedStr>> {
    let value = handle.field(name);
    if value.is_some() || !filter::fields_may_end() {
        return Some(value);
    }
    // The server counts such fields until it removes them, but shows them to no module.
    let (fields, mut shown) = (handle.len(), Count(0));
    let all_are_shown = fields <= MOST_COUNTED && handle.scan(&mut shown, |_| true);
    (all_are_shown && shown.0 == fields).then_some(None)
}

/// Whether the lock has the owner's field, whatever its value. `None`: the key is no hash, or the field may have ended.
pub fn has_field(key: &LockKey<'_>, owner: Str<'_>) -> Option<bool> {
    match (kind(key), key.handle()) {
        (KeyKind::Hash, Some(handle)) => Some(field(handle, owner)?.is_some()),
        (KeyKind::Other, _) => None,
        _ => Some(false),
    }
}

/// Adds to the hold count of an existing hold, with the server's own command: a field may have a TTL, which a module on
/// most servers cannot see. `None`: the server refused.
pub fn count(ctx: Ctx<'_>, name: Str<'_>, owner: Str<'_>, by: i64) -> Option<i64> {
    let by = OwnedStr::of_number(by);
    server(ctx, c"HINCRBY", &[name, owner, by.as_str()])
}

/// Turns a refused write into `None`: the server then runs the script itself.
pub fn made(written: Written) -> Option<()> {
    written.map_err(shell::note_refusal).ok()
}

/// Sets a key's deadline and sends the event `expire`. `None`: the server refused.
pub fn prolong(mut key: LockKey<'_>, end_ms: i64, replication: Replication<'_>) -> Option<()> {
    let (ctx, name) = (key.ctx(), key.name());
    made(key.set_deadline(end_ms, replication))?;
    key.signal();
    drop(key);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
    Some(())
}

/// The same after [`count`] with `by`. If the server refuses, the count is undone.
pub fn prolong_counted(
    ctx: Ctx<'_>,
    (name, owner, by): (Str<'_>, Str<'_>, i64),
    end_ms: i64,
    replication: Replication<'_>,
) -> Option<()> {
    let prolonged = prolong(LockKey::open(ctx, name), end_ms, replication);
    if prolonged.is_none() && !fault::is_on("refused-script-counts-twice") {
        count(ctx, name, owner, -by)?;
    }
    prolonged
}

/// The result of `body` for the string at a key, if the key exists; `None` if it has another type.
fn text<T>(key: &LockKey<'_>, body: impl FnOnce(&[u8]) -> T) -> Option<Option<T>> {
    match key.handle().filter(|handle| !handle.is_empty()) {
        Some(handle) => handle.with_string(body).map(Some),
        None => Some(None),
    }
}

/// A copy of the string at this key, if the key exists; `None` if it has another type.
pub fn string(ctx: Ctx<'_>, name: Str<'_>) -> Option<Option<Vec<u8>>> {
    text(&LockKey::open(ctx, name), <[u8]>::to_vec)
}

/// The key in which an unlock stores its reply, so that a repeated call gets the same one.
pub enum UnlockLatch<'a> {
    /// A former call of this unlock has stored this reply.
    Says(i64),
    /// The key does not exist.
    Unset(LockKey<'a>),
}

impl<'a> UnlockLatch<'a> {
    /// Opens the latch of this name; `None` if its value is not a latch's.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>) -> Option<UnlockLatch<'a>> {
        let key = LockKey::open(ctx, name);
        let said = text(&key, |value| match value {
            b"0" => Some(UnlockLatch::Says(0)),
            b"1" => Some(UnlockLatch::Says(1)),
            _ => None,
        });
        match said? {
            Some(latch) => latch,
            None => Some(UnlockLatch::Unset(key)),
        }
    }
}

/// Stores a reply in an unset latch. The event for the returned name is sent after all writes. (The unlock takes effect
/// even if the server refuses this write.)
pub fn write_unlock_latch<'a>(
    mut latch: LockKey<'a>,
    answer: i64,
    end_ms: i64,
    replication: Replication<'_>,
) -> Str<'a> {
    let name = latch.name();
    let value = OwnedStr::of_number(answer);
    if made(set_until(&mut latch, &value, end_ms)).is_some() {
        replication.set_until(name, value.as_str(), end_ms);
    }
    name
}

fn set_until(latch: &mut LockKey<'_>, value: &OwnedStr, end_ms: i64) -> Written {
    let handle = latch.open_key()?;
    handle.set_string(value.as_str())?;
    let ends = handle.expire_at(end_ms);
    if ends.is_err() {
        // A latch without a TTL would stay for ever.
        let _ = handle.delete();
    }
    ends
}

/// Sends the events of a latch that was set.
pub fn notify_unlock_latch(ctx: Ctx<'_>, name: Str<'_>) {
    ctx.signal_modified(name);
    ctx.notify(raw::REDISMODULE_NOTIFY_STRING, c"set", name);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
}

/// The message of a script: the call's first argument, on the channel that is its second key.
pub struct Message<'a> {
    channel: Str<'a>,
    text: Str<'a>,
    in_shard: bool,
    in_cluster: bool,
}

impl<'a> Message<'a> {
    /// The message of a call, published with this command.
    pub fn of(call: &Call<'a>, publisher: Inner, around: Surroundings) -> Option<Message<'a>> {
        Some(Message {
            channel: call.key(1)?,
            text: call.arg(0)?,
            in_shard: publisher == Inner::Spublish,
            in_cluster: around.is_cluster(),
        })
    }

    /// Sends it to the subscribers of this server.
    pub fn publish(&self, ctx: Ctx<'_>) {
        match self.in_shard {
            true => ctx.publish_in_shard(self.channel, self.text),
            false => ctx.publish(self.channel, self.text),
        }
    }

    /// Sends it to the subscribers of the replicas. In a cluster the message reaches them over the cluster bus.
    pub fn replicate(&self, replication: Replication<'_>) {
        match self.in_shard {
            _ if self.in_cluster => {}
            true => replication.publish_in_shard(self.channel, self.text),
            false => replication.publish(self.channel, self.text),
        }
    }
}

/// Runs a command that cannot fail with an error reply. Returns its number, or 0 if the reply is none. `None`: the
/// server refused the call itself.
pub fn server(ctx: Ctx<'_>, command: &CStr, words: &[Str<'_>]) -> Option<i64> {
    let reply = Reply::of(ctx, command, How::Replicated, words)?;
    Some(reply.whole().number().unwrap_or(0))
}
