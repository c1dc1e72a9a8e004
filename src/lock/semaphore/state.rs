//! The permits of a semaphore: the content of its two keys, and the changes of one decision.
//!
//! The layout is that of Redisson's `RPermitExpirableSemaphore`: a string with the number of free permits, and a sorted
//! set `{name}:timeout` of permit ids with their ends. The total is the sum of both. An expired permit stays in the set
//! until a grant needs it; the clock decides which permits are held, as for locks.

use std::num::NonZeroU32;

use crate::lock::effect::{Cx, Effect, KeyWrite, Message};
use crate::lock::{of_names, Domain, KeyRef, LockError, Now, OwnerId};

/// The end that Redisson writes for a permit that never ends.
pub const NO_END_MS: i64 = 922_337_203_685_477;

/// No permit ends before this moment, in 1973: a lower score is not that of a permit.
pub const FIRST_END_MS: i64 = 100_000_000_000;

/// The most permits of a semaphore, as in Redisson (a Java int).
pub const MAX_PERMITS: u32 = i32::MAX as u32;

/// The most permits granted to waiters in one decision; the timer grants more.
pub const GRANTS_AT_ONCE: usize = 100;

/// The most permits that one decision grants to waiters: each grant has an event with the name.
pub(super) fn grants_at_once(key: KeyRef<'_>) -> usize {
    of_names(GRANTS_AT_ONCE, key.name.len()).max(1)
}

/// The most expired permits that one decision reads.
pub const MOST_ENDED: usize = 500;

/// The content of the two keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SemState {
    /// No string: the semaphore does not exist, whatever the set holds.
    Absent,
    /// A semaphore.
    There(Permits),
    /// The string is not a number.
    OtherString,
    /// The string's key holds another type.
    OtherType,
    /// The key of the set holds something other than a set of permits.
    OtherSet,
}

/// The semaphore as its keys state it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permits {
    /// Free permits; negative while more are held than the semaphore should have.
    pub free: i64,
    /// Permits in the set, including expired ones.
    pub taken: usize,
    /// The end of the permit of the requesting id, expired or not.
    pub own_end_ms: Option<i64>,
    /// The first expired permits, as many as can be needed; without that of the requesting id and those that may be
    /// undone.
    pub ended: Vec<OwnerId>,
    /// The earliest end of a permit that has not expired.
    pub next_end_ms: Option<i64>,
}

/// What the shell read for one decision about a semaphore.
#[derive(Debug, Clone)]
pub struct SemView<'a> {
    /// The semaphore.
    pub key: KeyRef<'a>,
    /// The content of its keys.
    pub state: SemState,
    /// The domain of the horizon that covers this key.
    pub domain: Domain,
    /// Whether a token can be made safe; `None` when the decision was not expected to need one.
    pub may_grant: Option<bool>,
    /// The permits that may have to be undone, with their ends if they still exist.
    pub undone: Vec<(OwnerId, Option<i64>)>,
    /// Whether the semaphore has a subscriber; read only if
    /// [`depends_on_subscribers`](crate::lock::wait::waiters::Waiters::depends_on_subscribers).
    pub has_subscriber: bool,
}

impl SemView<'_> {
    /// The permits, if the semaphore exists.
    ///
    /// # Errors
    /// If the keys hold something else.
    pub fn permits(&self) -> Result<Option<&Permits>, LockError> {
        match &self.state {
            SemState::Absent => Ok(None),
            SemState::There(permits) => Ok(Some(permits)),
            SemState::OtherString => Err(LockError::NotCount),
            SemState::OtherType => Err(LockError::WrongType),
            SemState::OtherSet => Err(LockError::SiblingForeign),
        }
    }

    /// The end of the permit that the requesting id holds now.
    pub(crate) fn held_until(&self, now: Now) -> Option<i64> {
        match &self.state {
            SemState::There(permits) => permits.own_end_ms.filter(|end| *end > now.wall_ms),
            _ => None,
        }
    }
}

/// The changes of the two keys by one decision, to be written at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermitChange {
    /// Create the semaphore: the present content of the set belongs to a former one.
    pub clear: bool,
    /// Ids that leave the set.
    pub removed: Vec<OwnerId>,
    /// Ids that join the set, or get another end.
    pub set: Vec<(OwnerId, i64)>,
    /// The new value of the string.
    pub free: Option<i64>,
}

/// The permits during one decision.
#[derive(Debug, Default)]
pub(crate) struct PermitDraft<'v> {
    /// `None`: the semaphore does not exist (yet).
    free: Option<i64>,
    was_free: Option<i64>,
    ended: std::slice::Iter<'v, OwnerId>,
    pub next_end_ms: Option<i64>,
    /// Until then Redisson's waiters sleep, if no permit is free.
    first_end_ms: Option<i64>,
    is_shorter: bool,
    /// Expired permits that were taken back.
    pub reclaimed: Vec<OwnerId>,
    removed: Vec<OwnerId>,
    set: Vec<(OwnerId, i64)>,
    /// Whether the changes so far are to be written.
    pub counts: bool,
}

