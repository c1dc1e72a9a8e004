//! The module's commands as this crate sends them.

use std::time::Duration;

use redis::{cmd, Cmd, Value};

use crate::error::{Error, Result};
use crate::mode::Mode;

/// What an owner holds, or wants to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A lock.
    Lock(Mode),
    /// A permit of a semaphore, which is made with so many permits where there is none.
    Permit { limit: Option<u32> },
}

impl Kind {
    /// Tells apart what one owner may hold of one key.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Lock(mode) => mode.word().unwrap_or_default(),
            Kind::Permit { .. } => "PERMIT",
        }
    }
}

/// A hold of a key: what every command names.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub key: Vec<u8>,
    pub owner: Vec<u8>,
    pub kind: Kind,
}

/// `LOCK.ACQUIRE` or `SEM.ACQUIRE`: a token, or nil. Parked in the server for so long, where that is not zero.
pub(crate) fn acquire(claim: &Claim, lease: Duration, block: Duration) -> Cmd {
    let mut command = start(claim, "LOCK.ACQUIRE", "SEM.ACQUIRE");
    command.arg("PX").arg(millis(lease));
    match claim.kind {
        Kind::Lock(_) => command.arg("ONCE"),
        // A second request of one owner for a permit is always answered as the first.
        Kind::Permit { limit: None } => &mut command,
        Kind::Permit { limit: Some(limit) } => command.arg("LIMIT").arg(limit),
    };
    parked(&command, block)
}

/// The same request, parked in the server for so long, where that is not zero.
pub(crate) fn parked(command: &Cmd, block: Duration) -> Cmd {
    let mut command = command.clone();
    if !block.is_zero() {
        command.arg("BLOCK").arg(millis(block));
    }
    command
}

/// The answer to an acquire: a token or nil. The answer to `LATCH.WAIT`: 1 or 0, which is no token.
pub(crate) fn granted(reply: &Value, server: &str) -> Result<Option<u64>> {
    match reply {
        Value::Nil | Value::Int(0) => Ok(None),
        Value::Int(token) => Ok(u64::try_from(*token).ok()),
        _ => Err(Error::reply(server)),
    }
}

/// `LOCK.RENEW` or `SEM.RENEW`: 1, or 0 when that grant is over.
pub(crate) fn renew(claim: &Claim, lease: Duration, token: u64) -> Cmd {
    let mut command = start(claim, "LOCK.RENEW", "SEM.RENEW");
    command.arg("PX").arg(millis(lease));
    with_token(command, claim, token)
}

/// `HEXISTS`: 1 while the owner's field is there. None for a reader and for a permit: the key changes with every
/// other one.
pub(crate) fn look(claim: &Claim) -> Option<Cmd> {
    let field = match claim.kind {
        Kind::Lock(Mode::Exclusive) => claim.owner.clone(),
        Kind::Lock(Mode::Write) => [&claim.owner[..], b":write"].concat(),
        Kind::Lock(Mode::Read) | Kind::Permit { .. } => return None,
    };
    let mut command = cmd("HEXISTS");
    command.arg(&claim.key).arg(field);
    Some(command)
}

/// `LOCK.RELEASE ... ALL` or `SEM.RELEASE`: nil when the owner does not hold the key, or the lock not under that
/// token. Without a token it withdraws a wait as well.
pub(crate) fn release(claim: &Claim, token: Option<u64>) -> Cmd {
    let mut command = start(claim, "LOCK.RELEASE", "SEM.RELEASE");
    if let Kind::Lock(_) = claim.kind {
        command.arg("ALL");
    }
    match token {
        Some(token) => with_token(command, claim, token),
        None => command,
    }
}

fn start(claim: &Claim, of_lock: &str, of_permit: &str) -> Cmd {
    let (name, mode) = match claim.kind {
        Kind::Lock(mode) => (of_lock, mode.word()),
        Kind::Permit { .. } => (of_permit, None),
    };
    let mut command = cmd(name);
    command.arg(&claim.key).arg(&claim.owner).arg(mode);
    command
}

/// Only if the lock is held under this token. Of a permit its owner says as much: it holds one at most.
fn with_token(mut command: Cmd, claim: &Claim, token: u64) -> Cmd {
    if let Kind::Lock(_) = claim.kind {
        command.arg("TOKEN").arg(token);
    }
    command
}

/// At least one: zero has a meaning of its own.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}
