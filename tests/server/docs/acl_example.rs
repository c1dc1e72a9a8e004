//! users.acl.example and redis.conf.example, loaded verbatim except for the paths, and docs/ACL.md about them: each
//! role can do its work, and nothing else.

use std::path::PathBuf;

use crate::commands::acl::{has_categories, has_own_category};
use crate::common::{module_path, wait_for, Conn, TestServer};

const USERS: &str = include_str!("../../../users.acl.example");
const CONFIG: &str = include_str!("../../../redis.conf.example");

/// The two files in a directory of their own, with these users.
pub struct Installed {
    config: PathBuf,
    _dir: tempfile::TempDir,
}

impl Installed {
    fn with(users: &str) -> Installed {
        let dir = tempfile::tempdir().unwrap();
        let (acl, config) = (dir.path().join("users.acl"), dir.path().join("redis.conf"));
        std::fs::write(&acl, users).unwrap();
        let mut text = CONFIG.to_string();
        for (there, here) in [
            (
                "loadmodule /usr/lib/redis/modules/libredis_lock.so",
                format!("loadmodule \"{}\"", module_path().display()),
            ),
            (
                "# aclfile /etc/redis/users.acl",
                format!("aclfile {}", acl.display()),
            ),
        ] {
            assert_eq!(text.matches(there).count(), 1, "{there}");
            text = text.replace(there, &here);
        }
        std::fs::write(&config, text).unwrap();
        Installed { config, _dir: dir }
    }

    /// A server with the module and with users from these files alone.
    fn start(&self) -> TestServer {
        TestServer::without_module(&["--include", self.config.to_str().unwrap()])
    }
}

pub fn login(server: &TestServer, name: &str) -> Conn {
    let mut conn = server.conn();
    let reply = conn.run(["AUTH", name, &format!("change-me-{name}")]);
    assert_eq!(reply.text(), "OK");
    conn
}

fn is_denied(conn: &mut Conn, line: &str) -> bool {
    let reply = conn.line(line);
    reply.is_error() && reply.error().starts_with("NOPERM")
}

