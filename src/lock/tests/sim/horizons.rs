//! Horizons that others write over.

use crate::lock::tests::sim::Sim;
use crate::lock::token::PLAUSIBLE_AHEAD_US;

impl Sim {
    /// A horizon is written over by others, and read again before the next token.
    pub fn set_horizon(&mut self, key: &str, horizon: u64) {
        self.horizons.insert(self.domain(key), horizon);
        self.locks.shared.tokens.forget();
    }

    /// Whether a horizon of this height is plausible by the present clock.
    pub(crate) fn believes(&self, horizon: u64) -> bool {
        horizon <= self.now.wall_us() + PLAUSIBLE_AHEAD_US
    }

    /// Whether a new process would start above all tokens of this key by the stored horizon.
    pub fn has_true_horizon(&self, key: &str) -> bool {
        let highest = self.highest.get(key).copied().unwrap_or(0);
        let horizon = self.horizons.get(&self.domain(key));
        horizon.is_some_and(|horizon| *horizon >= highest && self.believes(*horizon))
    }
}
