//! The memory of one server: the waiters, the grants in flight and tracked, the sessions, the tokens. The rules are in
//! the folders of this module.

use std::collections::VecDeque;

use crate::lock::effect::Cx;
use crate::lock::grant::in_flight::GrantsInFlight;
use crate::lock::grant::tracked::{TrackedGrant, TrackedGrants};
use crate::lock::histogram::Histogram;
use crate::lock::latch::state::Latches;
use crate::lock::limits::Limits;
use crate::lock::name::KeyMap;
use crate::lock::resource::{Kind, KindCx, Resource};
use crate::lock::semaphore::semaphores::Semaphores;
use crate::lock::session::bindings::Sessions;
use crate::lock::startup_delay::StartupDelay;
use crate::lock::stats::Stats;
use crate::lock::token::Tokens;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::sweep::Sweep;
use crate::lock::wait::ticket::Channels;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Token, UserId};

/// The locks, semaphores and latches of one server: the part in memory.
#[derive(Debug)]
pub struct Locks {
    /// The limits in force.
    pub limits: Limits,
    /// The waiters for locks.
    pub waiters: Waiters,
    /// The bindings of holds to connections.
    pub sessions: Sessions,
    /// The sources of tokens.
    pub tokens: Tokens,
    /// The statistics.
    pub stats: Stats,
    /// The times of the holds that `grants_released` and `grants_session_ended` count.
    pub(crate) holds: Histogram,
    /// The same of those of them that were granted with `SESSION`.
    pub(crate) session_holds: Histogram,
    /// The startup delay.
    pub startup_delay: StartupDelay,
    /// Whether requests that would wait for their own owner are refused.
    pub detects_deadlocks: bool,
    /// Whether the server is a node of a cluster.
    pub in_cluster: bool,
    /// The channels of tickets.
    pub(crate) channels: Channels,
    /// The sweep of tickets whose channel or user is gone.
    pub(crate) sweep: Sweep,
    /// Whether this server has become a replica and its tickets fail.
    pub(crate) is_demoting: bool,
    /// Connections that end in this tick: the server may still find them.
    pub(crate) closing: Vec<u64>,
    /// Requests that were parked after an uncertain search for deadlocks.
    pub(crate) unverified: VecDeque<WaiterId>,
    /// Whether some of them are to be verified in this tick.
    pub(crate) verifies: bool,
    pub(crate) tracked: TrackedGrants,
    /// Keys whose tracked grants are to be compared with the key.
    pub(crate) rechecks: KeyMap<usize>,
    pub(crate) last_waiter_id: u64,
    /// The grants of locks that are in flight or to undo.
    pub(crate) in_flight: GrantsInFlight,
    /// Whether this process has granted READ or WRITE: then an absent key may have a token record.
    pub(crate) had_shared: bool,
    /// The semaphores.
    pub sems: Semaphores,
    /// The latches.
    pub latches: Latches,
    /// The next-resource cursor: the kind of the key that was settled last.
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
            holds: Histogram::default(),
            session_holds: Histogram::default(),
            startup_delay: StartupDelay::default(),
            detects_deadlocks: true,
            in_cluster: false,
            channels: Channels::default(),
            sweep: Sweep::default(),
            is_demoting: false,
            closing: Vec::new(),
            unverified: VecDeque::new(),
            verifies: false,
            tracked: TrackedGrants::default(),
            rechecks: KeyMap::default(),
            last_waiter_id: 0,
            in_flight: GrantsInFlight::default(),
            had_shared: false,
            sems: Semaphores::default(),
            latches: Latches::default(),
            last_settled: Resource::default(),
        }
    }

    /// The waiters for one kind of resource.
    pub fn queues(&self, resource: Resource) -> &Waiters {
        match resource {
            Resource::Lock => &self.waiters,
            Resource::Semaphore => &self.sems.waiters,
            Resource::Latch => &self.latches.waiters,
        }
    }

    pub(crate) fn queues_mut(&mut self, resource: Resource) -> &mut Waiters {
        match resource {
            Resource::Lock => &mut self.waiters,
            Resource::Semaphore => &mut self.sems.waiters,
            Resource::Latch => &mut self.latches.waiters,
        }
    }

    /// The kinds beside the lock.
    pub fn kinds(&self) -> [&dyn Kind; 2] {
        [&self.sems, &self.latches]
    }

    pub(crate) fn kinds_mut(&mut self) -> [&mut dyn Kind; 2] {
        self.kinds_and_sessions().0
    }

    pub(crate) fn kinds_and_sessions(&mut self) -> ([&mut dyn Kind; 2], &mut Sessions) {
        ([&mut self.sems, &mut self.latches], &mut self.sessions)
    }

    /// The semaphores, with the context of a decision about this one.
    pub(crate) fn semaphore_decision<'a>(
        &'a mut self,
        key: KeyRef<'_>,
        cx: &'a mut Cx<'_>,
    ) -> (&'a mut Semaphores, KindCx<'a>) {
        let (sems, _, kind_cx) = self.split((Resource::Semaphore, key), cx);
        (sems, kind_cx)
    }

    /// The latches, with the context of a decision about this one.
    pub(crate) fn latch_decision<'a>(
        &'a mut self,
        key: KeyRef<'_>,
        cx: &'a mut Cx<'_>,
    ) -> (&'a mut Latches, KindCx<'a>) {
        let (_, latches, kind_cx) = self.split((Resource::Latch, key), cx);
        (latches, kind_cx)
    }

    fn split<'a>(
        &'a mut self,
        (resource, key): (Resource, KeyRef<'_>),
        cx: &'a mut Cx<'_>,
    ) -> (&'a mut Semaphores, &'a mut Latches, KindCx<'a>) {
        let mut others = resource.others();
        let kind_cx = KindCx {
            limits: self.limits,
            used: self.used_by(UserId::UNKNOWN),
            is_waited_as_other: others.any(|other| self.queues(other).live_on(key) > 0),
            cx: Cx::new(cx.now, cx.effects),
            sessions: &mut self.sessions,
            tokens: &mut self.tokens,
            startup_delay: &self.startup_delay,
            last_waiter_id: &mut self.last_waiter_id,
            channels: &mut self.channels,
        };
        (&mut self.sems, &mut self.latches, kind_cx)
    }

    /// The tracked exclusive or WRITE grant with this token.
    pub fn tracked(&self, key: KeyRef<'_>, token: Option<Token>) -> Option<&TrackedGrant> {
        self.tracked.get(key, token)
    }

    /// The tracked READ grant of this owner.
    pub fn tracked_reader(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&TrackedGrant> {
        self.tracked.reader(key, owner)
    }

    /// The counters and gauges of locks for `INFO lock`.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let gauges = [
            ("waiters", self.waiters.parked_requests() as u64),
            ("places", self.waiters.parked_places() as u64),
            ("keys_waited", self.waiters.keys_waited() as u64),
            ("places_kept", self.waiters.kept_places() as u64),
            ("waits_kept", self.waiters.kept_waits(false) as u64),
            ("grants_tracked", self.tracked.len() as u64),
        ];
        let counters = self.stats.fields().chain(self.sessions.stats.fields());
        let counters = counters.chain(self.waiters.stats.fields());
        gauges
            .into_iter()
            .chain(counters)
            .chain(self.window_fields())
    }
}
