//! Ends of tracked grants, counted and reported once, however the hold ended.

use crate::lock::effect::{Cx, Effect, Event, KeyWrite};
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::locks::Locks;
use crate::lock::view::View;
use crate::lock::{Hold, KeyRef, KeyState, Now};

impl Locks {
    /// The present hold ends now, by its owner or an operator. Returns its grant if that was tracked.
    pub(crate) fn end_tracked(
        &mut self,
        view: &View<'_>,
        hold: &Hold,
        cx: &mut Cx<'_>,
    ) -> Option<TrackedGrant> {
        if self.tracked(view.key, hold.token).is_none() {
            self.untrack_stale(view, cx);
            return None;
        }
        self.tracked.remove(view.key)
    }

    /// Counts the time of a hold that its owner or the end of its connection has ended. Returns 1 if its grant was
    /// tracked.
    pub(crate) fn count_hold(&mut self, ended: Option<TrackedGrant>, now: Now) -> u64 {
        let Some(grant) = ended else {
            return 0;
        };
        let held = now.mono_ms.saturating_sub(grant.since_ms);
        self.holds.record(held);
        if grant.session {
            self.session_holds.record(held);
        }
        1
    }

    /// Ends every tracked grant of the key whose hold ended unnoticed; many readers at the end of the next ticks.
    pub(crate) fn untrack_stale(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        self.untrack_stale_single(view, cx);
        self.untrack_readers(view.key, (usize::MAX, |_| true), cx);
    }

    /// Ends the tracked READ grants whose holds are gone: those of one step below this index. Later steps are rechecks.
    pub(crate) fn untrack_readers(
        &mut self,
        key: KeyRef<'_>,
        (below, is_gone): (usize, impl Fn(&[u8]) -> bool),
        cx: &mut Cx<'_>,
    ) {
        let (rest, owners) = self.tracked.owners_below(key, below);
        for owner in owners.iter().filter(|owner| is_gone(owner)) {
            self.untrack_stale_reader(key, owner, cx);
        }
        self.recheck_below(key, rest);
    }

    /// Ends the tracking of a key, of many readers in steps. Returns how many grants were tracked in this one.
    pub(crate) fn untrack_key(&mut self, key: KeyRef<'_>) -> u64 {
        let (tracked, rest) = self.tracked.remove_some(key);
        self.recheck_below(key, rest);
        tracked
    }

    /// Ends the tracked READ grant of this owner, whose hold ended unnoticed, if there is one.
    pub(crate) fn untrack_stale_reader(&mut self, key: KeyRef<'_>, owner: &[u8], cx: &mut Cx<'_>) {
        if let Some(former) = self.tracked.remove_of(key, owner) {
            self.count_end(former.deadline_ms <= cx.now.wall_ms, cx);
        }
    }

    /// Ends the tracked exclusive or WRITE grant, whose hold ended unnoticed.
    pub(crate) fn untrack_stale_single(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        let Some(former) = self.tracked.remove(view.key) else {
            return;
        };
        // The deadline of a present key is the true one: a script may have shortened the lease.
        let deadline_ms = match &view.state {
            KeyState::Held(hold) if hold.token == Some(former.token) => hold.deadline_ms,
            _ => Some(former.deadline_ms),
        };
        self.count_end(deadline_ms.is_some_and(|end| end <= cx.now.wall_ms), cx);
    }

    fn count_end(&mut self, has_expired: bool, cx: &mut Cx<'_>) {
        if has_expired {
            self.stats.grants_expired += 1;
            cx.notify(Event::Expire);
        } else {
            self.stats.grants_lost += 1;
            cx.notify(Event::Lost);
        }
    }

    /// Reports the end of a hold that has waiters but was never tracked, as far as the key shows it. (If the key itself
    /// was deleted, the server's own event has been reported already.)
    pub(crate) fn announce_untracked(&self, view: &View<'_>, cx: &mut Cx<'_>) {
        let event = match &view.state {
            _ if self.tracked.contains(view.key) => return,
            KeyState::Held(hold) if hold.is_over(cx.now) => Event::Expire,
            KeyState::ReadWrite(lock) if !lock.is_held(cx.now) => Event::Expire,
            KeyState::Bare(_) | KeyState::OtherHash | KeyState::OtherType => Event::Lost,
            KeyState::Held(_) | KeyState::ReadWrite(_) | KeyState::Absent => return,
        };
        cx.notify(event);
    }
}

/// Deletes the key and informs Redisson's waiters.
pub(crate) fn free(cx: &mut Cx<'_>) {
    cx.write(KeyWrite::Delete);
    cx.effects.push(Effect::Publish);
}
