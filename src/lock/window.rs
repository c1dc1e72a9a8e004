//! Redisson windows: the time for which a lock or a permit is left free for Redisson's waiters, which try only after a
//! message that it is free.
//!
//! A hand-off never frees the key, so no such message is published while requests wait here. After
//! [`WindowRule::after`] consecutive hand-offs a resource with a subscriber on its channel is *left free* instead: the
//! message is published, and a *window* begins during which no request of this module is granted it while requests
//! wait. (Of a semaphore, one permit is left free.) The waiters keep their places. The window ends when a client has
//! taken the resource, and the waiters wait for its release; or when its time has passed, and the first waiter is
//! granted it. (If all waiters have left, a request of this module is granted it, and the window ends.)
//!
//! An *unused* window (no subscriber, or no client took the resource) doubles the number of hand-offs until the next,
//! up to [`MOST_DOUBLINGS`] times. Each further unused window is followed by a time without windows, which doubles up
//! to [`MOST_RESTS`] times: a subscriber may be a client that may not, or will not, take the lock. A used window resets
//! both.
//!
//! Redisson's spin lock has no subscriber: it polls. So a window of an exclusive lock also begins without a subscriber,
//! once after another client's hold has ended while requests waited here, and after such a window that was used, up to
//! [`MOST_POLLED`] times.
//!
//! All clients whose locks are strings poll. With [`WindowRule::polled`] an exclusive lock without a subscriber has
//! windows as if it had one, and the first [`MOST_LONGER`] unused windows double the length of the next one instead of
//! the number of hand-offs: three in a row last longer together than these clients sleep between two tries (300 ms).

use std::hash::BuildHasher;

use indexmap::IndexMap;

use crate::lock::effect::Cx;
use crate::lock::grant::{free, HandedOff};
use crate::lock::locks::Locks;
use crate::lock::name::{KeyMap, Secret};
use crate::lock::state::View;
use crate::lock::stats::WindowStats;
use crate::lock::table::give_back;
use crate::lock::wait::request::PlaceId;
use crate::lock::wait::turns::Agenda;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{is_held, KeyId, KeyRef, KeyState, Mode, Now, UserId};

/// The most names whose hand-offs are counted, at about 50 bytes each. The count of a name that is pushed out starts
/// again, with the longest rest of those that were pushed out: else a user could end the rest of another's name by
/// hand-offs of its own.
const MOST_COUNTED: usize = 1_000;

/// The upper bound of the hand-offs that compensate for holds of Redisson's clients.
const MOST_OWED: u32 = 100;

/// How often the number of hand-offs until the next window is doubled.
const MOST_DOUBLINGS: u32 = 4;

/// How often the rest after further unused windows is doubled, from twice the length of a window: then less than a
/// hundredth of the time is spent in windows that no client uses.
const MOST_RESTS: u32 = 7;

/// The most unused windows in a row without a subscriber. With their default length they last longer together than a
/// spin lock of Redisson sleeps between two tries (128 ms).
const MOST_POLLED: u32 = 4;

/// How often the length of a window is doubled after unused windows of a lock whose clients poll.
const MOST_LONGER: u32 = 2;

/// When locks and permits are left free for Redisson's waiters, and for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowRule {
    /// After this many consecutive hand-offs; 0: never.
    pub after: u32,
    /// The length of a window in milliseconds.
    pub window_ms: u64,
    /// Whether clients may poll for any exclusive lock.
    pub polled: bool,
}

/// What has happened at a name since a Redisson client last had it.
#[derive(Debug, Default, Clone, Copy)]
struct HandOffCount {
    hand_offs: u32,
    /// Holds of Redisson's clients since a window began, counted at their ends.
    redisson_holds: u32,
    /// Consecutive windows that were not used, or were due without a subscriber.
    unused_windows: u32,
    /// No window begins before this moment of the monotonic clock.
    rests_until_ms: u64,
    /// Windows that may begin without a subscriber.
    polled: u32,
    /// Whether the last window began for a subscriber, and no hold has ended since then.
    is_for_subscriber: bool,
}

