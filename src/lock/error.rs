//! Errors of a request: of its words, of the caller's permissions, and of locking. Contention is not an error: a
//! refused acquire is a value.

use std::rc::Rc;

/// The error of a request. The first word of its text is a stable code that clients may match; where Redis has a
/// wording for the case, the text is that wording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The key holds another Redis type.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// `LOCK.BREAK`: the key holds a number with a TTL, which may be a lock of another library, or the count of a latch
    /// or a semaphore.
    #[error("WRONGTYPE the key holds a number, which may be the count of a latch or a semaphore: DEL ends it, LOCK.BREAK does not")]
    MayBeCount,
    /// The key holds a hash that is no lock.
    #[error("LOCKTYPE the key holds a hash that is no lock")]
    LockType,
    /// The request says READ or WRITE, and the key is held as an exclusive lock.
    #[error("LOCKTYPE the key holds an exclusive lock, which is used without READ and WRITE")]
    HeldExclusively,
    /// The request says neither READ nor WRITE, and the key is held as a read-write lock.
    #[error("LOCKTYPE the key holds a read-write lock, say READ or WRITE")]
    HeldReadWrite,
    /// The key holds a string that is not the number of a semaphore or a latch.
    #[error("LOCKTYPE the key holds a string that is not the number of a semaphore or a latch")]
    NotCount,
    /// The timeouts of a first READ hold would be those of another lock's reader.
    #[error("LOCKTYPE the keys beside this one belong to another lock now: parts of names and owners around a colon may share them; a name with its owner may have 16 colons")]
    SiblingsTaken,
    /// The whole name is in braces: its sibling keys are those of the name without them.
    #[error("ERR READ, WRITE and semaphores need a name without braces around all of it: '{{x}}' would share the keys beside it with 'x'")]
    Braced,
    /// A key beside a read-write lock, or the key of a semaphore's permits, holds another type or value.
    #[error("WRONGTYPE a key beside this one ('{{key}}:rwlock_token', '{{key}}:<owner>:rwlock_timeout:<n>' or '{{key}}:timeout') holds something else")]
    SiblingForeign,
    /// The key of the horizon holds another type.
    #[error("WRONGTYPE the key redis_lock:horizon holds something else, delete it")]
    HorizonForeign,
    /// The key is used as a semaphore and as a latch.
    #[error(
        "LOCKTYPE the key is in use as a semaphore, or as a latch, and cannot be the other one"
    )]
    OtherCount,
    /// The permits of a semaphore of this name would be in another slot of the cluster.
    #[error("ERR the permits of a semaphore of this name are in another slot, give it a hash tag or no brace")]
    PermitsElsewhere,
    /// A limit on places is reached: of this key, of the server in number or bytes, or of the user.
    #[error("LOCKBUSY too many places in queues, see lock.max-waiters, lock.max-waiters-per-key, lock.max-tickets, lock.max-wait-bytes and lock.user-share")]
    Busy,
    /// As many requests as `QUEUE` allows wait for the key already.
    #[error("QUEUEFULL as many requests as QUEUE allows wait for the key already")]
    QueueFull,
    /// The limit on holds that are bound to connections is reached.
    #[error("LOCKBUSY too many holds are bound to connections, see lock.session-lease and lock.user-share")]
    TooManyBound,
    /// The names of a hold that is to be bound to a connection are too long.
    #[error("ERR SESSION needs a key and an owner of at most 1024 bytes together")]
    LongSession,
    /// The names of the keys that the request would wait for are too long together.
    #[error("ERR the keys of a request that waits have at most 131072 bytes together")]
    LongWait,
    /// The request would wait for itself; the keys of the cycle, ready to be printed.
    #[error("DEADLOCK the owner would wait for itself, by way of {0}")]
    Deadlock(Rc<str>),
    /// While the request waited, its user lost the permission to take the key, or was deleted.
    #[error("NOPERM the user is not permitted any more to take the key that it waits for")]
    Forbidden,
    /// `LOCK.BREAK ... PURGE` removed the waiter.
    #[error("LOCKBROKEN the lock was broken and its waiters purged")]
    Broken,
    /// The owner holds both READ and WRITE, and the request names neither.
    #[error("ERR the owner holds READ and WRITE, say which")]
    WhichHold,
    /// A second reader of one lock asks for WRITE: the two would wait for each other for ever.
    #[error(
        "DEADLOCK another reader of this lock waits for WRITE, release READ before asking for it"
    )]
    Upgrade,
    /// The keys beside a read-write lock would be in another slot of the cluster.
    #[error("ERR a lock of this name cannot be READ or WRITE in a cluster, use a hash tag")]
    SiblingsLeave,
    /// The owner would have more READ holds of one lock than one owner may have.
    #[error("ERR the owner has 32 READ holds of this lock, the most that one owner may have (fewer with names of 2,000 bytes): use ONCE, or another owner")]
    TooManyReads,
    /// The hold count would exceed 2^31-1.
    #[error("ERR hold count would overflow")]
    HoldCountOverflow,
    /// The token stored with a lock is implausibly far ahead of the clock; the key, ready to be printed.
    #[error("ERR the token stored with the lock {0} is more than an hour ahead of the clock, delete the key")]
    TokenAhead(Rc<str>),
    /// A token counter of Redisson's is implausibly far ahead of the clock; its key, ready to be printed.
    #[error("ERR the token counter {0} is more than an hour ahead of the clock, delete the key")]
    CounterAhead(Rc<str>),
    /// Tokens have reached 2^53: the clock is absurdly far ahead.
    #[error("ERR fencing tokens are exhausted, check the server's clock")]
    TokensExhausted,
    /// No grant is safe now: the key's slot moves between nodes, or the same transaction has paused writes. The client
    /// should retry.
    #[error("TRYAGAIN the slot is being migrated or writes are paused, try again later")]
    TryAgain,
    /// The timeouts that the command may read do not show whether a READ hold of the owner lasts.
    #[error(
        "TRYAGAIN the owner has too many READ holds at these keys for one command, name fewer keys"
    )]
    ManyHolds,
    /// The startup delay has not passed; the milliseconds left.
    #[error(
        "LOCKDELAY no lock is granted for {0} ms more after the start, see lock.startup-delay"
    )]
    InStartupDelay(u64),
    /// This server has become a replica, or the connection of the ticket's session has closed. (The server tells a
    /// parked client itself.)
    #[error("UNBLOCKED this server is a replica now, or the connection has closed")]
    Unblocked,
    /// The slot of the key is another node's now.
    #[error("MOVED the slot of the key is another node's now")]
    Moved,
    /// The keys of the request are in several slots of the cluster.
    #[error("CROSSSLOT Keys in request don't hash to the same slot")]
    CrossSlot,
    /// The slot moves between nodes, and not all keys of the request are on this one. The client should retry.
    #[error("TRYAGAIN Multiple keys request during rehashing of slot")]
    Rehashing,
    /// The cluster is down.
    #[error("CLUSTERDOWN the cluster is down")]
    ClusterDown,
    /// A bug of this module was caught.
    #[error("ERR internal error in the lock module, the server's log says where")]
    Internal,
    /// The server refused a write of the module.
    #[error("ERR the server refused a write of the lock module, its log says which; the key says who holds the lock")]
    NotWritten,
    /// More permits than 2^31-1.
    #[error("ERR value is not an integer or out of range: more than 2147483647 permits")]
    TooManyPermits,
    /// More permits in one grant than 64.
    #[error("ERR value is out of range: COUNT is at most 64 permits")]
    TooManyAtOnce,
    /// An error of one word, found by the parser: the text behind the code, which names the word.
    #[error("ERR {0}")]
    Word(Box<str>),
    /// An empty owner.
    #[error("ERR owner is empty")]
    OwnerEmpty,
    /// An owner longer than `lock.max-owner-len`.
    #[error("ERR owner is longer than lock.max-owner-len")]
    OwnerTooLong,
    /// An owner with the name of the token's field, or of the note's.
    #[error("ERR owners that begin with '#' are reserved")]
    OwnerReserved,
    /// An owner that, in the hash of a read-write lock, has the form of another field.
    #[error("ERR the owner 'mode', or one that ends in ':write', cannot hold READ or WRITE")]
    OwnerLooksLikeField,
    /// A key with the name of a horizon or of a Redisson token counter.
    #[error(
        "ERR keys that begin with 'redis_lock:horizon' or 'redisson_lock_token:' are reserved"
    )]
    KeyReserved,
    /// A key with the name of a key beside a read-write lock.
    #[error("ERR the key is named like one of those beside a read-write lock")]
    KeyBesideLock,
    /// A channel longer than 256 bytes.
    #[error("ERR the channel is longer than 256 bytes")]
    ChannelTooLong,
    /// A note longer than 256 bytes.
    #[error("ERR the note is longer than 256 bytes")]
    NoteTooLong,
    /// A tag longer than 64 bytes.
    #[error("ERR the tag is longer than 64 bytes")]
    TagTooLong,
    /// `NOTIFY` while `lock.max-tickets` is 0.
    #[error("ERR NOTIFY is turned off, CONFIG SET lock.max-tickets 100000 turns it on")]
    NotifyOff,
    /// In a cluster: the channel of `NOTIFY` is in another slot than the key.
    #[error("CROSSSLOT the channel of NOTIFY does not hash to the slot of the key")]
    ChannelElsewhere,
    /// The caller's user may not publish to the channel of `NOTIFY`.
    #[error("NOPERM NOTIFY needs permission to run PUBLISH on the channel")]
    MayNotPublish,
    /// The channel of `NOTIFY` has no subscriber.
    #[error("NOSUBSCRIBER no client is subscribed to the channel")]
    NoSubscriber,
    /// `LATCH.WAIT` would wait, and the server is out of memory: its own error for other commands that need some.
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    /// `SESSION` in a call without a connection.
    #[error("ERR SESSION is not allowed from scripts, nor where there is no connection")]
    NoSession,
    /// Redis 7.0, `LOCK.BREAK`: the caller's user may not run the equivalent commands.
    #[error("NOPERM LOCK.BREAK needs permission to run DEL on the key and CLIENT KILL")]
    MayNotBreak,
    /// The caller's user may not run `SCAN`, or the call has no user.
    #[error("NOPERM LOCK.SCAN needs permission to run SCAN")]
    MayNotScan,
    /// The caller's user has no access to the keys beside a read-write lock.
    #[error("NOPERM READ and WRITE need access to the keys beside the lock, named '{{lock}}:*'")]
    MayNotUseSiblings,
    /// The caller's user may not write Redisson's counter of the lock's tokens.
    #[error("NOPERM the lock has a counter of Redisson's, which a grant writes: 'redisson_lock_token:{{lock}}'")]
    MayNotWriteCounter,
    /// The caller's user has no access to the key of a semaphore's permits.
    #[error("NOPERM a semaphore needs access to the key of its permits, '{{semaphore}}:timeout'")]
    MayNotUsePermits,
    /// `LOCK.IF`: no hold has the token.
    #[error("FENCED the lock is not held under this token")]
    Fenced,
    /// `LOCK.IF` with a command that it does not run; its name.
    #[error(
        "ERR LOCK.IF runs commands of the server that have a key, PUBLISH and SPUBLISH, not '{0}'"
    )]
    NotFenced(Box<str>),
    /// `LOCK.IF`: the caller's user may not run the command, or not with its keys and channels; its name.
    #[error("NOPERM this user may not run the command '{0}', or not with these keys and channels")]
    MayNotRun(Box<str>),
    /// `LOCK.IF`: a command of another module, and the server does not run the script for it; its name.
    #[error("ERR '{0}' may be another module's and block, and this server runs no EVAL: send LOCK.IF in MULTI")]
    NoScript(Box<str>),
    /// `LOCK.IF`: the error that the command has without the fence.
    #[error("{0}")]
    Plain(Box<str>),
}

impl LockError {
    /// The code in the message of a ticket: the first word of the reply.
    pub fn code(&self) -> String {
        let text = self.to_string();
        text.split(' ').next().unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_first_word_of_the_reply() {
        assert_eq!(LockError::LockType.code(), "LOCKTYPE");
        assert_eq!(LockError::WrongType.code(), "WRONGTYPE");
    }
}
