//! The tests of every helper that waits by tickets, whatever the language.

use std::time::{Duration, Instant};

use libc::{SIGCONT, SIGSTOP};
use redis_lock_harness::cluster::{lock_scenes, move_slot, slot_of, two_nodes};
use redis_lock_harness::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use redis_lock_harness::{patience, wait_for, Conn, TestServer};

use crate::proxy::Proxy;
use crate::suite::hold;
use crate::ticket_agent::TicketAgent;
use crate::TicketSubject;

/// Longer than any test: only a message ends such a wait.
const LONG: u32 = 600_000;

/// Places are kept for as long as a client needs to subscribe again.
const LONG_GRACE: [&str; 2] = ["--lock.queue-grace", "20000"];

/// A counter or gauge of `INFO lock`, read through this connection: one that is not the driver's only one would be
/// counted by the test of connections.
fn stat(conn: &mut Conn, name: &str) -> i64 {
    let info = conn.line("INFO lock").text();
    let line = info
        .lines()
        .find_map(|l| l.strip_prefix(&format!("lock_{name}:")).map(str::to_string));
    line.and_then(|value| value.trim().parse().ok())
        .expect("a field of INFO lock")
}

fn wait_for_stat(conn: &mut Conn, name: &str, value: i64) {
    wait_for(&format!("{name} to be {value}"), || {
        stat(conn, name) == value
    });
}

/// The connections of the server besides this one, as lines of `CLIENT LIST`.
fn others(conn: &mut Conn) -> Vec<String> {
    let mine = format!("id={} ", conn.id());
    let list = conn.line("CLIENT LIST").text();
    let others = list.lines().filter(|line| !line.starts_with(&mine));
    others.map(str::to_string).collect()
}

/// The ids of the connections that have subscribed.
fn subscribers(conn: &mut Conn) -> Vec<String> {
    let others = others(conn).into_iter();
    let subscribed = others.filter(|line| line.contains(" sub=1 ") || line.contains(" ssub=1 "));
    let id = |line: String| line.split([' ', '=']).nth(1).map(str::to_string);
    subscribed.filter_map(id).collect()
}

/// Begins this many waits for `k` and returns when all of them are in the queue: their owners, in its order.
fn queue(conn: &mut Conn, agent: &mut TicketAgent, key: &str, count: usize) -> Vec<String> {
    for i in 0..count {
        agent.acquire(key, &format!("owner{i}"), LONG);
    }
    wait_for_stat(conn, "tickets", count as i64);
    queued(conn, key, count)
}

fn queued(conn: &mut Conn, key: &str, count: usize) -> Vec<String> {
    let info = conn.line(&format!("LOCK.INFO {key} WAITERS COUNT {count}"));
    let queue = info.field("queue").expect("a queue").list();
    let owner =
        |waiter: &redis_lock_harness::Reply| waiter.field("owner").map(|owner| owner.text());
    queue.iter().filter_map(owner).collect()
}

/// Each owner is granted the lock in this order, works, and releases it; tokens rise.
fn take_turns(agent: &mut TicketAgent, key: &str, owners: &[String], mut highest: i64) -> i64 {
    for expected in owners {
        let (owner, token) = agent.next_token();
        assert_eq!(owner, *expected, "first come, first served");
        assert!(token > highest, "tokens rise");
        highest = token;
        assert_eq!(agent.release(key, &owner, token), "1");
    }
    highest
}

/// All owners are granted the lock, one at a time, in whatever order.
fn all_have_their_turn(
    agent: &mut TicketAgent,
    key: &str,
    mut owners: Vec<String>,
    mut highest: i64,
) {
    while !owners.is_empty() {
        let (owner, token) = agent.next_token();
        let place = owners.iter().position(|other| *other == owner);
        owners.remove(place.unwrap_or_else(|| panic!("{owner} has had its turn")));
        assert!(token > highest, "tokens rise");
        highest = token;
        assert_eq!(agent.release(key, &owner, token), "1");
    }
}

/// One process, a thousand waits, at most two connections; the subscriber is killed when 300 have had their turn. The
/// lock is held meanwhile, so the order is that of the queue before.
pub fn a_thousand_waits_on_two_connections(subject: &TicketSubject) {
    let server = TestServer::with(&LONG_GRACE);
    let mut conn = server.conn();
    let token = hold(&mut conn);
    let mut agent = TicketAgent::start(subject, server.port);
    let owners = queue(&mut conn, &mut agent, "k", 1_000);
    let connections = others(&mut conn);
    assert!(connections.len() <= subject.connections, "{connections:#?}");

    conn.line("LOCK.RELEASE k holder");
    let highest = take_turns(&mut agent, "k", &owners[..300], token);
    let (owner, token) = agent.next_token();
    assert_eq!((&owner, token > highest), (&owners[300], true));
    let asked = stat(&mut conn, "tickets_queued");
    kill_subscribers(&mut conn);
    wait_for("every wait that is open asks again", || {
        stat(&mut conn, "tickets_queued") >= asked + 699
    });
    assert_eq!(queued(&mut conn, "k", 1_000), owners[301..]);
    assert_eq!(agent.release("k", &owner, token), "1");
    take_turns(&mut agent, "k", &owners[301..], token);

    assert_eq!(stat(&mut conn, "grants"), 1_001, "none is granted twice");
    assert_eq!(conn.line("EXISTS k").int(), 0);
}

