//! The read-write lock's hash and the keys beside it: reading as much as a decision needs, and the small
//! writes that the core asks for.
//!
//! The keys beside the hash are opened one by one, for a moment each. That of a dead reader may still be
//! there; opening it to write makes the server delete it, as any command would. Foreign data in one of these keys
//! counts as no timeout and no token, and is neither written over nor deleted.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

use redis_module::raw;

use crate::lock::{
    is_read_write, is_reserved, write_field, KeyState, Mode, Now, OwnerId, ReadDepth, ReadWrite,
    Reader, RwFields, RwWrite, TokenRecord, MODE_FIELD, MOST_READS,
};
use crate::module::api::{api, checked, fallible, Refused, Written};
use crate::module::beside;
use crate::module::count_key::is_empty;
use crate::module::ctx::Ctx;
use crate::module::key::{self, field, scan_to, Fields, LockKey};
use crate::module::replication::Replication;
use crate::module::shell;
use crate::module::strings::{OwnedStr, Str};

impl Fields for RwFields {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        RwFields::field(self, field, value);
    }
}

/// Reads a hash that is no exclusive lock.
pub(crate) fn read(
    key: &LockKey<'_>,
    handle: NonNull<raw::RedisModuleKey>,
    fields: usize,
    depth: ReadDepth,
    now: Option<Now>,
) -> KeyState {
    let mode_field = OwnedStr::new(MODE_FIELD);
    let Some(mode) = field(handle, mode_field.as_str()) else {
        return KeyState::OtherHash;
    };
    if !is_read_write(mode.as_str().bytes()) {
        return KeyState::OtherHash;
    }
    let at = now.unwrap_or_else(|| key.ctx().now());
    let reading = Reading {
        key,
        handle,
        depth,
        now: at,
        token_record: read_token_record(key),
    };
    let is_read = mode.as_str().bytes() == b"read";
    let lock = reading.read(fields, is_read);
    note_wrote_beside(key, lock.as_ref(), at);
    match lock.filter(|lock| lock.is_plausible(at)) {
        Some(lock) => KeyState::ReadWrite(Box::new(lock)),
        None => KeyState::OtherHash,
    }
}

/// Notes which of the keys beside the lock this server wrote last: for those no look-up of the twin is needed.
fn note_wrote_beside(key: &LockKey<'_>, lock: Option<&ReadWrite>, now: Now) {
    if let (Some(owner), Some(lock)) = (key.owner_name(), lock) {
        let wrote = shell::with(|shell| shell.locks.wrote_beside(key.id(), owner, lock, now));
        key.set_wrote_beside(wrote);
    }
}

struct Reading<'a> {
    key: &'a LockKey<'a>,
    handle: NonNull<raw::RedisModuleKey>,
    depth: ReadDepth,
    now: Now,
    token_record: Option<TokenRecord>,
}

