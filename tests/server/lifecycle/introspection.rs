//! The module as the server and its tools show it: descriptions, statistics, key events, loading.

use std::os::unix::fs::PermissionsExt;

use crate::commands::acl::{has_categories, has_own_category};
use crate::common::{module_path, wait_for, Conn, Events, Reply, TestServer};
use crate::docs::commands_page::written;

/// The expected replies of `COMMAND INFO` and `COMMAND DOCS` about a command.
struct Described {
    name: &'static str,
    arity: i64,
    flags: &'static str,
    categories: &'static str,
    key: &'static str,
    arguments: &'static str,
}

impl Described {
    fn has_many_keys(&self) -> bool {
        self.arguments.contains("numkeys ")
    }
}

const COMMANDS: [Described; 20] = [
    Described {
        name: "lock.acquire",
        arity: -3,
        flags: "blocking denyoom fast module write",
        categories: "@blocking @fast @lock @write",
        key: "RW access update",
        arguments:
            "key owner [READ | WRITE] [EX seconds | PX milliseconds | SESSION] [BLOCK milliseconds [NOTIFY channel tag] [QUEUE requests]] [ONCE] [WITHHOLDER] [SEQ number] [NOTE note]",
    },
    Described {
        name: "lock.release",
        arity: -3,
        flags: "fast module write",
        categories: "@fast @lock @write",
        key: "RW access delete",
        arguments: "key owner [READ | WRITE] [ALL] [TOKEN token] [FINAL number]",
    },
    Described {
        name: "lock.renew",
        arity: -3,
        flags: "fast module write",
        categories: "@fast @lock @write",
        key: "RW access update",
        arguments: "key owner [READ | WRITE] [EX seconds | PX milliseconds] [TOKEN token] [NOTE note]",
    },
    Described {
        name: "lock.macquire",
        arity: -4,
        flags: "blocking denyoom module movablekeys write",
        categories: "@blocking @lock @write",
        key: "RW access update",
        arguments:
            "numkeys key [key ...] owner [READ | WRITE] [EX seconds | PX milliseconds | SESSION] [BLOCK milliseconds [NOTIFY channel tag] [QUEUE requests]] [ONCE] [SEQ number]",
    },
    Described {
        name: "lock.mrelease",
        arity: -4,
        flags: "module movablekeys write",
        categories: "@lock @write",
        key: "RW access delete",
        arguments: "numkeys key [key ...] owner [ALL] [FINAL number]",
    },
    Described {
        name: "lock.mrenew",
        arity: -4,
        flags: "module movablekeys write",
        categories: "@lock @write",
        key: "RW access update",
        arguments: "numkeys key [key ...] owner [EX seconds | PX milliseconds]",
    },
    Described {
        name: "lock.break",
        arity: -2,
        flags: "fast module write",
        categories: "@dangerous @fast @lock @write",
        key: "RW access delete",
        arguments: "key [TOKEN token] [PURGE] [USER user] [TO owner] [EX seconds | PX milliseconds] [SEQ number] [NOTE note]",
    },
    Described {
        name: "lock.if",
        arity: -5,
        flags: "module",
        categories: "@lock @write",
        key: "RO access",
        arguments: "key token command arg [arg ...]",
    },
    Described {
        name: "lock.info",
        arity: -2,
        flags: "module readonly",
        categories: "@lock @read",
        key: "RO access",
        arguments: "key [WAITERS [COUNT count]]",
    },
    Described {
        name: "lock.scan",
        arity: -2,
        flags: "module readonly",
        categories: "@lock @read",
        key: "",
        arguments: "cursor [MATCH pattern] [COUNT count] [OWNER owner] [WAITED] [USER user]",
    },
    Described {
        name: "sem.set",
        arity: -3,
        flags: "denyoom fast module write",
        categories: "@fast @lock @write",
        key: "RW access update",
        arguments: "key permits [NX | XX]",
    },
    Described {
        name: "sem.acquire",
        arity: -3,
        flags: "blocking denyoom fast module write",
        categories: "@blocking @fast @lock @write",
        key: "RW access update",
        arguments: "key id [COUNT permits] [LIMIT permits] [EX seconds | PX milliseconds | SESSION] [BLOCK milliseconds [NOTIFY channel tag] [QUEUE requests]] [SEQ number]",
    },
    Described {
        name: "sem.release",
        arity: -3,
        flags: "fast module write",
        categories: "@fast @lock @write",
        key: "RW access update",
        arguments: "key id [FINAL number]",
    },
    Described {
        name: "sem.renew",
        arity: -3,
        flags: "fast module write",
        categories: "@fast @lock @write",
        key: "RW access update",
        arguments: "key id [EX seconds | PX milliseconds]",
    },
    Described {
        name: "sem.info",
        arity: -2,
        flags: "module readonly",
        categories: "@lock @read",
        key: "RO access",
        arguments: "key [WAITERS [COUNT count]]",
    },
    Described {
        name: "latch.set",
        arity: -3,
        flags: "denyoom fast module write",
        categories: "@fast @lock @write",
        key: "RW access update",
        arguments: "key count [NX | XX]",
    },
    Described {
        name: "latch.down",
        arity: -2,
        flags: "fast module write",
        categories: "@fast @lock @write",
        key: "RW access delete",
        arguments: "key [n]",
    },
    Described {
        name: "latch.wait",
        arity: -2,
        flags: "blocking fast module readonly",
        categories: "@blocking @fast @lock @read",
        key: "RO access",
        arguments: "key [BLOCK milliseconds [NOTIFY channel tag] [QUEUE requests]]",
    },
    Described {
        name: "lock.owner",
        arity: 1,
        flags: "fast loading module stale",
        categories: "@fast @lock",
        key: "",
        arguments: "",
    },
    Described {
        name: "lock.help",
        arity: -1,
        flags: "loading module stale",
        categories: "@lock @slow",
        key: "",
        arguments: "[command]",
    },
];

