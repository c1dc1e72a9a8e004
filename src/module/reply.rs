//! Replies that commands and parked clients share.

use crate::lock::{Now, Ticket, Token};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::state::shell::Shape;

/// What an acquire got.
pub enum Got<T> {
    /// The grant, under this token or these.
    Granted(T),
    /// Nothing: nil.
    Nothing,
    /// A place in the queue, as a ticket.
    Queued,
}

impl<T> From<Option<T>> for Got<T> {
    fn from(granted: Option<T>) -> Got<T> {
        granted.map_or(Got::Nothing, Got::Granted)
    }
}

/// The reply of an acquire: the token of a grant, nil, or `QUEUED`.
pub fn acquired(ctx: Ctx<'_>, name: Str<'_>, shape: Shape, got: Got<Token>, now: Now) {
    match shape {
        Shape::WithHolder => {
            ctx.reply_array(4);
            token_or_queued(ctx, got);
            with_holder(&LockKey::open_read(ctx, name), now);
        }
        _ => token_or_queued(ctx, got),
    }
}

/// The reply of an acquire of many keys.
pub fn acquired_all(ctx: Ctx<'_>, got: Got<impl AsRef<[Token]>>) {
    match got {
        Got::Granted(tokens) => {
            ctx.reply_array(tokens.as_ref().len());
            for granted in tokens.as_ref() {
                token(ctx, *granted);
            }
        }
        Got::Nothing => ctx.reply_nil_array(),
        Got::Queued => queued(ctx),
    }
}

/// The reply of a wait for a latch: whether it is open, or `QUEUED`.
pub fn is_open(ctx: Ctx<'_>, got: Got<()>) {
    match got {
        Got::Granted(()) => ctx.reply_integer(1),
        Got::Nothing => ctx.reply_integer(0),
        Got::Queued => queued(ctx),
    }
}

fn token_or_queued(ctx: Ctx<'_>, got: Got<Token>) {
    match got {
        Got::Granted(granted) => token(ctx, granted),
        Got::Nothing => ctx.reply_nil(),
        Got::Queued => queued(ctx),
    }
}

fn token(ctx: Ctx<'_>, token: Token) {
    // Below 2^53 by construction, so the cast loses nothing.
    ctx.reply_integer(token.get() as i64);
}

/// Two fields of a listed waiter: channel and tag of a ticket, nil for a parked request.
pub fn ticket(ctx: Ctx<'_>, ticket: Option<&Ticket>) {
    for (name, value) in [
        (b"channel".as_slice(), ticket.map(Ticket::channel)),
        (b"tag", ticket.map(Ticket::tag)),
    ] {
        ctx.reply_bytes(name);
        ctx.reply_bytes_or_nil(value);
    }
}

/// The reply to a request that waits as a ticket.
fn queued(ctx: Ctx<'_>) {
    ctx.reply_status(c"QUEUED");
}

/// The rest of the reply of `WITHHOLDER`: `holder | nil, hold count, remaining ms`; of several readers, the one whose
/// lease ends last. `now` is the time of the decision:
/// at a later time the lease of the holder that excludes the request could be over. Without a holder the count is 0 and
/// the remaining time -2; without a TTL the time is -1 (as `PTTL`).
fn with_holder(key: &LockKey<'_>, now: Now) {
    let ctx = key.ctx();
    let state = key.read();
    let holders = state.holders(now).into_iter();
    match holders.max_by_key(|holder| holder.deadline_ms.unwrap_or(i64::MAX)) {
        Some(holder) => {
            ctx.reply_bytes(holder.owner);
            ctx.reply_integer(holder.count.into());
            let end_ms = holder.deadline_ms;
            ctx.reply_integer(end_ms.map_or(-1, |end| end - now.wall_ms));
        }
        None => {
            ctx.reply_nil();
            ctx.reply_integer(0);
            ctx.reply_integer(-2);
        }
    }
}
