//! Keys of any bytes: named in hexadecimal where no argument can hold them.

use redis_lock_harness::TestServer;

use crate::program::{program, start, start_args, Running};

const KEY: &str = "6b00ff";
const NAMES: &str = "echo \"${LOCK_KEY-none}\" \"$LOCK_KEY_HEX\"";

fn acquire(real: &TestServer, key: &[u8]) {
    let reply = real.conn().run([b"LOCK.ACQUIRE", key, b"other"]);
    assert!(reply.int() > 0);
}

#[test]
fn run_takes_a_key_in_hexadecimal() {
    let real = TestServer::start();
    let words: [&[&str]; 4] = [
        &["--key-hex", KEY, "--"],
        &["--key-hex", KEY],
        &["--key-hex=6B00FF", "-n"],
        &["-n", "--key-hex", KEY, "--verbose"],
    ];
    for options in words {
        let args = ["run"].iter().chain(options).chain(&["sh", "-c", NAMES]);
        let run = start_args(&real, args);
        assert_eq!(run.end().ok(), "none 6b00ff\n", "{options:?}");
    }
    acquire(&real, b"k\0\xff");
    assert_eq!(start(&real, "run -n --key-hex 6b00ff true").end().code(), 1);
    assert_eq!(start(&real, "run -n --key-hex 6b true").end().code(), 0);
}

#[test]
fn the_command_finds_the_key_as_text_too_where_it_has_no_nul() {
    let real = TestServer::start();
    for named in [&["k"][..], &["--key-hex", "6b"]] {
        let args = ["run"].iter().chain(named).chain(&["sh", "-c", NAMES]);
        let mut command = program(&real);
        let command = command.env("LOCK_KEY", "outer").args(args);
        assert_eq!(Running::of(command).end().ok(), "k 6b\n");
    }
}

/// The kernel limits the length of a variable.
#[test]
fn the_command_of_a_long_key_has_it_as_text_or_not_at_all() {
    let real = TestServer::start();
    let names = "echo ${#LOCK_KEY} ${LOCK_KEY_HEX-none}";
    let long = "k".repeat(70_000);
    let run = start_args(&real, ["run", &long, "sh", "-c", names]);
    assert_eq!(run.end().ok(), "70000 none\n");
}

#[test]
fn an_option_of_the_command_stays_its_own() {
    let real = TestServer::start();
    for words in [
        "run k echo --key-hex 6c",
        "run k -- echo --key-hex 6c",
        "run --key-hex 6b echo --key-hex 6c",
    ] {
        assert_eq!(start(&real, words).end().ok(), "--key-hex 6c\n", "{words}");
    }
}

#[test]
fn info_and_break_take_a_key_in_hexadecimal() {
    let real = TestServer::start();
    acquire(&real, b"k\0\xff");
    let info = start(&real, "info --json --key-hex 6b00ff").end().ok();
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["key_hex"], KEY);
    assert_eq!(info["holders"][0]["owner"], "other");
    assert_eq!(start(&real, "break --key-hex 6b").end().code(), 1);
    let broken = start(&real, "break --key-hex 6b00ff").end().ok();
    assert!(broken.starts_with("k\\0\\xff: broken, was held by other, "));
    assert_eq!(start(&real, "info --key-hex 6b00ff").end().code(), 1);
}

/// `ls --json` tells the bytes of every key that cannot be an argument.
#[test]
fn a_key_with_a_nul_is_listed_with_its_bytes() {
    let real = TestServer::start();
    acquire(&real, b"k\0");
    let line = start(&real, "ls --json").end().ok();
    let lock: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(lock["key_hex"], "6b00");
}

#[test]
fn one_key_is_named_once_and_in_whole_bytes() {
    let real = TestServer::start();
    for (words, said) in [
        ("run k --key-hex 6b true", "once"),
        ("run --key-hex 6b", "<COMMAND>"),
        ("run --key-hex 6 true", "two hexadecimal digits"),
        ("run --key-hex", "--key-hex"),
        ("info k --key-hex 6b", "cannot be used with"),
        ("info --key-hex xy", "two hexadecimal digits"),
        ("break k --key-hex 6b", "cannot be used with"),
        ("info", "KEY"),
    ] {
        let end = start(&real, words).end();
        assert_eq!(end.code(), 64, "{words}: {}", end.err);
        assert!(end.err.contains(said), "{words}: {}", end.err);
    }
}