pub fn must(conn: &mut Conn, lines: &[&str]) {
    for line in lines {
        let reply = conn.line(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
}

pub fn must_not(conn: &mut Conn, lines: &[&str]) {
    for line in lines {
        assert!(is_denied(conn, line), "{line}: {:?}", conn.line(line));
    }
}

/// Commands that are forbidden to every role: other keys, administration of the server, and more rights.
const FORBIDDEN: [&str; 20] = [
    "GET lock:1",
    "SET lock:1 x",
    "HGETALL lock:1",
    "HDEL lock:1 o",
    "EXPIRE lock:1 1",
    "RENAME lock:1 lock:2",
    "EVAL return 0",
    "MULTI",
    "KEYS *",
    "FLUSHALL",
    "CONFIG SET lock.publish no",
    "CONFIG GET *",
    "ACL WHOAMI",
    "MODULE UNLOAD lock",
    "SHUTDOWN",
    "CLIENT PAUSE 1",
    "DEBUG SLEEP 0",
    "REPLICAOF NO ONE",
    "LOCK.INFO other",
    "PUBLISH redisson_lock__channel:{lock:1} 0",
];

/// Commands that change state.
const CHANGES: [&str; 11] = [
    "LOCK.ACQUIRE lock:1 p",
    "LOCK.RELEASE lock:1 o",
    "LOCK.RENEW lock:1 o",
    "LOCK.MACQUIRE 1 lock:1 p",
    "LOCK.MRELEASE 1 lock:1 o",
    "LOCK.MRENEW 1 lock:1 o",
    "SEM.ACQUIRE lock:sem p",
    "SEM.RENEW lock:sem p",
    "LATCH.DOWN lock:latch",
    "LOCK.ACQUIRE lock:rw p READ",
    "LOCK.ACQUIRE {lock:1}:x p",
];

/// Commands that repair state.
const MENDS: [&str; 4] = [
    "LOCK.BREAK lock:1",
    "SEM.SET lock:sem 9",
    "CLIENT KILL ID 999999",
    "CLIENT LIST",
];

/// Commands that show other clients.
const LOOKS: [&str; 6] = [
    "LOCK.INFO lock:1 WAITERS",
    "LOCK.SCAN 0",
    "SEM.INFO lock:sem",
    "LATCH.WAIT lock:latch",
    "INFO lock",
    "LOCK.HELP",
];

/// A server where the lock `lock:1` is held, with a semaphore and a latch.
pub fn furnished() -> (Installed, TestServer) {
    let files = Installed::with(USERS);
    let server = files.start();
    must(
        &mut server.conn(),
        &[
            "LOCK.ACQUIRE lock:1 o PX 600000",
            "SEM.SET lock:sem 2",
            "LATCH.SET lock:latch 1",
            "SET other 1",
        ],
    );
    (files, server)
}

#[test]
fn the_application_works_with_locks_of_every_kind_and_with_nothing_else() {
    let (_files, server) = furnished();
    let mut app = login(&server, "app");
    must_not(&mut app, &FORBIDDEN);
    must_not(&mut app, &MENDS);
    must_not(&mut app, &LOOKS[..3]);
    must_not(
        &mut app,
        &[
            "INFO",
            "DEL lock:1",
            "SCAN 0",
            "SUBSCRIBE lock:1",
            "LOCK.ACQUIRE other o",
            "LOCK.ACQUIRE lockers o",
        ],
    );
    must_not(
        &mut app,
        &[
            "LOCK.MACQUIRE 2 lock:9 other o",
            "SEM.ACQUIRE {other}:lock:1 o",
        ],
    );
    must(
        &mut app,
        &[
            "HELLO 2",
            "PING",
            "SELECT 0",
            "CLIENT SETNAME worker-7",
            "CLIENT ID",
            "WAIT 0 1",
            "LOCK.OWNER",
        ],
    );
    if has_categories(&server) {
        must(&mut app, &["CLIENT SETINFO LIB-NAME worker"]);
    }
    must(&mut app, &CHANGES);
    must(
        &mut app,
        &[
            "LOCK.ACQUIRE lock:rw2 p WRITE",
            "LOCK.RENEW lock:rw2 p PX 9000",
            "LOCK.RELEASE lock:rw2 p",
            "LOCK.RELEASE lock:rw p",
        ],
    );
    must(
        &mut app,
        &[
            "LOCK.ACQUIRE lock:{tag} p READ",
            "LOCK.RELEASE lock:{tag} p",
            "SEM.RELEASE lock:sem p",
            "LATCH.WAIT lock:latch",
        ],
    );
    server.check_counters();
}

#[test]
fn the_application_waits_and_is_granted_the_lock() {
    let (_files, server) = furnished();
    let (mut holder, mut waiter) = (login(&server, "app"), login(&server, "app"));
    waiter.send_line("LOCK.ACQUIRE lock:1 p BLOCK 0 ONCE");
    server.wait_for_waiters(1);
    assert_eq!(holder.line("LOCK.RELEASE lock:1 o").int(), 1);
    assert!(waiter.recv().int() > 0);
}

#[test]
fn the_observer_reads_and_changes_nothing() {
    let (_files, server) = furnished();
    let mut observer = login(&server, "observer");
    let before = server.info_field("persistence", "rdb_changes_since_last_save");
    must_not(&mut observer, &FORBIDDEN);
    must_not(&mut observer, &CHANGES);
    must_not(&mut observer, &MENDS);
    must_not(
        &mut observer,
        &[
            "DEL lock:1",
            "LATCH.SET lock:latch 0",
            "LATCH.WAIT other",
            "SEM.INFO other",
        ],
    );
    must(&mut observer, &LOOKS);
    assert_eq!(
        server.info_field("persistence", "rdb_changes_since_last_save"),
        before
    );
}

/// docs/ACL.md has the words that permit other channels.
#[test]
fn an_application_waits_with_notify_on_its_channels() {
    const PERMIT: &str = "ACL SETUSER app &lock:*";
    assert!(include_str!("../../../docs/ACL.md").contains(PERMIT));
    let (_files, server) = furnished();
    server.conn().line("SUBSCRIBE lock:answers");
    let on = |channel: &str| format!("LOCK.ACQUIRE lock:1 p BLOCK 0 NOTIFY {channel} 1");
    let mut app = login(&server, "app");
    must_not(&mut app, &[&on("lock:answers"), "SUBSCRIBE lock:answers"]);
    let mut subscriber = login(&server, "app");
    must(&mut subscriber, &["SUBSCRIBE lock:tickets:a"]);
    assert_eq!(app.line(&on("lock:tickets:a")).text(), "QUEUED");
    server.conn().line("LOCK.RELEASE lock:1 o");
    let message = subscriber.recv().list()[2].text();
    assert!(message.starts_with("granted ") && message.ends_with(" 1"));
    must(&mut server.conn(), &[PERMIT]);
    must(&mut subscriber, &["SUBSCRIBE lock:answers"]);
    let other = on("lock:answers").replace("lock:1 p", "lock:1 q");
    assert_eq!(app.line(&other).text(), "QUEUED");
}

/// A user that may subscribe receives events of locks, and no others.
#[test]
fn observer_and_operator_receive_the_events_of_locks() {
    let (_files, server) = furnished();
    let mut admin = server.conn();
    admin.line("CONFIG SET notify-keyspace-events KEAd");
    for name in ["observer", "operator"] {
        let mut conn = login(&server, name);
        must_not(
            &mut conn,
            &[
                "SUBSCRIBE __keyevent@0__:del",
                "PSUBSCRIBE *",
                "PSUBSCRIBE __keyspace@*__:*",
            ],
        );
        must(
            &mut conn,
            &[
                "SUBSCRIBE __keyevent@0__:lock.acquire",
                "PSUBSCRIBE __keyspace@*__:lock:*",
            ],
        );
        admin.line(&format!("LOCK.ACQUIRE lock:{name} o"));
        let mut received =
            [conn.recv().list(), conn.recv().list()].map(|message| message[0].text());
        received.sort();
        assert_eq!(received, ["message", "pmessage"], "{name}");
    }
}

#[test]
fn the_operator_repairs_but_takes_no_lock() {
    let (_files, server) = furnished();
    let mut operator = login(&server, "operator");
    must_not(&mut operator, &FORBIDDEN);
    must_not(&mut operator, &CHANGES);
    must_not(
        &mut operator,
        &["DEL other", "LOCK.BREAK other", "SEM.SET other 1"],
    );
    must(&mut operator, &LOOKS);
    must(&mut operator, &MENDS);
    must(
        &mut operator,
        &[
            "LATCH.SET lock:latch 0",
            "SEM.RELEASE lock:sem p",
            "DEL lock:1",
        ],
    );
    let mut holder = server.conn();
    holder.line("LOCK.ACQUIRE lock:rw o READ PX 600000");
    let mut waiter = login(&server, "app");
    waiter.send_line("LOCK.ACQUIRE lock:rw p WRITE BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(operator.line("LOCK.BREAK lock:rw").int(), 1);
    assert!(waiter.recv().int() > 0);
    let mut stuck = login(&server, "app");
    let id = stuck.id();
    stuck.send_line("LOCK.ACQUIRE lock:rw q BLOCK 0");
    stuck.send_line("LOCK.ACQUIRE lock:rw q WRITE BLOCK 0");
    wait_for("the client is gone", || {
        operator.line(&format!("CLIENT KILL ID {id}")).int() == 1
    });
    server.wait_for_waiters(0);
}

/// Three statements of the page about rules that only Redis 7.0 needs.
#[test]
fn del_and_client_kill_are_for_servers_without_categories() {
    let (_files, server) = furnished();
    let mut admin = server.conn();
    for without in ["-del", "-client|kill"] {
        admin.line(&format!("ACL SETUSER operator {without}"));
        let mut operator = login(&server, "operator");
        admin.line("LOCK.ACQUIRE lock:1 o ONCE");
        let denied = is_denied(&mut operator, "LOCK.BREAK lock:1");
        assert_eq!(denied, !has_categories(&server), "{without}");
        admin.line("ACL SETUSER operator +del +client|kill");
    }
    let own = admin.line("ACL SETUSER all on nopass ~lock:* +@lock");
    assert_eq!(own.is_error(), !has_own_category(&server), "{own:?}");
}

#[test]
fn without_the_sibling_keys_only_an_exclusive_lock_works() {
    let users = USERS.replace(
        "user app on >change-me-app ~lock:* ~{lock:*}*",
        "user app on >change-me-app ~lock:*",
    );
    assert_ne!(users, USERS);
    let files = Installed::with(&users);
    let server = files.start();
    let mut app = login(&server, "app");
    must(
        &mut app,
        &["LOCK.ACQUIRE lock:1 o", "LOCK.RELEASE lock:1 o"],
    );
    must_not(
        &mut app,
        &[
            "LOCK.ACQUIRE lock:1 o READ",
            "LOCK.ACQUIRE lock:1 o WRITE",
            "SEM.ACQUIRE lock:1 o LIMIT 1",
        ],
    );
    must(
        &mut app,
        &[
            "LOCK.ACQUIRE lock:{1} o READ",
            "SEM.ACQUIRE lock:{2} o LIMIT 1",
        ],
    );
}

#[test]
fn with_the_default_user_off_every_command_needs_a_login() {
    let (_files, server) = furnished();
    let mut admin = server.conn();
    admin.line("ACL SETUSER default off");
    let refused = server.conn().line("LOCK.ACQUIRE lock:2 o").error();
    assert!(refused.starts_with("NOAUTH"), "{refused}");
    must(&mut login(&server, "app"), &["LOCK.ACQUIRE lock:2 o"]);
    admin.line("ACL SETUSER default on");
}

/// The users survive a restart, and `ACL SAVE` writes no password in plain text.
#[test]
fn the_file_can_be_saved_by_the_server_and_loaded_again() {
    let (files, mut server) = furnished();
    let mut admin = server.conn();
    must(&mut admin, &["ACL SAVE", "ACL LOAD"]);
    let saved = std::fs::read_to_string(files.config.with_file_name("users.acl")).unwrap();
    assert!(
        saved.contains("user app on") && !saved.contains("change-me"),
        "{saved}"
    );
    server.restart();
    let mut app = login(&server, "app");
    must(&mut app, &["LOCK.ACQUIRE lock:2 o"]);
    must_not(&mut app, &["LOCK.BREAK lock:2"]);
}

/// A server without the module does not know the commands in the file, and does not start.
#[test]
fn without_the_module_the_file_is_refused() {
    let server = TestServer::without_module(&[]);
    let mut admin = server.conn();
    for line in USERS.lines().filter(|line| line.contains("+lock.")) {
        let words = line.split_whitespace().skip(1);
        let reply = admin.run(["ACL", "SETUSER"].into_iter().chain(words));
        assert!(reply.error().contains("Unknown command"), "{reply:?}");
    }
}
