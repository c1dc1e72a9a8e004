//! What a request may expect of a key, given what the key holds: the one place that says who excludes
//! whom. Who waits is another matter (see `queue`).

use super::{Hold, KeyState, LockError, Mode, Now};

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'s> {
    /// Nobody holds the lock.
    Free,
    /// The owner holds it already.
    Mine(&'s Hold),
    /// Somebody else holds it; the moment when that lease ends, if it does (Unix milliseconds).
    Blocked(Option<i64>),
}

/// Where a request of this mode and owner stands.
///
/// # Errors
/// [`LockError::WrongType`] and [`LockError::LockType`] where the key holds something else.
pub fn standing<'s>(
    state: &'s KeyState,
    mode: Mode,
    owner: &[u8],
    now: Now,
) -> Result<Standing<'s>, LockError> {
    match state {
        KeyState::OtherType => return Err(LockError::WrongType),
        KeyState::OtherHash => return Err(LockError::LockType),
        _ => {}
    }
    match mode {
        Mode::Exclusive => Ok(exclusive(state, owner, now)),
        // The command's words for these do not exist yet.
        Mode::Read | Mode::Write => Err(LockError::LockType),
    }
}

fn exclusive<'s>(state: &'s KeyState, owner: &[u8], now: Now) -> Standing<'s> {
    match state.hold(now) {
        Some(hold) if hold.owner[..] == *owner => Standing::Mine(hold),
        Some(hold) => Standing::Blocked(hold.deadline_ms),
        None => Standing::Free,
    }
}
