//! Errors of locking. Contention is not an error: a refused acquire is a value.

use std::fmt;
use std::rc::Rc;

/// The error of a request. The first word of its text is a stable code that clients may match; where Redis has a
/// wording for the case, the text is that wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// The key holds another Redis type.
    WrongType,
    /// `LOCK.BREAK`: the key holds a number with a TTL, which may be a lock of another library, or the count of a latch
    /// or a semaphore.
    MayBeCount,
    /// The key holds a hash that is no lock.
    LockType,
    /// The request says READ or WRITE, and the key is held as an exclusive lock.
    HeldExclusively,
    /// The request says neither READ nor WRITE, and the key is held as a read-write lock.
    HeldReadWrite,
    /// The key holds a string that is not the number of a semaphore or a latch.
    NotCount,
    /// The timeouts of a first READ hold would be those of another lock's reader.
    SiblingsTaken,
    /// The whole name is in braces: its sibling keys are those of the name without them.
    Braced,
    /// A key beside a read-write lock, or the key of a semaphore's permits, holds another type or value.
    SiblingForeign,
    /// The key of the horizon holds another type.
    HorizonForeign,
    /// The key is used as a semaphore and as a latch.
    OtherCount,
    /// The permits of a semaphore of this name would be in another slot of the cluster.
    PermitsElsewhere,
    /// A limit on places is reached: of this key, of the server in number or bytes, or of the user.
    Busy,
    /// The limit on holds that are bound to connections is reached.
    TooManyBound,
    /// The names of a hold that is to be bound to a connection are too long.
    LongSession,
    /// The names of the keys that the request would wait for are too long together.
    LongWait,
    /// The request would wait for itself; the keys of the cycle, ready to be printed.
    Deadlock(Rc<str>),
    /// While the request waited, its user lost the permission to take the key, or was deleted.
    Forbidden,
    /// `LOCK.BREAK ... PURGE` removed the waiter.
    Broken,
    /// The owner holds both READ and WRITE, and the request names neither.
    WhichHold,
    /// A second reader of one lock asks for WRITE: the two would wait for each other for ever.
    Upgrade,
    /// The keys beside a read-write lock would be in another slot of the cluster.
    SiblingsLeave,
    /// The owner would have more READ holds of one lock than one owner may have.
    TooManyReads,
    /// The hold count would exceed 2^31-1.
    HoldCountOverflow,
    /// The token stored with a lock is implausibly far ahead of the clock; the key, ready to be printed.
    TokenAhead(Rc<str>),
    /// A token counter of Redisson's is implausibly far ahead of the clock; its key, ready to be printed.
    CounterAhead(Rc<str>),
    /// Tokens have reached 2^53: the clock is absurdly far ahead.
    TokensExhausted,
    /// No grant is safe now: the key's slot moves between nodes, or the same transaction has paused writes. The client
    /// should retry.
    TryAgain,
    /// The timeouts that the command may read do not show whether a READ hold of the owner lasts.
    ManyHolds,
    /// The startup delay has not passed; the milliseconds left.
    InStartupDelay(u64),
    /// This server has become a replica, or the connection of the ticket's session has closed. (The server tells a
    /// parked client itself.)
    Unblocked,
    /// The slot of the key is another node's now.
    Moved,
    /// The keys of the request are in several slots of the cluster.
    CrossSlot,
    /// The slot moves between nodes, and not all keys of the request are on this one. The client should retry.
    Rehashing,
    /// The cluster is down.
    ClusterDown,
    /// A bug of this module was caught.
    Internal,
    /// The server refused a write of the module.
    NotWritten,
    /// More permits than 2^31-1.
    TooManyPermits,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Deadlock(keys) => {
                write!(f, "DEADLOCK the owner would wait for itself, by way of {keys}")
            }
            LockError::TokenAhead(key) => write!(
                f,
                "ERR the token stored with the lock {key} is more than an hour ahead of the clock, delete the key"
            ),
            LockError::CounterAhead(key) => write!(
                f,
                "ERR the token counter {key} is more than an hour ahead of the clock, delete the key"
            ),
            LockError::InStartupDelay(ms) => write!(
                f,
                "LOCKDELAY no lock is granted for {ms} ms more after the start, see lock.startup-delay"
            ),
            plain => f.write_str(plain.text()),
        }
    }
}