impl Reading<'_> {
    /// `None` for a hash of another layout.
    fn read(self, fields: usize, is_read: bool) -> Option<ReadWrite> {
        let mut lock = ReadWrite {
            deadline_ms: self.key.deadline(self.handle),
            ..ReadWrite::default()
        };
        // The owner who asks, and whoever the token was given to for WRITE: by name.
        let own = self.key.owner().map(Str::bytes);
        let recorded = self
            .token_record
            .as_ref()
            .and_then(|token_record| token_record.writer.as_deref());
        let recorded = recorded.filter(|recorded| is_read && Some(*recorded) != own);
        for owner in own.into_iter().chain(recorded) {
            lock.readers.extend(self.reader_by_name(owner)?);
        }
        if is_read && self.depth == ReadDepth::Own && lock.deadline_ms.is_some() {
            lock.is_whole = fields == 1 + lock.readers.len();
        } else {
            self.read_fields(&mut lock, is_read)?;
        }
        lock.token_record = self.token_record;
        Some(lock)
    }

    /// Reads the hash field by field. `None` for one of another layout.
    fn read_fields(&self, lock: &mut ReadWrite, is_read: bool) -> Option<()> {
        let known: Vec<_> = lock.readers.iter().map(|r| r.owner.clone()).collect();
        let mut read = RwFields::default();
        let mut living = 0;
        let mut others = Vec::new();
        let is_whole = scan_to(self.handle, &mut read, |read| {
            living += self.take_readers(read, &known, &mut others);
            self.depth != ReadDepth::Two || !is_read || living < 2
        });
        self.take_readers(&mut read, &known, &mut others);
        if is_whole && self.depth == ReadDepth::Two {
            // Then the end of the hash may depend on theirs, and a later hold of a script may last longer.
            for other in others.iter_mut().filter(|other| other.count > 1) {
                *other = self.reader(&other.owner, other.count, true);
            }
        }
        if !is_whole {
            // The field of the mode may be among those that were not read.
            read.field(MODE_FIELD, b"read");
        }
        lock.writer = read.finish()?;
        lock.readers.extend(others);
        lock.is_whole = is_whole;
        Some(())
    }

    /// Looks at the timeouts of readers whose fields were read. Answers how many live.
    fn take_readers(
        &self,
        read: &mut RwFields,
        known: &[OwnerId],
        others: &mut Vec<Reader>,
    ) -> usize {
        let is_deep = self.depth == ReadDepth::All;
        let mut living = 0;
        for (owner, count) in read.readers.drain(..) {
            if known.contains(&owner) {
                continue;
            }
            let reader = self.reader(&owner, count, is_deep);
            living += usize::from(reader.until_ms > self.now.wall_ms);
            others.push(reader);
        }
        living
    }

    /// The READ holds of one owner, if it has any. `None` where its field holds no count.
    fn reader_by_name(&self, owner: &[u8]) -> Option<Option<Reader>> {
        let name = OwnedStr::new(owner);
        let Some(value) = field(self.handle, name.as_str()) else {
            return Some(None);
        };
        let mut one = RwFields::default();
        one.field(owner, value.as_str().bytes());
        let is_deep = self.depth != ReadDepth::Own;
        match one.readers.pop() {
            Some((owner, count)) => Some(Some(self.reader(&owner, count, is_deep))),
            // Redisson's own fields are no owners.
            None if is_reserved(owner) => Some(None),
            None => None,
        }
    }

    /// Looks at the timeouts of a reader: at all, or only to see whether it lives.
    fn reader(&self, owner: &[u8], count: u32, is_deep: bool) -> Reader {
        let mut reader = Reader {
            owner: OwnerId::from_slice(owner),
            count,
            first_ms: 0,
            until_ms: 0,
        };
        self.key.with_timeouts(owner, |names| {
            for number in numbers(1, count) {
                let end_ms = names.with(number, |name| self.end_of(name));
                if number == 1 {
                    reader.first_ms = end_ms;
                }
                reader.until_ms = reader.until_ms.max(end_ms);
                if !is_deep && end_ms > self.now.wall_ms {
                    break;
                }
            }
        });
        reader
    }

    /// When a timeout ends: 0 where there is none, the end of all time where it has no TTL.
    fn end_of(&self, name: Str<'_>) -> i64 {
        let key = Sibling::open(self.key.ctx(), name, self.key.mode());
        if !key.has(Beside::Timeout) {
            return 0;
        }
        key.deadline().unwrap_or(i64::MAX)
    }
}

/// The first number, and then the others from the newest down: not all, if there are absurdly many.
fn numbers(from: u32, to: u32) -> impl Iterator<Item = u32> {
    let last = to.saturating_sub(MOST_READS - 2).max(from + 1);
    std::iter::once(from).chain((last..=to).rev())
}

fn read_token_record(key: &LockKey<'_>) -> Option<TokenRecord> {
    let sibling = Sibling::open(key.ctx(), key.token_name(), key.mode());
    let deadline_ms = sibling.deadline();
    let token_record = sibling.with_text(|value| TokenRecord::parse(value, deadline_ms))??;
    // The server may not have noticed yet that its time is over.
    let now_ms = key.ctx().now().wall_ms;
    token_record
        .deadline_ms
        .is_none_or(|end| end > now_ms)
        .then_some(token_record)
}

