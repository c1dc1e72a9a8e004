//! The waiters of one server: the queue of every key, and the parking and leaving of requests.
//!
//! The places of all queues are numbered in one sequence, so the order of two places is the same wherever they meet.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::name::{KeyMap, KeySet};
use crate::lock::stats::{TicketStats, WaitStats};
use crate::lock::table::give_back;
use crate::lock::wait::index::{PlacesByOwner, WaitedKey};
use crate::lock::wait::queue::Queue;
use crate::lock::wait::request::{Ending, MultiKeyRequest, Seq, Waiter, WaiterId, WaiterMap};
use crate::lock::{KeyId, KeyRef, Mode, Now};

/// How long, and how many, places are kept for disconnected or timed-out owners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grace {
    /// `lock.queue-grace` in milliseconds; 0 keeps no place.
    pub ms: u64,
    /// The greatest number of kept places on the server.
    pub max_places: usize,
}

/// The waiters for one kind of resource.
#[derive(Debug, Default)]
pub struct Waiters {
    /// The rule for kept places, from the settings.
    pub grace: Grace,
    /// The statistics of the waits of parked clients.
    pub stats: WaitStats,
    /// The statistics of tickets.
    pub ticket_stats: TicketStats,
    pub(crate) waited: KeyMap<WaitedKey>,
    /// The place of each request; of one on several keys the first.
    pub(crate) by_id: WaiterMap<(KeyId, Seq)>,
    /// Requests on several keys.
    pub(crate) many: WaiterMap<MultiKeyRequest>,
    /// Requests on several keys to settle: one of their keys may have become free for them.
    pub(crate) unsettled_requests: BTreeSet<WaiterId>,
    /// Live places beyond the first of each request on several keys.
    pub(crate) further_places: usize,
    /// The live places of each owner.
    pub(crate) places_by_owner: PlacesByOwner,
    /// Ends of waits and of kept places, in milliseconds of the monotonic clock.
    pub(super) deadlines: BTreeMap<(u64, Seq), KeyId>,
    pub(super) leases: BTreeSet<(i64, KeyId)>,
    /// Keys to settle: their state changed by other means than a decision of the core.
    pub(crate) unsettled: KeySet,
    /// Keys with a due grant to which writes are refused at the moment.
    pub(super) postponed: KeySet,
    /// The postponed keys of the present round: each is retried once before any is retried twice.
    pub(super) retrying: KeySet,
    /// Tickets on this server.
    pub(super) tickets: usize,
    /// Live places of tickets.
    pub(super) ticket_places: usize,
    /// Keys whose waiters are about to end.
    pub(super) endings: KeyMap<Ending>,
    last_seq: u64,
    /// Places inserted at the head of a queue so far.
    firsts: u64,
    pub(crate) places: usize,
}

/// The middle of the numbers of places: arrivals count up from here, insertions at a head count down. So the numbers
/// always follow the order of the queue.
const MIDDLE: u64 = 1 << 62;

impl Waiters {
    /// Waiters on this server.
    pub fn live(&self) -> usize {
        self.by_id.len()
    }

    /// Parked requests on this server.
    pub fn parked_requests(&self) -> usize {
        self.by_id.len() - self.tickets
    }

    /// Whether this request still waits.
    pub fn is_parked(&self, waiter: WaiterId) -> bool {
        self.by_id.contains_key(&waiter)
    }

    /// The last place taken at the end of a queue.
    pub(super) fn last_place(&self) -> Seq {
        Seq::MIN.saturating_add(MIDDLE + self.last_seq)
    }

    /// Whether this request is a ticket that waits.
    pub(crate) fn is_ticket(&self, waiter: WaiterId) -> bool {
        let at = self.by_id.get(&waiter);
        let waiter = at.and_then(|(key, seq)| self.waited.get(key)?.queue.waiter(*seq));
        waiter.is_some_and(|waiter| waiter.ticket.is_some())
    }

