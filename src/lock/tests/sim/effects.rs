//! Effects are carried out, and what no effect may do is asserted: a token that does not rise or that no stored horizon
//! covers, a second answer, a grant after the end of the wait or without a hold in the key, a write to foreign data, a
//! publish while the key is held, a reader that outlives its hash, an effect of a failed call.

use crate::lock::tests::sim::rest::{self, Rest};
use crate::lock::tests::sim::{Out, Request, Sim};
use crate::lock::{
    Effect, Effects, KeyState, KeyWrite, Message, Mode, Outcome, Resource, RwWrite, Token, WaiterId,
};

impl Sim {
    /// Carries out the effects of one decision, and checks what the core stated before it.
    pub(super) fn carry_out_decided(
        &mut self,
        key: &str,
        (is_ok, fx): (bool, Effects),
        rest: &Rest,
    ) {
        self.carry_out(key, fx.clone());
        rest.check((is_ok, &fx), &self.state(key), self.now);
    }

    /// Carries out effects that may be answers only, each of which names its request.
    pub fn carry_out_answers(&mut self, fx: Effects) {
        for effect in fx {
            let key = match &effect {
                Effect::Answer(waiter, _) => self.parked[waiter].key.clone(),
                Effect::Tell(ticket, _) => self.key_of_ticket(ticket),
                _ => panic!("more than an answer: {effect:?}"),
            };
            self.carry_out(&key, Effects::from_iter([effect]));
        }
    }

    pub(super) fn carry_out(&mut self, key: &str, fx: Effects) {
        let writes = fx.iter().any(writes_lock);
        if writes {
            self.check_is_not_foreign(key);
        }
        for effect in fx {
            let name = key.to_string();
            let out = match effect {
                Effect::Horizon(domain, horizon) => {
                    assert_eq!(domain, self.domain(key));
                    let former = self.horizons.insert(domain, horizon);
                    let former = former.filter(|former| self.believes(*former));
                    assert!(former < Some(horizon), "the horizon fell");
                    Out::Horizon
                }
                Effect::Counter(token) => {
                    let counter = self.counters.get_mut(key).expect("the counter exists");
                    assert!(*counter < token.get(), "Redisson's counter fell");
                    *counter = token.get();
                    Out::Counter(name, token)
                }
                Effect::Write(write) => self.write(key, write),
                Effect::Redisson(Message::Free(mode)) => {
                    assert!(!self.keys.contains(key), "published, but not freed");
                    match mode {
                        Mode::Exclusive => Out::Publish(name),
                        mode => Out::PublishReadWrite(name, mode),
                    }
                }
                Effect::Redisson(Message::Permits(more)) => {
                    let free = self.free(key);
                    let is_so = more.map_or(free.is_some(), |more| free == Some(more));
                    assert!(is_so, "published {more:?}, and {free:?} are free");
                    Out::PublishPermits(more.unwrap_or(1))
                }
                Effect::Redisson(Message::Latch { is_open }) => {
                    assert_eq!(self.keys.contains(key), !is_open);
                    Out::PublishLatch { is_open }
                }
                Effect::Redisson(Message::Shorter(_)) => {
                    assert!(self.keys.contains(key), "a lease of nothing");
                    Out::PublishShorter
                }
                Effect::Notify(event) => Out::Notify(name, event),
                Effect::Answer(waiter, outcome) => self.answer(key, waiter, outcome),
                Effect::Tell(ticket, outcome) => self.tell(key, &ticket, outcome),
            };
            self.out.push(out);
        }
        if writes {
            self.check_is_not_foreign(key);
        }
        self.check_readers(key);
    }

    /// Neither the data of others nor, after the write, fields at which Redisson's scripts fail.
    fn check_is_not_foreign(&self, key: &str) {
        let state = self.state(key);
        let is_foreign = matches!(state, KeyState::OtherType | KeyState::OtherHash);
        assert!(!is_foreign, "{key} is no lock: {:?}", self.keys);
    }

    fn answer(&mut self, key: &str, waiter: WaiterId, outcome: Outcome) -> Out {
        let request = self.parked.remove(&waiter).expect("one answer, no second");
        assert!(
            request.key == key || !request.further.is_empty() || outcome == Outcome::Nil,
            "answered for another key"
        );
        let conn = request.conn;
        if let Some(tokens) = tokens_of(&outcome) {
            self.check_granted(&request, tokens);
            if request.resource == Resource::Semaphore {
                self.check_token(key, tokens[0]);
            }
            self.granted.insert(waiter, request);
        }
        Out::Answer {
            key: key.into(),
            conn,
            outcome,
        }
    }

