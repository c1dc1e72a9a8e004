//! The tests of every client's helper, whatever the language.

use std::time::{Duration, Instant};

use libc::{SIGCONT, SIGSTOP};
use redis_lock_harness::{patience, wait_for, Conn, TestServer};

use crate::agent::Agent;
use crate::proxy::Proxy;
use crate::Client;

/// Whether the run is short (`LOCK_CLIENTS_QUICK`).
fn is_quick() -> bool {
    std::env::var_os("LOCK_CLIENTS_QUICK").is_some()
}

/// A connection of the driver holds `k`; returns its token.
pub fn hold(conn: &mut Conn) -> i64 {
    conn.line("LOCK.ACQUIRE k holder PX 600000").int()
}

/// Another connection waits for `k` behind the agent.
fn park_behind(server: &TestServer) -> Conn {
    let mut later = server.conn();
    later.send_line("LOCK.ACQUIRE k later PX 600000 BLOCK 0");
    server.wait_for_waiters(2);
    later
}

/// The entry of `LOCK.INFO` about this owner's wait for `k`.
fn wait_of(conn: &mut Conn, owner: &str, field: &str) -> Option<i64> {
    let queue = conn.line("LOCK.INFO k WAITERS").field("queue")?;
    let waiters = queue.list();
    let mine = waiters
        .iter()
        .find(|w| w.field("owner").is_some_and(|o| o.text() == owner))?;
    mine.field(field)?.maybe_int()
}

/// The connection on which this owner waits for `k`.
pub fn waiting_connection(conn: &mut Conn, owner: &str) -> Option<i64> {
    wait_of(conn, owner, "client-id")
}

/// Whether this owner waits for `k` and is not between two requests: then it would be passed over.
fn is_amid_a_slice(conn: &mut Conn, owner: &str) -> bool {
    wait_of(conn, owner, "left-ms").is_some_and(|ms| ms > 500)
}

/// Waits until this owner waits for `k`, and returns its connection.
pub fn wait_for_connection(conn: &mut Conn, owner: &str) -> i64 {
    let mut id = None;
    wait_for(&format!("{owner} waits"), || {
        id = waiting_connection(conn, owner);
        id.is_some()
    });
    id.expect("just seen")
}

/// The agent holds `k` once, under this token, and can release it: then `next`, if given, is granted the lock.
fn holds_once_and_releases(conn: &mut Conn, agent: &mut Agent, token: i64, next: Option<Conn>) {
    assert_eq!(conn.line("HGET k a").text(), "1", "the hold count");
    assert_eq!(conn.line("HGET k #token").text(), format!("t{token}"));
    let left = conn.line("PTTL k").int();
    assert!((10_000..=30_000).contains(&left), "{left} ms of the lease");
    assert_eq!(agent.run(&format!("release k a {token}")), "1");
    match next {
        Some(mut next) => assert!(next.recv().int() > token),
        None => assert_eq!(conn.line("EXISTS k").int(), 0),
    }
}

/// Two owners read a number, add one and write it back, under the lock: no addition is lost, tokens rise.
pub fn two_owners_contend(client: &Client) {
    let rounds = if is_quick() { 50 } else { 500 };
    let server = TestServer::start();
    let mut first = server.conn();
    hold(&mut first);
    let agents = ["a", "b"].map(|owner| (owner, Agent::start(client, server.port)));
    std::thread::scope(|scope| {
        for (owner, mut agent) in agents {
            let mut conn = server.conn();
            scope.spawn(move || {
                for _ in 0..rounds {
                    agent.order(&format!("acquire k {owner} 20000 30000"));
                    let token = agent.token();
                    add_one(&mut conn, token);
                    assert_eq!(agent.run(&format!("release k {owner} {token}")), "1");
                }
            });
        }
        // Both begin at the same moment, however slowly one of them has started.
        server.wait_for_waiters(2);
        first.line("LOCK.RELEASE k holder");
    });
    let counted: i64 = server
        .conn()
        .line("GET counter")
        .text()
        .parse()
        .expect("a number");
    assert_eq!(counted, 2 * rounds);
    assert!(server.stat("waits_granted") > 1, "they never met");
}

