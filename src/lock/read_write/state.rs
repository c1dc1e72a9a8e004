//! The content of a read-write lock's hash and sibling keys, read anew for every decision.

use smallvec::SmallVec;

use crate::lock::name::of_names;
use crate::lock::read_write::names::{is_reserved, writer_of, MODE_FIELD};
use crate::lock::read_write::readers::{Reader, Readers};
use crate::lock::state::{may_be_of_a_lock, parse_count, token_of, MAX_HOLD_COUNT};
use crate::lock::{LockError, Mode, Now, OwnerId, Token};

/// The most READ holds that one owner acquires of a lock: a renewal writes a key for each.
const MOST_HOLDS: u32 = 32;

/// The most timeouts of one reader that are read: the first, and the newest of a reader to which scripts gave more.
pub const MOST_READS: u32 = 1_000;

/// The most bytes that a renewal of a READ hold writes to the replicas for its timeouts.
const MOST_RENEWED_BYTES: usize = 8_000;

/// The most timeouts of this owner at this lock that a renewal writes: the first, which is deleted last and so keeps
/// the reader alive, and the newest. Of holds that [`MOST_HOLDS`] allows, all but with long names.
pub fn most_renewed(lock: &[u8], owner: &[u8]) -> u32 {
    // As PEXPIREAT, or for a timeout that is gone SET and PEXPIREAT.
    let bytes = lock.len() + owner.len() + 90;
    let most = MOST_RENEWED_BYTES / bytes;
    u32::try_from(most)
        .unwrap_or(MOST_HOLDS)
        .clamp(2, MOST_HOLDS)
}

/// The most timeouts of other readers that one decision reads. If they show no holder, nothing is known of the other
/// readers: the lock counts as held, the expired readers that were read are removed, and a later decision reads on.
pub const MOST_OTHERS: usize = 250;

/// The most timeouts of this owner at this lock that are read or deleted: [`MOST_READS`], fewer where the names are
/// long.
pub fn most_reads(lock: &[u8], owner: &[u8]) -> u32 {
    let most = of_names(MOST_READS as usize, lock.len() + owner.len());
    u32::try_from(most).unwrap_or(MOST_READS).max(2)
}

/// How much of a read-write lock is read: a decision about one owner should not cost a reading of every reader. (The
/// hash of a writer is small and always read whole.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadDepth {
    /// The holds of the requesting owner, as far as needed to see whether it is unexpired.
    Own,
    /// The whole lease of the requesting owner; of the others as many as it takes to find two unexpired ones: one
    /// excludes a writer, two exclude a reader that waits to upgrade. (An acquire reads such a reader by name, too.)
    Two,
    /// As `Two` if the requesting owner holds the lock, or the hash is small, else as `Own`: a stranger ends and renews
    /// nothing.
    Holder,
    /// As many readers as one decision may read ([`MOST_OTHERS`]), with the whole lease of each.
    All,
}

/// The WRITE holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The owner.
    pub owner: OwnerId,
    /// The number of its holds, at least 1.
    pub count: u32,
}

/// The content of the token record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// The token.
    pub token: Token,
    /// The first token of the readers that have held the lock since then: the tokens between the two were theirs too.
    pub since: Token,
    /// The writer that was granted the token; `None`: it is the token of a reading phase.
    pub writer: Option<OwnerId>,
    /// The end of the token record's key in Unix milliseconds.
    pub deadline_ms: Option<i64>,
}

