//! Grants to a client that the server has condemned: it is marked to be closed at the end of the tick. Its reply is
//! discarded, so the grant is undone and made to the next waiter.
//!
//! The server condemns a client when its user is deleted and when its output buffer overflows. Clients that the server
//! closes at once (the peer has closed the connection, `CLIENT KILL`) are tested here and in `hazards`.

use std::net::Shutdown;

use crate::common::scene::only_reply;
use crate::common::{wait_for, Conn, TestServer};

/// A resource: the holder's request, the waiters' words and the release.
struct Kind {
    hold: &'static [&'static str],
    /// The words before the owner, and those after it.
    wait: (&'static str, &'static str),
    behind: (&'static str, &'static str),
    free: &'static str,
    /// The counter of undone grants, and by how much one grant to bob raises it.
    undone: (&'static str, u64),
}

const EXCLUSIVE: Kind = Kind {
    hold: &["LOCK.ACQUIRE k alice PX 60000"],
    wait: ("LOCK.ACQUIRE k", "PX 60000 BLOCK 0"),
    behind: ("LOCK.ACQUIRE k", "PX 60000 BLOCK 0"),
    free: "LOCK.RELEASE k alice",
    undone: ("grants_undone", 1),
};

const READ: Kind = Kind {
    hold: &["LOCK.ACQUIRE k alice WRITE PX 60000"],
    wait: ("LOCK.ACQUIRE k", "READ PX 60000 BLOCK 0"),
    behind: ("LOCK.ACQUIRE k", "WRITE PX 60000 BLOCK 0"),
    free: "LOCK.RELEASE k alice WRITE",
    ..EXCLUSIVE
};

const WRITE: Kind = Kind {
    hold: &["LOCK.ACQUIRE k alice READ PX 60000"],
    wait: ("LOCK.ACQUIRE k", "WRITE PX 60000 BLOCK 0"),
    behind: ("LOCK.ACQUIRE k", "READ PX 60000 BLOCK 0"),
    free: "LOCK.RELEASE k alice READ",
    ..EXCLUSIVE
};

const MANY: Kind = Kind {
    wait: ("LOCK.MACQUIRE 2 k k2", "PX 60000 BLOCK 0"),
    behind: ("LOCK.MACQUIRE 2 k2 k", "PX 60000 BLOCK 0"),
    undone: ("grants_undone", 2),
    ..EXCLUSIVE
};

const PERMIT: Kind = Kind {
    hold: &["SEM.SET k 1", "SEM.ACQUIRE k alice PX 60000"],
    wait: ("SEM.ACQUIRE k", "PX 60000 BLOCK 0"),
    behind: ("SEM.ACQUIRE k", "PX 60000 BLOCK 0"),
    free: "SEM.RELEASE k alice",
    undone: ("sem_grants_undone", 1),
};

/// Every kind of resource; the waiter's hold with a lease, or bound to its connection.
fn kinds() -> Vec<Kind> {
    let session = |kind: Kind, words| Kind {
        wait: (kind.wait.0, words),
        ..kind
    };
    vec![
        EXCLUSIVE,
        READ,
        WRITE,
        MANY,
        PERMIT,
        session(EXCLUSIVE, "SESSION BLOCK 0"),
        session(READ, "READ SESSION BLOCK 0"),
        session(WRITE, "WRITE SESSION BLOCK 0"),
        session(MANY, "SESSION BLOCK 0"),
        session(PERMIT, "SESSION BLOCK 0"),
    ]
}

/// Alice holds, bob (with a user of his own) waits, carol waits behind him.
struct Doomed {
    kind: Kind,
    alice: Conn,
    bob: Conn,
    bob_id: i64,
    carol: Conn,
    first: i64,
    server: TestServer,
}

/// A name so long that an invalidation message with it overflows a client's buffer.
fn long_name() -> String {
    "x".repeat(20_000)
}

