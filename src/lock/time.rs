//! The two clocks, as they stood when the event began. The core never reads a clock.

/// One reading of both clocks, taken once per event by the shell.
///
/// A lease is a key's TTL, so it follows the server's wall clock. A wait is a promise to one
/// connection of this process, so it follows the monotonic clock and no step of the wall clock
/// can stretch or cut it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Unix time in milliseconds, as the server's own `PEXPIREAT` understands it.
    pub wall_ms: i64,
    /// Microseconds within that millisecond: tokens are finer than leases.
    pub wall_sub_us: u16,
    /// Milliseconds of a clock that never steps; its zero means nothing.
    pub mono_ms: u64,
}

impl Now {
    /// The wall clock in microseconds, as tokens count; 0 before 1970.
    pub fn wall_us(self) -> u64 {
        let ms = u64::try_from(self.wall_ms).unwrap_or(0);
        ms.saturating_mul(1_000)
            .saturating_add(self.wall_sub_us.into())
    }
}

/// A lease length in milliseconds, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(i64);

impl Lease {
    /// The session lease where no setting says otherwise.
    pub const TEN_SECONDS: Lease = Lease(10_000);

    /// One millisecond.
    pub const SHORTEST: Lease = Lease(1);

    /// `None` unless `ms` is at least 1.
    pub fn from_ms(ms: i64) -> Option<Lease> {
        (ms >= 1).then_some(Lease(ms))
    }

    /// Its length in milliseconds.
    pub fn ms(self) -> i64 {
        self.0
    }

    /// The absolute end of a lease that starts now; saturates where `from_ms` let an absurd
    /// length through (the argument parser refuses those with an error first).
    pub fn deadline(self, now: Now) -> i64 {
        now.wall_ms.saturating_add(self.0)
    }
}
