//! `LOCK.RELEASE key owner [READ | WRITE] [ALL] [TOKEN t]`

use crate::commands::arg_specs::{word, KEY, MODE, OWNER, TOKEN};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::commands::skeleton::change_lock;
use crate::lock::{self, Mode, Planned, ReadDepth, Released};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view::view_for;

/// Drops one hold, or all. The last one hands the lock off, or frees it. Replies 1 (freed), 0 (still held) or nil.
#[derive(Debug, PartialEq, Eq)]
pub struct Release<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) owner: W,
    pub(crate) mode: Option<Mode>,
    pub(crate) all: bool,
    pub(crate) token: Option<u64>,
}

impl<W: Word> Release<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key, the owner, and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Release<W>, CommandError> {
        let mut parser = Parser::new::<Release>(words, settings);
        let (key, owner) = (parser.key()?, parser.owner()?);
        let (mut mode, mut all, mut token) = (None, None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"READ" => once(&mut mode, Mode::Read),
                b"WRITE" => once(&mut mode, Mode::Write),
                b"ALL" => once(&mut all, ()),
                b"TOKEN" => once(&mut token, parser.token()?),
                _ => Found::Unknown,
            })
        })?;
        Ok(Release {
            key,
            owner,
            mode,
            all: all.is_some(),
            token,
        })
    }
}

impl Release<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let request = lock::Release {
            owner: self.owner.bytes(),
            mode: self.mode,
            all: self.all,
            token: self.token,
        };
        sessions::end_first(ctx, self.key, self.owner);
        let key = LockKey::open_for(ctx, self.key, self.owner);
        let now = ctx.now();
        let state = key.read_to(ReadDepth::Holder, now);
        read_write::may_change(&key, self.owner, (self.mode, &state))?;
        let view = view_for(&key, state, &Planned::Release(&request), now);
        let released = change_lock(ctx, key, now, |locks, cx| {
            locks.release(&view, &request, cx)
        })?;
        ctx.reply_maybe(match released {
            Released::Freed => Some(1),
            Released::StillHeld => Some(0),
            Released::NotHeld => None,
        });
        Ok(())
    }
}

impl Command for Release {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.release",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::DELETE),
        arity: -3,
        summary: c"Drops a hold; the last one hands the lock to the next waiter, or frees it",
        complexity: c"O(1), however many wait; READ O(N) in the number of the owner's holds",
        args: &[KEY, OWNER, MODE, word(c"all", c"ALL"), TOKEN],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Release::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
