//! Whether waiters may be granted: their users are still permitted to take the key, and tickets are heard.
//!
//! A ticket is *heard* while its channel has a subscriber and, for `SESSION`, its connection is open. The shell asks
//! for that and for the permission immediately before a decision that may grant ([`Waiters::next_to_ask`],
//! [`Waiters::learn`]), because they may change in every event, and the server sends no event of a change of its
//! users. A ticket that is not heard is *passed over*: it leaves the queue without a message, and its owner keeps the
//! place for the grace time. A waiter without the permission fails.
//!
//! The next waiter of a queue is the first whose wait is not over and whose outcome would reach a client. All decisions
//! about all keys together pass over at most [`PASSED_AT_ONCE`] places in a millisecond. Each further step of a tick
//! that has time left may pass over as many again. After the last of them no waiter is granted in this event. Messages
//! to channels with many subscribers count as places, whatever they tell: else one decision would grant to many
//! tickets, at a microsecond a subscriber each.

use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::wait::holders::{Heard, WaitedKey};
use crate::lock::wait::queue::QueueView;
use crate::lock::wait::request::{PlaceId, Waiter, WaiterId};
use crate::lock::wait::ticket::{Channel, Channels};
use crate::lock::wait::waiters::{Fate, Waiters};
use crate::lock::{KeyId, KeyRef, LockError, Mode, Now, UserId};

/// A waiter of which the shell is to say whether it may be granted.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The key of the decision. A decision about several keys asks for the first waiter of each.
    pub key: KeyId,
    /// The request.
    pub request: WaiterId,
    /// Of a ticket: its channel.
    pub channel: Option<Rc<Channel>>,
    /// The user that has to be permitted to take the key.
    pub user: UserId,
    /// The kind of hold.
    pub mode: Mode,
    /// Of a request for READ or WRITE: the owner, whose name is part of that of a key beside the lock.
    pub owner: Option<Box<[u8]>>,
    /// Of a ticket with `SESSION`: the connection that the hold is to be bound to.
    pub session: Option<u64>,
}

impl Asked {
    fn of(key: KeyId, owner: &[u8], waiter: &Waiter) -> Asked {
        let binds = waiter.session() && waiter.ticket.is_some();
        Asked {
            key,
            request: waiter.id,
            channel: waiter.channel().cloned(),
            user: waiter.user,
            mode: waiter.mode,
            owner: (waiter.mode != Mode::Exclusive).then(|| owner.into()),
            session: binds.then_some(waiter.client),
        }
    }
}

/// Whether a waiter may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// It may. The channel of a ticket has a subscriber, and its connection is open.
    Heard,
    /// The user is not permitted to take the key any more.
    Forbidden,
    /// Its channel has no subscriber.
    NoSubscriber,
    /// The connection of its session is closed.
    Closed,
}

impl Waiters {
    /// Whether the shell is to be asked before a decision about this key that may grant.
    pub fn must_ask(&self, key: KeyRef<'_>) -> bool {
        let is_known = |waiter: &Waiter| waiter.user != UserId::UNKNOWN;
        self.has_tickets(key) || self.first(key).is_some_and(|(_, first)| is_known(first))
    }

    /// Whether tickets wait for this key.
    pub fn has_tickets(&self, key: KeyRef<'_>) -> bool {
        self.tickets() > 0 && self.queue(key).is_some_and(|queue| queue.tickets() > 0)
    }

    /// The waiter that the next decision about this key may grant, if the shell is to say whether it may. To be called
    /// before every decision that may grant, until there is none. `is_new`: a new event has begun, and what was learned
    /// in earlier ones is not valid any more. Requests before it whose wait is over are answered, and tickets that are
    /// not heard are passed over.
    pub fn next_to_ask(&mut self, key: KeyRef<'_>, is_new: bool, cx: &mut Cx<'_>) -> Option<Asked> {
        if let Some(waited) = self.waited.get_mut(&key).filter(|_| is_new) {
            waited.heard.clear();
        }
        let before = self.first_live(key).map(|(place, _)| place);
        let next = self.next(key, cx);
        let first = self.first_live(key).map(|(place, _)| place);
        if first != before {
            // The decision may be one that grants to no waiter, and the next may be compatible with present readers.
            self.schedule_settle_next(key);
        }
        let (owner, waiter) = match next {
            Next::Ask(place) => self.places.at(place)?,
            Next::Place(place) => self.reader_to_ask(key, place, cx.now)?,
            Next::Later | Next::Nothing => return None,
        };
        Some(Asked::of(self.id_of(key), owner, waiter))
    }

    /// Where the next to be granted is a reader: one to ask for among the readers behind it, which one decision grants
    /// together.
    fn reader_to_ask(&self, key: KeyRef<'_>, first: PlaceId, now: Now) -> Option<(&[u8], &Waiter)> {
        let (waited, first) = (self.waited.get(&key)?, self.places.waiter(first)?);
        if first.mode != Mode::Read {
            return None;
        }
        let waiters = waited.queue.waiters(&self.places).take(PASSED_AT_ONCE);
        let mut readers = waiters.take_while(|(_, waiter)| waiter.mode == Mode::Read);
        readers.find(|(_, waiter)| !waiter.is_over(now) && waited.is_heard(waiter, now).is_none())
    }

