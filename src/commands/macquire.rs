//! `LOCK.MACQUIRE numkeys key [key ...] owner [READ | WRITE] [EX s | PX ms | SESSION] [BLOCK ms] [ONCE] [WITHHOLDER]`

use crate::commands::args::{option, word, Args, KEYS, MODE, NUMKEYS, OWNER, TERMS};
use crate::commands::read_write;
use crate::commands::request::request;
use crate::lock::{self, LockError, ManyAnswer, Mode};
use crate::module::apply::{apply_all, decide_all};
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

/// Takes several locks, all or none, or waits for them. Replies the fencing token of each, or nil.
pub struct AcquireMany;

impl Command for AcquireMany {
    const SPEC: Spec = Spec {
        name: c"lock.macquire",
        flags: c"write deny-oom blocking getkeys-api",
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
            TERMS,
            option(c"milliseconds", c"BLOCK", true),
            word(c"once", c"ONCE"),
            word(c"withholder", c"WITHHOLDER"),
        ],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let names = args.keys()?;
        let owner = args.owner()?;
        let (request, with_holder) = request(ctx, &mut args, owner, "lock.macquire")?;
        let shape = match with_holder {
            true => Shape::TokensWithHolder,
            false => Shape::Tokens,
        };
        for name in names {
            if request.mode != Mode::Exclusive {
                read_write::may_use(ctx, *name, owner, &Siblings::default())?;
            }
            sessions::end_first(ctx, *name, owner);
        }
        acquire(ctx, words, names, owner, &request, shape)
    }
}

fn acquire(
    ctx: Ctx,
    words: &[Str<'_>],
    names: &[Str<'_>],
    owner: Str<'_>,
    request: &lock::Acquire<'_>,
    shape: Shape,
) -> Result<(), LockError> {
    let keys = LockKey::open_all(ctx, names, owner);
    let now = ctx.now();
    let depth = |key| LockKey::read_to(key, read_write::depth_to_acquire(key, request.mode), now);
    let states: Vec<_> = keys.iter().map(depth).collect();
    if request.mode != Mode::Exclusive && beside::are_twins(names) {
        return Err(LockError::SiblingsTaken);
    }
    for (key, state) in keys.iter().zip(&states) {
        beside::may_begin(key, state, (request.mode, request.owner), now)?;
    }
    // No token is needed where one of the keys is not to be had.
    let is_blocked = |state| lock::is_blocked(state, request.mode, request.owner, now);
    let view = match states.iter().any(is_blocked) {
        true => view::plain_view,
        false => view::minting_view,
    };
    let views = keys.iter().zip(states);
    let views: Vec<_> = views.map(|(key, state)| view(key, state)).collect();
    let (answer, fx) = decide_all(keys.len(), |locks, fx| {
        locks.acquire_many(&views, request, now, fx)
    });
    if let Ok(ManyAnswer::Parked(id)) = answer {
        parked::expect(id, shape);
    }
    apply_all(keys, &fx)?;
    alarm::rearm(ctx);
    let tokens = match answer? {
        ManyAnswer::Parked(id) => {
            events::watch(ctx);
            if parked::block_on(ctx, names, id)? {
                return Ok(());
            }
            None
        }
        ManyAnswer::Granted(tokens) => Some(tokens),
        ManyAnswer::Refused(_) => None,
    };
    reply::acquired_all(ctx, words, shape, tokens.as_deref(), now);
    Ok(())
}
