//! Replies that more than one place gives.

use super::ctx::Ctx;
use super::key::LockKey;
use super::strings::Str;
use crate::lock::{KeyState, Now, Token};

/// What an acquire asked to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The token, or nil.
    Token,
    /// With `WITHHOLDER`: the holder too.
    WithHolder,
    /// Whether a latch is open: 1 or 0.
    Latch,
}

/// The reply of an acquire: granted under this token, or not.
pub fn acquired(ctx: Ctx, name: Str<'_>, shape: Shape, granted: Option<Token>, now: Now) {
    match shape {
        Shape::Token | Shape::Latch => token(ctx, granted),
        Shape::WithHolder => token_with_holder(&LockKey::open_read(ctx, name), granted, now),
    }
}

fn token(ctx: Ctx, token: Option<Token>) {
    // Below 2^53 by construction, so the cast loses nothing.
    ctx.reply_maybe(token.map(|token| token.get() as i64));
}

/// The wide reply of `WITHHOLDER`: `[token | nil, holder | nil, hold count, remaining ms]`, as the key
/// stands at `now`, the moment of the decision: by a second look at the clock a lease might have
/// ended since, and nobody would have refused. Without a holder the count is 0 and the time -2;
/// without a TTL it is -1 (as `PTTL`).
fn token_with_holder(key: &LockKey<'_>, granted: Option<Token>, now: Now) {
    let ctx = key.ctx();
    let state = key.read();
    ctx.reply_array(4);
    token(ctx, granted);
    match holder(&state, now) {
        Some((owner, count, deadline_ms)) => {
            ctx.reply_bytes(owner);
            ctx.reply_integer(count.into());
            ctx.reply_integer(deadline_ms.map_or(-1, |end| end - now.wall_ms));
        }
        None => {
            ctx.reply_nil();
            ctx.reply_integer(0);
            ctx.reply_integer(-2);
        }
    }
}

/// The holder with its hold count and the end of its lease; of several readers the one whose lease ends
/// last.
fn holder(state: &KeyState, now: Now) -> Option<(&[u8], u32, Option<i64>)> {
    let KeyState::ReadWrite(lock) = state else {
        let hold = state.hold(now)?;
        return Some((&hold.owner, hold.count, hold.deadline_ms));
    };
    if let Some(writer) = lock.writer(now) {
        return Some((&writer.owner, writer.count, lock.deadline_ms));
    }
    let last = lock.readers(now).max_by_key(|reader| reader.until_ms)?;
    Some((&last.owner, last.count, lock.end_of(last)))
}
