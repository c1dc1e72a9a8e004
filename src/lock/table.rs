//! Tables shrink: the memory of many entries is returned after most of them have been removed. And long ones are walked
//! through in steps.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ops::Range;

use indexmap::{IndexMap, IndexSet};

/// A table with room for at most this many entries keeps its memory.
const SMALL: usize = 1_000;

/// A larger table returns memory when fewer than one in this many of its entries are in use. It keeps twice what it
/// needs, so that the removals before share the cost.
const SPARSE: usize = 8;

/// A growing table.
pub trait Table {
    /// Entries in use.
    fn used(&self) -> usize;
    /// The number of entries that fit without allocation.
    fn room(&self) -> usize;
    /// Reduces the room to this number of entries.
    fn shrink(&mut self, room: usize);
}

/// Returns unused memory. Called wherever entries leave a table for good.
#[inline(always)]
pub fn give_back<T: Table>(table: &mut T) {
    let room = table.room();
    if room > SMALL && table.used() < room / SPARSE {
        table.shrink(table.used() * 2);
    }
}

/// A step of a walk through an index table of this length: at most so many entries below an index. The start of the
/// step is the index for the next one.
///
/// An entry that leaves the table is replaced by the last one, and a new entry becomes the last. So an entry only moves
/// down, and a walk from the last to the first meets every entry that stays.
pub fn step_below(below: usize, len: usize, most: usize) -> Range<usize> {
    let end = below.min(len);
    end.saturating_sub(most)..end
}

macro_rules! table {
    ($table:ty, $($bound:tt)*) => {
        impl<$($bound)*> Table for $table {
            fn used(&self) -> usize {
                self.len()
            }

            fn room(&self) -> usize {
                self.capacity()
            }

            fn shrink(&mut self, room: usize) {
                self.shrink_to(room);
            }
        }
    };
}

table!(HashMap<K, V, S>, K: Eq + Hash, V, S: BuildHasher);
table!(IndexMap<K, V, S>, K: Eq + Hash, V, S: BuildHasher);
table!(IndexSet<K, S>, K: Eq + Hash, S: BuildHasher);
table!(Vec<T>, T);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nearly_empty_table_returns_memory_and_a_small_one_does_not() {
        let mut table: HashMap<u32, u32> = (0..10_000).map(|number| (number, number)).collect();
        table.retain(|number, _| *number < 5_000);
        let room = table.capacity();
        give_back(&mut table);
        assert_eq!(table.capacity(), room, "half full");
        table.retain(|number, _| *number < 600);
        give_back(&mut table);
        assert!(table.capacity() < 3_000 && table.len() == 600);
        table.clear();
        give_back(&mut table);
        assert!(table.capacity() < SMALL);

        let mut small: IndexSet<u32> = (0..500).collect();
        let room = small.capacity();
        small.clear();
        give_back(&mut small);
        assert_eq!(small.capacity(), room);
    }
}
