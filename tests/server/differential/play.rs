//! Plays a sequence on a live server and compares every reply, and the state after every step, with the model.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model::{Expect, Grant, Model, State};
use super::ops::{Acquire, Block, Conn as ConnId, Key, Names, Op, Sequence};
use super::ops::{CONNS, KEYS, OWNERS};
use crate::common::scripts::{GIVE, TAKE};
use crate::common::{wait_for, Conn, Reply, TestServer};

/// The tolerance for leases: the longest time that a sequence may take.
const TOLERANCE_MS: i64 = 25_000;

/// A server for many sequences.
pub struct Player {
    server: TestServer,
    admin: Conn,
    /// The number of steps that have begun.
    pub steps: usize,
}

impl Player {
    pub fn new() -> Player {
        // The search for deadlocks has tests of its own: the core's tests compare it with a plain one.
        let server = TestServer::with(&["--lock.deadlock-detect", "no"]);
        let admin = server.conn();
        Player {
            server,
            admin,
            steps: 0,
        }
    }

    /// Ends the server at once: for programs that end without dropping their values.
    #[allow(dead_code)]
    pub fn end(&mut self) {
        self.server.crash();
    }

    /// Plays one sequence on keys of its own.
    ///
    /// # Panics
    /// When the server differs from the model.
    pub fn play(&mut self, sequence: &Sequence) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let grace = if sequence.keeps_places { "60000" } else { "0" };
        self.admin.run(["CONFIG", "SET", "lock.queue-grace", grace]);
        let (conns, ids) = (0..CONNS).map(|_| connect(&self.server)).unzip();
        let mut game = Game {
            keys: std::array::from_fn(|key| format!("sequence:{number}:{key}")),
            conns,
            ids,
            early: None,
            server: &self.server,
            admin: &mut self.admin,
            model: Model::new(sequence.keeps_places),
            tokens: HashMap::new(),
            highest: 0,
        };
        self.steps = 0;
        for op in &sequence.ops {
            self.steps += 1;
            game.step(*op);
        }
        game.end();
        let rest = self.server.is_at_rest(&mut self.admin);
        assert!(rest.is_ok(), "{}", rest.unwrap_err());
        self.server.check_counters();
    }
}

struct Game<'a> {
    keys: [String; KEYS],
    conns: Vec<Conn>,
    ids: Vec<i64>,
    /// The reply of a command in a transaction, and its connection.
    early: Option<(ConnId, Reply)>,
    server: &'a TestServer,
    admin: &'a mut Conn,
    model: Model,
    /// The tokens of the grants so far.
    tokens: HashMap<Grant, i64>,
    highest: i64,
}

