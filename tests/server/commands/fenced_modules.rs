//! `LOCK.IF` with commands of other modules: they run as in a script, where none can block its client, so none ends the
//! server.

use crate::common::cluster::one_node;
use crate::common::foreign::foreign_module;
use crate::common::replica::ReplicationStream;
use crate::common::{wait_for, Conn, Reply, TestServer};

/// Ways of a command to block its client without a question.
const BLOCKING: [&str; 8] = [
    "never",
    "forgotten",
    "thread",
    "timeout",
    "keys",
    "abort",
    "unblocked",
    "writes",
];

struct Stage {
    server: TestServer,
    conn: Conn,
    token: i64,
}

impl Stage {
    fn with(options: &[&str]) -> Stage {
        let module = ["--loadmodule", foreign_module().to_str().unwrap()];
        let server = TestServer::with(&[&module, options].concat());
        let mut conn = server.conn();
        let token = conn.line("LOCK.ACQUIRE k o PX 600000").int();
        Stage {
            server,
            conn,
            token,
        }
    }

    fn under(&mut self, line: &str) -> Reply {
        let token = self.token;
        self.conn.line(&format!("LOCK.IF k {token} {line}"))
    }

    /// The error of `redis.call` without the line of the script.
    fn in_script(&mut self, how: &str, key: &str) -> String {
        let script = "return redis.pcall('foreign.do', KEYS[1], ARGV[1])";
        let error = self.conn.run(["EVAL", script, "1", key, how]).error();
        error.split(" script:").next().unwrap().to_string()
    }
}

#[test]
fn a_command_that_blocks_its_client_is_refused_as_in_a_script() {
    let mut stage = Stage::with(&[]);
    for resp in ["2", "3"] {
        stage.conn.run(["HELLO", resp]);
        for how in BLOCKING {
            let error = stage.under(&format!("foreign.do {{k}}{how} {how}")).error();
            assert_eq!(error, stage.in_script(how, "other"), "{how}");
        }
    }
    // Valkey 8.1 gives the module no handle in a script, and the module replies that itself.
    let counts = |conn: &mut Conn| conn.line("foreign.counts").list();
    let blocked = counts(&mut stage.conn)[0].int();
    let expected = if blocked == 0 { 0 } else { 4 };
    assert_eq!(blocked, expected * BLOCKING.len() as i64);
    // What a command has done before it blocks is done, and what its thread does later is done after the fence.
    wait_for("the threads", || {
        counts(&mut stage.conn)[5].int() == expected
    });
    for how in BLOCKING {
        let value = stage.conn.run(["GET", &format!("{{k}}{how}")]);
        let written = match how {
            "thread" if expected > 0 => "2",
            "writes" => "2",
            _ => "",
        };
        assert_eq!(
            if value.is_nil() {
                String::new()
            } else {
                value.text()
            },
            written,
            "{how}"
        );
    }
    // No callback of a reply or a timeout has run: there was no client.
    let counted = counts(&mut stage.conn);
    assert_eq!((counted[1].int(), counted[2].int()), (0, 0));
    assert_eq!(stage.server.info_field("clients", "blocked_clients"), "0");
    assert_eq!(stage.conn.line("PING").text(), "PONG");
}

#[test]
fn other_commands_of_modules_run_and_their_replies_are_unchanged() {
    let mut stage = Stage::with(&[]);
    let mut stream = ReplicationStream::attach(&stage.server);
    for resp in ["2", "3"] {
        stage.conn.run(["HELLO", resp]);
        for how in ["now", "number", "map"] {
            let fenced = stage.under(&format!("foreign.do d {how}"));
            assert_eq!(fenced, stage.conn.run(["foreign.do", "d", how]), "{how}");
        }
    }
    // A command that asks whether it may block does not, and one that asks in vain replies its own error.
    assert_eq!(stage.under("foreign.do d asks").text(), "done");
    assert_eq!(
        stage.under("foreign.do d").error(),
        "ERR foreign.do key how"
    );
    let error = stage.under("foreign.counts d").error();
    assert!(error.ends_with("not 'foreign.counts'"), "{error}");
    let seen = stream.until_now(&stage.server).join(", ").to_lowercase();
    assert_eq!(seen, ["incr d"; 5].join(", "));
    // With an old token nothing runs.
    stage.token -= 1;
    assert!(stage
        .under("foreign.do d now")
        .error()
        .starts_with("FENCED"));
    assert_eq!(stage.conn.line("GET d").text(), "5");
}

