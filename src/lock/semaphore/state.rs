//! The permits of a semaphore: what its two keys hold, how one decision counts with them, and which
//! tokens this server remembers.
//!
//! The layout is that of Redisson's `RPermitExpirableSemaphore`: a string with the number of free
//! permits, and beside it a sorted set `{name}:timeout` of permit ids with the moments at which they end.
//! There are as many permits as both have together. A permit whose end has come stays in the set
//! until somebody needs it and takes it back; who holds what is decided by the clock, as for locks.

use std::num::NonZeroU32;

use indexmap::IndexMap;

use crate::lock::grant::tracked::LONGEST_TRACKED;
use crate::lock::name::{KeyMap, Secret};
use crate::lock::table::give_back;
use crate::lock::{Domain, KeyRef, LockError, Now, OwnerId, Token};

/// What Redisson writes for a permit without an end.
pub const NO_END_MS: i64 = 922_337_203_685_477;

/// No permit ends before this moment, in 1973: a lower score is no permit's.
pub const FIRST_END_MS: i64 = 100_000_000_000;

/// The most permits a semaphore may have, Redisson's (a Java int).
pub const MAX_PERMITS: u32 = i32::MAX as u32;

/// Permits granted to waiters in one decision; more follow by the alarm.
pub const GRANTS_AT_ONCE: usize = 100;

/// What the two keys hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SemState {
    /// No string: there is no semaphore, whatever the set may still hold.
    Absent,
    /// A semaphore.
    There(Permits),
    /// The string is no number.
    OtherString,
    /// The string's key holds another type.
    OtherType,
    /// What stands beside it is no set of permits.
    OtherSet,
}

/// A semaphore as its keys state it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permits {
    /// Permits that nobody has; below zero while fewer are wanted than are held.
    pub free: i64,
    /// Permits in the set, those included whose end has come.
    pub taken: usize,
    /// The end of the permit of the id that asks, over or not.
    pub own_end_ms: Option<i64>,
    /// The first permits whose end has come, as many as can be needed; not that of the id that asks, nor
    /// those that may be undone.
    pub ended: Vec<OwnerId>,
    /// When the next one ends.
    pub next_end_ms: Option<i64>,
}

/// What the shell read for one decision about a semaphore.
#[derive(Debug, Clone)]
pub struct SemView<'a> {
    /// The semaphore.
    pub key: KeyRef<'a>,
    /// What its keys hold.
    pub state: SemState,
    /// Whose horizon covers this key.
    pub domain: Domain,
    /// Whether a token can be made; `None` when the decision was not expected to need one.
    pub may_grant: Option<bool>,
    /// The permits that may have to be undone, and their ends if they are still there.
    pub undone: Vec<(OwnerId, Option<i64>)>,
}

impl SemView<'_> {
    /// The permits, if there is a semaphore.
    ///
    /// # Errors
    /// Where the keys hold something else.
    pub fn permits(&self) -> Result<Option<&Permits>, LockError> {
        match &self.state {
            SemState::Absent => Ok(None),
            SemState::There(permits) => Ok(Some(permits)),
            SemState::OtherString => Err(LockError::NotCount),
            SemState::OtherType => Err(LockError::WrongType),
            SemState::OtherSet => Err(LockError::SiblingForeign),
        }
    }

    /// The end of the permit that the asking id holds now.
    pub(crate) fn held_until(&self, now: Now) -> Option<i64> {
        match &self.state {
            SemState::There(permits) => permits.own_end_ms.filter(|end| *end > now.wall_ms),
            _ => None,
        }
    }
}

/// What one decision changes in the two keys: all of it, to be written at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermitChange {
    /// The semaphore is made anew: what the set holds belonged to another.
    pub clear: bool,
    /// These leave the set.
    pub removed: Vec<OwnerId>,
    /// These join the set, or end at another moment.
    pub set: Vec<(OwnerId, i64)>,
    /// What the string says now.
    pub free: Option<i64>,
    /// Tell Redisson's waiters that so many are free.
    pub publish: Option<i64>,
}

