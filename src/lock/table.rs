//! Tables shrink: the room that many entries needed is not kept after most of them have left.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use indexmap::{IndexMap, IndexSet};

/// A table with room for no more entries than this keeps its room.
const SMALL: usize = 1_000;

/// A larger one gives room back when fewer than one in so many of its entries are in use. It keeps twice what it
/// needs then, so that the cost is shared by the removals that led to it.
const SPARSE: usize = 8;

/// A table that grows by itself.
pub trait Table {
    /// Entries in use.
    fn used(&self) -> usize;
    /// Entries that there is room for.
    fn room(&self) -> usize;
    /// Keeps room for so many.
    fn shrink(&mut self, room: usize);
}

/// Called wherever entries leave a table for good: gives back room that nothing needs.
#[inline(always)]
pub fn give_back<T: Table>(table: &mut T) {
    let room = table.room();
    if room > SMALL && table.used() < room / SPARSE {
        table.shrink(table.used() * 2);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_nearly_empty_gives_its_room_back_and_a_small_one_does_not() {
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
