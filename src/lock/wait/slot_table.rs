//! A table of slots: an index to values that are stored elsewhere, with one number of four bytes for each.
//!
//! The caller computes the hash and compares the values. The table consists of shards that grow at different moments,
//! so that an event never has to hash more than some thousand values again.

use hashbrown::HashTable;

use crate::lock::wait::arena::Slot;

/// Shards, by bits of the hash that the tables themselves do not use at these sizes.
const SHARDS: usize = 64;
const SHIFT: u32 = 48;

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

fn shard_of(hash: u64) -> usize {
    (hash >> SHIFT) as usize % SHARDS
}
