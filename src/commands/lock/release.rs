//! `LOCK.RELEASE`, `LOCK.RENEW` and `LOCK.BREAK`: changes of a hold.

use crate::commands::lock::read_write;
use crate::commands::options::{
    Options, ALL, FINAL, KEY, LEASE, MODE, NOTE, OWNER, PURGE, SEQ, TO, TOKEN, USER,
};
use crate::commands::parser::{syntax, Parser, Word};
use crate::commands::skeleton::{
    change_confirmed, change_key, end_waits, give_up, has_given_up, is_given_up, open_lock,
    request, view_to_grant,
};
use crate::lock::{self, Answer, LockError, Mode, Now, Planned, Released};
use crate::module::acl;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::state::shell;
use crate::module::view::view_for;

/// Drops one hold, or all. The last one hands the lock off, or frees it. Replies 1 (freed), 0 (still held) or nil.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"lock.release",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::DELETE),
        arity: -3,
        summary: c"Drops a hold; the last one hands the lock to the next waiter, or frees it",
        complexity: c"O(1), however many wait; READ O(N) in the number of the owner's holds",
        args: &[KEY, OWNER, MODE, ALL, TOKEN, FINAL],
        help: &[
            "Drop one hold, or all. Returns 1 (freed), 0 (still held), nil (not held by this owner).",
            "FINAL: end every hold and the wait; later requests with a SEQ up to this number get nil.",
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, owner, options) = Parser::of::<Release>(words).key_and_owner()?;
        if let Some(number) = options.gives_up {
            let ended = give_up_lock(ctx, name, owner, number)?;
            ctx.reply_maybe(ended.then_some(1));
            return Ok(());
        }
        let request = lock::Release {
            owner: owner.bytes(),
            mode: options.mode,
            all: options.all,
            token: options.token,
        };
        let released = release(ctx, name, owner, request)?;
        ctx.reply_maybe(match released {
            Released::Freed => Some(1),
            Released::StillHeld => Some(0),
            Released::NotHeld => None,
        });
        Ok(())
    }
}

#[inline]
fn release(
    ctx: Ctx<'_>,
    name: Str<'_>,
    owner: Str<'_>,
    request: lock::Release<'_>,
) -> Result<Released, LockError> {
    let (key, state, now) = open_lock(ctx, name, owner, |key, now| {
        read_write::read_to_release(key, owner, request.mode, now)
    })?;
    let view = view_for(&key, state, &Planned::Release(&request), now);
    change_key(ctx, key, now, |locks, cx| {
        locks.release(&view, &request, cx)
    })
}

/// `FINAL`: the owner gives up its acquisitions of this lock up to this number. Its wait and every hold end. Returns
/// whether there was one.
fn give_up_lock(
    ctx: Ctx<'_>,
    name: Str<'_>,
    owner: Str<'_>,
    number: u64,
) -> Result<bool, LockError> {
    // First: it is noted even if the release is an error.
    match give_up(ctx, ctx.key_ref(name), owner, number) {
        Some(has_waited) => Ok(end_holds(ctx, name, owner)? || has_waited),
        None => Ok(false),
    }
}

/// The release that [`give_up`] noted: every hold of the owner ends. Returns whether there was one.
pub(super) fn end_holds(ctx: Ctx<'_>, name: Str<'_>, owner: Str<'_>) -> Result<bool, LockError> {
    let end = |mode| {
        let request = lock::Release {
            owner: owner.bytes(),
            mode,
            all: true,
            token: None,
        };
        let released = release(ctx, name, owner, request)?;
        Ok(released != Released::NotHeld)
    };
    let has_held = match end(None) {
        // It has READ and WRITE.
        Err(LockError::WhichHold) => end(Some(Mode::Write))? | end(Some(Mode::Read))?,
        ended => ended?,
    };
    has_given_up(ctx.key_ref(name), owner);
    Ok(has_held)
}

/// Sets the lease of a lock that the owner still holds. Replies 1, or 0 when the owner holds it no more.
pub struct Renew;

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: c"lock.renew",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Sets the lease of a lock that the owner still holds",
        complexity: c"O(1), READ O(N) in the number of holds",
        args: &[KEY, OWNER, MODE, LEASE, TOKEN, NOTE],
        help: &[
            "Set the lease anew. Returns 1, or 0 when the lock is lost.",
            "NOTE: another text beside the hold.",
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, owner, options) = Parser::of::<Renew>(words).key_and_owner()?;
        let request = lock::Renew {
            owner: owner.bytes(),
            mode: options.mode,
            lease: options.lease,
            names_lease: options.names_lease,
            token: options.token,
            note: options.note_text(),
        };
        let (key, state, now) = open_lock(ctx, name, owner, |key, now| {
            read_write::read_to_renew(key, owner, &request, now)
        })?;
        let view = view_to_grant(&key, state, &Planned::Renew, false, now)?;
        let is_held = |renewed: &bool| *renewed;
        let renewed = change_confirmed(ctx, key, now, is_held, |locks, cx| {
            locks.renew(&view, &request, cx)
        })?;
        ctx.reply_integer(renewed.into());
        Ok(())
    }
}

