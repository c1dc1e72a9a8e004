//! Values at numbered slots, in chunks: a store for many small values that no event has to move.
//!
//! A vector would be copied whole when it grows, which takes the server tens of milliseconds at a million values. A
//! chunk stays where it is, and its memory is returned when its last value has left. New values take the lowest chunk
//! with room, so that the upper ones become empty.
//!
//! A table of slots: an index to values that are stored elsewhere, with one number of four bytes for each.
//!
//! The caller computes the hash and compares the values. The table consists of shards of different sizes, which
//! therefore grow and shrink at different moments: no event has to hash more than some thousand values again.
//!
//! The deadlines of places are a binary heap of slots. Each place knows its position, so that it can be taken out
//! from the middle. Deadlines mostly come in their own order (many waits have the same limit), and then an insertion
//! compares once.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use hashbrown::HashTable;

use crate::lock::table::give_back;
use crate::lock::wait::places::Place;
use crate::lock::wait::request::Seq;

/// The number of a value in an [`Arena`]. It is never 0, which halves the size of a link between values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(NonZeroU32);

impl Slot {
    fn new(chunk: u32, at: u32) -> Slot {
        Slot(NonZeroU32::MIN.saturating_add(chunk * CHUNK + at))
    }

    /// The chunk, and the entry in it.
    fn split(self) -> (usize, usize) {
        let number = self.0.get() - 1;
        ((number / CHUNK) as usize, (number % CHUNK) as usize)
    }
}

/// The values of a chunk.
const CHUNK: u32 = 128;

#[derive(Debug)]
enum Entry<T> {
    Used(T),
    /// Free, with the next free entry of the chunk.
    Free(Option<u32>),
}

#[derive(Debug)]
struct Chunk<T> {
    entries: Vec<Entry<T>>,
    used: u32,
    free: Option<u32>,
}

impl<T> Chunk<T> {
    const EMPTY: Chunk<T> = Chunk {
        entries: Vec::new(),
        used: 0,
        free: None,
    };

    fn insert(&mut self, value: T) -> u32 {
        self.used += 1;
        let entry = Entry::Used(value);
        let Some(at) = self.free else {
            if self.entries.is_empty() {
                self.entries.reserve_exact(CHUNK as usize);
            }
            self.entries.push(entry);
            return self.entries.len() as u32 - 1;
        };
        if let Some(place) = self.entries.get_mut(at as usize) {
            if let Entry::Free(next) = std::mem::replace(place, entry) {
                self.free = next;
            }
        }
        at
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let entry = self.entries.get_mut(at)?;
        if matches!(entry, Entry::Free(_)) {
            return None;
        }
        let removed = std::mem::replace(entry, Entry::Free(self.free));
        self.used -= 1;
        self.free = Some(at as u32);
        match removed {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        }
    }
}

/// A store of values by [`Slot`].
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with room.
    open: BTreeSet<u32>,
    len: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena {
            chunks: Vec::new(),
            open: BTreeSet::new(),
            len: 0,
        }
    }
}

impl<T> Arena<T> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The values with their slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        (0..).map_while(|number| self.chunk(number)).flatten()
    }

    /// Those of a chunk; `None` behind the last one.
    pub fn chunk(&self, number: usize) -> Option<impl Iterator<Item = (Slot, &T)>> {
        let entries = (0..).zip(&self.chunks.get(number)?.entries);
        Some(entries.filter_map(move |(at, entry)| match entry {
            Entry::Used(value) => Some((Slot::new(number as u32, at), value)),
            Entry::Free(_) => None,
        }))
    }

    pub fn get(&self, slot: Slot) -> Option<&T> {
        let (chunk, at) = slot.split();
        match self.chunks.get(chunk)?.entries.get(at)? {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let (chunk, at) = slot.split();
        match self.chunks.get_mut(chunk)?.entries.get_mut(at)? {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    pub fn insert(&mut self, value: T) -> Slot {
        let number = match self.open.first() {
            Some(number) => *number,
            None => {
                let number = self.chunks.len() as u32;
                self.chunks.push(Chunk::EMPTY);
                self.open.insert(number);
                number
            }
        };
        self.len += 1;
        let mut at = 0;
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            at = chunk.insert(value);
            if chunk.used == CHUNK {
                self.open.remove(&number);
            }
        }
        Slot::new(number, at)
    }

    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let (number, at) = slot.split();
        let chunk = self.chunks.get_mut(number)?;
        let was_full = chunk.used == CHUNK;
        let value = chunk.remove(at)?;
        self.len -= 1;
        // The first chunk stays: a single waiter that comes and goes costs no allocation.
        if chunk.used == 0 && number > 0 {
            *chunk = Chunk::EMPTY;
        }
        if was_full {
            self.open.insert(number as u32);
        }
        if self.len == 0 && self.chunks.len() > 1 {
            self.chunks.truncate(1);
            self.chunks.shrink_to_fit();
            self.open = BTreeSet::from([0]);
        }
        Some(value)
    }
}

