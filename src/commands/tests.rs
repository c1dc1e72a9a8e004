//! The parser without a server: words on the left, the command or its error on the right.

use crate::commands::latch::{Down, Set as LatchSet, Wait as LatchWait};
use crate::commands::lock::acquire::Acquire;
use crate::commands::lock::info::Info;
use crate::commands::lock::list::Scan;
use crate::commands::lock::many::{AcquireMany, ReleaseMany, RenewMany};
use crate::commands::lock::release::{Break, Release, Renew};
use crate::commands::options::{tokens, NotifyWords, Options};
use crate::commands::parser::{ParseSettings, Parser};
use crate::commands::{sem, ALL};
use crate::lock::{Lease, LockError, Mode, SetIf, Wait, MAX_KEYS};
use crate::module::entry::command::Command;

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
fn assert_errors<T>(parse: impl Fn(&[&[u8]]) -> Result<T, LockError>, cases: &str) {
    for (line, error) in cases.lines().filter_map(|case| case.split_once(" => ")) {
        let text = parse(&words(line)).err().unwrap().to_string();
        let text = text.strip_prefix("ERR ").unwrap();
        match error.strip_suffix(" ...") {
            Some(begin) => assert!(text.starts_with(begin), "{line}: {text}"),
            None => assert_eq!(text, error, "{line}"),
        }
    }
}

const KEY: &[u8] = b"k";

fn lease(ms: i64) -> Lease {
    Lease::from_ms(ms).unwrap()
}

fn parser<'w, C: Command>(words: &'w [&'w [u8]]) -> Parser<'w, &'w [u8]> {
    Parser::new::<C>(words, SETTINGS)
}

/// No option is given.
fn none() -> Options<&'static [u8]> {
    Options::none(lease(30_000))
}

