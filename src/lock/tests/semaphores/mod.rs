//! A simulated server for semaphores and latches: what the shell and Redis do around the core, as plainly as
//! possible. A semaphore is a number and a map, a latch a number, connections are the core's waiters.
//!
//! What no change may ever do is asserted while it is carried out: permits appear or vanish, an id holds two,
//! an error leaves a trace, a request is answered twice.

mod model;
mod session;

use crate::lock::tests::sums;
use crate::lock::Cx;
use std::collections::{BTreeMap, BTreeSet};

use crate::lock::{
    Answer, Bound, Count, CountChange, Effect, Effects, Event, Grace, Lease, Limits, LockError,
    Locks, Now, Outcome, OwnerId, PermitChange, Permits, Resource, SemAcquire, SemState, SemView,
    SetIf, WaiterId,
};

use crate::lock::tests::sim::{key_ref, START_MS};

/// A semaphore as its two keys state it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// The string: free permits.
    pub free: Option<i64>,
    /// The sorted set: ends by id.
    pub set: BTreeMap<String, i64>,
    /// Something else stands at the string's key.
    pub foreign: bool,
}

impl Keys {
    fn all(&self) -> Option<i64> {
        Some(self.free? + self.set.len() as i64)
    }
}

/// What came of a decision, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    Change(String, PermitChange),
    Latch(String, CountChange),
    Notify(String, Event),
    Answer(WaiterId, Outcome),
}

pub struct Sim {
    pub locks: Locks,
    pub now: Now,
    pub may_grant: bool,
    pub sems: BTreeMap<String, Keys>,
    pub latches: BTreeMap<String, (i64, Option<i64>)>,
    /// Granted, and not delivered yet.
    pub permit_in_flight: BTreeSet<WaiterId>,
    pub out: Vec<Out>,
    answered: BTreeSet<WaiterId>,
    /// SEM.SET is on its way, which alone may change how many permits there are.
    resizes: bool,
}

impl Sim {
    pub fn new(limits: Limits, grace: Grace) -> Sim {
        let mut locks = Locks::new(limits);
        locks.set_grace(grace);
        Sim {
            locks,
            now: Now {
                wall_ms: START_MS,
                wall_sub_us: 0,
                mono_ms: 0,
            },
            may_grant: true,
            sems: BTreeMap::new(),
            latches: BTreeMap::new(),
            permit_in_flight: BTreeSet::new(),
            out: Vec::new(),
            answered: BTreeSet::new(),
            resizes: false,
        }
    }

    /// As the shell reads it: by the ends, no more than can be needed.
    fn state(&self, name: &str, own: Option<&str>, undone: &[OwnerId]) -> SemState {
        let Some(keys) = self.sems.get(name) else {
            return SemState::Absent;
        };
        if keys.foreign {
            return SemState::OtherType;
        }
        let Some(free) = keys.free else {
            return SemState::Absent;
        };
        let wanted = self.locks.sems.wanted(key_ref(name)) as i64;
        let needed = usize::try_from(wanted - free).unwrap_or(0);
        let mut by_end: Vec<_> = keys.set.iter().map(|(id, end)| (*end, id)).collect();
        by_end.sort();
        let mut permits = Permits {
            free,
            taken: keys.set.len(),
            own_end_ms: own.and_then(|own| keys.set.get(own).copied()),
            ..Permits::default()
        };
        for (end, id) in by_end {
            if end > self.now.wall_ms || permits.ended.len() >= needed {
                permits.next_end_ms = Some(end);
                break;
            }
            let is_undone = undone.iter().any(|undone| undone[..] == *id.as_bytes());
            if own != Some(id) && !is_undone {
                permits.ended.push(OwnerId::from_slice(id.as_bytes()));
            }
        }
        SemState::There(permits)
    }

