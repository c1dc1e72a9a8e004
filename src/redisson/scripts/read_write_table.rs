//! The scripts of `RReadWriteLock` that are decided natively.
//!
//! Left to Lua: the renewals, which come every ten seconds and not with every acquire, and a reader's question whether
//! the lock is held: a call of four words, for which the filter would have to inspect every `SET`.

use crate::redisson::scripts::read_write::{Form, Mode, ReadWrite};
use crate::redisson::scripts::script::{
    script, Inner, InnerCall, KeyOf, Native, Script, CHANNEL, LOCK,
};

const WRITE_ACQUIRE: &[InnerCall] = &[
    (Inner::Hget, LOCK),
    (Inner::Hset, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Pttl, LOCK),
];

/// The commands of a writer's unlock, whose latch is the third key.
const WRITE_UNLOCK: &[InnerCall] = &[
    (Inner::Hget, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Hdel, LOCK),
    (Inner::Hlen, LOCK),
    (Inner::Del, LOCK),
    (Inner::Hset, LOCK),
    (Inner::Said(3), CHANNEL),
    (Inner::Get, KeyOf::At(2)),
    (Inner::Set, KeyOf::At(2)),
];

const FORCE: &[InnerCall] = &[
    (Inner::Hget, LOCK),
    (Inner::Del, LOCK),
    (Inner::Said(1), CHANNEL),
];

const fn read_write(
    sha1: &'static str,
    length: usize,
    counts: (usize, usize),
    native: ReadWrite,
    calls: &'static [InnerCall],
) -> Script {
    script(sha1, length, counts, Native::ReadWrite(native), calls)
}

/// Since 2.10.5.
pub(crate) const WRITE: Script = read_write(
    "6306ba3bf1f563b284bed52d305fce615c6664d9",
    508,
    (1, 2),
    ReadWrite::WriteAcquire,
    WRITE_ACQUIRE,
);

/// Since 3.44.0.
pub(crate) const UNWRITE: Script = read_write(
    "21f5fb0f8ddfa9be5c3e0c9757c128796add75c6",
    860,
    (3, 5),
    ReadWrite::WriteUnlock(Form::OnceOrNil),
    WRITE_UNLOCK,
);

/// 3.24.0 to 3.43.0.
pub(crate) const UNWRITE_3_24: Script = read_write(
    "d29c5559782035515d32e926762830b3304b49be",
    858,
    (3, 5),
    ReadWrite::WriteUnlock(Form::Once),
    WRITE_UNLOCK,
);

/// 3.22.0 to 3.23.5.
pub(crate) const UNWRITE_3_22: Script = read_write(
    "319a1cdf1b56c767a0a9adf2224250bf811f110c",
    633,
    (2, 4),
    ReadWrite::WriteUnlock(Form::By),
    WRITE_UNLOCK.split_at(9).0,
);

/// Until 3.21.3.
pub(crate) const UNWRITE_3_10: Script = read_write(
    "baa634f6184acc1b8f145e810a0e0e00967a3cbe",
    637,
    (2, 3),
    ReadWrite::WriteUnlock(Form::Plain),
    &[
        (Inner::Hget, LOCK),
        (Inner::Hexists, LOCK),
        (Inner::Hincrby, LOCK),
        (Inner::Pexpire, LOCK),
        (Inner::Hdel, LOCK),
        (Inner::Hlen, LOCK),
        (Inner::Del, LOCK),
        (Inner::Hset, LOCK),
        (Inner::Publish, CHANNEL),
    ],
);

/// Since 3.22.0.
pub(crate) const FORCE_WRITE: Script = read_write(
    "2e2cb2a3b13e2e80e4236ef6a25beaf365dba608",
    149,
    (2, 2),
    ReadWrite::Force(Mode::Write, Form::By),
    FORCE,
);

/// Since 3.22.0.
pub(crate) const FORCE_READ: Script = read_write(
    "27dbe744e95c1d854a7f556cc6817030de2d0d01",
    148,
    (2, 2),
    ReadWrite::Force(Mode::Read, Form::By),
    FORCE,
);

