//! What the scripts of `RReadWriteLock` do to plain data.
//!
//! The lock is a hash: `mode` is `read` or `write`, and every owner has its hold count, a writer in a field of
//! its own. Each hold of a reader has a key beside it, its *timeout*: the hash lives as long as the last of
//! them. A writer may read too; when it gives its last write hold back, the lock is one of readers.

use crate::lock::parse_integer;
use crate::redisson::scripts::rlock::lease_end;

/// One script of `RReadWriteLock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadWrite {
    /// Key: lock; arguments: lease, writer.
    WriteAcquire,
    /// Keys: lock, channel; arguments: message, lease, writer.
    WriteUnlock(Form),
    /// Keys: lock, what the reader's timeouts begin with; arguments: lease, reader, the same as a writer.
    ReadAcquire {
        /// Whether the hash may get a shorter lease than it has.
        shortens: bool,
    },
    /// Keys: lock, channel, what the reader's timeouts begin with, what all begin with; arguments: message,
    /// reader.
    ReadUnlock(Form),
    /// Unlock by force of a lock in this mode; keys: lock, channel; argument: message.
    Force(Mode, Form),
}

/// How the scripts of one kind differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// With nothing more.
    Plain,
    /// Another argument is the command that publishes.
    By,
    /// The same, another key is the latch and another argument its lease.
    Once,
    /// The same, and of a lock that nobody holds it says nil instead of `1`.
    OnceOrNil,
}

/// What a lock is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By readers.
    Read,
    /// By a writer, who may read, too.
    Write,
}

/// What a script sees of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No key.
    Free,
    /// A hash; the hold count of the caller, where it has one.
    Held(Mode, Option<i64>),
}

/// What an acquire does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The first hold.
    First,
    /// One more hold, in a hash that lives so long then.
    Again(i64),
    /// Nothing: the answer is the time to live.
    Refused,
}

/// What an unlock does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Give {
    /// One hold less.
    Less,
    /// The owner's last hold ends.
    Last,
    /// Nobody holds anything: that is published.
    OfNone,
    /// Nothing.
    NotOwner,
}

/// Lua counts exactly as far.
const EXACT: i64 = 1 << 53;
/// More readers' holds are not looked at one by one.
const MOST: i64 = 100;

/// The mode that a field states; `None` for anything else.
pub fn mode(value: &[u8]) -> Option<Mode> {
    match value {
        b"read" => Some(Mode::Read),
        b"write" => Some(Mode::Write),
        _ => None,
    }
}

/// Whether a hold count is one to go on.
pub fn is_plain_count(value: &[u8]) -> Option<i64> {
    parse_integer(value).filter(|count| (1..=MOST).contains(count))
}

/// A lease whose sums come out of Lua as they are.
fn plain_lease(lease: &[u8], now_ms: i64) -> Option<i64> {
    lease_end(lease, now_ms)?;
    parse_integer(lease).filter(|lease| *lease <= EXACT)
}

/// An acquire for writing, where the hash has so much time left. It adds to that.
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

/// An acquire for reading. It takes the longer one, or the new one.
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
    fn a_readers_lease_does_not_shorten_that_of_others_any_more() {
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
    fn who_holds_nothing_gives_nothing_back() {
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
