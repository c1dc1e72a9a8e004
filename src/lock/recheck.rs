//! Losses that matter to nobody but who asks for news of them.
//!
//! Where somebody waits, a key that others change is settled anyway. Where the grant is merely tracked, the
//! loss would be noticed at the next grant. If `lock.lost` is asked for, such a key is marked, and *glanced*
//! at in the end of the turn: read, and nothing else.

use crate::lock::effect::Effects;
use crate::lock::locks::Locks;
use crate::lock::table::give_back;
use crate::lock::view::View;
use crate::lock::{KeyId, KeyRef, KeyState, Now};

impl Locks {
    /// A key was changed by others; `asked`: somebody wants to be told of lost locks.
    pub fn changed(&mut self, key: KeyRef<'_>, asked: bool) {
        self.schedule_settle(key);
        if asked && self.tracked.contains(key) && self.waiters.live_on(key) == 0 {
            self.rechecks.insert(key.to_id());
        }
    }

    /// A write to this key failed: holds that are tracked here may not exist.
    pub fn schedule_recheck(&mut self, key: KeyRef<'_>) {
        self.rechecks.insert(key.to_id());
    }

    /// Whether keys are to be glanced at.
    pub fn has_rechecks(&self) -> bool {
        !self.rechecks.is_empty()
    }

    /// The next key to be glanced at.
    pub fn pop_recheck(&mut self) -> Option<KeyId> {
        let key = self.rechecks.pop();
        give_back(&mut self.rechecks);
        key
    }

    /// A glance: if the key states the tracked grant no more, its books are closed and others are told.
    pub fn recheck(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        match &view.state {
            KeyState::ReadWrite(lock) if lock.is_held(now) => {
                self.untrack_gone(view, lock, now, fx)
            }
            state => {
                let hold = state.hold(now);
                if hold.and_then(|hold| self.tracked(view.key, hold)).is_none() {
                    self.untrack_stale(view, now, fx);
                }
            }
        }
    }

    /// Locks of a database (`None`: of all) whose loss would be news: tracked, or waited for while held.
    pub fn cared_about(&self, db: Option<i32>) -> Vec<KeyId> {
        let waited = self.waiters.waited_out();
        let untracked = waited.filter(|key| !self.tracked.contains(key.as_ref()));
        let all = self.tracked.keys().chain(untracked);
        all.filter(|key| db.is_none_or(|db| key.as_ref().db == db))
            .cloned()
            .collect()
    }
}
