//! The hand-off: a lock that becomes free is granted to its first waiter in the same event.

use std::borrow::Cow;

use crate::lock::effect::{Cx, Outcome};
use crate::lock::grant::fresh::{Granted, Grantee};
use crate::lock::grant::in_flight::{GrantInFlight, Reentry};
use crate::lock::locks::Locks;
use crate::lock::read_write::may_enter;
use crate::lock::view::View;
use crate::lock::wait::request::{PlaceId, Waiter};
use crate::lock::{KeyState, Now};

/// The result of a hand-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandedOff {
    /// One waiter or several were granted.
    Granted,
    /// Nothing was written. Either the first request in the queue waits for other keys too, and this key stays free for
    /// it until that request is settled at the end of the tick; or a Redisson window is open.
    Reserved,
    /// A Redisson window has begun: the key is free for a time, and the message is published.
    LeftFree,
    /// No waiter can be granted now; nothing was written.
    NoWaiter,
    /// The first waiter is excluded by the present holders; nothing was written.
    Blocked,
}

impl Locks {
    /// Grants the key to its first waiter, if it is compatible with what remains of the lock (`rest`), and then to
    /// those behind it that are compatible with that grant. Requests whose wait has run out are answered.
    pub(crate) fn hand_off(
        &mut self,
        view: &View<'_>,
        rest: &KeyState,
        cx: &mut Cx<'_>,
    ) -> HandedOff {
        let handed_off = self.hand_to_next(view, rest, cx);
        if handed_off != HandedOff::Granted {
            self.shared.waiters.set_holders(view.key, rest, cx.now);
            self.shared.waiters.schedule_settle_holders(view.key);
        }
        handed_off
    }

    fn hand_to_next(&mut self, view: &View<'_>, rest: &KeyState, cx: &mut Cx<'_>) -> HandedOff {
        if !view.may_grant() || self.shared.startup_delay.is_on(cx.now) {
            return HandedOff::NoWaiter;
        }
        let mut after = None;
        let mut result = HandedOff::NoWaiter;
        let mut left = view.readers;
        while let Some(place) = self.shared.waiters.next_to_grant(view.key, cx) {
            if after.is_none() {
                if let Some(left_free) = self.leave_free(view, rest, place, cx) {
                    return left_free;
                }
            }
            if left == 0 {
                self.shared.waiters.schedule_settle(view.key);
                break;
            }
            left -= 1;
            let state = after.as_ref().unwrap_or(rest);
            let next = self.shared.waiters.at(place);
            let is_free =
                next.is_some_and(|(owner, waiter)| may_enter(state, waiter.mode, owner, cx.now));
            let request = next.map(|(_, waiter)| waiter.id);
            if let Some(request) =
                request.filter(|id| is_free && self.shared.waiters.is_multi_key(*id))
            {
                self.shared.waiters.schedule_settle_request(request);
                match rest.held_for_reading_or_writing(cx.now) {
                    _ if after.is_some() => {}
                    Some(lock) => drop(self.record_ends(view.key, lock, cx.now)),
                    None => self.shared.waiters.set_lease(view.key, rest.ends(cx.now)),
                }
                result = match after {
                    Some(_) => HandedOff::Granted,
                    None => HandedOff::Reserved,
                };
                break;
            }
            if !is_free {
                result = if after.is_some() {
                    HandedOff::Granted
                } else {
                    HandedOff::Blocked
                };
                break;
            }
            let state = after.take().map_or(Cow::Borrowed(rest), Cow::Owned);
            let Some(granted) = self.hand_to(view, state, place, cx) else {
                break;
            };
            result = HandedOff::Granted;
            after = granted.after;
            if after.is_none() {
                self.shared
                    .waiters
                    .set_lease(view.key, Some(granted.deadline_ms));
                return result;
            }
        }
        if let Some(KeyState::ReadWrite(lock)) = &after {
            self.note_ends(view.key, lock, cx.now);
        }
        result
    }

    /// Grants the key to the waiter at this place. `None` when the grant is refused; then every waiter of the key has
    /// been answered the error.
    fn hand_to(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        place: PlaceId,
        cx: &mut Cx<'_>,
    ) -> Option<Granted> {
        let (owner, waiter) = self.shared.waiters.take(place, cx.now)?;
        self.announce_untracked(view, cx);
        let grantee = Grantee {
            owner: &owner,
            mode: waiter.mode,
            lease: waiter.lease,
            session: waiter.session,
            names_lease: false,
            client: waiter.client,
            user: waiter.user,
        };
        let granted = match self.grant_in(view, rest, &grantee, cx) {
            Ok(granted) => granted,
            Err(error) => {
                self.shared.waiters.fail(Some(waiter), &error, cx);
                // The next waiters would fail in the same way, and no event would wake them again.
                self.shared.waiters.fail_all(view.key, &error, cx);
                return None;
            }
        };
        self.note_granted(&waiter, cx.now);
        self.shared.waiters.count_top_hand_off(view.key);
        if granted.after.is_none() {
            self.shared.waiters.set_holder(view.key, owner.clone());
        }
        self.shared.waiters.windows.count_hand_off(view.key);
        // The grant is a re-entry where a script has granted the lock to this owner meanwhile.
        let reentry = (!granted.is_fresh).then_some(Reentry {
            counted: true,
            ..Reentry::default()
        });
        let in_flight = GrantInFlight {
            key: view.key.to_id(),
            owner,
            mode: waiter.mode,
            token: granted.token,
            seq: place.seq,
            since_ms: waiter.since_ms,
            reentry,
            end_ms: 0,
        };
        self.shared.in_flight.put(waiter.id, in_flight);
        self.tell_granted(&waiter, Outcome::Granted(granted.token), cx);
        Some(granted)
    }

    /// Counts a granted request. While its grant is in flight, it is the request that its connection waits for.
    pub(crate) fn note_granted(&mut self, waiter: &Waiter, now: Now) {
        self.shared.sessions.waits(waiter);
        self.shared.waiters.count_wait(waiter, now);
    }

    /// Tells a request that it is granted. The message of a ticket is delivered in this event.
    pub(crate) fn tell_granted(&mut self, waiter: &Waiter, granted: Outcome, cx: &mut Cx<'_>) {
        cx.answer(waiter, granted);
        if waiter.ticket.is_some() {
            self.delivered(waiter.id);
        }
    }
}