impl<'v> PermitDraft<'v> {
    pub fn open(permits: Option<&'v Permits>) -> PermitDraft<'v> {
        let Some(permits) = permits else {
            return PermitDraft::default();
        };
        PermitDraft {
            free: Some(permits.free),
            was_free: Some(permits.free),
            ended: permits.ended.iter(),
            next_end_ms: permits.next_end_ms,
            first_end_ms: permits.next_end_ms,
            ..PermitDraft::default()
        }
    }

    /// Creates the semaphore, if it does not exist.
    pub fn make(&mut self, limit: Option<NonZeroU32>) {
        let limit = limit.map(|limit| i64::from(limit.get()));
        self.free = self.free.or(limit);
    }

    /// Sets the number of free permits.
    pub fn set_free(&mut self, free: i64) {
        (self.free, self.counts) = (Some(free), true);
    }

    /// Whether a permit can be granted, free or expired.
    pub fn has_permit(&self) -> bool {
        self.has_more_than(0)
    }

    /// Whether a permit can be granted and so many others stay.
    pub fn has_more_than(&self, others: i64) -> bool {
        self.free
            .is_some_and(|free| free.saturating_add(self.ended.len() as i64) > others)
    }

    /// Makes one permit free for every client, where there is one, free or expired.
    pub fn free_one(&mut self) {
        self.counts |= self.reclaim_until(1);
    }

    /// Gives this id a permit; there must be one.
    pub fn take(&mut self, id: &[u8], end_ms: i64) {
        self.reclaim_until(1);
        self.free = self.free.map(|free| free.saturating_sub(1));
        self.set_end(id, end_ms);
    }

    /// Whether the free number is negative and so many permits have expired that every reading of the semaphore is
    /// slow.
    pub fn owes_many(&self) -> bool {
        self.free.is_some_and(|free| free < 0) && self.ended.len() > GRANTS_AT_ONCE
    }

    /// Whether the free number is negative.
    pub fn owes(&self) -> bool {
        self.free.is_some_and(|free| free < 0)
    }

    /// Takes back expired permits while the free number is negative.
    pub fn reclaim_owed(&mut self) {
        self.counts |= self.reclaim_until(0);
    }

    /// Sets the end of the permit of this id, which may be new.
    pub fn set_end(&mut self, id: &[u8], end_ms: i64) {
        self.set.push((OwnerId::from_slice(id), end_ms));
        let is_waited_for = self.was_free.is_some_and(|free| free <= 0);
        self.is_shorter |=
            is_waited_for && self.first_end_ms.is_some_and(|first_ms| end_ms < first_ms);
        let end_ms = Some(end_ms);
        if self.next_end_ms.is_none() || end_ms < self.next_end_ms {
            self.next_end_ms = end_ms;
        }
        self.counts = true;
    }

    /// Whether this id gets a permit, or another end of its permit.
    pub fn gives(&self, id: &[u8]) -> bool {
        self.set.iter().any(|(other, _)| other[..] == *id)
    }

    /// Takes back expired permits, as far as there are some, until so many are free. Returns whether it took any.
    fn reclaim_until(&mut self, enough: i64) -> bool {
        let before = self.reclaimed.len();
        while self.free.is_some_and(|free| free < enough) {
            let Some(id) = self.ended.next() else { break };
            self.put_back(id);
            self.reclaimed.push(OwnerId::from_slice(id));
        }
        self.reclaimed.len() > before
    }

    /// This id returns its permit.
    pub fn give_back(&mut self, id: &[u8]) {
        self.put_back(id);
        self.counts = true;
    }

    /// The permit of this id has expired. Written only together with another change.
    pub fn put_back(&mut self, id: &[u8]) {
        self.removed.push(OwnerId::from_slice(id));
        self.free = self.free.map(|free| free.saturating_add(1));
    }

    /// Adds the changes to the effects, with the message to Redisson's waiters. Returns whether there is another number
    /// of free permits.
    pub fn write(self, cx: &mut Cx<'_>) -> bool {
        if !self.counts {
            return false;
        }
        let change = PermitChange {
            clear: self.was_free.is_none(),
            removed: self.removed,
            set: self.set,
            free: self.free.filter(|_| self.free != self.was_free),
        };
        let has_other_number = change.clear || change.free.is_some();
        if change != PermitChange::default() {
            cx.write(KeyWrite::Permits(change));
        }
        let more = self.free.filter(|free| *free > self.was_free.unwrap_or(0));
        let more = more.filter(|free| *free > 0);
        if more.is_some() || self.is_shorter {
            cx.effects.push(Effect::Redisson(Message::Permits(more)));
        }
        has_other_number
    }
}
