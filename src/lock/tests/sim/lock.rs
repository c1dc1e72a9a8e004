//! The commands of locks, and how the core is asked: each decision is compared with what the core stated before it.

use crate::lock::tests::sim::rest::Rest;
use crate::lock::tests::sim::tickets::notify_of;
use crate::lock::tests::sim::{key_ref, name_of, text, Sim, Terms};
use crate::lock::{
    Acquire, Answer, Bound, BoundRef, Break, Cx, Effects, Fence, KeyState, Lease, LockError, Locks,
    Mode, Need, Planned, ReadDepth, Release, Released, Renew, Resource, View, Wait,
    READERS_AT_ONCE,
};

/// What is read of a key, and for which decision: the owner, the depth, the decision.
type Asked<'a> = (&'a [&'a str], ReadDepth, &'a Planned<'a>);

impl Sim {
    pub fn acquire(
        &mut self,
        key: &str,
        owner: &str,
        conn: u64,
        (mode, terms, wait, once): (Mode, Terms, Wait, bool),
    ) -> Result<Answer, LockError> {
        let (named, note) = (self.notify.take(), self.note.take());
        let breaks = self.breaks.take();
        assert!(!self.is_blocked(conn), "{conn} waits for an answer");
        self.end_first_of_lock(key, owner);
        let req = Acquire {
            owner: owner.as_bytes(),
            mode,
            lease: self.lease(terms),
            names_lease: matches!(terms, Terms::Named(_)),
            session: matches!(terms, Terms::Session),
            once,
            note: note.as_deref().map(str::as_bytes),
            count: 1,
            limit: None,
            wait,
            queue: self.queue.take(),
            notify: notify_of(&named),
            client: self.client(conn),
            user: self.user,
        };
        let depth = self.locks.depth_to_acquire(key_ref(key), mode);
        let upgrader = self.locks.upgrader(key_ref(key), mode);
        let upgrader = upgrader.map(|owner| String::from_utf8(owner.to_vec()).unwrap());
        let owners = [owner, upgrader.as_deref().unwrap_or(owner)];
        let planned = match breaks {
            Some(_) => Planned::Grant,
            None => Planned::Acquire(&req),
        };
        let asked = (&owners[..], depth, &planned);
        let (answer, fx, rest) = self.ask(key, asked, |locks, view, cx| match breaks {
            Some(token) => locks.break_to(view, token, &req, cx),
            None => locks.acquire(view, &req, cx),
        });
        if let Ok(Answer::Waits(id)) = answer {
            let how = (wait, &named, req.session);
            self.enqueue(id, Resource::Lock, &[key], (owner, mode, conn), how);
        }
        self.carry_out_decided(key, (answer.is_ok(), fx), &rest);
        answer
    }

    pub fn release(
        &mut self,
        key: &str,
        owner: &str,
        (mode, all, token): (Option<Mode>, bool, Option<u64>),
    ) -> Result<Released, LockError> {
        self.end_first_of_lock(key, owner);
        let req = Release {
            owner: owner.as_bytes(),
            mode,
            all,
            token,
        };
        let asked = (&[owner][..], ReadDepth::Holder, &Planned::Release(&req));
        self.command(key, asked, |locks, view, cx| locks.release(view, &req, cx))
    }

    pub fn renew(
        &mut self,
        key: &str,
        owner: &str,
        (mode, terms, token): (Option<Mode>, Terms, Option<u64>),
    ) -> Result<bool, LockError> {
        let note = self.note.take();
        self.end_first_of_lock(key, owner);
        let req = Renew {
            owner: owner.as_bytes(),
            mode,
            lease: self.lease(terms),
            names_lease: matches!(terms, Terms::Named(_)),
            token,
            note: note.as_deref().map(str::as_bytes),
        };
        let depth = match self.keys.read(key, &[owner], ReadDepth::Two, self.now) {
            KeyState::ReadWrite(lock) if !lock.is_whole => {
                lock.depth_to_renew(owner.as_bytes(), req.lease.deadline(self.now), self.now)
            }
            _ => ReadDepth::Two,
        };
        let depth = match depth {
            ReadDepth::Own => ReadDepth::Two,
            depth => depth,
        };
        let asked = (&[owner][..], depth, &Planned::Renew);
        self.command(key, asked, |locks, view, cx| locks.renew(view, &req, cx))
    }

    pub fn break_lock(
        &mut self,
        key: &str,
        token: Option<u64>,
        purge: bool,
    ) -> Result<bool, LockError> {
        let req = Break { token, purge };
        let asked = (&[][..], ReadDepth::All, &Planned::Break(req));
        self.command(key, asked, |locks, view, cx| {
            locks.break_lock(view, req, cx)
        })
    }

    pub fn passes_fence(&mut self, key: &str, token: u64) -> bool {
        let state = self.keys.read(key, &[], ReadDepth::Two, self.now);
        self.locks.passes_fence(&state, token, self.now)
    }

    /// Settles a lock. Returns whether the core stated that this may change the key.
    pub(super) fn settle_lock(&mut self, key: &str) -> bool {
        let state = self.state(key);
        let may_change = self.locks.may_change(key_ref(key), &state, self.now);
        let planned = match may_change {
            true => Planned::Settle,
            false => Planned::Nothing,
        };
        let settled = self.command(
            key,
            (&[][..], ReadDepth::All, &planned),
            |locks, view, cx| {
                locks.settle(view, cx);
                Ok(())
            },
        );
        settled.unwrap();
        may_change
    }

    /// Renews or ends a bound hold.
    pub(super) fn serve_session(
        &mut self,
        bound: &Bound,
        (depth, planned): (ReadDepth, &Planned<'_>),
        serve: impl FnOnce(&mut Locks, &View<'_>, &Bound, &mut Cx<'_>),
    ) {
        let owner = text(&bound.owner);
        let owners = [&owner[..]];
        let asked = (&owners[..], depth, planned);
        let done = self.command(&name_of(&bound.key), asked, |locks, view, cx| {
            serve(locks, view, bound, cx);
            Ok(())
        });
        done.unwrap();
    }

    pub(super) fn end_first_of_lock(&mut self, key: &str, owner: &str) {
        for mode in [Mode::Exclusive, Mode::Read, Mode::Write] {
            self.end_first(BoundRef::lock(mode, key_ref(key), owner.as_bytes()));
        }
    }

    pub(super) fn lease(&self, terms: Terms) -> Lease {
        match terms {
            Terms::Named(lease) => lease,
            Terms::Unnamed | Terms::Session => self.default_lease,
        }
    }

    fn command<T>(
        &mut self,
        key: &str,
        asked: Asked<'_>,
        decide: impl FnOnce(&mut Locks, &View<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let (answer, fx, rest) = self.ask(key, asked, decide);
        self.carry_out_decided(key, (answer.is_ok(), fx), &rest);
        answer
    }

    fn ask<T>(
        &mut self,
        key: &str,
        asked: Asked<'_>,
        decide: impl FnOnce(&mut Locks, &View<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> (Result<T, LockError>, Effects, Rest) {
        let view = self.view(key, asked);
        let rest = Rest::before(&self.locks, &view, asked.2, self.now);
        let mut fx = Effects::new();
        let answer = decide(&mut self.locks, &view, &mut Cx::new(self.now, &mut fx));
        assert!(answer.is_ok() || fx.is_empty(), "a failed call did {fx:?}");
        (answer, fx, rest)
    }

    /// The content of the key, and what the core states that the decision needs.
    pub(super) fn view<'k>(
        &mut self,
        key: &'k str,
        (owners, depth, planned): Asked<'_>,
    ) -> View<'k> {
        let state = self.keys.read(key, owners, depth, self.now);
        let need = self.locks.need(key_ref(key), &state, planned, self.now);
        let domain = match need {
            Need::Nothing => self.domain(key),
            Need::Horizon | Need::Token => self.learnt_domain(key),
        };
        if need == Need::Token && self.may_grant {
            self.ask_tickets(key_ref(key));
        }
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
            readers: READERS_AT_ONCE,
        }
    }
}
