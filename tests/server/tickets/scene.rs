//! Requests with `NOTIFY`, and the subscriber that gets their messages.

use crate::common::barrier::Barrier;
use crate::common::{wait_for, Conn, Reply, TestServer};
use redis::Value;

/// The initial state of most tests: alice holds the lock `k`, and a client is subscribed to `ch`.
pub struct Scene {
    pub alice: Conn,
    /// Subscribed to `ch`.
    pub subscriber: Conn,
    /// Alice's token: the next grant must have a higher one.
    pub first: i64,
    /// Dropped last: the counters are checked in the state at the end of the test.
    pub server: TestServer,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::on(TestServer::start())
    }

    pub fn with(options: &[&str]) -> Scene {
        Scene::on(TestServer::with(options))
    }

    pub fn on(server: TestServer) -> Scene {
        let mut alice = server.conn();
        let first = alice.line("LOCK.ACQUIRE k alice PX 60000").int();
        let subscriber = subscribe(&server, "ch");
        Scene {
            alice,
            subscriber,
            first,
            server,
        }
    }

    /// Sends a request that has to wait.
    pub fn ask(&mut self, line: &str) {
        assert_queued(&mut self.alice, line);
    }

    /// A ticket for `k` without limit, on `ch`; the tag is the owner.
    pub fn queue(&mut self, owner: &str) {
        self.ask(&request(owner));
    }

    /// A parked request for `k`.
    pub fn park(&self, owner: &str) -> Conn {
        park(
            &self.server,
            &format!("LOCK.ACQUIRE k {owner} PX 60000 BLOCK 0"),
        )
    }

    pub fn release(&mut self, owner: &str) {
        let line = format!("LOCK.RELEASE k {owner}");
        assert_eq!(self.alice.line(&line).int(), 1, "{line}");
    }

    /// Runs these lines and then `PUBLISH ch now` as one transaction: messages before `now` are from the events of the
    /// lines.
    pub fn exec_and_mark(&mut self, lines: &[&str]) -> Vec<Reply> {
        let all = [&["MULTI"], lines, &["PUBLISH ch now", "EXEC"]].concat();
        self.alice.send_lines(&all);
        for _ in 1..all.len() {
            self.alice.recv();
        }
        self.alice.recv().list()
    }

    /// The next message.
    pub fn heard(&mut self) -> String {
        message(&mut self.subscriber)
    }

    /// Asserts that the next message grants `k` to the owner of this name and tag, and that the hash says so.
    pub fn assert_granted(&mut self, owner: &str) -> i64 {
        let token = granted(&self.heard(), owner);
        assert!(token > self.first);
        self.assert_held(owner, token);
        token
    }

    pub fn assert_held(&mut self, owner: &str, token: i64) {
        assert_held(&mut self.alice, "k", owner, token);
    }

    /// Asserts that no event until now caused a message that is not read yet.
    pub fn assert_no_message(&mut self) {
        Barrier::on(&self.server).pass();
        assert_silent(&self.server, &mut self.subscriber, "ch");
    }

    /// Asserts counters of `INFO lock`.
    pub fn assert_stats(&self, expected: &[(&str, u64)]) {
        for (name, value) in expected {
            assert_eq!(self.server.stat(name), *value, "{name}");
        }
    }

    /// The owners in the queue of `k`.
    pub fn owners(&mut self) -> Vec<String> {
        let waiters = waiters(&mut self.alice);
        let owner = |waiter: &Reply| waiter.field("owner").unwrap().text();
        waiters.iter().map(owner).collect()
    }
}

/// The waiters of `k` as `LOCK.INFO` describes them.
pub fn waiters(conn: &mut Conn) -> Vec<Reply> {
    let info = conn.line("LOCK.INFO k WAITERS COUNT 1000");
    info.field("queue")
        .map_or_else(Vec::new, |queue| queue.list())
}

/// A request for `k` without limit, on `ch`; the tag is the owner.
pub fn request(owner: &str) -> String {
    format!("LOCK.ACQUIRE k {owner} PX 60000 BLOCK 0 NOTIFY ch {owner}")
}

pub fn assert_queued(conn: &mut Conn, line: &str) {
    let reply = conn.line(line);
    assert!(!reply.is_error(), "{line}: {}", reply.error());
    assert_eq!(reply.0, Value::SimpleString("QUEUED".into()), "{line}");
}

/// A parked request.
pub fn park(server: &TestServer, line: &str) -> Conn {
    let parked = server.stat("waits_parked");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("a parked request", || {
        server.stat("waits_parked") == parked + 1
    });
    conn
}

/// A client that is subscribed to this channel.
pub fn subscribe(server: &TestServer, channel: &str) -> Conn {
    let mut conn = server.conn();
    let reply = conn.run(["SUBSCRIBE", channel]).list();
    assert_eq!(reply[0].text(), "subscribe");
    conn
}

/// The text of the next message of a subscriber.
pub fn message(subscriber: &mut Conn) -> String {
    let message = subscriber.recv().list();
    let kind = message[0].text();
    assert!(kind == "message" || kind == "smessage", "{message:?}");
    message[2].text()
}

/// The token of the message `granted <token> <tag>`.
pub fn granted(message: &str, tag: &str) -> i64 {
    let words: Vec<_> = message.split(' ').collect();
    assert!(
        matches!(&words[..], ["granted", _, last] if *last == tag),
        "{message}, not granted to {tag}"
    );
    words[1].parse().expect("a token")
}

pub fn assert_held(conn: &mut Conn, key: &str, owner: &str, token: i64) {
    let stored = conn.run(["HGET", key, "#token"]).text();
    assert_eq!(stored, format!("t{token}"), "{key}");
    assert_eq!(conn.run(["HGET", key, owner]).text(), "1", "{key}");
}

/// Asserts that no message was published on this channel that the subscriber has not read.
pub fn assert_silent(server: &TestServer, subscriber: &mut Conn, channel: &str) {
    assert_eq!(server.conn().run(["PUBLISH", channel, "the end"]).int(), 1);
    assert_eq!(message(subscriber), "the end");
}

/// Ends a subscriber, and waits until its channel has none.
pub fn leave(server: &TestServer, subscriber: Conn, channel: &str) {
    subscriber.close();
    wait_until_unheard(server, channel);
}

pub fn wait_until_unheard(server: &TestServer, channel: &str) {
    let mut conn = server.conn();
    wait_for("a channel without subscribers", || {
        conn.run(["PUBSUB", "NUMSUB", channel]).list()[1].int() == 0
    });
}
