//! Errors of a command: those of its words, of the caller's permissions, and those of locking.

use std::fmt;

use crate::lock::LockError;
use crate::module::scan::ScanError;
use crate::module::tickets::Refusal;

/// The error that a command replies. The first word of its text is a stable code that clients may match; where
/// Redis has a wording for the case, the text is that wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// An error of locking.
    Lock(LockError),
    /// An error of one word, found by the parser: the text behind the code, which names the word.
    Word(Box<str>),
    /// An empty owner.
    OwnerEmpty,
    /// An owner longer than `lock.max-owner-len`.
    OwnerTooLong,
    /// An owner with the name of the token's field, or of the note's.
    OwnerReserved,
    /// An owner that, in the hash of a read-write lock, has the form of another field.
    OwnerLooksLikeField,
    /// A key with the name of a horizon or of a Redisson token counter.
    KeyReserved,
    /// A key with the name of a key beside a read-write lock.
    KeyBesideLock,
    /// A channel longer than 256 bytes.
    ChannelTooLong,
    /// A note longer than 256 bytes.
    NoteTooLong,
    /// A tag longer than 64 bytes.
    TagTooLong,
    /// `NOTIFY` while `lock.max-tickets` is 0.
    NotifyOff,
    /// In a cluster: the channel of `NOTIFY` is in another slot than the key.
    ChannelElsewhere,
    /// The caller's user may not publish to the channel of `NOTIFY`.
    MayNotPublish,
    /// The channel of `NOTIFY` has no subscriber.
    NoSubscriber,
    /// `LATCH.WAIT` would wait, and the server is out of memory: its own error for other commands that need some.
    OutOfMemory,
    /// `SESSION` in a call without a connection.
    NoSession,
    /// Redis 7.0, `LOCK.BREAK`: the caller's user may not run the equivalent commands.
    MayNotBreak,
    /// The caller's user may not run `SCAN`, or the call has no user.
    MayNotScan,
    /// The caller's user has no access to the keys beside a read-write lock.
    MayNotUseSiblings,
    /// The caller's user may not write Redisson's counter of the lock's tokens.
    MayNotWriteCounter,
    /// The caller's user has no access to the key of a semaphore's permits.
    MayNotUsePermits,
    /// `LOCK.IF`: no hold has the token.
    Fenced,
    /// `LOCK.IF` with a command that it does not run; its name.
    NotFenced(Box<str>),
    /// `LOCK.IF`: the caller's user may not run the command, or not with its keys and channels; its name.
    MayNotRun(Box<str>),
    /// `LOCK.IF`: a command of another module, and the server does not run the script for it; its name.
    NoScript(Box<str>),
    /// `LOCK.IF`: the error that the command has without the fence.
    Plain(Box<str>),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CommandError as E;
        f.write_str(match self {
            E::Lock(error) => return error.fmt(f),
            E::Word(text) => return write!(f, "ERR {text}"),
            E::OwnerEmpty => "ERR owner is empty",
            E::OwnerTooLong => "ERR owner is longer than lock.max-owner-len",
            E::OwnerReserved => "ERR owners that begin with '#' are reserved",
            E::OwnerLooksLikeField => {
                "ERR the owner 'mode', or one that ends in ':write', cannot hold READ or WRITE"
            }
            E::KeyReserved => {
                "ERR keys that begin with 'redis_lock:horizon' or 'redisson_lock_token:' are reserved"
            }
            E::KeyBesideLock => "ERR the key is named like one of those beside a read-write lock",
            E::ChannelTooLong => "ERR the channel is longer than 256 bytes",
            E::NoteTooLong => "ERR the note is longer than 256 bytes",
            E::TagTooLong => "ERR the tag is longer than 64 bytes",
            E::NotifyOff => {
                "ERR NOTIFY is turned off, CONFIG SET lock.max-tickets 100000 turns it on"
            }
            E::ChannelElsewhere => {
                "CROSSSLOT the channel of NOTIFY does not hash to the slot of the key"
            }
            E::MayNotPublish => "NOPERM NOTIFY needs permission to run PUBLISH on the channel",
            E::NoSubscriber => "NOSUBSCRIBER no client is subscribed to the channel",
            E::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            E::NoSession => {
                "ERR SESSION is not allowed from scripts, nor where there is no connection"
            }
            E::MayNotBreak => {
                "NOPERM LOCK.BREAK needs permission to run DEL on the key and CLIENT KILL"
            }
            E::MayNotScan => "NOPERM LOCK.SCAN needs permission to run SCAN",
            E::MayNotUseSiblings => {
                "NOPERM READ and WRITE need access to the keys beside the lock, named '{lock}:*'"
            }
            E::MayNotWriteCounter => {
                "NOPERM the lock has a counter of Redisson's, which a grant writes: 'redisson_lock_token:{lock}'"
            }
            E::MayNotUsePermits => {
                "NOPERM a semaphore needs access to the key of its permits, '{semaphore}:timeout'"
            }
            E::Fenced => "FENCED the lock is not held under this token",
            E::NotFenced(name) => {
                return write!(
                    f,
                    "ERR LOCK.IF runs commands of the server that have a key, PUBLISH and SPUBLISH, not '{name}'"
                );
            }
            E::NoScript(name) => {
                return write!(
                    f,
                    "ERR '{name}' may be another module's and block, and this server runs no EVAL: send LOCK.IF in MULTI"
                );
            }
            E::Plain(text) => text,
            E::MayNotRun(name) => {
                return write!(
                    f,
                    "NOPERM this user may not run the command '{name}', or not with these keys and channels"
                );
            }
        })
    }
}

impl std::error::Error for CommandError {}

impl From<LockError> for CommandError {
    fn from(error: LockError) -> CommandError {
        CommandError::Lock(error)
    }
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> CommandError {
        match refusal {
            Refusal::Off => CommandError::NotifyOff,
            Refusal::OtherSlot => CommandError::ChannelElsewhere,
            Refusal::NotPermitted => CommandError::MayNotPublish,
            Refusal::NoSubscriber => CommandError::NoSubscriber,
        }
    }
}

impl From<ScanError> for CommandError {
    fn from(error: ScanError) -> CommandError {
        match error {
            ScanError::NotPermitted => CommandError::MayNotScan,
            ScanError::UnknownReply => LockError::Internal.into(),
        }
    }
}
