//! Thousands of waiters: the cost of a hand-off, one grant for each in its order, and nothing left of them afterwards.
//! And hundreds of random events, for orders that no other test has. Figures are printed, not asserted: `cargo test --
//! --nocapture`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::scene::wait_until_at_rest;
use crate::common::{has_io_threads, patience, wait_for, Conn, Reply, TestServer};

const MANY: usize = 5_000;

/// A connection in the ring, and the owner that it uses.
struct Member {
    conn: Conn,
    owner: String,
}

impl Member {
    fn new(server: &TestServer, number: usize) -> Member {
        Member {
            conn: server.conn(),
            owner: format!("w{number}"),
        }
    }

    fn ask(&mut self) {
        self.conn.send([
            "LOCK.ACQUIRE",
            "k",
            &self.owner,
            "PX",
            "600000",
            "BLOCK",
            "0",
        ]);
    }

    fn release(&mut self) {
        self.conn.send(["LOCK.RELEASE", "k", &self.owner]);
    }
}

/// One crowd at a time: all tests share ports and files.
static CROWD: Mutex<()> = Mutex::new(());

/// Lets this process, and the servers that it starts, open as many files as the system allows. The other crowds wait
/// meanwhile.
fn allow_many_connections() -> MutexGuard<'static, ()> {
    let alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid, live struct.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    assert!(
        limit.rlim_cur > 2 * MANY as u64,
        "too few files: {}",
        limit.rlim_cur
    );
    alone
}

/// The holder, and this many waiters behind it, in the order in which they were parked.
fn ring(server: &TestServer, waiters: usize) -> VecDeque<Member> {
    let mut ring = VecDeque::with_capacity(waiters + 1);
    let mut holder = Member::new(server, 0);
    holder.ask();
    holder.conn.recv().int();
    ring.push_back(holder);
    let mut watcher = server.conn();
    for number in 1..=waiters {
        let mut member = Member::new(server, number);
        member.ask();
        ring.push_back(member);
        wait_until_parked(&mut watcher, number);
    }
    ring
}

/// Waits without the sleeps of `wait_for`: thousands are parked one by one.
fn wait_until_parked(watcher: &mut Conn, waiters: usize) {
    let start = Instant::now();
    loop {
        let info = watcher.line("LOCK.INFO k");
        if info
            .field("waiters")
            .is_some_and(|count| count.int() == waiters as i64)
        {
            return;
        }
        assert!(start.elapsed() < patience(), "never {waiters} waiters");
    }
}

/// One hand-off: from sending the release to having read the next owner's token.
fn hand_off(ring: &mut VecDeque<Member>, last: &mut i64) -> Duration {
    let mut holder = ring.pop_front().expect("a holder");
    let start = Instant::now();
    holder.release();
    let token = ring[0].conn.recv().int();
    let took = start.elapsed();
    assert!(token > *last, "{token} after {last}");
    *last = token;
    assert_eq!(holder.conn.recv().int(), 1);
    ring.push_back(holder);
    took
}

/// Hand-offs with a constant length of the queue; the median in microseconds.
fn median_hand_off(server: &TestServer, ring: &mut VecDeque<Member>, rounds: usize) -> u128 {
    let mut last = 0;
    let mut watcher = server.conn();
    let mut times: Vec<u128> = (0..rounds)
        .map(|_| {
            let took = hand_off(ring, &mut last);
            // The owner that released joins the queue at the end; it is parked before the next round begins.
            ring.back_mut().expect("the former holder").ask();
            wait_until_parked(&mut watcher, ring.len() - 1);
            took.as_micros()
        })
        .collect();
    times.sort_unstable();
    times[rounds / 2]
}

/// All are granted, one after the other, in this order.
fn drain(server: &TestServer, ring: &mut VecDeque<Member>) {
    let (mut last, waiters) = (0, ring.len() - 1);
    let before = server.stat("waits_granted");
    for _ in 0..waiters {
        hand_off(ring, &mut last);
    }
    assert_eq!(server.stat("waits_granted"), before + waiters as u64);
    assert_eq!(server.stat("waiters"), 0);
    for member in ring.iter_mut() {
        assert!(
            member.conn.is_silent(),
            "{} was answered twice",
            member.owner
        );
    }
}

