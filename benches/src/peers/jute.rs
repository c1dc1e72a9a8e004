//! ZooKeeper's wire protocol, as far as a lock needs it: one request, one reply, and a watch's event.
//!
//! Everything is big-endian and preceded by its length. A request has a number and a type; its reply has the number,
//! the transaction's id, and an error (0: none).
//!
//! No library, as its time would count as ZooKeeper's. zookeeper-client, the one that is kept, reads its sockets in a
//! thread of its own. In turns with this client, on the same server, it made a pair 2 to 6 % and a hand-off about 8 %
//! slower, with 40 to 60 us more of CPU time for a pair; it would take 170 lines away and bring 50 crates.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use super::process::connect;

/// Milliseconds without a message from the client that end its session (the most that a server allows with ticks of 2
/// s).
const SESSION_MS: u32 = 40_000;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const CHILDREN: i32 = 8;
const CLOSE: i32 = -11;

/// The number in an event, in the place of a request's number.
const EVENT: i32 = -1;

const NO_NODE: i32 = -101;

/// Permanent nodes; and nodes that end with their session and have a number appended to their name.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Stays.
    Persistent = 0,
    /// Ends with its session, and is numbered.
    EphemeralSequential = 3,
}

/// A session.
pub struct Client {
    stream: BufReader<TcpStream>,
    requests: i32,
}

impl Client {
    /// Connects, and begins a session.
    pub fn open(port: u16) -> io::Result<Client> {
        let mut stream = connect(port)?;
        let mut hello = Vec::new();
        hello.extend(0_u32.to_be_bytes()); // the protocol's version
        hello.extend(0_u64.to_be_bytes()); // the last transaction seen
        hello.extend(SESSION_MS.to_be_bytes());
        hello.extend(0_u64.to_be_bytes()); // a new session
        hello.extend(buffer(&[0; 16])); // its password, none yet
        stream.get_mut().write_all(&buffer(&hello))?;
        let answer = read_frame(&mut stream)?;
        let timeout = i32_at(&answer, 4)?;
        if timeout <= 0 {
            return Err(io::Error::other("no session"));
        }
        Ok(Client {
            stream,
            requests: 0,
        })
    }

    /// Creates a node without data that every client may use; returns its name.
    pub fn create(&mut self, path: &str, kind: Kind) -> io::Result<String> {
        let body = [
            buffer(path.as_bytes()),
            buffer(b""),
            1_i32.to_be_bytes().to_vec(),  // one entry of rights:
            31_i32.to_be_bytes().to_vec(), // every one
            buffer(b"world"),
            buffer(b"anyone"),
            (kind as i32).to_be_bytes().to_vec(),
        ];
        let reply = self.call(CREATE, &body.concat())?;
        text_at(&reply.body, 0).map(|(name, _)| name)
    }

    /// Sends a deletion of a node, whatever its version, and does not wait for the reply.
    pub fn send_delete(&mut self, path: &str) -> io::Result<()> {
        let body = [&buffer(path.as_bytes())[..], &(-1_i32).to_be_bytes()].concat();
        self.send(DELETE, &body)
    }

    /// Whether a node exists; if so, an event will announce its end.
    pub fn watch(&mut self, path: &str) -> io::Result<bool> {
        let body = [&buffer(path.as_bytes())[..], &[1]].concat();
        self.send(EXISTS, &body)?;
        let reply = self.frame()?;
        match reply.error {
            NO_NODE => Ok(false),
            _ => reply.good().map(|_| true),
        }
    }

    /// The names of a node's children.
    pub fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let body = [&buffer(path.as_bytes())[..], &[0]].concat();
        let reply = self.call(CHILDREN, &body)?;
        let (mut names, mut at) = (Vec::new(), 4);
        for _ in 0..i32_at(&reply.body, 0)? {
            let (name, end) = text_at(&reply.body, at)?;
            names.push(name);
            at = end;
        }
        Ok(names)
    }

    /// Waits for the reply to the last request.
    pub fn reply(&mut self) -> io::Result<()> {
        self.frame()?.good().map(drop)
    }

    /// Waits for an event.
    pub fn event(&mut self) -> io::Result<()> {
        match self.frame()?.number {
            EVENT => Ok(()),
            _ => Err(io::Error::other("an unexpected reply")),
        }
    }

    fn call(&mut self, what: i32, body: &[u8]) -> io::Result<Reply> {
        self.send(what, body)?;
        self.frame()?.good()
    }

    fn send(&mut self, what: i32, body: &[u8]) -> io::Result<()> {
        self.requests += 1;
        let head = [self.requests.to_be_bytes(), what.to_be_bytes()].concat();
        let request = buffer(&[&head, body].concat());
        self.stream.get_mut().write_all(&request)
    }

    fn frame(&mut self) -> io::Result<Reply> {
        let frame = read_frame(&mut self.stream)?;
        Ok(Reply {
            number: i32_at(&frame, 0)?,
            error: i32_at(&frame, 12)?,
            body: frame[16..].to_vec(),
        })
    }
}

impl Drop for Client {
    /// Ends the session, and with it its nodes, at once.
    fn drop(&mut self) {
        if self.send(CLOSE, b"").is_ok() {
            let _ = self.frame();
        }
    }
}

struct Reply {
    number: i32,
    error: i32,
    body: Vec<u8>,
}

impl Reply {
    fn good(self) -> io::Result<Reply> {
        match (self.number, self.error) {
            (EVENT, _) => Err(io::Error::other("an event instead of a reply")),
            (_, 0) => Ok(self),
            (_, error) => Err(io::Error::other(format!("error {error}"))),
        }
    }
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn i32_at(frame: &[u8], at: usize) -> io::Result<i32> {
    let bytes = frame.get(at..at + 4).and_then(|four| four.try_into().ok());
    bytes.map(i32::from_be_bytes).ok_or_else(cut_short)
}

/// The text that begins here, and the index of its end.
fn text_at(frame: &[u8], at: usize) -> io::Result<(String, usize)> {
    let end = at + 4 + i32_at(frame, at)?.max(0) as usize;
    let text = frame.get(at + 4..end).ok_or_else(cut_short)?;
    Ok((String::from_utf8_lossy(text).into_owned(), end))
}

fn cut_short() -> io::Error {
    io::Error::other("a reply that is cut short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_it_was_written() {
        let frame = [buffer(b"one"), buffer(b"two")].concat();
        let (one, at) = text_at(&frame, 0).expect("whole");
        assert_eq!((one.as_str(), at), ("one", 7));
        assert_eq!(text_at(&frame, at).expect("whole").0, "two");
        assert!(text_at(&frame[..9], at).is_err(), "cut in the length");
        assert!(text_at(&frame[..12], at).is_err(), "cut in the text");
    }
}
