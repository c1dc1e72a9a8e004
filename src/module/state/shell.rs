//! The state between calls: the core, the parked clients, the timer.
//!
//! It is a static, because the server gives a callback (a command, an event, the answer to a parked client) no pointer
//! to what the module keeps. The files of `keyspace`, this folder and above borrow it where they need it, for one
//! expression each. The server calls the module on its main thread only, so there is one borrower at a time. The borrow
//! is exclusive, and nothing of the server is called meanwhile that can call back: it calls back with a key event while
//! a key is opened or deleted, and with the answer of a parked client while it is unblocked.
//!
//! The other statics are the settings, the constants (`state`), the counters of panics (`ffi::guard`), of failed
//! replications (`keyspace::replication`) and of names (`lock::name`), what was seen since the drain (`entry::unload`),
//! and what the native scripts keep (`redisson::server::{filter, permission}`).

use crate::lock::{
    give_back, slot_tags, LockError, Locks, Now, Outcome, RedissonStats, WaiterId, WaiterMap,
};
use crate::module::ffi::checked::Refused;
use crate::module::ffi::ctx::{self, Ctx};
use crate::module::ffi::log;
use crate::module::ffi::main_thread::MainThread;
use crate::module::state::alarm::Alarm;
use crate::module::state::constants;
use crate::module::state::parked::Parked;
use crate::module::state::settings;
use crate::module::state::users::Users;

/// The functions of the layers above that the shell calls: its only way to call them.
pub struct Hooks {
    /// Called when the module is loaded.
    pub start: fn(),
    /// Called when the module is unloaded.
    pub stop: fn(),
    /// Called when settings are read or changed.
    pub follow_setting: fn(Ctx<'_>),
}

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
    /// Whether replicas may receive what is replicated; `None` while that is unknown.
    pub replicas_may_receive: Option<bool>,
    /// Whether the server blocks clients that have subscribed.
    pub parks_subscribers: bool,
    /// Whether the output buffers of normal clients are limited.
    pub buffers_are_limited: bool,
    /// Whether `maxmemory` may evict locks.
    pub eviction_risk: bool,
    /// Writes that the server has refused.
    pub writes_refused: u64,
    /// Attempts to make a due grant that were given up because the server would refuse the write.
    pub grants_withheld: u64,
    /// The counters of Redisson's scripts.
    pub redisson: RedissonStats,
    /// The functions of the layers above.
    pub hooks: &'static Hooks,
    /// A hash tag for each slot; `None` outside a cluster.
    slot_tags: Option<Vec<u32>>,
}

impl Shell {
    /// Gives the core the settings in force: after each change of one, and when it is known whether the server has
    /// several users. A single user has no share of the places, but all.
    pub fn push_settings(&mut self) {
        settings::push_to(&mut self.locks, ctx::now());
        if !self.users.several.is_some_and(|(several, _)| several) {
            self.locks.shared.waiters.limits.user_share = 100;
        }
    }

    /// Removes a parked request, and frees memory that the table no longer needs.
    pub fn take_parked(&mut self, id: WaiterId) -> Option<Parked> {
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
            if parked.outcome.is_none() && !locks.shared.waiters.is_parked(*id) {
                locks.gone(*id, now);
                parked.outcome = Some(Outcome::Failed(error.clone()));
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
pub fn start(ctx: Ctx<'_>, hooks: &'static Hooks) {
    let mut locks = Locks::new(settings::limits());
    locks.in_cluster = ctx.is_cluster();
    let mut shell = Shell {
        locks,
        parked: WaiterMap::default(),
        answered: Vec::new(),
        users: Users::default(),
        alarm: Alarm::default(),
        watching: false,
        watching_clients: false,
        has_jobs: false,
        notifies_own: false,
        replicas_may_receive: None,
        parks_subscribers: ctx.parks_subscribers(),
        buffers_are_limited: true,
        eviction_risk: false,
        writes_refused: 0,
        grants_withheld: 0,
        redisson: RedissonStats::default(),
        hooks,
        slot_tags: ctx.is_cluster().then(slot_tags),
    };
    shell.push_settings();
    SHELL.set(Some(shell));
    constants::start();
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

/// The functions of the layers above; `None` while the module is not loaded.
pub fn hooks() -> Option<&'static Hooks> {
    SHELL.try_with(|shell| shell.hooks)
}

/// Whether this node is part of a cluster.
pub fn is_cluster() -> bool {
    with(|shell| shell.slot_tags.is_some())
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
