//! The errors of the module's commands. Contention is not an error: it is a value of the reply.

use std::fmt;
use std::rc::Rc;

/// A refused request. The first word of its text is a stable code that clients may match; where Redis has a wording of
/// its own, that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// The key holds another Redis type.
    WrongType,
    /// The key holds a hash that is not a lock.
    LockType,
    /// The request names READ or WRITE, and the key is held as an exclusive lock.
    HeldExclusively,
    /// The request names neither READ nor WRITE, and the key is held as a read-write lock.
    HeldReadWrite,
    /// The key holds a string that is not the number of a semaphore or a latch.
    NotCount,
    /// The sibling keys of a read-write lock, or the permit set of a semaphore, belong to another one.
    SiblingsTaken,
    /// A sibling key of a read-write lock, or the permit set of a semaphore, holds something else.
    SiblingForeign,
    /// The key of the horizon holds something else.
    HorizonForeign,
    /// The key is used as a semaphore and as a latch.
    OtherCount,
    /// The permits of a semaphore of this name would be in another slot of the cluster.
    PermitsElsewhere,
    /// The limit on parked requests, of this key or of the server, is reached.
    Busy,
    /// The request would wait for its own owner; the keys of the cycle as text.
    Deadlock(Rc<str>),
    /// `LOCK.BREAK ... PURGE` removed the waiter.
    Broken,
    /// The owner holds both READ and WRITE, and the command names neither.
    WhichHold,
    /// A second reader of one lock would wait for WRITE: each would wait for the other for ever.
    Upgrade,
    /// The sibling keys of a read-write lock would be in another slot of the cluster.
    SiblingsLeave,
    /// The caller's user may not write the sibling keys of a read-write lock.
    MayNotWriteSiblings,
    /// The caller's user may not write the permit set of a semaphore.
    MayNotWritePermits,
    /// One more hold would exceed 2^31-1, or 1,000 of READ.
    HoldCountOverflow,
    /// The token stored with this lock is implausibly far ahead of the clock.
    TokenAhead,
    /// Redisson's token counter of this lock is implausibly far ahead of the clock.
    CounterAhead,
    /// Tokens have reached 2^53: the clock is absurdly far ahead.
    TokensExhausted,
    /// A grant cannot be made safe at the moment: the key's slot is migrating, or traffic was paused within this
    /// transaction. The client should ask again.
    TryAgain,
    /// The startup delay is on; the milliseconds left.
    InStartupDelay(u64),
    /// The module is being drained before it is unloaded. The client should ask again.
    Drained,
    /// The caller's user may not break this lock (only where the server does not check it itself).
    MayNotBreak,
    /// The caller's user may not run this command, which it sent.
    MayNotRun(&'static str),
    /// `lock.redisson` with other words than the command filter writes.
    UnknownScript,
    /// A Redisson script would be run by Lua inside another script.
    ScriptInScript,
    /// A Redisson script that is left to Lua would loop over more holds than the limit for Lua.
    TooManyHolds,
    /// The caller's user may not run `SCAN`, or there is no user to check.
    MayNotScan,
    /// The caller has no user to check.
    NoUser,
    /// The caller has no connection to bind a hold to.
    NoSession,
    /// `numkeys` is not a number, or not above zero.
    NumKeys,
    /// `numkeys` is greater than the number of keys in the request.
    MissingKeys,
    /// More keys than one request may have.
    TooManyKeys,
    /// The same key twice.
    SameKeys,
    /// A bug of this module was caught.
    Internal,
    /// The server has refused a write of the module.
    NotWritten,
    /// A cursor that is not a number of 64 bits.
    InvalidCursor,
    /// An unknown option, an option given twice, or one without its value.
    Syntax,
    /// A word that is not an integer of 64 bits.
    NotInteger,
    /// A count of zero or less.
    NotPositive,
    /// A lease below 1 ms or above the limit; the command's name.
    InvalidExpire(&'static str),
    /// A wait that is not a number.
    TimeoutNotInteger,
    /// A wait below zero.
    TimeoutNegative,
    /// A wait above the limit.
    TimeoutOutOfRange,
    /// An empty owner.
    OwnerEmpty,
    /// An owner above the limit.
    OwnerTooLong,
    /// An owner that is the name of the module's own field.
    OwnerReserved,
    /// An owner that is indistinguishable from the fields of a read-write lock.
    OwnerLooksLikeField,
    /// A key with a reserved name of the module.
    KeyReserved,
    /// A key with the name of a sibling key of a read-write lock.
    KeyBesideLock,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LockError as E;
        f.write_str(match self {
            E::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            E::LockType => "LOCKTYPE the key holds a hash that is no lock",
            E::HeldExclusively => {
                "LOCKTYPE the key holds an exclusive lock, which is used without READ and WRITE"
            }
            E::HeldReadWrite => "LOCKTYPE the key holds a read-write lock, say READ or WRITE",
            E::NotCount => {
                "LOCKTYPE the key holds a string that is not the number of a semaphore or a latch"
            }
            E::SiblingsTaken => {
                "LOCKTYPE the keys beside this one belong to another lock or semaphore now: names that differ in braces share them, and so may parts of names and owners around a colon"
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
            E::MayNotWriteSiblings => {
                "NOPERM READ and WRITE need access to the keys beside the lock, named '{lock}:*'"
            }
            E::MayNotWritePermits => {
                "NOPERM a semaphore needs access to the key of its permits, named '{semaphore}:timeout'"
            }
            E::Busy => {
                "LOCKBUSY too many places in queues, see lock.max-waiters, lock.max-waiters-per-key and lock.drain"
            }
            E::Deadlock(keys) => {
                return write!(f, "DEADLOCK the owner would wait for itself, by way of {keys}");
            }
            E::NumKeys => "ERR numkeys should be greater than 0",
            E::MissingKeys => "ERR Number of keys can't be greater than number of args",
            E::TooManyKeys => {
                return write!(f, "ERR more than {} keys in one request", crate::lock::MAX_KEYS);
            }
            E::SameKeys => "ERR the same key is given twice",
            E::Broken => "LOCKBROKEN the lock was broken and its waiters purged",
            E::HoldCountOverflow => "ERR hold count would overflow",
            E::TokenAhead => {
                "ERR the token stored with this lock is more than a hundred years ahead of the clock, delete the key"
            }
            E::CounterAhead => {
                "ERR the redisson_lock_token counter of this lock is more than a hundred years ahead of the clock, delete it"
            }
            E::TokensExhausted => "ERR fencing tokens are exhausted, check the server's clock",
            E::TryAgain => {
                "TRYAGAIN the slot is being migrated or writes are paused, try again later"
            }
            E::InStartupDelay(ms) => {
                return write!(
                    f,
                    "LOCKDELAY no lock is granted for {ms} ms more after the start, see lock.startup-delay"
                );
            }
            E::Drained => "UNBLOCKED the lock module is being unloaded, ask again",
            E::MayNotBreak => {
                "NOPERM LOCK.BREAK needs permission to run DEL on the key and CLIENT KILL"
            }
            E::MayNotRun(command) => {
                return write!(f, "NOPERM this user has no permissions to run the '{command}' command");
            }
            E::UnknownScript => "ERR not a script of Redisson's, or not called as Redisson does",
            E::ScriptInScript => "ERR a script of Redisson's cannot run inside a script",
            E::TooManyHolds => {
                "ERR the lock states too many holds for a script of Redisson's, delete the key or set lock.redisson-scripts to no"
            }
            E::MayNotScan => "NOPERM LOCK.SCAN needs permission to run SCAN",
            E::NoUser => {
                "NOPERM permissions cannot be checked inside a script or a module on this server"
            }
            E::NoSession => {
                "ERR SESSION is not allowed from scripts, nor where there is no connection"
            }
            E::Internal => "ERR internal error in the lock module, the server's log says where",
            E::NotWritten => {
                "ERR the server refused a write of the lock module, its log says which; the key says who holds the lock"
            }
            E::InvalidCursor => "ERR invalid cursor",
            E::Syntax => "ERR syntax error",
            E::NotInteger => "ERR value is not an integer or out of range",
            E::NotPositive => "ERR value is out of range, must be positive",
            E::InvalidExpire(command) => {
                return write!(f, "ERR invalid expire time in '{command}' command");
            }
            E::TimeoutNotInteger => "ERR timeout is not an integer or out of range",
            E::TimeoutNegative => "ERR timeout is negative",
            E::TimeoutOutOfRange => "ERR timeout is out of range",
            E::OwnerEmpty => "ERR owner is empty",
            E::OwnerTooLong => "ERR owner is longer than lock.max-owner-len",
            E::OwnerLooksLikeField => {
                "ERR the owner 'mode', or one that ends in ':write', cannot hold READ or WRITE"
            }
            E::OwnerReserved => "ERR owner '#token' is reserved",
            E::KeyReserved => {
                "ERR keys that begin with 'redis_lock:horizon' or 'redisson_lock_token:' are reserved"
            }
            E::KeyBesideLock => "ERR the key is named like one of those beside a read-write lock",
        })
    }
}

impl std::error::Error for LockError {}