const FORCE_PLAIN: &[InnerCall] = &[
    (Inner::Hget, LOCK),
    (Inner::Del, LOCK),
    (Inner::Publish, CHANNEL),
];

/// Until 3.21.3.
pub(crate) const FORCE_WRITE_3_10: Script = read_write(
    "23639b0b2d18d26ce352e148ff4ac5b8e984b696",
    151,
    (2, 1),
    ReadWrite::Force(Mode::Write, Form::Plain),
    FORCE_PLAIN,
);

/// Until 3.21.3.
pub(crate) const FORCE_READ_3_10: Script = read_write(
    "23f9bc91439172625235ce2ee06d6647f08a7e27",
    150,
    (2, 1),
    ReadWrite::Force(Mode::Read, Form::Plain),
    FORCE_PLAIN,
);

/// Permission for the timeouts, which no call names, is checked when their names are known.
const READ_ACQUIRE: &[InnerCall] = &[
    (Inner::Hget, LOCK),
    (Inner::Hset, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Pttl, LOCK),
];

/// The commands of a reader's unlock, whose latch is the fifth key. Permission for its timeouts is checked when their
/// names are known.
const READ_UNLOCK: &[InnerCall] = &[
    (Inner::Hget, LOCK),
    (Inner::Hexists, LOCK),
    (Inner::Hincrby, LOCK),
    (Inner::Hdel, LOCK),
    (Inner::Hlen, LOCK),
    (Inner::Hkeys, LOCK),
    (Inner::Pexpire, LOCK),
    (Inner::Del, LOCK),
    (Inner::Said(2), CHANNEL),
    (Inner::Get, KeyOf::At(4)),
    (Inner::Set, KeyOf::At(4)),
];

/// Since 3.11.1.
pub(crate) const READ: Script = read_write(
    "95553a6ff11176c18e71344e89d116b06fd6f753",
    717,
    (2, 3),
    ReadWrite::ReadAcquire { shortens: false },
    READ_ACQUIRE,
);

/// Until 3.11.0.
pub(crate) const READ_3_10: Script = read_write(
    "3e6597e1d1157c59ac0d6efa2ba7e92ef418c41e",
    647,
    (2, 3),
    ReadWrite::ReadAcquire { shortens: true },
    READ_ACQUIRE,
);

/// Since 3.44.0.
pub(crate) const UNREAD: Script = read_write(
    "6e1b10e11ac0a3ed8e902562ecd32ce01b553039",
    1295,
    (5, 4),
    ReadWrite::ReadUnlock(Form::OnceOrNil),
    READ_UNLOCK,
);

/// 3.24.0 to 3.43.0.
pub(crate) const UNREAD_3_24: Script = read_write(
    "5947c0fee6ca25ae094ec1b3e7a2559a9273d29f",
    1293,
    (5, 4),
    ReadWrite::ReadUnlock(Form::Once),
    READ_UNLOCK,
);

/// 3.22.0 to 3.23.5.
pub(crate) const UNREAD_3_22: Script = read_write(
    "92a54c31a4dc3b46f81e24a6dd5bb7d677c6f882",
    1022,
    (4, 3),
    ReadWrite::ReadUnlock(Form::By),
    READ_UNLOCK.split_at(9).0,
);

/// Until 3.21.3.
pub(crate) const UNREAD_3_10: Script = read_write(
    "f5469be4bfe5232d519471092634b3ee84e5ee6f",
    1026,
    (4, 2),
    ReadWrite::ReadUnlock(Form::Plain),
    &[
        (Inner::Hget, LOCK),
        (Inner::Hexists, LOCK),
        (Inner::Hincrby, LOCK),
        (Inner::Hdel, LOCK),
        (Inner::Hlen, LOCK),
        (Inner::Hkeys, LOCK),
        (Inner::Pexpire, LOCK),
        (Inner::Del, LOCK),
        (Inner::Publish, CHANNEL),
    ],
);