impl Doomed {
    fn new(kind: Kind, options: &[&str]) -> Doomed {
        let server = TestServer::with(options);
        server.conn().line("ACL SETUSER u on >p ~* &* +@all").text();
        Doomed::on(kind, server)
    }

    fn on(kind: Kind, server: TestServer) -> Doomed {
        let mut alice = server.conn();
        let first = kind.hold.iter().map(|line| alice.line(line).int()).last();
        let mut bob = server.conn();
        assert!(!bob.line("HELLO 3 AUTH u p").is_error());
        bob.line("CLIENT TRACKING ON").text();
        bob.run(["GET", &long_name()]);
        let bob_id = bob.id();
        bob.send_line(&format!("{} bob {}", kind.wait.0, kind.wait.1));
        wait_for_parked(&server, 1);
        let mut carol = server.conn();
        carol.send_line(&format!("{} carol {}", kind.behind.0, kind.behind.1));
        wait_for_parked(&server, 2);
        Doomed {
            kind,
            alice,
            bob,
            bob_id,
            carol,
            first: first.unwrap(),
            server,
        }
    }

    /// Runs these lines as one transaction of alice's; `FREE` stands for the release.
    fn exec(&mut self, lines: &[&str]) {
        let id = self.bob_id.to_string();
        let fill = |line: &&str| {
            line.replace("FREE", self.kind.free)
                .replace("$BOB", &id)
                .replace("$LONG", &long_name())
        };
        let mut all = vec!["MULTI".to_string()];
        all.extend(lines.iter().map(fill));
        all.push("EXEC".into());
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.alice.send_lines(&all);
        for _ in 0..=lines.len() {
            self.alice.recv().text();
        }
        for reply in self.alice.recv().list() {
            assert!(!reply.is_error(), "{reply:?}");
        }
    }

    /// Asserts that bob's grant was undone and carol has been granted the same.
    fn assert_granted_to_carol(self) {
        let (name, undone) = self.kind.undone;
        let is_many = self.kind.wait.0.starts_with("LOCK.MACQUIRE");
        let found = self.assert_carol_is_granted().stat(name);
        if found == 0 && is_many {
            // A request for several keys is granted at the end of the tick, or of a later one. Bob's connection may be
            // closed by then.
            return;
        }
        assert_eq!(found, undone, "{name}");
    }

    /// Asserts that carol is granted what bob waited for, and nothing is left of him.
    fn assert_carol_is_granted(mut self) -> TestServer {
        let reply = only_reply(&mut self.carol);
        let tokens = match reply.is_array() {
            true => reply.list().iter().map(|token| token.int()).collect(),
            false => vec![reply.int()],
        };
        for token in &tokens {
            // A new semaphore replies the number of its permits, which is small.
            assert!(*token > self.first, "{tokens:?} after {}", self.first);
        }
        for name in ["waiters", "sem_waiters", "session_holds", "panics"] {
            assert_eq!(self.server.stat(name), 0, "{name}");
        }
        self.server
    }
}

fn wait_for_parked(server: &TestServer, count: u64) {
    wait_for(&format!("{count} parked requests"), || {
        server.stat("waiters") + server.stat("sem_waiters") == count
    });
}

/// The user is deleted, and made again.
const RENEWED: [&str; 2] = ["ACL DELUSER u", "ACL SETUSER u on >p ~* &* +@all"];

/// Runs this with every kind of hold.
fn each(options: &[&str], mut play: impl FnMut(&mut Doomed)) {
    for kind in kinds() {
        let mut doomed = Doomed::new(kind, options);
        play(&mut doomed);
        doomed.assert_granted_to_carol();
    }
}

#[test]
fn a_grant_to_a_client_of_a_deleted_user_goes_to_the_next_waiter() {
    // A new user of the same name is permitted what the deleted one was, so that there is a grant; the client is the
    // deleted one's.
    let [delete, make] = RENEWED;
    each(&[], |doomed| doomed.exec(&[delete, make, "FREE"]));
    each(&[], |doomed| doomed.exec(&["FREE", delete, make]));
}

