//! The limits on what is kept in memory, and the share of them that one user may have.

use crate::lock::wait::ticket::Notify;
use crate::lock::wait::usage::{Usage, Used};
use crate::lock::wait::waiters::Waiters;
use crate::lock::KeyRef;

/// The limits in force, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most places of parked requests on this server.
    pub max_waiters: usize,
    /// The most places of parked requests on one key.
    pub max_waiters_per_key: usize,
    /// The most places of tickets on this server.
    pub max_tickets: usize,
    /// The most bytes of all places on this server.
    pub max_wait_bytes: usize,
    /// What one user may have of these places and bytes, in percent of what the other users leave.
    pub user_share: usize,
    /// The most tracked grants.
    pub max_tracked: usize,
}

impl Limits {
    /// Whether they exclude a request that would wait at this key, unless it continues an earlier one of its kind.
    pub(crate) fn exclude_at(
        &self,
        used: Used,
        waiters: &Waiters,
        (key, owner): (KeyRef<'_>, &[u8]),
        notify: Option<Notify<'_>>,
    ) -> bool {
        let is_ticket = notify.is_some();
        let names = key.name.len() + owner.len() + notify.map_or(0, |notify| notify.len());
        let full = !is_ticket && waiters.parked_on(key) >= self.max_waiters_per_key;
        (full || self.exclude(used, Usage::place(is_ticket, names)))
            && waiters.kind_of(key, owner) != Some(is_ticket)
    }

    /// Whether they exclude a request that needs so much more: the server has not so much left, or the user would have
    /// more than its share.
    pub(crate) fn exclude(&self, used: Used, needs: Usage) -> bool {
        let Used { own, all } = used;
        [
            (self.max_waiters, own.parked, all.parked, needs.parked),
            (self.max_tickets, own.tickets, all.tickets, needs.tickets),
            (self.max_wait_bytes, own.bytes, all.bytes, needs.bytes),
        ]
        .into_iter()
        .any(|(most, own, all, needs)| {
            let left = most.saturating_sub(all - own.min(all));
            needs > 0 && own + needs > self.share(left)
        })
    }

    /// What a user may have of what the other users leave: one at least.
    fn share(&self, left: usize) -> usize {
        let share = left / 100 * self.user_share + left % 100 * self.user_share / 100;
        share.max(1).min(left)
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
}
