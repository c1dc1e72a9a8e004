//! `[READ | WRITE] [EX s | PX ms | SESSION] [BLOCK ms [NOTIFY channel tag]] [ONCE] [WITHHOLDER]`: the options of
//! `LOCK.ACQUIRE` and `LOCK.MACQUIRE`.

use crate::commands::error::CommandError;
use crate::commands::parser::{check_wait, once, Found, NotifyWords, Parser, Word};
use crate::commands::skeleton::possible_wait;
use crate::lock::{Acquire, Lease, Mode, Wait};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::users;

/// The options of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquireOptions<W> {
    /// The kind of hold.
    pub mode: Mode,
    /// The lease: that of `EX` or `PX`, or the default.
    pub lease: Lease,
    /// Whether `EX` or `PX` is given.
    pub names_lease: bool,
    /// `SESSION`
    pub session: bool,
    /// `BLOCK`
    pub wait: Wait,
    /// `NOTIFY`
    pub notify: Option<NotifyWords<W>>,
    /// `ONCE`
    pub once: bool,
    /// `WITHHOLDER`
    pub with_holder: bool,
}

impl<W: Word> AcquireOptions<W> {
    /// Parses the words behind the owner to the end.
    ///
    /// # Errors
    /// Left to right: an unknown option, an error of its value, an option given twice or beside one that it excludes.
    /// At the end: `NOTIFY` without `BLOCK`.
    pub fn parse(parser: &mut Parser<'_, W>) -> Result<AcquireOptions<W>, CommandError> {
        let (mut mode, mut lease) = (None, None);
        let (mut wait, mut notify, mut count_once, mut with_holder) = (None, None, None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"READ" => once(&mut mode, Mode::Read),
                b"WRITE" => once(&mut mode, Mode::Write),
                b"EX" => once(&mut lease, Some(parser.lease("EX", 1_000)?)),
                b"PX" => once(&mut lease, Some(parser.lease("PX", 1)?)),
                b"SESSION" => once(&mut lease, None),
                b"BLOCK" => once(&mut wait, parser.wait()?),
                b"NOTIFY" => once(&mut notify, parser.notify()?),
                b"ONCE" => once(&mut count_once, ()),
                b"WITHHOLDER" => once(&mut with_holder, ()),
                _ => Found::Unknown,
            })
        })?;
        check_wait(wait, notify.as_ref())?;
        Ok(AcquireOptions {
            mode: mode.unwrap_or(Mode::Exclusive),
            lease: parser.or_default(lease.flatten()),
            names_lease: lease.flatten().is_some(),
            session: lease == Some(None),
            wait: wait.unwrap_or(Wait::No),
            notify,
            once: count_once.is_some(),
            with_holder: with_holder.is_some(),
        })
    }
}

impl AcquireOptions<Str<'_>> {
    /// The request to the core. Without a wait where the calling client cannot be parked, and names no channel.
    pub fn request<'a>(&'a self, ctx: Ctx<'_>, owner: &'a [u8]) -> Acquire<'a> {
        let wait = possible_wait(ctx, self.wait, self.notify.is_some());
        Acquire {
            owner,
            mode: self.mode,
            lease: self.lease,
            names_lease: self.names_lease,
            session: self.session,
            once: self.once,
            wait,
            notify: self.notify.as_ref().map(NotifyWords::request),
            client: ctx.client_id(),
            user: users::of_caller(ctx, wait, self.session),
        }
    }
}
