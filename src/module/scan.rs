//! One step of the server's own `SCAN`, in the name of the calling user.

use std::ptr::NonNull;

use redis_module::raw;

use super::api::api;
use super::ctx::Ctx;
use super::strings::{OwnedStr, Str};
use crate::lock::LockError;

/// What one step found.
pub struct Page {
    /// Where the next step goes on; 0: nowhere.
    pub cursor: u64,
    /// Names of keys.
    pub keys: Vec<OwnedStr>,
}

/// A step among the keys with hashes.
///
/// # Errors
/// [`LockError::MayNotScan`] for a user who may not run `SCAN`.
pub fn hashes(
    ctx: Ctx,
    cursor: u64,
    pattern: Option<Str<'_>>,
    count: usize,
) -> Result<Page, LockError> {
    let (cursor, count) = (OwnedStr::of_number(cursor), OwnedStr::of_number(count));
    let options = [b"COUNT".as_slice(), b"TYPE", b"hash", b"MATCH"].map(OwnedStr::new);
    let [count_is, type_is, hash, matches] = options.each_ref().map(OwnedStr::as_str);
    let mut words = vec![cursor.as_str(), count_is, count.as_str(), type_is, hash];
    if let Some(pattern) = pattern {
        words.extend([matches, pattern]);
    }
    run(ctx, &words)?.page().ok_or(LockError::Internal)
}

/// Whether the calling user may run `SCAN` at all: the shortest step is made and forgotten.
///
/// # Errors
/// [`LockError::MayNotScan`] if not.
pub fn may_scan(ctx: Ctx) -> Result<(), LockError> {
    let words = [b"0".as_slice(), b"COUNT", b"1"].map(OwnedStr::new);
    run(ctx, &words.each_ref().map(OwnedStr::as_str)).map(|_| ())
}

/// A reply of the server to ourselves; freed on drop.
struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is a whole one and ours, given up exactly once; its parts go with it.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}

impl Reply {
    fn page(&self) -> Option<Page> {
        let cursor = text(element(self.0, 0)?)?;
        let cursor = std::str::from_utf8(cursor.as_str().bytes())
            .ok()?
            .parse()
            .ok()?;
        let list = element(self.0, 1)?;
        // SAFETY: the reply lives as long as `self`.
        let len = unsafe { api!(RedisModule_CallReplyLength)(list.as_ptr()) };
        let keys = (0..len).map(|at| text(element(list, at)?));
        Some(Page {
            cursor,
            keys: keys.collect::<Option<_>>()?,
        })
    }
}

fn element(
    array: NonNull<raw::RedisModuleCallReply>,
    at: usize,
) -> Option<NonNull<raw::RedisModuleCallReply>> {
    // SAFETY: the reply is live; the element is NULL where there is none, and lives as long.
    NonNull::new(unsafe { api!(RedisModule_CallReplyArrayElement)(array.as_ptr(), at) })
}

fn text(reply: NonNull<raw::RedisModuleCallReply>) -> Option<OwnedStr> {
    let mut len = 0;
    // SAFETY: the reply is live, and the bytes are copied before it goes; NULL: it is no text.
    unsafe {
        let data = api!(RedisModule_CallReplyStringPtr)(reply.as_ptr(), &mut len);
        (!data.is_null()).then(|| OwnedStr::new(std::slice::from_raw_parts(data.cast(), len)))
    }
}

fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<Reply, LockError> {
    let mut argv: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: "C" runs the command as the calling client's user, if he may; "v" takes an array of live
    // strings and its length. The reply is ours.
    let reply = unsafe {
        api!(RedisModule_Call)(
            ctx.as_ptr(),
            c"SCAN".as_ptr(),
            c"Cv".as_ptr(),
            argv.as_mut_ptr(),
            argv.len(),
        )
    };
    NonNull::new(reply).map(Reply).ok_or(LockError::MayNotScan)
}
