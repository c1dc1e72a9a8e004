//! Values at numbered slots, in chunks: a store for many small values that no event has to move.
//!
//! A vector would be copied whole when it grows, which takes the server tens of milliseconds at a million values. A
//! chunk stays where it is, and its memory is returned when its last value has left. New values take the lowest chunk
//! with room, so that the upper ones become empty.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

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

    /// The values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let entries = self.chunks.iter().flat_map(|chunk| &chunk.entries);
        entries.filter_map(|entry| match entry {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        })
    }

    /// The values of a chunk; `None` behind the last one.
    pub fn chunk(&self, number: usize) -> Option<impl Iterator<Item = &T>> {
        let entries = self.chunks.get(number)?.entries.iter();
        Some(entries.filter_map(|entry| match entry {
            Entry::Used(value) => Some(value),
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
    }
}