impl Game<'_> {
    fn step(&mut self, op: Op) {
        let Some(op) = self.with_a_free_connection(op) else {
            return;
        };
        if !self.model.defines(op) {
            return;
        }
        self.send(op);
        let mut fresh = Vec::new();
        for (conn, expected) in self.model.step(op) {
            let reply = self.reply(conn);
            self.check(&reply, &expected, &mut fresh);
        }
        match op {
            Op::FlushAll => self.learn_in_any_order(fresh),
            _ => self.learn(fresh),
        }
        for key in 0..KEYS {
            self.check_state(key);
        }
    }

    /// A parked connection cannot send another command: a free one does.
    fn with_a_free_connection(&self, op: Op) -> Option<Op> {
        let free = |first: ConnId| {
            let mut conns = (0..CONNS).map(|n| (first + n) % CONNS);
            conns.find(|conn| !self.model.is_parked(*conn))
        };
        Some(match op {
            Op::Acquire(conn, acquire) => Op::Acquire(free(conn)?, acquire),
            Op::Release(conn, k, o, all, n) => Op::Release(free(conn)?, k, o, all, n),
            Op::Renew(conn, k, o, ms, n) => Op::Renew(free(conn)?, k, o, ms, n),
            op => op,
        })
    }

    fn token_words(&self, key: Key, names: Names) -> Vec<Vec<u8>> {
        let present = self.model.holder(key).and_then(|hold| hold.grant);
        let present = present.and_then(|grant| self.tokens.get(&grant));
        let token = match names {
            Names::Nothing => return Vec::new(),
            Names::Present => *present.unwrap_or(&1),
            Names::Wrong => 1,
        };
        vec![b"TOKEN".to_vec(), token.to_string().into_bytes()]
    }

    /// Sends the command, and reads the reply at once if the command is not the module's.
    fn send(&mut self, op: Op) {
        let name = |key: Key| self.keys[key].as_bytes();
        let lease = |ms: i64| ms.to_string().into_bytes();
        let other: Vec<Vec<u8>> = match op {
            Op::Acquire(conn, acquire) => return self.send_acquire(conn, acquire),
            Op::Release(conn, key, owner, all, names) => {
                let mut words = words(["LOCK.RELEASE".as_bytes(), name(key), OWNERS[owner]]);
                words.extend(all.then(|| b"ALL".to_vec()));
                words.extend(self.token_words(key, names));
                return self.conns[conn].send(words);
            }
            Op::Renew(conn, key, owner, ms, names) => {
                let mut words = words([b"LOCK.RENEW", name(key), OWNERS[owner], b"PX"]);
                words.push(lease(ms));
                words.extend(self.token_words(key, names));
                return self.conns[conn].send(words);
            }
            Op::Break(key, names, purge) => {
                let mut words = words([b"LOCK.BREAK", name(key)]);
                words.extend(self.token_words(key, names));
                words.extend(purge.then(|| b"PURGE".to_vec()));
                return self.admin.send(words);
            }
            Op::HangUp(conn) => return self.hang_up(conn),
            Op::Unblock(conn, with_error) => {
                if !self.model.is_parked(conn) {
                    return;
                }
                let id = self.ids[conn].to_string();
                let how = if with_error { "ERROR" } else { "TIMEOUT" };
                words([b"CLIENT", b"UNBLOCK", id.as_bytes(), how.as_bytes()])
            }
            Op::Del(key) => words([b"DEL", name(key)]),
            Op::Expire(key) => words([b"PEXPIREAT", name(key), b"1"]),
            Op::Pexpire(key, ms) => words([b"PEXPIRE", name(key), &lease(ms)]),
            Op::Persist(key) => words([b"PERSIST", name(key)]),
            Op::Set(key) => words([b"SET", name(key), b"x"]),
            Op::HsetOther(key) => words([b"HSET", name(key), b"other", b"x"]),
            Op::HdelHolder(key) => match self.model.holder(key) {
                Some(hold) => words([b"HDEL", name(key), OWNERS[hold.owner]]),
                None => return,
            },
            Op::Rename(key) => words([b"RENAME", name(key), name(1 - key)]),
            Op::FlushAll => words([b"FLUSHALL"]),
            Op::RedissonTakes(key, owner, ms) => {
                let script = [b"EVAL", TAKE.as_bytes(), b"1", name(key)];
                [words(script), vec![lease(ms), OWNERS[owner].to_vec()]].concat()
            }
            Op::RedissonGives(key, owner) => {
                let script = [b"EVAL", GIVE.as_bytes(), b"2", name(key), b"a-channel"];
                let arguments = words([b"600000", OWNERS[owner]]);
                [words(script), arguments].concat()
            }
        };
        self.admin.run(other);
    }

    fn send_acquire(&mut self, sender: ConnId, acquire: Acquire) {
        let key = self.keys[acquire.key].as_bytes();
        let mut words = words([b"LOCK.ACQUIRE", key, OWNERS[acquire.owner], b"PX"]);
        words.push(acquire.lease.to_string().into_bytes());
        match acquire.block {
            Block::No => {}
            Block::Briefly => words.extend([b"BLOCK".to_vec(), b"1".to_vec()]),
            Block::ForEver => words.extend([b"block".to_vec(), b"0".to_vec()]),
        }
        words.extend(acquire.once.then(|| b"ONCE".to_vec()));
        words.extend(acquire.with_holder.then(|| b"WITHHOLDER".to_vec()));
        let conn = &mut self.conns[sender];
        if !acquire.in_multi {
            return conn.send(words);
        }
        conn.line("MULTI");
        conn.run(words);
        self.early = Some((sender, conn.line("EXEC").list().remove(0)));
    }

    fn hang_up(&mut self, conn: ConnId) {
        let (fresh, id) = connect(self.server);
        self.conns[conn] = fresh;
        self.ids[conn] = id;
    }

    /// The reply to the step's command, or to an earlier one that was parked.
    fn reply(&mut self, conn: ConnId) -> Reply {
        match self.early.take() {
            Some((sender, reply)) if sender == conn => reply,
            early => {
                self.early = early;
                self.conns.get_mut(conn).unwrap_or(self.admin).recv()
            }
        }
    }

    fn check(&self, reply: &Reply, expected: &Expect, fresh: &mut Vec<(Grant, i64)>) {
        match expected {
            Expect::Int(value) => assert_eq!(reply.maybe_int(), Some(*value), "{reply:?}"),
            Expect::Nil => assert!(reply.is_nil(), "{reply:?} instead of nil"),
            Expect::Error(code) => {
                assert!(reply.is_error(), "{reply:?} instead of {code}");
                assert!(reply.error().starts_with(code), "{reply:?}, not {code}");
            }
            Expect::Fresh(grant) => match reply.maybe_int() {
                Some(token) => fresh.push((*grant, token)),
                None => panic!("{reply:?} instead of a token"),
            },
            Expect::Same(grant) => {
                assert_eq!(reply.maybe_int(), self.tokens.get(grant).copied());
            }
            Expect::WithHolder(first, holder) => {
                let parts = reply.list();
                assert_eq!(parts.len(), 4);
                self.check(&parts[0], first, fresh);
                match holder {
                    Some((owner, count)) => {
                        assert_eq!(parts[1].bytes(), OWNERS[*owner]);
                        assert_eq!(parts[2].int(), *count);
                    }
                    None => assert!(parts[1].is_nil() && parts[3].int() == -2),
                }
            }
        }
    }

    /// Tokens of one step, in the order of their grants, are above all earlier ones.
    fn learn(&mut self, mut fresh: Vec<(Grant, i64)>) {
        fresh.sort_unstable();
        for (grant, token) in fresh {
            let highest = self.highest;
            assert!(token > highest, "{token} is not above {highest}");
            self.highest = token;
            self.tokens.insert(grant, token);
        }
    }

    /// Two keys freed by one command are granted in any order.
    fn learn_in_any_order(&mut self, fresh: Vec<(Grant, i64)>) {
        let (grants, mut tokens): (Vec<_>, Vec<_>) = fresh.iter().copied().unzip();
        tokens.sort_unstable();
        self.learn(grants.into_iter().zip(tokens).collect());
        self.tokens.extend(fresh);
    }

    /// `LOCK.INFO` agrees with the model after a moment: a short lease takes its millisecond, and the server notices a
    /// closed connection a moment later.
    fn check_state(&mut self, key: Key) {
        let name = self.keys[key].clone();
        let waiters: Vec<Vec<u8>> = self
            .model
            .waiters(key)
            .iter()
            .map(|o| OWNERS[*o].to_vec())
            .collect();
        let state = self.model.states[key];
        let mut info = Reply(redis::Value::Nil);
        wait_for(&format!("{state:?} with {waiters:?} in the queue"), || {
            info = self
                .admin
                .run(["LOCK.INFO", &name, "WAITERS", "COUNT", "100"]);
            let exists = self.admin.run(["EXISTS", &name]).int() == 1;
            exists == (state != State::Absent) && agrees(&info, state, &waiters)
        });
        let State::Held(hold) = state else { return };
        let holder = &info.field("holders").expect("holders").list()[0];
        let pttl = holder.field("pttl").expect("pttl").int();
        match hold.lease {
            Some(lease) => assert!(
                (lease - TOLERANCE_MS..=lease).contains(&pttl),
                "{pttl} of {lease}"
            ),
            None => assert_eq!(pttl, -1),
        }
        let token = holder.field("token").expect("token").maybe_int();
        match hold.grant {
            Some(grant) if !self.tokens.contains_key(&grant) => {
                self.learn(vec![(grant, token.expect("a token"))]);
            }
            grant => assert_eq!(token, grant.map(|grant| self.tokens[&grant])),
        }
    }

    /// Asserts that no connection got a further reply.
    fn end(mut self) {
        for conn in 0..CONNS {
            if !self.model.is_parked(conn) {
                assert_eq!(
                    self.conns[conn].line("PING").text(),
                    "PONG",
                    "one reply too many"
                );
            }
        }
        drop(self.conns);
        for key in &self.keys {
            self.admin.run(["DEL", key]);
            assert!(!self.admin.run(["LOCK.BREAK", key, "PURGE"]).is_error());
        }
    }
}

fn agrees(info: &Reply, state: State, waiters: &[Vec<u8>]) -> bool {
    match state {
        State::OtherType => info.is_error() && info.error().starts_with("WRONGTYPE"),
        State::OtherHash => info.is_error() && info.error().starts_with("LOCKTYPE"),
        State::Absent | State::Bare => info.is_nil(),
        State::Held(hold) => {
            if info.is_nil() || info.is_error() {
                return false;
            }
            let holders = info.field("holders").expect("holders").list();
            let queue = info.field("queue").expect("queue").list();
            let owner = |map: &Reply| map.field("owner").expect("an owner").bytes();
            holders.len() == 1
                && owner(&holders[0]) == OWNERS[hold.owner]
                && holders[0].field("holds").expect("holds").int() == hold.count
                && queue.iter().map(owner).eq(waiters.iter().cloned())
        }
    }
}

fn connect(server: &TestServer) -> (Conn, i64) {
    let mut conn = server.conn();
    let id = conn.id();
    (conn, id)
}

fn words<const N: usize>(words: [&[u8]; N]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}
