//! Why a request is refused. Contention is never an error: "it did not happen" is a value.

use std::fmt;

/// A refused request. The first word of the text is a stable code that clients may match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// The key holds another Redis type.
    WrongType,
    /// The key holds a hash that is not an exclusive lock.
    LockType,
    /// The limit on parked requests, of this key or of the server, is reached.
    Busy,
    /// `LOCK.BREAK ... PURGE` removed the waiter.
    Broken,
    /// One more hold would pass 2^31-1.
    HoldCountOverflow,
    /// The token stored with this lock, or Redisson's counter, is more than a day ahead of the clock.
    TokenAhead,
    /// Tokens have reached 2^53: the clock is, or once was, absurdly far ahead.
    TokensExhausted,
    /// The key's slot is on its way to another node; the client is to ask again.
    TryAgain,
    /// Traffic was paused within this very transaction, so a free key may only be a hidden one.
    Paused,
    /// The caller's user may not do this; the text names what is missing.
    NoPermission(&'static str),
    /// A bug of this module was caught on the way.
    Internal,
    /// Wrong words or numbers; the text follows the core's own.
    Syntax(&'static str),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockError::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            LockError::LockType => "LOCKTYPE the key holds a hash that is not an exclusive lock",
            LockError::Busy => {
                "LOCKBUSY too many waiters, see lock.max-waiters and lock.max-waiters-per-key"
            }
            LockError::Broken => "LOCKBROKEN the lock was broken and its waiters purged",
            LockError::HoldCountOverflow => "ERR hold count would overflow",
            LockError::TokensExhausted => {
                "ERR fencing tokens are exhausted, check the server's clock and the key redis_lock:horizon"
            }
            LockError::TokenAhead => {
                "ERR the token stored with this lock is more than a day ahead of the clock"
            }
            LockError::Paused => "TRYAGAIN writes are paused, try again later",
            LockError::TryAgain => "TRYAGAIN the slot is being migrated, try again later",
            LockError::Internal => {
                "ERR internal error in the lock module, the server's log says where"
            }
            LockError::NoPermission(text) | LockError::Syntax(text) => text,
        })
    }
}

impl std::error::Error for LockError {}
