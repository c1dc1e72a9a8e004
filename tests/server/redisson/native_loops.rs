//! Redisson's scripts with loops, with `lock.redisson-scripts yes`: a script that the module leaves to Lua must end
//! before the server serves other clients, because the server could then free the client that sent it.

use crate::common::redisson::{self, *};
use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{wait_for, Conn, TestServer};
use crate::redisson::native::{call, Side, ON};

/// The limit of steps, as `MOST_STEPS` of the module.
const MOST: usize = 2000;
/// With this limit a script counts as slow as soon as Lua compares the time.
const IMPATIENT: [&str; 4] = [ON[0], ON[1], "--busy-reply-threshold", "1"];
/// The server's log entry for that.
const SLOW: &str = "Slow script detected";

/// The unlock of reader `o` in each form.
fn unlocks() -> [Vec<String>; 4] {
    let keys = "k c {k}:o:rwlock_timeout {k}";
    [
        (READ_UNLOCK, format!("5 {keys} latch 0 o PUBLISH 13500")),
        (
            READ_UNLOCK_3_24,
            format!("5 {keys} latch 0 o PUBLISH 13500"),
        ),
        (READ_UNLOCK_3_22, format!("4 {keys} 0 o PUBLISH")),
        (READ_UNLOCK_3_10, format!("4 {keys} 0 o")),
    ]
    .map(|(sha1, rest)| call("EVAL", &redisson::text(sha1), &rest))
}

fn assert_refused(error: &str) {
    assert!(
        error.starts_with("ERR the lock states too many holds"),
        "{error}"
    );
}

/// A read-write lock with a reader whose hold count is not plain: left to Lua.
fn hold(c: &mut Conn, count: &str) {
    c.line("DEL k");
    assert_eq!(
        c.run(["HSET", "k", "mode", "read", "o", "2", "p", count])
            .int(),
        3
    );
}

#[test]
fn a_script_that_would_run_long_is_refused_and_its_client_can_be_killed() {
    let server = TestServer::with(&[&ON[..], &["--busy-reply-threshold", "100"]].concat());
    let mut c = server.conn();
    hold(&mut c, "200000000");
    for unlock in unlocks() {
        let mut caller = server.conn();
        caller.send(&unlock);
        // Answered when the script has ended, or with BUSY.
        c.line("PING");
        caller.close();
        assert_eq!(c.line("PING").text(), "PONG");
        let mut caller = server.conn();
        caller.send(&unlock);
        c.line("PING");
        caller.send_line("PING");
        assert_refused(&caller.recv().error());
        assert_eq!(caller.recv().text(), "PONG");
        assert_eq!(
            c.line("HMGET k o p").list()[0].text(),
            "2",
            "nothing was changed"
        );
    }
    c.line("MULTI");
    c.run(&unlocks()[0]);
    assert_refused(&c.line("EXEC").list()[0].error());
    assert!(!server.log().contains(SLOW));
    assert_eq!(c.line("EXISTS latch").int(), 0);
}

#[test]
fn a_writable_replica_refuses_a_long_script_too() {
    let master = TestServer::with(&PROMPT_MASTER);
    let replica = TestServer::with(&[&ON[..], &["--replica-read-only", "no"]].concat());
    follow(&replica, &master);
    hold(&mut master.conn(), "200000000");
    wait_until_in_sync(&master, &replica);
    let mut caller = replica.conn();
    for unlock in unlocks() {
        assert_refused(&caller.run(&unlock).error());
    }
}

#[test]
fn a_count_is_read_as_lua_reads_it() {
    let server = TestServer::with(&ON);
    let mut c = server.conn();
    let unlock = &unlocks()[0];
    for many in [
        "1e9",
        "0x7fffffff",
        "inf",
        "  9000 ",
        "+9000",
        "9000\0x",
        ".9e5",
        "1995.5",
        "0x1p20",
    ] {
        hold(&mut c, many);
        assert_refused(&c.run(unlock).error());
    }
    // For the script's loop the mode is a field like any other.
    hold(&mut c, "1");
    c.line("HSET k mode 200000000");
    assert_refused(&c.run(unlock).error());
    // Above the limit the fields are not read at all.
    hold(&mut c, "x");
    for number in 0..MOST {
        c.line(&format!("HSET k f{number} x"));
    }
    assert_refused(&c.run(unlock).error());
    // Without the setting the server runs the script itself.
    hold(&mut c, "9000");
    c.line("CONFIG SET lock.redisson-scripts no");
    assert_eq!(c.run(unlock).int(), 1);
}

#[test]
fn calls_without_a_loop_in_lua_are_left_to_it() {
    let mut sides = [TestServer::with(&ON), TestServer::start()].map(Side::of);
    let mut runs = 0;
    for data in [
        "HSET k mode read o 2 p -5",
        "HSET k mode read o 2 p -inf",
        "HSET k mode read o 2 p nan",
        "HSET k mode read o 2 p x",
        "HSET k mode read o 2 p 101",
        "HSET k mode read o 2 p 007",
        "HSET k mode read o x p 1",
        "SET k x",
    ] {
        for unlock in unlocks() {
            let [native, lua] = sides.each_mut().map(|side| side.outcome(&[data], &unlock));
            assert_eq!(native, lua, "{data}");
            runs += 1;
            assert_eq!(sides[0].server.stat("redisson_lua"), runs, "{data}");
        }
    }
}

