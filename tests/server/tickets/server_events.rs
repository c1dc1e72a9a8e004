//! Tickets and the server: demotion, pauses, the startup delay, refused writes, panics, and what a
//! restart and a replica know of them.

use crate::common::barrier::Barrier;
use crate::common::outside::Instance;
use crate::common::replica::ReplicationStream;
use crate::common::{wait_for, Conn, TestServer};
use crate::lifecycle::faults::fault_module;
use crate::tickets::scene::{assert_queued, assert_silent, message, request, subscribe, Scene};

// Demotion, restarts, replication.

#[test]
fn a_demotion_fails_it_with_unblocked() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.alice.line("SEM.ACQUIRE s a LIMIT 1 PX 60000");
    scene.ask("SEM.ACQUIRE s b BLOCK 0 NOTIFY ch permit");
    scene.alice.line("LATCH.SET g 1");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY ch latch");
    scene.alice.line("REPLICAOF 127.0.0.1 1");
    let mut failed: Vec<_> = (0..3).map(|_| scene.heard()).collect();
    failed.sort();
    assert_eq!(
        failed,
        [
            "failed UNBLOCKED bob",
            "failed UNBLOCKED latch",
            "failed UNBLOCKED permit"
        ]
    );
    scene.assert_stats(&[("tickets_failed", 3), ("tickets", 0), ("places_kept", 0)]);
    let refused = scene.alice.line(&request("bob")).error();
    assert!(refused.starts_with("READONLY"), "{refused}");
    scene.alice.line("REPLICAOF NO ONE");
    scene.queue("bob");
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn a_restart_knows_no_tickets() {
    let mut scene = Scene::on(TestServer::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    scene.queue("bob");
    scene.server.crash_and_restart();
    scene.alice = scene.server.conn();
    scene.subscriber = subscribe(&scene.server, "ch");
    scene.assert_stats(&[("tickets", 0), ("tickets_queued", 0)]);
    scene.assert_held("alice", scene.first);
    scene.queue("bob");
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn messages_are_not_replicated() {
    let mut scene = Scene::new();
    let mut stream = ReplicationStream::attach(&scene.server);
    scene.queue("bob");
    scene.ask("LOCK.ACQUIRE k carol BLOCK 20 NOTIFY ch carol");
    assert_eq!(scene.heard(), "timeout carol");
    scene.release("alice");
    scene.assert_granted("bob");
    let seen = stream.until_now(&scene.server);
    assert!(seen.iter().any(|line| line.contains("bob")), "{seen:?}");
    assert!(
        !seen.iter().any(|line| line.contains("PUBLISH")),
        "{seen:?}"
    );
}

// While the server refuses writes.

/// The lease of alice ends while writes are refused; bob is granted when they are possible again.
fn stays_queued_until_writes_are_possible(refuse: &str, heal: &str) {
    let mut scene = Scene::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.queue("bob");
    scene.alice.line("LOCK.RENEW k alice PX 5000");
    assert_eq!(scene.alice.line(refuse).text(), "OK");
    let alice = &mut scene.alice;
    wait_for("the end of the lease", || alice.line("EXISTS k").int() == 0);
    barrier.pass();
    assert!(scene.subscriber.is_silent());
    scene.assert_stats(&[("tickets", 1)]);
    assert_eq!(scene.alice.line(heal).text(), "OK");
    scene.assert_granted("bob");
}

#[test]
fn a_pause_of_writes_keeps_it_in_the_queue() {
    stays_queued_until_writes_are_possible("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE");
}

#[test]
fn too_few_replicas_keep_it_in_the_queue() {
    stays_queued_until_writes_are_possible(
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
    );
}

#[test]
fn a_timeout_is_published_during_a_pause() {
    let mut scene = Scene::new();
    scene.ask("LOCK.ACQUIRE k bob BLOCK 200 NOTIFY ch bob");
    scene.alice.line("CLIENT PAUSE 60000 WRITE");
    assert_eq!(scene.heard(), "timeout bob");
    scene.alice.line("CLIENT UNPAUSE");
}

#[test]
fn out_of_memory_it_is_granted_but_not_queued() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.alice.line("CONFIG SET maxmemory 1");
    let refused = scene.alice.line(&request("carol")).error();
    assert!(refused.starts_with("OOM"), "{refused}");
    scene.release("alice");
    scene.assert_granted("bob");
    scene.alice.line("CONFIG SET maxmemory 0");
}

// The startup delay.

#[test]
fn in_the_startup_delay_it_is_queued_and_granted_afterwards() {
    let server = TestServer::with(&["--lock.startup-delay", "60000"]);
    let mut conn = server.conn();
    let mut subscriber = subscribe(&server, "ch");
    assert_queued(&mut conn, &request("bob"));
    assert_queued(&mut conn, "LOCK.MACQUIRE 2 x y bob BLOCK 0 NOTIFY ch many");
    assert_queued(
        &mut conn,
        "SEM.ACQUIRE s bob LIMIT 1 BLOCK 0 NOTIFY ch permit",
    );
    assert_queued(&mut conn, "LOCK.ACQUIRE k carol BLOCK 20 NOTIFY ch carol");
    assert_eq!(message(&mut subscriber), "timeout carol");
    assert_silent(&server, &mut subscriber, "ch");
    assert_eq!(conn.line("DBSIZE").int(), 0);
    conn.line("CONFIG SET lock.startup-delay 0");
    let mut tags: Vec<_> = (0..3)
        .map(|_| {
            let message = message(&mut subscriber);
            let words: Vec<_> = message.split(' ').map(str::to_string).collect();
            assert_eq!(words[0], "granted", "{message}");
            words[2].clone()
        })
        .collect();
    tags.sort();
    assert_eq!(tags, ["bob", "many", "permit"]);
}

// Refused writes and panics: `failed ERR`, and the server goes on.

/// Alice holds `k`, bob and carol have tickets, on a server whose module has faults on request.
fn with_faults() -> Scene {
    let mut scene = Scene::on(TestServer::with_module(fault_module(), &[]));
    scene.queue("bob");
    scene.queue("carol");
    scene
}

fn arm(conn: &mut Conn, fault: &str) {
    assert_eq!(conn.line(&format!("LOCK.FAULT {fault}")).text(), "OK");
}

/// Alice's release works, and carol is granted.
fn carol_is_granted(mut scene: Scene) {
    scene.release("alice");
    scene.assert_granted("carol");
    scene.assert_no_message();
    scene.release("carol");
    assert_eq!(scene.alice.line("EXISTS k").int(), 0);
    scene.queue_and_grant();
}

impl Scene {
    /// A whole life of a ticket.
    fn queue_and_grant(&mut self) {
        assert!(self.alice.line("LOCK.ACQUIRE k alice PX 60000").int() > 0);
        self.queue("zoe");
        self.release("alice");
        self.assert_granted("zoe");
    }
}

#[test]
fn a_panic_between_the_decision_and_its_effects_fails_the_ticket() {
    let mut scene = with_faults();
    arm(&mut scene.alice, "apply");
    let error = scene.alice.line("LOCK.RELEASE k alice").error();
    assert!(
        error.starts_with("ERR internal error in the lock module"),
        "{error}"
    );
    assert_eq!(scene.heard(), "failed ERR bob");
    scene.assert_stats(&[("panics", 1), ("tickets", 1)]);
    scene.assert_held("alice", scene.first);
    carol_is_granted(scene);
}

#[test]
fn a_panic_in_a_decision_of_the_timer_fails_the_ticket_and_grants_the_next() {
    let mut scene = with_faults();
    arm(&mut scene.alice, "apply");
    scene.alice.line("DEL k");
    assert_eq!(scene.heard(), "failed ERR bob");
    scene.assert_granted("carol");
    scene.assert_stats(&[("panics", 1), ("tickets", 0)]);
    scene.release("carol");
    scene.queue_and_grant();
}

#[test]
fn a_panic_before_the_decision_leaves_the_ticket_in_the_queue() {
    for fault in ["command", "alarm", "changed"] {
        let mut scene = with_faults();
        arm(&mut scene.alice, fault);
        let reply = scene.alice.line("LOCK.RELEASE k alice");
        if reply.is_error() {
            scene.alice.line("LOCK.RELEASE k alice");
        }
        scene.assert_granted("bob");
        scene.alice.line("DEL k");
        scene.assert_granted("carol");
        scene.alice.line("LOCK.FAULT none");
    }
}

#[test]
fn a_panic_in_the_grant_of_several_keys_fails_the_ticket() {
    let mut scene = Scene::on(TestServer::with_module(fault_module(), &[]));
    let mut failed = 0;
    // The timer settles each key and then the request: the number of decisions before the grant is not known here.
    for pass in 0..4 {
        scene.ask("LOCK.MACQUIRE 2 k l bob PX 60000 BLOCK 0 NOTIFY ch bob");
        let fault = format!("LOCK.FAULT API apply {pass}");
        scene.exec_and_mark(&["LOCK.RELEASE k alice", &fault]);
        assert_eq!(scene.heard(), "now");
        let message = scene.heard();
        scene.alice.line("LOCK.FAULT none");
        let held = scene.alice.line("EXISTS k l").int();
        if message == "failed ERR bob" {
            // After a panic between two keys the first is held: the keys say so, as after an error to a parked client.
            assert!(held < 2, "{held} keys are held");
            failed += 1;
        } else {
            assert!(
                message.starts_with("granted ") && message.ends_with(" bob"),
                "{message}"
            );
            assert_eq!(held, 2, "{message}");
        }
        assert_eq!(scene.alice.line("LOCK.MRELEASE 2 k l bob").int(), held);
        assert!(scene.alice.line("LOCK.ACQUIRE k alice PX 60000").int() > 0);
        scene.assert_no_message();
    }
    assert_eq!(failed, 2);
    scene.assert_stats(&[("tickets", 0)]);
}

#[test]
fn a_panic_as_a_permit_or_a_latch_is_decided_fails_the_ticket() {
    for (before, request, ending) in [
        (
            "SEM.ACQUIRE s a LIMIT 1 PX 60000",
            "SEM.ACQUIRE s b BLOCK 0 NOTIFY ch t",
            "SEM.RELEASE s a",
        ),
        (
            "LATCH.SET g 1",
            "LATCH.WAIT g BLOCK 0 NOTIFY ch t",
            "LATCH.DOWN g",
        ),
    ] {
        let mut scene = Scene::on(TestServer::with_module(fault_module(), &[]));
        scene.alice.line(before);
        scene.ask(request);
        arm(&mut scene.alice, "apply");
        let error = scene.alice.line(ending).error();
        assert!(error.starts_with("ERR internal error"), "{error}");
        let message = scene.heard();
        assert!(message == "failed ERR t", "{ending}: {message}");
        scene.assert_stats(&[("panics", 1), ("tickets", 0)]);
        scene.release("alice");
        scene.queue_and_grant();
    }
}

#[test]
fn a_refused_write_fails_the_ticket_and_the_next_is_granted() {
    for function in ["RedisModule_HashSet", "RedisModule_SetAbsExpire"] {
        let mut scene = with_faults();
        arm(&mut scene.alice, &format!("API {function}"));
        let error = scene.alice.line("LOCK.RELEASE k alice").error();
        assert!(
            error.starts_with("ERR the server refused a write"),
            "{error}"
        );
        let message = scene.heard();
        assert!(message.starts_with("failed ERR"), "{function}: {message}");
        scene.assert_stats(&[("writes_refused", 1), ("panics", 0)]);
        // Never two messages for one ticket, and never a message of a grant that is not in the key.
        let info = scene.alice.line("LOCK.INFO k").field("holders");
        let holders = info.map_or(0, |holders| holders.list().len());
        assert!(holders <= 1);
        scene.alice.line("LOCK.BREAK k");
        scene.server.check_counters();
    }
}

/// Its client reads an error.
#[test]
fn a_panic_in_a_new_request_leaves_no_ticket() {
    for (number, line) in [
        &request("bob"),
        "LOCK.MACQUIRE 2 k l bob BLOCK 0 NOTIFY ch bob",
        "LOCK.ACQUIRE k alice WRITE BLOCK 0 NOTIFY ch bob",
    ]
    .iter()
    .enumerate()
    {
        let mut scene = Scene::on(TestServer::with_module(fault_module(), &[]));
        if number == 2 {
            scene.release("alice");
            scene.alice.line("LOCK.ACQUIRE k bob READ PX 60000");
        }
        arm(&mut scene.alice, "apply");
        let error = scene.alice.line(line).error();
        assert!(error.starts_with("ERR internal error"), "{line}: {error}");
        scene.assert_stats(&[("panics", 1), ("tickets", 0), ("tickets_queued", 0)]);
        scene.alice.line("LOCK.BREAK k");
        scene.assert_no_message();
        scene.queue_and_grant();
    }
}

// Replicas.

/// Every event that ends a wait happens on the primary.
#[test]
fn on_a_replica_a_request_does_not_wait() {
    let server = TestServer::with(&["--replica-read-only", "no"]);
    let mut conn = server.conn();
    let _ear = subscribe(&server, "ch");
    conn.line("REPLICAOF 127.0.0.1 1");
    assert!(conn.line("LOCK.ACQUIRE k alice PX 60000").int() > 0);
    assert!(conn.line(&request("bob")).is_nil());
    conn.line("LATCH.SET g 1");
    // NOTIFY is ignored together with BLOCK: no subscriber is needed.
    for channel in ["ch", "silent"] {
        let notify = format!("BLOCK 0 NOTIFY {channel} t");
        let mut ask = |request: &str| conn.line(&format!("{request} {notify}"));
        assert_eq!(ask("LATCH.WAIT g").int(), 0);
        assert!(ask("LOCK.ACQUIRE k bob").is_nil());
        assert!(ask("LOCK.MACQUIRE 2 k l bob").is_nil());
        assert!(ask("SEM.ACQUIRE s bob").is_nil());
        assert!(ask("LOCK.ACQUIRE k alice ONCE").int() > 0);
    }
    assert_eq!(server.stat("tickets"), 0);
}

#[test]
fn a_reload_of_the_data_changes_nothing_for_it() {
    let mut scene = Scene::new();
    scene.queue("bob");
    assert_eq!(scene.alice.line("DEBUG RELOAD").text(), "OK");
    scene.assert_no_message();
    scene.release("alice");
    scene.assert_granted("bob");
}

// Redisson's waiters beside it.

#[test]
fn subscribers_of_redisson_delay_no_ticket_for_ever() {
    let mut scene = Scene::new();
    let mut instance = Instance::new(scene.server.port, "k", "u:1");
    instance.only_subscribe();
    let owners: Vec<_> = (0..12).map(|i| format!("w{i}")).collect();
    owners.iter().for_each(|owner| scene.queue(owner));
    let mut holder = "alice";
    for owner in &owners {
        scene.release(holder);
        scene.assert_granted(owner);
        holder = owner;
    }
    scene.assert_no_message();
}

#[test]
fn an_instance_of_redisson_and_tickets_hand_off_to_each_other() {
    let mut scene = Scene::new();
    scene.queue("bob");
    let mut instance = Instance::new(scene.server.port, "k", "u:1");
    assert!(instance.take().is_some());
    scene.release("alice");
    scene.assert_granted("bob");
    scene.release("bob");
    instance.lock();
    scene.queue("carol");
    instance.unlock();
    scene.assert_granted("carol");
}
