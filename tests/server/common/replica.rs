//! A replica that does nothing but read: what the server sends to replicas, command by command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use redis::Parser;

use super::conn::{pack, Reply};
use super::{TestServer, PATIENCE};

/// The replication stream of a server from the moment of connecting.
pub struct ReplicationStream {
    stream: BufReader<TcpStream>,
    parser: Parser,
}

impl ReplicationStream {
    /// Attaches a pretended replica and reads past the snapshot.
    pub fn attach(server: &TestServer) -> ReplicationStream {
        let socket = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut stream = BufReader::new(socket);
        for command in [
            &["REPLCONF", "listening-port", "1"][..],
            &["REPLCONF", "capa", "psync2"],
        ] {
            stream.get_mut().write_all(&pack(command)).expect("a write");
            read_line(&mut stream);
        }
        stream
            .get_mut()
            .write_all(&pack(["PSYNC", "?", "-1"]))
            .expect("a write");
        let answer = read_line(&mut stream);
        assert!(answer.starts_with("+FULLRESYNC"), "{answer}");
        let length = loop {
            let line = read_line(&mut stream);
            if let Some(length) = line.strip_prefix('$') {
                break length.parse::<usize>().expect("a snapshot of known length");
            }
        };
        let mut snapshot = vec![0; length];
        stream.read_exact(&mut snapshot).expect("the snapshot");
        stream
            .get_mut()
            .write_all(&pack(["REPLCONF", "ACK", "0"]))
            .expect("a write");
        ReplicationStream {
            stream,
            parser: Parser::new(),
        }
    }

    /// The commands up to, without, a marker that is written to the server now. `PING`s and
    /// `REPLCONF`s are left out; words are joined by spaces, the command's name in upper case.
    pub fn until_now(&mut self, server: &TestServer) -> Vec<String> {
        server.conn().run(["SET", "marker:of:the:test", "1"]);
        let mut commands = Vec::new();
        loop {
            let value = self
                .parser
                .parse_value(&mut self.stream)
                .expect("the stream");
            let words: Vec<String> = Reply(value).list().iter().map(Reply::text).collect();
            let name = words[0].to_uppercase();
            if name == "SET" && words[1] == "marker:of:the:test" {
                return commands;
            }
            if name != "PING" && name != "REPLCONF" {
                commands.push([&[name][..], &words[1..]].concat().join(" "));
            }
        }
    }
}

fn read_line(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        // The server keeps the link alive with bare newlines while it makes the snapshot.
        if !line.trim().is_empty() {
            return line.trim().to_string();
        }
    }
}