impl TokenRecord {
    /// The value `r<token>` or `w<token>:<owner>`, where the token may be `<since>-<token>`.
    pub fn parse(value: &[u8], deadline_ms: Option<i64>) -> Option<TokenRecord> {
        if !may_be_of_a_lock(&[], value) {
            return None;
        }
        let (kind, rest) = value.split_first()?;
        let (digits, writer) = match (kind, rest.iter().position(|byte| *byte == b':')) {
            (b'r', None) => (rest, None),
            (b'w', Some(colon)) => (rest.get(..colon)?, rest.get(colon + 1..)),
            _ => return None,
        };
        let (since, token) = match digits.iter().position(|byte| *byte == b'-') {
            Some(dash) => (
                token_of(digits.get(..dash)?)?,
                token_of(digits.get(dash + 1..)?)?,
            ),
            None => (token_of(digits)?, token_of(digits)?),
        };
        Some(TokenRecord {
            token,
            since,
            writer: writer.map(OwnerId::from_slice),
            deadline_ms,
        })
    }

    /// The value that [`TokenRecord::parse`] reads.
    pub fn value(&self) -> SmallVec<[u8; 64]> {
        let mut number = itoa::Buffer::new();
        let mut value = SmallVec::new();
        value.push(if self.writer.is_some() { b'w' } else { b'r' });
        if self.since != self.token {
            value.extend_from_slice(number.format(self.since.get()).as_bytes());
            value.push(b'-');
        }
        value.extend_from_slice(number.format(self.token.get()).as_bytes());
        if let Some(writer) = &self.writer {
            value.push(b':');
            value.extend_from_slice(writer);
        }
        value
    }
}

/// A read-write lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadWrite {
    /// The writer, in mode `write`.
    pub writer: Option<Writer>,
    /// The readers that were read, expired or not.
    pub readers: Readers,
    /// Whether these are all readers.
    pub is_whole: bool,
    /// Whether a reader has more timeouts than were read: its lease may be longer.
    pub is_cut: bool,
    /// Whether a reader that was read by its name may live: it has more timeouts than were read, and these are over.
    pub is_in_doubt: bool,
    /// The token record, if it exists and was written by this module.
    pub token_record: Option<TokenRecord>,
    /// The end of the hash in Unix milliseconds; `None` if the TTL was removed by other means.
    pub deadline_ms: Option<i64>,
}

impl ReadWrite {
    /// A hash without fields: a lock without holders.
    pub fn emptied(deadline_ms: Option<i64>) -> ReadWrite {
        ReadWrite {
            is_whole: true,
            deadline_ms,
            ..ReadWrite::default()
        }
    }

    /// Whether the TTL of the hash is over, which ends every hold.
    pub fn is_over(&self, now: Now) -> bool {
        self.deadline_ms.is_some_and(|end| now.wall_ms >= end)
    }

    /// Whether the lock has a holder, as far as it was read.
    pub fn is_held(&self, now: Now) -> bool {
        let has_holder =
            self.writer.is_some() || !self.is_whole || self.readers(now).next().is_some();
        has_holder && !self.is_over(now)
    }

    /// Whether the hash is a lock: expired readers only, in a hash without a TTL, may be foreign data.
    pub fn is_plausible(&self, now: Now) -> bool {
        let lives = self.writer.is_some() || self.readers(now).next().is_some();
        lives || self.deadline_ms.is_some()
    }

    /// Whether a part was read and shows no holder but one that is left aside: a later decision has to read on.
    pub fn is_unknown(&self, now: Now, is_aside: impl Fn(&[u8]) -> bool) -> bool {
        let is_part = !self.is_whole && self.writer.is_none() && !self.is_over(now);
        let mut readers = self.readers(now);
        let is_aside = |first: &Reader| is_aside(&first.owner);
        is_part && readers.next().is_none_or(is_aside) && readers.next().is_none()
    }

    /// The writer, if its hold is not over.
    pub fn writer(&self, now: Now) -> Option<&Writer> {
        self.writer.as_ref().filter(|_| !self.is_over(now))
    }

    /// Whether this owner holds WRITE.
    pub fn writes(&self, owner: &[u8], now: Now) -> bool {
        self.writer(now)
            .is_some_and(|writer| writer.owner[..] == *owner)
    }

    /// The unexpired readers.
    pub fn readers(&self, now: Now) -> impl Iterator<Item = &Reader> {
        let is_over = self.is_over(now);
        let lives = move |reader: &&Reader| !is_over && reader.until_ms > now.wall_ms;
        self.readers.iter().filter(lives)
    }

