//! The effect of the scripts of `RReadWriteLock` on plain data.
//!
//! The lock is a hash: `mode` is `read` or `write`, and every owner has its hold count, a writer in a field of its own.
//! Each hold of a reader has a sibling key, its *timeout*; the hash lives as long as the last of them. A writer may
//! also read; when it releases its last write hold, the mode becomes `read`.

use crate::lock::parse_integer;
use crate::redisson::scripts::rlock::lease_end;

/// One script of `RReadWriteLock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadWrite {
    /// Key: lock; arguments: lease, writer.
    WriteAcquire,
    /// Keys: lock, channel; arguments: message, lease, writer.
    WriteUnlock(Form),
    /// Keys: lock, the prefix of the reader's timeouts; arguments: lease, reader, the same owner as a writer.
    ReadAcquire {
        /// Whether the hash may get a shorter lease than it has.
        shortens: bool,
    },
    /// Keys: lock, channel, the prefix of the reader's timeouts, the prefix of all timeouts; arguments: message,
    /// reader.
    ReadUnlock(Form),
    /// Forced unlock of a lock in this mode; keys: lock, channel; argument: message.
    Force(Mode, Form),
}

/// The variants of one script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Without additions.
    Plain,
    /// With another argument: the command that publishes.
    By,
    /// As `By`, with another key, the latch, and another argument, its lease.
    Once,
    /// As `Once`, and replies nil instead of `1` if the lock is not held.
    OnceOrNil,
}

/// The mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Held by readers.
    Read,
    /// Held by a writer, which may also read.
    Write,
}

/// The state of a lock for a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No key.
    Free,
    /// A hash, with the hold count of the caller if it has one.
    Held(Mode, Option<i64>),
}

/// The effect of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The first hold.
    First,
    /// One more hold, in a hash with this time to live in milliseconds.
    Again(i64),
    /// None: the reply is the time to live.
    Refused,
}

/// The effect of an unlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Give {
    /// One hold less.
    Less,
    /// The owner's last hold ends.
    Last,
    /// The lock is not held: that is published.
    OfNone,
    /// None.
    NotOwner,
}

/// The exact range of Lua's numbers.
const EXACT: i64 = 1 << 53;
/// The most holds of readers whose timeouts are read one by one.
const MOST: i64 = 100;

/// The mode in this field; `None` for any other value.
pub fn mode(value: &[u8]) -> Option<Mode> {
    match value {
        b"read" => Some(Mode::Read),
        b"write" => Some(Mode::Write),
        _ => None,
    }
}

/// The hold count in this field; `None` if it is not a plain count.
pub fn is_plain_count(value: &[u8]) -> Option<i64> {
    parse_integer(value).filter(|count| (1..=MOST).contains(count))
}

/// A lease whose sums Lua represents exactly.
fn plain_lease(lease: &[u8], now_ms: i64) -> Option<i64> {
    lease_end(lease, now_ms)?;
    parse_integer(lease).filter(|lease| *lease <= EXACT)
}

/// An acquire for writing, in a hash with this time left, to which it adds the lease.
pub fn write_acquire(lock: Lock, lease: &[u8], left_ms: i64, now_ms: i64) -> Option<Take> {
    Some(match lock {
        Lock::Free => plain_lease(lease, now_ms).map(|_| Take::First)?,
        Lock::Held(Mode::Write, Some(_)) => {
            let sum = left_ms.checked_add(plain_lease(lease, now_ms)?)?;
            now_ms.checked_add(sum)?;
            (1..=EXACT).contains(&sum).then_some(Take::Again(sum))?
        }
        Lock::Held(..) => Take::Refused,
    })
}

/// An acquire for reading. The hash gets the longer lease, or the new one in the releases that may shorten it.
pub fn read_acquire(
    lock: Lock,
    is_writer: bool,
    lease: &[u8],
    left_ms: i64,
    now_ms: i64,
    shortens: bool,
) -> Option<Take> {
    Some(match lock {
        Lock::Free => plain_lease(lease, now_ms).map(|_| Take::First)?,
        Lock::Held(Mode::Write, _) if !is_writer => Take::Refused,
        Lock::Held(..) => match plain_lease(lease, now_ms)? {
            lease if shortens => Take::Again(lease),
            lease => Take::Again(lease.max(left_ms)),
        },
    })
}

