//! The naive model: commands.

use crate::lock::tests::model::naive::{
    Ask, Hold, Key, Model, Owner, Passed, Request, Rule, State, Terms, Token,
};
use crate::lock::tests::model::Reply;
use crate::lock::{Mode, SetIf};

impl Model {
    /// `LOCK.ACQUIRE` and `SEM.ACQUIRE`. A request with `LIMIT` makes a semaphore together with a grant.
    pub fn acquire(&mut self, ask: &Ask) -> Reply {
        let before = self.rule;
        let reply = self.ask_for(ask);
        self.is_made_by_grants(ask.keys[0], before);
        reply
    }

    fn ask_for(&mut self, ask: &Ask) -> Reply {
        let (key, owner) = (ask.keys[0], ask.owner);
        if let Some(error) = self.foreign(key) {
            self.ask(key);
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        if self.is_to_ask(key, ask) {
            self.ask(key);
        }
        self.note_window_taken(key);
        let is_holder = |model: &Model| model.hold_of(key, owner, None).is_some();
        if is_holder(self) && self.admits(key, ask) {
            return self.reenter(key, ask);
        }
        self.create(ask.limit);
        if !self.admits(key, ask) {
            let reply = self.enqueue(ask, false);
            return self.or_pass(ask, reply);
        }
        if self.is_delayed() && ask.wait.is_none() {
            return Reply::Error("DELAY");
        }
        // Requests may wait, and come first. Waits that are over do not count, even before a timer notices.
        if ask.wait.is_none() && !self.queue(key).is_empty() {
            if !self.may_grant {
                self.schedule_settle(key);
                return Reply::Refused;
            }
            // Where one of them was granted, only a semaphore can have another permit.
            let passed = self.hand_off(key);
            let has_more = passed == Passed::NoWaiter || matches!(self.rule, Rule::Permits(_));
            let is_first = self.queue(key).is_empty() && !is_holder(self);
            if !has_more || !is_first || !self.admits(key, ask) {
                return Reply::Refused;
            }
        }
        if self.queue(key).is_empty() && !self.is_delayed() {
            return self.take(&ask.keys, ask);
        }
        let reply = self.enqueue(ask, false);
        if !matches!(reply, Reply::Error(_)) && self.hand_off(key) == Passed::NoWaiter {
            self.schedule_settle(key);
        }
        self.or_pass(ask, reply)
    }

    /// Where there is no place for a request in the queue of a semaphore, those that have the places are granted what
    /// they can be, perhaps of the semaphore that the request creates; then it may be granted, too.
    fn or_pass(&mut self, ask: &Ask, reply: Reply) -> Reply {
        let key = ask.keys[0];
        let is_full = matches!(reply, Reply::Error("QUEUEFULL" | "LOCKBUSY"));
        if !is_full || !matches!(self.rule, Rule::Permits(_)) || self.is_delayed() {
            return reply;
        }
        if !self.may_grant {
            self.schedule_settle(key);
            return reply;
        }
        self.hand_off(key);
        let is_next = self.queue(key).is_empty() && self.hold_of(key, ask.owner, None).is_none();
        match is_next && self.admits(key, ask) {
            true => self.take(&ask.keys, ask),
            false => reply,
        }
    }

    /// `LOCK.MACQUIRE`.
    pub fn acquire_many(&mut self, ask: &Ask) -> Reply {
        if let Some(error) = self.foreign_of(&ask.keys) {
            return Reply::Error(error);
        }
        let is_to_be_had = |key: &Key| {
            let is_mine = self.hold_of(*key, ask.owner, None).is_some();
            is_mine || self.has_room(*key) && self.queue(*key).is_empty()
        };
        match ask.keys.iter().all(is_to_be_had) {
            true => self.take(&ask.keys, ask),
            false => self.enqueue(ask, true),
        }
    }

    fn take(&mut self, keys: &[Key], ask: &Ask) -> Reply {
        if !self.may_grant {
            return Reply::Error("TRYAGAIN");
        }
        for key in keys {
            self.claim(*key, ask.owner);
            if self.enter(*key, ask) {
                self.granted_at_once(*key, ask.owner, ask.mode);
                self.give_up(*key, ask.owner);
            }
        }
        Reply::Granted
    }

    fn reenter(&mut self, key: Key, ask: &Ask) -> Reply {
        if !self.may_grant && self.has_no_token(key) {
            return Reply::Error("TRYAGAIN");
        }
        self.claim(key, ask.owner);
        self.enter(key, ask);
        if self.rule == Rule::ReadWrite {
            self.granted_at_once(key, ask.owner, ask.mode);
            let mut requests = self.requests_at(key).into_iter();
            let same = |one: &Request| (one.ask.mode, one.ask.owner) == (ask.mode, ask.owner);
            if let Some(own) = requests.find(same) {
                self.leave(&own);
                self.taken_over(&own);
            }
        }
        Reply::Granted
    }

    /// Which hold is meant; an error when that is not clear.
    fn meant(
        &self,
        key: Key,
        owner: Owner,
        mode: Option<Mode>,
        token: Option<u64>,
    ) -> Result<Option<Hold>, Reply> {
        let holds = |mode| self.hold_of(key, owner, Some(mode)).is_some();
        if mode.is_none() && holds(Mode::Read) && holds(Mode::Write) {
            return Err(Reply::Error("READ or WRITE?"));
        }
        let hold = self.hold_of(key, owner, mode);
        Ok(hold.filter(|hold| hold.has(token)))
    }

    pub fn release(
        &mut self,
        key: Key,
        owner: Owner,
        (mode, all, token): (Option<Mode>, bool, Option<u64>),
    ) -> Reply {
        if let Some(error) = self.foreign(key) {
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        self.note_window_taken(key);
        let hold = match self.meant(key, owner, mode, token) {
            Ok(hold) => hold,
            Err(said) => return said,
        };
        let ends = hold.is_some_and(|hold| all || hold.count == 1);
        if ends || matches!(self.rule, Rule::Permits(_)) {
            self.ask(key);
        }
        let Some(hold) = hold else {
            if token.is_none() {
                self.withdraw(key, owner, mode);
            }
            return Reply::NotHeld;
        };
        self.claim(key, owner);
        if !ends {
            let count = hold.count - 1;
            self.put(key, Hold { count, ..hold });
            return Reply::StillHeld;
        }
        self.take_away(key, hold);
        self.pass_on(key);
        Reply::Freed
    }

    pub fn renew(
        &mut self,
        key: Key,
        owner: Owner,
        (mode, terms, token): (Option<Mode>, Terms, Option<u64>),
    ) -> Reply {
        if let Some(error) = self.foreign(key) {
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        self.note_window_taken(key);
        if self.has_no_token(key) {
            self.ask(key);
        }
        let hold = match self.meant(key, owner, mode, token) {
            Ok(Some(hold)) => hold,
            Ok(None) => return Reply::Lost,
            Err(said) => return said,
        };
        if !self.may_grant && hold.token == Token::None {
            return Reply::Error("TRYAGAIN");
        }
        self.claim(key, owner);
        let session = self.session_after(hold, None, terms);
        let deadline_ms = Some(self.wall_ms + self.lease_ms(session.is_some(), terms));
        self.put(
            key,
            Hold {
                deadline_ms,
                session,
                token: hold.token.adopted(),
                ..hold
            },
        );
        Reply::Renewed
    }

    /// `LOCK.RELEASE` of one key, and `LOCK.MRELEASE`.
    pub fn release_many(&mut self, keys: &[Key], owner: Owner, all: bool) -> Reply {
        self.each(keys, |model, key| {
            model.release(key, owner, (None, all, None)) != Reply::NotHeld
        })
    }

    /// `LOCK.MRENEW`.
    pub fn renew_many(&mut self, keys: &[Key], owner: Owner, terms: Terms) -> Reply {
        self.each(keys, |model, key| {
            model.renew(key, owner, (None, terms, None)) == Reply::Renewed
        })
    }

    fn each(&mut self, keys: &[Key], mut act: impl FnMut(&mut Model, Key) -> bool) -> Reply {
        if let Some(error) = self.foreign_of(keys) {
            return Reply::Error(error);
        }
        Reply::Done(keys.iter().filter(|key| act(self, **key)).count())
    }

    fn foreign_of(&self, keys: &[Key]) -> Option<&'static str> {
        keys.iter().find_map(|key| self.foreign(*key))
    }

    pub fn break_lock(&mut self, key: Key, token: Option<u64>, purge: bool) -> Reply {
        if let Some(error) = self.foreign(key) {
            return Reply::Error(error);
        }
        self.note_window_taken(key);
        let holds = self.live(key);
        let is_held = holds.iter().any(|hold| hold.has(token));
        if purge && (is_held || token.is_none()) {
            self.fail_all(key, "LOCKBROKEN");
        }
        if !is_held {
            return Reply::NotHeld;
        }
        for hold in holds {
            self.forget_ended(key, hold.owner);
        }
        self.ask(key);
        self.keys[key] = State::Holds(Vec::new());
        self.pass_on(key);
        Reply::Broken
    }

    /// `LOCK.BREAK ... TO`
    pub fn break_to(&mut self, token: Option<u64>, ask: &Ask) -> Reply {
        let (key, owner) = (ask.keys[0], ask.owner);
        if let Some(error) = self.foreign(key) {
            self.ask(key);
            return Reply::Error(error);
        }
        self.end_first(key, owner);
        self.ask(key);
        self.note_window_taken(key);
        if self.hold_of(key, owner, None).is_some() {
            return self.reenter(key, ask);
        }
        let broken = self.live(key);
        if token.is_some() && !broken.iter().any(|hold| hold.has(token)) {
            return Reply::Refused;
        }
        if self.is_delayed() {
            return Reply::Error("DELAY");
        }
        if !self.may_grant {
            return Reply::Error("TRYAGAIN");
        }
        for hold in broken {
            self.forget_ended(key, hold.owner);
        }
        self.keys[key] = State::Holds(Vec::new());
        let reply = self.take(&ask.keys, ask);
        self.withdraw(key, owner, None);
        reply
    }

    /// Whether the hold of an exclusive lock is one of Redisson's, without a token.
    fn has_no_token(&self, key: Key) -> bool {
        let hold = self.holder(key);
        self.rule == Rule::Exclusive && hold.is_some_and(|hold| hold.token == Token::None)
    }

    // ---- semaphores ----

    pub fn set_permits(&mut self, key: Key, permits: u32, set_if: SetIf) -> Reply {
        self.ask(key);
        let is_there = self.rule != Rule::Permits(None);
        let is_allowed = match set_if {
            SetIf::Always => true,
            SetIf::Absent => !is_there,
            SetIf::There => is_there,
        };
        if !is_allowed {
            return Reply::Permits(None);
        }
        self.rule = Rule::Permits(Some(permits));
        self.hand_off(key);
        Reply::Permits(Some(permits))
    }

    /// A request with a number of permits creates the semaphore.
    fn create(&mut self, limit: Option<u32>) {
        if self.rule == Rule::Permits(None) {
            self.rule = Rule::Permits(limit);
        }
    }

    /// A semaphore that did not exist before does not exist now, unless a permit was granted.
    pub(super) fn is_made_by_grants(&mut self, key: Key, before: Rule) {
        if before == Rule::Permits(None) && self.live(key).is_empty() {
            self.rule = before;
        }
    }

    /// The same of the first such request that waits.
    pub(super) fn create_by_first(&mut self, key: Key) {
        let mut requests = self.requests_at(key).into_iter();
        self.create(requests.find_map(|request| request.ask.limit));
    }

    /// Whether the semaphore is made with enough permits for the first request.
    pub(super) fn creates_for_first(&self, key: Key) -> bool {
        let limit = self.requests_at(key).into_iter();
        let limit = limit.filter_map(|request| request.ask.limit).next();
        let first = self.first(key);
        let enough = first
            .zip(limit)
            .is_some_and(|(first, limit)| first.ask.count <= limit);
        self.rule == Rule::Permits(None) && enough
    }

    pub(super) fn is_to_create(&self, key: Key) -> bool {
        let mut requests = self.requests_at(key).into_iter();
        self.rule == Rule::Permits(None) && requests.any(|request| request.ask.limit.is_some())
    }
}

impl Hold {
    fn has(&self, token: Option<u64>) -> bool {
        token.is_none_or(|token| self.token == Token::Known(token))
    }
}
