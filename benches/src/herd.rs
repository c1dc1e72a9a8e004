//! The waits of Redisson's clients: every waiter gets the message of a release, and every one tries again.
//!
//! A waiter tries, subscribes to the lock's channel, tries again, and waits for a message. The holder's release deletes
//! the lock and publishes; every waiter that gets the message tries once more, one of them wins and unsubscribes, the
//! others wait for the next message. Each waiter is a process of its own, as on several machines: it has a connection
//! for commands and one for its subscription. (Threads of one JVM share a subscription for each lock, and only one of
//! them tries after a message.)
//!
//! The next release begins when all tries are done, which favours this protocol: with a steady load the tries of one
//! release delay the next. The scripts are sent by their hashes.

use std::io;
use std::time::{Duration, Instant};

use crate::crowd::Crowd;
use crate::ring::{filled, pause};
use crate::rlock::{GIVE, TAKE};
use crate::server::Server;
use crate::wire::{request, Conn};

const CHANNEL: &str = "redisson_lock__channel:{lock:0}";

/// The scripts, known to the server, as requests with an `{o}` for the owner.
pub struct Protocol {
    take: String,
    give: String,
}

impl Protocol {
    /// Loads the scripts.
    pub fn load(server: &Server) -> io::Result<Protocol> {
        let mut conn = server.conn()?;
        let (take, give) = (load(&mut conn, TAKE)?, load(&mut conn, GIVE)?);
        Ok(Protocol {
            take: format!("EVALSHA {take} 1 {{k}} {{lease}} {{o}}"),
            give: format!("EVALSHA {give} 2 {{k}} {CHANNEL} 600000 {{o}}"),
        })
    }

    /// Tries to take the lock.
    pub fn take(&self, owner: usize, lease_ms: u64) -> Vec<u8> {
        filled(
            &self.take.replace("{lease}", &lease_ms.to_string()),
            0,
            owner,
        )
    }

    fn give(&self, owner: usize) -> Vec<u8> {
        filled(&self.give, 0, owner)
    }
}

/// Subscribes to the lock's channel.
pub fn subscribe() -> Vec<u8> {
    request(&["SUBSCRIBE", CHANNEL])
}

fn load(conn: &mut Conn, script: &str) -> io::Result<String> {
    conn.send(&request(&["SCRIPT", "LOAD", script]))?;
    let reply = String::from_utf8_lossy(&conn.reply()?).into_owned();
    let hash = reply.lines().nth(1).map(str::to_string);
    hash.ok_or_else(|| io::Error::other(reply))
}

/// One lock, its holder, and its waiters; the two connections of a waiter are adjacent.
pub struct Herd {
    crowd: Crowd,
    protocol: Protocol,
    waiters: usize,
    holder: usize,
}

const LEASE_MS: u64 = 600_000;

fn commands(waiter: usize) -> usize {
    2 * waiter
}

fn subscription(waiter: usize) -> usize {
    2 * waiter + 1
}

impl Herd {
    /// All are connected, the first one holds the lock, all others wait for a message.
    pub fn new(server: &Server, waiters: usize) -> io::Result<Herd> {
        let protocol = Protocol::load(server)?;
        let crowd = Crowd::connect(server, 2 * (waiters + 1))?;
        let mut herd = Herd {
            crowd,
            protocol,
            waiters,
            holder: 0,
        };
        if !is_taken(&herd.try_once(0)?) {
            return Err(io::Error::other("the first try was refused"));
        }
        (1..=waiters).try_for_each(|waiter| herd.join(waiter))?;
        Ok(herd)
    }

    /// Begins to wait.
    fn join(&mut self, waiter: usize) -> io::Result<()> {
        let first = self.try_once(waiter)?;
        self.crowd.ask(subscription(waiter), &subscribe())?;
        if is_taken(&first) || is_taken(&self.try_once(waiter)?) {
            return Err(io::Error::other("a waiter was granted"));
        }
        Ok(())
    }

    fn try_once(&mut self, waiter: usize) -> io::Result<Vec<u8>> {
        self.crowd
            .ask(commands(waiter), &self.protocol.take(waiter, LEASE_MS))
    }

    /// One hand-off: from the writing of the release to the winner's reading of its grant.
    pub fn hand_off(&mut self) -> io::Result<Duration> {
        let holder = self.holder;
        let release = self.protocol.give(holder);
        pause();
        let start = Instant::now();
        self.crowd.send(commands(holder), &release)?;
        let mut took = None;
        // The release, a message and a try of each waiter, and the winner's unsubscription.
        for _ in 0..2 * self.waiters + 2 {
            let (member, reply) = self.crowd.next()?;
            let waiter = member / 2;
            if waiter == holder {
                continue;
            }
            if is_message(&reply) {
                let try_again = self.protocol.take(waiter, LEASE_MS);
                self.crowd.send(commands(waiter), &try_again)?;
            } else if member == commands(waiter) && is_taken(&reply) {
                took = Some(start.elapsed());
                self.holder = waiter;
                let done = request(&["UNSUBSCRIBE", CHANNEL]);
                self.crowd.send(subscription(waiter), &done)?;
            }
        }
        self.join(holder)?;
        took.ok_or_else(|| io::Error::other("no waiter took the lock"))
    }
}

/// Whether a try was answered nil.
pub fn is_taken(reply: &[u8]) -> bool {
    reply == b"$-1\r\n"
}

fn is_message(reply: &[u8]) -> bool {
    reply.starts_with(b"*3\r\n$7\r\nmessage")
}
