//! A bounded table of the grants that this server made and has not seen end.
//!
//! It knows what the hash does not: since when, and through which connection. Nothing depends on
//! it: a lock that is not here (taken by a Redisson client, before a restart, or pushed out by
//! newer ones) works the same and is only described with less.
//!
//! An exclusive lock or a WRITE hold is the only one of its kind at its key, and is found by that. READ
//! holds are many, so they are found by their owners.

use std::rc::Rc;

use crate::lock::name::{KeyMap, OwnerAt, OwnerAtRef, OwnerMap, OwnerSet};
use crate::lock::table::give_back;
use crate::lock::{KeyId, KeyRef, Token};

/// A grant is not tracked if the names in its entry (of the key, and in some tables of the owner) have more bytes than
/// this together: so the number of tracked grants bounds the memory that they take.
pub const LONGEST_TRACKED: usize = 1_024;

/// One grant that this server made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedGrant {
    /// The token of the grant.
    pub token: Token,
    /// When, on the monotonic clock.
    pub since_ms: u64,
    /// The server's id of the connection that got it.
    pub client: u64,
    /// The end of its lease as last seen, Unix milliseconds.
    pub deadline_ms: i64,
    /// Whether its timeouts have been seen with another end than this server gave them: they may be another lock's too.
    pub may_share: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct TrackedGrants {
    table: KeyMap<TrackedGrant>,
    readers: OwnerMap<TrackedGrant>,
    /// Whose READ holds are tracked at each key.
    readers_at: KeyMap<OwnerSet>,
    /// Where the next victim is looked for: a clock hand, so that none is spared for ever.
    hand: usize,
}

impl TrackedGrants {
    /// How many grants are tracked.
    pub fn len(&self) -> usize {
        self.table.len() + self.readers.len()
    }

    /// The tracked grant of a key, if it is the one with this token.
    pub fn get(&self, key: KeyRef<'_>, token: Option<Token>) -> Option<&TrackedGrant> {
        self.table
            .get(&key)
            .filter(|tracked| Some(tracked.token) == token)
    }

    /// The tracked READ grant of this owner.
    pub fn reader(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&TrackedGrant> {
        self.readers.get(&OwnerAtRef { key, owner })
    }

    /// Whose READ grants at this key are tracked.
    pub fn readers(&self, key: KeyRef<'_>) -> impl Iterator<Item = &Rc<[u8]>> {
        self.readers_at.get(&key).into_iter().flatten()
    }

    /// The keys with a tracked grant.
    pub fn keys(&self) -> impl Iterator<Item = &KeyId> {
        let only_read = |key: &&KeyId| !self.table.contains_key(*key);
        self.table
            .keys()
            .chain(self.readers_at.keys().filter(only_read))
    }

    /// Whether a grant of this key is tracked.
    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.table.contains_key(&key)
            || (!self.readers.is_empty() && self.readers_at.contains_key(&key))
    }

    /// Notes a new end of the lease of the grant with this token.
    pub fn renewed(&mut self, key: KeyRef<'_>, token: Option<Token>, deadline_ms: i64) {
        let tracked = self.table.get_mut(&key);
        if let Some(tracked) = tracked.filter(|tracked| Some(tracked.token) == token) {
            tracked.deadline_ms = deadline_ms;
        }
    }

    /// The lease of a WRITE grant may have got longer.
    pub fn writer_extended(&mut self, key: KeyRef<'_>, deadline_ms: i64) {
        if let Some(tracked) = self.table.get_mut(&key) {
            tracked.deadline_ms = tracked.deadline_ms.max(deadline_ms);
        }
    }

    /// The tracked READ grant of this owner, whose first timeout was seen to end then.
    pub fn reader_seen(&mut self, at: OwnerAtRef<'_>, first_ms: i64) -> Option<TrackedGrant> {
        let tracked = self.readers.get_mut(&at)?;
        tracked.may_share |= tracked.deadline_ms != first_ms;
        Some(*tracked)
    }

    /// Notes a new end of the lease of a READ grant.
    pub fn reader_renewed(&mut self, key: KeyRef<'_>, owner: &[u8], deadline_ms: i64) {
        if let Some(tracked) = self.readers.get_mut(&OwnerAtRef { key, owner }) {
            tracked.deadline_ms = deadline_ms;
        }
    }