const SHARDS: usize = 128;

/// A shard with room for at most this many slots keeps its memory.
const SMALL: usize = 16;

/// A larger shard returns memory when fewer than one in this many of its slots are in use.
const SPARSE: usize = 8;

/// Slots by hash.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    /// Empty until the first insertion.
    shards: Vec<HashTable<Slot>>,
    len: usize,
}

impl SlotTable {
    /// The number of slots.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The slot with this hash whose value is the one that is looked for.
    pub fn find(&self, hash: u64, is_it: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let mut is_it = is_it;
        let shard = self.shards.get(shard_of(hash))?;
        shard.find(hash, |slot| is_it(*slot)).copied()
    }

    /// Adds a slot that is not in the table. `hash_of` computes the hash of any slot in it, and of this one.
    pub fn insert(&mut self, slot: Slot, hash_of: impl Fn(Slot) -> u64) {
        let hash = hash_of(slot);
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, HashTable::new);
        }
        if let Some(shard) = self.shards.get_mut(shard_of(hash)) {
            shard.insert_unique(hash, slot, |slot| hash_of(*slot));
            self.len += 1;
        }
    }

    /// Puts a slot in the place of another with the same hash.
    pub fn replace(&mut self, hash: u64, old: Slot, new: Slot) {
        let shard = self.shards.get_mut(shard_of(hash));
        if let Some(slot) = shard.and_then(|shard| shard.find_mut(hash, |slot| *slot == old)) {
            *slot = new;
        }
    }

    /// Removes a slot, while its value is still there for `hash_of`. Returns whether it was in the table.
    pub fn remove(&mut self, slot: Slot, hash_of: impl Fn(Slot) -> u64) -> bool {
        let hash = hash_of(slot);
        let Some(shard) = self.shards.get_mut(shard_of(hash)) else {
            return false;
        };
        let Ok(entry) = shard.find_entry(hash, |other| *other == slot) else {
            return false;
        };
        entry.remove();
        self.len -= 1;
        let room = shard.capacity();
        if room > SMALL && shard.len() < room / SPARSE {
            shard.shrink_to(shard.len() * 2, |slot| hash_of(*slot));
        }
        true
    }
}

/// The shard of a hash. The last one gets twice as many values as the first, and those between them by their position.
/// The tables themselves do not use these bits of the hash at such sizes.
fn shard_of(hash: u64) -> usize {
    let part = f64::from((hash >> 24) as u32) / f64::from(u32::MAX);
    let position = (1.0 + 3.0 * part).sqrt() - 1.0;
    ((position * SHARDS as f64) as usize).min(SHARDS - 1)
}

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<Slot>,
}

impl Deadlines {
    /// The slot with the earliest deadline; of equal ones the place that came first.
    pub fn first(&self) -> Option<Slot> {
        self.heap.first().copied()
    }