fn words(list: &Reply) -> String {
    list.list()
        .iter()
        .map(Reply::text)
        .collect::<Vec<_>>()
        .join(" ")
}

fn sorted(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    words.sort_unstable();
    words.join(" ")
}

#[test]
fn command_info_states_arity_flags_categories_and_keys() {
    let server = TestServer::start();
    let mut c = server.conn();
    for command in COMMANDS {
        let info = c.run(["COMMAND", "INFO", command.name]).list()[0].list();
        assert_eq!(info[0].text(), command.name);
        assert_eq!(info[1].int(), command.arity, "{}", command.name);
        assert_eq!(sorted(&words(&info[2])), command.flags, "{}", command.name);
        // If an argument states the number of its keys, only the first has a fixed position, behind that number.
        let at = match (command.key.is_empty(), command.has_many_keys()) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let positions: Vec<_> = info[3..6].iter().map(Reply::int).collect();
        assert_eq!(positions, [at, at, at.min(1)], "{}", command.name);
        let expected = if has_own_category(&server) {
            command.categories.to_string()
        } else if has_categories(&server) {
            sorted(&command.categories.replace("@lock", ""))
                .trim()
                .replace("  ", " ")
        } else {
            String::new()
        };
        assert_eq!(sorted(&words(&info[6])), expected, "{}", command.name);
        let specs = info[8].list();
        let flags = |spec: &Reply| words(&spec.field("flags").unwrap());
        let (routing, keys): (Vec<_>, Vec<_>) = specs
            .iter()
            .map(flags)
            .partition(|flags| flags.contains("not_key"));
        assert_eq!(keys.join(";"), command.key, "{}", command.name);
        let expected = usize::from(command.has_many_keys());
        assert_eq!(routing.len(), expected, "{}", command.name);
    }
}

#[test]
fn command_getkeys_finds_the_key() {
    let server = TestServer::start();
    let mut c = server.conn();
    let has_one = |command: &&Described| !command.key.is_empty() && !command.has_many_keys();
    for command in COMMANDS.iter().filter(has_one) {
        let rest = if command.arity > 0 { "1" } else { "1 GET 7" };
        let call = |what| format!("COMMAND {what} {} the-key {rest}", command.name);
        assert_eq!(words(&c.line(&call("GETKEYS"))), "the-key");
        let keys = c.line(&call("GETKEYSANDFLAGS")).list()[0].list();
        assert_eq!(keys[0].text(), "the-key");
        assert_eq!(words(&keys[1]), command.key);
    }
}

