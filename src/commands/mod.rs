//! The commands: each file parses one, asks the core, and replies. No rules of locking live here.
//!
//! A command is its description ([`Spec`](crate::module::register::Spec)) and its `run`. `READ`,
//! `WRITE` and `SESSION` will join the options in [`args`], the many-key commands will stand in files
//! of their own beside these; until then their words are a syntax error.

mod acquire;
mod args;
mod brk;
#[cfg(feature = "fault-injection")]
mod fault;
mod help;
mod info;
mod owner;
mod release;
mod renew;

use crate::lock::Token;
use crate::module::ctx::Ctx;
use crate::module::key::LockKey;
use crate::module::register::register;

/// Registers every command; `None` when the server refuses one.
pub fn register_all(ctx: Ctx, own_category: bool) -> Option<()> {
    register::<acquire::Acquire>(ctx, own_category)?;
    register::<release::Release>(ctx, own_category)?;
    register::<renew::Renew>(ctx, own_category)?;
    register::<brk::Break>(ctx, own_category)?;
    register::<info::Info>(ctx, own_category)?;
    register::<owner::Owner>(ctx, own_category)?;
    register::<help::Help>(ctx, own_category)?;
    #[cfg(feature = "fault-injection")]
    register::<fault::Fault>(ctx, own_category)?;
    Some(())
}

/// The wide reply of `WITHHOLDER`: `[token | nil, holder | nil, hold count, remaining ms]`, as the key
/// stands now. Without a holder the count is 0 and the time -2; without a TTL it is -1 (as `PTTL`).
pub fn reply_with_holder(key: &LockKey<'_>, token: Option<Token>) {
    let ctx = key.ctx();
    let now = ctx.now();
    let state = key.read();
    ctx.reply_array(4);
    ctx.reply_maybe(token.map(|token| token.get() as i64));
    match state.hold(now) {
        Some(hold) => {
            ctx.reply_bytes(&hold.owner);
            ctx.reply_integer(hold.count.into());
            ctx.reply_integer(hold.deadline_ms.map_or(-1, |end| end - now.wall_ms));
        }
        None => {
            ctx.reply_nil();
            ctx.reply_integer(0);
            ctx.reply_integer(-2);
        }
    }
}
