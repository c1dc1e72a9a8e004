//! SERVER EVENTS

use crate::lock::effect::Effects;
use crate::lock::locks::Locks;
use crate::lock::name::{KeyMap, KeySet};
use crate::lock::view::HORIZON_DB;
use crate::lock::wait::request::WaiterId;
use crate::lock::{Domain, KeyRef, LockError, Now};

impl Locks {
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
            self.disconnected_other_resource(waiter, now);
        }
    }

    /// The key's lease ran out, says the server. Answers whether somebody cares: the grant is
    /// tracked, or waited for.
    pub fn expired(&mut self, key: KeyRef<'_>) -> bool {
        self.lost_other_resource(key);
        let tracked = self.tracked.remove_all(key);
        self.stats.grants_expired += tracked;
        self.waiters.schedule_settle(key) || tracked > 0
    }

    /// The key went away, says the server. Answers whether somebody cares, as above.
    pub fn lost(&mut self, key: KeyRef<'_>) -> bool {
        self.lost_other_resource(key);
        let tracked = self.tracked.remove_all(key);
        self.stats.grants_lost += tracked;
        let is_waited = self.waiters.schedule_settle(key);
        if is_waited {
            self.windows.count_redisson_hold(key);
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
        self.demote_other_resources();
    }

    /// Nobody waits and nothing is tracked: key events are of no interest.
    pub fn is_idle(&self) -> bool {
        self.waiters.live() == 0 && self.tracked.len() == 0 && self.are_other_resources_idle()
    }

    /// Whether somebody waits for this key or its grant is tracked: else its events are of no interest.
    pub fn cares_about(&self, key: KeyRef<'_>) -> bool {
        self.tracked.contains(key)
            || self.waiters.live_on(key) > 0
            || self.concerns_other_resource(key)
    }

    /// The module is to be unloaded: every waiter is sent away, and no place is kept. Bindings stay: the drain
    /// may be called off. (Without the module, bound holds end by their leases.)
    pub fn drain(&mut self, fx: &mut Effects) {
        self.end_windows();
        let parked = self.waiters.clear_all();
        self.fail(parked, &LockError::Drained, fx);
        self.waiters.schedule_postponed();
        self.drain_other_resources(fx);
    }
}