fn add_one(conn: &mut Conn, token: i64) {
    let number = |conn: &mut Conn, key: &str| -> i64 {
        let reply = conn.run(["GET", key]);
        if reply.is_nil() {
            0
        } else {
            reply.text().parse().expect("a number")
        }
    };
    assert!(number(conn, "highest") < token, "tokens rise");
    let count = number(conn, "counter");
    conn.line(&format!("SET highest {token}"));
    conn.line(&format!("SET counter {}", count + 1));
}

/// Not granted in time: nil, neither early nor much too late. A lost lock is reported: 0.
pub fn a_wait_that_ends_is_nil(client: &Client) {
    let server = TestServer::start();
    let mut agent = Agent::start(client, server.port);
    let token = hold(&mut server.conn());
    let start = Instant::now();
    assert_eq!(agent.run("acquire k a 700 30000"), "nil");
    let waited = start.elapsed();
    // Clients and the server count in whole milliseconds: 700 may end within the last of them.
    let expected = Duration::from_millis(699)..patience();
    assert!(expected.contains(&waited), "gave up after {waited:?}");
    assert_eq!(agent.run("acquire k a 0 30000"), "nil");
    assert_eq!(agent.run(&format!("renew k a {token} 30000")), "0");
    assert_eq!(agent.run(&format!("release k a {token}")), "0");
}

/// A refusal by the server is no network error: it is reported, not repeated until the wait is over.
pub fn a_refusal_is_told_at_once(client: &Client) {
    let server = TestServer::start();
    let mut agent = Agent::start(client, server.port);
    server.conn().line("RPUSH k element");
    let start = Instant::now();
    let answer = agent.run("acquire k a 60000 30000");
    assert!(
        answer.starts_with("error ") && answer.contains("WRONGTYPE"),
        "{answer}"
    );
    assert!(start.elapsed() < patience(), "{:?}", start.elapsed());
}

/// The wait continues, keeps its place before later ones, and is granted once.
pub fn the_connection_is_killed_while_it_waits(client: &Client) {
    let server = TestServer::with(&["--lock.queue-grace", "20000"]);
    let mut agent = Agent::start(client, server.port);
    let mut conn = server.conn();
    hold(&mut conn);
    agent.order("acquire k a 20000 30000");
    let first = wait_for_connection(&mut conn, "a");
    let later = park_behind(&server);
    conn.line(&format!("CLIENT KILL ID {first}"));
    wait_for("the agent waits on another connection", || {
        waiting_connection(&mut conn, "a").is_some_and(|id| id != first)
    });
    conn.line("LOCK.RELEASE k holder");
    let token = agent.token();
    holds_once_and_releases(&mut conn, &mut agent, token, Some(later));
}

/// The lock is granted, but the reply is lost: the repeated request returns the same grant.
pub fn the_reply_of_an_acquire_is_lost(client: &Client) {
    let server = TestServer::start();
    let proxy = Proxy::before(server.port);
    let mut agent = Agent::start(client, proxy.port);
    proxy.lose_reply_to("LOCK.ACQUIRE");
    agent.order("acquire k a 20000 30000");
    let token = agent.token();
    assert_eq!((proxy.lost(), server.stat("grants")), (1, 1));
    holds_once_and_releases(&mut server.conn(), &mut agent, token, None);
}

/// The same with a request that waited.
pub fn the_reply_of_a_hand_off_is_lost(client: &Client) {
    let server = TestServer::start();
    let proxy = Proxy::before(server.port);
    let mut agent = Agent::start(client, proxy.port);
    let mut conn = server.conn();
    hold(&mut conn);
    proxy.lose_reply_to("LOCK.ACQUIRE");
    agent.order("acquire k a 20000 30000");
    wait_for_connection(&mut conn, "a");
    conn.line("LOCK.RELEASE k holder");
    let token = agent.token();
    assert_eq!(proxy.lost(), 1);
    holds_once_and_releases(&mut conn, &mut agent, token, None);
}