    /// Every slot with a deadline, in no defined order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.heap.iter().copied()
    }

    /// Adds the slot of a place with a deadline, which is in no heap.
    pub fn insert(&mut self, places: &mut Arena<Place>, slot: Slot) {
        self.heap.push(slot);
        self.rise(places, self.heap.len());
    }

    /// Takes the slot of a place out. Returns whether it was there.
    pub fn remove(&mut self, places: &mut Arena<Place>, slot: Slot) -> bool {
        let at = places.get(slot).map_or(0, |place| place.in_heap as usize);
        if at == 0 {
            return false;
        }
        let Some(last) = self.heap.pop() else {
            return false;
        };
        if let Some(place) = places.get_mut(slot) {
            place.in_heap = 0;
        }
        if at <= self.heap.len() {
            self.put(places, at, last);
            self.rise(places, at);
            let at = places.get(last).map_or(0, |place| place.in_heap as usize);
            self.sink(places, at);
        }
        give_back(&mut self.heap);
        true
    }

    fn put(&mut self, places: &mut Arena<Place>, at: usize, slot: Slot) {
        if let Some(entry) = self.heap.get_mut(at - 1) {
            *entry = slot;
        }
        if let Some(place) = places.get_mut(slot) {
            place.in_heap = at as u32;
        }
    }

    fn due(&self, places: &Arena<Place>, at: usize) -> Option<(u64, Seq, Slot)> {
        let slot = *self.heap.get(at.checked_sub(1)?)?;
        let place = places.get(slot)?;
        Some((place.due().unwrap_or(u64::MAX), place.seq, slot))
    }

    /// Moves the entry at this position up to where it belongs.
    fn rise(&mut self, places: &mut Arena<Place>, mut at: usize) {
        let Some(own) = self.due(places, at) else {
            return;
        };
        while let Some(parent) = self.due(places, at / 2).filter(|parent| own < *parent) {
            self.put(places, at, parent.2);
            at /= 2;
        }
        self.put(places, at, own.2);
    }

    /// Moves the entry at this position down to where it belongs.
    fn sink(&mut self, places: &mut Arena<Place>, mut at: usize) {
        let Some(own) = self.due(places, at) else {
            return;
        };
        loop {
            let (left, right) = (self.due(places, 2 * at), self.due(places, 2 * at + 1));
            let Some(child) = left.into_iter().chain(right).min().filter(|it| *it < own) else {
                break;
            };
            let below = if left == Some(child) {
                2 * at
            } else {
                2 * at + 1
            };
            self.put(places, at, child.2);
            at = below;
        }
        self.put(places, at, own.2);
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_is_found_at_its_slot(steps in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..2_000)) {
            let mut arena = Arena::default();
            let mut expected = HashMap::new();
            let mut slots: Vec<Slot> = Vec::new();
            for (number, (inserts, which)) in steps.into_iter().enumerate() {
                if inserts || slots.is_empty() {
                    let slot = arena.insert(number);
                    prop_assert!(expected.insert(slot, number).is_none());
                    slots.push(slot);
                } else {
                    let slot = slots.swap_remove(usize::from(which) % slots.len());
                    prop_assert_eq!(arena.remove(slot), expected.remove(&slot));
                    prop_assert_eq!(arena.remove(slot), None);
                }
                prop_assert_eq!(arena.len(), expected.len());
            }
            for (slot, number) in expected {
                prop_assert_eq!(arena.get(slot), Some(&number));
            }
        }
    }

    #[test]
    fn empty_chunks_return_their_memory_and_the_lowest_slots_are_taken_first() {
        let mut arena = Arena::default();
        let slots: Vec<Slot> = (0..10 * CHUNK).map(|number| arena.insert(number)).collect();
        for slot in &slots[(3 * CHUNK as usize)..] {
            arena.remove(*slot);
        }
        let room: usize = arena.chunks.iter().map(|c| c.entries.capacity()).sum();
        assert_eq!(room, 3 * CHUNK as usize);
        arena.remove(slots[5]);
        arena.insert(5);
        assert_eq!(arena.insert(7), Slot::new(3, 0));
        assert_eq!(arena.get(slots[5]), Some(&5));
        for slot in &slots[..=(3 * CHUNK as usize)] {
            arena.remove(*slot);
        }
        assert_eq!((arena.len(), arena.chunks.len()), (0, 1));
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests_of_slot_table {
    use super::*;

    #[test]
    fn shards_differ_in_size_so_that_they_grow_one_after_the_other() {
        let mut sizes = [0u32; SHARDS];
        for number in 0..1_000_000u64 {
            sizes[shard_of(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))] += 1;
        }
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
        let (first, last) = (f64::from(sizes[0]), f64::from(sizes[SHARDS - 1]));
        assert!((1.9..2.1).contains(&(last / first)), "{first} and {last}");
        assert_eq!(shard_of(u64::MAX), SHARDS - 1);
    }

    #[test]
    fn a_table_that_becomes_empty_returns_its_memory() {
        let mut table = SlotTable::default();
        let hash = |slot: Slot| u64::from(slot.0.get()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let slots: Vec<Slot> = (0..10_000).map(|at| Slot::new(0, at)).collect();
        for slot in &slots {
            table.insert(*slot, hash);
        }
        let room = |table: &SlotTable| {
            table
                .shards
                .iter()
                .map(|shard| shard.capacity())
                .sum::<usize>()
        };
        assert!(room(&table) >= 10_000);
        for slot in &slots {
            assert!(table.remove(*slot, hash));
        }
        assert_eq!(table.len(), 0);
        assert!(room(&table) < SHARDS * SMALL, "{}", room(&table));
    }
}
