//! Who may run a script natively: whoever may run the command that was sent, and every command in it.
//!
//! The server has checked `lock.redisson` and its keys. What its ACL cannot know is that the words stand for
//! an `EVAL`, in which other commands are checked one by one.

use std::rc::Rc;

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

    fn of(&self, inner: Inner) -> Option<Str<'_>> {
        let mut all = self.inner.iter();
        all.find(|(other, _)| *other == inner)
            .map(|(_, name)| name.as_str())
    }
}

/// Whether everything that the script may do is allowed: if not, the script itself runs into what is not.
///
/// # Errors
/// When the command that was sent is refused.
pub fn covers(ctx: Ctx, call: &Call<'_>) -> Result<bool, LockError> {
    if !ctx.is_connection() {
        // A call by another module; whether it has a user is for the server to find out.
        return Ok(false);
    }
    let names = shell::with(|shell| Rc::clone(&shell.redisson.names));
    let covered = as_user(ctx, |user| {
        may_send(ctx, user, call, &names)?;
        Ok(may_do_all(user, call, &names))
    });
    covered.unwrap_or(Ok(false))
}

fn may_send(ctx: Ctx, user: &User, call: &Call<'_>, names: &Names) -> Result<(), LockError> {
    let (name, text) = match call.is_by_sha1() {
        true => (names.evalsha.as_str(), "evalsha"),
        false => (names.eval.as_str(), "eval"),
    };
    let mut sent: SmallVec<[Str<'_>; 16]> = SmallVec::from_slice(call.words);
    if let Some(first) = sent.first_mut() {
        *first = name;
    }
    if user.may_run(&sent) {
        return Ok(());
    }
    user.log_refusal(ctx, name);
    Err(LockError::MayNotRun(text))
}

fn may_do_all(user: &User, call: &Call<'_>, names: &Names) -> bool {
    // What is behind the key matters to nobody.
    let any = Constants::one();
    let mut words = [any; 4];
    call.script.calls.iter().all(|(inner, keys)| {
        let inner = match *inner {
            Inner::Said(at) => call.publisher(at),
            inner => Some(inner),
        };
        let keys = match *keys {
            KeyOf::At(at) => call.keys.get(at..=at),
            KeyOf::Each => Some(call.keys),
        };
        let (Some(inner), Some(keys)) = (inner, keys) else {
            return false;
        };
        let (Some(name), Some(command)) =
            (names.of(inner), words.get_mut(..2 + inner.words_behind()))
        else {
            return false;
        };
        keys.iter().all(|key| {
            if let [first, second, ..] = command {
                (*first, *second) = (name, *key);
            }
            user.may_run(command)
        })
    })
}
