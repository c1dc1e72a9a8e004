//! `LATCH.WAIT key [BLOCK ms [NOTIFY channel tag]]`

use crate::commands::arg_specs::{BLOCK, KEY};
use crate::commands::error::CommandError;
use crate::commands::latch::is_no_semaphore;
use crate::commands::parser::{check_wait, once, Found, NotifyWords, ParseSettings, Parser, Word};
use crate::commands::skeleton::{possible_wait, wait};
use crate::lock::{self, Count, LatchWait, Waited};
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::entry::parked;
use crate::module::ffi::ctx::{is_out_of_memory, Ctx};
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;
use crate::module::reply::{self, Got};
use crate::module::state::parked::Shape;
use crate::module::tickets;
use crate::module::users;

/// Waits until a latch is open. Replies 1, or 0 when it is still closed.
#[derive(Debug, PartialEq, Eq)]
pub struct Wait<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) wait: lock::Wait,
    pub(crate) notify: Option<NotifyWords<W>>,
}

impl<W: Word> Wait<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key and the options, in this order; at the end `NOTIFY` without `BLOCK`.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Wait<W>, CommandError> {
        let mut parser = Parser::new::<Wait>(words, settings);
        let key = parser.key()?;
        let (mut wait, mut notify) = (None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"BLOCK" => once(&mut wait, parser.wait()?),
                b"NOTIFY" => once(&mut notify, parser.notify()?),
                _ => Found::Unknown,
            })
        })?;
        check_wait(wait, notify.as_ref())?;
        Ok(Wait {
            key,
            wait: wait.unwrap_or(lock::Wait::No),
            notify,
        })
    }
}

impl Wait<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        if let Some(notify) = &self.notify {
            tickets::check(ctx, self.key, notify.channel)?;
        }
        let is_ticket = self.notify.is_some();
        let wait_asked = possible_wait(ctx, self.wait, is_ticket);
        let request = LatchWait {
            wait: wait_asked,
            notify: self.notify.as_ref().map(NotifyWords::request),
            client: ctx.client_id(),
            user: users::of_caller(ctx, wait_asked, false),
        };
        let key = CountKey::open_read(ctx, self.key);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, self.key)?;
        }
        // The command only reads, so the server itself does not refuse it; a wait needs memory.
        let is_closed = matches!(state, Count::Is(..)) && !state.is_open(now);
        if wait_asked != lock::Wait::No && is_closed && is_out_of_memory() {
            return Err(CommandError::OutOfMemory);
        }
        let (waited, _) = decide(now, |locks, cx| {
            locks
                .latches
                .wait(&mut locks.shared, id, state, &request, cx)
        });
        drop(key);
        match waited? {
            Waited::Open => ctx.reply_integer(1),
            Waited::Closed => ctx.reply_integer(0),
            Waited::Parked(id) => {
                if !is_ticket {
                    parked::expect(id, Shape::Latch);
                }
                alarm::rearm(ctx);
                match wait::<()>(ctx, &[self.key], id, is_ticket)? {
                    Some(Got::Queued) => reply::queued(ctx),
                    Some(_) => ctx.reply_integer(0),
                    None => {}
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
