//! The moments at which the leases of bound holds are renewed.
//!
//! A renewal is *due* when a third of the lease has passed, and *urgent* when half of it has. For urgent renewals the
//! shell has 3 ms in a tick (less if the tick is long, but at least 1 ms), and half of the server's time while no grant
//! waits for them; for others a part of the tick's time. So no lease of a living connection runs out as long as a tick
//! begins in every third of a lease and a sixth of a lease is enough for all renewals. The limit on bound holds is for
//! that ([`SessionRule::max_holds`](super::bindings::SessionRule::max_holds)).

use std::collections::BTreeSet;

use crate::lock::wait::turns::Agenda;
use crate::lock::{Lease, Now, UserId};

/// A lease is renewed when this part of it has passed.
const DUE_AT: u64 = 3;

/// A renewal is urgent when this part of the lease has passed.
const URGENT_AT: u64 = 2;

/// The number of a binding, in the order of binding.
pub(super) type Number = u64;

/// When a renewal is due, and when it is urgent, in milliseconds of the monotonic clock. In the order of urgency, which
/// is not that of the due moments while bound leases have several lengths.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moments {
    urgent_ms: u64,
    due_ms: u64,
}

impl Moments {
    /// Those of a lease that begins now.
    pub fn of(lease: Lease, now: Now) -> Moments {
        let after = |part: u64| (lease.ms().unsigned_abs() / part).max(1);
        Moments {
            due_ms: now.mono_ms.saturating_add(after(DUE_AT)),
            urgent_ms: now.mono_ms.saturating_add(after(URGENT_AT)),
        }
    }
}

/// The renewals to come, those of each user in the order of their moments.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    pending: Agenda<Moments, Number>,
    /// Those that the server has refused: they are tried again after all other due ones.
    refused: BTreeSet<(Moments, Number)>,
    /// None of them is tried again before this moment.
    refused_until_ms: u64,
}

impl Renewals {
    /// Adds a renewal.
    pub fn add(&mut self, user: UserId, moments: Moments, number: Number) {
        self.pending.insert(user, moments, number);
    }

    /// Removes a renewal, if it is there.
    pub fn remove(&mut self, user: UserId, moments: Moments, number: Number) {
        self.pending.remove(user, moments, number);
        self.refused.remove(&(moments, number));
    }

    /// Adds a renewal that was refused: `ms` milliseconds pass before the next attempt.
    pub fn refuse(&mut self, moments: Moments, number: Number, now: Now, ms: u64) {
        self.refused.insert((moments, number));
        self.refused_until_ms = now.mono_ms.saturating_add(ms);
    }

    /// Takes a renewal that is due, the first of the next user; `only_urgent`: only while any is urgent that may be
    /// tried, a refused one or another.
    pub fn pop(&mut self, now: Now, only_urgent: bool) -> Option<Number> {
        let is_urgent = |moments: Moments| moments.urgent_ms <= now.mono_ms;
        let may_try_again = self.refused_until_ms <= now.mono_ms;
        let refused = self.refused.first().copied().filter(|_| may_try_again);
        let any = !only_urgent || refused.is_some_and(|(moments, _)| is_urgent(moments));
        let is_due = |moments: Moments| match any {
            true => moments.due_ms <= now.mono_ms,
            false => is_urgent(moments),
        };
        if let Some((_, number)) = self.pending.pop(now.mono_ms, is_due) {
            return Some(number);
        }
        let refused = refused.filter(|_| any)?;
        self.refused.remove(&refused);
        Some(refused.1)
    }

