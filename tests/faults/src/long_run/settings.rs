//! Flips the settings of the module.

use std::collections::BTreeSet;

use redis_lock_harness::{Conn, TestServer};

use crate::history::Fault;
use crate::play::Hand;

/// A century, the default of some limits.
const CENTURY: &str = "3162240000000";

/// Settings whose values the judges need not know, with their default first: a change lasts until the next one. A
/// session lease is never shorter than that of the plan.
const LASTING: [(&str, &[&str]); 16] = [
    ("lock.default-lease", &["30000", "1000", "100000"]),
    ("lock.max-lease", &[CENTURY, "86400000"]),
    ("lock.max-wait", &[CENTURY, "1000"]),
    ("lock.max-waiters", &["10000", "1000", "100000"]),
    ("lock.max-tickets", &["100000", "1000", "1000000"]),
    (
        "lock.max-wait-bytes",
        &["67108864", "16777216", "1073741824"],
    ),
    ("lock.user-share", &["50", "90", "100"]),
    ("lock.queue-grace", &["1000", "1500", "3000"]),
    ("lock.max-owner-len", &["256", "64", "65536"]),
    ("lock.max-tracked", &["10000", "0", "20", "500", "100000"]),
    ("lock.startup-delay", &["0", "30000"]),
    ("lock.publish", &["yes", "no"]),
    ("lock.free-after", &["1", "0", "3"]),
    ("lock.free-window", &["50", "5", "200"]),
    ("lock.deadlock-detect", &["yes", "no"]),
    ("lock.string-holders", &["no", "yes"]),
];

/// The session lease, in the same way.
const SESSION_LEASE: (&str, &[&str]) = ("lock.session-lease", &["10000", "2000", "60000"]);

/// Settings that refuse requests, end waits or shorten kept places, with their default first: the change lasts for a
/// moment and is marked.
const SHORT: [(&str, &[&str]); 7] = [
    ("lock.max-waiters", &["10000", "0", "2", "5"]),
    ("lock.max-waiters-per-key", &["10000", "0", "1", "2"]),
    ("lock.max-tickets", &["100000", "0", "3"]),
    ("lock.queue-grace", &["1000", "0", "50"]),
    ("lock.max-lease", &[CENTURY, "1", "100"]),
    ("lock.max-wait", &[CENTURY, "0", "20"]),
    ("lock.max-owner-len", &["256", "1", "4"]),
];

/// Sets one of them.
pub fn flip(server: &TestServer, hand: &mut Hand) {
    let mut conn = server.conn();
    let at = hand.rng.usize(..LASTING.len() + 1 + SHORT.len());
    match at.checked_sub(LASTING.len() + 1) {
        None => {
            let (name, values) = LASTING.get(at).copied().unwrap_or(SESSION_LEASE);
            set(&mut conn, name, values[hand.rng.usize(..values.len())]);
        }
        Some(at) => {
            let (name, values) = SHORT[at];
            let value = values[hand.rng.usize(1..values.len())];
            let journal = hand.journal;
            journal.during(Fault::Settings, || {
                set(&mut conn, name, value);
                hand.pause(20..300);
                set(&mut conn, name, values[0]);
            });
        }
    }
    hand.count("settings changed");
}

/// The names of all of them.
pub fn names() -> BTreeSet<&'static str> {
    all().map(|(name, _)| *name).collect()
}

fn all() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    LASTING.iter().chain(&SHORT).chain([&SESSION_LEASE])
}

/// Sets the defaults.
pub fn restore(conn: &mut Conn) {
    all().for_each(|(name, values)| set(conn, name, values[0]));
}

fn set(conn: &mut Conn, name: &str, value: &str) {
    let reply = conn.run(["CONFIG", "SET", name, value]);
    assert!(!reply.is_error(), "{name} {value}: {reply:?}");
}