    /// The shell's answer.
    pub fn learn(&mut self, asked: &Asked, hearing: Hearing, cx: &mut Cx<'_>) {
        match hearing {
            Hearing::Heard => {
                if let Some(waited) = self.waited.get_mut(&asked.key) {
                    waited.heard.push(Heard {
                        request: asked.request,
                        channel: asked.channel.clone(),
                        user: asked.user,
                        mode: asked.mode,
                    });
                }
            }
            Hearing::NoSubscriber => {
                if let Some(channel) = &asked.channel {
                    channel.unheard_ms.set(Some(cx.now.mono_ms));
                }
            }
            Hearing::Forbidden => self.fail_request(asked.request, &LockError::Forbidden, cx),
            Hearing::Closed => self.fail_request(asked.request, &LockError::Unblocked, cx),
        }
    }

    /// This server is a replica: tickets fail, as long as `left` places are left, and more of them in every tick. (The
    /// server tells parked clients itself.)
    pub(crate) fn fail_tickets(&mut self, left: &mut usize, cx: &mut Cx<'_>) {
        if self.tickets() > 0 {
            let places = &self.places;
            let queues = self.waited.values().map(|waited| &waited.queue);
            let queues = queues.map(|queue| QueueView { queue, places });
            let mut requests = tickets_of(queues, *left);
            requests.sort_unstable();
            requests.dedup();
            for request in requests {
                if *left == 0 {
                    break;
                }
                *left = left.saturating_sub(self.places_count(request));
                self.fail_request(request, &LockError::Unblocked, cx);
            }
        }
        self.is_demoting = self.tickets() > 0;
    }

    /// Fails tickets of one key with this error, many of them in several calls.
    pub fn fail_tickets_at(&mut self, key: KeyRef<'_>, error: &LockError, cx: &mut Cx<'_>) {
        for request in tickets_of(self.queue(key), PASSED_AT_ONCE) {
            if self.passed.has_room(cx.now) {
                self.fail_request(request, error, cx);
            }
        }
    }

    /// This connection is closed.
    pub(crate) fn closes(&mut self, client: u64) {
        if self.tickets() > 0 {
            self.closing.push(client);
        }
    }

    /// Whether this connection ends in this tick.
    pub fn is_closing(&self, client: u64) -> bool {
        self.closing.contains(&client)
    }

    /// A tick has begun: the server does not find the connections any more that ended in an earlier one.
    pub fn forget_closing(&mut self) {
        self.closing = Vec::new();
        self.channels.drop_unused(Channels::LOOKED_AT);
    }

    /// Fails requests that cannot be granted, as long as places may be passed over. `checked`: as many requests were
    /// checked for that. Returns whether more may be passed over.
    pub fn fail_refused(
        &mut self,
        refused: &[(WaiterId, LockError)],
        checked: usize,
        cx: &mut Cx<'_>,
    ) -> bool {
        for (request, error) in refused {
            if self.passed.has_room(cx.now) {
                self.fail_request(*request, error, cx);
            }
        }
        self.passed.add(checked, cx.now);
        self.passed.has_room(cx.now)
    }

    /// Fails this request; its places count as passed over.
    pub(crate) fn fail_request(&mut self, request: WaiterId, error: &LockError, cx: &mut Cx<'_>) {
        self.passed.add(self.places_count(request), cx.now);
        let waiter = self.dismiss(request);
        self.fail(waiter, error, cx);
    }
}

/// The tickets of these queues in order, of a limited number of places. One on several keys may be among them twice.
fn tickets_of<'q>(queues: impl IntoIterator<Item = QueueView<'q>>, most: usize) -> Vec<WaiterId> {
    let with_tickets = queues.into_iter().filter(|queue| queue.tickets() > 0);
    let waiters = with_tickets.flat_map(|queue| queue.iter());
    let tickets = waiters.filter(|(_, waiter)| waiter.ticket.is_some());
    tickets.map(|(_, waiter)| waiter.id).take(most).collect()
}

impl WaitedKey {
    /// Whether this waiter may be granted; `None` if that is to be asked.
    pub(super) fn is_heard(&self, waiter: &Waiter, now: Now) -> Option<bool> {
        let channel = waiter.channel();
        if channel.is_some_and(|channel| channel.unheard_ms.get() == Some(now.mono_ms)) {
            return Some(false);
        }
        if channel.is_none() && waiter.user == UserId::UNKNOWN {
            return Some(true);
        }
        let is_alike = |heard: &Heard| {
            (heard.user, heard.mode) == (waiter.user, waiter.mode)
                && heard.channel.as_ref().map(Rc::as_ptr) == channel.map(Rc::as_ptr)
        };
        let mut heard = self.heard.iter();
        // A session has a connection of its own, and READ and WRITE keys with the owner's name.
        let is_single = waiter.mode != Mode::Exclusive || (waiter.session() && channel.is_some());
        let is_heard = heard.any(|heard| match is_single {
            true => heard.request == waiter.id,
            false => is_alike(heard),
        });
        is_heard.then_some(true)
    }
}

