//! Requests on several keys, as the shell serves them.

use crate::lock::tests::sim::rest::Rest;
use crate::lock::tests::sim::tickets::notify_of;
use crate::lock::tests::sim::{name_of, Sim, Terms};
use crate::lock::{
    Acquire, Answer, Cx, Effects, Lease, LockError, Locks, Mode, Now, Planned, ReadDepth, Release,
    Renew, Resource, Token, View, Wait, WaiterId,
};

impl Sim {
    pub fn acquire_many(
        &mut self,
        keys: &[&str],
        owner: &str,
        conn: u64,
        (mode, terms, wait, once): (Mode, Terms, Wait, bool),
    ) -> Result<Answer<Vec<Token>>, LockError> {
        let named = self.notify.take();
        assert!(!self.is_blocked(conn), "{conn} waits for an answer");
        for key in keys {
            self.end_first_of_lock(key, owner);
        }
        let req = Acquire {
            owner: owner.as_bytes(),
            mode,
            names_lease: matches!(terms, Terms::Named(_)),
            lease: self.lease(terms),
            session: matches!(terms, Terms::Session),
            once,
            note: None,
            count: 1,
            limit: None,
            wait,
            queue: self.queue.take(),
            notify: notify_of(&named),
            client: self.client(conn),
            user: self.user,
        };
        let states: Vec<_> = keys.iter().map(|key| self.state(key)).collect();
        let planned = Planned::of_many(&states, &req, self.now);
        let (answer, fx, rests) = self.ask_many(keys, &planned, |locks, views, now, fx| {
            locks.acquire_many(views, &req, now, fx)
        });
        if let Ok(Answer::Waits(id)) = answer {
            self.enqueue(
                id,
                Resource::Lock,
                keys,
                (owner, mode, conn),
                (wait, &named, req.session),
            );
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
            note: None,
        };
        let (renewed, fx, rests) = self.ask_many(keys, &Planned::Renew, |locks, views, now, fx| {
            locks.renew_many(views, &req, now, fx)
        });
        self.carry_out_many(keys, (renewed.is_ok(), fx), &rests);
        renewed
    }

    /// Looks at a request that may be grantable, or settles it.
    pub(crate) fn settle_request(&mut self, request: WaiterId) {
        let Some(next) = self.locks.shared.waiters.next_look(request, self.now) else {
            return;
        };
        let keys = self.locks.shared.waiters.keys_of(request);
        let names: Vec<String> = keys.iter().map(name_of).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let names = &names[next.clone()];
        let states: Vec<_> = names.iter().map(|name| self.state(name)).collect();
        if names.len() < keys.len() {
            return self.locks.look_at(request, next.start, &states, self.now);
        }
        let asked = self.locks.may_grant_many(request, &states, self.now);
        let planned = match asked {
            Some(_) => Planned::Grant,
            None => Planned::Nothing,
        };
        let views = self.views_of(names, &planned);
        for asked in asked.into_iter().flatten() {
            self.hear(&asked);
        }
        let (settled, fx, rests) = self.decide_many(&views, &planned, |locks, views, now, fx| {
            Ok(locks.settle_many(request, views, now, fx))
        });
        self.carry_out_many(names, (settled.is_ok(), fx), &rests);
    }

    pub(crate) fn verify_waiters(&mut self) {
        for _ in 0..self.locks.unverified() {
            let mut fx = Effects::new();
            self.locks.verify_next(&mut Cx::new(self.now, &mut fx));
            self.carry_out_answers(fx);
        }
    }

    fn ask_many<T>(
        &mut self,
        keys: &[&str],
        planned: &Planned<'_>,
        decide: impl FnOnce(&mut Locks, &[View<'_>], Now, &mut [Effects]) -> Result<T, LockError>,
    ) -> (Result<T, LockError>, Vec<Effects>, Vec<Rest>) {
        let views = self.views_of(keys, planned);
        self.decide_many(&views, planned, decide)
    }

    fn views_of<'k>(&mut self, keys: &[&'k str], planned: &Planned<'_>) -> Vec<View<'k>> {
        let keys = keys.iter();
        keys.map(|key| self.view(key, (&[][..], ReadDepth::All, planned)))
            .collect()
    }

    fn decide_many<T>(
        &mut self,
        views: &[View<'_>],
        planned: &Planned<'_>,
        decide: impl FnOnce(&mut Locks, &[View<'_>], Now, &mut [Effects]) -> Result<T, LockError>,
    ) -> (Result<T, LockError>, Vec<Effects>, Vec<Rest>) {
        let rest = |view| Rest::before(&self.locks, view, planned, self.now);
        let rests = views.iter().map(rest).collect();
        let mut fx = vec![Effects::new(); views.len()];
        let answer = decide(&mut self.locks, views, self.now, &mut fx);
        let nothing = fx.iter().all(|fx| fx.is_empty());
        assert!(answer.is_ok() || nothing, "a failed call did {fx:?}");
        (answer, fx, rests)
    }

    /// The effects at each key, in the order of the keys.
    fn carry_out_many(&mut self, keys: &[&str], (is_ok, fx): (bool, Vec<Effects>), rests: &[Rest]) {
        for ((key, fx), rest) in keys.iter().zip(fx).zip(rests) {
            self.carry_out_decided(key, (is_ok, fx), rest);
        }
    }
}
