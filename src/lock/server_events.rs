//! Events of the server: replies that are written, connections that close, keys that are deleted or expire, databases
//! that are flushed or exchanged, changes of role.
//!
//! Rechecks: tracked grants that are compared with their key at the end of a tick, for the event `lock.lost`.
//!
//! A key with waiters that others change is settled anyway. A key with a tracked grant only would be noticed at its
//! next grant. If `lock.lost` has subscribers, such a key is read at the end of the tick, and its tracked grants end
//! if it no longer states them; nothing is granted.

use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::name::Resource;
use crate::lock::shared::Shared;
use crate::lock::state::{View, HORIZON_DB};
use crate::lock::wait::ending::ENDED_AT_ONCE;
use crate::lock::wait::request::WaiterId;
use crate::lock::{Domain, KeyId, KeyRef, KeyState, Mode, Now, UserId};

impl Shared {
    /// The reply of a grant is written: from now on only its lease or its owner ends it.
    pub fn delivered(&mut self, waiter: WaiterId) {
        for grant in self.in_flight.take(waiter) {
            let Some(reentry) = grant.reentry else {
                continue;
            };
            if let Some((to, at)) = reentry.binds {
                self.sessions.bind(grant.bound(), to, grant.token, at);
            } else if reentry.unbinds {
                self.sessions.unbind_grant(grant.bound(), grant.token);
            }
        }
    }
}

impl Locks {
    /// The connection of a parked request is closed, or the server has answered it itself. A grant in flight to it is
    /// undone when the key is settled.
    pub fn gone(&mut self, waiter: WaiterId, now: Now) {
        let in_flight = self.shared.in_flight.take(waiter);
        let was_granted = !in_flight.is_empty();
        for grant in in_flight {
            match grant.reentry {
                // The undo ends the hold, so there is nothing to release.
                None => self
                    .shared
                    .sessions
                    .unbind_grant(grant.bound(), grant.token),
                Some(reentry) if !reentry.counted => continue,
                Some(_) => {}
            }
            self.shared.waiters.schedule_settle_id(grant.key.clone());
            self.shared.in_flight.undo(grant);
        }
        if !was_granted {
            self.shared.waiters.disconnected(waiter, now);
        }
    }

    /// The server could not block the client of this new request, or refused its changes: the request is removed, and
    /// counted as refused at once.
    pub fn not_waiting(&mut self, waiter: WaiterId, now: Now) {
        match self.shared.waiters.leave_for_good(waiter) {
            Some(waiter) => self.shared.waiters.count_not_waiting(&waiter),
            None => self.gone(waiter, now),
        }
    }

    /// The server reports that the key's lease ran out. Returns whether it concerns the module: the key has a tracked
    /// grant or waiters.
    pub fn expired(&mut self, key: KeyRef<'_>) -> bool {
        let (tracked, is_waited) = self.end_of_key(key);
        self.stats.grants_expired += tracked;
        is_waited || tracked > 0
    }

    /// The server reports that the key was deleted. Returns as [`Locks::expired`].
    pub fn lost(&mut self, key: KeyRef<'_>) -> bool {
        let (tracked, is_waited) = self.end_of_key(key);
        self.stats.grants_lost += tracked;
        self.shared.waiters.set_lost(key, true);
        self.count_redisson_hold(key, true);
        is_waited || tracked > 0
    }

    /// The key is gone. Returns the number of its tracked grants, and whether it is waited for as a lock.
    fn end_of_key(&mut self, key: KeyRef<'_>) -> (u64, bool) {
        self.sems.lost(key);
        self.shared.waiters.schedule_settle_all_at(key);
        (
            self.untrack_key(key),
            self.shared.waiters.waiting_on(key) > 0,
        )
    }

    /// A field of the hash or a member of the set was removed by other means: where Redisson's client does so, its hold
    /// of a read-write lock or its permit has ended.
    pub fn removed_from(&mut self, key: KeyRef<'_>) {
        self.count_redisson_hold(key, false);
        if let Some(semaphore) = key.semaphore() {
            if self.shared.waiters.waiting_on(semaphore) > 0 {
                self.shared.waiters.windows.redisson_hold_ended(semaphore);
            }
        }
    }

    /// Counts a hold of a Redisson client for the windows, if requests of its kind wait.
    fn count_redisson_hold(&mut self, key: KeyRef<'_>, is_exclusive: bool) {
        let first = self.shared.waiters.first(key);
        if first.is_some_and(|(_, first)| (first.mode == Mode::Exclusive) == is_exclusive) {
            self.shared.waiters.windows.redisson_hold_ended(key);
        }
    }

    /// Keys with these names have left this server with their slot, unchanged.
    pub fn left(&mut self, has_left: impl Fn(&[u8]) -> bool) {
        self.stats.grants_lost += self.tracked.forget(|key| has_left(key.name));
        self.shared.sessions.forget_all(|key| has_left(key.name));
        self.sems.stats.grants_lost += self.sems.tracked.forget(|key| has_left(key.name));
    }

    /// A database (`None`: every one) was emptied, with the horizons stored in it.
    pub fn flushed(&mut self, db: Option<i32>) {
        self.lose_horizons(&[db.unwrap_or(HORIZON_DB)]);
        self.shared.waiters.schedule_settle_all(db);
        self.stats.grants_lost += self.tracked.clear(db);
        self.shared.sessions.clear(db);
        self.sems.stats.grants_lost += self.sems.tracked.clear(db);
    }

