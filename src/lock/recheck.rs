//! Rechecks: tracked grants that are compared with their key at the end of a tick, for the event `lock.lost`.
//!
//! A key with waiters that others change is settled anyway. A key with a tracked grant only would be noticed at its
//! next grant. If `lock.lost` has subscribers, such a key is read at the end of the tick, and its
//! tracked grants end if it no longer states them; nothing is granted.

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::table::give_back;
use crate::lock::view::View;
use crate::lock::{KeyId, KeyRef, KeyState};

impl Locks {
    /// A key was changed by other means; `asked`: the event `lock.lost` is wanted.
    pub fn changed(&mut self, key: KeyRef<'_>, asked: bool) {
        self.schedule_settle(key);
        if asked && self.tracked.contains(key) && self.waiters.live_on(key) == 0 {
            self.rechecks.insert(key.to_id());
        }
    }

    /// A write to this key failed: tracked grants may not exist.
    pub fn schedule_recheck(&mut self, key: KeyRef<'_>) {
        self.rechecks.insert(key.to_id());
    }

    /// Whether keys are to be rechecked.
    pub fn has_rechecks(&self) -> bool {
        !self.rechecks.is_empty()
    }

    /// The next key to recheck.
    pub fn pop_recheck(&mut self) -> Option<KeyId> {
        let key = self.rechecks.pop();
        give_back(&mut self.rechecks);
        key
    }

    /// Ends the tracked grants that the key no longer states.
    pub fn recheck(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        match &view.state {
            KeyState::ReadWrite(lock) if lock.is_held(cx.now) => self.untrack_gone(view, lock, cx),
            state => {
                let hold = state.hold(cx.now);
                if hold
                    .and_then(|hold| self.tracked(view.key, hold.token))
                    .is_none()
                {
                    self.untrack_stale(view, cx);
                }
            }
        }
    }

    /// The locks of a database (`None`: of all) whose loss is to be reported: tracked, or held and waited for.
    pub fn cared_about(&self, db: Option<i32>) -> Vec<KeyId> {
        let waited = self.waiters.waited_out();
        let untracked = waited.filter(|key| !self.tracked.contains(key.as_ref()));
        let all = self.tracked.keys().chain(untracked);
        all.filter(|key| db.is_none_or(|db| key.as_ref().db == db))
            .cloned()
            .collect()
    }
}
