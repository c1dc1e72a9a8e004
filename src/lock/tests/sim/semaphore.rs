//! Semaphores: the commands, and the change of the two keys by a decision. What no change may do is asserted: permits
//! appear or vanish, an id holds two, a refused command leaves a trace.

use std::collections::BTreeMap;

use crate::lock::tests::sim::sums;
use crate::lock::tests::sim::tickets::notify_of;
use crate::lock::tests::sim::{sem_ref, text, Sim, Terms};
use crate::lock::{
    nth_permit, own_permits, Acquire, Answer, BoundRef, Cx, Effect, Effects, Held, Lease,
    LockError, Locks, Mode, OwnPermits, OwnerId, PermitChange, Permits, Resource, SemState,
    SemView, Semaphores, SetIf, Wait,
};

impl Sim {
    /// The free permits; `None`: no semaphore.
    pub fn free(&self, key: &str) -> Option<i64> {
        self.keys.text(key)?.parse().ok()
    }

    /// The number of permits, free or taken.
    pub fn all_permits(&self, key: &str) -> Option<i64> {
        Some(self.free(key)? + self.keys.permits(key).len() as i64)
    }

    // ---- commands ----

    pub fn sem_set(
        &mut self,
        key: &str,
        permits: u32,
        set_if: SetIf,
    ) -> Result<Option<u32>, LockError> {
        self.resizes = true;
        let set = self.sem_command(key, None, |locks, view, cx| {
            locks.sems.set(&mut locks.shared, view, permits, set_if, cx)
        });
        self.resizes = false;
        set
    }

    pub fn sem_acquire(
        &mut self,
        key: &str,
        id: &str,
        conn: u64,
        (terms, wait, limit): (Terms, Wait, Option<u32>),
    ) -> Result<Answer, LockError> {
        let named = self.notify.take();
        assert!(!self.is_blocked(conn), "{conn} waits for an answer");
        self.end_first(BoundRef::permit(sem_ref(key), id.as_bytes()));
        let req = Acquire {
            owner: id.as_bytes(),
            mode: Mode::Exclusive,
            once: false,
            note: None,
            lease: self.lease(terms),
            names_lease: matches!(terms, Terms::Named(_)),
            session: matches!(terms, Terms::Session),
            count: self.count.take().unwrap_or(1),
            limit: limit.and_then(std::num::NonZeroU32::new),
            wait,
            queue: self.queue.take(),
            notify: notify_of(&named),
            client: self.client(conn),
            user: self.user,
        };
        let (before, held) = (self.keys.clone(), self.holds_permit(key, id));
        let (answer, fx) = self.ask_semaphore(key, Some((id, req.count)), |locks, view, cx| {
            locks.sems.acquire(&mut locks.shared, view, &req, cx)
        });
        if let Ok(Answer::Waits(waiter)) = answer {
            let who = (id, Mode::Exclusive, conn);
            let how = (wait, &named, req.session);
            self.enqueue(waiter, Resource::Semaphore, &[key], who, how);
        }
        self.carry_out_permits(key, fx);
        if let Ok(Answer::Granted(token)) = answer {
            assert!(
                self.holds_permit(key, id),
                "granted, but {id} has no permit"
            );
            let former = self.highest.get(key).copied();
            assert!(held || former < Some(token.get()), "the token did not rise");
            self.highest
                .insert(key.into(), former.unwrap_or(0).max(token.get()));
        }
        // Where there is no place to wait, those that wait may be granted.
        let is_full = matches!(answer, Err(LockError::QueueFull | LockError::Busy));
        let is_same = answer.is_ok() || is_full || self.keys == before;
        assert!(is_same, "a trace of {answer:?}");
        answer
    }

    pub fn sem_release(&mut self, key: &str, id: &str) -> Result<bool, LockError> {
        self.end_first(BoundRef::permit(sem_ref(key), id.as_bytes()));
        self.sem_command(key, Some((id, 1)), |locks, view, cx| {
            locks
                .sems
                .release(&mut locks.shared, view, id.as_bytes(), cx)
        })
    }

    pub fn sem_renew(&mut self, key: &str, id: &str, terms: Terms) -> Result<bool, LockError> {
        self.end_first(BoundRef::permit(sem_ref(key), id.as_bytes()));
        self.grants_no_permit = true;
        let lease: (Lease, bool) = (self.lease(terms), matches!(terms, Terms::Named(_)));
        self.sem_command(key, Some((id, 1)), |locks, view, cx| {
            locks
                .sems
                .renew(&mut locks.shared, view, id.as_bytes(), lease, cx)
        })
    }

    /// Settles a semaphore. Returns whether the core stated that this may change the keys.
    pub(super) fn settle_semaphore(&mut self, key: &str) -> bool {
        let may_change =
            Semaphores::may_change(&self.locks.shared, &self.sem_view(key, None), self.now);
        if may_change && !self.grants() {
            self.locks.shared.waiters.postpone(sem_ref(key).to_id());
            return false;
        }
        self.grants_no_permit = !may_change;
        self.serve_permit(key, None, |locks, view, cx| {
            locks.sems.settle(&mut locks.shared, view, cx)
        });
        may_change
    }

    /// Renews or releases a bound permit, or settles the key.
    pub(super) fn serve_permit(
        &mut self,
        key: &str,
        id: Option<&str>,
        serve: impl FnOnce(&mut Locks, &SemView<'_>, &mut Cx<'_>),
    ) {
        let ((), fx) = self.ask_semaphore(key, id.map(|id| (id, 1)), serve);
        self.carry_out_permits(key, fx);
    }

    // ---- decisions ----

