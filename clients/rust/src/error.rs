//! Errors of requests. A lock that another owner holds is not an error.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::outcome::LostReason;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The text for a server that has reached its limit of clients.
pub(crate) const NO_ROOM: &str = "no room for one more client (maxclients)";

/// The text for a server that does not answer.
const NO_ANSWER: &str = "no answer in time";

/// The reason why a request was not served. Its text has the words of the system or of TLS.
///
/// ```no_run
/// # async fn example(lock: redis_lock_client::Lock) {
/// use redis_lock_client::Error;
///
/// match lock.acquire().await {
///     Ok(guard) => drop(guard),
///     Err(Error::Refused { code, .. }) if code == "NOPERM" => eprintln!("the user may not"),
///     Err(error) if error.is_passing() => eprintln!("later, perhaps: {error}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server does not know the module's commands, or an older module not all of them.
    #[error(
        "{server} does not know {command}: load the module there (or a newer one), with `loadmodule \
         /usr/lib/redis/modules/libredis_lock.so` in its configuration, or with MODULE LOAD"
    )]
    #[non_exhaustive]
    NotLoaded {
        /// The server's name.
        server: String,
        /// The command that it does not know.
        command: String,
    },
    /// The server refused the request, with this code and text (`LOCKTYPE`, `DEADLOCK`, `NOPERM`, ...).
    #[error("{server}: {code} {text}")]
    #[non_exhaustive]
    Refused {
        /// The server's name.
        server: String,
        /// The first word of the server's error.
        code: String,
        /// The rest.
        text: String,
    },
    /// The server cannot be reached, or did not answer in time.
    #[error("{server}: {what}")]
    #[non_exhaustive]
    Connection {
        /// The server's name.
        server: String,
        /// What happened to the connection.
        what: String,
    },
    /// The request was sent and got no reply: it may have been served, or may be served soon. It was not repeated,
    /// because it must not be served twice; see [`Latch::count_down_by`](crate::Latch::count_down_by).
    #[error("{server}: {what}; the request may have been served")]
    #[non_exhaustive]
    Unheard {
        /// The server's name.
        server: String,
        /// What happened to the connection.
        what: String,
    },
    /// One side does not accept the other's certificate; repeating the request does not help.
    #[error("{server}: {what}")]
    #[non_exhaustive]
    Untrusted {
        /// The server's name.
        server: String,
        /// What it is about, and the error of TLS.
        what: String,
    },
    /// The semaphore does not exist, so it has no permits.
    #[error(
        "{server}: there is no semaphore {}: create it with SEM.SET, or acquire with a limit",
        crate::trace::text(key)
    )]
    #[non_exhaustive]
    NoSemaphore {
        /// The server's name.
        server: String,
        /// The semaphore's key.
        key: Vec<u8>,
    },
    /// As many requests as [`Lock::queue`](crate::Lock::queue) allows wait for the key already.
    #[error("{server}: QUEUEFULL {text}")]
    #[non_exhaustive]
    QueueFull {
        /// The server's name.
        server: String,
        /// The server's text.
        text: String,
    },
    /// Fewer replicas than wanted have confirmed the grant in time, which was given up
    /// ([`Lock::replicas`](crate::Lock::replicas)).
    #[error("{server}: {had} of {wanted} replicas have the grant within {} ms", within.as_millis())]
    #[non_exhaustive]
    NotReplicated {
        /// The server's name.
        server: String,
        /// The number of replicas that were to have it.
        wanted: u32,
        /// The number of those that had it.
        had: u32,
        /// The time that they had.
        within: Duration,
    },
    /// The lock was lost while work ran under it ([`Guard::run`](crate::Guard::run)).
    #[error("{0}")]
    Lost(LostReason),
    /// The request is invalid: an address, a lease, a list of servers.
    #[error("{what}")]
    #[non_exhaustive]
    Config {
        /// What is invalid, and why.
        what: String,
    },
}

impl Error {
    pub(crate) fn new(server: &str, error: RedisError) -> Error {
        let text = error.detail().unwrap_or_default().to_string();
        match (error.kind(), error.code()) {
            (ErrorKind::Server(ServerErrorKind::ResponseError), _)
                if text.to_lowercase().starts_with("unknown command") =>
            {
                let command = text.split(['\'', '`']).nth(1).unwrap_or("LOCK.ACQUIRE");
                unknown_command(server, command)
            }
            (ErrorKind::InvalidClientConfig, _) => Error::config(format!("{server}: {error}")),
            // By the text of the server. A passing error: other clients may disconnect.
            _ if error.to_string().contains("max number of clients reached") => {
                Error::connection(server, NO_ROOM)
            }
            (ErrorKind::Io, _) if is_about_certificates(&error) => Error::Untrusted {
                server: server.into(),
                what: format!("{}: {error}", distrust(&error)),
            },
            (_, Some("NOAUTH")) => {
                let text = "the server requires a login (redis://user:password@host)";
                Error::refused(server, "NOAUTH", text)
            }
            (_, Some("QUEUEFULL")) => Error::QueueFull {
                server: server.into(),
                text,
            },
            (_, Some(code)) => Error::refused(server, code, without_user(text)),
            (ErrorKind::AuthenticationFailed, None) => {
                Error::refused(server, "WRONGPASS", error.to_string())
            }
            _ => Error::connection(server, error.to_string()),
        }
    }

