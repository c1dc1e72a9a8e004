//! The command line: its help, its completions and its man page all come from here.

use std::env::VarError;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use redis_lock_client::{Certificates, Server};

use crate::failure::{Failure, USAGE};
use crate::{break_lock, info, ls, pages, run, top};

/// Runs commands under locks of the redis-lock module, and shows the locks there are.
#[derive(Debug, clap::Parser)]
#[command(name = "redis-lock", version, after_help = STATUS, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    Run(run::Args),
    Ls(ls::Args),
    Info(info::Args),
    #[command(name = "break")]
    Break(break_lock::Args),
    Top(top::Args),
    Completions(pages::CompletionsArgs),
    /// Print the manual
    ///
    /// As troff: `redis-lock man | man -l -`.
    Man,
}

const STATUS: &str = "\
Exit status: 0 done; 1 the lock is somebody else's; 64 usage; 65 the key holds something else; \
69 a server is unavailable or has no module; 77 the user may not. Of `run` else the command's: \
see there.";

impl Args {
    /// The command line, its first word being the program's name. Where `run` has --key-hex, the first positional
    /// word is the command: a KEY that is not used is put before it, so that one grammar is enough.
    pub fn of_words(words: Vec<OsString>) -> Result<Args, clap::Error> {
        let has_option = |word: &OsString| {
            let word = word.to_string_lossy();
            word == "--key-hex" || word.starts_with("--key-hex=")
        };
        let is_run = words.get(1).is_some_and(|word| word == "run");
        if is_run && words.iter().any(has_option) {
            let mut with_key = words.clone();
            with_key.insert(2, "-".into());
            let args = Args::try_parse_from(with_key)?;
            // Otherwise the option is the command's own.
            if matches!(&args.subcommand, Subcommand::Run(run) if run.key_hex.is_some()) {
                return Ok(args);
            }
        }
        let args = Args::try_parse_from(words)?;
        match &args.subcommand {
            Subcommand::Run(run) if run.key_hex.is_some() => {
                let mut command = Args::command();
                let both = "--key-hex stands in place of KEY: name the key once";
                Err(command.error(clap::error::ErrorKind::ArgumentConflict, both))
            }
            _ => Ok(args),
        }
    }
}

const SERVER: &str = "The server: redis://[user@]host[:port][/db], rediss:// for TLS, redis+unix:///path, \
redis+cluster://host:port[,host:port...], redis+sentinel://host:port[,host:port...]/name. Without this option \
REDIS_LOCK_URL names it (several: with spaces between), or else it is redis://127.0.0.1:6379. A password is better \
given in REDISCLI_AUTH than in a URL that other users of the machine can see.";

const DEFAULT: &str = "redis://127.0.0.1:6379";

/// Which servers to speak to, and how.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub struct Connect {
    // The environment is read by `open`: clap shows an option that it has read from there as a required one.
    #[arg(long = "server", value_name = "URL", value_delimiter = ' ', help = SERVER)]
    pub servers: Vec<String>,

    /// How long a server may take to answer.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    timeout: Duration,

    /// The authorities to believe, instead of the machine's own (PEM).
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// The certificate to show (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    cert: Option<PathBuf>,

    /// Its private key (PEM).
    #[arg(long = "key", id = "tls_key", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl Connect {
    /// All that are named.
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

    /// The only one, for what concerns one server.
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
    if scheme.contains("unix") {
        return match url.split_once('?') {
            Some((_, query)) if query.contains("pass=") => url.into(),
            Some(_) => format!("{url}&pass={quoted}"),
            None => format!("{url}?pass={quoted}"),
        };
    }
    match rest.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => url.into(),
        Some((user, place)) => format!("{scheme}://{user}:{quoted}@{place}"),
        None => format!("{scheme}://:{quoted}@{rest}"),
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

/// The longest span: thirty years. Clocks do not count to the end of time.
const LONGEST: f64 = 1e9;

/// A span of time: `2.5` seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "seconds, such as 2.5".to_string())?;
    if number > LONGEST {
        return Err("more than thirty years".into());
    }
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

/// The bytes of a name.
pub fn bytes(name: &OsString) -> &[u8] {
    name.as_bytes()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{seconds, with_password, Args};

    #[test]
    fn the_options_make_sense_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_password_goes_where_the_url_has_none() {
        let with = |url| with_password(url, "p@ss");
        assert_eq!(with("redis://host:1/2"), "redis://:p%40ss@host:1/2");
        assert_eq!(with("host:1"), "redis://:p%40ss@host:1");
        assert_eq!(with("rediss://me@host"), "rediss://me:p%40ss@host");
        assert_eq!(with("redis://me:own@host"), "redis://me:own@host");
        assert_eq!(with("redis+unix:///s"), "redis+unix:///s?pass=p%40ss");
        assert_eq!(
            with("redis+unix:///s?db=1"),
            "redis+unix:///s?db=1&pass=p%40ss"
        );
    }

    #[test]
    fn spans_have_fractions_and_no_sign() {
        assert_eq!(seconds("0.25").map(|span| span.as_millis()), Ok(250));
        for wrong in ["-1", "x", "", "inf", "NaN", "1e10"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
