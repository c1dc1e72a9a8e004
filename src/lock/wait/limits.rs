//! The limits on what waits use, and the share of them that one user may have.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::BuildHasherDefault;

use crate::lock::wait::request::OwnNumber;
use crate::lock::UserId;

/// The limits in force, from the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most places of parked requests on this server.
    pub max_waiters: usize,
    /// The most places of parked requests on one key.
    pub max_waiters_per_key: usize,
    /// The most places of tickets on this server.
    pub max_tickets: usize,
    /// The most bytes of all places on this server.
    pub max_wait_bytes: usize,
    /// What one user may have of these places and bytes, of the kept places, and of the holds that are bound or wait
    /// to be, in percent of what the other users leave.
    pub user_share: usize,
    /// The most tracked grants.
    pub max_tracked: usize,
}

impl Limits {
    /// Whether they exclude a request that needs so much more: the server has not so much left, or the user would have
    /// more than its share.
    pub(crate) fn exclude(&self, used: Used, needs: Usage) -> bool {
        let needs = [needs.parked, needs.tickets, needs.bytes];
        let mut parts = self.allowed(used).into_iter().zip(needs);
        parts.any(|((own, allowed), needs)| needs > 0 && own + needs > allowed)
    }

    /// How much a user has of what it may have, in percent, as [`Limits::allowed`].
    pub(crate) fn percents_used(&self, used: Used) -> [u64; 3] {
        self.allowed(used)
            .map(|(own, allowed)| match own < allowed {
                true => own as u64 * 100 / allowed as u64,
                false => 100 * u64::from(own > 0),
            })
    }

    /// What a user has, and what it may have while the others use what they do: of the places of parked requests, of
    /// those of tickets, of bytes.
    fn allowed(&self, Used { own, all }: Used) -> [(usize, usize); 3] {
        [
            (self.max_waiters, own.parked, all.parked),
            (self.max_tickets, own.tickets, all.tickets),
            (self.max_wait_bytes, own.bytes, all.bytes),
        ]
        .map(|(most, own, all)| {
            let left = most.saturating_sub(all.saturating_sub(own));
            (own, share(left, self.user_share))
        })
    }
}

/// What a user may have of what the other users leave: one at least.
pub(crate) fn share(left: usize, percent: usize) -> usize {
    let share = left / 100 * percent + left % 100 * percent / 100;
    share.max(1).min(left)
}

/// How many things of one sort each user has.
#[derive(Debug, Default)]
pub(crate) struct CountByUser {
    by_user: HashMap<UserId, usize, BuildHasherDefault<OwnNumber>>,
    all: usize,
}

impl CountByUser {
    /// Those of this user.
    pub fn of(&self, user: UserId) -> usize {
        self.by_user.get(&user).copied().unwrap_or_default()
    }

    /// Those of all users.
    pub fn all(&self) -> usize {
        self.all
    }

    /// The users that have some.
    pub fn users(&self) -> impl Iterator<Item = UserId> + '_ {
        self.by_user.keys().copied()
    }

    /// This user has one more.
    pub fn add(&mut self, user: UserId) {
        *self.by_user.entry(user).or_default() += 1;
        self.all += 1;
    }

    /// This user has one less.
    pub fn remove(&mut self, user: UserId) {
        if let Entry::Occupied(mut own) = self.by_user.entry(user) {
            *own.get_mut() -= 1;
            self.all -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// What waits use, or what a request needs in order to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Places of parked requests.
    pub parked: usize,
    /// Places of tickets.
    pub tickets: usize,
    /// Empty places that are kept for their owners.
    pub kept: usize,
    /// Bytes of places, also of empty ones.
    pub bytes: usize,
    /// Places of requests with `SESSION`: holds that are bound when they are granted.
    pub sessions: usize,
}

/// The usage of one user among that of all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// By the user.
    pub own: Usage,
    /// By all users.
    pub all: Usage,
}

