//! The load: many connections from one thread, each with a batch of requests in flight.
//!
//! All requests of a connection are prepared before the clock starts: a ring of batches that it repeats. A batch is one
//! write; when its last reply has arrived the next one is sent, as with a pipelining client (and with `redis-benchmark
//! -P`). Replies are not parsed, but each must begin as its request specifies: errors and refused grants end the run
//! and are never counted.
//!
//! A run starts and ends with no request in flight, so that the requests counted are exactly those for which the
//! server's processor time was used.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::server::{cpu_us_of, Server};
use crate::wire::{reply_len, request};

/// Connections of a load.
pub const CONNECTIONS: usize = 50;

/// Locks per connection: separate ones, so that no two connections compete.
pub const LOCKS: usize = 16;

/// No batch takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// All replies of a batch fit into it.
const BUFFER: usize = 16 * 1024;

/// The effort of the measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Whether this is a trial: fewer locks, waiters and samples in every part.
    pub quick: bool,
    /// How often each point is measured.
    pub rounds: usize,
    /// The warm-up before the clock starts.
    pub warm_up: Duration,
    /// The measured time.
    pub measured: Duration,
}

/// One request of a cycle, and the expected begin of its reply. In a word, `{k}` is the lock's name, `{o}` the owner of
/// the connection, `{p}` another owner.
#[derive(Clone)]
pub struct Step {
    words: Vec<String>,
    reply: &'static str,
}

/// A step from its words.
pub fn step(words: &[&str], reply: &'static str) -> Step {
    Step {
        words: words.iter().map(|word| word.to_string()).collect(),
        reply,
    }
}

impl Step {
    /// The same for one of several locks, by its number.
    pub fn of_key(&self, key: usize) -> Step {
        let key = format!("{{k}}:{key}");
        Step {
            words: self
                .words
                .iter()
                .map(|word| word.replace("{k}", &key))
                .collect(),
            reply: self.reply,
        }
    }

    /// The same for the other owner.
    pub fn of_other(&self) -> Step {
        Step {
            words: self
                .words
                .iter()
                .map(|word| word.replace("{o}", "{p}"))
                .collect(),
            reply: self.reply,
        }
    }

    fn bytes(&self, connection: usize, lock: usize) -> Vec<u8> {
        // 39 bytes, like Redisson's owners: a client's UUID and a thread's number.
        let owner = format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{}", connection + 10);
        let fill = |word: &String| {
            word.replace("{k}", &format!("lock:{connection}:{lock}"))
                .replace("{o}", &owner)
                .replace("{p}", "0c5e6c5a-9d5c-4b43-bd0b-5e3f6a0a5f10:10")
        };
        request(&self.words.iter().map(fill).collect::<Vec<_>>())
    }
}

/// The result of one run.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Cycles in a second.
    pub per_s: f64,
    /// Microseconds of the server's main thread per cycle.
    pub cpu_us: f64,
    /// The part of the time that the load itself used a core.
    pub load_busy: f64,
}

/// Repeats this cycle of steps on every lock, with this number of requests in flight on each connection.
pub fn measure(
    server: &Server,
    steps: &[Step],
    pipeline: usize,
    effort: &Effort,
) -> io::Result<Measured> {
    let mut load = Load::open(server, steps, pipeline)?;
    load.run(effort.warm_up)?;
    let (cpu, own) = (server.cpu_us(), cpu_us_of("/proc/thread-self"));
    let start = Instant::now();
    let replies = load.run(effort.measured)?;
    let seconds = start.elapsed().as_secs_f64();
    let cycles = replies as f64 / steps.len() as f64;
    Ok(Measured {
        per_s: cycles / seconds,
        cpu_us: (server.cpu_us() - cpu) / cycles,
        load_busy: (cpu_us_of("/proc/thread-self") - own) / 1e6 / seconds,
    })
}

/// Sends these steps once for every lock, as the preparation of a cycle.
pub fn prepare(server: &Server, steps: &[Step]) -> io::Result<()> {
    let mut conn = server.conn()?;
    for connection in 0..CONNECTIONS {
        for batch in ring(steps, connection, LOCKS) {
            conn.send(&batch.bytes)?;
            for begin in batch.replies {
                refuse_other(&conn.reply()?, begin)?;
            }
        }
    }
    Ok(())
}

fn refuse_other(reply: &[u8], begin: &str) -> io::Result<()> {
    if reply.starts_with(begin.as_bytes()) {
        return Ok(());
    }
    let reply = String::from_utf8_lossy(reply);
    Err(io::Error::other(format!(
        "{reply:?} was answered, not {begin:?}"
    )))
}