impl PermitChange {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        *self == PermitChange::default()
    }
}

/// The permits in the course of one decision.
#[derive(Debug)]
pub(crate) struct PermitDraft<'v> {
    /// `None`: there is no semaphore (yet).
    free: Option<i64>,
    was_free: Option<i64>,
    ended: std::slice::Iter<'v, OwnerId>,
    pub next_end_ms: Option<i64>,
    /// Taken back because their end had come.
    pub reclaimed: Vec<OwnerId>,
    removed: Vec<OwnerId>,
    set: Vec<(OwnerId, i64)>,
    /// What was counted so far is to be written.
    pub counts: bool,
}

impl<'v> PermitDraft<'v> {
    pub fn open(permits: Option<&'v Permits>) -> PermitDraft<'v> {
        let free = permits.map(|permits| permits.free);
        PermitDraft {
            free,
            was_free: free,
            ended: permits.map_or([].iter(), |permits| permits.ended.iter()),
            next_end_ms: permits.and_then(|permits| permits.next_end_ms),
            reclaimed: Vec::new(),
            removed: Vec::new(),
            set: Vec::new(),
            counts: false,
        }
    }

    /// Makes the semaphore, if there is none.
    pub fn make(&mut self, limit: Option<NonZeroU32>) {
        let limit = limit.map(|limit| i64::from(limit.get()));
        self.free = self.free.or(limit);
    }

    /// Sets how many are free.
    pub fn set_free(&mut self, free: i64) {
        (self.free, self.counts) = (Some(free), true);
    }

    /// Whether a permit can be had.
    pub fn has_permit(&self) -> bool {
        self.free
            .is_some_and(|free| free.saturating_add(self.ended.len() as i64) > 0)
    }

    /// Gives this id a permit; there is one.
    pub fn take(&mut self, id: &[u8], end_ms: i64) {
        while self.free.is_some_and(|free| free <= 0) {
            let Some(over) = self.ended.next() else {
                break;
            };
            self.reclaim(over);
        }
        self.free = self.free.map(|free| free.saturating_sub(1));
        self.set_end(id, end_ms);
    }

    /// Whether so many permits are owed and over that every look at the semaphore takes long.
    pub fn owes_many(&self) -> bool {
        self.free.is_some_and(|free| free < 0) && self.ended.len() > GRANTS_AT_ONCE
    }

    /// Takes back what is over as long as permits are owed.
    pub fn reclaim_owed(&mut self) {
        while self.free.is_some_and(|free| free < 0) {
            let Some(over) = self.ended.next() else {
                return;
            };
            self.reclaim(over);
            self.counts = true;
        }
    }

    /// The permit of this id ends at another moment, or begins.
    pub fn set_end(&mut self, id: &[u8], end_ms: i64) {
        self.set.push((OwnerId::from_slice(id), end_ms));
        let end_ms = Some(end_ms);
        if self.next_end_ms.is_none() || end_ms < self.next_end_ms {
            self.next_end_ms = end_ms;
        }
        self.counts = true;
    }

    fn reclaim(&mut self, id: &[u8]) {
        self.put_back(id);
        self.reclaimed.push(OwnerId::from_slice(id));
    }

    /// This id gives its permit back.
    pub fn give_back(&mut self, id: &[u8]) {
        self.put_back(id);
        self.counts = true;
    }

    /// This id's permit is over. Written only if something else is.
    pub fn put_back(&mut self, id: &[u8]) {
        self.removed.push(OwnerId::from_slice(id));
        self.free = self.free.map(|free| free.saturating_add(1));
    }

    /// What is to be written.
    pub fn into_change(self) -> PermitChange {
        if !self.counts {
            return PermitChange::default();
        }
        let more = self.free.filter(|free| *free > self.was_free.unwrap_or(0));
        PermitChange {
            clear: self.was_free.is_none(),
            removed: self.removed,
            set: self.set,
            free: self.free.filter(|_| self.free != self.was_free),
            publish: more.filter(|free| *free > 0),
        }
    }
}

/// A permit that this server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permit {
    /// The token of the grant.
    pub token: Token,
    /// Its end as this server wrote it, or read it when its holder last acquired it again.
    pub end_ms: i64,
}