fn kill_subscribers(conn: &mut Conn) {
    let ids = subscribers(conn);
    assert_eq!(ids.len(), 1, "one subscription");
    for id in ids {
        conn.line(&format!("CLIENT KILL ID {id}"));
    }
}

/// The lock becomes free while the channel has no subscriber: every wait continues.
pub fn a_grant_without_a_subscriber(subject: &TicketSubject) {
    let server = TestServer::with(&LONG_GRACE);
    let mut conn = server.conn();
    let token = hold(&mut conn);
    let mut agent = TicketAgent::start(subject, server.port);
    let owners = queue(&mut conn, &mut agent, "k", 20);
    let ids = subscribers(&mut conn);
    conn.send_lines(&[
        &format!("CLIENT KILL ID {}", ids[0]),
        "LOCK.RELEASE k holder",
    ]);
    assert_eq!((conn.recv().int(), conn.recv().int()), (1, 1));
    all_have_their_turn(&mut agent, "k", owners, token);
    assert!(
        stat(&mut conn, "tickets_unheard") > 0,
        "none was passed over"
    );
    assert_eq!(stat(&mut conn, "grants"), 21);
}

/// A wait from beginning to end. Then the agent has handled the confirmation of its subscription, after which all open
/// waits ask again: a later wait is granted by a message, not by the reply to such a request.
fn subscribe_fully(conn: &mut Conn, agent: &mut TicketAgent) {
    conn.line("LOCK.ACQUIRE first holder PX 600000");
    queue(conn, agent, "first", 1);
    conn.line("LOCK.RELEASE first holder");
    let (owner, token) = agent.next_token();
    assert_eq!(agent.release("first", &owner, token), "1");
}

/// The message of a grant dies with its connection: asking again returns the same grant.
pub fn the_message_of_a_grant_is_lost(subject: &TicketSubject) {
    a_grant_survives(subject, |proxy| proxy.lose_message("granted "));
}

/// The same with the reply to the request that follows the message.
pub fn the_reply_of_the_confirmation_is_lost(subject: &TicketSubject) {
    a_grant_survives(subject, |proxy| proxy.lose_reply_to(subject.confirms_by));
}

/// The lock is granted while this is lost on the way to the client.
fn a_grant_survives(subject: &TicketSubject, lose: impl Fn(&Proxy)) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let proxy = Proxy::before(server.port);
    hold(&mut conn);
    let mut agent = TicketAgent::start(subject, proxy.port);
    subscribe_fully(&mut conn, &mut agent);
    queue(&mut conn, &mut agent, "k", 1);
    lose(&proxy);
    conn.line("LOCK.RELEASE k holder");
    let (owner, token) = agent.next_token();
    assert_eq!((proxy.lost(), stat(&mut conn, "grants")), (1, 4));
    assert_eq!(conn.line("HGET k owner0").text(), "1", "the hold count");
    assert_eq!(agent.release("k", &owner, token), "1");
}

/// The reply to a request that was granted at once is lost.
pub fn the_reply_of_a_grant_is_lost(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let proxy = Proxy::before(server.port);
    let mut agent = TicketAgent::start(subject, proxy.port);
    agent.acquire("other", "first", LONG); // the subscription is there
    let first = agent.next_token();
    proxy.lose_reply_to("LOCK.ACQUIRE");
    agent.acquire("k", "a", LONG);
    let (owner, token) = agent.next_token();
    assert_eq!((owner.as_str(), proxy.lost()), ("a", 1));
    assert_eq!(conn.line("HGET k a").text(), "1", "the hold count");
    assert_eq!(stat(&mut conn, "grants"), 2);
    assert_eq!(agent.renew("k", "a", token), "1");
    assert!(conn.line("PTTL k").int() > 500_000);
    assert_eq!(
        agent.release("k", "a", first.1),
        "0",
        "the token of another grant"
    );
    assert_eq!(agent.release("k", "a", token), "1");
    assert_eq!(agent.renew("k", "a", token), "0");
}