/// The library's limit for a reply is shorter than this: the helper does not give up, and keeps its place.
pub fn a_wait_longer_than_the_clients_own_limit(client: &Client) {
    let limit = (client.gives_up_after + 1_000).max(5_000);
    let limit = Duration::from_millis(if is_quick() { limit.min(7_000) } else { limit });
    let server = TestServer::with(&["--lock.queue-grace", "20000"]);
    let mut agent = Agent::start(client, server.port);
    let mut conn = server.conn();
    hold(&mut conn);
    agent.order("acquire k a 600000 30000");
    let start = Instant::now();
    wait_for_connection(&mut conn, "a");
    let later = park_behind(&server);
    wait_for(
        "the wait is longer than that, and the agent in the queue",
        || start.elapsed() > limit && is_amid_a_slice(&mut conn, "a"),
    );
    conn.line("LOCK.RELEASE k holder");
    let token = agent.token();
    holds_once_and_releases(&mut conn, &mut agent, token, Some(later));
}

/// If all commands go through one connection, the wait has another one: a renewal need not wait behind it.
pub fn a_wait_delays_no_other_call(client: &Client) {
    let server = TestServer::start();
    let mut agent = Agent::start(client, server.port);
    let mut conn = server.conn();
    hold(&mut conn);
    agent.order("acquire other a 20000 30000");
    let token = agent.token();
    assert_eq!(agent.run(&format!("renew other a {token} 30000")), "1");
    let list = conn.line("CLIENT LIST").text();
    let renewed = list
        .lines()
        .find(|line| line.contains(" cmd=lock.renew "))
        .expect("a connection");
    agent.order("acquire k a 20000 30000");
    let waiting = wait_for_connection(&mut conn, "a");
    let is_shared = renewed.starts_with(&format!("id={waiting} "));
    assert!(
        !(client.multiplexed && is_shared),
        "a renewal would wait behind it"
    );
    conn.line("LOCK.RELEASE k holder");
    let token = agent.token();
    holds_once_and_releases(&mut conn, &mut agent, token, None);
}

