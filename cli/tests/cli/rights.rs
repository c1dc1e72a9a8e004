//! Permissions: each subcommand with the rights that it needs, and without each one of them in turn.

use redis_lock_harness::TestServer;

use crate::program::{program, url, Ended, Running};

/// What a user may do who may do nothing but connect.
const NOTHING: &str = "reset on nopass -@all +@connection -client|kill";
/// The rights of a wait.
const WAIT: &str = "&lock:tickets:* +publish +subscribe";

/// Words, their status with all rights, and the rights: each with what the message says without it.
type Case<'a> = (&'a str, i32, &'a [(&'a str, &'a str)]);

const CASES: &[Case<'static>] = &[
    (
        "run -n k true",
        0,
        &[
            (
                "~k",
                "SETUSER <user> ~k (with --shared, --exclusive and --permits also ~{k}:*)",
            ),
            ("+lock.acquire", "+lock.acquire"),
            ("+lock.release", "'lock.release'"),
        ],
    ),
    (
        "run --wait 0.3 held true",
        1,
        &[
            ("~held", "~held"),
            ("+lock.acquire", "+lock.acquire"),
            ("+lock.release", ""),
            ("&lock:tickets:*", WAIT),
            ("+publish", WAIT),
            ("+subscribe", WAIT),
        ],
    ),
    (
        "run -n --shared k true",
        0,
        &[
            ("~k", "~k"),
            ("~{k}:*", "SETUSER <user> ~{k}:*\n"),
            ("+lock.acquire", "+lock.acquire"),
            ("+lock.release", "'lock.release'"),
        ],
    ),
    (
        "run -n --shared {k}x true",
        0,
        &[
            (
                "~{k}x",
                "~{k}x (with --shared, --exclusive and --permits also ~{k}x:*)",
            ),
            ("~{k}x:*", "SETUSER <user> ~{k}x:*\n"),
            ("+lock.acquire +lock.release", "+lock.acquire"),
        ],
    ),
    (
        "run -n --shared k*[x]? true",
        0,
        &[
            (r"~k\*\[x]\?", r"SETUSER <user> ~k\*\[x]\? "),
            (r"~{k\*\[x]\?}:*", r"SETUSER <user> ~{k\*\[x]\?}:*"),
            ("+lock.acquire +lock.release", "+lock.acquire"),
        ],
    ),
    (
        "run -n --permits 2 sem true",
        0,
        &[
            (
                "~sem",
                "~sem (with --shared, --exclusive and --permits also ~{sem}:*)",
            ),
            ("~{sem}:timeout", "SETUSER <user> ~{sem}:timeout\n"),
            ("+sem.info", "+sem.info"),
            ("+sem.acquire", "+sem.acquire"),
            ("+sem.release", "'sem.release'"),
        ],
    ),
    (
        "run -n k --and j true",
        0,
        &[
            ("~k", "~k ~j (with"),
            ("~j", "~k ~j (with"),
            ("+lock.macquire", "+lock.macquire"),
            ("+lock.release", "'lock.release'"),
        ],
    ),
    (
        "run --steal held true",
        0,
        &[
            ("~held", "~held"),
            ("+lock.break", "+lock.break"),
            ("+del", "+del +client|kill"),
            ("+client|kill", "+del +client|kill"),
            ("+lock.release", "'lock.release'"),
        ],
    ),
    (
        "acquire -n k",
        0,
        &[("~k", "~k"), ("+lock.acquire", "+lock.acquire")],
    ),
    (
        "renew held --owner other --token TOKEN",
        0,
        &[("~held", "~held"), ("+lock.renew", "+lock.renew")],
    ),
    (
        "release held --owner other --token TOKEN",
        0,
        &[
            ("~held", "~held"),
            ("+lock.renew", "+lock.renew"),
            ("+lock.release", "+lock.release"),
        ],
    ),
    (
        "ls",
        0,
        &[
            ("~held", ""),
            ("+lock.scan", "+lock.scan"),
            ("+scan", "SETUSER <user> +scan\n"),
            ("+lock.info", "+lock.info"),
        ],
    ),
    (
        "ls --semaphores --match permits",
        0,
        &[
            ("~permits ~{permits}:timeout", ""),
            ("+scan", "SETUSER <user> +scan\n"),
            ("+lock.info", "+lock.info"),
            ("+sem.info", "+sem.info"),
        ],
    ),
    (
        "info held",
        0,
        &[("~held", "~held"), ("+lock.info", "+lock.info")],
    ),
    (
        "info permits",
        0,
        &[
            ("~permits", "~permits"),
            ("~{permits}:timeout", "~{permits}:timeout"),
            ("+lock.info", "+lock.info"),
            ("+sem.info", "+sem.info"),
        ],
    ),
    (
        "leader held",
        0,
        &[("~held", "~held"), ("+lock.info", "+lock.info")],
    ),
    (
        "break held",
        0,
        &[
            ("~held", "~held"),
            ("+lock.break", "+lock.break"),
            ("+del", "SETUSER <user> +del +client|kill\n"),
            ("+client|kill", "SETUSER <user> +del +client|kill\n"),
        ],
    ),
    (
        "break permits --owner me",
        0,
        &[
            ("~permits", "~permits"),
            ("~{permits}:timeout", "~{permits}:timeout"),
            ("+sem.release", "+sem.release"),
        ],
    ),
    (
        "top --once -i 0.01",
        0,
        &[
            ("~held", ""),
            ("+info", "+info"),
            ("+lock.scan", "+lock.scan"),
            ("+scan", "SETUSER <user> +scan\n"),
            ("+lock.info", "+lock.info"),
        ],
    ),
    (
        "check k",
        0,
        &[
            ("~k", "~k"),
            ("+lock.acquire", "+lock.acquire"),
            ("+lock.renew", "+lock.renew"),
            ("+lock.release", "+lock.release"),
            ("&lock:tickets:*", WAIT),
            ("+publish", WAIT),
            ("+subscribe", WAIT),
        ],
    ),
    (
        "check --no-wait k",
        0,
        &[
            ("~k", "~k"),
            ("+lock.acquire", "+lock.acquire"),
            ("+lock.renew", "+lock.renew"),
            ("+lock.release", "+lock.release"),
        ],
    ),
];

