//! What is alike for locks, semaphores and latches: the numbers and limits of waiters, the deadlines, and the settle
//! loop, which serves the kinds in rotation (the *next resource* cursor).

use crate::lock::effect::Cx;
use crate::lock::histogram::Histogram;
use crate::lock::locks::Locks;
use crate::lock::resource::{Resource, ALL};
use crate::lock::top_names::{TopList, TopNames, TopOrder};
use crate::lock::wait::hearing::{Asked, Hearing};
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::usage::{Usage, Used};
use crate::lock::wait::waiters::{Grace, Waiters};
use crate::lock::{KeyId, KeyRef, LockError, Now, UserId};

impl Locks {
    fn all(&self) -> impl Iterator<Item = &Waiters> {
        ALL.into_iter().map(|resource| self.queues(resource))
    }

    /// A step through the keys with waiters of every database, kind by kind, from this cursor (0: start). Returns the
    /// next cursor (0: end) and the keys of the step.
    pub fn keys_waited(&self, cursor: u64, count: usize) -> (u64, Vec<KeyRef<'_>>) {
        // The number of the kind stands above the cursor of its table.
        const KIND: u32 = 48;
        let keys_of = |kind: usize| ALL.get(kind).map(|resource| self.queues(*resource));
        let start_of = |kind: usize| keys_of(kind).map_or(0, |queues| queues.waited.len() as u64);
        let before = |kind: usize| (0..kind).rev().find(|kind| start_of(*kind) > 0);
        let at = match cursor {
            0 => before(ALL.len()).map(|kind| (kind, 0)),
            _ => Some(((cursor >> KIND) as usize, cursor & ((1 << KIND) - 1))),
        };
        let Some((kind, queues, at)) = at.and_then(|(kind, at)| Some((kind, keys_of(kind)?, at)))
        else {
            return (0, Vec::new());
        };
        let (left, keys) = queues.keys_below(at, count);
        let next = match left {
            0 => before(kind).map(|kind| (kind, start_of(kind))),
            left => Some((kind, left)),
        };
        let next = next.map_or(0, |(kind, at)| ((kind as u64) << KIND) | at);
        (next, keys.collect())
    }

    /// `LOCK.BREAK ... PURGE`: the waiters of this key for another kind than the lock are answered an error. Returns
    /// whether there were any.
    pub fn purge_others(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) -> bool {
        let mut purged = false;
        for kind in self.kinds_mut() {
            purged |= kind.waiters().live_on(key) > 0;
            kind.waiters_mut().fail_all(key, &LockError::Broken, cx);
        }
        purged
    }

    /// What the waits on this server use, which [`crate::lock::Limits`] limit, and this user's part of it.
    pub(crate) fn used_by(&self, user: UserId) -> Used {
        let add = |sum: Used, queues: &Waiters| Used {
            own: sum.own.plus(queues.places.used_by(user)),
            all: sum.all.plus(queues.places.used()),
        };
        self.all().fold(Used::default(), add)
    }

    fn used(&self) -> Usage {
        self.used_by(UserId::UNKNOWN).all
    }

    /// The bytes of all places, which [`crate::lock::Limits`] limit.
    pub fn wait_bytes(&self) -> usize {
        self.used().bytes
    }

    /// Tickets on this server.
    pub fn tickets(&self) -> usize {
        self.all().map(Waiters::tickets).sum()
    }

    /// Whether this request still waits.
    pub fn is_parked(&self, waiter: WaiterId) -> bool {
        self.all().any(|queues| queues.is_parked(waiter))
    }

    /// Sets the rule for kept places.
    pub fn set_grace(&mut self, grace: Grace) {
        self.waiters.grace = grace;
        for kind in self.kinds_mut() {
            kind.set_grace(grace);
        }
    }

    /// Whether no wait, place, lease, window or key is due, now or later.
    pub fn is_quiet(&self) -> bool {
        self.all().all(Waiters::is_quiet) && !self.is_demoting
    }

