//! Turns for those who wait outside: Redisson's clients, which sleep until they are told that a lock is free.
//!
//! A hand-off never frees the key, so they would never be told while requests are parked here. After so many
//! hand-offs in a row ([`WindowRule::after`]) the lock is *left free* instead, if somebody listens on its channel:
//! the key is deleted, the message published, and a *window* begins in which nobody here is granted it. Those
//! in line keep their places. The window ends when somebody has taken the lock, and then the line waits for its
//! release; or when its time is over, and then the first in line has the lock.
//!
//! A turn that is *in vain* (nobody listened, or nobody came) doubles the hand-offs until the next, up to
//! [`MOST_DOUBLINGS`] times; one that is taken sets that back.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use indexmap::IndexMap;

use crate::lock::effect::{Effect, Effects, KeyWrite};
use crate::lock::grant::HandedOff;
use crate::lock::locks::{Locks, View};
use crate::lock::name::{KeyMap, Secret};
use crate::lock::table::give_back;
use crate::lock::wait::queue::Seq;
use crate::lock::{is_held, KeyId, KeyRef, KeyState, Mode, Now};

/// So many locks have their hand-offs counted, for about 50 bytes each; one that is pushed out begins anew.
const MOST_COUNTED: usize = 1_000;

/// The most hand-offs that make up for holds of those outside.
const MOST_OWED: u32 = 100;

/// How often the hand-offs until the next turn are doubled.
const MOST_DOUBLINGS: u32 = 4;

/// When locks are left free for others, and for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowRule {
    /// After so many hand-offs in a row; 0: never.
    pub after: u32,
    /// The length of a window in milliseconds.
    pub window_ms: u64,
}

/// What has happened at a lock since somebody outside had it.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    hand_offs: u32,
    /// Holds of those outside since a window began, seen as they ended.
    outside: u32,
    /// Turns in vain.
    in_vain: u32,
}

/// The rows of hand-offs, and the windows.
#[derive(Debug, Default)]
pub struct Windows {
    /// The rule in force.
    rule: WindowRule,
    /// By the hash of a lock's name, because a row may outlive every hold and every wait, and no name is to stay in
    /// memory then. Two locks of the same hash (one pair in 2^64) share a row: one window more or less.
    rows: IndexMap<u64, Row, Secret>,
    names: Secret,
    /// The end of each window, on the monotonic clock.
    open: KeyMap<u64>,
    ends: BTreeSet<(u64, KeyId)>,
}

impl Windows {
    /// How many windows are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether this lock is left free just now.
    pub(crate) fn is_open(&self, key: KeyRef<'_>, now: Now) -> bool {
        !self.open.is_empty() && self.open.get(&key).is_some_and(|end| now.mono_ms < *end)
    }

    /// Milliseconds until the next window ends.
    pub(crate) fn next_end(&self, now: Now) -> Option<u64> {
        let (end, _) = self.ends.first()?;
        Some(end.saturating_sub(now.mono_ms))
    }

    /// Whether it is the turn of those outside.
    fn is_due(&self, key: KeyRef<'_>) -> bool {
        let due = |row: &Row| {
            let after = self.rule.after.saturating_mul(1 << row.in_vain);
            let owed = self.rule.after.saturating_mul(row.outside);
            row.hand_offs >= after.max(owed.min(MOST_OWED))
        };
        self.rule.after > 0 && self.row(key).is_some_and(due)
    }

    /// The lock was handed on.
    pub(crate) fn count(&mut self, key: KeyRef<'_>) {
        if self.rule.after == 0 {
            return;
        }
        if let Some(row) = self.row_mut(key) {
            row.hand_offs = row.hand_offs.saturating_add(1);
            return;
        }
        if self.rows.len() >= MOST_COUNTED {
            self.rows.swap_remove_index(0);
        }
        let row = Row {
            hand_offs: 1,
            ..Row::default()
        };
        self.rows.insert(self.names.hash_one(key), row);
    }

    fn row(&self, key: KeyRef<'_>) -> Option<&Row> {
        if self.rows.is_empty() {
            return None;
        }
        self.rows.get(&self.names.hash_one(key))
    }

    fn row_mut(&mut self, key: KeyRef<'_>) -> Option<&mut Row> {
        if self.rows.is_empty() {
            return None;
        }
        self.rows.get_mut(&self.names.hash_one(key))
    }

    /// Somebody outside has had the lock while others waited here.
    pub(crate) fn count_outside(&mut self, key: KeyRef<'_>) {
        if let Some(row) = self.row_mut(key) {
            row.outside = row.outside.saturating_add(1);
        }
    }

