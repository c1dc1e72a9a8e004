//! Users: an owner of one is no owner of another, and a waiter is granted only what its user may still take.

use crate::common::barrier::assert_stays_silent;
use crate::common::{wait_for, Conn, Reply, TestServer};
use crate::tickets::scene::{assert_queued, granted, message, subscribe};

/// A user with these rules and nothing else.
fn make(admin: &mut Conn, name: &str, rules: &str) {
    let line = format!("ACL SETUSER {name} reset on nopass {rules}");
    assert_eq!(admin.line(&line).text(), "OK", "{rules}");
}

fn login(server: &TestServer, name: &str) -> Conn {
    let mut conn = server.conn();
    assert_eq!(conn.line(&format!("AUTH {name} any")).text(), "OK");
    conn
}

/// A request of this user that is parked.
fn park(server: &TestServer, name: &str, line: &str) -> Conn {
    let parked = || {
        ["waits_parked", "sem_waits_parked", "latch_waits_parked"]
            .map(|field| server.stat(field))
            .iter()
            .sum::<u64>()
    };
    let (before, mut conn) = (parked(), login(server, name));
    conn.send_line(line);
    wait_for("a parked request", || parked() == before + 1);
    conn
}

const TENANT: &str =
    "+lock.acquire +lock.macquire +lock.release +sem.acquire +latch.wait +publish +eval";

/// Two tenants, and an administrator.
fn tenants() -> (TestServer, Conn) {
    let server = TestServer::start();
    let mut admin = server.conn();
    make(
        &mut admin,
        "mine",
        &format!("{TENANT} ~mine:* ~{{mine:*}}:* &mine:*"),
    );
    make(
        &mut admin,
        "yours",
        &format!("{TENANT} ~yours:* ~{{yours:*}}:* &yours:*"),
    );
    (server, admin)
}

fn entries(admin: &mut Conn) -> Vec<(String, String, String)> {
    let entries = admin.line("ACL LOG").list();
    let text = |entry: &Reply, name| entry.field(name).expect(name).text();
    let entries = entries.iter().map(|entry| {
        let [reason, object, user] = ["reason", "object", "username"].map(|name| text(entry, name));
        (reason, object, user)
    });
    entries.collect()
}

fn assert_logged(admin: &mut Conn, reason: &str, object: &str, user: &str) {
    let logged = entries(admin);
    let expected = (reason.to_string(), object.to_string(), user.to_string());
    assert!(logged.contains(&expected), "{expected:?} in {logged:?}");
    admin.line("ACL LOG RESET");
}

fn is_forbidden(reply: &Reply) -> bool {
    reply.is_error() && reply.error().starts_with("NOPERM ")
}

#[test]
fn an_owner_of_another_user_or_database_closes_no_cycle() {
    let (server, mut admin) = tenants();
    let mut mine = login(&server, "mine");
    mine.line("LOCK.ACQUIRE mine:a worker-2 PX 60000");
    let _other = park(&server, "mine", "LOCK.ACQUIRE mine:a worker-1 BLOCK 0");
    let mut elsewhere = server.conn();
    elsewhere.line("SELECT 1");
    elsewhere.line("LOCK.ACQUIRE yours:b worker-2 PX 60000");
    let mut parked = server.conn();
    parked.line("SELECT 1");
    parked.send_line("LOCK.ACQUIRE yours:b worker-1 BLOCK 0");
    server.wait_for_waiters(2);
    let mut yours = login(&server, "yours");
    yours.line("LOCK.ACQUIRE yours:x worker-1 PX 60000");
    let mut waits = park(&server, "yours", "LOCK.ACQUIRE yours:x worker-2 BLOCK 0");
    let mut of_admin = server.conn();
    admin.line("LOCK.ACQUIRE x worker-1 PX 60000");
    of_admin.send_line("LOCK.ACQUIRE x worker-2 BLOCK 0");
    server.wait_for_waiters(4);
    assert_eq!(server.stat("deadlocks"), 0);
    // A cycle of the user's own, beside all these.
    yours.line("LOCK.ACQUIRE yours:y worker-2 PX 60000");
    let error = yours.line("LOCK.ACQUIRE yours:y worker-1 BLOCK 0").error();
    let expected = "DEADLOCK the owner would wait for itself, by way of \"yours:y\", \"yours:x\"";
    assert_eq!(error, expected);
    assert_stays_silent(&server, &mut waits);
    assert_stays_silent(&server, &mut of_admin);
}

