//! Numbers for the names of users: the core compares users, and stores one with every waiter.

use std::hash::RandomState;

use indexmap::IndexMap;

use crate::lock::UserId;

/// The users whose requests may have waited.
#[derive(Default)]
pub struct Users {
    by_name: IndexMap<Box<[u8]>, UserId, RandomState>,
    last: u32,
    /// The names that are still to be looked for in this round.
    left: usize,
    /// Whether the server has several users, with the moment at which it was asked, in milliseconds of the monotonic
    /// clock.
    pub several: Option<(bool, u64)>,
}

impl Users {
    /// The number of this name.
    pub fn number_of(&mut self, name: &[u8]) -> UserId {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        self.last = self.last.saturating_add(1);
        self.by_name.insert(name.into(), UserId(self.last));
        UserId(self.last)
    }

    /// The next names of all, some at a time.
    pub fn next_names(&mut self, most: usize) -> Vec<Box<[u8]>> {
        // Downwards: a name that is forgotten is replaced by the last one.
        let end = match self.left {
            0 => self.by_name.len(),
            left => left.min(self.by_name.len()),
        };
        self.left = end.saturating_sub(most);
        let names = self.by_name.get_range(self.left..end);
        names
            .into_iter()
            .flat_map(|names| names.keys().cloned())
            .collect()
    }

    /// This user does not exist any more. Returns its number: a later user of the same name has another one.
    pub fn forget(&mut self, name: &[u8]) -> Option<UserId> {
        self.by_name.swap_remove(name)
    }
}
