//! The ends of waits: each is counted, and told to the client.

use crate::lock::effect::{Cx, Effect, Outcome};
use crate::lock::resource::Resource;
use crate::lock::wait::place::{At, Kept, Place, TimedOut};
use crate::lock::wait::request::{PlaceId, Waiter};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, LockError, Mode, Now};

impl Waiters {
    /// Counts a new waiter. The older requests that it replaces, which have left their queues, end.
    pub(crate) fn count_waiter(
        &mut self,
        (key, is_ticket): (KeyRef<'_>, bool),
        replaced: &[Waiter],
        cx: &mut Cx<'_>,
    ) {
        match is_ticket {
            true => self.ticket_stats.tickets_queued += 1,
            false => self.stats[key.resource].waits_parked += 1,
        }
        self.take_over(replaced, cx);
    }

    /// A new request, which has left its queue, does not wait: it is refused at once.
    pub(crate) fn count_not_parked(&mut self, waiter: &Waiter) {
        match waiter.ticket.is_some() {
            true => self.ticket_stats.tickets_queued -= 1,
            false => self.stats[waiter.resource].waits_parked -= 1,
        }
        self.stats[waiter.resource].refusals += 1;
    }

    /// Ends requests that have left their queues because their owner asked again: a parked client is answered nil.
    pub(crate) fn take_over(&mut self, replaced: &[Waiter], cx: &mut Cx<'_>) {
        for older in replaced {
            if older.ticket.is_some() {
                self.ticket_stats.tickets_taken_over += 1;
            } else {
                self.stats[older.resource].waits_taken_over += 1;
                cx.answer(older, Outcome::Nil);
            }
        }
    }

    /// Ends a request that has left its queue because its owner released: a parked client is answered nil.
    pub(crate) fn end_withdrawn(&mut self, withdrawn: Option<Waiter>, cx: &mut Cx<'_>) {
        match withdrawn {
            Some(waiter) if waiter.ticket.is_some() => self.ticket_stats.tickets_withdrawn += 1,
            Some(waiter) => {
                self.stats[waiter.resource].waits_withdrawn += 1;
                cx.answer(&waiter, Outcome::Nil);
            }
            None => {}
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
        match kept.timed_out.map(|one| one.is_ticket) {
            Some(true) => self.ticket_stats.tickets_timed_out += 1,
            Some(false) => self.stats[key.resource].waits_timed_out += 1,
            None => {}
        }
    }

    /// The owner of this place asks at this moment, perhaps again, before or after the `BLOCK` of its former request
    /// ran out. Returns the moment of its arrival, since which it waits.
    pub(super) fn continues(&mut self, place: Option<PlaceId>, asks_ms: u64) -> u64 {
        let Some(place) = place else { return asks_ms };
        self.count_top_wait(place, asks_ms);
        self.places.set_counted(place, asks_ms);
        let Some(stands) = self.places.get(place) else {
            return asks_ms;
        };
        let (since_ms, resource) = (stands.since_ms(), stands.key.as_ref().resource);
        match self.take_timed_out(place).map(|one| one.is_ticket) {
            Some(true) => self.ticket_stats.tickets_taken_over += 1,
            Some(false) => self.stats[resource].waits_taken_over += 1,
            None => {}
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
            match waiter.ticket.is_some() {
                true => self.ticket_stats.tickets_failed += 1,
                false => self.stats[waiter.resource].waits_failed += 1,
            }
            cx.answer(&waiter, Outcome::Failed(error.clone()));
        }
    }

    /// Counts the wait of a request that was granted.
    pub(crate) fn count_wait(&mut self, waiter: &Waiter, now: Now) {
        let waited = now.mono_ms.saturating_sub(waiter.since_ms);
        self.count_granted(waiter.resource, waited, waiter.ticket.is_some());
    }

    fn count_granted(&mut self, resource: Resource, waited: u64, is_ticket: bool) {
        if is_ticket {
            self.ticket_stats.tickets_granted += 1;
            self.ticket_waits.record(waited);
            return;
        }
        self.waits[resource].record(waited);
        let stats = &mut self.stats[resource];
        stats.waits_granted += 1;
        stats.wait_ms_max = stats.wait_ms_max.max(waited);
    }

    /// Counts the time of the request at this place, if there is one, for the name of the key.
    pub(super) fn count_top_wait(&mut self, place: PlaceId, now_ms: u64) {
        let counts = |at: &&Place| at.kept().is_none();
        if self.top[Resource::Lock].is_none() {
            return;
        }
        let Some(at) = self.places.get(place).filter(counts) else {
            return;
        };
        if let Some(top) = &mut self.top[at.key.as_ref().resource] {
            let waited_ms = (now_ms as u32).wrapping_sub(at.counted_ms);
            top.add_wait(at.key.as_ref(), waited_ms.into());
        }
    }

    /// Counts a hand-off for the name of the key.
    pub(crate) fn count_top_hand_off(&mut self, key: KeyRef<'_>) {
        if let Some(top) = &mut self.top[key.resource] {
            top.add_hand_off(key);
        }
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
}
