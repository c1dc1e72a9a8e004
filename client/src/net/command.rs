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
    /// How a lock is held, as commands say it.
    fn mode_word(self) -> Option<&'static str> {
        match self {
            Kind::Lock(mode) => mode.word(),
            Kind::Permit { .. } => None,
        }
    }

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

/// `LOCK.ACQUIRE`, `LOCK.MACQUIRE` or `SEM.ACQUIRE`: tokens, or nil. Parked in the server for so long, where that is not
/// zero. The claims have one owner and kind; of permits there is one.
pub(crate) fn acquire<'a>(
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    lease: Duration,
    block: Duration,
) -> Cmd {
    let Some(claim) = claims.clone().next() else {
        return Cmd::new();
    };
    let mut command = match claims.len() {
        1 => start(claim, "LOCK.ACQUIRE", "SEM.ACQUIRE"),
        number => {
            let mut command = cmd("LOCK.MACQUIRE");
            command.arg(number);
            for claim in claims {
                command.arg(&claim.key);
            }
            command.arg(&claim.owner).arg(claim.kind.mode_word());
            command
        }
    };
    command.arg("PX").arg(millis(lease));
    match claim.kind {
        Kind::Lock(_) => command.arg("ONCE"),
        // A second request of one owner for a permit is always answered as the first.
        Kind::Permit { limit: None } => &mut command,
        Kind::Permit { limit: Some(limit) } => command.arg("LIMIT").arg(limit),
    };
    parked(&command, block)
}

/// `LOCK.ACQUIRE ... SESSION`: a token, or nil; the hold is bound to the connection.
pub(crate) fn acquire_bound(claim: &Claim, block: Duration) -> Cmd {
    let mut command = start(claim, "LOCK.ACQUIRE", "SEM.ACQUIRE");
    command.arg("SESSION").arg("ONCE");
    parked(&command, block)
}

/// `LOCK.INFO`.
pub(crate) fn info(claim: &Claim) -> Cmd {
    let mut command = cmd("LOCK.INFO");
    command.arg(&claim.key);
    command
}

/// The same request, parked in the server for so long, where that is not zero.
pub(crate) fn parked(command: &Cmd, block: Duration) -> Cmd {
    let mut command = command.clone();
    if !block.is_zero() {
        command.arg("BLOCK").arg(millis(block));
    }
    command
}

/// The answer to an acquire: a token for each claim, or nil. The answer to `LATCH.WAIT`: 1 or 0, which is no token.
pub(crate) fn granted(reply: &Value, server: &str) -> Result<Option<Vec<u64>>> {
    let token = |reply: &Value| match reply {
        Value::Int(token) => u64::try_from(*token).map_err(|_| Error::reply(server)),
        _ => Err(Error::reply(server)),
    };
    match reply {
        Value::Nil | Value::Int(0) => Ok(None),
        Value::Array(tokens) => tokens.iter().map(token).collect::<Result<_>>().map(Some),
        one => Ok(Some(vec![token(one)?])),
    }
}

/// `LOCK.RENEW` or `SEM.RENEW`: 1, or 0 when that grant is over. Without a lease, of a hold that is bound to a connection,
/// it is the server's, and the hold stays bound.
pub(crate) fn renew(claim: &Claim, lease: Option<Duration>, token: u64) -> Cmd {
    let mut command = start(claim, "LOCK.RENEW", "SEM.RENEW");
    if let Some(lease) = lease {
        command.arg("PX").arg(millis(lease));
    }
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
    let mut command = cmd(match claim.kind {
        Kind::Lock(_) => of_lock,
        Kind::Permit { .. } => of_permit,
    });
    command.arg(&claim.key).arg(&claim.owner);
    command.arg(claim.kind.mode_word());
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
