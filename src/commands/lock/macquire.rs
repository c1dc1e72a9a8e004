//! `LOCK.MACQUIRE numkeys key [key ...] owner [READ | WRITE] [EX s | PX ms | SESSION] [BLOCK ms [NOTIFY channel tag]]
//! [ONCE] [WITHHOLDER]`

use crate::commands::acquire_options::AcquireOptions;
use crate::commands::arg_specs::{word, BLOCK, KEYS, LEASE_OR_SESSION, MODE, NUMKEYS, OWNER};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::commands::skeleton::{may_count, prepare_session, wait, NewWaiter};
use crate::lock::{self, LockError, ManyAnswer, Mode, Planned, Wait};
use crate::module::apply::{apply_all, decide_all};
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

/// Takes several locks, all or none, or waits for them. Replies the fencing token of each, or nil.
#[derive(Debug, PartialEq, Eq)]
pub struct AcquireMany<'a, W = Str<'a>> {
    /// The whole command: the form in which the reply takes keys and owner.
    words: &'a [W],
    pub(crate) keys: &'a [W],
    pub(crate) owner: W,
    pub(crate) options: AcquireOptions<W>,
}

impl<'a, W: Word> AcquireMany<'a, W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the keys, the owner, and the options, in this order.
    pub fn parse(
        words: &'a [W],
        settings: &'a ParseSettings,
    ) -> Result<AcquireMany<'a, W>, CommandError> {
        let mut parser = Parser::new::<AcquireMany>(words, settings);
        Ok(AcquireMany {
            words,
            keys: parser.keys()?,
            owner: parser.owner()?,
            options: AcquireOptions::parse(&mut parser)?,
        })
    }
}

impl<'a> AcquireMany<'a, Str<'a>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        if self.options.session {
            prepare_session(ctx)?;
        }
        if let (Some(notify), [first, ..]) = (&self.options.notify, self.keys) {
            tickets::check(ctx, *first, notify.channel)?;
        }
        let request = self.options.request(ctx, self.owner.bytes());
        for name in self.keys {
            if request.mode != Mode::Exclusive {
                read_write::may_use(ctx, *name, self.owner, &Siblings::default())?;
            }
            sessions::end_first(ctx, *name, self.owner);
        }
        self.acquire(ctx, &request)
    }

    fn acquire(&self, ctx: Ctx<'_>, request: &lock::Acquire<'_>) -> Result<(), CommandError> {
        let mut keys = LockKey::open_all(ctx, self.keys, self.owner);
        let now = ctx.now();
        let read = |key| read_write::read_to_acquire(key, request.mode, now);
        let states: Vec<_> = keys.iter_mut().map(read).collect();
        if request.mode != Mode::Exclusive && beside::are_twins(self.keys) {
            return Err(LockError::SiblingsTaken.into());
        }
        for (key, state) in keys.iter().zip(&states) {
            beside::may_begin(key, state, (request.mode, request.owner), now)?;
        }
        let planned = Planned::of_many(&states, request, now);
        let views = keys.iter().zip(states);
        let views = views.map(|(key, state)| view_for(key, state, &planned, now));
        let views: Vec<_> = views.collect();
        for (key, view) in keys.iter().zip(&views) {
            may_count(ctx, key, view, request.wait != Wait::No)?;
        }
        let (answer, fx) = decide_all(keys.len(), now, |locks, fx| {
            locks.acquire_many(&views, request, now, fx)
        });
        let shape = match self.options.with_holder {
            true => Shape::TokensWithHolder,
            false => Shape::Tokens,
        };
        let is_ticket = request.notify.is_some();
        let waiter = match &answer {
            Ok(ManyAnswer::Parked(id)) => Some(*id),
            _ => None,
        };
        let new = NewWaiter::expect(ctx, waiter, shape, is_ticket);
        let is_unchanged = fx.iter().all(|fx| fx.is_empty());
        apply_all(keys, &fx)?;
        new.finish();
        alarm::rearm(ctx);
        let got = match answer? {
            ManyAnswer::Parked(id) => wait(ctx, self.keys, id, is_ticket)?,
            ManyAnswer::Refused(_) => Some(Got::Nothing),
            ManyAnswer::Granted(tokens) => {
                if let [first, ..] = self.keys {
                    replication::confirm(ctx, *first, is_unchanged);
                }
                Some(Got::Granted(tokens))
            }
        };
        if let Some(got) = got {
            reply::acquired_all(ctx, self.words, shape, got, now);
        }
        Ok(())
    }
}

impl Command for AcquireMany<'_> {
    type Error = CommandError;

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
            word(c"once", c"ONCE"),
            word(c"withholder", c"WITHHOLDER"),
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        AcquireMany::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