#[test]
fn in_a_transaction_and_in_a_script_they_run_as_there() {
    const SCRIPT: &str =
        "return redis.pcall('LOCK.IF', KEYS[1], ARGV[1], 'foreign.do', KEYS[2], ARGV[2])";
    let mut stage = Stage::with(&[]);
    for how in BLOCKING.into_iter().chain(["asks", "now"]) {
        let key = format!("{{k}}{how}");
        stage.conn.line("MULTI");
        stage.under(&format!("foreign.do {key} {how}"));
        let in_multi = stage.conn.line("EXEC").list()[0].clone();
        let token = stage.token.to_string();
        let in_script = stage
            .conn
            .run(["EVAL", SCRIPT, "2", "k", &key, &token, how]);
        if how == "asks" || how == "now" {
            assert_eq!([in_multi.text(), in_script.text()], ["done"; 2], "{how}");
            continue;
        }
        assert!(in_multi.is_error(), "{how}: {in_multi:?}");
        let error = in_script.error();
        let error = error.split(" script:").next().unwrap();
        assert_eq!(error, stage.in_script(how, "other"), "{how}");
    }
    assert_eq!(stage.conn.line("PING").text(), "PONG");
}

#[test]
fn the_script_needs_no_right_and_gives_none() {
    let mut stage = Stage::with(&[]);
    for (rules, is_allowed) in [
        ("~k ~d +lock.if +foreign.do", true),
        ("~k ~d +lock.if +eval", false),
        ("~k +lock.if +foreign.do +eval", false),
    ] {
        stage.conn.line("ACL LOG RESET");
        stage
            .conn
            .line(&format!("ACL SETUSER u reset on nopass {rules}"));
        let mut c = stage.server.conn();
        c.line("AUTH u any");
        let line = format!("LOCK.IF k {} foreign.do d now", stage.token);
        let reply = c.line(&line);
        if is_allowed {
            assert_eq!(reply.text(), "done", "{rules}");
            continue;
        }
        assert!(reply.error().starts_with("NOPERM "), "{rules}: {reply:?}");
        let entry = &stage.conn.line("ACL LOG").list()[0];
        assert_eq!(entry.field("username").unwrap().text(), "u", "{rules}");
    }
    assert_eq!(stage.conn.line("GET d").text(), "1");
    // A user may not do the work by the words of the script.
    let error = stage.conn.run(["LOCK.IF", "k", "0", "", ""]).error();
    assert!(error.starts_with("FENCED"), "{error}");
}

#[test]
fn without_eval_they_run_in_transactions_alone() {
    let mut stage = Stage::with(&["--rename-command", "EVAL", "elsewhere"]);
    let error = stage.under("foreign.do d now").error();
    assert!(error.contains("this server runs no EVAL"), "{error}");
    assert_eq!(stage.under("SET e 1").text(), "OK");
    stage.conn.line("MULTI");
    stage.under("foreign.do d now");
    assert_eq!(stage.conn.line("EXEC").list()[0].text(), "done");
}

#[test]
fn where_the_server_does_not_describe_its_commands_all_run_as_those_of_modules() {
    let mut stage = Stage::with(&["--rename-command", "COMMAND", "elsewhere"]);
    assert_eq!(stage.under("SET d 7").text(), "OK");
    assert_eq!(stage.under("INCR d").int(), 8);
    // Redis 7.0 runs no such command in a script.
    let popped = stage.under("BLPOP {k}l 0");
    assert!(popped.is_nil() || popped.is_error(), "{popped:?}");
    assert_eq!(stage.under("foreign.do {k}now now").text(), "done");
    assert!(stage.under("foreign.do d never").is_error());
    let error = stage.under("FLUSHALL ASYNC").error();
    assert!(error.ends_with("not 'FLUSHALL'"), "{error}");
    assert!(stage.server.log().contains("no COMMAND under that name"));
}

#[test]
fn in_a_cluster_they_run_in_the_slot_of_the_lock() {
    let node = one_node(&["--loadmodule", foreign_module().to_str().unwrap()]);
    let mut c = node.conn();
    let token = c.line("LOCK.ACQUIRE k o PX 600000").int();
    let mut under = |line: &str| c.line(&format!("LOCK.IF k {token} {line}"));
    assert_eq!(under("foreign.do {k}d now").text(), "done");
    let error = under("foreign.do other now").error();
    assert!(error.starts_with("CROSSSLOT"), "{error}");
    assert!(under("foreign.do {k}d never").is_error());
}