/// Makes one change.
///
/// # Errors
/// When the server refuses.
pub(crate) fn write(key: &mut LockKey<'_>, change: &RwWrite, replication: Replication) -> Written {
    let ctx = key.ctx();
    let may_be_twins = key.token_may_be_twins();
    let is_twins = || key.twin_is_held();
    match change {
        RwWrite::Clear => key.delete(replication),
        RwWrite::Begin(mode, owner) => {
            let (field, one) = (field_of(*mode, owner), OwnedStr::of_number(1u32));
            let pairs = [mode_pair(*mode), (field, one)];
            set_fields(key, &pairs, replication)
        }
        RwWrite::Mode(mode) => set_fields(key, &[mode_pair(*mode)], replication),
        RwWrite::Count(mode, owner, (_, count)) => {
            set_count(key, (*mode, owner), *count, replication)
        }
        RwWrite::Drop(mode, owner) => drop_field(key, &field_of(*mode, owner), replication),
        RwWrite::Timeouts(owner, range, end_ms) => {
            set_timeouts(key, owner, (*range, *end_ms), replication)
        }
        RwWrite::DropTimeouts(owner, range) => drop_timeouts(key, owner, *range, replication),
        RwWrite::Lease(end_ms) => key.set_deadline(*end_ms, replication),
        RwWrite::TokenRecord(token_record) => {
            let is_there = |sibling: &Sibling<'_>| may_be_twins && sibling.has(Beside::Token);
            let value = (&token_record.value()[..], Beside::Token);
            match open_own(ctx, key.token_name(), is_there, is_twins) {
                Some(sibling) => sibling.put(value, token_record.deadline_ms, replication),
                None => Ok(()),
            }
        }
        RwWrite::TokenRecordLease(end_ms) => {
            let is_longer = |sibling: &Sibling<'_>| may_be_twins && sibling.is_longer(*end_ms);
            match open_own(ctx, key.token_name(), is_longer, is_twins) {
                Some(sibling) if sibling.has(Beside::Token) => {
                    sibling.expire_at(*end_ms, replication)
                }
                _ => Ok(()),
            }
        }
        RwWrite::DropTokenRecord => {
            let is_there = |sibling: &Sibling<'_>| may_be_twins && sibling.has(Beside::Token);
            match open_own(ctx, key.token_name(), is_there, is_twins) {
                Some(sibling) => sibling.delete_own(Beside::Token, replication),
                None => Ok(()),
            }
        }
    }
}

/// Sets timeouts of a reader. Those that last longer and may be another lock's are left: a script may have made the same
/// owner a reader of both.
fn set_timeouts(
    key: &LockKey<'_>,
    owner: &[u8],
    ((from, to), end_ms): ((u32, u32), i64),
    replication: Replication,
) -> Written {
    let ctx = key.ctx();
    key.with_timeouts(owner, |names| {
        let may_share = !key.owns_timeouts_of(owner);
        let is_anothers = || beside::are_shared(key, owner, names);
        numbers(from, to).try_for_each(|number| {
            names.with(number, |name| {
                let is_longer = |sibling: &Sibling<'_>| may_share && sibling.is_longer(end_ms);
                let value = (TIMEOUT, Beside::Timeout);
                match open_own(ctx, name, is_longer, is_anothers) {
                    Some(sibling) => sibling.put(value, Some(end_ms), replication),
                    None => Ok(()),
                }
            })
        })
    })
}

/// Deletes timeouts of a reader, unless they may be another lock's as well: then they run out by themselves.
fn drop_timeouts(
    key: &LockKey<'_>,
    owner: &[u8],
    (from, to): (u32, u32),
    replication: Replication,
) -> Written {
    let ctx = key.ctx();
    key.with_timeouts(owner, |names| {
        if !key.owns_timeouts_of(owner) && beside::are_shared(key, owner, names) {
            return Ok(());
        }
        numbers(from, to).try_for_each(|number| {
            names.with(number, |name| {
                Sibling::open_to_write(ctx, name).delete_own(Beside::Timeout, replication)
            })
        })
    })
}

