//! The waiters of one server: the queue of every key, and the parking and leaving of requests.
//!
//! The places of all queues are numbered in one sequence, so the order of two places is the same wherever they meet.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::effect::Cx;
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::name::KeyMap;
use crate::lock::name::{Each, Resource};
use crate::lock::request::Acquire;
use crate::lock::stats::{Histogram, WaitStats};
use crate::lock::table::give_back;
use crate::lock::wait::hearing::Passed;
use crate::lock::wait::holders::WaitedKey;
use crate::lock::wait::limits::{share, Limits, Usage, Used};
use crate::lock::wait::multi_key::Former;
use crate::lock::wait::places::Places;
use crate::lock::wait::places::{Kept, TimedOut};
use crate::lock::wait::queue::QueueView;
use crate::lock::wait::request::{Ending, Look, MultiKeyRequest, PlaceId, ReentryTerms};
use crate::lock::wait::request::{Seq, Waiter, WaiterId, WaiterMap};
use crate::lock::wait::ticket::Channels;
use crate::lock::wait::ticket::Sweep;
use crate::lock::wait::turns::{Agenda, Turns};
use crate::lock::window::Windows;
use crate::lock::{KeyId, KeyRef, LockError, Mode, Now, UserId};

/// The most bytes of the keys of a request that waits: a grant in a tick copies each name some twenty times.
const LONGEST_WAIT: usize = 131_072;

/// How long, and how many, places are kept for disconnected or timed-out owners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grace {
    /// `lock.queue-grace` in milliseconds; 0 keeps no place.
    pub ms: u64,
    /// The greatest number of kept places on the server.
    pub max_places: usize,
}

/// The waiters of one server, for every kind of resource.
#[derive(Debug, Default)]
pub struct Waiters {
    /// The limits in force.
    pub(in crate::lock) limits: Limits,
    /// The rule for kept places, from the settings.
    pub(in crate::lock) grace: Grace,
    /// The statistics of the waits of parked clients.
    pub(in crate::lock) stats: Each<WaitStats>,
    /// The statistics of tickets for all kinds of resource, with names of their own in `INFO lock`.
    pub(in crate::lock) ticket_stats: WaitStats,
    /// Tickets passed over, because their channel had no subscriber when they could have been granted.
    pub(in crate::lock) tickets_unheard: u64,
    /// The times of the waits of granted parked requests.
    pub(in crate::lock) waits: Each<Histogram>,
    /// The times of the waits of granted tickets.
    pub(in crate::lock) ticket_waits: Histogram,
    /// The Redisson windows.
    pub(in crate::lock) windows: Windows,
    pub(in crate::lock) waited: KeyMap<WaitedKey>,
    /// The places of all queues.
    pub(in crate::lock) places: Places,
    /// Requests on several keys.
    pub(in crate::lock) many: WaiterMap<MultiKeyRequest>,
    /// Requests on several keys to settle: one of their keys may have become free for them.
    pub(in crate::lock) unsettled_requests: Turns<WaiterId>,
    /// The leases after which first waiters are due, by the users of these.
    pub(super) leases: Agenda<i64, KeyId>,
    /// Keys to settle: their state changed by other means than a decision of the core.
    pub(in crate::lock) unsettled: Turns<KeyId>,
    /// Keys with a due grant to which writes are refused at the moment.
    pub(super) postponed: Turns<KeyId>,
    /// The postponed keys of the present round: each is retried once before any is retried twice.
    pub(super) retrying: Turns<KeyId>,
    /// The user, and the sort of work on keys, that had the last turn.
    pub(super) turn: UserId,
    pub(super) sort: u8,
    pub(super) passed: Passed,
    /// Keys whose waiters are about to end.
    pub(super) endings: Turns<KeyId, Ending>,
    /// The channels of tickets.
    pub(in crate::lock) channels: Channels,
    /// The sweep of tickets whose channel or user is gone.
    pub(super) sweep: Sweep,
    /// Whether this server has become a replica and its tickets fail.
    pub(super) is_demoting: bool,
    /// Connections that end in this tick: the server may still find them.
    pub(super) closing: Vec<u64>,
    last_id: u64,
    last_seq: u64,
    /// Places inserted at the head of a queue so far.
    firsts: u64,
}

/// The middle of the numbers of places: arrivals count up from here, insertions at a head count down. So the numbers
/// always follow the order of the queue.
const MIDDLE: u64 = 1 << 62;

