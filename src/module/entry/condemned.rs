//! Clients that the server has condemned: it closes them at the end of the tick, and discards all replies to them
//! until then.
//!
//! A grant to such a client would block the lock for a whole lease. No function of the API says that a client is
//! condemned, and the disconnect callback is called before the answer or never. `CLIENT LIST` shows it, for 19,000
//! instructions, a fifth of a hand-off; so it is called only where the server has a reason to condemn a client while
//! it is parked. There are two (for all other reasons the server closes the connection at once and calls the
//! disconnect callback):
//!
//! * its user is deleted, or missing in the file that `ACL LOAD` reads: from then on the client belongs to the
//!   default user;
//! * its output buffer has overflowed: if `client-output-buffer-limit` limits the buffers of normal clients
//!   (by default it does not), or if the client has subscribed (in RESP2 a subscribed client cannot send our
//!   commands).

use std::ffi::CStr;

use redis_module::raw;

use crate::lock::WaiterId;
use crate::module::ffi::api::api;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::shell;
use crate::module::state::shell::Risks;

/// The user that cannot be deleted.
const DEFAULT_USER: &[u8] = b"default";

/// The risks of the calling client, which is parked for this request.
pub fn risks_of(ctx: Ctx<'_>, request: WaiterId) -> Risks {
    let is_default = shell::with(|shell| {
        let user = shell.locks.shared.waiters.user_of_request(request);
        shell.users.number_of(DEFAULT_USER) == Some(user)
    });
    Risks {
        user: !is_default,
        messages: ctx.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 != 0,
    }
}

/// Whether the client of this call, whose reply has been written, was condemned before the reply or by it.
pub fn is_lost(risks: Risks, ctx: Ctx<'_>) -> bool {
    let is_suspect = buffers_are_limited(ctx)
        || (risks.user && is_default(ctx))
        || (risks.messages && ctx.is_subscribed());
    is_suspect && is_condemned(ctx) && !fault::is_on("condemned-client-keeps-its-grant")
}

/// The server's setting that limits the buffers of clients.
pub const BUFFER_LIMITS: &CStr = c"client-output-buffer-limit";

/// Whether the buffers of normal clients are limited; if the server refuses to say, they count as limited. The setting
/// is read when a grant to a waiter asks first after a change.
fn buffers_are_limited(ctx: Ctx<'_>) -> bool {
    if let Some(limited) = shell::with(|shell| shell.buffers_are_limited) {
        return limited;
    }
    let limits = Reply::of_setting(ctx, BUFFER_LIMITS);
    let limited = limits.is_none_or(|limits| limits_normal(&limits));
    shell::with(|shell| shell.buffers_are_limited = Some(limited));
    limited
}

/// Whether these settings (`class hard soft seconds`, for each class) limit the class `normal`.
fn limits_normal(limits: &[u8]) -> bool {
    let mut words = limits.split(|byte| *byte == b' ');
    if !words.any(|word| word == b"normal") {
        return true;
    }
    let mut next_is_set = || words.next() != Some(b"0");
    let hard = next_is_set();
    let soft = next_is_set();
    hard || (soft && next_is_set())
}

fn is_default(ctx: Ctx<'_>) -> bool {
    // SAFETY: the context is live; the string is ours to free. It is NULL for a client without a user.
    let name = unsafe {
        let name = api!(RedisModule_GetClientUserNameById)(ctx.as_ptr(), ctx.client_id());
        OwnedStr::from_raw(name)
    };
    name.is_none_or(|name| name.as_str().bytes() == DEFAULT_USER)
}

/// Whether `CLIENT LIST` shows the client as condemned; false if the command has another name.
fn is_condemned(ctx: Ctx<'_>) -> bool {
    let words = [
        OwnedStr::new(b"LIST"),
        OwnedStr::new(b"ID"),
        OwnedStr::of_number(ctx.client_id()),
    ];
    let words = words.each_ref().map(OwnedStr::as_str);
    let reply = Reply::of(ctx, c"CLIENT", How::AsModule, &words);
    reply.is_some_and(|reply| reply.whole().bytes().is_some_and(says_condemned))
}

/// Whether a line of `CLIENT LIST` has a flag of a client that gets no more replies: `A`, to be closed as soon as
/// possible, or `c`, to be closed after the output that is in its buffer.
fn says_condemned(line: &[u8]) -> bool {
    // A client's name, the only text before the flags that a client chooses, has no space.
    const FLAGS: &[u8] = b" flags=";
    let Some(at) = line.windows(FLAGS.len()).position(|word| word == FLAGS) else {
        return false;
    };
    let flags = line.iter().skip(at + FLAGS.len());
    flags
        .take_while(|letter| **letter != b' ')
        .any(|letter| matches!(letter, b'A' | b'c'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_client_list_is_read() {
        let says = |line: &str| says_condemned(line.as_bytes());
        assert!(says("id=1 addr=[::1]:2 name=n age=1 flags=PbA db=0 cmd=A"));
        assert!(says("id=1 addr=a:2 flags=c db=0"));
        assert!(!says(
            "id=1 addr=A:2 name=flags=A age=1 flags=Pb db=0 cmd=cA user=A"
        ));
        assert!(!says(""));
    }

    #[test]
    fn limits_of_normal_clients_are_read() {
        let limits = |text: &str| limits_normal(text.as_bytes());
        assert!(!limits(
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
        ));
        assert!(!limits("slave 1 1 1 normal 0 1024 0"));
        assert!(limits("normal 1 0 0 slave 0 0 0 pubsub 0 0 0"));
        assert!(limits("normal 0 1 1 slave 0 0 0 pubsub 0 0 0"));
        assert!(limits(""));
    }
}
