//! Permits in flight to parked clients; one key can have many at once.
//!
//! A grant is *delivered* when its reply is written. If the connection closes before that, the permit is returned when
//! the semaphore is settled, unless its holder has shown by another request that it knows of the permit.

use std::collections::HashMap;
use std::rc::Rc;

use crate::lock::name::KeyMap;
use crate::lock::table::give_back;
use crate::lock::wait::request::{Seq, WaiterMap};
use crate::lock::{KeyId, KeyRef, OwnerId, Token, WaiterId};

/// A permit in flight.
#[derive(Debug)]
pub(crate) struct PermitInFlight {
    pub waiter: WaiterId,
    pub seq: Seq,
    /// The arrival of the id at its place, in milliseconds of the monotonic clock.
    pub since_ms: u64,
    pub token: Token,
    /// The end of the permit in the set when it was granted.
    pub end_ms: i64,
    /// The connection is closed.
    pub is_lost: bool,
}

/// The permits in flight of one server.
#[derive(Debug, Default)]
pub(crate) struct PermitsInFlight {
    by_key: KeyMap<HashMap<Rc<[u8]>, PermitInFlight>>,
    by_waiter: WaiterMap<(KeyId, Rc<[u8]>)>,
}

impl PermitsInFlight {
    pub fn insert(&mut self, key: KeyId, id: Rc<[u8]>, permit_in_flight: PermitInFlight) {
        self.by_waiter
            .insert(permit_in_flight.waiter, (key.clone(), id.clone()));
        let former = self
            .by_key
            .entry(key)
            .or_default()
            .insert(id, permit_in_flight);
        if let Some(former) = former {
            // The former permit's semaphore was deleted before delivery: its delivery says nothing about this permit.
            self.by_waiter.remove(&former.waiter);
        }
    }

    /// The reply is written. Returns whether it was that of a permit.
    pub fn delivered(&mut self, waiter: WaiterId) -> bool {
        let Some((key, id)) = self.by_waiter.remove(&waiter) else {
            return false;
        };
        give_back(&mut self.by_waiter);
        self.remove(key.as_ref(), &id);
        true
    }

    /// The connection is closed. Returns the permit, whose semaphore is to be settled.
    pub fn lost(&mut self, waiter: WaiterId) -> Option<(KeyId, Rc<[u8]>, Token)> {
        let (key, id) = self.by_waiter.remove(&waiter)?;
        give_back(&mut self.by_waiter);
        let permit_in_flight = self.by_key.get_mut(&key)?.get_mut(&id)?;
        permit_in_flight.is_lost = true;
        Some((key, id, permit_in_flight.token))
    }

    /// The holder has shown that it knows of its permit.
    pub fn claim(&mut self, key: KeyRef<'_>, id: &[u8]) {
        if let Some(permit_in_flight) = self.remove(key, id) {
            self.by_waiter.remove(&permit_in_flight.waiter);
            give_back(&mut self.by_waiter);
        }
    }

    /// The ids whose connections are closed.
    pub fn lost_on(&self, key: KeyRef<'_>) -> Vec<OwnerId> {
        let permit_in_flight = self.by_key.get(&key);
        let lost = permit_in_flight
            .into_iter()
            .flatten()
            .filter(|(_, one)| one.is_lost);
        lost.map(|(id, _)| OwnerId::from_slice(id)).collect()
    }

    /// The keys with permits whose connections are closed.
    pub fn lost_keys(&self) -> impl Iterator<Item = &KeyId> {
        let lost = |(_, permit_in_flight): &(&KeyId, &HashMap<_, PermitInFlight>)| {
            permit_in_flight.values().any(|one| one.is_lost)
        };
        self.by_key.iter().filter(lost).map(|(key, _)| key)
    }

    /// The end of a permit whose connection is closed.
    pub fn lost_end(&self, key: KeyRef<'_>, id: &[u8]) -> Option<i64> {
        let permit_in_flight = self.by_key.get(&key)?.get(id)?;
        permit_in_flight.is_lost.then_some(permit_in_flight.end_ms)
    }

    /// Takes a permit whose connection is closed.
    pub fn take_lost(&mut self, key: KeyRef<'_>, id: &[u8]) -> Option<PermitInFlight> {
        self.lost_end(key, id)?;
        self.remove(key, id)
    }

    /// Drops all permits whose connections are closed.
    pub fn forget_lost(&mut self) {
        self.by_key.retain(|_, permit_in_flight| {
            permit_in_flight.retain(|_, one| !one.is_lost);
            !permit_in_flight.is_empty()
        });
        give_back(&mut self.by_key);
    }

    /// Exchanges the databases of the entries, after `SWAPDB`.
    pub fn swap(&mut self, first: i32, second: i32) {
        self.by_key = self
            .by_key
            .drain(..)
            .map(|(key, permit_in_flight)| (key.swapped(first, second), permit_in_flight))
            .collect();
        for (key, _) in self.by_waiter.values_mut() {
            *key = key.swapped(first, second);
        }
    }

    fn remove(&mut self, key: KeyRef<'_>, id: &[u8]) -> Option<PermitInFlight> {
        let ids = self.by_key.get_mut(&key)?;
        let permit_in_flight = ids.remove(id);
        give_back(ids);
        if ids.is_empty() {
            self.by_key.swap_remove(&key);
            give_back(&mut self.by_key);
        }
        permit_in_flight
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn delivery_of_a_former_permit_does_not_deliver_the_latest() {
        let key = KeyRef::lock(0, b"k");
        let permit_in_flight = |waiter| PermitInFlight {
            waiter: WaiterId(waiter),
            seq: Seq::new(waiter).unwrap(),
            since_ms: 0,
            token: Token::new(waiter).unwrap(),
            end_ms: 1_000,
            is_lost: false,
        };
        let mut in_flight = PermitsInFlight::default();
        in_flight.insert(key.to_id(), b"id"[..].into(), permit_in_flight(1));
        in_flight.insert(key.to_id(), b"id"[..].into(), permit_in_flight(2));
        assert!(!in_flight.delivered(WaiterId(1)));
        assert_eq!(
            in_flight.lost(WaiterId(2)).unwrap().2,
            permit_in_flight(2).token
        );
        assert_eq!(in_flight.lost_end(key, b"id"), Some(1_000));
    }
}
