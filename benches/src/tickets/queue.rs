//! The tickets of a run: enqueued through one connection, handed the lock one after the other.
//!
//! Owners and tags have 36 bytes, the length of a UUID. They are numbered: the holders of the keys come first, ticket n
//! waits for key n modulo the number of keys.

use std::io;
use std::time::{Duration, Instant};

use super::pings::{Pings, Stall};
use super::Case;
use crate::crowd::{wait_for, Crowd};
use crate::ring::pause;
use crate::server::{cpu_us_of, Server};
use crate::wire::{request, Conn};

/// The channel of all tickets.
pub const CHANNEL: &str = "tickets";

/// Requests in one write. Two writes are in flight, so that the server is never idle.
const BATCH: usize = 500;

/// No lease ends during a run.
const LEASE_MS: &str = "36000000";

/// The enqueueing of all tickets.
#[derive(Debug, Clone, Copy)]
pub struct Enqueued {
    /// Tickets in a second.
    pub per_s: f64,
    /// Microseconds of the server's thread for one.
    pub cpu_us: f64,
    /// The part of the time for which the client used a core.
    pub client_busy: f64,
    /// Meanwhile.
    pub stall: Stall,
}

/// The tickets, and two connections: the first sends, the second is the only subscriber.
pub struct Queue {
    crowd: Crowd,
    keys: usize,
    /// The number of the first key's holder.
    holder: usize,
    /// The number of the last ticket.
    last: usize,
}

const SENDER: usize = 0;

impl Queue {
    /// All keys are held and all tickets wait, until this moment or without limit. The caller has one connection.
    pub fn fill(
        server: &Server,
        case: &Case,
        deadline: Option<Instant>,
    ) -> io::Result<(Queue, Enqueued)> {
        let mut crowd = Crowd::connect(server, 2)?;
        crowd.ask(1, &request(&["SUBSCRIBE", CHANNEL]))?;
        let mut conn = server.conn()?;
        let held = (0..case.keys).map(hold);
        pipelined(&mut conn, held, b":")?;
        let numbers = case.keys..case.keys + case.tickets;
        let (cpu, own) = (server.cpu_us(), cpu_us_of("/proc/thread-self"));
        let start = Instant::now();
        let mut limit = Limit::new(deadline);
        let tickets = numbers.map(|number| ticket(number % case.keys, number, limit.ms()));
        let pings = Pings::start(server)?;
        pipelined(&mut conn, tickets, b"+QUEUED")?;
        let stall = pings.stop()?;
        let seconds = start.elapsed().as_secs_f64();
        let own_s = (cpu_us_of("/proc/thread-self") - own) / 1e6;
        let enqueued = Enqueued {
            per_s: case.tickets as f64 / seconds,
            cpu_us: (server.cpu_us() - cpu) / case.tickets as f64,
            client_busy: own_s / seconds,
            stall,
        };
        drop(conn);
        // Its buffers are gone too, so that they are not counted as memory of the tickets.
        wait_for(&mut server.conn()?, "clients", "connected_clients", 4)?;
        let queue = Queue {
            crowd,
            keys: case.keys,
            holder: 0,
            last: case.keys + case.tickets - 1,
        };
        Ok((queue, enqueued))
    }

