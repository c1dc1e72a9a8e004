//! The initial state of most tests of waiting: alice holds the lock `k`, bob is parked behind her.

use crate::{module_path, wait_for, Conn, Reply, TestServer};

/// A server, the holder's connection and the waiter's.
pub struct Scene {
    pub alice: Conn,
    pub bob: Conn,
    pub bob_id: i64,
    /// Alice's token: the next grant must have a higher one.
    pub first: i64,
    /// Dropped last: the counters are checked in the state at the end of the test.
    pub server: TestServer,
}

impl Scene {
    /// On a fresh server; bob waits without limit.
    pub fn new() -> Scene {
        Scene::on(TestServer::start())
    }

    /// On a fresh server with these options.
    pub fn with(options: &[&str]) -> Scene {
        Scene::on(TestServer::with(options))
    }

    /// On this server.
    pub fn on(server: TestServer) -> Scene {
        Scene::waiting(server, "BLOCK 0")
    }

    /// On this server, with these options of bob's acquire.
    pub fn waiting(server: TestServer, options: &str) -> Scene {
        let mut alice = server.conn();
        let first = alice.line("LOCK.ACQUIRE k alice PX 60000").int();
        let mut bob = server.conn();
        let bob_id = bob.id();
        bob.send_line(&format!("LOCK.ACQUIRE k bob PX 60000 {options}"));
        wait_until_parked(&server, 1);
        Scene {
            alice,
            bob,
            bob_id,
            first,
            server,
        }
    }

    /// One more waiter, parked when this returns.
    pub fn park(&self, owner: &str) -> Conn {
        let parked = self.server.stat("waits_parked");
        let mut conn = self.server.conn();
        conn.send_line(&format!("LOCK.ACQUIRE k {owner} PX 60000 BLOCK 0"));
        wait_until_parked(&self.server, parked + 1);
        conn
    }

    /// Runs the lines as one transaction of alice's connection; `$BOB` stands for bob's client id.
    pub fn exec(&mut self, lines: &[&str]) -> Vec<Reply> {
        self.pipeline_exec(lines, &[]);
        self.exec_replies(lines.len())
    }

    /// Sends the lines as one transaction and further lines after it, in one write.
    pub fn pipeline_exec(&mut self, lines: &[&str], behind: &[&str]) {
        let id = self.bob_id.to_string();
        let all = [&["MULTI"], lines, &["EXEC"], behind].concat();
        let all: Vec<String> = all.iter().map(|line| line.replace("$BOB", &id)).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.alice.send_lines(&all);
    }

    /// The replies of a transaction with this number of commands.
    pub fn exec_replies(&mut self, commands: usize) -> Vec<Reply> {
        for _ in 0..=commands {
            let queued = self.alice.recv().text();
            assert!(queued == "OK" || queued == "QUEUED", "{queued}");
        }
        self.alice.recv().list()
    }

    /// Asserts that the hash has exactly this hold, with a lease.
    pub fn assert_held(&mut self, owner: &str, token: i64) {
        let fields = self.fields();
        let expected = [("#token", format!("t{token}")), (owner, "1".to_string())];
        assert_eq!(
            fields,
            expected.map(|(field, value)| (field.to_string(), value))
        );
        assert!(self.alice.line("PTTL k").int() > 0);
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        let flat = self.alice.line("HGETALL k").list();
        let mut fields: Vec<_> = flat
            .chunks(2)
            .map(|pair| (pair[0].text(), pair[1].text()))
            .collect();
        fields.sort();
        fields
    }

    /// Waits until the lock is free, and asserts that a new grant has a higher token than all before.
    pub fn assert_becomes_free(&mut self, above: i64) {
        let alice = &mut self.alice;
        wait_for("a free lock", || alice.line("EXISTS k").int() == 0);
        let next = alice.line("LOCK.ACQUIRE k zoe PX 60000").int();
        assert!(next > above, "{next} is not above {above}");
    }

    /// The same for keys that the server itself may have removed again.
    pub fn assert_becomes_free_or_held_by(&mut self, owner: &str, token: i64) {
        if self.alice.line("EXISTS k").int() == 0 {
            self.assert_becomes_free(token);
        } else {
            self.assert_held(owner, token);
        }
    }

    /// Asserts bob's only reply: a token above alice's, and the hash has his hold.
    pub fn assert_bob_is_granted(&mut self) -> i64 {
        let token = only_reply(&mut self.bob).int();
        assert!(token > self.first);
        self.assert_held("bob", token);
        token
    }

    /// Asserts counters of `INFO lock`.
    pub fn assert_stats(&self, expected: &[(&str, u64)]) {
        for (name, value) in expected {
            assert_eq!(self.server.stat(name), *value, "{name}");
        }
    }
}

/// Waits until this number of requests have been parked so far: on a slow machine a short wait may have ended before it
/// is seen.
fn wait_until_parked(server: &TestServer, count: u64) {
    wait_for(&format!("{count} parked requests"), || {
        server.stat("waits_parked") == count
    });
}

/// The reply of a parked acquire, and the proof that no second one came: the next reply is the `PONG` to a `PING` sent
/// after it.
pub fn only_reply(conn: &mut Conn) -> Reply {
    let reply = conn.recv();
    assert_eq!(conn.line("PING").text(), "PONG", "after {reply:?}");
    reply
}

/// Whether the server itself refuses to unload the module: it has a timer or a parked client.
pub fn has_timer_or_parked(conn: &mut Conn) -> bool {
    let refused = conn.line("MODULE UNLOAD lock").error();
    refused.contains("timer") || refused.contains("blocked clients")
}

/// Waits until the module has neither a timer nor a parked client.
pub fn wait_until_at_rest(conn: &mut Conn) {
    wait_for("a module at rest", || !has_timer_or_parked(conn));
}

/// Loads the module.
pub fn load(conn: &mut Conn) {
    let path = module_path();
    let loaded = conn.run(["MODULE", "LOAD", &path.to_string_lossy()]);
    assert_eq!(loaded.text(), "OK");
}
