//! Compatibility: the one place that states which holds exclude a request. The order of waiters is not part of it (see
//! `wait::queue`).

use crate::lock::{Hold, KeyState, LockError, Now, ReadWrite, Reader};

/// The relation of a request to the present holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compatibility<'s> {
    /// The lock has no holder.
    Free,
    /// The owner holds the lock already.
    Mine(&'s Hold),
    /// The owner holds the read-write lock in a way that lets this request pass the queue: it reads or writes again,
    /// reads beside its WRITE, or is the only reader and asks for WRITE.
    Within,
    /// Another owner holds the lock.
    Blocked,
}

/// The compatibility of a request of this mode and owner.
///
/// # Errors
/// If the key holds something else: another type, another hash, a lock of the other kind.
pub fn compatibility<'s>(
    state: &'s KeyState,
    mode: Mode,
    owner: &[u8],
    now: Now,
) -> Result<Compatibility<'s>, LockError> {
    state.check_is_lock()?;
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

/// Whether such a request is excluded by another owner's hold, or the key holds something else.
pub fn is_blocked(state: &KeyState, mode: Mode, owner: &[u8], now: Now) -> bool {
    let compatibility = compatibility(state, mode, owner, now);
    matches!(compatibility, Ok(Compatibility::Blocked) | Err(_))
}

fn read<'s>(lock: &ReadWrite, owner: &[u8], now: Now) -> Compatibility<'s> {
    match lock.writer(now) {
        Some(writer) if writer.owner[..] == *owner => Compatibility::Within,
        Some(_) => Compatibility::Blocked,
        None if lock.reader(owner, now).is_some() => Compatibility::Within,
        None => Compatibility::Free,
    }
}

fn write<'s>(lock: &ReadWrite, owner: &[u8], now: Now) -> Compatibility<'s> {
    match lock.writer(now) {
        Some(writer) if writer.owner[..] == *owner => return Compatibility::Within,
        Some(_) => return Compatibility::Blocked,
        None if lock.is_over(now) => return Compatibility::Free,
        None => {}
    }
    let is_other = |reader: &Reader| reader.owner[..] != *owner;
    if lock.readers(now).any(is_other) || !lock.is_whole {
        Compatibility::Blocked
    } else if lock.reader(owner, now).is_some() {
        Compatibility::Within
    } else {
        Compatibility::Free
    }
}

fn exclusive<'s>(state: &'s KeyState, owner: &[u8], now: Now) -> Compatibility<'s> {
    match state.hold(now) {
        Some(hold) if hold.owner[..] == *owner => Compatibility::Mine(hold),
        Some(_) => Compatibility::Blocked,
        None => Compatibility::Free,
    }
}

/// The kind of hold that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Redisson's `RLock`: one owner.
    Exclusive,
    /// The read half of Redisson's `RReadWriteLock`: any number of owners.
    Read,
    /// The write half: one owner.
    Write,
}

impl Mode {
    /// Its name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Read => "read",
            Mode::Write => "write",
        }
    }
}