    /// The lock was free for everybody: the count begins anew. What was in vain is remembered.
    pub(crate) fn was_free(&mut self, key: KeyRef<'_>) {
        match self.row_mut(key) {
            Some(row) if row.in_vain > 0 => (row.hand_offs, row.outside) = (0, 0),
            Some(_) => drop(self.rows.swap_remove(&self.names.hash_one(key))),
            None => {}
        }
    }

    fn was_taken(&mut self, key: KeyRef<'_>) {
        if let Some(row) = self.row_mut(key) {
            row.in_vain = 0;
        }
    }

    fn was_in_vain(&mut self, key: KeyRef<'_>) {
        if let Some(row) = self.row_mut(key) {
            row.hand_offs = 0;
            row.in_vain = (row.in_vain + 1).min(MOST_DOUBLINGS);
        }
    }

    /// A window begins; there is none: every grant ends one, and nothing has been granted where one is.
    fn begin(&mut self, key: KeyRef<'_>, now: Now) {
        if let Some(row) = self.row_mut(key) {
            (row.hand_offs, row.outside) = (0, 0);
        }
        let (key, end) = (key.to_id(), now.mono_ms.saturating_add(self.rule.window_ms));
        self.ends.insert((end, key.clone()));
        self.open.insert(key, end);
    }

    /// Ends a window, if there is one.
    fn end(&mut self, key: KeyRef<'_>) -> Option<KeyId> {
        let (key, end) = self.open.swap_remove_entry(&key)?;
        give_back(&mut self.open);
        let ended = (end, key);
        self.ends.remove(&ended);
        Some(ended.1)
    }
}

impl Locks {
    /// Sets the rule. With another one every window ends: the line is looked at in this turn.
    pub fn set_window_rule(&mut self, rule: WindowRule) {
        if self.windows.rule != rule {
            self.windows.rule = rule;
            self.windows.rows.clear();
            for key in self.end_windows() {
                self.waiters.schedule_settle(key.as_ref());
            }
        }
    }

    /// Whether it depends on who listens what is to be done with this lock when it is free.
    pub fn depends_on_subscribers(&self, key: KeyRef<'_>) -> bool {
        self.windows.is_due(key)
            && self
                .waiters
                .first(key)
                .is_some_and(|(_, waiter)| waiter.mode == Mode::Exclusive)
    }

    /// The lock is free and could be handed to the first in line: whether it is left free instead.
    pub(crate) fn leave_free(
        &mut self,
        view: &View<'_>,
        first: Seq,
        now: Now,
        fx: &mut Effects,
    ) -> Option<HandedOff> {
        if self.windows.is_open(view.key, now) {
            return Some(HandedOff::Reserved);
        }
        let first = self.waiters.at(view.key, first);
        let is_shared = matches!(view.state, KeyState::ReadWrite(_))
            || first.is_none_or(|(_, waiter)| waiter.mode != Mode::Exclusive);
        if is_shared || !self.windows.is_due(view.key) {
            return None;
        }
        if !view.has_subscriber {
            self.windows.was_in_vain(view.key);
            return None;
        }
        self.announce_untracked(view, now, fx);
        self.sweep(view, now, fx);
        self.windows.begin(view.key, now);
        self.stats.windows += 1;
        self.waiters.set_lease(view.key, None);
        if view.state != KeyState::Absent {
            fx.push(Effect::Write(KeyWrite::Delete));
        }
        fx.push(Effect::Publish);
        Some(HandedOff::LeftFree)
    }

    /// The key has been read: if somebody holds what was left free, the window has served its purpose.
    pub(crate) fn see_taken(&mut self, view: &View<'_>, now: Now) {
        if self.windows.open.is_empty() || !is_held(&view.state, None, now) {
            return;
        }
        if self.windows.end(view.key).is_some() {
            self.stats.windows_taken += 1;
            self.windows.was_taken(view.key);
        }
    }

    /// Nobody came while the window was open, or it is of no interest any more.
    pub(crate) fn end_window(&mut self, key: KeyRef<'_>) -> Option<KeyId> {
        if self.windows.open.is_empty() {
            return None;
        }
        let key = self.windows.end(key)?;
        self.stats.windows_unused += 1;
        self.windows.was_in_vain(key.as_ref());
        Some(key)
    }

    /// The next lock whose window is over: it is to be settled.
    pub(crate) fn pop_window(&mut self, now: Now) -> Option<KeyId> {
        let (_, key) = self
            .windows
            .ends
            .first()
            .filter(|(end, _)| *end <= now.mono_ms)?;
        let key = key.clone();
        self.end_window(key.as_ref())
    }

    /// Every window ends.
    pub(crate) fn end_windows(&mut self) -> Vec<KeyId> {
        let open: Vec<_> = self.windows.open.keys().cloned().collect();
        for key in &open {
            self.end_window(key.as_ref());
        }
        open
    }
}
