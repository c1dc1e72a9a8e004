//! `LOCK.MACQUIRE`, `LOCK.MRELEASE` and `LOCK.MRENEW`: several locks in one command.

use crate::commands::lock::read_write;
use crate::commands::lock::release::end_holds;
use crate::commands::options::{
    ALL, BLOCK, FINAL, KEYS, LEASE, LEASE_OR_SESSION, MODE, NUMKEYS, ONCE, OWNER, SEQ,
};
use crate::commands::parser::Parser;
use crate::commands::skeleton::{
    change_locks, give_up, has_given_up, is_given_up, may_count, prepare_session, request, wait,
    waiter_of, NewWaiter,
};
use crate::lock::{self, Answer, Effect, LockError, Mode, Planned, ReadDepth, Token, Wait};
use crate::module::apply::{apply_all, decide_all};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication;
use crate::module::keyspace::siblings;
use crate::module::keyspace::siblings::Siblings;
use crate::module::reply::{self, Got};
use crate::module::sessions;
use crate::module::state::shell::Shape;
use crate::module::tickets;
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
        if options.session {
            prepare_session(ctx)?;
        }
        if let (Some(notify), [first, ..]) = (&options.notify, names) {
            tickets::check(ctx, *first, notify.channel)?;
        }
        let request = request(ctx, owner.bytes(), &options);
        for name in names {
            if request.mode != Mode::Exclusive {
                read_write::may_take(ctx, *name, owner, &Siblings::default())?;
            }
            sessions::end_first(ctx, *name, owner);
        }
        let at = names.iter().map(|name| ctx.key_ref(*name));
        if options
            .seq
            .is_some_and(|seq| is_given_up(ctx, at, owner, seq))
        {
            let got = Got::<Vec<Token>>::Nothing;
            reply::acquired_all(ctx, got);
            return Ok(());
        }
        let mut keys = LockKey::open_all(ctx, names, owner);
        let now = ctx.now();
        let read = |key| read_write::read_to_acquire(key, request.mode, now);
        let states: Vec<_> = keys.iter_mut().map(read).collect();
        for (key, state) in keys.iter().zip(&states) {
            siblings::may_begin(key, state, (request.mode, request.owner), now)?;
        }
        let planned = Planned::of_many(&states, &request, now);
        let views = keys.iter().zip(states);
        let views = views.map(|(key, state)| view_for(key, state, &planned, now));
        let views: Vec<_> = views.collect();
        for (key, view) in keys.iter().zip(&views) {
            may_count(ctx, key, view, request.wait != Wait::No)?;
        }
        let (answer, fx) = decide_all(keys.len(), now, |locks, fx| {
            locks.acquire_many(&views, &request, now, fx)
        });
        let is_ticket = request.notify.is_some();
        let new = NewWaiter::expect(ctx, waiter_of(&answer), Shape::Tokens, is_ticket);
        let is_unchanged = !fx.iter().flatten().any(Effect::is_write);
        apply_all(keys, &fx)?;
        new.finish();
        alarm::rearm(ctx);
        let got = match answer? {
            Answer::Waits(id) => wait(ctx, names, id, is_ticket)?,
            Answer::Refused => Some(Got::Nothing),
            Answer::Granted(tokens) => {
                confirm_first(ctx, names, is_unchanged);
                Some(Got::Granted(tokens))
            }
        };
        if let Some(got) = got {
            reply::acquired_all(ctx, got);
        }
        Ok(())
    }
}

/// For a request that was granted and has changed nothing: what is replicated for one of its keys comes after all that
/// was replicated for the others.
fn confirm_first(ctx: Ctx<'_>, names: &[Str<'_>], is_unchanged: bool) {
    if let (Some(first), true) = (names.first(), is_unchanged) {
        replication::confirm(ctx, *first);
    }
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
    for name in names {
        sessions::end_first(ctx, *name, owner);
    }
    let keys = LockKey::open_all(ctx, names, owner);
    let now = ctx.now();
    let mut states = Vec::with_capacity(keys.len());
    for key in &keys {
        let state = key.read_to(ReadDepth::Holder, now);
        read_write::may_change(key, owner, (None, &state))?;
        states.push(state);
    }
    // Before the views: a request that is refused at one key ends no wait at the others.
    if !fault::is_on("refused-mrelease-ends-a-wait") {
        lock::may_release_many(&states, &request, now)?;
    }
    let view = |(key, state)| view_for(key, state, &Planned::Release(&request), now);
    let views: Vec<_> = keys.iter().zip(states).map(view).collect();
    change_locks(ctx, keys, now, |locks, fx| {
        locks.release_many(&views, &request, now, fx)
    })
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
    if let Ok(dropped) = release_locks(ctx, &noted, owner, true) {
        for name in &noted {
            has_given_up(ctx.key_ref(*name), owner);
        }
        return Ok(ended + dropped);
    }
    // What is wrong with one key keeps no other.
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
        for name in names {
            sessions::end_first(ctx, *name, owner);
        }
        let keys = LockKey::open_all(ctx, names, owner);
        let now = ctx.now();
        let mut views = Vec::with_capacity(keys.len());
        for key in &keys {
            let state = read_write::read_to_renew(key, request.lease, now);
            read_write::may_change(key, owner, (None, &state))?;
            let view = view_for(key, state, &Planned::Renew, now);
            may_count(ctx, key, &view, false)?;
            views.push(view);
        }
        let mut is_unchanged = false;
        let renewed = change_locks(ctx, keys, now, |locks, fx| {
            let renewed = locks.renew_many(&views, &request, now, fx);
            is_unchanged = !fx.iter().flatten().any(Effect::is_write);
            renewed
        })?;
        confirm_first(ctx, names, is_unchanged && renewed > 0);
        ctx.reply_integer(renewed as i64);
        Ok(())
    }
}
