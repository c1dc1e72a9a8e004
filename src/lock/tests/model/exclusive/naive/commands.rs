//! The naive model: commands.

use crate::lock::tests::model::exclusive::naive::{
    Conn, Hold, Key, Model, Owner, Place, Request, State,
};
use crate::lock::tests::model::exclusive::sessions::Terms;
use crate::lock::tests::model::exclusive::windows::Passed;
use crate::lock::tests::model::tickets::Ticket;
use crate::lock::tests::model::Reply;

impl Model {
    pub fn acquire(
        &mut self,
        key: Key,
        owner: Owner,
        (conn, terms): (Conn, Terms),
        (wait, once, ticket): (Option<Option<u64>>, bool, Option<Ticket>),
    ) -> Reply {
        if let Some(error) = self.foreign(key) {
            self.ask(key);
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        if self.may_mint(key, owner) {
            self.ask(key);
        }
        self.note_window_taken(key);
        let until_ms = wait.map(|ms| ms.map(|ms| self.mono_ms + ms));
        let request = until_ms.map(|until_ms| Request {
            conn,
            terms,
            until_ms,
            ticket,
            is_closed: false,
        });
        match self.holder(key) {
            Some(hold) if hold.owner == owner => self.reenter(key, hold, (conn, terms), once),
            Some(_) => self.park(key, owner, request),
            None if self.is_delayed() && wait.is_none() => Reply::Error("DELAY"),
            // Free, but requests may wait: they come first. Waits that are over do not count, even before a timer
            // notices.
            None if until_ms.is_none() && !self.queue(key).is_empty() => {
                if !self.may_grant {
                    self.schedule_settle(key);
                    return Reply::Refused;
                }
                match self.hand_off(key) {
                    Passed::NoWaiter => self.take_free(key, owner, (conn, terms)),
                    Passed::Granted | Passed::LeftFree | Passed::StillFree => Reply::Refused,
                }
            }
            None if self.queue(key).is_empty() && !self.is_delayed() => {
                self.take_free(key, owner, (conn, terms))
            }
            None => {
                let reply = self.park(key, owner, request);
                self.hearing.came_now = ticket.map(|ticket| ticket.channel);
                if !matches!(reply, Reply::Error(_)) && self.hand_off(key) == Passed::NoWaiter {
                    self.schedule_settle(key);
                }
                self.hearing.came_now = None;
                reply
            }
        }
    }

    fn take_free(&mut self, key: Key, owner: Owner, (conn, terms): (Conn, Terms)) -> Reply {
        if !self.may_grant {
            return Reply::Error("TRYAGAIN");
        }
        self.claim(key, owner);
        self.grant(key, owner, (conn, terms));
        let own = |place: &Place| (place.key, place.owner) == (key, owner);
        if let Some(at) = self.places.iter().position(own) {
            self.ends.granted += u64::from(self.places.remove(at).timed_out);
        }
        Reply::Granted
    }

    pub fn release(&mut self, key: Key, owner: Owner, all: bool, token: Option<u64>) -> Reply {
        if let Some(error) = self.foreign(key) {
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        self.note_window_taken(key);
        let Some(hold) = self.held_by(key, Some(owner), token) else {
            if token.is_none() {
                self.withdraw(key, owner);
            }
            return Reply::NotHeld;
        };
        self.claim(key, owner);
        if hold.count > 1 && !all {
            let count = hold.count - 1;
            self.keys[key] = State::Held(Hold { count, ..hold });
            return Reply::StillHeld;
        }
        self.ask(key);
        self.pass_on(key);
        Reply::Freed
    }

    pub fn renew(&mut self, key: Key, owner: Owner, terms: Terms, token: Option<u64>) -> Reply {
        if let Some(error) = self.foreign(key) {
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        self.note_window_taken(key);
        if self.has_no_token(key) {
            self.ask(key);
        }
        let Some(hold) = self.held_by(key, Some(owner), token) else {
            return Reply::Lost;
        };
        let Some(hold) = self.adopted(hold) else {
            return Reply::Error("TRYAGAIN");
        };
        self.claim(key, owner);
        let session = self.session_after(hold, None, terms);
        let deadline_ms = Some(self.wall_ms + self.lease_ms(session.is_some(), terms));
        self.keys[key] = State::Held(Hold {
            deadline_ms,
            session,
            ..hold
        });
        Reply::Renewed
    }

    pub fn break_lock(&mut self, key: Key, token: Option<u64>, purge: bool) -> Reply {
        if let Some(error) = self.foreign(key) {
            return Reply::Error(error);
        }
        self.note_window_taken(key);
        let hold = self.held_by(key, None, token);
        let held = hold.is_some();
        if purge && (held || token.is_none()) {
            self.fail_all(key, "LOCKBROKEN");
        }
        let Some(hold) = hold else {
            return Reply::NotHeld;
        };
        self.forget_ended(key, hold.owner);
        self.ask(key);
        self.pass_on(key);
        Reply::Broken
    }

    fn reenter(&mut self, key: Key, hold: Hold, (conn, terms): (Conn, Terms), once: bool) -> Reply {
        let Some(hold) = self.adopted(hold) else {
            return Reply::Error("TRYAGAIN");
        };
        self.claim(key, hold.owner);
        let session = self.session_after(hold, Some(conn), terms);
        let wanted = self.wall_ms + self.lease_ms(session.is_some(), terms);
        let deadline_ms = Some(hold.deadline_ms.map_or(wanted, |end| end.max(wanted)));
        let count = hold.count + u32::from(!once);
        self.keys[key] = State::Held(Hold {
            count,
            deadline_ms,
            session,
            ..hold
        });
        Reply::Granted
    }

    fn park(&mut self, key: Key, owner: Owner, request: Option<Request>) -> Reply {
        let Some(request) = request else {
            return Reply::Refused;
        };
        if self.is_full(key, owner, request) {
            return Reply::Error("LOCKBUSY");
        }
        self.count_queued(request);
        let mut places = self.places.iter_mut();
        match places.find(|place| (place.key, place.owner) == (key, owner)) {
            Some(place) => {
                let older = place.request.replace(request);
                self.ends.taken_over += u64::from(std::mem::take(&mut place.timed_out));
                self.take_over(older);
            }
            None => {
                self.arrivals += 1;
                self.places.push(Place {
                    key,
                    owner,
                    arrival: self.arrivals,
                    request: Some(request),
                    kept_until_ms: 0,
                    timed_out: false,
                });
            }
        }
        Reply::Parked
    }

    fn withdraw(&mut self, key: Key, owner: Owner) {
        let mut places = self.places.iter();
        if let Some(index) = places.position(|p| (p.key, p.owner) == (key, owner)) {
            let place = self.places.remove(index);
            self.give_up(place);
            self.end_withdrawn(place.request);
        }
    }
}
