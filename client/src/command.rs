//! The module's commands as this crate sends them.

use std::time::Duration;

use redis::{cmd, Cmd, Value};

use crate::error::{Error, Result};
use crate::mode::Mode;

/// A hold of a key: what every command names.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub key: Vec<u8>,
    pub owner: Vec<u8>,
    pub mode: Mode,
}

/// `LOCK.ACQUIRE`: a token, or nil. Parked in the server for so long, where that is not zero.
pub(crate) fn acquire(claim: &Claim, lease: Duration, block: Duration) -> Cmd {
    let mut command = start("LOCK.ACQUIRE", claim);
    command.arg("PX").arg(millis(lease)).arg("ONCE");
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

/// What an acquire was answered.
pub(crate) fn granted(reply: &Value, server: &str) -> Result<Option<u64>> {
    match reply {
        Value::Nil => Ok(None),
        Value::Int(token) => Ok(u64::try_from(*token).ok()),
        _ => Err(Error::reply(server)),
    }
}

/// `LOCK.RENEW`: 1, or 0 when that grant is over.
pub(crate) fn renew(claim: &Claim, lease: Duration, token: u64) -> Cmd {
    let mut command = start("LOCK.RENEW", claim);
    command.arg("PX").arg(millis(lease));
    command.arg("TOKEN").arg(token);
    command
}

/// `HEXISTS`: 1 while the owner's field is there. None for a reader: the key changes with every other one.
pub(crate) fn look(claim: &Claim) -> Option<Cmd> {
    let field = match claim.mode {
        Mode::Exclusive => claim.owner.clone(),
        Mode::Write => [&claim.owner[..], b":write"].concat(),
        Mode::Read => return None,
    };
    let mut command = cmd("HEXISTS");
    command.arg(&claim.key).arg(field);
    Some(command)
}

/// `LOCK.RELEASE ... ALL`: nil when the owner does not hold the key, or not under that token. Whoever
/// does not know the token withdraws a wait as well.
pub(crate) fn release(claim: &Claim, token: Option<u64>) -> Cmd {
    let mut command = start("LOCK.RELEASE", claim);
    command.arg("ALL");
    if let Some(token) = token {
        command.arg("TOKEN").arg(token);
    }
    command
}

fn start(name: &str, claim: &Claim) -> Cmd {
    let mut command = cmd(name);
    command.arg(&claim.key).arg(&claim.owner);
    command.arg(claim.mode.word());
    command
}

/// At least one: zero has a meaning of its own.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}
