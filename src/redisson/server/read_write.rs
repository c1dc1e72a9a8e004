//! The scripts of `RReadWriteLock`, natively.
//!
//! Those of writers, and the unlocks by force, read, decide, and then run the server's own commands, which are those of
//! the script. Those of readers use keys that the call does not name: one timeout for each hold. The names of these
//! keys and the caller's permission are determined before the first access. From then on every step follows the order
//! of the script and uses the server's own commands, because reading a key after its deadline deletes it, and the
//! server publishes an event for that.

use std::ffi::CStr;

use crate::lock::LockError;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::{Fields, RawKey};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::siblings::{belong_to_another_lock, Timeouts};
use crate::module::state::constants::constants;
use crate::redisson::scripts::read_write::{
    is_plain_count, mode, read_acquire, read_unlock, write_acquire, write_unlock, Form, Give, Lock,
    Mode, ReadWrite, Take,
};
use crate::redisson::scripts::read_write::{own_timeout, timeout_of, Reader, Readers};
use crate::redisson::scripts::{lease_end, time_to_live, Inner};
use crate::redisson::server::effects::{count, field, kind, server, KeyKind, UnlockLatch};
use crate::redisson::server::permission::may_also;
use crate::redisson::server::{Call, OwnedStr, Reply, Str, Surroundings};

/// Runs one of the scripts. `None`: the data or the call is not plain, and nothing was changed.
pub fn run(
    ctx: Ctx<'_>,
    script: ReadWrite,
    call: &Call<'_>,
    around: Surroundings,
) -> Option<Reply> {
    match script {
        ReadWrite::WriteAcquire => acquire_write(ctx, call, around),
        ReadWrite::WriteUnlock(form) => unlock_write(ctx, call, form),
        ReadWrite::Force(mode, form) => force(ctx, call, mode, form),
        ReadWrite::ReadAcquire { shortens } => acquire_read(ctx, call, shortens, around),
        ReadWrite::ReadUnlock(form) => unlock_read(ctx, call, form),
    }
}

fn acquire_write(ctx: Ctx<'_>, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
    let (name, lease, writer) = (call.key(0)?, call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let left_ms = time_to_live(key.handle().and_then(RawKey::end_ms), now_ms)?;
    let decided = write_acquire(lock_of(&key, writer)?, lease.bytes(), left_ms, now_ms)?;
    drop(key);
    if decided == Take::Refused {
        return Some(Reply::Number(left_ms));
    }
    if around.are_short_of_memory() {
        return None;
    }
    if let Take::Again(sum) = decided {
        let sum = OwnedStr::of_number(sum);
        count(ctx, name, writer, 1)?;
        server(ctx, c"PEXPIRE", &[name, sum.as_str()])?;
    } else {
        set_mode(ctx, name, Mode::Write)?;
        server(ctx, c"HSET", &[name, writer, constants().one()])?;
        server(ctx, c"PEXPIRE", &[name, lease])?;
    }
    Some(Reply::Nil)
}

fn unlock_write(ctx: Ctx<'_>, call: &Call<'_>, form: Form) -> Option<Reply> {
    let (name, lease, writer) = (call.key(0)?, call.arg(1)?, call.arg(2)?);
    let answer = match Answer::of(ctx, call, form, 2, 3)? {
        Answer::Known(number) => return Some(Reply::Number(number)),
        Answer::Open(answer) => answer,
    };
    let key = LockKey::open(ctx, name);
    let given = write_unlock(lock_of(&key, writer)?);
    let fields = key.handle().map_or(0, RawKey::len);
    drop(key);
    match given {
        Give::NotOwner => return Some(Reply::Nil),
        Give::OfNone => return answer.of_none(ctx, form),
        Give::Less => {
            lease_end(lease.bytes(), ctx.now().wall_ms)?;
            count(ctx, name, writer, -1)?;
            server(ctx, c"PEXPIRE", &[name, lease])?;
            answer.leave(ctx, 0)?;
            return Some(Reply::Number(0));
        }
        Give::Last => {
            count(ctx, name, writer, -1)?;
            server(ctx, c"HDEL", &[name, writer])?;
        }
    }
    // The remaining field is the mode alone, or there are readers, too.
    if fields == 2 {
        server(ctx, c"DEL", &[name])?;
        answer.publish(ctx)?;
    } else {
        set_mode(ctx, name, Mode::Read)?;
    }
    answer.leave(ctx, 1)?;
    Some(Reply::Number(1))
}

fn force(ctx: Ctx<'_>, call: &Call<'_>, wanted: Mode, form: Form) -> Option<Reply> {
    let name = call.key(0)?;
    let key = LockKey::open(ctx, name);
    let is_so = match kind(&key) {
        KeyKind::Absent => false,
        KeyKind::Other => return None,
        KeyKind::Hash => {
            let found = field(key.handle()?, OwnedStr::new(b"mode").as_str())?;
            found.is_some_and(|found| found.as_str().bytes() == text_of(wanted))
        }
    };
    drop(key);
    if !is_so {
        return Some(Reply::Number(0));
    }
    let Answer::Open(answer) = Answer::of(ctx, call, form, 2, 1)? else {
        return None;
    };
    server(ctx, c"DEL", &[name])?;
    answer.publish(ctx)?;
    Some(Reply::Number(1))
}

/// The effects of an unlock beside its reply: the message and the latch.
struct Open<'a> {
    publisher: Inner,
    channel: Str<'a>,
    message: Str<'a>,
    /// The latch and its lease.
    latch: Option<(Str<'a>, Str<'a>)>,
}

