//! `MODULE UNLOAD` in cases that the server would not survive: users' rules name commands of the module, or the server
//! keeps one that is queued, postponed, parsed ahead, or the last of a connection.

use crate::common::replica::{follow, wait_until_in_sync};
use crate::common::scene::{self, unload, unload_and_load, unload_drained, UNLOADING};
use crate::common::{module_path, wait_for, Conn, Reply, TestServer};
use crate::lifecycle::settings::own_lines;

/// Rules that name a command of the module, in every way that a server keeps them.
const NAMING: [&[&str]; 8] = [
    &["+lock.acquire"],
    &["+@all", "-lock.break"],
    &["off", "+LATCH.WAIT"],
    &["+get", "+sem.acquire", "-get"],
    &["(~x +sem.release)"],
    &["(~x +get)", "(%R~y -@all +@read +lock.info)"],
    &["+lock.acquire|x"],
    &["-@all", "+@read", "+lock.scan"],
];

/// Rules that name none, although some did or look similar.
const NAMING_NONE: [&[&str]; 7] = [
    &["+@all"],
    &["+lock.acquire", "-@all"],
    &["+lock.acquire", "+@all"],
    &["+@write", "+@read"],
    &["~+lock.acquire", "&+lock.acquire", "+get|lock.acquire"],
    &["(~x +lock.acquire)", "clearselectors"],
    &["+lock.acquire", "reset"],
];

fn set_user(admin: &mut Conn, name: &str, rules: &[&str]) {
    admin.run(["ACL", "DELUSER", name]);
    let words = ["ACL", "SETUSER", name, "on", ">secret"];
    let reply = admin.run([&words[..], rules].concat());
    assert!(!reply.is_error(), "{rules:?}: {reply:?}");
}

fn refused(admin: &mut Conn) -> bool {
    !unload(admin)
}

/// Valkey 9.1 refuses by itself, before it asks the module.
fn asks_the_module(server: &TestServer) -> bool {
    !(server.is_valkey() && server.version() >= (9, 1, 0))
}

#[test]
fn rules_that_name_a_command_keep_the_module() {
    let mut server = TestServer::start();
    let mut admin = server.conn();
    for rules in NAMING {
        set_user(&mut admin, "app", rules);
        assert!(refused(&mut admin), "{rules:?}");
        assert!(admin.line("LOCK.ACQUIRE k o").int() > 0);
        if asks_the_module(&server) {
            let lines = own_lines(&server.log());
            let line = lines.last().expect("a line");
            assert!(
                line.starts_with("not unloaded: the ACL rules of user 'app' have '"),
                "{line}"
            );
            assert!(line.contains("scripts/upgrade.sh"), "{line}");
        }
        // The rules as the server describes them, on Redis 7.0 by the commands that exist at the moment.
        assert!(!admin.line("ACL GETUSER app").is_error());
    }
    admin.line("ACL DELUSER app");
    unload_and_load(&mut admin);
    assert!(server.is_alive());
}

#[test]
fn rules_that_name_none_allow_the_unload() {
    let mut server = TestServer::start();
    let mut admin = server.conn();
    for rules in NAMING_NONE {
        set_user(&mut admin, "app", rules);
        unload_and_load(&mut admin);
        assert!(!admin.line("ACL GETUSER app").is_error(), "{rules:?}");
    }
    let lock = admin.line("ACL SETUSER app +@lock");
    if !lock.is_error() {
        unload_and_load(&mut admin);
        let mut app = server.conn();
        app.line("AUTH app secret");
        admin.line("ACL SETUSER app on >secret allkeys");
        app.line("AUTH app secret");
        assert!(
            app.line("LOCK.ACQUIRE k o").int() > 0,
            "the category is as it was"
        );
    }
    assert!(server.is_alive());
}

/// Users' names are arbitrary bytes: they reach the log neither unescaped nor as a format.
#[test]
fn the_name_in_the_log_is_harmless() {
    let server = TestServer::start();
    if !asks_the_module(&server) {
        return;
    }
    let mut admin = server.conn();
    let long = [b'n'; 5_000];
    for (name, logged) in [
        (&b"%s%n%d"[..], "'%s%n%d'"),
        (b"\x1b[2J\xff'\"", "'\\x1b[2J\\xff\\'\\\"'"),
        (b"+lock.acquire", "'+lock.acquire'"),
        (&long, &format!("'{}...'", "n".repeat(64))),
    ] {
        let words: [&[u8]; 5] = [b"ACL", b"SETUSER", name, b"~*", b"+lock.renew"];
        assert!(!admin.run(words).is_error());
        assert!(refused(&mut admin));
        let lines = own_lines(&server.log());
        let line = lines.last().expect("a line");
        assert!(
            line.contains(&format!("user {logged} have '+lock.renew'")),
            "{line}"
        );
        admin.run([b"ACL".as_slice(), b"DELUSER", name]);
    }
    unload_and_load(&mut admin);
}

