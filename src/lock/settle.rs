//! Settling a key: its state is read, undelivered grants are undone, and the lock is granted to the next waiter.

use crate::lock::effect::{Cx, KeyWrite};
use crate::lock::grant::free;
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::grant::HandedOff;
use crate::lock::locks::Locks;
use crate::lock::state::View;
use crate::lock::{Hold, KeyRef, KeyState, LockError, Mode, Now};

impl Locks {
    /// Whether settling a key in this state may write: a grant is due, or one is to be undone. An undo whose grant has
    /// ended already is dropped.
    pub fn may_change(&mut self, key: KeyRef<'_>, state: &KeyState, now: Now) -> bool {
        if let KeyState::ReadWrite(lock) = state {
            return self.may_change_shared(key, lock, now);
        }
        let hold = state.hold(now);
        if let Some(undone) = self.shared.in_flight.undone(key) {
            let is_current = |undone: &GrantInFlight| hold.is_some_and(|hold| undone.is(hold));
            if undone.iter().any(is_current) {
                return true;
            }
            self.shared.in_flight.take_undone(key);
        }
        let bare = matches!(state, KeyState::Bare(_));
        let is_due = || {
            self.shared.waiters.waiting_on(key) > 0
                && !self.shared.waiters.windows.is_open(key, now)
        };
        hold.is_none() && state.check_is_lock().is_ok() && (bare || is_due())
    }

    /// Settles a key: called when its lease is over or its state changed by other means. Without a cause it changes
    /// nothing.
    pub fn settle(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        self.note_window_taken(view, cx.now);
        let undone = self.shared.in_flight.take_undone(view.key);
        if let Err(error) = view.state.check_is_lock() {
            return self.settle_foreign(view, &error, cx);
        }
        if let KeyState::ReadWrite(lock) = &view.state {
            return self.settle_shared(view, lock, undone.unwrap_or_default(), cx);
        }
        let undone = match view.state.hold(cx.now) {
            Some(hold) => {
                let (again, fresh): (Vec<_>, Vec<_>) = undone
                    .into_iter()
                    .flatten()
                    .filter(|undone| undone.is(hold))
                    .partition(|undone| undone.reentry.is_some());
                let Some(undone) = fresh.into_iter().next() else {
                    return self.settle_held(view, hold, again.first(), cx);
                };
                Some(undone)
            }
            None => None,
        };
        if let Some(undone) = &undone {
            self.stats.grants_undone += u64::from(self.tracked.remove(view.key).is_some());
            self.shared.waiters.restore(undone, cx.now);
        } else if self
            .shared
            .waiters
            .lease(view.key)
            .is_some_and(|end| end > cx.now.wall_ms)
        {
            self.stats.foreign_wakeups += 1;
        }
        let took_back = undone.is_some() || matches!(view.state, KeyState::Bare(_));
        let rest = match &undone {
            Some(_) => &KeyState::Absent,
            None => &view.state,
        };
        match self.hand_off(view, rest, cx) {
            HandedOff::Granted | HandedOff::LeftFree => {}
            _ if took_back => {
                // The end of a key by the module itself is no event.
                self.untrack_stale_single(view, cx);
                self.shared.waiters.windows.was_free(view.key);
                free(view, Mode::Exclusive, cx);
            }
            _ => {}
        }
    }

    /// Settles a key that holds something other than a lock: its waiters fail.
    fn settle_foreign(&mut self, view: &View<'_>, error: &LockError, cx: &mut Cx<'_>) {
        let is_waited = self.shared.waiters.waiting_on(view.key) > 0;
        if is_waited {
            self.announce_untracked(view, cx);
        }
        self.untrack_stale(view, cx);
        if is_waited {
            self.shared.waiters.fail_all(view.key, error, cx);
        }
    }

    /// Settles a key whose hold stays, without the re-entry that is to be undone.
    fn settle_held(
        &mut self,
        view: &View<'_>,
        hold: &Hold,
        again: Option<&GrantInFlight>,
        cx: &mut Cx<'_>,
    ) {
        if let (Some(_), 2..) = (again, hold.count) {
            // One hold at most: the next request of this owner claims its grants in flight.
            cx.write(KeyWrite::Adjust {
                owner: hold.owner.clone(),
                count: Some((hold.count, hold.count - 1)),
                token: None,
                deadline_ms: None,
            });
        }
        if self.tracked(view.key, hold.token).is_none() {
            self.untrack_stale(view, cx);
        }
        self.note_holders(view.key, &view.state, cx.now);
        self.shared
            .waiters
            .schedule_settle_owner(view.key, &hold.owner);
    }
}