/// A message that the module did not send: the wait continues. (Every client that may publish can send one.)
pub fn a_forged_message_grants_nothing(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let holds = hold(&mut conn);
    let mut agent = TicketAgent::start(subject, server.port);
    queue(&mut conn, &mut agent, "k", 1);
    let asked = stat(&mut conn, "tickets_queued");
    let waiters = conn
        .line("LOCK.INFO k WAITERS")
        .field("queue")
        .expect("a queue");
    let field = |name: &str| waiters.list()[0].field(name).expect("a field").text();
    let message = format!("granted {} {}", holds + 1, field("tag"));
    assert_eq!(conn.run(["PUBLISH", &field("channel"), &message]).int(), 1);
    wait_for("the agent asks again", || {
        stat(&mut conn, "tickets_queued") > asked
    });
    conn.line("LOCK.RELEASE k holder");
    let (owner, token) = agent.next_token();
    assert_ne!(token, holds + 1);
    assert_eq!(agent.release("k", &owner, token), "1");
}

/// Not granted in time: nil, neither early nor much too late, and the queue is left.
pub fn a_wait_that_ends_is_nil(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    hold(&mut conn);
    let mut agent = TicketAgent::start(subject, server.port);
    let start = Instant::now();
    agent.acquire("k", "a", 700);
    assert_eq!(agent.answer_to("a"), "nil");
    let waited = start.elapsed();
    // The server counts in whole milliseconds: its 700 may end within the last of them.
    let expected = Duration::from_millis(699)..patience();
    assert!(expected.contains(&waited), "gave up after {waited:?}");
    // Go's context ends the call before the server has the withdrawal.
    wait_for_stat(&mut conn, "tickets", 0);
}

/// Refused by a reply, and by a message.
pub fn a_refusal_is_told_at_once(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    hold(&mut conn);
    conn.line("RPUSH list element");
    let mut agent = TicketAgent::start(subject, server.port);
    agent.acquire("list", "b", LONG);
    let refused = agent.answer_to("b");
    assert!(
        refused.starts_with("error ") && refused.contains("WRONGTYPE"),
        "{refused}"
    );
    queue(&mut conn, &mut agent, "k", 1);
    for line in ["MULTI", "DEL k", "RPUSH k element", "EXEC"] {
        conn.line(line);
    }
    let failed = agent.answer_to("owner0");
    assert!(
        failed.starts_with("error ") && failed.contains("WRONGTYPE"),
        "{failed}"
    );
}

/// The caller gives up: the ticket leaves the queue.
pub fn a_cancelled_wait_is_withdrawn(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    hold(&mut conn);
    let mut agent = TicketAgent::start(subject, server.port);
    let owners = queue(&mut conn, &mut agent, "k", 2);
    // By then it has the replies to the waits: what a named owner has without a reply is left to its end.
    agent.hold("other", LONG);
    agent.cancel(&owners[0]);
    assert_eq!(agent.answer_to(&owners[0]), "cancelled");
    wait_for_stat(&mut conn, "tickets_withdrawn", 1);
    conn.line("LOCK.RELEASE k holder");
    assert_eq!(agent.next_token().0, owners[1]);
}

/// The caller gives up at the first, second, ... piece that the client sends for its wait.
pub fn cancelled_at_each_request(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let proxy = Proxy::before(server.port);
    let mut agent = TicketAgent::start(subject, proxy.port);
    for at in 1.. {
        proxy.hold_back_piece(at);
        let owner = format!("o{at}");
        conn.line("LOCK.ACQUIRE k holder PX 600000");
        agent.acquire("k", &owner, LONG);
        wait_for("a piece, or the wait", || {
            proxy.holds() || stat(&mut conn, "tickets") == 1
        });
        let is_held_back = proxy.holds();
        agent.cancel(&owner);
        if is_held_back {
            proxy.deliver();
        }
        let answer = agent.answer_to(&owner);
        assert_eq!(answer, "cancelled", "piece {at}");
        wait_for("the withdrawal, or nothing to withdraw", || {
            // The piece may also be one of the withdrawal.
            if proxy.holds() {
                proxy.deliver();
            }
            stat(&mut conn, "tickets") == 0
        });
        conn.line("LOCK.RELEASE k holder");
        wait_for("nothing is held", || conn.line("EXISTS k").int() == 0);
        if !is_held_back {
            break;
        }
        assert!(at < 100, "the acquisition ends");
    }
    proxy.hold_back_piece(0);
    if proxy.holds() {
        proxy.deliver();
    }
    let token = agent.keep("k", LONG);
    assert_eq!(agent.ask(&format!("release k a {token}")), "1");
}

