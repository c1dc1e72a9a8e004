//! A connection, and the holds that may be bound to it.

use crate::history::{Call, Kind, Outcome, Tie};
use crate::wire::Wire;

/// A connection of a client.
pub struct Connection {
    pub wire: Wire,
    pub holds: BoundHolds,
}

impl Connection {
    pub fn open(port: u16) -> Option<Connection> {
        Some(Connection {
            wire: Wire::open(port)?,
            holds: BoundHolds::default(),
        })
    }
}

/// A key and an owner.
type At = (u32, u64);

/// The holds that may be bound to one connection. A hold stays bound after the last request of its owner if that did
/// not release it: a lock that was taken away and acquired again is held under another token than the one released.
#[derive(Debug, Default)]
pub struct BoundHolds(Vec<(At, Kind)>);

impl BoundHolds {
    /// Takes account of the outcome of a request.
    pub fn follow(&mut self, at: At, call: Call, outcome: &Outcome) {
        let hold = (at, call.kind());
        match (call, outcome) {
            (
                Call::Acquire {
                    tie: Tie::Session, ..
                },
                Outcome::Granted(_),
            ) if !self.0.contains(&hold) => self.0.push(hold),
            // Released, or with a lease of its own.
            (Call::Release { .. } | Call::Renew { .. }, Outcome::Number(1))
            | (Call::Release { token: None, .. }, Outcome::Nil) => {
                self.0.retain(|other| *other != hold);
            }
            _ => {}
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The owners of these holds, and this one, each once.
    pub fn owners(&self, of: Option<At>) -> Vec<At> {
        let mut owners: Vec<At> = self.0.iter().map(|(at, _)| *at).chain(of).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: At = (3, 7);

    fn bound(kind: Kind) -> BoundHolds {
        let mut holds = BoundHolds::default();
        holds.follow(AT, acquire(kind), &Outcome::Granted(10));
        holds
    }

    fn acquire(kind: Kind) -> Call {
        Call::Acquire {
            kind,
            tie: Tie::Session,
            lease: 1_000,
            block: None,
            once: true,
        }
    }

    #[test]
    fn a_hold_is_bound_until_it_is_released_or_has_a_lease_of_its_own() {
        for (call, outcome, is_bound) in [
            (Call::release(true, Some(10)), Outcome::Number(1), false),
            (Call::release(false, None), Outcome::Number(0), true),
            (Call::release(true, Some(9)), Outcome::Nil, true),
            (Call::release(true, None), Outcome::Nil, false),
            (
                Call::release(true, None),
                Outcome::Error("OOM".into()),
                true,
            ),
            (Call::renew(50, None), Outcome::Number(1), false),
            (Call::renew(50, Some(9)), Outcome::Number(0), true),
            (acquire(Kind::Exclusive), Outcome::Granted(11), true),
        ] {
            let mut holds = bound(Kind::Exclusive);
            holds.follow(AT, call, &outcome);
            assert_eq!(holds.owners(None) == [AT], is_bound, "{call:?} {outcome:?}");
        }
    }

    #[test]
    fn each_kind_of_hold_is_bound_and_each_owner_named_once() {
        let mut holds = bound(Kind::Write);
        holds.follow(AT, acquire(Kind::Read), &Outcome::Granted(10));
        let (kind, all, token) = (Kind::Write, true, None);
        let release = Call::Release { kind, all, token };
        assert_eq!(holds.owners(Some(AT)), [AT]);
        holds.follow(AT, release, &Outcome::Number(1));
        assert_eq!(holds.owners(Some((4, 8))), [AT, (4, 8)]);
        let unbound = Call::acquire(50, None, true);
        let mut holds = BoundHolds::default();
        holds.follow(AT, unbound, &Outcome::Granted(10));
        assert_eq!(holds.owners(None), []);
    }
}
