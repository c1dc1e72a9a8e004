//! Work that is due, in turns by user: what one user makes due delays the work of another by one item, not by all.
//!
//! [`Turns`] has items that are due already, each once, the oldest of a user first. [`Agenda`] has items that become
//! due at a moment. In both each user with due work has one item served, then the next user has one. Work without a
//! user is that of [`UserId::UNKNOWN`].

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};
use std::ops::Bound::{Excluded, Unbounded};

use indexmap::{Equivalent, IndexMap};

use crate::lock::name::Secret;
use crate::lock::table::give_back;
use crate::lock::UserId;

/// Items that are due.
#[derive(Debug)]
pub(crate) struct Turns<T, V = (), S = Secret> {
    order: BTreeMap<(UserId, u64), T>,
    items: IndexMap<T, ((UserId, u64), V), S>,
    /// The user that had the last turn.
    last: UserId,
    /// The number of the newest item.
    number: u64,
}

impl<T, V, S: Default> Default for Turns<T, V, S> {
    fn default() -> Turns<T, V, S> {
        Turns {
            order: BTreeMap::new(),
            items: IndexMap::default(),
            last: UserId::UNKNOWN,
            number: 0,
        }
    }
}

impl<T: Clone + Eq + Hash, V, S: BuildHasher> Turns<T, V, S> {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn contains<Q: Hash + Equivalent<T> + ?Sized>(&self, item: &Q) -> bool {
        !self.items.is_empty() && self.items.contains_key(item)
    }

    /// Adds an item of this user. One that is there keeps its turn, and gets the newer value.
    pub fn insert(&mut self, user: UserId, item: T, value: V) {
        if let Some((_, present)) = self.items.get_mut(&item) {
            *present = value;
            return;
        }
        self.number += 1;
        let at = (user, self.number);
        self.order.insert(at, item.clone());
        self.items.insert(item, (at, value));
    }

    /// Removes an item. Returns whether it was there.
    pub fn remove<Q: Hash + Equivalent<T> + ?Sized>(&mut self, item: &Q) -> bool {
        if self.items.is_empty() {
            return false;
        }
        let Some((at, _)) = self.items.swap_remove(item) else {
            return false;
        };
        self.order.remove(&at);
        give_back(&mut self.items);
        true
    }

    /// The user that follows this one, of those with due items.
    pub fn next_user(&self, after: UserId) -> Option<UserId> {
        let behind = (Excluded((after, u64::MAX)), Unbounded);
        let next = self.order.range(behind).next();
        let ((user, _), _) = next.or_else(|| self.order.first_key_value())?;
        Some(*user)
    }

    /// The oldest item of this user.
    pub fn first_of(&self, user: UserId) -> Option<&T> {
        let mut own = self.order.range((user, 0)..=(user, u64::MAX));
        own.next().map(|(_, item)| item)
    }

    /// Takes the oldest item of this user.
    pub fn pop_of(&mut self, user: UserId) -> Option<(T, V)> {
        let at = *self.order.range((user, 0)..=(user, u64::MAX)).next()?.0;
        let item = self.order.remove(&at)?;
        let (_, value) = self.items.swap_remove(&item)?;
        give_back(&mut self.items);
        Some((item, value))
    }

    /// Takes the oldest item of the next user.
    pub fn pop(&mut self) -> Option<(T, V)> {
        self.last = self.next_user(self.last)?;
        self.pop_of(self.last)
    }

    pub fn clear(&mut self) {
        self.order.clear();
        self.items.clear();
        give_back(&mut self.items);
    }

    /// Takes everything, with its user, in no order of turns.
    #[cfg(test)]
    pub fn drain(&mut self) -> impl Iterator<Item = (UserId, T)> {
        self.items.clear();
        give_back(&mut self.items);
        let order = std::mem::take(&mut self.order);
        order.into_iter().map(|((user, _), item)| (user, item))
    }
}

/// The turns of the users with due items.
#[derive(Debug, Default)]
pub(crate) struct Round<M> {
    /// Nothing is due before this moment. It may be too early, as long as no round has been begun since a removal.
    earliest: Option<M>,
    /// The users with something due then, in their order.
    users: Vec<UserId>,
    /// The moment for which these users were found, in milliseconds of the monotonic clock: others may be due later.
    begun_ms: u64,
    last: UserId,
}

impl<M: Copy + Ord> Round<M> {
    /// A moment at which nothing earlier is due.
    pub fn earliest(&self) -> Option<M> {
        self.earliest
    }

    /// Something is due at this moment.
    pub fn add(&mut self, moment: M) {
        if self.earliest.is_none_or(|earliest| moment < earliest) {
            self.earliest = Some(moment);
        }
    }

