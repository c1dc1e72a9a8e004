//! `LOCK.MACQUIRE numkeys key [key ...] owner [READ | WRITE] [EX s | PX ms | SESSION] [BLOCK ms] [ONCE] [WITHHOLDER]`

use super::args::{default_lease, once, option, word, Args, KEYS, MODE, NUMKEYS, OWNER, TERMS};
use super::read_write;
use crate::lock::{self, LockError, ManyAnswer, Mode, Wait};
use crate::module::alarm;
use crate::module::apply::{apply_all, decide_all};
use crate::module::ctx::Ctx;
use crate::module::events;
use crate::module::fence;
use crate::module::key::LockKey;
use crate::module::parked::Parked;
use crate::module::register::{access, Command, Spec};
use crate::module::reply::{self, Shape};
use crate::module::sessions;
use crate::module::strings::Str;

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
        let (mut lease, mut session, mut wait) = (None, None, None);
        let (mut count_once, mut with_holder) = (None, None);
        let mut mode = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"READ" => once(&mut mode, Mode::Read)?,
                b"WRITE" => once(&mut mode, Mode::Write)?,
                b"EX" => once(&mut lease, args.lease(1_000, "lock.macquire")?)?,
                b"PX" => once(&mut lease, args.lease(1, "lock.macquire")?)?,
                b"SESSION" => once(&mut session, ())?,
                b"BLOCK" => once(&mut wait, args.wait()?)?,
                b"ONCE" => once(&mut count_once, ())?,
                b"WITHHOLDER" => once(&mut with_holder, ())?,
                _ => return Err(LockError::Syntax),
            }
        }
        if session.is_some() {
            if lease.is_some() {
                return Err(LockError::Syntax);
            }
            sessions::prepare(ctx)?;
        }
        let request = lock::Acquire {
            owner: owner.bytes(),
            mode: mode.unwrap_or(Mode::Exclusive),
            names_lease: lease.is_some(),
            lease: lease.map_or_else(default_lease, Ok)?,
            session: session.is_some(),
            once: count_once.is_some(),
            wait: wait.filter(|_| ctx.may_block()).unwrap_or(Wait::No),
            client: ctx.client_id(),
        };
        let shape = match with_holder {
            Some(()) => Shape::TokensWithHolder,
            None => Shape::Tokens,
        };
        for name in names {
            if request.mode != Mode::Exclusive {
                read_write::may_use(ctx, *name, owner)?;
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
    let look = |key| LockKey::look(key, read_write::look_to_acquire(key, request.mode), now);
    let states: Vec<_> = keys.iter().map(look).collect();
    // No token is needed where one of the keys is not to be had.
    let is_blocked = |state| lock::is_blocked(state, request.mode, request.owner, now);
    let view = match states.iter().any(is_blocked) {
        true => fence::plain_view,
        false => fence::minting_view,
    };
    let views = keys.iter().zip(states);
    let views: Vec<_> = views.map(|(key, state)| view(key, state)).collect();
    let (answer, fx) = decide_all(keys.len(), |locks, fx| {
        locks.acquire_many(&views, request, now, fx)
    });
    if let Ok(ManyAnswer::Parked(id)) = answer {
        Parked::expect(id, shape);
    }
    apply_all(keys, &fx);
    alarm::rearm(ctx);
    let tokens = match answer? {
        ManyAnswer::Parked(id) => {
            events::watch(ctx);
            return Parked::block_on(ctx, names, id);
        }
        ManyAnswer::Granted(tokens) => Some(tokens),
        ManyAnswer::Refused(_) => None,
    };
    reply::acquired_all(ctx, words, shape, tokens.as_deref(), now);
    Ok(())
}
