//! Acquisitions that their owners have given up: a request for one of them that is served late grants nothing.
//!
//! A client that has no answer to an acquire cannot know whether the request is still to be served: the server may have
//! been stopped, or the bytes lie in a socket. It numbers its acquisitions (`SEQ`) and gives one up with a release
//! (`FINAL`). The release ends what was granted, and the number is remembered here for a while: a request of that owner
//! for that name with a number up to it is refused.
//!
//! The numbers concern requests, not data: they stay after `FLUSHALL` and `SWAPDB`, and are not replicated, because a
//! request in the sockets of this server reaches no other.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use crate::lock::name::Secret;
use crate::lock::stats::counters;
use crate::lock::{KeyRef, Now};

/// The rule for final numbers, from the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FinalRule {
    /// `lock.final-time` in milliseconds: how long a number is remembered.
    pub ms: u64,
    /// `lock.max-finals`: how many are. The oldest is forgotten first.
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
    last: u64,
}

#[derive(Debug, Clone, Copy)]
struct Final {
    number: u64,
    order: u64,
    /// In milliseconds of the monotonic clock.
    end_ms: u64,
    /// Whether the release has ended what the owner had.
    is_done: bool,
    /// Whether a later acquisition was asked for since then.
    is_passed: bool,
}

impl Finals {
    /// From now on, acquisitions of this owner at this key up to this number are final. Returns whether what the owner
    /// has is to end: a release that is served again, after a later acquisition was asked for, does not concern it.
    pub fn note(&mut self, key: KeyRef<'_>, owner: &[u8], number: u64, now: Now) -> bool {
        let name = self.names.hash_one((key, owner));
        self.last += 1;
        let mut it = Final {
            number,
            order: self.last,
            end_ms: now.mono_ms.saturating_add(self.rule.ms),
            is_done: false,
            is_passed: false,
        };
        if let Some(known) = self.numbers.remove(&name) {
            self.order.remove(&known.order);
            if now.mono_ms < known.end_ms && number <= known.number {
                (it.number, it.is_passed) = (known.number, known.is_passed);
                it.is_done = known.is_done;
            }
        }
        self.order.insert(it.order, name);
        self.numbers.insert(name, it);
        self.forget(now);
        !it.is_passed
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

    /// Forgets what is over, and the oldest of too many: a thousand at most in a call, of which the server's cron makes
    /// ten a second. (After a change of the rule a number that
    /// is over may stay behind an older one.)
    pub fn forget(&mut self, now: Now) {
        for _ in 0..1_000 {
            let Some((order, name)) = self.order.first_key_value() else {
                return;
            };
            let is_over = self
                .numbers
                .get(name)
                .is_none_or(|it| it.end_ms <= now.mono_ms);
            if !is_over && self.order.len() <= self.rule.most {
                return;
            }
            self.stats.finals_forgotten += u64::from(!is_over);
            self.numbers.remove(name);
            let order = *order;
            self.order.remove(&order);
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
        finals.note(KEY, b"o", 5, Now::at_mono(0));
        finals.note(KEY, b"o", 3, Now::at_mono(10));
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
        finals.note(KEY, b"o", 2, Now::at_mono(70));
        assert!(!finals.refuses(KEY, b"o", 5, Now::at_mono(70)));
        assert_eq!(present(&mut finals, Now::at_mono(129)), [1, 2, 0]);
        assert_eq!(present(&mut finals, Now::at_mono(130)), [0, 2, 0]);
    }

    #[test]
    fn a_repeated_release_does_not_concern_a_later_acquisition() {
        let mut finals = finals(60, 10);
        assert!(
            finals.note(KEY, b"o", 1, Now::at_mono(0))
                && finals.note(KEY, b"o", 1, Now::at_mono(0))
        );
        assert!(!finals.refuses(KEY, b"o", 2, Now::at_mono(0)));
        assert!(
            finals.note(KEY, b"o", 1, Now::at_mono(0)),
            "the release has failed"
        );
        finals.done(KEY, b"o");
        assert!(!finals.refuses(KEY, b"o", 2, Now::at_mono(1)));
        assert!(!finals.note(KEY, b"o", 1, Now::at_mono(2)), "a repetition");
        assert!(
            finals.refuses(KEY, b"o", 1, Now::at_mono(61)),
            "from then on"
        );
        assert!(finals.note(KEY, b"o", 2, Now::at_mono(61)));
    }

    #[test]
    fn the_oldest_of_too_many_is_forgotten() {
        let mut finals = finals(60, 2);
        for (owner, ms) in [(b"a", 0), (b"b", 1), (b"a", 2), (b"c", 3)] {
            finals.note(KEY, owner, 1, Now::at_mono(ms));
        }
        let refused =
            [b"a", b"b", b"c"].map(|owner| finals.refuses(KEY, owner, 1, Now::at_mono(4)));
        assert_eq!(refused, [true, false, true]);
        assert_eq!(present(&mut finals, Now::at_mono(4)), [2, 2, 1]);
    }
}
