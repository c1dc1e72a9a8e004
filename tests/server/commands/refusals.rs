//! Refused calls: the error texts, which are the server's own where it has one, and the absence of any trace.

use crate::common::{Bystander, Conn, Events, TestServer};

const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
const BAD_TIMEOUT: &str = "ERR timeout is not an integer or out of range";
const BAD_ACQUIRE: &str = "ERR invalid expire time in 'lock.acquire' command";
const BAD_RENEW: &str = "ERR invalid expire time in 'lock.renew' command";
const SYNTAX: &str = "ERR syntax error";

/// Words that the server's own parser of integers refuses.
const NO_INTEGERS: [&str; 20] = [
    "",
    " ",
    " 1",
    "1 ",
    "+1",
    "1.0",
    "1e3",
    "0x1",
    "01",
    "-0",
    "-",
    "--1",
    "NaN",
    "nan",
    "inf",
    "1k",
    "1\0",
    "9223372036854775808",
    "-9223372036854775809",
    "100000000000000000000000000000000000000000",
];

/// Every way to pass a number, and the error for a word that is none.
const NUMBERS: [(&str, &str); 9] = [
    ("LOCK.ACQUIRE k o EX", NOT_INTEGER),
    ("LOCK.ACQUIRE k o PX", NOT_INTEGER),
    ("LOCK.ACQUIRE k o BLOCK", BAD_TIMEOUT),
    ("LOCK.RELEASE k o TOKEN", NOT_INTEGER),
    ("LOCK.RENEW k o EX", NOT_INTEGER),
    ("LOCK.RENEW k o PX", NOT_INTEGER),
    ("LOCK.RENEW k o TOKEN", NOT_INTEGER),
    ("LOCK.BREAK k TOKEN", NOT_INTEGER),
    ("LOCK.INFO k WAITERS COUNT", NOT_INTEGER),
];

/// The error of a line with one more word, which may be any text.
fn error(conn: &mut Conn, line: &str, word: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    words.push(word);
    let reply = conn.run(words);
    assert!(reply.is_error(), "{line} {word:?} was answered {reply:?}");
    reply.error()
}

/// An error about the last word of a line, in the server's wording: the option before the word is named too.
fn about(wording: &str, line: &str, word: &str) -> String {
    let option = line.rsplit(' ').next().unwrap();
    let cut = word.get(..32).filter(|_| word.len() > 32);
    let shown = cut.map_or(word.replace('\0', "\\x00"), |cut| format!("{cut}..."));
    format!("{wording}: {option} '{shown}'")
}

/// The states of the key `k`: free, held by `o`, held by another owner.
const STATES: [&str; 3] = ["DEL k", "HSET k o 2 #token t7", "HSET k p 1 #token t7"];

/// Runs the body in each state of the key, and asserts with a bystander that nothing changed.
fn without_a_trace(what: &str, mut body: impl FnMut(&mut Conn)) {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("LOCK.ACQUIRE warm up");
    for state in STATES {
        conn.line("DEL k");
        conn.line(state);
        conn.line("PEXPIRE k 600000");
        let bystander = Bystander::of(&server, "k");
        body(&mut conn);
        bystander.saw_nothing(&format!("{what} after {state}"));
    }
}

#[test]
fn a_number_that_is_no_integer_is_refused_in_the_words_of_the_core() {
    without_a_trace("words that are no integers", |conn| {
        for (line, expected) in NUMBERS {
            for word in NO_INTEGERS {
                assert_eq!(error(conn, line, word), about(expected, line, word));
            }
        }
    });
}

#[test]
fn the_core_refuses_the_same_words_with_texts_that_begin_alike() {
    let server = TestServer::start();
    let mut c = server.conn();
    for word in NO_INTEGERS {
        assert_eq!(error(&mut c, "SET s v EX", word), NOT_INTEGER, "{word:?}");
        let core = c.run(["XREAD", "BLOCK", word, "STREAMS", "x", "$"]);
        assert_eq!(core.error(), BAD_TIMEOUT, "{word:?}");
    }
    let set = BAD_ACQUIRE.replace("lock.acquire", "set");
    assert_eq!(c.line("SET s v EX 0").error(), set);
    assert_eq!(c.line("SET s v EX 9223372036854775807").error(), set);
    assert_eq!(
        c.line("XREAD BLOCK -1 STREAMS x $").error(),
        "ERR timeout is negative"
    );
    assert_eq!(c.line("SET s v EX 1 PX 2").error(), SYNTAX);
    c.line("SET s v");
    let core = c.line("HGET s f").error();
    assert_eq!(c.line("LOCK.ACQUIRE s o").error(), core);
}

