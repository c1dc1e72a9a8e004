//! Memory is returned: after requests were parked and ended in every way the server uses the same memory as before.
//!
//! A few thousand cycles here; `make leaks` runs the same with `LOCK_MEMORY_CYCLES=1000000`, and prints the figures.

use std::time::{Duration, Instant};

use crate::common::{wait_for, Conn, TestServer};

/// Connections in a round; each of them waits, is granted and releases this many times.
const MEMBERS: usize = 50;
const CYCLES: usize = 16;

/// Rounds after which every table has reached its final size.
const WARM_UP: usize = 20;

/// Memory is at rest after this long without a lower reading. The server shrinks a buffer when its connection has been
/// idle for more than two seconds, which it counts in whole ones: so three, and a moment.
const REST: Duration = Duration::from_millis(4_500);

/// The tolerance: buffers of the connection that queries, and a table that was reallocated with more room. With 20,000
/// cycles one leaked allocation in ten would be more.
const SLACK: i64 = 32_768;

fn number_from_env(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The server, and the one connection for all queries.
struct Scales {
    server: TestServer,
    conn: Conn,
}

impl Scales {
    fn new() -> Scales {
        let server = TestServer::start();
        let conn = server.conn();
        Scales { server, conn }
    }

    fn read(&mut self, field: &str) -> i64 {
        let info = self.conn.line("INFO memory").text();
        let line = info.lines().find_map(|line| line.strip_prefix(field));
        let value = line.and_then(|value| value.strip_prefix(':'));
        value.expect("a field").trim().parse().expect("a number")
    }

    fn used(&mut self) -> i64 {
        self.read("used_memory")
    }

    /// The memory in use when it no longer falls.
    fn at_rest(&mut self) -> i64 {
        let (mut least, mut since) = (i64::MAX, Instant::now());
        wait_for("memory at rest", || {
            let used = self.used();
            if used < least {
                (least, since) = (used, Instant::now());
            }
            since.elapsed() > REST
        });
        least
    }

    /// The server returns what it keeps for blocked clients, and the buffers of connections, gradually.
    fn wait_for_less_than(&mut self, limit: i64) {
        wait_for(&format!("at most {limit} bytes"), || self.used() <= limit);
    }
}

#[test]
fn many_waiters_leave_no_byte_behind() {
    let cycles = number_from_env("LOCK_MEMORY_CYCLES", 20_000) as u64;
    let mut scales = Scales::new();
    for number in 0..WARM_UP {
        round(&scales.server, &mut scales.conn, number);
    }
    let before = scales.at_rest();
    let (parked_before, start) = (scales.server.stat("waits_parked"), Instant::now());
    let mut number = WARM_UP;
    while scales.server.stat("waits_parked") - parked_before < cycles {
        round(&scales.server, &mut scales.conn, number);
        number += 1;
    }
    let (parked, took) = (scales.server.stat("waits_parked"), start.elapsed());
    scales.wait_for_less_than(before + SLACK);
    println!(
        "{} requests parked in {} s ({} granted, {} disconnected, {} timed out, {} taken over): \
         used_memory {before} before, {} after; resident {}",
        parked - parked_before,
        took.as_secs(),
        scales.server.stat("waits_granted"),
        scales.server.stat("waits_disconnected"),
        scales.server.stat("waits_timed_out"),
        scales.server.stat("waits_taken_over"),
        scales.at_rest(),
        scales.read("used_memory_rss"),
    );
}

/// Behind a holder of a separate key: one crowd closes its connections, the waits of another one time out, each member
/// of a third takes over its own place; then the members of a ring hand the lock off to each other.
fn round(server: &TestServer, conn: &mut Conn, number: usize) {
    let key = format!("memory:{number}");
    conn.run(["LOCK.ACQUIRE", &key, "holder", "PX", "600000"])
        .int();
    let mut crowd = members(server);
    ask(&mut crowd, &key, "BLOCK 0", "gone");
    conn.wait_for_waiters_on(&key, MEMBERS as i64);
    drop(crowd);
    conn.wait_for_waiters_on(&key, 0);

    let mut crowd = members(server);
    ask(&mut crowd, &key, "BLOCK 1", "late");
    assert!(crowd.iter_mut().all(|member| member.recv().is_nil()));

    let mut newer = members(server);
    ask(&mut crowd, &key, "BLOCK 0", "again");
    conn.wait_for_waiters_on(&key, MEMBERS as i64);
    // Released one by one: the order in which the server reads concurrent commands is not known.
    for (member, conn) in newer.iter_mut().enumerate() {
        let ask = format!("LOCK.ACQUIRE {key} again-{member} PX 600000 BLOCK 0 ONCE");
        let release = format!("LOCK.RELEASE {key} again-{member}");
        conn.send_lines(&[&ask, &release]);
    }
    assert!(crowd.iter_mut().all(|member| member.recv().is_nil()));
    // Granted and released one after the other, behind the parked clients.
    ring(&mut crowd, &key);
    conn.run(["LOCK.RELEASE", &key, "holder"]).int();
    let cycles = newer.iter_mut().map(|member| (member, 1));
    for (member, cycles) in cycles.chain(crowd.iter_mut().map(|member| (member, CYCLES))) {
        for _ in 0..cycles {
            assert!(member.recv().int() > 0);
            assert_eq!(member.recv().int(), 1);
        }
    }
    assert_eq!(conn.run(["EXISTS", &key]).int(), 0);
}

fn members(server: &TestServer) -> Vec<Conn> {
    (0..MEMBERS).map(|_| server.conn()).collect()
}

fn ask(crowd: &mut [Conn], key: &str, options: &str, name: &str) {
    for (member, conn) in crowd.iter_mut().enumerate() {
        conn.send_line(&format!(
            "LOCK.ACQUIRE {key} {name}-{member} PX 600000 {options}"
        ));
    }
}

/// Every member sends all its rounds at once: after a grant it releases, and asks again.
fn ring(crowd: &mut [Conn], key: &str) {
    for (member, conn) in crowd.iter_mut().enumerate() {
        let ask = format!("LOCK.ACQUIRE {key} ring-{member} PX 600000 BLOCK 0");
        let release = format!("LOCK.RELEASE {key} ring-{member}");
        conn.send_lines(&[ask.as_str(), &release].repeat(CYCLES));
    }
}

/// The length of the names of the locks below, about the longest that a request may wait for, and the number of names
/// that must leave no trace.
const NAME_LEN: usize = 131_000;
const NAMES: usize = 40;

fn long_name(number: usize) -> String {
    format!("{number}:{}", "x".repeat(NAME_LEN))
}

/// Compares the memory after the operation was done once with that after it was done for each of many names of locks.
/// All clients but one are closed by then.
fn assert_leaves_nothing(scales: &mut Scales, what: &str, each: impl Fn(&TestServer, &str)) {
    each(&scales.server, "warm-up");
    scales.conn.line("FLUSHALL");
    let before = scales.at_rest();
    for number in 0..NAMES {
        each(&scales.server, &long_name(number));
    }
    assert_eq!(scales.server.stat("waiters"), 0, "{what}");
    println!("{what}: {before} before, {} after", scales.at_rest());
    scales.wait_for_less_than(before + SLACK_OF_NAMES);
}

/// Less than the length of a single name, and more than tables of a fixed size take.
const SLACK_OF_NAMES: i64 = NAME_LEN as i64 / 2;

/// A lock is handed off from one waiter to the next: if a Redisson window may open, hand-offs are counted.
fn hand_on(server: &TestServer, key: &str, waiters: usize) -> Vec<Conn> {
    let mut conns: Vec<Conn> = (0..=waiters).map(|_| server.conn()).collect();
    for (number, conn) in conns.iter_mut().enumerate() {
        let owner = number.to_string();
        if number == 0 {
            let token = conn.run(["LOCK.ACQUIRE", key, &owner, "PX", "600000"]);
            assert!(token.int() > 0);
        } else {
            conn.send(["LOCK.ACQUIRE", key, &owner, "PX", "600000", "BLOCK", "0"]);
            server.wait_for_waiters(number as u64);
        }
    }
    for number in 0..waiters {
        let owner = number.to_string();
        assert_eq!(conns[number].run(["LOCK.RELEASE", key, &owner]).int(), 1);
        assert!(conns[number + 1].recv().int() > 0);
    }
    conns
}

#[test]
fn counted_hand_offs_keep_no_name() {
    let mut scales = Scales::new();
    assert_leaves_nothing(&mut scales, "released", |server, key| {
        let mut conns = hand_on(server, key, 3);
        assert_eq!(conns[3].run(["LOCK.RELEASE", key, "3"]).int(), 1);
    });
    assert_leaves_nothing(&mut scales, "flushed", |server, key| {
        let mut conns = hand_on(server, key, 1);
        conns[1].line("FLUSHALL");
    });
}

#[test]
fn grants_with_an_unseen_end_keep_no_long_name() {
    for take in ["LOCK.ACQUIRE", "LOCK.ACQUIRE READ", "LOCK.ACQUIRE WRITE"] {
        let mut scales = Scales::new();
        assert_leaves_nothing(&mut scales, take, |server, key| {
            let mut conn = server.conn();
            let mut words = take.split(' ');
            let (command, mode) = (words.next().expect("a command"), words.next());
            let words = [command, key, "owner"].into_iter().chain(mode);
            assert!(conn.run(words).int() > 0);
            // Before the first waiter the module gets no event of a DEL.
            conn.run(["DEL", key]);
            let siblings = conn.run(["KEYS", "{*"]);
            for sibling in siblings.list() {
                conn.run([&b"DEL"[..], &sibling.bytes()]);
            }
        });
        assert_eq!(scales.server.stat("grants_tracked"), 0, "{take}");
    }
    let mut scales = Scales::new();
    assert_leaves_nothing(&mut scales, "SEM.ACQUIRE", |server, key| {
        let mut conn = server.conn();
        conn.run(["SEM.SET", key, "3"]);
        assert!(conn.run(["SEM.ACQUIRE", key, "id"]).int() > 0);
        conn.run(["DEL", key, &format!("{{{key}}}:timeout")]);
    });
    assert_eq!(scales.server.stat("sem_grants_tracked"), 0);
}

/// Neither the names nor the room that tables made for them stays.
#[test]
fn tables_that_many_grants_have_left_keep_no_room_for_them() {
    const GRANTS: usize = 10_000;
    let mut scales = Scales::new();
    let crowd = |conn: &mut Conn| {
        for kind in [
            ["LOCK.ACQUIRE", "lock", "owner", "PX", "600000"],
            ["LOCK.ACQUIRE", "read", "owner", "READ", "SESSION"],
            ["SEM.ACQUIRE", "sem", "id", "LIMIT", "1"],
        ] {
            let [command, key, rest @ ..] = kind;
            for number in 0..GRANTS / 3 {
                let key = format!("{key}:{number}");
                let words = [command, &key].into_iter().chain(rest);
                assert!(conn.run(words).int() > 0);
            }
        }
        conn.line("FLUSHALL");
    };
    let mut conn = scales.server.conn();
    conn.line("LOCK.ACQUIRE warm up");
    conn.line("FLUSHALL");
    let before = scales.at_rest();
    crowd(&mut conn);
    println!("tables: {before} before, {} after", scales.at_rest());
    // A table with room for a thousand entries or fewer keeps it.
    scales.wait_for_less_than(before + 4 * SLACK);
}
