//! A connection that keeps replies as bytes, so that equal replies are equal on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use redis_lock_harness::patience;

pub type Bytes = Vec<u8>;
pub type Words = Vec<Bytes>;

pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    pub fn open(port: u16) -> Wire {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(patience())).expect("a socket");
        Wire {
            stream: BufReader::new(socket),
        }
    }

    /// Sends commands in one write.
    pub fn send(&mut self, commands: &[Words]) {
        let mut bytes = Vec::new();
        for words in commands {
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend(word);
                bytes.extend(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes).expect("a write");
    }

    /// Sends a line and waits for its reply.
    pub fn line(&mut self, line: &str) -> Bytes {
        self.send(&[words(line)]);
        self.recv()
    }

    /// The next reply or push message.
    pub fn recv(&mut self) -> Bytes {
        let mut reply = Vec::new();
        self.read_into(&mut reply);
        reply
    }

    fn read_into(&mut self, reply: &mut Bytes) {
        let start = reply.len();
        self.stream.read_until(b'\n', reply).expect("a line");
        let line = reply[start..].to_vec();
        let number = || {
            let text = String::from_utf8_lossy(&line[1..line.len() - 2]);
            text.parse::<i64>().expect("a length")
        };
        match line[0] {
            b'$' | b'=' if number() >= 0 => {
                let mut text = vec![0; number() as usize + 2];
                self.stream.read_exact(&mut text).expect("a string");
                reply.extend(text);
            }
            b'*' | b'~' | b'>' => (0..number()).for_each(|_| self.read_into(reply)),
            b'%' => (0..2 * number()).for_each(|_| self.read_into(reply)),
            _ => {}
        }
    }
}

/// The words of a line, as a command.
pub fn words(line: &str) -> Words {
    line.split_whitespace().map(Bytes::from).collect()
}

/// Readable bytes: those that cannot be printed are escaped.
pub fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

/// The bulk strings of a reply, in their order.
pub fn strings_of(mut reply: &[u8]) -> Vec<Bytes> {
    let mut strings = Vec::new();
    while let Some(end) = reply.windows(2).position(|pair| pair == b"\r\n") {
        let (line, rest) = reply.split_at(end);
        reply = &rest[2..];
        if let Some(length) = line.strip_prefix(b"$") {
            let length = std::str::from_utf8(length)
                .ok()
                .and_then(|text| text.parse().ok());
            let text = length.and_then(|length: usize| reply.get(..length));
            strings.extend(text.map(<[u8]>::to_vec));
            reply = &reply[text.map_or(0, <[u8]>::len)..];
        }
    }
    strings
}
