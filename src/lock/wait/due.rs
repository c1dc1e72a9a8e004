//! The deadlines of waits, kept places and leases.
//!
//! Two ordered indexes: the ends of waits and of kept places (monotonic clock), and the leases of locks with waiters
//! (wall clock). The shell arms one timer for the earliest. An early or repeated call finds nothing due and has no
//! effect.
//!
//! Beside them: the keys to settle, at the end of the tick or after their lease, and the keys whose grant is
//! postponed because writes to them are refused. Each of these has its users in turn, and a tick serves the sorts of
//! work in turn ([`Waiters::pop_due`]).

use crate::lock::effect::Cx;
use crate::lock::name::Resource;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::waiters::{Fate, Waiters};
use crate::lock::{KeyId, KeyRef, Mode, Now, UserId};

/// The sorts of work on keys: keys to settle, leases that are over, requests on several keys, windows, postponed keys.
const SORTS: u8 = 5;

impl Waiters {
    /// Records the lease after which the first waiter of this key is due (`None`: no TTL, or no holder).
    pub fn set_lease(&mut self, key: KeyRef<'_>, lease_ms: Option<i64>) {
        let Some((_, id, waited)) = self.waited.get_full_mut(&key) else {
            return;
        };
        let lease_ms = lease_ms.filter(|_| waited.queue.live() > 0);
        waited.is_lost &= lease_ms.is_none();
        if waited.lease_ms == lease_ms {
            return;
        }
        if let Some(old) = waited.lease_ms {
            self.leases.remove(waited.lease_user, old, id.clone());
        }
        waited.lease_ms = lease_ms;
        if let Some(new) = lease_ms {
            waited.lease_user = waited.queue.user(&self.places);
            self.leases.insert(waited.lease_user, new, id.clone());
        }
    }

    /// The loss of this key is reported, or (`false`) the report is taken back. Returns whether it was.
    pub(crate) fn set_lost(&mut self, key: KeyRef<'_>, is_lost: bool) -> bool {
        let waited = self.waited.get_mut(&key);
        waited.is_some_and(|waited| std::mem::replace(&mut waited.is_lost, is_lost))
    }

    /// The lease after which the first waiter of this key is due, in Unix milliseconds.
    pub fn lease(&self, key: KeyRef<'_>) -> Option<i64> {
        self.waited.get(&key)?.lease_ms
    }

    /// The keys with a recorded lease.
    pub fn waited_out(&self) -> impl Iterator<Item = &KeyId> {
        self.leases.iter().map(|(_, key)| key)
    }

    /// Ends the next wait or kept place whose deadline has passed: a parked request is answered nil, and its place is
    /// kept for the grace time; a kept place is given up. Returns the number of its places; `None` when none is due.
    fn end_next(&mut self, cx: &mut Cx<'_>) -> Option<usize> {
        // Taken out in any case: a place that stayed would be due for ever.
        let place = self.places.take_due(cx.now.mono_ms)?;
        let Some(waiter) = self.places.waiter(place) else {
            self.remove(place);
            return Some(1);
        };
        let count = self.places_count(waiter.id);
        let fate = Fate::Kept {
            timed_out: true,
            now: cx.now,
        };
        let waiter = self.end_at(place, |waiters| waiters.depart(place, fate));
        Waiters::time_out(waiter.as_ref(), cx);
        Some(count)
    }

    /// Whether nothing is due, now or later.
    pub fn is_quiet(&self) -> bool {
        self.places.next_due().is_none()
            && self.leases.is_empty()
            && self.unsettled.is_empty()
            && self.unsettled_requests.is_empty()
            && self.endings.is_empty()
            && self.windows.open() == 0
            && !self.has_postponed()
            && !self.is_demoting
    }

    /// Whether waiters are about to end.
    pub(super) fn has_endings(&self) -> bool {
        !self.endings.is_empty()
    }

    /// Milliseconds until the next end of a wait or of a kept place.
    pub fn next_wait(&self, now: Now) -> Option<u64> {
        if self.is_demoting || self.has_endings() {
            return Some(0);
        }
        let due = self.places.next_due()?;
        Some(due.saturating_sub(now.mono_ms))
    }

    /// Ends waits whose `BLOCK` has run out, gives up kept places whose time is over, and ends more of the waiters that
    /// are about to end: about `most` places of each sort. Returns whether more may be due.
    pub fn end_waits(&mut self, most: usize, cx: &mut Cx<'_>) -> bool {
        self.pass_more();
        let (mut due, mut ending) = (most, most);
        while due > 0 {
            let Some(places) = self.end_next(cx) else {
                break;
            };
            due = due.saturating_sub(places);
        }
        self.end_more(&mut ending, cx);
        if self.is_demoting {
            self.fail_tickets(&mut ending, cx);
        }
        due == 0 || ending == 0
    }