/// These options are given.
fn with(set: impl FnOnce(&mut Options<&'static [u8]>)) -> Options<&'static [u8]> {
    let mut options = none();
    set(&mut options);
    options
}

#[test]
fn acquire_has_its_options_in_any_order_and_case() {
    let leased = |options: &mut Options<_>, ms| {
        (options.lease, options.names_lease) = (lease(ms), true);
    };
    for (line, options) in [
        ("c k o", none()),
        ("c k o read", with(|o| o.mode = Some(Mode::Read))),
        ("c k o WRITE", with(|o| o.mode = Some(Mode::Write))),
        ("c k o EX 60", with(|o| leased(o, 60_000))),
        ("c k o px 1", with(|o| leased(o, 1))),
        ("c k o SESSION", with(|o| o.session = true)),
        ("c k o BLOCK 0", with(|o| o.wait = Wait::ForEver)),
        ("c k o BLOCK 5000", with(|o| o.wait = Wait::Ms(5_000))),
        (
            "c k o QUEUE 0 BLOCK 0",
            with(|o| (o.wait, o.queue) = (Wait::ForEver, Some(0))),
        ),
        (
            "c k o notify c t BLOCK 0",
            with(|o| {
                o.wait = Wait::ForEver;
                o.notify = Some(NotifyWords {
                    channel: b"c".as_slice(),
                    tag: b"t".as_slice(),
                });
            }),
        ),
        (
            "c k o WithHolder once BLOCK 1 PX 7 WRITE",
            with(|o| {
                o.mode = Some(Mode::Write);
                leased(o, 7);
                o.wait = Wait::Ms(1);
                (o.once, o.with_holder) = (true, true);
            }),
        ),
    ] {
        let words = words(line);
        let parsed = parser::<Acquire>(&words).key_and_owner();
        assert_eq!(parsed, Ok((KEY, b"o".as_slice(), options)), "{line}");
    }
}

#[test]
fn acquire_reports_the_first_error_from_the_left() {
    assert_errors(
        |words| parser::<Acquire>(words).key_and_owner().map(|_| ()),
        "
            c => syntax error: a value is missing after the command
            c k => syntax error: a value is missing after the key
            // The key, the owner, the options.
            c redis_lock:horizon '' BOGUS => keys that begin with 'redis_lock:horizon' ...
            c redisson_lock_token:{k} '' BOGUS => keys that begin with 'redis_lock:horizon' ...
            c {k}:rwlock_token '' BOGUS => the key is named like one of those beside ...
            c k '' BOGUS => owner is empty
            c k 123456789 BOGUS => owner is longer than lock.max-owner-len
            c k #token BOGUS => owners that begin with '#' are reserved
            c k #x BOGUS => owners that begin with '#' are reserved
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
            c k o QUEUE 1 => syntax error: QUEUE needs BLOCK
            c k o BLOCK 0 QUEUE => syntax error: a value is missing after QUEUE
            c k o BLOCK 0 QUEUE -1 => value is not an integer or out of range: QUEUE '-1'
            c k o BLOCK 0 QUEUE 1 QUEUE 1 => syntax error: more than one QUEUE
            c k o NOTE a NOTE b => syntax error: more than one NOTE
            c k o READ NOTE a => syntax error: NOTE is for exclusive locks, without READ and WRITE
            c k o NOTIFY c => syntax error: a value is missing after the channel of NOTIFY
        ",
    );
}

#[test]
fn keys_are_counted_before_they_are_read() {
    assert_errors(
        |words| parser::<AcquireMany>(words).keys_and_owner().map(|_| ()),
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
        |words| parser::<AcquireMany>(words).keys_and_owner().map(|_| ()),
        &format!("c 1025 {many} => more than 1024 keys in one request: numkeys '1025'"),
    );
    let words = words("c 2 k l o WRITE");
    let (keys, owner, options) = parser::<AcquireMany>(&words).keys_and_owner().unwrap();
    assert_eq!((keys, owner), (&words[2..4], words[4]));
    assert_eq!(options.mode, Some(Mode::Write));
}

#[test]
fn release_and_renew_parse() {
    let owner = b"o".as_slice();
    let options = Options {
        mode: Some(Mode::Read),
        all: true,
        token: Some(0),
        ..none()
    };
    assert_eq!(
        parser::<Release>(&words("c k o TOKEN 0 all read")).key_and_owner(),
        Ok((KEY, owner, options))
    );
    assert_errors(
        |words| parser::<Release>(words).key_and_owner().map(|_| ()),
        "
            c k => syntax error: a value is missing after the key
            c k o ALL ALL => syntax error: more than one ALL
            c k o TOKEN => syntax error: a value is missing after TOKEN
            c k o TOKEN -1 => value is not an integer or out of range: TOKEN '-1'
            c k o TOKEN 1 TOKEN x => value is not an integer or out of range: TOKEN 'x'
            c k o EX 1 => syntax error: unknown option 'EX', expected READ, WRITE, ALL, TOKEN, FINAL
            c k o FINAL 0 => value is out of range, must be positive ...
            c k o FINAL 1 READ => syntax error: FINAL ends every hold, without READ, WRITE or TOKEN
            c k o TOKEN 1 FINAL 1 => syntax error: FINAL ends every hold, without READ, WRITE or TOKEN
        ",
    );
    let options = Options {
        mode: Some(Mode::Write),
        lease: lease(2_000),
        names_lease: true,
        token: Some(7),
        ..none()
    };
    assert_eq!(
        parser::<Renew>(&words("c k o WRITE EX 2 TOKEN 7")).key_and_owner(),
        Ok((KEY, owner, options))
    );
    let words_ = words("c k o");
    let (_, _, default) = parser::<Renew>(&words_).key_and_owner().unwrap();
    assert_eq!((default.lease, default.names_lease), (lease(30_000), false));
    assert_errors(
        |words| parser::<Renew>(words).key_and_owner().map(|_| ()),
        "
            c k o EX 0 => invalid expire time in 'lock.renew' command: EX '0'
            c k o SESSION => syntax error: unknown option 'SESSION', expected READ, WRITE, EX, PX, TOKEN, NOTE
            c k o ALL => syntax error: unknown option 'ALL', expected READ, WRITE, EX, PX, TOKEN, NOTE
        ",
    );
}

#[test]
fn releases_and_renewals_of_many_parse() {
    let words_ = words("c 1 k o ALL");
    let parsed = parser::<ReleaseMany>(&words_).keys_and_owner();
    let owner = b"o".as_slice();
    let options = Options {
        all: true,
        ..none()
    };
    assert_eq!(parsed, Ok((&words_[2..3], owner, options)));
    assert_errors(
        |words| parser::<ReleaseMany>(words).keys_and_owner().map(|_| ()),
        "
            c 1 k o TOKEN 1 => syntax error: unknown option 'TOKEN', expected ALL, FINAL
            c 1 k o READ => syntax error: unknown option 'READ', expected ALL, FINAL
        ",
    );
    let words_ = words("c 1 k o PX 5");
    let parsed = parser::<RenewMany>(&words_).keys_and_owner();
    let options = Options {
        lease: lease(5),
        names_lease: true,
        ..none()
    };
    assert_eq!(parsed, Ok((&words_[2..3], owner, options)));
    assert_errors(
        |words| parser::<RenewMany>(words).keys_and_owner().map(|_| ()),
        "
            c 1 k o EX 61 => invalid expire time in 'lock.mrenew' command: EX '61'
            c 1 k o TOKEN 1 => syntax error: unknown option 'TOKEN', expected EX, PX
        ",
    );
}

#[test]
fn break_info_and_scan_parse() {
    let options = Options {
        token: Some(9),
        purge: true,
        ..none()
    };
    assert_eq!(
        Break::parse(parser::<Break>(&words("c k purge TOKEN 9"))),
        Ok((KEY, options))
    );
    let options = Options {
        token: Some(9),
        owner: Some(b"o".as_slice()),
        lease: lease(60),
        names_lease: true,
        seq: Some(1),
        note: Some(b"n".as_slice()),
        ..none()
    };
    assert_eq!(
        Break::parse(parser::<Break>(&words(
            "c k TO o PX 60 SEQ 1 NOTE n TOKEN 9"
        ))),
        Ok((KEY, options))
    );
    assert_errors(
        |words| Break::parse(parser::<Break>(words)).map(|_| ()),
        "
            c k PURGE PURGE => syntax error: more than one PURGE
            c k ALL => syntax error: unknown option 'ALL', expected TOKEN, PURGE, USER, TO, EX, PX, SEQ, NOTE
            c k TO => syntax error: a value is missing after TO
            c k TO '' => owner is empty
            c k TO o PURGE => syntax error: TO and PURGE exclude each other
            c k PX 5 => syntax error: EX, PX, SEQ and NOTE need TO
            c k SEQ 5 => syntax error: EX, PX, SEQ and NOTE need TO
            c k NOTE n PURGE => syntax error: EX, PX, SEQ and NOTE need TO
            c k USER u => syntax error: USER needs PURGE
            c k TOKEN 1 PURGE USER u => syntax error: TOKEN and USER exclude each other
            c k PURGE USER => syntax error: a value is missing after USER
        ",
    );
    for (line, list) in [("c k", 0), ("c k waiters", 10), ("c k WAITERS COUNT 3", 3)] {
        let words = words(line);
        let listed = |(key, options): (_, Options<_>)| (key, options.listed());
        let parsed = parser::<Info>(&words).key_only().map(listed);
        assert_eq!(parsed, Ok((KEY, list)));
        let parsed = parser::<sem::Info>(&words).key_only().map(listed);
        assert_eq!(parsed, Ok((KEY, list)));
    }
    assert_errors(
        |words| parser::<Info>(words).key_only().map(|_| ()),
        "
            c k COUNT 3 => syntax error: COUNT needs WAITERS before it
            c k WAITERS 3 => syntax error: unknown option '3', expected WAITERS, COUNT
            c k WAITERS COUNT => syntax error: a value is missing after COUNT
            c k WAITERS COUNT 0 => value is out of range, must be positive: COUNT '0'
            c k WAITERS COUNT x => value is not an integer or out of range: COUNT 'x'
            c k WAITERS COUNT 3 WAITERS => syntax error: more than one WAITERS
        ",
    );
    let options = Options {
        pattern: Some(b"a*".as_slice()),
        count: Some(5),
        owner: Some(b"".as_slice()),
        waited: true,
        ..none()
    };
    let words_ = words("c 007 waited OWNER '' MATCH a* COUNT 5");
    assert_eq!(Scan::parse(parser::<Scan>(&words_)), Ok((7, options)));
    assert_errors(
        |words| Scan::parse(parser::<Scan>(words)).map(|_| ()),
        "
            c -1 BOGUS => invalid cursor: cursor '-1'
            c +1 => invalid cursor: cursor '+1'
            c 18446744073709551616 => invalid cursor: cursor '18446744073709551616'
            c 0 COUNT 0 => value is out of range, must be positive: COUNT '0'
            c 0 MATCH => syntax error: a value is missing after MATCH
            c 0 MATCH a MATCH a => syntax error: more than one MATCH
            c 0 USER u => syntax error: USER needs WAITED
            c 0 WAITED WAITED => syntax error: more than one WAITED
        ",
    );
}

#[test]
fn semaphore_commands_parse() {
    let id = b"i".as_slice();
    let options = Options {
        permits: 64,
        limit: std::num::NonZeroU32::new(2_147_483_647),
        session: true,
        wait: Wait::ForEver,
        ..none()
    };
    let words_ = words("c k i limit 2147483647 count 64 SESSION BLOCK 0");
    assert_eq!(
        parser::<sem::Acquire>(&words_).key_and_owner(),
        Ok((KEY, id, options))
    );
    assert_errors(
        |words| parser::<sem::Acquire>(words).key_and_owner().map(|_| ()),
        "
            c k i LIMIT 0 => value is out of range, must be positive: LIMIT '0'
            c k i LIMIT 2147483648 => value is not an integer or out of range: more than 2147483647 permits
            c k i LIMIT 1 LIMIT 0 => value is out of range, must be positive: LIMIT '0'
            c k i LIMIT 1 LIMIT 1 => syntax error: more than one LIMIT
            c k i EX 0 => invalid expire time in 'sem.acquire' command: EX '0'
            c k i SESSION EX 1 => syntax error: more than one of EX, PX, SESSION
            c k i SEQ x => value is not an integer ...
            c k i READ => syntax error: unknown option 'READ', expected COUNT, LIMIT, EX, PX, SESSION, BLOCK, NOTIFY, QUEUE, SEQ
            c k i COUNT 0 => value is out of range, must be positive: COUNT '0'
            c k i COUNT 65 => value is out of range: COUNT is at most 64 permits
            c k i COUNT 2 LIMIT 1 => syntax error: COUNT asks for more permits than LIMIT makes
            c k i COUNT x => value is not an integer or out of range: COUNT 'x'
        ",
    );
    let words_ = words("c k i");
    let parsed = parser::<sem::Release>(&words_).key_and_owner();
    assert_eq!(parsed, Ok((KEY, id, none())));
    let options = Options {
        lease: lease(9),
        names_lease: true,
        ..none()
    };
    assert_eq!(
        parser::<sem::Renew>(&words("c k i PX 9")).key_and_owner(),
        Ok((KEY, id, options))
    );
    let options = Options {
        set_if: SetIf::There,
        ..none()
    };
    assert_eq!(
        sem::Set::parse(parser::<sem::Set>(&words("c k 4294967295 xx"))),
        Ok((KEY, 4_294_967_295, options))
    );
    assert_errors(
        |words| sem::Set::parse(parser::<sem::Set>(words)).map(|_| ()),
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
    let options = Options {
        set_if: SetIf::Absent,
        ..none()
    };
    assert_eq!(
        LatchSet::parse(parser::<LatchSet>(&words("c k 0 nx"))),
        Ok((KEY, 0, options))
    );
    assert_errors(
        |words| LatchSet::parse(parser::<LatchSet>(words)).map(|_| ()),
        "
            c k -1 BOGUS => value is not an integer or out of range: count '-1'
            c k 1 NX NX => syntax error: more than one of NX, XX
        ",
    );
    for (line, by) in [("c k", 1), ("c k 3", 3)] {
        let words = words(line);
        assert_eq!(Down::parse(parser::<Down>(&words)), Ok((KEY, by)));
    }
    assert_errors(
        |words| Down::parse(parser::<Down>(words)).map(|_| ()),
        "
            c k 0 x => value is out of range, must be positive: n '0'
            c k x => value is not an integer or out of range: n 'x'
            c k 1 1 => syntax error: unknown option '1', expected none
        ",
    );
    let options = Options {
        wait: Wait::Ms(20),
        ..none()
    };
    assert_eq!(
        parser::<LatchWait>(&words("c k BLOCK 20")).key_only(),
        Ok((KEY, options))
    );
    assert_errors(
        |words| parser::<LatchWait>(words).key_only().map(|_| ()),
        "
            c k BLOCK -1 => timeout is negative: BLOCK '-1'
            c k ONCE => syntax error: unknown option 'ONCE', expected BLOCK, NOTIFY, QUEUE
        ",
    );
}

#[test]
fn every_option_of_a_table_is_known_to_the_parser() {
    for spec in ALL.iter().map(|command| command().spec) {
        for token in tokens(spec.args) {
            let words = [token.as_bytes()];
            let mut parser = Parser {
                left: words.iter(),
                settings: SETTINGS,
                spec,
            };
            let text = parser.options().map_err(|error| error.to_string());
            let is_unknown = text.is_err_and(|text| text.contains("unknown option"));
            assert!(!is_unknown, "{token} of {:?}", spec.name);
        }
    }
}
