//! `SEM.ACQUIRE key id [LIMIT permits] [EX s | PX ms | SESSION] [BLOCK ms]`

use std::num::NonZeroU32;

use crate::commands::args::{default_lease, once, option, Args, KEY, TERMS};
use crate::commands::sem::{open_permit, ID};
use crate::lock::{Answer, LockError, SemAcquire, Wait};
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::clients;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::entry::events;
use crate::module::entry::parked;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::reply;
use crate::module::state::parked::Shape;

/// Takes a permit, or waits for one. Replies the token, or nil.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"sem.acquire",
        flags: c"write deny-oom fast blocking",
        acl: c"write fast blocking",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Takes a permit of a semaphore for an id, or waits for one, and returns the token of the grant",
        complexity: c"O(log(N)) with N permits held, however many wait",
        args: &[
            KEY,
            ID,
            option(c"permits", c"LIMIT", true),
            TERMS,
            option(c"milliseconds", c"BLOCK", true),
        ],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let id = args.owner()?;
        let (mut lease, mut session) = (None, None);
        let (mut wait, mut limit) = (None, None);
        while let Some(option) = args.option() {
            match &option[..] {
                b"LIMIT" => once(&mut limit, permits(args.number(1)?)?)?,
                b"EX" => once(&mut lease, args.lease(1_000, "sem.acquire")?)?,
                b"PX" => once(&mut lease, args.lease(1, "sem.acquire")?)?,
                b"SESSION" => once(&mut session, ())?,
                b"BLOCK" => once(&mut wait, args.wait()?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        if session.is_some() {
            if lease.is_some() {
                return Err(LockError::Syntax);
            }
            clients::prepare(ctx)?;
        }
        let request = SemAcquire {
            id: id.bytes(),
            names_lease: lease.is_some(),
            session: session.is_some(),
            lease: lease.map_or_else(default_lease, Ok)?,
            limit,
            wait: wait
                .filter(|_| parked::is_possible(ctx))
                .unwrap_or(Wait::No),
            client: ctx.client_id(),
        };
        acquire(ctx, name, id, &request)
    }
}

fn permits(number: i64) -> Result<NonZeroU32, LockError> {
    let permits = i32::try_from(number).ok().map(i32::unsigned_abs);
    permits
        .and_then(NonZeroU32::new)
        .ok_or(LockError::NotInteger)
}

fn acquire(
    ctx: Ctx,
    name: Str<'_>,
    id: Str<'_>,
    request: &SemAcquire<'_>,
) -> Result<(), LockError> {
    let (key, view, now) = open_permit(ctx, name, id, SemKey::minting_view)?;
    let ((answer, change), fx) = decide(|locks, fx| locks.sem_acquire(&view, request, now, fx));
    if let Ok(Answer::Parked(waiter)) = answer {
        parked::expect(waiter, Shape::Token);
    }
    key.apply(&change, &fx, Replication::of_command(ctx))?;
    alarm::rearm(ctx);
    let token = match answer? {
        Answer::Parked(waiter) => {
            events::watch(ctx);
            if parked::block(ctx, name, waiter)? {
                return Ok(());
            }
            None
        }
        Answer::Granted(token) => Some(token),
        Answer::Refused => None,
    };
    reply::acquired(ctx, name, Shape::Token, token, now);
    Ok(())
}
