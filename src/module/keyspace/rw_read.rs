//! Reads a read-write lock's hash and its sibling keys, as much as a decision needs.

use redis_module::raw;

use crate::lock::{
    is_read_write, is_reserved, KeyState, Now, OwnerId, ReadDepth, ReadWrite, Reader, ReadersAsked,
    ReadersFound, RwFields, TokenRecord, MODE_FIELD, MOST_READERS, MOST_READS,
};
use crate::module::ffi::raw_key::{Fields, RawKey};
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::sibling::{Sibling, SiblingKind};
use crate::module::state::shell;

impl Fields for RwFields {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        RwFields::field(self, field, value);
    }
}

/// Reads a hash that is no exclusive lock.
pub(crate) fn read(
    key: &LockKey<'_>,
    handle: &RawKey<'_>,
    fields: usize,
    depth: ReadDepth,
    now: Option<Now>,
) -> KeyState {
    let mode_field = OwnedStr::new(MODE_FIELD);
    let Some(mode) = handle.field(mode_field.as_str()) else {
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

/// Which of some owners are readers of this lock now, by name, or if there are few readers: all of them.
pub(crate) fn find_readers(key: &LockKey<'_>, asked: &ReadersAsked, now: Now) -> ReadersFound {
    let mut found = ReadersFound {
        is_complete: true,
        ..ReadersFound::default()
    };
    let hash = key
        .handle()
        .filter(|handle| handle.kind() == raw::REDISMODULE_KEYTYPE_HASH);
    let Some(handle) = hash.filter(|handle| handle.end_ms().is_none_or(|end| end > now.wall_ms))
    else {
        found.is_whole = true;
        return found;
    };
    let reading = Reading {
        key,
        handle,
        depth: ReadDepth::Own,
        now,
        token_record: None,
    };
    let mut counts = RwFields::default();
    found.is_whole = handle.len() <= asked.owners.len();
    if found.is_whole {
        found.reads = handle.len();
        found.is_whole = handle.scan(&mut counts, |_| true);
    } else {
        for owner in &asked.owners {
            found.reads += 1;
            let name = OwnedStr::new(owner);
            if let Some(value) = handle.field(name.as_str()) {
                counts.field(owner, value.as_str().bytes());
            }
        }
    }
    for (owner, count) in counts.readers {
        match reading.lives(&owner, count, asked.most, &mut found.reads) {
            Some(true) => found.readers.push(owner),
            Some(false) => {}
            None => (found.is_complete, found.is_whole) = (false, false),
        }
    }
    found
}

/// Notes which of the sibling keys were last written by this server: for those the twin need not be read.
fn note_wrote_beside(key: &LockKey<'_>, lock: Option<&ReadWrite>, now: Now) {
    if let (Some(owner), Some(lock)) = (key.owner_name(), lock) {
        let wrote = shell::with(|shell| shell.locks.wrote_beside(key.id(), owner, lock, now));
        key.set_wrote_beside(wrote);
    }
}

struct Reading<'a> {
    key: &'a LockKey<'a>,
    handle: &'a RawKey<'a>,
    depth: ReadDepth,
    now: Now,
    token_record: Option<TokenRecord>,
}

impl Reading<'_> {
    /// `None` for a hash of another layout.
    fn read(self, fields: usize, is_read: bool) -> Option<ReadWrite> {
        let mut lock = ReadWrite {
            deadline_ms: self.handle.end_ms(),
            ..ReadWrite::default()
        };
        // By name: the command's owner, the writer of the token record, a reader that waits to upgrade.
        let own = self.key.owner().map(Str::bytes);
        let recorded = self
            .token_record
            .as_ref()
            .and_then(|token_record| token_record.writer.as_deref());
        let recorded = recorded.filter(|_| is_read);
        for owner in own.into_iter().chain(recorded).chain(self.key.another()) {
            if lock.readers.get(owner).is_none() {
                lock.readers.extend(self.reader_by_name(owner)?);
            }
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
        // A small hash is scanned in one step. Of few readers each is a holder that others may wait for.
        let enough = match self.depth {
            ReadDepth::Two if is_read => MOST_READERS + 1,
            _ => usize::MAX,
        };
        let mut living = 0;
        let mut others = Vec::new();
        let is_scanned = self.handle.scan(&mut read, |read| {
            living += self.take_readers(read, &known, &mut others, enough - living);
            self.depth != ReadDepth::Two || !is_read || living < 2
        });
        living += self.take_readers(&mut read, &known, &mut others, enough - living);
        let is_whole = is_scanned && living < enough;
        if is_whole && self.depth == ReadDepth::Two {
            // The end of the hash may depend on these readers, and a later hold by a script may last longer.
            for other in others.iter_mut().filter(|other| other.count > 1) {
                *other = self.reader(&other.owner, other.count, true);
            }
        }
        if !is_whole {
            // The mode's field may be among those that were not read.
            read.field(MODE_FIELD, b"read");
        }
        lock.writer = read.finish()?;
        lock.readers.extend(others);
        lock.is_whole = is_whole;
        Some(())
    }

    /// Reads the timeouts of readers whose fields were read, until `enough` that live are found. Returns their number.
    fn take_readers(
        &self,
        read: &mut RwFields,
        known: &[OwnerId],
        others: &mut Vec<Reader>,
        enough: usize,
    ) -> usize {
        let is_deep = self.depth == ReadDepth::All;
        let mut living = 0;
        for (owner, count) in read.readers.drain(..) {
            if known.contains(&owner) {
                continue;
            }
            if living == enough {
                break;
            }
            let reader = self.reader(&owner, count, is_deep);
            living += usize::from(reader.until_ms > self.now.wall_ms);
            others.push(reader);
        }
        living
    }

    /// The READ holds of one owner, if it has any. `None` if its field is no count.
    fn reader_by_name(&self, owner: &[u8]) -> Option<Option<Reader>> {
        let name = OwnedStr::new(owner);
        let Some(value) = self.handle.field(name.as_str()) else {
            return Some(None);
        };
        let mut one = RwFields::default();
        one.field(owner, value.as_str().bytes());
        let is_deep = self.depth != ReadDepth::Own;
        match one.readers.pop() {
            Some((owner, count)) => Some(Some(self.reader(&owner, count, is_deep))),
            // A field of Redisson's own is no owner.
            None if is_reserved(owner) => Some(None),
            None => None,
        }
    }

    /// Reads the timeouts of a reader: all (`is_deep`), or as many as show that it lives.
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

    /// Whether a reader lives. `None` if that takes more than `most` reads in all.
    fn lives(&self, owner: &[u8], count: u32, most: usize, reads: &mut usize) -> Option<bool> {
        self.key.with_timeouts(owner, |names| {
            for number in numbers(1, count) {
                if *reads >= most {
                    return None;
                }
                *reads += 1;
                let end_ms = names.with(number, |name| self.end_of(name));
                if end_ms > self.now.wall_ms {
                    return Some(true);
                }
            }
            Some(false)
        })
    }

    /// The end of a timeout in milliseconds of the wall clock: 0 without one, `i64::MAX` for one without a TTL.
    fn end_of(&self, name: Str<'_>) -> i64 {
        let key = Sibling::open(self.key.ctx(), name, self.key.mode());
        if !key.has(SiblingKind::Timeout) {
            return 0;
        }
        key.deadline().unwrap_or(i64::MAX)
    }
}

/// The first number, then the others from the newest down: [`MOST_READS`] in all at most.
pub(crate) fn numbers(from: u32, to: u32) -> impl Iterator<Item = u32> {
    let last = to.saturating_sub(MOST_READS - 2).max(from + 1);
    std::iter::once(from).chain((last..=to).rev())
}

fn read_token_record(key: &LockKey<'_>) -> Option<TokenRecord> {
    let sibling = Sibling::open(key.ctx(), key.token_name(), key.mode());
    let deadline_ms = sibling.deadline();
    let token_record = sibling.with_text(|value| TokenRecord::parse(value, deadline_ms))??;
    // The server may not have deleted it yet although its TTL is over.
    let now_ms = key.ctx().now().wall_ms;
    token_record
        .deadline_ms
        .is_none_or(|end| end > now_ms)
        .then_some(token_record)
}