    /// Milliseconds until the next end of a wait or of a kept place.
    pub fn next_wait(&self, now: Now) -> Option<u64> {
        let ends_more = self.is_demoting || self.all().any(Waiters::has_endings);
        let next = self.all().filter_map(|queues| queues.next_wait(now));
        next.chain(ends_more.then_some(0)).min()
    }

    /// Milliseconds until the next key is to be settled.
    pub fn next_settle(&self, now: Now) -> Option<u64> {
        self.all()
            .filter_map(|queues| queues.next_settle(now))
            .min()
    }

    /// The next key to settle, of the kinds in rotation.
    pub fn pop_unsettled(&mut self, now: Now) -> Option<(Resource, KeyId)> {
        self.pop(|queues| queues.pop_unsettled(now))
    }

    /// The next request on several keys that may be grantable.
    pub fn pop_unsettled_request(&mut self, now: Now) -> Option<WaiterId> {
        self.waiters.pop_unsettled_request(now)
    }

    /// Whether keys are postponed because writes to them were refused.
    pub fn has_postponed(&self) -> bool {
        self.all().any(Waiters::has_postponed)
    }

    /// Keys at which a grant is due that cannot be written now. (The startup delay has a field of its own.)
    pub fn withheld(&self, now: Now) -> usize {
        match self.startup_delay.is_on(now) {
            true => 0,
            false => self.all().map(|queues| queues.withheld(now)).sum(),
        }
    }

    /// The next postponed key, of the kinds in rotation.
    pub fn pop_postponed(&mut self) -> Option<(Resource, KeyId)> {
        self.pop(Waiters::pop_postponed)
    }

    fn pop(
        &mut self,
        mut next: impl FnMut(&mut Waiters) -> Option<KeyId>,
    ) -> Option<(Resource, KeyId)> {
        for _ in ALL {
            self.last_settled = self.last_settled.next();
            if let Some(key) = next(self.queues_mut(self.last_settled)) {
                return Some((self.last_settled, key));
            }
        }
        None
    }

    /// A grant is due at this key, but writes to it are refused at the moment.
    pub fn postpone(&mut self, resource: Resource, key: KeyId) {
        self.queues_mut(resource).postpone(key);
    }

    /// The state of this key changed by other means.
    pub fn schedule_settle(&mut self, key: KeyRef<'_>) {
        self.waiters.schedule_settle(key);
        for kind in self.kinds_mut() {
            kind.schedule_settle(key);
        }
    }

    /// A key of this request holds another resource than the one waited for.
    pub fn schedule_settle_waiter(&mut self, waiter: WaiterId) {
        for resource in ALL {
            self.queues_mut(resource).schedule_settle_waiter(waiter);
        }
    }

    /// The state of a whole database (`None`: of all) changed by other means.
    pub fn schedule_settle_all(&mut self, db: Option<i32>) {
        for resource in ALL {
            self.queues_mut(resource).schedule_settle_all(db);
        }
    }

    /// The number at this key, of this kind of resource, has changed: waiters for another kind beside the lock at the
    /// key are settled.
    pub(crate) fn schedule_settle_others(&mut self, resource: Resource, key: KeyRef<'_>) {
        for other in resource.others() {
            self.queues_mut(other).schedule_settle(key);
        }
    }

    /// A key that was absent now holds this kind of resource: waiters for another kind at the key are settled. (The
    /// server sends no event for the module's own writes.)
    pub(crate) fn begins_as(&mut self, resource: Resource, key: KeyRef<'_>) {
        if resource != Resource::Lock {
            self.waiters.schedule_settle(key);
        }
        for kind in self.kinds_mut() {
            if kind.waiters().live() == 0 {
                continue;
            }
            match kind.resource() == resource {
                true => kind.began(key),
                false => kind.schedule_settle(key),
            }
        }
    }