    /// Waiters on one key.
    pub fn live_on(&self, key: KeyRef<'_>) -> usize {
        self.waited
            .get(&key)
            .map_or(0, |waited| waited.queue.live())
    }

    /// Parked requests on one key.
    pub fn parked_on(&self, key: KeyRef<'_>) -> usize {
        let queue = self.queue(key);
        queue.map_or(0, |queue| queue.live() - queue.tickets())
    }

    /// Keys with waiters.
    pub fn keys_waited(&self) -> usize {
        self.waited
            .values()
            .filter(|waited| waited.queue.live() > 0)
            .count()
    }

    /// A step through the keys with parked requests, of every database, downwards from this cursor (0: start). Returns
    /// the next cursor (0: end) and the keys of the step.
    ///
    /// A key that leaves the table is replaced by the last one, and a new key becomes the last. So a key only moves
    /// down, and a walk from the last to the first meets every key that stays.
    pub fn keys_below(&self, cursor: u64, count: usize) -> (u64, impl Iterator<Item = KeyRef<'_>>) {
        let len = self.waited.len();
        let end = match usize::try_from(cursor) {
            Ok(cursor) if cursor > 0 => cursor.min(len),
            _ => len,
        };
        let start = end.saturating_sub(count);
        let step = self.waited.get_range(start..end).into_iter().flatten();
        let waited = step.filter(|(_, waited)| waited.queue.live() > 0);
        (start as u64, waited.map(|(key, _)| key.as_ref()))
    }

    /// Places of waiters: a request on several keys has one at each.
    pub fn live_places(&self) -> usize {
        self.by_id.len() + self.further_places
    }

    /// Places of parked requests.
    pub fn parked_places(&self) -> usize {
        self.live_places() - self.ticket_places
    }

    /// Places of tickets.
    pub fn ticket_places(&self) -> usize {
        self.ticket_places
    }

    /// Empty places kept for their owners.
    pub fn kept_places(&self) -> usize {
        self.places - self.live_places()
    }

    /// The queue of a key.
    pub fn queue(&self, key: KeyRef<'_>) -> Option<&Queue> {
        self.waited.get(&key).map(|waited| &waited.queue)
    }

    /// The queue of a key, if it has waiters.
    pub fn live_queue(&self, key: KeyRef<'_>) -> Option<&Queue> {
        self.queue(key).filter(|queue| queue.live() > 0)
    }

    /// The owner's waiter on this key.
    fn waiter_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&Waiter> {
        let queue = self.queue(key)?;
        queue.waiter(queue.place_of(owner)?)
    }

