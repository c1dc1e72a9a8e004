//! What a request may expect of a key, given what the key holds: the one place that says who excludes
//! whom. Who waits is another matter (see `queue`).

use crate::lock::{Hold, KeyState, LockError, Mode, Now, ReadWrite, Reader};

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compatibility<'s> {
    /// Nobody holds the lock.
    Free,
    /// The owner holds it already.
    Mine(&'s Hold),
    /// The owner holds the read-write lock in a way that lets this request in past the queue: it reads or
    /// writes again, reads what it writes, or is the only reader and asks for WRITE.
    Within,
    /// Somebody else holds it; the moment when that lease ends, if it does (Unix milliseconds).
    Blocked(Option<i64>),
}

/// Where a request of this mode and owner stands.
///
/// # Errors
/// Where the key holds something else: another type, another hash, a lock of the other kind.
pub fn compatibility<'s>(
    state: &'s KeyState,
    mode: Mode,
    owner: &[u8],
    now: Now,
) -> Result<Compatibility<'s>, LockError> {
    match state {
        KeyState::OtherType => return Err(LockError::WrongType),
        KeyState::OtherHash => return Err(LockError::LockType),
        _ => {}
    }
    match (mode, state) {
        (Mode::Exclusive, KeyState::ReadWrite(lock)) if lock.is_held(now) => {
            Err(LockError::HeldReadWrite)
        }
        (Mode::Exclusive, _) => Ok(exclusive(state, owner, now)),
        (Mode::Read, KeyState::ReadWrite(lock)) => Ok(read(lock, owner, now)),
        (Mode::Write, KeyState::ReadWrite(lock)) => Ok(write(lock, owner, now)),
        (Mode::Read | Mode::Write, _) if state.hold(now).is_some() => {
            Err(LockError::HeldExclusively)
        }
        (Mode::Read | Mode::Write, _) => Ok(Compatibility::Free),
    }
}

/// Whether somebody is in the way of such a request, or the key holds something else.
pub fn is_blocked(state: &KeyState, mode: Mode, owner: &[u8], now: Now) -> bool {
    let compatibility = compatibility(state, mode, owner, now);
    matches!(compatibility, Ok(Compatibility::Blocked(_)) | Err(_))
}

fn read<'s>(lock: &ReadWrite, owner: &[u8], now: Now) -> Compatibility<'s> {
    match lock.writer(now) {
        Some(writer) if writer.owner[..] == *owner => Compatibility::Within,
        Some(_) => Compatibility::Blocked(lock.deadline_ms),
        None if lock.reader(owner, now).is_some() => Compatibility::Within,
        None => Compatibility::Free,
    }
}

fn write<'s>(lock: &ReadWrite, owner: &[u8], now: Now) -> Compatibility<'s> {
    match lock.writer(now) {
        Some(writer) if writer.owner[..] == *owner => return Compatibility::Within,
        Some(_) => return Compatibility::Blocked(lock.deadline_ms),
        None if lock.is_over(now) => return Compatibility::Free,
        None => {}
    }
    let is_other = |reader: &Reader| reader.owner[..] != *owner;
    if lock.readers(now).any(is_other) || !lock.is_whole {
        Compatibility::Blocked(lock.ends(now, Some(owner)))
    } else if lock.reader(owner, now).is_some() {
        Compatibility::Within
    } else {
        Compatibility::Free
    }
}

fn exclusive<'s>(state: &'s KeyState, owner: &[u8], now: Now) -> Compatibility<'s> {
    match state.hold(now) {
        Some(hold) if hold.owner[..] == *owner => Compatibility::Mine(hold),
        Some(hold) => Compatibility::Blocked(hold.deadline_ms),
        None => Compatibility::Free,
    }
}
