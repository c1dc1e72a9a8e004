//! One step of the server's own `SCAN`, with the permissions of the calling user.

use crate::lock::LockError;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};

/// What one step found.
pub struct Page {
    /// The cursor of the next step; 0 after the last.
    pub cursor: u64,
    /// Names of keys.
    pub keys: Vec<OwnedStr>,
}

/// Runs a step for keys of type hash.
///
/// # Errors
/// [`LockError::MayNotScan`] for a user who may not run `SCAN`.
pub fn hashes(
    ctx: Ctx<'_>,
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
    page(&run(ctx, &words)?).ok_or(LockError::Internal)
}

/// Whether the calling user may run `SCAN` at all: runs the shortest step and drops its reply.
///
/// # Errors
/// [`LockError::MayNotScan`] if not.
pub fn may_scan(ctx: Ctx<'_>) -> Result<(), LockError> {
    let words = [b"0".as_slice(), b"COUNT", b"1"].map(OwnedStr::new);
    run(ctx, &words.each_ref().map(OwnedStr::as_str)).map(|_| ())
}

/// The cursor and the names; `None` for another reply.
fn page(reply: &Reply) -> Option<Page> {
    let cursor = reply.whole().element(0)?.bytes()?;
    let cursor = std::str::from_utf8(cursor).ok()?.parse().ok()?;
    let list = reply.whole().element(1)?.elements()?;
    let keys = list.map(|key| key.bytes().map(OwnedStr::new));
    Some(Page {
        cursor,
        keys: keys.collect::<Option<_>>()?,
    })
}

/// Runs it as the calling client's user, whose permissions the server checks.
fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<Reply, LockError> {
    Reply::of(ctx, c"SCAN", How::AsUser, words).ok_or(LockError::MayNotScan)
}