    /// The number of the owner's waiter on this key.
    pub fn parked(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<WaiterId> {
        Some(self.waiter_of(key, owner)?.id)
    }

    /// Whether the owner's waiter on this key is a ticket; `None` if it has none.
    pub fn kind_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<bool> {
        Some(self.waiter_of(key, owner)?.ticket.is_some())
    }

    /// Parks a request at the owner's place, or at the end of the queue. An older request of the owner is answered nil.
    pub fn park(&mut self, key: KeyRef<'_>, owner: &[u8], waiter: Waiter, cx: &mut Cx<'_>) {
        let (waiter_id, is_ticket) = (waiter.id, waiter.ticket.is_some());
        let (id, seq, old) = self.join(key, owner, waiter);
        self.by_id.insert(waiter_id, (id.clone(), seq));
        if let Some(old) = &old {
            self.forget_id(old);
            self.leave_further(old.id, &id);
        }
        self.count_waiter(is_ticket, old.as_slice(), cx);
    }

    /// Takes a place in one queue: the owner's, or a new one at the end. Returns the key, the place and the request
    /// that was parked there before.
    pub(crate) fn join(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        waiter: Waiter,
    ) -> (KeyId, Seq, Option<Waiter>) {
        let id = match self.waited.get_key_value(&key) {
            Some((id, _)) => id.clone(),
            None => key.to_id(),
        };
        let (deadline, mode) = (waiter.deadline_ms, waiter.mode);
        let waited = self.waited.entry(id.clone()).or_default();
        self.ticket_places += usize::from(waiter.ticket.is_some());
        waited.forget_heard(&waiter);
        let (seq, was_due, old) = match waited.queue.place_of(owner) {
            Some(seq) => {
                let was_due = waited.queue.due(seq);
                (seq, was_due, waited.queue.occupy(seq, waiter))
            }
            None => {
                self.last_seq += 1;
                self.places += 1;
                let seq = Seq::MIN.saturating_add(MIDDLE + self.last_seq);
                waited.queue.push(seq, owner, waiter);
                (seq, None, None)
            }
        };
        waited.search_places.set_mode(seq, mode);
        self.set_due(&id, seq, was_due, deadline);
        match &old {
            None => self.waits(&id, seq),
            Some(old) => self.ticket_places -= usize::from(old.ticket.is_some()),
        }
        (id, seq, old)
    }

    /// As [`Waiters::park`], at the head of the queue. A former place of its owner is given up.
    pub fn park_first(&mut self, key: KeyRef<'_>, owner: &[u8], waiter: Waiter, cx: &mut Cx<'_>) {
        let older = self.withdraw(key, owner);
        let id = match self.waited.get_key_value(&key) {
            Some((id, _)) => id.clone(),
            None => key.to_id(),
        };
        self.firsts += 1;
        self.places += 1;
        let seq = Seq::MIN.saturating_add(MIDDLE - self.firsts);
        let (waiter_id, deadline, mode) = (waiter.id, waiter.deadline_ms, waiter.mode);
        let is_ticket = waiter.ticket.is_some();
        self.ticket_places += usize::from(is_ticket);
        let waited = self.waited.entry(id.clone()).or_default();
        waited.forget_heard(&waiter);
        waited.queue.push_front(seq, owner, waiter);
        waited.search_places.set_mode(seq, mode);
        self.set_due(&id, seq, None, deadline);
        self.waits(&id, seq);
        self.by_id.insert(waiter_id, (id, seq));
        self.count_waiter(is_ticket, older.as_slice(), cx);
    }

    /// The first waiter of a key, with its owner.
    pub(super) fn first_live(&mut self, key: KeyRef<'_>) -> Option<(Seq, &Waiter)> {
        let (_, _, waited) = self.waited.get_full_mut(&key)?;
        let seq = waited.queue.first_live()?;
        Some((seq, waited.queue.waiter(seq)?))
    }

    /// The first waiter of a key, with its owner.
    pub fn first(&self, key: KeyRef<'_>) -> Option<(&[u8], &Waiter)> {
        self.queue(key)?.iter().next()
    }

    /// The owner of the first parked request, if it asks for WRITE.
    pub fn first_writer(&self, key: KeyRef<'_>) -> Option<&[u8]> {
        let (owner, waiter) = self.first(key)?;
        (waiter.mode == Mode::Write).then_some(owner)
    }

    /// The owner of the first parked request, if it waits to upgrade.
    pub fn upgrader(&self, key: KeyRef<'_>) -> Option<&[u8]> {
        if self.firsts == 0 {
            return None;
        }
        let queue = self.queue(key)?;
        let (owner, _) = queue.iter().next()?;
        let is_first = queue.place_of(owner).is_some_and(|seq| seq.get() <= MIDDLE);
        is_first.then_some(owner)
    }

    /// The owner and the request at a place; `None` when it is empty.
    pub fn at(&self, key: KeyRef<'_>, seq: Seq) -> Option<(&[u8], &Waiter)> {
        self.queue(key)?.at(seq)
    }

    /// Takes a granted request off its place.
    pub fn take(&mut self, key: KeyRef<'_>, seq: Seq) -> Option<(Rc<[u8]>, Waiter)> {
        let (_, id, waited) = self.waited.get_full(&key)?;
        let (id, owner) = (id.clone(), waited.queue.owner_of(seq)?);
        Some((owner, self.remove(&id, seq)?))
    }

    /// A request has ended (disconnected, unblocked, timed out); its place is kept. Returns whether it was parked until
    /// now.
    pub fn leave(&mut self, waiter: WaiterId, now: Now) -> bool {
        let Some((key, seq)) = self.by_id.get(&waiter).cloned() else {
            return false;
        };
        let was_first = self.is_first(&key, seq);
        self.vacate(&key, seq, now);
        if was_first {
            self.schedule_settle_next(key.as_ref());
        }
        true
    }

    /// A request has ended; its place is given up. Returns it, if it waited until now.
    pub fn leave_for_good(&mut self, waiter: WaiterId) -> Option<Waiter> {
        let (key, seq) = self.by_id.get(&waiter).cloned()?;
        let was_first = self.is_first(&key, seq);
        let waiter = self.remove(&key, seq);
        if was_first {
            self.schedule_settle_next(key.as_ref());
        }
        waiter
    }

    /// Gives up the owner's place, live or kept. Returns the waiter, if any.
    pub fn withdraw(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<Waiter> {
        let (_, id, waited) = self.waited.get_full(&key)?;
        let (id, seq) = (id.clone(), waited.queue.place_of(owner)?);
        let was_first = self.is_first(&id, seq);
        let waiter = self.remove(&id, seq)?;
        if was_first {
            self.schedule_settle_next(id.as_ref());
        }
        Some(waiter)
    }

    /// As [`Waiters::withdraw`], for a request of this mode only.
    pub fn withdraw_mode(&mut self, key: KeyRef<'_>, owner: &[u8], mode: Mode) -> Option<Waiter> {
        self.waiter_of(key, owner)
            .filter(|waiter| waiter.mode == mode)?;
        self.withdraw(key, owner)
    }

    /// Whether this is the first live place of its queue.
    pub(super) fn is_first(&mut self, key: &KeyId, seq: Seq) -> bool {
        let waited = self.waited.get_mut(key);
        waited.is_some_and(|waited| waited.queue.first_live() == Some(seq))
    }

    /// Empties the queue of a key and keeps no place. Returns the waiters in order.
    pub fn clear(&mut self, key: KeyRef<'_>) -> Vec<Waiter> {
        let Some((_, id, waited)) = self.waited.get_full(&key) else {
            return Vec::new();
        };
        let id = id.clone();
        let waiters = waited
            .queue
            .iter()
            .map(|(_, waiter)| waiter.clone())
            .collect();
        let places: Vec<Seq> = waited.queue.places().collect();
        for seq in places {
            self.remove(&id, seq);
        }
        waiters
    }

    /// Empties every queue and keeps no place. Returns the waiters, oldest first.
    pub fn clear_all(&mut self) -> Vec<Waiter> {
        let keys: Vec<KeyId> = self.waited.keys().cloned().collect();
        let mut parked: Vec<_> = keys
            .iter()
            .flat_map(|key| self.clear(key.as_ref()))
            .collect();
        parked.sort_unstable_by_key(|waiter| waiter.id);
        parked
    }

    /// Returns the place to an owner whose grant was undone, for the grace time.
    pub fn restore(&mut self, key: &KeyId, owner: &[u8], seq: Seq, now: Now) {
        if self.grace.ms == 0 || self.kept_places() >= self.grace.max_places {
            return;
        }
        let until = now.mono_ms.saturating_add(self.grace.ms);
        let waited = self.waited.entry(key.clone()).or_default();
        if waited.queue.restore(seq, owner, until) {
            self.places += 1;
            self.set_due(key, seq, None, Some(until));
        }
    }

    /// Gives up every kept place.
    pub fn give_up_places(&mut self) {
        let kept: Vec<(KeyId, Seq)> = self
            .deadlines
            .iter()
            .map(|((_, seq), key)| (key.clone(), *seq))
            .filter(|(key, seq)| !self.is_live(key, *seq))
            .collect();
        for (key, seq) in kept {
            self.remove(&key, seq);
        }
    }

    fn is_live(&self, key: &KeyId, seq: Seq) -> bool {
        let waited = self.waited.get(key);
        waited.is_some_and(|waited| waited.queue.waiter(seq).is_some())
    }

    /// A request leaves its places (one for each of its keys), which are kept for its owner.
    pub(super) fn vacate(&mut self, key: &KeyId, seq: Seq, now: Now) -> Option<Waiter> {
        let Some(places) = self.take_places(key, seq) else {
            return self.vacate_one(key, seq, now);
        };
        let mut waiter = None;
        for (key, seq) in places {
            waiter = self.vacate_one(&key, seq, now).or(waiter);
            self.schedule_settle(key.as_ref());
        }
        waiter
    }

    fn vacate_one(&mut self, key: &KeyId, seq: Seq, now: Now) -> Option<Waiter> {
        let until = now.mono_ms.saturating_add(self.grace.ms);
        let mut left = None;
        if let Some(waited) = self.waited.get_mut(key) {
            let was_due = waited.queue.due(seq);
            left = waited.queue.vacate(seq, until);
            if let Some(waiter) = &left {
                self.left_place(waiter);
                self.waits_no_more(key, seq);
                self.set_due(key, seq, was_due, Some(until));
            }
        }
        if self.grace.ms == 0 || self.kept_places() > self.grace.max_places {
            self.remove_one(key, seq);
        }
        self.forget_idle_lease(key);
        left
    }

    /// A waiter has left one of its places.
    fn left_place(&mut self, waiter: &Waiter) {
        self.ticket_places -= usize::from(waiter.ticket.is_some());
        self.forget_id(waiter);
    }

    /// A waiter has left its queues. A second call changes nothing.
    pub(super) fn forget_id(&mut self, waiter: &Waiter) -> Option<(KeyId, Seq)> {
        let first = self.by_id.remove(&waiter.id)?;
        self.tickets -= usize::from(waiter.ticket.is_some());
        give_back(&mut self.by_id);
        Some(first)
    }

    /// Gives up a place, and with it the other places of the same request.
    pub(super) fn remove(&mut self, key: &KeyId, seq: Seq) -> Option<Waiter> {
        let Some(places) = self.take_places(key, seq) else {
            return self.remove_one(key, seq);
        };
        let mut waiter = None;
        for (key, seq) in places {
            waiter = self.remove_one(&key, seq).or(waiter);
            self.schedule_settle(key.as_ref());
        }
        waiter
    }

    pub(crate) fn remove_one(&mut self, key: &KeyId, seq: Seq) -> Option<Waiter> {
        let mut was_due = None;
        if self.is_live(key, seq) {
            self.waits_no_more(key, seq);
        }
        let queue = self.waited.get_mut(key).map(|waited| &mut waited.queue);
        let waiter = queue.and_then(|queue| {
            was_due = queue.due(seq);
            self.places -= usize::from(queue.owner_of(seq).is_some());
            queue.remove(seq)
        });
        self.set_due(key, seq, was_due, None);
        if let Some(waiter) = &waiter {
            self.left_place(waiter);
        }
        self.forget_idle_lease(key);
        self.drop_if_empty(key);
        waiter
    }

    pub(super) fn drop_if_empty(&mut self, key: &KeyId) {
        if self
            .waited
            .get(key)
            .is_some_and(|waited| waited.queue.is_empty())
        {
            self.set_lease(key.as_ref(), None);
            self.waited.swap_remove(key);
            give_back(&mut self.waited);
        }
    }
}
