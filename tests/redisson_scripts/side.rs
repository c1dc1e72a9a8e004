//! One server with its caller and its observers.

use std::path::Path;

use redis_lock_harness::clock::share_clock;
use redis_lock_harness::replica::{follow, wait_until_in_sync};
use redis_lock_harness::{wait_for, TestServer};

use crate::case::{self, Case};
use crate::outcome::{dirty_of, invalidated, Outcome, DUMP};
use crate::scripts::Scripts;
use crate::wire::{strings_of, words, Bytes, Wire, Words};

/// A server, its caller and its observers.
pub struct Side {
    pub scripts: Scripts,
    pub server: TestServer,
    replica: Option<Replica>,
    pub resp2: Wire,
    resp3: Wire,
    watcher: Wire,
    tracker: Wire,
    listener: Wire,
}

struct Replica {
    server: TestServer,
    wire: Wire,
}

/// The same server, with this clock.
pub fn with_clock(mut server: TestServer, clock: &Path) -> TestServer {
    server.crash();
    share_clock(&mut server, clock);
    server.start_again();
    server
}

/// Error texts name the script by its SHA1, which differs if another text is in its place.
fn without(reply: &[u8], names: &[&String]) -> Bytes {
    let name_at = |at: usize| {
        names
            .iter()
            .find(|name| reply[at..].starts_with(name.as_bytes()))
    };
    let mut kept = Bytes::new();
    let mut at = 0;
    while at < reply.len() {
        match name_at(at) {
            Some(name) => at += name.len(),
            None => {
                kept.push(reply[at]);
                at += 1;
            }
        }
    }
    kept
}

/// Loads a script; its SHA1.
pub fn load(wire: &mut Wire, text: &[u8]) -> String {
    wire.send(&[vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), text.to_vec()]]);
    let reply = strings_of(&wire.recv());
    String::from_utf8_lossy(&reply[0]).into_owned()
}

impl Side {
    pub fn of(server: TestServer, replica: Option<TestServer>, scripts: Scripts) -> Side {
        let replica = replica.map(|replica| {
            follow(&replica, &server);
            Replica {
                wire: Wire::open(replica.port),
                server: replica,
            }
        });
        let wire = || Wire::open(server.port);
        let mut side = Side {
            scripts,
            resp2: wire(),
            resp3: wire(),
            watcher: wire(),
            tracker: wire(),
            listener: wire(),
            server,
            replica,
        };
        // Expired keys are deleted when they are read: in the same step on both sides.
        side.resp2.line("DEBUG SET-ACTIVE-EXPIRE 0");
        side.resp2.line("CONFIG SET notify-keyspace-events EA");
        for script in &side.scripts.0 {
            assert_eq!(load(&mut side.resp2, &script.text), script.sha1);
        }
        side.resp3.line("HELLO 3");
        side.tracker.line("HELLO 3");
        side.tracker.line("CLIENT TRACKING ON BCAST");
        side.listener.line("PSUBSCRIBE *");
        for channel in case::channels() {
            side.listener.send(&[vec![b"SSUBSCRIBE".to_vec(), channel]]);
            side.listener.recv();
        }
        side
    }

    fn main(&mut self, case: &Case) -> &mut Wire {
        if case.resp3 {
            &mut self.resp3
        } else {
            &mut self.resp2
        }
    }

    pub fn receive(&mut self, case: &Case, count: usize) -> Vec<Bytes> {
        let wire = self.main(case);
        (0..count).map(|_| wire.recv()).collect()
    }

    pub fn send_setup(&mut self, case: &Case, database: usize) {
        let select = words(&format!("SELECT {database}"));
        let commands = [&[select], &case.setup[..], &[words("PUBLISH the-end x")]];
        self.main(case).send(&commands.concat());
    }

