//! Forged horizons, tokens and counters: none disables other locks. A plausible horizon is accepted, however far a
//! clock was set back, and a number in a lock's data up to an hour ahead of the clock.

use crate::common::clock::{fake_clock, set_clock};
use crate::common::cluster::{horizons_beside, one_node};
use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{wait_for, Conn, TestServer};

const HORIZON: &str = "redis_lock:horizon";
const AOF_ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;
const YEAR_US: i64 = 366 * DAY_US;
/// The text that is logged once for each implausible horizon.
const LINE: &str = "more than a hundred years ahead of the clock";

/// Numbers that no horizon can be: the smallest and the largest that clients and the server can count, and one a year
/// beyond the bound.
fn forged() -> Vec<String> {
    let beyond = (now_us() + 101 * YEAR_US).to_string();
    let ends = ["9007199254740991", "9223372036854775807"];
    [beyond.as_str(), ends[0], ends[1]].map(String::from).into()
}

fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_micros() as i64
}

fn lines_in_log(server: &TestServer) -> usize {
    server.log().matches(LINE).count()
}

/// A grant of the free lock `k`, with a token above the last one and below a century from now.
fn grant(conn: &mut Conn, last: &mut i64, what: &str) {
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    assert!(token > *last, "{what}: {token} after {last}");
    assert!(token < now_us() + 101 * YEAR_US, "{what}: {token}");
    *last = token;
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
}

fn is_replaced(conn: &mut Conn, last: i64) -> bool {
    let horizon = conn.line(&format!("GET {HORIZON}"));
    !horizon.is_nil() && (last..now_us() + DAY_US).contains(&horizon.text().parse().unwrap())
}

/// From the first wait on the module gets an event for every change of a key.
fn subscribe_to_events(server: &TestServer) {
    let (mut holder, mut waiter) = (server.conn(), server.conn());
    holder.line("LOCK.ACQUIRE warm a PX 60000");
    waiter.send_line("LOCK.ACQUIRE warm b BLOCK 0");
    server.wait_for_waiters(1);
    holder.line("LOCK.RELEASE warm a");
    assert!(waiter.recv().int() > 0);
    waiter.line("LOCK.RELEASE warm b");
}

#[test]
fn a_forged_horizon_is_overwritten_at_once_with_key_events() {
    for forged in forged() {
        let server = TestServer::start();
        let (mut conn, mut last) = (server.conn(), 0);
        subscribe_to_events(&server);
        grant(&mut conn, &mut last, "first");
        conn.line(&format!("SET {HORIZON} {forged}"));
        wait_for("the true horizon", || is_replaced(&mut conn, last));
        grant(&mut conn, &mut last, &forged);
        assert_eq!(server.stat("horizons_implausible"), 1);
        assert_eq!(lines_in_log(&server), 1, "{forged}");
    }
}

#[test]
fn a_forged_horizon_found_by_a_new_process_is_overwritten_by_the_first_grant() {
    for forged in forged() {
        let mut server = TestServer::with(&AOF_ALWAYS);
        let mut last = 0;
        grant(&mut server.conn(), &mut last, "first");
        server.conn().line(&format!("SET {HORIZON} {forged}"));
        server.crash_and_restart();
        let mut conn = server.conn();
        grant(&mut conn, &mut last, "after a restart");
        assert!(is_replaced(&mut conn, last), "{forged}");
        grant(&mut conn, &mut last, "again");
        assert_eq!(server.stat("horizons_implausible"), 1);
        assert_eq!(lines_in_log(&server), 1, "{forged}");
        server.crash_and_restart();
        grant(&mut server.conn(), &mut last, "after another restart");
        assert_eq!(server.stat("horizons_implausible"), 0);
    }
}

#[test]
fn a_forged_horizon_is_forgotten_when_its_key_is_deleted() {
    for cure in [
        "DEL redis_lock:horizon",
        "FLUSHALL",
        "SET redis_lock:horizon 1",
    ] {
        let server = TestServer::start();
        let mut conn = server.conn();
        conn.line(&format!("SET {HORIZON} 9007199254740991"));
        let mut last = 0;
        grant(&mut conn, &mut last, "beside it");
        subscribe_to_events(&server);
        conn.line(&format!("SET {HORIZON} 9007199254740991"));
        conn.line(cure);
        grant(&mut conn, &mut last, cure);
        wait_for("a horizon", || is_replaced(&mut conn, last));
    }
}

