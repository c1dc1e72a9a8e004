//! Rechecks: tracked grants that are compared with their key at the end of a tick, for the event `lock.lost`.
//!
//! A key with waiters that others change is settled anyway. A key with a tracked grant only would be noticed at its
//! next grant. If `lock.lost` has subscribers, such a key is read at the end of the tick, and its
//! tracked grants end if it no longer states them; nothing is granted.

use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::resource::Resource;
use crate::lock::table::give_back;
use crate::lock::view::View;
use crate::lock::{KeyId, KeyRef, KeyState};

/// A step of a recheck.
#[derive(Debug)]
pub struct Recheck {
    /// The key.
    pub key: KeyId,
    /// The index below which its tracked READ grants are compared.
    pub below: usize,
    /// The owners of those grants.
    pub owners: Vec<Rc<[u8]>>,
}

impl Locks {
    /// A key was changed by other means; `asked`: the event `lock.lost` is wanted.
    pub fn changed(&mut self, key: KeyRef<'_>, asked: bool) {
        self.shared.waiters.schedule_settle_all_at(key);
        if asked && self.tracked.contains(key) && self.shared.waiters.live_on(key) == 0 {
            self.rechecks.insert(key.to_id(), usize::MAX);
        }
    }

    /// A write to this key failed: tracked grants may not exist.
    pub fn schedule_recheck(&mut self, key: KeyRef<'_>) {
        self.rechecks.insert(key.to_id(), usize::MAX);
    }

    /// Whether keys are to be rechecked.
    pub fn has_rechecks(&self) -> bool {
        !self.rechecks.is_empty()
    }

    /// The tracked READ grants below this index of a key are compared with it at the end of a tick.
    pub(crate) fn recheck_below(&mut self, key: KeyRef<'_>, below: usize) {
        if below > 0 {
            self.rechecks.insert(key.to_id(), below);
        }
    }

    /// The next key to recheck, with the owners whose fields are read by name.
    pub fn pop_recheck(&mut self) -> Option<Recheck> {
        let (key, below) = self.rechecks.pop()?;
        give_back(&mut self.rechecks);
        let (_, owners) = self.tracked.owners_below(key.as_ref(), below);
        Some(Recheck { key, below, owners })
    }

    /// Ends the tracked grants of this step that the key no longer states.
    pub fn recheck(&mut self, view: &View<'_>, below: usize, cx: &mut Cx<'_>) {
        let now = cx.now;
        match &view.state {
            KeyState::ReadWrite(lock) if lock.is_held(now) => {
                if lock.writer.is_none() {
                    self.untrack_stale_single(view, cx);
                }
                let is_gone = |owner: &[u8]| !lock.is_in_doubt && lock.reader(owner, now).is_none();
                self.untrack_readers(view.key, (below, is_gone), cx);
            }
            state => {
                let hold = state.hold(now);
                if hold
                    .and_then(|hold| self.tracked(view.key, hold.token))
                    .is_none()
                {
                    self.untrack_stale_single(view, cx);
                }
                self.untrack_readers(view.key, (below, |_| true), cx);
            }
        }
    }

    /// The locks of a database (`None`: of all) whose loss is to be reported: tracked, or held and waited for.
    pub fn cared_about(&self, db: Option<i32>) -> Vec<KeyId> {
        let waited = self.shared.waiters.waited_out();
        let is_lock = |key: &&KeyId| key.as_ref().resource == Resource::Lock;
        let untracked = waited
            .filter(is_lock)
            .filter(|key| !self.tracked.contains(key.as_ref()));
        let all = self.tracked.keys().chain(untracked);
        all.filter(|key| db.is_none_or(|db| key.as_ref().db == db))
            .cloned()
            .collect()
    }
}