    /// Milliseconds until the next is due.
    pub fn next_due(&self, now: Now) -> Option<u64> {
        let pending = self.pending.earliest().map(|moments| moments.due_ms);
        let refused = (!self.refused.is_empty()).then_some(self.refused_until_ms);
        let next_ms = pending.into_iter().chain(refused).min()?;
        Some(next_ms.saturating_sub(now.mono_ms))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const USER: UserId = UserId(1);

    /// A renewal of a lease of 600 ms that began at each of these moments, numbered by them.
    fn renewals(begun_ms: &[u64]) -> Renewals {
        let mut renewals = Renewals::default();
        for ms in begun_ms {
            renewals.add(USER, moments(*ms), *ms);
        }
        renewals
    }

    fn moments(begun_ms: u64) -> Moments {
        Moments::of(Lease::from_ms(600).unwrap(), Now::at_mono(begun_ms))
    }

    fn pop_all(renewals: &mut Renewals, now: u64, only_urgent: bool) -> Vec<Number> {
        std::iter::from_fn(|| renewals.pop(Now::at_mono(now), only_urgent)).collect()
    }

    #[test]
    fn a_renewal_is_due_after_a_third_of_the_lease_and_urgent_after_half() {
        let mut renewals = renewals(&[30, 10, 20]);
        assert_eq!(renewals.next_due(Now::at_mono(100)), Some(110));
        assert!(pop_all(&mut renewals, 209, false).is_empty());
        assert_eq!(pop_all(&mut renewals, 220, false), [10, 20]);
        assert!(pop_all(&mut renewals, 329, true).is_empty());
        assert_eq!(pop_all(&mut renewals, 330, true), [30]);
        assert_eq!(renewals.next_due(Now::at_mono(330)), None);
    }

    #[test]
    fn a_tick_without_time_makes_urgent_renewals_only() {
        let mut renewals = renewals(&[10, 20, 30, 40]);
        assert_eq!(pop_all(&mut renewals, 325, true), [10, 20]);
        assert_eq!(renewals.next_due(Now::at_mono(325)), Some(0));
        assert_eq!(pop_all(&mut renewals, 325, false), [30, 40]);
    }

    #[test]
    fn an_urgent_renewal_of_a_short_lease_is_before_a_due_one_of_a_long_lease() {
        let mut renewals = renewals(&[300]);
        let long = Moments::of(Lease::from_ms(1_200).unwrap(), Now::at_mono(0));
        renewals.add(USER, long, 0);
        assert_eq!(renewals.next_due(Now::at_mono(400)), Some(0));
        renewals.add(
            USER,
            Moments::of(Lease::from_ms(60).unwrap(), Now::at_mono(450)),
            450,
        );
        assert_eq!(pop_all(&mut renewals, 480, true), [450]);
    }

    #[test]
    fn refused_renewals_wait_behind_all_others_that_are_due() {
        let mut renewals = renewals(&[10, 20, 30]);
        for begun_ms in [10, 20] {
            assert_eq!(renewals.pop(Now::at_mono(250), false), Some(begun_ms));
            renewals.refuse(moments(begun_ms), begun_ms, Now::at_mono(250), 20);
        }
        // Due again, but behind the others.
        assert_eq!(renewals.pop(Now::at_mono(270), false), Some(30));
        assert_eq!(pop_all(&mut renewals, 270, false), [10, 20]);
    }

    #[test]
    fn a_refused_renewal_that_is_urgent_is_reached_without_time() {
        let mut renewals = renewals(&[10, 60]);
        assert_eq!(renewals.pop(Now::at_mono(300), false), Some(10));
        renewals.refuse(moments(10), 10, Now::at_mono(300), 20);
        assert_eq!(renewals.next_due(Now::at_mono(300)), Some(0));
        assert!(pop_all(&mut renewals, 319, true).is_empty());
        assert_eq!(pop_all(&mut renewals, 320, true), [60, 10]);
    }

    #[test]
    fn urgent_renewals_of_one_user_delay_those_of_another_by_one() {
        let mut renewals = Renewals::default();
        let at = moments(0);
        (0..50).for_each(|number| renewals.add(UserId(1), at, number));
        renewals.add(UserId(2), moments(5), 100);
        let pop = |renewals: &mut Renewals| renewals.pop(Now::at_mono(310), true);
        assert_eq!(pop(&mut renewals), Some(0));
        assert_eq!(pop(&mut renewals), Some(100));
        assert_eq!(pop(&mut renewals), Some(1));
    }
}
