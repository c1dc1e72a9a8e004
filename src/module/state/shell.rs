//! The state between calls: the core, the parked clients, the timer.
//!
//! It is a static, because the server gives a callback (a command, an event, the answer to a parked client) no pointer
//! to what the module keeps. The files of `keyspace`, this folder and above borrow it where they need it, for one
//! expression each. The server calls the module on its main thread only, so there is one borrower at a time. The borrow
//! is exclusive, and nothing of the server is called meanwhile that can call back: it calls back with a key event while
//! a key is opened or deleted, and with the answer of a parked client while it is unblocked.
//!
//! The other statics are the settings and the constants (`state`); the counters of panics (`ffi::guard`), of failed
//! replications (`keyspace::replication`) and of names (`lock::name`); the repair after a panic (`ffi::guard`); the
//! work of a script that runs (`ffi::in_script`); whether the module is removing a key (`ffi::raw_key`); whether the
//! load is complete (`entry::load`); and the faults of the tests (`ffi::fault`).

use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use redis_module::raw;

use crate::lock::{
    give_back, slot_tags, step_below, LockError, Locks, Now, Outcome, UserId, WaiterId, WaiterMap,
};
use crate::module::ffi::api::Refused;
use crate::module::ffi::ctx::{self, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::log;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::constants;
use crate::module::state::settings;

/// Everything the module keeps between calls.
pub struct Shell {
    /// The core.
    pub locks: Locks,
    /// Parked requests, by the core's id of the request.
    pub parked: WaiterMap<Parked>,
    /// Parked requests with an answer, in the order of the answers.
    pub answered: Vec<WaiterId>,
    /// The users of requests that wait.
    pub users: Users,
    /// The one timer.
    pub alarm: Alarm,
    /// Whether key events of every type are subscribed to: from the first park on.
    pub watching: bool,
    /// Whether the events of clients are subscribed to: from the first `SESSION` on.
    pub watching_clients: bool,
    /// Whether the server runs jobs at the end of a unit of execution; set with `watching_clients`.
    pub has_jobs: bool,
    /// Whether the event of a deletion or an expiry that is being sent is the module's own.
    pub notifies_own: bool,
    /// Whether the server leaves the client of a command in the database of a key event (see `entry/events.rs`).
    pub events_move_clients: bool,
    /// Whether replicas may receive what is replicated; `None` while that is unknown.
    pub replicas_may_receive: Option<bool>,
    /// Whether the server blocks clients that have subscribed.
    pub parks_subscribers: bool,
    /// Whether the output buffers of normal clients are limited; `None`: the server has not been asked since a change.
    pub buffers_are_limited: Option<bool>,
    /// Whether the server's limit for idle connections has changed, and is read at the first `SESSION`.
    pub idle_limit_is_new: bool,
    /// Whether `maxmemory` may evict locks.
    pub eviction_risk: bool,
    /// Writes that the server has refused.
    pub writes_refused: u64,
    /// Attempts to make a due grant that were given up because the server would refuse the write.
    pub grants_withheld: u64,
    /// The commands of the server itself that were asked for, in lower case, with `|` before a subcommand.
    pub known_commands: BTreeMap<Box<[u8]>, KnownCommand>,
    /// A hash tag for each slot; `None` outside a cluster.
    slot_tags: Option<Vec<u32>>,
}

/// What the server says of a command.
#[derive(Debug, Clone, Copy)]
pub struct KnownCommand {
    /// Whether it may have keys.
    pub has_keys: bool,
    /// Whether each of its subcommands has a description of its own.
    pub has_subcommands: bool,
    /// Whether a module has it.
    pub is_of_module: bool,
}

impl Shell {
    /// Gives the core the settings in force: after each change of one, and when it is known whether the server has
    /// several users. A single user has no share of the places, but all.
    pub fn push_settings(&mut self) {
        let mut settings = settings::of_core();
        if !self.users.several.is_some_and(|(several, _)| several) {
            settings.limits.user_share = 100;
        }
        self.locks.apply(&settings);
    }

    /// Removes a parked request, and frees memory that the table no longer needs.
    pub fn take_parked(&mut self, id: WaiterId) -> Option<Parked> {
        if fault::is_on("byte-forgotten") {
            Box::leak(Box::new(0u8));
        }
        let parked = self.parked.remove(&id);
        give_back(&mut self.parked);
        parked
    }

    fn recover(&mut self, now: Now, error: &LockError) {
        let Shell {
            locks,
            parked,
            answered,
            alarm,
            ..
        } = self;
        locks.reloaded();
        locks.shared.sessions.reindex();
        parked.retain(|id, parked| {
            if !parked.is_blocked() {
                // The panic came before its client was blocked: the client has got an error reply.
                locks.gone(*id, now);
                return false;
            }
            if parked.outcome.is_none() && !locks.shared.waiters.is_waiting(*id) {
                locks.gone(*id, now);
                let failed = Some(Outcome::Failed(error.clone()));
                parked.outcome = failed.filter(|_| !fault::is_on("dropped-waiter-not-answered"));
            }
            true
        });
        *answered = parked
            .iter()
            .filter(|(_, parked)| parked.outcome.is_some())
            .map(|(id, _)| *id)
            .collect();
        alarm.pause(now);
    }
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static SHELL: MainThread<Shell> = unsafe { MainThread::empty() };

/// Makes an empty state; the holders are in the keys.
pub fn start(ctx: Ctx<'_>) {
    let mut shell = Shell {
        locks: Locks::new(ctx.is_cluster()),
        parked: WaiterMap::default(),
        answered: Vec::new(),
        users: Users::default(),
        alarm: Alarm::default(),
        watching: false,
        watching_clients: false,
        has_jobs: false,
        notifies_own: false,
        events_move_clients: ctx.events_move_clients(),
        replicas_may_receive: None,
        parks_subscribers: ctx.parks_subscribers(),
        buffers_are_limited: None,
        idle_limit_is_new: true,
        eviction_risk: false,
        writes_refused: 0,
        grants_withheld: 0,
        known_commands: BTreeMap::new(),
        slot_tags: ctx.is_cluster().then(slot_tags),
    };
    shell.push_settings();
    SHELL.set(Some(shell));
    constants::start(ctx);
}

/// Frees the state.
pub fn stop() {
    SHELL.set(None);
    constants::stop();
}

/// Borrows the state. No call into the server that could call back is made inside.
///
/// # Panics
/// When the state is borrowed already, or the module is not loaded: bugs, caught by the guard.
pub fn with<T>(body: impl FnOnce(&mut Shell) -> T) -> T {
    SHELL.with(body)
}

/// Whether the module has come to its start: then the settings have their first values.
pub fn is_started() -> bool {
    SHELL.try_with(|_| ()).is_some()
}

/// The hash tag of a slot's horizon; `None` outside a cluster.
pub fn slot_tag(slot: u16) -> Option<u32> {
    with(|shell| shell.slot_tags.as_ref()?.get(usize::from(slot)).copied())
}

/// Recovers from a panic or a refused write: schedules every waited-for key to be settled, and fails with this error
/// the requests that the core has dropped without an answer. The answers are sent by the next alarm or cron; keys are
/// settled a second later (see `Alarm::pause`).
pub fn recover(now: Now, error: &LockError) {
    let _ = SHELL.try_with(|shell| shell.recover(now, error));
}

/// [`recover`] after a panic that the guard has caught.
pub fn recover_from_panic() {
    recover(ctx::now(), &LockError::Internal);
}

/// Counts and logs a refused write.
#[cold]
pub fn note_refusal(what: Refused) {
    log::warning(&format!("the server refused a write: {}", what.0));
    with(|shell| shell.writes_refused += 1);
}

/// The delay before a refused key is tried again (during a pause, with too few replicas or a full disk).
pub const RETRY_MS: u64 = 20;

/// The time for one sort of work in a tick: the waits that end and the keys to settle, or the bound holds.
const TICK_BUDGET: Duration = Duration::from_millis(2);

/// The longest such time, for a server whose ticks are long.
const LONGEST_BUDGET: Duration = Duration::from_millis(6);

/// The time for urgent renewals in a tick in which a parked client waits for its answer, or a key is to be settled.
pub const URGENT_BUDGET: Duration = Duration::from_millis(3);

/// The time without settling after a panic.
const PAUSE_AFTER_PANIC_MS: u64 = 1_000;

/// The state of the timer.
#[derive(Default)]
pub struct Alarm {
    /// The timer, and when it fires on the monotonic clock; 0: at the end of this tick.
    pub(in crate::module) armed: Option<(raw::RedisModuleTimerID, u64)>,
    /// Whether the callback of the timer runs: it arms the timer itself, at its end.
    pub(in crate::module) firing: bool,
    /// Number of firings in a row that were too early, by the monotonic clock.
    pub(in crate::module) early: u32,
    /// No key is settled before this moment of the monotonic clock.
    pub(in crate::module) paused_until_ms: u64,
    /// No postponed key is settled, and no lost horizon written, before this moment of the monotonic clock.
    pub(in crate::module) retry_at_ms: u64,
    /// No bound hold is renewed or released before this moment of the monotonic clock.
    pub sessions_at_ms: u64,
    /// When the last firing ended, if it left due work.
    pub(in crate::module) left_at: Option<Instant>,
    /// When the last renewals of bound holds ended.
    pub(in crate::module) renewed_at: Option<Instant>,
    /// The index of the key with waiters that [`look`](crate::module::entry::events::look) takes next.
    pub(in crate::module) looked: usize,
    /// How many bound holds jobs have released since the last firing.
    pub released_by_jobs: usize,
    /// Whether a job is registered that runs when the present unit of execution is over: until then the timer is armed.
    pub job: bool,
}

impl Alarm {
    /// Pauses settling for a second: a panic while settling must not repeat in a loop.
    pub fn pause(&mut self, now: Now) {
        self.paused_until_ms = now.mono_ms + PAUSE_AFTER_PANIC_MS;
    }

    /// The time for one sort of work in this firing. If the last one has left work, it is half of the time in between:
    /// where other commands make ticks long, a fixed time in each would be too small a part of all. The replies of
    /// grants are written behind it, so it is bounded.
    pub fn budget(&mut self) -> Duration {
        let between = self.left_at.take().map(|at| at.elapsed());
        (between.unwrap_or_default() / 2).clamp(TICK_BUDGET, LONGEST_BUDGET)
    }

    /// The time for urgent renewals in this firing: as long as it is since the last ones, so that half of the server's
    /// time is enough for them however long its ticks are.
    pub fn urgent_budget(&self) -> Duration {
        let between = self.renewed_at.map(|at| at.elapsed());
        between.unwrap_or_default().max(URGENT_BUDGET)
    }

    /// Notes that the timer fires.
    pub fn fires(&mut self, now: Now) {
        self.firing = true;
        (self.job, self.released_by_jobs) = (false, 0);
        let is_early = self.armed.is_some_and(|(_, at)| now.mono_ms < at);
        self.early = if is_early { self.early + 1 } else { 0 };
    }
}

/// The form of an acquire's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The token, or nil.
    Token,
    /// `WITHHOLDER`: the token, or nil, and the holder.
    WithHolder,
    /// One token a key, or nil.
    Tokens,
    /// Whether a latch is open: 1 or 0.
    Latch,
}

/// Reasons for which the server may condemn a client (see `entry::condemned`), known when it is parked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Risks {
    /// Its user can be deleted.
    pub(in crate::module) user: bool,
    /// It may be subscribed.
    pub(in crate::module) messages: bool,
}

