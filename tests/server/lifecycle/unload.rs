//! `MODULE UNLOAD` in cases that the server would not survive: users' rules name commands of the module, a transaction
//! has one queued, or a connection has one as its last command.

use crate::common::scene::unload_and_load;
use crate::common::{has_io_threads, module_path, wait_for, Conn, TestServer};
use crate::lifecycle::settings::own_lines;
use crate::redisson::native_effects::acquire;

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
    admin.line("MODULE UNLOAD lock").is_error()
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

#[test]
fn a_transaction_cannot_unload_it_either() {
    let mut server = TestServer::start();
    let mut admin = server.conn();
    set_user(&mut admin, "app", &["+lock.acquire"]);
    admin.send_lines(&["MULTI", "MODULE UNLOAD lock", "PING", "EXEC"]);
    let replies: Vec<_> = (0..4).map(|_| admin.recv()).collect();
    let results = replies[3].list();
    assert!(
        results[0].is_error() && !results[1].is_error(),
        "{results:?}"
    );
    // Withdrawn in the same transaction, and set again.
    let path = module_path();
    let load = format!("MODULE LOAD {}", path.display());
    admin.send_lines(&[
        "MULTI",
        "ACL SETUSER app -@all",
        "MODULE UNLOAD lock",
        &load,
        "ACL SETUSER app +lock.acquire",
        "EXEC",
    ]);
    let replies: Vec<_> = (0..6).map(|_| admin.recv()).collect();
    let results = replies[5].list();
    assert!(
        results.iter().all(|reply| reply.text() == "OK"),
        "{results:?}"
    );
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

/// The server would call whatever is at the address of the queued command.
#[test]
fn a_transaction_that_is_open_keeps_the_module() {
    let mut server = TestServer::start();
    if has_io_threads() && !server.is_valkey() && server.version() >= (8, 0, 0) {
        // On these servers a transaction that unloads closes all connections.
        return;
    }
    let (mut admin, mut queueing) = (server.conn(), server.conn());
    let id = queueing.id();
    queueing.line("MULTI");
    unload_and_load(&mut admin);
    assert_eq!(queueing.line("LOCK.ACQUIRE k o PX 60000").text(), "QUEUED");
    assert!(refused(&mut admin));
    let lines = own_lines(&server.log());
    let expected = format!("not unloaded: client {id} has a transaction open");
    let line = lines.last().expect("a line");
    assert!(line.starts_with(&expected), "{line}");
    admin.send_lines(&["MULTI", "PING", "MODULE UNLOAD lock", "EXEC"]);
    let replies: Vec<_> = (0..4).map(|_| admin.recv()).collect();
    assert!(replies[3].list()[1].is_error(), "by a transaction");
    assert!(queueing.line("EXEC").list()[0].int() > 0);
    drop(queueing);
    unload_and_load(&mut admin);
    assert!(admin.line("LOCK.RELEASE k o").int() == 1 && server.is_alive());
}

/// Postponed commands run after the transaction that ends the pause.
#[test]
fn a_command_that_a_pause_has_postponed_keeps_the_module() {
    let server = TestServer::start();
    if has_io_threads() && !server.is_valkey() && server.version() >= (8, 0, 0) {
        // On these servers the module does not list the clients.
        return;
    }
    let (mut admin, mut other) = (server.conn(), server.conn());
    for queue in [false, true] {
        if queue {
            other.line("MULTI");
            other.line("LOCK.ACQUIRE k o ONCE");
        }
        admin.line("CLIENT PAUSE 60000 WRITE");
        other.send_line(if queue {
            "EXEC"
        } else {
            "LOCK.ACQUIRE k o ONCE"
        });
        wait_for("a postponed command", || {
            let clients = admin.line("CLIENT LIST").text();
            let mut flags = clients.split(" flags=").skip(1);
            flags.any(|flags| {
                flags
                    .split(' ')
                    .next()
                    .is_some_and(|flags| flags.contains('b'))
            })
        });
        admin.send_lines(&["CLIENT UNPAUSE", "MODULE UNLOAD lock"]);
        assert_eq!(admin.recv().text(), "OK");
        assert!(admin.recv().is_error(), "queued: {queue}");
        assert!(!other.recv().is_error());
    }
}

/// `CLIENT LIST` would read it after the unload, and the server would end.
#[test]
fn a_last_command_of_a_connection_keeps_the_module() {
    let mut server = TestServer::with(&["--lock.redisson-scripts", "yes"]);
    if has_io_threads() && !server.is_valkey() && server.version() >= (8, 0, 0) {
        // On these servers the module does not list the clients.
        return;
    }
    let (mut admin, mut idle, mut refused_one) = (server.conn(), server.conn(), server.conn());
    let mut by_script = server.conn();
    assert!(by_script.run(acquire("u:1")).is_nil());
    admin.line("CONFIG SET lock.redisson-scripts no");
    idle.line("LOCK.ACQUIRE k2 o PX 60000");
    assert!(refused_one.line("lock.acquire").is_error());
    for kept in [3, 2, 1] {
        assert!(refused(&mut admin));
        let lines = own_lines(&server.log());
        let line = lines.last().expect("a line");
        let expected = format!("not unloaded: the last command of {kept} connections is one of");
        assert!(line.starts_with(&expected), "{line}");
        let other = [&mut idle, &mut refused_one, &mut by_script]
            .into_iter()
            .nth(kept - 1);
        other.expect("a connection").line("PING");
    }
    unload_and_load(&mut admin);

    // A transaction that closes the connections first, as scripts/upgrade.sh does.
    idle.line("LOCK.ACQUIRE k2 o ONCE");
    let load = format!("MODULE LOAD {}", module_path().display());
    let closing = ["CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"];
    let exchange = ["MODULE UNLOAD lock", &load, "EXEC"];
    admin.send_lines(&[&["MULTI"], &closing[..], &exchange[..]].concat());
    let replies: Vec<_> = (0..6).map(|_| admin.recv()).collect();
    let results = replies[5].list();
    assert_eq!(results[2].text(), "OK", "{results:?}");
    assert_eq!(results[3].text(), "OK", "{results:?}");
    assert!(admin.line("CLIENT LIST").text().contains("cmd=client|list"));
    assert!(server.is_alive());
}
