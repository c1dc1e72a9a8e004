//! ENDING

use crate::lock::effect::{Effect, Effects, Event, KeyWrite};
use crate::lock::locks::Locks;
use crate::lock::view::View;
use crate::lock::{Hold, KeyRef, KeyState, Now};

impl Locks {
    /// The present hold ends now, by its owner or an operator. True when it was the tracked one.
    pub(crate) fn end_tracked(
        &mut self,
        view: &View<'_>,
        hold: &Hold,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        if self.tracked(view.key, hold).is_none() {
            self.untrack_stale(view, now, fx);
            return false;
        }
        self.tracked.remove(view.key).is_some()
    }

    /// The tracked grants before this one ended without our seeing it.
    pub(crate) fn untrack_stale(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        self.untrack_stale_single(view, now, fx);
        let readers: Vec<_> = self.tracked.readers(view.key).cloned().collect();
        for owner in readers {
            self.untrack_stale_reader(view.key, &owner, now, fx);
        }
    }

    /// The tracked READ grant of this owner ended without our seeing it, if there is one.
    pub(crate) fn untrack_stale_reader(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        now: Now,
        fx: &mut Effects,
    ) {
        if let Some(former) = self.tracked.remove_reader(key, owner) {
            self.count_end(former.deadline_ms <= now.wall_ms, fx);
        }
    }

    /// The tracked grant that was the only one of its kind ended without our seeing it.
    pub(crate) fn untrack_stale_single(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        let Some(former) = self.tracked.remove(view.key) else {
            return;
        };
        // While the key is there, it knows best: a script may have cut the lease.
        let deadline_ms = match &view.state {
            KeyState::Held(hold) if hold.token == Some(former.token) => hold.deadline_ms,
            _ => Some(former.deadline_ms),
        };
        self.count_end(deadline_ms.is_some_and(|end| end <= now.wall_ms), fx);
    }

    fn count_end(&mut self, has_expired: bool, fx: &mut Effects) {
        if has_expired {
            self.stats.grants_expired += 1;
            fx.push(Effect::Notify(Event::Expire));
        } else {
            self.stats.grants_lost += 1;
            fx.push(Effect::Notify(Event::Lost));
        }
    }

    /// A hold that is waited for but was never tracked has ended: what the key still shows is told.
    /// (Where the key itself went away, the server's news of that has been passed on already.)
    pub(crate) fn announce_untracked(&self, view: &View<'_>, now: Now, fx: &mut Effects) {
        let event = match &view.state {
            _ if self.tracked.contains(view.key) => return,
            KeyState::Held(hold) if hold.is_over(now) => Event::Expire,
            KeyState::ReadWrite(lock) if !lock.is_held(now) => Event::Expire,
            KeyState::Bare(_) | KeyState::OtherHash | KeyState::OtherType => Event::Lost,
            KeyState::Held(_) | KeyState::ReadWrite(_) | KeyState::Absent => return,
        };
        fx.push(Effect::Notify(event));
    }
}

/// The key is free now: tell those who wait outside.
pub(crate) fn free(fx: &mut Effects) {
    fx.push(Effect::Write(KeyWrite::Delete));
    fx.push(Effect::Publish);
}
