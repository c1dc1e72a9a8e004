//! Numbers for the names of users: the core compares users, and stores one with every waiter.

use std::collections::HashMap;
use std::hash::RandomState;
use std::rc::Rc;

use indexmap::IndexMap;

use crate::lock::{step_below, UserId};

/// The users whose requests may have waited.
#[derive(Default)]
pub struct Users {
    by_name: IndexMap<Rc<[u8]>, UserId, RandomState>,
    by_number: HashMap<UserId, Rc<[u8]>>,
    last: u32,
    /// The names that are still to be looked for in this round.
    left: usize,
    /// Whether the server has several users, with the moment at which it was asked, in milliseconds of the monotonic
    /// clock.
    pub several: Option<(bool, u64)>,
}

impl Users {
    /// The number of this name, if it has one.
    pub fn number_of(&self, name: &[u8]) -> Option<UserId> {
        self.by_name.get(name).copied()
    }

    /// The name of this user; `None` if it was forgotten.
    pub fn name_of(&self, user: UserId) -> Option<Rc<[u8]>> {
        self.by_number.get(&user).cloned()
    }

    /// Gives a number to a new name.
    pub fn add(&mut self, name: &[u8]) -> UserId {
        self.last = self.last.saturating_add(1);
        let (name, user): (Rc<[u8]>, _) = (name.into(), UserId(self.last));
        self.by_name.insert(name.clone(), user);
        self.by_number.insert(user, name);
        user
    }

    /// The next names of all, some at a time.
    pub fn next_names(&mut self, most: usize) -> Vec<Rc<[u8]>> {
        let below = match self.left {
            0 => usize::MAX,
            left => left,
        };
        let range = step_below(below, self.by_name.len(), most);
        self.left = range.start;
        let names = self.by_name.get_range(range);
        names
            .into_iter()
            .flat_map(|names| names.keys().cloned())
            .collect()
    }

    /// This user does not exist any more. Returns its number: a later user of the same name has another one.
    pub fn forget(&mut self, name: &[u8]) -> Option<UserId> {
        let user = self.by_name.swap_remove(name)?;
        self.by_number.remove(&user);
        Some(user)
    }
}