    /// The READ holds of this owner, if they are unexpired.
    pub fn reader(&self, owner: &[u8], now: Now) -> Option<&Reader> {
        let reader = self.readers.get(owner);
        reader.filter(|reader| !self.is_over(now) && reader.until_ms > now.wall_ms)
    }

    /// The number of holds of this mode that the owner has; `None` without one.
    pub fn count_of(&self, mode: Mode, owner: &[u8], now: Now) -> Option<u32> {
        match mode {
            Mode::Read => self.reader(owner, now).map(|reader| reader.count),
            _ => {
                let writer = self.writer(now);
                let own = writer.filter(|writer| writer.owner[..] == *owner);
                own.map(|writer| writer.count)
            }
        }
    }

    /// Whether the owner may have one more hold of this mode at this lock.
    ///
    /// # Errors
    /// [`LockError::TooManyReads`]; [`LockError::HoldCountOverflow`] if it could not be counted.
    pub fn may_count_one_more(
        &self,
        (mode, lock, owner): (Mode, &[u8], &[u8]),
        now: Now,
    ) -> Result<(), LockError> {
        let (most, error) = match mode {
            Mode::Read => (
                most_reads(lock, owner).min(MOST_HOLDS),
                LockError::TooManyReads,
            ),
            _ => (MAX_HOLD_COUNT, LockError::HoldCountOverflow),
        };
        match self.count_of(mode, owner, now) {
            Some(count) if count >= most => Err(error),
            _ => Ok(()),
        }
    }

    /// The end of an unexpired reader's lease; `None`: no end.
    pub fn end_of(&self, reader: &Reader) -> Option<i64> {
        let end = self.deadline_ms.unwrap_or(i64::MAX).min(reader.until_ms);
        (end < i64::MAX).then_some(end)
    }

    /// The end of the last known unexpired lease, without that of the owner `aside`; `None`: no end.
    pub fn ends(&self, now: Now, aside: Option<&[u8]>) -> Option<i64> {
        if self.writer(now).is_some() {
            return self.deadline_ms;
        }
        let readers = self.readers(now);
        let readers = readers.filter(|reader| Some(&reader.owner[..]) != aside);
        let last = readers.map(|reader| reader.until_ms).max();
        let end = self.deadline_ms.unwrap_or(i64::MAX);
        let end = end.min(last.unwrap_or(end));
        (end < i64::MAX).then_some(end)
    }

    /// The token of the present holders, if it is known to be theirs. A writer's token is still that of its reads when
    /// a script has released the write; a token of another writer is of the past.
    pub fn token(&self, now: Now) -> Option<Token> {
        let token_record = self.token_record.as_ref()?;
        let is_theirs = match (self.writer(now), &token_record.writer) {
            (Some(writer), Some(recorded)) => writer.owner == *recorded,
            (Some(_), None) => false,
            (None, Some(recorded)) => self.reader(recorded, now).is_some(),
            (None, None) => true,
        };
        is_theirs.then_some(token_record.token)
    }

    /// Whether this owner has a hold of this mode under this token.
    pub fn has_grant(&self, (mode, owner): (Mode, &[u8]), token: Token, now: Now) -> bool {
        let holds = match mode {
            Mode::Exclusive => false,
            Mode::Read => self.reader(owner, now).is_some(),
            Mode::Write => self.writes(owner, now),
        };
        holds && self.is_under(mode, token, now)
    }

    /// Whether a hold of this mode has this token. A reader that stays through an upgrade, or while new readers get a
    /// token of a new process, keeps the token that it was granted.
    pub fn is_under(&self, mode: Mode, token: Token, now: Now) -> bool {
        let since = self
            .token_record
            .as_ref()
            .map(|token_record| token_record.since);
        match self.token(now) {
            Some(present) if mode == Mode::Read => {
                since.is_some_and(|since| since <= token) && token <= present
            }
            present => present == Some(token),
        }
    }
}

