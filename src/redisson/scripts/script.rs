//! SCRIPT

use crate::redisson::scripts::read_write::ReadWrite;
use crate::redisson::scripts::rlock::RLock;

/// One script of Redisson's.
#[derive(Debug)]
pub struct Script {
    /// SHA1 of its text, in lower case.
    pub sha1: &'static str,
    /// Length of its text.
    pub length: usize,
    /// How many keys it is called with; `None`: any number, and one argument more than keys.
    pub keys: Option<usize>,
    /// How many arguments, where the number of keys is given.
    pub args: usize,
    /// What runs in its place.
    pub native: Native,
    /// Every command that it may call, on the keys of the call: who may not run one of them is not
    /// spared the script's own error.
    pub calls: &'static [InnerCall],
}

/// What runs in the place of a script, by kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// `RLock`.
    RLock(RLock),
    /// `RFencedLock`, where it is not an `RLock`.
    Fenced(Fenced),
    /// The spin lock, where it is not an `RLock`.
    Spin(Spin),
    /// `RReadWriteLock`.
    ReadWrite(ReadWrite),
}

/// One script of `RFencedLock`. Keys: lock, counter; arguments: lease, owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// Answers as that of `RLock` does.
    Acquire,
    /// Answers two numbers: -1 and the token, or the time to live and -1.
    AcquireToken,
}

/// One script of the spin lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// Unlock; key: lock; arguments: lease, owner.
    Unlock,
    /// The same with another key, the latch, and another argument, its lease.
    UnlockOnce,
}

/// A command that a script calls, and on which of its keys.
pub type InnerCall = (Inner, KeyOf);

/// Which keys of a script a command inside it is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOf {
    /// The key at this place, from 0.
    At(usize),
    /// Each key.
    Each,
}

/// Commands that the scripts call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// `DEL key`
    Del,
    /// `EXISTS key`
    Exists,
    /// `GET key`
    Get,
    /// `HDEL key field`
    Hdel,
    /// `HEXISTS key field`
    Hexists,
    /// `HGET key field`
    Hget,
    /// `HINCRBY key field increment`
    Hincrby,
    /// `HKEYS key`
    Hkeys,
    /// `HLEN key`
    Hlen,
    /// `HSET key field value`
    Hset,
    /// `INCR key`
    Incr,
    /// `PEXPIRE key milliseconds`
    Pexpire,
    /// `PTTL key`
    Pttl,
    /// `SET key value`
    Set,
    /// `PUBLISH channel message`
    Publish,
    /// `SPUBLISH channel message`
    Spublish,
    /// `PUBLISH` or `SPUBLISH`, as this argument of the call says.
    Said(usize),
}

impl Inner {
    /// Every command that has a name.
    pub const NAMED: [(Inner, &'static [u8]); 16] = [
        (Inner::Del, b"DEL"),
        (Inner::Exists, b"EXISTS"),
        (Inner::Get, b"GET"),
        (Inner::Hdel, b"HDEL"),
        (Inner::Hexists, b"HEXISTS"),
        (Inner::Hget, b"HGET"),
        (Inner::Hincrby, b"HINCRBY"),
        (Inner::Hkeys, b"HKEYS"),
        (Inner::Hlen, b"HLEN"),
        (Inner::Hset, b"HSET"),
        (Inner::Incr, b"INCR"),
        (Inner::Pexpire, b"PEXPIRE"),
        (Inner::Pttl, b"PTTL"),
        (Inner::Set, b"SET"),
        (Inner::Publish, PUBLISH),
        (Inner::Spublish, SPUBLISH),
    ];

    /// How many words follow the key or the channel.
    pub fn words_behind(self) -> usize {
        match self {
            Inner::Del
            | Inner::Exists
            | Inner::Get
            | Inner::Hkeys
            | Inner::Hlen
            | Inner::Incr
            | Inner::Pttl => 0,
            Inner::Hincrby | Inner::Hset => 2,
            _ => 1,
        }
    }

    /// The command that publishes, as an argument of a call says it; `None` for any other word.
    pub fn said(word: &[u8]) -> Option<Inner> {
        match word {
            PUBLISH => Some(Inner::Publish),
            SPUBLISH => Some(Inner::Spublish),
            _ => None,
        }
    }
}

/// How Redisson says that a message goes to everybody,
const PUBLISH: &[u8] = b"PUBLISH";

/// and that it goes to the listeners of a shard.
const SPUBLISH: &[u8] = b"SPUBLISH";

/// The lock, which is the first key of every script.
pub(crate) const LOCK: KeyOf = KeyOf::At(0);

/// The channel of those that publish.
pub(crate) const CHANNEL: KeyOf = KeyOf::At(1);

/// A script that is called with so many keys and arguments.
pub(crate) const fn script(
    sha1: &'static str,
    length: usize,
    (keys, args): (usize, usize),
    native: Native,
    calls: &'static [InnerCall],
) -> Script {
    Script {
        sha1,
        length,
        keys: Some(keys),
        args,
        native,
        calls,
    }
}
