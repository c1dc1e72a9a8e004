//! What one server keeps in memory about its locks, and what happens to them without a command:
//! waits that end, connections that die, keys that go away, leases that run out.

use smallvec::SmallVec;

use crate::lock::effect::{Effect, Effects, KeyWrite, Outcome};
use crate::lock::grant::tracked::{TrackedGrant, TrackedGrants};
use crate::lock::grant::{free, GrantInFlight, HandedOff};
use crate::lock::latch::Latches;
use crate::lock::name::{KeyMap, KeySet, OwnerMap};
use crate::lock::resource::Resource;
use crate::lock::semaphore::Semaphores;
use crate::lock::session::bindings::Sessions;
use crate::lock::startup_delay::StartupDelay;
use crate::lock::stats::Stats;
use crate::lock::token::Tokens;
use crate::lock::wait::queue::{Queue, WaiterMap};
use crate::lock::wait::Waiters;
use crate::lock::window::Windows;
use crate::lock::{Domain, Hold, KeyRef, KeyState, LockError, Now, Token, WaiterId};

/// The limits in force, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Places of parked requests on this server.
    pub max_waiters: usize,
    /// Places of parked requests on one key.
    pub max_waiters_per_key: usize,
    /// Grants in the bounded table.
    pub max_tracked: usize,
}

/// What the shell read for one decision.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The lock.
    pub key: KeyRef<'a>,
    /// What the key holds.
    pub state: KeyState,
    /// Whose horizon covers this key: 0, in a cluster its slot.
    pub domain: Domain,
    /// What a token leans on; `None` when the decision was not expected to need one.
    pub fence: Option<Fence>,
    /// Whether somebody listens for the release of this lock; asked only where
    /// [`Locks::depends_on_subscribers`].
    pub has_subscriber: bool,
}

/// What the keys beside a lock say about its tokens.
#[derive(Debug, Clone, Copy)]
pub struct Fence {
    /// Redisson's token counter of this name, where that key exists.
    pub counter: Option<u64>,
    /// False while a grant cannot be made safe: its horizon's slot is on its way between nodes, or
    /// traffic is paused within this very transaction.
    pub may_grant: bool,
}

/// The database that holds the horizons.
pub const HORIZON_DB: i32 = 0;

impl View<'_> {
    /// Whether a grant is possible now.
    pub fn may_grant(&self) -> bool {
        self.fence.is_some_and(|fence| fence.may_grant)
    }
}

/// The locks of one server, as far as memory goes.
#[derive(Debug)]
pub struct Locks {
    /// The limits in force.
    pub limits: Limits,
    /// Who waits, and what is due when.
    pub waiters: Waiters,
    /// Which holds are bound to connections.
    pub sessions: Sessions,
    /// Where tokens come from.
    pub tokens: Tokens,
    /// What has happened so far.
    pub stats: Stats,
    /// Whether locks are granted yet, after a start or a promotion.
    pub startup_delay: StartupDelay,
    /// Whether requests that would wait for themselves are refused.
    pub detects_deadlocks: bool,
    /// When those who wait outside have their turn.
    pub windows: Windows,
    /// Requests that were parked although it was not sure that they do not.
    pub(crate) doubtful: Vec<WaiterId>,
    pub(crate) tracked: TrackedGrants,
    /// Keys to be glanced at.
    pub(crate) rechecks: KeySet,
    pub(crate) next_waiter: u64,
    pub(crate) in_flight: WaiterMap<SmallVec<[GrantInFlight; 1]>>,
    /// The latest of them of each owner at each key.
    pub(crate) in_flight_of_owner: OwnerMap<WaiterId>,
    /// Grants that did not reach their clients, by key.
    pub(crate) undelivered: KeyMap<Vec<GrantInFlight>>,
    /// Whether this process has granted READ or WRITE: then a token of that may stand beside a key that is
    /// absent now.
    pub(crate) had_shared: bool,
    /// The semaphores beside them.
    pub sems: Semaphores,
    /// The latches beside them.
    pub latches: Latches,
    /// Whose key was settled last.
    pub(crate) last_settled: Resource,
}

