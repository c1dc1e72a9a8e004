//! The naive model: holds that are bound to connections.

use crate::lock::tests::model::naive::{Conn, Hold, Key, Model, Owner, State};
use crate::lock::tests::sim::AT_ONCE;

/// The lease that a request asks for, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    Named(i64),
    Unnamed,
    Session,
}

/// What the model keeps beside the holds.
#[derive(Debug, Default, Clone)]
pub struct Sessions {
    /// Holds whose connection has closed, and that are not released yet: key, owner, grant.
    pub ended: Vec<(Key, Owner, u64)>,
    bindings: u64,
}

/// The connection that a hold is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub conn: Conn,
    renew_at_ms: u64,
    urgent_at_ms: u64,
    /// The order in which holds were bound.
    number: u64,
}

impl Model {
    /// A session has a lease of its own.
    pub fn lease_ms(&self, bound: bool, terms: Terms) -> i64 {
        match terms {
            _ if bound => self.settings.session_lease.ms(),
            Terms::Named(ms) => ms,
            Terms::Unnamed | Terms::Session => self.settings.default_lease.ms(),
        }
    }

    pub fn new_session(&mut self, conn: Conn) -> Session {
        self.sessions.bindings += 1;
        self.renewed(Session {
            conn,
            renew_at_ms: 0,
            urgent_at_ms: 0,
            number: self.sessions.bindings,
        })
    }

    /// The lease of a session begins now.
    fn renewed(&self, session: Session) -> Session {
        let lease_ms = self.settings.session_lease.ms() as u64;
        Session {
            renew_at_ms: self.mono_ms + (lease_ms / 3).max(1),
            urgent_at_ms: self.mono_ms + (lease_ms / 2).max(1),
            ..session
        }
    }

    /// What the hold is bound to when its owner has touched it: a re-entry through this connection, or a
    /// renewal.
    pub fn session_after(
        &mut self,
        hold: Hold,
        conn: Option<Conn>,
        terms: Terms,
    ) -> Option<Session> {
        match (terms, conn) {
            (Terms::Session, Some(conn)) => Some(self.new_session(conn)),
            (Terms::Named(_), _) => None,
            _ => hold.session.map(|session| self.renewed(session)),
        }
    }

    /// The connection has closed: what is bound to it is released, in the order in which it was bound.
    /// (The core may have notes of holds that are gone: whether it had any is its own business.)
    pub fn end_sessions_of(&mut self, conn: Conn, had_holds: bool) {
        let mut bound = Vec::new();
        for key in 0..self.keys.len() {
            for hold in self.holds(key) {
                let session = hold.session.filter(|session| session.conn == conn);
                let what = (key, hold.owner, hold.grant);
                bound.extend(session.map(|session| (session.number, what)));
            }
        }
        bound.sort_unstable();
        assert!(had_holds || bound.is_empty(), "bound, and not noted");
        for (_, (key, owner, grant)) in bound {
            self.forget_session(key, grant);
            self.sessions.ended.push((key, owner, grant));
        }
        // Holds of connections that closed earlier come first.
        if had_holds {
            self.release_ended(AT_ONCE);
        }
    }

    fn release_ended(&mut self, at_most: usize) {
        let mut released = 0;
        while released < at_most && !self.sessions.ended.is_empty() {
            let (key, _, grant) = self.sessions.ended.remove(0);
            released += usize::from(self.release_grant(key, grant));
        }
    }

    fn release_grant(&mut self, key: Key, grant: u64) -> bool {
        let mut holds = self.live(key).into_iter();
        let hold = holds.find(|hold| hold.grant == grant);
        if let Some(hold) = hold {
            self.ask(key);
            self.take_away(key, hold);
            self.pass_on(key);
        }
        hold.is_some()
    }

    /// A hold whose connection has closed is released before its owner asks about it.
    pub fn end_first(&mut self, key: Key, owner: Owner) {
        let mut ended = self.sessions.ended.iter();
        let Some(index) = ended.position(|ended| (ended.0, ended.1) == (key, owner)) else {
            return;
        };
        let (_, _, grant) = self.sessions.ended.remove(index);
        self.release_grant(key, grant);
    }

    /// The owner's hold has been dealt with otherwise, or there is a new one.
    pub fn forget_ended(&mut self, key: Key, owner: Owner) {
        self.sessions
            .ended
            .retain(|ended| (ended.0, ended.1) != (key, owner));
    }

    /// The grant will be undone, or its connection has closed.
    pub fn forget_session(&mut self, key: Key, grant: u64) {
        if let State::Holds(holds) = &mut self.keys[key] {
            for hold in holds.iter_mut().filter(|hold| hold.grant == grant) {
                hold.session = None;
            }
        }
    }

    /// The memory of the module is gone, or the server is a replica: nothing is bound.
    pub fn forget_all_sessions(&mut self) {
        self.sessions.ended.clear();
        for key in 0..self.keys.len() {
            for hold in self.holds(key).to_vec() {
                self.forget_session(key, hold.grant);
            }
        }
    }

    /// What the timer does about them; `only_urgent`: it has no time for other renewals.
    pub fn work_on_sessions(&mut self, only_urgent: bool) {
        for key in 0..self.keys.len() {
            for hold in self.holds(key).to_vec() {
                let due = hold.session.filter(|session| match only_urgent {
                    true => session.urgent_at_ms <= self.mono_ms,
                    false => session.renew_at_ms <= self.mono_ms,
                });
                let Some(session) = due else {
                    continue;
                };
                if self.hold_of(key, hold.owner, Some(hold.mode)).is_none() {
                    // Over: not held up any more, even if the clock is set back after this.
                    self.forget_session(key, hold.grant);
                    continue;
                }
                let wanted = self.wall_ms + self.settings.session_lease.ms();
                self.put(
                    key,
                    Hold {
                        deadline_ms: Some(hold.deadline_ms.map_or(wanted, |end| end.max(wanted))),
                        session: Some(self.renewed(session)),
                        ..hold
                    },
                );
            }
        }
        self.release_ended(usize::MAX);
    }
}
