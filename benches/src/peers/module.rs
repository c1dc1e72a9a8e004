//! The module, as one of the peers: `LOCK.ACQUIRE ... BLOCK 0` and `LOCK.RELEASE`.

use std::cell::Cell;
use std::io;

use super::{About, Peer, Session};
use crate::server::Server;
use crate::wire::{line, Conn};

/// A server with the module.
pub struct Module {
    server: Server,
    about: About,
    /// The number of owners so far.
    owners: Cell<usize>,
}

/// The server with its defaults: nothing is written to disk.
pub fn in_memory() -> io::Result<Box<dyn Peer>> {
    start("the module", &[], "in the server's memory")
}

/// Every change is on disk before its reply.
pub fn on_disk() -> io::Result<Box<dyn Peer>> {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    start("the module, AOF always", &options, "on its disk (fsync)")
}

fn start(name: &'static str, options: &[&str], kept: &'static str) -> io::Result<Box<dyn Peer>> {
    let server = Server::pinned(options, true)?;
    let modules = server.conn()?.ask("MODULE LIST")?;
    let version = format!("redis_lock {} in {}", version(&modules), server.version()?);
    let about = About {
        name,
        version,
        kept,
        ends: "when the lease (30 s here) is over, even if the connection lives; a waiter leaves the queue with its connection",
        fencing: "a token with every grant",
        copies: "replicas, if any, get it asynchronously",
    };
    let owners = Cell::new(0);
    Ok(Box::new(Module {
        server,
        about,
        owners,
    }))
}

impl Peer for Module {
    fn about(&self) -> &About {
        &self.about
    }

    fn session(&self) -> io::Result<Box<dyn Session>> {
        self.owners.set(self.owners.get() + 1);
        let owner = format!("owner:{}", self.owners.get());
        Ok(Box::new(Owner {
            conn: self.server.conn()?,
            acquire: line(&format!("LOCK.ACQUIRE lock {owner} PX 30000 BLOCK 0")),
            release: line(&format!("LOCK.RELEASE lock {owner}")),
        }))
    }
}

struct Owner {
    conn: Conn,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Session for Owner {
    fn ask(&mut self) -> io::Result<()> {
        self.conn.send(&self.acquire)
    }

    fn granted(&mut self) -> io::Result<()> {
        let reply = self.conn.reply()?;
        expect(reply.starts_with(b":"), &reply)
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.conn.send(&self.release)
    }

    fn given_back(&mut self) -> io::Result<()> {
        let reply = self.conn.reply()?;
        expect(reply == b":1\r\n", &reply)
    }

    fn waiting(&mut self) -> io::Result<usize> {
        let info = self.conn.ask("LOCK.INFO lock")?;
        Ok(number_after("waiters", &info).unwrap_or(0))
    }
}

fn expect(right: bool, reply: &[u8]) -> io::Result<()> {
    let wrong = || io::Error::other(format!("answered {:?}", String::from_utf8_lossy(reply)));
    right.then_some(()).ok_or_else(wrong)
}

/// The number that follows a word in a reply.
fn number_after(word: &str, reply: &str) -> Option<usize> {
    let mut lines = reply.lines().skip_while(|line| *line != word);
    lines.nth(1)?.strip_prefix(':')?.parse().ok()
}

/// The module's version in a reply of MODULE LIST, where 1.2.3 is 10203.
fn version(modules: &str) -> String {
    let ours = modules
        .split_once("\r\nlock\r\n")
        .map_or("", |(_, rest)| rest);
    let number = number_after("ver", ours).unwrap_or(0);
    format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiters_are_read_from_the_info() {
        let info = "*4\r\n$4\r\nmode\r\n$9\r\nexclusive\r\n$7\r\nwaiters\r\n:16\r\n";
        assert_eq!(number_after("waiters", info), Some(16));
        assert_eq!(number_after("waiters", "$-1\r\n"), None);
    }

    #[test]
    fn the_version_is_the_modules_own() {
        let other = "*4\r\n$4\r\nname\r\n$5\r\nother\r\n$3\r\nver\r\n:7\r\n";
        let ours = "*4\r\n$4\r\nname\r\n$4\r\nlock\r\n$3\r\nver\r\n:10203\r\n";
        assert_eq!(version(&format!("*2\r\n{other}{ours}")), "1.2.3");
    }
}
