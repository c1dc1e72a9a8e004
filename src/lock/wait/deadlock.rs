//! Deadlocks: found before a request waits, and refused.
//!
//! A request waits for the holders of its keys and for the requests before it in their queues that it must not pass.
//! Each of these owners may wait for other keys. If the search from the new request reaches its own owner, the request
//! would wait for itself.
//!
//! Equal names are one owner only within one user and one database. So a search follows the requests of its user in its
//! database only, and names no other keys. It is not known which user has made a hold: its owner is the user's owner of
//! that name.
//!
//! The search reads only the memory of this server. In a queue it visits only places of owners that wait for other keys
//! too: the other owners wait for the same holders. A reader waits for other readers only if a request for WRITE is
//! between them, or one for READ on several keys, which is granted first.
//!
//! The recorded holders of a key are those of its last reading. A search goes no further at a key that is still to be
//! settled: the request waits, and the search is repeated at the end of the tick, when the key has been read. Nor does
//! it go further at a key whose readers are not all recorded.
//!
//! Each wait, owner, holder and place that a search looks at is one visit, and the visits are limited. A search that
//! has used them up, or that did not know all readers of some key, may find no cycle where there is one: the request
//! waits, and the search is counted as cut.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::name::{quoted, UserOwner};
use crate::lock::state::View;
use crate::lock::wait::holders::{Holders, WaitedKey};
use crate::lock::wait::request::{PlaceId, Seq, Waiter};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{Acquire, KeyRef, LockError, Mode, Now, UserId, WaiterId};

/// The most visits of one search, beside one for each key of the request.
pub const MAX_VISITS: usize = 2_000;

/// One key that a request would wait for.
#[derive(Debug, Clone)]
pub(crate) struct WantedKey<'a> {
    pub key: KeyRef<'a>,
    /// Its place in that queue; `None`: at the end.
    pub place: Option<Seq>,
    /// The holders of the key.
    pub holders: Holders,
}

/// The request to check.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    pub user: UserId,
    pub owner: &'a [u8],
    pub mode: Mode,
    pub wants: &'a [WantedKey<'a>],
    /// Former requests of the owner that end when this one waits.
    pub replaces: &'a [WaiterId],
}

impl<'a> Caller<'a> {
    /// The database of its keys.
    pub fn db(&self) -> i32 {
        self.wants.first().map_or(0, |want| want.key.db)
    }

    /// The owner of this name, of the same user in the same database.
    fn named<'n>(&self, owner: &'n [u8]) -> UserOwner<'n> {
        UserOwner {
            db: self.db(),
            user: self.user,
            owner,
        }
    }
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No cycle.
    Clear,
    /// No cycle is known. There are more waits than may be visited, or not all holders of a key on the path are known.
    Cut,
    /// No cycle is known, and a key on the path is still to be settled.
    Early,
    /// The names of the keys of a cycle, in its order, starting at a key of the caller.
    Cycle(Vec<Vec<u8>>),
}

