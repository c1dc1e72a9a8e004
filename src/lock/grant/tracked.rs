//! The bounded table of the grants that this server made and has not seen end.
//!
//! Locks have one, and semaphores another. It adds to the key the moment of the grant and the connection. A lock
//! without an entry (taken by a Redisson client, granted before a restart, or pushed out by newer grants) works the
//! same, and is described with fewer details. A permit without one gets a fresh token when its id asks again.
//!
//! An exclusive or WRITE grant is the only one of its kind at its key and is found by the key. READ grants and permits,
//! of which a key may have several, are found by key and owner.

use std::rc::Rc;

use crate::lock::name::{swap, KeyMap, OwnerAt, OwnerAtRef, OwnerMap, OwnerSet};
use crate::lock::table::{give_back, step_below};
use crate::lock::{Acquire, BoundRef, KeyId, KeyRef, Mode, Now, Resource, Token};

/// A grant is not tracked if the names in its entry (of the key, and in some tables of the owner) have more bytes than
/// this together: so the number of tracked grants bounds their memory.
pub const LONGEST_TRACKED: usize = 1_024;

/// The most grants of one key that one step works on.
pub const READERS_PER_STEP: usize = 500;

/// A tracked grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedGrant {
    /// The token of the grant.
    pub token: Token,
    /// The moment of the grant in milliseconds of the monotonic clock.
    pub since_ms: u64,
    /// The server's id of the connection that was granted the lock.
    pub client: u64,
    /// The end of the lease as last read, in Unix milliseconds.
    pub deadline_ms: i64,
    /// Whether it was granted with `SESSION`.
    pub session: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct TrackedGrants {
    table: KeyMap<TrackedGrant>,
    /// The grants of which a key may have several.
    by_owner: OwnerMap<TrackedGrant>,
    /// The owners of those grants at each key.
    owners_at: KeyMap<OwnerSet>,
    /// The index at which the search for an entry to push out continues. It moves on like a clock hand, so that no
    /// entry is spared for ever.
    hand: usize,
}

impl TrackedGrants {
    /// The number of tracked grants.
    pub fn len(&self) -> usize {
        self.table.len() + self.by_owner.len()
    }

    /// The tracked grant of a key, if it is the one with this token.
    pub fn get(&self, key: KeyRef<'_>, token: Option<Token>) -> Option<&TrackedGrant> {
        self.table
            .get(&key)
            .filter(|tracked| Some(tracked.token) == token)
    }

    /// The tracked grant of this owner, of several at the key.
    pub fn of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&TrackedGrant> {
        self.by_owner.get(&OwnerAtRef { key, owner })
    }

    /// A step through the owners of the several grants at this key, downwards from this index: at most
    /// [`READERS_PER_STEP`] of them, and the index of the next step (0: end).
    pub fn owners_below(&self, key: KeyRef<'_>, below: usize) -> (usize, Vec<Rc<[u8]>>) {
        let Some(owners) = self.owners_at.get(&key) else {
            return (0, Vec::new());
        };
        let range = step_below(below, owners.len(), READERS_PER_STEP);
        let start = range.start;
        let step = owners.get_range(range).into_iter().flatten();
        (start, step.cloned().collect())
    }

    /// The keys with a tracked grant.
    pub fn keys(&self) -> impl Iterator<Item = &KeyId> {
        let only_read = |key: &&KeyId| !self.table.contains_key(*key);
        self.table
            .keys()
            .chain(self.owners_at.keys().filter(only_read))
    }

