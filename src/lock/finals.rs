//! Acquisitions that their owners have given up: a request for one of them that is served late grants nothing.
//!
//! A client that has no answer to an acquire cannot know whether the request is still to be served: the server may have
//! been stopped, or the bytes lie in a socket. It numbers its acquisitions (`SEQ`) and gives one up with a release
//! (`FINAL`). The release ends what was granted, and the number is remembered here for a while: a request of that owner
//! for that name with a number up to it is refused.
//!
//! One user cannot make this server forget the numbers of another: of too many, the oldest of the user that has most is
//! forgotten. So a user keeps its numbers as long as it has no more than an equal part.
//!
//! The numbers concern requests, not data: they stay after `FLUSHALL` and `SWAPDB`, and are not replicated, because a
//! request in the sockets of this server reaches no other.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use crate::lock::name::Secret;
use crate::lock::stats::counters;
use crate::lock::wait::limits::CountByUser;
use crate::lock::{KeyRef, Now, UserId};

/// The rule for final numbers, from the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FinalRule {
    /// `lock.final-time` in milliseconds: how long a number is remembered.
    pub ms: u64,
    /// `lock.max-finals`: how many are, of all users together.
    pub most: usize,
}

counters! {
    /// The final numbers.
    FinalStats
    /// Late requests: refused because their number was final.
    finals_refused,
    /// Numbers forgotten before their time, because there were too many.
    finals_forgotten,
}

/// The final numbers of owners at keys.
#[derive(Debug, Default)]
pub struct Finals {
    pub(super) rule: FinalRule,
    stats: FinalStats,
    names: Secret,
    /// By the hash of key and owner. Two of them with the same hash (one pair in 2^64) share a number: a request of
    /// one may be refused after a release of the other. A tree: it grows and shrinks in small steps.
    numbers: BTreeMap<u64, Final>,
    /// The hash of each by the order in which they were noted.
    order: BTreeMap<u64, u64>,
    /// The same order for each user.
    of_user: BTreeSet<(UserId, u64)>,
    count: CountByUser,
    /// The users by how many they have.
    users: BTreeSet<(usize, UserId)>,
    last: u64,
}

#[derive(Debug, Clone, Copy)]
struct Final {
    number: u64,
    order: u64,
    /// The user that noted it.
    user: UserId,
    /// In milliseconds of the monotonic clock.
    end_ms: u64,
    /// Whether the release has ended what the owner had.
    is_done: bool,
    /// Whether a later acquisition was asked for since then.
    is_passed: bool,
}

impl Finals {
    /// From now on, acquisitions of this owner at this key up to this number are final, noted by this user. Returns
    /// whether the owner's holds and wait end. They do not if this release is a repetition and the owner has asked for
    /// a later acquisition since.
    pub fn note(
        &mut self,
        (key, owner): (KeyRef<'_>, &[u8]),
        (number, user): (u64, UserId),
        now: Now,
    ) -> bool {
        let name = self.names.hash_one((key, owner));
        self.last += 1;
        let mut it = Final {
            number,
            order: self.last,
            user,
            end_ms: now.mono_ms.saturating_add(self.rule.ms),
            is_done: false,
            is_passed: false,
        };
        if let Some(known) = self.remove(name) {
            if now.mono_ms < known.end_ms && number <= known.number {
                (it.number, it.is_passed) = (known.number, known.is_passed);
                it.is_done = known.is_done;
            }
        }
        self.insert(name, it);
        self.forget(now);
        !it.is_passed
    }

    fn insert(&mut self, name: u64, it: Final) {
        self.order.insert(it.order, name);
        self.of_user.insert((it.user, it.order));
        self.numbers.insert(name, it);
        self.recount(it.user, CountByUser::add);
    }

    fn remove(&mut self, name: u64) -> Option<Final> {
        let it = self.numbers.remove(&name)?;
        self.order.remove(&it.order);
        self.of_user.remove(&(it.user, it.order));
        self.recount(it.user, CountByUser::remove);
        Some(it)
    }

    fn recount(&mut self, user: UserId, change: impl FnOnce(&mut CountByUser, UserId)) {
        self.users.remove(&(self.count.of(user), user));
        change(&mut self.count, user);
        let count = self.count.of(user);
        if count > 0 {
            self.users.insert((count, user));
        }
    }

    /// The oldest number of the user that has most.
    fn one_of_too_many(&self) -> Option<u64> {
        let (_, user) = *self.users.last()?;
        let (_, order) = self.of_user.range((user, 0)..).next()?;
        self.order.get(order).copied()
    }

    /// The users of whom a number is remembered.
    pub fn users(&self) -> impl Iterator<Item = UserId> + '_ {
        self.count.users()
    }