#[test]
fn the_module_stays_if_the_rules_cannot_be_read() {
    let server = TestServer::with(&["--rename-command", "ACL", "users"]);
    let mut admin = server.conn();
    if !asks_the_module(&server) {
        unload_and_load(&mut admin);
        return;
    }
    assert!(refused(&mut admin));
    let lines = own_lines(&server.log());
    let line = lines.last().expect("a line");
    assert!(
        line.starts_with("not unloaded: ACL LIST is refused"),
        "{line}"
    );
    assert!(admin.line("LOCK.ACQUIRE k o").int() > 0);
}

/// A line that loads the module, by a path without spaces.
fn load_line(server: &TestServer) -> String {
    let link = server.dir().join("module.so");
    let _ = std::os::unix::fs::symlink(module_path().canonicalize().unwrap(), &link);
    format!("MODULE LOAD {}", link.display())
}

/// How the module stays: `lock.drain` is turned on anew, `before` is sent over other connections, then `packet` in one
/// write over a new one. Returns whether the module is still there.
fn stays(server: &mut TestServer, before: &[&str], packet: &[&str]) -> bool {
    let mut admin = server.conn();
    for drain in ["no", "yes"] {
        admin.line(&format!("CONFIG SET lock.drain {drain}"));
    }
    let mut others: Vec<Conn> = before.iter().map(|_| server.conn()).collect();
    for (conn, lines) in others.iter_mut().zip(before) {
        let lines: Vec<_> = lines.split("; ").collect();
        conn.send_lines(&lines);
    }
    // The server has read them when another connection is answered.
    others.iter_mut().for_each(|conn| {
        assert_eq!(admin.line("ECHO x").text(), "x");
        let _ = conn.is_silent();
    });
    let mut own = server.conn();
    own.send_lines(packet);
    own.send_lines(&["ECHO end"]);
    let is_end = |reply: Reply| format!("{reply:?}").contains("end");
    while own.try_recv().is_some_and(|reply| !is_end(reply)) {}
    assert!(server.is_alive(), "{before:?} {packet:?}");
    let modules = server.conn().line("MODULE LIST");
    format!("{modules:?}").contains("\"lock\"")
}

/// The last refusal in the log.
fn last_refusal(server: &TestServer) -> String {
    let lines = own_lines(&server.log());
    let refusals = lines.into_iter().rev();
    let mut refusals = refusals.filter(|line| line.starts_with("not unloaded: "));
    refusals.next().expect("a refusal")
}

/// The transaction that unloads, with these lines behind `MODULE UNLOAD`.
fn unloading<'a>(behind: &[&'a str]) -> Vec<&'a str> {
    let (exec, before) = UNLOADING.split_last().expect("a transaction");
    [before, behind, &[exec]].concat()
}

/// The server would call whatever is at the addresses of the commands that it has looked up already.
#[test]
fn a_command_of_the_module_behind_the_unload_keeps_it() {
    let mut server = TestServer::start();
    let load = load_line(&server);
    for command in [
        "LOCK.OWNER",
        "LOCK.ACQUIRE k o",
        "LOCK.HELP",
        "latch.set l 1",
    ] {
        for behind in [&[command][..], &[&load, command]] {
            assert!(stays(&mut server, &[], &unloading(behind)), "{behind:?}");
            assert!(last_refusal(&server).contains("a command of this module after this one"));
            // Without the transaction's own end.
            let plain = [&["MULTI", "MODULE UNLOAD lock"], behind, &["EXEC"]].concat();
            assert!(stays(&mut server, &[], &plain), "{plain:?}");
        }
        let pipeline = ["MODULE UNLOAD lock", command, "PING"];
        assert!(stays(&mut server, &[], &pipeline), "{pipeline:?}");
        let pipeline = ["MODULE UNLOAD lock", &load, command, "PING"];
        assert!(stays(&mut server, &[], &pipeline), "{pipeline:?}");
    }
}