/// An unlock of a writer.
pub fn write_unlock(lock: Lock) -> Give {
    match lock {
        Lock::Free => Give::OfNone,
        Lock::Held(Mode::Write, Some(1)) => Give::Last,
        Lock::Held(Mode::Write, Some(_)) => Give::Less,
        Lock::Held(..) => Give::NotOwner,
    }
}

/// An unlock of a reader.
pub fn read_unlock(lock: Lock) -> Give {
    match lock {
        Lock::Free => Give::OfNone,
        Lock::Held(_, Some(1)) => Give::Last,
        Lock::Held(_, Some(_)) => Give::Less,
        Lock::Held(_, None) => Give::NotOwner,
    }
}

/// One reader: its field and its hold count.
pub type Reader = (Box<[u8]>, i64);

/// The most holds whose timeouts a native unlock reads; each timeout is a key. An unlock of a lock with more holds is
/// left to Lua, for which the limit is lower still (see `steps`).
const MOST_HOLDS: usize = 10_000;

/// The most bytes of the names of these keys together: all of them are made before the first is accessed.
const MOST_BYTES: usize = 8 << 20;

/// The fields of a hash, added one by one.
#[derive(Debug, Default)]
pub struct Readers {
    readers: Vec<Reader>,
    fields: usize,
    is_odd: bool,
}

impl Readers {
    /// Adds one field with its value.
    pub fn field(&mut self, field: &[u8], value: &[u8]) {
        self.fields += 1;
        if field == b"mode" {
            return;
        }
        match is_plain_count(value) {
            Some(count) => self.readers.push((field.into(), count)),
            None => self.is_odd = true,
        }
    }

    /// The number of fields.
    pub fn fields(&self) -> usize {
        self.fields
    }

    /// Whether it is certain already that there is no decision.
    pub fn are_undecidable(&self) -> bool {
        self.is_odd || self.readers.len() > MOST_HOLDS
    }

    /// The readers after one hold of this owner is released, in the order of the hash. `None` if a count is not a
    /// number, or there are too many holds, or the names of their timeouts, which begin with this prefix, are too long.
    pub fn without_one(mut self, owner: &[u8], prefix: &[u8]) -> Option<Vec<Reader>> {
        if self.are_undecidable() {
            return None;
        }
        for (reader, count) in &mut self.readers {
            *count -= i64::from(**reader == *owner);
        }
        let holds: i64 = self.readers.iter().map(|(_, count)| count).sum();
        let bytes = |(reader, count): &Reader| {
            let name = prefix.len() + reader.len() + LONGEST_REST;
            name.saturating_mul(usize::try_from(*count).unwrap_or(0))
        };
        let bytes = self
            .readers
            .iter()
            .map(bytes)
            .fold(0, usize::saturating_add);
        (holds <= MOST_HOLDS as i64 && bytes <= MOST_BYTES).then_some(self.readers)
    }
}

/// The most bytes of a timeout's name besides the common prefix and the reader.
const LONGEST_REST: usize = b"::rwlock_timeout:10000".len();

/// The key of a reader's hold: the common prefix of the timeouts, the reader, and the number of the hold.
pub fn timeout_of(prefix: &[u8], reader: &[u8], number: i64) -> Vec<u8> {
    let mut name = [prefix, b":", reader, b":rwlock_timeout:"].concat();
    name.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    name
}