    /// The release that noted this has ended what the owner had.
    pub fn done(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(it) = self.numbers.get_mut(&self.names.hash_one((key, owner))) {
            it.is_done = true;
        }
    }

    /// Whether a request with this number is final: it is to be answered as one that is not granted.
    pub fn refuses(&mut self, key: KeyRef<'_>, owner: &[u8], number: u64, now: Now) -> bool {
        if self.numbers.is_empty() {
            return false;
        }
        let known = self.numbers.get_mut(&self.names.hash_one((key, owner)));
        let is_final = known.is_some_and(|it| {
            it.is_passed |= it.is_done && number > it.number;
            number <= it.number && now.mono_ms < it.end_ms
        });
        self.stats.finals_refused += u64::from(is_final);
        is_final
    }

    /// Forgets the numbers whose time is over and, if there are too many, more; at most 1,000 in a call, of which the
    /// server's cron makes ten a second. (Only the oldest number is checked for its time: after `lock.final-time` was
    /// lowered, a newer one stays until the older ones are over.)
    pub fn forget(&mut self, now: Now) {
        for _ in 0..1_000 {
            let Some((_, oldest)) = self.order.first_key_value() else {
                return;
            };
            let ends = self.numbers.get(oldest);
            let over = ends
                .is_some_and(|it| it.end_ms <= now.mono_ms)
                .then_some(*oldest);
            let one = over.or_else(|| match self.order.len() > self.rule.most {
                true => self.one_of_too_many(),
                false => None,
            });
            let Some(one) = one else { return };
            self.stats.finals_forgotten += u64::from(over.is_none());
            self.remove(one);
        }
    }

    /// The fields of `INFO lock`.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let present = [("finals", self.order.len() as u64)];
        present.into_iter().chain(self.stats.fields())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyRef<'_> = KeyRef::lock(0, b"k");
    const ONE: UserId = UserId(1);

    fn finals(ms: u64, most: usize) -> Finals {
        Finals {
            rule: FinalRule { ms, most },
            ..Finals::default()
        }
    }

    fn present(finals: &mut Finals, now: Now) -> Vec<u64> {
        finals.forget(now);
        finals.fields().map(|(_, value)| value).collect()
    }

    #[test]
    fn numbers_up_to_the_greatest_are_final_for_a_while() {
        let mut finals = finals(60, 10);
        finals.note((KEY, b"o"), (5, ONE), Now::at_mono(0));
        finals.note((KEY, b"o"), (3, ONE), Now::at_mono(10));
        let mut refuses =
            |key, owner, number, ms| finals.refuses(key, owner, number, Now::at_mono(ms));
        assert!(refuses(KEY, b"o", 5, 69) && refuses(KEY, b"o", 1, 69));
        assert!(!refuses(KEY, b"o", 6, 69), "the next acquisition");
        assert!(!refuses(KEY, b"p", 5, 69), "another owner");
        assert!(
            !refuses(KeyRef::lock(1, b"k"), b"o", 5, 69),
            "another database"
        );
        assert!(!refuses(KEY, b"o", 5, 70), "its time is over");
        // A number that is over does not count for the next.
        finals.note((KEY, b"o"), (2, ONE), Now::at_mono(70));
        assert!(!finals.refuses(KEY, b"o", 5, Now::at_mono(70)));
        assert_eq!(present(&mut finals, Now::at_mono(129)), [1, 2, 0]);
        assert_eq!(present(&mut finals, Now::at_mono(130)), [0, 2, 0]);
    }

