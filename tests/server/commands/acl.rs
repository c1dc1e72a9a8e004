//! Permissions: key patterns, categories, and LOCK.BREAK on servers without categories for modules.

use crate::common::{Bystander, Conn, TestServer};

/// Whether a module can declare the ACL categories of its commands: since Redis 7.2.
pub fn has_categories(server: &TestServer) -> bool {
    server.version() >= (7, 2, 0)
}

/// Whether a module can add a category of its own: Redis 7.4, Redict 7.3, Valkey 8.0 and later.
pub fn has_own_category(server: &TestServer) -> bool {
    server.version() >= (7, 3, 0)
}

/// Creates a user with these rules and nothing else, and a connection of it.
pub fn user(server: &TestServer, name: &str, rules: &str) -> Conn {
    let mut admin = server.conn();
    let made = admin.line(&format!("ACL SETUSER {name} reset on nopass {rules}"));
    assert_eq!(made.text(), "OK", "{rules}");
    let mut conn = server.conn();
    assert_eq!(conn.line(&format!("AUTH {name} any")).text(), "OK");
    conn
}

pub fn is_denied(conn: &mut Conn, line: &str) -> bool {
    let reply = conn.line(line);
    reply.is_error() && reply.error().starts_with("NOPERM ")
}

/// The result of ACL DRYRUN.
fn would_be_denied(conn: &mut Conn, name: &str, line: &str) -> bool {
    conn.line(&format!("ACL DRYRUN {name} {line}")).text() != "OK"
}

const ON_A_KEY: [&str; 5] = [
    "LOCK.ACQUIRE k p",
    "LOCK.RELEASE k p",
    "LOCK.RENEW k p",
    "LOCK.BREAK k TOKEN 1",
    "LOCK.INFO k",
];

#[test]
fn every_command_needs_the_keys_permissions_that_it_declares() {
    let server = TestServer::start();
    let mut admin = server.conn();
    admin.line("LOCK.ACQUIRE k o PX 600000");
    for (name, pattern, may_change, may_look) in [
        ("reader", "%R~*", false, true),
        ("writer", "%W~*", false, false),
        ("both", "%RW~k", true, true),
        ("plain", "~k", true, true),
        ("elsewhere", "~other:*", false, false),
        ("keyless", "", false, false),
    ] {
        let mut conn = user(&server, name, &format!("+@all {pattern}"));
        let bystander = Bystander::of(&server, "k");
        for line in ON_A_KEY {
            let allowed = if line.starts_with("LOCK.INFO") {
                may_look
            } else {
                may_change
            };
            assert_eq!(is_denied(&mut conn, line), !allowed, "{name}: {line}");
            assert_eq!(
                would_be_denied(&mut admin, name, line),
                !allowed,
                "{name}: {line}"
            );
        }
        bystander.saw_nothing(name);
        assert_eq!(conn.line("LOCK.OWNER").text().len(), 36);
        assert!(!conn.line("LOCK.HELP").is_error());
    }
}

