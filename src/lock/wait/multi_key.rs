//! Requests on several keys: one place in the queue of each key, all taken and left at the same moment.
//!
//! Places are numbered in the order of arrival over the whole server, and the places of one request have consecutive
//! numbers. So of two such requests that meet at several keys the same one is first at each, and they cannot block each
//! other. An owner that returns therefore continues at its kept places only if all of them still exist and were taken
//! by one request; otherwise it takes a new place at every key.

use std::ops::Range;

use smallvec::SmallVec;

use crate::lock::table::give_back;
use crate::lock::wait::limits::Usage;
use crate::lock::wait::request::{Look, MultiKeyRequest, PlaceId, ReentryTerms, Waiter, WaiterId};
use crate::lock::wait::waiters::{Fate, Waiters};
use crate::lock::{KeyId, KeyRef, Now, UserId};

/// The former requests and places of an owner that asks again.
#[derive(Debug, Default)]
pub(crate) struct Former {
    /// Requests that the new one replaces: they wait at one of its keys.
    pub requests: SmallVec<[WaiterId; 1]>,
    /// The places at which it continues, in the order of the keys; `None`: it takes new places.
    pub places: Option<SmallVec<[PlaceId; 1]>>,
}

impl Former {
    /// The place at the key with this index.
    pub fn place(&self, at: usize) -> Option<PlaceId> {
        self.places.as_ref()?.get(at).copied()
    }
}

impl Waiters {
    /// The former requests and places of this owner at these keys.
    pub(crate) fn former(&self, keys: &[KeyRef<'_>], owner: &[u8]) -> Former {
        let places = keys.iter().map(|key| self.places.of(*key, owner));
        let places = places.collect::<Option<SmallVec<[PlaceId; 1]>>>();
        let consecutive = |places: &SmallVec<[PlaceId; 1]>| {
            let (first, last) = (places.iter().min(), places.iter().max());
            first.zip(last).is_some_and(|(first, last)| {
                last.seq.get() - first.seq.get() == places.len() as u64 - 1
            })
        };
        Former {
            requests: self.requests_of(keys.iter().copied(), owner),
            places: places.filter(consecutive),
        }
    }

    /// The requests of this owner that wait for any of these keys.
    pub(crate) fn requests_of<'k>(
        &self,
        keys: impl IntoIterator<Item = KeyRef<'k>>,
        owner: &[u8],
    ) -> SmallVec<[WaiterId; 1]> {
        let requests = keys.into_iter().map(|key| self.request_of(key, owner));
        let mut requests: SmallVec<[WaiterId; 1]> = requests.flatten().collect();
        requests.sort_unstable();
        requests.dedup();
        requests
    }

    /// If this request has several places: all of them, which it leaves now.
    pub(super) fn take_places(&mut self, request: WaiterId) -> Option<Vec<(KeyId, PlaceId)>> {
        if self.many.is_empty() {
            return None;
        }
        let places = self.many.remove(&request)?.places;
        give_back(&mut self.many);
        self.unsettled_requests.remove(&request);
        Some(places)
    }

    /// Removes a request from all its places and keeps none. Returns it, if it waited until now.
    pub(crate) fn dismiss(&mut self, request: WaiterId) -> Option<Waiter> {
        let place = self.places.of_request(request)?;
        let key = self.key_of(place)?;
        let waiter = self.depart(place, Fate::GivenUp);
        self.schedule_settle(key.as_ref());
        waiter
    }

    /// Whether this request waits for several keys.
    pub(crate) fn is_multi_key(&self, request: WaiterId) -> bool {
        self.many.contains_key(&request)
    }

    /// The number of places of a request that waits.
    pub(super) fn places_count(&self, request: WaiterId) -> usize {
        let many = self.many.get(&request);
        many.map_or(1, |many| many.places.len())
    }

    /// What a request uses at all its places.
    pub(crate) fn usage_of(&self, request: WaiterId, user: UserId) -> Usage {
        let places = self.places_of(request).into_iter();
        let usages = places.filter_map(|(_, place)| self.places.usage(place.slot));
        let own = usages.filter(|(of, _)| *of == user).map(|(_, usage)| usage);
        own.fold(Usage::default(), Usage::plus)
    }

    /// The places of a request.
    pub(crate) fn places_of(&self, request: WaiterId) -> Vec<(KeyId, PlaceId)> {
        if let Some(many) = self.many.get(&request) {
            return many.places.clone();
        }
        let one = self.places.of_request(request);
        let one = one.and_then(|place| Some((self.key_of(place)?, place)));
        one.into_iter().collect()
    }

