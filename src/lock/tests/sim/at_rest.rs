//! At rest nothing is left: once every hold is over, every client is gone and every setting's time has passed, the
//! memory is that of a new server. Compared is its `Debug` text, so a field that is added to the core is compared
//! without further work.

use std::collections::BTreeMap;

use crate::lock::tests::sim::{new_locks, text, Settings, Sim};
use crate::lock::{Cx, Effects, KeyState, Locks, View, READERS_AT_ONCE};

/// Types and fields that tell nothing of what is held or waits.
const TYPES: [&str; 16] = [
    // Settings.
    "Limits",
    "Grace",
    "WindowRule",
    "SessionRule",
    "FinalRule",
    "StartupDelay",
    // Counters.
    "Stats",
    "WaitStats",
    "SessionStats",
    "WindowStats",
    "SemStats",
    "LatchStats",
    "FinalStats",
    "Histogram",
    // One source for each slot at most.
    "Tokens",
    "Secret",
];

/// The same of fields, by the types that have them.
const FIELDS: [(&str, &[&str]); 11] = [
    // `verifies` is set anew when the list is read.
    (
        "Locks",
        &["had_shared", "detects_deadlocks", "in_cluster", "verifies"],
    ),
    // Numbers that are counted up; and the room of one millisecond.
    (
        "Waiters",
        &[
            "last_id",
            "last_seq",
            "firsts",
            "passed",
            "sort",
            "turn",
            "tickets_unheard",
        ],
    ),
    // The user that had the last turn, and the number of the newest item.
    ("Turns", &["last", "number"]),
    ("Round", &["last", "begun_ms"]),
    ("Sessions", &["last", "last_ended"]),
    ("Finals", &["last"]),
    ("TrackedGrants", &["hand"]),
    // A count is of a name's hash, and outlives what it counts: their number is bounded.
    ("Windows", &["counts", "hand", "first"]),
    ("Channels", &["unseen", "left", "round_ms"]),
    // The first chunk of places stays, with free entries.
    ("Arena", &["chunks", "open"]),
    ("Places", &["looks"]),
];

/// Tables without entries, which may have room.
const EMPTY: [&str; 2] = ["{},", "[],"];

/// The connections of every test.
const MOST_CONNS: u64 = 40;

/// The values of a memory, by the way to them.
fn values(locks: &Locks) -> BTreeMap<String, Vec<String>> {
    let debug = format!("{locks:#?}");
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut way, mut skipped): (Vec<(&str, &str)>, Option<usize>) = (Vec::new(), None);
    for line in debug.lines() {
        let value = line.trim_start();
        let indent = line.len() - value.len();
        if skipped.is_some_and(|level| indent > level) {
            continue;
        }
        if skipped.take().is_some() && value.starts_with(['}', ']', ')']) {
            continue;
        }
        if value.starts_with(['}', ']', ')']) {
            way.pop();
            continue;
        }
        let is_name = |name: &&str| {
            name.bytes()
                .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        };
        let named = value.split_once(": ").filter(|(name, _)| is_name(name));
        let (field, value) = named.unwrap_or(("", value));
        let head = value
            .split([' ', '(', '{', '[', ','])
            .next()
            .unwrap_or(value);
        let opens = value.ends_with(['{', '[', '(']);
        let of_type = way.last().map_or("", |(_, head)| *head);
        let is_of_type = |known: &&(&str, &[&str])| known.0 == of_type;
        let fields = FIELDS.iter().find(is_of_type);
        if TYPES.contains(&head) || fields.is_some_and(|known| known.1.contains(&field)) {
            skipped = opens.then_some(indent);
            continue;
        }
        if opens {
            way.push((field, head));
        } else if !EMPTY.contains(&value) {
            let ways = way.iter().map(|(field, _)| *field);
            let at: Vec<&str> = ways
                .chain([field])
                .filter(|field| !field.is_empty())
                .collect();
            values
                .entry(at.join("."))
                .or_default()
                .push(value.to_string());
        }
    }
    values
}