#[test]
fn three_commands_and_a_key_pattern_are_enough_to_work_with_locks() {
    let server = TestServer::start();
    let rules = "+lock.acquire +lock.release +lock.renew ~lock:*";
    let (mut a, mut b) = (user(&server, "a", rules), user(&server, "b", rules));
    let mut admin = server.conn();
    let first = a.line("LOCK.ACQUIRE lock:k o PX 60000").int();
    assert_eq!(a.line("LOCK.RENEW lock:k o PX 60000").int(), 1);
    b.send_line("LOCK.ACQUIRE lock:k p PX 60000 BLOCK 0 WITHHOLDER");
    server.wait_for_waiters(1);
    assert_eq!(a.line("LOCK.RELEASE lock:k o").int(), 1);
    let handed = b.recv().list();
    assert!(handed[0].int() > first && handed[1].text() == "p");
    // Granted by the timer, without a user.
    a.send_line("LOCK.ACQUIRE lock:k o PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(b.line("LOCK.RENEW lock:k p PX 10").int(), 1);
    assert!(a.recv().int() > handed[0].int());
    // Its release publishes, although the user has no channel.
    assert_eq!(a.line("LOCK.RELEASE lock:k o").int(), 1);
    for line in [
        "LOCK.ACQUIRE k o",
        "LOCK.BREAK lock:k",
        "LOCK.INFO lock:k",
        "LOCK.OWNER",
        "LOCK.HELP",
        "DEL lock:k",
        "GET redis_lock:horizon",
        "INFO lock",
    ] {
        assert!(is_denied(&mut a, line), "{line}");
    }
    assert_eq!(admin.line("EXISTS lock:k k").int(), 0);
}

#[test]
fn a_selector_grants_a_command_on_its_own_keys() {
    let server = TestServer::start();
    let mut conn = user(
        &server,
        "u",
        "+lock.acquire ~a:* (+lock.info %R~b:*) (+lock.renew ~b:*)",
    );
    assert!(conn.line("LOCK.ACQUIRE a:k o").int() > 0);
    assert!(is_denied(&mut conn, "LOCK.ACQUIRE b:k o"));
    assert!(is_denied(&mut conn, "LOCK.INFO a:k"));
    assert!(conn.line("LOCK.INFO b:k").is_nil());
    assert_eq!(conn.line("LOCK.RENEW b:k o").int(), 0);
}

#[test]
fn the_category_lock_holds_every_command_of_the_module_where_servers_have_it() {
    let server = TestServer::start();
    let mut admin = server.conn();
    if !has_own_category(&server) {
        assert!(admin.line("ACL SETUSER u on nopass +@lock").is_error());
        assert!(server.log().contains("cannot add the ACL category @lock"));
        return;
    }
    assert!(!server.log().contains("cannot add the ACL category @lock"));
    let mut with = user(&server, "with", "+@lock ~*");
    let mut without = user(&server, "without", "+@all -@lock ~*");
    for line in ON_A_KEY.iter().chain(&["LOCK.OWNER", "LOCK.HELP"]) {
        assert!(!is_denied(&mut with, line), "{line}");
        assert!(is_denied(&mut without, line), "{line}");
    }
    assert!(is_denied(&mut with, "PING") && !is_denied(&mut without, "PING"));
}

#[test]
fn the_servers_categories_hold_our_commands_where_modules_may_say_so() {
    let server = TestServer::start();
    let mut conn = user(&server, "u", "+@write +@read +@fast -@dangerous ~*");
    let known = has_categories(&server);
    for line in [
        "LOCK.ACQUIRE k o",
        "LOCK.RENEW k o",
        "LOCK.INFO k",
        "LOCK.RELEASE k o",
        "LOCK.OWNER",
    ] {
        // On 7.0 no category contains a module's command.
        assert_eq!(is_denied(&mut conn, line), !known, "{line}");
    }
    assert!(is_denied(&mut conn, "LOCK.BREAK k"), "it is dangerous");
    let mut reader = user(&server, "r", "+@read ~*");
    assert_eq!(is_denied(&mut reader, "LOCK.INFO k"), !known);
    assert!(is_denied(&mut reader, "LOCK.ACQUIRE k o"));
    let mut fast = user(&server, "f", "+@all -@blocking ~*");
    assert_eq!(is_denied(&mut fast, "LOCK.ACQUIRE k o"), known);
}

#[test]
fn break_without_categories_needs_del_and_client_kill() {
    const TEXT: &str = "NOPERM LOCK.BREAK needs permission to run DEL on the key and CLIENT KILL";
    let server = TestServer::start();
    let mut admin = server.conn();
    for (rules, enough) in [
        ("+lock.break ~k", false),
        ("+lock.break +del ~k", false),
        ("+lock.break +client|kill ~k", false),
        ("+lock.break +client +hdel ~k", false),
        ("+@all -@dangerous +lock.break ~k", false),
        ("+@all -del ~k", false),
        ("+lock.break +del +client|kill ~k", true),
        ("+lock.break +del +client ~*", true),
        ("+lock.break +client|kill ~k (+del ~k)", true),
        ("+lock.break +client|kill ~k (+del ~j)", false),
        ("+@all ~*", true),
    ] {
        // Since 7.2 LOCK.BREAK is in @dangerous, and the rules with that category decide.
        let allowed = enough || has_categories(&server);
        let mut conn = user(&server, "u", rules);
        admin.line("LOCK.ACQUIRE k o PX 600000 ONCE");
        let bystander = Bystander::of(&server, "k");
        let reply = conn.line("LOCK.BREAK k");
        if allowed {
            assert_eq!(reply.int(), 1, "{rules}");
            bystander.saw_a_change(rules);
        } else {
            assert_eq!(reply.error(), TEXT, "{rules}");
            bystander.saw_nothing(rules);
        }
    }
    assert!(is_denied(
        &mut user(&server, "v", "+@all -lock.break ~*"),
        "LOCK.BREAK k"
    ));
}

#[test]
fn break_in_a_script_needs_the_permissions_of_the_scripts_caller() {
    let server = TestServer::start();
    let mut c = server.conn();
    let script = "return redis.pcall('LOCK.BREAK', KEYS[1])";
    let library = "#!lua name=lib\n\
         redis.register_function('breaks', function(keys) return redis.pcall('LOCK.BREAK', keys[1]) end)";
    assert!(!c.run(["FUNCTION", "LOAD", library]).is_error());
    let mut other = user(&server, "u", "+eval +fcall +lock.break ~k");
    for call in [&["EVAL", script, "1", "k"], &["FCALL", "breaks", "1", "k"]] {
        c.line("LOCK.ACQUIRE k o PX 600000 ONCE");
        if !has_categories(&server) {
            assert!(other.run(call).error().starts_with("NOPERM "));
        }
        assert_eq!(c.run(call).int(), 1);
    }
    // In a transaction the client is a real connection.
    c.line("LOCK.ACQUIRE k o ONCE");
    c.line("MULTI");
    c.line("LOCK.BREAK k");
    assert_eq!(c.line("EXEC").list()[0].int(), 1);
}

#[test]
fn a_script_may_do_what_its_caller_may() {
    let server = TestServer::start();
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'o')";
    let mut with = user(&server, "with", "+eval +lock.acquire ~k");
    let mut without = user(&server, "without", "+eval +lock.release ~k");
    assert!(with.run(["EVAL", script, "1", "k"]).int() > 0);
    for conn in [&mut without, &mut with] {
        let denied = conn.run(["EVAL", script, "1", "j"]);
        assert!(denied.is_error(), "{denied:?}");
    }
    assert!(without.run(["EVAL", script, "1", "k"]).is_error());
}