#[test]
fn a_request_that_another_user_takes_over_is_its_request_then() {
    let server = TestServer::start();
    let mut admin = server.conn();
    for name in ["one", "two"] {
        make(&mut admin, name, "+@all ~* &*");
    }
    admin.line("LOCK.ACQUIRE x a PX 60000");
    admin.line("LOCK.ACQUIRE y b PX 60000");
    let mut first = park(&server, "one", "LOCK.ACQUIRE x b BLOCK 0");
    let _second = park(&server, "two", "LOCK.ACQUIRE x b BLOCK 0");
    assert!(first.recv().is_nil());
    let _waits = park(&server, "one", "LOCK.ACQUIRE y a BLOCK 0");
    let error = login(&server, "two").line("LOCK.ACQUIRE y a BLOCK 0");
    assert!(error.error().starts_with("DEADLOCK"), "{error:?}");
}

/// Requests that wait, what they wait for, and what lets them go.
const WAITS: [(&str, &str, &str); 6] = [
    ("LOCK.ACQUIRE mine:k b", "mine:k", "LOCK.RELEASE mine:k a"),
    (
        "LOCK.ACQUIRE mine:k b SESSION",
        "mine:k",
        "LOCK.RELEASE mine:k a",
    ),
    (
        "LOCK.MACQUIRE 2 mine:k mine:l b",
        "mine:k",
        "LOCK.RELEASE mine:k a",
    ),
    (
        "LOCK.ACQUIRE mine:w b READ",
        "mine:w",
        "LOCK.RELEASE mine:w a",
    ),
    (
        "LOCK.ACQUIRE mine:w b WRITE",
        "mine:w",
        "LOCK.RELEASE mine:w a",
    ),
    ("SEM.ACQUIRE mine:s b", "mine:s", "SEM.RELEASE mine:s a"),
];

/// Everything that these requests ask for is held.
fn hold_all(admin: &mut Conn) {
    for line in [
        "LOCK.ACQUIRE mine:k a PX 600000",
        "LOCK.ACQUIRE mine:w a WRITE PX 600000",
        "SEM.ACQUIRE mine:s a LIMIT 1 PX 600000",
    ] {
        assert!(admin.line(line).int() > 0, "{line}");
    }
}

const MINE: &str = "~mine:* ~{mine:*} ~{mine:*}:* &mine:*";

#[test]
fn a_waiter_whose_user_may_not_take_the_key_any_more_is_refused_and_the_next_is_granted() {
    for (revoke, reason) in [
        ("resetkeys", "key"),
        ("-lock.acquire -lock.macquire -sem.acquire", "command"),
    ] {
        let (server, mut admin) = tenants();
        make(&mut admin, "kept", &format!("{TENANT} {MINE}"));
        for (wait, key, release) in WAITS {
            make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
            hold_all(&mut admin);
            let mut bob = park(&server, "mine", &format!("{wait} BLOCK 0"));
            let mut next = park(
                &server,
                "kept",
                &format!("{wait}2 BLOCK 0")
                    .replace(" SESSION2", "2 SESSION")
                    .replace(" READ2", "2 READ")
                    .replace(" WRITE2", "2 WRITE"),
            );
            admin.line(&format!("ACL SETUSER mine {revoke}"));
            assert_stays_silent(&server, &mut bob);
            assert_eq!(admin.line(release).int(), 1, "{wait}");
            let reply = bob.recv();
            assert!(is_forbidden(&reply), "{wait} {revoke}: {reply:?}");
            let reply = next.recv();
            assert!(!reply.is_error() && !reply.is_nil(), "{wait}: {reply:?}");
            let object = match reason {
                "key" => key,
                _ if wait.starts_with("SEM") => "sem.acquire",
                _ => "lock.acquire",
            };
            assert_logged(&mut admin, reason, object, "mine");
            admin.line("FLUSHALL");
        }
    }
}

