//! The parser without a server: words on the left, the command or its error on the right.

use crate::commands::acquire_options::AcquireOptions;
use crate::commands::error::CommandError as E;
use crate::commands::latch::{down::Down, set::Set as LatchSet, wait::Wait as LatchWait};
use crate::commands::lock::acquire::Acquire;
use crate::commands::lock::break_lock::Break;
use crate::commands::lock::info::Info;
use crate::commands::lock::macquire::AcquireMany;
use crate::commands::lock::mrelease::ReleaseMany;
use crate::commands::lock::mrenew::RenewMany;
use crate::commands::lock::release::Release;
use crate::commands::lock::renew::Renew;
use crate::commands::lock::scan::Scan;
use crate::commands::parser::{NotifyWords, ParseSettings};
use crate::commands::sem;
use crate::lock::{Lease, Mode, SetIf, Wait, MAX_KEYS};

const SETTINGS: ParseSettings = ParseSettings {
    max_owner_len: 8,
    max_lease_ms: 60_000,
    max_wait_ms: 5_000,
    default_lease_ms: 30_000,
};

/// The words of a line; `''` is an empty word.
fn words(line: &str) -> Vec<&[u8]> {
    let words = line.split_ascii_whitespace();
    words
        .map(|word| word.trim_matches('\'').as_bytes())
        .collect()
}

/// Checks that every line has this error.
fn assert_errors<T>(parse: impl Fn(&[&[u8]]) -> Result<T, E>, cases: &[(&str, E)]) {
    for (line, error) in cases {
        assert_eq!(parse(&words(line)).err().as_ref(), Some(error), "{line}");
    }
}

fn lease(ms: i64) -> Lease {
    Lease::from_ms(ms).unwrap()
}

const PLAIN: AcquireOptions<&[u8]> = AcquireOptions {
    mode: Mode::Exclusive,
    lease: Lease::TEN_SECONDS,
    names_lease: false,
    session: false,
    wait: Wait::No,
    notify: None,
    once: false,
    with_holder: false,
};

#[test]
fn acquire_has_its_options_in_any_order_and_case() {
    let default = AcquireOptions {
        lease: lease(30_000),
        ..PLAIN
    };
    for (line, options) in [
        ("c k o", default),
        (
            "c k o read",
            AcquireOptions {
                mode: Mode::Read,
                ..default
            },
        ),
        (
            "c k o WRITE",
            AcquireOptions {
                mode: Mode::Write,
                ..default
            },
        ),
        (
            "c k o EX 60",
            AcquireOptions {
                lease: lease(60_000),
                names_lease: true,
                ..default
            },
        ),
        (
            "c k o px 1",
            AcquireOptions {
                lease: lease(1),
                names_lease: true,
                ..default
            },
        ),
        (
            "c k o SESSION",
            AcquireOptions {
                session: true,
                ..default
            },
        ),
        (
            "c k o BLOCK 0",
            AcquireOptions {
                wait: Wait::ForEver,
                ..default
            },
        ),
        (
            "c k o BLOCK 5000",
            AcquireOptions {
                wait: Wait::Ms(5_000),
                ..default
            },
        ),
        (
            "c k o notify c t BLOCK 0",
            AcquireOptions {
                wait: Wait::ForEver,
                notify: Some(NotifyWords {
                    channel: b"c".as_slice(),
                    tag: b"t".as_slice(),
                }),
                ..default
            },
        ),
        (
            "c k o WithHolder once BLOCK 1 PX 7 WRITE",
            AcquireOptions {
                mode: Mode::Write,
                lease: lease(7),
                names_lease: true,
                session: false,
                wait: Wait::Ms(1),
                notify: None,
                once: true,
                with_holder: true,
            },
        ),
    ] {
        let parsed = Acquire::parse(&words(line), &SETTINGS);
        let (key, owner) = (b"k".as_slice(), b"o".as_slice());
        assert_eq!(
            parsed,
            Ok(Acquire {
                key,
                owner,
                options
            }),
            "{line}"
        );
    }
}

