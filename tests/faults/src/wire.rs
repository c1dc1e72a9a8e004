//! A connection that costs little and never waits longer than its limit: RESP2, requests written by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::stream::Stream;

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Int(i64),
    Nil,
    Text(String),
    Error(String),
    List(Vec<Reply>),
}

/// The reason why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReply {
    /// Not complete yet; the rest may still come.
    Late,
    /// The connection is lost.
    Lost,
}

/// A connection.
pub struct Wire {
    stream: Stream,
    port: u16,
    out: Vec<u8>,
    buffer: Vec<u8>,
    read: usize,
}

impl Wire {
    pub fn open(port: u16) -> Option<Wire> {
        Some(Wire {
            stream: Stream::open(port)?,
            port,
            out: Vec::new(),
            buffer: Vec::new(),
            read: 0,
        })
    }

    /// The port that it is connected to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a request to those that [`Wire::flush`] writes.
    pub fn push(&mut self, words: &[&[u8]]) {
        let out = &mut self.out;
        let _ = write!(out, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(out, "${}\r\n", word.len());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes the requests at once; false if the connection is lost.
    pub fn flush(&mut self) -> bool {
        let is_written = self.stream.write_all(&self.out).is_ok() && self.stream.flush().is_ok();
        self.out.clear();
        is_written
    }

    /// Sends one request.
    pub fn send(&mut self, words: &[&[u8]]) -> bool {
        self.push(words);
        self.flush()
    }

    /// Sends a line of words and waits for the reply; `None` if there is none.
    pub fn line(&mut self, line: &str, limit: Duration) -> Option<Reply> {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        if !self.send(&words) {
            return None;
        }
        self.recv(limit).ok()
    }

    /// The next reply.
    pub fn recv(&mut self, limit: Duration) -> Result<Reply, NoReply> {
        let start = Instant::now();
        loop {
            let mut at = self.read;
            if let Some(reply) = parse(&self.buffer, &mut at) {
                self.read = at;
                return Ok(reply);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(NoReply::Late);
            }
            self.fill(left)?;
        }
    }

    /// The next reply, without waiting for it.
    pub fn poll(&mut self) -> Result<Reply, NoReply> {
        let complete = self.recv(Duration::ZERO);
        if complete != Err(NoReply::Late) {
            return complete;
        }
        let _ = self.stream.socket().set_nonblocking(true);
        let filled = self.read_once();
        let _ = self.stream.socket().set_nonblocking(false);
        filled.and_then(|()| self.recv(Duration::ZERO))
    }

    fn fill(&mut self, limit: Duration) -> Result<(), NoReply> {
        // A limit rounded down to zero would mean no limit.
        let limit = limit.max(Duration::from_millis(1));
        let _ = self.stream.socket().set_read_timeout(Some(limit));
        self.read_once()
    }

    fn read_once(&mut self) -> Result<(), NoReply> {
        self.buffer.drain(..self.read);
        self.read = 0;
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(NoReply::Lost),
            Ok(len) => {
                self.buffer.extend_from_slice(&chunk[..len]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(NoReply::Late),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(NoReply::Late),
            Err(_) => Err(NoReply::Lost),
        }
    }

    /// Whether the server has not closed it yet.
    pub fn is_open(&mut self) -> bool {
        let socket = self.stream.socket();
        let _ = socket.set_nonblocking(true);
        let seen = socket.peek(&mut [0]);
        let _ = socket.set_nonblocking(false);
        match seen {
            Ok(read) => read > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Closes it.
    pub fn close(self) {
        let _ = self.stream.socket().shutdown(Shutdown::Both);
    }
}

/// The reply at this position of the buffer, if it is complete; advances the position behind it.
fn parse(buffer: &[u8], at: &mut usize) -> Option<Reply> {
    let rest = buffer.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, text) = (rest.first()?, rest.get(1..end)?);
    *at += end + 2;
    let text = || String::from_utf8_lossy(text).into_owned();
    let number = || text().parse::<i64>().ok();
    match kind {
        b':' => Some(Reply::Int(number()?)),
        b'+' => Some(Reply::Text(text())),
        b'-' => Some(Reply::Error(text())),
        b'$' => {
            let Ok(len) = usize::try_from(number()?) else {
                return Some(Reply::Nil);
            };
            let bytes = buffer.get(*at..*at + len)?;
            buffer.get(*at + len + 1)?;
            *at += len + 2;
            Some(Reply::Text(String::from_utf8_lossy(bytes).into_owned()))
        }
        b'*' => {
            let Ok(len) = usize::try_from(number()?) else {
                return Some(Reply::Nil);
            };
            (0..len)
                .map(|_| parse(buffer, at))
                .collect::<Option<_>>()
                .map(Reply::List)
        }
        other => panic!("not RESP2: {other}"),
    }
}

impl Reply {
    /// A field of a flat array.
    pub fn field(&self, name: &str) -> Option<&Reply> {
        let pair = self.list().chunks(2).find(|pair| pair[0].text() == name)?;
        pair.get(1)
    }

    /// The elements; none if it is no array.
    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(list) => list,
            _ => &[],
        }
    }

    /// The text; empty if it is none.
    pub fn text(&self) -> &str {
        match self {
            Reply::Text(text) | Reply::Error(text) => text,
            _ => "",
        }
    }

    /// The first word of an error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => text.split_whitespace().next(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_when_they_are_whole() {
        let text = b"*3\r\n:12\r\n$2\r\nab\r\n*2\r\n$-1\r\n-ERR no\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end], &mut 0), None, "after {end} bytes");
        }
        let mut at = 0;
        let reply = parse(text, &mut at).expect("a reply");
        let inner = Reply::List(vec![Reply::Nil, Reply::Error("ERR no".into())]);
        let outer = vec![Reply::Int(12), Reply::Text("ab".into()), inner];
        assert_eq!((reply, at), (Reply::List(outer), text.len()));
    }
}
