//! The next waiter of a queue: the first whose wait is not over and whose outcome would reach a client.

use crate::lock::effect::Cx;
use crate::lock::wait::passed::Passed;
use crate::lock::wait::request::PlaceId;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now};

/// The next request of a queue.
pub(crate) enum Next {
    /// The next to be granted.
    Place(PlaceId),
    /// One of which the shell is to say whether it may be granted.
    Ask(PlaceId),
    /// Many waits were ended in this event; the rest of the queue comes at the end of the tick.
    Later,
    /// The queue is empty, or all its waiters are about to end.
    Nothing,
}

/// What follows for the request at the head of a queue.
enum Prospect {
    Grant,
    Ask,
    /// Its wait has run out.
    Over,
    Unheard,
}

impl Waiters {
    /// The first place whose wait has not run out: the next to be granted. Requests before it whose wait is over are
    /// answered nil, and tickets that are not heard are passed over; their places are kept. `None` as well if
    /// the shell was not asked for the next, or if many waits were ended: the key is settled once more then.
    pub(crate) fn next_to_grant(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Option<PlaceId> {
        match self.next(key, cx) {
            Next::Place(place) => Some(place),
            Next::Nothing => None,
            Next::Ask(_) | Next::Later => {
                self.schedule_settle(key);
                None
            }
        }
    }

    pub(super) fn next(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Next {
        if self.is_ending(key) {
            return Next::Nothing;
        }
        loop {
            let Some((place, waiter)) = self.first_live(key) else {
                if let Some((id, _)) = self.waited.get_key_value(&key) {
                    let id = id.clone();
                    self.drop_if_empty(&id);
                }
                return Next::Nothing;
            };
            let request = waiter.id;
            if !self.passed.has_room(cx.now) {
                return Next::Later;
            }
            let is_over = match self.prospect(key, place, cx.now) {
                Prospect::Grant => return Next::Place(place),
                Prospect::Ask => return Next::Ask(place),
                Prospect::Over => true,
                Prospect::Unheard => false,
            };
            let places = self.places_count(request);
            self.passed.add(places, cx.now);
            let waiter = self.vacate(place, is_over, cx.now);
            match is_over {
                true => Waiters::time_out(waiter.as_ref(), cx),
                false => self.ticket_stats.tickets_unheard += 1,
            }
        }
    }

    /// The work on keys in this tick has time left: as many places may be passed over again.
    pub fn pass_more(&mut self) {
        self.passed = Passed::default();
    }

    /// What follows for the request at the head of a queue.
    fn prospect(&self, key: KeyRef<'_>, place: PlaceId, now: Now) -> Prospect {
        let (Some(waited), Some(waiter)) = (self.waited.get(&key), self.places.waiter(place))
        else {
            return Prospect::Grant;
        };
        if waiter.is_over(now) {
            return Prospect::Over;
        }
        match waited.is_heard(waiter, now) {
            Some(true) => Prospect::Grant,
            Some(false) => Prospect::Unheard,
            None => Prospect::Ask,
        }
    }
}