#[test]
fn a_grant_to_a_client_of_a_user_that_acl_load_removes_goes_to_the_next_waiter() {
    for lines in [["ACL LOAD", "FREE"], ["FREE", "ACL LOAD"]] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("users.acl");
        let admin = "user default on nopass ~* &* +@all\n";
        let user = "user u on >p ~* &* +@all\n";
        std::fs::write(&file, format!("{admin}{user}")).unwrap();
        let mut doomed = Doomed::new(EXCLUSIVE, &["--aclfile", file.to_str().unwrap()]);
        std::fs::write(&file, admin).unwrap();
        doomed.exec(&lines);
        // (Valkey and Redict close the connection at once.)
        doomed.assert_carol_is_granted();
    }
}

/// The server reads the end of the connection in the tick of the release: it was stopped while both arrived.
fn end_in_the_tick_of_the_release(doomed: &mut Doomed, ends_first: bool) {
    let release = doomed.kind.free;
    doomed.server.signal(libc::SIGSTOP);
    if !ends_first {
        doomed.alice.send_line(release);
    }
    doomed.bob.stream().shutdown(Shutdown::Both).unwrap();
    if ends_first {
        doomed.alice.send_line(release);
    }
    doomed.server.signal(libc::SIGCONT);
    assert!(!doomed.alice.recv().is_error());
}

#[test]
fn a_client_that_closes_in_the_tick_of_a_release_does_not_keep_the_lock() {
    if crate::common::has_io_threads() {
        // These servers may read the end some ticks later, and a grant that is delivered by then stays.
        return;
    }
    for ends_first in [true, false] {
        let mut doomed = Doomed::new(EXCLUSIVE, &[]);
        end_in_the_tick_of_the_release(&mut doomed, ends_first);
        assert!(only_reply(&mut doomed.carol).int() > doomed.first);
    }
}

/// A hard limit that one long message exceeds.
const LITTLE: [&str; 2] = ["--client-output-buffer-limit", "normal 1024 0 0"];

#[test]
fn a_grant_to_a_client_whose_buffer_overflows_goes_to_the_next_waiter() {
    each(&LITTLE, |doomed| doomed.exec(&["SET $LONG 1", "FREE"]));
    each(&LITTLE, |doomed| doomed.exec(&["FREE", "SET $LONG 1"]));
}

#[test]
fn a_limit_that_is_set_while_clients_wait_is_known() {
    let mut doomed = Doomed::new(EXCLUSIVE, &[]);
    let limit = ["client-output-buffer-limit", LITTLE[1]];
    let set = doomed.alice.run([&["CONFIG", "SET"][..], &limit].concat());
    assert_eq!(set.text(), "OK");
    doomed.exec(&["SET $LONG 1", "FREE"]);
    doomed.assert_granted_to_carol();
}

#[test]
fn a_grant_to_a_client_with_too_many_pushed_messages_goes_to_the_next_waiter() {
    let mut doomed = Doomed::new(
        EXCLUSIVE,
        &["--client-output-buffer-limit", "pubsub 1024 0 0"],
    );
    drop(std::mem::replace(&mut doomed.bob, doomed.server.conn3()));
    wait_for_parked(&doomed.server, 1);
    doomed.bob.line("SUBSCRIBE ch");
    let carol = std::mem::replace(&mut doomed.carol, doomed.server.conn());
    carol.close();
    wait_for_parked(&doomed.server, 0);
    doomed.bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    let parked = || doomed.server.stat("waiters") == 1;
    wait_for("an answer, or a place in the queue", || {
        parked() || !doomed.bob.is_silent()
    });
    if !parked() {
        assert!(doomed.bob.recv().is_nil());
        println!("skipped: this server parks no client that has subscribed");
        return;
    }
    doomed
        .carol
        .send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
    wait_for_parked(&doomed.server, 2);
    doomed.exec(&["PUBLISH ch $LONG", "FREE"]);
    doomed.assert_granted_to_carol();
}

