//! The naive model: the key changes by other means than a lock command.

use crate::lock::tests::model::exclusive::naive::{Hold, Key, Model, Owner, State, Token, KEYS};

impl Model {
    pub fn set(&mut self, key: Key, state: State) {
        self.keys[key] = state;
        self.schedule_settle(key);
    }

    pub fn hdel_holder(&mut self, key: Key) {
        if let State::Held(hold) = self.keys[key] {
            let bare = hold.token != Token::None;
            if bare {
                self.set(key, State::Bare);
            } else {
                self.lose(key, State::Absent);
            }
        }
    }

    pub fn set_ttl(&mut self, key: Key, deadline_ms: Option<i64>) {
        if let State::Held(hold) = self.keys[key] {
            self.set(
                key,
                State::Held(Hold {
                    deadline_ms,
                    ..hold
                }),
            );
        }
    }

    pub fn server_expires(&mut self, key: Key) {
        if matches!(self.keys[key], State::Held(_)) && self.holder(key).is_none() {
            self.set(key, State::Absent);
        }
    }

    pub fn redisson_acquires(&mut self, key: Key, owner: Owner, lease_ms: i64) {
        self.server_expires(key);
        let deadline_ms = Some(self.wall_ms + lease_ms);
        let hold = match self.keys[key] {
            State::Absent => Hold {
                owner,
                count: 1,
                deadline_ms,
                token: Token::None,
                grant: 0,
                session: None,
            },
            State::Held(hold) if hold.owner == owner => Hold {
                count: hold.count + 1,
                deadline_ms,
                ..hold
            },
            _ => return,
        };
        self.set(key, State::Held(hold));
    }

    pub fn redisson_releases(&mut self, key: Key, owner: Owner, lease_ms: i64) {
        self.server_expires(key);
        match self.keys[key] {
            State::Held(hold) if hold.owner == owner && hold.count > 1 => {
                let deadline_ms = Some(self.wall_ms + lease_ms);
                let count = hold.count - 1;
                self.set(
                    key,
                    State::Held(Hold {
                        count,
                        deadline_ms,
                        ..hold
                    }),
                );
            }
            State::Held(hold) if hold.owner == owner => self.lose(key, State::Absent),
            _ => {}
        }
    }

    pub fn flush(&mut self) {
        self.keys = [State::Absent; KEYS];
        self.sessions.ended.clear();
        self.schedule_settle_all();
    }

    pub fn set_may_grant(&mut self, may_grant: bool) {
        self.may_grant = may_grant;
        if may_grant {
            self.schedule_settle_all();
        }
    }
}