/// A native script's call becomes a command of the module when it is queued.
#[test]
fn a_script_behind_the_unload_keeps_it() {
    let mut server = TestServer::with(&["--lock.redisson-scripts", "yes"]);
    assert!(stays(&mut server, &[], &unloading(&["EVAL return 0"])));
}

/// Behind the transaction nothing is executed: its connection is closed.
#[test]
fn the_transaction_of_upgrade_sh_unloads_it() {
    let mut server = TestServer::start();
    let load = load_line(&server);
    // Connections in each state in which the server keeps a command of the module.
    let others = [
        "LOCK.OWNER",
        "MULTI; LOCK.OWNER",
        "BLPOP x 0; LOCK.OWNER",
        "SUBSCRIBE ch",
        "MONITOR",
    ];
    for behind in [&["PING", "LOCK.OWNER"][..], &[]] {
        let packet = [&unloading(&["RPUSH x 1"]), behind].concat();
        assert!(!stays(&mut server, &others, &packet), "{packet:?}");
        let mut conn = server.conn();
        conn.line("DEL x");
        assert!(conn.line("CLIENT LIST").text().contains("cmd=client|list"));
        scene::load(&mut conn);
        let exchange = [&unloading(&[&load, "RPUSH x 1"]), behind].concat();
        assert!(stays(&mut server, &others, &exchange), "{exchange:?}");
        assert_eq!(
            conn.another().line("CONFIG GET lock.drain").list()[1].text(),
            "no"
        );
    }
    assert!(server.conn().line("LOCK.ACQUIRE k o").int() > 0);
}

#[test]
fn a_connection_that_goes_on_keeps_it() {
    let mut server = TestServer::start();
    let others_only = [
        "MULTI",
        "CLIENT KILL TYPE normal",
        "MODULE UNLOAD lock",
        "EXEC",
    ];
    let packets: [&[&str]; 3] = [
        &["MODULE UNLOAD lock"],
        &["MULTI", "MODULE UNLOAD lock", "EXEC"],
        &others_only,
    ];
    for packet in packets {
        for other in ["PING", "MULTI; LOCK.OWNER", "BLPOP x 0; LOCK.OWNER"] {
            assert!(stays(&mut server, &[other], packet), "{packet:?}");
            let refusal = last_refusal(&server);
            assert!(refusal.contains("stays connected"), "{refusal}");
            assert!(refusal.contains("scripts/upgrade.sh"), "{refusal}");
        }
        // What the server had parsed ahead runs now.
        server.conn().line("LPUSH x 1 2 3");
        assert!(server.is_alive());
    }
}

/// A transaction that began before the drain may have any command behind its `MODULE UNLOAD`.
#[test]
fn a_connection_that_is_older_than_the_drain_keeps_it() {
    let mut server = TestServer::start();
    let (mut older, mut newer) = (server.conn(), server.conn());
    older.send_lines(&UNLOADING[..4]);
    newer.line("CONFIG SET lock.drain yes");
    let mut other = server.conn();
    other.send_lines(&["MULTI", "MODULE UNLOAD lock"]);
    (0..2).for_each(|_| drop(other.recv()));
    older.send_lines(&["EXEC"]);
    while older.try_recv().is_some() {}
    assert!(last_refusal(&server).contains("before lock.drain was turned on"));
    // Another one sent meanwhile: which of both is executed is not known.
    newer = server.conn();
    assert!(!unload_drained(&mut newer));
    assert!(last_refusal(&server).contains("another MODULE UNLOAD was sent"));
    newer.line("CONFIG SET lock.drain no");
    assert!(!unload_drained(&mut newer));
    assert!(last_refusal(&server).starts_with("not unloaded: lock.drain is off"));
    wait_for("no module", || unload(&mut newer));
    scene::load(&mut newer);
    assert!(server.is_alive());
}

/// Postponed commands run after the transaction that ends the pause.
#[test]
fn a_command_that_a_pause_has_postponed_keeps_the_module() {
    let mut server = TestServer::start();
    for queue in [false, true] {
        let (mut admin, mut other) = (server.conn(), server.conn());
        if queue {
            other.line("MULTI");
            other.line("LOCK.ACQUIRE k o ONCE");
        }
        admin.line("CONFIG SET lock.drain yes");
        admin.line("CLIENT PAUSE 60000 WRITE");
        other.send_line(if queue {
            "EXEC"
        } else {
            "LOCK.ACQUIRE k o ONCE"
        });
        assert!(other.is_silent());
        let mut own = server.conn();
        own.send_lines(&["MULTI", "CLIENT UNPAUSE", "MODULE UNLOAD lock", "EXEC"]);
        let replies: Vec<_> = (0..4).map(|_| own.recv()).collect();
        assert!(replies[3].list()[1].is_error(), "{replies:?}");
        assert!(!other.recv().is_error());
        admin.line("CLIENT PAUSE 60000 WRITE");
        other.send_line("LOCK.ACQUIRE k o ONCE");
        assert!(other.is_silent());
        wait_for("no module", || unload(&mut admin));
        admin.line("CLIENT UNPAUSE");
        assert!(server.is_alive());
        scene::load(&mut admin);
    }
}