#[test]
fn numbers_out_of_range_are_refused_before_anything_is_written() {
    const MAX: &str = "9223372036854775807";
    const MIN: &str = "-9223372036854775808";
    const CENTURY_AND_1: &str = "3162240000001";
    without_a_trace("numbers out of range", |conn| {
        for word in ["0", "-1", MIN, MAX, CENTURY_AND_1, "9223372036854776"] {
            for unit in ["EX", "PX"] {
                let acquire = format!("LOCK.ACQUIRE k o {unit}");
                let expected = about(BAD_ACQUIRE, unit, word);
                assert_eq!(error(conn, &acquire, word), expected);
                let renew = format!("LOCK.RENEW k o {unit}");
                assert_eq!(error(conn, &renew, word), about(BAD_RENEW, unit, word));
            }
        }
        for word in ["-1", MIN] {
            let text = error(conn, "LOCK.ACQUIRE k o BLOCK", word);
            assert_eq!(text, about("ERR timeout is negative", "BLOCK", word));
        }
        for word in [CENTURY_AND_1, MAX] {
            let text = error(conn, "LOCK.ACQUIRE k o BLOCK", word);
            assert_eq!(text, about("ERR timeout is out of range", "BLOCK", word));
        }
        for line in [
            "LOCK.RELEASE k o TOKEN",
            "LOCK.RENEW k o TOKEN",
            "LOCK.BREAK k TOKEN",
        ] {
            assert_eq!(error(conn, line, "-1"), about(NOT_INTEGER, line, "-1"));
        }
        for word in ["0", "-1", MIN] {
            let text = error(conn, "LOCK.INFO k WAITERS COUNT", word);
            let wording = "ERR value is out of range, must be positive";
            assert_eq!(text, about(wording, "COUNT", word));
        }
    });
}

#[test]
fn options_that_are_unknown_doubled_or_cut_short_are_a_syntax_error_that_names_the_word() {
    const LINES: [&str; 44] = [
        "LOCK.ACQUIRE k o READ READ",
        "LOCK.ACQUIRE k o READ WRITE",
        "LOCK.ACQUIRE k o SESSION SESSION",
        "LOCK.ACQUIRE k o SESSION PX 60",
        "LOCK.ACQUIRE k o EX 60 SESSION",
        "LOCK.ACQUIRE k o ALL",
        "LOCK.ACQUIRE k o TOKEN 7",
        "LOCK.ACQUIRE k o NX",
        "LOCK.ACQUIRE k o 30000",
        "LOCK.ACQUIRE k o EX",
        "LOCK.ACQUIRE k o PX",
        "LOCK.ACQUIRE k o BLOCK",
        "LOCK.ACQUIRE k o EX 60 EX 60",
        "LOCK.ACQUIRE k o PX 60 PX 60",
        "LOCK.ACQUIRE k o EX 60 PX 60",
        "LOCK.ACQUIRE k o BLOCK 1 BLOCK 1",
        "LOCK.ACQUIRE k o ONCE ONCE",
        "LOCK.ACQUIRE k o WITHHOLDER WITHHOLDER",
        "LOCK.ACQUIRE k o ONCE PX 60 more",
        "LOCK.ACQUIRE k o WITHHOLDERWITHHOLDERWITHHOLDER",
        "LOCK.RELEASE k o READ READ",
        "LOCK.RELEASE k o WRITE READ",
        "LOCK.RELEASE k o PX 60",
        "LOCK.RELEASE k o 1",
        "LOCK.RELEASE k o TOKEN",
        "LOCK.RELEASE k o TOKEN 7 TOKEN 7",
        "LOCK.RELEASE k o ALL ALL",
        "LOCK.RENEW k o WRITE WRITE",
        "LOCK.RENEW k o READ WRITE",
        "LOCK.RENEW k o BLOCK 1",
        "LOCK.RENEW k o ONCE",
        "LOCK.RENEW k o SESSION",
        "LOCK.RENEW k o EX 60 PX 60",
        "LOCK.RENEW k o TOKEN 7 TOKEN 7",
        "LOCK.RENEW k o PX 60 TOKEN",
        "LOCK.BREAK k o",
        "LOCK.BREAK k PURGE PURGE",
        "LOCK.BREAK k TOKEN",
        "LOCK.BREAK k TOKEN 7 TOKEN 7",
        "LOCK.INFO k COUNT 3",
        "LOCK.INFO k WAITERS 3",
        "LOCK.INFO k WAITERS COUNT",
        "LOCK.INFO k WAITERS COUNT 3 COUNT 3",
        "LOCK.INFO k WAITERS WAITERS",
    ];
    without_a_trace("options out of place", |conn| {
        for line in LINES {
            let reply = conn.line(line);
            assert!(reply.is_error(), "{line} was answered {reply:?}");
            let text = reply.error();
            let detail = text.strip_prefix(SYNTAX).unwrap_or_default();
            let is_named = |word: &str| {
                detail.contains(&format!("'{word}'")) || (word.len() > 1 && detail.contains(word))
            };
            let mut words = line.split(' ').skip(2);
            assert!(words.any(is_named), "{line} was answered {text}");
        }
        let long = "w".repeat(100_000);
        for (odd, shown) in [
            ("", ""),
            ("px\0", "px\\x00"),
            ("BLOCK ", "BLOCK "),
            ("%s%n", "%s%n"),
            ("\r\n", "\\r\\n"),
            (&long, &format!("{}...", "w".repeat(32))),
        ] {
            for (line, expected) in [
                (
                    "LOCK.ACQUIRE k o",
                    "READ, WRITE, EX, PX, SESSION, BLOCK, NOTIFY, QUEUE, ONCE, WITHHOLDER, SEQ, NOTE",
                ),
                ("LOCK.BREAK k", "TOKEN, PURGE, USER, TO, EX, PX, SEQ, NOTE"),
            ] {
                let expected = format!("{SYNTAX}: unknown option '{shown}', expected {expected}");
                assert_eq!(error(conn, line, odd), expected);
            }
        }
    });
}

