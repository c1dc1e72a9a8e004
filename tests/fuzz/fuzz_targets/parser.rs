//! Any words as a whole command, parsed without a server: the parser never panics, does not depend on the case of
//! options, leaves no word over, and gives every error a text that begins with its code.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use redis_lock::commands::parser::{ParseSettings, Parser};
use redis_lock::commands::{latch, lock, sem};
use redis_lock::lock::LockError;
use redis_lock::module::entry::command::Command;

const SETTINGS: ParseSettings = ParseSettings {
    max_owner_len: 16,
    max_lease_ms: 60_000,
    max_wait_ms: 5_000,
    default_lease_ms: 30_000,
};

/// Words that one byte of the input stands for, from byte 1 on.
const DICTIONARY: [&[u8]; 28] = [
    b"READ",
    b"WRITE",
    b"EX",
    b"PX",
    b"SESSION",
    b"BLOCK",
    b"ONCE",
    b"WITHHOLDER",
    b"ALL",
    b"TOKEN",
    b"PURGE",
    b"WAITERS",
    b"COUNT",
    b"MATCH",
    b"OWNER",
    b"WAITED",
    b"LIMIT",
    b"NX",
    b"XX",
    b"1",
    b"0",
    b"5001",
    b"NOTIFY",
    b"USER",
    b"SEQ",
    b"FINAL",
    b"NOTE",
    b"TO",
];

fuzz_target!(|bytes: &[u8]| {
    let (command, text) = bytes.split_first().unwrap_or((&0, &[]));
    // A zero byte ends a word.
    let behind = text.split(|byte| *byte == 0).map(expand);
    let words: Vec<&[u8]> = [b"command".as_slice()].into_iter().chain(behind).collect();
    match command % 14 {
        0 => check(&words, 3, |w| {
            parser::<lock::acquire::Acquire>(w).key_and_owner().map(text_of)
        }),
        1 => check(&words, 3, |w| {
            parser::<lock::release::Release>(w).key_and_owner().map(text_of)
        }),
        2 => check(&words, 3, |w| {
            parser::<lock::release::Renew>(w).key_and_owner().map(text_of)
        }),
        3 => check(&words, 2, |w| {
            parser::<lock::release::Break>(w).key_only().map(text_of)
        }),
        4 => check(&words, 2, |w| {
            parser::<lock::info::Info>(w).key_only().map(text_of)
        }),
        5 => check(&words, 3, |w| {
            parser::<sem::Acquire>(w).key_and_owner().map(text_of)
        }),
        6 => check(&words, 3, |w| {
            parser::<sem::Renew>(w).key_and_owner().map(text_of)
        }),
        7 => check(&words, 3, |w| sem::Set::parse(parser::<sem::Set>(w)).map(text_of)),
        8 => check(&words, 3, |w| {
            latch::Set::parse(parser::<latch::Set>(w)).map(text_of)
        }),
        9 => check(&words, 2, |w| parser::<latch::Wait>(w).key_only().map(text_of)),
        10 => check(&words, 2, |w| {
            latch::Down::parse(parser::<latch::Down>(w)).map(text_of)
        }),
        // Here the place of the options depends on the number of keys, or values keep their case.
        11 => check(&words, words.len(), |w| {
            parser::<lock::many::AcquireMany>(w).keys_and_owner().map(text_of)
        }),
        12 => check(&words, words.len(), |w| {
            parser::<lock::many::RenewMany>(w).keys_and_owner().map(text_of)
        }),
        _ => check(&words, words.len(), |w| {
            lock::list::Scan::parse(parser::<lock::list::Scan>(w)).map(text_of)
        }),
    }
});

/// A word of the input: one of the dictionary for a single low byte.
fn expand(word: &[u8]) -> &[u8] {
    let short = match word {
        [byte] => DICTIONARY.get(usize::from(*byte).wrapping_sub(1)),
        _ => None,
    };
    short.copied().unwrap_or(word)
}

fn parser<'w, C: Command>(words: &'w [&'w [u8]]) -> Parser<'w, &'w [u8]> {
    Parser::new::<C>(words, SETTINGS)
}

fn text_of(command: impl Debug) -> String {
    format!("{command:?}")
}

/// Checks a command whose options begin at this word.
fn check(
    words: &[&[u8]],
    options: usize,
    parse: impl Fn(&[&[u8]]) -> Result<String, LockError>,
) {
    let parse = |words: &[&[u8]]| parse(words).map_err(|error| error.to_string());
    let parsed = parse(words);
    let lower: Vec<_> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let both = words.iter().zip(&lower).enumerate();
    let other_case: Vec<&[u8]> = both
        .map(|(at, (word, lower))| if at < options { *word } else { lower.as_slice() })
        .collect();
    // An error shows the words as they were sent.
    let caseless = |parsed: Result<String, String>| parsed.map_err(|error| error.to_lowercase());
    assert_eq!(caseless(parse(&other_case)), caseless(parsed.clone()));
    match parsed {
        Ok(_) => {
            let longer: Vec<&[u8]> = words.iter().copied().chain([b"BOGUS".as_slice()]).collect();
            assert!(parse(&longer).is_err(), "a word was left over");
        }
        Err(error) => assert!(error.starts_with("ERR ")),
    }
}