    /// From here on all notifications are recorded.
    pub fn look_away(&mut self, case: &Case, database: usize) {
        let named = case.calls.iter().flat_map(|call| call.rest.iter().cloned());
        let mut watch = words("WATCH");
        watch.extend(named);
        let select = words(&format!("SELECT {database}"));
        self.watcher.send(&[select, watch]);
        self.watcher.recv();
        self.watcher.recv();
        self.received();
        self.invalidations();
    }

    pub fn send_calls(&mut self, case: &Case) {
        let ask = words("INFO persistence");
        let mut commands: Vec<Words> = vec![ask.clone()];
        commands.extend(case.in_transaction.then(|| words("MULTI")));
        for call in &case.calls {
            commands.push(call.words(&self.scripts));
            commands.extend((!case.in_transaction).then(|| ask.clone()));
        }
        if case.in_transaction {
            commands.extend([words("EXEC"), ask]);
        }
        commands.push(words("PUBLISH the-end x"));
        commands.push(vec![b"EVAL".to_vec(), DUMP.into(), b"0".to_vec()]);
        self.main(case).send(&commands);
    }

    pub fn see_calls(&mut self, case: &Case, outcome: &mut Outcome) {
        let calls = case.calls.len();
        let count = if case.in_transaction {
            calls + 4
        } else {
            2 * calls + 1
        };
        let mut replies = self.receive(case, count + 2);
        outcome.dataset = replies.pop().expect("the dataset");
        replies.pop();
        let named = case
            .calls
            .iter()
            .map(|call| &self.scripts.0[call.script].sha1);
        let named: Vec<&String> = named.collect();
        let replies = replies.iter().map(|reply| without(reply, &named));
        outcome.take(replies.map(dirty_of));
        if self.replica.is_some() {
            // A module cannot replicate a message without counting it as a change.
            outcome.dirty.clear();
        }
        self.watcher
            .send(&[words("MULTI"), words("PING"), words("EXEC")]);
        self.watcher.recv();
        self.watcher.recv();
        outcome.watch = self.watcher.recv();
        outcome.received = self.received();
        if case.has_no_order() {
            outcome.received.sort();
        }
        outcome.invalidated = self.invalidations();
    }

    /// The messages up to the marker.
    fn received(&mut self) -> Vec<Bytes> {
        let mut received = Vec::new();
        loop {
            let message = self.listener.recv();
            if strings_of(&message).iter().any(|text| text == b"the-end") {
                return received;
            }
            received.push(message);
        }
    }

    /// The tracked keys that a client with a cache is notified of.
    fn invalidations(&mut self) -> Vec<Bytes> {
        self.tracker.send(&[words("PING")]);
        let mut messages = Vec::new();
        loop {
            let message = self.tracker.recv();
            if message == b"+PONG\r\n" {
                return invalidated(&messages);
            }
            messages.push(message);
        }
    }

    /// The dataset of this database on the replica, once the replica is in sync.
    pub fn dump_of_replica(&mut self, database: usize) -> Option<Bytes> {
        let replica = self.replica.as_mut()?;
        wait_until_in_sync(&replica.server, &self.server);
        Some(dump(&mut replica.wire, database))
    }

    /// Waits until server and replica have this time: some read the clock once a tick.
    pub fn wait_for_moment(&mut self, moment: i64) {
        let seconds = (moment / 1_000).to_string().into_bytes();
        let microseconds = (moment % 1_000 * 1_000).to_string().into_bytes();
        let time = [seconds, microseconds];
        let replica = self.replica.as_mut().map(|replica| &mut replica.wire);
        for wire in [&mut self.resp2].into_iter().chain(replica) {
            wait_for("the clock", || strings_of(&wire.line("TIME")) == time);
        }
    }
}

/// The dataset of a database.
pub fn dump(wire: &mut Wire, database: usize) -> Bytes {
    wire.line(&format!("SELECT {database}"));
    wire.send(&[vec![b"EVAL".to_vec(), DUMP.into(), b"0".to_vec()]]);
    wire.recv()
}