    #[test]
    fn a_repeated_release_does_not_concern_a_later_acquisition() {
        let mut finals = finals(60, 10);
        assert!(
            finals.note((KEY, b"o"), (1, ONE), Now::at_mono(0))
                && finals.note((KEY, b"o"), (1, ONE), Now::at_mono(0))
        );
        assert!(!finals.refuses(KEY, b"o", 2, Now::at_mono(0)));
        assert!(
            finals.note((KEY, b"o"), (1, ONE), Now::at_mono(0)),
            "the release has failed"
        );
        finals.done(KEY, b"o");
        assert!(!finals.refuses(KEY, b"o", 2, Now::at_mono(1)));
        assert!(
            !finals.note((KEY, b"o"), (1, ONE), Now::at_mono(2)),
            "a repetition"
        );
        assert!(
            finals.refuses(KEY, b"o", 1, Now::at_mono(61)),
            "from then on"
        );
        assert!(finals.note((KEY, b"o"), (2, ONE), Now::at_mono(61)));
    }

    #[test]
    fn the_oldest_of_too_many_is_forgotten() {
        let mut finals = finals(60, 2);
        for (owner, ms) in [(b"a", 0), (b"b", 1), (b"a", 2), (b"c", 3)] {
            finals.note((KEY, owner), (1, ONE), Now::at_mono(ms));
        }
        let refused =
            [b"a", b"b", b"c"].map(|owner| finals.refuses(KEY, owner, 1, Now::at_mono(4)));
        assert_eq!(refused, [true, false, true]);
        assert_eq!(present(&mut finals, Now::at_mono(4)), [2, 2, 1]);
    }

    #[test]
    fn a_user_that_notes_many_makes_none_of_another_forgotten() {
        let (mut finals, now) = (finals(60, 6), Now::at_mono(0));
        let name = |user: u32, number: usize| format!("{user}-{number}");
        let note = |finals: &mut Finals, user: u32, count: usize| {
            for number in 0..count {
                let owner = name(user, number);
                finals.note((KEY, owner.as_bytes()), (1, UserId(user)), now);
            }
        };
        // One user alone has room for all.
        note(&mut finals, 1, 6);
        assert_eq!(present(&mut finals, now), [6, 0, 0]);
        note(&mut finals, 2, 2);
        note(&mut finals, 3, 1);
        note(&mut finals, 1, 100);
        let mut known = |user, numbers: std::ops::Range<usize>| -> Vec<bool> {
            let names = numbers.map(|number| name(user, number));
            let known = |owner: String| finals.refuses(KEY, owner.as_bytes(), 1, now);
            names.map(known).collect()
        };
        assert_eq!(
            (known(2, 0..2), known(3, 0..1)),
            (vec![true; 2], vec![true])
        );
        assert_eq!(known(1, 96..100), [false, true, true, true], "its newest");
        // A third of the room is each user's.
        note(&mut finals, 3, 50);
        note(&mut finals, 2, 2);
        assert_eq!(
            finals.users.iter().map(|of| of.0).collect::<Vec<_>>(),
            [2, 2, 2]
        );
        // The same name is that of the user that noted it last, once.
        finals.note((KEY, name(2, 0).as_bytes()), (2, UserId(3)), now);
        assert_eq!(finals.order.len(), 6);
        assert_eq!(finals.users.iter().map(|of| of.0).sum::<usize>(), 6);
        finals.forget(Now::at_mono(60));
        let empty = (
            finals.of_user.len(),
            finals.users.len(),
            finals.numbers.len(),
        );
        assert_eq!((empty, finals.count.all()), ((0, 0, 0), 0));
    }
}
