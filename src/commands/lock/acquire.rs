//! `LOCK.ACQUIRE key owner [READ | WRITE] [EX s | PX ms | SESSION] [BLOCK ms [NOTIFY channel tag]] [ONCE] [WITHHOLDER]`

use crate::commands::acquire_options::AcquireOptions;
use crate::commands::arg_specs::{word, BLOCK, KEY, LEASE_OR_SESSION, MODE, OWNER};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::commands::skeleton::{may_count, prepare_session, wait, waiter_of, NewWaiter};
use crate::lock::{Answer, Mode, Planned, Wait};
use crate::module::apply::{apply, decide};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::beside;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication;
use crate::module::keyspace::siblings::Siblings;
use crate::module::reply::{self, Got};
use crate::module::sessions;
use crate::module::state::parked::Shape;
use crate::module::tickets;
use crate::module::view::view_for;

/// Takes the lock, or waits for it. Replies the fencing token, or nil.
#[derive(Debug, PartialEq, Eq)]
pub struct Acquire<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) owner: W,
    pub(crate) options: AcquireOptions<W>,
}

impl<W: Word> Acquire<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key, the owner, and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Acquire<W>, CommandError> {
        let mut parser = Parser::new::<Acquire>(words, settings);
        Ok(Acquire {
            key: parser.key()?,
            owner: parser.owner()?,
            options: AcquireOptions::parse(&mut parser)?,
        })
    }
}

impl Acquire<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let Acquire {
            key: name,
            owner,
            options,
        } = self;
        if options.session {
            prepare_session(ctx)?;
        }
        if let Some(notify) = &options.notify {
            tickets::check(ctx, name, notify.channel)?;
        }
        let request = options.request(ctx, owner.bytes());
        let siblings = Siblings::default();
        if request.mode != Mode::Exclusive {
            read_write::may_use(ctx, name, owner, &siblings)?;
        }
        sessions::end_first(ctx, name, owner);
        let mut key = LockKey::open_for(ctx, name, owner);
        key.keep(siblings);
        let now = ctx.now();
        let state = read_write::read_to_acquire(&mut key, request.mode, now);
        beside::may_begin(&key, &state, (request.mode, request.owner), now)?;
        let view = view_for(&key, state, &Planned::Acquire(&request), now);
        may_count(ctx, &key, &view, request.wait != Wait::No)?;
        let (answer, fx) = decide(now, |locks, cx| locks.acquire(&view, &request, cx));
        let shape = match options.with_holder {
            true => Shape::WithHolder,
            false => Shape::Token,
        };
        let (is_ticket, waiter) = (request.notify.is_some(), waiter_of(&answer));
        let new = NewWaiter::expect(ctx, waiter, shape, is_ticket);
        let is_unchanged = fx.is_empty();
        apply(key, &fx)?;
        new.finish();
        alarm::rearm(ctx);
        let got = match answer? {
            Answer::Parked(id) => wait(ctx, &[name], id, is_ticket)?,
            Answer::Refused => Some(Got::Nothing),
            Answer::Granted(token) => {
                replication::confirm(ctx, name, is_unchanged);
                Some(Got::Granted(token))
            }
        };
        if let Some(got) = got {
            reply::acquired(ctx, name, shape, got, now);
        }
        Ok(())
    }
}

impl Command for Acquire {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.acquire",
        flags: c"write deny-oom fast blocking",
        acl: c"write fast blocking",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Takes a lock for an owner, or waits for it, and returns the fencing token of the grant",
        complexity: c"O(1), however many wait; READ and WRITE O(N) in the number of dead readers passed on the way, 250 at most",
        args: &[
            KEY,
            OWNER,
            MODE,
            LEASE_OR_SESSION,
            BLOCK,
            word(c"once", c"ONCE"),
            word(c"withholder", c"WITHHOLDER"),
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Acquire::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
