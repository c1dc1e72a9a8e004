//! One decision about one key, compared with what the core said of it before.

use crate::lock::tests::sim::{Rest, Sim};
use crate::lock::Cx;
use crate::lock::{Effects, KeyState, LockError, Locks, Planned, View};

impl Sim {
    pub(crate) fn command<T>(
        &mut self,
        key: &str,
        planned: &Planned<'_>,
        decide: impl FnOnce(&mut Locks, &View<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let (answer, fx, rest) = self.ask(key, planned, decide);
        self.carry_out_decided(key, (answer.is_ok(), fx), &rest);
        answer
    }

    pub(crate) fn ask<T>(
        &mut self,
        key: &str,
        planned: &Planned<'_>,
        decide: impl FnOnce(&mut Locks, &View<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> (Result<T, LockError>, Effects, Rest) {
        let view = self.view(key, planned);
        let rest = Rest::before(&self.locks, &view, planned, self.now);
        let mut fx = Effects::new();
        let answer = decide(&mut self.locks, &view, &mut Cx::new(self.now, &mut fx));
        assert!(answer.is_ok() || fx.is_empty(), "a failed call did {fx:?}");
        (answer, fx, rest)
    }

    pub(crate) fn carry_out_decided(
        &mut self,
        key: &str,
        (is_ok, fx): (bool, Effects),
        rest: &Rest,
    ) {
        self.carry_out(key, fx.clone());
        let after = self.keys.get(key).unwrap_or(&KeyState::Absent);
        rest.check((is_ok, &fx), after, self.now);
    }
}