/// Runs it as a user with these rights and no others. A lock and a permit are held.
fn with(real: &TestServer, rights: &str, words: &str) -> Ended {
    let mut conn = real.conn();
    conn.line("FLUSHALL");
    let token = conn.line("LOCK.ACQUIRE held other PX 600000").int();
    conn.line("SEM.ACQUIRE permits me LIMIT 3 PX 600000");
    let set = conn.line(&format!("ACL SETUSER app {NOTHING} {rights}"));
    assert_eq!(set.text(), "OK", "{rights}");
    let words = words.replace("TOKEN", &token.to_string());
    let mut command = program(real);
    let own = url(real).replace("//", "//app:x@");
    command.env("REDIS_LOCK_URL", own);
    Running::of(command.args(words.split(' '))).end()
}

#[test]
fn a_right_that_is_missing_is_named() {
    let real = TestServer::start();
    // From 7.2 on the category of LOCK.BREAK protects it.
    let is_seven = !real.is_valkey() && real.version() < (7, 2, 0);
    for (words, status, rights) in CASES {
        let of = |without: Option<&str>| {
            let rights = rights.iter().map(|(right, _)| *right);
            let rights: Vec<_> = rights.filter(|right| Some(*right) != without).collect();
            rights.join(" ")
        };
        let end = with(&real, &of(None), words);
        assert_eq!(end.code(), *status, "{words}: {}", end.err);
        for (right, named) in *rights {
            let is_of_seven = ["+del", "+client|kill"].contains(right);
            if named.is_empty() || (is_of_seven && !is_seven) {
                continue;
            }
            let end = with(&real, &of(Some(right)), words);
            let what = format!("{words} without {right}: {} {}", end.code(), end.err);
            // The command has run, and its lock stays.
            let expected = if named.starts_with('\'') { 74 } else { 77 };
            assert_eq!(end.code(), expected, "{what}");
            assert!(end.err.contains(named), "{what}");
        }
    }
}

/// `watch` goes on until its reader ends it.
#[test]
fn watch_names_what_it_needs() {
    let real = TestServer::start();
    let end = with(&real, "~held", "watch held");
    assert_eq!(end.code(), 77, "{}", end.err);
    assert!(end.err.contains("+lock.info"), "{}", end.err);
    let end = with(&real, "+lock.info", "watch held");
    assert_eq!(end.code(), 77, "{}", end.err);
    assert!(end.err.contains("~held"), "{}", end.err);
}

/// The loss says why: the server refuses renewals.
#[test]
fn a_run_that_may_not_renew_says_so() {
    let real = TestServer::start();
    let words = "run --lease 0.9 k sleep 600";
    let end = with(&real, "~k +lock.acquire +lock.release", words);
    assert_eq!(end.code(), 75, "{}", end.err);
    assert!(end.err.contains("'lock.renew' command"), "{}", end.err);
    let end = with(
        &real,
        "~k +lock.acquire +lock.release +lock.renew",
        "run k true",
    );
    assert_eq!(end.code(), 0, "{}", end.err);
}

/// What the message says can be pasted into redis-cli, whatever the name.
#[test]
fn the_advice_allows_this_key_alone() {
    let real = TestServer::start();
    for name in ["plain", "a b", "a\"b", "a\\b", "tab\tulator", "é", "*"] {
        let run = |rights: &str| {
            let mut conn = real.conn();
            let set = format!("ACL SETUSER app {NOTHING} +lock.acquire +lock.release {rights}");
            let set = conn.run(redis_cli_words(&set));
            assert_eq!(set.text(), "OK", "{rights}");
            let mut command = program(&real);
            command.env("REDIS_LOCK_URL", url(&real).replace("//", "//app:x@"));
            Running::of(command.args(["run", "-n", name, "true"])).end()
        };
        let refused = run("");
        assert_eq!(refused.code(), 77, "{name}: {}", refused.err);
        let (_, advice) = refused.err.split_once("SETUSER <user> ").unwrap();
        let (rights, _) = advice.split_once(" (with").unwrap();
        let served = run(rights);
        assert_eq!(served.code(), 0, "{name}: {rights}: {}", served.err);
        assert!(name == "plain" || run("~plain").code() == 77);
    }
}

/// The words of a line as redis-cli reads them.
fn redis_cli_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut chars) = (Vec::new(), String::new(), line.chars());
    let mut is_quoted = false;
    while let Some(char) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => word.extend(chars.next()),
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(char),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}