/// Whether a hash with this value in its field `mode` is a read-write lock.
pub fn is_read_write(mode: &[u8]) -> bool {
    matches!(mode, b"read" | b"write")
}

/// A reader of the fields of a read-write lock's hash.
#[derive(Debug, Default)]
pub struct RwFields {
    mode: Option<Mode>,
    /// The owners and counts of readers.
    pub readers: Vec<(OwnerId, u32)>,
    writer: Option<Writer>,
    other: bool,
}

impl RwFields {
    /// Adds one field with its value, in any order.
    pub fn field(&mut self, field: &[u8], value: &[u8]) {
        if !may_be_of_a_lock(field, value) {
            self.other = true;
            return;
        }
        if field == MODE_FIELD {
            self.mode = match value {
                b"read" => Some(Mode::Read),
                b"write" => Some(Mode::Write),
                _ => None,
            };
            return;
        }
        match (parse_count(value), writer_of(field)) {
            (Some(count), Some(owner)) if self.writer.is_none() && !owner.is_empty() => {
                let owner = OwnerId::from_slice(owner);
                self.writer = Some(Writer { owner, count });
            }
            (Some(count), None) if !field.is_empty() && !is_reserved(field) => {
                self.readers.push((OwnerId::from_slice(field), count));
            }
            _ => self.other = true,
        }
    }

    /// Whether a field was added that a lock with or without a writer does not have: the others need not be read.
    pub fn is_foreign(&self, is_read: bool) -> bool {
        self.other || (is_read && self.writer.is_some())
    }