#[test]
fn command_docs_describe_every_command_and_argument() {
    let server = TestServer::start();
    for mut c in [server.conn(), server.conn3()] {
        for command in COMMANDS {
            let name = command.name;
            let docs = c.run(["COMMAND", "DOCS", name]).field(name).unwrap();
            let text = |field: &str| docs.field(field).map_or(String::new(), |f| f.text());
            assert!(text("summary").len() > 20, "{name}: {}", text("summary"));
            assert_eq!(text("since"), "0.1.0", "{name}");
            assert!(text("complexity").starts_with("O("), "{name}");
            assert_eq!(text("group"), "module", "{name}");
            assert_eq!(text("module"), "lock", "{name}");
            let arguments = docs.field("arguments").map_or(vec![], |args| args.list());
            let syntax = arguments.iter().map(|arg| written(arg, &str::to_string));
            let syntax = syntax.collect::<Vec<_>>().join(" ");
            assert_eq!(syntax, command.arguments, "{name}");
            let is_key = |arg: &&Reply| arg.field("type").unwrap().text() == "key";
            let key = arguments.iter().find(is_key);
            assert_eq!(key.is_some(), !command.key.is_empty(), "{name}");
            if let Some(key) = key {
                assert_eq!(key.field("key_spec_index").unwrap().int(), 0);
            }
        }
    }
}

#[test]
fn the_server_lists_the_module_and_its_commands() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut listed: Vec<String> = c
        .line("COMMAND LIST FILTERBY MODULE lock")
        .list()
        .iter()
        .map(Reply::text)
        .collect();
    listed.sort();
    let mut names = COMMANDS.map(|command| command.name);
    names.sort_unstable();
    assert_eq!(listed, names);
    // Newer servers list modules of their own.
    let modules = c.line("MODULE LIST").list();
    let ours = modules
        .iter()
        .find(|module| module.field("name").unwrap().text() == "lock")
        .expect("our module");
    let parts = env!("CARGO_PKG_VERSION").split('.');
    let version = parts.fold(0, |sum, part| sum * 100 + part.parse::<i64>().unwrap());
    assert_eq!(ours.field("ver").unwrap().int(), version);
}

#[test]
fn info_has_a_section_of_plain_numbers() {
    let server = TestServer::start();
    let mut c = server.conn();
    let fields = |text: &str| -> Vec<String> {
        let ours = text.lines().filter(|line| line.starts_with("lock_"));
        ours.map(|line| line.split(':').next().unwrap().to_string())
            .collect()
    };
    let section = c.line("INFO lock").text();
    assert!(section.contains("# lock\r\n"), "{section}");
    let names = fields(&section);
    for name in [
        "waiters",
        "keys_waited",
        "places_kept",
        "grants_tracked",
        "sessions",
        "session_holds",
        "eviction_risk",
        "panics",
        "grants",
        "reentries",
        "refusals",
        "busy",
        "renewals",
        "session_renewals",
        "session_losses",
        "renewal_misses",
        "release_misses",
        "fenced",
        "grants_released",
        "grants_session_ended",
        "grants_expired",
        "grants_broken",
        "grants_lost",
        "grants_undone",
        "grants_unwatched",
        "waits_parked",
        "waits_granted",
        "waits_timed_out",
        "waits_unblocked",
        "waits_disconnected",
        "waits_taken_over",
        "waits_withdrawn",
        "waits_failed",
        "waits_kept",
        "tickets_kept",
        "keys_withheld",
        "grants_withheld",
        "out_of_memory",
        "foreign_wakeups",
        "tickets",
        "ticket_places",
        "tickets_queued",
        "tickets_granted",
        "tickets_timed_out",
        "tickets_withdrawn",
        "tickets_taken_over",
        "tickets_failed",
        "tickets_unheard",
        "windows_open",
        "windows",
        "windows_taken",
        "windows_unused",
        "wait_ms_sum",
        "wait_ms_max",
    ] {
        assert!(names.contains(&format!("lock_{name}")), "{name}");
        assert_eq!(server.stat(name), 0, "{name}");
    }
    for wider in ["INFO modules", "INFO everything", "INFO all server modules"] {
        assert_eq!(fields(&c.line(wider).text()), names, "{wider}");
    }
    assert!(
        fields(&c.line("INFO").text()).is_empty(),
        "by default the server shows no module"
    );
}