impl Usage {
    /// A place with names of so many bytes: the key, the owner, the channel, the tag and the note.
    pub fn place(is_ticket: bool, names: usize) -> Usage {
        /// Without its names a place takes about so many bytes; one at a key of its own up to 450 more.
        const PLACE: usize = 256;
        Usage {
            parked: usize::from(!is_ticket),
            tickets: usize::from(is_ticket),
            kept: 0,
            bytes: PLACE + names,
            sessions: 0,
        }
    }

    /// With the hold that is to be bound, if the request asks for a session.
    pub fn binding(self, session: bool) -> Usage {
        Usage {
            sessions: usize::from(session),
            ..self
        }
    }

    /// Of an empty place.
    pub fn kept(names: usize) -> Usage {
        Usage {
            parked: 0,
            kept: 1,
            ..Usage::place(false, names)
        }
    }

    /// Both together.
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            parked: self.parked + other.parked,
            tickets: self.tickets + other.tickets,
            kept: self.kept + other.kept,
            bytes: self.bytes + other.bytes,
            sessions: self.sessions + other.sessions,
        }
    }

    /// Without a part that it has.
    pub fn minus(self, part: Usage) -> Usage {
        debug_assert_eq!(
            self.without(part).plus(part),
            self,
            "more returned than taken"
        );
        self.without(part)
    }

    /// Without what it has of another usage.
    pub fn without(self, other: Usage) -> Usage {
        Usage {
            parked: self.parked.saturating_sub(other.parked),
            tickets: self.tickets.saturating_sub(other.tickets),
            kept: self.kept.saturating_sub(other.kept),
            bytes: self.bytes.saturating_sub(other.bytes),
            sessions: self.sessions.saturating_sub(other.sessions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::tests::sim::Settings;

    /// The places that users get who come one after the other and each take what they can.
    fn greedy(max_tickets: usize, user_share: usize) -> Vec<usize> {
        let limits = Limits {
            max_tickets,
            user_share,
            max_wait_bytes: usize::MAX,
            ..Settings::default().limits
        };
        let mut all = Usage::default();
        let mut got = Vec::new();
        while got.last() != Some(&0) {
            let mut own = Usage::default();
            let one = Usage::place(true, 10);
            while !limits.exclude(Used { own, all }, one) {
                (own, all) = (own.plus(one), all.plus(one));
            }
            got.push(own.tickets);
        }
        got
    }

    #[test]
    fn a_user_gets_its_share_of_what_the_others_leave() {
        assert_eq!(greedy(100, 50), [50, 25, 12, 6, 3, 2, 1, 1, 0]);
        assert_eq!(greedy(100, 100), [100, 0]);
        assert_eq!(greedy(10, 90), [9, 1, 0]);
        assert_eq!(greedy(1, 50), [1, 0]);
        assert_eq!(greedy(0, 50), [0]);
    }

    #[test]
    fn a_user_is_at_100_percent_when_it_is_refused_more() {
        let places = |tickets| Usage {
            tickets,
            ..Usage::default()
        };
        for (max_tickets, user_share, others, allowed) in [
            (100, 100, 0, 100),
            (100, 50, 0, 50),
            (100, 50, 60, 20),
            (100, 50, 99, 1),
            (0, 50, 0, 0),
        ] {
            let limits = Limits {
                max_tickets,
                user_share,
                ..Settings::default().limits
            };
            for own in 0..=allowed + 1 {
                let (own, all) = (places(own), places(own + others));
                let used = Used { own, all };
                let percent = limits.percents_used(used)[1] as usize;
                if own.tickets > 0 {
                    assert_eq!(percent == 100, limits.exclude(used, places(1)), "{used:?}");
                    assert_eq!(
                        percent,
                        (own.tickets * 100 / allowed.max(1)).min(100),
                        "{used:?}"
                    );
                }
            }
            let nothing = Used {
                own: places(0),
                all: places(others),
            };
            assert_eq!(limits.percents_used(nothing), [0; 3]);
        }
    }
}
