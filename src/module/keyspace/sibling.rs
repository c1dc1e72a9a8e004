//! A sibling key of a lock: a reader's timeout, or the token of a read-write lock.
//!
//! Sibling keys are opened one at a time. The timeout of a dead reader may still exist: the server deletes it when it
//! is opened to write, as for any command. Foreign data in a sibling key counts as no timeout and no token, and is
//! neither overwritten nor deleted.

use crate::lock::TokenRecord;
use crate::module::ffi::checked::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::RawKey;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::replication::Replication;

/// The purpose of a sibling key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiblingKind {
    /// One READ hold.
    Timeout,
    /// The fencing token.
    Token,
}

/// The value of every timeout, as Redisson writes it.
pub(crate) const TIMEOUT: &[u8] = b"1";

/// Whether a sibling key exists. `None` if it has foreign data.
pub(crate) fn has_sibling(ctx: Ctx<'_>, name: Str<'_>, what: SiblingKind) -> Option<bool> {
    let sibling = Sibling::open_to_write(ctx, name);
    if sibling.is_absent() {
        return Some(false);
    }
    sibling.has(what).then_some(true)
}

/// Opens a sibling key to write. `None` if a hold of another lock needs it unchanged: `is_anothers` is called only if
/// `is_in_doubt`, and with the key closed, because it may open the key too.
pub(crate) fn open_own<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    is_in_doubt: impl FnOnce(&Sibling<'a>) -> bool,
    is_anothers: impl FnOnce() -> bool,
) -> Option<Sibling<'a>> {
    let sibling = Sibling::open_to_write(ctx, name);
    if !is_in_doubt(&sibling) {
        return Some(sibling);
    }
    drop(sibling);
    (!is_anothers()).then(|| Sibling::open_to_write(ctx, name))
}

/// A sibling key, open.
pub(crate) struct Sibling<'a> {
    ctx: Ctx<'a>,
    name: Str<'a>,
    /// `None` for an absent key that was opened to read.
    raw: Option<RawKey<'a>>,
}

impl<'a> Sibling<'a> {
    pub(crate) fn open(ctx: Ctx<'a>, name: Str<'a>, mode: u32) -> Sibling<'a> {
        let raw = RawKey::open(ctx, name, mode);
        Sibling { ctx, name, raw }
    }

    pub(crate) fn open_to_write(ctx: Ctx<'a>, name: Str<'a>) -> Sibling<'a> {
        let raw = RawKey::open_to_write(ctx, name);
        Sibling { ctx, name, raw }
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.raw.as_ref().is_none_or(RawKey::is_empty)
    }

    pub(crate) fn deadline(&self) -> Option<i64> {
        self.raw.as_ref()?.end_ms()
    }

    /// The open key, to change it. A key that was opened to write always has a handle.
    fn open_key(&mut self) -> Result<&mut RawKey<'a>, Refused> {
        self.raw.as_mut().ok_or(Refused("RedisModule_OpenKey"))
    }

    /// Whether the key exists and has a value of this kind.
    pub(crate) fn has(&self, what: SiblingKind) -> bool {
        let fits = self.with_text(|value| match what {
            SiblingKind::Timeout => value == TIMEOUT,
            SiblingKind::Token => TokenRecord::parse(value, None).is_some(),
        });
        fits == Some(true)
    }

    /// The result of the body for the key's string; `None` for another type.
    pub(crate) fn with_text<T>(&self, body: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.raw.as_ref()?.with_string(body)
    }

    /// Whether the key exists and its TTL ends later, or never.
    pub(crate) fn is_longer(&self, end_ms: i64) -> bool {
        !self.is_absent() && self.deadline().is_none_or(|end| end > end_ms)
    }

    /// Sets the value and the end, but leaves foreign data, which was written during the hold (`beside` has checked the
    /// key before it began).
    pub(crate) fn put(
        &mut self,
        (value, what): (&[u8], SiblingKind),
        deadline_ms: Option<i64>,
        replication: Replication<'_>,
    ) -> Written {
        let is_there = !self.is_absent();
        if is_there && !self.has(what) {
            return Ok(());
        }
        if let (true, SiblingKind::Timeout, Some(deadline_ms)) = (is_there, what, deadline_ms) {
            // All timeouts have the same value: only the end is new. If the server refuses it, the old end stays.
            return self.expire_at(deadline_ms, replication);
        }
        self.set(&OwnedStr::new(value), replication)?;
        let Some(deadline_ms) = deadline_ms else {
            return Ok(());
        };
        let leased = self.expire_at(deadline_ms, replication);
        if leased.is_err() {
            // Without a TTL a timeout would keep its reader alive for ever.
            let _ = self.delete(replication);
        }
        leased
    }

    pub(crate) fn set(&mut self, value: &OwnedStr, replication: Replication<'_>) -> Written {
        self.open_key()?.set_string(value.as_str())?;
        self.changed();
        replication.set(self.name, value.as_str());
        Ok(())
    }

    pub(crate) fn expire_at(&mut self, deadline_ms: i64, replication: Replication<'_>) -> Written {
        self.open_key()?.expire_at(deadline_ms)?;
        self.changed();
        replication.pexpireat(self.name, deadline_ms);
        Ok(())
    }

    /// Deletes the key, unless it holds foreign data.
    pub(crate) fn delete_own(
        &mut self,
        what: SiblingKind,
        replication: Replication<'_>,
    ) -> Written {
        match self.has(what) {
            true => self.delete(replication),
            false => Ok(()),
        }
    }

    pub(crate) fn delete(&mut self, replication: Replication<'_>) -> Written {
        self.open_key()?.delete()?;
        self.changed();
        replication.del(self.name);
        Ok(())
    }

    /// Marks the key as changed.
    pub(crate) fn changed(&self) {
        self.ctx.signal_modified(self.name);
    }
}
