//! The searches for deadlocks of one request: before it waits, and again at the end of the tick if the first was
//! uncertain.
//!
//! By then a key on the path that had changed has been settled. Of a key whose readers are not all known, only those
//! matter that wait themselves, and the shell reads by name which of the owners that wait are among them: so the cost
//! does not depend on the number of readers. Where more owners wait than may be read, and there are more readers too,
//! the search is cut.

use std::collections::VecDeque;
use std::rc::Rc;

use indexmap::IndexSet;

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::name::quoted;
use crate::lock::read_write::upgrades;
use crate::lock::state::View;
use crate::lock::wait::deadlock::{
    may_be_waited_for, search, Caller, ReadNow, Verdict, Visits, WantedKey, MAX_VISITS,
};
use crate::lock::wait::holders::Holders;
use crate::lock::wait::request::Seq;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{Acquire, KeyId, KeyRef, LockError, Now, OwnerId, Resource, UserId, WaiterId};

/// The reading of one key of the server takes as long as so many visits.
const VISITS_PER_READ: usize = 4;

/// Reads for one owner: its field, and one timeout.
const READS_PER_OWNER: usize = 2;

/// The most keys of which it is read whether the owner of a request reads them.
const MOST_OWN: usize = 50;

/// The second search for one request.
#[derive(Debug)]
pub struct Verification {
    request: WaiterId,
    visits: Visits,
    read: ReadNow,
    /// Keys of which it is to be read whether the owner of the request reads them; `None` before the search.
    own: Option<VecDeque<KeyId>>,
    /// Whether it is known that a request may wait for the owner of this one.
    is_waited_for: bool,
    /// What the shell reads.
    asked: Option<(KeyId, Asked)>,
}

#[derive(Debug)]
enum Asked {
    /// Whether the owner of the request is a reader.
    Own(Rc<[u8]>),
    /// Which owners are readers. False: more owners wait than these.
    All(bool),
}

/// What the shell is to read: which of these owners are readers of a lock.
#[derive(Debug)]
pub struct ReadersAsked {
    /// The lock.
    pub key: KeyId,
    /// The owners. Every reader will do as well, if the lock has no more readers than these.
    pub owners: Vec<Rc<[u8]>>,
    /// The most keys of the server to read for it.
    pub most: usize,
}

/// The answer to a [`ReadersAsked`].
#[derive(Debug, Default)]
pub struct ReadersFound {
    /// The unexpired readers.
    pub readers: Vec<OwnerId>,
    /// Keys of the server that were read.
    pub reads: usize,
    /// Whether each of the owners was read.
    pub is_complete: bool,
    /// Whether these are all readers of the lock.
    pub is_whole: bool,
}

impl Verification {
    /// The answer to the last question.
    pub fn learn(&mut self, found: ReadersFound) {
        self.visits.take(found.reads * VISITS_PER_READ);
        match self.asked.take() {
            Some((key, Asked::Own(owner))) => {
                let reads = found.readers.iter().any(|reader| reader[..] == *owner);
                if reads || found.is_complete {
                    self.read.own.insert(key, reads);
                }
            }
            Some((key, Asked::All(all))) => {
                let is_complete = found.is_whole || (all && found.is_complete);
                let owners = found.readers.iter();
                let holders = Holders {
                    owners: owners.map(|owner| (owner[..].into(), i64::MAX)).collect(),
                    shared: true,
                    is_partial: false,
                };
                self.read.holders.insert(key, (holders, is_complete));
            }
            None => {}
        }
    }

    fn ask(&mut self, key: KeyId, asked: Asked, owners: Vec<Rc<[u8]>>) -> ReadersAsked {
        self.asked = Some((key.clone(), asked));
        ReadersAsked {
            key,
            owners,
            most: self.visits.left() / VISITS_PER_READ,
        }
    }
}

