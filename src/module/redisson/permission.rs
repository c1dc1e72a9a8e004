//! Who may run a script natively: whoever may run the command that was sent, and every command in it.
//!
//! The server has checked `lock.redisson` and its keys. What its ACL cannot know is that the words stand for
//! an `EVAL`, in which other commands are checked one by one.

use smallvec::SmallVec;

use super::super::acl::{as_user, User};
use super::super::ctx::Ctx;
use super::super::shell;
use super::super::strings::Constants;
use super::{Call, OwnedStr, Str};
use crate::lock::redisson::{Inner, KeyOf};
use crate::lock::LockError;

/// Names of commands, made once.
pub struct Names {
    eval: OwnedStr,
    evalsha: OwnedStr,
    inner: [(Inner, OwnedStr); Inner::NAMED.len()],
}

impl Names {
    /// Makes them.
    pub fn make() -> Names {
        Names {
            eval: OwnedStr::new(b"eval"),
            evalsha: OwnedStr::new(b"evalsha"),
            inner: Inner::NAMED.map(|(inner, name)| (inner, OwnedStr::new(name))),
        }
    }

    fn get(which: impl FnOnce(&Names) -> Option<&OwnedStr>) -> Option<Str<'static>> {
        shell::with(|shell| {
            let name = which(&shell.redisson.names)?;
            // SAFETY: the string lives as long as the module is loaded, which is longer than any call.
            Some(unsafe { Str::new(name.as_ptr()) })
        })
    }

    fn of(inner: Inner) -> Option<Str<'static>> {
        Names::get(|names| {
            let mut all = names.inner.iter();
            all.find(|(other, _)| *other == inner).map(|(_, name)| name)
        })
    }
}

/// Whether everything that the script may do is allowed: if not, the script itself runs into what is not.
///
/// # Errors
/// When the command that was sent is refused.
pub fn covers(ctx: Ctx, call: &Call<'_>) -> Result<bool, LockError> {
    if !ctx.has_connection() {
        // A call by another module; whether it has a user is for the server to find out.
        return Ok(false);
    }
    as_user(ctx, |user| {
        may_send(ctx, user, call)?;
        Ok(call.script.calls.iter().all(|(inner, keys)| {
            let (first, some) = match keys {
                KeyOf::At(at) => (*at, 1),
                KeyOf::Each => (0, call.keys.len()),
            };
            let mut keys = call.keys.iter().skip(first).take(some);
            keys.all(|key| may_call(user, call, *inner, *key))
        }))
    })
    .unwrap_or(Ok(false))
}

fn may_send(ctx: Ctx, user: &User, call: &Call<'_>) -> Result<(), LockError> {
    let (name, text) = match call.is_by_sha1() {
        true => (Names::get(|names| Some(&names.evalsha)), "evalsha"),
        false => (Names::get(|names| Some(&names.eval)), "eval"),
    };
    let (Some(name), Some(words)) = (name, call.words.get(1..)) else {
        return Err(LockError::Internal);
    };
    let mut sent: SmallVec<[Str<'_>; 16]> = SmallVec::new();
    sent.push(name);
    sent.extend_from_slice(words);
    if user.may_run(&sent) {
        return Ok(());
    }
    user.log_refusal(ctx, name);
    Err(LockError::MayNotRun(text))
}

fn may_call(user: &User, call: &Call<'_>, inner: Inner, key: Str<'_>) -> bool {
    let inner = match inner {
        Inner::Said(at) => call.publisher(at),
        inner => Some(inner),
    };
    let Some((inner, name)) = inner.and_then(|inner| Some((inner, Names::of(inner)?))) else {
        return false;
    };
    // What is behind the key matters to nobody.
    let mut words: SmallVec<[Str<'_>; 4]> = SmallVec::from_slice(&[name, key]);
    words.extend(std::iter::repeat_n(Constants::one(), inner.words_behind()));
    user.may_run(&words)
}