/// The key of a reader's own hold: the prefix of its timeouts, and the number of the hold.
pub fn own_timeout(prefix: &[u8], number: i64) -> Vec<u8> {
    let mut name = [prefix, b":"].concat();
    name.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Lock = Lock::Held(Mode::Write, Some(1));

    #[test]
    fn a_writers_second_lease_is_added_to_the_first() {
        assert_eq!(write_acquire(WRITTEN, b"30", 12, 0), Some(Take::Again(42)));
        assert_eq!(
            write_acquire(WRITTEN, b"1", -1, 0),
            None,
            "a lock without a lease ends at once"
        );
        let longest = EXACT.to_string();
        assert_eq!(write_acquire(WRITTEN, longest.as_bytes(), 1, 0), None);
        assert_eq!(write_acquire(Lock::Free, b"30", -2, 0), Some(Take::First));
        for other in [
            Lock::Held(Mode::Write, None),
            Lock::Held(Mode::Read, Some(1)),
        ] {
            assert_eq!(write_acquire(other, b"x", 5, 0), Some(Take::Refused));
        }
    }

    #[test]
    fn since_3_11_1_a_readers_lease_does_not_shorten_the_others() {
        let read = Lock::Held(Mode::Read, None);
        assert_eq!(
            read_acquire(read, false, b"5", 9, 0, false),
            Some(Take::Again(9))
        );
        assert_eq!(
            read_acquire(read, false, b"5", 9, 0, true),
            Some(Take::Again(5))
        );
        assert_eq!(
            read_acquire(read, false, b"5", -1, 0, false),
            Some(Take::Again(5))
        );
        assert_eq!(
            read_acquire(WRITTEN, false, b"5", 9, 0, false),
            Some(Take::Refused)
        );
        assert_eq!(
            read_acquire(WRITTEN, true, b"5", 9, 0, false),
            Some(Take::Again(9))
        );
        assert_eq!(read_acquire(read, false, b"0", 9, 0, false), None);
    }

    #[test]
    fn an_unlock_without_a_hold_changes_nothing() {
        assert_eq!(
            write_unlock(Lock::Held(Mode::Read, Some(1))),
            Give::NotOwner
        );
        assert_eq!(write_unlock(Lock::Held(Mode::Write, None)), Give::NotOwner);
        assert_eq!(write_unlock(WRITTEN), Give::Last);
        assert_eq!(write_unlock(Lock::Free), Give::OfNone);
        assert_eq!(read_unlock(WRITTEN), Give::Last, "a writer's own read hold");
        assert_eq!(read_unlock(Lock::Held(Mode::Read, Some(2))), Give::Less);
        assert_eq!(read_unlock(Lock::Held(Mode::Read, None)), Give::NotOwner);
    }
}

#[cfg(test)]
mod tests_1 {
    use super::*;

    fn readers(fields: &[(&str, &str)]) -> Readers {
        let mut readers = Readers::default();
        for (field, value) in fields {
            readers.field(field.as_bytes(), value.as_bytes());
        }
        readers
    }

    #[test]
    fn one_hold_less_has_one_timeout_less() {
        let left = readers(&[("mode", "read"), ("a", "1"), ("b", "2")]).without_one(b"b", b"{k}");
        let expected: Vec<Reader> = vec![(b"a"[..].into(), 1), (b"b"[..].into(), 1)];
        assert_eq!(left, Some(expected));
    }

    #[test]
    fn unusual_counts_and_very_many_holds_are_left_to_lua() {
        assert_eq!(
            readers(&[("a", "1"), ("b", "1e1")]).without_one(b"a", b"{k}"),
            None
        );
        let many: Vec<String> = (0..101).map(|n| format!("r{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&name[..], "100")).collect();
        assert_eq!(readers(&many).without_one(b"a", b"{k}"), None);
        let one = || readers(&[("a", "100")]);
        assert!(one().without_one(b"a", b"{k}").is_some());
        assert_eq!(
            one().without_one(b"a", &[b'k'; 1 << 20]),
            None,
            "long names"
        );
    }

    #[test]
    fn timeout_names_follow_redisson() {
        assert_eq!(timeout_of(b"{k}", b"u:1", 2), b"{k}:u:1:rwlock_timeout:2");
        assert_eq!(
            own_timeout(b"{k}:u:1:rwlock_timeout", 1),
            b"{k}:u:1:rwlock_timeout:1"
        );
    }
}