    /// Milliseconds until the next key is to be settled.
    pub fn next_settle(&self, now: Now) -> Option<u64> {
        if !self.unsettled.is_empty() || !self.unsettled_requests.is_empty() {
            return Some(0);
        }
        let lease = self.leases.earliest();
        let lease = lease.map(|end| u64::try_from(end.saturating_sub(now.wall_ms)).unwrap_or(0));
        lease.into_iter().chain(self.windows.next_end(now)).min()
    }
}

/// Work on keys that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// A key is to be settled.
    Key(KeyId),
    /// A request on several keys is to be settled.
    Many(WaiterId),
}

/// A grant that has been due for so many milliseconds, and is not made, is withheld.
const WITHHELD_AFTER_MS: i64 = 100;

impl Waiters {
    /// The state of this key changed by other means. Returns whether a request waits for it; if not, there is nothing
    /// to settle.
    pub fn schedule_settle(&mut self, key: KeyRef<'_>) -> bool {
        match self.waited.get_key_value(&key) {
            Some((id, waited)) if waited.queue.live() > 0 => {
                let user = waited.queue.user(&self.places);
                self.unsettled.insert(user, id.clone(), ());
                true
            }
            _ => false,
        }
    }

    /// The user of the first request that waits for this key: what is due there is due for this user.
    pub(crate) fn user_of(&self, key: KeyRef<'_>) -> UserId {
        let waited = self.waited.get(&key);
        waited.map_or(UserId::UNKNOWN, |waited| waited.queue.user(&self.places))
    }

    /// The content of this key changed by other means: every kind of resource there is settled, and the semaphores
    /// whose permits it has.
    pub fn schedule_settle_all_at(&mut self, key: KeyRef<'_>) {
        if self.live() > 0 {
            for key in key.concerned() {
                self.schedule_settle(key);
                // What is there next may look like what was there last.
                self.see(key, i64::MIN);
            }
        }
    }

    /// The module has made this key, or the number in it is another: waiters for another kind of resource there are
    /// settled, and those for semaphores whose permits it has. (The server sends no event for the module's own writes.)
    pub(crate) fn schedule_settle_others(&mut self, key: KeyRef<'_>) {
        if self.live() > 0 {
            for other in key.concerned().filter(|other| *other != key) {
                self.schedule_settle(other);
            }
        }
    }

    /// The first request of this queue has left without a grant. The next one may be compatible with present readers,
    /// wait for other leases, or need fewer permits, so the key is to be settled.
    pub(super) fn schedule_settle_next(&mut self, key: KeyRef<'_>) {
        let is_permit = key.resource == Resource::Semaphore;
        let first = self.first_live(key);
        if first.is_some_and(|(_, waiter)| is_permit || waiter.mode != Mode::Exclusive) {
            self.schedule_settle(key);
        }
    }

    /// A key of this request holds another resource than the one waited for.
    pub fn schedule_settle_waiter(&mut self, waiter: WaiterId) {
        for (key, _) in self.places_of(waiter) {
            self.schedule_settle_id(key);
        }
    }

    /// The state of a whole database (`None`: of all) changed by other means. As in [`Waiters::schedule_settle`], keys
    /// with kept places only are skipped.
    pub fn schedule_settle_all(&mut self, db: Option<i32>) {
        let waited = self.waited.iter().filter(|(id, waited)| {
            waited.queue.live() > 0 && db.is_none_or(|db| id.as_ref().db == db)
        });
        for (id, waited) in waited {
            let user = waited.queue.user(&self.places);
            self.unsettled.insert(user, id.clone(), ());
        }
    }

    /// Some of the keys with waiters: `most`, from the index `at` on. With the index of the next ones.
    pub fn waited_from(&self, at: usize, most: usize) -> (Vec<KeyId>, usize) {
        let end = at.saturating_add(most).min(self.waited.len());
        let keys = (at..end).filter_map(|index| self.waited.get_index(index));
        let keys = keys
            .filter(|(_, waited)| waited.queue.live() > 0)
            .map(|(id, _)| id.clone());
        (
            keys.collect(),
            if end < self.waited.len() { end } else { 0 },
        )
    }

    /// Records what the shell has seen of a key with waiters. Returns whether the former record differs.
    pub fn see(&mut self, key: KeyRef<'_>, look: i64) -> bool {
        let waited = self.waited.get_mut(&key);
        waited.is_some_and(|waited| std::mem::replace(&mut waited.seen, look) != look)
    }

    /// Schedules a key to be settled, with or without waiters.
    pub fn schedule_settle_id(&mut self, key: KeyId) {
        let user = self.user_of(key.as_ref());
        self.unsettled.insert(user, key, ());
    }

    /// Clears the list of keys and requests to settle, and ends every window.
    pub fn forget_unsettled(&mut self) {
        self.windows.end_all();
        self.unsettled_requests.clear();
        for keys in [&mut self.unsettled, &mut self.postponed, &mut self.retrying] {
            keys.clear();
        }
    }

