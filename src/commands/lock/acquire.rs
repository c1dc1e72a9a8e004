//! `LOCK.ACQUIRE`

use crate::commands::lock::read_write;
use crate::commands::options::{
    BLOCK, KEY, LEASE_OR_SESSION, MODE, NOTE, ONCE, OWNER, SEQ, WITHHOLDER,
};
use crate::commands::parser::Parser;
use crate::commands::skeleton::{acquire, is_given_up, open_lock, request, view_to_grant, How};
use crate::lock::{Cx, LockError, Locks, Planned, Wait};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::Str;
use crate::module::reply::{self, Got};
use crate::module::state::shell::Shape;

/// Takes the lock, or waits for it. Replies the fencing token, or nil.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"lock.acquire",
        flags: c"write deny-oom fast blocking",
        acl: c"write fast blocking",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Takes a lock for an owner, or waits for it, and returns the fencing token of the grant",
        complexity: c"O(1), however many wait; READ and WRITE O(N) in the number of dead readers passed on the way, 250 at most",
        args: &[KEY, OWNER, MODE, LEASE_OR_SESSION, BLOCK, ONCE, WITHHOLDER, SEQ, NOTE],
        help: &[
            "Take the lock, or wait for it (BLOCK 0: for ever). Returns the fencing token, or nil.",
            "NOTIFY: wait without a parked client. Returns QUEUED; the outcome is a message on the channel.",
            "READ, WRITE: a lock of many readers or one writer, as Redisson's RReadWriteLock.",
            "SEQ: the number of this acquisition, for LOCK.RELEASE ... FINAL.",
            "NOTE: a text beside the hold, for LOCK.INFO (256 bytes at most; exclusive locks only).",
            "SESSION: the server keeps the lease while this connection lives, and releases when it ends.",
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, owner, options) = Parser::of::<Acquire>(words).key_and_owner()?;
        let shape = match options.with_holder && !fault::is_on("withholder-forgotten") {
            true => Shape::WithHolder,
            false => Shape::Token,
        };
        let request = request(ctx, &[name], owner.bytes(), &options)?;
        let siblings = read_write::may_take(ctx, name, owner, request.mode)?;
        if is_given_up(ctx, [ctx.key_ref(name)], owner, options.seq) {
            reply::acquired(ctx, name, shape, Got::Nothing, ctx.now());
            return Ok(());
        }
        let (key, state, now) = open_lock(ctx, name, owner, |key, now| {
            key.keep(siblings);
            read_write::read_to_acquire(key, &request, now)
        })?;
        let (planned, waits) = (Planned::Acquire(&request), request.wait != Wait::No);
        let view = view_to_grant(&key, state, &planned, waits, now)?;
        let how = How::of(shape, &request);
        let decision = |locks: &mut Locks, cx: &mut Cx<'_>| locks.acquire(&view, &request, cx);
        acquire(ctx, key, how, now, decision, |got| {
            reply::acquired(ctx, name, shape, got, now);
        })
    }
}