fn assert_no_residue(server: &TestServer) {
    server.wait_for_waiters(0);
    server.check_counters();
    wait_for("no kept places", || server.stat("places_kept") == 0);
    assert_eq!(server.stat("keys_waited"), 0);
    let mut conn = server.conn();
    wait_until_at_rest(&mut conn);
}

fn used_memory(server: &TestServer) -> i64 {
    let value = server.info_field("memory", "used_memory");
    value.parse().expect("used_memory")
}

#[test]
fn thousands_are_granted_in_the_order_of_arrival_and_once() {
    let _alone = allow_many_connections();
    for waiters in [1, 100, MANY] {
        let server = TestServer::start();
        let mut ring = ring(&server, waiters);
        let median = median_hand_off(&server, &mut ring, 200);
        println!("hand-off, {waiters} waiters: median {median} us of 200");
        drain(&server, &mut ring);
        ring.clear();
        assert_no_residue(&server);
    }
}

/// An operator ends each hold: the owner sends nothing that shows the arrival of its grant.
fn hand_off_by_force(server: &TestServer, ring: &mut VecDeque<Member>, rounds: usize) {
    let mut watcher = server.conn();
    for _ in 0..rounds {
        assert_eq!(watcher.line("LOCK.BREAK k").int(), 1);
        let mut former = ring.pop_front().expect("the holder");
        assert!(ring[0].conn.recv().int() > 0);
        former.ask();
        ring.push_back(former);
        wait_until_parked(&mut watcher, ring.len() - 1);
    }
}

#[test]
fn thousands_of_hand_offs_take_no_memory() {
    let _alone = allow_many_connections();
    let server = TestServer::start();
    let mut ring = ring(&server, 20);
    hand_off_by_force(&server, &mut ring, 1_000);
    let before = used_memory(&server);
    hand_off_by_force(&server, &mut ring, MANY);
    let grown = used_memory(&server) - before;
    println!("used_memory has grown by {grown} bytes in {MANY} hand-offs");
    assert!(grown < 20 * MANY as i64, "{grown} bytes");
}

#[test]
fn thousands_of_closed_waiters_leave_nothing_behind() {
    let _alone = allow_many_connections();
    let server = TestServer::start();
    let mut ring = ring(&server, MANY);
    let holder = ring.pop_front().expect("the holder");
    drop(ring);
    server.wait_for_waiters(0);
    assert_eq!(server.stat("waits_disconnected"), MANY as u64);
    let mut conn = holder.conn;
    assert_eq!(conn.line("LOCK.RELEASE k w0").int(), 1);
    assert_eq!(conn.line("EXISTS k").int(), 0);
    assert_no_residue(&server);
}

#[test]
fn crowds_of_closed_waiters_take_no_memory() {
    const CROWD: usize = 500;
    let _alone = allow_many_connections();
    let server = TestServer::start();
    server.conn().line("CONFIG SET lock.queue-grace 0");
    let mut used = Vec::new();
    for _ in 0..MANY / CROWD {
        drop(ring(&server, CROWD));
        server.wait_for_waiters(0);
        server.conn().line("LOCK.BREAK k");
        used.push(used_memory(&server));
    }
    println!("used_memory after each crowd: {used:?}");
    let grown = used[used.len() - 1] - used[1];
    assert!(grown < 20 * MANY as i64, "{grown} bytes");
}

#[test]
fn thousands_of_timed_out_waiters_are_all_answered_nil() {
    let _alone = allow_many_connections();
    let server = TestServer::start();
    let mut alice = server.conn();
    alice.line("LOCK.ACQUIRE k alice PX 600000");
    let mut waiters: Vec<Conn> = (0..MANY).map(|_| server.conn()).collect();
    for (i, conn) in waiters.iter_mut().enumerate() {
        conn.send_line(&format!("LOCK.ACQUIRE k w{i} BLOCK 50"));
    }
    for conn in &mut waiters {
        assert!(conn.recv().is_nil());
    }
    server.wait_for_stat("waits_timed_out", MANY as u64);
    assert_no_residue(&server);
}

