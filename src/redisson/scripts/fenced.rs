//! The scripts of `RFencedLock` beside those of `RLock`: they add a counter key, which rises with every acquire,
//! re-entries included. Its value is the fencing token.

use crate::lock::parse_integer;
use crate::redisson::scripts::script::{
    script, Fenced, Inner, InnerCall, KeyOf, Native, Script, LOCK,
};

const COUNTER: KeyOf = KeyOf::At(1);

const CALLS: &[InnerCall] = &[
    (Inner::Exists, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Incr, COUNTER),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Pttl, LOCK),
];

/// Since 3.19.0.
pub(crate) const ACQUIRE: Script = script(
    "46b5551ba403d6152a7a6eca122e08728d6c8c66",
    262,
    (2, 2),
    Native::Fenced(Fenced::Acquire),
    CALLS,
);

/// Since 3.19.0.
pub(crate) const ACQUIRE_TOKEN: Script = script(
    "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45",
    288,
    (2, 2),
    Native::Fenced(Fenced::AcquireToken),
    CALLS,
);

/// The token after this value of the counter; `None` if it is not a number, or beyond the exact range of Lua's numbers.
pub fn next_token(counter: Option<&[u8]>) -> Option<i64> {
    const EXACT: i64 = 1 << 53;
    let last = counter.map_or(Some(0), parse_integer)?;
    (0..EXACT).contains(&last).then_some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::next_token;

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