#[test]
fn the_server_checks_the_number_of_arguments() {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "lock.acquire",
        "lock.acquire k",
        "lock.release",
        "lock.release k",
        "lock.renew",
        "lock.renew k",
        "lock.break",
        "lock.if k 1 get",
        "lock.info",
        "lock.owner now",
    ] {
        let name = line.split(' ').next().unwrap();
        assert_eq!(
            c.line(line).error(),
            format!("ERR wrong number of arguments for '{name}' command"),
            "{line}"
        );
    }
}

#[test]
fn owners_that_are_empty_too_long_or_reserved_are_refused() {
    without_a_trace("owners that cannot be", |conn| {
        for command in ["LOCK.ACQUIRE k", "LOCK.RELEASE k", "LOCK.RENEW k"] {
            assert_eq!(error(conn, command, ""), "ERR owner is empty");
            assert_eq!(
                error(conn, command, "#token"),
                "ERR owners that begin with '#' are reserved"
            );
        }
        assert_eq!(
            error(conn, "LOCK.ACQUIRE k", &"x".repeat(257)),
            "ERR owner is longer than lock.max-owner-len"
        );
    });
}

#[test]
fn the_modules_own_keys_are_no_locks() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o");
    for key in ["redis_lock:horizon", "redis_lock:horizon:{7}"] {
        let bystander = Bystander::of(&server, key);
        for line in [
            "LOCK.ACQUIRE KEY o BLOCK 0",
            "LOCK.RELEASE KEY o",
            "LOCK.RENEW KEY o",
            "LOCK.BREAK KEY PURGE",
            "LOCK.INFO KEY",
        ] {
            assert_eq!(
                c.line(&line.replace("KEY", key)).error(),
                "ERR keys that begin with 'redis_lock:horizon' or 'redisson_lock_token:' are reserved"
            );
        }
        bystander.saw_nothing(key);
    }
}