    /// `SWAPDB` has exchanged two databases. Clients stay parked under the number of their database.
    pub fn swapped(&mut self, first: i32, second: i32) {
        self.lose_horizons(&[first, second]);
        self.tracked.swap(first, second);
        self.shared.sessions.swap(first, second);
        self.sems.tracked.swap(first, second);
        // Grants to undo are now in the other database.
        for key in self.shared.in_flight.swap(first, second) {
            self.shared.waiters.schedule_settle_id(key.clone());
        }
        for db in [first, second] {
            self.shared.waiters.schedule_settle_all(Some(db));
        }
    }

    /// The content of these databases is gone or exchanged, and horizons with it.
    fn lose_horizons(&mut self, dbs: &[i32]) {
        if dbs.contains(&HORIZON_DB) {
            self.shared.tokens.lose_all();
        }
    }

    /// Accepts the content of the horizon key of this domain (0: none). Returns whether it is an implausible number
    /// that was not there before, to be logged.
    pub fn learn_horizon(&mut self, domain: Domain, horizon: u64, now: Now) -> bool {
        let is_news = self.shared.tokens.learn(domain, horizon, now.wall_us());
        self.stats.horizons_implausible += u64::from(is_news);
        is_news
    }

    /// Data was loaded, or the role of the server has changed: the keys may have been written by another server.
    pub fn reloaded(&mut self) {
        self.shared.tokens.forget();
        self.shared.waiters.schedule_settle_all(None);
    }

    /// This server has become a replica: its master decides about its keys now. (The server unblocks parked clients
    /// itself.)
    pub fn demoted(&mut self, cx: &mut Cx<'_>) {
        let mut left = ENDED_AT_ONCE;
        self.shared.waiters.fail_tickets(&mut left, cx);
        self.shared.tokens.disown();
        self.shared.in_flight.forget_undone();
        self.rechecks.clear();
        self.unverified.clear();
        self.verifies = false;
        self.shared.sessions.clear(None);
        self.shared.waiters.forget_unsettled();
        self.shared.waiters.give_up_places();
    }

    /// Whether this key has waiters or a tracked grant; otherwise its events can be ignored.
    pub fn cares_about(&self, key: KeyRef<'_>) -> bool {
        self.tracked.contains(key) || self.sems.has_grant(key) || self.shared.waiters.any_at(key)
    }
}

/// A step of a recheck.
#[derive(Debug)]
pub struct Recheck {
    /// The key.
    pub key: KeyId,
    /// The index below which its tracked READ grants are compared.
    pub below: usize,
    /// The owners of those grants.
    pub owners: Vec<Rc<[u8]>>,
}

impl Locks {
    /// A key was changed by other means; `asked`: the event `lock.lost` is wanted.
    pub fn changed(&mut self, key: KeyRef<'_>, asked: bool) {
        self.shared.waiters.schedule_settle_all_at(key);
        if asked && self.tracked.contains(key) && self.shared.waiters.waiting_on(key) == 0 {
            self.schedule_recheck(key);
        }
    }

    /// A write to this key failed: tracked grants may not exist.
    pub fn schedule_recheck(&mut self, key: KeyRef<'_>) {
        self.recheck_below(key, usize::MAX);
    }

    /// Whether keys are to be rechecked.
    pub fn has_rechecks(&self) -> bool {
        !self.rechecks.is_empty()
    }

    /// The tracked READ grants below this index of a key are compared with it at the end of a tick. (Whose grant it is
    /// is not recorded.)
    pub(crate) fn recheck_below(&mut self, key: KeyRef<'_>, below: usize) {
        if below > 0 {
            self.rechecks.insert(UserId::UNKNOWN, key.to_id(), below);
        }
    }

    /// The next key to recheck, with the owners whose fields are read by name.
    pub fn pop_recheck(&mut self) -> Option<Recheck> {
        let (key, below) = self.rechecks.pop()?;
        let (_, owners) = self.tracked.owners_below(key.as_ref(), below);
        Some(Recheck { key, below, owners })
    }

    /// Ends the tracked grants of this step that the key no longer states.
    pub fn recheck(&mut self, view: &View<'_>, below: usize, cx: &mut Cx<'_>) {
        let now = cx.now;
        match &view.state {
            KeyState::ReadWrite(lock) if lock.is_held(now) => {
                if lock.writer.is_none() {
                    self.untrack_stale_single(view, cx);
                }
                let is_gone = |owner: &[u8]| !lock.is_in_doubt && lock.reader(owner, now).is_none();
                self.untrack_readers(view.key, (below, is_gone), cx);
            }
            state => {
                let hold = state.hold(now);
                if hold
                    .and_then(|hold| self.tracked(view.key, hold.token))
                    .is_none()
                {
                    self.untrack_stale_single(view, cx);
                }
                self.untrack_readers(view.key, (below, |_| true), cx);
            }
        }
    }

    /// The locks of a database (`None`: of all) whose loss is to be reported: tracked, or held and waited for.
    pub fn cared_about(&self, db: Option<i32>) -> Vec<KeyId> {
        let waited = self.shared.waiters.waited_out();
        let is_lock = |key: &&KeyId| key.as_ref().resource == Resource::Lock;
        let untracked = waited
            .filter(is_lock)
            .filter(|key| !self.tracked.contains(key.as_ref()));
        let all = self.tracked.keys().chain(untracked);
        all.filter(|key| db.is_none_or(|db| key.as_ref().db == db))
            .cloned()
            .collect()
    }
}
