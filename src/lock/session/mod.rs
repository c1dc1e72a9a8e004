//! Holds that are bound to a connection (`SESSION`): the bindings ([`bindings`]), and of locks the release when the
//! connection closes and the renewals until then.

use crate::lock::effect::{Cx, Event, KeyWrite};
use crate::lock::locks::Locks;
use crate::lock::session::bindings::{Bound, BoundRef};
use crate::lock::state::View;
use crate::lock::{Hold, KeyState, Mode, Now, OwnerId, ReadWrite, Token};

pub(crate) mod bindings;
mod renewals;

impl Locks {
    /// The connection is closed. Its parked request ends first: the connection may hold a lock as one owner and wait
    /// for it as another, and must not be granted the lock that it leaves. Then its holds are to be released. Returns
    /// whether it had any.
    pub fn disconnected(&mut self, client: u64, now: Now) -> bool {
        self.shared.waiters.closes(client);
        if let Some(waiter) = self.shared.sessions.waiter_of(client) {
            self.gone(waiter, now);
        }
        self.shared.sessions.end(client)
    }

    /// Whether the key still has the bound grant; otherwise there is nothing to release or to renew.
    pub fn is_bound_hold(&self, bound: &Bound, state: &KeyState, now: Now) -> bool {
        let what = bound.as_ref();
        self.bound_hold(what, state, now).is_some() || self.bound_shared(what, state, now).is_some()
    }

    /// Releases a hold whose connection is closed, with any hold count.
    pub fn end_session(&mut self, view: &View<'_>, bound: &Bound, cx: &mut Cx<'_>) {
        if let Some((mode, lock)) = self.bound_shared(bound.as_ref(), &view.state, cx.now) {
            let whose = (mode, &bound.owner[..]);
            let ended = self.untrack_shared(view, lock, whose, cx);
            self.stats.grants_session_ended += self.count_hold(ended, cx.now);
            return self.give_back(view, lock.clone(), whose, cx);
        }
        let Some(hold) = self.bound_hold(bound.as_ref(), &view.state, cx.now) else {
            return self.drop_binding(view, bound.as_ref(), cx);
        };
        self.shared.sessions.unbind(bound.as_ref());
        let ended = self.end_tracked(view, hold.token, cx);
        self.stats.grants_session_ended += self.count_hold(ended, cx.now);
        self.end_hold(view, Event::Release, cx);
    }

    /// Renews the lease of a bound hold, and never shortens it.
    pub fn renew_session(&mut self, view: &View<'_>, bound: &Bound, cx: &mut Cx<'_>) {
        let wanted = self.shared.sessions.lease().deadline(cx.now);
        if let Some((mode, lock)) = self.bound_shared(bound.as_ref(), &view.state, cx.now) {
            self.extend_shared(view, lock, (mode, &bound.owner), (wanted, cx.now), cx);
            self.shared.sessions.stats.session_renewals += 1;
            return self.shared.sessions.renewed(bound.as_ref(), cx.now);
        }
        let Some(hold) = self.bound_hold(bound.as_ref(), &view.state, cx.now) else {
            return self.drop_binding(view, bound.as_ref(), cx);
        };
        if hold.deadline_ms.is_none_or(|end| end < wanted) {
            cx.write(KeyWrite::Adjust {
                owner: OwnerId::from_slice(&hold.owner),
                count: None,
                token: None,
                deadline_ms: Some(wanted),
            });
            self.note_deadline(view, hold.token, wanted);
        }
        self.shared.sessions.stats.session_renewals += 1;
        self.shared.sessions.renewed(bound.as_ref(), cx.now);
    }

