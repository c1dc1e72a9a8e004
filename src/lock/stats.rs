//! Counters of what this server did. They only grow, and two sums hold at every quiet moment:
//!
//! * `waits_parked` = `waits_granted` + `waits_timed_out` + `waits_unblocked` +
//!   `waits_disconnected` + `waits_taken_over` + `waits_withdrawn` + `waits_failed` + waiters now;
//! * `grants` = `grants_released` + `grants_session_ended` + `grants_expired` + `grants_broken` +
//!   `grants_lost` + `grants_undone` + `grants_unwatched` + grants tracked now.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of `INFO lock`.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Stats {
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
    /// Fresh grants, at once or by hand-off.
    grants,
    /// Acquires by the holder itself, counted or `ONCE`.
    reentries,
    /// Acquires answered nil at once.
    refusals,
    /// Acquires answered `-LOCKBUSY`.
    busy,
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
    /// Milliseconds that granted requests had waited, in all.
    wait_ms_sum,
    /// The longest that a granted request had waited, in milliseconds.
    wait_ms_max,
}