impl LockError {
    /// The code in the message of a ticket: the first word of the reply.
    pub fn code(&self) -> String {
        let text = self.to_string();
        text.split(' ').next().unwrap_or_default().into()
    }

    /// The reply of an error without data.
    fn text(&self) -> &'static str {
        use LockError as E;
        match self {
            E::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            E::MayBeCount => {
                "WRONGTYPE the key holds a number, which may be the count of a latch or a semaphore: DEL ends it, LOCK.BREAK does not"
            }
            E::LockType => "LOCKTYPE the key holds a hash that is no lock",
            E::HeldExclusively => {
                "LOCKTYPE the key holds an exclusive lock, which is used without READ and WRITE"
            }
            E::HeldReadWrite => "LOCKTYPE the key holds a read-write lock, say READ or WRITE",
            E::NotCount => {
                "LOCKTYPE the key holds a string that is not the number of a semaphore or a latch"
            }
            E::SiblingsTaken => {
                "LOCKTYPE the keys beside this one belong to another lock now: parts of names and owners around a colon may share them; a name with its owner may have 16 colons"
            }
            E::Braced => {
                "ERR READ, WRITE and semaphores need a name without braces around all of it: '{x}' would share the keys beside it with 'x'"
            }
            E::SiblingForeign => {
                "WRONGTYPE a key beside this one ('{key}:rwlock_token', '{key}:<owner>:rwlock_timeout:<n>' or '{key}:timeout') holds something else"
            }
            E::HorizonForeign => "WRONGTYPE the key redis_lock:horizon holds something else, delete it",
            E::OtherCount => {
                "LOCKTYPE the key is in use as a semaphore, or as a latch, and cannot be the other one"
            }
            E::PermitsElsewhere => {
                "ERR the permits of a semaphore of this name are in another slot, give it a hash tag or no brace"
            }
            E::WhichHold => "ERR the owner holds READ and WRITE, say which",
            E::Upgrade => {
                "DEADLOCK another reader of this lock waits for WRITE, release READ before asking for it"
            }
            E::SiblingsLeave => {
                "ERR a lock of this name cannot be READ or WRITE in a cluster, use a hash tag"
            }
            E::Busy => {
                "LOCKBUSY too many places in queues, see lock.max-waiters, lock.max-waiters-per-key, lock.max-tickets, lock.max-wait-bytes and lock.user-share"
            }
            E::TooManyBound => {
                "LOCKBUSY too many holds are bound to connections, see lock.session-lease and lock.user-share"
            }
            E::LongWait => "ERR the keys of a request that waits have at most 131072 bytes together",
            E::LongSession => "ERR SESSION needs a key and an owner of at most 1024 bytes together",
            E::Broken => "LOCKBROKEN the lock was broken and its waiters purged",
            E::TooManyReads => {
                "ERR the owner has 32 READ holds of this lock, the most that one owner may have (fewer with names of 2,000 bytes): use ONCE, or another owner"
            }
            E::HoldCountOverflow => "ERR hold count would overflow",
            E::TokensExhausted => "ERR fencing tokens are exhausted, check the server's clock",
            E::TryAgain => {
                "TRYAGAIN the slot is being migrated or writes are paused, try again later"
            }
            E::ManyHolds => "TRYAGAIN the owner has too many READ holds at these keys for one command, name fewer keys",
            E::Deadlock(_) | E::TokenAhead(_) | E::CounterAhead(_) | E::InStartupDelay(_) => "",
            E::Forbidden => "NOPERM the user is not permitted any more to take the key that it waits for",
            E::Unblocked => "UNBLOCKED this server is a replica now, or the connection has closed",
            E::Moved => "MOVED the slot of the key is another node's now",
            E::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot",
            E::Rehashing => "TRYAGAIN Multiple keys request during rehashing of slot",
            E::ClusterDown => "CLUSTERDOWN the cluster is down",
            E::Internal => "ERR internal error in the lock module, the server's log says where",
            E::NotWritten => {
                "ERR the server refused a write of the lock module, its log says which; the key says who holds the lock"
            }
            E::TooManyPermits => {
                "ERR value is not an integer or out of range: more than 2147483647 permits"
            }
        }
    }
}

impl std::error::Error for LockError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_first_word_of_the_reply() {
        assert_eq!(LockError::LockType.code(), "LOCKTYPE");
        assert_eq!(LockError::WrongType.code(), "WRONGTYPE");
    }
}
