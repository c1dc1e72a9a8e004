//! Any words as the values of a command: the parser returns a value or an error, never panics, and understands exactly
//! the numbers that are written in the server's form. Whole commands are left to the target `parser`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_lock::commands::lock::acquire::Acquire;
use redis_lock::commands::parser::{ParseSettings, Parser};
use redis_lock::lock::{LockError, Now, Wait};

const SETTINGS: ParseSettings = ParseSettings {
    max_owner_len: 256,
    max_lease_ms: 3_162_240_000_000,
    max_wait_ms: 3_162_240_000_000,
    default_lease_ms: 30_000,
};

fn parser<'w>(words: &'w [&'w [u8]]) -> Parser<'w, &'w [u8]> {
    Parser::new::<Acquire>(words, SETTINGS)
}

/// Whether the error begins so, behind its code, and is one short line.
fn is(error: &LockError, begin: &str) -> bool {
    let text = error.to_string();
    assert!(text.len() < 400 && !text.contains(char::is_control), "{text:?}");
    text.strip_prefix("ERR ").is_some_and(|text| text.starts_with(begin))
}

fuzz_target!(|bytes: &[u8]| {
    // A zero byte ends a word; the first byte chooses the unit of leases.
    let (how, text) = bytes.split_first().unwrap_or((&0, &[]));
    let words: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    for word in &words {
        check_number(word, i64::from(how % 2) * 999 + 1);
        check_owner(*word);
        check_key(*word);
    }
    check_options(&words);
});

/// A number in the server's form: printing it gives the same word.
fn number(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    let value: i64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

fn check_number(word: &[u8], unit: i64) {
    let words = [b"command".as_slice(), word];
    let number = number(word);
    let ms = number.and_then(|number| number.checked_mul(unit));
    match parser(&words).lease("EX", unit) {
        Ok(lease) => {
            let now = Now {
                wall_ms: 0,
                wall_sub_us: 0,
                mono_ms: 0,
            };
            assert_eq!(Some(lease.deadline(now)), ms);
            assert!((1..=SETTINGS.max_lease_ms).contains(&lease.deadline(now)));
        }
        Err(error) if is(&error, "value is not an integer") => assert_eq!(number, None),
        Err(error) => {
            assert!(is(&error, "invalid expire time in 'lock.acquire' command"));
            assert!(number.is_some() && ms.is_none_or(|ms| ms < 1 || ms > SETTINGS.max_lease_ms));
        }
    }
    match (parser(&words).wait(), number) {
        (Ok(Wait::ForEver), Some(0)) => {}
        (Ok(Wait::Ms(ms)), Some(wanted)) => {
            assert!(wanted <= SETTINGS.max_wait_ms && i64::try_from(ms) == Ok(wanted));
        }
        (Err(error), None) => assert!(is(&error, "timeout is not an integer")),
        (Err(error), Some(..0)) => assert!(is(&error, "timeout is negative")),
        (Err(error), Some(wanted)) => {
            assert!(wanted > SETTINGS.max_wait_ms && is(&error, "timeout is out of range"));
        }
        (other, _) => panic!("{other:?} of {word:?}"),
    }
    let positive = number.filter(|number| *number >= 0).map(i64::unsigned_abs);
    assert_eq!(parser(&words).token().ok(), positive);
    let counted = positive
        .filter(|count| *count > 0)
        .map(|count| count as usize);
    assert_eq!(parser(&words).count().ok(), counted);
}

fn check_owner(word: &[u8]) {
    let words = [b"command".as_slice(), word];
    match parser(&words).owner("the command") {
        Ok(owner) => assert_eq!(owner, word),
        Err(LockError::OwnerEmpty) => assert!(word.is_empty()),
        Err(LockError::OwnerTooLong) => assert!(word.len() > 256),
        Err(LockError::OwnerReserved) => assert!(word.starts_with(b"#")),
        Err(other) => panic!("{other:?}"),
    }
}

fn check_key(word: &[u8]) {
    let words = [b"command".as_slice(), word];
    match parser(&words).key() {
        Ok(key) => assert_eq!(key, word),
        Err(LockError::KeyReserved) => {
            let reserved: [&[u8]; 2] = [b"redis_lock:horizon", b"redisson_lock_token:"];
            assert!(reserved.iter().any(|prefix| word.starts_with(prefix)));
        }
        Err(LockError::KeyBesideLock) => {
            let text = String::from_utf8_lossy(word);
            let name = text.trim_end_matches(|digit: char| digit.is_ascii_digit());
            assert!(text.ends_with(":rwlock_token") || name.contains(":rwlock_timeout:"));
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Words are options, or an error names the first that is none; behind the last word every value is a syntax error.
fn check_options(words: &[&[u8]]) {
    let mut parser = parser(words);
    if let Err(error) = parser.options() {
        assert!(is(&error, ""));
        return;
    }
    for error in [
        parser.token().err(),
        parser.wait().err(),
        parser.owner("the command").err(),
        parser.count().err(),
    ] {
        assert!(error.is_some_and(|error| is(&error, "syntax error")));
    }
}