    /// Tracks a grant; answers how many others had to go to keep within `max`.
    pub fn insert(&mut self, key: KeyRef<'_>, tracked: TrackedGrant, max: usize) -> u64 {
        if key.name.len() > LONGEST_TRACKED {
            return 1;
        }
        let pushed_out = self.make_room(max);
        if max == 0 {
            return pushed_out + 1;
        }
        self.table.insert(key.to_id(), tracked);
        pushed_out
    }

    /// Tracks a READ grant; answers as [`TrackedGrants::insert`] does.
    pub fn insert_reader(&mut self, at: OwnerAt, tracked: TrackedGrant, max: usize) -> u64 {
        if at.key.as_ref().name.len() + at.owner.len() > LONGEST_TRACKED {
            return 1;
        }
        let pushed_out = self.make_room(max);
        if max == 0 {
            return pushed_out + 1;
        }
        let owners = self.readers_at.entry(at.key.clone()).or_default();
        owners.insert(at.owner.clone());
        self.readers.insert(at, tracked);
        pushed_out
    }

    fn make_room(&mut self, max: usize) -> u64 {
        let mut pushed_out = 0;
        while self.len() >= max.max(1) {
            if self.table.len() >= self.readers.len() {
                self.hand = (self.hand + 1) % self.table.len();
                self.table.swap_remove_index(self.hand);
            } else {
                self.hand = (self.hand + 1) % self.readers.len();
                if let Some((at, _)) = self.readers.swap_remove_index(self.hand) {
                    self.forget_reader(&at);
                }
            }
            pushed_out += 1;
        }
        if pushed_out > 1 {
            self.give_back();
        }
        pushed_out
    }

    /// The key's only grant (exclusive or WRITE) has ended.
    pub fn remove(&mut self, key: KeyRef<'_>) -> Option<TrackedGrant> {
        let tracked = self.table.swap_remove(&key);
        give_back(&mut self.table);
        tracked
    }

    /// A READ grant has ended.
    pub fn remove_reader(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<TrackedGrant> {
        let found = self.readers.swap_remove_entry(&OwnerAtRef { key, owner });
        let (at, tracked) = found?;
        self.forget_reader(&at);
        give_back(&mut self.readers);
        Some(tracked)
    }

    /// Every grant of the key has ended; answers how many were tracked.
    pub fn remove_all(&mut self, key: KeyRef<'_>) -> u64 {
        let only = u64::from(self.remove(key).is_some());
        if self.readers.is_empty() {
            return only;
        }
        let owners = self.readers_at.swap_remove(&key).unwrap_or_default();
        for owner in &owners {
            self.readers.swap_remove(&OwnerAtRef { key, owner });
        }
        self.give_back();
        only + owners.len() as u64
    }

    fn forget_reader(&mut self, at: &OwnerAt) {
        if let Some(owners) = self.readers_at.get_mut(&at.key) {
            owners.swap_remove(&at.owner);
            give_back(owners);
            if owners.is_empty() {
                self.readers_at.swap_remove(&at.key);
                give_back(&mut self.readers_at);
            }
        }
    }

    fn give_back(&mut self) {
        give_back(&mut self.table);
        give_back(&mut self.readers);
        give_back(&mut self.readers_at);
    }

    /// The grants of a database (`None`: of all) are gone; answers how many that were.
    pub fn clear(&mut self, db: Option<i32>) -> u64 {
        self.forget(|key| db.is_none_or(|db| key.db == db))
    }

    /// The grants of these keys are gone; answers how many that were.
    pub fn forget(&mut self, is_gone: impl Fn(KeyRef<'_>) -> bool) -> u64 {
        let before = self.len();
        self.table.retain(|key, _| !is_gone(key.as_ref()));
        self.readers.retain(|at, _| !is_gone(at.key.as_ref()));
        self.readers_at.retain(|key, _| !is_gone(key.as_ref()));
        self.give_back();
        (before - self.len()) as u64
    }

    /// Two databases have changed places, and the locks in them.
    pub fn swap(&mut self, first: i32, second: i32) {
        self.table = self
            .table
            .drain(..)
            .map(|(key, tracked)| (key.swapped(first, second), tracked))
            .collect();
        self.readers_at = self
            .readers_at
            .drain(..)
            .map(|(key, owners)| (key.swapped(first, second), owners))
            .collect();
        self.readers = self
            .readers
            .drain(..)
            .map(|(at, tracked)| {
                let key = at.key.swapped(first, second);
                (OwnerAt { key, ..at }, tracked)
            })
            .collect();
    }
}