/// Takes back a change, because a later one of the same decision was refused; `before` is the change before it. A hold
/// that was to begin goes, a re-entry is not counted, a WRITE that was to end stays.
///
/// # Errors
/// When the server refuses that as well.
pub(crate) fn take_back(
    key: &mut LockKey<'_>,
    change: &RwWrite,
    before: Option<&RwWrite>,
    replication: Replication,
) -> Written {
    match change {
        RwWrite::Timeouts(owner, (first, last), _) if first == last => {
            let is_new = match before {
                Some(RwWrite::Count(Mode::Read, _, (reads, more))) => reads < more && more == last,
                Some(RwWrite::Begin(Mode::Read, _)) => *last == 1,
                _ => false,
            };
            // Otherwise the timeout belongs to an older hold and stays.
            match is_new {
                true => drop_timeouts(key, owner, (*first, *last), replication),
                false => Ok(()),
            }
        }
        RwWrite::Count(mode, owner, (0, _)) => {
            drop_field(key, &field_of(*mode, owner), replication)
        }
        RwWrite::Count(mode, owner, (count, _)) => {
            set_count(key, (*mode, owner), *count, replication)
        }
        RwWrite::Begin(mode, owner) => {
            drop_field(key, &field_of(*mode, owner), replication)?;
            let handle = key.open_key()?;
            // SAFETY: the handle is open.
            let fields = unsafe { api!(RedisModule_ValueLength)(handle.as_ptr()) };
            match fields > 1 {
                true => set_fields(key, &[mode_pair(Mode::Read)], replication),
                false => key.delete(replication),
            }
        }
        RwWrite::Drop(Mode::Write, owner) => {
            let pair = (field_of(Mode::Write, owner), OwnedStr::of_number(1u32));
            set_fields(key, &[mode_pair(Mode::Write), pair], replication)
        }
        _ => Ok(()),
    }
}

fn set_count(
    key: &LockKey<'_>,
    (mode, owner): (Mode, &[u8]),
    count: u32,
    replication: Replication,
) -> Written {
    let pair = (field_of(mode, owner), OwnedStr::of_number(count));
    set_fields(key, &[pair], replication)
}

fn mode_pair(mode: Mode) -> (OwnedStr, OwnedStr) {
    let value: &[u8] = match mode {
        Mode::Write => b"write",
        _ => b"read",
    };
    (OwnedStr::new(MODE_FIELD), OwnedStr::new(value))
}

fn field_of(mode: Mode, owner: &[u8]) -> OwnedStr {
    match mode {
        Mode::Write => OwnedStr::new(&write_field(owner)),
        _ => OwnedStr::new(owner),
    }
}

/// Sets one or two fields of the hash.
fn set_fields(
    key: &LockKey<'_>,
    pairs: &[(OwnedStr, OwnedStr)],
    replication: Replication,
) -> Written {
    let mut words = vec![key.name().as_ptr()];
    for (field, value) in pairs {
        words.extend([field.as_ptr(), value.as_ptr()]);
    }
    key::set_fields(key.open_key()?, &words)?;
    replication.hset(&words);
    Ok(())
}

fn drop_field(key: &LockKey<'_>, name: &OwnedStr, replication: Replication) -> Written {
    let handle = key.open_key()?;
    // SAFETY: the handle is open for writing and holds a hash; the variadic list is a live string, the
    // value that means deletion, and the NULL that ends it.
    let dropped = unsafe {
        fallible!(
            RedisModule_HashSet(
                handle.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                name.as_ptr(),
                raw::REDISMODULE_HASH_DELETE,
                null_mut::<c_void>(),
            ),
            0
        )
    };
    // None is dropped as well where the field has run out by itself meanwhile.
    if dropped == 0 && !is_empty(handle) && field(handle, name.as_str()).is_some() {
        return Err(Refused("RedisModule_HashSet"));
    }
    replication.hdel(key.name(), name.as_str());
    Ok(())
}

/// What a key beside a lock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// One READ hold.
    Timeout,
    /// The fencing token.
    Token,
}

/// The value of every timeout, Redisson's.
const TIMEOUT: &[u8] = b"1";

/// Whether a key beside a lock is there. `None` where it holds something else than what it is for.
pub(crate) fn is_there(ctx: Ctx, name: Str<'_>, what: Beside) -> Option<bool> {
    let sibling = Sibling::open_to_write(ctx, name);
    if sibling.is_absent() {
        return Some(false);
    }
    sibling.has(what).then_some(true)
}

/// Opens a key beside the lock to write. `None`: another lock's hold needs it as it is. That is asked only in doubt, and
/// with the key closed, for the question may open it as well.
fn open_own<'a>(
    ctx: Ctx,
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

/// A key beside the lock, open for a moment.
struct Sibling<'a> {
    ctx: Ctx,
    name: Str<'a>,
    /// Closed on drop; NULL for an absent key that was opened to read.
    raw: *mut raw::RedisModuleKey,
}

