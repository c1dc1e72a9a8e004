//! Grants in flight, of locks and permits: made, and their reply not written yet. Each is delivered, claimed by its
//! owner, or undone when its key is settled.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::name::Resource;
use crate::lock::name::{swap, KeyMap, OwnerAt, OwnerAtRef, OwnerMap};
use crate::lock::session::bindings::BoundRef;
use crate::lock::table::give_back;
use crate::lock::wait::limits::CountByUser;
use crate::lock::wait::request::{PlaceId, Seq, Waiter, WaiterId, WaiterMap};
use crate::lock::{Hold, KeyId, KeyRef, Mode, Now, OwnerId, Token, UserId};

/// A grant in flight to a parked client.
#[derive(Debug)]
pub(crate) struct GrantInFlight {
    pub key: KeyId,
    pub owner: Rc<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub seq: Seq,
    /// The arrival of the owner at its place, in milliseconds of the monotonic clock.
    pub since_ms: u64,
    /// Set where the owner had a hold already: an undo then drops this one hold only.
    pub reentry: Option<Reentry>,
    /// Of a permit: its end in the set when it was granted.
    pub end_ms: i64,
}

/// The effect of a re-entry in flight on the hold that its owner had before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reentry {
    /// It raised the hold count.
    pub counted: bool,
    /// The connection and the user to bind the hold to when the reply is written, and the moment of the grant. Not
    /// before: if the reply is never written, the end of that connection must not end the hold.
    pub binds: Option<((u64, UserId), Now)>,
    /// The former binding ends when the reply is written.
    pub unbinds: bool,
}

impl GrantInFlight {
    /// A first hold, granted to a request that has waited at this place.
    pub fn of(
        (key, place): (KeyId, PlaceId),
        (owner, waiter): (&Rc<[u8]>, &Waiter),
        token: Token,
    ) -> GrantInFlight {
        GrantInFlight {
            key,
            owner: owner.clone(),
            mode: waiter.mode,
            token,
            seq: place.seq,
            since_ms: waiter.since_ms,
            reentry: None,
            end_ms: 0,
        }
    }

    /// The user for which the hold is bound when the reply is written.
    fn binds_for(&self) -> Option<UserId> {
        let ((_, user), _) = self.reentry?.binds?;
        Some(user)
    }

    /// The owner and the key.
    pub fn at(&self) -> OwnerAt {
        OwnerAt {
            key: self.key.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Whether the present hold is of this grant.
    pub fn is(&self, hold: &Hold) -> bool {
        hold.token == Some(self.token) && hold.owner[..] == self.owner[..]
    }

    /// The hold as a name of a binding.
    pub fn bound(&self) -> BoundRef<'_> {
        BoundRef::lock(self.mode, self.key.as_ref(), &self.owner)
    }
}

/// The grants in flight of one server, and those to undo.
#[derive(Debug, Default)]
pub struct GrantsInFlight {
    by_waiter: WaiterMap<SmallVec<[GrantInFlight; 1]>>,
    /// The requests with a grant in flight, of each owner at each key: nearly always one.
    by_owner: OwnerMap<SmallVec<[WaiterId; 1]>>,
    /// Grants to undo: their connection closed before the reply was written.
    undelivered: KeyMap<Vec<GrantInFlight>>,
    /// Those in flight that bind a hold when their reply is written, by the users that asked for it.
    pub(in crate::lock) to_bind: CountByUser,
}

impl GrantsInFlight {
    /// Records a grant in flight to a parked client. One that begins a hold shows that an earlier hold of this mode has
    /// ended, and so the grant in flight that had begun it. Readers share the token of their phase: an undo of that
    /// grant would end the present hold.
    pub(crate) fn put(&mut self, request: WaiterId, in_flight: GrantInFlight) {
        if in_flight.reentry.is_none() {
            let (key, owner) = (in_flight.key.as_ref(), &in_flight.owner);
            self.drop_in_flight(key, owner, |older| older.mode == in_flight.mode);
            self.drop_undone(key, owner, |older| older.mode == in_flight.mode);
        }
        let of_owner = self.by_owner.entry(in_flight.at()).or_default();
        of_owner.push(request);
        if let Some(user) = in_flight.binds_for() {
            self.to_bind.add(user);
        }
        self.by_waiter.entry(request).or_default().push(in_flight);
    }

