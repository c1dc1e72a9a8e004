//! A connection that can send now and receive later, as parked requests need it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use redis::{Parser, Value};

use crate::{patience, wait_for};

/// A raw RESP connection.
pub struct Conn {
    stream: TcpStream,
    parser: Parser,
}

/// A socket whose reads go on after an interruption: a process that is stopped and continued gets `EINTR` where it
/// waits with a time limit, which the parser takes for the end of the connection.
struct Uninterrupted<'a>(&'a mut TcpStream);

impl Read for Uninterrupted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// A reply of the server; an error reply is a value like any other.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply(pub Value);

impl Conn {
    pub fn open(port: u16) -> Conn {
        Conn::try_open(port).expect("a connection")
    }

    pub fn try_open(port: u16) -> Option<Conn> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(patience())).ok()?;
        Some(Conn {
            stream,
            parser: Parser::new(),
        })
    }

    /// Whether the server serves commands and has loaded its data.
    /// Another connection to the same server.
    pub fn another(&self) -> Conn {
        Conn::open(self.stream.peer_addr().expect("an address").port())
    }

    pub fn is_ready(&mut self) -> bool {
        // While data is loaded the reply is an error.
        self.try_send(["PING"])
            && self
                .try_recv()
                .is_some_and(|reply| !reply.is_error() && reply.text() == "PONG")
    }

    /// Whether the process at the other end is this one, and serves commands. Another process may have taken the port,
    /// which was free a moment ago.
    pub fn is_ready_as(&mut self, pid: u32) -> bool {
        let line = format!("process_id:{pid}");
        self.is_ready()
            && self.try_send(["INFO", "server"])
            && self
                .try_recv()
                .is_some_and(|info| info.text().lines().any(|l| l == line))
    }

    /// Sends a command and waits for its reply.
    pub fn run<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) -> Reply {
        self.send(args);
        self.recv()
    }

    /// Sends the words of a line, for readable tests; a word cannot contain a space.
    pub fn line(&mut self, line: &str) -> Reply {
        self.run(line.split_whitespace())
    }

    /// Sends a command.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) {
        assert!(self.try_send(args), "the connection is closed");
    }

    /// Sends a line without waiting for its reply.
    pub fn send_line(&mut self, line: &str) {
        self.send(line.split_whitespace());
    }

    /// Sends several commands in one write, so that the server reads them in one tick.
    pub fn send_lines(&mut self, lines: &[&str]) {
        let packed: Vec<u8> = lines
            .iter()
            .flat_map(|line| pack(line.split_whitespace()))
            .collect();
        self.stream.write_all(&packed).expect("a write");
    }

    /// Sends a command; false if the connection was closed.
    pub fn try_send<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) -> bool {
        self.stream.write_all(&pack(args)).is_ok()
    }

    /// The next reply.
    pub fn recv(&mut self) -> Reply {
        self.try_recv().expect("a reply")
    }

    /// The next reply; `None` if the connection was closed.
    pub fn try_recv(&mut self) -> Option<Reply> {
        match self.parser.parse_value(Uninterrupted(&mut self.stream)) {
            Ok(value) => Some(Reply(value)),
            Err(error) if error.is_timeout() => panic!("no reply within {:?}", patience()),
            Err(error) if error.kind() == redis::ErrorKind::Parse => panic!("{error}"),
            Err(error) => {
                // For the output of a test that did not expect it.
                eprintln!("the connection has ended: {error}");
                None
            }
        }
    }

    /// The next line as it comes over the wire, for replies that the parser does not distinguish.
    pub fn raw_line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("a line");
            line.extend(byte);
        }
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// Whether nothing has arrived: meaningful only after an event that would have made it arrive.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let seen = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        matches!(seen, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether the server has closed the connection (waits for it).
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok()
    }

    /// The server's id of this connection.
    pub fn id(&mut self) -> i64 {
        self.run(["CLIENT", "ID"]).int()
    }

    /// Closes the connection.
    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits until the server reports this number of waiters for this key.
    pub fn wait_for_waiters_on(&mut self, key: &str, count: i64) {
        wait_for(&format!("{count} waiters on {key}"), || {
            let info = self.run(["LOCK.INFO", key]);
            info.field("waiters").map_or(0, |waiters| waiters.int()) == count
        });
    }

    /// All fields of a lock's key, and its lease in absolute time.
    pub fn snapshot_of(&mut self, key: &str) -> (Vec<Reply>, i64) {
        let mut fields = self.run(["HGETALL", key]).list();
        fields.sort_by_key(Reply::text);
        (fields, self.run(["PEXPIRETIME", key]).int())
    }

    /// The raw socket, for data that is not RESP.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    pub fn set_read_timeout(&mut self, timeout: Duration) {
        self.stream
            .set_read_timeout(Some(timeout))
            .expect("a socket");
    }
}

/// A command as a RESP array.
pub fn pack<A: AsRef<[u8]>>(args: impl IntoIterator<Item = A>) -> Vec<u8> {
    let args: Vec<Vec<u8>> = args.into_iter().map(|arg| arg.as_ref().to_vec()).collect();
    redis::pack_command(&args)
}

impl Reply {
    pub fn is_nil(&self) -> bool {
        self.0 == Value::Nil
    }

    pub fn int(&self) -> i64 {
        match self.0 {
            Value::Int(value) => value,
            ref other => panic!("not an integer: {other:?}"),
        }
    }

    /// The number, if it is an integer.
    pub fn maybe_int(&self) -> Option<i64> {
        match self.0 {
            Value::Int(value) => Some(value),
            _ => None,
        }
    }

    pub fn is_array(&self) -> bool {
        matches!(self.0, Value::Array(_))
    }

    /// The text of a string or status reply.
    pub fn text(&self) -> String {
        match &self.0 {
            Value::Okay => "OK".into(),
            Value::SimpleString(text) => text.clone(),
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// The bytes of a bulk string.
    pub fn bytes(&self) -> Vec<u8> {
        match &self.0 {
            Value::BulkString(bytes) => bytes.clone(),
            other => panic!("not a bulk string: {other:?}"),
        }
    }

    /// The text of an error reply, code first.
    pub fn error(&self) -> String {
        match &self.0 {
            Value::ServerError(error) => {
                let details = error.details().unwrap_or_default();
                format!("{} {details}", error.code()).trim_end().to_string()
            }
            other => panic!("not an error: {other:?}"),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self.0, Value::ServerError(_))
    }

    /// The elements of an array.
    pub fn list(&self) -> Vec<Reply> {
        match &self.0 {
            Value::Array(items) | Value::Set(items) => items.iter().cloned().map(Reply).collect(),
            other => panic!("not an array: {other:?}"),
        }
    }

    /// A field of a map (RESP3) or of a flat array (RESP2).
    pub fn field(&self, name: &str) -> Option<Reply> {
        let is_name = |key: &Value| matches!(key, Value::BulkString(b) if b == name.as_bytes());
        match &self.0 {
            Value::Map(pairs) => pairs
                .iter()
                .find(|(k, _)| is_name(k))
                .map(|(_, v)| Reply(v.clone())),
            Value::Array(flat) => flat
                .chunks(2)
                .find(|pair| is_name(&pair[0]))
                .map(|pair| Reply(pair[1].clone())),
            Value::Nil => None,
            other => panic!("not a map: {other:?}"),
        }
    }
}