/// The keys that a request needs beside the one that it names are the same at the grant.
#[test]
fn a_waiter_is_refused_for_the_keys_beside_and_for_redissons_counter_too() {
    const COUNTER: &str = "redisson_lock_token:{mine:w}";
    let (server, mut admin) = tenants();
    for (wait, hold, release, revoke, object) in [
        (
            "LOCK.ACQUIRE mine:w b READ",
            "LOCK.ACQUIRE mine:w a WRITE",
            "LOCK.RELEASE mine:w a",
            "resetkeys ~mine:w ~{mine:w}:b:*",
            "{mine:w}:rwlock_token",
        ),
        (
            "SEM.ACQUIRE mine:s b",
            "SEM.ACQUIRE mine:s a LIMIT 1",
            "SEM.RELEASE mine:s a",
            "resetkeys ~mine:s ~{mine:s}",
            "{mine:s}:timeout",
        ),
        (
            "LOCK.ACQUIRE {mine:w} b",
            "LOCK.ACQUIRE {mine:w} a",
            "LOCK.RELEASE {mine:w} a",
            "on",
            COUNTER,
        ),
    ] {
        make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
        admin.line(hold);
        let mut bob = park(&server, "mine", &format!("{wait} BLOCK 0"));
        admin.line(&format!("ACL SETUSER mine {revoke}"));
        admin.run(["SET", COUNTER, "5"]);
        admin.line(release);
        let reply = bob.recv();
        assert!(is_forbidden(&reply), "{wait}: {reply:?}");
        assert_logged(&mut admin, "key", object, "mine");
        admin.line("FLUSHALL");
    }
}

#[test]
fn a_ticket_of_a_revoked_or_deleted_user_fails() {
    for revoke in [
        "ACL SETUSER mine resetkeys",
        "ACL DELUSER mine",
        "ACL SETUSER mine resetchannels",
    ] {
        let (server, mut admin) = tenants();
        let mut heard = subscribe(&server, "mine:c");
        for (wait, _, release) in WAITS {
            make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
            hold_all(&mut admin);
            let mut bob = login(&server, "mine");
            assert_queued(&mut bob, &format!("{wait} BLOCK 0 NOTIFY mine:c b"));
            assert_queued(&mut admin, "LOCK.ACQUIRE mine:k c BLOCK 0 NOTIFY mine:c c");
            // The ticket stays that of its user, whatever the connection becomes.
            bob.line("AUTH yours any");
            assert!(!admin.line(revoke).is_error());
            admin.line(release);
            let first = message(&mut heard);
            assert_eq!(first, "failed NOPERM b", "{wait} {revoke}");
            if wait.contains("mine:k") {
                granted(&message(&mut heard), "c");
            }
            admin.line("FLUSHALL");
            if !wait.contains("mine:k") {
                granted(&message(&mut heard), "c");
                admin.line("FLUSHALL");
            }
        }
    }
}

#[test]
fn a_ticket_of_a_script_is_that_of_its_callers_user() {
    let (server, mut admin) = tenants();
    make(
        &mut admin,
        "mine",
        &format!("{TENANT} {MINE} +function +fcall"),
    );
    hold_all(&mut admin);
    let mut bob = login(&server, "mine");
    let mut heard = subscribe(&server, "mine:c");
    let _other = subscribe(&server, "yours:c");
    let ask = "redis.pcall('LOCK.ACQUIRE', 'mine:k', 'b', 'BLOCK', '0', 'NOTIFY', ARGV[1], 'b')";
    let script = format!("return {ask}");
    let library = format!(
        "#!lua name=lib\nredis.register_function('asks', function(keys, ARGV) return {ask} end)"
    );
    assert!(!bob.run(["FUNCTION", "LOAD", &library]).is_error());
    for call in [
        &["EVAL", &script, "1", "mine:k"],
        &["FCALL", "asks", "1", "mine:k"],
    ] {
        let ask = |bob: &mut Conn, channel| bob.run([&call[..], &[channel]].concat());
        assert!(is_forbidden(&ask(&mut bob, "yours:c")));
        assert_logged(&mut admin, "channel", "yours:c", "mine");
        assert_eq!(ask(&mut bob, "mine:c").text(), "QUEUED");
        admin.line("ACL SETUSER mine -lock.acquire -lock.macquire");
        admin.line("LOCK.RELEASE mine:k a");
        assert_eq!(message(&mut heard), "failed NOPERM b");
        admin.line("ACL SETUSER mine +lock.acquire");
        admin.line("LOCK.ACQUIRE mine:k a PX 600000");
    }
}

