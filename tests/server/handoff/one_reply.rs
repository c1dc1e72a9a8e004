//! A parked request gets one reply, also on servers that do other work between an answer and the end of the block:
//! nodes of a cluster, and servers with I/O threads.

use crate::common::cluster::{one_node, slot_of, wait_until_served};
use crate::common::{Conn, Reply, TestServer};

const ROUNDS: usize = 15;
const WAITERS: usize = 40;

/// The answers of a wait whose slot has gone.
fn is_nil_or_redirect(reply: &Reply) -> bool {
    reply.is_nil() || reply.is_error() && reply.error().starts_with("CLUSTERDOWN")
}

/// Waits end by their limit while the node finds, in each of its crons, that it no longer serves their slot.
#[test]
fn a_wait_that_ends_while_its_slot_goes_is_answered_once() {
    let node = one_node(&["--hz", "500", "--cluster-require-full-coverage", "no"]);
    let mut admin = node.conn();
    let slot = slot_of(&mut admin, "k");
    let mut waiters: Vec<Conn> = (0..WAITERS).map(|_| node.conn()).collect();
    for _ in 0..ROUNDS {
        admin.line("LOCK.ACQUIRE k alice PX 60000").int();
        for (at, waiter) in waiters.iter_mut().enumerate() {
            let limit = 60 + at / 2;
            waiter.send_line(&format!("LOCK.ACQUIRE k bob{at} BLOCK {limit}"));
        }
        waiters[0].recv();
        admin.line(&format!("CLUSTER DELSLOTS {slot}"));
        waiters[0].send_line("PING");
        for waiter in &mut waiters[1..] {
            let reply = waiter.recv();
            assert!(is_nil_or_redirect(&reply), "{reply:?}");
            waiter.send_line("PING");
        }
        for waiter in &mut waiters {
            assert_eq!(waiter.recv().text(), "PONG");
        }
        admin.line(&format!("CLUSTER ADDSLOTS {slot}"));
        wait_until_served(&node);
        admin.line("DEL k");
    }
    node.check_counters();
}

/// The wait ends in the tick in which the node finds that the slot has gone: both are due after the sleep.
#[test]
fn a_wait_that_ends_in_the_tick_of_the_redirect_is_answered_once() {
    let node = one_node(&[]);
    let (mut holder, mut waiter) = (node.conn(), node.conn());
    holder.line("LOCK.ACQUIRE k alice");
    let slot = slot_of(&mut holder, "k");
    waiter.send_line("LOCK.ACQUIRE k bob BLOCK 400");
    node.wait_for_waiters(1);
    let leave = format!("CLUSTER DELSLOTS {slot}");
    holder.send_lines(&["MULTI", "DEL k", &leave, "DEBUG SLEEP 0.7", "EXEC"]);
    (0..5).for_each(|_| drop(holder.recv()));
    let reply = waiter.recv();
    assert!(is_nil_or_redirect(&reply), "{reply:?}");
    assert_eq!(waiter.line("PING").text(), "PONG");
    node.wait_for_waiters(0);
}

/// A hand-off from alice to bob, then a wait of bob that ends by its limit.
fn grant_and_limit(server: &TestServer) {
    let (mut alice, mut bob) = (server.conn(), server.conn());
    let first = alice.line("LOCK.ACQUIRE k alice").int();
    bob.send_line("LOCK.ACQUIRE k bob BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(alice.line("LOCK.RELEASE k alice").int(), 1);
    assert!(bob.recv().int() > first);
    assert_eq!(bob.line("LOCK.RELEASE k bob").int(), 1);
    alice.line("LOCK.ACQUIRE k alice").int();
    assert!(bob.line("LOCK.ACQUIRE k bob BLOCK 1").is_nil());
    assert_eq!(bob.line("PING").text(), "PONG");
    assert_eq!(alice.line("LOCK.RELEASE k alice").int(), 1);
}

/// On servers that do other work before the end of a block.
#[test]
fn a_grant_and_a_limit_are_answered_once() {
    let renamed = [
        "--rename-command",
        "CLIENT",
        "",
        "--rename-command",
        "CONFIG",
        "",
    ];
    for server in [
        one_node(&[]),
        TestServer::with(&["--io-threads", "2"]),
        TestServer::with(&renamed),
    ] {
        grant_and_limit(&server);
    }
}
