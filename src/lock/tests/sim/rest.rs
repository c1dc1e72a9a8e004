//! What [`Locks::rest`] states before each decision, compared with the key after it.
//!
//! The shell refuses parked requests by the content that `rest` states for the time after a decision. So the decision
//! must leave exactly that, unless it grants: then its grants are in the key, too.

use std::collections::BTreeSet;

use crate::lock::{Effect, Effects, Event, KeyState, Locks, Mode, Now, Outcome, Planned, View};

/// A hold: its mode, and its owner.
pub type Held = (&'static str, Vec<u8>);

/// What a decision that grants nothing leaves.
#[derive(Debug)]
pub struct Rest {
    state: KeyState,
    why: String,
}

impl Rest {
    /// To be called before the decision.
    pub fn before(locks: &Locks, view: &View<'_>, planned: &Planned<'_>, now: Now) -> Rest {
        let state = locks.rest(view.key, &view.state, planned, now).into_owned();
        let why = format!("{planned:?} of {:?}", view.state);
        Rest { state, why }
    }

    /// To be called when the effects are carried out. A decision that failed ended nothing.
    pub fn check(&self, (is_ok, fx): (bool, &Effects), after: &KeyState, now: Now) {
        if !is_ok || fx.iter().any(is_grant) {
            return;
        }
        let (rest, left) = (holds(&self.state, now), holds(after, now));
        let is_right = match &self.state {
            // The module may not have read all holders.
            KeyState::ReadWrite(lock) if !lock.is_whole => rest.is_subset(&left),
            _ => rest == left && is_foreign(&self.state) == is_foreign(after),
        };
        assert!(is_right, "{}: {:?}, not {after:?}", self.why, self.state);
    }
}

fn is_grant(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Notify(Event::Acquire)
            | Effect::Answer(_, Outcome::Granted(_) | Outcome::GrantedAll(_))
            | Effect::Tell(_, Outcome::Granted(_) | Outcome::GrantedAll(_))
    )
}

fn is_foreign(state: &KeyState) -> bool {
    matches!(state, KeyState::OtherType | KeyState::OtherHash)
}

pub fn holds(state: &KeyState, now: Now) -> BTreeSet<Held> {
    let KeyState::ReadWrite(lock) = state else {
        let hold = state.hold(now);
        return hold
            .map(|hold| (Mode::Exclusive.name(), hold.owner.to_vec()))
            .into_iter()
            .collect();
    };
    let readers = lock.readers(now);
    let readers = readers.map(|reader| (Mode::Read.name(), reader.owner.to_vec()));
    let writer = lock.writer(now);
    let writer = writer.map(|writer| (Mode::Write.name(), writer.owner.to_vec()));
    readers.chain(writer).collect()
}
