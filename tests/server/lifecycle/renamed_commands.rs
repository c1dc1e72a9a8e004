//! Servers whose configuration renames commands that the module needs (`rename-command`).

use crate::common::{free_port, module_path, server_binary, Conn, TestServer};
use crate::lifecycle::faults::fault_module;
use crate::lifecycle::settings::{loads, own_lines, FromFile};

/// The commands without which the module is not loaded.
const REQUIRED: [&str; 16] = [
    "DEL",
    "HSET",
    "HINCRBY",
    "HDEL",
    "PEXPIREAT",
    "PERSIST",
    "SET",
    "ZADD",
    "ZREM",
    "PUBLISH",
    "SPUBLISH",
    "PEXPIRE",
    "PTTL",
    "INCR",
    "MULTI",
    "EXEC",
];

fn renaming(name: &str, to: &str) -> TestServer {
    TestServer::without_module(&["--rename-command", name, to])
}

fn load(conn: &mut Conn) -> bool {
    let path = module_path();
    !conn
        .run(["MODULE", "LOAD", path.to_str().unwrap()])
        .is_error()
}

#[test]
fn a_command_that_is_missing_is_named_and_the_server_goes_on() {
    for (name, to) in REQUIRED
        .iter()
        .flat_map(|name| [(name, "elsewhere"), (name, "")])
    {
        let server = renaming(name, to);
        let mut c = server.conn();
        assert!(!load(&mut c), "{name} {to}");
        let lines = own_lines(&server.log());
        let [line] = &lines[..] else {
            panic!("{name}: {lines:?}");
        };
        let expected =
            format!("not loaded: this server has no {name} under that name (rename-command)");
        assert!(line.starts_with(&expected), "{line}");
        assert_eq!(c.line("PING").text(), "PONG");
        assert!(c.line("LOCK.HELP").is_error());
    }
}

#[test]
fn exists_is_needed_in_a_cluster_alone() {
    let renamed = ["--rename-command", "EXISTS", "elsewhere"];
    let bus = free_port().to_string();
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let node = TestServer::without_module(&[&renamed[..], &cluster].concat());
    assert!(!load(&mut node.conn()));
    let lines = own_lines(&node.log());
    assert!(lines[0].contains("no EXISTS under that name"), "{lines:?}");
    let server = TestServer::without_module(&renamed);
    assert!(load(&mut server.conn()));
}

#[test]
fn one_log_entry_names_all_missing_commands() {
    let options = [
        "--rename-command",
        "DEL",
        "a",
        "--rename-command",
        "ZREM",
        "b",
    ];
    let server = TestServer::without_module(&options);
    assert!(!load(&mut server.conn()));
    let lines = own_lines(&server.log());
    assert!(
        lines[0].contains(" no DEL, ZREM under that name "),
        "{lines:?}"
    );
}

#[test]
fn a_missing_command_stops_a_start() {
    let config = format!("rename-command HDEL \"\"\n{}", loads(""));
    let mut server = FromFile::start(&server_binary(), &config);
    assert!(server.has_ended(), "{}", server.log());
    let lines = own_lines(&server.log());
    assert!(lines[0].contains(" no HDEL under that name "), "{lines:?}");
}

/// The name exists, but as another command's: one that deletes everything, or ends the server.
#[test]
fn another_command_under_a_needed_name_is_refused_and_not_run() {
    for other in ["GETDEL", "FLUSHALL", "SHUTDOWN", "DBSIZE"] {
        for name in ["DEL", "PTTL"] {
            let options = [
                "--rename-command",
                name,
                "away",
                "--rename-command",
                other,
                name,
            ];
            let server = TestServer::without_module(&options);
            let mut c = server.conn();
            c.line("SET data 1");
            assert!(!load(&mut c), "{other} as {name}");
            assert_eq!(c.line("GET data").text(), "1", "{other} as {name}");
            let lines = own_lines(&server.log());
            assert!(
                lines[0].contains(&format!(" no {name} under that name ")),
                "{lines:?}"
            );
        }
    }
}

