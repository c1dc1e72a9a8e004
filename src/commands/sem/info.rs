//! `SEM.INFO key [WAITERS [COUNT n]]`

use crate::commands::args::{Args, KEY};
use crate::commands::info::{wanted, WAITERS};
use crate::lock::{KeyRef, LockError, Now, Permits, SemState, NO_END_MS};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::state::shell;

/// How many permits a semaphore has, how many are free, who waits.
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"sem.info",
        flags: c"readonly",
        acl: c"read",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells how many permits a semaphore has, how many are free, and who waits",
        complexity: c"O(N) in the number of permits that are over and of waiters listed",
        args: &[KEY, WAITERS],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let list = wanted(&mut args)?;
        let now = ctx.now();
        let key = SemKey::open_read(ctx, name)?;
        let permits = match key.whole_view(now) {
            SemState::OtherType => return Err(LockError::WrongType),
            SemState::OtherSet => return Err(LockError::SiblingForeign),
            SemState::OtherString => return Err(LockError::NotCount),
            SemState::Absent => None,
            SemState::There(permits) => Some(permits),
        };
        let waiting = waiting_for(key.id(), now, list);
        if permits.is_none() && waiting.count == 0 {
            ctx.reply_nil();
            return Ok(());
        }
        ctx.reply_map(if list > 0 { 7 } else { 6 });
        reply_permits(ctx, permits, now);
        reply_waiting(ctx, &waiting, list > 0);
        Ok(())
    }
}

/// Who waits for a permit.
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
}

fn waiting_for(key: KeyRef<'_>, now: Now, list: usize) -> Waiting {
    shell::with(|shell| {
        let Some(queue) = shell.locks.sems.queue(key) else {
            return Waiting::default();
        };
        let waited = |since: u64| now.mono_ms.saturating_sub(since);
        let first = queue.iter().next();
        let listed = queue.iter().take(list).map(|(id, waiter)| Listed {
            id: id.to_vec(),
            waited_ms: waited(waiter.since_ms),
            left_ms: waiter
                .deadline_ms
                .map(|end| end.saturating_sub(now.mono_ms)),
            client: waiter.client,
        });
        Waiting {
            count: queue.live(),
            longest_ms: first.map_or(0, |(_, first)| waited(first.since_ms)),
            listed: listed.collect(),
        }
    })
}

/// A permit that is over counts as free, even if nobody has taken it back yet.
fn reply_permits(ctx: Ctx, permits: Option<Permits>, now: Now) {
    let permits = permits.unwrap_or_default();
    let over = permits.ended.len() as i64;
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

fn reply_waiting(ctx: Ctx, waiting: &Waiting, list: bool) {
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
        ctx.reply_map(4);
        ctx.reply_bytes(b"id");
        ctx.reply_bytes(&waiter.id);
        ctx.reply_bytes(b"waited-ms");
        ctx.reply_integer(waiter.waited_ms as i64);
        ctx.reply_bytes(b"left-ms");
        ctx.reply_maybe(waiter.left_ms.map(|ms| ms as i64));
        ctx.reply_bytes(b"client-id");
        ctx.reply_integer(waiter.client as i64);
    }
}