/// Whether the server copies the reply into the client's buffer after the module has answered, too late for the module
/// to check: Valkey, and Redict.
fn copies_replies(server: &TestServer) -> bool {
    let info = server.conn().line("INFO server").text();
    ["valkey_version:", "redict_version:"]
        .iter()
        .any(|name| info.contains(name))
}

#[test]
fn a_grant_whose_own_reply_overflows_the_buffer_goes_to_the_next_waiter() {
    let server = TestServer::with(&LITTLE);
    if copies_replies(&server) {
        println!(
            "skipped: this server copies a reply into the buffer after the module has answered"
        );
        return;
    }
    let (mut alice, mut bob, mut carol) = (server.conn(), server.conn(), server.conn());
    let first = alice.line("LOCK.ACQUIRE k0 alice PX 60000").int();
    let keys: String = (0..1_000).map(|i| format!(" k{i}")).collect();
    bob.send_line(&format!("LOCK.MACQUIRE 1000{keys} bob PX 60000 BLOCK 0"));
    server.wait_for_waiters(1);
    carol.send_line("LOCK.ACQUIRE k0 carol PX 60000 BLOCK 0");
    server.wait_for_waiters(2);
    alice.line("LOCK.RELEASE k0 alice").int();
    assert!(only_reply(&mut carol).int() > first);
    assert!(bob.is_closed());
    wait_for("all grants to be undone", || {
        server.stat("grants_undone") == 1_000
    });
    assert_eq!(alice.line("EXISTS k999").int(), 0);
}

#[test]
fn a_chain_of_condemned_waiters_ends_at_the_first_live_one() {
    let mut doomed = Doomed::new(EXCLUSIVE, &[]);
    let mut others: Vec<Conn> = (0..5).map(|_| doomed.server.conn()).collect();
    // They join behind carol: she leaves the queue and joins it again.
    drop(std::mem::replace(&mut doomed.carol, doomed.server.conn()));
    doomed.server.wait_for_waiters(1);
    for (i, conn) in others.iter_mut().enumerate() {
        conn.line("AUTH u p").text();
        conn.send_line(&format!("LOCK.ACQUIRE k other{i} PX 60000 BLOCK 0"));
        doomed.server.wait_for_waiters(i as u64 + 2);
    }
    doomed
        .carol
        .send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
    doomed.server.wait_for_waiters(7);
    doomed.exec(&["FREE", "ACL DELUSER u"]);
    assert!(only_reply(&mut doomed.carol).int() > doomed.first);
    let stat = |name| doomed.server.stat(name);
    assert_eq!(stat("waiters"), 0);
    // Each of the six condemned ones was granted and undone, or left the queue.
    let left = stat("waits_disconnected") - 1;
    assert_eq!(stat("grants_undone") + left, 6);
    assert!(stat("grants_undone") > 0);
}

#[test]
fn the_grant_of_a_client_killed_in_the_same_tick_goes_to_the_next_waiter() {
    for kill in ["CLIENT KILL USER u", "CLIENT KILL ID $BOB SKIPME no"] {
        for kind in kinds() {
            let mut doomed = Doomed::new(kind, &[]);
            doomed.exec(&["FREE", kill]);
            // (A request for several keys is granted at the end of the tick, when bob's connection is closed.)
            doomed.assert_carol_is_granted();
        }
    }
}

#[test]
fn a_holder_that_kills_itself_hands_its_session_hold_off() {
    let server = TestServer::start();
    let (mut alice, mut carol) = (server.conn(), server.conn());
    let first = alice.line("LOCK.ACQUIRE k alice SESSION").int();
    let id = alice.id();
    carol.send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    alice.send_lines(&["MULTI", &format!("CLIENT KILL ID {id} SKIPME no"), "EXEC"]);
    assert!(only_reply(&mut carol).int() > first);
}