/// An open window.
#[derive(Debug)]
struct OpenWindow {
    /// Its end in milliseconds of the monotonic clock.
    end_ms: u64,
    /// The user of the first waiter as it began.
    user: UserId,
    /// The count as it began.
    count: HandOffCount,
}

/// The counts of hand-offs, and the windows.
#[derive(Debug, Default)]
pub struct Windows {
    /// The statistics.
    pub(super) stats: WindowStats,
    /// The rule in force, the same for every kind.
    pub(super) rule: WindowRule,
    /// By the hash of the name: a count may outlive every hold and every wait, and must not keep the name in memory.
    /// Two names with the same hash (one pair in 2^64) share a count, which costs one window more or less.
    counts: IndexMap<u64, HandOffCount, Secret>,
    names: Secret,
    open: KeyMap<OpenWindow>,
    /// By the users of the first waiters.
    ends: Agenda<u64, KeyId>,
    /// The count that is next to be pushed out. It moves on, so a name that is used now stays for many others.
    hand: usize,
    /// How the count of a new name begins: with the rest that ends last of those that were pushed out.
    first: HandOffCount,
}

impl Windows {
    /// The number of open windows.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Sets another rule. Every window ends; the keys are returned, to be settled.
    pub(crate) fn set_rule(&mut self, rule: WindowRule) -> Vec<KeyId> {
        // First: a window that ends notes its count.
        let ended = self.end_all();
        self.counts.clear();
        (self.first, self.rule) = (HandOffCount::default(), rule);
        ended
    }

    /// Whether a window of this resource is open.
    pub(crate) fn is_open(&self, key: KeyRef<'_>, now: Now) -> bool {
        !self.open.is_empty()
            && self
                .open
                .get(&key)
                .is_some_and(|open| now.mono_ms < open.end_ms)
    }

    /// Milliseconds until the next window ends.
    pub(crate) fn next_end(&self, now: Now) -> Option<u64> {
        let end = self.ends.earliest()?;
        Some(end.saturating_sub(now.mono_ms))
    }

    /// Whether a window is due at the next end of a hold.
    pub(crate) fn is_due(&self, key: KeyRef<'_>, now: Now) -> bool {
        let due = |count: &HandOffCount| {
            let doublings = match count.unused_windows {
                ..=MOST_LONGER if self.rule.polled => 0,
                unused => unused.min(MOST_DOUBLINGS),
            };
            let after = self.rule.after.saturating_mul(1 << doublings);
            let owed = self.rule.after.saturating_mul(count.redisson_holds);
            count.hand_offs >= after.max(owed.min(MOST_OWED)) && now.mono_ms >= count.rests_until_ms
        };
        self.count_of(key).is_some_and(due)
    }

