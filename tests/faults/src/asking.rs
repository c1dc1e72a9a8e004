//! The connection and the history of a client: sends a request to the server that the route names, waits for the
//! outcome, and records it. The end of a connection is recorded for each owner whose hold may be bound to it, because
//! the client continues with other owners.

use std::time::{Duration, Instant};

use crate::client::World;
use crate::connection::Connection;
use crate::history::{now, Call, Nanos, Op, Outcome};
use crate::request::{many_outcomes, outcome, push, push_many};
use crate::wire::{NoReply, Reply, Wire};

/// The longest wait of one read of the socket.
pub const SLICE: Duration = Duration::from_millis(20);

/// A request that was written.
pub struct Sent {
    connection: Connection,
    is_sent: bool,
    at: Nanos,
}

/// When a request was sent, when its outcome was known, and the outcome.
pub struct Exchange {
    pub sent: Nanos,
    pub done: Nanos,
    pub outcome: Outcome,
}

/// One connection with at most one request at a time.
pub struct Asking<'a> {
    id: u32,
    world: &'a World<'a>,
    connection: Option<Connection>,
    drain_until: Option<Instant>,
    ops: Vec<Op>,
}

impl<'a> Asking<'a> {
    pub fn new(id: u32, world: &'a World<'a>) -> Asking<'a> {
        Asking {
            id,
            world,
            connection: None,
            drain_until: None,
            ops: Vec::new(),
        }
    }

    /// Closes the connection; returns the recorded requests.
    pub fn into_ops(mut self) -> Vec<Op> {
        self.die();
        self.ops
    }

    /// Closes the connection.
    pub fn die(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.end_connection(connection, None);
        }
    }

    /// Whether a hold may be bound to the connection.
    pub fn has_bound_holds(&self) -> bool {
        let mut connection = self.connection.iter();
        connection.any(|connection| !connection.holds.is_empty())
    }

    /// Closes the connection that a hold of this owner may be bound to, and records that.
    pub fn close(&mut self, key: u32, owner: u64) {
        let at = now();
        match self.connection.take() {
            Some(connection) => self.end_connection(connection, Some((key, owner))),
            None => self.note(key, owner, Call::Close, at, &Outcome::Lost),
        }
    }

    /// Closes a connection, and records that for this owner and for all whose holds may be bound to it.
    fn end_connection(&mut self, mut connection: Connection, of: Option<(u32, u64)>) {
        let at = now();
        // The server may have closed it long ago.
        let outcome = match connection.wire.is_open() {
            true => Outcome::Nil,
            false => Outcome::Lost,
        };
        connection.wire.close();
        for (key, owner) in connection.holds.owners(of) {
            self.note(key, owner, Call::Close, at, &outcome);
        }
    }

    /// Sends a request and records its outcome. With a `life`, the client dies after that time.
    pub fn call(&mut self, key: u32, owner: u64, call: Call, life: Option<Duration>) -> Outcome {
        let name = &self.world.keys[key as usize];
        let Some(mut sent) = self.begin(name, |wire| push(wire, name, owner, call)) else {
            return Outcome::Lost;
        };
        let outcome = self.outcome_of(&mut sent, call, life);
        self.note(key, owner, call, sent.at, &outcome);
        sent.connection.holds.follow((key, owner), call, &outcome);
        self.after(name, sent.connection, &outcome);
        outcome
    }

    /// Sends a request, and a while later sends it again through another connection; the first connection stays open
    /// and gets a reply, too. Returns the outcome of the second request.
    pub fn twice(&mut self, key: u32, owner: u64, calls: [Call; 2], gap: Duration) -> Outcome {
        let [call, again] = calls;
        let name = &self.world.keys[key as usize];
        let Some(mut first) = self.begin(name, |wire| push(wire, name, owner, call)) else {
            return Outcome::Lost;
        };
        self.world.sleep(gap.as_millis() as u64);
        // The second request, and all that follow, use a new connection.
        let outcome = self.call(key, owner, again, None);
        let earlier = self.outcome_of(&mut first, call, None);
        self.note(key, owner, call, first.at, &earlier);
        self.end_connection(first.connection, None);
        outcome
    }

    /// Sends a request about several keys of one server, and records its outcome at each key.
    pub fn call_many(
        &mut self,
        keys: &[u32],
        owner: u64,
        call: Call,
        life: Option<Duration>,
    ) -> Vec<Outcome> {
        let names: Vec<&str> = keys
            .iter()
            .map(|key| self.world.keys[*key as usize].as_str())
            .collect();
        let Some(mut sent) = self.begin(names[0], |wire| push_many(wire, &names, owner, call))
        else {
            return vec![Outcome::Lost; keys.len()];
        };
        let outcomes = match self.reply_to(&mut sent, block_of(call), life) {
            Ok(reply) => many_outcomes(call, keys.len(), &reply),
            Err(outcome) => vec![outcome; keys.len()],
        };
        for (key, outcome) in keys.iter().zip(&outcomes) {
            self.note(*key, owner, call, sent.at, outcome);
        }
        self.after(names[0], sent.connection, &outcomes[0]);
        outcomes
    }

    /// Writes the request that `push` adds to the server of a key; `None`: there is no connection.
    pub fn begin(&mut self, name: &str, push: impl FnOnce(&mut Wire)) -> Option<Sent> {
        let Some(mut connection) = self.connection(name) else {
            self.world.sleep(2);
            return None;
        };
        let at = now();
        push(&mut connection.wire);
        let is_sent = connection.wire.flush();
        Some(Sent {
            connection,
            is_sent,
            at,
        })
    }

    /// Waits for the outcome of such a request; the next one uses the same connection. With a `life`, the client dies
    /// after that time.
    pub fn end(
        &mut self,
        name: &str,
        mut sent: Sent,
        life: Option<Duration>,
        outcome: fn(&Reply) -> Outcome,
    ) -> Exchange {
        let outcome = match self.reply_to(&mut sent, None, life) {
            Ok(reply) => outcome(&reply),
            Err(outcome) => outcome,
        };
        let done = now();
        self.after(name, sent.connection, &outcome);
        Exchange {
            sent: sent.at,
            done,
            outcome,
        }
    }

    /// The outcome of a request.
    fn outcome_of(&mut self, sent: &mut Sent, call: Call, life: Option<Duration>) -> Outcome {
        match self.reply_to(sent, block_of(call), life) {
            Ok(reply) => outcome(call, &reply),
            Err(outcome) => outcome,
        }
    }

    /// The reply, or the reason why there is none.
    fn reply_to(
        &mut self,
        sent: &mut Sent,
        block: Option<u32>,
        life: Option<Duration>,
    ) -> Result<Reply, Outcome> {
        if !sent.is_sent {
            return Err(Outcome::Lost);
        }
        match self.reply(&mut sent.connection.wire, block, life) {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(_)) => Err(Outcome::Lost),
            None => Err(Outcome::Silent),
        }
    }

    fn note(&mut self, key: u32, owner: u64, call: Call, sent: Nanos, outcome: &Outcome) {
        self.ops.push(Op {
            client: self.id,
            owner,
            key,
            call,
            sent,
            done: now(),
            outcome: outcome.clone(),
        });
    }

    /// Keeps the connection, unless it is lost; and asks the route again if this server was wrong.
    fn after(&mut self, name: &str, connection: Connection, outcome: &Outcome) {
        let port = connection.wire.port();
        match outcome {
            Outcome::Lost | Outcome::Silent => {
                let at = now();
                connection.wire.close();
                for (key, owner) in connection.holds.owners(None) {
                    self.note(key, owner, Call::Close, at, &Outcome::Lost);
                }
                self.world.route.learn(name, port, None);
                self.world.sleep(1);
            }
            Outcome::Error(code) => {
                self.connection = Some(connection);
                self.world.route.learn(name, port, Some(code));
                self.world.sleep(2);
            }
            _ => self.connection = Some(connection),
        }
    }

    /// The connection to the server of a key; one to another server is closed.
    fn connection(&mut self, name: &str) -> Option<Connection> {
        let port = self.world.route.port(name);
        if self
            .connection
            .as_ref()
            .is_some_and(|kept| kept.wire.port() != port)
        {
            self.die();
        }
        let kept = self.connection.take();
        let connection = kept.or_else(|| Connection::open(port));
        if connection.is_none() {
            self.world.route.learn(name, port, None);
        }
        connection
    }

    /// The reply; `Lost` if the client has died or given up; `None` if the run is over, all faults are healed, and
    /// there is still no reply.
    fn reply(
        &mut self,
        wire: &mut Wire,
        block: Option<u32>,
        life: Option<Duration>,
    ) -> Option<Result<Reply, NoReply>> {
        let gives_up = self.world.habits.gives_up.map(|limit| {
            let block = Duration::from_millis(block.unwrap_or(0).into());
            block + Duration::from_millis(limit)
        });
        let limit = life.into_iter().chain(gives_up).min();
        let start = Instant::now();
        loop {
            let left = limit.map_or(SLICE, |limit| limit.saturating_sub(start.elapsed()));
            match wire.recv(left.min(SLICE)) {
                Err(NoReply::Late) if left.is_zero() => return Some(Err(NoReply::Lost)),
                Err(NoReply::Late) if self.is_drained() => return None,
                Err(NoReply::Late) => {}
                other => return Some(other),
            }
        }
    }

    fn is_drained(&mut self) -> bool {
        if !self.world.is_over() {
            return false;
        }
        let drain = self.world.drain;
        let until = self
            .drain_until
            .get_or_insert_with(|| Instant::now() + drain);
        Instant::now() > *until
    }
}

/// The limit of an acquire that waits, in milliseconds.
fn block_of(call: Call) -> Option<u32> {
    match call {
        Call::Acquire { block, .. } => block.filter(|block| *block > 0),
        _ => None,
    }
}
