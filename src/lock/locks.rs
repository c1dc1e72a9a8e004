//! What one server keeps in memory about its locks, and what happens to them without a command:
//! waits that end, connections that die, keys that go away, leases that run out.

use smallvec::SmallVec;

use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::grant::tracked::{TrackedGrant, TrackedGrants};
use crate::lock::latch::state::Latches;
use crate::lock::name::{KeyMap, KeySet, OwnerMap};
use crate::lock::resource::Resource;
use crate::lock::semaphore::semaphores::Semaphores;
use crate::lock::session::bindings::Sessions;
use crate::lock::startup_delay::StartupDelay;
use crate::lock::stats::Stats;
use crate::lock::token::Tokens;
use crate::lock::wait::queue::Queue;
use crate::lock::wait::request::{WaiterId, WaiterMap};
use crate::lock::wait::waiters::Waiters;
use crate::lock::window::state::Windows;
use crate::lock::{Hold, KeyRef, Token};

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
    pub(crate) unverified: Vec<WaiterId>,
    pub(crate) tracked: TrackedGrants,
    /// Keys to be glanced at.
    pub(crate) rechecks: KeySet,
    pub(crate) last_waiter_id: u64,
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
            unverified: Vec::new(),
            tracked: TrackedGrants::default(),
            rechecks: KeySet::default(),
            last_waiter_id: 0,
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
}