#[test]
fn a_user_deleted_while_parked_is_removed_and_the_lock_still_works() {
    let server = TestServer::start();
    let (mut admin, mut next) = (server.conn(), server.conn());
    let mut gone = user(&server, "u", "+lock.acquire ~k");
    admin.line("LOCK.ACQUIRE k o PX 600000");
    gone.send_line("LOCK.ACQUIRE k p BLOCK 0");
    server.wait_for_waiters(1);
    next.send_line("LOCK.ACQUIRE k q BLOCK 0");
    server.wait_for_waiters(2);
    assert_eq!(admin.line("ACL DELUSER u").int(), 1);
    assert!(gone.is_closed());
    server.wait_for_waiters(1);
    assert_eq!(admin.line("LOCK.RELEASE k o").int(), 1);
    assert!(next.recv().int() > 0);
}

/// The command writes another key than the one that it names.
#[test]
fn a_semaphore_needs_the_key_of_its_permits() {
    let server = TestServer::start();
    let mut admin = server.conn();
    admin.line("SEM.SET k 2");
    admin.line("SEM.ACQUIRE k o PX 600000");
    for (name, keys) in [
        ("alone", "~k"),
        ("reads", "~k ~{k} %R~{k}:timeout"),
        ("writes", "~k ~{k} %W~{k}:timeout"),
        ("another", "~k ~{k} ~{kk}:timeout"),
    ] {
        let mut conn = user(&server, name, &format!("+@all {keys}"));
        let bystander = Bystander::of(&server, "{k}:timeout");
        for line in [
            "SEM.ACQUIRE k p",
            "SEM.ACQUIRE k p BLOCK 0",
            "SEM.RELEASE k o",
            "SEM.RENEW k o PX 1",
            "SEM.SET k 5",
        ] {
            assert!(is_denied(&mut conn, line), "{name}: {line}");
        }
        assert_eq!(is_denied(&mut conn, "SEM.INFO k"), name != "reads");
        bystander.saw_nothing(name);
    }
    let mut conn = user(&server, "both", "+@all ~k ~{k} ~{k}:timeout");
    assert!(conn.line("SEM.ACQUIRE k p").int() > 0);
    assert_eq!(conn.line("SEM.RENEW k o").int(), 1);
    assert_eq!(conn.line("SEM.RELEASE k o").int(), 1);
    assert_eq!(conn.line("SEM.SET k 5").int(), 5);
}