    /// The keys of a request on several keys, in its own order.
    pub fn keys_of(&self, request: WaiterId) -> Vec<KeyId> {
        let many = self.many.get(&request).into_iter();
        let places = many.flat_map(|many| &many.places);
        places.map(|(key, _)| key.clone()).collect()
    }

    /// The effect of this request on holds that its owner has already.
    pub(crate) fn reentry_terms(&self, request: WaiterId) -> ReentryTerms {
        self.many
            .get(&request)
            .map(|many| many.reentry)
            .unwrap_or_default()
    }

    /// Schedules this request to be settled at the end of the tick: this key, or any, may have become free for it.
    pub(crate) fn schedule_settle_request(&mut self, request: WaiterId, cause: Option<KeyRef<'_>>) {
        let Some(many) = self.many.get(&request) else {
            return;
        };
        let excluded_at = match many.look {
            Look::Excluded(at) => many.places.get(at).map(|(key, _)| key.as_ref()),
            Look::Free { .. } => None,
        };
        if excluded_at.is_none() || cause.is_none() || excluded_at == cause {
            let user = self.user_of_request(request);
            self.unsettled_requests.insert(user, request, ());
        }
    }

    /// Schedules this owner's request, if it waits for this key and others.
    pub(crate) fn schedule_settle_owner(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(request) = self.request_of(key, owner) {
            self.schedule_settle_request(request, Some(key));
        }
    }

    /// The user of a request that waits.
    pub fn user_of_request(&self, request: WaiterId) -> UserId {
        let request = self.request(request);
        request.map_or(UserId::UNKNOWN, |(_, waiter)| waiter.user)
    }

    /// The indices of the keys that are to be read next of a scheduled request. All of them: perhaps it can be granted.
    /// `None`: a recorded holder excludes it.
    pub fn next_look(&mut self, request: WaiterId, now: Now) -> Option<Range<usize>> {
        let many = self.many.get(&request)?;
        let of = many.places.len();
        let (from, keys) = match many.look {
            Look::Excluded(at) if self.is_excluded(many, at, now) => return None,
            Look::Excluded(at) => (at, 0),
            Look::Free { from, keys } => (from, keys),
        };
        let excluded = (0..of).map(|step| (from + step) % of.max(1));
        let mut excluded = excluded.filter(|_| keys == 0);
        let look = match excluded.find(|at| self.is_excluded(many, *at, now)) {
            Some(at) => Look::Excluded(at),
            None => Look::Free { from, keys },
        };
        self.set_look(request, look);
        match look {
            Look::Excluded(_) => None,
            Look::Free { .. } if of <= LOOKED_AT || keys >= of => Some(0..of),
            Look::Free { from, .. } => Some(from..of.min(from + LOOKED_AT)),
        }
    }

    /// Whether the next step of a scheduled request may take milliseconds: all of its many keys may be free.
    pub(super) fn is_long(&self, request: WaiterId) -> bool {
        self.many.get(&request).is_some_and(|many| {
            let of = many.places.len();
            of > LOOKED_AT && matches!(many.look, Look::Free { keys, .. } if keys >= of)
        })
    }

    /// These keys of a request are free for it: the others are looked at later.
    pub(crate) fn found_free(&mut self, request: WaiterId, found: &Range<usize>) {
        let Some(many) = self.many.get(&request) else {
            return;
        };
        let keys = match many.look {
            Look::Free { keys, .. } => keys + found.len(),
            Look::Excluded(_) => found.len(),
        };
        let from = found.end % many.places.len().max(1);
        self.set_look(request, Look::Free { from, keys });
        self.schedule_settle_request(request, None);
    }

    pub(crate) fn set_look(&mut self, request: WaiterId, look: Look) {
        if let Some(many) = self.many.get_mut(&request) {
            many.look = look;
        }
    }

    /// Whether a recorded holder excludes this request at its key with this index.
    fn is_excluded(&self, many: &MultiKeyRequest, at: usize, now: Now) -> bool {
        let Some((key, place)) = many.places.get(at) else {
            return false;
        };
        let Some(waited) = self.waited.get(key) else {
            return true;
        };
        let is_over = waited.lease_ms.is_some_and(|end| end <= now.wall_ms);
        let owner = self.places.get(*place).map(|place| &place.owner);
        !is_over
            && !waited.holders.shared
            && waited.holders.unexpired(now).next().is_some()
            && !owner.is_some_and(|owner| waited.holders.contain(owner, now))
    }
}

/// So many keys of a waiting request are looked at in one step. Fewer in tests, so that these meet such steps.
const LOOKED_AT: usize = if cfg!(test) { 1 } else { 64 };