/// The script replies from the latch, before it reads the lock; reading a lock after its deadline deletes it.
#[test]
fn an_unlock_that_the_latch_answers_does_not_touch_the_lock() {
    let server = TestServer::with(&ON);
    let mut c = server.conn();
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    // No plain number, or no string: left to Lua. The first two unlocks have a latch.
    for latch in ["SET latch 1e3", "RPUSH latch 1"] {
        for unlock in &unlocks()[..2] {
            c.line("FLUSHALL");
            c.line("HSET k mode read o 1");
            // Shorter, a server that stands still within the command deletes it at once.
            c.line("PEXPIRE k 100");
            c.line(latch);
            wait_for("the end of the lock's time", || {
                c.line("KEYS k").list().is_empty()
            });
            c.run(unlock);
            assert_eq!(c.line("DBSIZE").int(), 2, "{latch}");
        }
    }
    assert_eq!(server.stat("redisson_lua"), 4);
}

/// Lua compares the time for the first time after 100,000 instructions. If it never does so at the limit, the limit is
/// safe.
#[test]
fn at_the_bound_a_script_ends_before_lua_compares_the_time() {
    let server = TestServer::with(&IMPATIENT);
    let mut c = server.conn();
    let mut runs = 0;
    for unlock in unlocks() {
        // Three fields, and the holds: nearly all steps are holds.
        hold(&mut c, &(MOST - 5).to_string());
        assert_eq!(c.run(&unlock).int(), 1);
        c.line("DEL latch");
        hold(&mut c, &(MOST - 4).to_string());
        assert_refused(&c.run(&unlock).error());
        // The maximum number of fields.
        hold(&mut c, "x");
        for number in 0..MOST - 5 {
            c.line(&format!("HSET k f{number} 0"));
        }
        assert_eq!(c.run(&unlock).int(), 1);
        c.line("DEL latch");
        runs += 2;
    }
    // Renewals of the maximum number of locks, of which the last does not exist.
    c.run(renew(MOST));
    for number in 1..MOST {
        c.line(&format!("HSET k{number} o 1"));
    }
    c.line(&format!("SET k{MOST} x"));
    let refused = c.run(renew(MOST)).error();
    assert!(refused.starts_with("WRONGTYPE "), "{refused}");
    assert_eq!(server.stat("redisson_lua"), runs + 1);
    assert!(!server.log().contains(SLOW));
    // Just beyond the limit Lua would have compared the time.
    c.line("CONFIG SET lock.redisson-scripts no");
    hold(&mut c, "12000");
    assert_eq!(c.run(&unlocks()[0]).int(), 1);
    assert!(server.log().contains(SLOW));
}

fn renew(count: usize) -> Vec<String> {
    let keys: Vec<_> = (1..=count).map(|number| format!("k{number}")).collect();
    let rest = format!(
        "{count} {} 600000 {}",
        keys.join(" "),
        vec!["o"; count].join(" ")
    );
    call("EVAL", &redisson::text(RENEW), &rest)
}

#[test]
fn renewals_of_too_many_locks_are_left_to_the_server() {
    let server = TestServer::with(&ON);
    let mut c = server.conn();
    c.line("HSET k1 o 1");
    let commands = |c: &mut Conn| c.line("INFO commandstats").text();
    assert_eq!(c.run(renew(MOST)).list()[0].int(), 1);
    assert_eq!(server.stat("redisson_rlock"), 1);
    assert!(!commands(&mut c).contains("cmdstat_eval:"));
    let renewed = c.run(renew(MOST + 1)).list();
    assert_eq!(renewed.len(), MOST + 1);
    assert_eq!(renewed[0].int(), 1);
    assert!(commands(&mut c).contains("cmdstat_eval:calls=1,"));
    assert_eq!(server.stat("redisson_rlock"), 1);
    assert_eq!(server.stat("redisson_lua"), 0);
    // The command that the filter would have produced refuses them, too.
    let mut typed = renew(MOST + 1);
    typed[0] = "lock.redisson".into();
    assert!(c
        .run(typed)
        .error()
        .starts_with("ERR not a script of Redisson's"));
}

#[test]
fn locks_with_more_readers_than_the_limit_of_lua_are_unlocked_natively() {
    let server = TestServer::with(&ON);
    let mut c = server.conn();
    c.line("HSET k mode read o 1");
    for number in 0..MOST {
        c.line(&format!("HSET k u:{number} 1"));
    }
    c.line("SET {k}:u:7:rwlock_timeout:1 1 PX 600000");
    assert_eq!(c.run(&unlocks()[0]).int(), 0);
    assert_eq!(c.line("HLEN k").int(), 1 + MOST as i64);
    assert!(c.line("PTTL k").int() > 500_000);
    assert_eq!(server.stat("redisson_read_write"), 1);
    assert_eq!(server.stat("redisson_lua"), 0);
}

/// A native unlock creates the names of all timeouts before it uses the first.
#[test]
fn names_that_would_fill_the_memory_are_not_created() {
    let server = TestServer::with(&ON);
    let mut c = server.conn();
    c.line("HSET k mode read o 1");
    for number in 0..90 {
        c.line(&format!("HSET k u:{number} 100"));
    }
    let prefix = "p".repeat(100_000);
    let mut unlock = unlocks()[0].clone();
    let last_key = unlock.iter().rposition(|word| word.starts_with("{k}"));
    unlock[last_key.expect("the prefix of the timeouts")] = prefix;
    let before = c.line("INFO memory").text();
    assert_refused(&c.run(&unlock).error());
    let peak = |info: &str| {
        let line = info
            .lines()
            .find(|line| line.starts_with("used_memory_peak:"));
        let (_, bytes) = line.and_then(|line| line.split_once(':')).expect("a peak");
        bytes.trim().parse::<u64>().expect("a number")
    };
    let grown = peak(&c.line("INFO memory").text()) - peak(&before);
    assert!(grown < 50_000_000, "{grown} bytes");
}