/// A link to a replica stays, and so does that to a master.
#[test]
fn links_of_replication_stay() {
    let (master, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &master);
    wait_until_in_sync(&replica, &master);
    for server in [&master, &replica] {
        let mut conn = server.conn();
        wait_for("no module", || unload(&mut conn));
        scene::load(&mut conn);
    }
    assert!(master.conn().line("LOCK.ACQUIRE k o").int() > 0);
    wait_until_in_sync(&replica, &master);
    assert_eq!(replica.conn().line("EXISTS k").int(), 1);
    assert_eq!(
        replica.info_field("replication", "master_link_status"),
        "up"
    );
}

/// A client that has become a link may go on as the caller.
#[test]
fn a_link_of_replication_that_unloads_keeps_it() {
    let mut server = TestServer::start();
    server.conn().line("CONFIG SET lock.drain yes");
    wait_for("the end of the other connection", || {
        server.info_field("clients", "connected_clients") == "1"
    });
    let mut link = server.conn();
    link.send_lines(&["CLIENT REPLY OFF", "PSYNC ? -1"]);
    wait_for("a link", || {
        server.info_field("replication", "connected_slaves") == "1"
    });
    let refusals = |server: &TestServer| {
        let lines = own_lines(&server.log());
        let refusals = lines.iter().filter(|line| line.starts_with("not unloaded"));
        refusals.count()
    };
    link.send_lines(&["MODULE UNLOAD lock", "LOCK.HELP"]);
    wait_for("the refusal", || refusals(&server) == 1);
    assert!(server.is_alive());
}

/// The transaction was queued before the module existed, so no filter sees its commands.
#[test]
fn a_rule_that_is_set_in_the_transaction_that_loads_keeps_it() {
    let mut server = TestServer::without_module(&[]);
    let load = load_line(&server);
    for fill in 0..5 {
        let mut conn = server.conn();
        let fill = vec!["PING"; fill];
        let set = "ACL SETUSER app on +lock.acquire";
        // The counter of commands is a statistic, which a client can reset.
        let reset = "CONFIG RESETSTAT";
        let before = ["MULTI", reset, &load, set, reset];
        let behind = ["MODULE UNLOAD lock", "EXEC"];
        let lines = [&before[..], &fill, &behind].concat();
        conn.send_lines(&lines);
        let replies: Vec<_> = lines.iter().map(|_| conn.recv()).collect();
        let replies = replies[lines.len() - 1].list();
        assert!(replies[replies.len() - 1].is_error(), "{replies:?}");
        assert!(!conn.line("ACL GETUSER app").is_error());
        conn.line("ACL DELUSER app");
        wait_for("no module", || unload(&mut conn));
    }
    assert!(server.is_alive());
}

#[test]
fn a_command_behind_the_load_keeps_it() {
    let mut server = TestServer::without_module(&[]);
    let mut conn = server.conn();
    scene::load(&mut conn);
    let own = "LOCK.OWNER";
    conn.send_lines(&["MULTI", own, "MODULE UNLOAD lock", own, "EXEC"]);
    let replies: Vec<_> = (0..5).map(|_| conn.recv()).collect();
    let replies = replies[4].list();
    assert!(replies[1].is_error() && !replies[2].is_error());
    assert!(server.is_alive());
}

/// The server unloads it again within the command.
#[test]
fn an_unknown_setting_of_loadex_leaves_no_module() {
    let mut server = TestServer::without_module(&[]);
    let mut conn = server.conn();
    let loadex = load_line(&server).replace("LOAD", "LOADEX") + " CONFIG lock.unknown 1";
    assert!(conn.line(&loadex).is_error());
    assert!(conn
        .line("LOCK.OWNER")
        .error()
        .starts_with("ERR unknown command"));
    scene::load(&mut conn);
    assert!(conn.line("LOCK.ACQUIRE k o").int() > 0 && server.is_alive());
}