#[test]
fn thousands_are_purged_by_one_command() {
    let _alone = allow_many_connections();
    let server = TestServer::start();
    let mut ring = ring(&server, MANY);
    assert_eq!(server.conn().line("LOCK.BREAK k PURGE").int(), 1);
    for member in ring.iter_mut().skip(1) {
        assert!(member.conn.recv().error().starts_with("LOCKBROKEN"));
    }
    assert_eq!(server.stat("waits_failed"), MANY as u64);
    assert_no_residue(&server);
}

/// More keys than one tick settles.
#[test]
fn thousands_of_locks_lost_in_one_flush_are_all_handed_off() {
    const LOCKS: usize = 1_500;
    let _alone = allow_many_connections();
    let server = TestServer::start();
    let mut alice = server.conn();
    let mut waiters: Vec<Conn> = (0..LOCKS).map(|_| server.conn()).collect();
    for (i, conn) in waiters.iter_mut().enumerate() {
        alice.line(&format!("LOCK.ACQUIRE k{i} alice PX 600000"));
        conn.send_line(&format!("LOCK.ACQUIRE k{i} bob PX 600000 BLOCK 0"));
    }
    server.wait_for_waiters(LOCKS as u64);
    alice.line("FLUSHALL");
    for conn in &mut waiters {
        assert!(conn.recv().int() > 0);
    }
    assert_eq!(server.stat("foreign_wakeups"), LOCKS as u64);
    assert_eq!(
        alice.line("DBSIZE").int(),
        LOCKS as i64 + 1,
        "the locks and the horizon"
    );
}

/// The cost of a parked client, compared with one that waits in BLPOP: the difference is the server's own bookkeeping
/// of blocked module clients, and the module's queue.
#[test]
fn a_waiter_costs_the_server_more_memory_than_this_module() {
    const WAITERS: usize = 500;
    let grown_by = |line: &dyn Fn(usize) -> String, parked: &dyn Fn(&TestServer) -> bool| {
        let server = TestServer::start();
        server.conn().line("LOCK.ACQUIRE k alice PX 600000");
        let mut waiters: Vec<Conn> = (0..WAITERS).map(|_| server.conn()).collect();
        // The same connections, after a first use: their own cost is not counted.
        for conn in &mut waiters {
            conn.line("PING");
        }
        let before = used_memory(&server);
        for (i, conn) in waiters.iter_mut().enumerate() {
            conn.send_line(&line(i));
        }
        wait_for("all to be parked", || parked(&server));
        (used_memory(&server) - before) / WAITERS as i64
    };
    let blocked = |server: &TestServer| {
        let info = server.conn().line("INFO clients").text();
        info.contains(&format!("blocked_clients:{WAITERS}"))
    };
    let module = grown_by(&|i| format!("LOCK.ACQUIRE k w{i} BLOCK 0"), &blocked);
    let blpop = grown_by(&|_| "BLPOP list 0".to_string(), &blocked);
    println!("used_memory per waiter: {module} bytes parked by the module, {blpop} in BLPOP");
    assert!(blpop < module && module < 50_000, "{module} bytes");
}

/// A small random generator: a failure names the seed and can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // Knuth's multiplier; the high bits are the random ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }
}

/// An event around a grant; `ids` are those of the waiters' connections.
fn accident(dice: &mut Dice, ids: &[i64]) -> String {
    let waiter = dice.roll(ids.len());
    let (id, owner) = (ids[waiter], format!("w{waiter}"));
    match dice.roll(14) {
        0..=2 => format!("CLIENT KILL ID {id}"),
        3 => format!("CLIENT UNBLOCK {id} TIMEOUT"),
        4 => format!("CLIENT UNBLOCK {id} ERROR"),
        5 => format!("LOCK.RELEASE k {owner}"),
        6 => format!("LOCK.ACQUIRE k {owner} ONCE PX 60000"),
        7 => "LOCK.BREAK k".into(),
        8 => "DEL k".into(),
        9 => "PEXPIRE k 1".into(),
        10 => "FLUSHALL".into(),
        11 => format!("HDEL k {owner}"),
        _ => "LOCK.RELEASE k alice".into(),
    }
}

/// Breaks the lock until it has no waiter and no holder.
fn settle_everything(conn: &mut Conn) {
    wait_for("a free lock without waiters", || {
        conn.line("LOCK.BREAK k");
        conn.line("LOCK.INFO k").is_nil()
    });
}

