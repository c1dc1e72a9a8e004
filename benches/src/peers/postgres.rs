//! PostgreSQL's advisory locks, session level: `pg_advisory_lock` and `pg_advisory_unlock`.
//!
//! The client implements the necessary part of the wire protocol: every call is a prepared statement, bound and
//! executed in one message, as a good driver does it. No library, as its time would count as the server's: the crate
//! `postgres` cannot send without waiting for the answer, and tokio-postgres below it needs an event loop. In turns
//! with this client, on the same server, it made a pair 7 % and a hand-off with 16 waiters 19 to 23 % slower.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use super::process::{connect, must_exist, pinned, said, Daemon};
use super::{About, Peer, Session};
use crate::server::free_port;

/// The user of the server process, which the server trusts.
const USER: &str = "postgres";

/// Prepared once per session, under these names.
const STATEMENTS: [(&str, &str); 3] = [
    ("lock", "select pg_advisory_lock(42)"),
    ("unlock", "select pg_advisory_unlock(42)"),
    (
        "waiting",
        "select count(*) from pg_locks where locktype = 'advisory' and not granted",
    ),
];

struct Postgres {
    port: u16,
    about: About,
    _daemon: Daemon,
}

/// A fresh cluster. As root it runs as the package's user: the server refuses to run as root.
pub fn start() -> io::Result<Box<dyn Peer>> {
    let programs = programs()?;
    let dir = tempfile::tempdir()?;
    let root = said(Command::new("id").arg("-u"))? == "0";
    let (reuid, regid) = (format!("--reuid={USER}"), format!("--regid={USER}"));
    let as_user: &[&str] = if root {
        said(Command::new("chown").arg(USER).arg(dir.path()))?;
        &["setpriv", &reuid, &regid, "--init-groups"]
    } else {
        &[]
    };
    let data = dir.path().join("data");

    let initdb = programs.join("initdb").display().to_string();
    let mut command = pinned(&[as_user, &[&initdb]].concat());
    command.args(["--no-sync", "--no-locale", "-A", "trust", "-U", USER, "-D"]);
    said(command.arg(&data).current_dir(dir.path()))?;

    let port = free_port()?;
    let postgres = programs.join("postgres").display().to_string();
    let version = said(Command::new(&postgres).arg("--version"))?;
    let version = version.split_whitespace().nth(2).unwrap_or_default();
    let mut command = pinned(&[as_user, &[&postgres]].concat());
    command.args(["-p", &port.to_string(), "-D"]).arg(&data);
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=200",
    ] {
        command.args(["-c", setting]);
    }
    // INT: close the sessions and stop. (TERM would wait for them; KILL leaves shared memory behind.)
    let mut daemon = Daemon::start(command, dir, "INT")?;
    daemon.wait_for(|| Backend::open(port))?;
    Ok(Box::new(Postgres {
        port,
        about: About {
            name: "PostgreSQL",
            version: format!("PostgreSQL {version}"),
            kept: "in the server's memory",
            ends: "when the session ends, not before: there is no lease",
            fencing: "none",
            copies: "standbys know nothing of it",
        },
        _daemon: daemon,
    }))
}

/// The directory of the newest server of the package.
fn programs() -> io::Result<PathBuf> {
    let versions = must_exist("/usr/lib/postgresql".into())?;
    let mut found = Vec::new();
    for version in std::fs::read_dir(versions)? {
        let bin = version?.path().join("bin");
        let number = |text: &str| text.parse::<u32>().ok();
        let name = bin.parent().and_then(|path| path.file_name()?.to_str());
        if bin.join("postgres").exists() {
            found.push((name.and_then(number), bin));
        }
    }
    found.sort();
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the server is not installed");
    found.pop().map(|(_, bin)| bin).ok_or_else(missing)
}

impl Peer for Postgres {
    fn about(&self) -> &About {
        &self.about
    }

    fn session(&self) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Backend::open(self.port)?))
    }
}

struct Backend {
    stream: BufReader<TcpStream>,
}

impl Backend {
    fn open(port: u16) -> io::Result<Backend> {
        let stream = connect(port)?;
        let mut backend = Backend { stream };
        backend.send(&hello())?;
        backend.answer()?;
        for (name, query) in STATEMENTS {
            backend.send(&prepare(name, query))?;
            backend.answer()?;
        }
        Ok(backend)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads until the server is ready again: the one value of the one row, if there was one.
    fn answer(&mut self) -> io::Result<String> {
        let mut value = String::new();
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; (len as usize).saturating_sub(4)];
            self.stream.read_exact(&mut body)?;
            match head[0] {
                b'Z' => return Ok(value),
                // The number of values (2 bytes), the length of the first (4), the first.
                b'D' => value = String::from_utf8_lossy(&body[6.min(body.len())..]).into_owned(),
                b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body))),
                b'R' if body != [0; 4] => return Err(io::Error::other("asks for a password")),
                _ => {}
            }
        }
    }
}

impl Session for Backend {
    fn ask(&mut self) -> io::Result<()> {
        self.send(&execute("lock"))
    }

    fn granted(&mut self) -> io::Result<()> {
        self.answer().map(drop)
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.send(&execute("unlock"))
    }

    fn given_back(&mut self) -> io::Result<()> {
        match self.answer()?.as_str() {
            "t" => Ok(()),
            other => Err(io::Error::other(format!("unlock answered {other:?}"))),
        }
    }

    fn waiting(&mut self) -> io::Result<usize> {
        self.send(&execute("waiting"))?;
        let count = self.answer()?;
        count.parse().map_err(|_| io::Error::other(count))
    }
}

/// The first message of a connection: protocol 3.0, the user, and the database.
fn hello() -> Vec<u8> {
    let body = format!("user\0{USER}\0database\0{USER}\0\0");
    let len = (body.len() + 8) as u32;
    [&len.to_be_bytes()[..], &[0, 3, 0, 0], body.as_bytes()].concat()
}

/// Every other message: its type, its length (with these four bytes), its body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() + 4) as u32;
    [&[kind][..], &len.to_be_bytes(), body].concat()
}

/// Parse, Sync.
fn prepare(name: &str, query: &str) -> Vec<u8> {
    let parse = format!("{name}\0{query}\0\0\0");
    [message(b'P', parse.as_bytes()), message(b'S', b"")].concat()
}

/// Bind (without parameters, results as text), Execute (all rows), Sync.
fn execute(name: &str) -> Vec<u8> {
    let bind = format!("\0{name}\0\0\0\0\0\0\0");
    let execute = message(b'E', b"\0\0\0\0\0");
    [message(b'B', bind.as_bytes()), execute, message(b'S', b"")].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_their_length() {
        assert_eq!(message(b'S', b""), b"S\0\0\0\x04");
        assert_eq!(hello()[..8], [0, 0, 0, 41, 0, 3, 0, 0]);
        assert_eq!(hello().len(), 41);
    }
}
