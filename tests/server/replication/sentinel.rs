//! Fail-overs by real sentinels, while locks are held and waited for: the primary dies, or is stopped and resumes.

use crate::common::sentinel::Watched;
use crate::common::{wait_for, Conn, TestServer};

/// Locks whose short leases end while the primary is stopped.
const SHORT: usize = 5;

/// Alice holds `k` twice, bob and carol wait for it; every replica has the hold.
struct Held {
    waiters: Vec<Conn>,
    /// Alice's token, and the deadline of her lease.
    token: i64,
    deadline: i64,
}

impl Held {
    fn on(server: &TestServer) -> Held {
        let mut alice = server.conn();
        let token = alice.line("LOCK.ACQUIRE k alice PX 120000").int();
        assert_eq!(
            alice.line("LOCK.ACQUIRE k alice PX 120000").int(),
            token,
            "re-entered"
        );
        let deadline = alice.line("PEXPIRETIME k").int();
        let waiters = ["bob", "carol"].map(|owner| park(server, "k", owner));
        wait_until_replicated(&mut alice);
        Held {
            waiters: waiters.into(),
            token,
            deadline,
        }
    }

    /// Asserts that the hold is on the new primary as it was, and is handed off there.
    fn goes_on_at(&self, new: &TestServer) {
        let mut conn = new.conn();
        let token = format!("t{}", self.token);
        let (fields, deadline) = conn.snapshot_of("k");
        let mut fields: Vec<_> = fields.iter().map(|field| field.text()).collect();
        fields.sort();
        assert_eq!(fields, ["#token", "2", "alice", token.as_str()]);
        assert_eq!(deadline, self.deadline);
        let again = conn.line("LOCK.ACQUIRE k alice PX 1000 ONCE").int();
        assert_eq!(again, self.token);

        // The waiter asks again.
        let mut bob = park(new, "k", "bob");
        assert_eq!(conn.line("LOCK.RELEASE k alice").int(), 0);
        assert_eq!(conn.line("LOCK.RELEASE k alice").int(), 1);
        assert!(bob.recv().int() > self.token);
        assert_eq!(conn.line("LOCK.RELEASE k bob").int(), 1);
    }
}

fn park(server: &TestServer, key: &str, owner: &str) -> Conn {
    let waiters = server.stat("waiters");
    let mut conn = server.conn();
    conn.send_line(&format!("LOCK.ACQUIRE {key} {owner} PX 60000 BLOCK 0"));
    server.wait_for_waiters(waiters + 1);
    conn
}

fn wait_until_replicated(conn: &mut Conn) {
    wait_for("both replicas", || conn.line("WAIT 2 1000").int() == 2);
}

#[test]
fn locks_survive_a_primary_that_dies() {
    let mut scene = Watched::start();
    let mut held = Held::on(&scene.servers[0]);
    let mut conn = scene.servers[0].conn();
    let last = conn.line("LOCK.ACQUIRE other dave PX 120000").int();
    wait_until_replicated(&mut conn);

    scene.servers[0].crash();
    for waiter in &mut held.waiters {
        assert!(
            waiter.try_recv().is_none(),
            "only the end of the connection"
        );
    }
    let new = scene.wait_for_another_primary_than(0);
    held.goes_on_at(&scene.servers[new]);
    let mut there = scene.servers[new].conn();
    assert!(there.line("LOCK.ACQUIRE other erin").is_nil());
    assert_eq!(there.line("LOCK.RELEASE other dave").int(), 1);
    let next = there.line("LOCK.ACQUIRE other erin PX 60000").int();
    assert!(next > last, "{next} is not above {last}");

    // The dead primary comes back as a replica, and grants nothing.
    scene.servers[0].start_again();
    scene.wait_until_settled();
    let refused = scene.servers[0].conn().line("LOCK.ACQUIRE k frank");
    assert!(refused.error().starts_with("READONLY"));
}

/// A stopped primary still acts as one when it resumes. Until the sentinels demote it, it grants locks that its former
/// replica has granted meanwhile: then a lock has two holders, and that of the new primary has the higher token.
#[test]
fn a_resumed_primary_answers_its_waiters_and_grants_lower_tokens() {
    let scene = Watched::start();
    let mut held = Held::on(&scene.servers[0]);
    let mut old = scene.servers[0].conn();
    let mut late = Vec::new();
    for i in 0..SHORT {
        let key = format!("short{i}");
        let line = format!("LOCK.ACQUIRE {key} dave PX 2000");
        let token = old.line(&line).int();
        late.push((park(&scene.servers[0], &key, "erin"), key, token));
    }
    wait_until_replicated(&mut old);

    scene.servers[0].signal(libc::SIGSTOP);
    let new = scene.wait_for_another_primary_than(0);
    held.goes_on_at(&scene.servers[new]);
    let mut there = scene.servers[new].conn();
    let granted: Vec<i64> = late
        .iter()
        .map(|(_, key, token)| {
            let line = format!("LOCK.ACQUIRE {key} frank PX 60000 BLOCK 10000");
            let next = there.line(&line).int();
            assert!(next > *token, "{next} is not above {token}");
            next
        })
        .collect();
    assert!(
        held.waiters.iter_mut().all(Conn::is_silent),
        "it is stopped"
    );

    scene.servers[0].signal(libc::SIGCONT);
    let mut overlaps = 0;
    for ((waiter, key, first), newest) in late.iter_mut().zip(granted) {
        match waiter.try_recv() {
            Some(reply) if !reply.is_error() => {
                let token = reply.int();
                assert!(*first < token && token < newest, "{key}: {token}, {newest}");
                overlaps += 1;
            }
            response => assert_unblocked(response.map(|reply| reply.error())),
        }
    }
    println!("{overlaps} of {SHORT} locks had two holders after the old primary went on");
    // Alice's lease has not ended on either server: the old one granted no request for `k`.
    for waiter in &mut held.waiters {
        assert_unblocked(waiter.try_recv().map(|reply| reply.error()));
        assert!(waiter.is_closed());
    }
    scene.wait_until_settled();
    scene.servers[0].wait_for_waiters(0);
    for (_, key, _) in &late {
        let newest = there.run(["HGET", key, "#token"]).text();
        wait_for("the newer holder on both", || {
            scene.servers[0].conn().run(["HGET", key, "#token"]).0
                == redis::Value::BulkString(newest.clone().into())
        });
    }
}

/// A demoted server replies with an error and closes the connection; the client may see only the end.
fn assert_unblocked(response: Option<String>) {
    assert!(
        response
            .as_ref()
            .is_none_or(|error| error.starts_with("UNBLOCKED")),
        "{response:?}"
    );
}
