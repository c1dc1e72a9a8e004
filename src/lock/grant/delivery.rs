//! Grants in flight: recorded, delivered, claimed by their owner, or undone.

use smallvec::SmallVec;

use crate::lock::grant::in_flight::{GrantInFlight, Reentry};
use crate::lock::locks::Locks;
use crate::lock::name::OwnerAtRef;
use crate::lock::table::give_back;
use crate::lock::wait::request::WaiterId;
use crate::lock::KeyRef;

impl Locks {
    /// Records a grant in flight to a parked client.
    pub(crate) fn put_in_flight(&mut self, request: WaiterId, in_flight: GrantInFlight) {
        self.in_flight_of_owner.insert(in_flight.at(), request);
        self.in_flight.entry(request).or_default().push(in_flight);
    }

    /// The reply of a grant is written: from now on only its lease or its owner ends it.
    pub fn delivered(&mut self, waiter: WaiterId) {
        let delivered = self.take_in_flight(waiter);
        if delivered.is_empty() {
            self.sems.in_flight.delivered(waiter);
        }
        for in_flight in delivered {
            match in_flight.reentry {
                Some(Reentry {
                    binds: Some((client, at)),
                    ..
                }) => self
                    .sessions
                    .bind(in_flight.bound(), client, in_flight.token, at),
                Some(Reentry { unbinds: true, .. }) => {
                    self.sessions
                        .unbind_grant(in_flight.bound(), in_flight.token);
                }
                _ => {}
            }
        }
    }

    /// The owner has shown that it knows of its grant. An undo that is scheduled would now take the lock from a client
    /// that got it by asking again, and is dropped. No undo may be scheduled later either, when the end of the
    /// connection that was answered first is noticed.
    pub(crate) fn claim(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(undone) = self.undelivered.get_mut(&key) {
            undone.retain(|undone| undone.owner[..] != *owner);
            if undone.is_empty() {
                self.take_undone(key);
            }
        }
        if self.in_flight_of_owner.is_empty() {
            return;
        }
        let Some(waiter) = self
            .in_flight_of_owner
            .swap_remove(&OwnerAtRef { key, owner })
        else {
            return;
        };
        if let Some(in_flight) = self.in_flight.get_mut(&waiter) {
            in_flight.retain(|in_flight| in_flight.key.as_ref() != key);
            if in_flight.is_empty() {
                self.in_flight.remove(&waiter);
            }
        }
        give_back(&mut self.in_flight);
        give_back(&mut self.in_flight_of_owner);
    }

    /// Takes the grants to undo at this key.
    pub(crate) fn take_undone(&mut self, key: KeyRef<'_>) -> Option<Vec<GrantInFlight>> {
        let undone = self.undelivered.swap_remove(&key);
        give_back(&mut self.undelivered);
        undone
    }

    /// Takes the grants in flight to this client.
    pub(crate) fn take_in_flight(&mut self, waiter: WaiterId) -> SmallVec<[GrantInFlight; 1]> {
        let taken = self.in_flight.remove(&waiter).unwrap_or_default();
        for in_flight in &taken {
            let at = in_flight.at();
            if self.in_flight_of_owner.get(&at) == Some(&waiter) {
                self.in_flight_of_owner.swap_remove(&at);
            }
        }
        give_back(&mut self.in_flight);
        give_back(&mut self.in_flight_of_owner);
        taken
    }
}
