//! gRPC without a library: one call after the other over HTTP/2 on one blocking connection.
//!
//! It implements as much of both as calls with small messages need: the header block of a request is not compressed,
//! the headers of a response are ignored (a response without a message is a failed call), and the server may send any
//! amount.
//!
//! No library, as its time would count as etcd's. In turns with this client, on the same server, tonic made a pair 14
//! to 18 % slower: 90 us more of CPU time in the client. The crate h2, with tokio's event loop, made a pair 3 to 7 %
//! and a hand-off 19 to 29 % slower, and left gRPC's own frames and etcd's messages to be written here.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use super::process::connect;

// Frame types and flags of HTTP/2.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection with at most one call under way.
pub struct Channel {
    stream: BufReader<TcpStream>,
    /// The number of the current call: 1, 3, 5, ...
    call: u32,
}

impl Channel {
    /// Connects to a server on loopback.
    pub fn open(port: u16) -> io::Result<Channel> {
        let mut stream = connect(port)?;
        // The first window is 64 KiB; this raises it to the maximum, and it is never renewed.
        let window = (i32::MAX as u32 - 0xffff).to_be_bytes();
        let hello = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &frame(SETTINGS, 0, 0, b""),
            &frame(WINDOW_UPDATE, 0, 0, &window),
        ];
        stream.get_mut().write_all(&hello.concat())?;
        Ok(Channel {
            stream,
            call: u32::MAX,
        })
    }

    /// Sends a call and does not wait for its response.
    pub fn send(&mut self, path: &str, message: &[u8]) -> io::Result<()> {
        self.call = self.call.wrapping_add(2);
        let head = frame(HEADERS, END_HEADERS, self.call, &header_block(path));
        // Not compressed (1 byte), its length (4), the message.
        let len = (message.len() as u32).to_be_bytes();
        let body = [&[0][..], &len, message].concat();
        let data = frame(DATA, END_STREAM, self.call, &body);
        self.stream.get_mut().write_all(&[head, data].concat())
    }

    /// The message of the call's response.
    pub fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head)?;
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let (kind, flags) = (head[3], head[4]);
            let mut body = vec![0; len as usize];
            self.stream.read_exact(&mut body)?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.reply(SETTINGS, b"")?,
                PING if flags & ACK == 0 => self.reply(PING, &body)?,
                DATA => answer.extend_from_slice(&body),
                RST_STREAM | GOAWAY => return Err(io::Error::other("the server ended the call")),
                _ => {}
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                break;
            }
        }
        if answer.len() < 5 {
            return Err(io::Error::other("the call failed"));
        }
        Ok(answer.split_off(5))
    }

    /// A call and its response.
    pub fn call(&mut self, path: &str, message: &[u8]) -> io::Result<Vec<u8>> {
        self.send(path, message)?;
        self.answer()
    }

    fn reply(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(&frame(kind, ACK, 0, body))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// The headers of a call: entries of HPACK's static table, by number, with values of this client.
fn header_block(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    [
        vec![0x83, 0x86], // :method POST, :scheme http
        vec![0x04],       // :path
        text(path),
        vec![0x01], // :authority
        text("127.0.0.1"),
        vec![0x0f, 0x10], // content-type
        text("application/grpc"),
        vec![0x00], // a name that is not in the table
        text("te"),
        text("trailers"),
    ]
    .concat()
}

/// A field of a protobuf message that is a number.
pub fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

/// A field of a protobuf message that is bytes.
pub fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [
        vec![field << 3 | 2],
        varint(value.len() as u64),
        value.to_vec(),
    ]
    .concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// The value of a field of a protobuf message.
#[derive(Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// Bytes, text, or a message.
    Bytes(&'a [u8]),
}

/// A field of a message; none if it is absent (or if the bytes are no message).
pub fn field(mut message: &[u8], wanted: u8) -> Option<Value<'_>> {
    loop {
        let tag = take_varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(take_varint(&mut message)?),
            2 => {
                let len = take_varint(&mut message)? as usize;
                let (value, rest) = message.split_at_checked(len)?;
                message = rest;
                Value::Bytes(value)
            }
            _ => return None,
        };
        if tag >> 3 == u64::from(wanted) {
            return Some(value);
        }
    }
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let message = [number(1, 300), bytes(2, b"key"), number(16 - 1, u64::MAX)].concat();
        assert_eq!(message[..3], [0x08, 0xac, 0x02]);
        assert_eq!(field(&message, 1), Some(Value::Number(300)));
        assert_eq!(field(&message, 2), Some(Value::Bytes(b"key")));
        assert_eq!(field(&message, 15), Some(Value::Number(u64::MAX)));
        assert_eq!(field(&message, 3), None);
        assert_eq!(field(&message[..5], 2), None, "cut short");
    }

    #[test]
    fn a_frame_carries_the_length_of_its_body() {
        let head = [0, 0, 3, HEADERS, END_HEADERS, 0, 0, 0, 5];
        assert_eq!(frame(HEADERS, END_HEADERS, 5, b"abc")[..9], head);
    }
}