impl<'a> Sibling<'a> {
    fn open(ctx: Ctx, name: Str<'a>, mode: u32) -> Sibling<'a> {
        // SAFETY: context and name are live; the handle is closed by Drop, within this call. (NULL is given for an
        // absent key that is opened to read, and for nothing else.)
        let raw = unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode as c_int) };
        Sibling {
            ctx,
            name,
            raw: raw.cast(),
        }
    }

    fn open_to_write(ctx: Ctx, name: Str<'a>) -> Sibling<'a> {
        Sibling::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    fn kind(&self) -> isize {
        // SAFETY: the handle is open, or NULL, which the server takes for an empty key.
        unsafe { api!(RedisModule_KeyType)(self.raw) as isize }
    }

    fn is_absent(&self) -> bool {
        self.kind() == raw::REDISMODULE_KEYTYPE_EMPTY
    }

    fn deadline(&self) -> Option<i64> {
        if self.is_absent() {
            return None;
        }
        // SAFETY: the handle is open.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(self.raw) };
        (at != raw::REDISMODULE_NO_EXPIRE.into()).then_some(at)
    }

    /// Whether the key is there and holds what it is for.
    fn has(&self, what: Beside) -> bool {
        let fits = self.with_text(|value| match what {
            Beside::Timeout => value == TIMEOUT,
            Beside::Token => TokenRecord::parse(value, None).is_some(),
        });
        fits == Some(true)
    }

    /// What the body makes of the key's text, if it is a string.
    fn with_text<T>(&self, body: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.kind() != raw::REDISMODULE_KEYTYPE_STRING {
            return None;
        }
        // SAFETY: the handle is open and holds a string; its bytes are only read, before anything
        // can change the key.
        unsafe {
            let mut len = 0;
            let read = raw::REDISMODULE_READ as c_int;
            let data = fallible!(RedisModule_StringDMA(self.raw, &mut len, read), null_mut());
            (!data.is_null()).then(|| body(std::slice::from_raw_parts(data.cast(), len)))
        }
    }

    /// Whether the key has an end after that one, or none.
    fn is_longer(&self, end_ms: i64) -> bool {
        !self.is_absent() && self.deadline().is_none_or(|end| end > end_ms)
    }

    /// Sets the value and the end, but leaves foreign data: it came here during the hold (before that began, `beside` has
    /// looked).
    fn put(
        &self,
        (value, what): (&[u8], Beside),
        deadline_ms: Option<i64>,
        replication: Replication,
    ) -> Written {
        let is_there = !self.is_absent();
        if is_there && !self.has(what) {
            return Ok(());
        }
        if let (true, Beside::Timeout, Some(deadline_ms)) = (is_there, what, deadline_ms) {
            // All timeouts have one value: only the end is new. Refused, it leaves the old one.
            return self.expire_at(deadline_ms, replication);
        }
        self.set(&OwnedStr::new(value), replication)?;
        let Some(deadline_ms) = deadline_ms else {
            return Ok(());
        };
        let leased = self.expire_at(deadline_ms, replication);
        if leased.is_err() {
            // A timeout without an end would keep its reader alive for ever.
            let _ = self.delete(replication);
        }
        leased
    }

    fn set(&self, value: &OwnedStr, replication: Replication) -> Written {
        // SAFETY: the handle is open for writing; the string is live, and StringSet keeps a reference
        // of its own.
        unsafe { checked!(RedisModule_StringSet(self.raw, value.as_ptr())) }?;
        self.changed();
        replication.set(self.name, value.as_str());
        Ok(())
    }

    fn expire_at(&self, deadline_ms: i64, replication: Replication) -> Written {
        // SAFETY: the handle is open for writing, and the key exists: it was just seen or written.
        unsafe { checked!(RedisModule_SetAbsExpire(self.raw, deadline_ms)) }?;
        self.changed();
        replication.pexpireat(self.name, deadline_ms);
        Ok(())
    }

    /// Deletes the key, unless it holds foreign data.
    fn delete_own(&self, what: Beside, replication: Replication) -> Written {
        match self.has(what) {
            true => self.delete(replication),
            false => Ok(()),
        }
    }

    fn delete(&self, replication: Replication) -> Written {
        // SAFETY: the handle is open for writing.
        unsafe { checked!(RedisModule_DeleteKey(self.raw)) }?;
        self.changed();
        replication.del(self.name);
        Ok(())
    }

    /// Tells those who watch the key.
    fn changed(&self) {
        // SAFETY: context and name are live.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.ctx.as_ptr(), self.name.as_ptr()) };
    }
}

impl Drop for Sibling<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened by us, closed exactly once, in the same call.
            unsafe { api!(RedisModule_CloseKey)(self.raw) };
        }
    }
}