#[test]
fn readers_are_granted_together_but_for_those_that_are_not_permitted() {
    let (server, mut admin) = tenants();
    make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
    make(&mut admin, "kept", &format!("{TENANT} {MINE}"));
    hold_all(&mut admin);
    let mut readers: Vec<_> = (0..6)
        .map(|n| {
            let user = if n % 2 == 0 { "mine" } else { "kept" };
            park(
                &server,
                user,
                &format!("LOCK.ACQUIRE mine:w r{n} READ BLOCK 0"),
            )
        })
        .collect();
    admin.line("ACL SETUSER mine resetkeys");
    admin.line("LOCK.RELEASE mine:w a");
    for (n, reader) in readers.iter_mut().enumerate() {
        let reply = reader.recv();
        assert_eq!(is_forbidden(&reply), n % 2 == 0, "{n}: {reply:?}");
    }
    let held = admin.line("LOCK.INFO mine:w");
    let holders = held.field("holders").expect("holders").list();
    assert_eq!(holders.len(), 3, "{held:?}");
}

/// The key beside the lock has the name of the reader in it.
#[test]
fn readers_of_one_user_are_granted_as_far_as_it_may_write_the_keys_beside() {
    let (server, mut admin) = tenants();
    make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
    hold_all(&mut admin);
    let wait = |owner| format!("LOCK.ACQUIRE mine:w {owner} READ BLOCK 0");
    let mut readers =
        ["good:1", "bad:1", "good:2"].map(|owner| park(&server, "mine", &wait(owner)));
    admin.line("ACL SETUSER mine resetkeys ~mine:w ~{mine:w}:good:* ~{mine:w}:rwlock_token");
    admin.line("LOCK.RELEASE mine:w a");
    let refused = readers
        .each_mut()
        .map(|reader| is_forbidden(&reader.recv()));
    assert_eq!(refused, [false, true, false]);
    let object = "{mine:w}:bad:1:rwlock_timeout:1";
    assert_logged(&mut admin, "key", object, "mine");
}

#[test]
fn a_lease_that_ends_grants_no_key_to_a_revoked_user() {
    let (server, mut admin) = tenants();
    make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
    hold_all(&mut admin);
    let mut bob = park(&server, "mine", "LOCK.ACQUIRE mine:k b BLOCK 0");
    admin.line("ACL SETUSER mine resetkeys");
    admin.line("PEXPIRE mine:k 1");
    let reply = bob.recv();
    assert!(is_forbidden(&reply), "{reply:?}");
    wait_for("the end of the lease", || {
        admin.line("EXISTS mine:k").int() == 0
    });
}

#[test]
fn a_bound_hold_of_a_revoked_user_is_renewed_no_more() {
    let server = TestServer::with(&["--lock.session-lease", "1000"]);
    let mut admin = server.conn();
    make(&mut admin, "mine", &format!("{TENANT} {MINE}"));
    let mut bob = login(&server, "mine");
    for line in [
        "LOCK.ACQUIRE mine:k b SESSION",
        "LOCK.ACQUIRE mine:w b READ SESSION",
        "LOCK.MACQUIRE 1 mine:m b SESSION",
        "SEM.ACQUIRE mine:s b LIMIT 1 SESSION",
    ] {
        assert!(!bob.line(line).is_error(), "{line}");
    }
    server.wait_for_stat("session_holds", 4);
    let renewed = server.stat("session_renewals");
    wait_for("renewals", || {
        server.stat("session_renewals") >= renewed + 4
    });
    admin.line("ACL SETUSER mine resetkeys");
    server.wait_for_stat("session_holds", 0);
    wait_for("the end of the leases", || {
        admin.line("EXISTS mine:k mine:w mine:m").int() == 0
    });
    wait_for("a permit", || {
        admin.line("SEM.ACQUIRE mine:s c").maybe_int().is_some()
    });
    assert!(is_forbidden(&bob.line("LOCK.RELEASE mine:k b")));
}