/// Ends a hold by force: an operator's command. Replies 1, or 0 when the lock is not held; with `TO`, which grants the
/// lock, the token; with `USER`, which ends no hold, the number of requests ended.
pub struct Break;

impl Break {
    /// The terms of a hold come only with `TO`, which leaves the waiters.
    pub fn parse<W: Word>(words: Parser<'_, W>) -> Result<(W, Options<W>), LockError> {
        let (name, options) = words.key_only()?;
        match &options.owner {
            Some(_) if options.purge => Err(syntax("TO and PURGE exclude each other")),
            None if options.names_lease || options.seq.is_some() || options.note.is_some() => {
                Err(syntax("EX, PX, SEQ and NOTE need TO"))
            }
            _ => Ok((name, options)),
        }
    }
}

impl Command for Break {
    const SPEC: Spec = Spec {
        name: c"lock.break",
        flags: c"write fast",
        acl: c"write fast dangerous",
        key: Some(access::DELETE),
        arity: -2,
        summary:
            c"Ends a hold by force and hands the lock to the next waiter or to an owner, or purges the waiters too",
        complexity: c"O(1), of readers O(N) in the number of holds, with PURGE O(N) in the number of waiters",
        args: &[KEY, TOKEN, PURGE, USER, TO, LEASE, SEQ, NOTE],
        help: &[
            "End a hold by force; with PURGE send the waiters away. Returns 1, or 0 when not held.",
            "TO: grant the lock to this owner before all waiters. Returns the fencing token.",
            "With PURGE USER send away 100 waiters of this user only. Returns their number.",
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, options) = Break::parse(Parser::of::<Break>(words))?;
        if !acl::may_break(ctx, name) {
            return Err(LockError::MayNotBreak);
        }
        if let Some(user) = options.user {
            let ended = purge_user(ctx, name, user);
            ctx.reply_integer(ended as i64);
            return Ok(());
        }
        if let Some(owner) = options.owner {
            ctx.reply_integer(break_to(ctx, name, owner, &options)?);
            return Ok(());
        }
        let request = lock::Break {
            token: options.token,
            purge: options.purge,
        };
        let now = ctx.now();
        let key = LockKey::open(ctx, name);
        let state = key.read();
        read_write::may_break(ctx, name, &state, now)?;
        let purged = options.purge && options.token.is_none() && purge_others(ctx, name, now);
        let view = view_for(&key, state, &Planned::Break(request), now);
        let broken = change_key(ctx, key, now, |locks, cx| {
            locks.break_lock(&view, request, cx)
        });
        let broken = match broken {
            // The key of a semaphore or a latch.
            Err(LockError::WrongType | LockError::MayBeCount) if purged => false,
            broken => broken?,
        };
        ctx.reply_integer(broken.into());
        Ok(())
    }
}

/// `TO`: the lock is this owner's now. Returns the token; 0 when the lock is not held under `TOKEN`, or the owner has
/// given this acquisition up.
fn break_to(
    ctx: Ctx<'_>,
    name: Str<'_>,
    owner: Str<'_>,
    options: &Options<Str<'_>>,
) -> Result<i64, LockError> {
    let request = lock::Acquire {
        once: true,
        ..request(ctx, &[name], owner.bytes(), options)?
    };
    if is_given_up(ctx, [ctx.key_ref(name)], owner, options.seq) {
        return Ok(0);
    }
    let (key, state, now) = open_lock(ctx, name, owner, |key, now| {
        read_write::read_to_acquire(key, &request, now)
    })?;
    let view = view_to_grant(&key, state, &Planned::Grant, false, now)?;
    let is_held = |answer: &Answer| matches!(answer, Answer::Granted(_));
    let answer = change_confirmed(ctx, key, now, is_held, |locks, cx| {
        locks.break_to(&view, options.token, &request, cx)
    })?;
    Ok(match answer {
        Answer::Granted(token) => token.get() as i64,
        Answer::Refused | Answer::Waits(_) => 0,
    })
}

/// Ends the waits for a semaphore or a latch of this name. Returns whether there were any.
fn purge_others(ctx: Ctx<'_>, key: Str<'_>, now: Now) -> bool {
    end_waits(ctx, now, |locks, cx| {
        locks.shared.waiters.purge_others(ctx.key_ref(key), cx)
    })
}

/// Ends waits of this user for this name, and returns how many.
fn purge_user(ctx: Ctx<'_>, key: Str<'_>, user: Str<'_>) -> usize {
    let user = shell::with(|shell| shell.users.number_of(user.bytes()));
    user.map_or(0, |user| {
        end_waits(ctx, ctx.now(), |locks, cx| {
            locks.shared.waiters.purge_user(ctx.key_ref(key), user, cx)
        })
    })
}
