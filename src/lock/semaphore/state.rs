//! The permits of a semaphore: the content of its two keys, and the changes of one decision.
//!
//! The layout is that of Redisson's `RPermitExpirableSemaphore`: a string with the number of free permits, and a sorted
//! set `{name}:timeout` of permit ids with their ends. The total is the sum of both. An expired permit stays in the set
//! until a grant needs it; the clock decides which permits are held, as for locks.
//!
//! An id with several permits has one entry of the set for each, all with one end: so Redisson's scripts count them.
//! The first is the id itself, the others have a number before it. No id begins with the mark of that number.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use crate::lock::effect::{Cx, Effect, KeyWrite, Message};
use crate::lock::{of_names, parse_decimal, Domain, KeyRef, LockError, Now, OwnerId};

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

/// The most permits of one grant.
pub const MOST_AT_ONCE: u8 = 64;

/// The entry of the set for the permit of this id with this number, from 1 on.
pub fn nth_permit(id: &[u8], number: u8) -> OwnerId {
    let mut entry = OwnerId::new();
    if number > 1 {
        entry.extend_from_slice(format!("#{number}:").as_bytes());
    }
    entry.extend_from_slice(id);
    entry
}

/// The id and the number of the permit with this entry.
fn parse_entry(entry: &[u8]) -> (&[u8], u8) {
    let numbered = || {
        let end = entry.iter().position(|byte| *byte == b':')?;
        let number = parse_decimal(entry.get(1..end)?)?;
        Some((entry.get(end + 1..)?, u8::try_from(number).ok()?))
    };
    match entry.first() {
        Some(b'#') => numbered().unwrap_or((entry, 1)),
        _ => (entry, 1),
    }
}

/// The entries of one id in the set: their numbers and ends.
pub type OwnPermits = SmallVec<[(u8, i64); 1]>;

/// The entries of an id of which one grant may ask for so many, in a set with `taken` entries: those that the id holds,
/// or, if it holds none, those up to this number and those that follow them.
pub fn own_permits(
    (asked, taken): (u8, usize),
    now: Now,
    mut end_of: impl FnMut(u8) -> Option<i64>,
) -> OwnPermits {
    let mut own = OwnPermits::new();
    for number in 1..=MOST_AT_ONCE {
        if own.len() == taken {
            break;
        }
        match end_of(number) {
            Some(end_ms) => own.push((number, end_ms)),
            None if number >= asked => break,
            None => {}
        }
    }
    // Entries behind those of a grant that lasts were left by a former grant: any request may take them back.
    if let Some(held) = Held::of(&own).filter(|held| held.end_ms > now.wall_ms) {
        own.truncate(held.permits.into());
    }
    own
}

/// The permits of one grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Their end in milliseconds of the wall clock.
    pub end_ms: i64,
    /// How many.
    pub permits: u8,
}

impl Held {
    /// Those of an id with these entries, expired or not. An entry with another end was left by a former grant.
    pub fn of(own: &[(u8, i64)]) -> Option<Held> {
        let (1, end_ms) = *own.first()? else {
            return None;
        };
        let of_grant = (1..)
            .zip(own)
            .take_while(|(number, entry)| **entry == (*number, end_ms));
        let permits = of_grant.count() as u8;
        Some(Held { end_ms, permits })
    }
}

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
    /// The entries of the requesting id, expired or not.
    pub own: OwnPermits,
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
    /// The ids whose grants may have to be undone, with their permits if they still exist.
    pub undone: Vec<(OwnerId, Option<Held>)>,
    /// Whether the semaphore has a subscriber; read only if
    /// [`depends_on_subscribers`](crate::lock::wait::waiters::Waiters::depends_on_subscribers).
    pub has_subscriber: bool,
}

impl Permits {
    /// Whether the decision ends or renews the expired permit with this entry by itself: it is one of the requesting
    /// id, or of a grant that may be undone.
    pub fn concerns(
        &self,
        entry: &[u8],
        own: Option<&[u8]>,
        undone: &[(OwnerId, Option<Held>)],
    ) -> bool {
        let (id, number) = parse_entry(entry);
        let is_own = || own == Some(id) && self.own.iter().any(|(other, _)| *other == number);
        let is_of = |(undone, held): &(OwnerId, Option<Held>)| {
            undone[..] == *id && held.is_some_and(|held| number <= held.permits)
        };
        undone.iter().any(is_of) || is_own()
    }
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

    /// The permits that the requesting id holds now.
    pub(crate) fn held(&self, now: Now) -> Option<Held> {
        match &self.state {
            SemState::There(permits) => {
                Held::of(&permits.own).filter(|held| held.end_ms > now.wall_ms)
            }
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

    /// Whether so many permits can be granted, free or expired.
    pub fn has(&self, permits: i64) -> bool {
        self.free
            .is_some_and(|free| free.saturating_add(self.ended.len() as i64) >= permits)
    }

    /// Makes so many permits free for every client, where there are so many, free or expired.
    pub fn free(&mut self, permits: u8) {
        self.counts |= self.reclaim_until(permits.into());
    }

    /// Gives this id these permits; there must be so many.
    pub fn take(&mut self, id: &[u8], to: Held) {
        let permits = i64::from(to.permits);
        self.reclaim_until(permits);
        self.free = self.free.map(|free| free.saturating_sub(permits));
        self.set_end(id, to);
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

    /// Sets the end of the permits of this id, which may be new.
    pub fn set_end(&mut self, id: &[u8], Held { end_ms, permits }: Held) {
        let entries = (1..=permits).map(|number| (nth_permit(id, number), end_ms));
        self.set.extend(entries);
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
            self.put_back(OwnerId::from_slice(id));
            self.reclaimed.push(OwnerId::from_slice(id));
        }
        self.reclaimed.len() > before
    }

    /// This id returns so many permits.
    pub fn give_back(&mut self, id: &[u8], permits: u8) {
        for number in 1..=permits {
            self.put_back(nth_permit(id, number));
        }
        self.counts = true;
    }

    /// The permit with this entry has expired. Written only together with another change.
    pub fn put_back(&mut self, entry: OwnerId) {
        self.removed.push(entry);
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
