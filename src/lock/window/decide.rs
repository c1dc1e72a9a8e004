//! Redisson windows of locks: begin and use. (Those of semaphores: `semaphore/grant.rs`.)

use crate::lock::effect::{Cx, Effect, KeyWrite};
use crate::lock::grant::hand_off::HandedOff;
use crate::lock::locks::Locks;
use crate::lock::read_write::RwWrite;
use crate::lock::view::View;
use crate::lock::wait::request::PlaceId;
use crate::lock::wait::waiters::Waiters;
use crate::lock::window::state::{Window, WindowRule};
use crate::lock::{is_held, KeyRef, KeyState, Mode, Now};

impl Waiters {
    /// Sets the rule. If it differs, every window ends and its key is settled in this tick.
    pub fn set_window_rule(&mut self, rule: WindowRule) {
        if self.windows.rule != rule {
            for key in self.windows.set_rule(rule) {
                self.schedule_settle(key.as_ref());
            }
        }
    }

    /// What the first waiter of this key asks for, if the next decision depends on the subscribers of its channel,
    /// because a window is due.
    pub fn depends_on_subscribers(&self, key: KeyRef<'_>, now: Now) -> Option<Mode> {
        let is_due = self.windows.is_due(key, now);
        let (_, first) = is_due.then(|| self.first(key))??;
        Some(first.mode)
    }
}

impl Locks {
    /// Decides whether a lock that may be granted to its first waiter is left free instead. `None`: it is not.
    pub(crate) fn leave_free(
        &mut self,
        view: &View<'_>,
        rest: &KeyState,
        first: PlaceId,
        cx: &mut Cx<'_>,
    ) -> Option<HandedOff> {
        if is_held(rest, None, cx.now) {
            return None;
        }
        let (_, first) = self.shared.waiters.at(first)?;
        let is_exclusive = first.mode == Mode::Exclusive;
        // Only the exclusive lock of Redisson has a kind that polls.
        let clients = (view.has_subscriber, is_exclusive);
        match self
            .shared
            .waiters
            .windows
            .leave_free(view.key, clients, cx.now)?
        {
            Window::Open => return Some(HandedOff::Reserved),
            Window::Begun => {}
        }
        self.announce_untracked(view, cx);
        self.sweep(view, cx);
        self.shared.waiters.set_lease(view.key, None);
        if view.state != KeyState::Absent {
            cx.write(KeyWrite::Delete);
        }
        let former = match &view.state {
            KeyState::ReadWrite(lock) => Some(lock),
            _ => None,
        };
        if former.is_some_and(|lock| lock.token_record.is_some()) {
            cx.write(KeyWrite::ReadWrite(RwWrite::DropTokenRecord));
        }
        cx.effects.push(match is_exclusive {
            true => Effect::Publish,
            // This message wakes one thread of each instance, that after a writer all of them.
            false => Effect::PublishReadWrite(Mode::Read),
        });
        Some(HandedOff::LeftFree)
    }

    /// Ends the window of a lock that was read as held: the window was used.
    pub(crate) fn note_window_taken(&mut self, view: &View<'_>, now: Now) {
        if self.shared.waiters.windows.open() > 0 && is_held(&view.state, None, now) {
            self.shared.waiters.windows.end_taken(view.key);
        }
    }
}
