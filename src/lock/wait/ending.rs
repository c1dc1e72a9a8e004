//! The ends of waits: each is counted, and told to the client.
//!
//! Where all waiters of a key, or of the server, end at once (an error, the opening of a latch), tickets may be many,
//! and the server must not stand still for them. So a limited number ends in the event, and the others in the next
//! ticks ([`Waiters::end_more`]). No waiter of such a key is granted meanwhile; a request that comes meanwhile waits
//! behind them.

use crate::lock::effect::{Cx, Effect, Outcome};
use crate::lock::name::Resource;
use crate::lock::stats::WaitStats;
use crate::lock::wait::places::{At, Kept, Place, TimedOut};
use crate::lock::wait::request::{Ending, PlaceId, Waiter, WaiterId};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, LockError, Mode, Now, UserId};

/// Places of waiters that one decision about the whole server ends at most: a request on several keys has one at each,
/// and ends whole.
pub const ENDED_AT_ONCE: usize = 500;

/// The same of a decision about one key, which a user can make at any time: the end of a ticket costs as much as its
/// channel has subscribers.
const ENDED_OF_KEY: usize = 20;

/// The same of `LOCK.BREAK ... PURGE USER`, an operator's command, which ends them all in the event.
const ENDED_OF_USER: usize = 100;

impl Waiters {
    /// Answers this error to every waiter of a key.
    pub fn fail_all(&mut self, key: KeyRef<'_>, error: &LockError, cx: &mut Cx<'_>) {
        self.end_all(key, Outcome::Failed(error.clone()), cx);
    }

