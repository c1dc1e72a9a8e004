//! The end of all waiters of a key, or of the server, at once: an error, or the opening of a latch.
//!
//! Tickets may be many, and the server must not stand still for them. So a limited number ends in the event, and the
//! others in the next ticks ([`Waiters::end_more`]). No waiter of such a key is granted meanwhile; a request that comes
//! meanwhile waits behind them.

use crate::lock::effect::{Cx, Outcome};
use crate::lock::table::give_back;
use crate::lock::wait::request::{Ending, EndsWith, Waiter};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, LockError};

/// Places of waiters that one decision about the whole server ends at most: a request on several keys has one at each,
/// and ends whole.
pub const ENDED_AT_ONCE: usize = 500;

/// The same of a decision about one key, which a user can make at any time: the end of a ticket costs as much as its
/// channel has subscribers.
const ENDED_OF_KEY: usize = 20;

impl Waiters {
    /// Answers this error to every waiter of a key.
    pub fn fail_all(&mut self, key: KeyRef<'_>, error: &LockError, cx: &mut Cx<'_>) {
        self.end_all(key, EndsWith::Failed(error.clone()), cx);
    }

    /// `LOCK.BREAK ... PURGE`: the waiters under this name for another kind of resource are answered an error. Returns
    /// whether there were any.
    pub fn purge_others(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> bool {
        let mut purged = false;
        for other in key.of_all().filter(|other| other.resource != key.resource) {
            purged |= self.live_on(other) > 0;
            self.fail_all(other, &LockError::Broken, cx);
        }
        purged
    }

    /// Ends every waiter of a key, the first of them at once.
    pub(crate) fn end_all(&mut self, key: KeyRef<'_>, with: EndsWith, cx: &mut Cx<'_>) {
        let Some((_, id, _)) = self.waited.get_full(&key) else {
            return;
        };
        let id = id.clone();
        let last = self.last_place();
        let mut left = ENDED_OF_KEY;
        self.end_some(id, Ending { last, with }, &mut left, cx);
    }

    /// Ends every window, and every waiter, oldest first; if there are many, each key with its own in the next ticks.
    pub(crate) fn fail_everywhere(&mut self, error: &LockError, cx: &mut Cx<'_>) {
        self.windows.end_all();
        self.schedule_postponed();
        if self.live_places() <= ENDED_AT_ONCE {
            let waiters = self.clear_all();
            return self.fail(waiters, error, cx);
        }
        let with = EndsWith::Failed(error.clone());
        let last = self.last_place();
        let ending = Ending { last, with };
        let keys: Vec<KeyId> = self.waited.keys().cloned().collect();
        let endings = keys.into_iter().map(|key| (key, ending.clone()));
        self.endings.extend(endings);
    }

    /// Whether waiters of this key are about to end.
    pub(super) fn is_ending(&self, key: KeyRef<'_>) -> bool {
        !self.endings.is_empty() && self.endings.contains_key(&key)
    }

    /// Ends more of the waiters that are about to end, as long as `left` places are left.
    pub(crate) fn end_more(&mut self, left: &mut usize, cx: &mut Cx<'_>) {
        while *left > 0 {
            let Some((key, ending)) = self.endings.pop() else {
                return;
            };
            give_back(&mut self.endings);
            self.end_some(key, ending, left, cx);
        }
    }

    fn end_some(&mut self, key: KeyId, ending: Ending, left: &mut usize, cx: &mut Cx<'_>) {
        while let Some((place, waiter)) = self.first_live(key.as_ref()) {
            let request = waiter.id;
            if place.seq > ending.last {
                break;
            }
            if *left == 0 {
                self.endings.insert(key, ending);
                return;
            }
            *left = left.saturating_sub(self.places_count(request));
            if matches!(ending.with, EndsWith::Open) {
                self.count_top_wait(place, cx.now.mono_ms);
            }
            let waiter = self.remove(place);
            self.end(waiter, &ending.with, cx);
        }
        match self.live_on(key.as_ref()) {
            0 => drop(self.clear(key.as_ref())),
            _ => drop(self.schedule_settle(key.as_ref())),
        }
    }

    fn end(&mut self, waiter: Option<Waiter>, with: &EndsWith, cx: &mut Cx<'_>) {
        match (waiter, with) {
            (Some(waiter), EndsWith::Open) => {
                self.count_wait(&waiter, cx.now);
                cx.answer(&waiter, Outcome::Open);
            }
            (waiter, EndsWith::Failed(error)) => self.fail(waiter, error, cx),
            (None, EndsWith::Open) => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::lock::wait::request::WaiterId;
    use crate::lock::{Effects, Now};

    const NOW: Now = Now {
        wall_ms: 0,
        wall_sub_us: 0,
        mono_ms: 0,
    };
    const KEY: KeyRef<'_> = KeyRef::lock(0, b"k");

    fn park(waiters: &mut Waiters, number: u64) {
        let waiter = Waiter::new(WaiterId(number), 0, None, NOW);
        let owner = number.to_be_bytes();
        waiters.park(KEY, &owner, waiter, &mut Cx::new(NOW, &mut Effects::new()));
    }

    fn ended(body: impl FnOnce(&mut Cx<'_>)) -> usize {
        let mut fx = Effects::new();
        body(&mut Cx::new(NOW, &mut fx));
        fx.len()
    }

    #[test]
    fn many_waiters_end_in_several_ticks_and_a_later_request_stays() {
        let mut waiters = Waiters::default();
        for number in 1..=2_500 {
            park(&mut waiters, number);
        }
        let at_once = ended(|cx| waiters.fail_all(KEY, &LockError::Broken, cx));
        assert_eq!((at_once, waiters.live()), (20, 2_480));
        park(&mut waiters, 2_501);
        let next = ended(|cx| assert_eq!(waiters.next_to_grant(KEY, cx), None));
        assert_eq!(next, 0, "none is granted while others end");
        for (expected, left) in [(1_000, 1_481), (1_000, 481), (480, 1), (0, 1)] {
            let more = ended(|cx| waiters.end_more(&mut 1_000, cx));
            assert_eq!((more, waiters.live()), (expected, left));
        }
        assert!(!waiters.has_endings());
        assert!(waiters
            .next_to_grant(KEY, &mut Cx::new(NOW, &mut Effects::new()))
            .is_some());
    }

    #[test]
    fn every_waiter_of_the_server_ends_in_several_ticks() {
        let mut waiters = Waiters::default();
        for number in 1..=1_200 {
            park(&mut waiters, number);
        }
        let at_once = ended(|cx| waiters.fail_everywhere(&LockError::Drained, cx));
        let then = ended(|cx| waiters.end_more(&mut 1_000, cx));
        let last = ended(|cx| waiters.end_more(&mut 1_000, cx));
        assert_eq!((at_once, then, last), (0, 1_000, 200));
        assert_eq!(
            waiters.stats[crate::lock::Resource::Lock].waits_failed,
            1_200
        );
    }
}