    /// The writer of a hash whose fields have all been added; `None` for a hash of another layout.
    pub fn finish(self) -> Option<Option<Writer>> {
        let fits = match self.mode? {
            Mode::Write => self.writer.is_some(),
            _ => self.writer.is_none(),
        };
        (fits && !self.other).then_some(self.writer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::lock::{Cx, Effects};

    fn at(wall_ms: i64) -> Now {
        Now {
            wall_ms,
            wall_sub_us: 0,
            mono_ms: 0,
        }
    }

    fn reader(owner: &str, until_ms: i64) -> Reader {
        Reader {
            owner: OwnerId::from_slice(owner.as_bytes()),
            count: 1,
            first_ms: until_ms,
            until_ms,
        }
    }

    #[test]
    fn a_read_hold_ends_with_its_timeout_or_the_hash() {
        let mut lock = ReadWrite {
            readers: [reader("a", 5), reader("b", 9)].into_iter().collect(),
            is_whole: true,
            deadline_ms: Some(20),
            ..ReadWrite::default()
        };
        assert!(lock.reader(b"a", at(4)).is_some() && lock.reader(b"a", at(5)).is_none());
        assert_eq!(lock.ends(at(4), None), Some(9));
        assert!(lock.is_held(at(8)) && !lock.is_held(at(9)));
        lock.deadline_ms = Some(7);
        assert!(lock.is_held(at(6)) && !lock.is_held(at(7)));
        assert_eq!(lock.ends(at(4), None), Some(7));
        lock.is_whole = false;
        lock.deadline_ms = None;
        assert!(lock.is_held(at(9)), "there may be others");
    }

    #[test]
    fn a_reader_without_an_end_keeps_the_hash() {
        let mut lock = ReadWrite {
            readers: [reader("a", i64::MAX)].into_iter().collect(),
            is_whole: true,
            deadline_ms: Some(20),
            ..ReadWrite::default()
        };
        let mut fx = Effects::new();
        lock.shrink(&mut Cx::new(at(4), &mut fx));
        assert_eq!((fx.len(), lock.deadline_ms), (0, Some(20)));
        lock.readers = [reader("a", 9)].into_iter().collect();
        lock.shrink(&mut Cx::new(at(4), &mut fx));
        assert_eq!((fx.len(), lock.deadline_ms), (1, Some(9)));
    }

    #[test]
    fn fewer_holds_are_read_where_the_names_are_long() {
        let most = |lock: usize, owner: usize| most_reads(&vec![b'k'; lock], &vec![b'o'; owner]);
        assert_eq!(most(20, 20), MOST_READS);
        assert_eq!(most(1_000, 1_000), most(2_000, 0));
        assert!(most(1_000, 1_000) < MOST_READS && most(100_000, 1) == 2);
    }

    #[test]
    fn a_token_record_reads_back_as_written() {
        for (value, writer) in [("r7", None), ("w7:u:1", Some("u:1")), ("w7:", Some(""))] {
            let token_record = TokenRecord::parse(value.as_bytes(), Some(3)).unwrap();
            assert_eq!(token_record.token.get(), 7);
            assert_eq!(token_record.writer.as_deref(), writer.map(str::as_bytes));
            assert_eq!(token_record.value()[..], *value.as_bytes());
            assert_eq!(token_record.since, token_record.token);
        }
        let token_record = TokenRecord::parse(b"w5-7:u-1", None).unwrap();
        assert_eq!((token_record.since.get(), token_record.token.get()), (5, 7));
        assert_eq!(token_record.value()[..], *b"w5-7:u-1");
        for value in [
            "", "7", "r", "r0", "r7:u", "r5-", "r-7", "r5-6-7", "w7", "x7", "r-1",
        ] {
            assert_eq!(TokenRecord::parse(value.as_bytes(), None), None, "{value}");
        }
    }

    #[test]
    fn the_token_belongs_to_the_present_holders() {
        let mut lock = ReadWrite {
            readers: [reader("a", 5)].into_iter().collect(),
            token_record: TokenRecord::parse(b"r7", None),
            ..ReadWrite::default()
        };
        let token = |lock: &ReadWrite| lock.token(at(0)).map(Token::get);
        assert_eq!(token(&lock), Some(7));
        lock.token_record = TokenRecord::parse(b"w7:a", None);
        assert_eq!(token(&lock), Some(7), "it wrote before it read");
        lock.token_record = TokenRecord::parse(b"w7:b", None);
        assert_eq!(token(&lock), None);
        lock.writer = Some(Writer {
            owner: OwnerId::from_slice(b"b"),
            count: 1,
        });
        assert_eq!(token(&lock), Some(7));
        lock.token_record = TokenRecord::parse(b"w7:a", None);
        assert_eq!(token(&lock), None, "that was of a writer before");
        lock.token_record = TokenRecord::parse(b"r7", None);
        assert_eq!(token(&lock), None, "that was of readers");
    }

    #[test]
    fn foreign_fields_are_detected() {
        let read = |fields: &[(&str, &str)]| {
            let mut read = RwFields::default();
            for (field, value) in fields {
                read.field(field.as_bytes(), value.as_bytes());
            }
            read.finish()
        };
        assert_eq!(
            read(&[("mode", "read"), ("a", "2"), ("b", "1")]),
            Some(None)
        );
        assert_eq!(read(&[("mode", "read")]), Some(None));
        let writer = read(&[("a:write", "3"), ("mode", "write"), ("a", "1")]);
        assert_eq!(writer.unwrap().unwrap().count, 3);
        for foreign in [
            &[("a", "1")][..],
            &[("mode", "Read"), ("a", "1")],
            &[("mode", "write"), ("a", "1")],
            &[("mode", "read"), ("a:write", "1")],
            &[("mode", "write"), ("a:write", "1"), ("b:write", "1")],
            &[("mode", "read"), ("a", "0")],
            &[("mode", "read"), ("a", "x")],
            &[("mode", "read"), ("", "1")],
            &[("mode", "write"), (":write", "1")],
            &[("mode", "read"), ("#token", "t5")],
        ] {
            assert_eq!(read(foreign), None, "{foreign:?}");
        }
    }
}
