//! How `redis-lock` ends when it does not end well: a message that says what to do, and a status out of
//! sysexits(3), as flock(1) has them.

use std::fmt::Display;
use std::io::{self, Write};

use redis_lock_client::Error;

use crate::shown::shown;

/// The command line makes no sense.
pub const USAGE: i32 = 64;
/// The key holds something else.
pub const DATA: i32 = 65;
/// A server cannot be reached, or does not serve.
pub const UNAVAILABLE: i32 = 69;
/// The machine refuses: no process, no memory.
pub const OS: i32 = 71;
/// The lock was lost: the command was stopped because of it, or had ended when the loss was found.
pub const LOST: i32 = 75;
/// The user may not.
pub const NOT_PERMITTED: i32 = 77;
/// The command cannot be run, or is not there: as shells say it.
pub const NOT_RUNNABLE: i32 = 126;
pub const NOT_FOUND: i32 = 127;
/// Added to the number of the signal that ended the command.
pub const BY_SIGNAL: i32 = 128;

/// A status, and what is said of it.
#[derive(Debug)]
pub struct Failure {
    status: i32,
    message: String,
}

impl Failure {
    pub fn new(status: i32, message: impl Display) -> Failure {
        let message = message.to_string();
        Failure { status, message }
    }

    /// What the server, or the way to it, says about this key.
    pub fn of(error: &Error, key: Option<&[u8]>) -> Failure {
        let reason = Reason::of(error, key);
        let message = match reason.advice {
            Some(advice) => format!("{}\n  {advice}", reason.message),
            None => reason.message,
        };
        let status = reason.status;
        Failure { status, message }
    }

    /// Why several servers do not serve: a line for each, and each advice once. One alone needs no headline.
    pub fn of_several(headline: String, reasons: &[Reason]) -> Failure {
        let mut lines: Vec<String> = match reasons {
            [only] => vec![only.message.clone()],
            _ => {
                let each = reasons.iter().map(|reason| format!("  {}", reason.message));
                [headline].into_iter().chain(each).collect()
            }
        };
        for advice in reasons.iter().filter_map(|reason| reason.advice.as_ref()) {
            let line = format!("  {advice}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        // The status is that of a refusal, if there is one: waiting does not help against it.
        let mut statuses = reasons.iter().map(|reason| reason.status);
        Failure {
            status: statuses
                .find(|status| *status != UNAVAILABLE)
                .unwrap_or(UNAVAILABLE),
            message: lines.join("\n"),
        }
    }

    /// Says it, and returns the status.
    pub fn tell(&self) -> i32 {
        for (i, line) in self.message.lines().enumerate() {
            let name = if i == 0 { "redis-lock: " } else { "" };
            say(&format!("{name}{}", shown(line.as_bytes())));
        }
        self.status
    }
}

/// Why a server does not serve, the status that this stands for, and what to do about it.
pub struct Reason {
    status: i32,
    message: String,
    advice: Option<String>,
}

impl Reason {
    pub fn of(error: &Error, key: Option<&[u8]>) -> Reason {
        let message = with_causes(error);
        let (status, advice) = match error {
            Error::Config { .. } | Error::Untrusted { .. } => (USAGE, None),
            Error::Refused { code, text, .. } => of_refusal(code, text, key),
            Error::Connection { .. } => (UNAVAILABLE, of_connection(&message)),
            _ => (UNAVAILABLE, None),
        };
        Reason {
            status,
            message,
            advice,
        }
    }

    /// A server that owes its answer.
    pub fn silence(server: &str) -> Reason {
        Reason {
            status: UNAVAILABLE,
            message: format!("{server}: no answer yet"),
            advice: None,
        }
    }
}

/// The error's own words, and those of what lies below it.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut below = std::error::Error::source(error);
    while let Some(cause) = below {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        below = cause.source();
    }
    text
}

fn of_refusal(code: &str, text: &str, key: Option<&[u8]>) -> (i32, Option<String>) {
    match code {
        "NOPERM" => (NOT_PERMITTED, Some(permission(text, key))),
        "NOAUTH" | "WRONGPASS" => (
            NOT_PERMITTED,
            Some("name the user in the URL (redis://user@host) and the password in REDISCLI_AUTH".into()),
        ),
        "WRONGTYPE" => (
            DATA,
            Some("the key is there and is no lock: choose another name".into()),
        ),
        "LOCKTYPE" if text.contains("no lock") => (
            DATA,
            Some("the key is there and is no lock: choose another name".into()),
        ),
        "LOCKTYPE" => (
            DATA,
            Some(
                "one key is locked in one way: by all with --shared or --exclusive, or by all with neither"
                    .into(),
            ),
        ),
        _ => (UNAVAILABLE, None),
    }
}

/// Names the permission that is missing: the server names the command, or else means the key.
fn permission(text: &str, key: Option<&[u8]>) -> String {
    let command = text.split('\'').nth(1).filter(|_| text.contains("command"));
    let user = text
        .split("ser ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let user = user
        .filter(|_| text.starts_with("User "))
        .unwrap_or("<user>");
    match (command, key) {
        (Some(command), _) => format!("to allow it: ACL SETUSER {user} +{command}"),
        (None, Some(key)) => format!(
            "reading and writing the key must be allowed: ACL SETUSER {user} ~{}",
            shown(key)
        ),
        (None, None) => "the user's ACL has to allow it".into(),
    }
}

fn of_connection(what: &str) -> Option<String> {
    let advice = if what.to_lowercase().contains("refused") {
        "no program listens there: is the server running, is it the right --server (or REDIS_LOCK_URL)?"
    } else {
        return None;
    };
    Some(advice.into())
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// A line on standard error. Where that is closed, nothing is said.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Ends the program: nothing that is under way is waited for.
pub fn exit(status: i32) -> ! {
    std::process::exit(status)
}
