//! `SEM.ACQUIRE key id [LIMIT permits] [EX s | PX ms | SESSION] [BLOCK ms [NOTIFY channel tag]]`

use std::num::NonZeroU32;

use crate::commands::arg_specs::{option, BLOCK, ID, KEY, LEASE_OR_SESSION};
use crate::commands::error::CommandError;
use crate::commands::parser::{check_wait, once, Found, NotifyWords, ParseSettings, Parser, Word};
use crate::commands::sem::open_permit;
use crate::commands::skeleton::{possible_wait, prepare_session, wait, waiter_of, NewWaiter};
use crate::lock::{Answer, Lease, LockError, SemAcquire, Wait};
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::replication::{self, Replication};
use crate::module::keyspace::sem_key::SemKey;
use crate::module::reply::{self, Got};
use crate::module::state::parked::Shape;
use crate::module::tickets;
use crate::module::users;

/// Takes a permit, or waits for one. Replies the token, or nil.
#[derive(Debug, PartialEq, Eq)]
pub struct Acquire<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) id: W,
    pub(crate) limit: Option<NonZeroU32>,
    pub(crate) lease: Lease,
    pub(crate) names_lease: bool,
    pub(crate) session: bool,
    pub(crate) wait: Wait,
    pub(crate) notify: Option<NotifyWords<W>>,
}

impl<W: Word> Acquire<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key, the id, and the options, in this order; at the end `NOTIFY` without `BLOCK`.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Acquire<W>, CommandError> {
        let mut parser = Parser::new::<Acquire>(words, settings);
        let (key, id) = (parser.key()?, parser.owner()?);
        let (mut limit, mut lease) = (None, None);
        let (mut wait, mut notify) = (None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"LIMIT" => once(&mut limit, permits(parser)?),
                b"EX" => once(&mut lease, Some(parser.lease("EX", 1_000)?)),
                b"PX" => once(&mut lease, Some(parser.lease("PX", 1)?)),
                b"SESSION" => once(&mut lease, None),
                b"BLOCK" => once(&mut wait, parser.wait()?),
                b"NOTIFY" => once(&mut notify, parser.notify()?),
                _ => Found::Unknown,
            })
        })?;
        check_wait(wait, notify.as_ref())?;
        Ok(Acquire {
            key,
            id,
            limit,
            lease: parser.or_default(lease.flatten()),
            names_lease: lease.flatten().is_some(),
            session: lease == Some(None),
            wait: wait.unwrap_or(Wait::No),
            notify,
        })
    }
}

/// The value of `LIMIT`: from 1 to 2^31-1 permits.
fn permits<W: Word>(parser: &mut Parser<'_, W>) -> Result<NonZeroU32, CommandError> {
    let permits = i32::try_from(parser.number("LIMIT", 1)?);
    let permits = permits.ok().map(i32::unsigned_abs);
    permits
        .and_then(NonZeroU32::new)
        .ok_or_else(|| LockError::TooManyPermits.into())
}

impl Acquire<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        if self.session {
            prepare_session(ctx)?;
        }
        if let Some(notify) = &self.notify {
            tickets::check(ctx, self.key, notify.channel)?;
        }
        let wait_asked = possible_wait(ctx, self.wait, self.notify.is_some());
        let request = SemAcquire {
            id: self.id.bytes(),
            lease: self.lease,
            names_lease: self.names_lease,
            session: self.session,
            limit: self.limit,
            wait: wait_asked,
            notify: self.notify.as_ref().map(NotifyWords::request),
            client: ctx.client_id(),
            user: users::of_caller(ctx, wait_asked, self.session),
        };
        let (key, view, now) = open_permit(ctx, self.key, self.id, SemKey::minting_view)?;
        let ((answer, change), fx) = decide(now, |locks, cx| {
            locks.sems.acquire(&mut locks.shared, &view, &request, cx)
        });
        let (is_ticket, waiter) = (request.notify.is_some(), waiter_of(&answer));
        let new = NewWaiter::expect(ctx, waiter, Shape::Token, is_ticket);
        let is_unchanged = change.is_empty() && fx.is_empty();
        key.apply(&change, &fx, Replication::of_command(ctx))?;
        new.finish();
        alarm::rearm(ctx);
        let got = match answer? {
            Answer::Parked(id) => wait(ctx, &[self.key], id, is_ticket)?,
            Answer::Refused => Some(Got::Nothing),
            Answer::Granted(token) => {
                replication::confirm(ctx, self.key, is_unchanged);
                Some(Got::Granted(token))
            }
        };
        if let Some(got) = got {
            reply::acquired(ctx, self.key, Shape::Token, got, now);
        }
        Ok(())
    }
}

impl Command for Acquire {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"sem.acquire",
        flags: c"write deny-oom fast blocking",
        acl: c"write fast blocking",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Takes a permit of a semaphore for an id, or waits for one, and returns the token of the grant",
        complexity: c"O(log(N)) with N permits held, however many wait",
        args: &[
            KEY,
            ID,
            option(c"permits", c"LIMIT", true),
            LEASE_OR_SESSION,
            BLOCK,
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Acquire::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
