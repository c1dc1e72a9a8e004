//! The scripts of Redisson's spin lock that it does not share with `RLock`. The hash is the same, but there are no
//! subscribers: the clients try again periodically. So its unlocks are those of `RLock` without a message.
//!
//! Its forced unlock is left to Lua: `EVAL` with one key and no argument has four words, and the filter would have to
//! inspect every command of four words.

use crate::redisson::scripts::script::{
    script, Inner, InnerCall, KeyOf, Native, Script, Spin, LOCK,
};

const LATCH: KeyOf = KeyOf::At(1);

const CALLS: &[InnerCall] = &[
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Del, LOCK),
    (Inner::Get, LATCH),
    (Inner::Set, LATCH),
];

/// Since 3.24.0.
pub(crate) const UNLOCK_ONCE: Script = script(
    "73ac2729af29ea9a975f95e8097f7ee9a74cce3d",
    432,
    (2, 3),
    Native::Spin(Spin::UnlockOnce),
    CALLS,
);

/// 3.15.0 to 3.23.5.
pub(crate) const UNLOCK: Script = script(
    "5b9e58d1bcb8498e14aa1d5b49a1ca5b90748946",
    264,
    (1, 2),
    Native::Spin(Spin::Unlock),
    CALLS.split_at(4).0,
);