#[test]
fn a_forged_horizon_arrives_by_a_swap_and_is_removed_by_a_flush() {
    let server = TestServer::start();
    let (mut conn, mut last) = (server.conn(), 0);
    grant(&mut conn, &mut last, "first");
    conn.line("SELECT 1");
    conn.line(&format!("SET {HORIZON} 9007199254740991"));
    conn.line("SELECT 0");
    conn.line("SWAPDB 0 1");
    grant(&mut conn, &mut last, "SWAPDB");
    wait_for("the true horizon", || is_replaced(&mut conn, last));
    conn.line(&format!("SET {HORIZON} 9007199254740991"));
    conn.line("FLUSHALL");
    grant(&mut conn, &mut last, "FLUSHALL");
    // Read for the first time when the databases are swapped.
    let mut server = TestServer::with(&AOF_ALWAYS);
    server
        .conn()
        .line(&format!("SET {HORIZON} 9007199254740991"));
    server.crash_and_restart();
    let (mut conn, mut last) = (server.conn(), 0);
    conn.line("SWAPDB 0 1");
    grant(&mut conn, &mut last, "SWAPDB before the first grant");
}

#[test]
fn a_forged_horizon_harms_no_promoted_replica() {
    let (master, replica) = (TestServer::with(&PROMPT_MASTER), TestServer::start());
    follow(&replica, &master);
    let mut last = 0;
    grant(&mut master.conn(), &mut last, "the master");
    let forge = format!("SET {HORIZON} 9007199254740991");
    master.conn().line(&forge);
    wait_until_in_sync(&replica, &master);
    replica.conn().line("REPLICAOF NO ONE");
    let mut conn = replica.conn();
    grant(&mut conn, &mut last, "the promoted replica");
    assert!(is_replaced(&mut conn, last));
}

#[test]
fn a_forged_horizon_of_a_slot_is_logged_and_overwritten() {
    let node = one_node(&[]);
    let (mut conn, mut last) = (node.conn(), 0);
    grant(&mut conn, &mut last, "first");
    let horizon = horizons_beside(&mut conn, "k").pop().expect("a horizon");
    for round in 1..=2 {
        conn.run(["SET", &horizon, "9007199254740991"]);
        grant(&mut conn, &mut last, "beside it");
        let stored: i64 = conn.run(["GET", &horizon]).text().parse().unwrap();
        assert!((last..now_us() + DAY_US).contains(&stored), "{stored}");
        assert_eq!(lines_in_log(&node), round);
        assert_eq!(node.stat("horizons_implausible"), round as u64);
    }
    assert!(node.log().contains(&format!("'{horizon}'")));
}

/// The horizon is then fifty years ahead of the clock, and genuine.
#[test]
fn tokens_rise_over_a_restart_with_the_clock_set_back_by_decades() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut last = 0;
    grant(&mut server.conn(), &mut last, "first");
    server.crash();
    fake_clock(&mut server);
    for years in [1, 50, 20] {
        set_clock(&server, -years * 365 * 24 * 3_600);
        server.start_again();
        for _ in 0..3 {
            grant(
                &mut server.conn(),
                &mut last,
                &format!("{years} years back"),
            );
        }
        assert_eq!(server.stat("horizons_implausible"), 0);
        server.crash();
    }
    server.start_again();
}

/// A counter that is ahead of the clock is accepted; neither its deletion nor a restart makes a token repeat.
#[test]
fn tokens_that_a_counter_led_to_are_surpassed_without_it() {
    for end in [
        "FLUSHALL",
        "FLUSHDB",
        "DEL redisson_lock_token:{k}",
        "SWAPDB 0 1",
        "crash",
    ] {
        let mut server = TestServer::with(&AOF_ALWAYS);
        let mut last = 0;
        grant(&mut server.conn(), &mut last, "first");
        let far = now_us() + HOUR_US;
        let counter = "redisson_lock_token:{k}";
        server.conn().run(["SET", counter, &far.to_string()]);
        let led = server.conn().line("LOCK.ACQUIRE k a PX 60000").int();
        assert_eq!(led, far + 1);
        assert_eq!(server.conn().run(["GET", counter]).text(), led.to_string());
        match end {
            "crash" => {
                server.conn().run(["DEL", counter]);
                server.crash_and_restart();
            }
            end => drop(server.conn().line(end)),
        }
        server.conn().line("DEL k");
        last = led;
        grant(&mut server.conn(), &mut last, end);
    }
}

#[test]
fn a_token_ahead_of_the_clock_is_surpassed_when_its_lock_is_gone() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let high = now_us() + HOUR_US;
    conn.line(&format!("HSET k o 1 #token t{high}"));
    conn.line("PEXPIRE k 60000");
    assert_eq!(conn.line("LOCK.ACQUIRE k o ONCE").int(), high);
    conn.line("FLUSHALL");
    let mut last = high;
    grant(&mut conn, &mut last, "FLUSHALL");
}