    /// Each key of a request is held by its owner, under its token.
    pub(super) fn check_granted(&self, request: &Request, tokens: &[Token]) {
        let over = request.until_ms.is_some_and(|end| self.now.mono_ms >= end);
        assert!(!over, "granted after the end of the wait");
        assert_eq!(tokens.len(), request.further.len() + 1);
        if request.resource == Resource::Semaphore {
            let (key, id) = (&request.key, &request.owner);
            assert!(
                self.holds_permit(key, id),
                "granted, but {id} has no permit"
            );
            return;
        }
        let keys = std::iter::once(&request.key).chain(&request.further);
        for (key, token) in keys.zip(tokens) {
            let state = self.state(key);
            let held = (request.mode.name(), request.owner.as_bytes().to_vec());
            let is_held = rest::holds(&state, self.now).contains(&held);
            assert!(
                is_held && state.token() == Some(*token),
                "granted, but {key} is {state:?}"
            );
        }
    }

    fn write(&mut self, key: &str, write: KeyWrite) -> Out {
        match &write {
            KeyWrite::ReadWrite(change) => return self.write_shared(key, change),
            KeyWrite::Permits(change) => self.write_permits(key, change),
            KeyWrite::Count(change) => self.write_count(key, *change),
            KeyWrite::Note(owner, note) => {
                let is_held = matches!(self.state(key), KeyState::Held(_));
                assert!(is_held, "a note beside no hold");
                self.keys.note(key, owner, note);
            }
            KeyWrite::Delete => {
                assert!(self.keys.remove(key), "deleted nothing");
            }
            KeyWrite::Take {
                clear,
                owner,
                token,
                deadline_ms,
            } => {
                self.check_may_grant();
                assert_eq!(
                    *clear,
                    self.keys.contains(key),
                    "what a former holder left is gone"
                );
                self.keys.take(key, owner, *token, *deadline_ms);
                self.check_token(key, *token);
            }
            KeyWrite::Adjust {
                owner,
                count,
                token,
                deadline_ms,
            } => {
                assert!(count.is_some() || token.is_some() || deadline_ms.is_some());
                let KeyState::Held(hold) = self.state(key) else {
                    panic!("adjusted a hold that is not there");
                };
                assert!(!hold.is_over(self.now), "adjusted a hold that is over");
                assert_eq!(
                    hold.owner[..],
                    owner[..],
                    "adjusted the hold of another owner"
                );
                self.keys.adjust(key, owner, (*count, *token, *deadline_ms));
                if let Some((before, _)) = *count {
                    assert_eq!(hold.count, before, "the count before");
                }
                if let Some(token) = *token {
                    assert_eq!(hold.token, None, "one grant, one token");
                    self.check_token(key, token);
                }
            }
        }
        Out::Write(key.into(), write)
    }

    fn write_shared(&mut self, key: &str, change: &RwWrite) -> Out {
        if matches!(change, RwWrite::Begin(..)) {
            self.check_may_grant();
        }
        if let RwWrite::TokenRecord(record) = change {
            // The readers of a phase share its token.
            let former = self.highest.insert(key.into(), record.token.get());
            assert!(former <= Some(record.token.get()), "the token fell");
            self.check_horizon(key, record.token);
        }
        let lines = self.keys.write_shared(key, change);
        Out::WriteShared(key.into(), lines)
    }

    fn check_may_grant(&self) {
        assert!(
            !self.locks.shared.startup_delay.is_on(self.now),
            "granted in the delay"
        );
    }

    pub(super) fn check_token(&mut self, key: &str, token: Token) {
        let former = self.highest.insert(key.into(), token.get());
        assert!(former < Some(token.get()), "the token did not rise");
        self.check_horizon(key, token);
    }

    fn check_horizon(&self, key: &str, token: Token) {
        let horizon = self.horizons.get(&self.domain(key)).copied();
        assert!(horizon >= Some(token.get()), "no horizon covers the token");
    }

    /// No reader outlives the hash. (A script that releases one of several WRITE holds may shorten the TTL.)
    fn check_readers(&self, key: &str) {
        if let KeyState::ReadWrite(lock) = self.state(key) {
            let hash_end = lock.deadline_ms.unwrap_or(i64::MAX);
            for reader in lock.readers(self.now) {
                let is_covered = self.scripts_ran || reader.until_ms <= hash_end;
                assert!(is_covered, "{reader:?} outlives the hash");
            }
        }
    }
}

/// Whether the effect changes the key of a lock.
fn writes_lock(effect: &Effect) -> bool {
    match effect {
        Effect::Write(change) => !matches!(change, KeyWrite::Permits(_) | KeyWrite::Count(_)),
        _ => false,
    }
}

pub(super) fn tokens_of(outcome: &Outcome) -> Option<&[Token]> {
    match outcome {
        Outcome::Granted(token) => Some(std::slice::from_ref(token)),
        Outcome::GrantedAll(tokens) => Some(tokens),
        _ => None,
    }
}