/// Keys beside a lock, a semaphore or a latch, which its command does not name, and for which this user has no
/// permission.
#[test]
fn replies_do_not_depend_on_keys_without_permission() {
    const LINES: [&str; 12] = [
        "LATCH.SET own:x 2",
        "LATCH.DOWN own:x",
        "LATCH.WAIT own:x",
        "LOCK.ACQUIRE own:r a READ",
        "LOCK.MACQUIRE 2 own:q own:r a WRITE",
        "LOCK.ACQUIRE own:r a",
        "LOCK.RELEASE own:r a ALL",
        "SEM.SET own:s 2",
        "SEM.ACQUIRE own:s a LIMIT 2",
        "SEM.RELEASE own:s a",
        "SEM.INFO own:s",
        "SEM.INFO own:x",
    ];
    for keys in ["~own:*", "~own:* ~{own:*}:*"] {
        let [without, beside] = [false, true].map(|beside| {
            let server = TestServer::start();
            if beside {
                let mut admin = server.conn();
                // A lock that is held by a Redisson client, and a semaphore: each shares keys with one of the user's.
                admin.line("HSET {own:r} mode write v:write 1");
                admin.line("SET {own:s} 3");
                if keys == "~own:*" {
                    admin.line("ZADD {own:s}:timeout 9000000000000 v");
                    admin.line("ZADD {own:x}:timeout 9000000000000 v");
                }
            }
            let mut conn = user(&server, "u", &format!("+@all {keys}"));
            LINES.map(|line| {
                let reply = conn.line(line);
                match reply.is_error() {
                    true => reply.error(),
                    // Tokens differ.
                    false if line.contains("ACQUIRE") => "a token".into(),
                    false => format!("{reply:?}"),
                }
            })
        });
        assert_eq!(without, beside, "{keys}");
    }
}

#[test]
fn a_grant_writes_redissons_counter_for_users_with_permission_only() {
    const COUNTER: &str = "redisson_lock_token:{k}";
    let server = TestServer::start();
    let mut admin = server.conn();
    admin.run(["SET", COUNTER, "5"]);
    for keys in [
        "~k",
        "~k %R~redisson_lock_token:*",
        "~k %W~redisson_lock_token:*",
    ] {
        let mut conn = user(&server, "u", &format!("+@all {keys}"));
        for line in [
            "LOCK.ACQUIRE k o",
            "LOCK.MACQUIRE 2 j k o",
            "LOCK.ACQUIRE k o BLOCK 0",
        ] {
            assert!(is_denied(&mut conn, line), "{keys}: {line}");
        }
        // The hold of a Redisson client gets its token from the renewal.
        admin.line("HSET k o 1");
        for line in ["LOCK.RENEW k o", "LOCK.MRENEW 1 k o", "LOCK.ACQUIRE k o"] {
            assert!(is_denied(&mut conn, line), "{keys}: {line}");
        }
        // A request that would wait would be granted by others later.
        admin.line("HSET k other 1");
        admin.line("HDEL k o");
        assert!(is_denied(&mut conn, "LOCK.ACQUIRE k o BLOCK 0"), "{keys}");
        assert!(conn.line("LOCK.ACQUIRE k o").is_nil(), "{keys}");
        admin.line("DEL k");
        assert_eq!(admin.run(["GET", COUNTER]).text(), "5", "{keys}");
    }
    let mut conn = user(&server, "u", "+@all ~k ~redisson_lock_token:{k}");
    let token = conn.line("LOCK.ACQUIRE k o").int();
    assert_eq!(admin.run(["GET", COUNTER]).text(), token.to_string());
    assert_eq!(conn.line("LOCK.RELEASE k o").int(), 1);
}
