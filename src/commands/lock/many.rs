//! `LOCK.MACQUIRE`, `LOCK.MRELEASE` and `LOCK.MRENEW`: several locks in one command.

use std::iter;

use crate::commands::lock::read_write;
use crate::commands::lock::release::end_holds;
use crate::commands::options::{
    ALL, BLOCK, FINAL, KEYS, LEASE, LEASE_OR_SESSION, MODE, NUMKEYS, ONCE, OWNER, SEQ,
};
use crate::commands::parser::Parser;
use crate::commands::skeleton::{
    change_locks, end_acquire, end_first, give_up, has_given_up, is_given_up, request,
    view_to_grant, How,
};
use crate::lock::{self, LockError, Planned, Resource, Token, Wait};
use crate::module::apply::decide_all;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::reply::{self, Got};
use crate::module::state::shell::Shape;
use crate::module::view::view_for;

/// Takes several locks, all or none, or waits for them. Replies the fencing token of each, or nil.
pub struct AcquireMany;

impl Command for AcquireMany {
    const SPEC: Spec = Spec {
        name: c"lock.macquire",
        flags: c"write deny-oom blocking",
        acl: c"write blocking",
        key: Some(access::UPDATE),
        arity: -4,
        summary: c"Takes several locks for an owner, all or none, or waits for them, and returns their fencing tokens",
        complexity: c"O(N) in the number of keys, however many wait",
        args: &[
            NUMKEYS,
            KEYS,
            OWNER,
            MODE,
            LEASE_OR_SESSION,
            BLOCK,
            ONCE,
            SEQ,
        ],
        help: &["Take all of these locks or none, or wait for them. Returns one token a key, or nil."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (names, owner, options) = Parser::of::<AcquireMany>(words).keys_and_owner()?;
        let request = request(ctx, names, owner.bytes(), &options)?;
        let siblings = all_of(names, |name| {
            read_write::may_take(ctx, *name, owner, request.mode)
        })?;
        let at = names.iter().map(|name| ctx.key_ref(*name));
        if is_given_up(ctx, at, owner, options.seq) {
            reply::acquired_all(ctx, Got::<Vec<Token>>::Nothing);
            return Ok(());
        }
        let mut keys = open_all(ctx, names, owner);
        let now = ctx.now();
        let mut states = Vec::with_capacity(keys.len());
        for (key, siblings) in keys.iter_mut().zip(siblings) {
            key.keep(siblings);
            states.push(read_write::read_to_acquire(key, &request, now)?);
        }
        let planned = Planned::of_many(&states, &request, now);
        let waits = request.wait != Wait::No;
        let views = all_of(iter::zip(&keys, states), |(key, state)| {
            view_to_grant(key, state, &planned, waits, now)
        })?;
        let (answer, fx) = decide_all(keys.len(), now, |locks, fx| {
            locks.acquire_many(&views, &request, now, fx)
        });
        let how = How::of(Shape::Tokens, &request);
        end_acquire(ctx, keys, (answer, &fx), how, |got| {
            reply::acquired_all(ctx, got);
        })
    }
}

/// What is made of each, or the first error. (Collected into a `Result`, the list would not know its length before.)
fn all_of<I, T>(
    each: impl IntoIterator<Item = I, IntoIter: ExactSizeIterator>,
    mut make: impl FnMut(I) -> Result<T, LockError>,
) -> Result<Vec<T>, LockError> {
    let each = each.into_iter();
    let mut all = Vec::with_capacity(each.len());
    for one in each {
        all.push(make(one)?);
    }
    Ok(all)
}

/// Opens these keys for a command of this owner, whose holds of connections that have ended are released first.
fn open_all<'a>(ctx: Ctx<'a>, names: &[Str<'a>], owner: Str<'a>) -> Vec<LockKey<'a>> {
    for name in names {
        end_first(ctx, Resource::Lock, *name, owner);
    }
    LockKey::open_all(ctx, names, owner)
}

/// Drops one hold on each of several locks, or all. The last hold of each lock hands it off, or frees it. Replies the
/// number of locks on which the owner had a hold.
pub struct ReleaseMany;

