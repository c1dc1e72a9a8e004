//! The naive model: Redisson windows.

use crate::lock::tests::model::naive::{Key, Model};
use crate::lock::WindowRule;

/// The result of a hand-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    Granted,
    /// A window has begun.
    LeftFree,
    /// It is in its window.
    StillFree,
    NoWaiter,
}

/// What has happened at a lock since its last window.
#[derive(Debug, Default, Clone, Copy)]
pub struct Row {
    hand_offs: u32,
    /// Holds of Redisson clients that ended while requests waited.
    foreign: u32,
    /// Windows without a subscriber, or that were not used.
    unused: u32,
    /// No window begins before this moment.
    rests_until: u64,
    /// Windows that may begin without a subscriber.
    polled: u32,
    /// The last window began for a subscriber, and no hold of a Redisson client has ended since then.
    for_subscriber: bool,
}

impl Row {
    /// The count begins anew.
    fn again(self) -> Row {
        Row {
            hand_offs: 0,
            foreign: 0,
            ..self
        }
    }
}

/// The state of the windows.
#[derive(Debug, Clone)]
pub struct Windows {
    pub rule: WindowRule,
    pub has_subscriber: Vec<bool>,
    pub row: Vec<Option<Row>>,
    /// When the window ends.
    pub window: Vec<Option<u64>>,
    pub begun: u64,
    pub taken: u64,
}

impl Windows {
    pub fn new(rule: WindowRule, keys: usize) -> Windows {
        Windows {
            rule,
            has_subscriber: vec![false; keys],
            row: vec![None; keys],
            window: vec![None; keys],
            begun: 0,
            taken: 0,
        }
    }

    /// The lock was free.
    pub fn was_free(&mut self, key: Key) {
        let row = self.row[key].filter(|row| row.unused > 0 || row.polled > 0);
        self.row[key] = row.map(Row::again);
    }

    /// Subscribers are not in the memory of the module.
    pub fn restarted(&self) -> Windows {
        Windows {
            has_subscriber: self.has_subscriber.clone(),
            ..Windows::new(self.rule, self.row.len())
        }
    }
}

impl Model {
    pub fn set_window_rule(&mut self, rule: WindowRule) {
        if rule == self.windows.rule {
            return;
        }
        self.windows.rule = rule;
        for key in 0..self.keys.len() {
            if self.windows.window[key].is_some() {
                self.end_window(key);
                self.schedule_settle(key);
            }
            self.windows.row[key] = None;
        }
    }

    /// The lock can be handed off: whether it is left free instead.
    pub fn leave_free(&mut self, key: Key) -> Option<Passed> {
        if matches!(self.windows.window[key], Some(end) if end > self.mono_ms) {
            return Some(Passed::StillFree);
        }
        let row = self.windows.row[key]?;
        let after = self.windows.rule.after;
        let owed = (after * row.foreign).min(100);
        let polled = self.windows.rule.polled;
        let doublings = if polled && row.unused <= 2 {
            0
        } else {
            row.unused.min(4)
        };
        if after == 0 || row.hand_offs < owed.max(after * 2u32.pow(doublings)) {
            return None;
        }
        if self.mono_ms < row.rests_until {
            return None;
        }
        let has_subscriber = self.windows.has_subscriber[key];
        if !has_subscriber && !polled && row.polled == 0 {
            self.unused(key, None);
            return None;
        }
        self.windows.row[key] = Some(Row {
            polled: row.polled - u32::from(!has_subscriber && !polled),
            for_subscriber: has_subscriber,
            ..row.again()
        });
        self.windows.begun += 1;
        let longer = if polled && !has_subscriber {
            row.unused.min(2)
        } else {
            0
        };
        let end = self.mono_ms + self.windows.rule.window_ms * 2u64.pow(longer);
        self.windows.window[key] = Some(end);
        self.free(key);
        Some(Passed::LeftFree)
    }

    /// It was handed off.
    pub fn count(&mut self, key: Key) {
        if self.windows.rule.after > 0 {
            self.windows.row[key].get_or_insert_default().hand_offs += 1;
        }
    }

    /// A hold of a Redisson client has ended, or a hold of the module by other means.
    pub fn lost(&mut self, key: Key) {
        if self.windows.rule.after > 0 && !self.queue(key).is_empty() {
            let row = self.windows.row[key].get_or_insert_default();
            row.foreign += 1;
            row.rests_until = 0;
            if !std::mem::take(&mut row.for_subscriber) {
                row.polled = row.polled.max(1);
            }
        }
        self.schedule_settle(key);
    }

    /// `end`: of the window, if one began.
    fn unused(&mut self, key: Key, end: Option<u64>) {
        let length = self.windows.rule.window_ms;
        if let Some(row) = &mut self.windows.row[key] {
            row.hand_offs = 0;
            row.unused += u32::from(row.unused < if end.is_some() { 11 } else { 4 });
            if let Some(end) = end.filter(|_| row.unused > 4) {
                row.rests_until = end + length * 2u64.pow(row.unused - 4);
            }
        }
    }

    /// The key was read: a hold that was taken in the window is seen.
    pub fn note_window_taken(&mut self, key: Key) {
        if self.windows.window[key].is_some() && self.holder(key).is_some() {
            self.windows.window[key] = None;
            self.windows.taken += 1;
            if let Some(row) = &mut self.windows.row[key] {
                row.unused = 0;
                if !row.for_subscriber {
                    row.polled = 4;
                }
            }
        }
    }

    pub fn end_window(&mut self, key: Key) {
        if let Some(end) = self.windows.window[key].take() {
            self.unused(key, Some(end));
        }
    }

    /// Keys whose windows are over, in the order of their ends.
    pub fn next_windows(&self) -> Vec<Key> {
        let mut over: Vec<Key> = (0..self.keys.len()).collect();
        over.retain(|key| self.windows.window[*key].is_some_and(|end| end <= self.mono_ms));
        over.sort_by_key(|key| self.windows.window[*key]);
        over
    }

    /// A request may wait for a free lock in its window only. (A hold that began and ended in the window, within one
    /// tick, was not seen: the window continues to its end.)
    pub fn is_left_free(&self, key: Key) -> bool {
        self.windows.window[key].is_some_and(|end| end > self.mono_ms) && self.holder(key).is_none()
    }
}
