//! Any words as the arguments of a command: the parser answers a value or an error, never panics, and
//! understands exactly the numbers that are written as the server writes them.
//!
//! The module is a library for the server alone: its allocator is the server's, so it cannot be linked
//! here. Its parser and its core are compiled from their sources instead, with stand-ins for the few
//! things of the shell that the parser uses. The module itself needs no feature, no second crate type
//! and no exported symbol for that. The options of whole commands are left to `commands`.

#![no_main]
#![allow(dead_code)]

#[path = "../../../src/commands/args.rs"]
mod args;
#[path = "../../../src/lock/mod.rs"]
mod lock;

/// The stand-ins.
mod module {
    pub mod fence {
        pub fn is_reserved(name: &[u8]) -> bool {
            let reserved: [&[u8]; 2] = [b"redis_lock:horizon", b"redisson_lock_token:"];
            reserved.iter().any(|prefix| name.starts_with(prefix))
        }
    }

    pub mod register {
        use std::ffi::CStr;

        pub enum Kind {
            Keys,
            Key,
            String,
            Integer,
            Word,
            OneOf(&'static [Arg]),
        }

        pub struct Arg {
            pub name: &'static CStr,
            pub kind: Kind,
            pub token: Option<&'static CStr>,
            pub optional: bool,
        }
    }

    pub mod settings {
        pub fn max_owner_len() -> usize {
            256
        }

        pub fn max_lease_ms() -> i64 {
            3_162_240_000_000
        }

        pub fn max_wait_ms() -> i64 {
            3_162_240_000_000
        }

        pub fn default_lease_ms() -> i64 {
            30_000
        }
    }

    pub mod strings {
        #[derive(Clone, Copy)]
        pub struct Str<'a>(pub &'a [u8]);

        impl<'a> Str<'a> {
            pub fn bytes(self) -> &'a [u8] {
                self.0
            }
        }
    }
}

use args::Args;
use libfuzzer_sys::fuzz_target;
use lock::{LockError, Wait};
use module::settings::{max_lease_ms, max_wait_ms};
use module::strings::Str;

fuzz_target!(|bytes: &[u8]| {
    // A zero byte ends a word; the first byte is no part of any.
    let (how, text) = bytes.split_first().unwrap_or((&0, &[]));
    let words: Vec<Str> = text.split(|byte| *byte == 0).map(Str).collect();
    for word in &words {
        check_number(word.0, i64::from(how % 2) * 999 + 1);
        check_owner(word.0);
        check_key(word.0);
    }
    check_options(&words);
});

/// A number as the server writes it: what comes out of printing it again.
fn number(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    let value: i64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

fn check_number(word: &[u8], unit: i64) {
    let words = [Str(b"command"), Str(word)];
    let number = number(word);
    let ms = number.and_then(|number| number.checked_mul(unit));
    match Args::new(&words).lease(unit, "lock.acquire") {
        Ok(lease) => {
            let now = lock::Now {
                wall_ms: 0,
                wall_sub_us: 0,
                mono_ms: 0,
            };
            assert_eq!(Some(lease.deadline(now)), ms);
            assert!((1..=max_lease_ms()).contains(&lease.deadline(now)));
        }
        Err(LockError::NotInteger) => assert_eq!(number, None),
        Err(LockError::InvalidExpire("lock.acquire")) => {
            assert!(number.is_some() && ms.is_none_or(|ms| ms < 1 || ms > max_lease_ms()));
        }
        Err(other) => panic!("{other:?}"),
    }
    match (Args::new(&words).wait(), number) {
        (Ok(Wait::ForEver), Some(0)) => {}
        (Ok(Wait::Ms(ms)), Some(wanted)) => {
            assert!(wanted <= max_wait_ms() && i64::try_from(ms) == Ok(wanted));
        }
        (Err(LockError::TimeoutNotInteger), None) => {}
        (Err(LockError::TimeoutNegative), Some(wanted)) => assert!(wanted < 0),
        (Err(LockError::TimeoutOutOfRange), Some(wanted)) => assert!(wanted > max_wait_ms()),
        (other, _) => panic!("{other:?} of {word:?}"),
    }
    let positive = number.filter(|number| *number >= 0).map(i64::unsigned_abs);
    assert_eq!(Args::new(&words).token().ok(), positive);
    let counted = positive
        .filter(|count| *count > 0)
        .map(|count| count as usize);
    assert_eq!(Args::new(&words).count().ok(), counted);
}

fn check_owner(word: &[u8]) {
    let words = [Str(b"command"), Str(word)];
    match Args::new(&words).owner() {
        Ok(owner) => assert_eq!(owner.bytes(), word),
        Err(LockError::OwnerEmpty) => assert!(word.is_empty()),
        Err(LockError::OwnerTooLong) => assert!(word.len() > 256),
        Err(LockError::OwnerReserved) => assert_eq!(word, b"#token"),
        Err(other) => panic!("{other:?}"),
    }
}

fn check_key(word: &[u8]) {
    let words = [Str(b"command"), Str(word)];
    match Args::new(&words).key() {
        Ok(key) => assert_eq!(key.bytes(), word),
        Err(LockError::KeyReserved) => {
            let reserved: [&[u8]; 2] = [b"redis_lock:horizon", b"redisson_lock_token:"];
            assert!(reserved.iter().any(|prefix| word.starts_with(prefix)));
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Every word behind the name is seen once, in upper case, and then there are no more, whatever is
/// asked for.
fn check_options(words: &[Str<'_>]) {
    let mut args = Args::new(words);
    for word in words.iter().skip(1) {
        let option = args.option().expect("a word is left");
        let cut = &word.0[..word.0.len().min(16)];
        assert!(option.eq_ignore_ascii_case(cut) && !option.iter().any(u8::is_ascii_lowercase));
    }
    assert!(args.option().is_none());
    for error in [
        args.token().err(),
        args.wait().err(),
        args.owner().err(),
        args.count().err(),
    ] {
        assert_eq!(error, Some(LockError::Syntax));
    }
}