#[test]
fn optional_commands_may_be_missing_and_the_log_names_the_lost_feature() {
    for (name, loss) in [
        ("SCAN", "LOCK.SCAN is refused"),
        ("PUBSUB", "locks are not left free for Redisson's waiters"),
        (
            "ACL",
            "the only user of the server has a share of the places",
        ),
        (
            "CLIENT",
            "a grant to a client that the server has condemned ends with its lease",
        ),
        ("ZCOUNT", "SEM.INFO counts permits"),
        ("COMMAND", "LOCK.IF runs every command in a script"),
        ("EVAL", "LOCK.IF runs commands of other modules in MULTI"),
    ] {
        let server = renaming(name, "elsewhere");
        let mut c = server.conn();
        assert!(load(&mut c), "{}", server.log());
        let log = server.log();
        let said = format!("this server has no {name} under that name (rename-command): {loss}");
        assert!(log.contains(&said), "{log}");
        assert!(c.line("LOCK.ACQUIRE k o").int() > 0);
        let scan = c.line("LOCK.SCAN 0");
        assert_eq!(scan.is_error(), name == "SCAN", "{scan:?}");
        assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    }
}

/// Of the commands that administrators rename, two concern `LOCK.IF` alone, and the others nothing.
#[test]
fn other_commands_may_have_any_name() {
    let names = [
        "KEYS", "FLUSHALL", "FLUSHDB", "DEBUG", "MONITOR", "EVAL", "EVALSHA", "COMMAND",
    ];
    let options: Vec<_> = names
        .iter()
        .flat_map(|name| ["--rename-command", *name, ""])
        .collect();
    let server = TestServer::without_module(&options);
    let mut c = server.conn();
    assert!(load(&mut c), "{}", server.log());
    let lines = own_lines(&server.log());
    let about = lines.iter().filter(|line| line.contains("rename-command"));
    assert_eq!(about.clone().count(), 2, "{lines:?}");
    assert!(
        about.clone().all(|line| line.contains(": LOCK.IF ")),
        "{lines:?}"
    );
}

#[test]
fn the_check_leaves_no_trace() {
    let server = TestServer::without_module(&[]);
    let mut c = server.conn();
    let mut traces = || {
        let sections = ["INFO errorstats", "INFO commandstats"].map(|line| c.line(line).text());
        let lines = sections.iter().flat_map(|text| text.lines());
        let ours = [
            "cmdstat_info",
            "cmdstat_module",
            "cmdstat_acl|list",
            "cmdstat_config",
        ];
        let others = lines.filter(|line| !ours.iter().any(|name| line.starts_with(name)));
        (
            others.map(str::to_string).collect::<Vec<_>>(),
            c.line("DBSIZE").int(),
        )
    };
    traces();
    let before = traces();
    let mut loader = server.conn();
    assert!(load(&mut loader));
    let after = traces();
    let ping = |lines: &[String]| {
        lines
            .iter()
            .filter(|line| !line.contains("ping") && !line.contains("dbsize"))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(ping(&after.0), ping(&before.0));
}

#[test]
fn a_change_refused_by_replication_is_counted_and_logged_once_a_second() {
    let server = TestServer::with_module(fault_module(), &["--appendonly", "yes"]);
    let mut c = server.conn();
    assert_eq!(server.stat("replication_failures"), 0);
    for round in 1..=3 {
        c.line("LOCK.FAULT API RedisModule_Replicate");
        assert!(c.line(&format!("LOCK.ACQUIRE k{round} o")).int() > 0);
        assert_eq!(server.stat("replication_failures"), round);
    }
    let log = server.log();
    let lines = log
        .matches("could not be handed to replicas and the AOF")
        .count();
    assert!((1..=2).contains(&lines), "{log}");
    assert!(log.contains("(replication_failures:1)"), "{log}");
}
