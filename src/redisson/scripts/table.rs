//! The table of known scripts.
//!
//! The newest come first: most clients send them, and the table is searched from the top. A script that is not in the
//! table, or is called otherwise than Redisson calls it, is left to the server.

use crate::redisson::scripts::read_write_table as rw;
use crate::redisson::scripts::rlock::RLock;
use crate::redisson::scripts::script::{
    script, Fenced, Inner, InnerCall, KeyOf, Native, Script, Spin, CHANNEL, LOCK,
};
use crate::redisson::scripts::steps::MOST_STEPS;

const LATCH: KeyOf = KeyOf::At(2);

const ACQUIRE: &[InnerCall] = &[
    (Inner::Exists, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Pttl, LOCK),
];

// The scripts of `RFencedLock` beside those of `RLock`: they add a counter key, which rises with every acquire,
// re-entries included. Its value is the fencing token.

const FENCED_COUNTER: KeyOf = KeyOf::At(1);

const FENCED_CALLS: &[InnerCall] = &[
    (Inner::Exists, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Incr, FENCED_COUNTER),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Pttl, LOCK),
];

/// Since 3.19.0.
const FENCED_ACQUIRE: Script = script(
    "46b5551ba403d6152a7a6eca122e08728d6c8c66",
    262,
    (2, 2),
    Native::Fenced(Fenced::Acquire),
    FENCED_CALLS,
);

/// Since 3.19.0.
const FENCED_ACQUIRE_TOKEN: Script = script(
    "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45",
    288,
    (2, 2),
    Native::Fenced(Fenced::AcquireToken),
    FENCED_CALLS,
);

// The scripts of Redisson's spin lock that it does not share with `RLock`. The hash is the same, but there are no
// subscribers: the clients try again periodically. So its unlocks are those of `RLock` without a message. Its forced
// unlock is left to Lua: `EVAL` with one key and no argument has four words, and the filter would have to inspect every
// command of four words.

const SPIN_LATCH: KeyOf = KeyOf::At(1);

const SPIN_CALLS: &[InnerCall] = &[
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Del, LOCK),
    (Inner::Get, SPIN_LATCH),
    (Inner::Set, SPIN_LATCH),
];

/// Since 3.24.0.
const SPIN_UNLOCK_ONCE: Script = script(
    "73ac2729af29ea9a975f95e8097f7ee9a74cce3d",
    432,
    (2, 3),
    Native::Spin(Spin::UnlockOnce),
    SPIN_CALLS,
);

/// 3.15.0 to 3.23.5.
const SPIN_UNLOCK: Script = script(
    "5b9e58d1bcb8498e14aa1d5b49a1ca5b90748946",
    264,
    (1, 2),
    Native::Spin(Spin::Unlock),
    SPIN_CALLS.split_at(4).0,
);

const fn rlock(
    sha1: &'static str,
    length: usize,
    counts: (usize, usize),
    native: RLock,
    calls: &'static [InnerCall],
) -> Script {
    script(sha1, length, counts, Native::RLock(native), calls)
}