    /// Answers nil to requests whose wait has run out, gives up kept places whose time is over, and ends more of the
    /// waiters that are about to end: about `most` places of each sort. Returns whether more may be due.
    pub fn end_waits(&mut self, most: usize, cx: &mut Cx<'_>) -> bool {
        let (mut due, mut ending) = (most, most);
        for resource in ALL {
            while due > 0 {
                let Some(places) = self.queues_mut(resource).end_next(cx) else {
                    break;
                };
                due = due.saturating_sub(places);
            }
            self.queues_mut(resource).end_more(&mut ending, cx);
        }
        if self.is_demoting {
            self.fail_tickets(&mut ending, cx);
        }
        due == 0 || ending == 0
    }

    /// The work on keys in this tick has time left: as many places may be passed over again.
    pub fn pass_more(&mut self) {
        for resource in ALL {
            self.queues_mut(resource).pass_more();
        }
    }

    /// A parked request was answered nil by `CLIENT UNBLOCK ... TIMEOUT`.
    pub fn unblocked(&mut self, waiter: WaiterId, now: Now) {
        for resource in ALL {
            let queues = self.queues_mut(resource);
            queues.stats.waits_unblocked += u64::from(queues.leave(waiter, now));
        }
    }

    /// The server could not block the client of this new request, or refused its changes: the request is removed, and
    /// counted as refused at once.
    pub fn not_parked(&mut self, waiter: WaiterId, now: Now) {
        for resource in ALL {
            let queues = self.queues_mut(resource);
            if let Some(waiter) = queues.leave_for_good(waiter) {
                match waiter.ticket.is_some() {
                    true => queues.ticket_stats.tickets_queued -= 1,
                    false => queues.stats.waits_parked -= 1,
                }
                queues.stats.refusals += 1;
                return;
            }
        }
        self.gone(waiter, now);
    }

    /// The connection of a request without a lock in flight is closed.
    pub(crate) fn disconnected_waiter(&mut self, waiter: WaiterId, now: Now) {
        let (kinds, sessions) = self.kinds_and_sessions();
        if kinds
            .into_iter()
            .any(|kind| kind.undo_in_flight(waiter, sessions))
        {
            return;
        }
        for resource in ALL {
            let queues = self.queues_mut(resource);
            queues.stats.waits_disconnected += u64::from(queues.leave(waiter, now));
        }
    }

    /// The waiter that the next decision about this key may grant, if the shell is to say whether it may. To be called
    /// before every decision that may grant, until there is none. `is_new`: a new event has begun, and what was
    /// learned in earlier ones is not valid any more.
    pub fn next_to_ask(
        &mut self,
        resource: Resource,
        key: KeyRef<'_>,
        is_new: bool,
        cx: &mut Cx<'_>,
    ) -> Option<Asked> {
        if is_new {
            self.queues_mut(resource).forget_heard(key);
        }
        self.queues_mut(resource).next_to_ask(key, cx)
    }

    /// Whether the waiter may be granted.
    pub fn learn(&mut self, resource: Resource, asked: &Asked, hearing: Hearing, cx: &mut Cx<'_>) {
        self.queues_mut(resource).learn(asked, hearing, cx);
    }

    /// Whether this connection ends in this tick.
    pub fn is_closing(&self, client: u64) -> bool {
        self.closing.contains(&client)
    }

    /// A tick has begun: the server does not find the connections any more that ended in an earlier one.
    pub fn forget_closing(&mut self) {
        self.closing = Vec::new();
        if self.tickets() == 0 {
            self.channels.sweep();
        }
    }

    /// The key is another node's now, or the cluster is down: its tickets fail with this error.
    pub fn fail_tickets_at(
        &mut self,
        resource: Resource,
        key: KeyRef<'_>,
        error: &LockError,
        cx: &mut Cx<'_>,
    ) {
        self.queues_mut(resource).fail_tickets_at(key, error, cx);
    }