impl Locks {
    /// Checks that a request for these keys, with the places that it has in their queues already, would not wait for
    /// itself. `replaces`: the former requests of the owner, which end when this one is parked. True when it is to be
    /// checked again.
    ///
    /// # Errors
    /// [`LockError::Deadlock`]
    pub(crate) fn check_deadlock(
        &mut self,
        keys: &[(&View<'_>, Option<Seq>)],
        req: &Acquire<'_>,
        replaces: &[WaiterId],
        now: Now,
    ) -> Result<bool, LockError> {
        if !self.detects_deadlocks {
            return Ok(false);
        }
        let wants: Vec<_> = keys
            .iter()
            .map(|(view, place)| WantedKey {
                key: view.key,
                place: *place,
                holders: Holders::of(&view.state, now),
            })
            .collect();
        let caller = Caller {
            user: req.user,
            owner: req.owner,
            mode: req.mode,
            wants: &wants,
            replaces,
        };
        self.judge(search(&self.shared.waiters, &caller, now))
    }

    /// Counts what a search has found. True when it is to be repeated.
    fn judge(&mut self, verdict: Verdict) -> Result<bool, LockError> {
        match verdict {
            Verdict::Clear => Ok(false),
            Verdict::Early => Ok(true),
            Verdict::Cut => {
                self.stats.deadlock_searches_cut += 1;
                Ok(false)
            }
            Verdict::Cycle(keys) => {
                self.stats.deadlocks += 1;
                Err(LockError::Deadlock(described(&keys).into()))
            }
        }
    }

    /// This request is to be checked again at the end of the tick.
    pub(crate) fn verify_later(&mut self, request: WaiterId, user: UserId) {
        self.unverified.insert(user, request, ());
        self.verifies = true;
    }

    /// Whether requests are to be checked again at the end of this tick.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// Those that were to be checked again have been. One that meets a key that is still to be settled is checked when
    /// the timer fires for that key.
    pub fn verified(&mut self) {
        self.verifies = false;
    }

    /// The number of requests to check again.
    pub fn unverified(&self) -> usize {
        self.unverified.len()
    }

    /// Checks the next of them.
    pub fn verify_next(&mut self, cx: &mut Cx<'_>) {
        let Some((request, ())) = self.unverified.pop() else {
            return;
        };
        let Some((owner, waiter)) = self.shared.waiters.request(request) else {
            return;
        };
        let (owner, mode, user): (Rc<[u8]>, _, _) = (owner.into(), waiter.mode, waiter.user);
        let places = self.shared.waiters.places_of(request);
        let mut wants = Vec::with_capacity(places.len());
        for (key, place) in &places {
            let Some(waited) = self.shared.waiters.waited.get(key) else {
                return;
            };
            if waited.lease_ms.is_some_and(|end| end <= cx.now.wall_ms) {
                self.unverified.insert(user, request, ());
                return;
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
        let verdict = search(&self.shared.waiters, &caller, cx.now);
        match self.judge(verdict) {
            Ok(true) => self.unverified.insert(user, request, ()),
            Ok(false) => {}
            Err(error) => {
                let waiter = self.shared.waiters.dismiss(request);
                self.shared.waiters.fail(waiter, &error, cx);
            }
        }
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

/// Searches for a path from this request back to its owner.
pub(crate) fn search(waiters: &Waiters, caller: &Caller<'_>, now: Now) -> Verdict {
    let places = &waiters.places;
    // Nearly always no owner that the request would wait for waits itself.
    let waits = |owner: &Rc<[u8]>| places.of_owner(caller.named(owner)).next().is_some();
    let leads_on = |want: &WantedKey<'_>| {
        let waited = waiters.waited.get(&want.key);
        want.holders.is_partial
            || waited.is_some_and(|waited| !waited.search_places.busy.is_empty())
            || want.holders.unexpired(now).any(waits)
    };
    if !caller.wants.iter().any(leads_on) {
        return Verdict::Clear;
    }
    let wants = caller.wants.iter().map(|want| (want.key, want));
    let mut search = Search {
        waiters,
        caller,
        wants: wants.collect(),
        now,
        steps: Vec::new(),
        seen: HashSet::new(),
        passed: HashMap::new(),
        visits: MAX_VISITS + caller.wants.len(),
        is_cut: false,
        is_early: false,
    };
    match search.run() {
        Some(keys) => Verdict::Cycle(keys.iter().map(|key| key.name.to_vec()).collect()),
        None if search.is_early => Verdict::Early,
        None if search.is_cut => Verdict::Cut,
        None => Verdict::Clear,
    }
}

/// Whether the recorded holders of this key are those of an earlier state.
fn is_stale(waiters: &Waiters, key: KeyRef<'_>, waited: &WaitedKey, now: Now) -> bool {
    let is_over = waited.lease_ms.is_some_and(|end| end <= now.wall_ms);
    is_over || waiters.is_to_be_settled(key)
}

/// An owner that the search has reached.
struct Step<'a> {
    owner: &'a [u8],
    /// The key at which another owner waits for it, and the step of that owner.
    key: KeyRef<'a>,
    from: Option<usize>,
}

/// One wait to follow.
#[derive(Clone, Copy)]
struct Wait<'a> {
    owner: &'a [u8],
    mode: Mode,
    key: KeyRef<'a>,
    /// The wait is for the places before this one; `None`: for every place.
    before: Option<Seq>,
}

/// The part of a queue that a place waits for.
#[derive(Debug, Default)]
struct Ahead {
    has_writer: bool,
    /// Every place before this one is waited for.
    place: Option<Seq>,
}

struct Search<'a> {
    waiters: &'a Waiters,
    caller: &'a Caller<'a>,
    wants: HashMap<KeyRef<'a>, &'a WantedKey<'a>>,
    now: Now,
    steps: Vec<Step<'a>>,
    seen: HashSet<&'a [u8]>,
    /// How far each queue has been visited.
    passed: HashMap<KeyRef<'a>, Seq>,
    /// The visits that are left.
    visits: usize,
    /// There was more to visit.
    is_cut: bool,
    /// A key was met that is still to be settled.
    is_early: bool,
}

impl<'a> Search<'a> {
    /// The keys of a cycle, if there is one.
    fn run(&mut self) -> Option<Vec<KeyRef<'a>>> {
        for want in self.caller.wants {
            let wait = Wait {
                owner: self.caller.owner,
                mode: self.caller.mode,
                key: want.key,
                before: want.place,
            };
            let waited = self.waiters.waited.get(&want.key);
            if self.follow(wait, &want.holders, waited, None) {
                return Some(vec![want.key]);
            }
        }
        let mut next = 0;
        while let Some(owner) = self.steps.get(next).map(|step| step.owner) {
            if !self.visit(1) {
                return None;
            }
            for place in self.waiters.places.of_owner(self.caller.named(owner)) {
                if !self.visit(1) {
                    return None;
                }
                let waits = self.waiters.waits_at(place);
                let Some((key, waiter)) = waits.filter(|(_, waiter)| !waiter.is_over(self.now))
                else {
                    continue;
                };
                let waited = self.waiters.waited.get(&key)?;
                let wait = Wait {
                    owner,
                    mode: waiter.mode,
                    key,
                    before: Some(place.seq),
                };
                if is_stale(self.waiters, key, waited, self.now) {
                    self.is_early = true;
                    continue;
                }
                if self.follow(wait, &waited.holders, Some(waited), Some(next)) {
                    return Some(self.way_to(next, wait.key));
                }
            }
            next += 1;
        }
        None
    }

    /// Counts visits. False when there are no more.
    fn visit(&mut self, visits: usize) -> bool {
        let left = self.visits.checked_sub(visits);
        self.is_cut |= left.is_none();
        self.visits = left.unwrap_or(0);
        left.is_some()
    }

    /// Records the owners that this wait is for. True when one is the owner of the caller.
    fn follow(
        &mut self,
        wait: Wait<'a>,
        holders: &'a Holders,
        waited: Option<&'a WaitedKey>,
        from: Option<usize>,
    ) -> bool {
        if !self.visit(1 + holders.owners.len()) {
            return false;
        }
        let holds = holders.contain(wait.owner, self.now);
        if holds && !(holders.shared && wait.mode == Mode::Write) {
            return false;
        }
        let blocks = wait.mode != Mode::Read || !holders.shared;
        // A request of a holder passes the queue.
        let queue = waited.filter(|_| !holds);
        let has_writer = |queue: &WaitedKey| !queue.search_places.writers.is_empty();
        // A reader waits for other readers only behind a request for WRITE.
        if holders.is_partial && (blocks || queue.is_some_and(has_writer)) {
            self.is_cut = true;
            return false;
        }
        let Some(waited) = queue else {
            return blocks && self.find_all(holders, wait, from);
        };
        let ahead = self.ahead(waited, holders, &wait);
        if (blocks || ahead.has_writer) && self.find_all(holders, wait, from) {
            return true;
        }
        if wait.owner != self.caller.owner && self.caller_is_before(&wait, &ahead) {
            return true;
        }
        let from_seq = self.passed.get(&wait.key).copied().unwrap_or(Seq::MIN);
        let ahead = ahead.place.unwrap_or(Seq::MIN).max(from_seq);
        let before = wait.before.unwrap_or(Seq::MAX).max(ahead);
        self.passed.insert(wait.key, ahead);
        for (seq, slot) in waited.search_places.busy.range(from_seq..before) {
            if !self.visit(1) {
                break;
            }
            if let Some((owner, waiter)) = self.waiters.at(PlaceId::new(*seq, *slot)) {
                let is_ahead = *seq < ahead || self.waiters.is_multi_key(waiter.id);
                let is_ahead = is_ahead && !waiter.is_over(self.now);
                if waiter.user == self.caller.user && owner != self.caller.owner && is_ahead {
                    self.find(owner, wait, from);
                }
            }
        }
        false
    }

    /// The part of a queue that a request waits for, without the places of the caller's owner. A reader waits only for
    /// requests for WRITE, and for every request that these wait for (and for requests on several keys: see
    /// [`Search::follow`]); a request for WRITE of a holder passes the queue itself.
    fn ahead(&mut self, waited: &WaitedKey, holders: &Holders, wait: &Wait<'_>) -> Ahead {
        let before = wait.before.unwrap_or(Seq::MAX);
        if wait.mode != Mode::Read {
            return Ahead {
                has_writer: true,
                place: Some(before),
            };
        }
        let mut ahead = Ahead::default();
        for (seq, slot) in waited.search_places.writers.range(..before).rev() {
            if !self.visit(1 + holders.owners.len()) {
                break;
            }
            let writer = self.waiters.at(PlaceId::new(*seq, *slot));
            let is_other = |(owner, waiter): &(&[u8], &Waiter)| {
                let is_own = (waiter.user, *owner) == (self.caller.user, self.caller.owner);
                !is_own && !self.caller.replaces.contains(&waiter.id)
            };
            let Some((owner, _)) = writer.filter(is_other) else {
                continue;
            };
            ahead.has_writer = true;
            if !holders.contain(owner, self.now) {
                ahead.place = Some(seq.saturating_add(1));
                break;
            }
        }
        ahead
    }

    fn find_all(&mut self, holders: &'a Holders, wait: Wait<'a>, from: Option<usize>) -> bool {
        let mut holders = holders.unexpired(self.now);
        holders.any(|holder| self.find(holder, wait, from))
    }

    /// Records that this owner is waited for. True when it is the owner of the caller.
    fn find(&mut self, owner: &'a [u8], wait: Wait<'a>, from: Option<usize>) -> bool {
        if owner == wait.owner {
            return false;
        }
        if owner == self.caller.owner {
            return true;
        }
        if self.seen.insert(owner) {
            self.steps.push(Step {
                owner,
                key: wait.key,
                from,
            });
        }
        false
    }

    /// Whether this wait is for the owner of the caller because of its place in the queue: the place that it will have,
    /// or that of another request of the same owner.
    fn caller_is_before(&self, wait: &Wait<'_>, ahead: &Ahead) -> bool {
        let its = match self.wants.get(&wait.key) {
            Some(want) => {
                let excludes = self.caller.mode != Mode::Read || self.caller.wants.len() > 1;
                want.place.map(|place| (place, excludes))
            }
            None => {
                let place = self.waiters.places.of(wait.key, self.caller.owner);
                let waiter = place.and_then(|place| Some((place, self.waiters.at(place)?.1)));
                waiter
                    .filter(|(_, waiter)| waiter.user == self.caller.user)
                    .filter(|(_, waiter)| !self.caller.replaces.contains(&waiter.id))
                    .map(|(place, waiter)| {
                        let is_many = self.waiters.is_multi_key(waiter.id);
                        (place.seq, waiter.mode != Mode::Read || is_many)
                    })
            }
        };
        its.is_some_and(|(place, excludes)| {
            let before = wait.before.is_none_or(|before| place < before);
            let directly = before && (wait.mode != Mode::Read || excludes);
            directly || ahead.place.is_some_and(|ahead| place < ahead)
        })
    }

    fn way_to(&self, step: usize, last: KeyRef<'a>) -> Vec<KeyRef<'a>> {
        let mut keys = vec![last];
        let mut at = self.steps.get(step);
        while let Some(step) = at {
            keys.push(step.key);
            at = step.from.and_then(|from| self.steps.get(from));
        }
        keys.reverse();
        keys.dedup();
        keys
    }
}
