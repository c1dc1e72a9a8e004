//! `SEM.INFO key [WAITERS [COUNT n]]`

use crate::commands::arg_specs::{KEY, WAITERS};
use crate::commands::error::CommandError;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::lock::{permits_of, KeyRef, LockError, Now, Permits, SemState, Ticket, NO_END_MS};
use crate::module::acl;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::sem_key::SemKey;
use crate::module::reply;
use crate::module::state::shell;

/// Replies the permits and the waiters of a semaphore, or nil when there is neither.
#[derive(Debug, PartialEq, Eq)]
pub struct Info<W = Str<'static>> {
    pub(crate) key: W,
    /// How many waiters to list.
    pub(crate) list: usize,
}

impl<W: Word> Info<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Info<W>, CommandError> {
        let mut parser = Parser::new::<Info>(words, settings);
        Ok(Info {
            key: parser.key()?,
            list: parser.waiters()?,
        })
    }
}

impl Info<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let now = ctx.now();
        if !acl::may_read(ctx, OwnedStr::new(&permits_of(self.key.bytes())).as_str()) {
            return Err(CommandError::MayNotUsePermits);
        }
        let key = SemKey::open_read(ctx, self.key)?;
        let (state, over) = key.counted_view(now);
        let permits = match state {
            SemState::OtherType => return Err(LockError::WrongType.into()),
            SemState::OtherSet => return Err(LockError::SiblingForeign.into()),
            SemState::OtherString => return Err(LockError::NotCount.into()),
            SemState::Absent => None,
            SemState::There(permits) => Some(permits),
        };
        let waiting = waiting_for(key.id(), now, self.list);
        if permits.is_none() && waiting.count == 0 {
            ctx.reply_nil();
            return Ok(());
        }
        ctx.reply_map(if self.list > 0 { 7 } else { 6 });
        reply_permits(ctx, (permits, over), now);
        reply_waiting(ctx, &waiting, self.list > 0);
        Ok(())
    }
}

impl Command for Info {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"sem.info",
        flags: c"readonly",
        acl: c"read",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells how many permits a semaphore has, how many are free, and who waits",
        complexity: c"O(log(N)) with N permits held, and O(M) with M waiters listed",
        args: &[KEY, WAITERS],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Info::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}

/// The queue of a semaphore, for the reply.
#[derive(Default)]
struct Waiting {
    count: usize,
    longest_ms: u64,
    listed: Vec<Listed>,
}

struct Listed {
    id: Vec<u8>,
    waited_ms: u64,
    left_ms: Option<u64>,
    client: u64,
    ticket: Option<Ticket>,
}

fn waiting_for(key: KeyRef<'_>, now: Now, list: usize) -> Waiting {
    shell::with(|shell| {
        let Some(queue) = shell.locks.shared.waiters.live_queue(key) else {
            return Waiting::default();
        };
        let waited = |since: u64| now.mono_ms.saturating_sub(since);
        let first = queue.iter().next();
        let listed = queue.iter().take(list).map(|(id, waiter)| Listed {
            id: id.to_vec(),
            waited_ms: waited(waiter.since_ms),
            left_ms: waiter
                .deadline_ms()
                .map(|end| end.saturating_sub(now.mono_ms)),
            client: waiter.client,
            ticket: waiter.ticket.clone(),
        });
        Waiting {
            count: queue.live(),
            longest_ms: first.map_or(0, |(_, first)| waited(first.since_ms)),
            listed: listed.collect(),
        }
    })
}

/// A permit whose lease has ended counts as free, even before it is returned to the free ones.
fn reply_permits(ctx: Ctx<'_>, (permits, over): (Option<Permits>, usize), now: Now) {
    let permits = permits.unwrap_or_default();
    let over = over as i64;
    let taken = permits.taken as i64;
    let next = permits.next_end_ms.filter(|end| *end < NO_END_MS);
    ctx.reply_bytes(b"permits");
    ctx.reply_integer(permits.free.saturating_add(taken));
    ctx.reply_bytes(b"free");
    ctx.reply_integer(permits.free.saturating_add(over));
    ctx.reply_bytes(b"held");
    ctx.reply_integer(taken - over);
    ctx.reply_bytes(b"next-end-ms");
    ctx.reply_maybe(next.map(|end| end - now.wall_ms));
}

fn reply_waiting(ctx: Ctx<'_>, waiting: &Waiting, list: bool) {
    ctx.reply_bytes(b"waiters");
    ctx.reply_integer(waiting.count as i64);
    ctx.reply_bytes(b"longest-wait-ms");
    ctx.reply_integer(waiting.longest_ms as i64);
    if !list {
        return;
    }
    ctx.reply_bytes(b"queue");
    ctx.reply_array(waiting.listed.len());
    for waiter in &waiting.listed {
        ctx.reply_map(6);
        ctx.reply_bytes(b"id");
        ctx.reply_bytes(&waiter.id);
        ctx.reply_bytes(b"waited-ms");
        ctx.reply_integer(waiter.waited_ms as i64);
        ctx.reply_bytes(b"left-ms");
        ctx.reply_maybe(waiter.left_ms.map(|ms| ms as i64));
        ctx.reply_bytes(b"client-id");
        ctx.reply_integer(waiter.client as i64);
        reply::ticket(ctx, waiter.ticket.as_ref());
    }
}