    /// Begins the due window of a free resource, or finds it open.
    /// `may_be_polled`: clients may wait for it that do not subscribe.
    pub(crate) fn leave_free(
        &mut self,
        (key, user): (KeyRef<'_>, UserId),
        (has_subscriber, may_be_polled): (bool, bool),
        now: Now,
    ) -> Option<HandedOff> {
        if self.is_open(key, now) {
            return Some(HandedOff::Reserved);
        }
        // A window that is over may still be there, if the timer is late.
        self.end_unused(key);
        if !self.is_due(key, now) {
            return None;
        }
        let rule = self.rule;
        let count = self.count_of_mut(key)?;
        let is_polled = rule.polled && may_be_polled && !has_subscriber;
        if !has_subscriber && !is_polled {
            if count.polled == 0 || !may_be_polled {
                count.passed_up();
                return None;
            }
            count.polled -= 1;
        }
        let longer = if is_polled {
            count.unused_windows.min(MOST_LONGER)
        } else {
            0
        };
        count.is_for_subscriber = has_subscriber;
        (count.hand_offs, count.redisson_holds) = (0, 0);
        let count = *count;
        let end_ms = now.mono_ms.saturating_add(rule.window_ms << longer);
        let key = key.to_id();
        self.ends.insert(user, end_ms, key.clone());
        let open = OpenWindow {
            end_ms,
            user,
            count,
        };
        self.open.insert(key, open);
        self.stats.windows += 1;
        Some(HandedOff::LeftFree)
    }

    /// Counts a hand-off.
    pub(crate) fn count_hand_off(&mut self, key: KeyRef<'_>) {
        if let Some(count) = self.entry(key) {
            count.hand_offs = count.hand_offs.saturating_add(1);
        }
    }

    /// Counts a hold of a Redisson client, which has ended while requests waited here.
    pub(crate) fn redisson_hold_ended(&mut self, key: KeyRef<'_>) {
        if let Some(count) = self.entry(key) {
            count.redisson_holds = count.redisson_holds.saturating_add(1);
            count.rests_until_ms = 0;
            if !std::mem::take(&mut count.is_for_subscriber) {
                count.polled = count.polled.max(1);
            }
        }
    }

    fn entry(&mut self, key: KeyRef<'_>) -> Option<&mut HandOffCount> {
        if self.rule.after == 0 {
            return None;
        }
        let hash = self.names.hash_one(key);
        if self.counts.len() >= MOST_COUNTED && !self.counts.contains_key(&hash) {
            let pushed_out = self.counts.swap_remove_index(self.hand % MOST_COUNTED);
            self.hand = self.hand.wrapping_add(1);
            if let Some((_, count)) = pushed_out {
                if count.rests_until_ms > self.first.rests_until_ms {
                    self.first.unused_windows = count.unused_windows;
                    self.first.rests_until_ms = count.rests_until_ms;
                }
            }
        }
        Some(self.counts.entry(hash).or_insert(self.first))
    }

    fn count_of(&self, key: KeyRef<'_>) -> Option<&HandOffCount> {
        if self.counts.is_empty() {
            return None;
        }
        self.counts.get(&self.names.hash_one(key))
    }

    fn count_of_mut(&mut self, key: KeyRef<'_>) -> Option<&mut HandOffCount> {
        if self.counts.is_empty() {
            return None;
        }
        self.counts.get_mut(&self.names.hash_one(key))
    }

    /// The resource was free for every client: the count starts again. What is known of its windows is kept.
    pub(crate) fn was_free(&mut self, key: KeyRef<'_>) {
        match self.count_of_mut(key) {
            Some(count) if count.unused_windows > 0 || count.polled > 0 => {
                (count.hand_offs, count.redisson_holds) = (0, 0)
            }
            Some(_) => drop(self.counts.swap_remove(&self.names.hash_one(key))),
            None => {}
        }
    }

    /// A client has taken the resource: its window, if one is open, ends as used.
    pub(crate) fn end_taken(&mut self, key: KeyRef<'_>) {
        if self.end(key).is_none() {
            return;
        }
        self.stats.windows_taken += 1;
        if let Some(count) = self.count_of_mut(key) {
            count.unused_windows = 0;
            if !count.is_for_subscriber {
                count.polled = MOST_POLLED;
            }
        }
    }

    /// The window, if one is open, ends as unused.
    pub(crate) fn end_unused(&mut self, key: KeyRef<'_>) -> Option<KeyId> {
        let (end_ms, ended) = self.end(key)?;
        self.stats.windows_unused += 1;
        let window_ms = self.rule.window_ms;
        if let Some(count) = self.count_of_mut(key) {
            count.unused(window_ms, end_ms);
        }
        Some(ended)
    }

    /// The user that follows this one, of those with a window that is over.
    pub(crate) fn next_user(&mut self, after: UserId, now: Now) -> Option<UserId> {
        let is_over = |end| end <= now.mono_ms;
        self.ends.next_user(after, now.mono_ms, is_over)
    }

    /// The resource of this user's first window, which is over: it is to be settled. The window stays if the resource
    /// has changed: the settling tells whether it was used.
    pub(crate) fn pop_of(
        &mut self,
        user: UserId,
        has_changed: impl FnOnce(KeyRef<'_>) -> bool,
    ) -> Option<KeyId> {
        let (end_ms, key) = self.ends.pop_of(user)?;
        if has_changed(key.as_ref()) {
            self.ends.insert(user, end_ms, key.clone());
            return Some(key);
        }
        self.end_unused(key.as_ref())
    }

    /// Ends every window.
    pub(crate) fn end_all(&mut self) -> Vec<KeyId> {
        let open: Vec<_> = self.open.keys().cloned().collect();
        for key in &open {
            self.end_unused(key.as_ref());
        }
        open
    }

    fn end(&mut self, key: KeyRef<'_>) -> Option<(u64, KeyId)> {
        if self.open.is_empty() {
            return None;
        }
        let (key, open) = self.open.swap_remove_entry(&key)?;
        give_back(&mut self.open);
        // The count may have been pushed out meanwhile.
        if self.count_of(key.as_ref()).is_none() {
            if let Some(entry) = self.entry(key.as_ref()) {
                *entry = open.count;
            }
        }
        self.ends.remove(open.user, open.end_ms, key.clone());
        Some((open.end_ms, key))
    }
}

impl HandOffCount {
    /// A window was due, and there was no subscriber.
    fn passed_up(&mut self) {
        self.hand_offs = 0;
        if self.unused_windows < MOST_DOUBLINGS {
            self.unused_windows += 1;
        }
    }

    /// A window of this length, which was to end at this moment, has ended, and no client has used it. (A subscriber
    /// need not be a client that may take the lock.)
    fn unused(&mut self, window_ms: u64, end_ms: u64) {
        self.hand_offs = 0;
        self.unused_windows = (self.unused_windows + 1).min(MOST_DOUBLINGS + MOST_RESTS);
        if self.unused_windows > MOST_DOUBLINGS {
            let rest_ms = window_ms.saturating_mul(1 << (self.unused_windows - MOST_DOUBLINGS));
            self.rests_until_ms = end_ms.saturating_add(rest_ms);
        }
    }
}

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
        let at = (view.key, first.user);
        let windows = &mut self.shared.waiters.windows;
        let left_free = windows.leave_free(at, clients, cx.now)?;
        if left_free == HandedOff::Reserved {
            return Some(left_free);
        }
        self.announce_untracked(view, cx);
        self.sweep(view, cx);
        self.shared.waiters.set_lease(view.key, None);
        let ended = match is_exclusive {
            true => Mode::Exclusive,
            // This message wakes one thread of each instance, that after a writer all of them.
            false => Mode::Read,
        };
        free(view, ended, cx);
        Some(left_free)
    }

