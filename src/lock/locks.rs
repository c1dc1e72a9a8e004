//! The memory of one server: the waiters, the grants in flight and tracked, the sessions, the tokens. The rules are in
//! the folders of this module.

use crate::lock::grant::tracked::{TrackedGrant, TrackedGrants};
use crate::lock::latch::Latches;
use crate::lock::name::{Each, Resource};
use crate::lock::semaphore::Semaphores;
use crate::lock::shared::Shared;
use crate::lock::stats::Histogram;
use crate::lock::stats::Stats;
use crate::lock::wait::figures::Gauges;
use crate::lock::wait::limits::Limits;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::turns::Turns;
#[cfg(doc)]
use crate::lock::Cx;
use crate::lock::{FinalRule, Grace, KeyId, KeyRef, KeyState, Now, SessionRule, Token, WindowRule};

/// The settings that decisions depend on.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The limits on what waits use.
    pub limits: Limits,
    /// The rule for kept places.
    pub grace: Grace,
    /// The rule for Redisson windows.
    pub windows: WindowRule,
    /// The rule for sessions.
    pub session: SessionRule,
    /// The rule for final numbers.
    pub finals: FinalRule,
    /// Whether requests that would wait for their own owner are refused.
    pub detects_deadlocks: bool,
    /// The longest startup delay in milliseconds.
    pub startup_delay_ms: u64,
}

/// The locks, semaphores and latches of one server: the part in memory.
///
/// The shell makes four sorts of calls, here and on the parts:
///
/// - *Commands* ([`Locks::acquire`], [`Locks::release`], [`Locks::break_lock`], [`Locks::acquire_many`],
///   [`Semaphores::acquire`], [`Latches::set`]...) take what was read of the keys, and return the reply. What is to be
///   written and told is in the [`Cx`].
/// - *Events* ([`Locks::expired`], [`Locks::lost`], [`Locks::flushed`], [`Locks::disconnected`]...)
///   say what the server has reported.
/// - *Work* of a tick: methods named `next_*` and `pop_*` name a key or a request that is due, [`Locks::settle`] and
///   its like take what was read of it.
/// - *Questions* take `&self`.
///
/// A method of `Locks` may change [`Shared`] and the state of locks; that of semaphores and latches only if it is in
/// `server_events.rs`. Methods of [`Semaphores`] and [`Latches`] change these, and [`Shared`] if it is an argument.
#[derive(Debug, Default)]
pub struct Locks {
    /// What all kinds of resource share.
    pub shared: Shared,
    /// The semaphores.
    pub sems: Semaphores,
    /// The latches.
    pub latches: Latches,
    /// The statistics of locks.
    pub(super) stats: Stats,
    /// The times of the holds that `grants_released` and `grants_session_ended` count.
    pub(super) holds: Histogram,
    /// The times of the holds in `holds` that were granted with `SESSION`.
    pub(super) session_holds: Histogram,
    /// Whether requests that would wait for their own owner are refused.
    pub(super) detects_deadlocks: bool,
    /// Whether the server is a node of a cluster.
    pub(super) in_cluster: bool,
    /// Requests whose search for a deadlock met a key that was still to be settled.
    pub(super) unverified: Turns<WaiterId>,
    /// Whether some of them are to be checked in this tick.
    pub(super) verifies: bool,
    pub(super) tracked: TrackedGrants,
    /// Keys whose tracked grants are to be compared with the key.
    pub(super) rechecks: Turns<KeyId, usize>,
    /// Whether this process has granted READ or WRITE: then an absent key may have a token record.
    pub(super) had_shared: bool,
}

impl Locks {
    /// An empty server, a node of a cluster or none, without settings: nothing may wait yet.
    pub fn new(in_cluster: bool) -> Locks {
        Locks {
            detects_deadlocks: true,
            in_cluster,
            ..Locks::default()
        }
    }