enum Answer<'a> {
    /// A former call of this unlock has stored this reply.
    Known(i64),
    /// The latch is not set.
    Open(Open<'a>),
}

impl<'a> Answer<'a> {
    /// Reads the parts of the call: `latch` is the index of the latch among its keys, `publisher` that of the
    /// publishing command among its arguments; the latch's lease follows. `None`: the call or the latch is not plain.
    fn of(
        ctx: Ctx<'_>,
        call: &Call<'a>,
        form: Form,
        latch: usize,
        publisher: usize,
    ) -> Option<Answer<'a>> {
        let latch = match form {
            Form::Plain | Form::By => None,
            Form::Once | Form::OnceOrNil => {
                let (name, lease) = (call.key(latch)?, call.arg(publisher + 1)?);
                if let UnlockLatch::Says(answer) = UnlockLatch::open(ctx, name)? {
                    return Some(Answer::Known(answer));
                }
                lease_end(lease.bytes(), ctx.now().wall_ms)?;
                Some((name, lease))
            }
        };
        let publisher = match form {
            Form::Plain => Inner::Publish,
            _ => call.publisher(publisher)?,
        };
        Some(Answer::Open(Open {
            publisher,
            channel: call.key(1)?,
            message: call.arg(0)?,
            latch,
        }))
    }
}

impl Open<'_> {
    fn publish(&self, ctx: Ctx<'_>) -> Option<()> {
        let command = match self.publisher {
            Inner::Spublish => c"SPUBLISH",
            _ => c"PUBLISH",
        };
        server(ctx, command, &[self.channel, self.message]).map(drop)
    }

    /// Publishes the release of a free lock. Releases of Redisson before 3.44 reply 1, later ones nil.
    fn of_none(&self, ctx: Ctx<'_>, form: Form) -> Option<Reply> {
        self.publish(ctx)?;
        self.leave(ctx, 1)?;
        Some(match form {
            Form::OnceOrNil => Reply::Nil,
            _ => Reply::Number(1),
        })
    }

    /// Stores the reply in the latch, if there is one.
    fn leave(&self, ctx: Ctx<'_>, answer: i64) -> Option<()> {
        let Some((latch, lease)) = self.latch else {
            return Some(());
        };
        let (answer, px) = (OwnedStr::of_number(answer), OwnedStr::new(b"px"));
        server(ctx, c"SET", &[latch, answer.as_str(), px.as_str(), lease]).map(drop)
    }
}

/// The state of the lock as a script reads it; `None` if it is not plain.
fn lock_of(key: &LockKey<'_>, owner: Str<'_>) -> Option<Lock> {
    match (kind(key), key.handle()) {
        (KeyKind::Hash, Some(handle)) => {
            let found = handle.field(OwnedStr::new(b"mode").as_str())?;
            let mode = mode(found.as_str().bytes())?;
            let own = match field(handle, owner)? {
                Some(count) => Some(is_plain_count(count.as_str().bytes())?),
                None => None,
            };
            Some(Lock::Held(mode, own))
        }
        (KeyKind::Other, _) => None,
        _ => Some(Lock::Free),
    }
}

fn text_of(mode: Mode) -> &'static [u8] {
    match mode {
        Mode::Read => b"read",
        Mode::Write => b"write",
    }
}

fn set_mode(ctx: Ctx<'_>, name: Str<'_>, mode: Mode) -> Option<i64> {
    let (field, value) = (OwnedStr::new(b"mode"), OwnedStr::new(text_of(mode)));
    server(ctx, c"HSET", &[name, field.as_str(), value.as_str()])
}

impl Fields for Readers {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        Readers::field(self, field, value);
    }
}

/// Adds a reader, or a hold of a reader.
fn acquire_read(
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
    let names = is_new.then(|| Timeouts::of(name.bytes(), owner.bytes()));
    if names.is_some_and(|names| belong_to_another_lock(ctx, name, owner.bytes(), &names)) {
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
fn unlock_read(ctx: Ctx<'_>, call: &Call<'_>, form: Form) -> Option<Reply> {
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