impl Locks {
    /// Checks a request for one key before it waits. True when it is to be checked again.
    ///
    /// # Errors
    /// [`LockError::Deadlock`]
    pub(crate) fn check_deadlock_at(
        &mut self,
        view: &View<'_>,
        req: &Acquire<'_>,
        former: Option<WaiterId>,
        now: Now,
    ) -> Result<bool, LockError> {
        if !self.detects_deadlocks {
            return Ok(false);
        }
        let place = self.shared.waiters.places.of(view.key, req.owner);
        let want = WantedKey {
            key: view.key,
            place: match upgrades(&view.state, req, now) {
                true => Some(Seq::MIN),
                false => place.map(|place| place.seq),
            },
            holders: Holders::of(&view.state, now),
        };
        let caller = Caller {
            user: req.user,
            owner: req.owner,
            mode: req.mode,
            wants: &[want],
            replaces: former.as_slice(),
        };
        self.check_deadlock(&caller, now)
    }

    /// Checks that a request would not wait for itself. True when it is to be checked again.
    ///
    /// # Errors
    /// [`LockError::Deadlock`]
    pub(crate) fn check_deadlock(
        &mut self,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<bool, LockError> {
        let (read, mut visits) = (ReadNow::default(), Visits::for_keys(caller.wants.len()));
        let verdict = search(&self.shared.waiters, caller, &read, &mut visits, now);
        match verdict {
            // Nothing need be read for an owner for which no request waits.
            Verdict::Uncertain { .. } => Ok(may_be_waited_for(
                &self.shared.waiters,
                caller,
                &read.own,
                now,
            )),
            verdict => self.judge(&verdict).map(|()| false),
        }
    }

    /// The next request to verify.
    pub fn next_unverified(&mut self) -> Option<Verification> {
        let (request, ()) = self.unverified.pop()?;
        Some(Verification {
            request,
            visits: Visits::for_keys(self.shared.waiters.places_of(request).len()),
            read: ReadNow::default(),
            own: None,
            is_waited_for: false,
            asked: None,
        })
    }

    /// The number of requests to verify.
    pub fn unverified(&self) -> usize {
        self.unverified.len()
    }

    /// This request is to be verified at the end of the tick.
    pub(crate) fn verify_later(&mut self, request: WaiterId, user: UserId) {
        self.unverified.insert(user, request, ());
        self.verifies = true;
    }

    /// Notes whether requests are to be verified in the next tick. One that waits for a key to be settled is verified
    /// when the timer fires for that.
    pub fn verify_more(&mut self, more: bool) {
        self.verifies = more;
    }

    /// Whether requests are to be verified at the end of this tick.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// Searches again for a parked request. Returns what is to be read for the result, which the shell passes to
    /// [`Verification::learn`] before the next call.
    pub fn verify(&mut self, check: &mut Verification, cx: &mut Cx<'_>) -> Option<ReadersAsked> {
        let places = self.shared.waiters.places_of(check.request);
        let (_, first) = places.first()?;
        let (owner, waiter) = self.shared.waiters.at(*first)?;
        let (owner, mode, user): (Rc<[u8]>, _, _) = (owner.into(), waiter.mode, waiter.user);
        if let Some(key) = check.own.as_mut().and_then(VecDeque::pop_front) {
            return Some(check.ask(key, Asked::Own(owner.clone()), vec![owner]));
        }
        let mut wants = Vec::with_capacity(places.len());
        for (key, place) in &places {
            let waited = self.shared.waiters.waited.get(key)?;
            if waited.lease_ms.is_some_and(|end| end <= cx.now.wall_ms) {
                self.unverified.insert(user, check.request, ());
                return None;
            }
            wants.push(WantedKey {
                key: key.as_ref(),
                place: Some(place.seq),
                holders: waited.holders.clone(),
            });
        }
        let caller = Caller {
            user,
            owner: &owner,
            mode,
            wants: &wants,
            replaces: &[],
        };
        let (waiters, now) = (&self.shared.waiters, cx.now);
        let verdict = match search(waiters, &caller, &check.read, &mut check.visits, now) {
            Verdict::Uncertain { is_stale: true, .. } => {
                self.unverified.insert(user, check.request, ());
                return None;
            }
            Verdict::Uncertain { .. } if check.visits.left() == 0 => Verdict::Cut,
            Verdict::Uncertain { unread, .. } => {
                if check.own.is_none() {
                    check.own = Some(waiters.partial_keys(caller.db()));
                    return self.verify(check, cx);
                }
                // Once only: it walks through the keys with waiters.
                if !check.is_waited_for
                    && !may_be_waited_for(waiters, &caller, &check.read.own, now)
                {
                    return None;
                }
                check.is_waited_for = true;
                let most = check.visits.left() / VISITS_PER_READ / READS_PER_OWNER;
                let (owners, all) = waiters.owners(caller.db(), most);
                return Some(check.ask(unread.first()?.clone(), Asked::All(all), owners));
            }
            verdict => verdict,
        };
        if let Err(error) = self.judge(&verdict) {
            let waiter = self.shared.waiters.dismiss(check.request);
            self.shared.waiters.fail(waiter, &error, cx);
        }
        None
    }

    /// Counts the result of the last search for a request.
    ///
    /// # Errors
    /// [`LockError::Deadlock`]
    pub(super) fn judge(&mut self, verdict: &Verdict) -> Result<(), LockError> {
        match verdict {
            Verdict::Clear | Verdict::Uncertain { .. } => Ok(()),
            Verdict::Cut => {
                self.stats.deadlock_searches_cut += 1;
                Ok(())
            }
            Verdict::Cycle(keys) => {
                self.stats.deadlocks += 1;
                Err(LockError::Deadlock(described(keys).into()))
            }
        }
    }
}

impl Waiters {
    /// Keys of this database of which some readers are not known: those that a short walk finds, and not many.
    fn partial_keys(&self, db: i32) -> VecDeque<KeyId> {
        let waited = self.waited.iter().take(MAX_VISITS);
        let partial =
            waited.filter(|(key, waited)| key.as_ref().db == db && waited.holders.is_partial);
        partial.map(|(key, _)| key.clone()).take(MOST_OWN).collect()
    }