/// A process whose clock was set back finds such a lock, and its holder renews it before any grant.
#[test]
fn a_token_far_ahead_is_believed_below_the_horizon_by_the_first_command() {
    for is_cluster in [false, true] {
        let server = match is_cluster {
            true => one_node(&[]),
            false => TestServer::start(),
        };
        let mut conn = server.conn();
        let horizon = match is_cluster {
            true => {
                conn.line("LOCK.ACQUIRE k a");
                horizons_beside(&mut conn, "k").pop().expect("a horizon")
            }
            false => HORIZON.into(),
        };
        let high = now_us() + 30 * YEAR_US;
        conn.run(["SET", &horizon, &high.to_string()]);
        conn.line("DEL k");
        conn.line(&format!("HSET k o 1 #token t{high}"));
        assert_eq!(conn.line("LOCK.RENEW k o PX 60000").int(), 1);
        assert_eq!(conn.line("LOCK.RELEASE k o").int(), 1);
        assert!(conn.line("LOCK.ACQUIRE k o").int() > high);
    }
}

/// Until the first wait the module gets no key events.
#[test]
fn another_type_at_the_horizons_key_without_events_is_named_and_stays() {
    let server = TestServer::start();
    let (mut conn, mut last) = (server.conn(), 0);
    grant(&mut conn, &mut last, "first");
    conn.line(&format!("DEL {HORIZON}"));
    conn.line(&format!("RPUSH {HORIZON} foreign"));
    // The token stored with the lock raises the next one beyond the horizon, so the horizon has to be stored again.
    let ahead = now_us() + HOUR_US;
    conn.line(&format!("HSET k #token t{ahead}"));
    for request in [
        "LOCK.ACQUIRE k a",
        "LOCK.MACQUIRE 2 k k2 a",
        "LOCK.ACQUIRE k2 a",
    ] {
        let refused = conn.line(request).error();
        assert!(
            refused.starts_with(&format!("WRONGTYPE the key {HORIZON} ")),
            "{refused}"
        );
    }
    assert_eq!(
        conn.line(&format!("LRANGE {HORIZON} 0 -1")).list()[0].text(),
        "foreign"
    );
    assert_eq!(server.stat("writes_refused"), 0);
    conn.line(&format!("DEL {HORIZON}"));
    last = ahead;
    grant(&mut conn, &mut last, "when it is gone");
    let horizon = conn.line(&format!("GET {HORIZON}")).text();
    assert!(horizon.parse::<i64>().unwrap() > last, "{horizon}");
}

/// `INCR` continues from a negative number, so a grant writes its token there, as to any counter.
#[test]
fn a_counter_below_zero_is_raised_to_the_token() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for negative in ["-1", "-9223372036854775808"] {
        conn.line(&format!("SET redisson_lock_token:{{k}} {negative}"));
        let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
        assert!(token > 0);
        assert_eq!(conn.line("INCR redisson_lock_token:{k}").int(), token + 1);
        conn.line("LOCK.RELEASE k a");
        assert!(conn.line("LOCK.ACQUIRE k a PX 60000").int() > token + 1);
        conn.line("LOCK.RELEASE k a");
    }
}

/// Values that `INCR` refuses.
#[test]
fn a_counter_that_is_no_number_is_never_written() {
    let server = TestServer::start();
    let mut conn = server.conn();
    for made in [
        "SET redisson_lock_token:{k} x",
        "SET redisson_lock_token:{k} 01",
        "SET redisson_lock_token:{k} -0",
        "SET redisson_lock_token:{k} 1.5",
        "SET redisson_lock_token:{k} -9223372036854775809",
        "RPUSH redisson_lock_token:{k} 1",
        "HSET redisson_lock_token:{k} a 1",
    ] {
        conn.line(made);
        assert!(conn.line("INCR redisson_lock_token:{k}").is_error());
        let before = conn.line("DUMP redisson_lock_token:{k}").bytes();
        assert!(conn.line("LOCK.ACQUIRE k a PX 60000").int() > 0);
        assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
        assert_eq!(
            conn.line("DUMP redisson_lock_token:{k}").bytes(),
            before,
            "{made}"
        );
        conn.line("DEL redisson_lock_token:{k}");
    }
}

/// From the first wait on, the module gets events of changed keys.
#[test]
fn another_type_from_before_the_first_wait_does_not_keep_a_lock() {
    let server = TestServer::start();
    let (mut conn, mut last) = (server.conn(), 0);
    grant(&mut conn, &mut last, "first");
    conn.line("LOCK.ACQUIRE k a").int();
    conn.line("RPUSH t x");
    conn.line(&format!("RENAME t {HORIZON}"));
    conn.line(&format!(
        "SET redisson_lock_token:{{k}} {}",
        now_us() + HOUR_US
    ));
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
    conn.wait_for_waiters_on("k", 1);
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
    assert_eq!(conn.line("EXISTS k").int(), 0);
    conn.line(&format!("DEL {HORIZON}"));
    assert!(waiter.recv().int() > now_us());
    server.check_counters();
}
