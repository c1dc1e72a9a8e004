//! Reads a read-write lock's hash and its sibling keys, as much as a decision needs, and no more than it may read: what
//! is left unread counts as held ([`ReadWrite::is_whole`]).

use std::cell::Cell;

use crate::lock::{
    is_braced, is_read_write, is_reserved, may_be_of_a_lock, parse_integer, write_field, KeyState,
    Now, OwnerId, ReadDepth, ReadWrite, Reader, Readers, RwFields, TokenRecord, Writer, MODE_FIELD,
    MOST_OTHERS, MOST_READERS, MOST_READS,
};
use crate::module::ffi::raw_key::{Fields, RawKey};
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::siblings::SiblingKind;
use crate::module::keyspace::string_key::StringKey;

/// A hash with so few fields is read for a stranger too, to see whether it is a lock.
const FEW_FIELDS: usize = 16;

impl Fields for RwFields {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        RwFields::field(self, field, value);
    }
}

/// Reads a hash that has a mode; `None` for another one, which may be an exclusive lock. (Newer servers count fields
/// whose own TTL is over, until they remove them.)
pub(crate) fn read(
    key: &LockKey<'_>,
    handle: &RawKey<'_>,
    fields: usize,
    depth: ReadDepth,
    now: Option<Now>,
) -> Option<KeyState> {
    let mode_field = OwnedStr::new(MODE_FIELD);
    let mode = handle.field(mode_field.as_str())?;
    if !may_be_of_a_lock(MODE_FIELD, mode.as_str().bytes()) {
        return Some(KeyState::OtherHash);
    }
    if !is_read_write(mode.as_str().bytes()) {
        return None;
    }
    let at = now.unwrap_or_else(|| key.ctx().now());
    let mut reading = Reading::of(key, handle, depth, at);
    reading.token_record = read_token_record(key);
    let is_read = mode.as_str().bytes() == b"read";
    let lock = reading.read(fields, is_read);
    Some(match lock.filter(|lock| lock.is_plausible(at)) {
        Some(lock) => KeyState::ReadWrite(Box::new(lock)),
        None => KeyState::OtherHash,
    })
}

/// Reads by name the READ holds of these owners, at a lock that was not read whole. Returns whether there are any that
/// were not read yet.
pub(crate) fn read_owners<'o>(
    key: &LockKey<'_>,
    state: &mut KeyState,
    owners: impl ExactSizeIterator<Item = &'o [u8]>,
    now: Now,
) -> bool {
    let (KeyState::ReadWrite(lock), Some(handle)) = (state, key.handle()) else {
        return false;
    };
    if lock.is_whole || handle.is_empty() {
        return false;
    }
    let reading = Reading::of(key, handle, ReadDepth::Two, now);
    reading.share_among(owners.len());
    let before = lock.readers.len();
    for owner in owners {
        if lock.readers.get(owner).is_none() {
            lock.readers
                .extend(reading.reader_by_name(owner).unwrap_or_default());
        }
    }
    lock.readers.len() > before
}

struct Reading<'a> {
    key: &'a LockKey<'a>,
    handle: &'a RawKey<'a>,
    depth: ReadDepth,
    now: Now,
    token_record: Option<TokenRecord>,
    /// So many readers share the bound on the timeouts that are read.
    sharing: Cell<u32>,
    /// The timeouts of other readers that were read so far.
    reads: Cell<usize>,
    /// A reader has more timeouts than are read, and those that were read are over.
    is_in_doubt: Cell<bool>,
    /// A reader has more timeouts than are read.
    is_cut: Cell<bool>,
}

