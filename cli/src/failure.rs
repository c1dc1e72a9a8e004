//! Failures of `redis-lock`: a message that says what to do, and an exit status of sysexits(3), as flock(1) uses them.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, Write};

use redis_lock_client::Error;

use crate::escape::shown;

/// The command line is invalid.
pub const USAGE: i32 = 64;
/// The key holds other data, or the semaphore does not exist.
pub const DATA: i32 = 65;
/// A server cannot be reached, or refuses to serve.
pub const UNAVAILABLE: i32 = 69;
/// The machine refuses: no process, no memory.
pub const OS: i32 = 71;
/// The command has succeeded, and its lock could not be released.
pub const STILL_HELD: i32 = 74;
/// The lock was lost: the command was stopped because of it, or had ended when the loss was found.
pub const LOST: i32 = 75;
/// The user lacks the permission.
pub const NOT_PERMITTED: i32 = 77;
/// The command was ended because its time was over: the status of timeout(1).
pub const TIMED_OUT: i32 = 124;
/// The command cannot be run, or does not exist: the statuses of shells.
pub const NOT_RUNNABLE: i32 = 126;
pub const NOT_FOUND: i32 = 127;
/// Added to the number of the signal that ended the command.
pub const BY_SIGNAL: i32 = 128;

/// An exit status, its message, and what to do.
#[derive(Debug)]
pub struct Failure {
    status: i32,
    message: String,
    advice: Vec<String>,
    /// Whether the same request may be served later.
    pub is_passing: bool,
}

impl Failure {
    pub fn new(status: i32, message: impl Display) -> Failure {
        Failure {
            status,
            message: message.to_string(),
            advice: vec![],
            is_passing: false,
        }
    }

    /// The failure for an error of the client about these keys.
    pub fn of<'a>(error: &Error, keys: impl IntoIterator<Item = &'a [u8]>) -> Failure {
        let message = error.to_string();
        let (status, advice) = match error {
            Error::Config { .. } | Error::Untrusted { .. } => (USAGE, None),
            Error::Refused { code, text, .. } => of_refusal(code, text, keys),
            Error::Connection { .. } => (UNAVAILABLE, of_connection(&message)),
            Error::NoSemaphore { .. } => (DATA, None),
            _ => (UNAVAILABLE, None),
        };
        Failure {
            advice: advice.into_iter().collect(),
            is_passing: error.is_passing(),
            ..Failure::new(status, message)
        }
    }

    /// The failure for several servers: a line for each, and each advice once. A single one gets no headline.
    pub fn of_several(headline: String, mut failures: Vec<Failure>) -> Failure {
        if failures.len() == 1 {
            return failures.remove(0);
        }
        // A refusal decides the status, because waiting does not help against it.
        let mut statuses = failures.iter().map(|failure| failure.status);
        let status = statuses.find(|status| *status != UNAVAILABLE);
        let mut several = Failure::new(status.unwrap_or(UNAVAILABLE), headline);
        several.is_passing = failures.iter().all(|failure| failure.is_passing);
        for failure in failures {
            several.message += &format!("\n  {}", failure.message);
            several.advice.extend(failure.advice);
        }
        let mut known = HashSet::new();
        several.advice.retain(|advice| known.insert(advice.clone()));
        several
    }

    /// Prints the message and returns the status.
    pub fn tell(&self) -> i32 {
        for (i, line) in self.to_string().lines().enumerate() {
            let name = if i == 0 { "redis-lock: " } else { "" };
            // The backslashes of names are doubled already.
            let line = shown(line.as_bytes()).replace(r"\\", r"\");
            say(&format!("{name}{line}"));
        }
        self.status
    }
}

/// The machine refuses.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(OS, error)
    }
}

/// Of no key.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::of(&error, [])
    }
}