    /// From the writing of the release to the reading of the next owner's message. The former holder then waits at the
    /// end, so that the queue keeps its length. Of a queue on one key.
    pub fn hand_off(&mut self) -> io::Result<Duration> {
        let (release, tag) = (release(0, self.holder), tag(self.next_holder()));
        pause();
        let start = Instant::now();
        self.crowd.send(SENDER, &release)?;
        let (mut took, mut released) = (None, false);
        while took.is_none() || !released {
            match self.crowd.next()? {
                (SENDER, _) => released = true,
                (_, message) if message.ends_with(format!("{tag}\r\n").as_bytes()) => {
                    took = Some(start.elapsed());
                }
                (_, message) => return Err(unexpected(&message)),
            }
        }
        self.holder = self.next_holder();
        self.last += 1;
        let again = self.crowd.ask(SENDER, &ticket(0, self.last, 0))?;
        if again != b"+QUEUED\r\n" {
            return Err(unexpected(&again));
        }
        took.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// The releases of all keys by their holders.
    pub fn releases(&self) -> Vec<Vec<u8>> {
        let release = |key| release(key, self.holder + key);
        (0..self.keys).map(release).collect()
    }

    /// The requests that end all holds and all waits.
    pub fn purges(&self) -> Vec<Vec<u8>> {
        let purge = |key| request(&["LOCK.BREAK", &name(key), "PURGE"]);
        (0..self.keys).map(purge).collect()
    }

    /// The number of tickets.
    pub fn len(&self) -> usize {
        self.last - self.next_holder() + 1 - (self.keys - 1)
    }

    fn next_holder(&self) -> usize {
        self.holder + 1
    }
}

/// The rest of a common time limit, read once for many requests.
struct Limit {
    deadline: Option<Instant>,
    ms: u128,
    left: usize,
}

impl Limit {
    fn new(deadline: Option<Instant>) -> Limit {
        Limit {
            deadline,
            ms: 0,
            left: 0,
        }
    }

    fn ms(&mut self) -> u128 {
        if let (Some(deadline), 0) = (self.deadline, self.left) {
            let rest = deadline.saturating_duration_since(Instant::now());
            (self.ms, self.left) = (rest.as_millis().max(1), 100);
        }
        self.left = self.left.saturating_sub(1);
        self.ms
    }
}

/// Sends requests in batches, two of them in flight; each reply must begin with these bytes.
pub fn pipelined(
    conn: &mut Conn,
    requests: impl Iterator<Item = Vec<u8>>,
    reply: &[u8],
) -> io::Result<()> {
    let mut requests = requests.peekable();
    let mut unread = 0;
    while requests.peek().is_some() {
        let batch: Vec<Vec<u8>> = requests.by_ref().take(BATCH).collect();
        conn.send(&batch.concat())?;
        read(conn, unread, reply)?;
        unread = batch.len();
    }
    read(conn, unread, reply)
}

fn read(conn: &mut Conn, number: usize, begin: &[u8]) -> io::Result<()> {
    for _ in 0..number {
        let reply = conn.reply()?;
        if !reply.starts_with(begin) {
            return Err(unexpected(&reply));
        }
    }
    Ok(())
}

fn hold(key: usize) -> Vec<u8> {
    request(&["LOCK.ACQUIRE", &name(key), &owner(key), "PX", LEASE_MS])
}

fn ticket(key: usize, number: usize, limit_ms: u128) -> Vec<u8> {
    let (name, owner, tag) = (name(key), owner(number), tag(number));
    let wait = ["BLOCK", &limit_ms.to_string(), "NOTIFY", CHANNEL, &tag];
    request(&[&["LOCK.ACQUIRE", &name, &owner, "PX", LEASE_MS], &wait[..]].concat())
}

fn release(key: usize, number: usize) -> Vec<u8> {
    request(&["LOCK.RELEASE", &name(key), &owner(number)])
}

fn name(key: usize) -> String {
    format!("lock:{key}")
}

fn owner(number: usize) -> String {
    format!("8743c9c0-0795-4907-87fd-{number:012}")
}

fn tag(number: usize) -> String {
    format!("0c5e6c5a-9d5c-4b43-bd0b-{number:012}")
}

/// Of a reply or a message that ends the measurement.
pub fn unexpected(bytes: &[u8]) -> io::Error {
    io::Error::other(format!("{:?} came", String::from_utf8_lossy(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_tags_have_the_length_of_a_uuid() {
        assert_eq!((owner(0).len(), tag(1_000_000).len()), (36, 36));
    }
}