/// A parked request.
pub struct Parked {
    /// `None` until the client is blocked, which is the last step of its command.
    pub(in crate::module) handle: Option<NonNull<raw::RedisModuleBlockedClient>>,
    /// The id of the client; 0 until it is blocked.
    pub(in crate::module) client: u64,
    pub(in crate::module) shape: Shape,
    pub(in crate::module) risks: Risks,
    /// Whether the module has unblocked the client.
    pub(in crate::module) is_ending: bool,
    /// The key of the command, kept for a late answer (see `answers`).
    pub(in crate::module) key: Option<OwnedStr>,
    /// The answer; `None` until the core has decided.
    pub outcome: Option<Outcome>,
}

impl Parked {
    /// A request whose client is about to be blocked.
    pub fn expected(shape: Shape) -> Parked {
        Parked {
            handle: None,
            client: 0,
            shape,
            risks: Risks::default(),
            is_ending: false,
            key: None,
            outcome: None,
        }
    }

    /// Whether the client has been blocked.
    pub fn is_blocked(&self) -> bool {
        self.handle.is_some()
    }

    /// Whether the answer is a grant.
    pub fn is_granted(&self) -> bool {
        matches!(
            self.outcome,
            Some(Outcome::Granted(_) | Outcome::GrantedAll(_))
        )
    }
}

