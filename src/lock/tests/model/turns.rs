//! The naive model: turns of those who wait outside.

use super::naive::{Key, Model, State, KEYS};
use crate::lock::TurnRule;

/// What became of a lock that was to be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    Granted,
    /// A window has begun.
    LeftFree,
    /// It is in its window.
    StillFree,
    Nobody,
}

/// What the model keeps for them.
#[derive(Debug)]
pub struct Turns {
    pub rule: TurnRule,
    pub listened: [bool; KEYS],
    /// Hand-offs in a row, and turns in vain.
    pub row: [Option<(u32, u32)>; KEYS],
    /// When the window ends.
    pub window: [Option<u64>; KEYS],
    pub begun: u64,
    pub taken: u64,
}

impl Turns {
    pub fn new(rule: TurnRule) -> Turns {
        Turns {
            rule,
            listened: [false; KEYS],
            row: [None; KEYS],
            window: [None; KEYS],
            begun: 0,
            taken: 0,
        }
    }

    /// Who listens is not the server's memory.
    pub fn restarted(&self) -> Turns {
        Turns {
            listened: self.listened,
            ..Turns::new(self.rule)
        }
    }
}

impl Model {
    pub fn set_turns(&mut self, rule: TurnRule) {
        if rule == self.turns.rule {
            return;
        }
        self.turns.rule = rule;
        for key in 0..KEYS {
            if self.turns.window[key].is_some() {
                self.end_window(key);
                self.touch(key);
            }
            self.turns.row[key] = None;
        }
    }

    /// The lock could be handed on: whether others have their turn instead.
    pub fn leave_free(&mut self, key: Key) -> Option<Passed> {
        if matches!(self.turns.window[key], Some(end) if end > self.mono_ms) {
            return Some(Passed::StillFree);
        }
        let (hand_offs, in_vain) = self.turns.row[key]?;
        let after = self.turns.rule.after * 2u32.pow(in_vain);
        if self.turns.rule.after == 0 || hand_offs < after {
            return None;
        }
        if !self.turns.listened[key] {
            self.in_vain(key);
            return None;
        }
        self.end_window(key);
        let (_, in_vain) = self.turns.row[key]?;
        self.turns.row[key] = Some((0, in_vain));
        self.turns.begun += 1;
        let end = self.mono_ms + self.turns.rule.window_ms;
        self.turns.window[key] = Some(end);
        self.free(key);
        Some(Passed::LeftFree)
    }

    /// It was handed on.
    pub fn count(&mut self, key: Key) {
        if self.turns.rule.after > 0 {
            let (hand_offs, in_vain) = self.turns.row[key].unwrap_or((0, 0));
            self.turns.row[key] = Some((hand_offs + 1, in_vain));
        }
    }

    fn in_vain(&mut self, key: Key) {
        if let Some((_, in_vain)) = self.turns.row[key] {
            self.turns.row[key] = Some((0, (in_vain + 1).min(4)));
        }
    }

    /// Somebody has looked at the key: who took it in the window is seen.
    pub fn see_taken(&mut self, key: Key) {
        if self.turns.window[key].is_some() && self.holder(key).is_some() {
            self.turns.window[key] = None;
            self.turns.row[key] = None;
            self.turns.taken += 1;
        }
    }

    pub fn end_window(&mut self, key: Key) {
        if self.turns.window[key].take().is_some() {
            self.in_vain(key);
        }
    }

    /// Keys whose windows are over, in the order of their ends.
    pub fn next_windows(&self) -> Vec<Key> {
        let mut over: Vec<Key> = (0..KEYS).collect();
        over.retain(|key| self.turns.window[*key].is_some_and(|end| end <= self.mono_ms));
        over.sort_by_key(|key| self.turns.window[*key]);
        over
    }

    /// Who waits for a lock that is free may do so in its window only.
    pub fn is_left_free(&self, key: Key) -> bool {
        self.turns.window[key].is_some_and(|end| end > self.mono_ms)
            && !matches!(self.keys[key], State::Held(_))
    }
}