    /// Whether a grant of this key is tracked.
    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.table.contains_key(&key)
            || (!self.by_owner.is_empty() && self.owners_at.contains_key(&key))
    }

    /// Records a new end of the lease of the grant with this token.
    pub fn renewed(&mut self, key: KeyRef<'_>, token: Option<Token>, deadline_ms: i64) {
        let tracked = self.table.get_mut(&key);
        if let Some(tracked) = tracked.filter(|tracked| Some(tracked.token) == token) {
            tracked.deadline_ms = deadline_ms;
        }
    }

    /// Records that the lease of a READ or WRITE grant of this owner may have become longer.
    pub fn extended(&mut self, what: BoundRef<'_>, deadline_ms: i64) {
        let BoundRef { mode, key, owner } = what;
        let tracked = match mode {
            Mode::Read => self.by_owner.get_mut(&OwnerAtRef { key, owner }),
            _ => self.table.get_mut(&key),
        };
        if let Some(tracked) = tracked {
            tracked.deadline_ms = tracked.deadline_ms.max(deadline_ms);
        }
    }

    /// Records a new end of the lease of the grant of this owner.
    pub fn renewed_of(&mut self, key: KeyRef<'_>, owner: &[u8], deadline_ms: i64) {
        if let Some(tracked) = self.by_owner.get_mut(&OwnerAtRef { key, owner }) {
            tracked.deadline_ms = deadline_ms;
        }
    }

    /// Tracks a grant that was made now. Returns how many others were pushed out to keep within `max`, and this one if
    /// it is not tracked.
    pub fn track(
        &mut self,
        key: KeyRef<'_>,
        to: &Acquire<'_>,
        (token, deadline_ms): (Token, i64),
        (max, now): (usize, Now),
    ) -> u64 {
        let is_one_of_several = to.mode == Mode::Read || key.resource == Resource::Semaphore;
        let owner = if is_one_of_several { to.owner } else { b"" };
        if key.name.len() + owner.len() > LONGEST_TRACKED {
            return 1;
        }
        let pushed_out = self.make_room(max);
        if max == 0 {
            return pushed_out + 1;
        }
        let tracked = TrackedGrant {
            token,
            since_ms: now.mono_ms,
            client: to.client,
            deadline_ms,
            session: to.session,
        };
        if is_one_of_several {
            let (key, owner) = (key.to_id(), Rc::from(owner));
            let owners = self.owners_at.entry(key.clone()).or_default();
            owners.insert(Rc::clone(&owner));
            self.by_owner.insert(OwnerAt { key, owner }, tracked);
        } else {
            self.table.insert(key.to_id(), tracked);
        }
        pushed_out
    }

    fn make_room(&mut self, max: usize) -> u64 {
        let mut pushed_out = 0;
        while self.len() >= max.max(1) {
            if self.table.len() >= self.by_owner.len() {
                self.hand = (self.hand + 1) % self.table.len();
                self.table.swap_remove_index(self.hand);
            } else {
                self.hand = (self.hand + 1) % self.by_owner.len();
                if let Some((at, _)) = self.by_owner.swap_remove_index(self.hand) {
                    self.forget_owner(&at);
                }
            }
            pushed_out += 1;
        }
        if pushed_out > 1 {
            self.give_back();
        }
        pushed_out
    }

    /// Removes the exclusive or WRITE grant of a key.
    pub fn remove(&mut self, key: KeyRef<'_>) -> Option<TrackedGrant> {
        let tracked = self.table.swap_remove(&key);
        give_back(&mut self.table);
        tracked
    }

    /// Removes the grant of this owner.
    pub fn remove_of(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<TrackedGrant> {
        let found = self.by_owner.swap_remove_entry(&OwnerAtRef { key, owner });
        let (at, tracked) = found?;
        self.forget_owner(&at);
        give_back(&mut self.by_owner);
        Some(tracked)
    }

    /// Removes the grants of a key, of several as many as one step works on. Returns how many were tracked, and the
    /// index below which some are left.
    pub fn remove_some(&mut self, key: KeyRef<'_>) -> (u64, usize) {
        let only = u64::from(self.remove(key).is_some());
        let (rest, owners) = self.owners_below(key, usize::MAX);
        for owner in &owners {
            self.remove_of(key, owner);
        }
        (only + owners.len() as u64, rest)
    }

    /// Removes all grants of the owners at a key. Returns how many.
    pub fn remove_all_of(&mut self, key: KeyRef<'_>) -> u64 {
        let owners = self.owners_at.swap_remove(&key).unwrap_or_default();
        for owner in &owners {
            self.by_owner.swap_remove(&OwnerAtRef { key, owner });
        }
        give_back(&mut self.owners_at);
        give_back(&mut self.by_owner);
        owners.len() as u64
    }

    fn forget_owner(&mut self, at: &OwnerAt) {
        if let Some(owners) = self.owners_at.get_mut(&at.key) {
            owners.swap_remove(&at.owner);
            give_back(owners);
            if owners.is_empty() {
                self.owners_at.swap_remove(&at.key);
                give_back(&mut self.owners_at);
            }
        }
    }

    fn give_back(&mut self) {
        give_back(&mut self.table);
        give_back(&mut self.by_owner);
        give_back(&mut self.owners_at);
    }

    /// Removes the grants of a database (`None`: of all). Returns how many.
    pub fn clear(&mut self, db: Option<i32>) -> u64 {
        self.forget(|key| db.is_none_or(|db| key.db == db))
    }

    /// Removes the grants of these keys. Returns how many.
    pub fn forget(&mut self, is_gone: impl Fn(KeyRef<'_>) -> bool) -> u64 {
        let before = self.len();
        self.table.retain(|key, _| !is_gone(key.as_ref()));
        self.by_owner.retain(|at, _| !is_gone(at.key.as_ref()));
        self.owners_at.retain(|key, _| !is_gone(key.as_ref()));
        self.give_back();
        (before - self.len()) as u64
    }

    /// Exchanges the databases of the entries, after `SWAPDB`.
    pub fn swap(&mut self, first: i32, second: i32) {
        swap(&mut self.table, first, second);
        swap(&mut self.owners_at, first, second);
        self.by_owner = self
            .by_owner
            .drain(..)
            .map(|(at, tracked)| {
                let key = at.key.swapped(first, second);
                (OwnerAt { key, ..at }, tracked)
            })
            .collect();
    }
}