/// The next request of a queue.
pub(crate) enum Next {
    /// The next to be granted.
    Place(PlaceId),
    /// One of which the shell is to say whether it may be granted.
    Ask(PlaceId),
    /// Many waits were ended in this event; the rest of the queue comes at the end of the tick.
    Later,
    /// The queue is empty, or all its waiters are about to end.
    Nothing,
}

impl Waiters {
    /// The first place whose wait has not run out: the next to be granted. Requests before it whose wait is over are
    /// answered nil, and tickets that are not heard are passed over; their places are kept. `None` as well if
    /// the shell was not asked for the next, or if many waits were ended: the key is settled once more then.
    pub(crate) fn next_to_grant(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Option<PlaceId> {
        match self.next(key, cx) {
            Next::Place(place) => Some(place),
            Next::Nothing => None,
            Next::Ask(_) | Next::Later => {
                self.schedule_settle(key);
                None
            }
        }
    }

    pub(super) fn next(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> Next {
        if self.is_ending(key) {
            return Next::Nothing;
        }
        loop {
            let Some((place, waiter)) = self.first_live(key) else {
                self.drop_if_empty(key);
                return Next::Nothing;
            };
            let (request, is_over) = (waiter.id, waiter.is_over(cx.now));
            if !self.passed.has_room(cx.now) {
                return Next::Later;
            }
            match self.may_be_granted(key, place, cx.now) {
                Some(true) => return Next::Place(place),
                None => return Next::Ask(place),
                Some(false) => {}
            }
            let places = self.places_count(request);
            self.passed.add(places, cx.now);
            let fate = Fate::Kept {
                timed_out: is_over,
                now: cx.now,
            };
            let waiter = self.depart(place, fate);
            match is_over {
                true => Waiters::time_out(waiter.as_ref(), cx),
                false => self.tickets_unheard += 1,
            }
        }
    }

    /// Whether this request, whose owner holds all its keys already, may be granted them, wherever it stands in their
    /// queues: its wait has not run out, and the shell was asked for each key ([`Waiters::holder_to_ask`]).
    pub(crate) fn holder_may_be_granted(&self, request: WaiterId, now: Now) -> bool {
        let may_be = |(key, place): &(KeyId, PlaceId)| {
            self.may_be_granted(key.as_ref(), *place, now) == Some(true)
        };
        self.places_of(request).iter().all(may_be)
    }

    /// What the shell is asked before a request is granted all its keys, whose holder its owner is already.
    pub(crate) fn holder_to_ask(&self, request: WaiterId) -> Vec<Asked> {
        let places = self.places_of(request);
        let asked = places.iter().filter_map(|(key, place)| {
            let (owner, waiter) = self.places.at(*place)?;
            Some(Asked::of(key.clone(), owner, waiter))
        });
        asked.collect()
    }

    /// A step of a tick, which has time left, begins: as many places may be passed over again.
    pub fn pass_more(&mut self) {
        self.passed = Passed::default();
    }

    /// Whether the request at this place may be granted: its wait has not run out, and it is heard. `None` if that is
    /// to be asked.
    fn may_be_granted(&self, key: KeyRef<'_>, place: PlaceId, now: Now) -> Option<bool> {
        let (waited, waiter) = (self.waited.get(&key)?, self.places.waiter(place)?);
        match waiter.is_over(now) {
            true => Some(false),
            false => waited.is_heard(waiter, now),
        }
    }
}

/// Places that are passed over at most in one millisecond, and so in one event: of all keys, because their waits are
/// over, are not heard, or cannot be granted. The last request may have more. More follow at the end of the tick.
pub const PASSED_AT_ONCE: usize = 500;

/// The places that were passed over in one millisecond.
#[derive(Debug, Default)]
pub(super) struct Passed {
    at_ms: u64,
    places: usize,
}

impl Passed {
    /// Whether one more may be passed over.
    pub fn has_room(&mut self, now: Now) -> bool {
        self.add(0, now);
        self.places < PASSED_AT_ONCE
    }

    /// Counts the time of a message, in the millisecond that was last asked about, as that of so many places.
    pub fn tells(&mut self, places: usize) {
        self.places += places;
    }

    /// Counts the places of a request that is passed over, or requests that were checked beside one.
    pub fn add(&mut self, places: usize, now: Now) {
        if self.at_ms != now.mono_ms {
            (self.at_ms, self.places) = (now.mono_ms, 0);
        }
        self.places += places;
    }
}
