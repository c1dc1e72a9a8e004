//! A known script of Redisson: its hash, its call, and the commands that it calls.

use crate::redisson::scripts::read_write::ReadWrite;
use crate::redisson::scripts::rlock::RLock;

/// One script of Redisson.
#[derive(Debug)]
pub struct Script {
    /// SHA1 of its text, in lower case.
    pub sha1: &'static str,
    /// Length of its text.
    pub length: usize,
    /// The number of keys of a call; `None`: any number, with one argument more than keys.
    pub keys: Option<usize>,
    /// The number of arguments, if the number of keys is fixed.
    pub args: usize,
    /// The native decision that replaces the script.
    pub native: Native,
    /// Every command that the script may call, on the keys of the call. A user that may not run one of them gets the
    /// script's own error.
    pub calls: &'static [InnerCall],
}

/// The native decisions, by kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// `RLock`.
    RLock(RLock),
    /// `RFencedLock`, where it differs from `RLock`.
    Fenced(Fenced),
    /// The spin lock, where it differs from `RLock`.
    Spin(Spin),
    /// `RReadWriteLock`.
    ReadWrite(ReadWrite),
}

/// One script of `RFencedLock`. Keys: lock, counter; arguments: lease, owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// Replies as the script of `RLock`.
    Acquire,
    /// Replies two numbers: -1 and the token, or the time to live and -1.
    AcquireToken,
}

/// One script of the spin lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// Unlock; key: lock; arguments: lease, owner.
    Unlock,
    /// As `Unlock`, with another key, the latch, and another argument, its lease.
    UnlockOnce,
}

/// A command that a script calls, with its key.
pub type InnerCall = (Inner, KeyOf);

/// The key of a call with which a command inside the script is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOf {
    /// The key with this index, from 0.
    At(usize),
    /// Each key.
    Each,
}

/// The commands that the scripts call.
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
    /// `PUBLISH` or `SPUBLISH`, as stated by the argument of the call with this index.
    Said(usize),
}

impl Inner {
    /// Every command with a fixed name.
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

    /// The number of words after the key or the channel.
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

    /// The publishing command that an argument of a call names; `None` for any other word.
    pub fn said(word: &[u8]) -> Option<Inner> {
        match word {
            PUBLISH => Some(Inner::Publish),
            SPUBLISH => Some(Inner::Spublish),
            _ => None,
        }
    }
}

/// Redisson's word for a message to every subscriber.
const PUBLISH: &[u8] = b"PUBLISH";

/// Redisson's word for a message to the subscribers of a shard.
const SPUBLISH: &[u8] = b"SPUBLISH";

/// The lock: the first key of every script.
pub(crate) const LOCK: KeyOf = KeyOf::At(0);

/// The channel, for scripts that publish.
pub(crate) const CHANNEL: KeyOf = KeyOf::At(1);

/// A script with a fixed number of keys and arguments.
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
