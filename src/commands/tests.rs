//! The parser without a server: words on the left, the command or its error on the right.

use crate::commands::acquire_options::AcquireOptions;
use crate::commands::error::CommandError;
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

/// Checks that every `line => error` has this error behind `ERR `, or one that begins so before `...`.
fn assert_errors<T>(parse: impl Fn(&[&[u8]]) -> Result<T, CommandError>, cases: &str) {
    for (line, error) in cases.lines().filter_map(|case| case.split_once(" => ")) {
        let text = parse(&words(line)).err().unwrap().to_string();
        let text = text.strip_prefix("ERR ").unwrap();
        match error.strip_suffix(" ...") {
            Some(begin) => assert!(text.starts_with(begin), "{line}: {text}"),
            None => assert_eq!(text, error, "{line}"),
        }
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
    assert_errors(
        |words| Acquire::parse(words, &SETTINGS).map(|_| ()),
        "
            c => syntax error: a value is missing after the command
            c k => syntax error: a value is missing after the key
            // The key, the owner, the options.
            c redis_lock:horizon '' BOGUS => keys that begin with 'redis_lock:horizon' ...
            c redisson_lock_token:{k} '' BOGUS => keys that begin with 'redis_lock:horizon' ...
            c {k}:rwlock_token '' BOGUS => the key is named like one of those beside ...
            c k '' BOGUS => owner is empty
            c k 123456789 BOGUS => owner is longer than lock.max-owner-len
            c k #token BOGUS => owner '#token' is reserved
            c k o BOGUS EX x => syntax error: unknown option 'BOGUS', expected READ, WRITE, EX, PX, SESSION, ...
            c k o EX x BOGUS => value is not an integer or out of range: EX 'x'
            // A value before a repeated option.
            c k o EX 1 EX x => value is not an integer or out of range: EX 'x'
            c k o EX 1 PX 0 => invalid expire time in 'lock.acquire' command: PX '0'
            c k o EX 1 PX 1 => syntax error: more than one of EX, PX, SESSION
            c k o EX 1 EX 1 => syntax error: more than one of EX, PX, SESSION
            c k o BLOCK 1 BLOCK -1 => timeout is negative: BLOCK '-1'
            c k o BLOCK 1 BLOCK 1 => syntax error: more than one BLOCK
            c k o READ WRITE => syntax error: more than one of READ, WRITE
            c k o ONCE ONCE => syntax error: more than one ONCE
            c k o WITHHOLDER WITHHOLDER => syntax error: more than one WITHHOLDER
            c k o SESSION SESSION => syntax error: more than one of EX, PX, SESSION
            // Two options that exclude each other.
            c k o SESSION EX 1 BLOCK x => syntax error: more than one of EX, PX, SESSION
            c k o PX 1 SESSION => syntax error: more than one of EX, PX, SESSION
            // Values.
            c k o EX => syntax error: a value is missing after EX
            c k o BLOCK => syntax error: a value is missing after BLOCK
            c k o EX 0 => invalid expire time in 'lock.acquire' command: EX '0'
            c k o EX -1 => invalid expire time in 'lock.acquire' command: EX '-1'
            c k o EX 61 => invalid expire time in 'lock.acquire' command: EX '61'
            c k o PX 60001 => invalid expire time in 'lock.acquire' command: PX '60001'
            c k o EX 9223372036854775807 => invalid expire time in 'lock.acquire' command: EX '9223372036854775807'
            c k o EX 9223372036854775808 => value is not an integer or out of range: EX '9223372036854775808'
            c k o EX 1.5 => value is not an integer or out of range: EX '1.5'
            c k o EX 01 => value is not an integer or out of range: EX '01'
            c k o BLOCK 5001 => timeout is out of range: BLOCK '5001'
            c k o BLOCK 1s => timeout is not an integer or out of range: BLOCK '1s'
            // An option is not cut to a shorter one.
            c k o WITHHOLDERWITHHOLDER => syntax error: unknown option 'WITHHOLDERWITHHOLDER', expected READ, ...
            // An odd word is escaped.
            c k o \u{1}123 => syntax error: unknown option '\\x01123', expected READ, ...
            c k o NOTIFY c t => syntax error: NOTIFY needs BLOCK
            c k o NOTIFY c => syntax error: a value is missing after the channel of NOTIFY
        ",
    );
}

#[test]
fn keys_are_counted_before_they_are_read() {
    assert_errors(
        |words| AcquireMany::parse(words, &SETTINGS).map(|_| ()),
        "
            c => syntax error: a value is missing after the command
            c 0 k o => numkeys should be greater than 0: numkeys '0'
            c -1 k o => numkeys should be greater than 0: numkeys '-1'
            c x k o => numkeys should be greater than 0: numkeys 'x'
            c 99999999999999999999 k o => Number of keys can't be greater than number of args: numkeys ...
            c 9999999999999999999x k o => numkeys should be greater than 0: numkeys '9999999999999999999x'
            c 2 k o => Number of keys can't be greater than number of args: numkeys '2'
            c 2 redis_lock:horizon k => Number of keys can't be greater than number of args: numkeys '2'
            c 2 k redis_lock:horizon o => keys that begin with 'redis_lock:horizon' ...
            c 2 k {k}:rwlock_token o => the key is named like one of those beside ...
            c 2 k k '' => the same key is given twice: key 'k'
            c 2 k l '' => owner is empty
            c 1 k o EX 0 => invalid expire time in 'lock.macquire' command: EX '0'
            c 1 k o SESSION PX 1 => syntax error: more than one of EX, PX, SESSION
        ",
    );
    let many = "redis_lock:horizon ".repeat(MAX_KEYS + 2);
    assert_errors(
        |words| AcquireMany::parse(words, &SETTINGS).map(|_| ()),
        &format!("c 1025 {many} => more than 1024 keys in one request: numkeys '1025'"),
    );
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
        "
            c k => syntax error: a value is missing after the key
            c k o ALL ALL => syntax error: more than one ALL
            c k o TOKEN => syntax error: a value is missing after TOKEN
            c k o TOKEN -1 => value is not an integer or out of range: TOKEN '-1'
            c k o TOKEN 1 TOKEN x => value is not an integer or out of range: TOKEN 'x'
            c k o EX 1 => syntax error: unknown option 'EX', expected READ, WRITE, ALL, TOKEN
        ",
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
        "
            c k o EX 0 => invalid expire time in 'lock.renew' command: EX '0'
            c k o SESSION => syntax error: unknown option 'SESSION', expected READ, WRITE, EX, PX, TOKEN
            c k o ALL => syntax error: unknown option 'ALL', expected READ, WRITE, EX, PX, TOKEN
        ",
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
        "
            c 1 k o TOKEN 1 => syntax error: unknown option 'TOKEN', expected ALL
            c 1 k o READ => syntax error: unknown option 'READ', expected ALL
        ",
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
        "
            c 1 k o EX 61 => invalid expire time in 'lock.mrenew' command: EX '61'
            c 1 k o TOKEN 1 => syntax error: unknown option 'TOKEN', expected EX, PX
        ",
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
        "
            c k PURGE PURGE => syntax error: more than one PURGE
            c k ALL => syntax error: unknown option 'ALL', expected TOKEN, PURGE
        ",
    );
    for (line, list) in [("c k", 0), ("c k waiters", 10), ("c k WAITERS COUNT 3", 3)] {
        assert_eq!(Info::parse(&words(line), &SETTINGS), Ok(Info { key, list }));
        let parsed = sem::info::Info::parse(&words(line), &SETTINGS);
        assert_eq!(parsed, Ok(sem::info::Info { key, list }));
    }
    assert_errors(
        |words| Info::parse(words, &SETTINGS).map(|_| ()),
        "
            c k COUNT 3 => syntax error: COUNT needs WAITERS before it
            c k WAITERS 3 => syntax error: unknown option '3', expected WAITERS, COUNT
            c k WAITERS COUNT => syntax error: a value is missing after COUNT
            c k WAITERS COUNT 0 => value is out of range, must be positive: COUNT '0'
            c k WAITERS COUNT x => value is not an integer or out of range: COUNT 'x'
            c k WAITERS COUNT 3 WAITERS => syntax error: more than one WAITERS
        ",
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
        "
            c -1 BOGUS => invalid cursor: cursor '-1'
            c +1 => invalid cursor: cursor '+1'
            c 18446744073709551616 => invalid cursor: cursor '18446744073709551616'
            c 0 COUNT 0 => value is out of range, must be positive: COUNT '0'
            c 0 MATCH => syntax error: a value is missing after MATCH
            c 0 MATCH a MATCH a => syntax error: more than one MATCH
            c 0 WAITED WAITED => syntax error: more than one WAITED
        ",
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
        "
            c k i LIMIT 0 => value is out of range, must be positive: LIMIT '0'
            c k i LIMIT 2147483648 => value is not an integer or out of range: more than 2147483647 permits
            c k i LIMIT 1 LIMIT 0 => value is out of range, must be positive: LIMIT '0'
            c k i LIMIT 1 LIMIT 1 => syntax error: more than one LIMIT
            c k i EX 0 => invalid expire time in 'sem.acquire' command: EX '0'
            c k i SESSION EX 1 => syntax error: more than one of EX, PX, SESSION
            c k i READ => syntax error: unknown option 'READ', expected LIMIT, EX, PX, SESSION, BLOCK, NOTIFY
        ",
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
        "
            c k -1 BOGUS => value is not an integer or out of range: permits '-1'
            c k 4294967296 BOGUS => value is not an integer or out of range: more than 2147483647 permits
            c k 1 BOGUS => syntax error: unknown option 'BOGUS', expected NX, XX
            c k 1 NX XX => syntax error: more than one of NX, XX
        ",
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
        "
            c k -1 BOGUS => value is not an integer or out of range: count '-1'
            c k 1 NX NX => syntax error: more than one of NX, XX
        ",
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
        "
            c k 0 x => value is out of range, must be positive: n '0'
            c k x => value is not an integer or out of range: n 'x'
            c k 1 1 => syntax error: unknown option '1', expected none
        ",
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
        "
            c k BLOCK -1 => timeout is negative: BLOCK '-1'
            c k ONCE => syntax error: unknown option 'ONCE', expected BLOCK, NOTIFY
        ",
    );
}