#[test]
fn a_hold_count_that_would_overflow_is_refused_before_anything_is_written() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm up");
    c.line("HSET k o 2147483646");
    c.line("PEXPIRE k 60000");
    let token = c.line("LOCK.ACQUIRE k o").int();
    assert_eq!(c.line("HGET k o").text(), "2147483647");
    let bystander = Bystander::of(&server, "k");
    let refused = c.line("LOCK.ACQUIRE k o PX 900000").error();
    assert_eq!(refused, "ERR hold count would overflow");
    bystander.saw_nothing("an overflow");
    assert_eq!(c.line("LOCK.ACQUIRE k o ONCE").int(), token);
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 0);
    assert_eq!(c.line("HGET k o").text(), "2147483646");
    assert_eq!(c.line("LOCK.RELEASE k o ALL").int(), 1);
    // A hold without a token gets none either when it overflows.
    c.line("HSET k o 2147483647");
    let bystander = Bystander::of(&server, "k");
    assert!(c.line("LOCK.ACQUIRE k o").is_error());
    bystander.saw_nothing("an overflow of a plain hold");
}

#[test]
fn a_token_from_the_far_future_concerns_its_own_lock_only() {
    let server = TestServer::start();
    let mut c = server.conn();
    let hour_us = 3_600_000_000;
    let now_us = c.line("TIME").list()[0].text().parse::<u64>().unwrap() * 1_000_000;
    let in_hours = [2, 99 * 365 * 24, 200 * 365 * 24].map(|hours| now_us + hours * hour_us);
    let refused = |key: &str| {
        format!(
            "ERR the token stored with the lock {key} is more than an hour ahead of the clock, delete the key"
        )
    };
    let beyond = [(1 << 53) - 1, 1 << 53, u64::MAX];
    let tokens = in_hours.into_iter().chain(beyond);
    for (number, token) in (1..).zip(tokens) {
        for owner in ["", "o 1 "] {
            c.line(&format!("HSET k {owner}#token t{token}"));
            let bystander = Bystander::of(&server, "k");
            for line in [
                "LOCK.ACQUIRE k o",
                "LOCK.ACQUIRE k o BLOCK 0 WITHHOLDER",
                "LOCK.ACQUIRE k o ONCE",
                "LOCK.RENEW k o",
                "LOCK.MACQUIRE 2 j k o",
                "LOCK.MRENEW 2 j k o",
            ] {
                assert_eq!(c.line(line).error(), refused("\"k\""), "{line} at {token}");
            }
            bystander.saw_nothing("a token far ahead");
            c.line("DEL k");
        }
        assert_eq!(server.stat("tokens_implausible"), number * 12);
    }
    c.line("HSET k o 1 #token t9007199254740992");
    assert_eq!(
        c.line("LOCK.INFO k").field("mode").unwrap().text(),
        "exclusive"
    );
    assert_eq!(
        c.line("LOCK.RELEASE k o").int(),
        1,
        "its holder can release it"
    );
    assert!(c.line("LOCK.ACQUIRE k o").int() > 0);
    c.run(["HSET", "\0\n\u{ff}", "#token", "t9007199254740991"]);
    let error = c.run(["LOCK.ACQUIRE", "\0\n\u{ff}", "o"]).error();
    assert_eq!(error, refused(r#""\x00\n\xc3\xbf""#));
    c.line("LOCK.ACQUIRE w o WRITE");
    c.line("SET {w}:rwlock_token w9007199254740992:o");
    assert_eq!(c.line("LOCK.ACQUIRE w o WRITE").error(), refused("\"w\""));
    c.line(&format!("SET {{w}}:rwlock_token w{}:o", in_hours[0]));
    assert_eq!(c.line("LOCK.ACQUIRE w o WRITE").error(), refused("\"w\""));
    let token = c.line("LOCK.ACQUIRE j o").int() as u64;
    assert!(token < now_us + hour_us, "other locks work as before");
}

/// Commands that check the layout of the key before anything else.
const ALL_COMMANDS: [&str; 15] = [
    "LOCK.ACQUIRE k u:1",
    "LOCK.ACQUIRE k u:1 ONCE WITHHOLDER",
    "LOCK.ACQUIRE k o BLOCK 0 PX 5",
    "LOCK.RELEASE k u:1",
    "LOCK.RELEASE k u:1 ALL",
    "LOCK.RELEASE k u:1 TOKEN 7",
    "LOCK.RENEW k u:1",
    "LOCK.RENEW k u:1 PX 5",
    "LOCK.RENEW k u:1 TOKEN 7",
    "LOCK.BREAK k",
    "LOCK.BREAK k PURGE",
    "LOCK.BREAK k TOKEN 7",
    "LOCK.INFO k",
    "LOCK.INFO k WAITERS",
    "LOCK.INFO k WAITERS COUNT 3",
];

/// Every command refuses the key that these lines create, with this error and without a trace.
fn is_refused(server: &TestServer, makes: &[&str], expected: &str) {
    let mut conn = server.conn();
    for lasting in [true, false] {
        conn.line("DEL k");
        for make in makes {
            assert!(!conn.line(make).is_error(), "{make}");
        }
        if !lasting {
            conn.line("PEXPIRE k 600000");
        }
        let bystander = Bystander::of(server, "k");
        for line in ALL_COMMANDS {
            let reply = conn.line(line);
            assert!(
                reply.is_error(),
                "{line} after {makes:?} was answered {reply:?}"
            );
            assert_eq!(reply.error(), expected, "{line} after {makes:?}");
        }
        bystander.saw_nothing(&format!("commands after {makes:?}"));
    }
}

#[test]
fn keys_of_other_types_are_refused_and_never_changed() {
    const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let server = TestServer::start();
    for make in [
        "SET k v",
        "SET k 1",
        "SETBIT k 7 1",
        "PFADD k a",
        "RPUSH k u:1 1",
        "SADD k u:1",
        "SADD k 1",
        "ZADD k 1 u:1",
        "GEOADD k 1 1 u:1",
        "XADD k * u:1 1",
    ] {
        is_refused(&server, &[make], WRONG_TYPE);
    }
}

#[test]
fn hashes_of_other_layouts_are_refused_and_never_changed() {
    const LOCK_TYPE: &str = "LOCKTYPE the key holds a hash that is no lock";
    let server = TestServer::start();
    for make in [
        "HSET k name Ada",
        "HSET k u:1 0",
        "HSET k u:1 -1",
        "HSET k u:1 01",
        "HSET k u:1 1.5",
        "HSET k u:1 2147483648",
        "HSET k u:1 99999999999999999999",
        "HSET k u:1 1 u:2 1",
        "HSET k u:1 1 u:2 1 #token t7",
        "HSET k mode read u:1 x",
        "HSET k mode write u:1 1",
        "HSET k mode read #token t7",
        "HSET k mode read u:1 1 u:1:write 1",
        "HSET k #token 7",
        "HSET k #token t",
        "HSET k #token t0",
        "HSET k #token t07",
        "HSET k #token t-7",
        "HSET k #token t7x u:1 1",
        "HSET k TOKEN t7 u:1 1",
    ] {
        is_refused(&server, &[make], LOCK_TYPE);
    }
    is_refused(
        &server,
        &["HSET k u:1 1", "HINCRBYFLOAT k u:1 0.5"],
        LOCK_TYPE,
    );
    let wide: String = (0..600).map(|i| format!(" u:{i} 1")).collect();
    is_refused(&server, &[&format!("HSET k{wide}")], LOCK_TYPE);
    let mut c = server.conn();
    // Readers that left a TTL behind are dead; without a TTL, and without timeouts, the hash may be foreign data.
    c.line("DEL k");
    c.line("HSET k mode read u:1 1");
    for line in [
        "LOCK.ACQUIRE k u:1",
        "LOCK.ACQUIRE k u:1 READ",
        "LOCK.BREAK k",
        "LOCK.INFO k",
    ] {
        assert_eq!(c.line(line).error(), LOCK_TYPE, "{line}");
    }
    c.line("DEL k");
    c.run(["HSET", "k", "u:1", ""]);
    assert_eq!(c.line("LOCK.ACQUIRE k u:1").error(), LOCK_TYPE);
}

#[test]
fn a_name_or_a_value_longer_than_a_lock_can_have_is_no_locks() {
    const LOCK_TYPE: &str = "LOCKTYPE the key holds a hash that is no lock";
    let server = TestServer::start();
    let long = "x".repeat(65_793);
    let digits = "9".repeat(65_793);
    for make in [
        format!("HSET k {long} 1"),
        format!("HSET k u:1 {long}"),
        format!("HSET k u:1 1 #token t{digits}"),
        format!("HSET k u:1 1 #note:u:1 {long}"),
        format!("HSET k u:1 1 #token t7 #{long} x"),
        format!("HSET k mode read {long} 1"),
        format!("HSET k mode read u:1 {long}"),
        format!("HSET k mode {long}"),
    ] {
        is_refused(&server, &[&make], LOCK_TYPE);
    }
}

#[test]
fn an_id_longer_than_a_permit_can_have_is_no_permits() {
    let server = TestServer::start();
    let mut c = server.conn();
    let long = "x".repeat(65_793);
    // A permit that lasts, and one that is over.
    for end_ms in [9_000_000_000_000_u64, 1_600_000_000_000] {
        c.line("DEL k {k}:timeout");
        c.line("SET k 0");
        c.line(&format!("ZADD {{k}}:timeout {end_ms} {long}"));
        let before = c.line("DUMP {k}:timeout").bytes();
        for command in [
            "SEM.ACQUIRE k p",
            "SEM.RENEW k id",
            "SEM.RELEASE k id",
            "SEM.SET k 3",
            "SEM.INFO k",
        ] {
            let error = c.line(command).error();
            assert!(
                error.starts_with("WRONGTYPE a key beside"),
                "{command}: {error}"
            );
        }
        // The number counts as that of a latch, also if the long id is the last one.
        assert_eq!(c.line("LATCH.WAIT k").int(), 1);
        assert_eq!(c.line("DUMP {k}:timeout").bytes(), before);
        c.line("ZADD {k}:timeout 1500000000000 id");
        assert_eq!(c.line("LATCH.WAIT k").int(), 1);
    }
    assert_eq!(server.stat("panics"), 0);
}

#[test]
fn calls_that_are_answered_no_leave_no_trace() {
    const LINES: [&str; 14] = [
        "LOCK.ACQUIRE k p",
        "LOCK.ACQUIRE k p PX 90000 ONCE WITHHOLDER",
        "LOCK.RELEASE k p",
        "LOCK.RELEASE k p ALL",
        "LOCK.RELEASE k o TOKEN 8",
        "LOCK.RELEASE k o ALL TOKEN 8",
        "LOCK.RENEW k p",
        "LOCK.RENEW k o TOKEN 8",
        "LOCK.BREAK k TOKEN 8",
        "LOCK.BREAK k PURGE TOKEN 8",
        "LOCK.INFO k",
        "LOCK.INFO k WAITERS COUNT 3",
        "LOCK.OWNER",
        "LOCK.HELP",
    ];
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let bystander = Bystander::of(&server, "k");
    for line in LINES {
        assert!(!c.line(line).is_error(), "{line}");
    }
    // Longer than the remaining lease: a re-entry with ONCE changes nothing.
    c.line("LOCK.ACQUIRE k o PX 5 ONCE");
    bystander.saw_nothing("refused calls on a held lock");
    for state in ["DEL k", "HSET k #token t7"] {
        c.line(state);
        let bystander = Bystander::of(&server, "k");
        for line in LINES.iter().filter(|line| !line.contains("ACQUIRE")) {
            assert!(!c.line(line).is_error(), "{line}");
        }
        assert_eq!(c.line("LOCK.BREAK k PURGE").int(), 0);
        bystander.saw_nothing(&format!("refused calls after {state}"));
    }
}

#[test]
fn a_wait_that_comes_to_nothing_leaves_only_its_own_event() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let mut events = Events::of(&server);
    let digest = c.line("DEBUG DIGEST").text();
    assert!(c.line("LOCK.ACQUIRE k p BLOCK 1").is_nil());
    assert_eq!(c.line("DEBUG DIGEST").text(), digest);
    assert_eq!(events.so_far(), ["lock.wait k"]);
}

#[test]
fn every_real_change_is_seen_by_watch() {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "LOCK.ACQUIRE k o",
        "LOCK.ACQUIRE k o",
        "LOCK.ACQUIRE k o PX 900000 ONCE",
        "LOCK.RENEW k o PX 5000000",
        "LOCK.RELEASE k o",
        "LOCK.RELEASE k o",
        "LOCK.ACQUIRE k o",
        "LOCK.BREAK k",
        "LOCK.ACQUIRE k o",
    ] {
        let bystander = Bystander::of(&server, "k");
        assert!(!c.line(line).is_nil(), "{line}");
        bystander.saw_a_change(line);
    }
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k p BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    let bystander = Bystander::of(&server, "k");
    c.line("LOCK.RELEASE k o");
    assert!(waiter.recv().int() > 0);
    bystander.saw_a_change("a hand-off");
    c.line("HSET plain u:1 1");
    let bystander = Bystander::of(&server, "plain");
    assert!(c.line("LOCK.ACQUIRE plain u:1 ONCE").int() > 0);
    bystander.saw_a_change("a token for a plain hold");
}