    /// These grants in flight of an owner at a key need no undo, whatever happens to their connections.
    fn drop_in_flight(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        are_dropped: impl Fn(&GrantInFlight) -> bool,
    ) {
        let at = OwnerAtRef { key, owner };
        let Some(requests) = self.by_owner.get_mut(&at) else {
            return;
        };
        let (by_waiter, to_bind) = (&mut self.by_waiter, &mut self.to_bind);
        requests.retain(|request| {
            let Some(grants) = by_waiter.get_mut(request) else {
                return false;
            };
            let of_request = grants.len();
            grants.retain(|grant| {
                let is_kept = grant.key.as_ref() != key || !are_dropped(grant);
                if let Some(user) = grant.binds_for().filter(|_| !is_kept) {
                    to_bind.remove(user);
                }
                is_kept
            });
            let is_kept = grants.len() == of_request;
            if grants.is_empty() {
                by_waiter.remove(request);
            }
            is_kept
        });
        if requests.is_empty() {
            self.by_owner.swap_remove(&at);
        }
        give_back(&mut self.by_waiter);
        give_back(&mut self.by_owner);
    }

    /// These grants of an owner at a key, whose connections have ended, are not undone.
    fn drop_undone(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        are_dropped: impl Fn(&GrantInFlight) -> bool,
    ) {
        if let Some(undone) = self.undelivered.get_mut(&key) {
            undone.retain(|grant| grant.owner[..] != *owner || !are_dropped(grant));
            if undone.is_empty() {
                self.take_undone(key);
            }
        }
    }

    /// The owner has shown that it knows of its grant. An undo that is scheduled would now take the lock from a client
    /// that got it by asking again, and is dropped. No undo may be scheduled later either, when the end of the
    /// connection that was answered first is noticed.
    pub(crate) fn claim(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        self.drop_undone(key, owner, |_| true);
        if self.by_owner.is_empty() {
            return;
        }
        self.drop_in_flight(key, owner, |_| true);
    }

    /// Takes the grants to undo at this key.
    pub(crate) fn take_undone(&mut self, key: KeyRef<'_>) -> Option<Vec<GrantInFlight>> {
        let undone = self.undelivered.swap_remove(&key);
        give_back(&mut self.undelivered);
        undone
    }

    /// Takes the grants in flight to this client.
    pub(crate) fn take(&mut self, waiter: WaiterId) -> SmallVec<[GrantInFlight; 1]> {
        let taken = self.by_waiter.remove(&waiter).unwrap_or_default();
        for in_flight in &taken {
            if let Some(user) = in_flight.binds_for() {
                self.to_bind.remove(user);
            }
            let at = in_flight.at();
            if let Some(requests) = self.by_owner.get_mut(&at) {
                requests.retain(|request| *request != waiter);
                if requests.is_empty() {
                    self.by_owner.swap_remove(&at);
                }
            }
        }
        give_back(&mut self.by_waiter);
        give_back(&mut self.by_owner);
        taken
    }

    /// The grants to undo at this key.
    pub(crate) fn undone(&self, key: KeyRef<'_>) -> Option<&[GrantInFlight]> {
        self.undelivered.get(&key).map(|undone| &undone[..])
    }

    /// The owners of the grants to undo at this key.
    pub fn undone_owners(&self, key: KeyRef<'_>) -> Vec<OwnerId> {
        let undone = self.undone(key).unwrap_or_default().iter();
        undone
            .map(|grant| OwnerId::from_slice(&grant.owner))
            .collect()
    }

    /// The connection of a grant that was in flight is closed: the grant is to be undone.
    pub(crate) fn undo(&mut self, grant: GrantInFlight) {
        let undone = self.undelivered.entry(grant.key.clone()).or_default();
        if grant.key.as_ref().resource == Resource::Semaphore {
            return undone.push(grant);
        }
        // Only grants under the last token of a lock can still be the present ones.
        undone.retain(|other| other.token >= grant.token);
        if undone.iter().all(|other| other.token == grant.token) {
            undone.push(grant);
        }
    }

    /// Drops the grants to undo: another server decides now.
    pub(crate) fn forget_undone(&mut self) {
        self.undelivered = KeyMap::default();
    }

    /// Exchanges the databases of the entries, after `SWAPDB`. Returns the keys with grants to undo.
    pub(crate) fn swap(&mut self, first: i32, second: i32) -> impl Iterator<Item = &KeyId> {
        let undone = self.undelivered.values_mut().flatten();
        for grant in self.by_waiter.values_mut().flatten().chain(undone) {
            grant.key = grant.key.swapped(first, second);
        }
        swap(&mut self.undelivered, first, second);
        let mut by_waiter: Vec<_> = self.by_waiter.iter().collect();
        by_waiter.sort_unstable_by_key(|(id, _)| **id);
        self.by_owner.clear();
        for (id, grants) in by_waiter {
            for grant in grants {
                self.by_owner.entry(grant.at()).or_default().push(*id);
            }
        }
        self.undelivered.keys()
    }
}
