//! The options that name the servers, and the environment variables that replace them.

use std::env::VarError;
use std::path::PathBuf;
use std::time::Duration;

use redis_lock_client::{Certificates, Server};

use crate::failure::{Failure, USAGE};
use crate::values::seconds;

const SERVER: &str = "The server: redis://[user@]host[:port][/db], rediss:// for TLS, redis+unix:///path, \
redis+cluster://host:port[,host:port...], redis+sentinel://host:port[,host:port...]/name. Without this option \
REDIS_LOCK_URL names it (several: separated by spaces), or else it is redis://127.0.0.1:6379. A password belongs \
into REDISCLI_AUTH rather than into a URL, which other users of the machine can see.";

const DEFAULT: &str = "redis://127.0.0.1:6379";

/// The servers and the connection settings.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub struct Connect {
    // The environment is read by `open`: clap shows an option that it has read from there as a required one.
    #[arg(long = "server", value_name = "URL", value_delimiter = ' ', help = SERVER)]
    pub servers: Vec<String>,

    /// The longest time for a reply; a bounded wait ends a twentieth of it, 0.3 s at least, after its bound.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub timeout: Duration,

    /// The authorities to trust, instead of the system's (PEM).
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// The client's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    cert: Option<PathBuf>,

    /// Its private key (PEM).
    #[arg(long = "key", id = "tls_key", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl Connect {
    /// Opens all named servers.
    pub fn open(&self) -> Result<Vec<Server>, Failure> {
        let certificates = self.certificates()?;
        let password = std::env::var("REDISCLI_AUTH").ok();
        let servers = self.named()?;
        let named = servers.iter().filter(|url| !url.is_empty());
        let opened = named.map(|url| {
            let url = match &password {
                Some(password) => with_password(url, password),
                None => url.clone(),
            };
            let server = Server::open(&url).map_err(|error| Failure::of(&error, None))?;
            // One wait at a time: when this program is killed, the server removes a parked wait at once.
            let server = server.response_timeout(self.timeout);
            Ok(server.certificates(certificates.clone()))
        });
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        match opened.is_empty() {
            true => Err(Failure::new(
                USAGE,
                "no server is named: REDIS_LOCK_URL is empty",
            )),
            false => Ok(opened),
        }
    }

    /// The URLs: from the options, from the environment, or the default.
    fn named(&self) -> Result<Vec<String>, Failure> {
        if !self.servers.is_empty() {
            return Ok(self.servers.clone());
        }
        match std::env::var("REDIS_LOCK_URL") {
            Ok(urls) => Ok(urls.split(' ').map(String::from).collect()),
            Err(VarError::NotPresent) => Ok(vec![DEFAULT.into()]),
            Err(error) => Err(Failure::new(USAGE, format!("REDIS_LOCK_URL: {error}"))),
        }
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
            std::fs::read(path).map_err(failed)
        };
        let mut certificates = Certificates::new();
        if let Some(authorities) = &self.cacert {
            certificates = certificates.authorities(read(authorities)?);
        }
        if let (Some(certificate), Some(key)) = (&self.cert, &self.key) {
            certificates = certificates.client(read(certificate)?, read(key)?);
        }
        Ok(certificates)
    }
}

/// The URL with this password, unless it has one.
fn with_password(url: &str, password: &str) -> String {
    let quoted: String = password.bytes().map(quote).collect();
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    // The path of a socket may have an @.
    let login = match scheme.contains("unix") {
        true => rest.find('/').and_then(|path| rest.get(..path)?.rfind('@')),
        false => rest.rfind('@'),
    };
    let (user, place) = rest.split_at(login.map_or(0, |at| at + 1));
    let user = user.trim_end_matches('@');
    match user.contains(':') {
        true => url.into(),
        false => format!("{scheme}://{user}:{quoted}@{place}"),
    }
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
    use super::with_password;

    #[test]
    fn a_password_goes_where_the_url_has_none() {
        let with = |url| with_password(url, "p@ss");
        assert_eq!(with("redis://host:1/2"), "redis://:p%40ss@host:1/2");
        assert_eq!(with("host:1"), "redis://:p%40ss@host:1");
        assert_eq!(with("rediss://me@host"), "rediss://me:p%40ss@host");
        assert_eq!(with("redis://me:own@host"), "redis://me:own@host");
        assert_eq!(with("unix:///s?db=1"), "unix://:p%40ss@/s?db=1");
        assert_eq!(with("unix:///a@b"), "unix://:p%40ss@/a@b");
    }
}
