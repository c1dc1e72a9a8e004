//! Who listens on a lock's channel: Redisson's waiters. The server is asked only where the answer decides
//! something (see `lock::turns`), and each question counts as a `pubsub` in `INFO commandstats`.

use std::ffi::CStr;

use redis_module::raw;

use super::api::api;
use super::ctx::Ctx;
use super::shell;
use super::strings::{OwnedStr, Str};
use crate::lock::{prefixed, KeyRef};

const CHANNEL: &str = "redisson_lock__channel";

/// The channel on which Redisson's clients wait for the release of a lock.
pub fn channel_of(lock: &[u8]) -> OwnedStr {
    OwnedStr::new(&prefixed(CHANNEL, lock))
}

/// Whether somebody listens for the release of this lock, if it depends on that what becomes of it.
pub fn matter(ctx: Ctx, lock: KeyRef<'_>) -> bool {
    shell::with(|shell| shell.locks.depends_on_listeners(lock)) && listen(ctx, lock.name)
}

/// In a cluster Redisson listens on the shard channel of that name, or, in older versions, on the plain one by way
/// of the node that has the lock.
fn listen(ctx: Ctx, lock: &[u8]) -> bool {
    let channel = channel_of(lock);
    let channel = channel.as_str();
    subscribers(ctx, c"NUMSUB", channel) > 0
        || (shell::is_cluster() && subscribers(ctx, c"SHARDNUMSUB", channel) > 0)
}

/// 0 as well where the server does not say, since the command was renamed or forbidden.
fn subscribers(ctx: Ctx, question: &CStr, channel: Str<'_>) -> i64 {
    // SAFETY: "cs" takes one C string and one string, which live through the call. The reply is ours to free;
    // the element is a part of it and only read before. An element that is not there is NULL.
    unsafe {
        let reply = api!(RedisModule_Call)(
            ctx.as_ptr(),
            c"PUBSUB".as_ptr(),
            c"cs".as_ptr(),
            question.as_ptr(),
            channel.as_ptr(),
        );
        if reply.is_null() {
            return 0;
        }
        let is_list =
            api!(RedisModule_CallReplyType)(reply) as isize == raw::REDISMODULE_REPLY_ARRAY;
        let count = match is_list {
            true => api!(RedisModule_CallReplyArrayElement)(reply, 1),
            false => std::ptr::null_mut(),
        };
        let count = match count.is_null() {
            true => 0,
            false => api!(RedisModule_CallReplyInteger)(count),
        };
        api!(RedisModule_FreeCallReply)(reply);
        count
    }
}