    /// A command that may be refused.
    fn sem_command<T>(
        &mut self,
        key: &str,
        own: Option<(&str, u8)>,
        decide: impl FnOnce(&mut Locks, &SemView<'_>, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let (answer, fx) = self.ask_semaphore(key, own, decide);
        assert!(answer.is_ok() || fx.is_empty(), "a failed call did {fx:?}");
        self.carry_out_permits(key, fx);
        answer
    }

    fn ask_semaphore<T>(
        &mut self,
        key: &str,
        own: Option<(&str, u8)>,
        decide: impl FnOnce(&mut Locks, &SemView<'_>, &mut Cx<'_>) -> T,
    ) -> (T, Effects) {
        self.learnt_domain(key);
        if !std::mem::take(&mut self.grants_no_permit) {
            self.ask_tickets(sem_ref(key));
        }
        let view = self.sem_view(key, own);
        let mut fx = Effects::new();
        let answer = decide(&mut self.locks, &view, &mut Cx::new(self.now, &mut fx));
        (answer, fx)
    }

    fn sem_view<'v>(&self, key: &'v str, own: Option<(&str, u8)>) -> SemView<'v> {
        let undone = self.locks.shared.in_flight.undone_owners(sem_ref(key));
        let held = |id: &OwnerId| Held::of(&self.own_permits(key, (&text(id), 1)));
        let undone = undone.into_iter().map(|id| {
            let held = held(&id);
            (id, held)
        });
        let undone: Vec<_> = undone.collect();
        SemView {
            key: sem_ref(key),
            state: self.sem_state(key, own, &undone),
            domain: self.domain(key),
            may_grant: Some(self.may_grant),
            undone,
            has_subscriber: self.has_subscriber.contains(key),
        }
    }

    /// The permits by their ends, and no more of them than the decision can need.
    fn sem_state(
        &self,
        key: &str,
        own: Option<(&str, u8)>,
        undone: &[(OwnerId, Option<Held>)],
    ) -> SemState {
        if !self.keys.contains(key) {
            return SemState::Absent;
        }
        let Some(free) = self.free(key) else {
            return match self.keys.text(key) {
                Some(_) => SemState::OtherString,
                None => SemState::OtherType,
            };
        };
        let asked = own.map_or(0, |own| own.1);
        let waiters = &self.locks.shared.waiters;
        let wanted = waiters.permits_wanted(sem_ref(key), asked) as i64;
        let needed = usize::try_from(wanted - free).unwrap_or(0);
        let set = self.keys.permits(key);
        let mut by_end: Vec<_> = set.iter().map(|(id, end)| (*end, id)).collect();
        by_end.sort();
        let mut permits = Permits {
            free,
            taken: set.len(),
            own: own.map_or(OwnPermits::new(), |own| self.own_permits(key, own)),
            ..Permits::default()
        };
        for (end, id) in by_end {
            if end > self.now.wall_ms || permits.ended.len() >= needed {
                permits.next_end_ms = Some(end);
                break;
            }
            let own = own.map(|(own, _)| own.as_bytes());
            if !permits.concerns(id.as_bytes(), own, undone) {
                permits.ended.push(OwnerId::from_slice(id.as_bytes()));
            }
        }
        SemState::There(permits)
    }

    fn own_permits(&self, key: &str, (id, asked): (&str, u8)) -> OwnPermits {
        let set = self.keys.permits(key);
        let entry = |number| text(&nth_permit(id.as_bytes(), number));
        own_permits((asked, set.len()), self.now, |number| {
            set.get(&entry(number)).copied()
        })
    }

    /// As in the shell, all writes come first.
    fn carry_out_permits(&mut self, key: &str, fx: Effects) {
        let (writes, others): (Effects, Effects) = fx.into_iter().partition(Effect::is_write);
        self.carry_out(key, writes);
        self.carry_out(key, others);
        for resource in [Resource::Semaphore, Resource::Latch] {
            sums::check(self.fields(resource));
        }
    }

    pub(super) fn write_permits(&mut self, key: &str, change: &PermitChange) {
        let before = self.all_permits(key);
        assert!(
            before.is_some() || !self.keys.contains(key),
            "foreign data was changed"
        );
        assert_eq!(change.clear, before.is_none(), "cleared when it is made");
        let mut set: BTreeMap<_, _> = self.keys.permits(key);
        if change.clear {
            set.clear();
        }
        for id in &change.removed {
            let removed = set.remove(&text(id));
            assert!(removed.is_some(), "{id:?} had no permit");
        }
        let mut fresh = 0;
        for (id, end) in &change.set {
            let known = self.locks.sems.tracked.of(sem_ref(key), id);
            let known = known.map(|permit| permit.deadline_ms);
            assert!(known.is_none_or(|known| known == *end), "{known:?}: {end}");
            fresh += usize::from(set.insert(text(id), *end).is_none());
        }
        self.keys.set_permits(key, set);
        if let Some(free) = change.free {
            self.keys.set(key.into(), &free.to_string(), None);
        }
        let counted = !change.removed.is_empty() || fresh > 0;
        if before.is_some() && counted && !self.resizes {
            let after = self.all_permits(key);
            assert_eq!(after, before, "permits appear or vanish: {change:?}");
        }
    }

    pub fn holds_permit(&self, key: &str, id: &str) -> bool {
        let end = self.keys.permits(key).get(id).copied();
        self.free(key).is_some() && end.is_some_and(|end| end > self.now.wall_ms)
    }

    /// Whether permits may be granted at the moment.
    pub(super) fn grants(&self) -> bool {
        self.may_grant && !self.locks.shared.startup_delay.is_on(self.now)
    }
}