/// A server that hangs keeps its connections open. No call waits very much longer than requested.
pub fn the_server_hangs_while_it_waits(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    hold(&mut conn);
    let mut agent = TicketAgent::start(subject, server.port);
    // The first requests of a process may take longer than this wait.
    subscribe_fully(&mut conn, &mut agent);
    agent.acquire("k", "a", 2_000);
    wait_for_stat(&mut conn, "tickets", 1);
    server.signal(SIGSTOP);
    let start = Instant::now();
    let answer = agent.answer_to("a");
    server.signal(SIGCONT);
    assert!(answer.starts_with("error "), "{answer}");
    assert!(start.elapsed() < patience(), "{:?}", start.elapsed());
}

/// Given up while the server hangs, in which the lock has become free: the wait ends all the same.
pub fn given_up_while_the_server_hangs(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    hold(&mut conn);
    let proxy = Proxy::before(server.port);
    let mut agent = TicketAgent::start(subject, proxy.port);
    subscribe_fully(&mut conn, &mut agent); // else a second request of the wait may be under way
    agent.acquire("k", "a", 2_000);
    wait_for_stat(&mut conn, "tickets", 1);
    let ended = proxy.ended();
    server.signal(SIGSTOP);
    conn.send_line("LOCK.RELEASE k holder");
    let mut answer = None;
    wait_for("the client has given up on a reply", || {
        answer = agent.next_so_far();
        answer.is_some() || proxy.ended() > ended
    });
    server.signal(SIGCONT);
    let (_, answer) = answer.unwrap_or_else(|| agent.next());
    assert!(!answer.starts_with("token "), "{answer}");
    assert_eq!(conn.recv().int(), 1);
    wait_for("it is final", || stat(&mut conn, "finals") > 0);
    wait_for("k is free", || conn.line("EXISTS k").int() == 0);
}

/// A request that arrives after its caller has given up grants nothing.
pub fn a_late_request_grants_nothing(subject: &TicketSubject) {
    let server = TestServer::start();
    let mut conn = server.conn();
    let proxy = Proxy::before(server.port);
    hold(&mut conn);
    let mut agent = TicketAgent::start(subject, proxy.port);
    subscribe_fully(&mut conn, &mut agent);
    proxy.hold_back("LOCK.ACQUIRE");
    agent.acquire("k", "a", 5_000);
    let answer = agent.answer_to("a");
    assert!(!answer.starts_with("token "), "{answer}");
    wait_for("it is final", || stat(&mut conn, "finals") > 0);
    conn.line("LOCK.RELEASE k holder");
    let grants = stat(&mut conn, "grants");
    proxy.deliver();
    wait_for("the late request is served", || {
        stat(&mut conn, "finals_refused") + stat(&mut conn, "grants") > grants
    });
    assert_eq!(conn.line("EXISTS k").int(), 0);
}

/// The primary dies and its replica, which knows no tickets, is promoted: every wait continues there.
pub fn a_replica_is_promoted(subject: &TicketSubject) {
    let (mut primary, replica) = (TestServer::with(&PROMPT_MASTER), TestServer::start());
    follow(&replica, &primary);
    let proxy = Proxy::before(primary.port);
    let token = hold(&mut primary.conn());
    let mut agent = TicketAgent::start(subject, proxy.port);
    let owners = queue(&mut primary.conn(), &mut agent, "k", 20);
    wait_until_in_sync(&replica, &primary);
    let mut conn = replica.conn();
    conn.line("REPLICAOF NO ONE");
    proxy.lead_to(replica.port);
    primary.crash();
    wait_for_stat(&mut conn, "tickets", 20);
    conn.line("LOCK.RELEASE k holder");
    all_have_their_turn(&mut agent, "k", owners, token);
    assert_eq!(stat(&mut conn, "grants"), 20);
    primary.start_again(); // a server that is down at the end of a test has failed
}

/// The slot of the lock, which is held, moves to another node of the cluster: every wait continues there.
pub fn the_slot_moves(subject: &TicketSubject) {
    let _scene = lock_scenes();
    let (source, target) = two_nodes(&LONG_GRACE);
    let (mut here, mut there) = (source.conn(), target.conn());
    let token = here.line("LOCK.ACQUIRE {a}k holder PX 600000").int();
    let mut agent = TicketAgent::start_in_cluster(subject, source.port, "{a}");
    let owners = queue(&mut here, &mut agent, "{a}k", 20);
    let slot = slot_of(&mut here, "{a}k");
    move_slot(&source, &target, slot);
    wait_for_stat(&mut there, "tickets", 20);
    there.line("LOCK.RELEASE {a}k holder");
    all_have_their_turn(&mut agent, "{a}k", owners, token);
    assert_eq!(stat(&mut there, "grants"), 20);
}
