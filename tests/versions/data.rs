//! Data of every kind, and what a server must do with it that did not write it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::replica::wait_until_in_sync;
use crate::common::{Conn, Reply, TestServer};

/// The first half, written before a snapshot or a rewrite of the AOF.
const FIRST: [&str; 9] = [
    "SET redisson_lock_token:{fenced} 7",
    "LOCK.ACQUIRE plain a PX 600000",
    "LOCK.ACQUIRE freed a PX 600000",
    "LOCK.ACQUIRE fenced a PX 600000",
    "LOCK.ACQUIRE read a READ PX 600000",
    "LOCK.ACQUIRE write a WRITE PX 600000",
    "LOCK.MACQUIRE 2 one two a PX 600000",
    "SEM.ACQUIRE permits a LIMIT 3 PX 600000",
    "LATCH.SET latch 3",
];

/// The second half, which changes what the first half wrote.
const SECOND: [&str; 8] = [
    "LOCK.ACQUIRE plain a PX 700000",
    "LOCK.RELEASE freed a",
    "LOCK.RENEW fenced a PX 800000",
    "LOCK.ACQUIRE read b READ PX 600000",
    "LOCK.ACQUIRE read b READ PX 700000",
    "LOCK.ACQUIRE write a READ PX 600000",
    "SEM.ACQUIRE permits b PX 600000",
    "LATCH.DOWN latch",
];

const LOCKS: [&str; 6] = ["plain", "fenced", "read", "write", "one", "two"];

/// How far the tokens of a new server are ahead of its clock: the horizon in its data alone keeps later tokens above.
const AHEAD_US: u128 = 7_200_000_000;

/// Lets the tokens of a server that has granted nothing begin ahead of its clock.
pub fn set_tokens_ahead(server: &TestServer) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let horizon = (now.as_micros() + AHEAD_US).to_string();
    let mut conn = server.conn();
    conn.run(["SET", "redis_lock:horizon", &horizon]);
}

pub fn write_first(server: &TestServer) {
    write(server, &FIRST);
}

pub fn write_second(server: &TestServer) {
    write(server, &SECOND);
}