    /// It is known what is due first.
    pub fn set_earliest(&mut self, moment: Option<M>) {
        self.earliest = moment;
    }

    /// The next user. `firsts`: the first moment of each user; `of`: that of one.
    pub fn next<I: Iterator<Item = (UserId, M)>>(
        &mut self,
        now_ms: u64,
        is_due: impl Fn(M) -> bool,
        firsts: impl Fn() -> I,
        of: impl Fn(UserId) -> Option<M>,
    ) -> Option<UserId> {
        self.last = self.next_after(self.last, now_ms, is_due, firsts, of)?;
        Some(self.last)
    }

    /// The user that follows this one.
    fn next_after<I: Iterator<Item = (UserId, M)>>(
        &mut self,
        after: UserId,
        now_ms: u64,
        is_due: impl Fn(M) -> bool,
        firsts: impl Fn() -> I,
        of: impl Fn(UserId) -> Option<M>,
    ) -> Option<UserId> {
        let mut is_new = now_ms != self.begun_ms;
        loop {
            if is_new || self.users.is_empty() {
                if !self.earliest.is_some_and(&is_due) {
                    return None;
                }
                self.earliest = firsts().map(|(_, first)| first).min();
                let due = firsts().filter(|(_, first)| is_due(*first));
                self.users = due.map(|(user, _)| user).collect();
                self.users.sort_unstable();
                (self.begun_ms, is_new) = (now_ms, false);
            }
            let behind = self.users.partition_point(|user| *user <= after);
            let at = if behind < self.users.len() { behind } else { 0 };
            let user = *self.users.get(at)?;
            if of(user).is_some_and(&is_due) {
                return Some(user);
            }
            self.users.remove(at);
        }
    }
}

/// Items that become due at a moment.
#[derive(Debug)]
pub(crate) struct Agenda<M, T> {
    /// Those of a user, which has some.
    users: BTreeMap<UserId, BTreeSet<(M, T)>>,
    len: usize,
    round: Round<M>,
}

impl<M: Default, T> Default for Agenda<M, T> {
    fn default() -> Agenda<M, T> {
        Agenda {
            users: BTreeMap::new(),
            len: 0,
            round: Round::default(),
        }
    }
}

impl<M: Copy + Ord, T: Clone + Ord> Agenda<M, T> {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Nothing is due before this moment.
    pub fn earliest(&self) -> Option<M> {
        self.round.earliest()
    }

    pub fn insert(&mut self, user: UserId, moment: M, item: T) {
        if self.users.entry(user).or_default().insert((moment, item)) {
            self.len += 1;
            self.round.add(moment);
        }
    }

    /// Removes an item, if it is there.
    pub fn remove(&mut self, user: UserId, moment: M, item: T) {
        let is_only = self.users.len() == 1;
        let Some(of_user) = self.users.get_mut(&user) else {
            return;
        };
        if !of_user.remove(&(moment, item)) {
            return;
        }
        self.len -= 1;
        if is_only || self.len == 0 {
            self.round
                .set_earliest(of_user.first().map(|(first, _)| *first));
        }
        if of_user.is_empty() {
            self.users.remove(&user);
        }
    }

    /// The user that follows this one, of those with due items.
    pub fn next_user(
        &mut self,
        after: UserId,
        now_ms: u64,
        is_due: impl Fn(M) -> bool,
    ) -> Option<UserId> {
        let users = &self.users;
        let first = |items: &BTreeSet<(M, T)>| items.first().map(|(first, _)| *first);
        let firsts = || {
            let firsts = users.iter();
            firsts.filter_map(move |(user, items)| Some((*user, first(items)?)))
        };
        let of = |user: UserId| first(users.get(&user)?);
        self.round.next_after(after, now_ms, is_due, firsts, of)
    }

    /// Takes the first item of this user.
    pub fn pop_of(&mut self, user: UserId) -> Option<(M, T)> {
        let (moment, item) = self.users.get(&user)?.first()?.clone();
        self.remove(user, moment, item.clone());
        Some((moment, item))
    }

    /// Takes the first item of the next user that has a due one.
    pub fn pop(&mut self, now_ms: u64, is_due: impl Fn(M) -> bool) -> Option<(M, T)> {
        self.round.last = self.next_user(self.round.last, now_ms, is_due)?;
        self.pop_of(self.round.last)
    }

    /// The items, in the order of their moments for each user.
    pub fn iter(&self) -> impl Iterator<Item = &(M, T)> {
        self.users.values().flatten()
    }

