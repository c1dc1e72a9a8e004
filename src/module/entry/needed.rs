//! Commands of the server that the module needs under their own names.
//!
//! Replicas, the AOF and the native scripts get plain commands, which `RedisModule_Replicate` looks up by name.
//! `rename-command` removes a name, or gives it to another command: then a change would be lost, or be another one. The
//! server renames commands while it reads its configuration, before modules are loaded, and at no other time.

use std::ffi::CStr;

use crate::module::ffi::api::has;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::log;
use crate::module::ffi::strings::{OwnedStr, Str};

/// A command, and a number of words after its name that is wrong for it.
type Needed = (&'static CStr, usize);

/// Without these the module is not loaded. The server puts `MULTI` and `EXEC` around the changes of one decision; it
/// does not load an AOF with an unknown command.
const REQUIRED: [Needed; 16] = [
    (c"DEL", 0),
    (c"HSET", 0),
    (c"HINCRBY", 0),
    (c"HDEL", 0),
    (c"PEXPIREAT", 0),
    (c"PERSIST", 0),
    (c"SET", 0),
    (c"ZADD", 0),
    (c"ZREM", 0),
    (c"PUBLISH", 0),
    (c"SPUBLISH", 0),
    (c"PEXPIRE", 0),
    (c"PTTL", 0),
    (c"INCR", 0),
    (c"MULTI", 1),
    (c"EXEC", 1),
];

/// In a cluster: whether all keys of a request are on this node (`one_slot`).
const REQUIRED_IN_CLUSTER: Needed = (c"EXISTS", 0);

/// Why the module cannot be loaded.
pub fn reason_not_to_load(ctx: Ctx<'_>) -> Option<String> {
    let missing: Vec<_> = REQUIRED
        .into_iter()
        .chain(ctx.is_cluster().then_some(REQUIRED_IN_CLUSTER))
        .filter(|needed| !is_there(ctx, *needed))
        .map(|(name, _)| name.to_string_lossy())
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "this server has no {} under that name (rename-command): changes of locks would not reach replicas, \
             the AOF and waiting clients",
            missing.join(", ")
        )
    })
}

/// Commands that only read, and the features that need them.
const OPTIONAL: [(&CStr, &str); 5] = [
    (c"SCAN", "LOCK.SCAN and LOCK.TOP are refused"),
    (
        c"CLIENT",
        "MODULE UNLOAD is refused, a grant to a client that the server has condemned ends with its lease, and on \
         Redis 7.0 and 7.2, in a cluster, with I/O threads or with TLS, a waiter can get two replies to one request",
    ),
    (
        c"ACL",
        "the only user of the server has a share of the places, as one of several has (lock.user-share); MODULE UNLOAD \
         is refused, but not by Valkey from 9.1 on, which refuses grants to waiters of users with db= instead",
    ),
    (
        c"PUBSUB",
        "locks are not left free for Redisson's waiters (lock.free-after)",
    ),
    (
        c"ZCOUNT",
        "SEM.INFO counts permits whose leases have ended as held",
    ),
];

/// Logs which features do not work because a command has another name.
pub fn warn_of_missing(ctx: Ctx<'_>) {
    let for_7_0 = (c"CLIENT", "LOCK.BREAK is refused to every user");
    let for_7_0 = (!has!(RedisModule_SetCommandACLCategories)).then_some(for_7_0);
    for (name, loss) in OPTIONAL.into_iter().chain(for_7_0) {
        if !is_there(ctx, (name, 0)) {
            let name = name.to_string_lossy();
            log::warning(&format!(
                "this server has no {name} under that name (rename-command): {loss}"
            ));
        }
    }
}

/// Whether the server has this command under its own name: the error for too few or too many words has the command's
/// name. ("S" refuses commands that scripts must not run and "W" every write, so another command of this name that
/// accepts these words changes nothing.)
fn is_there(ctx: Ctx<'_>, (name, words): Needed) -> bool {
    let word = OwnedStr::new(b"x");
    let words: Vec<Str<'_>> = (0..words).map(|_| word.as_str()).collect();
    let Some(reply) = Reply::of(ctx, name, How::Probe, &words) else {
        return false;
    };
    let expected = format!(
        "wrong number of arguments for '{}' command",
        name.to_string_lossy().to_ascii_lowercase()
    );
    let error = reply.whole().error().unwrap_or_default();
    error.ends_with(expected.as_bytes())
}