    /// The owners of the first `most` places of all queues of this database, as far as they are live. False: there are
    /// more places.
    fn owners(&self, db: i32, most: usize) -> (Vec<Rc<[u8]>>, bool) {
        let is_here = |key: KeyRef<'_>| key.db == db && key.resource == Resource::Lock;
        let queues = self.waited.iter().filter(|(key, _)| is_here(key.as_ref()));
        let mut places = queues.flat_map(|(_, waited)| waited.queue.places(&self.places));
        let live = places.by_ref().take(most);
        let live = live.filter_map(|place| self.at(place));
        let owners: IndexSet<&[u8]> = live.map(|(owner, _)| owner).collect();
        let owners = owners.into_iter().map(Rc::from).collect();
        (owners, places.next().is_none())
    }
}

/// Keys named in an error text: as many as one line of the protocol can take.
const NAMED: usize = 8;

/// The keys of a cycle as text for one line of the protocol.
fn described(keys: &[Vec<u8>]) -> String {
    let names: Vec<_> = keys.iter().take(NAMED).map(|key| quoted(key)).collect();
    let more = keys.len().saturating_sub(NAMED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Cx, Effects, Waiter};

    #[test]
    fn keys_with_unknown_readers_are_those_of_the_database() {
        let (mut waiters, now) = (Waiters::default(), Now::at_mono(0));
        for db in [0, 1] {
            let key = KeyRef::lock(db, b"k");
            let waiter = Waiter::new(WaiterId(db as u64 + 1), 0, None, now);
            waiters.enqueue(key, b"w", waiter, &mut Cx::new(now, &mut Effects::new()));
            let partial = Holders {
                is_partial: true,
                ..Holders::default()
            };
            waiters.set_holders_for_test(key, partial);
        }
        let keys = waiters.partial_keys(1);
        assert_eq!(keys, [KeyRef::lock(1, b"k").to_id()]);
    }

    #[test]
    fn a_search_that_was_cut_is_counted_and_refuses_nothing() {
        let mut locks = Locks::new(false);
        assert_eq!(locks.judge(&Verdict::Cut), Ok(()));
        let stats = (locks.stats.deadlock_searches_cut, locks.stats.deadlocks);
        assert_eq!(stats, (1, 0));
    }
}