// A change of a user's rules does not close its connections, and a delivered reply stays.

#[test]
fn a_waiter_of_a_user_that_is_switched_off_is_granted() {
    for change in ["ACL SETUSER u off", "ACL SETUSER u reset"] {
        let mut doomed = Doomed::new(EXCLUSIVE, &[]);
        doomed.exec(&["FREE", change]);
        assert!(doomed.bob.recv().int() > doomed.first);
        assert_eq!(doomed.server.stat("grants_undone"), 0);
        assert_eq!(doomed.alice.line("HGET k bob").text(), "1");
    }
}

#[test]
fn a_reply_that_is_written_before_the_connection_ends_is_a_delivered_grant() {
    // The last word is no command, but a protocol error, which ends the connection.
    for behind in ["QUIT\r\n", "*x\r\n"] {
        let server = TestServer::start();
        let (mut alice, mut bob) = (server.conn(), server.conn());
        let first = alice.line("LOCK.ACQUIRE k alice PX 60000").int();
        let line = format!("LOCK.ACQUIRE k bob PX 60000 BLOCK 0\r\n{behind}");
        std::io::Write::write_all(bob.stream(), line.as_bytes()).unwrap();
        server.wait_for_waiters(1);
        alice.line("LOCK.RELEASE k alice").int();
        assert!(bob.recv().int() > first);
        // (Redis 8 does not reach the error.)
        if behind == "QUIT\r\n" {
            while bob.try_recv().is_some() {}
        }
        assert_eq!(alice.line("HGET k bob").text(), "1");
        assert_eq!(server.stat("grants_undone"), 0);
    }
}

#[test]
fn a_client_that_wants_no_replies_is_granted_all_the_same() {
    let server = TestServer::start();
    let (mut alice, mut bob) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice PX 60000").int();
    bob.send_lines(&["CLIENT REPLY OFF", "LOCK.ACQUIRE k bob PX 60000 BLOCK 0"]);
    server.wait_for_waiters(1);
    alice.line("LOCK.RELEASE k alice").int();
    server.wait_for_waiters(0);
    assert_eq!(alice.line("HGET k bob").text(), "1");
    assert_eq!(server.stat("grants_undone"), 0);
    bob.send_line("CLIENT REPLY ON");
    assert_eq!(bob.recv().text(), "OK");
}

#[test]
fn a_client_that_is_evicted_has_its_reply_or_the_next_has_the_lock() {
    let mut doomed = Doomed::new(EXCLUSIVE, &[]);
    doomed.alice.line("CLIENT NO-EVICT on").text();
    doomed.exec(&["FREE", "CONFIG SET maxmemory-clients 1"]);
    doomed.exec(&["CONFIG SET maxmemory-clients 0"]);
    let bob_knows = doomed
        .bob
        .try_recv()
        .is_some_and(|reply| reply.maybe_int().is_some());
    let alice = &mut doomed.alice;
    wait_for("a lock that bob holds if he knows it", || {
        alice.line("HEXISTS k bob").int() == i64::from(bob_knows)
    });
}

// A request for several keys is granted, one of them once more than its owner holds it already.

/// Xenia holds `k`, and her other connection, which is condemned in the tick of the grant, waits for `k2`, too. The
/// grant comes at the end of the tick, and is undone. If the connection is closed before, there is no grant, and it is
/// tried again (not with threads, which close it before in most cases).
fn reenter_and_be_condemned(hold: &str, options: &str) -> (TestServer, Conn) {
    let tries = std::iter::repeat_with(|| try_to_reenter(hold, options)).take(20);
    let mut granted = tries
        .filter(|(server, _)| server.stat("waits_granted") == 1 || crate::common::has_io_threads());
    granted.next().expect("a grant in the tick")
}