    /// Applies the settings.
    pub fn apply(&mut self, settings: &Settings) {
        let waiters = &mut self.shared.waiters;
        (waiters.limits, waiters.grace) = (settings.limits, settings.grace);
        if waiters.windows.rule.polled && !settings.windows.polled {
            // Strings were holders, and are data of another type now: the requests behind them fail at once.
            waiters.schedule_settle_all(None);
        }
        waiters.set_window_rule(settings.windows);
        self.shared.sessions.rule = settings.session;
        self.shared.finals.rule = settings.finals;
        self.shared.startup_delay.limit(settings.startup_delay_ms);
        self.detects_deadlocks = settings.detects_deadlocks;
    }

    /// The tracked exclusive or WRITE grant with this token.
    pub fn tracked(&self, key: KeyRef<'_>, token: Option<Token>) -> Option<&TrackedGrant> {
        self.tracked.get(key, token)
    }

    /// The tracked READ grant of this owner.
    pub fn tracked_reader(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<&TrackedGrant> {
        self.tracked.of(key, owner)
    }

    /// Whether a command may run that is for a holder with this token: whether the lock is held under it.
    pub fn passes_fence(&mut self, state: &KeyState, token: u64, now: Now) -> bool {
        let passes = state.is_held_under(token, now);
        self.stats.fenced += u64::from(!passes);
        passes
    }

    /// The counters and gauges of this kind of resource for `INFO lock`, without its prefix.
    pub fn fields(&self, resource: Resource, all: &Each<Gauges>) -> Vec<(&'static str, u64)> {
        let Shared {
            waiters, sessions, ..
        } = &self.shared;
        let (gauges, waits) = (&all[resource], waiters.stats[resource].fields());
        let waiting = [
            ("waiters", gauges.parked as u64),
            ("keys_waited", gauges.keys as u64),
        ];
        let kept = [
            ("places_kept", gauges.kept as u64),
            ("waits_kept", gauges.kept_waits as u64),
        ];
        let places = [("places", gauges.places as u64)];
        let tracked = |number: usize| [("grants_tracked", number as u64)];
        let fields = waiting.into_iter();
        match resource {
            Resource::Lock => {
                let fields = fields.chain(places).chain(kept);
                let fields = fields.chain(tracked(self.tracked.len()));
                let counters = self.stats.fields().chain(sessions.stats.fields());
                let fields = fields.chain(counters).chain(waits);
                fields.chain(waiters.window_fields()).collect()
            }
            Resource::Semaphore => {
                let fields = fields.chain(kept).chain(tracked(self.sems.tracked.len()));
                fields
                    .chain(self.sems.stats.fields())
                    .chain(waits)
                    .collect()
            }
            Resource::Latch => {
                // All waiters of a latch are answered at once. They have no owner: no parked one replaces another or
                // withdraws.
                let waits = waits.filter_map(|(name, value)| match name {
                    "refusals" => Some(("closed", value)),
                    "waits_granted" => Some(("waits_opened", value)),
                    "waits_taken_over" | "waits_withdrawn" | "wait_ms_max" => None,
                    name => Some((name, value)),
                });
                fields
                    .chain(self.latches.stats.fields())
                    .chain(waits)
                    .collect()
            }
        }
    }

    /// The histograms of `INFO lock`, in milliseconds.
    pub fn histograms(&self) -> [(&'static str, Histogram); 6] {
        let waiters = &self.shared.waiters;
        [
            ("wait_ms", waiters.waits[Resource::Lock]),
            ("hold_ms", self.holds),
            ("session_hold_ms", self.session_holds),
            ("sem_wait_ms", waiters.waits[Resource::Semaphore]),
            ("sem_hold_ms", self.sems.holds),
            ("tickets_wait_ms", waiters.ticket_waits),
        ]
    }

    /// Keys at which a grant is due that cannot be written now. (The startup delay has a field of its own.)
    pub fn withheld(&self, now: Now) -> usize {
        match self.shared.startup_delay.is_on(now) {
            true => 0,
            false => self.shared.waiters.withheld(now),
        }
    }
}
