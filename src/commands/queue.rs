//! The waiters of a lock or a semaphore, as `LOCK.INFO` and `SEM.INFO` list them.

use crate::lock::{KeyRef, Mode, Now, Resource, Ticket};
use crate::module::ffi::ctx::Ctx;
use crate::module::reply;
use crate::module::state::shell;

/// The queue of a key.
#[derive(Default)]
pub struct Queue {
    resource: Resource,
    /// The mode of the first waiter.
    pub mode: Option<Mode>,
    /// The number of waiters.
    pub waiters: usize,
    longest_wait_ms: u64,
    listed: Vec<Listed>,
}

struct Listed {
    owner: Vec<u8>,
    mode: Mode,
    waited_ms: u64,
    left_ms: Option<u64>,
    client: u64,
    ticket: Option<Ticket>,
    note: Option<Vec<u8>>,
    count: u8,
}

impl Queue {
    /// The queue of this key with its first waiters, `list` of them at most.
    pub fn of(key: KeyRef<'_>, now: Now, list: usize) -> Queue {
        shell::with(|shell| {
            let waiters = &shell.locks.shared.waiters;
            let Some(queue) = waiters.live_queue(key) else {
                return Queue::default();
            };
            let waited = |since: u64| now.mono_ms.saturating_sub(since);
            let listed = queue.iter().take(list).map(|(owner, waiter)| Listed {
                owner: owner.to_vec(),
                mode: waiter.mode,
                waited_ms: waited(waiter.since_ms),
                left_ms: waiter
                    .deadline_ms()
                    .map(|end| end.saturating_sub(now.mono_ms)),
                client: waiter.client,
                ticket: waiter.ticket.clone(),
                note: waiters.note_of(waiter.id).map(<[u8]>::to_vec),
                count: waiter.count(),
            });
            let first = queue.iter().next().map(|(_, first)| first);
            Queue {
                resource: key.resource,
                mode: first.map(|first| first.mode),
                waiters: queue.live(),
                longest_wait_ms: first.map_or(0, |first| waited(first.since_ms)),
                listed: listed.collect(),
            }
        })
    }

    /// Replies the fields `waiters` and `longest-wait-ms`, and `queue` if a list was asked for.
    pub fn reply(&self, ctx: Ctx<'_>, has_list: bool) {
        ctx.reply_bytes(b"waiters");
        ctx.reply_integer(self.waiters as i64);
        ctx.reply_bytes(b"longest-wait-ms");
        ctx.reply_integer(self.longest_wait_ms as i64);
        if has_list {
            ctx.reply_bytes(b"queue");
            ctx.reply_array(self.listed.len());
            for waiter in &self.listed {
                self.reply_waiter(ctx, waiter);
            }
        }
    }

    fn reply_waiter(&self, ctx: Ctx<'_>, waiter: &Listed) {
        match self.resource {
            Resource::Semaphore => {
                ctx.reply_map(7);
                ctx.reply_bytes(b"id");
                ctx.reply_bytes(&waiter.owner);
                ctx.reply_bytes(b"count");
                ctx.reply_integer(waiter.count.into());
            }
            Resource::Lock | Resource::Latch => {
                ctx.reply_map(8);
                ctx.reply_bytes(b"owner");
                ctx.reply_bytes(&waiter.owner);
                ctx.reply_bytes(b"mode");
                ctx.reply_bytes(waiter.mode.name().as_bytes());
            }
        }
        ctx.reply_bytes(b"waited-ms");
        ctx.reply_integer(waiter.waited_ms as i64);
        ctx.reply_bytes(b"left-ms");
        ctx.reply_maybe(waiter.left_ms.map(|ms| ms as i64));
        ctx.reply_bytes(b"client-id");
        ctx.reply_integer(waiter.client as i64);
        reply::ticket(ctx, waiter.ticket.as_ref());
        if self.resource != Resource::Semaphore {
            ctx.reply_bytes(b"note");
            ctx.reply_bytes_or_nil(waiter.note.as_deref());
        }
    }
}
