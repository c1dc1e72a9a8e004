//! The naive model: the key changes by other means than a lock command.

use crate::lock::tests::model::naive::{Ask, Hold, Key, Model, Owner, Rule, State, Terms, Token};
use crate::lock::Mode;

impl Model {
    pub fn del(&mut self, key: Key) {
        let is_absent = self.is_absent(key) && !matches!(self.rule, Rule::Permits(Some(_)));
        if let Rule::Permits(all) = &mut self.rule {
            *all = None;
        }
        if !is_absent {
            self.overwrite(key, State::Holds(Vec::new()));
        }
    }

    /// An overwritten key does not count as a hold that has ended: the server reports a change, and no removal.
    pub fn overwrite(&mut self, key: Key, state: State) {
        let is_removed = state == State::Holds(Vec::new());
        self.keys[key] = state;
        match is_removed {
            true => self.lost(key),
            false => self.schedule_settle(key),
        }
    }

    pub fn hdel_holder(&mut self, key: Key) {
        match self.holds(key).first().map(|hold| hold.token) {
            None => {}
            Some(Token::None) => self.overwrite(key, State::Holds(Vec::new())),
            Some(_) => {
                self.keys[key] = State::Bare;
                self.schedule_settle(key);
            }
        }
    }

    pub fn set_ttl(&mut self, key: Key, deadline_ms: Option<i64>) {
        if let Some(hold) = self.holds(key).first().copied() {
            self.change(
                key,
                Hold {
                    deadline_ms,
                    ..hold
                },
            );
        }
    }

    pub fn server_expires(&mut self, key: Key) {
        if !self.holds(key).is_empty() && self.live(key).is_empty() {
            self.keys[key] = State::Holds(Vec::new());
            self.schedule_settle(key);
        }
    }

    fn is_absent(&self, key: Key) -> bool {
        self.keys[key] == State::Holds(Vec::new())
    }

    /// A lock or a permit. A token without a holder is no lock of Redisson's.
    pub fn redisson_acquires(&mut self, key: Key, owner: Owner, lease_ms: i64) {
        self.server_expires(key);
        let mode = Mode::Exclusive;
        let deadline_ms = Some(self.wall_ms + lease_ms);
        let asked = Ask::new(key, (owner, 0), (mode, Terms::Unnamed), None);
        let hold = match self.hold_of(key, owner, None) {
            Some(hold) => Hold {
                count: hold.count + 1,
                deadline_ms,
                ..hold
            },
            None if self.keys[key] == State::Bare => return,
            None if self.has_room(key) && self.admits(key, &asked) => Hold {
                owner,
                mode,
                count: 1,
                permits: 1,
                deadline_ms,
                token: Token::None,
                grant: 0,
                session: None,
            },
            None => return,
        };
        self.change(key, hold);
    }

    pub fn redisson_releases(&mut self, key: Key, owner: Owner, lease_ms: i64) {
        self.server_expires(key);
        match self.hold_of(key, owner, None) {
            Some(hold) if hold.count > 1 => {
                let deadline_ms = Some(self.wall_ms + lease_ms);
                let count = hold.count - 1;
                self.change(
                    key,
                    Hold {
                        count,
                        deadline_ms,
                        ..hold
                    },
                );
            }
            Some(hold) => {
                self.take_away(key, hold);
                self.lost(key);
            }
            None => {}
        }
    }

    fn change(&mut self, key: Key, hold: Hold) {
        self.put(key, hold);
        self.schedule_settle(key);
    }

    pub fn flush(&mut self) {
        self.keys.fill(State::Holds(Vec::new()));
        self.forget_all_sessions();
        self.schedule_settle_all();
    }

    pub fn set_may_grant(&mut self, may_grant: bool) {
        self.may_grant = may_grant;
        if may_grant {
            self.schedule_settle_all();
        }
    }
}
