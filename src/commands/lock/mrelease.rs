//! `LOCK.MRELEASE numkeys key [key ...] owner [ALL]`

use crate::commands::arg_specs::{word, KEYS, NUMKEYS, OWNER};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::commands::skeleton::change_locks;
use crate::lock::{self, Planned, ReadDepth};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view::view_for;

/// Drops one hold on each of several locks, or all. The last hold of each lock hands it off, or frees it. Replies the
/// number of locks on which the owner had a hold.
#[derive(Debug, PartialEq, Eq)]
pub struct ReleaseMany<'a, W = Str<'a>> {
    pub(crate) keys: &'a [W],
    pub(crate) owner: W,
    pub(crate) all: bool,
}

impl<'a, W: Word> ReleaseMany<'a, W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the keys, the owner, and the options, in this order.
    pub fn parse(
        words: &'a [W],
        settings: &'a ParseSettings,
    ) -> Result<ReleaseMany<'a, W>, CommandError> {
        let mut parser = Parser::new::<ReleaseMany>(words, settings);
        let (keys, owner) = (parser.keys()?, parser.owner()?);
        let mut all = None;
        parser.options(|_, option| {
            Ok(match option {
                b"ALL" => once(&mut all, ()),
                _ => Found::Unknown,
            })
        })?;
        Ok(ReleaseMany {
            keys,
            owner,
            all: all.is_some(),
        })
    }
}

impl<'a> ReleaseMany<'a, Str<'a>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let request = lock::Release {
            owner: self.owner.bytes(),
            mode: None,
            all: self.all,
            token: None,
        };
        for name in self.keys {
            sessions::end_first(ctx, *name, self.owner);
        }
        let keys = LockKey::open_all(ctx, self.keys, self.owner);
        let now = ctx.now();
        let mut states = Vec::with_capacity(keys.len());
        for key in &keys {
            let state = key.read_to(ReadDepth::Holder, now);
            read_write::may_change(key, self.owner, (None, &state))?;
            states.push(state);
        }
        // Before the views: a request that is refused at one key ends no wait at the others.
        lock::may_release_many(&states, &request, now)?;
        let view = |(key, state)| view_for(key, state, &Planned::Release(&request), now);
        let views: Vec<_> = keys.iter().zip(states).map(view).collect();
        let dropped = change_locks(ctx, keys, now, |locks, fx| {
            locks.release_many(&views, &request, now, fx)
        })?;
        ctx.reply_integer(dropped as i64);
        Ok(())
    }
}

impl Command for ReleaseMany<'_> {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.mrelease",
        flags: c"write",
        acl: c"write",
        key: Some(access::DELETE),
        arity: -4,
        summary: c"Drops a hold on each of several locks, and returns on how many",
        complexity: c"O(N) in the number of keys, however many wait",
        args: &[NUMKEYS, KEYS, OWNER, word(c"all", c"ALL")],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        ReleaseMany::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
