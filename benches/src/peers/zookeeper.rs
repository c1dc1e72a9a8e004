//! ZooKeeper's lock recipe: an ephemeral, sequential node for every session that requests the lock; the lowest one
//! holds it, and each of the others watches the one before it.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::jute::{Client, Kind};
use super::process::{connect, must_exist, pinned, Daemon};
use super::{About, Peer, Session};
use crate::server::free_port;

/// The parent node of those of the lock.
const LOCK: &str = "/lock";

/// Debian's zookeeper.jar names most of its dependencies in its manifest; these are the others.
const JARS: [&str; 6] = [
    "zookeeper",
    "zookeeper-jute",
    "netty-codec",
    "netty-resolver",
    "netty-transport-native-unix-common",
    "slf4j-nop",
];

struct ZooKeeper {
    port: u16,
    about: About,
    _daemon: Daemon,
}

/// A standalone server.
pub fn start() -> io::Result<Box<dyn Peer>> {
    let java = must_exist("/usr/bin/java".into())?.display().to_string();
    let mut class_path = Vec::new();
    for jar in JARS {
        let path = must_exist(format!("/usr/share/java/{jar}.jar").into())?;
        class_path.push(path.display().to_string());
    }
    let dir = tempfile::tempdir()?;
    let port = free_port()?;
    let config = [
        "tickTime=2000",
        "clientPortAddress=127.0.0.1",
        "admin.enableServer=false",
        "maxClientCnxns=0",
        &format!("clientPort={port}"),
        &format!("dataDir={}", dir.path().join("data").display()),
    ];
    std::fs::write(dir.path().join("zoo.cfg"), config.join("\n"))?;
    let mut command = pinned(&[&java, "-Xmx512m", "-cp", &class_path.join(":")]);
    command.args(["org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg"]);
    let mut daemon = Daemon::start(command, dir, "TERM")?;
    let version = daemon.wait_for(|| version(port))?;
    Client::open(port)?.create(LOCK, Kind::Persistent)?;
    Ok(Box::new(ZooKeeper {
        port,
        about: About {
            name: "ZooKeeper",
            version: format!("ZooKeeper {version}"),
            kept: "on its disk (fsync)",
            ends: "when the session ends: closed, or without a message for 40 s (here)",
            fencing: "the transaction id that created the node",
            copies: "in an ensemble on the disks of a majority, before the answer",
        },
        _daemon: daemon,
    }))
}

/// The server's reply to a four-letter command. While it starts, it may accept a connection and never reply, so the
/// limit is short.
fn version(port: u16) -> io::Result<String> {
    let mut stream = connect(port)?.into_inner();
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.write_all(b"srvr")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let not_yet = || io::Error::other(text.clone());
    version_in(&text).map(String::from).ok_or_else(not_yet)
}

fn version_in(text: &str) -> Option<&str> {
    let (_, version) = text.split_once("version: ")?;
    version.split(['-', ',', '\n']).next()
}

impl Peer for ZooKeeper {
    fn about(&self) -> &About {
        &self.about
    }

    fn session(&self) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Contender {
            client: Client::open(self.port)?,
            node: String::new(),
            holds: false,
        }))
    }
}

struct Contender {
    client: Client,
    /// The path of its node.
    node: String,
    holds: bool,
}

impl Contender {
    /// Holds the lock if no node is before its own; otherwise watches the one before.
    fn look(&mut self) -> io::Result<()> {
        loop {
            let names = self.client.children(LOCK)?;
            let mine = self.node.rsplit('/').next().unwrap_or_default();
            let Some(before) = before(&names, mine) else {
                self.holds = true;
                return Ok(());
            };
            if self.client.watch(&format!("{LOCK}/{before}"))? {
                return Ok(());
            }
        }
    }
}

impl Session for Contender {
    fn ask(&mut self) -> io::Result<()> {
        let path = format!("{LOCK}/n-");
        self.node = self.client.create(&path, Kind::EphemeralSequential)?;
        self.holds = false;
        self.look()
    }

    fn granted(&mut self) -> io::Result<()> {
        while !self.holds {
            self.client.event()?;
            self.look()?;
        }
        Ok(())
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.client.send_delete(&self.node)
    }

    fn given_back(&mut self) -> io::Result<()> {
        self.client.reply()
    }

    fn waiting(&mut self) -> io::Result<usize> {
        Ok(self.client.children(LOCK)?.len().saturating_sub(1))
    }
}

/// The last of the names before this one.
fn before<'a>(names: &'a [String], mine: &str) -> Option<&'a str> {
    let names = names.iter().map(String::as_str);
    names.filter(|name| *name < mine).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_before_is_watched() {
        let names = ["n-07", "n-05", "n-06"].map(String::from);
        assert_eq!(before(&names, "n-07"), Some("n-06"));
        assert_eq!(before(&names, "n-05"), None);
    }

    #[test]
    fn the_version_is_read_from_the_servers_words() {
        let words = "Zookeeper version: 3.8.0-abc, built on";
        assert_eq!(version_in(words), Some("3.8.0"));
        assert_eq!(version_in("not currently serving requests"), None);
    }
}