    /// Ends the window of a lock that was read as held: the window was used.
    pub(crate) fn note_window_taken(&mut self, view: &View<'_>, now: Now) {
        if self.shared.waiters.windows.open() > 0 && is_held(&view.state, None, now) {
            self.shared.waiters.windows.end_taken(view.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first window that is over.
    fn pop(windows: &mut Windows, ms: u64) -> Option<KeyId> {
        let user = windows.next_user(UserId::UNKNOWN, Now::at_mono(ms))?;
        windows.pop_of(user, |_| false)
    }

    /// Windows of 50 ms after so many hand-offs.
    fn windows_after(after: u32) -> Windows {
        let mut windows = Windows::default();
        windows.set_rule(WindowRule {
            after,
            window_ms: 50,
            polled: false,
        });
        windows
    }

    #[test]
    fn a_window_that_is_over_ends_before_the_next_one_begins() {
        let mut windows = windows_after(1);
        let key = KeyRef::lock(0, b"s");
        let leave_free = |windows: &mut Windows, ms| {
            windows.leave_free((key, UserId::UNKNOWN), (true, false), Now::at_mono(ms))
        };
        windows.count_hand_off(key);
        assert_eq!(leave_free(&mut windows, 0), Some(HandedOff::LeftFree));
        // Other permits are handed off meanwhile, and the timer is late.
        windows.count_hand_off(key);
        assert_eq!(leave_free(&mut windows, 60), None);
        assert_eq!(
            (windows.open(), windows.next_end(Now::at_mono(60))),
            (0, None)
        );
        (0..2).for_each(|_| windows.count_hand_off(key));
        assert_eq!(leave_free(&mut windows, 70), Some(HandedOff::LeftFree));
        assert_eq!(pop(&mut windows, 120), Some(key.to_id()));
        assert_eq!(
            (windows.open(), windows.next_end(Now::at_mono(120))),
            (0, None)
        );
    }

    #[test]
    fn a_window_is_open_until_its_end() {
        let mut windows = windows_after(1);
        let key = KeyRef::lock(0, b"k");
        windows.count_hand_off(key);
        let start = windows.leave_free((key, UserId::UNKNOWN), (true, false), Now::at_mono(0));
        assert_eq!(start, Some(HandedOff::LeftFree));
        assert!(windows.is_open(key, Now::at_mono(49)));
        assert!(!windows.is_open(key, Now::at_mono(50)));
        assert_eq!(pop(&mut windows, 49), None);
        assert_eq!(pop(&mut windows, 50), Some(key.to_id()));
        // That it was not used is known also after the lock was free for every client.
        windows.was_free(key);
        windows.count_hand_off(key);
        assert!(!windows.is_due(key, Now::at_mono(50)));
        windows.count_hand_off(key);
        assert!(windows.is_due(key, Now::at_mono(50)));
    }

    #[test]
    fn a_changed_rule_forgets_the_windows_that_it_ends() {
        let (mut windows, now) = (Windows::default(), Now::at_mono(0));
        let key = KeyRef::lock(0, b"k");
        for window_ms in [50, 60] {
            let ended = windows.set_rule(WindowRule {
                after: 1,
                window_ms,
                polled: false,
            });
            assert_eq!(ended.len(), usize::from(window_ms == 60));
            windows.count_hand_off(key);
            let begun = windows.leave_free((key, UserId::UNKNOWN), (true, false), now);
            assert_eq!(begun, Some(HandedOff::LeftFree), "after one hand-off");
        }
    }

    #[test]
    fn a_lock_that_was_free_for_all_counts_its_hand_offs_anew() {
        let mut windows = windows_after(2);
        let (key, now) = (KeyRef::lock(0, b"k"), Now::at_mono(0));
        windows.count_hand_off(key);
        windows.was_free(key);
        assert_eq!(windows.counts.len(), 0, "nothing is known of its windows");
        windows.count_hand_off(key);
        assert!(!windows.is_due(key, now));
        windows.redisson_hold_ended(key);
        windows.was_free(key);
        assert_eq!(windows.counts.len(), 1, "a client polls");
        windows.count_hand_off(key);
        assert!(!windows.is_due(key, now));
    }

    #[test]
    fn a_due_window_without_a_subscriber_doubles_the_hand_offs_until_the_next() {
        let mut windows = windows_after(1);
        let (key, now) = (KeyRef::lock(0, b"k"), Now::at_mono(0));
        for hand_offs in [1, 2, 4, 8, 16, 16] {
            for _ in 0..hand_offs {
                assert!(!windows.is_due(key, now));
                windows.count_hand_off(key);
            }
            assert!(windows.is_due(key, now));
            assert_eq!(
                windows.leave_free((key, UserId::UNKNOWN), (false, true), now),
                None
            );
        }
        // The first window after that, unused, is followed by the shortest rest.
        (0..16).for_each(|_| windows.count_hand_off(key));
        let begun = windows.leave_free((key, UserId::UNKNOWN), (true, true), now);
        assert_eq!(begun, Some(HandedOff::LeftFree));
        pop(&mut windows, 50);
        (0..16).for_each(|_| windows.count_hand_off(key));
        assert!(!windows.is_due(key, Now::at_mono(149)));
        assert!(windows.is_due(key, Now::at_mono(150)));
    }

    #[test]
    fn unused_windows_of_polled_locks_become_longer_before_they_become_rare() {
        let mut windows = windows_after(1);
        windows.set_rule(WindowRule {
            polled: true,
            ..windows.rule
        });
        let (key, now) = (KeyRef::lock(0, b"k"), Now::at_mono(0));
        for (hand_offs, length) in [(1, 50), (1, 100), (1, 200), (8, 200), (16, 200)] {
            for _ in 0..hand_offs {
                assert!(!windows.is_due(key, now));
                windows.count_hand_off(key);
            }
            let begun = windows.leave_free((key, UserId::UNKNOWN), (false, true), now);
            assert_eq!(begun, Some(HandedOff::LeftFree));
            assert_eq!(windows.next_end(now), Some(length));
            windows.end_unused(key);
        }
        // The next one begins after a rest, or after a hold of such a client.
        (0..16).for_each(|_| windows.count_hand_off(key));
        assert!(!windows.is_due(key, now));
        windows.redisson_hold_ended(key);
        assert!(windows.is_due(key, now));
        assert_eq!(
            windows.leave_free((key, UserId::UNKNOWN), (false, false), now),
            None,
            "for READ or WRITE"
        );
        (0..16).for_each(|_| windows.count_hand_off(key));
        windows.leave_free((key, UserId::UNKNOWN), (true, true), now);
        assert_eq!(windows.next_end(now), Some(50), "a subscriber is told");
    }

    #[test]
    fn counts_of_many_other_names_do_not_push_out_one_in_use() {
        let mut windows = windows_after(2);
        let key = KeyRef::lock(0, b"k");
        let names = (0..MOST_COUNTED + 500).map(|number| number.to_string());
        for (number, name) in names.enumerate() {
            windows.count_hand_off(KeyRef::lock(0, name.as_bytes()));
            if number == MOST_COUNTED {
                (0..2).for_each(|_| windows.count_hand_off(key));
            }
        }
        assert!(windows.is_due(key, Now::at_mono(0)));
        assert_eq!(windows.counts.len(), MOST_COUNTED);
    }

    #[test]
    fn a_name_that_is_pushed_out_still_rests() {
        let mut windows = windows_after(1);
        let key = KeyRef::lock(0, b"k");
        for ms in 0..20_000 {
            pop(&mut windows, ms);
            // Another user hands off locks of its own.
            for number in 0..100 {
                let name = format!("{}", ms * 100 + number);
                windows.count_hand_off(KeyRef::lock(0, name.as_bytes()));
            }
            if windows
                .leave_free((key, UserId::UNKNOWN), (true, false), Now::at_mono(ms))
                .is_none()
            {
                (0..16).for_each(|_| windows.count_hand_off(key));
            }
        }
        assert!(windows.stats.windows < 20, "{}", windows.stats.windows);
    }

    #[test]
    fn windows_that_no_client_uses_take_less_than_a_hundredth_of_the_time() {
        let mut windows = windows_after(1);
        let key = KeyRef::lock(0, b"k");
        let begun_in = |windows: &mut Windows, times: std::ops::Range<u64>| {
            let before = windows.stats.windows;
            for ms in times {
                pop(windows, ms);
                if windows
                    .leave_free((key, UserId::UNKNOWN), (true, false), Now::at_mono(ms))
                    .is_none()
                {
                    (0..16).for_each(|_| windows.count_hand_off(key));
                }
            }
            windows.stats.windows - before
        };
        // Of the first minute 19 windows of 50 ms, of the next ten minutes 93.
        assert_eq!(begun_in(&mut windows, 0..60_000), 19);
        assert_eq!(begun_in(&mut windows, 60_000..660_000), 93);
        // A hold by a script shows that there is a client for the next one.
        windows.redisson_hold_ended(key);
        assert_eq!(begun_in(&mut windows, 660_000..660_100), 1);
    }
}
