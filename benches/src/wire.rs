//! The wire protocol as far as a load needs it: requests as bytes, and the number of replies received.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No reply of a benchmark takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request in the protocol's form.
pub fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut cmd = redis::Cmd::new();
    for word in words {
        cmd.arg(word.as_ref());
    }
    cmd.get_packed_command()
}

/// A request written as one line; words are separated by single spaces.
pub fn line(words: &str) -> Vec<u8> {
    request(&words.split(' ').collect::<Vec<_>>())
}

/// The length of the first reply in these bytes (RESP2), if it is complete.
pub fn reply_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let number = || {
        std::str::from_utf8(bytes.get(1..end - 2)?)
            .ok()?
            .parse::<i64>()
            .ok()
    };
    let len = match bytes.first()? {
        b'$' => match number()? {
            nil if nil < 0 => end,
            len => end + len as usize + 2,
        },
        b'*' => {
            let mut at = end;
            for _ in 0..number()?.max(0) {
                at += reply_len(bytes.get(at..)?)?;
            }
            at
        }
        _ => end,
    };
    (len <= bytes.len()).then_some(len)
}

/// An error reply becomes an error.
pub fn refuse_error(reply: &[u8]) -> io::Result<()> {
    match reply.strip_prefix(b"-") {
        Some(error) => Err(io::Error::other(
            String::from_utf8_lossy(error).trim().to_string(),
        )),
        None => Ok(()),
    }
}

/// A field of INFO's reply.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let field = |line: &'a str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim());
    info.lines().find_map(field)
}

/// A blocking connection that sends bytes and reads whole replies.
pub struct Conn {
    stream: TcpStream,
    unread: Vec<u8>,
    /// The index in `unread` at which the next reply begins.
    at: usize,
}

impl Conn {
    /// Connects to a server on loopback.
    pub fn open(port: u16) -> io::Result<Conn> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Conn {
            stream,
            unread: Vec::new(),
            at: 0,
        })
    }

    /// Sends requests and does not wait for their replies.
    pub fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// The next reply, as received.
    pub fn reply(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(len) = reply_len(&self.unread[self.at..]) {
                let reply = self.unread[self.at..self.at + len].to_vec();
                self.at += len;
                return Ok(reply);
            }
            self.unread.drain(..self.at);
            self.at = 0;
            let mut chunk = [0; 16 * 1024];
            let len = self.stream.read(&mut chunk)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.unread.extend_from_slice(&chunk[..len]);
        }
    }

    /// One request, one reply, which must not be an error.
    pub fn ask(&mut self, words: &str) -> io::Result<String> {
        self.send(&line(words))?;
        let reply = self.reply()?;
        refuse_error(&reply).map_err(|error| io::Error::other(format!("{words}: {error}")))?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    /// A number from INFO.
    pub fn info(&mut self, section: &str, name: &str) -> io::Result<f64> {
        let info = self.ask(&format!("INFO {section}"))?;
        let field = info_field(&info, name).and_then(|field| field.parse().ok());
        let missing = || io::Error::other(format!("INFO {section} has no {name}"));
        field.ok_or_else(missing)
    }

    /// The stream, for a caller that waits by itself.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_measured_whole_or_not_at_all() {
        for reply in [
            "+OK\r\n",
            ":1\r\n",
            "$-1\r\n",
            "$3\r\na\r\n\r\n",
            "*2\r\n:1\r\n$1\r\nx\r\n",
            "*-1\r\n",
        ] {
            let bytes = [reply.as_bytes(), b"+next"].concat();
            assert_eq!(reply_len(&bytes), Some(reply.len()), "{reply:?}");
            for cut in 0..reply.len() {
                assert_eq!(reply_len(&bytes[..cut]), None, "{reply:?} cut at {cut}");
            }
        }
    }
}