/// The users whose requests may have waited.
#[derive(Default)]
pub struct Users {
    by_name: IndexMap<Rc<[u8]>, UserId, RandomState>,
    by_number: HashMap<UserId, Rc<[u8]>>,
    last: u32,
    /// The names that are still to be looked for in this round.
    left: usize,
    /// Whether the server has several users, with the moment at which it was asked, in milliseconds of the monotonic
    /// clock.
    pub several: Option<(bool, u64)>,
}

impl Users {
    /// The number of this name, if it has one.
    pub fn number_of(&self, name: &[u8]) -> Option<UserId> {
        self.by_name.get(name).copied()
    }

    /// The name of this user; `None` if it was forgotten.
    pub fn name_of(&self, user: UserId) -> Option<Rc<[u8]>> {
        self.by_number.get(&user).cloned()
    }

    /// Gives a number to a new name.
    pub fn add(&mut self, name: &[u8]) -> UserId {
        self.last = self.last.saturating_add(1);
        let (name, user): (Rc<[u8]>, _) = (name.into(), UserId(self.last));
        self.by_name.insert(name.clone(), user);
        self.by_number.insert(user, name);
        user
    }

    /// The next names of all, some at a time.
    pub fn next_names(&mut self, most: usize) -> Vec<Rc<[u8]>> {
        let below = match self.left {
            0 => usize::MAX,
            left => left,
        };
        let range = step_below(below, self.by_name.len(), most);
        self.left = range.start;
        let names = self.by_name.get_range(range);
        names
            .into_iter()
            .flat_map(|names| names.keys().cloned())
            .collect()
    }

    /// This user does not exist any more. Returns its number: a later user of the same name has another one.
    pub fn forget(&mut self, name: &[u8]) -> Option<UserId> {
        let user = self.by_name.swap_remove(name)?;
        self.by_number.remove(&user);
        Some(user)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn work_that_was_left_gets_half_of_the_time_in_between() {
        let mut alarm = Alarm::default();
        let mut left_for = |ms| {
            alarm.left_at = Instant::now().checked_sub(Duration::from_millis(ms));
            alarm.budget()
        };
        assert!(left_for(10) >= Duration::from_millis(5));
        assert_eq!(left_for(60_000), LONGEST_BUDGET);
        assert_eq!(alarm.budget(), TICK_BUDGET);
        assert_eq!(alarm.urgent_budget(), URGENT_BUDGET);
        alarm.renewed_at = Instant::now().checked_sub(Duration::from_secs(3));
        assert!(alarm.urgent_budget() >= Duration::from_secs(3));
    }
}