fn try_to_reenter(hold: &str, options: &str) -> (TestServer, Conn) {
    let server = TestServer::start();
    let (mut admin, mut xenia, mut doomed) = (server.conn(), server.conn(), server.conn());
    admin.line("ACL SETUSER u on >p ~* &* +@all").text();
    doomed.line("AUTH u p").text();
    let is_shared = options.starts_with("READ") || options.starts_with("WRITE");
    let mode = if is_shared { "WRITE " } else { "" };
    xenia.line(&format!("LOCK.ACQUIRE k x {hold}")).int();
    admin
        .line(&format!("LOCK.ACQUIRE k2 admin {mode}PX 60000"))
        .int();
    doomed.send_line(&format!("LOCK.MACQUIRE 2 k k2 x {options} BLOCK 0"));
    server.wait_for_waiters(1);
    let [delete, make] = RENEWED;
    admin.send_lines(&["MULTI", delete, make, "LOCK.RELEASE k2 admin", "EXEC"]);
    (0..5).for_each(|_| drop(admin.recv()));
    assert!(doomed.is_closed());
    wait_for("the other key to be free again", || {
        server.stat("waiters") == 0 && admin.line("EXISTS k2").int() == 0
    });
    (server, xenia)
}

#[test]
fn a_reentry_without_reply_is_not_counted() {
    for (hold, options) in [
        ("PX 60000", "PX 60000"),
        ("PX 60000", "ONCE PX 60000"),
        ("READ PX 60000", "READ PX 60000"),
        ("WRITE PX 60000", "WRITE PX 60000"),
    ] {
        let (_server, mut xenia) = reenter_and_be_condemned(hold, options);
        wait_for(&format!("one hold, {options}"), || {
            let info = xenia.line("LOCK.INFO k");
            info.field("holders").unwrap().list()[0]
                .field("holds")
                .unwrap()
                .int()
                == 1
        });
        assert_eq!(xenia.line("LOCK.RELEASE k x").int(), 1, "{options}");
    }
}

#[test]
fn a_reentry_without_reply_leaves_the_session_to_its_former_connection() {
    for (hold, options) in [
        ("SESSION", "SESSION"),
        ("SESSION", "PX 60000"),
        ("READ SESSION", "READ SESSION"),
        ("WRITE SESSION", "WRITE PX 60000"),
    ] {
        let (server, mut xenia) = reenter_and_be_condemned(hold, options);
        let info = xenia.line("LOCK.INFO k");
        let holder = &info.field("holders").unwrap().list()[0];
        assert_eq!(holder.field("session").unwrap().int(), 1, "{options}");
        assert_eq!(server.stat("session_holds"), 1);
        xenia.close();
        let mut other = server.conn();
        wait_for("the end of the session", || {
            other.line("EXISTS k").int() == 0
        });
    }
    // Nor does a request for a session turn a hold with a lease into a session hold.
    let (server, mut xenia) = reenter_and_be_condemned("PX 60000", "SESSION");
    assert_eq!(server.stat("session_holds"), 0);
    assert_eq!(xenia.line("HGET k x").text(), "1");
}

#[test]
fn a_reentry_with_reply_counts_and_moves_the_session() {
    let server = TestServer::start();
    let (mut alice, mut xenia, mut other) = (server.conn(), server.conn(), server.conn());
    xenia.line("LOCK.ACQUIRE k x SESSION").int();
    alice.line("LOCK.ACQUIRE k2 alice PX 60000").int();
    other.send_line("LOCK.MACQUIRE 2 k k2 x SESSION BLOCK 0");
    server.wait_for_waiters(1);
    alice.line("LOCK.RELEASE k2 alice").int();
    assert_eq!(only_reply(&mut other).list().len(), 2);
    assert_eq!(alice.line("HGET k x").text(), "2");
    xenia.close();
    assert_eq!(server.stat("session_holds"), 2);
    other.close();
    wait_for("the end of the session", || {
        alice.line("EXISTS k k2").int() == 0
    });
}
