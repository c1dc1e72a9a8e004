//! Deadlocks: found before a request is parked, and refused.
//!
//! A request waits for the holders of its keys and for the requests before it in their queues that it must not pass.
//! Each of these owners may wait for other keys. If the search from the new request reaches its own owner, the request
//! would wait for itself.
//!
//! The search reads only the memory of this server. In a queue it visits only places of owners that wait for other keys
//! too ([`crate::lock::wait::index`]): the other owners wait for the same holders. A reader waits for other readers
//! only if a request for WRITE is between them.
//!
//! The recorded holders of a key are those of its last reading. A key that has changed since is scheduled to be
//! settled, and a search that passes it is uncertain. Then the request is parked, and checked again after those keys
//! have been read ([`Locks::verify_parked`]).

use std::collections::{HashMap, HashSet};

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::read_write::upgrades;
use crate::lock::view::View;
use crate::lock::wait::index::Holders;
use crate::lock::wait::index::WaitedKey;
use crate::lock::wait::request::{PlaceId, Seq};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{Acquire, KeyId, KeyRef, LockError, Mode, Now, WaiterId};

/// The most waits that one search visits. A longer cycle is not found.
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
    pub owner: &'a [u8],
    pub mode: Mode,
    pub wants: &'a [WantedKey<'a>],
    /// Former requests of the owner that end when this one is parked.
    pub replaces: &'a [WaiterId],
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No cycle.
    Clear,
    /// Uncertain until these keys on the path have been read again.
    Uncertain(Vec<KeyId>),
    /// The names of the keys of a cycle, in its order, starting at a key of the caller.
    Cycle(Vec<Vec<u8>>),
}

/// Searches for a path from this request back to its owner.
pub(crate) fn search(waiters: &Waiters, caller: &Caller<'_>, now: Now) -> Verdict {
    let mut search = Search {
        waiters,
        caller,
        now,
        steps: Vec::new(),
        seen: HashSet::new(),
        passed: HashMap::new(),
        visits: 0,
        doubts: Vec::new(),
    };
    let cycle = search.run();
    match cycle {
        _ if !search.doubts.is_empty() => {
            Verdict::Uncertain(search.doubts.iter().map(|key| key.to_id()).collect())
        }
        Some(keys) => Verdict::Cycle(keys.iter().map(|key| key.name.to_vec()).collect()),
        None => Verdict::Clear,
    }
}