#[test]
fn acquire_reports_the_first_error_from_the_left() {
    let expire = E::InvalidExpire("lock.acquire");
    assert_errors(
        |words| Acquire::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c", E::Syntax),
            ("c k", E::Syntax),
            // The key, the owner, the options.
            ("c redis_lock:horizon '' BOGUS", E::KeyReserved),
            ("c redisson_lock_token:{k} '' BOGUS", E::KeyReserved),
            ("c {k}:rwlock_token '' BOGUS", E::KeyBesideLock),
            ("c k '' BOGUS", E::OwnerEmpty),
            ("c k 123456789 BOGUS", E::OwnerTooLong),
            ("c k #token BOGUS", E::OwnerReserved),
            ("c k o BOGUS EX x", E::Syntax),
            ("c k o EX x BOGUS", E::NotInteger),
            // A value before a repeated option.
            ("c k o EX 1 EX x", E::NotInteger),
            ("c k o EX 1 PX 0", expire.clone()),
            ("c k o EX 1 PX 1", E::Syntax),
            ("c k o EX 1 EX 1", E::Syntax),
            ("c k o BLOCK 1 BLOCK -1", E::TimeoutNegative),
            ("c k o BLOCK 1 BLOCK 1", E::Syntax),
            ("c k o READ WRITE", E::Syntax),
            ("c k o READ READ", E::Syntax),
            ("c k o ONCE ONCE", E::Syntax),
            ("c k o WITHHOLDER WITHHOLDER", E::Syntax),
            ("c k o SESSION SESSION", E::Syntax),
            // Two options that exclude each other: after every value.
            ("c k o SESSION EX 1 BLOCK x", E::TimeoutNotInteger),
            ("c k o SESSION EX 1", E::Syntax),
            ("c k o PX 1 SESSION", E::Syntax),
            // Values.
            ("c k o EX", E::Syntax),
            ("c k o BLOCK", E::Syntax),
            ("c k o EX 0", expire.clone()),
            ("c k o EX -1", expire.clone()),
            ("c k o EX 61", expire.clone()),
            ("c k o PX 60001", expire.clone()),
            ("c k o EX 9223372036854775807", expire),
            ("c k o EX 9223372036854775808", E::NotInteger),
            ("c k o EX 1.5", E::NotInteger),
            ("c k o EX 01", E::NotInteger),
            ("c k o BLOCK 5001", E::TimeoutOutOfRange),
            ("c k o BLOCK 1s", E::TimeoutNotInteger),
            // An option is not cut to a shorter one.
            ("c k o WITHHOLDERWITHHOLDER", E::Syntax),
        ],
    );
}

#[test]
fn keys_are_counted_before_they_are_read() {
    assert_errors(
        |words| AcquireMany::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c", E::Syntax),
            ("c 0 k o", E::NumKeys),
            ("c -1 k o", E::NumKeys),
            ("c x k o", E::NumKeys),
            ("c 99999999999999999999 k o", E::MissingKeys),
            ("c 9999999999999999999x k o", E::NumKeys),
            ("c 2 k o", E::MissingKeys),
            ("c 2 redis_lock:horizon k", E::MissingKeys),
            ("c 2 k redis_lock:horizon o", E::KeyReserved),
            ("c 2 k {k}:rwlock_token o", E::KeyBesideLock),
            ("c 2 k k ''", E::SameKeys),
            ("c 2 k l ''", E::OwnerEmpty),
            ("c 1 k o EX 0", E::InvalidExpire("lock.macquire")),
            ("c 1 k o SESSION PX 1", E::Syntax),
        ],
    );
    let many = format!(
        "c {} {}",
        MAX_KEYS + 1,
        "redis_lock:horizon ".repeat(MAX_KEYS + 2)
    );
    let parsed = AcquireMany::parse(&words(&many), &SETTINGS).map(|_| ());
    assert_eq!(parsed, Err(E::TooManyKeys));
    let words = words("c 2 k l o WRITE");
    let parsed = AcquireMany::parse(&words, &SETTINGS).unwrap();
    assert_eq!((parsed.keys, parsed.owner), (&words[2..4], words[4]));
    assert_eq!(parsed.options.mode, Mode::Write);
}

