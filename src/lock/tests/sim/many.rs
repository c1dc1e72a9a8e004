//! Requests on many keys, as the shell has them served.

use crate::lock::tests::sim::{key_ref, Request, Rest, Sim};
use crate::lock::Cx;
use crate::lock::{
    Acquire, Effects, Fence, KeyState, Lease, LockError, Locks, ManyAnswer, Mode, Need, Now,
    Planned, Release, Renew, Token, View, Wait,
};

impl Sim {
    pub fn acquire_many(
        &mut self,
        keys: &[&str],
        owner: &str,
        conn: u64,
        (lease, wait, once): (Lease, Wait, bool),
    ) -> Result<ManyAnswer, LockError> {
        assert!(!self.is_blocked(conn), "{conn} waits for an answer");
        let req = Acquire {
            owner: owner.as_bytes(),
            mode: Mode::Exclusive,
            names_lease: true,
            lease,
            session: false,
            once,
            wait,
            client: conn,
        };
        let states: Vec<_> = keys.iter().map(|key| self.state(key)).collect();
        let planned = Planned::of_many(&states, &req, self.now);
        let (answer, fx, rests) = self.ask_many(keys, &planned, |locks, views, now, fx| {
            locks.acquire_many(views, &req, now, fx)
        });
        if let Ok(ManyAnswer::Parked(id)) = answer {
            let until_ms = match wait {
                Wait::Ms(ms) => Some(self.now.mono_ms + ms),
                Wait::ForEver => None,
                Wait::No => panic!("parked without BLOCK"),
            };
            let request = Request {
                key: keys[0].into(),
                further: keys[1..].iter().map(|key| key.to_string()).collect(),
                owner: owner.into(),
                conn,
                until_ms,
            };
            assert!(self.parked.insert(id, request).is_none(), "a second {id:?}");
        }
        self.carry_out_many(keys, (answer.is_ok(), fx), &rests);
        answer
    }

    pub fn release_many(
        &mut self,
        keys: &[&str],
        owner: &str,
        all: bool,
    ) -> Result<usize, LockError> {
        let req = Release {
            owner: owner.as_bytes(),
            mode: None,
            all,
            token: None,
        };
        let planned = Planned::Release(&req);
        let (dropped, fx, rests) = self.ask_many(keys, &planned, |locks, views, now, fx| {
            locks.release_many(views, &req, now, fx)
        });
        self.carry_out_many(keys, (dropped.is_ok(), fx), &rests);
        dropped
    }

    pub fn renew_many(
        &mut self,
        keys: &[&str],
        owner: &str,
        lease: Lease,
    ) -> Result<usize, LockError> {
        let req = Renew {
            owner: owner.as_bytes(),
            names_lease: true,
            mode: None,
            lease,
            token: None,
        };
        let (renewed, fx, rests) = self.ask_many(keys, &Planned::Renew, |locks, views, now, fx| {
            locks.renew_many(views, &req, now, fx)
        });
        self.carry_out_many(keys, (renewed.is_ok(), fx), &rests);
        renewed
    }

    /// The next of the requests that were marked. False when none is left.
    pub(crate) fn settle_requests(&mut self) -> bool {
        let Some(request) = self.locks.pop_unsettled_request(self.now) else {
            return false;
        };
        let keys = self.locks.waiters.keys_of(request);
        let names: Vec<String> = keys
            .iter()
            .map(|key| String::from_utf8(key.as_ref().name.into()).unwrap())
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let states: Vec<_> = names.iter().map(|name| self.state(name)).collect();
        let may_grant = self.locks.may_grant_many(request, &states, self.now);
        let planned = match may_grant {
            true => Planned::Grant,
            false => Planned::Nothing,
        };
        let (settled, fx, rests) = self.ask_many(&names, &planned, |locks, views, now, fx| {
            Ok(locks.settle_many(request, views, now, fx))
        });
        self.carry_out_many(&names, (settled.is_ok(), fx), &rests);
        true
    }

    pub(crate) fn verify_parked(&mut self) {
        let mut fx = Effects::new();
        self.locks.verify_parked(&mut Cx::new(self.now, &mut fx));
        self.carry_out_answers(fx);
    }

    /// All keys of a request are its owner's, under these tokens.
    pub(crate) fn check_all_granted(&self, request: &Request, tokens: &[Token]) {
        let over = request.until_ms.is_some_and(|end| self.now.mono_ms >= end);
        assert!(!over, "granted after the end of the wait");
        assert_eq!(tokens.len(), request.further.len() + 1);
        let keys = std::iter::once(&request.key).chain(&request.further);
        for (key, token) in keys.zip(tokens) {
            assert!(
                matches!(self.keys.get(key), Some(KeyState::Held(hold))
                    if *hold.owner == *request.owner.as_bytes() && hold.token == Some(*token)),
                "granted, but {key} says otherwise"
            );
        }
    }

    fn state(&self, key: &str) -> KeyState {
        self.keys.get(key).cloned().unwrap_or(KeyState::Absent)
    }

    /// The content of the key, and what the core states that the decision needs.
    pub(crate) fn view<'k>(&mut self, key: &'k str, planned: &Planned<'_>) -> View<'k> {
        let domain = self.domain(key);
        if !self.locks.tokens.knows(domain) {
            let horizon = self.horizons.get(&domain).copied().unwrap_or(0);
            self.locks.learn_horizon(domain, horizon, self.now);
        }
        let state = self.state(key);
        let need = self.locks.need(key_ref(key), &state, planned, self.now);
        let fence = Fence {
            counter: self.counters.get(key).copied(),
            may_grant: self.may_grant,
        };
        View {
            key: key_ref(key),
            state,
            domain,
            fence: (need == Need::Token).then_some(fence),
            has_subscriber: need == Need::Token && self.has_subscriber.contains(key),
        }
    }

    fn ask_many<T>(
        &mut self,
        keys: &[&str],
        planned: &Planned<'_>,
        decide: impl FnOnce(&mut Locks, &[View<'_>], Now, &mut [Effects]) -> Result<T, LockError>,
    ) -> (Result<T, LockError>, Vec<Effects>, Vec<Rest>) {
        let views: Vec<_> = keys.iter().map(|key| self.view(key, planned)).collect();
        let rest = |view| Rest::before(&self.locks, view, planned, self.now);
        let rests = views.iter().map(rest).collect();
        let mut fx = vec![Effects::new(); keys.len()];
        let answer = decide(&mut self.locks, &views, self.now, &mut fx);
        let nothing = fx.iter().all(|fx| fx.is_empty());
        assert!(answer.is_ok() || nothing, "a failed call did {fx:?}");
        (answer, fx, rests)
    }

    /// First all that is written, then the answers, as the shell delivers them.
    fn carry_out_many(&mut self, keys: &[&str], (is_ok, fx): (bool, Vec<Effects>), rests: &[Rest]) {
        for ((key, fx), rest) in keys.iter().zip(fx).zip(rests) {
            self.carry_out_decided(key, (is_ok, fx), rest);
        }
    }
}
