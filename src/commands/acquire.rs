//! `LOCK.ACQUIRE key owner [READ | WRITE] [EX s | PX ms | SESSION] [BLOCK ms] [ONCE] [WITHHOLDER]`

use crate::commands::args::{option, word, Args, KEY, MODE, OWNER, TERMS};
use crate::commands::read_write;
use crate::commands::request::request;
use crate::lock::{self, Answer, KeyState, LockError, Mode};
use crate::module::apply::{apply, decide};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::entry::events;
use crate::module::entry::parked;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::beside;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::siblings::Siblings;
use crate::module::reply;
use crate::module::sessions;
use crate::module::state::parked::Shape;
use crate::module::view;

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
        complexity: c"O(1), however many wait; READ and WRITE O(N) in the number of dead readers passed on the way",
        args: &[
            KEY,
            OWNER,
            MODE,
            TERMS,
            option(c"milliseconds", c"BLOCK", true),
            word(c"once", c"ONCE"),
            word(c"withholder", c"WITHHOLDER"),
        ],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let owner = args.owner()?;
        let (request, with_holder) = request(ctx, &mut args, owner, "lock.acquire")?;
        let shape = match with_holder {
            true => Shape::WithHolder,
            false => Shape::Token,
        };
        acquire(ctx, name, owner, &request, shape)
    }
}

fn acquire(
    ctx: Ctx,
    name: Str<'_>,
    owner: Str<'_>,
    request: &lock::Acquire<'_>,
    shape: Shape,
) -> Result<(), LockError> {
    let siblings = Siblings::default();
    if request.mode != Mode::Exclusive {
        read_write::may_use(ctx, name, owner, &siblings)?;
    }
    sessions::end_first(ctx, name, owner);
    let mut key = LockKey::open_for(ctx, name, owner);
    key.keep(siblings);
    let now = ctx.now();
    let state = key.read_to(read_write::depth_to_acquire(&key, request.mode), now);
    beside::may_begin(&key, &state, (request.mode, request.owner), now)?;
    let needs_token = match (state.hold(now), &state) {
        (Some(hold), _) => hold.token.is_none() && hold.owner[..] == *request.owner,
        (None, KeyState::ReadWrite(lock)) => read_write::needs_token(&key, lock, request.mode, now),
        (None, _) => true,
    };
    let view = match needs_token {
        true => view::minting_view(&key, state),
        false => view::plain_view(&key, state),
    };
    let (answer, fx) = decide(|locks, fx| locks.acquire(&view, request, now, fx));
    if let Ok(Answer::Parked(id)) = answer {
        parked::expect(id, shape);
    }
    apply(key, &fx)?;
    alarm::rearm(ctx);
    let token = match answer? {
        Answer::Parked(id) => {
            events::watch(ctx);
            if parked::block(ctx, name, id)? {
                return Ok(());
            }
            None
        }
        Answer::Granted(token) => Some(token),
        Answer::Refused => None,
    };
    reply::acquired(ctx, name, shape, token, now);
    Ok(())
}