impl<'a> Reading<'a> {
    fn of(key: &'a LockKey<'_>, handle: &'a RawKey<'_>, depth: ReadDepth, now: Now) -> Reading<'a> {
        Reading {
            key,
            handle,
            depth,
            now,
            token_record: None,
            sharing: Cell::new(1),
            reads: Cell::new(0),
            is_in_doubt: Cell::new(false),
            is_cut: Cell::new(false),
        }
    }

    /// Many readers that are read by name share the bound on timeouts.
    fn share_among(&self, readers: usize) {
        let readers = u32::try_from(readers).unwrap_or(MOST_READS);
        self.sharing.set(readers.max(1));
    }

    /// `None` for a hash of another layout.
    fn read(self, fields: usize, is_read: bool) -> Option<ReadWrite> {
        let mut lock = ReadWrite {
            deadline_ms: self.handle.end_ms(),
            ..ReadWrite::default()
        };
        // By name: the command's owner, the writer of the token record, readers that wait or whose grants are undone.
        let own = self.key.owner().map(Str::bytes);
        let recorded = self
            .token_record
            .as_ref()
            .and_then(|token_record| token_record.writer.as_deref());
        let by_name = own.into_iter().chain(recorded.filter(|_| is_read));
        for owner in by_name {
            if lock.readers.get(owner).is_none() {
                lock.readers.extend(self.reader_by_name(owner)?);
            }
        }
        let own_is_in_doubt = self.is_in_doubt.get();
        self.share_among(self.key.others().len());
        for owner in self.key.others() {
            if lock.readers.get(owner).is_none() {
                lock.readers.extend(self.reader_by_name(owner)?);
            }
        }
        self.share_among(1);
        self.reads.set(0);
        lock.is_in_doubt = self.is_in_doubt.get();
        let is_own = || match self.depth {
            ReadDepth::Own => true,
            ReadDepth::Holder => {
                fields > FEW_FIELDS && own.is_none_or(|own| lock.reader(own, self.now).is_none())
            }
            ReadDepth::Two | ReadDepth::All => false,
        };
        if is_read && lock.deadline_ms.is_some() && (is_own() || fields > self.key.most_fields()) {
            lock.is_whole = fields == 1 + lock.readers.len();
        } else if !is_read && fields > MOST_OTHERS {
            let mut writers = own.into_iter().chain(recorded);
            lock.writer = Some(writers.find_map(|owner| self.writer_by_name(owner))?);
        } else {
            // Of the others in doubt the fields are read again.
            self.is_in_doubt.set(false);
            lock.is_in_doubt = own_is_in_doubt;
            self.read_fields(&mut lock, is_read)?;
        }
        lock.is_whole &= !self.is_in_doubt.get();
        lock.is_cut = self.is_cut.get();
        lock.token_record = self.token_record;
        Some(lock)
    }

    /// Reads the hash field by field, until it has found what the depth asks for, or has read as many timeouts as it
    /// may. `None` for a hash of another layout.
    fn read_fields(&self, lock: &mut ReadWrite, is_read: bool) -> Option<()> {
        let mut read = RwFields::default();
        // A small hash is scanned in one step. Of few readers each is a holder that others may wait for.
        let enough = match self.depth {
            ReadDepth::All => usize::MAX,
            _ if is_read => MOST_READERS + 1,
            _ => usize::MAX,
        };
        let mut others = Vec::new();
        let mut living = 0;
        let is_whole = self.handle.scan(&mut read, |read| {
            living += self.take_readers(read, &lock.readers, &mut others, enough - living);
            let is_enough = self.depth != ReadDepth::All && is_read && living >= 2;
            !is_enough && !read.is_foreign(is_read) && self.may_read_more()
        });
        self.take_readers(&mut read, &lock.readers, &mut others, enough - living);
        // With those that are left the fields of one step were too many.
        let mut is_whole = is_whole && read.readers.is_empty();
        if is_whole && self.depth != ReadDepth::All {
            // The end of the hash may depend on these readers, and a later hold by a script may last longer.
            let is_to_read =
                |reader: &&mut Reader| reader.count > 1 && reader.until_ms > self.now.wall_ms;
            for other in others.iter_mut().filter(is_to_read) {
                is_whole &= self.may_read_more();
                if is_whole {
                    *other = self.reader(&other.owner, other.count, (true, false))?;
                }
            }
        }
        read.readers.clear();
        if !is_whole {
            // The mode's field may be among those that were not read.
            read.field(MODE_FIELD, if is_read { b"read" } else { b"write" });
        }
        lock.writer = read.finish()?;
        lock.readers.extend(others);
        lock.is_whole = is_whole;
        Some(())
    }

    fn may_read_more(&self) -> bool {
        self.reads.get() < self.key.most_others()
    }

    /// Reads the timeouts of readers whose fields were read, until `enough` that live are found, and as long as more
    /// may be read; the others stay in `read`. Returns the number of those that live.
    fn take_readers(
        &self,
        read: &mut RwFields,
        known: &Readers,
        others: &mut Vec<Reader>,
        enough: usize,
    ) -> usize {
        let is_deep = self.depth == ReadDepth::All;
        let mut living = 0;
        while living < enough && self.may_read_more() {
            let Some((owner, count)) = read.readers.pop() else {
                break;
            };
            if known.get(&owner).is_some() || self.key.owner_name() == Some(&owner[..]) {
                continue;
            }
            if let Some(reader) = self.reader(&owner, count, (is_deep, false)) {
                living += usize::from(reader.until_ms > self.now.wall_ms);
                others.push(reader);
            }
        }
        living
    }

    /// The WRITE holds of one owner, if it has any.
    fn writer_by_name(&self, owner: &[u8]) -> Option<Writer> {
        let name = OwnedStr::new(&write_field(owner));
        let count = parse_integer(self.handle.field(name.as_str())?.as_str().bytes())?;
        Some(Writer {
            owner: OwnerId::from_slice(owner),
            count: u32::try_from(count).ok().filter(|count| *count > 0)?,
        })
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
            Some((owner, count)) => Some(self.reader(&owner, count, (is_deep, true))),
            // A field of Redisson's own is no owner.
            None if is_reserved(owner) => Some(None),
            None => None,
        }
    }

    /// Reads the timeouts of a reader: all (`is_deep`), or as many as show that it lives. `None` while that is unknown,
    /// because it has more than are read: of a reader that is read by its name more are read, until one is not over.
    fn reader(&self, owner: &[u8], count: u32, (is_deep, by_name): (bool, bool)) -> Option<Reader> {
        let most = (self.key.most_timeouts(owner) / self.sharing.get()).max(2);
        let (mut read, all) = (0, count.min(MOST_READS));
        let mut reader = Reader {
            owner: OwnerId::from_slice(owner),
            count,
            first_ms: 0,
            until_ms: 0,
        };
        self.key.with_timeouts(owner, |names| {
            for number in numbers((1, count), all) {
                let lives = reader.until_ms > self.now.wall_ms;
                if read >= most && (lives || !by_name || !self.key.read_one_more()) {
                    break;
                }
                read += 1;
                self.reads.set(self.reads.get() + 1);
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
        let is_cut = most < all && read < all;
        let is_known = reader.until_ms > self.now.wall_ms || !is_cut;
        self.is_cut.set(self.is_cut.get() || is_cut);
        self.is_in_doubt.set(self.is_in_doubt.get() || !is_known);
        is_known.then_some(reader)
    }

    /// The end of a timeout in milliseconds of the wall clock: 0 without one, `i64::MAX` for one without a TTL.
    fn end_of(&self, name: Str<'_>) -> i64 {
        let key = StringKey::open(self.key.ctx(), name, self.key.mode());
        if !key.has(SiblingKind::Timeout) {
            return 0;
        }
        key.end_ms().unwrap_or(i64::MAX)
    }
}

/// The first number, then the others from the newest down: `most` in all at most.
pub(crate) fn numbers((from, to): (u32, u32), most: u32) -> impl Iterator<Item = u32> {
    let last = to.saturating_sub(most.saturating_sub(2)).max(from + 1);
    std::iter::once(from).chain((last..=to).rev())
}

/// The token record; none of a lock with braces around its name, whose record would be that of the lock without them.
fn read_token_record(key: &LockKey<'_>) -> Option<TokenRecord> {
    if is_braced(key.name().bytes()) {
        return None;
    }
    let sibling = StringKey::open(key.ctx(), key.token_name(), key.mode());
    let deadline_ms = sibling.end_ms();
    let token_record = sibling.with_text(|value| TokenRecord::parse(value, deadline_ms))??;
    // The server may not have deleted it yet although its TTL is over.
    let now_ms = key.ctx().now().wall_ms;
    token_record
        .deadline_ms
        .is_none_or(|end| end > now_ms)
        .then_some(token_record)
}
