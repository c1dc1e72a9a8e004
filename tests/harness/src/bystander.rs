//! An observer: whether a command changed anything, and which key events it caused.

use crate::{Conn, Reply, TestServer};

/// Observes a key, and the whole server, from before a command until after it.
pub struct Bystander {
    conn: Conn,
    watcher: Conn,
    events: Events,
    key: Vec<u8>,
    before: Traces,
}

#[derive(Debug, PartialEq)]
struct Traces {
    digest: String,
    value: Reply,
    deadline: i64,
    changes: String,
}

impl Bystander {
    /// Records the state of a key of database 0, and `WATCH`es it.
    pub fn of(server: &TestServer, key: impl AsRef<[u8]>) -> Bystander {
        let (mut conn, mut watcher) = (server.conn(), server.conn());
        let key = key.as_ref().to_vec();
        let events = Events::of(server);
        watcher.run([b"WATCH".as_slice(), &key]);
        let before = Traces::of(&mut conn, &key);
        Bystander {
            conn,
            watcher,
            events,
            key,
            before,
        }
    }

    /// Asserts that nothing changed: no field, TTL, dirty counter or key event, and no `WATCH` was aborted.
    pub fn saw_nothing(mut self, of_what: &str) {
        let now = Traces::of(&mut self.conn, &self.key);
        assert_eq!(now, self.before, "a trace of: {of_what}");
        assert_eq!(self.events.so_far(), [""; 0], "an event of: {of_what}");
        assert!(!self.is_aborted(), "an aborted WATCH by: {of_what}");
    }

    /// Asserts a change: the dirty counter rose, and a transaction that watches the key fails.
    pub fn saw_a_change(mut self, of_what: &str) {
        let now = Traces::of(&mut self.conn, &self.key);
        assert_ne!(now, self.before, "no change by: {of_what}");
        assert_ne!(now.changes, self.before.changes, "not dirty: {of_what}");
        assert!(self.is_aborted(), "no WATCH was aborted by: {of_what}");
    }

    fn is_aborted(&mut self) -> bool {
        self.watcher.run(["MULTI"]);
        self.watcher.run(["PING"]);
        self.watcher.run(["EXEC"]).is_nil()
    }
}

impl Traces {
    fn of(conn: &mut Conn, key: &[u8]) -> Traces {
        let info = conn.run(["INFO", "persistence"]).text();
        let changes = info
            .lines()
            .find(|line| line.starts_with("rdb_changes_since_last_save:"));
        Traces {
            digest: conn.run(["DEBUG", "DIGEST"]).text(),
            value: conn.run([b"DUMP".as_slice(), key]),
            deadline: conn.run([b"PEXPIRETIME".as_slice(), key]).int(),
            changes: changes.expect("a dirty counter").to_string(),
        }
    }
}

/// The key events of every database, in order.
pub struct Events {
    conn: Conn,
    subscriber: Conn,
}

impl Events {
    /// Subscribes; events count from now on.
    pub fn of(server: &TestServer) -> Events {
        let (mut conn, mut subscriber) = (server.conn(), server.conn());
        conn.line("CONFIG SET notify-keyspace-events EA");
        subscriber.line("PSUBSCRIBE __keyevent@* the-end");
        subscriber.recv();
        Events { conn, subscriber }
    }

    /// The events since the last call, as `name key`.
    pub fn so_far(&mut self) -> Vec<String> {
        self.conn.line("PUBLISH the-end x");
        let mut events = Vec::new();
        loop {
            let message = self.subscriber.recv().list();
            let channel = message[2].text();
            if channel == "the-end" {
                return events;
            }
            let event = channel.split_once(':').map_or("", |(_, event)| event);
            events.push(format!("{event} {}", message[3].text()));
        }
    }
}
