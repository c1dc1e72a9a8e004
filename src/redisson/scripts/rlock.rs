//! The effect of the scripts of `RLock` on plain data.
//!
//! The lock is a hash of hold counts by owner, and its TTL is the lease. The scripts read only the caller's own field:
//! an absent key is free, a hash with that field is held by the caller, any other hash by another owner. An unlock may
//! leave its reply in a key of its own, the *latch*, so that an unlock that is sent twice is done once and gets the
//! same reply twice.

use crate::lock::parse_integer;

/// One script of `RLock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RLock {
    /// Lock; arguments: lease, owner.
    Acquire,
    /// As `Acquire`, but sets the first hold instead of adding it.
    AcquireBySet,
    /// Unlock; keys: lock, channel; arguments: message, lease, owner.
    Unlock,
    /// As `Unlock`, but replies `1` and publishes if the lock is not held.
    UnlockOfNone,
    /// As `Unlock`, with another argument: the command that publishes.
    UnlockBy,
    /// As `UnlockBy`, with another key, the latch, and another argument, its lease.
    UnlockOnce,
    /// Renewal; arguments: lease, owner.
    Renew,
    /// Renewals of several locks; arguments: lease, an owner for each lock.
    RenewAll,
    /// Forced unlock; keys: lock, channel; argument: message.
    Force,
    /// As `Force`, with another argument: the command that publishes.
    ForceBy,
}

/// The state of a lock for a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// No key.
    Not,
    /// A hash with the caller's field: the hold count.
    Own(i64),
    /// A hash without the caller's field.
    Other,
}

/// The effect of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquire {
    /// The first hold, with a lease that ends at this moment (Unix milliseconds).
    First(i64),
    /// One more hold, with a lease that ends at this moment (Unix milliseconds).
    Again(i64),
    /// None: the reply is the lock's time to live.
    Refused,
}

/// The effect of an unlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unlock {
    /// One hold less, with a lease that ends at this moment (Unix milliseconds).
    Less(i64),
    /// The last hold ends.
    Free,
    /// None.
    NotOwner,
}

/// The most holds that are counted here; higher counts are left to the server.
const MOST: i64 = i32::MAX as i64;

/// The caller's hold count in its field; `None` if the value is not a plain count.
pub fn own_count(value: &[u8]) -> Option<i64> {
    parse_integer(value).filter(|count| (1..MOST).contains(count))
}

/// The end of a lease of this many milliseconds; `None` for an invalid lease, or one that ends at once.
pub fn lease_end(lease: &[u8], now_ms: i64) -> Option<i64> {
    let lease = parse_integer(lease).filter(|lease| *lease > 0)?;
    now_ms.checked_add(lease)
}

/// The time to live that a script replies for a key with this end, or none. `None` for a number that Lua would change:
/// its numbers are doubles.
pub fn time_to_live(end_ms: Option<i64>, now_ms: i64) -> Option<i64> {
    const EXACT: i64 = 1 << 53;
    let left_ms = end_ms.map_or(-1, |end_ms| end_ms.saturating_sub(now_ms).max(0));
    (left_ms <= EXACT).then_some(left_ms)
}

/// An acquire with this lease.
pub fn acquire(held: Held, lease: &[u8], now_ms: i64) -> Option<Acquire> {
    Some(match held {
        Held::Not => Acquire::First(lease_end(lease, now_ms)?),
        Held::Own(_) => Acquire::Again(lease_end(lease, now_ms)?),
        Held::Other => Acquire::Refused,
    })
}

/// An unlock; the lease is for the remaining holds.
pub fn unlock(held: Held, lease: &[u8], now_ms: i64) -> Option<Unlock> {
    Some(match held {
        Held::Own(1) => Unlock::Free,
        Held::Own(_) => Unlock::Less(lease_end(lease, now_ms)?),
        Held::Not | Held::Other => Unlock::NotOwner,
    })
}

/// The token of `RFencedLock` after this value of its counter; `None` if it is not a number, or beyond the exact range
/// of Lua's numbers.
pub fn next_token(counter: Option<&[u8]>) -> Option<i64> {
    const EXACT: i64 = 1 << 53;
    let last = counter.map_or(Some(0), parse_integer)?;
    (0..EXACT).contains(&last).then_some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_leases_are_decided() {
        assert_eq!(lease_end(b"30000", 1_000), Some(31_000));
        assert_eq!(lease_end(b"1", i64::MAX - 1), Some(i64::MAX));
        for odd in [
            "0",
            "-1",
            "",
            "x",
            "1.5",
            "030",
            " 1",
            "1 ",
            "+1",
            "9223372036854775808",
        ] {
            assert_eq!(lease_end(odd.as_bytes(), 0), None, "{odd:?}");
        }
        assert_eq!(
            lease_end(b"9223372036854775807", 1),
            None,
            "past the end of time"
        );
    }

    #[test]
    fn a_time_to_live_is_replied_within_luas_exact_range() {
        assert_eq!(time_to_live(None, 5), Some(-1));
        assert_eq!(time_to_live(Some(7), 5), Some(2));
        assert_eq!(time_to_live(Some(4), 5), Some(0), "over, but still there");
        assert_eq!(time_to_live(Some((1 << 53) + 5), 5), Some(1 << 53));
        assert_eq!(time_to_live(Some((1 << 53) + 6), 5), None);
    }

    #[test]
    fn only_plain_hold_counts_are_decided() {
        assert_eq!(own_count(b"1"), Some(1));
        assert_eq!(own_count(b"2147483646"), Some(2_147_483_646));
        for odd in ["0", "-1", "2147483647", "x", "", "01", "1.0"] {
            assert_eq!(own_count(odd.as_bytes()), None, "{odd:?}");
        }
    }

    #[test]
    fn a_lease_is_checked_only_where_the_script_uses_it() {
        assert_eq!(acquire(Held::Other, b"x", 0), Some(Acquire::Refused));
        assert_eq!(acquire(Held::Not, b"x", 0), None);
        assert_eq!(acquire(Held::Own(1), b"x", 0), None);
        assert_eq!(acquire(Held::Own(1), b"5", 1), Some(Acquire::Again(6)));
        assert_eq!(acquire(Held::Not, b"5", 1), Some(Acquire::First(6)));
        assert_eq!(unlock(Held::Own(1), b"x", 0), Some(Unlock::Free));
        assert_eq!(unlock(Held::Own(2), b"x", 0), None);
        assert_eq!(unlock(Held::Own(2), b"5", 1), Some(Unlock::Less(6)));
        assert_eq!(unlock(Held::Other, b"x", 0), Some(Unlock::NotOwner));
        assert_eq!(unlock(Held::Not, b"x", 0), Some(Unlock::NotOwner));
    }

    #[test]
    fn tokens_follow_plain_counters_within_luas_exact_range() {
        assert_eq!(next_token(None), Some(1));
        assert_eq!(next_token(Some(b"41")), Some(42));
        assert_eq!(next_token(Some(b"9007199254740991")), Some(1 << 53));
        for odd in ["9007199254740992", "-1", "", "x", "01", "1.0"] {
            assert_eq!(next_token(Some(odd.as_bytes())), None, "{odd:?}");
        }
    }
}