#[test]
fn the_servers_own_statistics_count_our_commands_and_errors() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("HSET h mode read");
    c.line("SET s v");
    c.line("LOCK.ACQUIRE k o");
    assert!(c.line("LOCK.ACQUIRE k p").is_nil());
    c.line("LOCK.ACQUIRE h o");
    c.line("LOCK.RELEASE s o");
    c.line("LOCK.RENEW k o PX 0");
    c.line("LOCK.INFO");
    let errors = c.line("INFO errorstats").text();
    for line in [
        "errorstat_LOCKTYPE:count=1",
        "errorstat_WRONGTYPE:count=1",
        "errorstat_ERR:count=2",
    ] {
        assert!(errors.contains(line), "{line} in {errors}");
    }
    assert_eq!(
        errors.matches("errorstat_").count(),
        3,
        "contention is no error: {errors}"
    );
    let commands = c.line("INFO commandstats").text();
    let of = |name: &str| {
        let line = commands.lines().find(|line| line.contains(name)).unwrap();
        line.to_string()
    };
    assert!(of("cmdstat_lock.acquire").contains("calls=3,"));
    assert!(of("cmdstat_lock.acquire").contains("failed_calls=1"));
    assert!(of("cmdstat_lock.info").contains("rejected_calls=1"));
}

/// The module's events, and `del`, since the last call.
fn module_events(events: &mut Events) -> Vec<String> {
    let mut seen = events.so_far();
    seen.retain(|event| event.starts_with("lock.") || event.starts_with("del "));
    seen
}

#[test]
fn commands_publish_key_events() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    for (line, expected) in [
        ("LOCK.ACQUIRE k o", &["lock.acquire k"][..]),
        ("LOCK.ACQUIRE k o", &[]),
        ("LOCK.RENEW k o", &[]),
        ("LOCK.ACQUIRE k p", &[]),
        ("LOCK.RELEASE k p", &[]),
        ("LOCK.RELEASE k o", &[]),
        ("LOCK.RELEASE k o", &["lock.release k", "del k"]),
        ("LOCK.ACQUIRE k o", &["lock.acquire k"]),
        ("LOCK.BREAK k", &["lock.break k", "del k"]),
        ("LOCK.BREAK k", &[]),
    ] {
        c.line(line);
        assert_eq!(events.so_far(), expected, "{line}");
    }
    c.line("CONFIG SET notify-keyspace-events Kd");
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE __keyspace@0__:k");
    c.line("LOCK.ACQUIRE k o");
    assert_eq!(subscriber.recv().list()[2].text(), "lock.acquire");
}

#[test]
fn ends_of_untracked_holds_have_events_if_there_are_waiters() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let mut events = Events::of(&server);
    for (end, expected) in [
        ("PEXPIRE k 1", "lock.expire k"),
        ("DEL k", "lock.lost k"),
        ("HDEL k u:1", "lock.lost k"),
        ("SET k other", "lock.lost k"),
    ] {
        // As a Redisson client takes it; because of the token's field HDEL makes it a free lock.
        a.line("HSET k u:1 1 #token t1");
        a.line("PEXPIRE k 60000");
        b.send_line("LOCK.ACQUIRE k bob BLOCK 0");
        server.wait_for_waiters(1);
        a.line(end);
        b.recv();
        let response = module_events(&mut events);
        assert_eq!(
            response.iter().filter(|event| *event == expected).count(),
            1,
            "{end}: {response:?}"
        );
        b.line("LOCK.RELEASE k bob");
        a.line("DEL k");
        events.so_far();
    }
}