#[test]
fn a_user_that_may_only_take_several_keys_is_granted_them() {
    let (server, mut admin) = tenants();
    make(&mut admin, "mine", &format!("+lock.macquire {MINE}"));
    hold_all(&mut admin);
    let mut bob = park(&server, "mine", "LOCK.MACQUIRE 2 mine:k mine:l b BLOCK 0");
    admin.line("LOCK.RELEASE mine:k a");
    assert_eq!(bob.recv().list().len(), 2);
}

#[test]
fn a_user_of_some_databases_only_is_granted_what_it_waits_for() {
    let (server, mut admin) = tenants();
    let rules = format!("{TENANT} {MINE} db=0");
    let made = admin.line(&format!("ACL SETUSER mine reset on nopass {rules}"));
    if made.is_error() {
        // Only Valkey from 9.1 on has such users.
        return;
    }
    let mut heard = subscribe(&server, "mine:c");
    hold_all(&mut admin);
    let mut bob = park(&server, "mine", "LOCK.ACQUIRE mine:k b BLOCK 0");
    let mut ticket = login(&server, "mine");
    assert_queued(&mut ticket, "LOCK.ACQUIRE mine:k c BLOCK 0 NOTIFY mine:c c");
    admin.line("LOCK.RELEASE mine:k a");
    assert!(bob.recv().int() > 0);
    admin.line("LOCK.RELEASE mine:k b");
    granted(&message(&mut heard), "c");
}

#[test]
fn a_break_that_is_refused_purges_nothing() {
    let (server, mut admin) = tenants();
    let mut heard = subscribe(&server, "c");
    assert_queued(&mut admin, "SEM.ACQUIRE mine b BLOCK 0 NOTIFY c b");
    make(&mut admin, "mine", "+@all ~mine");
    let mut mine = login(&server, "mine");
    mine.line("MULTI");
    mine.line("HSET mine mode read r 1");
    mine.line("PEXPIRE mine 600000");
    mine.line("LOCK.BREAK mine PURGE");
    let done = mine.line("EXEC").list();
    assert!(is_forbidden(&done[2]), "{done:?}");
    // It fails because the key is no semaphore any more.
    assert_eq!(message(&mut heard), "failed WRONGTYPE b");
}

#[test]
fn the_modules_own_refusals_are_in_the_log_of_the_acl() {
    let server = TestServer::start();
    let mut admin = server.conn();
    make(
        &mut admin,
        "mine",
        &format!("{TENANT} +lock.break +lock.scan +lock.info +sem.info ~mine:* &mine:*"),
    );
    let mut mine = login(&server, "mine");
    admin.line("LOCK.ACQUIRE mine:r a READ");
    let _heard = subscribe(&server, "other:c");
    for (line, reason, object) in [
        (
            "LOCK.ACQUIRE mine:k b READ",
            "key",
            "{mine:k}:b:rwlock_timeout:1",
        ),
        ("SEM.ACQUIRE mine:s b LIMIT 1", "key", "{mine:s}:timeout"),
        (
            "LOCK.ACQUIRE mine:k b BLOCK 0 NOTIFY other:c b",
            "channel",
            "other:c",
        ),
        ("LOCK.SCAN 0", "command", "scan"),
        ("LOCK.INFO mine:r", "key", "{mine:r}:rwlock_token"),
        ("SEM.INFO mine:s", "key", "{mine:s}:timeout"),
    ] {
        let reply = mine.line(line);
        assert!(is_forbidden(&reply), "{line}: {reply:?}");
        assert_logged(&mut admin, reason, object, "mine");
    }
    if server.version() < (7, 2, 0) {
        assert!(is_forbidden(&mine.line("LOCK.BREAK mine:k")));
        assert_logged(&mut admin, "command", "lock.break", "mine");
    }
}
