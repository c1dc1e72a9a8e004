//! Decisions about Redisson windows: begin, use, end.

use crate::lock::effect::{Cx, Effect, KeyWrite};
use crate::lock::grant::hand_off::HandedOff;
use crate::lock::locks::Locks;
use crate::lock::view::View;
use crate::lock::wait::request::PlaceId;
use crate::lock::window::state::WindowRule;
use crate::lock::{is_held, KeyId, KeyRef, KeyState, Mode, Now};

impl Locks {
    /// Sets the rule. If it differs, every window ends and its lock is settled in this tick.
    pub fn set_window_rule(&mut self, rule: WindowRule) {
        if self.windows.rule != rule {
            self.windows.rule = rule;
            self.windows.counts.clear();
            for key in self.end_windows() {
                self.waiters.schedule_settle(key.as_ref());
            }
        }
    }

    /// Whether the next decision about this lock depends on its subscribers: a window is due, and the first waiter asks
    /// for an exclusive hold.
    pub fn depends_on_subscribers(&self, key: KeyRef<'_>) -> bool {
        self.windows.is_due(key)
            && self
                .waiters
                .first(key)
                .is_some_and(|(_, waiter)| waiter.mode == Mode::Exclusive)
    }

    /// Decides whether a free lock is left free instead of being granted to its first waiter. `None`: it is not.
    pub(crate) fn leave_free(
        &mut self,
        view: &View<'_>,
        first: PlaceId,
        cx: &mut Cx<'_>,
    ) -> Option<HandedOff> {
        if self.windows.is_open(view.key, cx.now) {
            return Some(HandedOff::Reserved);
        }
        let first = self.waiters.at(first);
        let is_shared = matches!(view.state, KeyState::ReadWrite(_))
            || first.is_none_or(|(_, waiter)| waiter.mode != Mode::Exclusive);
        if is_shared || !self.windows.is_due(view.key) {
            return None;
        }
        if !view.has_subscriber {
            self.windows.window_unused(view.key);
            return None;
        }
        self.announce_untracked(view, cx);
        self.sweep(view, cx);
        self.windows.begin(view.key, cx.now);
        self.stats.windows += 1;
        self.waiters.set_lease(view.key, None);
        if view.state != KeyState::Absent {
            cx.write(KeyWrite::Delete);
        }
        cx.effects.push(Effect::Publish);
        Some(HandedOff::LeftFree)
    }

    /// Ends the window of a lock that was read as held: the window was used.
    pub(crate) fn note_window_taken(&mut self, view: &View<'_>, now: Now) {
        if self.windows.open.is_empty() || !is_held(&view.state, None, now) {
            return;
        }
        if self.windows.end(view.key).is_some() {
            self.stats.windows_taken += 1;
            self.windows.window_taken(view.key);
        }
    }

    /// Ends the window of a lock as unused.
    pub(crate) fn end_window(&mut self, key: KeyRef<'_>) -> Option<KeyId> {
        if self.windows.open.is_empty() {
            return None;
        }
        let key = self.windows.end(key)?;
        self.stats.windows_unused += 1;
        self.windows.window_unused(key.as_ref());
        Some(key)
    }

    /// The next lock whose window is over, to be settled.
    pub(crate) fn pop_window(&mut self, now: Now) -> Option<KeyId> {
        let (_, key) = self
            .windows
            .ends
            .first()
            .filter(|(end, _)| *end <= now.mono_ms)?;
        let key = key.clone();
        self.end_window(key.as_ref())
    }

    /// Ends every window.
    pub(crate) fn end_windows(&mut self) -> Vec<KeyId> {
        let open: Vec<_> = self.windows.open.keys().cloned().collect();
        for key in &open {
            self.end_window(key.as_ref());
        }
        open
    }
}