fn write(server: &TestServer, lines: &[&str]) {
    let mut conn = server.conn();
    for line in lines {
        let reply = conn.line(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
    }
}

/// What a server has: each key with its content and its end, and what the module says of it.
#[derive(Debug, PartialEq)]
pub struct State {
    keys: Vec<(String, String, i64)>,
    locks: Vec<(String, Vec<Hold>)>,
    permits: [i64; 3],
    latch_is_open: bool,
}

/// Owner, holds, token.
type Hold = (String, i64, i64);

impl State {
    pub fn of(server: &TestServer) -> State {
        let mut conn = server.conn();
        let mut keys: Vec<String> = conn.line("KEYS *").list().iter().map(Reply::text).collect();
        keys.sort();
        let mut key = |name: String| {
            let digest = conn.run(["DEBUG", "DIGEST-VALUE", &name]).list()[0].text();
            let end = conn.run(["PEXPIRETIME", &name]).int();
            (name, digest, end)
        };
        let keys = keys.drain(..).map(&mut key).collect();
        let locks = LOCKS.map(|name| lock(&mut conn, name)).to_vec();
        let permits = conn.line("SEM.INFO permits");
        let permits = ["permits", "free", "held"].map(|name| permits.field(name).unwrap().int());
        let latch_is_open = conn.line("LATCH.WAIT latch").int() == 1;
        State {
            keys,
            locks,
            permits,
            latch_is_open,
        }
    }

    pub fn token(&self, lock: &str) -> i64 {
        let index = LOCKS.iter().position(|name| *name == lock).unwrap();
        self.locks[index].1[0].2
    }

    fn highest_token(&self) -> i64 {
        let holds = self.locks.iter().flat_map(|(_, holds)| holds);
        holds.map(|hold| hold.2).max().unwrap()
    }
}

/// The mode and the holds as in `LOCK.INFO`.
fn lock(conn: &mut Conn, name: &str) -> (String, Vec<Hold>) {
    let info = conn.run(["LOCK.INFO", name]);
    let holders = info.field("holders").unwrap().list();
    let mut holds: Vec<Hold> = holders.iter().map(hold).collect();
    holds.sort();
    (info.field("mode").unwrap().text(), holds)
}

fn hold(holder: &Reply) -> Hold {
    let number = |name: &str| holder.field(name).unwrap().int();
    let owner = holder.field("owner").unwrap().text();
    (owner, number("holds"), number("token"))
}

/// Asserts that a server continues with this data: every hold is refused to others, kept by its owner, renewed,
/// released and handed off, and each new token is above all before.
pub fn assert_continues(server: &TestServer, state: &State) {
    let mut c = server.conn();
    let mut last = state.highest_token();
    let mut rises = |token: i64| {
        assert!(token > last, "{token} is not above {last}");
        last = token;
    };

    assert!(c.line("LOCK.ACQUIRE plain b").is_nil());
    let token = state.token("plain");
    assert_eq!(c.line("LOCK.ACQUIRE plain a ONCE PX 900000").int(), token);
    assert_eq!(c.line("LOCK.RENEW plain a PX 900000").int(), 1);
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE plain b PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(c.line("LOCK.RELEASE plain a").int(), 0);
    let release = format!("LOCK.RELEASE plain a TOKEN {token}");
    assert_eq!(c.line(&release).int(), 1);
    rises(waiter.recv().int());
    rises(c.line("LOCK.ACQUIRE freed b PX 600000").int());

    assert_eq!(c.line("LOCK.RELEASE fenced a").int(), 1);
    let token = c.line("LOCK.ACQUIRE fenced b PX 600000").int();
    rises(token);
    let counter = c.line("GET redisson_lock_token:{fenced}").text();
    assert_eq!(counter, token.to_string());

    assert!(c.line("LOCK.ACQUIRE read c WRITE").is_nil());
    assert_eq!(c.line("LOCK.RELEASE read a").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE read b").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE read b").int(), 1);
    rises(c.line("LOCK.ACQUIRE read c WRITE PX 600000").int());

    assert!(c.line("LOCK.ACQUIRE write b READ").is_nil());
    assert_eq!(c.line("LOCK.RELEASE write a WRITE").int(), 1);
    assert!(c.line("LOCK.ACQUIRE write b READ PX 600000").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE write a READ").int(), 1);

    assert!(c.line("LOCK.MACQUIRE 2 one other b").is_nil());
    assert_eq!(c.line("LOCK.MRENEW 2 one two a PX 900000").int(), 2);
    assert_eq!(c.line("LOCK.MRELEASE 2 one two a").int(), 2);
    let tokens = c.line("LOCK.MACQUIRE 2 one two b PX 600000").list();
    tokens.iter().for_each(|token| rises(token.int()));

    assert_eq!(c.line("SEM.RENEW permits b PX 900000").int(), 1);
    assert!(c.line("SEM.ACQUIRE permits c PX 600000").int() > 0);
    assert!(c.line("SEM.ACQUIRE permits d").is_nil());
    assert_eq!(c.line("SEM.RELEASE permits a").int(), 1);
    assert!(c.line("SEM.ACQUIRE permits d PX 600000").int() > 0);

    assert_eq!(c.line("LATCH.DOWN latch").int(), 1);
    assert_eq!(c.line("LATCH.DOWN latch").int(), 0);
    assert_eq!(c.line("LATCH.WAIT latch").int(), 1);
}

/// Asserts that the replica of a server has all it has.
pub fn assert_same(replica: &TestServer, master: &TestServer) {
    wait_until_in_sync(replica, master);
    assert_eq!(State::of(replica), State::of(master));
}
