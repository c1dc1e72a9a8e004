//! Counters of what this server did. They only grow, and three sums hold at every quiet moment:
//!
//! * `waits_parked` = `waits_granted` + `waits_timed_out` + `waits_unblocked` +
//!   `waits_disconnected` + `waits_taken_over` + `waits_withdrawn` + `waits_failed` + waiters now;
//! * `grants` = `grants_released` + `grants_session_ended` + `grants_expired` + `grants_broken` +
//!   `grants_lost` + `grants_undone` + `grants_unwatched` + grants tracked now;
//! * `windows` = `windows_taken` + `windows_unused` + windows open now.

macro_rules! counters {
    ($(#[doc = $what:literal])+ $table:ident $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[doc = $what])+
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct $table {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl $table {
            /// Every counter with its name, in the order of `INFO lock`.
            pub fn fields(&self) -> impl Iterator<Item = (&'static std::ffi::CStr, u64)> {
                [$((
                    // The name of a field holds no NUL, and the literal ends with one.
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"?",
                    },
                    self.$name,
                ),)+].into_iter()
            }
        }
    };
}

counters! {
    /// The counters of `INFO lock`.
    Stats
    /// Fresh grants, at once or by hand-off.
    grants,
    /// Acquires by the holder itself, counted or `ONCE`.
    reentries,
    /// Acquires answered nil at once.
    refusals,
    /// Acquires answered `-LOCKBUSY`.
    busy,
    /// Requests refused because they would have waited for themselves.
    deadlocks,
    /// Renewals of a lease.
    renewals,
    /// Leases that the server itself renewed, for bound holds.
    session_renewals,
    /// Bound holds that were found not to be held any more: the lease ran out, or the key went away.
    session_losses,
    /// Renewals of a lock that was not held (any more).
    renewal_misses,
    /// Releases by somebody who did not hold the lock.
    release_misses,
    /// Grants ended by their owner.
    grants_released,
    /// Grants released because the connection they were bound to had ended.
    grants_session_ended,
    /// Grants whose lease was seen to run out.
    grants_expired,
    /// Grants ended by LOCK.BREAK.
    grants_broken,
    /// Grants whose key was seen to go away (DEL, FLUSHALL, eviction, another holder).
    grants_lost,
    /// Grants whose reply could not be delivered and that were passed on.
    grants_undone,
    /// Grants whose end nobody here watched: pushed out of the bounded table.
    grants_unwatched,
    /// Requests parked, including those that took over an older one.
    waits_parked,
    /// Parked requests granted: hand-offs.
    waits_granted,
    /// Parked requests whose `BLOCK` ran out.
    waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    waits_unblocked,
    /// Parked requests whose connection ended, was redirected, or was unblocked with an error.
    waits_disconnected,
    /// Parked requests replaced by a newer one of the same owner.
    waits_taken_over,
    /// Parked requests withdrawn by their owner's LOCK.RELEASE.
    waits_withdrawn,
    /// Parked requests answered an error: key overwritten, or purged.
    waits_failed,
    /// Hand-offs because the key went away by other means than a LOCK command.
    foreign_wakeups,
    /// Horizons that were found implausibly far ahead of the clock, and not believed.
    horizons_implausible,
    /// Requests refused because the token or the counter stored with their lock is implausibly far ahead.
    tokens_implausible,
    /// Times that a lock was left free for Redisson's waiters instead of being handed off.
    windows,
    /// Of those, that somebody took the lock in the window.
    windows_taken,
    /// Of those, that the window ended otherwise.
    windows_unused,
    /// Milliseconds that granted requests had waited, in all.
    wait_ms_sum,
    /// The longest that a granted request had waited, in milliseconds.
    wait_ms_max,
}

counters! {
    /// The counters of semaphores; the same two sums hold, with `sem_adoptions` on the side of the grants.
    SemStats
    /// Permits granted, at once or by hand-off.
    sem_grants,
    /// Permits that this server did not know (a Redisson client's, or from before a restart) and whose
    /// holder asked for its token.
    sem_adoptions,
    /// Acquires by an id that holds a permit already.
    sem_reentries,
    /// Acquires answered nil at once.
    sem_refusals,
    /// Acquires answered `-LOCKBUSY`.
    sem_busy,
    /// Renewals of a permit.
    sem_renewals,
    /// Renewals by an id that holds no permit (any more).
    sem_renewal_misses,
    /// Releases by an id that holds no permit.
    sem_release_misses,
    /// Permits ended by their holder.
    sem_grants_released,
    /// Permits released because the connection that they were bound to has gone.
    sem_grants_session_ended,
    /// Permits taken back after the end of their lease.
    sem_grants_expired,
    /// Permits whose semaphore was seen to go away, or that were seen to have changed hands.
    sem_grants_lost,
    /// Permits whose reply could not be delivered and that were passed on.
    sem_grants_undone,
    /// Permits whose end nobody here watched: pushed out of the bounded table.
    sem_grants_unwatched,
    /// Requests parked, including those that took over an older one.
    sem_waits_parked,
    /// Parked requests granted.
    sem_waits_granted,
    /// Parked requests whose `BLOCK` ran out.
    sem_waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    sem_waits_unblocked,
    /// Parked requests whose connection ended, was redirected, or was unblocked with an error.
    sem_waits_disconnected,
    /// Parked requests replaced by a newer one of the same id.
    sem_waits_taken_over,
    /// Parked requests withdrawn by SEM.RELEASE.
    sem_waits_withdrawn,
    /// Parked requests answered an error.
    sem_waits_failed,
    /// Milliseconds that granted requests had waited, in all.
    sem_wait_ms_sum,
    /// The longest that a granted request had waited, in milliseconds.
    sem_wait_ms_max,
}

counters! {
    /// The counters of latches; the sum of the waits holds for them as well.
    LatchStats
    /// Waits answered at once that the latch is open.
    latch_open,
    /// Waits answered at once that the latch is closed.
    latch_closed,
    /// Waits answered `-LOCKBUSY`.
    latch_busy,
    /// Requests parked.
    latch_waits_parked,
    /// Parked requests that saw the latch open.
    latch_waits_opened,
    /// Parked requests whose `BLOCK` ran out.
    latch_waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    latch_waits_unblocked,
    /// Parked requests whose connection ended, was redirected, or was unblocked with an error.
    latch_waits_disconnected,
    /// Parked requests answered an error.
    latch_waits_failed,
}

counters! {
    /// The counters of Redisson's scripts, where the module runs them (`lock.redisson-scripts`).
    RedissonStats
    /// Scripts of `RLock` that were run natively.
    redisson_rlock,
    /// Acquires of `RFencedLock` that were run natively.
    redisson_fenced,
    /// Unlocks of the spin lock that were run natively.
    redisson_spin,
    /// Scripts of `RReadWriteLock` that were run natively.
    redisson_read_write,
    /// Known scripts that were left to the server's Lua: unusual data, a full memory, a user who may not
    /// run every command in them.
    redisson_lua,
}
