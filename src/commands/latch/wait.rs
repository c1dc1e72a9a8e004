//! `LATCH.WAIT key [BLOCK ms]`

use crate::commands::arg_specs::{BLOCK, KEY};
use crate::commands::error::CommandError;
use crate::commands::latch::is_no_semaphore;
use crate::commands::parser::{once, ParseSettings, Parser, Word};
use crate::commands::skeleton::{block, possible_wait};
use crate::lock::{self, Count, Waited};
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::entry::parked;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;
use crate::module::state::parked::Shape;

/// Waits until a latch is open. Replies 1, or 0 when it is still closed.
#[derive(Debug, PartialEq, Eq)]
pub struct Wait<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) wait: lock::Wait,
}

impl<W: Word> Wait<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Wait<W>, CommandError> {
        let mut parser = Parser::new(words, settings);
        let key = parser.key()?;
        let mut wait = None;
        while let Some(option) = parser.option() {
            match &option[..] {
                b"BLOCK" => once(&mut wait, parser.wait()?)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(Wait {
            key,
            wait: wait.unwrap_or(lock::Wait::No),
        })
    }
}

impl Wait<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let wait = possible_wait(ctx, self.wait);
        let key = CountKey::open_read(ctx, self.key);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, self.key)?;
        }
        let client = ctx.client_id();
        let (waited, _) = decide(now, |locks, cx| {
            locks.latch_wait(id, state, client, wait, cx)
        });
        drop(key);
        match waited? {
            Waited::Open => ctx.reply_integer(1),
            Waited::Closed => ctx.reply_integer(0),
            Waited::Parked(id) => {
                parked::expect(id, Shape::Latch);
                alarm::rearm(ctx);
                if !block(ctx, &[self.key], id)? {
                    ctx.reply_integer(0);
                }
            }
        }
        Ok(())
    }
}

impl Command for Wait {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"latch.wait",
        flags: c"readonly fast blocking",
        acl: c"read fast blocking",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells whether a latch is open, or waits until it is",
        complexity: c"O(1)",
        args: &[KEY, BLOCK],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Wait::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
