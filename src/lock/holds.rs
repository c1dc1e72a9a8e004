//! A bounded table of the grants that this server made and has not seen end.
//!
//! It knows what the hash does not: since when, and through which connection. Nothing depends on
//! it: a lock that is not here (taken by a Redisson client, before a restart, or pushed out by
//! newer ones) works the same and is only described with less.

use super::name::KeyMap;
use super::{KeyRef, Token};

/// One grant that this server made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracked {
    /// The token of the grant.
    pub token: Token,
    /// When, on the monotonic clock.
    pub since_ms: u64,
    /// The server's id of the connection that got it.
    pub client: u64,
    /// The end of its lease as last seen, Unix milliseconds.
    pub deadline_ms: i64,
}

/// The table.
#[derive(Debug, Default)]
pub struct Holds {
    table: KeyMap<Tracked>,
    /// Where the next victim is looked for: a clock hand, so that none is spared for ever.
    hand: usize,
}

impl Holds {
    /// How many grants are tracked.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The tracked grant of a key, if it is the one with this token.
    pub fn get(&self, key: KeyRef<'_>, token: Option<Token>) -> Option<&Tracked> {
        self.table
            .get(&key)
            .filter(|tracked| Some(tracked.token) == token)
    }

    /// Whether a grant of this key is tracked.
    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.table.contains_key(&key)
    }

    /// Notes a new end of the lease of the grant with this token.
    pub fn renewed(&mut self, key: KeyRef<'_>, token: Option<Token>, deadline_ms: i64) {
        let tracked = self.table.get_mut(&key);
        if let Some(tracked) = tracked.filter(|tracked| Some(tracked.token) == token) {
            tracked.deadline_ms = deadline_ms;
        }
    }

    /// Tracks a grant; answers how many others had to go to keep within `max`.
    pub fn insert(&mut self, key: KeyRef<'_>, tracked: Tracked, max: usize) -> u64 {
        let mut pushed_out = 0;
        while self.table.len() >= max.max(1) {
            self.hand = (self.hand + 1) % self.table.len();
            self.table.swap_remove_index(self.hand);
            pushed_out += 1;
        }
        if max == 0 {
            return pushed_out + 1;
        }
        self.table.insert(key.to_id(), tracked);
        pushed_out
    }

    /// The key's grant has ended.
    pub fn remove(&mut self, key: KeyRef<'_>) -> Option<Tracked> {
        self.table.swap_remove(&key)
    }

    /// The grants of a database (`None`: of all) are gone; answers how many that were.
    pub fn clear(&mut self, db: Option<i32>) -> u64 {
        self.forget(|key| db.is_none_or(|db| key.db == db))
    }

    /// The grants of these keys are gone; answers how many that were.
    pub fn forget(&mut self, is_gone: impl Fn(KeyRef<'_>) -> bool) -> u64 {
        let before = self.table.len();
        self.table.retain(|key, _| !is_gone(key.as_ref()));
        (before - self.table.len()) as u64
    }

    /// Two databases have changed places, and the locks in them.
    pub fn swap(&mut self, first: i32, second: i32) {
        self.table = self
            .table
            .drain(..)
            .map(|(key, tracked)| (key.swapped(first, second), tracked))
            .collect();
    }
}
