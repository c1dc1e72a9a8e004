//! Grants in flight: recorded, delivered, claimed by their owner, or undone.

use smallvec::SmallVec;

use crate::lock::grant::in_flight::{GrantInFlight, Reentry};
use crate::lock::locks::Locks;
use crate::lock::name::OwnerAtRef;
use crate::lock::table::give_back;
use crate::lock::wait::request::WaiterId;
use crate::lock::KeyRef;

impl Locks {
    /// Records a grant in flight to a parked client. One that begins a hold shows that an earlier hold of this mode has
    /// ended, and so the grant in flight that had begun it. Readers share the token of their phase: an undo of that
    /// grant would end the present hold.
    pub(crate) fn put_in_flight(&mut self, request: WaiterId, in_flight: GrantInFlight) {
        if in_flight.reentry.is_none() {
            let (key, owner) = (in_flight.key.as_ref(), &in_flight.owner);
            self.drop_in_flight(key, owner, |older| older.mode == in_flight.mode);
            self.drop_undone(key, owner, |older| older.mode == in_flight.mode);
        }
        let of_owner = self.in_flight_of_owner.entry(in_flight.at()).or_default();
        of_owner.push(request);
        self.in_flight.entry(request).or_default().push(in_flight);
    }

    /// These grants in flight of an owner at a key need no undo, whatever happens to their connections.
    fn drop_in_flight(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        are_dropped: impl Fn(&GrantInFlight) -> bool,
    ) {
        let at = OwnerAtRef { key, owner };
        let Some(requests) = self.in_flight_of_owner.get_mut(&at) else {
            return;
        };
        let in_flight = &mut self.in_flight;
        requests.retain(|request| {
            let Some(grants) = in_flight.get_mut(request) else {
                return false;
            };
            let of_request = grants.len();
            grants.retain(|grant| grant.key.as_ref() != key || !are_dropped(grant));
            let is_kept = grants.len() == of_request;
            if grants.is_empty() {
                in_flight.remove(request);
            }
            is_kept
        });
        if requests.is_empty() {
            self.in_flight_of_owner.swap_remove(&at);
        }
        give_back(&mut self.in_flight);
        give_back(&mut self.in_flight_of_owner);
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

    /// The reply of a grant is written: from now on only its lease or its owner ends it.
    pub fn delivered(&mut self, waiter: WaiterId) {
        let delivered = self.take_in_flight(waiter);
        if delivered.is_empty() {
            self.kinds_mut()
                .into_iter()
                .for_each(|kind| kind.delivered(waiter));
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
        self.drop_undone(key, owner, |_| true);
        if self.in_flight_of_owner.is_empty() {
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
    pub(crate) fn take_in_flight(&mut self, waiter: WaiterId) -> SmallVec<[GrantInFlight; 1]> {
        let taken = self.in_flight.remove(&waiter).unwrap_or_default();
        for in_flight in &taken {
            let at = in_flight.at();
            if let Some(requests) = self.in_flight_of_owner.get_mut(&at) {
                requests.retain(|request| *request != waiter);
                if requests.is_empty() {
                    self.in_flight_of_owner.swap_remove(&at);
                }
            }
        }
        give_back(&mut self.in_flight);
        give_back(&mut self.in_flight_of_owner);
        taken
    }
}
