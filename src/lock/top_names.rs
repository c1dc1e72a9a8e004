//! The names of one kind of resource that wait longest and that are handed off most (setting `lock.top-names`).

use crate::lock::space_saving::SpaceSaving;
use crate::lock::{KeyRef, Now, Resource};

/// The order of a list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopOrder {
    /// By the time that requests have waited, in milliseconds.
    Waits,
    /// By the number of hand-offs.
    HandOffs,
}

/// The names with the highest sums.
#[derive(Debug)]
pub struct TopList {
    /// How long they have been counted, in milliseconds.
    pub counted_ms: u64,
    /// The sum over all names of the server.
    pub total: u64,
    /// The names, highest sum first.
    pub names: Vec<TopName>,
}

/// A name in a [`TopList`]: its true sum is from `sum - error` to `sum`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopName {
    /// The kind of resource.
    pub resource: Resource,
    /// The name of the key.
    pub name: Vec<u8>,
    /// The sum, at most this.
    pub sum: u64,
    /// How much of it may be due to other names.
    pub error: u64,
}

/// The counts of one kind of resource, in both orders.
#[derive(Debug)]
pub(crate) struct TopNames {
    since_ms: u64,
    waits: SpaceSaving,
    hand_offs: SpaceSaving,
}

impl TopNames {
    /// Counts from now on, in each order up to `room` names.
    pub fn new(room: usize, now: Now) -> TopNames {
        let mut top = TopNames {
            since_ms: now.mono_ms,
            waits: SpaceSaving::default(),
            hand_offs: SpaceSaving::default(),
        };
        top.set_room(room);
        top
    }

    /// Changes the number of names in each order.
    pub fn set_room(&mut self, room: usize) {
        if self.waits.room() != room {
            self.waits.set_room(room);
            self.hand_offs.set_room(room);
        }
    }

    /// Counts a wait that has ended.
    pub fn add_wait(&mut self, key: KeyRef<'_>, waited_ms: u64) {
        self.waits.add(key, waited_ms);
    }

    /// Counts a hand-off.
    pub fn add_hand_off(&mut self, key: KeyRef<'_>) {
        self.hand_offs.add(key, 1);
    }

    fn of(&self, order: TopOrder) -> &SpaceSaving {
        match order {
            TopOrder::Waits => &self.waits,
            TopOrder::HandOffs => &self.hand_offs,
        }
    }

    /// Adds the highest sums of this database, `most` of them, to a list.
    pub fn extend(&self, list: &mut TopList, order: TopOrder, db: i32, most: usize) {
        let sums = self.of(order);
        list.total = list.total.saturating_add(sums.total());
        let of_db = sums.highest().filter(|(key, _)| key.db == db).take(most);
        list.names.extend(of_db.map(|(key, sum)| TopName {
            resource: key.resource,
            name: key.name.to_vec(),
            sum: sum.sum,
            error: sum.error,
        }));
    }

    /// How long names have been counted, in milliseconds.
    pub fn counted_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_sub(self.since_ms)
    }
}