struct Load {
    poll: Poll,
    events: Events,
    clients: Vec<Client>,
}

impl Load {
    fn open(server: &Server, steps: &[Step], pipeline: usize) -> io::Result<Load> {
        let poll = Poll::new()?;
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let stream = server.conn()?.into_stream();
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let token = Token(number);
            poll.registry()
                .register(&mut stream, token, Interest::READABLE)?;
            clients.push(Client {
                stream,
                ring: ring(steps, number, pipeline),
                at: 0,
                buffer: vec![0; BUFFER],
                filled: 0,
                parsed: 0,
                answered: 0,
            });
        }
        Ok(Load {
            poll,
            events: Events::with_capacity(CONNECTIONS),
            clients,
        })
    }

    /// Keeps all clients busy for this long, and waits for the requests that are in flight then. Returns the number of
    /// replies.
    fn run(&mut self, time: Duration) -> io::Result<usize> {
        let start = Instant::now();
        self.clients.iter_mut().try_for_each(Client::send)?;
        let (mut busy, mut replies) = (self.clients.len(), 0);
        while busy > 0 {
            match self.poll.poll(&mut self.events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if self.events.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let over = start.elapsed() >= time;
            for event in &self.events {
                let client = &mut self.clients[event.token().0];
                let Some(count) = client.read()? else {
                    continue;
                };
                replies += count;
                if over {
                    busy -= 1;
                } else {
                    client.send()?;
                }
            }
        }
        Ok(replies)
    }
}

struct Batch {
    bytes: Vec<u8>,
    replies: Vec<&'static str>,
}

/// The cycle for every lock of a connection, cut into batches of `pipeline` requests.
fn ring(steps: &[Step], connection: usize, pipeline: usize) -> Vec<Batch> {
    let requests: Vec<_> = (0..LOCKS)
        .flat_map(|lock| steps.iter().map(move |step| (step, lock)))
        .collect();
    let batch = |requests: &[(&Step, usize)]| Batch {
        bytes: requests
            .iter()
            .flat_map(|(step, lock)| step.bytes(connection, *lock))
            .collect(),
        replies: requests.iter().map(|(step, _)| step.reply).collect(),
    };
    requests.chunks(pipeline).map(batch).collect()
}

struct Client {
    stream: TcpStream,
    ring: Vec<Batch>,
    /// The batch in flight, or sent next.
    at: usize,
    buffer: Vec<u8>,
    filled: usize,
    parsed: usize,
    /// The number of replies of the batch so far.
    answered: usize,
}

impl Client {
    /// One write: all earlier requests have been read, so the socket's buffer is empty.
    fn send(&mut self) -> io::Result<()> {
        (self.filled, self.parsed, self.answered) = (0, 0, 0);
        let bytes = &self.ring[self.at].bytes;
        if self.stream.write(bytes)? < bytes.len() {
            return Err(io::Error::other("a batch is larger than a socket's buffer"));
        }
        Ok(())
    }

    /// Reads all available bytes once. Returns the batch's size when its last reply is complete.
    fn read(&mut self) -> io::Result<Option<usize>> {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.filled += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let replies = &self.ring[self.at].replies;
        while let Some(begin) = replies.get(self.answered) {
            let bytes = &self.buffer[self.parsed..self.filled];
            let Some(len) = reply_len(bytes) else {
                return Ok(None);
            };
            refuse_other(&bytes[..len], begin)?;
            self.parsed += len;
            self.answered += 1;
        }
        let count = replies.len();
        self.at = (self.at + 1) % self.ring.len();
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_goes_through_every_lock_in_batches() {
        let steps = [
            step(&["TAKE", "{k}", "{o}"], ":"),
            step(&["GIVE", "{k}"], ":1"),
        ];
        let ring = ring(&steps, 3, 16);
        assert_eq!(ring.len(), 2);
        assert_eq!(ring[0].replies[..3], [":", ":1", ":"]);
        let text = String::from_utf8_lossy(&ring[1].bytes);
        assert!(text.starts_with("*3\r\n$4\r\nTAKE\r\n$8\r\nlock:3:8\r\n$39\r\n"));
        assert!(text.ends_with("GIVE\r\n$9\r\nlock:3:15\r\n"));
    }

    #[test]
    fn other_replies_are_refused() {
        assert!(refuse_other(b":1\r\n", ":").is_ok());
        assert!(refuse_other(b"$-1\r\n", ":").is_err());
    }
}
