//! What can go wrong, and what to do about it. That somebody else holds a lock is no error.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What happened to a connection where the server has as many clients as it may have.
pub(crate) const NO_ROOM: &str = "no room for one more client (maxclients)";

/// Why a request was not served.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server does not know the module's commands.
    #[error(
        "{server} does not know LOCK.ACQUIRE: load the module there, with `loadmodule \
         /usr/lib/redis/modules/libredis_lock.so` in its configuration, or with MODULE LOAD"
    )]
    NotLoaded {
        /// The server's name.
        server: String,
    },
    /// The server refused the request, with its own code and words (`LOCKTYPE`, `DEADLOCK`, `NOPERM`, ...).
    #[error("{server}: {code} {text}")]
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
    Connection {
        /// The server's name.
        server: String,
        /// What happened to the connection.
        what: String,
    },
    /// One side does not believe the other's certificate: no wait helps against that.
    #[error("{server}: {what}")]
    Untrusted {
        /// The server's name.
        server: String,
        /// In the words of TLS.
        what: String,
    },
    /// The request makes no sense as it stands: an address, a lease, a list of servers.
    #[error("{0}")]
    Config(String),
}

impl Error {
    pub(crate) fn new(server: &str, error: &RedisError) -> Error {
        let server = server.to_string();
        let text = error.detail().unwrap_or_default().to_string();
        match (error.kind(), error.code()) {
            (ErrorKind::Server(ServerErrorKind::ResponseError), _)
                if text.to_lowercase().starts_with("unknown command") =>
            {
                Error::NotLoaded { server }
            }
            (ErrorKind::InvalidClientConfig, _) => Error::Config(format!("{server}: {error}")),
            // In the words of the server: there is room again when others have gone.
            _ if error.to_string().contains("max number of clients reached") => Error::Connection {
                server,
                what: NO_ROOM.into(),
            },
            (ErrorKind::Io, _) if is_about_certificates(error) => Error::Untrusted {
                server,
                what: error.to_string(),
            },
            (_, Some(code)) => Error::Refused {
                server,
                code: code.to_string(),
                text,
            },
            (ErrorKind::AuthenticationFailed, None) => Error::Refused {
                server,
                code: "WRONGPASS".into(),
                text: error.to_string(),
            },
            _ => Error::Connection {
                server,
                what: error.to_string(),
            },
        }
    }

    pub(crate) fn no_answer(server: &str) -> Error {
        Error::Connection {
            server: server.to_string(),
            what: "no answer in time".into(),
        }
    }

    pub(crate) fn reply(server: &str) -> Error {
        Error::Connection {
            server: server.to_string(),
            what: "a reply that is none of the module's".into(),
        }
    }

    /// Whether the same request may be served when it is sent again in a while.
    pub fn is_passing(&self) -> bool {
        let passing = ["TRYAGAIN", "BUSY", "LOCKDELAY", "NOREPLICAS"];
        match self {
            Error::Connection { .. } => true,
            Error::Refused { code, .. } => self.is_elsewhere() || passing.contains(&code.as_str()),
            Error::NotLoaded { .. } | Error::Untrusted { .. } | Error::Config(_) => false,
        }
    }

    /// Whether the server says that it serves nothing of the kind at present: another one may.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let codes = [
            "READONLY",
            "LOADING",
            "CLUSTERDOWN",
            "MASTERDOWN",
            "UNBLOCKED",
        ];
        matches!(self, Error::Refused { code, .. } if codes.contains(&code.as_str()))
    }
}

/// Whether one side does not believe the other. (rustls' words are all that gets here of its error.)
fn is_about_certificates(error: &RedisError) -> bool {
    let text = error.to_string();
    text.contains("invalid peer certificate") || text.contains("received fatal alert")
}