/// Every known script, the newest first.
pub static SCRIPTS: &[Script] = &[
    // Since 3.19.0.
    rlock(
        "149c5a8bf18676fd99e9e6e24923bd64d9b62f94",
        234,
        (1, 2),
        RLock::Acquire,
        ACQUIRE,
    ),
    // Since 3.24.0.
    rlock(
        "6866459238a13a701d42f4971f12d9f3a50e2442",
        471,
        (3, 5),
        RLock::UnlockOnce,
        &[
            (Inner::Get, LATCH),
            (Inner::Hexists, LOCK),
            (Inner::Hincrby, LOCK),
            (Inner::Pexpire, LOCK),
            (Inner::Set, LATCH),
            (Inner::Del, LOCK),
            (Inner::Said(3), CHANNEL),
        ],
    ),
    // Since 3.44.0: the locks of one client, all at once.
    Script {
        sha1: "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635",
        length: 220,
        keys: None,
        args: 0,
        native: Native::RLock(RLock::RenewAll),
        calls: &[(Inner::Hexists, KeyOf::Each), (Inner::Pexpire, KeyOf::Each)],
    },
    // Since 3.22.0.
    rlock(
        "605e338249a7a1d40df83b04f7658354f883b41b",
        107,
        (2, 2),
        RLock::ForceBy,
        &[(Inner::Del, LOCK), (Inner::Said(1), CHANNEL)],
    ),
    // 2.13.1 to 3.43.0.
    rlock(
        "8e19a1ddbdee9138df9f32a480c57addab4353d1",
        120,
        (1, 2),
        RLock::Renew,
        &[(Inner::Hexists, LOCK), (Inner::Pexpire, LOCK)],
    ),
    // 3.22.0 to 3.23.5.
    rlock(
        "778cea8aada230ae060b432fc333adaec85f2f4c",
        303,
        (2, 4),
        RLock::UnlockBy,
        &[
            (Inner::Hexists, LOCK),
            (Inner::Hincrby, LOCK),
            (Inner::Pexpire, LOCK),
            (Inner::Del, LOCK),
            (Inner::Said(3), CHANNEL),
        ],
    ),
    // 3.10.6 to 3.21.3.
    rlock(
        "3ffe249c16dee540ac8ab32e39bd408626b9aff7",
        305,
        (2, 3),
        RLock::Unlock,
        &[
            (Inner::Hexists, LOCK),
            (Inner::Hincrby, LOCK),
            (Inner::Pexpire, LOCK),
            (Inner::Del, LOCK),
            (Inner::Publish, CHANNEL),
        ],
    ),
    // 3.12.3 to 3.18.1, and the spin lock ever since.
    rlock(
        "dad0f8d619e548e04f21fb48d50be5034df3adae",
        339,
        (1, 2),
        RLock::Acquire,
        ACQUIRE,
    ),
    // 2.2.1 to 3.21.3.
    rlock(
        "7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1",
        109,
        (2, 1),
        RLock::Force,
        &[(Inner::Del, LOCK), (Inner::Publish, CHANNEL)],
    ),
    // 2.7.0 to 3.10.5.
    rlock(
        "93cfc048f82624d1670a310aa0ad58918c0824a5",
        405,
        (2, 3),
        RLock::UnlockOfNone,
        &[
            (Inner::Exists, LOCK),
            (Inner::Hexists, LOCK),
            (Inner::Hincrby, LOCK),
            (Inner::Pexpire, LOCK),
            (Inner::Del, LOCK),
            (Inner::Publish, CHANNEL),
        ],
    ),
    // 2.2.6 to 3.12.2.
    rlock(
        "9401052d872adfd0179ef8c8e8c028512707629a",
        336,
        (1, 2),
        RLock::AcquireBySet,
        &[
            (Inner::Exists, LOCK),
            (Inner::Hset, LOCK),
            (Inner::Hexists, LOCK),
            (Inner::Hincrby, LOCK),
            (Inner::Pexpire, LOCK),
            (Inner::Pttl, LOCK),
        ],
    ),
    FENCED_ACQUIRE_TOKEN,
    FENCED_ACQUIRE,
    SPIN_UNLOCK_ONCE,
    SPIN_UNLOCK,
    rw::WRITE,
    rw::UNWRITE,
    rw::UNWRITE_3_24,
    rw::UNWRITE_3_22,
    rw::UNWRITE_3_10,
    rw::FORCE_WRITE,
    rw::FORCE_READ,
    rw::FORCE_WRITE_3_10,
    rw::FORCE_READ_3_10,
    rw::READ,
    rw::READ_3_10,
    rw::UNREAD,
    rw::UNREAD_3_24,
    rw::UNREAD_3_22,
    rw::UNREAD_3_10,
];

impl Script {
    /// Whether this is a call as Redisson makes it: `numkeys` is the word for the number of keys, `behind` the number
    /// of words after it.
    pub fn is_called_with(&self, numkeys: &[u8], behind: usize) -> bool {
        match self.keys {
            Some(keys) => {
                // Every such script has fewer than ten keys.
                matches!(numkeys, [digit] if usize::from(digit.wrapping_sub(b'0')) == keys)
                    && behind == keys + self.args
            }
            None => {
                let keys = crate::lock::parse_decimal(numkeys).filter(|keys| *keys > 0);
                // A call with more locks is left to the server's own EVAL: see `steps`.
                let keys = keys.filter(|keys| *keys <= MOST_STEPS);
                keys.and_then(|keys| keys.checked_mul(2)?.checked_add(1)) == Some(behind as u64)
            }
        }
    }
}

