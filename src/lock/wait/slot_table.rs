//! A table of slots: an index to values that are stored elsewhere, with one number of four bytes for each.
//!
//! The caller computes the hash and compares the values. The table consists of shards of different sizes, which
//! therefore grow and shrink at different moments: no event has to hash more than some thousand values again.

use hashbrown::HashTable;

use crate::lock::wait::arena::Slot;

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

    /// Adds a slot that is not in the table. `rehash` computes the hash of any slot in it.
    pub fn insert(&mut self, hash: u64, slot: Slot, rehash: impl Fn(Slot) -> u64) {
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, HashTable::new);
        }
        if let Some(shard) = self.shards.get_mut(shard_of(hash)) {
            shard.insert_unique(hash, slot, |slot| rehash(*slot));
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

    /// Removes a slot, while its value is still there for `rehash`. Returns whether it was in the table.
    pub fn remove(&mut self, hash: u64, slot: Slot, rehash: impl Fn(Slot) -> u64) -> bool {
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
            shard.shrink_to(shard.len() * 2, |slot| rehash(*slot));
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

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
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
    }
}