/// One transaction of random events with four waiters behind a holder; afterwards every waiter has got one reply, or
/// none if its connection was closed.
fn storm(server: &TestServer, control: &mut Conn, dice: &mut Dice, last: &mut i64) {
    let first = control.line("LOCK.ACQUIRE k alice PX 60000").int();
    assert!(first > *last, "{first} after {last}");
    *last = first;
    let parked = server.stat("waits_parked");
    let mut waiters: Vec<Conn> = (0..4).map(|_| server.conn()).collect();
    let ids: Vec<i64> = waiters.iter_mut().map(Conn::id).collect();
    for (number, conn) in waiters.iter_mut().enumerate() {
        let block = [0, 0, 3][dice.roll(3)];
        conn.send_line(&format!("LOCK.ACQUIRE k w{number} PX 60000 BLOCK {block}"));
    }
    if has_io_threads() {
        // Commands of one connection may be read after later ones of another.
        wait_for("four waiters", || server.stat("waits_parked") == parked + 4);
    }
    let mut lines = vec!["MULTI".to_string(), "LOCK.RELEASE k alice".to_string()];
    let accidents = 1 + dice.roll(5);
    lines.extend((0..accidents).map(|_| accident(dice, &ids)));
    let place = 1 + dice.roll(accidents + 1);
    lines.swap(1, place);
    lines.push("EXEC".into());
    // Sometimes another command follows in the same tick.
    lines.push(accident(dice, &ids));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    control.send_lines(&lines);
    let mut known = vec![first];
    for _ in &lines {
        let reply = control.recv();
        let replies = if reply.is_array() {
            reply.list()
        } else {
            vec![reply]
        };
        known.extend(replies.iter().filter_map(Reply::maybe_int));
    }
    // A grant to a killed client, cut to a millisecond, may still exist when that has ended.
    wait_for("a lease that is not about to end", || {
        !(0..=1).contains(&control.line("PTTL k").int())
    });
    let held = control.run(["HGET", "k", "#token"]);
    settle_everything(control);
    let mut tokens = Vec::new();
    for conn in &mut waiters {
        let mut answers = Vec::new();
        if conn.try_send(["PING"]) {
            while let Some(reply) = conn.try_recv() {
                if reply.0 == redis::Value::SimpleString("PONG".into()) {
                    assert_eq!(answers.len(), 1, "{answers:?} after {lines:?}");
                    break;
                }
                answers.push(reply);
            }
        }
        assert!(answers.len() <= 1, "{answers:?} after {lines:?}");
        let granted = answers
            .iter()
            .filter(|reply| !reply.is_nil() && !reply.is_error());
        tokens.extend(granted.map(|reply| reply.int()));
    }
    assert!(
        tokens.iter().all(|token| *token > first),
        "{tokens:?} after {lines:?}"
    );
    // The holder after the tick had its reply, unless it was killed after its reply was written by an UNBLOCK, or is
    // killed a moment later by another thread.
    known.extend(&tokens);
    let is_known = |held: &str| {
        known.iter().any(|token| held == format!("t{token}"))
            || lines.iter().any(|line| line.ends_with("TIMEOUT"))
            || has_io_threads() && lines.iter().any(|line| line.starts_with("CLIENT KILL"))
    };
    assert!(
        held.is_nil() || is_known(&held.text()),
        "{held:?} has no known holder after {lines:?}"
    );
    tokens.sort_unstable();
    let granted = tokens.len();
    tokens.dedup();
    assert_eq!(tokens.len(), granted, "a token was given twice: {lines:?}");
    *last = tokens.last().copied().unwrap_or(first).max(*last);
}

#[test]
fn random_events_in_one_tick_answer_every_waiter_once() {
    const STORMS: usize = 400;
    let server = TestServer::with(&["--appendonly", "yes"]);
    let mut control = server.conn();
    control.line("CONFIG SET lock.queue-grace 20");
    let seed = u64::from(std::process::id());
    println!("seed {seed}, {STORMS} storms");
    let (mut dice, mut last) = (Dice(seed), 0);
    for _ in 0..STORMS {
        storm(&server, &mut control, &mut dice, &mut last);
    }
    assert!(server.stat("grants_undone") > 0 && server.stat("waits_granted") > 0);
    assert_eq!(server.stat("panics"), 0);
    assert_no_residue(&server);
}