#[test]
fn release_and_renew_parse() {
    let (key, owner) = (b"k".as_slice(), b"o".as_slice());
    assert_eq!(
        Release::parse(&words("c k o TOKEN 0 all read"), &SETTINGS),
        Ok(Release {
            key,
            owner,
            mode: Some(Mode::Read),
            all: true,
            token: Some(0)
        })
    );
    assert_errors(
        |words| Release::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k", E::Syntax),
            ("c k o ALL ALL", E::Syntax),
            ("c k o TOKEN", E::Syntax),
            ("c k o TOKEN -1", E::NotInteger),
            ("c k o TOKEN 1 TOKEN x", E::NotInteger),
            ("c k o EX 1", E::Syntax),
        ],
    );
    assert_eq!(
        Renew::parse(&words("c k o WRITE EX 2 TOKEN 7"), &SETTINGS),
        Ok(Renew {
            key,
            owner,
            mode: Some(Mode::Write),
            lease: lease(2_000),
            names_lease: true,
            token: Some(7),
        })
    );
    let default = Renew::parse(&words("c k o"), &SETTINGS).unwrap();
    assert_eq!((default.lease, default.names_lease), (lease(30_000), false));
    assert_errors(
        |words| Renew::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k o EX 0", E::InvalidExpire("lock.renew")),
            ("c k o SESSION", E::Syntax),
            ("c k o ALL", E::Syntax),
        ],
    );
}

#[test]
fn releases_and_renewals_of_many_parse() {
    let words_ = words("c 1 k o ALL");
    let parsed = ReleaseMany::parse(&words_, &SETTINGS);
    let (keys, owner) = (&words_[2..3], b"o".as_slice());
    assert_eq!(
        parsed,
        Ok(ReleaseMany {
            keys,
            owner,
            all: true
        })
    );
    assert_errors(
        |words| ReleaseMany::parse(words, &SETTINGS).map(|_| ()),
        &[("c 1 k o TOKEN 1", E::Syntax), ("c 1 k o READ", E::Syntax)],
    );
    let words_ = words("c 1 k o PX 5");
    let parsed = RenewMany::parse(&words_, &SETTINGS);
    let keys = &words_[2..3];
    let (lease, names_lease) = (lease(5), true);
    assert_eq!(
        parsed,
        Ok(RenewMany {
            keys,
            owner,
            lease,
            names_lease
        })
    );
    assert_errors(
        |words| RenewMany::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c 1 k o EX 61", E::InvalidExpire("lock.mrenew")),
            ("c 1 k o TOKEN 1", E::Syntax),
        ],
    );
}

#[test]
fn break_info_and_scan_parse() {
    let key = b"k".as_slice();
    assert_eq!(
        Break::parse(&words("c k purge TOKEN 9"), &SETTINGS),
        Ok(Break {
            key,
            token: Some(9),
            purge: true
        })
    );
    assert_errors(
        |words| Break::parse(words, &SETTINGS).map(|_| ()),
        &[("c k PURGE PURGE", E::Syntax), ("c k ALL", E::Syntax)],
    );
    for (line, list) in [("c k", 0), ("c k waiters", 10), ("c k WAITERS COUNT 3", 3)] {
        assert_eq!(Info::parse(&words(line), &SETTINGS), Ok(Info { key, list }));
        let parsed = sem::info::Info::parse(&words(line), &SETTINGS);
        assert_eq!(parsed, Ok(sem::info::Info { key, list }));
    }
    assert_errors(
        |words| Info::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k COUNT 3", E::Syntax),
            ("c k WAITERS 3", E::Syntax),
            ("c k WAITERS COUNT", E::Syntax),
            ("c k WAITERS COUNT 0", E::NotPositive),
            ("c k WAITERS COUNT x", E::NotInteger),
            ("c k WAITERS COUNT 3 WAITERS", E::Syntax),
        ],
    );
    assert_eq!(
        Scan::parse(&words("c 007 waited OWNER '' MATCH a* COUNT 5"), &SETTINGS),
        Ok(Scan {
            cursor: 7,
            pattern: Some(b"a*".as_slice()),
            count: 5,
            owner: Some(b"".as_slice()),
            waited: true,
        })
    );
    assert_errors(
        |words| Scan::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c -1 BOGUS", E::InvalidCursor),
            ("c +1", E::InvalidCursor),
            ("c 18446744073709551616", E::InvalidCursor),
            ("c 0 COUNT 0", E::NotPositive),
            ("c 0 MATCH", E::Syntax),
            ("c 0 MATCH a MATCH a", E::Syntax),
            ("c 0 WAITED WAITED", E::Syntax),
        ],
    );
}

