//! The server's replicated writes: read by a pretended replica, from the text of the AOF, and by real replicas.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use redis::Parser;

use crate::conn::{pack, Reply};
use crate::{patience, wait_for, TestServer};

const MARKER: &str = "marker:of:the:test";

/// The replication stream of a server from the time of connecting.
pub struct ReplicationStream {
    stream: BufReader<TcpStream>,
    parser: Parser,
}

impl ReplicationStream {
    /// Connects a pretended replica and reads past the snapshot.
    pub fn attach(server: &TestServer) -> ReplicationStream {
        let socket = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
        socket.set_read_timeout(Some(patience())).expect("a socket");
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
        let mut replica = ReplicationStream {
            stream,
            parser: Parser::new(),
        };
        // The stream of a fresh replica begins with a SELECT.
        assert_eq!(replica.until_now(server), ["SELECT 0"]);
        replica
    }

    /// The commands before a marker that is written to the server now. `PING`s and `REPLCONF`s are left out; words are
    /// joined by spaces, the command's name in upper case.
    pub fn until_now(&mut self, server: &TestServer) -> Vec<String> {
        server.conn().run(["SET", MARKER, "1"]);
        let mut next = || read_command(&mut self.parser, &mut self.stream).expect("the stream");
        std::iter::from_fn(|| Some(next()).filter(|command| !command.contains(MARKER)))
            .filter(|command| command != "PING" && !command.starts_with("REPLCONF"))
            .collect()
    }
}

/// The AOF entries of a server with `appendfsync always` since the AOF was opened or rewritten, in the form of
/// [`ReplicationStream::until_now`].
pub fn aof_text(server: &TestServer) -> Vec<String> {
    let dir = std::fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's directory");
    let mut increments: Vec<_> = dir
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    increments.sort();
    let text = std::fs::read(increments.last().expect("an increment")).expect("the AOF");
    let (mut parser, mut rest) = (Parser::new(), text.as_slice());
    std::iter::from_fn(|| read_command(&mut parser, &mut rest))
        .filter(|command| !command.contains(MARKER))
        .collect()
}

fn read_command(parser: &mut Parser, source: &mut impl Read) -> Option<String> {
    let value = parser.parse_value(source).ok()?;
    let words: Vec<String> = Reply(value).list().iter().map(Reply::text).collect();
    Some(
        [&[words[0].to_uppercase()][..], &words[1..]]
            .concat()
            .join(" "),
    )
}

/// Options of a master that sends its snapshot at once.
pub const PROMPT_MASTER: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// Makes a server the replica of another and waits until it has all its data.
pub fn follow(replica: &TestServer, master: &TestServer) {
    let port = master.port.to_string();
    replica.conn().run(["REPLICAOF", "127.0.0.1", &port]);
    wait_for("the link to the master", || {
        replica.info_field("replication", "master_link_status") == "up"
    });
    wait_until_in_sync(replica, master);
}

/// Makes the replica the master, and the master its replica.
pub fn fail_over(master: &TestServer, replica: &TestServer) {
    let field = |name| master.info_field("replication", name);
    wait_for("the replica", || field("slave0").contains("state=online"));
    let line = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 60000", replica.port);
    assert_eq!(master.conn().line(&line).text(), "OK");
    wait_for("the fail-over", || {
        field("master_failover_state") == "no-failover" && field("role") == "slave"
    });
}

/// Waits until the replica has applied all writes of the master.
pub fn wait_until_in_sync(replica: &TestServer, master: &TestServer) {
    let offset = |server: &TestServer| server.info_field("replication", "master_repl_offset");
    wait_for("equal offsets", || offset(replica) == offset(master));
}

fn read_line(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        // The server keeps the link alive with bare newlines while it creates the snapshot.
        if !line.trim().is_empty() {
            return line.trim().to_string();
        }
    }
}
