//! The counts of consecutive hand-offs and the open windows.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use indexmap::IndexMap;

use crate::lock::name::{KeyMap, Secret};
use crate::lock::table::give_back;
use crate::lock::{KeyId, KeyRef, Now};

/// The most locks whose hand-offs are counted, at about 50 bytes each. The count of a lock that is pushed out starts
/// again.
const MOST_COUNTED: usize = 1_000;

/// The upper bound of the hand-offs that compensate for holds of Redisson's clients.
const MOST_OWED: u32 = 100;

/// How often the number of hand-offs until the next window is doubled.
const MOST_DOUBLINGS: u32 = 4;

/// When locks are left free for Redisson's waiters, and for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowRule {
    /// After this many consecutive hand-offs; 0: never.
    pub after: u32,
    /// The length of a window in milliseconds.
    pub window_ms: u64,
}

/// What has happened at a lock since a Redisson client last had it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct HandOffCount {
    hand_offs: u32,
    /// Holds of Redisson's clients since a window began, counted at their ends.
    redisson_holds: u32,
    /// Consecutive windows that were not used.
    unused_windows: u32,
}

/// The counts of hand-offs, and the windows.
#[derive(Debug, Default)]
pub struct Windows {
    /// The rule in force.
    pub(super) rule: WindowRule,
    /// By the hash of the lock's name: a count may outlive every hold and every wait, and must not keep the name in
    /// memory. Two locks with the same hash (one pair in 2^64) share a count, which costs one window more or less.
    pub(super) counts: IndexMap<u64, HandOffCount, Secret>,
    names: Secret,
    /// The end of each open window in milliseconds of the monotonic clock.
    pub(super) open: KeyMap<u64>,
    pub(super) ends: BTreeSet<(u64, KeyId)>,
}

impl Windows {
    /// The number of open windows.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether a window of this lock is open.
    pub(crate) fn is_open(&self, key: KeyRef<'_>, now: Now) -> bool {
        !self.open.is_empty() && self.open.get(&key).is_some_and(|end| now.mono_ms < *end)
    }

    /// Milliseconds until the next window ends.
    pub(crate) fn next_end(&self, now: Now) -> Option<u64> {
        let (end, _) = self.ends.first()?;
        Some(end.saturating_sub(now.mono_ms))
    }

    /// Whether a window is due at the next end of a hold.
    pub(super) fn is_due(&self, key: KeyRef<'_>) -> bool {
        let due = |count: &HandOffCount| {
            let after = self.rule.after.saturating_mul(1 << count.unused_windows);
            let owed = self.rule.after.saturating_mul(count.redisson_holds);
            count.hand_offs >= after.max(owed.min(MOST_OWED))
        };
        self.rule.after > 0 && self.count_of(key).is_some_and(due)
    }

    /// Counts a hand-off of the lock.
    pub(crate) fn count_hand_off(&mut self, key: KeyRef<'_>) {
        if self.rule.after == 0 {
            return;
        }
        if let Some(count) = self.count_of_mut(key) {
            count.hand_offs = count.hand_offs.saturating_add(1);
            return;
        }
        if self.counts.len() >= MOST_COUNTED {
            self.counts.swap_remove_index(0);
        }
        let count = HandOffCount {
            hand_offs: 1,
            ..HandOffCount::default()
        };
        self.counts.insert(self.names.hash_one(key), count);
    }

    fn count_of(&self, key: KeyRef<'_>) -> Option<&HandOffCount> {
        if self.counts.is_empty() {
            return None;
        }
        self.counts.get(&self.names.hash_one(key))
    }

    fn count_of_mut(&mut self, key: KeyRef<'_>) -> Option<&mut HandOffCount> {
        if self.counts.is_empty() {
            return None;
        }
        self.counts.get_mut(&self.names.hash_one(key))
    }

    /// Counts a hold of a Redisson client that was held while requests waited here.
    pub(crate) fn count_redisson_hold(&mut self, key: KeyRef<'_>) {
        if let Some(count) = self.count_of_mut(key) {
            count.redisson_holds = count.redisson_holds.saturating_add(1);
        }
    }

    /// The lock was free for every client: the count starts again. The number of unused windows is kept.
    pub(crate) fn was_free(&mut self, key: KeyRef<'_>) {
        match self.count_of_mut(key) {
            Some(count) if count.unused_windows > 0 => {
                (count.hand_offs, count.redisson_holds) = (0, 0)
            }
            Some(_) => drop(self.counts.swap_remove(&self.names.hash_one(key))),
            None => {}
        }
    }

    pub(super) fn window_taken(&mut self, key: KeyRef<'_>) {
        if let Some(count) = self.count_of_mut(key) {
            count.unused_windows = 0;
        }
    }

    pub(super) fn window_unused(&mut self, key: KeyRef<'_>) {
        if let Some(count) = self.count_of_mut(key) {
            count.hand_offs = 0;
            count.unused_windows = (count.unused_windows + 1).min(MOST_DOUBLINGS);
        }
    }

    /// Begins a window. None is open: every grant ends one, and during one there is no grant.
    pub(super) fn begin(&mut self, key: KeyRef<'_>, now: Now) {
        if let Some(count) = self.count_of_mut(key) {
            (count.hand_offs, count.redisson_holds) = (0, 0);
        }
        let (key, end) = (key.to_id(), now.mono_ms.saturating_add(self.rule.window_ms));
        self.ends.insert((end, key.clone()));
        self.open.insert(key, end);
    }

    /// Ends the window of a lock, if one is open.
    pub(super) fn end(&mut self, key: KeyRef<'_>) -> Option<KeyId> {
        let (key, end) = self.open.swap_remove_entry(&key)?;
        give_back(&mut self.open);
        let ended = (end, key);
        self.ends.remove(&ended);
        Some(ended.1)
    }
}
