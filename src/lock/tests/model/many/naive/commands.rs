//! The naive model: commands.

use std::collections::BTreeSet;

use crate::lock::tests::model::many::naive::{Ask, Hold, Key, Model, Owner, Place, Request, State};
use crate::lock::tests::model::Reply;

impl Model {
    /// `LOCK.ACQUIRE`, for one key, or `LOCK.MACQUIRE`.
    pub fn acquire(&mut self, ask: &Ask, single: bool) -> Reply {
        if ask.keys.iter().any(|key| self.keys[*key] == State::Other) {
            return Reply::Error("WRONGTYPE");
        }
        let mine = |model: &Model, key: &Key| model.is_mine(*key, ask.owner);
        let is_to_be_had = |key: &Key| mine(self, key) || self.is_free(*key);
        if !ask.keys.iter().all(is_to_be_had) {
            return self.park(ask, !single);
        }
        let queued = |key: &Key| !mine(self, key) && !self.queue(*key).is_empty();
        if ask.keys.iter().any(queued) {
            let reply = self.park(ask, !single);
            // A request for one key is decided at once, a request for several at the end of the tick.
            if single && !matches!(reply, Reply::Error(_)) {
                self.hand_off(ask.keys[0]);
            }
            return reply;
        }
        for key in &ask.keys {
            self.enter(*key, ask.owner, ask.lease_ms, ask.once);
            self.claim(*key, ask.owner);
        }
        Reply::Granted
    }

    /// Returns the number of the grant, if it is a new one: its owner needs no place any more.
    pub(super) fn enter(
        &mut self,
        key: Key,
        owner: Owner,
        lease_ms: i64,
        once: bool,
    ) -> Option<u64> {
        let deadline_ms = self.wall_ms + lease_ms;
        if let Some(hold) = self.holder(key) {
            self.keys[key] = State::Held(Hold {
                count: hold.count + u32::from(!once),
                deadline_ms: Some(
                    hold.deadline_ms
                        .map_or(deadline_ms, |end| end.max(deadline_ms)),
                ),
                ..hold
            });
            return None;
        }
        self.grants += 1;
        self.keys[key] = State::Held(Hold {
            owner,
            count: 1,
            deadline_ms: Some(deadline_ms),
            grant: self.grants,
        });
        self.places
            .retain(|place| (place.key, place.owner) != (key, owner));
        Some(self.grants)
    }

    fn park(&mut self, ask: &Ask, many: bool) -> Reply {
        let Some(wait) = ask.wait else {
            return Reply::Refused;
        };
        let older: BTreeSet<u64> = self
            .places
            .iter()
            .filter(|place| place.owner == ask.owner && ask.keys.contains(&place.key))
            .filter_map(|place| place.request)
            .collect();
        let is_full = |key: &Key| {
            self.queue(*key).len() >= self.limits.max_waiters_per_key
                && !self.queue(*key).contains(&ask.owner)
        };
        let live = self.places.iter().filter_map(|place| place.request);
        let (freed, others): (Vec<u64>, Vec<u64>) = live.partition(|one| older.contains(one));
        let all_full =
            ask.keys.len() > freed.len() && others.len() + ask.keys.len() > self.limits.max_waiters;
        if all_full || ask.keys.iter().any(is_full) {
            return Reply::Error("LOCKBUSY");
        }
        let before = self.clone();
        self.take_places(ask, &older, wait, many);
        if self.deadlocks && self.waits_for_itself(ask.owner) {
            *self = before;
            return Reply::Error("DEADLOCK");
        }
        for number in older {
            let conn = before
                .requests
                .iter()
                .find(|r| r.number == number)
                .unwrap()
                .conn;
            self.replies.push((conn, Reply::Refused));
        }
        Reply::Parked
    }

    fn take_places(&mut self, ask: &Ask, older: &BTreeSet<u64>, wait: Option<u64>, many: bool) {
        let mine = |place: &&Place| place.owner == ask.owner && ask.keys.contains(&place.key);
        let arrivals: BTreeSet<u64> = self.places.iter().filter(mine).map(|p| p.arrival).collect();
        // The places serve one more request if no other request can have a place between them.
        let span = |all: &BTreeSet<u64>| all.last().unwrap() - all.first().unwrap() + 1;
        let stays = arrivals.len() == ask.keys.len() && span(&arrivals) == arrivals.len() as u64;
        self.requests
            .retain(|request| !older.contains(&request.number));
        self.places.retain(|place| match mine(&place) {
            true => stays,
            false => place.request.is_none_or(|number| !older.contains(&number)),
        });
        self.numbers += 1;
        let number = self.numbers;
        for key in &ask.keys {
            let mut places = self.places.iter_mut();
            let at = places.find(|place| (place.key, place.owner) == (*key, ask.owner));
            if let Some(place) = at {
                place.request = Some(number);
                continue;
            }
            self.arrivals += 1;
            self.places.push(Place {
                key: *key,
                owner: ask.owner,
                arrival: self.arrivals,
                request: Some(number),
                kept_until_ms: 0,
            });
        }
        self.requests.push(Request {
            number,
            conn: ask.conn,
            owner: ask.owner,
            keys: ask.keys.clone(),
            lease_ms: ask.lease_ms,
            until_ms: wait.map(|ms| self.mono_ms + ms),
            once: ask.once,
            many,
        });
    }

    /// `LOCK.RELEASE` and `LOCK.MRELEASE`.
    pub fn release(&mut self, keys: &[Key], owner: Owner, all: bool) -> Reply {
        if keys.iter().any(|key| self.keys[*key] == State::Other) {
            return Reply::Error("WRONGTYPE");
        }
        let mut dropped = 0;
        for key in keys {
            if !self.is_mine(*key, owner) {
                self.withdraw(*key, owner);
                continue;
            }
            dropped += 1;
            self.claim(*key, owner);
            let hold = self.holder(*key).unwrap();
            if hold.count > 1 && !all {
                let count = hold.count - 1;
                self.keys[*key] = State::Held(Hold { count, ..hold });
            } else {
                self.pass_on(*key);
            }
        }
        Reply::Done(dropped)
    }

    /// `LOCK.RENEW` and `LOCK.MRENEW`.
    pub fn renew(&mut self, keys: &[Key], owner: Owner, lease_ms: i64) -> Reply {
        if keys.iter().any(|key| self.keys[*key] == State::Other) {
            return Reply::Error("WRONGTYPE");
        }
        let mut renewed = 0;
        for key in keys {
            if let Some(hold) = self.holder(*key).filter(|hold| hold.owner == owner) {
                renewed += 1;
                self.claim(*key, owner);
                let deadline_ms = Some(self.wall_ms + lease_ms);
                self.keys[*key] = State::Held(Hold {
                    deadline_ms,
                    ..hold
                });
            }
        }
        Reply::Done(renewed)
    }

    pub fn break_lock(&mut self, key: Key, purge: bool) -> Reply {
        if self.keys[key] == State::Other {
            return Reply::Error("WRONGTYPE");
        }
        if purge {
            self.fail_all(key, "LOCKBROKEN");
        }
        if self.holder(key).is_none() {
            return Reply::Done(0);
        }
        self.pass_on(key);
        Reply::Done(1)
    }
}
