//! The options that name the servers.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueHint;
use redis_lock_client::{Certificates, Server};
use tokio::signal::unix::{signal, SignalKind};

use crate::config::warn_of_readers;
use crate::failure::{Failure, USAGE};
use crate::values::response_time;

const SERVER: &str = "The server: redis://[user@]host[:port][/db], rediss:// for TLS, redis+unix:///path, \
redis+cluster://host:port[,host:port...], redis+sentinel://host:port[,host:port...]/name. Several are separated by \
spaces.";

pub const HEADING: &str = "Servers";
/// The variable of the password, as redis-cli has it.
pub const PASSWORD: &str = "REDISCLI_AUTH";

/// The servers and the connection settings.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Connect {
    #[arg(long = "server", id = "url", value_name = "URL", value_delimiter = ' ', help = SERVER,
          default_value = "redis://127.0.0.1:6379")]
    pub servers: Vec<String>,

    /// The longest time for a reply; a bounded wait ends a twentieth of it, 0.3 s at least, after its bound.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = response_time)]
    pub timeout: Duration,

    /// The user, where the URL has none.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The file whose first line is the password, or after a | the command that prints it, such as "|pass redis". The
    /// default is REDISCLI_AUTH. For a moment other users of the machine can see a password in a URL.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    password_from: Option<String>,

    /// The authorities to trust, instead of the system's (PEM).
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// The client's certificate (PEM), with --key.
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// Its private key (PEM).
    #[arg(long = "key", id = "tls_key", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Connect {
    /// Opens all named servers.
    pub fn open(&self) -> Result<Vec<Server>, Failure> {
        let certificates = self.certificates()?;
        let password = self.password()?;
        let named = self.servers.iter().filter(|url| !url.is_empty());
        let opened = named.map(|url| {
            let url = with_login(url, self.user.as_deref(), password.as_deref());
            let server = Server::builder(&url).response_timeout(self.timeout);
            Ok(server.certificates(certificates.clone()).build()?)
        });
        let opened = opened.collect::<Result<Vec<_>, Failure>>()?;
        match opened.is_empty() {
            true => Err(Failure::new(
                USAGE,
                "no server is named: REDIS_LOCK_URL is empty",
            )),
            false => Ok(opened),
        }
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let Some(source) = &self.password_from else {
            let not_text = |_| Failure::new(USAGE, format!("{PASSWORD} is not UTF-8"));
            let password = std::env::var_os(PASSWORD).map(OsString::into_string);
            return password.transpose().map_err(not_text);
        };
        let failed = |what: &dyn Display| Failure::new(USAGE, format!("{source}: {what}"));
        let text = match source.strip_prefix('|') {
            None => {
                warn_of_readers(Path::new(source));
                fs::read(source).map_err(|error| failed(&error))?
            }
            Some(command) => {
                // Handled, because a child has no status where the parent ignores SIGCHLD.
                let _children = signal(SignalKind::child());
                let mut shell = Command::new("sh");
                let output = shell
                    .args(["-c", command])
                    .stderr(Stdio::inherit())
                    .output();
                let output = output.map_err(|error| failed(&error))?;
                match output.status.success() {
                    true => output.stdout,
                    false => return Err(failed(&output.status)),
                }
            }
        };
        let text = String::from_utf8(text).map_err(|error| failed(&error))?;
        Ok(Some(text.lines().next().unwrap_or_default().into()))
    }

    /// Opens the only server, for subcommands that take one.
    pub fn open_one(&self) -> Result<Server, Failure> {
        match <[Server; 1]>::try_from(self.open()?) {
            Ok([server]) => Ok(server),
            Err(_) => Err(Failure::new(USAGE, "this is asked of one --server")),
        }
    }

    fn certificates(&self) -> Result<Certificates, Failure> {
        let read = |path: &PathBuf| {
            let failed = |error| Failure::new(USAGE, format!("{}: {error}", path.display()));
            fs::read(path).map_err(failed)
        };
        let mut certificates = Certificates::new();
        if let Some(authorities) = &self.cacert {
            certificates = certificates.authorities(read(authorities)?);
        }
        match (&self.cert, &self.key) {
            (None, None) => Ok(certificates),
            (Some(cert), Some(key)) => Ok(certificates.client(read(cert)?, read(key)?)),
            _ => Err(Failure::new(USAGE, "--cert and --key: one needs the other")),
        }
    }
}

/// The URL with this user and password, unless it has its own.
fn with_login(url: &str, user: Option<&str>, password: Option<&str>) -> String {
    let (scheme, own, place) = parts(url);
    let (own_user, own_password) = own.split_once(':').unwrap_or((own, ""));
    let quoted = |text: &str| text.bytes().map(quote).collect::<String>();
    let pick = |own: &str, other: Option<&str>| match own {
        "" => other.map_or_else(String::new, quoted),
        own => own.into(),
    };
    match (pick(own_user, user), pick(own_password, password)) {
        (user, password) if user.is_empty() && password.is_empty() => url.into(),
        (user, password) if password.is_empty() => format!("{scheme}://{user}@{place}"),
        (user, password) => format!("{scheme}://{user}:{password}@{place}"),
    }
}

/// Where the URL has a password.
pub fn password_in(url: &str) -> Option<Range<usize>> {
    let (_, password) = parts(url).1.split_once(':')?;
    let start = url.find(&format!(":{password}@"))? + 1;
    (!password.is_empty()).then_some(start..start + password.len())
}

/// The scheme, the user with the password, and the rest.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    // The path of a socket may have an @.
    let login = match scheme.contains("unix") {
        true => rest.split('/').next().unwrap_or_default().rfind('@'),
        false => rest.rfind('@'),
    };
    let (login, place) = rest.split_at(login.map_or(0, |at| at + 1));
    (scheme, login.trim_end_matches('@'), place)
}

fn quote(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).into()
        }
        _ => format!("%{byte:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{password_in, with_login};

    #[test]
    fn a_user_and_a_password_go_where_the_url_has_none() {
        let with = |url| with_login(url, Some("me"), Some("p@ss"));
        assert_eq!(with("redis://host:1/2"), "redis://me:p%40ss@host:1/2");
        assert_eq!(with("host:1"), "redis://me:p%40ss@host:1");
        assert_eq!(with("rediss://you@host"), "rediss://you:p%40ss@host");
        assert_eq!(with("redis://you:own@host"), "redis://you:own@host");
        assert_eq!(with("unix:///s?db=1"), "unix://me:p%40ss@/s?db=1");
        assert_eq!(with("unix:///a@b"), "unix://me:p%40ss@/a@b");
        for (url, password) in [
            ("redis://me:p:a@ss@host", Some("p:a@ss")),
            ("me:me@host:1", Some("me")),
            ("redis://host:1", None),
            ("redis://me:@host", None),
            ("unix:///a:b@c", None),
        ] {
            assert_eq!(password_in(url).and_then(|at| url.get(at)), password);
        }
        let with = |user| with_login("host", user, None);
        assert_eq!(
            (with(None), with(Some("me"))),
            ("host".into(), "redis://me@host".into())
        );
    }
}