    /// `LOCK.BREAK ... PURGE`: the waiters under this name for another kind of resource are answered an error. Returns
    /// whether there were any.
    pub fn purge_others(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> bool {
        let mut purged = false;
        for other in key.of_all().filter(|other| other.resource != key.resource) {
            purged |= self.waiting_on(other) > 0;
            self.fail_all(other, &LockError::Broken, cx);
        }
        purged
    }

    /// `LOCK.BREAK ... PURGE USER`: requests of this user for this name, of all kinds of resources, are answered an
    /// error, of [`ENDED_OF_USER`] places at most. Returns how many.
    pub fn purge_user(&mut self, key: KeyRef<'_>, user: UserId, cx: &mut Cx<'_>) -> usize {
        let (mut ended, mut left) = (0, ENDED_OF_USER);
        for key in key.of_all() {
            let its = self.waiters_at(key);
            let its = its.filter(|(_, waiter)| waiter.user == user);
            let requests: Vec<WaiterId> = its.map(|(_, waiter)| waiter.id).take(left).collect();
            for request in requests {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(self.places_count(request));
                self.fail_request(request, &LockError::Broken, cx);
                ended += 1;
            }
            self.schedule_settle(key);
        }
        ended
    }

    /// Whether a request of this user waits for this key.
    pub fn has_user(&self, key: KeyRef<'_>, user: UserId) -> bool {
        self.waiters_at(key).any(|(_, waiter)| waiter.user == user)
    }

    /// Ends every waiter of a key, the first of them at once.
    pub(crate) fn end_all(&mut self, key: KeyRef<'_>, with: Outcome, cx: &mut Cx<'_>) {
        let Some((_, id, _)) = self.waited.get_full(&key) else {
            return;
        };
        let id = id.clone();
        let last = self.last_place();
        let mut left = ENDED_OF_KEY;
        self.end_some(id, Ending { last, with }, &mut left, cx);
    }

    /// Whether waiters of this key are about to end.
    pub(super) fn is_ending(&self, key: KeyRef<'_>) -> bool {
        self.endings.contains(&key)
    }

    /// Ends more of the waiters that are about to end, as long as `left` places are left.
    pub(crate) fn end_more(&mut self, left: &mut usize, cx: &mut Cx<'_>) {
        while *left > 0 {
            let Some((key, ending)) = self.endings.pop() else {
                return;
            };
            self.end_some(key, ending, left, cx);
        }
    }

    fn end_some(&mut self, key: KeyId, ending: Ending, left: &mut usize, cx: &mut Cx<'_>) {
        while let Some((place, waiter)) = self.first_live(key.as_ref()) {
            let request = waiter.id;
            if place.seq > ending.last {
                break;
            }
            if !self.passed.has_room(cx.now) {
                *left = 0;
            }
            if *left == 0 {
                let user = self.user_of(key.as_ref());
                self.endings.insert(user, key, ending);
                return;
            }
            *left = left.saturating_sub(self.places_count(request));
            if let Some(waiter) = self.remove(place) {
                self.end(&waiter, &ending.with, cx);
            }
        }
        match self.waiting_on(key.as_ref()) {
            0 => drop(self.clear(key.as_ref())),
            _ => drop(self.schedule_settle(key.as_ref())),
        }
    }

    fn end(&mut self, waiter: &Waiter, with: &Outcome, cx: &mut Cx<'_>) {
        match with {
            Outcome::Open => self.count_wait(waiter, cx.now),
            _ => self.stats_of_waiter(waiter).waits_failed += 1,
        }
        cx.answer(waiter, with.clone());
    }
}

impl Waiters {
    /// Counts a new waiter. The older requests that it replaces, which have left their queues, end.
    pub(crate) fn count_waiter(
        &mut self,
        (key, is_ticket): (KeyRef<'_>, bool),
        replaced: &[Waiter],
        cx: &mut Cx<'_>,
    ) {
        self.stats_of(key.resource, is_ticket).waits_parked += 1;
        self.take_over(replaced, cx);
    }

    /// A new request, which has left its queue, does not wait: it is refused at once.
    pub(crate) fn count_not_waiting(&mut self, waiter: &Waiter) {
        self.stats_of_waiter(waiter).waits_parked -= 1;
        self.stats[waiter.resource].refusals += 1;
    }

    /// Ends requests that have left their queues because their owner asked again: a parked client is answered nil.
    pub(crate) fn take_over(&mut self, replaced: &[Waiter], cx: &mut Cx<'_>) {
        for older in replaced {
            self.stats_of_waiter(older).waits_taken_over += 1;
            cx.answer_nil(older);
        }
    }

    /// Ends a request that has left its queue because its owner released: a parked client is answered nil.
    pub(crate) fn end_withdrawn(&mut self, withdrawn: Option<Waiter>, cx: &mut Cx<'_>) {
        if let Some(waiter) = withdrawn {
            self.stats_of_waiter(&waiter).waits_withdrawn += 1;
            cx.answer_nil(&waiter);
        }
    }

    /// Ends a request whose `BLOCK` has run out: a parked client is answered nil. It is counted when its place goes:
    /// see [`Waiters::count_kept`].
    pub(crate) fn time_out(waiter: Option<&Waiter>, cx: &mut Cx<'_>) {
        if let Some(waiter) = waiter {
            cx.answer(waiter, Outcome::Nil);
        }
    }

    /// Counts the wait of a kept place that goes: its owner has not asked again in time.
    pub(super) fn count_kept(&mut self, key: KeyRef<'_>, kept: &Kept) {
        if let Some(one) = kept.timed_out {
            self.stats_of(key.resource, one.is_ticket).waits_timed_out += 1;
        }
    }

    /// The owner of this place asks at this moment, perhaps again, before or after the `BLOCK` of its former request
    /// ran out. Returns the moment of its arrival, since which it waits.
    pub(super) fn continues(&mut self, place: Option<PlaceId>, asks_ms: u64) -> u64 {
        let Some(place) = place else { return asks_ms };
        let Some(stands) = self.places.get(place) else {
            return asks_ms;
        };
        let (since_ms, resource) = (stands.since_ms(), stands.key.as_ref().resource);
        if let Some(one) = self.take_timed_out(place) {
            self.stats_of(resource, one.is_ticket).waits_taken_over += 1;
        }
        since_ms
    }

    /// The owner asks again, and is granted its request at once. If the `BLOCK` of its former request for this mode ran
    /// out, that wait ends with this grant.
    pub(crate) fn granted_at_once(&mut self, key: KeyRef<'_>, owner: &[u8], mode: Mode, now: Now) {
        let Some(place) = self.places.of(key, owner) else {
            return;
        };
        let kept = self.places.get(place).and_then(Place::kept);
        let Some((since_ms, timed_out)) = kept.and_then(|at| Some((at.since_ms, at.timed_out?)))
        else {
            return;
        };
        if timed_out.mode == mode {
            self.take_timed_out(place);
            let waited = now.mono_ms.saturating_sub(since_ms);
            self.count_granted(key.resource, waited, timed_out.is_ticket);
        }
    }

    fn take_timed_out(&mut self, place: PlaceId) -> Option<TimedOut> {
        match &mut self.places.slot_mut(place.slot)?.at {
            At::Empty(kept) => kept.timed_out.take(),
            At::Live(_) => None,
        }
    }

    /// Answers this error to requests that have left their queues.
    pub(crate) fn fail(
        &mut self,
        waiters: impl IntoIterator<Item = Waiter>,
        error: &LockError,
        cx: &mut Cx<'_>,
    ) {
        for waiter in waiters {
            self.end(&waiter, &Outcome::Failed(error.clone()), cx);
        }
    }

    /// Counts the wait of a request that was granted.
    pub(crate) fn count_wait(&mut self, waiter: &Waiter, now: Now) {
        let waited = now.mono_ms.saturating_sub(waiter.since_ms);
        self.count_granted(waiter.resource, waited, waiter.ticket.is_some());
    }

    fn count_granted(&mut self, resource: Resource, waited: u64, is_ticket: bool) {
        match is_ticket {
            true => self.ticket_waits.record(waited),
            false => self.waits[resource].record(waited),
        }
        let stats = self.stats_of(resource, is_ticket);
        stats.waits_granted += 1;
        stats.wait_ms_max = stats.wait_ms_max.max(waited);
    }

    /// The counters of the parked requests for this kind of resource, or of all tickets.
    fn stats_of(&mut self, resource: Resource, is_ticket: bool) -> &mut WaitStats {
        match is_ticket {
            true => &mut self.ticket_stats,
            false => &mut self.stats[resource],
        }
    }

    fn stats_of_waiter(&mut self, waiter: &Waiter) -> &mut WaitStats {
        self.stats_of(waiter.resource, waiter.ticket.is_some())
    }
}

impl Cx<'_> {
    /// Tells the outcome to a request that has left its queue.
    pub(crate) fn answer(&mut self, waiter: &Waiter, outcome: Outcome) {
        self.effects.push(match &waiter.ticket {
            None => Effect::Answer(waiter.id, outcome),
            Some(ticket) => Effect::Tell(ticket.clone(), outcome),
        });
    }

    /// Answers nil to a parked request that its owner has ended. Of a ticket the owner is not told.
    fn answer_nil(&mut self, waiter: &Waiter) {
        if waiter.ticket.is_none() {
            self.answer(waiter, Outcome::Nil);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
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
        waiters.enqueue_for_test(KEY, &owner, &waiter);
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
        assert_eq!(waiters.next_wait(NOW), Some(0));
        assert!(!waiters.is_ending(KeyRef::lock(0, b"l")));
        for (expected, left) in [(1_000, 1_481), (1_000, 481), (480, 1), (0, 1)] {
            let more = ended(|cx| waiters.end_more(&mut 1_000, cx));
            assert_eq!((more, waiters.live()), (expected, left));
        }
        assert!(!waiters.has_endings());
        assert!(waiters
            .next_to_grant(KEY, &mut Cx::new(NOW, &mut Effects::new()))
            .is_some());
    }
}
