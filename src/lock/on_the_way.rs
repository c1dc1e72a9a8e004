//! Permits on their way to parked clients, of which one key can have many at once.
//!
//! A grant is *delivered* when its reply is written. If the connection dies before that, the permit is
//! given back when the semaphore is settled, unless its holder has shown meanwhile that it knows of it.

use std::collections::HashMap;
use std::rc::Rc;

use super::name::KeyMap;
use super::queue::{Seq, WaiterMap};
use super::table::give_back;
use super::{KeyId, KeyRef, OwnerId, Token, WaiterId};

/// One of them.
#[derive(Debug)]
pub(super) struct Going {
    pub waiter: WaiterId,
    pub seq: Seq,
    pub token: Token,
    /// What the set said of it when it was granted.
    pub end_ms: i64,
    /// Its connection has died.
    pub is_lost: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OnTheWay {
    by_key: KeyMap<HashMap<Rc<[u8]>, Going>>,
    by_waiter: WaiterMap<(KeyId, Rc<[u8]>)>,
}

impl OnTheWay {
    pub fn insert(&mut self, key: KeyId, id: Rc<[u8]>, going: Going) {
        self.by_waiter
            .insert(going.waiter, (key.clone(), id.clone()));
        let former = self.by_key.entry(key).or_default().insert(id, going);
        if let Some(former) = former {
            // Its semaphore went away before it was delivered: that it is says nothing of this one.
            self.by_waiter.remove(&former.waiter);
        }
    }

    /// The reply is written. Answers whether that was of a permit.
    pub fn delivered(&mut self, waiter: WaiterId) -> bool {
        let Some((key, id)) = self.by_waiter.remove(&waiter) else {
            return false;
        };
        give_back(&mut self.by_waiter);
        self.remove(key.as_ref(), &id);
        true
    }

    /// The connection has died: answers the permit, whose semaphore is to be settled.
    pub fn lost(&mut self, waiter: WaiterId) -> Option<(KeyId, Rc<[u8]>, Token)> {
        let (key, id) = self.by_waiter.remove(&waiter)?;
        give_back(&mut self.by_waiter);
        let going = self.by_key.get_mut(&key)?.get_mut(&id)?;
        going.is_lost = true;
        Some((key, id, going.token))
    }

    /// The holder has shown that it knows of its permit.
    pub fn claim(&mut self, key: KeyRef<'_>, id: &[u8]) {
        if let Some(going) = self.remove(key, id) {
            self.by_waiter.remove(&going.waiter);
            give_back(&mut self.by_waiter);
        }
    }

    /// The ids whose connections have died.
    pub fn lost_on(&self, key: KeyRef<'_>) -> Vec<OwnerId> {
        let going = self.by_key.get(&key);
        let lost = going.into_iter().flatten().filter(|(_, one)| one.is_lost);
        lost.map(|(id, _)| OwnerId::from_slice(id)).collect()
    }

    /// The keys with permits whose connections have died.
    pub fn lost_keys(&self) -> impl Iterator<Item = &KeyId> {
        let lost =
            |(_, going): &(&KeyId, &HashMap<_, Going>)| going.values().any(|one| one.is_lost);
        self.by_key.iter().filter(lost).map(|(key, _)| key)
    }

    /// The end of a lost permit.
    pub fn lost_end(&self, key: KeyRef<'_>, id: &[u8]) -> Option<i64> {
        let going = self.by_key.get(&key)?.get(id)?;
        going.is_lost.then_some(going.end_ms)
    }

    /// A lost permit is dealt with.
    pub fn take_lost(&mut self, key: KeyRef<'_>, id: &[u8]) -> Option<Going> {
        self.lost_end(key, id)?;
        self.remove(key, id)
    }

    /// Nothing that was lost is dealt with any more.
    pub fn forget_lost(&mut self) {
        self.by_key.retain(|_, going| {
            going.retain(|_, one| !one.is_lost);
            !going.is_empty()
        });
        give_back(&mut self.by_key);
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, first: i32, second: i32) {
        self.by_key = self
            .by_key
            .drain(..)
            .map(|(key, going)| (key.swapped(first, second), going))
            .collect();
        for (key, _) in self.by_waiter.values_mut() {
            *key = key.swapped(first, second);
        }
    }

    fn remove(&mut self, key: KeyRef<'_>, id: &[u8]) -> Option<Going> {
        let ids = self.by_key.get_mut(&key)?;
        let going = ids.remove(id);
        give_back(ids);
        if ids.is_empty() {
            self.by_key.swap_remove(&key);
            give_back(&mut self.by_key);
        }
        going
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_former_grant_that_is_delivered_says_nothing_of_the_latest() {
        let key = KeyRef { db: 0, name: b"k" };
        let going = |waiter| Going {
            waiter: WaiterId(waiter),
            seq: Seq::new(waiter).unwrap(),
            token: Token::new(waiter).unwrap(),
            end_ms: 1_000,
            is_lost: false,
        };
        let mut on_the_way = OnTheWay::default();
        on_the_way.insert(key.to_id(), b"id"[..].into(), going(1));
        on_the_way.insert(key.to_id(), b"id"[..].into(), going(2));
        assert!(!on_the_way.delivered(WaiterId(1)));
        assert_eq!(on_the_way.lost(WaiterId(2)).unwrap().2, going(2).token);
        assert_eq!(on_the_way.lost_end(key, b"id"), Some(1_000));
    }
}