fn of_refusal<'a>(
    code: &str,
    text: &str,
    keys: impl IntoIterator<Item = &'a [u8]>,
) -> (i32, Option<String>) {
    let (status, advice) = match code {
        "ERR" if ARGUMENTS.iter().any(|start| text.starts_with(start)) => return (USAGE, None),
        "NOPERM" => return (NOT_PERMITTED, Some(permission(text, keys))),
        "NOAUTH" | "WRONGPASS" => (
            NOT_PERMITTED,
            "name the user in the URL (redis://user@host) and the password in REDISCLI_AUTH",
        ),
        "LOCKTYPE" if !text.contains("no lock") => (
            DATA,
            "one key is locked in one way: by all with --shared or --exclusive, or by all with neither",
        ),
        "WRONGTYPE" | "LOCKTYPE" => (DATA, "the key is there and is no lock: choose another name, or of a semaphore name --permits (run), --owner (break)"),
        "MOVED" => (
            UNAVAILABLE,
            "the server is a node of a cluster: name it redis+cluster://host:port",
        ),
        _ => return (UNAVAILABLE, None),
    };
    (status, Some(advice.into()))
}

/// The beginnings of the texts of `ERR` that refuse an argument: an owner, a key, a note, a database.
const ARGUMENTS: [&str; 12] = [
    "owner is ",
    "owners that ",
    "the owner '",
    "keys that begin ",
    "the key is named ",
    "the note is ",
    "READ, WRITE and semaphores need a name ",
    "a lock of this name ",
    "the permits of a semaphore of this name ",
    "the keys of a request ",
    "DB index ",
    "SELECT is not allowed ",
];

/// The rights of a wait.
const WAIT: &str =
    "&lock:tickets:* +publish +subscribe (a wait needs them; in a cluster +spublish +ssubscribe)";

/// Names the missing permission, by the text of the module or of the server.
fn permission<'a>(text: &str, keys: impl IntoIterator<Item = &'a [u8]>) -> String {
    let says = |what| text.contains(what);
    let keys: Vec<_> = keys.into_iter().collect();
    let each = |start: &str, end: &str| {
        let patterns = keys.iter().map(|key| pattern(start, key, end));
        patterns.collect::<Vec<_>>().join(" ")
    };
    // The keys beside a key with a hash tag of its own are named by the whole key.
    let beside = |start: &str, end: &str| match keys.iter().any(|key| key.contains(&b'{')) {
        true => each(start, end),
        false => each(&format!("{start}{{"), &format!("}}{end}")),
    };
    let command = text.split('\'').nth(1).filter(|_| says("' command"));
    let rights = match command {
        Some("publish" | "spublish" | "subscribe" | "ssubscribe") => WAIT.into(),
        Some(command) => format!("+{command}"),
        None if says("run DEL on the key") => "+del +client|kill".into(),
        None if says("permission to run SCAN") => "+scan".into(),
        None if says("keys beside the lock") => beside("~", ":*"),
        None if says("key of its permits") => beside("~", ":timeout"),
        None if says("redisson_lock_token") => beside("~redisson_lock_token:", ""),
        None if says("channel") => WAIT.into(),
        None if keys.is_empty() => "~<key>".into(),
        None => {
            let (own, beside) = (each("~", ""), beside("~", ":*"));
            format!("{own} (with --shared, --exclusive and --permits also {beside})")
        }
    };
    format!("to allow it: ACL SETUSER <user> {rights}")
}

/// The pattern of this key alone between these texts, as a word for redis-cli.
fn pattern(start: &str, key: &[u8], end: &str) -> String {
    let mut pattern = start.as_bytes().to_vec();
    for byte in key {
        match byte {
            // No pattern of a user has a space.
            b' ' | b'\t'..=b'\r' | 0 => pattern.push(b'?'),
            b'*' | b'?' | b'[' | b'\\' => pattern.extend([b'\\', *byte]),
            _ => pattern.push(*byte),
        }
    }
    pattern.extend(end.bytes());
    let is_plain = |char: char| !char.is_control() && char != '"';
    match std::str::from_utf8(&pattern) {
        Ok(plain) if plain.chars().all(is_plain) => plain.into(),
        _ => format!("\"{}\"", pattern.escape_ascii()),
    }
}

fn of_connection(what: &str) -> Option<String> {
    let advice = "no program listens there: is the server running, is it the right --server (or REDIS_LOCK_URL)?";
    let is_refused = what.to_lowercase().contains("refused");
    is_refused.then(|| advice.into())
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let advice = self.advice.iter().map(|advice| format!("\n  {advice}"));
        write!(f, "{}{}", self.message, advice.collect::<String>())
    }
}

/// Whether the server refused with this code.
pub fn has_code(error: &Error, of: &str) -> bool {
    matches!(error, Error::Refused { code, .. } if code == of)
}

/// Prints a line on standard error, if that is open.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
