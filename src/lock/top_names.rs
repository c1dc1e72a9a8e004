//! The names of one kind of resource that wait longest and that are handed off most (setting `lock.top-names`).
//!
//! The names with the highest sums are found in bounded memory by the algorithm Space-Saving (Metwally, Agrawal and
//! El Abbadi, 2005), with weights.
//!
//! A name that is not counted yet replaces the one with the lowest sum, and takes over that sum as its error. So a
//! sum is never too low, it is too high by its error at most, and no error exceeds the total divided by the number of
//! names. Every name whose true sum is higher than that is counted.

use std::collections::BTreeSet;

use crate::lock::name::KeyMap;
use crate::lock::table::give_back;
use crate::lock::{KeyId, KeyRef, Now, Resource};

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

/// A longer name is not counted: so the number of names bounds their memory.
const LONGEST_NAME: usize = 1_024;

/// What is known of a name: its true sum is from `sum - error` to `sum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// The sum, at most this.
    pub sum: u64,
    /// How much of it may be due to other names.
    pub error: u64,
}

/// The names with the highest sums.
#[derive(Debug, Default)]
pub(crate) struct SpaceSaving {
    /// The most names.
    room: usize,
    /// The sum of the name that was removed last, never lower than one that was removed before: at most this is missing
    /// from the sum of a new name.
    removed: u64,
    total: u64,
    sums: KeyMap<Sum>,
    by_sum: BTreeSet<(u64, KeyId)>,
}

impl SpaceSaving {
    /// Changes the number of names. Of more than that, those with the lowest sums are removed.
    pub fn set_room(&mut self, room: usize) {
        self.room = room;
        self.keep(room);
        give_back(&mut self.sums);
    }

    /// The most names.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The sum over all names, also those that are not counted any more.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds to the sum of a name.
    pub fn add(&mut self, key: KeyRef<'_>, weight: u64) {
        if self.room == 0 || weight == 0 || key.name.len() > LONGEST_NAME {
            return;
        }
        self.total = self.total.saturating_add(weight);
        if let Some((_, id, known)) = self.sums.get_full_mut(&key) {
            self.by_sum.remove(&(known.sum, id.clone()));
            known.sum = known.sum.saturating_add(weight);
            self.by_sum.insert((known.sum, id.clone()));
            return;
        }
        self.keep(self.room - 1);
        let (id, error) = (key.to_id(), self.removed);
        let sum = error.saturating_add(weight);
        self.by_sum.insert((sum, id.clone()));
        self.sums.insert(id, Sum { sum, error });
    }

    /// The names with their sums, highest first.
    pub fn highest(&self) -> impl Iterator<Item = (KeyRef<'_>, Sum)> {
        let ids = self.by_sum.iter().rev();
        ids.filter_map(|(_, id)| Some((id.as_ref(), *self.sums.get(id)?)))
    }

    fn keep(&mut self, most: usize) {
        while self.sums.len() > most {
            let Some((sum, id)) = self.by_sum.pop_first() else {
                return;
            };
            self.removed = sum;
            self.sums.swap_remove(&id);
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u16, u64),
        Room(usize),
    }

    fn key(name: &[u8]) -> KeyRef<'_> {
        KeyRef::lock(0, name)
    }

    /// Few names often and many seldom, and changes of the room.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (0u16..8, 0u64..1_000).prop_map(|(name, weight)| Step::Add(name, weight)),
            8 => (0u16..500, 0u64..20).prop_map(|(name, weight)| Step::Add(name, weight)),
            1 => (1usize..30).prop_map(Step::Room),
        ];
        proptest::collection::vec(step, 0..1_500)
    }

    proptest! {
        #[test]
        fn a_true_sum_is_within_the_error_and_no_high_one_is_missing(first in 1usize..30, steps in steps()) {
            let mut counted = SpaceSaving::default();
            counted.set_room(first);
            let (mut least_room, mut truth) = (first, BTreeMap::<u16, u64>::new());
            for step in steps {
                match step {
                    Step::Add(name, weight) => {
                        counted.add(key(&name.to_be_bytes()), weight);
                        *truth.entry(name).or_default() += weight;
                    }
                    Step::Room(room) => {
                        counted.set_room(room);
                        least_room = least_room.min(room);
                    }
                }
                prop_assert!(counted.sums.len() <= counted.room());
                prop_assert_eq!(counted.sums.len(), counted.by_sum.len());
            }
            let total: u64 = truth.values().sum();
            prop_assert_eq!(counted.total(), total);
            let mut last = u64::MAX;
            for (id, Sum { sum, error }) in counted.highest() {
                prop_assert!(sum <= last, "highest first");
                last = sum;
                let name = u16::from_be_bytes([id.name[0], id.name[1]]);
                let true_sum = truth.remove(&name).unwrap_or(0);
                prop_assert!((sum - error..=sum).contains(&true_sum), "{true_sum}: {sum} - {error}");
                prop_assert!(error <= total / least_room as u64);
            }
            for missing in truth.into_values() {
                prop_assert!(missing <= counted.removed && missing <= total / least_room as u64);
            }
        }
    }

    #[test]
    fn one_name_of_many_is_found_in_bounded_memory() {
        let mut counted = SpaceSaving::default();
        counted.set_room(20);
        for number in 0u32..100_000 {
            counted.add(key(&number.to_be_bytes()), 1);
            if number % 10 == 0 {
                counted.add(key(b"hot"), 1);
            }
        }
        let (hot, sum) = counted.highest().next().unwrap();
        assert_eq!((hot.name, counted.total()), (b"hot".as_slice(), 110_000));
        assert!((10_000..=15_500).contains(&sum.sum), "{sum:?}");
        let entries = counted.highest().count();
        assert!(entries == 20 && counted.sums.capacity() < 100, "{entries}");
    }

    #[test]
    fn a_long_name_and_a_weight_of_zero_are_not_counted() {
        let mut counted = SpaceSaving::default();
        counted.add(key(b"off"), 1);
        counted.set_room(2);
        counted.add(key(&[b'x'; LONGEST_NAME + 1]), 9);
        counted.add(key(b"nothing"), 0);
        assert_eq!((counted.highest().count(), counted.total()), (0, 0));
        counted.add(key(&[b'x'; LONGEST_NAME]), 9);
        assert_eq!((counted.highest().count(), counted.total()), (1, 9));
    }
}