    fn view<'v>(&self, name: &'v str, own: Option<&str>) -> SemView<'v> {
        let undone = self.locks.sems.lost_on(key_ref(name));
        let state = self.state(name, own, &undone);
        let end = |id: &OwnerId| {
            let id = String::from_utf8_lossy(id).into_owned();
            self.sems.get(name)?.set.get(&id).copied()
        };
        SemView {
            key: key_ref(name),
            state,
            domain: 0,
            may_grant: Some(self.may_grant),
            undone: undone.iter().map(|id| (id.clone(), end(id))).collect(),
        }
    }

    /// Asks the core about a semaphore and carries out what it says.
    pub fn ask<T>(
        &mut self,
        name: &str,
        own: Option<&str>,
        body: impl FnOnce(&mut Locks, &SemView<'_>, &mut Cx<'_>) -> (T, PermitChange),
    ) -> T {
        let view = self.view(name, own);
        let mut fx = Effects::new();
        let (answer, change) = body(&mut self.locks, &view, &mut Cx::new(self.now, &mut fx));
        self.write(name, &change);
        self.carry_out(name, fx);
        for kind in self.locks.kinds() {
            sums::check(kind.fields());
        }
        answer
    }

    /// The same for what may be refused: then it may not leave a trace.
    pub fn try_to<T>(
        &mut self,
        name: &str,
        own: Option<&str>,
        body: impl FnOnce(&mut Locks, &SemView<'_>, &mut Cx<'_>) -> Result<(T, PermitChange), LockError>,
    ) -> Result<T, LockError> {
        self.ask(name, own, |locks, view, cx| match body(locks, view, cx) {
            Ok((answer, change)) => (Ok(answer), change),
            Err(error) => {
                let effects = &cx.effects;
                assert!(effects.is_empty(), "effects of {error:?}: {effects:?}");
                (Err(error), PermitChange::default())
            }
        })
    }

    fn write(&mut self, name: &str, change: &PermitChange) {
        if change.is_empty() {
            return;
        }
        let keys = self.sems.entry(name.into()).or_default();
        assert!(!keys.foreign, "foreign data is never changed");
        let before = keys.all();
        let was_there = keys.free.is_some();
        assert_eq!(change.clear, !was_there, "cleared when it is made");
        if change.clear {
            keys.set.clear();
        }
        for id in &change.removed {
            let id = String::from_utf8_lossy(id).into_owned();
            assert!(keys.set.remove(&id).is_some(), "{id} was not there");
        }
        let mut fresh = 0;
        for (id, end) in &change.set {
            let known = self.locks.sems.remembered.get(key_ref(name), id);
            let known = known.map(|permit| permit.end_ms);
            assert!(known.is_none_or(|known| known == *end), "{known:?}: {end}");
            let id = String::from_utf8_lossy(id).into_owned();
            fresh += usize::from(keys.set.insert(id, *end).is_none());
        }
        keys.free = change.free.or(keys.free);
        let counted = !change.removed.is_empty() || fresh > 0;
        if was_there && counted && !self.resizes {
            let now = keys.all();
            assert_eq!(now, before, "permits appear or vanish: {change:?}");
        }
        if let Some(free) = change.publish {
            assert_eq!(Some(free), keys.free, "what is told is what is free");
        }
        self.out.push(Out::Change(name.into(), change.clone()));
    }

    fn carry_out(&mut self, name: &str, fx: Effects) {
        for effect in fx {
            match effect {
                Effect::Notify(event) => self.out.push(Out::Notify(name.into(), event)),
                Effect::Answer(waiter, outcome) => self.answer(waiter, outcome),
                Effect::Horizon(..) => {}
                other => panic!("{other:?} of a semaphore"),
            }
        }
    }

    fn answer(&mut self, waiter: WaiterId, outcome: Outcome) {
        assert!(
            self.answered.insert(waiter),
            "a second answer to {waiter:?}"
        );
        if matches!(outcome, Outcome::Granted(_)) {
            self.permit_in_flight.insert(waiter);
        }
        self.out.push(Out::Answer(waiter, outcome));
    }

    // ---- commands ----

    pub fn set(
        &mut self,
        name: &str,
        permits: u32,
        set_if: SetIf,
    ) -> Result<Option<u32>, LockError> {
        self.resizes = true;
        let set = self.try_to(name, None, |locks, view, cx| {
            locks.sem_set(view, permits, set_if, cx)
        });
        self.resizes = false;
        set
    }

    pub fn acquire(&mut self, name: &str, req: &SemAcquire<'_>) -> Result<Answer, LockError> {
        let id = String::from_utf8_lossy(req.id).into_owned();
        let before = self.sems.clone();
        let answer = self.ask(name, Some(&id), |locks, view, cx| {
            locks.sem_acquire(view, req, cx)
        });
        if answer.is_err() {
            assert_eq!(self.sems.get(name), before.get(name), "a trace of an error");
        }
        answer
    }

    pub fn release(&mut self, name: &str, id: &str) -> Result<bool, LockError> {
        self.try_to(name, Some(id), |locks, view, cx| {
            locks.sem_release(view, id.as_bytes(), cx)
        })
    }

    pub fn renew(
        &mut self,
        name: &str,
        id: &str,
        lease: Lease,
        names_lease: bool,
    ) -> Result<bool, LockError> {
        self.try_to(name, Some(id), |locks, view, cx| {
            locks.sem_renew(view, id.as_bytes(), (lease, names_lease), cx)
        })
    }

    /// A command about a latch.
    pub fn latch<T>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Locks, Count, &mut Cx<'_>) -> Result<(T, CountChange), LockError>,
    ) -> Result<T, LockError> {
        let state = self.count(name);
        let mut fx = Effects::new();
        let decided = body(&mut self.locks, state, &mut Cx::new(self.now, &mut fx));
        self.carry_out(name, fx);
        let (answer, change) = decided?;
        let end_ms = self.latches.get(name).and_then(|latch| latch.1);
        match change {
            CountChange::None => return Ok(answer),
            CountChange::Set(count) => self.latches.insert(name.into(), (count, end_ms)),
            CountChange::Make(count) => self.latches.insert(name.into(), (count, None)),
            CountChange::Open => self.latches.remove(name),
        };
        self.out.push(Out::Latch(name.into(), change));
        Ok(answer)
    }

    fn count(&self, name: &str) -> Count {
        let latch = self.latches.get(name);
        latch.map_or(Count::Absent, |(count, end)| Count::Is(*count, *end))
    }

    // ---- what happens by itself ----

    /// The end of a turn: touched keys are settled, then replies are delivered.
    pub fn end_tick(&mut self) {
        if self.grants() {
            self.locks.sems.waiters.schedule_postponed();
        }
        for round in 0.. {
            assert!(round < 1_000, "settling does not come to an end");
            let Some((resource, key)) = self.locks.pop_unsettled(self.now) else {
                break;
            };
            let name = String::from_utf8_lossy(key.as_ref().name).into_owned();
            match resource {
                Resource::Lock => panic!("nobody waits for a lock"),
                Resource::Semaphore => self.settle(&name),
                Resource::Latch => {
                    let settled = self.latch(&name, |locks, state, cx| {
                        locks.latch_settle(key_ref(&name), state, cx);
                        Ok(((), CountChange::None))
                    });
                    assert_eq!(settled, Ok(()));
                }
            }
        }
        for waiter in std::mem::take(&mut self.permit_in_flight) {
            self.locks.delivered(waiter);
        }
    }

    fn grants(&self) -> bool {
        self.may_grant && !self.locks.startup_delay.is_on(self.now)
    }

    fn settle(&mut self, name: &str) {
        let view = self.view(name, None);
        let may_write = self.locks.sems.may_change(&view);
        if may_write && !self.grants() {
            self.locks
                .postpone(Resource::Semaphore, key_ref(name).to_id());
            return;
        }
        let changes = self.ask(name, None, |locks, view, cx| {
            let change = locks.sem_settle(view, cx);
            (!change.is_empty(), change)
        });
        assert!(may_write || !changes, "settling wrote unasked");
    }

    /// Time passes; every timer runs at its moment.
    pub fn advance(&mut self, ms: u64) {
        let end_ms = self.now.mono_ms + ms;
        loop {
            let delay = self.locks.startup_delay.left(self.now);
            let next = [
                self.locks.next_wait(self.now),
                self.locks.next_settle(self.now),
                Some(delay).filter(|left| *left > 0),
                self.locks.sessions.next_due(self.now),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(u64::MAX);
            let step = next.min(end_ms - self.now.mono_ms);
            self.now.mono_ms += step;
            self.now.wall_ms += step as i64;
            if next > step {
                return;
            }
            let mut fx = Effects::new();
            while self.locks.end_next_wait(&mut Cx::new(self.now, &mut fx)) {}
            self.carry_out("", fx);
            self.renew_sessions();
            self.end_tick();
        }
    }

    /// A connection closes.
    pub fn drop_conn(&mut self, waiter: WaiterId) {
        self.permit_in_flight.remove(&waiter);
        self.locks.gone(waiter, self.now);
    }

    /// A connection closes that permits are bound to.
    pub fn close(&mut self, client: u64) {
        self.locks.disconnected(client, self.now);
        while let Some(bound) = self.locks.sessions.next_ended() {
            self.attend(&bound, |locks, view, id, cx| {
                locks.end_permit_session(view, id, cx)
            });
        }
    }

    fn renew_sessions(&mut self) {
        while let Some(bound) = self.locks.sessions.next_renewal(self.now) {
            self.attend(&bound, |locks, view, id, cx| {
                locks.renew_permit_session(view, id, cx)
            });
        }
    }

    fn attend(
        &mut self,
        bound: &Bound,
        body: impl FnOnce(&mut Locks, &SemView<'_>, &[u8], &mut Cx<'_>) -> PermitChange,
    ) {
        let name = String::from_utf8_lossy(bound.key.as_ref().name).into_owned();
        let id = String::from_utf8_lossy(&bound.owner).into_owned();
        self.ask(&name, Some(&id), |locks, view, cx| {
            ((), body(locks, view, id.as_bytes(), cx))
        });
    }

    /// Something happened to a key from outside; false: it went away.
    pub fn unsettled(&mut self, name: &str, is_there: bool) {
        match is_there {
            true => self.locks.schedule_settle(key_ref(name)),
            false => {
                self.locks.lost(key_ref(name));
            }
        }
    }
}