impl Locks {
    /// An empty server.
    pub fn new(limits: Limits) -> Locks {
        Locks {
            limits,
            waiters: Waiters::default(),
            sessions: Sessions::default(),
            tokens: Tokens::default(),
            stats: Stats::default(),
            startup_delay: StartupDelay::default(),
            detects_deadlocks: true,
            windows: Windows::default(),
            doubtful: Vec::new(),
            tracked: TrackedGrants::default(),
            rechecks: KeySet::default(),
            next_waiter: 0,
            in_flight: WaiterMap::default(),
            in_flight_of_owner: OwnerMap::default(),
            undelivered: KeyMap::default(),
            had_shared: false,
            sems: Semaphores::default(),
            latches: Latches::default(),
            last_settled: Resource::default(),
        }
    }

    /// What is known of the present hold beyond the hash.
    pub fn tracked(&self, key: KeyRef<'_>, hold: &Hold) -> Option<&TrackedGrant> {
        self.tracked.get(key, hold.token)
    }

    /// What is known of the exclusive or WRITE hold that has this token, beyond the hash.
    pub fn tracked_under(&self, key: KeyRef<'_>, token: Option<Token>) -> Option<&TrackedGrant> {
        self.tracked.get(key, token)
    }

    /// What is known of this owner's READ hold beyond the hash.
    pub fn tracked_reader(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&TrackedGrant> {
        self.tracked.reader(key, owner)
    }

    /// How many grants are in the bounded table.
    pub fn tracked_len(&self) -> usize {
        self.tracked.len()
    }

    /// The queue of a key, if somebody waits for it.
    pub fn queue(&self, key: KeyRef<'_>) -> Option<&Queue> {
        self.waiters.queue(key).filter(|queue| queue.live() > 0)
    }

    /// The connection of a parked request is gone, or was answered by the server itself. A grant
    /// that was on its way to it is to be undone when the key is settled.
    pub fn gone(&mut self, waiter: WaiterId, now: Now) {
        let in_flight = self.take_in_flight(waiter);
        let was_granted = !in_flight.is_empty();
        for in_flight in in_flight {
            match in_flight.reentry {
                // The undo ends the hold; there is nothing to release.
                None => self
                    .sessions
                    .unbind_grant(in_flight.bound(), in_flight.token),
                Some(reentry) if !reentry.counted => continue,
                Some(_) => {}
            }
            self.waiters.schedule_settle_id(in_flight.key.clone());
            // Only grants under the last token of a key can still be current.
            let undone = self.undelivered.entry(in_flight.key.clone()).or_default();
            undone.retain(|other| other.token >= in_flight.token);
            if undone.iter().all(|other| other.token == in_flight.token) {
                undone.push(in_flight);
            }
        }
        if was_granted {
            return;
        }
        if self.waiters.leave(waiter, now) {
            self.stats.waits_disconnected += 1;
        } else {
            self.gone_elsewhere(waiter, now);
        }
    }

    /// The key's lease ran out, says the server. Answers whether somebody cares: the grant is
    /// tracked, or waited for.
    pub fn expired(&mut self, key: KeyRef<'_>) -> bool {
        self.lost_elsewhere(key);
        let tracked = self.tracked.remove_all(key);
        self.stats.grants_expired += tracked;
        self.waiters.schedule_settle(key) || tracked > 0
    }

    /// The key went away, says the server. Answers whether somebody cares, as above.
    pub fn lost(&mut self, key: KeyRef<'_>) -> bool {
        self.lost_elsewhere(key);
        let tracked = self.tracked.remove_all(key);
        self.stats.grants_lost += tracked;
        let is_waited = self.waiters.schedule_settle(key);
        if is_waited {
            self.windows.count_outside(key);
        }
        is_waited || tracked > 0
    }

    /// Keys with these names have left this server with their slot, as they were.
    pub fn left(&mut self, has_left: impl Fn(&[u8]) -> bool) {
        self.stats.grants_lost += self.tracked.forget(|key| has_left(key.name));
        self.sessions.forget_all(|key| has_left(key.name));
        self.forget_permits(|key| has_left(key.name));
    }

    /// A database (or, with `None`, every one) was emptied; stored horizons went with it.
    pub fn flushed(&mut self, db: Option<i32>) {
        self.lose_horizons(&[db.unwrap_or(HORIZON_DB)]);
        self.schedule_settle_all(db);
        self.stats.grants_lost += self.tracked.clear(db);
        self.sessions.clear(db);
        self.forget_permits(|key| db.is_none_or(|db| key.db == db));
    }

    /// Two databases have changed places. Clients stay parked under their database's number.
    pub fn swapped(&mut self, first: i32, second: i32) {
        self.lose_horizons(&[first, second]);
        self.tracked.swap(first, second);
        self.sessions.swap(first, second);
        let undone = self.undelivered.values_mut().flatten();
        for in_flight in self.in_flight.values_mut().flatten().chain(undone) {
            in_flight.key = in_flight.key.swapped(first, second);
        }
        self.undelivered = self
            .undelivered
            .drain(..)
            .map(|(key, undone)| (key.swapped(first, second), undone))
            .collect();
        let mut in_flight: Vec<_> = self.in_flight.iter().collect();
        in_flight.sort_unstable_by_key(|(id, _)| **id);
        self.in_flight_of_owner = in_flight
            .into_iter()
            .flat_map(|(id, in_flight)| in_flight.iter().map(|in_flight| (in_flight.at(), *id)))
            .collect();
        self.sems.remembered.swap(first, second);
        self.sems.in_flight.swap(first, second);
        // What is to be undone is now to be undone elsewhere.
        for key in self.undelivered.keys() {
            self.waiters.schedule_settle_id(key.clone());
        }
        for key in self.sems.in_flight.lost_keys() {
            self.sems.waiters.schedule_settle_id(key.clone());
        }
        self.schedule_settle_all(Some(first));
        self.schedule_settle_all(Some(second));
    }

    /// Something happened to whole databases: the horizons went with theirs.
    fn lose_horizons(&mut self, dbs: &[i32]) {
        if dbs.contains(&HORIZON_DB) {
            self.tokens.lose_all();
        }
    }

    /// Takes in what the horizon key of this domain holds (0: nothing). Answers whether that is an
    /// implausible number that was not there before: the log is to tell of it.
    pub fn learn_horizon(&mut self, domain: Domain, horizon: u64, now: Now) -> bool {
        let is_news = self.tokens.learn(domain, horizon, now.wall_us());
        self.stats.horizons_implausible += u64::from(is_news);
        is_news
    }

    /// Data was loaded, or the server's role has changed: what the keys hold may be another's.
    pub fn reloaded(&mut self) {
        self.tokens.forget();
        self.tokens.forget_lost();
        self.schedule_settle_all(None);
    }

    /// This server follows another now: what is to be done about its keys is the other's business.
    pub fn demoted(&mut self) {
        self.tokens.disown();
        self.undelivered = KeyMap::default();
        self.rechecks = KeySet::default();
        self.sessions.clear(None);
        self.end_windows();
        self.waiters.forget_unsettled();
        self.waiters.give_up_places();
        self.demote_elsewhere();
    }

    /// Nobody waits and nothing is tracked: key events are of no interest.
    pub fn is_idle(&self) -> bool {
        self.waiters.live() == 0 && self.tracked.len() == 0 && self.is_idle_elsewhere()
    }

    /// Whether somebody waits for this key or its grant is tracked: else its events are of no interest.
    pub fn cares_about(&self, key: KeyRef<'_>) -> bool {
        self.tracked.contains(key)
            || self.waiters.live_on(key) > 0
            || self.is_of_interest_elsewhere(key)
    }

    /// Whether settling a key in this state may write: a grant is due, or one is to be undone. An undo
    /// whose grant has gone by itself is forgotten on the way.
    pub fn may_change(&mut self, key: KeyRef<'_>, state: &KeyState, now: Now) -> bool {
        if let KeyState::ReadWrite(lock) = state {
            return self.may_change_shared(key, lock, now);
        }
        let hold = state.hold(now);
        if let Some(undone) = self.undelivered.get(&key) {
            let is_current = |undone: &GrantInFlight| hold.is_some_and(|hold| undone.is(hold));
            if undone.iter().any(is_current) {
                return true;
            }
            self.take_undone(key);
        }
        let foreign = matches!(state, KeyState::OtherType | KeyState::OtherHash);
        let bare = matches!(state, KeyState::Bare(_));
        let is_due = || self.waiters.live_on(key) > 0 && !self.windows.is_open(key, now);
        hold.is_none() && !foreign && (bare || is_due())
    }

    /// Settles a key: called when its lease is over or something happened to it from
    /// outside. Harmless at any other time.
    pub fn settle(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        self.see_taken(view, now);
        let undone = self.take_undone(view.key);
        let foreign = match &view.state {
            KeyState::OtherType => Some(LockError::WrongType),
            KeyState::OtherHash => Some(LockError::LockType),
            _ => None,
        };
        if let Some(error) = foreign {
            let is_waited = self.waiters.live_on(view.key) > 0;
            if is_waited {
                self.announce_untracked(view, now, fx);
            }
            self.close_unseen(view, now, fx);
            if is_waited {
                self.fail_all(view.key, &error, fx);
            }
            return;
        }
        if let KeyState::ReadWrite(lock) = &view.state {
            return self.settle_shared(view, lock, undone.unwrap_or_default(), now, fx);
        }
        let undone = match view.state.hold(now) {
            Some(hold) => {
                let (again, fresh): (Vec<_>, Vec<_>) = undone
                    .into_iter()
                    .flatten()
                    .filter(|undone| undone.is(hold))
                    .partition(|undone| undone.reentry.is_some());
                let Some(undone) = fresh.into_iter().next() else {
                    if let (Some(_), 2..) = (again.first(), hold.count) {
                        // One at most: the next request of this owner claims what is on its way.
                        fx.push(Effect::Write(KeyWrite::Adjust {
                            owner: hold.owner.clone(),
                            count: Some((hold.count, hold.count - 1)),
                            token: None,
                            deadline_ms: None,
                        }));
                    }
                    if self.tracked(view.key, hold).is_none() {
                        self.close_unseen(view, now, fx);
                    }
                    self.waiters.set_lease(view.key, hold.deadline_ms);
                    self.waiters.set_holders(view.key, &view.state, now);
                    return self.waiters.schedule_settle_owner(view.key, &hold.owner);
                };
                Some(undone)
            }
            None => None,
        };
        if let Some(undone) = &undone {
            self.stats.grants_undone += u64::from(self.tracked.remove(view.key).is_some());
            self.waiters
                .restore(&undone.key, &undone.owner, undone.seq, now);
        } else if self
            .waiters
            .lease(view.key)
            .is_some_and(|end| end > now.wall_ms)
        {
            self.stats.foreign_wakeups += 1;
        }
        let took_back = undone.is_some() || matches!(view.state, KeyState::Bare(_));
        let rest = match &undone {
            Some(_) => &KeyState::Absent,
            None => &view.state,
        };
        match self.hand_off(view, rest, now, fx) {
            HandedOff::Granted | HandedOff::LeftFree => {}
            _ if took_back => {
                self.windows.was_free(view.key);
                free(fx);
            }
            _ => {}
        }
    }

    /// The module is to be unloaded: every waiter is sent away, and no place is kept. Bindings stay: the drain
    /// may be called off. (Without the module, bound holds end by their leases.)
    pub fn drain(&mut self, fx: &mut Effects) {
        self.end_windows();
        let everybody = self.waiters.clear_all();
        self.fail(everybody, &LockError::Drained, fx);
        self.waiters.schedule_postponed();
        self.drain_elsewhere(fx);
    }

    /// Everybody who waits is answered this error.
    pub(crate) fn fail_all(&mut self, key: KeyRef<'_>, error: &LockError, fx: &mut Effects) {
        let everybody = self.waiters.clear(key);
        self.fail(everybody, error, fx);
    }

    /// These have left their queues, and are told why.
    pub(crate) fn fail(&mut self, waiters: Vec<WaiterId>, error: &LockError, fx: &mut Effects) {
        for waiter in waiters {
            self.stats.waits_failed += 1;
            fx.push(Effect::Answer(waiter, Outcome::Failed(error.clone())));
        }
    }
}
