//! Counters of this server's decisions. They only grow, and three sums hold whenever no decision is in progress:
//!
//! - `waits_parked` = `waits_granted` + `waits_timed_out` + `waits_unblocked` + `waits_disconnected` +
//!   `waits_taken_over` + `waits_withdrawn` + `waits_failed` + present waiters;
//! - `grants` = `grants_released` + `grants_session_ended` + `grants_expired` + `grants_broken` + `grants_lost` +
//!   `grants_undone` + `grants_unwatched` + present tracked grants;
//! - `windows` = `windows_taken` + `windows_unused` + open windows.

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
                    // The name of a field contains no NUL, and the literal ends with one.
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
    /// Fresh grants, immediate or by hand-off.
    grants,
    /// Acquires by the holder, counted or `ONCE`.
    reentries,
    /// Acquires answered nil at once.
    refusals,
    /// Acquires answered `-LOCKBUSY`.
    busy,
    /// Requests refused because they would have waited for their own owner.
    deadlocks,
    /// Renewals of a lease.
    renewals,
    /// Leases of bound holds that the server renewed.
    session_renewals,
    /// Bound holds that had ended unnoticed: the lease ran out, or the key was deleted.
    session_losses,
    /// Renewals of a lock that was not held (any more).
    renewal_misses,
    /// Releases by an owner without a hold.
    release_misses,
    /// Grants ended by their owner.
    grants_released,
    /// Grants released because the connection that they were bound to has closed.
    grants_session_ended,
    /// Grants whose lease ran out.
    grants_expired,
    /// Grants ended by LOCK.BREAK.
    grants_broken,
    /// Grants whose key was deleted or overwritten (DEL, FLUSHALL, eviction, another holder).
    grants_lost,
    /// Grants whose reply could not be delivered, which were undone.
    grants_undone,
    /// Tracked grants that were pushed out of the bounded table.
    grants_unwatched,
    /// Parked requests, including those that replaced an older one.
    waits_parked,
    /// Parked requests granted: hand-offs.
    waits_granted,
    /// Parked requests whose `BLOCK` ran out.
    waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    waits_unblocked,
    /// Parked requests whose connection closed, was redirected, or was unblocked with an error.
    waits_disconnected,
    /// Parked requests replaced by a newer one of the same owner.
    waits_taken_over,
    /// Parked requests withdrawn by their owner's LOCK.RELEASE.
    waits_withdrawn,
    /// Parked requests answered an error: key overwritten, or purged.
    waits_failed,
    /// Settled ends of holds that were made by other means than a LOCK command.
    foreign_wakeups,
    /// Horizons that were implausibly far ahead of the clock, and not accepted.
    horizons_implausible,
    /// Requests refused because the token or the counter stored with their lock is implausibly far ahead of the clock.
    tokens_implausible,
    /// Redisson windows: times that a lock was left free instead of being handed off.
    windows,
    /// Windows during which a client took the lock.
    windows_taken,
    /// Windows that ended otherwise.
    windows_unused,
    /// The sum of the waits of granted requests, in milliseconds.
    wait_ms_sum,
    /// The longest wait of a granted request, in milliseconds.
    wait_ms_max,
}

counters! {
    /// The counters of semaphores. The first two sums hold for them too, with `sem_adoptions` added to the grants.
    SemStats
    /// Granted permits, immediate or by hand-off.
    sem_grants,
    /// Permits that this server had not recorded (granted to a Redisson client, or before a restart) and whose holder
    /// asked for a token.
    sem_adoptions,
    /// Acquires by an id with a permit.
    sem_reentries,
    /// Acquires answered nil at once.
    sem_refusals,
    /// Acquires answered `-LOCKBUSY`.
    sem_busy,
    /// Renewals of a permit.
    sem_renewals,
    /// Renewals by an id without a permit.
    sem_renewal_misses,
    /// Releases by an id without a permit.
    sem_release_misses,
    /// Permits ended by their holder.
    sem_grants_released,
    /// Permits released because the connection that they were bound to has closed.
    sem_grants_session_ended,
    /// Permits taken back after they expired.
    sem_grants_expired,
    /// Permits whose semaphore was deleted, or whose id was found with a permit of another grant.
    sem_grants_lost,
    /// Permits whose reply could not be delivered, which were undone.
    sem_grants_undone,
    /// Recorded permits that were pushed out of the bounded table.
    sem_grants_unwatched,
    /// Parked requests, including those that replaced an older one.
    sem_waits_parked,
    /// Parked requests granted.
    sem_waits_granted,
    /// Parked requests whose `BLOCK` ran out.
    sem_waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    sem_waits_unblocked,
    /// Parked requests whose connection closed, was redirected, or was unblocked with an error.
    sem_waits_disconnected,
    /// Parked requests replaced by a newer one of the same id.
    sem_waits_taken_over,
    /// Parked requests withdrawn by SEM.RELEASE.
    sem_waits_withdrawn,
    /// Parked requests answered an error.
    sem_waits_failed,
    /// The sum of the waits of granted requests, in milliseconds.
    sem_wait_ms_sum,
    /// The longest wait of a granted request, in milliseconds.
    sem_wait_ms_max,
}

counters! {
    /// The counters of latches. The sum of the waits holds for them too.
    LatchStats
    /// Waits answered at once that the latch is open.
    latch_open,
    /// Waits answered at once that the latch is closed.
    latch_closed,
    /// Waits answered `-LOCKBUSY`.
    latch_busy,
    /// Requests parked.
    latch_waits_parked,
    /// Parked requests answered that the latch is open.
    latch_waits_opened,
    /// Parked requests whose `BLOCK` ran out.
    latch_waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    latch_waits_unblocked,
    /// Parked requests whose connection closed, was redirected, or was unblocked with an error.
    latch_waits_disconnected,
    /// Parked requests answered an error.
    latch_waits_failed,
}

counters! {
    /// The counters of Redisson's scripts (setting `lock.redisson-scripts`).
    RedissonStats
    /// Scripts of `RLock` that were run natively.
    redisson_rlock,
    /// Acquires of `RFencedLock` that were run natively.
    redisson_fenced,
    /// Unlocks of the spin lock that were run natively.
    redisson_spin,
    /// Scripts of `RReadWriteLock` that were run natively.
    redisson_read_write,
    /// Known scripts that were left to the server's Lua: unusual data, no memory left, a user that may not run every
    /// command in the script.
    redisson_lua,
}
