//! `LOCK.BREAK key [TOKEN t] [PURGE]`

use crate::commands::arg_specs::{word, KEY, TOKEN};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::commands::skeleton::change_lock;
use crate::lock::{self, LockError, Now, Planned, Resource};
use crate::module::acl;
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::view::view_for;

/// Ends a hold by force: an operator's command. Replies 1, or 0 when the lock is not held.
#[derive(Debug, PartialEq, Eq)]
pub struct Break<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) token: Option<u64>,
    pub(crate) purge: bool,
}

impl<W: Word> Break<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Break<W>, CommandError> {
        let mut parser = Parser::new::<Break>(words, settings);
        let key = parser.key()?;
        let (mut token, mut purge) = (None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"TOKEN" => once(&mut token, parser.token()?),
                b"PURGE" => once(&mut purge, ()),
                _ => Found::Unknown,
            })
        })?;
        Ok(Break {
            key,
            token,
            purge: purge.is_some(),
        })
    }
}

impl Break<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        acl::may_break(ctx, self.key)?;
        let request = lock::Break {
            token: self.token,
            purge: self.purge,
        };
        let now = ctx.now();
        let purged = self.purge && self.token.is_none() && purge_others(ctx, self.key, now);
        // To end a reader takes longer than to read it.
        let key = LockKey::open(ctx, self.key).one_of(2);
        let state = key.read();
        read_write::may_break(ctx, self.key, &state, now)?;
        let view = view_for(&key, state, &Planned::Break(request), now);
        let broken = change_lock(ctx, key, now, |locks, cx| {
            locks.break_lock(&view, request, cx)
        });
        let broken = match broken {
            // The key of a semaphore or a latch.
            Err(CommandError::Lock(LockError::WrongType)) if purged => false,
            broken => broken?,
        };
        ctx.reply_integer(broken.into());
        Ok(())
    }
}

/// Ends the waits for a semaphore or a latch of this name. Returns whether there were any.
fn purge_others(ctx: Ctx<'_>, key: Str<'_>, now: Now) -> bool {
    let key = ctx.key_ref(key);
    let (purged, fx) = decide(now, |locks, cx| {
        let waiters = &mut locks.shared.waiters;
        let mut purged = false;
        for resource in [Resource::Semaphore, Resource::Latch] {
            purged |= waiters.live_on(key.of(resource)) > 0;
            waiters.fail_all(key.of(resource), &LockError::Broken, cx);
        }
        purged
    });
    answers::note_all(ctx, &fx);
    alarm::rearm(ctx);
    purged
}

impl Command for Break {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.break",
        flags: c"write fast",
        acl: c"write fast dangerous",
        key: Some(access::DELETE),
        arity: -2,
        summary:
            c"Ends a hold by force and hands the lock to the next waiter, or purges the waiters too",
        complexity: c"O(1), of readers O(N) in the number of holds, with PURGE O(N) in the number of waiters",
        args: &[KEY, TOKEN, word(c"purge", c"PURGE")],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Break::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