    pub(crate) fn bound_hold<'s>(
        &self,
        what: BoundRef<'_>,
        state: &'s KeyState,
        now: Now,
    ) -> Option<&'s Hold> {
        if what.mode != Mode::Exclusive {
            return None;
        }
        let token = self.shared.sessions.token_of(what)?;
        let hold = state.hold(now)?;
        (hold.owner[..] == *what.owner && hold.token == Some(token)).then_some(hold)
    }

    /// As [`Locks::bound_hold`] for READ and WRITE: the mode and the lock.
    pub(crate) fn bound_shared<'s>(
        &self,
        what: BoundRef<'_>,
        state: &'s KeyState,
        now: Now,
    ) -> Option<(Mode, &'s ReadWrite)> {
        let token = self.shared.sessions.token_of(what)?;
        let lock = state.held_for_reading_or_writing(now)?;
        let is_held = lock.has_grant((what.mode, what.owner), token, now);
        is_held.then_some((what.mode, lock))
    }

    /// The token under which a hold of a read-write lock is bound, if it is the token of the present hold.
    pub(crate) fn bound_token(
        &self,
        what: BoundRef<'_>,
        (mode, lock): (Mode, &ReadWrite),
        now: Now,
    ) -> Option<Token> {
        let token = self.shared.sessions.token_of(what);
        token.filter(|token| lock.is_under(mode, *token, now))
    }

    /// The bound grant ended unnoticed.
    fn drop_binding(&mut self, view: &View<'_>, what: BoundRef<'_>, cx: &mut Cx<'_>) {
        let Some(token) = self.shared.sessions.unbind(what) else {
            return;
        };
        self.shared.sessions.stats.session_losses += 1;
        if what.mode == Mode::Read {
            self.untrack_stale_reader(view.key, what.owner, cx);
        } else if self.tracked.get(view.key, Some(token)).is_some() {
            self.untrack_stale_single(view, cx);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::lock::{BoundRef, KeyRef, Mode, Now, Sessions, Token, UserId};

    #[test]
    fn releases_that_were_refused_come_after_all_others() {
        let now = Now::at_mono(0);
        let mut sessions = Sessions::default();
        let names = ["a", "b", "c", "d"];
        for (client, name) in (1..).zip(names) {
            let key = KeyRef::lock(0, name.as_bytes());
            let what = BoundRef::lock(Mode::Exclusive, key, b"o");
            sessions.bind(
                what,
                (client, UserId::UNKNOWN),
                Token::new(client).unwrap(),
                now,
            );
        }
        for client in 1..=3 {
            sessions.end(client);
        }
        let next = |sessions: &mut Sessions| sessions.next_ended().unwrap();
        let refused = [next(&mut sessions), next(&mut sessions)];
        sessions.put_off_ended(&refused);
        sessions.end(4);
        let order: Vec<_> = std::iter::from_fn(|| sessions.next_ended())
            .map(|bound| bound.key.as_ref().name.to_vec())
            .collect();
        assert_eq!(order, [b"c", b"d", b"a", b"b"]);
    }

    #[test]
    fn a_release_that_a_caught_bug_interrupted_is_made_again() {
        let now = Now::at_mono(0);
        let mut sessions = Sessions::default();
        let what = BoundRef::lock(Mode::Exclusive, KeyRef::lock(0, b"k"), b"o");
        let token = Token::new(1).unwrap();
        sessions.bind(what, (1, UserId::UNKNOWN), token, now);
        sessions.end(1);
        assert!(sessions.next_ended().is_some() && sessions.next_ended().is_none());
        sessions.reindex();
        assert!(sessions.next_ended().is_some() && sessions.next_ended().is_none());
        // A hold of an open connection is none to release.
        sessions.bind(what, (2, UserId::UNKNOWN), token, now);
        sessions.reindex();
        assert!(!sessions.has_ended() && sessions.next_due(now).is_some());
    }

    #[test]
    fn a_renewal_that_was_refused_is_tried_again_soon() {
        let now = Now::at_mono(0);
        let mut sessions = Sessions::default();
        let what = BoundRef::lock(Mode::Exclusive, KeyRef::lock(0, b"k"), b"o");
        sessions.bind(what, (1, UserId::UNKNOWN), Token::new(1).unwrap(), now);
        let due = Now::at_mono(sessions.next_due(now).unwrap());
        assert!(sessions.next_renewal(due, false).is_some());
        sessions.put_off_renewal(what, due, 250);
        assert_eq!(sessions.next_due(due), Some(250));
        sessions.lose(what);
        assert_eq!(sessions.next_due(due), None);
        sessions.clear(None);
        assert_eq!(sessions.stats.session_losses, 1, "counters stay");
    }
}
