//! The scripts of `RReadWriteLock`'s writers and its unlocks by force, natively: read, decide, and then run the
//! server's own commands, which are those of the script.

use crate::lock::LockError;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::RawKey;
use crate::module::keyspace::beside;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::state::constants::constants;
use crate::redisson::scripts::read_write::{
    is_plain_count, mode, write_acquire, write_unlock, Form, Give, Lock, Mode, Take,
};
use crate::redisson::scripts::{lease_end, time_to_live, Inner};
use crate::redisson::server::effects::{count, field, kind, KeyKind, Latch};
use crate::redisson::server::server_command::run as server;
use crate::redisson::server::{Call, OwnedStr, Reply, Str, Surroundings};

pub(crate) fn acquire(ctx: Ctx<'_>, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
    let (name, lease, writer) = (call.key(0)?, call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let left_ms = time_to_live(key.handle().and_then(RawKey::end_ms), now_ms)?;
    let decided = write_acquire(lock_of(&key, writer)?, lease.bytes(), left_ms, now_ms)?;
    drop(key);
    if decided == Take::Refused {
        return Some(Reply::Number(left_ms));
    }
    if decided == Take::First && beside::probe_held_twin(ctx, name, 1) {
        return Some(Reply::Refused(LockError::SiblingsTaken));
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

pub(crate) fn unlock(ctx: Ctx<'_>, call: &Call<'_>, form: Form) -> Option<Reply> {
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

pub(crate) fn force(ctx: Ctx<'_>, call: &Call<'_>, wanted: Mode, form: Form) -> Option<Reply> {
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
pub(crate) struct Open<'a> {
    publisher: Inner,
    channel: Str<'a>,
    message: Str<'a>,
    /// The latch and its lease.
    latch: Option<(Str<'a>, Str<'a>)>,
}

pub(crate) enum Answer<'a> {
    /// A former call of this unlock has stored this reply.
    Known(i64),
    /// The latch is not set.
    Open(Open<'a>),
}

impl<'a> Answer<'a> {
    /// Reads the parts of the call: `latch` is the index of the latch among its keys, `publisher` that of the
    /// publishing command among its arguments; the latch's lease follows. `None`: the call or the latch is not plain.
    pub(crate) fn of(
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
                if let Latch::Says(answer) = Latch::open(ctx, name)? {
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
    pub(crate) fn publish(&self, ctx: Ctx<'_>) -> Option<()> {
        let command = match self.publisher {
            Inner::Spublish => c"SPUBLISH",
            _ => c"PUBLISH",
        };
        server(ctx, command, &[self.channel, self.message]).map(drop)
    }

    /// Publishes the release of a free lock. Releases of Redisson before 3.44 reply 1, later ones nil.
    pub(crate) fn of_none(&self, ctx: Ctx<'_>, form: Form) -> Option<Reply> {
        self.publish(ctx)?;
        self.leave(ctx, 1)?;
        Some(match form {
            Form::OnceOrNil => Reply::Nil,
            _ => Reply::Number(1),
        })
    }

    /// Stores the reply in the latch, if there is one.
    pub(crate) fn leave(&self, ctx: Ctx<'_>, answer: i64) -> Option<()> {
        let Some((latch, lease)) = self.latch else {
            return Some(());
        };
        let (answer, px) = (OwnedStr::of_number(answer), OwnedStr::new(b"px"));
        server(ctx, c"SET", &[latch, answer.as_str(), px.as_str(), lease]).map(drop)
    }
}

/// The state of the lock as a script reads it; `None` if it is not plain.
pub(crate) fn lock_of(key: &LockKey<'_>, owner: Str<'_>) -> Option<Lock> {
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

pub(crate) fn set_mode(ctx: Ctx<'_>, name: Str<'_>, mode: Mode) -> Option<i64> {
    let (field, value) = (OwnedStr::new(b"mode"), OwnedStr::new(text_of(mode)));
    server(ctx, c"HSET", &[name, field.as_str(), value.as_str()])
}
