//! Thousands of connections in one thread: each is a client of its own for the server; replies are read in the order of
//! their arrival.
//!
//! The client must notice a grant without reading the sockets of other waiters; otherwise the client would be measured.
//! So epoll (mio) watches the sockets and names the ready ones.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::server::Server;
use crate::wire::{refuse_error, reply_len, Conn};

/// Options of a server for a crowd. With a lower limit of open files, it allows fewer clients.
pub const MANY_CLIENTS: [&str; 2] = ["--maxclients", "20000"];

/// The longest wait for a reply, or for a state of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two readings of INFO: long, because the server's time is measured meanwhile.
const LOOK: Duration = Duration::from_millis(25);

/// The number of connections to open before a check that the server has accepted them.
const BATCH: usize = 200;

/// The largest number of clients with this many connections each: a server and the crowd have the same limit of open
/// files. Raises that limit as far as the system allows.
pub fn room(connections_each: usize) -> io::Result<usize> {
    let files = rlimit::increase_nofile_limit(u64::MAX)?;
    let connections = usize::try_from(files).unwrap_or(usize::MAX).min(20_000);
    Ok((connections.saturating_sub(100) / connections_each).max(1))
}

/// Waits until INFO shows this number.
pub fn wait_for(control: &mut Conn, section: &str, name: &str, number: usize) -> io::Result<()> {
    let start = Instant::now();
    let mut last = f64::NAN;
    while start.elapsed() < PATIENCE {
        last = control.info(section, name)?;
        if last == number as f64 {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    let never = format!("{name} is {last} and never became {number}");
    Err(io::Error::other(never))
}

struct Member {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// Connections, each known by its number.
pub struct Crowd {
    poll: Poll,
    events: Events,
    members: Vec<Member>,
    /// Members whose sockets have something to read.
    readable: VecDeque<usize>,
    /// Bytes that were read and not yet returned.
    replies: VecDeque<(usize, Vec<u8>)>,
}

impl Crowd {
    /// Opens all connections; afterwards the server has accepted each one.
    pub fn connect(server: &Server, count: usize) -> io::Result<Crowd> {
        let poll = Poll::new()?;
        let mut members = Vec::with_capacity(count);
        for number in 0..count {
            let mut conn = server.conn()?;
            if number % BATCH == BATCH - 1 || number == count - 1 {
                conn.ask("PING")?;
            }
            let stream = conn.into_stream();
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(number), Interest::READABLE)?;
            let unread = Vec::new();
            members.push(Member { stream, unread });
        }
        Ok(Crowd {
            poll,
            events: Events::with_capacity(1024),
            members,
            readable: VecDeque::new(),
            replies: VecDeque::new(),
        })
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Closes all connections.
    pub fn hang_up(&mut self) {
        self.members.clear();
    }

    /// Sends a request on this connection. Requests are small: they always fit into the socket's buffer.
    pub fn send(&mut self, index: usize, request: &[u8]) -> io::Result<()> {
        self.members[index].stream.write_all(request)
    }

    /// The next reply on any connection. An error reply ends the measurement.
    pub fn next(&mut self) -> io::Result<(usize, Vec<u8>)> {
        loop {
            if let Some((index, reply)) = self.replies.pop_front() {
                refuse_error(&reply)?;
                return Ok((index, reply));
            }
            match self.readable.pop_front() {
                Some(index) => self.read(index)?,
                None => self.wait()?,
            }
        }
    }

    /// One request, one reply, while no other connection gets one.
    pub fn ask(&mut self, index: usize, request: &[u8]) -> io::Result<Vec<u8>> {
        self.send(index, request)?;
        match self.next()? {
            (answered, reply) if answered == index => Ok(reply),
            (other, reply) => Err(io::Error::other(format!(
                "{other} got a reply instead of {index}: {}",
                String::from_utf8_lossy(&reply)
            ))),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(PATIENCE)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            done => done?,
        }
        self.readable
            .extend(self.events.iter().map(|event| event.token().0));
        if self.readable.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Reads one socket until it is empty, as edge-triggered readiness requires; a read that did not fill the buffer
    /// has emptied it.
    fn read(&mut self, index: usize) -> io::Result<()> {
        let member = &mut self.members[index];
        let mut chunk = [0; 4096];
        loop {
            let len = match member.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            member.unread.extend_from_slice(&chunk[..len]);
            if len < chunk.len() {
                break;
            }
        }
        while let Some(len) = reply_len(&member.unread) {
            let reply = member.unread.drain(..len).collect();
            self.replies.push_back((index, reply));
        }
        Ok(())
    }
}