    /// The histograms of `INFO lock`, in milliseconds.
    pub fn histograms(&self) -> [(&'static str, Histogram); 6] {
        let tickets = self.all().fold(Histogram::default(), |sum, queues| {
            sum.plus(&queues.ticket_waits)
        });
        [
            ("wait_ms", self.waiters.waits),
            ("hold_ms", self.holds),
            ("session_hold_ms", self.session_holds),
            ("sem_wait_ms", self.sems.waiters.waits),
            ("sem_hold_ms", self.sems.holds),
            ("tickets_wait_ms", tickets),
        ]
    }

    /// Sets how many names are counted for [`Locks::top_names`], of each kind in each order; 0: none, and what was
    /// counted is forgotten.
    pub fn set_top_names(&mut self, room: usize, now: Now) {
        for resource in ALL {
            let top = &mut self.queues_mut(resource).top;
            match (room, top.as_mut()) {
                (0, _) => *top = None,
                (_, Some(counted)) => counted.set_room(room),
                (_, None) => *top = Some(Box::new(TopNames::new(room, now))),
            }
        }
    }

    /// The names of this database with the highest sums, `most` of them at most; `None` while none is counted.
    pub fn top_names(&self, order: TopOrder, db: i32, most: usize, now: Now) -> Option<TopList> {
        let mut list = TopList {
            counted_ms: self.waiters.top.as_ref()?.counted_ms(now),
            total: 0,
            names: Vec::new(),
        };
        for resource in ALL {
            if let Some(top) = &self.queues(resource).top {
                top.extend(&mut list, (resource, order), db, most);
            }
        }
        list.names.sort_by_key(|name| std::cmp::Reverse(name.sum));
        list.names.truncate(most);
        Some(list)
    }

    /// For `INFO lock`: how long the oldest request of each kind has waited, parked or as a ticket.
    pub fn oldest_waits(&self, now: Now) -> [(&'static str, u64); 3] {
        let oldest = |name, resource| (name, self.queues(resource).oldest_wait_ms(now));
        [
            oldest("oldest_wait_ms", Resource::Lock),
            oldest("sem_oldest_wait_ms", Resource::Semaphore),
            oldest("latch_oldest_wait_ms", Resource::Latch),
        ]
    }

    /// The counters and gauges of tickets for `INFO lock`, those of all kinds together.
    pub fn ticket_fields(&self) -> Vec<(&'static str, u64)> {
        let mut fields = vec![
            ("tickets", self.tickets() as u64),
            ("ticket_places", self.used().tickets as u64),
            (
                "tickets_kept",
                self.all()
                    .map(|queues| queues.kept_waits(true) as u64)
                    .sum(),
            ),
        ];
        for queues in self.all() {
            add_fields(&mut fields, queues.ticket_stats.fields());
        }
        fields
    }

    /// The counters and the gauge of windows for `INFO lock`, those of all kinds together.
    pub(crate) fn window_fields(&self) -> Vec<(&'static str, u64)> {
        let open = self.all().map(|queues| queues.windows.open() as u64).sum();
        let mut fields = vec![("windows_open", open)];
        for queues in self.all() {
            add_fields(&mut fields, queues.windows.stats.fields());
        }
        fields
    }

    /// The number of a new waiter.
    pub(crate) fn next_waiter_id(&mut self) -> WaiterId {
        self.last_waiter_id += 1;
        WaiterId(self.last_waiter_id)
    }

    /// This server is a replica: tickets fail, some of them in every tick.
    pub(crate) fn fail_tickets(&mut self, left: &mut usize, cx: &mut Cx<'_>) {
        for resource in ALL {
            let queues = self.queues_mut(resource);
            queues.fail_tickets(&LockError::Unblocked, left, cx);
        }
        self.is_demoting = self.tickets() > 0;
    }

    /// Answers an error to every waiter, and ends every window.
    pub(crate) fn fail_everywhere(&mut self, error: &LockError, cx: &mut Cx<'_>) {
        for resource in ALL {
            let queues = self.queues_mut(resource);
            queues.windows.end_all();
            queues.fail_everywhere(error, cx);
            queues.schedule_postponed();
        }
    }
}

/// Adds counters to those of other kinds.
fn add_fields(
    sums: &mut Vec<(&'static str, u64)>,
    fields: impl Iterator<Item = (&'static str, u64)>,
) {
    for (name, value) in fields {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name, value)),
        }
    }
}