impl Sim {
    /// Every hold ends, every client goes, and time passes: asserts that nothing is left.
    pub fn leave_nothing(&mut self, settings: &Settings) {
        self.forbidden.clear();
        self.set_may_grant(true);
        for _ in 0..3 {
            self.deliver_all();
            for conn in 0..MOST_CONNS {
                self.disconnect(conn);
            }
            self.alarm();
        }
        for channel in std::mem::take(&mut self.subscribed) {
            self.subscribe_channel(&channel, false);
        }
        self.has_subscriber.clear();
        let names: Vec<String> = self
            .keys
            .clone()
            .iter()
            .map(|(name, _)| name.to_string())
            .collect();
        for name in names {
            self.del(&name);
        }
        self.settle_all();
        for _ in 0..10 {
            // The server's cron, at the end of each round of channels.
            self.advance(1_000);
            self.sweep();
        }
        self.advance(100_000);
        self.deliver_all();
        self.settle_all();
        self.recheck_absent();
        self.locks.shared.finals.forget(self.now);
        assert!(
            self.parked.is_empty() && self.granted.is_empty(),
            "never answered"
        );
        assert!(self.tickets.is_empty(), "never told");
        self.assert_is_empty(settings);
    }

    /// Asserts that the memory is that of a new server.
    pub fn assert_is_empty(&self, settings: &Settings) {
        let (left, fresh) = (values(&self.locks), values(&new_locks(settings)));
        let ways = left.keys().chain(fresh.keys());
        let differ = ways.filter(|way| left.get(*way) != fresh.get(*way));
        let differ: Vec<String> = differ
            .map(|way| format!("{way}: {:?}, not {:?}", left.get(way), fresh.get(way)))
            .collect();
        assert!(differ.is_empty(), "left at rest:\n{}", differ.join("\n"));
    }

    /// What the server's cron does for tickets, and what it forgets.
    pub fn sweep(&mut self) {
        let waiters = &mut self.locks.shared.waiters;
        waiters.forget_closing();
        for channel in waiters.channels_to_ask(usize::MAX, self.now) {
            let is_subscribed = self.subscribed.contains(&text(channel.name()));
            let waiters = &mut self.locks.shared.waiters;
            waiters.learn_channel(&channel, is_subscribed, self.now);
        }
        for _ in 0..100 {
            if !self.locks.shared.waiters.has_gone() {
                break;
            }
            let mut fx = Effects::new();
            let cx = &mut Cx::new(self.now, &mut fx);
            self.locks.shared.waiters.end_gone(cx);
            self.carry_out_answers(fx);
        }
        self.settle_all();
    }

    /// Rechecks keys that do not exist any more.
    fn recheck_absent(&mut self) {
        while let Some(step) = self.locks.pop_recheck() {
            let view = View {
                key: step.key.as_ref(),
                state: KeyState::Absent,
                domain: 0,
                fence: None,
                has_subscriber: false,
                readers: READERS_AT_ONCE,
            };
            let mut fx = Effects::new();
            let cx = &mut Cx::new(self.now, &mut fx);
            self.locks.recheck(&view, step.below, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::tests::sim::Terms;
    use crate::lock::{Mode, Wait};

    fn with_a_waiter() -> Sim {
        let mut sim = Sim::new(&Settings::default());
        for (conn, owner, wait) in [(0, "holder", Wait::No), (1, "waiter", Wait::ForEver)] {
            sim.note = Some("a note".into());
            let how = (Mode::Exclusive, Terms::Session, wait, false);
            sim.acquire("k", owner, conn, how).unwrap();
        }
        sim
    }

    #[test]
    fn a_server_at_rest_has_nothing() {
        with_a_waiter().leave_nothing(&Settings::default());
    }

    #[test]
    #[should_panic(expected = "left at rest:\nshared.waiters.places.used.bytes")]
    fn a_forgotten_byte_is_found() {
        let mut sim = with_a_waiter();
        sim.locks.shared.waiters.places.forget_a_byte();
        sim.leave_nothing(&Settings::default());
    }

    #[test]
    #[should_panic(expected = "left at rest:")]
    fn a_waiter_is_something() {
        with_a_waiter().assert_is_empty(&Settings::default());
    }
}
