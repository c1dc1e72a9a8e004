//! The two clocks, read once for each event by the shell. The core never reads a clock.
//!
//! The startup delay: for a time after a start or a promotion no lock is granted.
//!
//! A server does not know what it has lost (an AOF not yet on the disk, a grant that no replica had), so a lock that
//! is free in its data may still be held by an owner that was granted it before. If every lease is shorter than the
//! delay, such holds are over when the delay ends. Holds that are in the data are served meanwhile, and requests may
//! park.

/// One reading of both clocks.
///
/// A lease is a key's TTL, so it follows the server's wall clock. A wait concerns one connection of this process, so it
/// follows the monotonic clock, and no step of the wall clock changes its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Unix time in milliseconds, as `PEXPIREAT` takes it.
    pub wall_ms: i64,
    /// Microseconds within that millisecond, for tokens.
    pub wall_sub_us: u16,
    /// Milliseconds of a monotonic clock with an arbitrary zero.
    pub mono_ms: u64,
}

impl Now {
    /// A moment of the monotonic clock, with the wall clock at 1970.
    #[cfg(test)]
    pub(crate) fn at_mono(mono_ms: u64) -> Now {
        Now {
            wall_ms: 0,
            wall_sub_us: 0,
            mono_ms,
        }
    }

    /// The wall clock in microseconds, for tokens; 0 before 1970.
    pub fn wall_us(self) -> u64 {
        let ms = u64::try_from(self.wall_ms).unwrap_or(0);
        ms.saturating_mul(1_000)
            .saturating_add(self.wall_sub_us.into())
    }
}

/// The length of a lease in milliseconds, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(i64);

impl Lease {
    /// The default lease of a session.
    pub const TEN_SECONDS: Lease = Lease(10_000);

    /// One millisecond.
    pub const SHORTEST: Lease = Lease(1);

    /// `None` unless `ms` is at least 1.
    pub fn from_ms(ms: i64) -> Option<Lease> {
        (ms >= 1).then_some(Lease(ms))
    }

    /// The length in milliseconds.
    pub fn ms(self) -> i64 {
        self.0
    }

    /// The end in Unix milliseconds of a lease that starts now. It saturates at an absurd length, which the argument
    /// parser refuses before.
    pub fn deadline(self, now: Now) -> i64 {
        now.wall_ms.saturating_add(self.0)
    }
}

/// The startup delay.
#[derive(Debug, Default)]
pub struct StartupDelay {
    began_ms: u64,
    ms: u64,
}

impl StartupDelay {
    /// Begins the delay of `ms` milliseconds: the server has started, or was promoted.
    pub fn begin(&mut self, now: Now, ms: u64) {
        *self = StartupDelay {
            began_ms: now.mono_ms,
            ms,
        };
    }

    /// Applies a changed setting: a running delay may become shorter, never longer (the server may have granted locks
    /// since).
    pub fn limit(&mut self, ms: u64) {
        self.ms = self.ms.min(ms);
    }

    /// The first moment at which locks are granted, in milliseconds of the monotonic clock.
    pub fn end_ms(&self) -> u64 {
        self.began_ms.saturating_add(self.ms)
    }

    /// Milliseconds left; 0 when locks are granted.
    pub fn left(&self, now: Now) -> u64 {
        self.end_ms().saturating_sub(now.mono_ms)
    }

    /// Whether the delay is on.
    pub fn is_on(&self, now: Now) -> bool {
        self.left(now) > 0
    }
}
