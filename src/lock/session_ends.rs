//! What becomes of bound locks: the end of their connection, and the renewals until then.

use super::effect::{Effect, Effects, Event, KeyWrite};
use super::locks::{Locks, View};
use super::sessions::{Bound, BoundRef};
use super::{Hold, KeyState, Now, OwnerId, Token};

impl Locks {
    /// The connection has gone. First it waits no more: it may hold a lock as one owner and wait for it as
    /// another, and must not be handed what it leaves behind. Then its holds are to be released. Answers
    /// whether it had any.
    pub fn disconnected(&mut self, client: u64, now: Now) -> bool {
        if let Some(waiter) = self.sessions.waiter_of(client) {
            self.gone(waiter, now);
        }
        self.sessions.end(client)
    }

    /// Whether the key still has the grant that is bound: else there is nothing to release or to renew.
    pub fn is_bound_hold(&self, bound: &Bound, state: &KeyState, now: Now) -> bool {
        self.bound_hold(bound.as_ref(), state, now).is_some()
    }

    /// Releases a hold whose connection has gone, whatever its count.
    pub fn end_session(&mut self, view: &View<'_>, bound: &Bound, now: Now, fx: &mut Effects) {
        let Some(hold) = self.bound_hold(bound.as_ref(), &view.state, now) else {
            return self.drop_binding(view, bound.as_ref(), now, fx);
        };
        self.sessions.unbind(bound.as_ref());
        self.stats.grants_session_ended += u64::from(self.end_tracked(view, hold, now, fx));
        self.end_hold(view, Event::Release, now, fx);
    }

    /// Renews the lease of a bound hold, and never shortens it.
    pub fn renew_session(&mut self, view: &View<'_>, bound: &Bound, now: Now, fx: &mut Effects) {
        let Some(hold) = self.bound_hold(bound.as_ref(), &view.state, now) else {
            return self.drop_binding(view, bound.as_ref(), now, fx);
        };
        let wanted = self.sessions.rule.lease.deadline(now);
        if hold.deadline_ms.is_none_or(|end| end < wanted) {
            fx.push(Effect::Write(KeyWrite::Adjust {
                owner: OwnerId::from_slice(&hold.owner),
                count: None,
                token: None,
                deadline_ms: Some(wanted),
            }));
            self.note_deadline(view, hold.token, wanted);
        }
        self.stats.session_renewals += 1;
        self.sessions.renewed(bound.as_ref(), now);
    }

    /// The owner has touched its hold without asking for a session: a binding ends if the request names a
    /// lease, else it stays. Answers whether the hold is bound from here on.
    pub(super) fn keep_binding(
        &mut self,
        what: BoundRef<'_>,
        token: Option<Token>,
        names_lease: bool,
        now: Now,
    ) -> bool {
        let stays = !names_lease && self.sessions.client_of(what, token).is_some();
        match stays {
            true => self.sessions.renewed(what, now),
            false => drop(self.sessions.unbind(what)),
        }
        stays
    }

    fn bound_hold<'s>(
        &self,
        what: BoundRef<'_>,
        state: &'s KeyState,
        now: Now,
    ) -> Option<&'s Hold> {
        let token = self.sessions.token_of(what)?;
        let hold = state.hold(now)?;
        (hold.owner[..] == *what.owner && hold.token == Some(token)).then_some(hold)
    }

    /// The grant that was bound has ended without our seeing it.
    fn drop_binding(&mut self, view: &View<'_>, what: BoundRef<'_>, now: Now, fx: &mut Effects) {
        let Some(token) = self.sessions.unbind(what) else {
            return;
        };
        self.stats.session_losses += 1;
        if self.holds.get(view.key, Some(token)).is_some() {
            self.close_unseen(view, now, fx);
        }
    }
}