#[test]
fn semaphore_commands_parse() {
    let (key, id) = (b"k".as_slice(), b"i".as_slice());
    assert_eq!(
        sem::acquire::Acquire::parse(&words("c k i limit 2147483647 SESSION BLOCK 0"), &SETTINGS),
        Ok(sem::acquire::Acquire {
            key,
            id,
            limit: std::num::NonZeroU32::new(2_147_483_647),
            lease: lease(30_000),
            names_lease: false,
            session: true,
            wait: Wait::ForEver,
            notify: None,
        })
    );
    assert_errors(
        |words| sem::acquire::Acquire::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k i LIMIT 0", E::NotPositive),
            ("c k i LIMIT 2147483648", E::NotInteger),
            ("c k i LIMIT 1 LIMIT 0", E::NotPositive),
            ("c k i LIMIT 1 LIMIT 1", E::Syntax),
            ("c k i EX 0", E::InvalidExpire("sem.acquire")),
            ("c k i SESSION EX 1", E::Syntax),
            ("c k i READ", E::Syntax),
        ],
    );
    let parsed = sem::release::Release::parse(&words("c k i"), &SETTINGS);
    assert_eq!(parsed, Ok(sem::release::Release { key, id }));
    assert_eq!(
        sem::renew::Renew::parse(&words("c k i PX 9"), &SETTINGS),
        Ok(sem::renew::Renew {
            key,
            id,
            lease: lease(9),
            names_lease: true
        })
    );
    let (permits, set_if) = (4_294_967_295, SetIf::There);
    assert_eq!(
        sem::set::Set::parse(&words("c k 4294967295 xx"), &SETTINGS),
        Ok(sem::set::Set {
            key,
            permits,
            set_if
        })
    );
    assert_errors(
        |words| sem::set::Set::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k -1 BOGUS", E::NotInteger),
            ("c k 4294967296 BOGUS", E::NotInteger),
            ("c k 1 BOGUS", E::Syntax),
            ("c k 1 NX XX", E::Syntax),
        ],
    );
}

#[test]
fn latch_commands_parse() {
    let key = b"k".as_slice();
    let (count, set_if) = (0, SetIf::Absent);
    assert_eq!(
        LatchSet::parse(&words("c k 0 nx"), &SETTINGS),
        Ok(LatchSet { key, count, set_if })
    );
    assert_errors(
        |words| LatchSet::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k", E::Syntax),
            ("c k -1 BOGUS", E::NotInteger),
            ("c k 1 NX NX", E::Syntax),
        ],
    );
    assert_eq!(
        Down::parse(&words("c k"), &SETTINGS),
        Ok(Down { key, by: 1 })
    );
    assert_eq!(
        Down::parse(&words("c k 3"), &SETTINGS),
        Ok(Down { key, by: 3 })
    );
    assert_errors(
        |words| Down::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k 0 x", E::NotPositive),
            ("c k x", E::NotInteger),
            ("c k 1 1", E::Syntax),
        ],
    );
    let wait = Wait::Ms(20);
    assert_eq!(
        LatchWait::parse(&words("c k BLOCK 20"), &SETTINGS),
        Ok(LatchWait {
            key,
            wait,
            notify: None,
        })
    );
    assert_errors(
        |words| LatchWait::parse(words, &SETTINGS).map(|_| ()),
        &[
            ("c k BLOCK -1", E::TimeoutNegative),
            ("c k ONCE", E::Syntax),
        ],
    );
}