/// Cheap test: whether any request may wait for the owner of this one. An owner for which no request waits is in no
/// cycle.
pub(crate) fn may_be_waited_for(waiters: &Waiters, caller: &Caller<'_>, now: Now) -> bool {
    let owner = caller.owner;
    if waiters.waited.len() > MAX_VISITS {
        return true;
    }
    waiters.waited.iter().any(|(key, waited)| {
        let mut wants = caller.wants.iter();
        if waited.queue.live() == 0 {
            return false;
        }
        match wants.find(|want| want.key == key.as_ref()) {
            // The request takes a place at the end of this queue, and whether its owner holds the lock is known.
            Some(want) => want.place.is_some() || want.holders.contain(owner, now),
            None => {
                let is_over = waited.lease_ms.is_some_and(|end| end <= now.wall_ms);
                is_over
                    || waited.holders.is_partial
                    || waited.holders.contain(owner, now)
                    || waiters.places.of(key.as_ref(), owner).is_some()
                    || waiters.is_to_be_settled(key.as_ref())
            }
        }
    })
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
    now: Now,
    steps: Vec<Step<'a>>,
    seen: HashSet<&'a [u8]>,
    /// How far each queue has been visited.
    passed: HashMap<(i32, &'a [u8]), Seq>,
    visits: usize,
    /// Keys on the path whose recorded holders are stale.
    doubts: Vec<KeyRef<'a>>,
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
            for place in self.waiters.places.of_owner(owner) {
                if self.visits > MAX_VISITS {
                    return None;
                }
                let Some((key, waiter)) = self.waiters.waits_at(place) else {
                    continue;
                };
                let waited = self.waiters.waited.get(&key)?;
                let wait = Wait {
                    owner,
                    mode: waiter.mode,
                    key,
                    before: Some(place.seq),
                };
                if self.is_stale(wait.key, waited) {
                    self.doubts.push(wait.key);
                }
                if self.follow(wait, &waited.holders, Some(waited), Some(next)) {
                    return Some(self.way_to(next, wait.key));
                }
            }
            next += 1;
        }
        None
    }

    /// Records the owners that this wait is for. True when one is the owner of the caller.
    fn follow(
        &mut self,
        wait: Wait<'a>,
        holders: &'a Holders,
        waited: Option<&'a WaitedKey>,
        from: Option<usize>,
    ) -> bool {
        self.visits += 1;
        let holds = holders.contain(wait.owner, self.now);
        if holds && !(holders.shared && wait.mode == Mode::Write) {
            return false;
        }
        if holders.is_partial {
            self.doubts.push(wait.key);
        }
        // A request of a holder passes the queue.
        let (Some(waited), false) = (waited, holds) else {
            let blocks = wait.mode != Mode::Read || !holders.shared;
            return blocks && self.find_all(holders, wait, from);
        };
        let ahead = self.ahead(waited, holders, &wait);
        let blocks = wait.mode != Mode::Read || !holders.shared || ahead.has_writer;
        if blocks && self.find_all(holders, wait, from) {
            return true;
        }
        if wait.owner != self.caller.owner && self.caller_is_before(&wait, &ahead) {
            return true;
        }
        let Some(ahead) = ahead.place else {
            return false;
        };
        let slot = (wait.key.db, wait.key.name);
        let from_seq = self.passed.get(&slot).copied().unwrap_or(Seq::MIN);
        if ahead <= from_seq {
            return false;
        }
        self.passed.insert(slot, ahead);
        for (seq, slot) in waited.search_places.busy.range(from_seq..ahead) {
            if self.visits > MAX_VISITS {
                break;
            }
            self.visits += 1;
            if let Some((owner, _)) = self.waiters.at(PlaceId::new(*seq, *slot)) {
                if owner != self.caller.owner {
                    self.find(owner, wait, from);
                }
            }
        }
        false
    }

    /// The part of a queue that a request waits for, without the places of the caller's owner. A reader waits only for
    /// requests for WRITE, and for every request that these wait for; a request for WRITE of a holder passes the queue
    /// itself.
    fn ahead(&self, waited: &WaitedKey, holders: &Holders, wait: &Wait<'_>) -> Ahead {
        let before = wait.before.unwrap_or(Seq::MAX);
        if wait.mode != Mode::Read {
            return Ahead {
                has_writer: true,
                place: Some(before),
            };
        }
        let writers = waited.search_places.writers.range(..before).rev();
        let mut writers = writers.filter_map(|(seq, slot)| {
            let (owner, _) = self.waiters.at(PlaceId::new(*seq, *slot))?;
            (owner != self.caller.owner).then_some((seq, owner))
        });
        let mut ahead = Ahead::default();
        ahead.place = writers
            .find(|(_, owner)| {
                ahead.has_writer = true;
                !holders.contain(owner, self.now)
            })
            .map(|(seq, _)| seq.saturating_add(1));
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
        let mut wants = self.caller.wants.iter();
        let its = match wants.find(|want| want.key == wait.key) {
            Some(want) => want.place.map(|place| (place, self.caller.mode)),
            None => {
                let place = self.waiters.places.of(wait.key, self.caller.owner);
                let waiter = place.and_then(|place| Some((place, self.waiters.at(place)?.1)));
                waiter
                    .filter(|(_, waiter)| !self.caller.replaces.contains(&waiter.id))
                    .map(|(place, waiter)| (place.seq, waiter.mode))
            }
        };
        its.is_some_and(|(place, mode)| {
            let before = wait.before.is_none_or(|before| place < before);
            let directly = before && (wait.mode != Mode::Read || mode != Mode::Read);
            directly || ahead.place.is_some_and(|ahead| place < ahead)
        })
    }

    fn is_stale(&self, key: KeyRef<'_>, waited: &WaitedKey) -> bool {
        let is_over = waited.lease_ms.is_some_and(|end| end <= self.now.wall_ms);
        is_over || self.waiters.is_to_be_settled(key)
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

impl Locks {
    /// Checks a request for one key before it is parked. True when it is to be checked again.
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
        let place = self.waiters.places.of(view.key, req.owner);
        let want = WantedKey {
            key: view.key,
            place: match upgrades(&view.state, req, now) {
                true => Some(Seq::MIN),
                false => place.map(|place| place.seq),
            },
            holders: Holders::of(&view.state, now),
        };
        let caller = Caller {
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
        match search(&self.waiters, caller, now) {
            Verdict::Clear => Ok(false),
            // Reading every reader of a lock is slow, and not needed for an owner for which no request waits.
            Verdict::Uncertain(_) if !may_be_waited_for(&self.waiters, caller, now) => Ok(false),
            Verdict::Uncertain(keys) => {
                for key in keys {
                    self.waiters.schedule_settle_id(key);
                }
                Ok(true)
            }
            Verdict::Cycle(keys) => {
                self.stats.deadlocks += 1;
                Err(LockError::Deadlock(described(&keys).into()))
            }
        }
    }

    /// Checks the requests that were parked after an uncertain search, now that the keys have been read. Called at the
    /// end of a tick.
    pub fn verify_parked(&mut self, cx: &mut Cx<'_>) {
        for request in std::mem::take(&mut self.unverified) {
            match self.verify_request(request, cx.now) {
                Ok(false) => {}
                Ok(true) => self.unverified.push(request),
                Err(error) => {
                    let waiter = self.waiters.dismiss(request);
                    self.waiters.fail(waiter, &error, cx);
                }
            }
        }
    }

    fn verify_request(&mut self, request: WaiterId, now: Now) -> Result<bool, LockError> {
        let places = self.waiters.places_of(request);
        let first = places.first();
        let Some((owner, mode)) = first.and_then(|(_, place)| {
            let (owner, waiter) = self.waiters.at(*place)?;
            Some((owner.to_vec(), waiter.mode))
        }) else {
            return Ok(false);
        };
        let mut wants = Vec::with_capacity(places.len());
        for (key, place) in &places {
            let Some(waited) = self.waiters.waited.get(key) else {
                return Ok(false);
            };
            if waited.lease_ms.is_some_and(|end| end <= now.wall_ms) {
                return Ok(true);
            }
            wants.push(WantedKey {
                key: key.as_ref(),
                place: Some(place.seq),
                holders: waited.holders.clone(),
            });
        }
        let caller = Caller {
            owner: &owner,
            mode,
            wants: &wants,
            replaces: &[],
        };
        self.check_deadlock(&caller, now)
    }
}

/// Keys named in an error text: as many as one line of the protocol can take.
const NAMED: usize = 8;

/// Bytes of each name.
const NAME_LEN: usize = 64;

/// The keys of a cycle as text for one line of the protocol: quoted, bytes other than printable ASCII escaped, long
/// names cut.
fn described(keys: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for key in keys.iter().take(NAMED) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push('"');
        for byte in key.iter().take(NAME_LEN) {
            text.extend(std::ascii::escape_default(*byte).map(char::from));
        }
        text.push('"');
        if key.len() > NAME_LEN {
            text.push_str("...");
        }
    }
    if keys.len() > NAMED {
        text.push_str(&format!(" and {} more", keys.len() - NAMED));
    }
    text
}
