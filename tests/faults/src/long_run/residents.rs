//! Locks of every kind that are held for long, so that the data of the server is more than a few short holds.

use redis_lock_harness::Conn;

use crate::play::Hand;

/// Their number.
const COUNT: u32 = 300;

/// Longer than a run without a measurement.
const LEASE: &str = "PX 7200000";

/// The command that creates resident `n`, or renews it.
fn take(n: u32) -> Vec<String> {
    let key = format!("resident:{n}");
    match n % 6 {
        0 => vec![format!("LOCK.ACQUIRE {key} o{n} {LEASE} ONCE")],
        1 => ["a", "b"]
            .map(|owner| format!("LOCK.ACQUIRE {key} {owner}{n} READ {LEASE} ONCE"))
            .into(),
        2 => vec![format!("LOCK.ACQUIRE {key} o{n} WRITE {LEASE} ONCE")],
        3 => ["a", "b"]
            .map(|id| format!("SEM.ACQUIRE {key} {id}{n} LIMIT 3 {LEASE}"))
            .into(),
        4 => vec![format!("LATCH.SET {key} {}", 1 + n % 7)],
        _ => vec![format!("LOCK.MACQUIRE 2 {key} {key}:too o{n} {LEASE} ONCE")],
    }
}

/// The command that ends a hold of it.
fn give(n: u32) -> String {
    let key = format!("resident:{n}");
    match n % 6 {
        0 => format!("LOCK.RELEASE {key} o{n} ALL"),
        1 => format!("LOCK.RELEASE {key} a{n} READ ALL"),
        2 => format!("LOCK.RELEASE {key} o{n} WRITE ALL"),
        3 => format!("SEM.RELEASE {key} b{n}"),
        4 => format!("LATCH.DOWN {key}"),
        _ => format!("LOCK.MRELEASE 2 {key} {key}:too o{n} ALL"),
    }
}

/// Creates all of them, or renews them.
pub fn fill(conn: &mut Conn) -> Result<(), String> {
    for line in (0..COUNT).flat_map(take) {
        let reply = conn.line(&line);
        if reply.is_error() || reply.is_nil() {
            return Err(format!("{line}: {reply:?}"));
        }
    }
    Ok(())
}

/// Ends, breaks, deletes, reads and creates some of them, and scans the locks.
pub fn change(conn: &mut Conn, hand: &mut Hand) {
    for _ in 0..10 {
        let n = hand.rng.u32(..COUNT);
        let key = format!("resident:{n}");
        match hand.rng.u8(..8) {
            0 | 1 => drop(conn.line(&give(n))),
            2 => drop(conn.line(&format!("LOCK.BREAK {key}"))),
            3 => drop(conn.line(&format!("DEL {key}"))),
            4 => drop(conn.line(&format!("LOCK.INFO {key} WAITERS"))),
            5 => drop(conn.line(&format!("SEM.INFO {key} WAITERS"))),
            _ => take(n).iter().for_each(|line| drop(conn.line(line))),
        }
    }
    let mut cursor = "0".to_string();
    loop {
        let page = conn.line(&format!("LOCK.SCAN {cursor} COUNT 100"));
        let next = page.list().first().map(|next| next.text());
        cursor = next.unwrap_or_default();
        if cursor == "0" || cursor.is_empty() {
            break;
        }
    }
    hand.count("residents changed");
}