impl Command for ReleaseMany {
    const SPEC: Spec = Spec {
        name: c"lock.mrelease",
        flags: c"write",
        acl: c"write",
        key: Some(access::DELETE),
        arity: -4,
        summary: c"Drops a hold on each of several locks, and returns on how many",
        complexity: c"O(N) in the number of keys, however many wait",
        args: &[NUMKEYS, KEYS, OWNER, ALL, FINAL],
        help: &["Drop a hold on each. Returns on how many."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (names, owner, options) = Parser::of::<ReleaseMany>(words).keys_and_owner()?;
        let dropped = match options.gives_up {
            Some(number) => give_up_locks(ctx, names, owner, number)?,
            None => release_locks(ctx, names, owner, options.all)?,
        };
        ctx.reply_integer(dropped as i64);
        Ok(())
    }
}

/// In one decision. Returns at how many keys a hold was dropped.
fn release_locks(
    ctx: Ctx<'_>,
    names: &[Str<'_>],
    owner: Str<'_>,
    all: bool,
) -> Result<usize, LockError> {
    let request = lock::Release {
        owner: owner.bytes(),
        mode: None,
        all,
        token: None,
    };
    let keys = open_all(ctx, names, owner);
    let now = ctx.now();
    let states = all_of(&keys, |key| {
        read_write::read_to_release(key, owner, request.mode, now)
    })?;
    // Before the views: a request that is refused at one key ends no wait at the others.
    if !fault::is_on("refused-mrelease-ends-a-wait") {
        lock::may_release_many(&states, &request, now)?;
    }
    let view = |(key, state)| view_for(key, state, &Planned::Release(&request), now);
    let views: Vec<_> = iter::zip(&keys, states).map(view).collect();
    change_locks(
        ctx,
        keys,
        now,
        |_| false,
        |locks, fx| locks.release_many(&views, &request, now, fx),
    )
}

/// `FINAL`: the owner gives up its acquisitions of these locks up to this number. Returns at how many keys a hold was
/// dropped, and how many waits ended.
fn give_up_locks(
    ctx: Ctx<'_>,
    names: &[Str<'_>],
    owner: Str<'_>,
    number: u64,
) -> Result<usize, LockError> {
    let (mut noted, mut ended) = (Vec::with_capacity(names.len()), 0);
    for name in names {
        if let Some(has_waited) = give_up(ctx, ctx.key_ref(*name), owner, number) {
            noted.push(*name);
            ended += usize::from(has_waited);
        }
    }
    // In one decision, which limits how many timeouts of readers it deletes.
    if let Ok(dropped) = release_locks(ctx, &noted, owner, true) {
        for name in &noted {
            has_given_up(ctx.key_ref(*name), owner);
        }
        return Ok(ended + dropped);
    }
    // One key has an error: the others are released all the same.
    let each = noted.iter().map(|name| end_holds(ctx, *name, owner));
    let each: Vec<_> = each.collect();
    each.into_iter()
        .try_fold(ended, |ended, has_held| Ok(ended + usize::from(has_held?)))
}

/// Sets the leases of those of several locks that the owner still holds. Replies their number.
pub struct RenewMany;

impl Command for RenewMany {
    const SPEC: Spec = Spec {
        name: c"lock.mrenew",
        flags: c"write",
        acl: c"write",
        key: Some(access::UPDATE),
        arity: -4,
        summary: c"Sets the leases of those of several locks that the owner still holds, and returns how many",
        complexity: c"O(N) in the number of keys",
        args: &[NUMKEYS, KEYS, OWNER, LEASE],
        help: &["Set the leases anew. Returns how many are held still."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (names, owner, options) = Parser::of::<RenewMany>(words).keys_and_owner()?;
        let request = lock::Renew {
            owner: owner.bytes(),
            mode: None,
            lease: options.lease,
            names_lease: options.names_lease,
            token: None,
            note: None,
        };
        let keys = open_all(ctx, names, owner);
        let now = ctx.now();
        // Before the views: a request that is refused at one key ends no wait at the others.
        let states = all_of(&keys, |key| {
            read_write::read_to_renew(key, owner, &request, now)
        })?;
        let views = all_of(iter::zip(&keys, states), |(key, state)| {
            view_to_grant(key, state, &Planned::Renew, false, now)
        })?;
        let are_held = |renewed: &usize| *renewed > 0;
        let renewed = change_locks(ctx, keys, now, are_held, |locks, fx| {
            locks.renew_many(&views, &request, now, fx)
        })?;
        ctx.reply_integer(renewed as i64);
        Ok(())
    }
}
