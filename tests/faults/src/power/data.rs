//! The holds in the data of a restarted server.

use redis_lock_harness::{Conn, Reply};

use super::check::CHUNK;
use super::kinds::PERMITS;
use crate::client::Family;
use crate::history::Kind;

/// The data of some keys.
#[derive(Debug, Default)]
pub struct Data {
    pub found: Vec<Found>,
    pub semaphores: Vec<Semaphore>,
    /// Keys whose data the server does not accept as that of a lock, with its error.
    pub refused: Vec<(u32, String)>,
}

/// A hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub key: u32,
    pub owner: u64,
    pub kind: Kind,
    /// Not of a permit, which has none in the data.
    pub token: Option<i64>,
    /// The end of its lease at the earliest, in milliseconds of the wall clock.
    pub ends_ms: i64,
    /// The same at the latest: the server states the rest of a lease, at a moment while the data is read.
    pub ends_by_ms: i64,
    /// Whether the server says that it is bound to a connection.
    pub is_bound: bool,
}

/// The counts of a semaphore.
#[derive(Debug, Clone, PartialEq)]
pub struct Semaphore {
    pub key: u32,
    /// `None`: the string does not exist.
    pub free: Option<i64>,
    pub held: i64,
}

impl Data {
    /// Reads these keys, given with their numbers.
    pub fn read(conn: &mut Conn, keys: &[(u32, &str, Family)]) -> Data {
        let mut data = Data::default();
        for part in keys.chunks(CHUNK) {
            let lines: Vec<String> = part.iter().flat_map(lines).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let first = data.found.len();
            let from_ms = clock_ms(conn);
            conn.send_lines(&lines);
            for (key, _, family) in part {
                match family {
                    Family::Semaphore(_) => data.add_permits(*key, conn),
                    _ => data.add_holders(*key, from_ms, &conn.recv()),
                }
            }
            let took_ms = clock_ms(conn) - from_ms;
            for found in &mut data.found[first..] {
                found.ends_by_ms = found.ends_ms + took_ms;
            }
        }
        data
    }

    fn add_permits(&mut self, key: u32, conn: &mut Conn) {
        let (free, held) = (conn.recv(), conn.recv().list());
        let free = (!free.is_nil()).then(|| free.text().parse().expect("a number"));
        let pairs = held.chunks(2).map(|pair| Found {
            key,
            owner: pair[0].text().parse().expect("an owner"),
            kind: Kind::Permit(PERMITS),
            token: None,
            ends_ms: pair[1].text().parse::<f64>().expect("a score") as i64,
            ends_by_ms: 0,
            is_bound: false,
        });
        self.found.extend(pairs);
        self.semaphores.push(Semaphore {
            key,
            free,
            held: held.len() as i64 / 2,
        });
    }

    fn add_holders(&mut self, key: u32, now_ms: i64, info: &Reply) {
        if info.is_nil() {
            return;
        }
        if info.is_error() {
            return self.refused.push((key, info.error()));
        }
        let field = |name| info.field(name).expect("a field");
        let kind = match field("mode").text().as_str() {
            "read" => Kind::Read,
            "write" => Kind::Write,
            _ => Kind::Exclusive,
        };
        for holder in field("holders").list() {
            let of = |name| holder.field(name).expect("a field");
            self.found.push(Found {
                key,
                owner: of("owner").text().parse().expect("an owner"),
                kind,
                token: of("token").maybe_int(),
                ends_ms: now_ms + of("pttl").int(),
                ends_by_ms: 0,
                is_bound: of("session").int() == 1,
            });
        }
    }
}

/// The server's wall clock.
fn clock_ms(conn: &mut Conn) -> i64 {
    let clock = conn.line("TIME").list();
    let number = |at: usize| clock[at].text().parse::<i64>().expect("a number");
    number(0) * 1_000 + number(1) / 1_000
}

fn lines((_, name, family): &(u32, &str, Family)) -> Vec<String> {
    match family {
        Family::Semaphore(_) => vec![
            format!("GET {name}"),
            format!("ZRANGE {{{name}}}:timeout 0 -1 WITHSCORES"),
        ],
        _ => vec![format!("LOCK.INFO {name}")],
    }
}