    /// Whether the recorded state of this key is stale: the key is to be settled.
    pub(crate) fn is_to_be_settled(&self, key: KeyRef<'_>) -> bool {
        let sets = [&self.unsettled, &self.postponed, &self.retrying];
        sets.iter().any(|set| set.contains(&key))
    }

    /// The next work on keys: the users in turn over all sorts of it, and of one user the sorts in turn. `retries`:
    /// postponed keys take part. `None` also if the next item is long and not the `first` of this tick: the replies
    /// that are decided in this tick must not wait for it.
    pub fn pop_due(&mut self, now: Now, retries: bool, first: bool) -> Option<Due> {
        let (after, last) = (self.turn, self.sort);
        let sorts = (1..=SORTS).map(|step| (last + step) % SORTS);
        let of_sorts = sorts.filter_map(|sort| {
            let user = match sort {
                0 => self.unsettled.next_user(after),
                1 => self
                    .leases
                    .next_user(after, now.mono_ms, |end| end <= now.wall_ms),
                2 => self.unsettled_requests.next_user(after),
                3 => self.windows.next_user(after, now),
                _ => retries.then(|| self.next_postponed(after)).flatten(),
            };
            user.map(|user| (user <= after, user, sort))
        });
        // Of equal ones the first.
        let (_, user, sort) = of_sorts.min_by_key(|(wraps, user, _)| (*wraps, *user))?;
        if sort == 2 && !first {
            let request = self.unsettled_requests.first_of(user);
            if request.is_some_and(|request| self.is_long(*request)) {
                return None;
            }
        }
        (self.turn, self.sort) = (user, sort);
        match sort {
            0 => self.unsettled.pop_of(user).map(|(key, ())| Due::Key(key)),
            1 => {
                let (_, key) = self.leases.pop_of(user)?;
                if let Some(waited) = self.waited.get_mut(&key) {
                    waited.lease_ms = None;
                }
                Some(Due::Key(key))
            }
            2 => {
                let request = self.unsettled_requests.pop_of(user);
                request.map(|(id, ())| Due::Many(id))
            }
            3 => {
                let has_changed = |key: KeyRef<'_>| self.unsettled.remove(&key);
                self.windows.pop_of(user, has_changed).map(Due::Key)
            }
            _ => self.retrying.pop_of(user).map(|(key, ())| Due::Key(key)),
        }
    }

    /// The next work of a user begins with the keys to settle, whatever sort had the last turn.
    #[cfg(test)]
    pub fn begin_with_keys(&mut self) {
        self.sort = SORTS - 1;
    }

    /// A grant at this key is due, but writes to it are refused at the moment.
    pub fn postpone(&mut self, key: KeyId) {
        let user = self.user_of(key.as_ref());
        self.postponed.insert(user, key, ());
    }

    /// Schedules every postponed key to be settled at once.
    #[cfg(test)]
    pub fn schedule_postponed(&mut self) {
        for keys in [&mut self.postponed, &mut self.retrying] {
            for (user, key) in keys.drain() {
                self.unsettled.insert(user, key, ());
            }
        }
    }

    /// Whether keys are postponed because writes to them were refused.
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty() || !self.retrying.is_empty()
    }

    /// Keys at which something is due that cannot be written now: writes were refused there, or are paused for longer
    /// than a lease. O(N) in these. (A lease that has just ended is settled in this tick or the next.)
    pub fn withheld(&self, now: Now) -> usize {
        let since_ms = now.wall_ms.saturating_sub(WITHHELD_AFTER_MS);
        let over = self.leases.due(|end| end <= since_ms);
        self.postponed.len() + self.retrying.len() + over
    }

    /// The user that follows this one, of those with a postponed key to retry.
    fn next_postponed(&mut self, after: UserId) -> Option<UserId> {
        if self.retrying.is_empty() {
            std::mem::swap(&mut self.retrying, &mut self.postponed);
        }
        self.retrying.next_user(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_one_turn_whatever_sorts_of_work_it_has() {
        let mut waiters = Waiters::default();
        let key = |name: &str| KeyRef::lock(0, name.as_bytes()).to_id();
        for name in ["a", "b"] {
            waiters.unsettled.insert(UserId(1), key(name), ());
            waiters.leases.insert(UserId(1), 0, key(name));
        }
        for request in [1, 2] {
            waiters
                .unsettled_requests
                .insert(UserId(1), WaiterId(request), ());
        }
        waiters.leases.insert(UserId(2), 0, key("c"));
        let order: Vec<_> =
            std::iter::from_fn(|| waiters.pop_due(Now::at_mono(9), true, true)).collect();
        let mine = |name| Due::Key(key(name));
        let others = [mine("a"), Due::Many(WaiterId(1)), mine("b"), mine("b")];
        assert_eq!(order.len(), 7);
        assert!(
            order.iter().take(2).any(|due| *due == mine("c")),
            "{order:?}"
        );
        assert!(others.iter().all(|due| order.contains(due)), "{order:?}");
    }
}