    pub(crate) fn refused(server: &str, code: &str, text: impl Into<String>) -> Error {
        Error::Refused {
            server: server.into(),
            code: code.into(),
            text: text.into(),
        }
    }

    pub(crate) fn config(what: impl Into<String>) -> Error {
        Error::Config { what: what.into() }
    }

    pub(crate) fn connection(server: &str, what: impl Into<String>) -> Error {
        Error::Connection {
            server: server.to_string(),
            what: what.into(),
        }
    }

    pub(crate) fn no_answer(server: &str) -> Error {
        Error::connection(server, NO_ANSWER)
    }

    /// Whether a server did not answer in time.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Error::Connection { what, .. } if what == NO_ANSWER)
    }

    pub(crate) fn reply(server: &str) -> Error {
        Error::connection(server, "a reply that is none of the module's")
    }

    /// The same error for a request that may have been served and is not repeated.
    pub(crate) fn unheard(self) -> Error {
        match self {
            Error::Connection { server, what } | Error::Untrusted { server, what } => {
                Error::Unheard { server, what }
            }
            other => other,
        }
    }

    /// Whether the same request may be served when it is repeated later.
    pub fn is_passing(&self) -> bool {
        const PASSING: &str = "TRYAGAIN BUSY LOCKDELAY LOCKBUSY NOREPLICAS OOM MISCONF";
        match self {
            Error::Connection { .. } => true,
            Error::Refused { code, .. } => self.is_elsewhere() || is_one_of(code, PASSING),
            Error::NotLoaded { .. }
            | Error::Unheard { .. }
            | Error::Untrusted { .. }
            | Error::NoSemaphore { .. }
            | Error::QueueFull { .. }
            | Error::NotReplicated { .. }
            | Error::Lost(_)
            | Error::Config { .. } => false,
        }
    }

    /// Whether the server refused with this code.
    pub(crate) fn has_code(&self, of: &str) -> bool {
        matches!(self, Error::Refused { code, .. } if code == of)
    }

    /// Whether the key holds other data, or a lock of another kind.
    pub(crate) fn is_wrong_type(&self) -> bool {
        self.has_code("WRONGTYPE") || self.has_code("LOCKTYPE")
    }

    /// Whether this server does not serve such requests at present, while another one may.
    pub(crate) fn is_elsewhere(&self) -> bool {
        const ELSEWHERE: &str = "READONLY LOADING CLUSTERDOWN MASTERDOWN UNBLOCKED";
        matches!(self, Error::Refused { code, .. } if is_one_of(code, ELSEWHERE))
    }
}

fn is_one_of(code: &str, codes: &str) -> bool {
    codes.split(' ').any(|one| one == code)
}

/// The error for an unknown command. The server quotes the arguments, which may have a password.
fn unknown_command(server: &str, command: &str) -> Error {
    let upper = command.to_ascii_uppercase();
    let families = ["LOCK.", "SEM.", "LATCH."];
    if families.iter().any(|family| upper.starts_with(family)) {
        let (server, command) = (server.into(), command.into());
        return Error::NotLoaded { server, command };
    }
    let hint = match upper.as_str() {
        "HELLO" => ": without RESP3 there the address needs ?protocol=2",
        _ => "",
    };
    Error::refused(server, "ERR", format!("unknown command '{command}'{hint}"))
}

/// The text of a refusal without the name of the user (`NOPERM` of Redis 7.2 and newer has it).
fn without_user(text: String) -> String {
    let rest = text
        .strip_prefix("User ")
        .and_then(|rest| rest.split_once(" has "));
    match rest {
        Some((user, rest)) if !user.contains(' ') => format!("this user has {rest}"),
        _ => text,
    }
}

/// What this error of TLS means.
fn distrust(error: &RedisError) -> &'static str {
    match error.to_string().contains("CertificateRequired") {
        true => "the server asks for a client's certificate, and none is given",
        false => "the certificate is not believed",
    }
}

/// Whether one side rejects the other's certificate. (Only the text of rustls' error is available here.)
fn is_about_certificates(error: &RedisError) -> bool {
    let text = error.to_string();
    let of_certificates = ["ertificate", "UnknownC", "AccessDenied"];
    text.contains("invalid peer certificate")
        || text
            .split_once("received fatal alert")
            .is_some_and(|(_, alert)| of_certificates.iter().any(|word| alert.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reply: &str) -> String {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
        let error = value.and_then(redis::Value::extract_error).err();
        error.map_or_else(String::new, |error| Error::new("h:1/0", error).to_string())
    }

    #[test]
    fn only_commands_of_the_module_are_a_reason_to_load_it() {
        let args = "with args beginning with: 'secret' ";
        let module = of(&format!("ERR unknown command 'LOCK.ACQUIRE', {args}"));
        assert!(
            module.starts_with("h:1/0 does not know LOCK.ACQUIRE: load"),
            "{module}"
        );
        let other = of(&format!("ERR unknown command 'SENTINEL', {args}"));
        assert_eq!(other, "h:1/0: ERR unknown command 'SENTINEL'");
        let hello = of(&format!("ERR unknown command 'HELLO', {args}"));
        assert!(hello.ends_with("the address needs ?protocol=2"), "{hello}");
    }

    #[test]
    fn no_refusal_names_the_user() {
        let known = of("NOPERM User app has no permissions to run the 'get' command");
        assert_eq!(
            known,
            "h:1/0: NOPERM this user has no permissions to run the 'get' command"
        );
    }
}