#[test]
fn a_grant_that_another_holder_replaced_counts_as_lost() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k alice");
    c.line("DEL k");
    c.line("HSET k bob 1");
    c.line("PEXPIRE k 60000");
    assert_eq!(c.line("LOCK.RENEW k bob").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k bob").int(), 1);
    assert_eq!(server.stat("grants_lost"), 1);
    assert_eq!(server.stat("grants_released"), 0);
}

#[test]
fn waits_and_hand_offs_publish_key_events() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let mut events = Events::of(&server);
    a.line("LOCK.ACQUIRE k o");
    b.send_line("LOCK.ACQUIRE k p BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(
        module_events(&mut events),
        ["lock.acquire k", "lock.wait k"]
    );
    a.line("LOCK.RELEASE k o");
    b.recv();
    assert_eq!(
        module_events(&mut events),
        ["lock.release k", "lock.acquire k"]
    );
    a.send_line("LOCK.ACQUIRE k o BLOCK 0");
    server.wait_for_waiters(1);
    b.line("LOCK.BREAK k");
    a.recv();
    assert_eq!(
        module_events(&mut events),
        ["lock.wait k", "lock.break k", "lock.acquire k"]
    );
}

#[test]
fn ends_without_a_command_publish_key_events() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let mut events = Events::of(&server);
    a.line("LOCK.ACQUIRE k o PX 600000");
    b.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    a.line("LOCK.RENEW k o PX 20");
    b.recv();
    assert_eq!(
        module_events(&mut events),
        [
            "lock.acquire k",
            "lock.wait k",
            "lock.expire k",
            "lock.acquire k"
        ]
    );
    a.line("DEL k");
    assert_eq!(module_events(&mut events), ["lock.lost k", "del k"]);
    a.line("LOCK.ACQUIRE k o");
    b.send_line("LOCK.ACQUIRE k p PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    module_events(&mut events);
    a.line("RENAME k elsewhere");
    b.recv();
    assert_eq!(
        module_events(&mut events),
        ["lock.lost k", "lock.acquire k"]
    );
    // There is no waiter, but the lock is in the table.
    a.line("LOCK.RENEW k p PX 10");
    wait_for("the end of a lease", || a.line("EXISTS k").int() == 0);
    assert_eq!(module_events(&mut events), ["lock.expire k"]);
}

/// The number of log entries and the gauge.
fn warnings_of_eviction(server: &TestServer) -> (usize, u64) {
    let lines = server.log().matches("may evict locks").count();
    (lines, server.stat("eviction_risk"))
}

#[test]
fn a_server_that_may_evict_locks_is_warned_of_at_start() {
    let options = ["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"];
    let server = TestServer::with(&options);
    assert_eq!(warnings_of_eviction(&server), (1, 1));
    let server = TestServer::with(&options[..2]);
    assert_eq!(warnings_of_eviction(&server), (0, 0));
}

#[test]
fn an_eviction_policy_that_may_take_locks_is_warned_of_when_it_is_set() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (setting, expected) in [
        ("maxmemory-policy volatile-ttl", (0, 0)),
        ("maxmemory 1gb", (1, 1)),
        ("maxmemory 2gb", (1, 1)),
        ("maxmemory-policy noeviction", (1, 0)),
        ("maxmemory-policy allkeys-random", (2, 1)),
        ("maxmemory 0", (2, 0)),
    ] {
        assert_eq!(c.line(&format!("CONFIG SET {setting}")).text(), "OK");
        assert_eq!(warnings_of_eviction(&server), expected, "{setting}");
    }
}

fn load(conn: &mut Conn) -> Reply {
    conn.run(["MODULE", "LOAD", module_path().to_str().unwrap()])
}

#[test]
fn loaded_twice_is_refused() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert!(load(&mut c).is_error());
    assert!(c.line("LOCK.ACQUIRE k o").int() > 0);
}

#[test]
fn the_library_may_be_read_and_executed_by_the_servers_user() {
    // Servers refuse a module without the execute bit.
    let mode = module_path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o555, 0o555, "{mode:o}");
}