/// Both are safe to repeat: the lost reply of a renewal is recovered, and a repeated release does not affect
/// the next grant.
pub fn a_renew_and_a_release_are_sent_again(client: &Client) {
    let server = TestServer::start();
    let proxy = Proxy::before(server.port);
    let mut agent = Agent::start(client, proxy.port);
    let mut conn = server.conn();
    agent.order("acquire k a 20000 30000");
    let token = agent.token();
    proxy.lose_reply_to("LOCK.RENEW");
    assert_eq!(agent.run(&format!("renew k a {token} 600000")), "1");
    assert!(conn.line("PTTL k").int() > 500_000);
    let mut next = server.conn();
    next.send_line("LOCK.ACQUIRE k later PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    proxy.lose_reply_to("LOCK.RELEASE");
    assert_eq!(agent.run(&format!("release k a {token}")), "0");
    assert_eq!(proxy.lost(), 2);
    assert!(next.recv().int() > token);
    assert_eq!(conn.line("HGET k later").text(), "1");
}

/// A late command with the token of a former grant has no effect; a release ends all holds of its grant.
pub fn a_token_is_good_for_its_own_grant_only(client: &Client) {
    let server = TestServer::start();
    let mut agent = Agent::start(client, server.port);
    let mut conn = server.conn();
    agent.order("acquire k a 20000 30000");
    let former = agent.token();
    assert_eq!(agent.run(&format!("release k a {former}")), "1");
    agent.order("acquire k a 20000 30000");
    let token = agent.token();
    conn.line("LOCK.ACQUIRE k a");
    assert_eq!(agent.run(&format!("renew k a {former} 600000")), "0");
    assert_eq!(agent.run(&format!("release k a {former}")), "0");
    assert_eq!(conn.line("HGET k a").text(), "2", "holds");
    assert!(conn.line("PTTL k").int() <= 30_000);
    assert_eq!(agent.run(&format!("release k a {token}")), "1");
    assert_eq!(conn.line("EXISTS k").int(), 0);
}

/// Connections break and new ones are refused for a moment: the wait continues. (This server has lost the lock.)
pub fn the_server_starts_again_while_it_waits(client: &Client) {
    let mut server = TestServer::start();
    let mut agent = Agent::start(client, server.port);
    hold(&mut server.conn());
    agent.order("acquire k a 60000 30000");
    wait_for_connection(&mut server.conn(), "a");
    server.crash_and_restart();
    let token = agent.token();
    assert_eq!(server.stat("grants"), 1);
    holds_once_and_releases(&mut server.conn(), &mut agent, token, None);
}

/// A server that hangs keeps its connections open: only the client's own limit detects it. No client waits very much
/// longer than requested.
pub fn the_server_hangs_while_it_waits(client: &Client) {
    let server = TestServer::start();
    let mut agent = Agent::start(client, server.port);
    hold(&mut server.conn());
    agent.order("acquire k a 3000 30000");
    wait_for_connection(&mut server.conn(), "a");
    server.signal(SIGSTOP);
    let start = Instant::now();
    let answer = agent.answer();
    server.signal(SIGCONT);
    assert!(answer.starts_with("error "), "{answer}");
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
}

/// For longer than the client's limit for a reply, but not longer than the wait: the wait continues, and is granted
/// once.
pub fn the_server_hangs_for_a_moment(client: &Client) {
    let server = TestServer::with(&["--lock.queue-grace", "20000"]);
    let mut agent = Agent::start(client, server.port);
    let mut conn = server.conn();
    hold(&mut conn);
    agent.order("acquire k a 600000 30000");
    wait_for_connection(&mut conn, "a");
    server.signal(SIGSTOP);
    let start = Instant::now();
    wait_for("the client has given up on a reply", || {
        start.elapsed() > Duration::from_secs(6)
    });
    server.signal(SIGCONT);
    wait_for("the agent is in the queue", || {
        is_amid_a_slice(&mut conn, "a")
    });
    conn.line("LOCK.RELEASE k holder");
    let token = agent.token();
    holds_once_and_releases(&mut conn, &mut agent, token, None);
}

/// Given up while the server hangs, in which the lock has become free: the wait ends all the same.
pub fn given_up_while_the_server_hangs(client: &Client) {
    let server = TestServer::start();
    let proxy = Proxy::before(server.port);
    let mut agent = Agent::start(client, proxy.port);
    let mut conn = server.conn();
    hold(&mut conn);
    agent.order("acquire k a 3000 60000");
    wait_for_connection(&mut conn, "a");
    let ended = proxy.ended();
    server.signal(SIGSTOP);
    conn.send_line("LOCK.RELEASE k holder");
    let mut answer = None;
    wait_for("the client has given up on a reply", || {
        answer = agent.answer_so_far();
        answer.is_some() || proxy.ended() > ended
    });
    server.signal(SIGCONT);
    let answer = answer.unwrap_or_else(|| agent.answer());
    assert!(!answer.starts_with("token "), "{answer}");
    assert_eq!(conn.recv().int(), 1);
    is_given_up(&server);
    wait_for("k is free", || conn.line("EXISTS k").int() == 0);
}

/// An acquisition has been given up by its number.
fn is_given_up(server: &TestServer) {
    wait_for("an acquisition is final", || server.stat("finals") > 0);
}

/// A request that arrives after its caller has given up grants nothing.
pub fn a_late_request_grants_nothing(client: &Client) {
    let server = TestServer::start();
    let proxy = Proxy::before(server.port);
    let mut agent = Agent::start(client, proxy.port);
    let mut conn = server.conn();
    hold(&mut conn);
    proxy.hold_back("LOCK.ACQUIRE");
    let answer = agent.run("acquire k a 3000 60000");
    assert!(!answer.starts_with("token "), "{answer}");
    is_given_up(&server);
    conn.line("LOCK.RELEASE k holder");
    proxy.deliver();
    wait_for("the late request is served", || {
        server.stat("finals_refused") + server.stat("grants") > 1
    });
    assert_eq!(conn.line("EXISTS k").int(), 0);
}