impl Waiters {
    /// Whether this request, parked or a ticket, has no answer yet.
    pub fn is_waiting(&self, waiter: WaiterId) -> bool {
        self.places.of_request(waiter).is_some()
    }

    /// What the waits use of the limits, and this user's part of it.
    pub(crate) fn used_by(&self, user: UserId) -> Used {
        Used {
            own: self.places.used_by(user),
            all: self.places.used(),
        }
    }

    /// The bytes of all places, which the limits concern.
    pub fn wait_bytes(&self) -> usize {
        self.places.used().bytes
    }

    /// The number of a new waiter at these keys, unless the limits exclude it. What it replaces leaves room for it.
    ///
    /// # Errors
    /// [`LockError::LongWait`], [`LockError::QueueFull`], [`LockError::Busy`]
    pub(crate) fn admit(
        &mut self,
        keys: &[KeyRef<'_>],
        req: &Acquire<'_>,
        former: &Former,
    ) -> Result<WaiterId, LockError> {
        if keys.iter().map(|key| key.name.len()).sum::<usize>() > LONGEST_WAIT {
            return Err(LockError::LongWait);
        }
        // An owner that returns to its places passes the requests behind it.
        if let Some(most) = req.queue.filter(|_| former.places.is_none()) {
            let others = |key: &KeyRef<'_>| {
                let own = usize::from(self.waiter_of(*key, req.owner).is_some());
                self.waiting_on(*key) - own
            };
            if keys.iter().any(|key| others(key) >= most as usize) {
                return Err(self.refuse_wait(keys, LockError::QueueFull));
            }
        }
        let is_ticket = req.notify.is_some();
        let notify = req.notify.map_or(0, |notify| notify.len());
        let names = req.owner.len() + notify + req.note.map_or(0, <[u8]>::len);
        let place = |key: &KeyRef<'_>| Usage::place(is_ticket, key.name.len() + names);
        let needs = keys.iter().map(place).fold(Usage::default(), Usage::plus);
        let freed = former
            .requests
            .iter()
            .map(|older| self.usage_of(*older, req.user));
        let needs = needs.without(freed.fold(Usage::default(), Usage::plus));
        let is_full = |key: &KeyRef<'_>| {
            self.parked_on(*key) >= self.limits.max_waiters_per_key
                && self.kind_of(*key, req.owner) != Some(false)
        };
        let is_excluded = self.limits.exclude(self.used_by(req.user), needs);
        if is_excluded || (!is_ticket && keys.iter().any(is_full)) {
            return Err(self.refuse_wait(keys, LockError::Busy));
        }
        self.last_id += 1;
        Ok(WaiterId(self.last_id))
    }

    /// Counts a request that may not wait.
    fn refuse_wait(&mut self, keys: &[KeyRef<'_>], error: LockError) -> LockError {
        if let Some(key) = keys.first() {
            self.stats[key.resource].busy += 1;
        }
        error
    }

    /// Refuses a key at which a request for the other kind beside the lock waits. The key of a semaphore and that of a
    /// latch are both a string with a number: only the waiters tell them apart.
    ///
    /// # Errors
    /// [`LockError::OtherCount`]
    pub(crate) fn check_is_not_other(&self, key: KeyRef<'_>) -> Result<(), LockError> {
        let other = match key.resource {
            Resource::Semaphore => Resource::Latch,
            Resource::Lock | Resource::Latch => Resource::Semaphore,
        };
        match self.waiting_on(key.of(other)) {
            0 => Ok(()),
            _ => Err(LockError::OtherCount),
        }
    }

    /// How long a place is kept, in milliseconds. One at a latch has no value: all its waiters are answered at once.
    fn grace_ms(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Latch => 0,
            Resource::Lock | Resource::Semaphore => self.grace.ms,
        }
    }

    /// The last place taken at the end of a queue.
    pub(super) fn last_place(&self) -> Seq {
        Seq::MIN.saturating_add(MIDDLE + self.last_seq)
    }

    /// The number of requests that wait for this key, parked or as tickets. One whose `BLOCK` is over counts until it
    /// is answered.
    pub fn waiting_on(&self, key: KeyRef<'_>) -> usize {
        self.waited
            .get(&key)
            .map_or(0, |waited| waited.queue.live())
    }

    /// Whether requests wait at this key, for any kind of resource, or for a semaphore whose permits it has.
    pub(crate) fn any_at(&self, key: KeyRef<'_>) -> bool {
        self.live() > 0 && key.concerned().any(|key| self.waiting_on(key) > 0)
    }

    /// Parked requests on one key.
    pub fn parked_on(&self, key: KeyRef<'_>) -> usize {
        let queue = self.queue(key);
        queue.map_or(0, |queue| queue.live() - queue.tickets())
    }

    /// The queue of a key.
    pub fn queue(&self, key: KeyRef<'_>) -> Option<QueueView<'_>> {
        let queue = &self.waited.get(&key)?.queue;
        let places = &self.places;
        Some(QueueView { queue, places })
    }

    /// The queue of a key, if it has waiters.
    pub fn live_queue(&self, key: KeyRef<'_>) -> Option<QueueView<'_>> {
        self.queue(key).filter(|queue| queue.live() > 0)
    }

    /// The owner's waiter on this key.
    pub(super) fn waiter_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&Waiter> {
        self.places.waiter(self.places.of(key, owner)?)
    }

    /// The number of the owner's waiter on this key.
    pub fn request_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<WaiterId> {
        Some(self.waiter_of(key, owner)?.id)
    }

    /// Whether the owner's waiter on this key is a ticket; `None` if it has none.
    pub fn kind_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<bool> {
        Some(self.waiter_of(key, owner)?.ticket.is_some())
    }

    /// Adds a request for these keys, which differ from each other: at its owner's places, or at the end of each queue.
    /// Older requests of the owner are answered nil. `terms`: of a request on several keys.
    pub(crate) fn enqueue(
        &mut self,
        keys: &[KeyRef<'_>],
        (owner, terms): (&[u8], Option<ReentryTerms>),
        waiter: &Waiter,
        former: &Former,
        cx: &mut Cx<'_>,
    ) {
        let taken = match former.places {
            Some(_) => keys,
            None => &[],
        };
        let fate = Fate::TakenOver(taken);
        let mut replaced: SmallVec<[Waiter; 1]> = SmallVec::new();
        for request in &former.requests {
            let place = self.places.of_request(*request);
            replaced.extend(place.and_then(|place| self.depart(place, fate)));
        }
        if former.places.is_none() {
            for key in keys {
                self.withdraw(*key, owner);
            }
        }
        let mut places = Vec::with_capacity(terms.map_or(0, |_| keys.len()));
        for (at, key) in keys.iter().enumerate() {
            let at_key = (former.place(at), false);
            let (key, place) = self.join((*key, owner), at_key, waiter.clone());
            if at == 0 {
                self.places.enter(place);
                let is_ticket = waiter.ticket.is_some();
                self.count_waiter((key.as_ref(), is_ticket), &replaced, cx);
            }
            places.extend(terms.map(|_| (key, place)));
        }
        if let Some(reentry) = terms {
            let look = Look::default();
            let request = MultiKeyRequest {
                places,
                reentry,
                look,
            };
            self.many.insert(waiter.id, request);
        }
    }

    #[cfg(test)]
    pub(crate) fn enqueue_for_test(&mut self, key: KeyRef<'_>, owner: &[u8], waiter: &Waiter) {
        let (former, now) = (self.former(&[key], owner), Now::at_mono(0));
        let mut fx = crate::lock::Effects::new();
        let cx = &mut Cx::new(now, &mut fx);
        self.enqueue(&[key], (owner, None), waiter, &former, cx);
    }

    /// Takes a place in one queue: the owner's, which is empty, and where its wait continues, or a new one at the head
    /// or at the end. Returns the key and the place.
    fn join(
        &mut self,
        (key, owner): (KeyRef<'_>, &[u8]),
        (place, is_first): (Option<PlaceId>, bool),
        mut waiter: Waiter,
    ) -> (KeyId, PlaceId) {
        let id = self.id_of(key);
        waiter.resource = key.resource;
        let is_write = waiter.mode == Mode::Write;
        waiter.since_ms = self.continues(place, waiter.since_ms);
        let (places, waited) = (&mut self.places, self.waited.entry(id.clone()).or_default());
        waited.forget_heard(&waiter);
        let place = match place {
            Some(place) => {
                waited.queue.occupy(places, place, waiter);
                place
            }
            None => {
                self.last_seq += u64::from(!is_first);
                self.firsts += u64::from(is_first);
                let number = match is_first {
                    true => MIDDLE - self.firsts,
                    false => MIDDLE + self.last_seq,
                };
                let at = (Seq::MIN.saturating_add(number), id.clone());
                waited.queue.push(places, at, (owner, waiter), is_first)
            }
        };
        if is_write {
            let writers = &mut waited.search_places.writers;
            writers.insert(place.seq, place.slot);
        }
        self.waits(place);
        (id, place)
    }

    /// The owned form of a key, which is there already if it has places.
    pub(in crate::lock) fn id_of(&self, key: KeyRef<'_>) -> KeyId {
        match self.waited.get_key_value(&key) {
            Some((id, _)) => id.clone(),
            None => key.to_id(),
        }
    }

    /// Adds a request at the head of the queue. A former place of its owner is given up.
    pub fn enqueue_first(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        mut waiter: Waiter,
        cx: &mut Cx<'_>,
    ) {
        waiter.since_ms = self.continues(self.places.of(key, owner), waiter.since_ms);
        let older = self.withdraw(key, owner);
        let is_ticket = waiter.ticket.is_some();
        let (_, place) = self.join((key, owner), (None, true), waiter);
        self.places.enter(place);
        self.count_waiter((key, is_ticket), older.as_slice(), cx);
    }

    /// The first waiter of a key, with its place.
    pub(super) fn first_live(&mut self, key: KeyRef<'_>) -> Option<(PlaceId, &Waiter)> {
        let waited = self.waited.get_mut(&key)?;
        let place = waited.queue.first_live(&mut self.places)?;
        Some((place, self.places.waiter(place)?))
    }

    /// The waiters of a key in order, with their owners.
    pub(in crate::lock) fn waiters_at(
        &self,
        key: KeyRef<'_>,
    ) -> impl Iterator<Item = (&[u8], &Waiter)> {
        self.queue(key).into_iter().flat_map(|queue| queue.iter())
    }

    /// The first waiter of a key, with its owner.
    pub fn first(&self, key: KeyRef<'_>) -> Option<(&[u8], &Waiter)> {
        self.waiters_at(key).next()
    }

    /// The owner of the first waiter, if it asks for WRITE.
    pub fn first_writer(&self, key: KeyRef<'_>) -> Option<&[u8]> {
        let (owner, waiter) = self.first(key)?;
        (waiter.mode == Mode::Write).then_some(owner)
    }

    /// The owner of the first waiter, if it waits to upgrade.
    pub fn upgrader(&self, key: KeyRef<'_>) -> Option<&[u8]> {
        if self.firsts == 0 {
            return None;
        }
        let (owner, _) = self.first(key)?;
        let place = self.places.of(key, owner);
        let is_first = place.is_some_and(|place| place.seq.get() <= MIDDLE);
        is_first.then_some(owner)
    }

    /// The owner and the request at a place; `None` when it is empty.
    pub fn at(&self, place: PlaceId) -> Option<(&[u8], &Waiter)> {
        self.places.at(place)
    }

    /// The owner and the terms of a request that waits, for one key or several.
    pub(crate) fn request(&self, request: WaiterId) -> Option<(&[u8], &Waiter)> {
        self.at(self.places.of_request(request)?)
    }

    /// The note of a request that waits.
    pub fn note_of(&self, request: WaiterId) -> Option<&[u8]> {
        self.places.note_of(request)
    }

    /// The key and the request of a live place.
    pub(super) fn waits_at(&self, place: PlaceId) -> Option<(KeyRef<'_>, &Waiter)> {
        let place = self.places.get(place)?;
        Some((place.key.as_ref(), place.waiter()?))
    }

    /// The key of a place.
    pub(super) fn key_of(&self, place: PlaceId) -> Option<KeyId> {
        Some(self.places.get(place)?.key.clone())
    }

    /// Takes a granted request off this place and its others.
    pub fn take(&mut self, place: PlaceId) -> Option<(Rc<[u8]>, Waiter)> {
        let owner = (&*self.places.get(place)?.owner).into();
        Some((owner, self.depart(place, Fate::Granted)?))
    }

    /// A request has ended (disconnected, unblocked, timed out); its place is kept. Returns it, if it waited until now.
    pub(crate) fn leave(&mut self, waiter: WaiterId, now: Now) -> Option<Waiter> {
        let place = self.places.of_request(waiter)?;
        let fate = Fate::Kept {
            timed_out: false,
            now,
        };
        self.end_at(place, |waiters| waiters.depart(place, fate))
    }

    /// A parked request was answered nil by `CLIENT UNBLOCK ... TIMEOUT`.
    pub fn unblocked(&mut self, waiter: WaiterId, now: Now) {
        if let Some(waiter) = self.leave(waiter, now) {
            self.stats[waiter.resource].waits_unblocked += 1;
        }
    }

    /// The connection of a request without a grant in flight is closed.
    pub(crate) fn disconnected(&mut self, waiter: WaiterId, now: Now) {
        if let Some(waiter) = self.leave(waiter, now) {
            self.stats[waiter.resource].waits_disconnected += 1;
        }
    }

    /// A request has ended; its place is given up. Returns it, if it waited until now.
    pub fn leave_for_good(&mut self, waiter: WaiterId) -> Option<Waiter> {
        let place = self.places.of_request(waiter)?;
        self.end_at(place, |waiters| waiters.remove(place))
    }

    /// Gives up the owner's place, live or kept. Returns the waiter, if any.
    pub fn withdraw(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<Waiter> {
        let place = self.places.of(key, owner)?;
        self.end_at(place, |waiters| waiters.remove(place))
    }

    /// Ends what is at this place. If it was the first of its queue, the next one is settled.
    pub(super) fn end_at(
        &mut self,
        place: PlaceId,
        end: impl FnOnce(&mut Waiters) -> Option<Waiter>,
    ) -> Option<Waiter> {
        let key = self.key_of(place)?;
        let was_first = self
            .first_live(key.as_ref())
            .is_some_and(|first| first.0 == place);
        let waiter = end(self);
        if was_first {
            self.schedule_settle_next(key.as_ref());
        }
        waiter
    }

    /// As [`Waiters::withdraw`], for a request of this mode only.
    pub fn withdraw_mode(&mut self, key: KeyRef<'_>, owner: &[u8], mode: Mode) -> Option<Waiter> {
        self.waiter_of(key, owner)
            .filter(|waiter| waiter.mode == mode)?;
        self.withdraw(key, owner)
    }

    /// Empties the queue of a key and keeps no place. Returns the waiters in order.
    pub fn clear(&mut self, key: KeyRef<'_>) -> Vec<Waiter> {
        let Some(waited) = self.waited.get(&key) else {
            return Vec::new();
        };
        let waiters = waited.queue.waiters(&self.places);
        let waiters = waiters.map(|(_, waiter)| waiter.clone()).collect();
        let places: Vec<PlaceId> = waited.queue.places(&self.places).collect();
        for place in places {
            self.remove(place);
        }
        waiters
    }

    /// Returns the place to the owner of a grant that was undone, for the grace time.
    pub(crate) fn restore(&mut self, undone: &GrantInFlight, now: Now) {
        let key = &undone.key;
        let grace_ms = self.grace_ms(key.as_ref().resource);
        if grace_ms == 0 || self.room_to_keep(UserId::UNKNOWN) == 0 {
            return;
        }
        let kept = Kept {
            until_ms: now.mono_ms.saturating_add(grace_ms),
            since_ms: undone.since_ms,
            user: UserId::UNKNOWN,
            is_passed: false,
            timed_out: None,
        };
        let (places, waited) = (
            &mut self.places,
            self.waited.entry(key.clone()).or_default(),
        );
        waited
            .queue
            .restore(places, (undone.seq, key.clone()), &undone.owner, kept);
    }

    /// So many more places may be kept for requests of this user.
    fn room_to_keep(&self, user: UserId) -> usize {
        let Used { own, all } = self.used_by(user);
        let left = self.grace.max_places.saturating_sub(all.kept - own.kept);
        share(left, self.limits.user_share).saturating_sub(own.kept)
    }

    /// Gives up every kept place.
    pub fn give_up_places(&mut self) {
        for place in self.places.kept() {
            self.remove(place);
        }
    }

    /// The request at this place leaves its queues: the one way out, whatever ends it. What it uses is returned with
    /// its places. Returns it, if one waited here.
    pub(super) fn depart(&mut self, place: PlaceId, fate: Fate<'_>) -> Option<Waiter> {
        let waiter = self.places.waiter(place)?;
        let (request, channel) = (waiter.id, waiter.channel());
        // The message of a ticket takes time for each subscriber. It is counted for every end of a wait.
        self.passed
            .tells(channel.map_or(0, |channel| channel.places_to_tell()));
        let Some(places) = self.take_places(request) else {
            return self.depart_from(place, fate, fate.settles_one());
        };
        let (mut waiter, mut fate) = (None, fate);
        for (_, place) in places {
            waiter = self.depart_from(place, fate, fate.settles()).or(waiter);
            if let Fate::Kept { timed_out, .. } = &mut fate {
                // The end of the wait is counted once.
                *timed_out = false;
            }
        }
        waiter
    }

    /// A request leaves one of its places, and the others in the same event.
    fn depart_from(&mut self, place: PlaceId, fate: Fate<'_>, settles: bool) -> Option<Waiter> {
        let key = self.key_of(place)?;
        let waiter = self.places.waiter(place)?;
        let (kept, is_taken) = match fate {
            Fate::Granted | Fate::GivenUp => (None, false),
            Fate::Kept { timed_out, now } => {
                let grace_ms = self.grace_ms(waiter.resource);
                let has_room = grace_ms > 0 && self.room_to_keep(waiter.user) > 0;
                let kept = Kept {
                    timed_out: timed_out.then(|| TimedOut::of(waiter)),
                    ..Kept::of(waiter, now.mono_ms.saturating_add(grace_ms))
                };
                if !has_room {
                    self.count_kept(key.as_ref(), &kept);
                }
                (has_room.then_some(kept), false)
            }
            Fate::TakenOver(keys) => {
                let is_taken = keys.contains(&key.as_ref());
                let until_ms = waiter.deadline_ms().unwrap_or(u64::MAX);
                (is_taken.then(|| Kept::of(waiter, until_ms)), is_taken)
            }
        };
        self.waits_no_more(place);
        let (places, waited) = (&mut self.places, self.waited.get_mut(&key)?);
        let waiter = match kept {
            Some(kept) => waited.queue.vacate(places, place, kept),
            None => waited.queue.remove(places, place),
        };
        // Another one names the limit of the semaphore that is to be created, perhaps a higher one.
        let named_limit = waiter.as_ref().is_some_and(|waiter| waiter.limit.is_some());
        if is_taken {
            // The newer request may need fewer permits.
            if named_limit || waiter.as_ref().is_some_and(|waiter| waiter.count() > 1) {
                self.schedule_settle(key.as_ref());
            }
            return waiter;
        }
        if waited.queue.live() == 0 {
            self.set_lease(key.as_ref(), None);
        }
        if kept.is_none() {
            self.drop_if_empty(key.as_ref());
        }
        if settles || (named_limit && !matches!(fate, Fate::Granted)) {
            self.schedule_settle(key.as_ref());
        }
        waiter
    }

    /// Gives up a place, live or kept; a live one with the other places of its request.
    pub(super) fn remove(&mut self, place: PlaceId) -> Option<Waiter> {
        let Some(kept) = self.places.get(place)?.kept().copied() else {
            return self.depart(place, Fate::GivenUp);
        };
        let key = self.key_of(place)?;
        self.count_kept(key.as_ref(), &kept);
        let waited = self.waited.get_mut(&key)?;
        waited.queue.remove(&mut self.places, place);
        self.drop_if_empty(key.as_ref());
        None
    }

    pub(super) fn drop_if_empty(&mut self, key: KeyRef<'_>) {
        let waited = self.waited.get(&key);
        if waited.is_some_and(|waited| waited.queue.is_empty()) {
            self.set_lease(key, None);
            self.waited.swap_remove(&key);
            give_back(&mut self.waited);
        }
    }
}

/// What becomes of the places of a request that leaves its queues.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate<'a> {
    /// The request is granted.
    Granted,
    /// They are given up.
    GivenUp,
    /// They are kept for the owner for the grace time. `timed_out`: the `BLOCK` of the request ran out, which is
    /// counted when its first place goes.
    Kept { timed_out: bool, now: Now },
    /// A newer request of the owner takes those at these keys in the same event. The others are given up.
    TakenOver(&'a [KeyRef<'a>]),
}

impl Fate<'_> {
    /// Whether each key that the request leaves is settled: another one there may be granted now.
    fn settles(&self) -> bool {
        !matches!(self, Fate::Granted)
    }

    /// As `settles`, for a request on one key. False for most ends: their callers settle the key.
    fn settles_one(&self) -> bool {
        matches!(self, Fate::TakenOver(..))
    }
}