    /// The number of items whose moment this is or was.
    pub fn due(&self, is_due: impl Fn(M) -> bool + Copy) -> usize {
        let due = |items: &BTreeSet<(M, T)>| items.iter().take_while(|(at, _)| is_due(*at)).count();
        self.users.values().map(due).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn popped(turns: &mut Turns<u32>) -> Vec<u32> {
        std::iter::from_fn(|| turns.pop().map(|(item, ())| item)).collect()
    }

    #[test]
    fn users_have_turns_and_items_of_a_user_are_first_come_first_served() {
        let mut turns: Turns<u32> = Turns::default();
        for (user, items) in [(1, 10..15), (2, 20..22), (3, 30..31)] {
            items.for_each(|item| turns.insert(UserId(user), item, ()));
        }
        turns.insert(UserId(2), 10, ());
        assert_eq!(turns.len(), 8, "an item is there once");
        assert!(turns.remove(&13) && !turns.remove(&13) && turns.contains(&14));
        assert_eq!(popped(&mut turns), [10, 20, 30, 11, 21, 12, 14]);
        assert!(turns.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn a_user_that_adds_for_ever_delays_another_by_one_item() {
        let mut turns: Turns<u32> = Turns::default();
        (0..100).for_each(|item| turns.insert(UserId(7), item, ()));
        assert_eq!(turns.pop(), Some((0, ())));
        turns.insert(UserId(9), 1_000, ());
        turns.insert(UserId(4), 1_001, ());
        turns.insert(UserId(7), 0, ());
        let next: Vec<_> = (0..4).filter_map(|_| Some(turns.pop()?.0)).collect();
        assert_eq!(next, [1_000, 1_001, 1, 2]);
    }

    #[test]
    fn many_moments_of_one_user_delay_another_by_one_item() {
        let mut agenda = Agenda::default();
        for item in 0..1_000 {
            agenda.insert(UserId(1), 10, item);
        }
        agenda.insert(UserId(2), 12, 5_000);
        agenda.insert(UserId(3), 40, 6_000);
        let mut pop = |now: u64| agenda.pop(now, |at| at <= now).map(|(_, item)| item);
        assert_eq!((pop(9), pop(10), pop(10)), (None, Some(0), Some(1)));
        assert_eq!((pop(12), pop(12), pop(12)), (Some(5_000), Some(2), Some(3)));
        assert_eq!((pop(40), pop(40)), (Some(6_000), Some(4)));
        assert_eq!(agenda.due(|at| at <= 40), 995);
        while agenda.pop(40, |at| at <= 40).is_some() {}
        assert!(agenda.is_empty() && agenda.earliest().is_none());
    }

    #[test]
    fn the_earliest_moment_is_never_too_late_and_exact_after_a_round() {
        let mut agenda = Agenda::default();
        for (user, moment) in [(1, 30), (2, 10), (1, 20)] {
            agenda.insert(UserId(user), moment, moment);
        }
        agenda.remove(UserId(2), 10, 10);
        assert_eq!(agenda.earliest(), Some(10), "early is allowed");
        assert_eq!(agenda.pop(15, |at| at <= 15), None);
        assert_eq!(agenda.earliest(), Some(20));
        agenda.remove(UserId(1), 20, 20);
        assert_eq!(agenda.earliest(), Some(30), "the only user");
        agenda.insert(UserId(1), 5, 5);
        assert_eq!(agenda.pop(15, |at| at <= 15), Some((5, 5)));
        assert_eq!(agenda.pop(15, |at| at <= 15), None);
    }

    #[test]
    fn the_next_user_is_the_same_for_all_that_is_due() {
        let (mut turns, mut agenda) = (Turns::<u32>::default(), Agenda::default());
        for user in [1, 3, 5] {
            turns.insert(UserId(user), user, ());
            agenda.insert(UserId(user), u64::from(user), user);
        }
        for (after, next) in [(0, 1), (1, 3), (2, 3), (3, 5), (5, 1), (9, 1)] {
            assert_eq!(turns.next_user(UserId(after)), Some(UserId(next)));
            let due = agenda.next_user(UserId(after), 10, |at| at <= 10);
            assert_eq!(due, Some(UserId(next)));
        }
        assert_eq!(turns.pop_of(UserId(3)), Some((3, ())));
        assert_eq!(turns.next_user(UserId(1)), Some(UserId(5)));
        assert_eq!(agenda.pop_of(UserId(5)), Some((5, 5)));
        let next = agenda.next_user(UserId(3), 10, |at| at <= 10);
        assert_eq!(next, Some(UserId(1)));
        assert_eq!(agenda.next_user(UserId(0), 11, |at| at < 1), None);
    }
}