/// The permits that this server granted and has not seen end: a bounded table. An id that holds
/// a permit and is not here gets a fresh token when it asks again.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    table: KeyMap<IndexMap<OwnerId, Permit, Secret>>,
    len: usize,
    /// Where the next victim is looked for.
    hand: usize,
}

impl Remembered {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.table.contains_key(&key)
    }

    pub fn get(&self, key: KeyRef<'_>, id: &[u8]) -> Option<Permit> {
        self.table.get(&key)?.get(id).copied()
    }

    /// Notes the end of a permit that is known.
    pub fn renewed(&mut self, key: KeyRef<'_>, id: &[u8], end_ms: i64) {
        let permits = self.table.get_mut(&key);
        if let Some(permit) = permits.and_then(|permits| permits.get_mut(id)) {
            permit.end_ms = end_ms;
        }
    }

    /// Remembers a permit; answers how many others had to go to keep within `max`.
    pub fn insert(&mut self, key: KeyRef<'_>, id: &[u8], permit: Permit, max: usize) -> u64 {
        if key.name.len() + id.len() > LONGEST_TRACKED {
            return 1;
        }
        let mut pushed_out = 0;
        while self.len >= max.max(1) {
            self.push_one_out();
            pushed_out += 1;
        }
        if pushed_out > 1 {
            give_back(&mut self.table);
        }
        if max == 0 {
            return pushed_out + 1;
        }
        let permits = match self.table.get_mut(&key) {
            Some(permits) => permits,
            None => self.table.entry(key.to_id()).or_default(),
        };
        permits.insert(OwnerId::from_slice(id), permit);
        self.len += 1;
        pushed_out
    }

    fn push_one_out(&mut self) {
        self.hand = (self.hand + 1) % self.table.len().max(1);
        let Some((_, permits)) = self.table.get_index_mut(self.hand) else {
            self.len = 0;
            return;
        };
        let victim = self.len % permits.len().max(1);
        permits.swap_remove_index(victim);
        give_back(permits);
        if permits.is_empty() {
            self.table.swap_remove_index(self.hand);
        }
        self.len -= 1;
    }

    /// This permit has ended. Answers whether it was known.
    pub fn remove(&mut self, key: KeyRef<'_>, id: &[u8]) -> bool {
        let Some(permits) = self.table.get_mut(&key) else {
            return false;
        };
        let known = permits.swap_remove(id).is_some();
        give_back(permits);
        if permits.is_empty() {
            self.table.swap_remove(&key);
            give_back(&mut self.table);
        }
        self.len -= usize::from(known);
        known
    }

    /// The permits of these semaphores are gone; answers how many that were.
    pub fn forget(&mut self, is_gone: impl Fn(KeyRef<'_>) -> bool) -> u64 {
        let before = self.len;
        self.table.retain(|key, _| !is_gone(key.as_ref()));
        give_back(&mut self.table);
        self.len = self.table.values().map(IndexMap::len).sum();
        (before - self.len) as u64
    }

    /// The permits of this semaphore are gone; answers how many that were.
    pub fn lose(&mut self, key: KeyRef<'_>) -> u64 {
        let Some(lost) = self.table.swap_remove(&key) else {
            return 0;
        };
        give_back(&mut self.table);
        self.len -= lost.len();
        lost.len() as u64
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, first: i32, second: i32) {
        self.table = self
            .table
            .drain(..)
            .map(|(key, permits)| (key.swapped(first, second), permits))
            .collect();
    }
}