/// The script with this SHA1, as a client sends it in `EVALSHA`, and its index in the table.
pub fn recognise(sha1: &[u8]) -> Option<(usize, &'static Script)> {
    // Nearly all SHA1s differ in the first eight digits, which are compared as one number. Setting this bit turns
    // capital letters into small ones and keeps digits; other bytes that it makes equal are told apart by the full
    // comparison.
    const SMALL: u64 = u64::from_ne_bytes([b' '; 8]);
    let first = u64::from_ne_bytes(*sha1.first_chunk()?) | SMALL;
    let is_it = |script: &Script| {
        let known = script.sha1.as_bytes();
        known
            .first_chunk()
            .is_some_and(|known| u64::from_ne_bytes(*known) == first)
            && sha1.eq_ignore_ascii_case(known)
    };
    SCRIPTS.iter().enumerate().find(|(_, script)| is_it(script))
}

/// Whether a known script has this length.
fn is_known_length(length: usize) -> bool {
    SCRIPTS.iter().any(|script| script.length == length)
}

/// The script with this text, and its index in the table.
pub fn recognise_text(text: &[u8]) -> Option<(usize, &'static Script)> {
    if !is_known_length(text.len()) {
        return None;
    }
    let sha1 = sha1_smol::Sha1::from(text).digest().to_string();
    recognise(sha1.as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn scripts_differ_and_each_is_found() {
        for (place, script) in SCRIPTS.iter().enumerate() {
            assert_eq!(script.sha1.len(), 40);
            assert_eq!(recognise(script.sha1.as_bytes()).unwrap().0, place);
            let upper = script.sha1.to_uppercase();
            assert_eq!(recognise(upper.as_bytes()).unwrap().0, place);
            assert!(is_known_length(script.length));
        }
        assert!(recognise(&[b'0'; 40]).is_none());
        assert!(recognise(b"").is_none());
    }

    #[test]
    fn a_text_of_a_known_length_is_recognised_by_its_hash_only() {
        for script in SCRIPTS {
            assert!(recognise_text(&vec![b'x'; script.length]).is_none());
        }
        // The hash function itself, by a text with a well-known SHA1.
        let known = sha1_smol::Sha1::from("abc").digest().to_string();
        assert_eq!(known, "a9993e364706816aba3e25717850c26c9cd0d89d");
    }

    #[test]
    fn a_script_is_recognised_only_as_redisson_calls_it() {
        let unlock = &SCRIPTS[1];
        assert!(unlock.is_called_with(b"3", 8));
        for (numkeys, behind) in [("3", 7), ("3", 9), ("2", 8), ("03", 8), ("x", 8), ("", 8)] {
            assert!(!unlock.is_called_with(numkeys.as_bytes(), behind));
        }
        let renew_all = &SCRIPTS[2];
        for keys in [1, 2, 100, 2000] {
            assert!(renew_all.is_called_with(keys.to_string().as_bytes(), 2 * keys + 1));
            assert!(!renew_all.is_called_with(keys.to_string().as_bytes(), 2 * keys));
        }
        for (numkeys, behind) in [
            ("0", 1),
            ("-1", 1),
            ("01", 3),
            ("2001", 4003),
            ("9223372036854775808", 1),
        ] {
            assert!(!renew_all.is_called_with(numkeys.as_bytes(), behind));
        }
    }

    #[test]
    fn the_keys_and_arguments_of_inner_calls_exist() {
        for script in SCRIPTS {
            for (inner, key) in script.calls {
                if let (KeyOf::At(at), Some(keys)) = (key, script.keys) {
                    assert!(*at < keys, "{}", script.sha1);
                }
                if let Inner::Said(at) = inner {
                    assert!(*at < script.args, "{}", script.sha1);
                }
            }
        }
    }
}
