//! UNSETTLED

use crate::lock::table::give_back;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, Mode, Now};

impl Waiters {
    /// Something happened to this key from outside. Answers whether anybody cares.
    pub fn schedule_settle(&mut self, key: KeyRef<'_>) -> bool {
        match self.waited.get_key_value(&key) {
            Some((id, waited)) if waited.queue.live() > 0 => {
                self.unsettled.insert(id.clone());
                true
            }
            _ => false,
        }
    }

    /// The first of this waited has left without being granted. Whoever is the first now may enter beside
    /// readers, or wait for other leases: the key is to be settled.
    pub(super) fn schedule_settle_next(&mut self, key: &KeyId) {
        let Some(waited) = self.waited.get_mut(key) else {
            return;
        };
        let first = waited.queue.first_live();
        let first = first.and_then(|seq| waited.queue.waiter(seq));
        if first.is_some_and(|waiter| waiter.mode != Mode::Exclusive) {
            self.unsettled.insert(key.clone());
        }
    }

    /// Something else than a lock stands at a key that this request waits for.
    pub fn schedule_settle_waiter(&mut self, waiter: WaiterId) {
        if let Some(many) = self.many.get(&waiter) {
            let keys = many.places.iter().map(|(key, _)| key.clone());
            self.unsettled.extend(keys);
        } else if let Some((key, _)) = self.by_id.get(&waiter) {
            self.unsettled.insert(key.clone());
        }
    }

    /// Something happened to a whole database (`None`: to all of them). As with [`Waiters::schedule_settle`],
    /// keys for which only empty places are kept are of no interest.
    pub fn schedule_settle_all(&mut self, db: Option<i32>) {
        let waited = self.waited.iter().filter(|(id, waited)| {
            waited.queue.live() > 0 && db.is_none_or(|db| id.as_ref().db == db)
        });
        self.unsettled.extend(waited.map(|(id, _)| id.clone()));
    }

    /// Marks a key to be settled whether or not somebody waits for it.
    pub fn schedule_settle_id(&mut self, key: KeyId) {
        self.unsettled.insert(key);
    }

    /// Nothing that was touched is to be settled any more.
    pub fn forget_unsettled(&mut self) {
        self.unsettled_requests.clear();
        for keys in [&mut self.unsettled, &mut self.postponed, &mut self.retrying] {
            keys.clear();
            give_back(keys);
        }
    }

    /// Whether this key is to be read again before it is known what it holds.
    pub(crate) fn is_to_be_settled(&self, key: KeyRef<'_>) -> bool {
        let sets = [&self.unsettled, &self.postponed, &self.retrying];
        sets.iter().any(|set| set.contains(&key))
    }

    /// Whether this key was touched; it is to be settled at once instead.
    pub fn take_unsettled(&mut self, key: KeyRef<'_>) -> bool {
        let was_unsettled = !self.unsettled.is_empty() && self.unsettled.swap_remove(&key);
        give_back(&mut self.unsettled);
        was_unsettled
    }

    /// The next key to be settled: it was touched, or its lease is over.
    pub fn pop_unsettled(&mut self, now: Now) -> Option<KeyId> {
        if let Some(key) = self.unsettled.swap_remove_index(0) {
            give_back(&mut self.unsettled);
            return Some(key);
        }
        let (_, key) = self.leases.first().filter(|(end, _)| *end <= now.wall_ms)?;
        let key = key.clone();
        self.set_lease(key.as_ref(), None);
        Some(key)
    }

    /// A grant of this key is due, but writes to it are refused for now.
    pub fn postpone(&mut self, key: KeyId) {
        self.postponed.insert(key);
    }

    /// Keys that stand back are looked at at once: perhaps nothing is due at them any more.
    pub fn schedule_postponed(&mut self) {
        for keys in [&mut self.postponed, &mut self.retrying] {
            self.unsettled.extend(keys.drain(..));
            give_back(keys);
        }
    }

    /// Whether keys stand back because writes to them were refused.
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty() || !self.retrying.is_empty()
    }

    /// The next key that stands back.
    pub fn pop_postponed(&mut self) -> Option<KeyId> {
        if self.retrying.is_empty() {
            std::mem::swap(&mut self.retrying, &mut self.postponed);
        }
        let key = self.retrying.pop();
        give_back(&mut self.retrying);
        key
    }
}
