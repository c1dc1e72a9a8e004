//! The module's commands, as requests of this crate.

use std::time::Duration;

use redis::{cmd, Cmd, Value};

use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::net::server::Server;

/// The kind of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A lock.
    Lock(Mode),
    /// So many permits of a semaphore. With a limit, the acquisition creates a missing semaphore with that many.
    Permit { limit: Option<u32>, count: u32 },
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Lock(mode) => mode.name(),
            Kind::Permit { .. } => "semaphore",
        }
    }

    /// The word for the mode in a command.
    fn mode_word(self) -> Option<String> {
        match self {
            Kind::Lock(mode) => mode.word(),
            Kind::Permit { .. } => None,
        }
    }
}

/// The server, key, owner and kind of a hold, which every command names.
#[derive(Clone)]
pub(crate) struct Claim {
    pub server: Server,
    pub key: Vec<u8>,
    pub owner: Vec<u8>,
    pub kind: Kind,
    /// A text beside an exclusive hold.
    pub note: Option<Vec<u8>>,
    /// Whether the program has chosen the owner. A fresh owner has one acquisition, which has the number 1 (`SEQ`); the
    /// acquisitions of a named owner have no numbers, because other processes may use the name.
    pub is_named: bool,
}

impl Claim {
    /// This process has changed the key, which the server does not tell its own connection (`NOLOOP`).
    pub(crate) fn changed(&self) {
        self.server.inner.invalidations.changed(&self.key);
    }
}

/// How a hold, or a wait, is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The hold with this token.
    Token(u64),
    /// All holds of this kind and the wait of the owner.
    All,
    /// The same, and a request of this acquisition that the server meets later grants nothing. Of a named owner: as
    /// [`All`](Ending::All).
    Final,
}

/// `LOCK.ACQUIRE`, `LOCK.MACQUIRE` or `SEM.ACQUIRE`: tokens, or nil. Sent twice, it is granted once. All claims have
/// the same owner and kind; of permits there is only one. Without a lease the hold is bound to the connection.
pub(crate) fn acquire(claims: &[Claim], lease: Option<Duration>) -> Cmd {
    let Some(claim) = claims.first() else {
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
            command.arg(&claim.owner);
            command
        }
    };
    command.arg(claim.kind.mode_word());
    match lease {
        Some(lease) => command.arg("PX").arg(millis(lease)),
        None => command.arg("SESSION"),
    };
    match claim.kind {
        Kind::Lock(_) => drop(command.arg("ONCE")),
        // A repeated request of one owner for permits always gets the reply of the first.
        Kind::Permit { limit, count } => {
            if let Some(limit) = limit {
                command.arg("LIMIT").arg(limit);
            }
            if count != 1 {
                command.arg("COUNT").arg(count);
            }
        }
    }
    with_number(command, claim)
}

/// `LOCK.BREAK ... TO`: the token, or 0 when the lock is not held under that one. Sent twice, it is granted once.
pub(crate) fn steal(claim: &Claim, lease: Duration, token: Option<u64>) -> Cmd {
    let mut command = cmd("LOCK.BREAK");
    command.arg(&claim.key);
    if let Some(token) = token {
        command.arg("TOKEN").arg(token);
    }
    command.arg("TO").arg(&claim.owner);
    command.arg("PX").arg(millis(lease));
    with_number(command, claim)
}

/// The number of the acquisition, and the note.
fn with_number(mut command: Cmd, claim: &Claim) -> Cmd {
    if !claim.is_named {
        command.arg("SEQ").arg(1);
    }
    if let Some(note) = &claim.note {
        command.arg("NOTE").arg(note);
    }
    command
}

/// `LOCK.INFO` with at most this number of waiters.
pub(crate) fn info(key: &[u8], max_waiters: u64) -> Cmd {
    let mut command = cmd("LOCK.INFO");
    command.arg(key);
    if max_waiters > 0 {
        command.arg("WAITERS").arg("COUNT").arg(max_waiters);
    }
    command
}

/// The same request as a ticket with this tag, which the server keeps for at most `block`.
pub(crate) fn notified(command: &Cmd, block: Duration, channel: &[u8], tag: u64) -> Cmd {
    let mut command = command.clone();
    command.arg("BLOCK").arg(millis(block));
    command.arg("NOTIFY").arg(channel).arg(tag);
    command
}

/// The reply to an acquire: a token for each claim, or nil. For `LATCH.WAIT`: 1 or 0, which is not a token.
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

/// `LOCK.RENEW` or `SEM.RENEW`: 1, or 0 when that grant is over. A session hold is renewed without a lease: it gets the
/// server's session lease and stays bound to the connection.
pub(crate) fn renew(claim: &Claim, lease: Option<Duration>, token: u64) -> Cmd {
    let mut command = start(claim, "LOCK.RENEW", "SEM.RENEW");
    command.arg(claim.kind.mode_word());
    if let Some(lease) = lease {
        command.arg("PX").arg(millis(lease));
    }
    with_token(command, claim, token)
}

/// `HEXISTS`: 1 while the owner's field exists. None for a reader and for a permit, whose key changes with every other
/// reader or permit.
pub(crate) fn field_exists(claim: &Claim) -> Option<Cmd> {
    let field = match claim.kind {
        Kind::Lock(Mode::Exclusive) => claim.owner.clone(),
        Kind::Lock(Mode::Write) => [&claim.owner[..], b":write"].concat(),
        Kind::Lock(Mode::Read | Mode::String) | Kind::Permit { .. } => return None,
    };
    let mut command = cmd("HEXISTS");
    command.arg(&claim.key).arg(field);
    Some(command)
}

/// `LOCK.RELEASE` or `SEM.RELEASE`: nil when the owner does not hold the key, or not under this token. (A permit needs
/// no token: its owner holds at most one.)
pub(crate) fn release(claim: &Claim, ending: Ending) -> Cmd {
    let mut command = start(claim, "LOCK.RELEASE", "SEM.RELEASE");
    if ending == Ending::Final && !claim.is_named {
        command.arg("FINAL").arg(1);
        return command;
    }
    command.arg(claim.kind.mode_word());
    if let Kind::Lock(_) = claim.kind {
        command.arg("ALL");
    }
    match ending {
        Ending::Token(token) => with_token(command, claim, token),
        Ending::All | Ending::Final => command,
    }
}

/// A command without the mode.
fn start(claim: &Claim, of_lock: &str, of_permit: &str) -> Cmd {
    let mut command = cmd(match claim.kind {
        Kind::Lock(_) => of_lock,
        Kind::Permit { .. } => of_permit,
    });
    command.arg(&claim.key).arg(&claim.owner);
    command
}

/// Restricts a command to the grant with this token. A permit needs no token: its owner holds at most one.
fn with_token(mut command: Cmd, claim: &Claim, token: u64) -> Cmd {
    if let Kind::Lock(_) = claim.kind {
        command.arg("TOKEN").arg(token);
    }
    command
}

/// Whole milliseconds, at least one: zero has a different meaning.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}
