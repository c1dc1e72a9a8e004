//! One semaphore, two kinds of client: SEM.* of the module, and the scripts of Redisson's `RPermitExpirableSemaphore`,
//! reworded.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::only_reply;
use crate::common::{wait_for, Conn, Reply, TestServer};

/// Redisson's value for a permit without a deadline.
const NO_END: &str = "922337203685477";

/// KEYS: free, set, channel; ARGV: end, now, no end, id. "OK", or the nearest end, or nil.
const TAKE: &str = "\
    local over = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[2], 'LIMIT', 0, 1) \
    if #over > 0 then \
      redis.call('ZREM', KEYS[2], unpack(over)) \
      redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], #over)) \
    end \
    local free = redis.call('GET', KEYS[1]) \
    if free and tonumber(free) >= 1 then \
      redis.call('DECRBY', KEYS[1], 1) \
      redis.call('ZADD', KEYS[2], ARGV[1], ARGV[4]) \
      local left = redis.call('PTTL', KEYS[1]) \
      if left > 0 then redis.call('PEXPIRE', KEYS[2], left) end \
      return 'OK' \
    end \
    local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES') \
    if first[1] and first[2] ~= ARGV[3] then return tonumber(first[2]) end \
    return nil";

/// KEYS: free, set, channel; ARGV: id, now. Whether the permit was still held.
const GIVE: &str = "\
    local ends = redis.call('ZSCORE', KEYS[2], ARGV[1]) \
    if redis.call('ZREM', KEYS[2], ARGV[1]) ~= 1 then return 0 end \
    redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], 1)) \
    if tonumber(ends) <= tonumber(ARGV[2]) then return 0 end \
    return 1";

/// KEYS: free, set, channel; ARGV: number. What setPermits does with an existing semaphore.
const SET: &str = "\
    local all = redis.call('GET', KEYS[1]) + redis.call('ZCARD', KEYS[2]) \
    redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], ARGV[1] - all))";

const CHANNEL: &str = "redisson_sc:{k}";

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock").as_millis() as i64
}

/// The script's reply after it took a permit.
fn is_ok(reply: &Reply) -> bool {
    reply.0 == redis::Value::BulkString(b"OK".to_vec())
}

/// A Redisson client with the semaphore `k`.
struct Redisson(Conn);

impl Redisson {
    fn run(&mut self, script: &str, args: &[&str]) -> Reply {
        let call = ["EVAL", script, "3", "k", "{k}:timeout", CHANNEL];
        self.0.run([&call[..], args].concat())
    }

    fn takes_until(&mut self, id: &str, end: &str) -> Reply {
        self.run(TAKE, &[end, &now_ms().to_string(), NO_END, id])
    }

    fn takes(&mut self, id: &str) -> bool {
        is_ok(&self.takes_until(id, &(now_ms() + 600_000).to_string()))
    }

    fn gives(&mut self, id: &str) -> i64 {
        self.run(GIVE, &[id, &now_ms().to_string()]).int()
    }
}

fn start() -> (TestServer, Conn, Redisson) {
    let server = TestServer::start();
    let (c, redisson) = (server.conn(), Redisson(server.conn()));
    (server, c, redisson)
}

fn wait_for_waiters(server: &TestServer, count: u64) {
    wait_for("waiters", || server.stat("sem_waiters") == count);
}

#[test]
fn both_sides_take_from_the_same_permits() {
    let (_server, mut c, mut redisson) = start();
    c.line("SEM.SET k 3");
    assert!(c.line("SEM.ACQUIRE k a").int() > 0);
    assert!(redisson.takes("r1") && redisson.takes("r2"));
    assert!(!redisson.takes("r3"));
    assert!(c.line("SEM.ACQUIRE k b").is_nil());
    assert_eq!(redisson.gives("a"), 1, "the id is the credential");
    assert!(c.line("SEM.ACQUIRE k b").int() > 0);
    assert_eq!(c.line("SEM.RELEASE k r1").int(), 1);
    assert!(redisson.takes("r3"));
    assert_eq!(redisson.gives("r1"), 0);
    let info = c.line("SEM.INFO k");
    assert_eq!(info.field("permits").expect("permits").int(), 3);
    assert_eq!(info.field("held").expect("held").int(), 3);
}

#[test]
fn a_permit_returned_by_a_script_goes_to_a_parked_waiter() {
    let (server, mut c, mut redisson) = start();
    c.line("SEM.SET k 1");
    assert!(redisson.takes("r1"));
    let mut waiter = server.conn();
    waiter.send_line("SEM.ACQUIRE k a BLOCK 0");
    wait_for_waiters(&server, 1);
    assert_eq!(redisson.gives("r1"), 1);
    assert!(only_reply(&mut waiter).int() > 0);
    assert!(!redisson.takes("r1"));
    waiter.send_line("SEM.ACQUIRE k b BLOCK 0");
    wait_for_waiters(&server, 1);
    redisson.run(SET, &["2"]);
    assert!(only_reply(&mut waiter).int() > 0);
    assert_eq!(c.line("GET k").text(), "0");
}

#[test]
fn fewer_permits_by_a_script_are_a_debt() {
    let (server, mut c, mut redisson) = start();
    c.line("SEM.SET k 2");
    c.line("SEM.ACQUIRE k a");
    c.line("SEM.ACQUIRE k b");
    let mut waiter = server.conn();
    waiter.send_line("SEM.ACQUIRE k w BLOCK 0");
    wait_for_waiters(&server, 1);
    redisson.run(SET, &["1"]);
    assert_eq!(c.line("GET k").text(), "-1");
    c.line("SEM.RELEASE k a");
    assert_stays_silent(&server, &mut waiter);
    assert_eq!(redisson.gives("b"), 1);
    assert!(only_reply(&mut waiter).int() > 0);
}

#[test]
fn a_scripts_permit_ends_at_its_deadline_and_never_without_one() {
    let (server, mut c, mut redisson) = start();
    c.line("SEM.SET k 2");
    let soon = (now_ms() + 150).to_string();
    assert!(is_ok(&redisson.takes_until("r1", &soon)));
    assert!(is_ok(&redisson.takes_until("r2", NO_END)));
    let (mut first, mut second) = (server.conn(), server.conn());
    first.send_line("SEM.ACQUIRE k a PX 60000 BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waits_parked") == 1);
    second.send_line("SEM.ACQUIRE k b PX 60000 BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waits_parked") == 2);
    assert!(only_reply(&mut first).int() > 0);
    assert!(now_ms() >= soon.parse().expect("ms"));
    assert_stays_silent(&server, &mut second);
    assert!(c.line("ZSCORE {k}:timeout r1").is_nil());
    c.line("SEM.RELEASE k a");
    assert!(only_reply(&mut second).int() > 0);
    c.line("SEM.RELEASE k b");
    let next = c.line("SEM.INFO k").field("next-end-ms").expect("a field");
    assert!(next.is_nil(), "a permit without a deadline never ends");
    assert_eq!(c.line("SEM.RELEASE k r2").int(), 1);
}

#[test]
fn a_script_reclaims_a_permit_of_the_module_at_its_end() {
    let (server, mut c, mut redisson) = start();
    c.line("SEM.ACQUIRE k a LIMIT 1 PX 1");
    wait_for("the end", || redisson.takes("r1"));
    assert_eq!(c.line("SEM.RENEW k a").int(), 0);
    assert_eq!(c.line("GET k").text(), "0");
    assert_eq!(c.line("ZCARD {k}:timeout").int(), 1);
    drop(server);
}

#[test]
fn a_scripts_permit_gets_a_token_when_its_id_uses_the_module() {
    let (server, mut c, mut redisson) = start();
    c.line("SEM.SET k 1");
    assert!(is_ok(&redisson.takes_until("r1", NO_END)));
    let token = c.line("SEM.ACQUIRE k r1").int();
    assert_eq!(c.line("SEM.ACQUIRE k r1").int(), token);
    assert_eq!(
        c.line("ZSCORE {k}:timeout r1").text(),
        NO_END,
        "not shortened"
    );
    assert_eq!(server.stat("sem_adoptions"), 1);
    assert_eq!(c.line("SEM.RENEW k r1 PX 60000").int(), 1);
    assert_ne!(c.line("ZSCORE {k}:timeout r1").text(), NO_END);
    assert_eq!(c.line("SEM.RELEASE k r1").int(), 1);
}

#[test]
fn waiting_scripts_get_the_number_of_free_permits() {
    let (server, mut c, _) = start();
    let mut subscriber = server.conn();
    subscriber.run(["SUBSCRIBE", CHANNEL]);
    let mut received = || subscriber.recv().list()[2].text();
    c.line("SEM.SET k 2");
    assert_eq!(received(), "2");
    c.line("SEM.ACQUIRE k a");
    c.line("SEM.ACQUIRE k b");
    c.line("SEM.SET k 1");
    c.line("SEM.RELEASE k a");
    c.line("SEM.RELEASE k b");
    assert_eq!(received(), "1", "a permit that pays a debt is not free");
    c.line("SEM.ACQUIRE k c");
    let mut waiter = server.conn();
    waiter.send_line("SEM.ACQUIRE k d BLOCK 0");
    wait_for_waiters(&server, 1);
    c.line("SEM.RELEASE k c");
    only_reply(&mut waiter).int();
    c.line(&format!("PUBLISH {CHANNEL} handed"));
    assert_eq!(
        received(),
        "handed",
        "a permit that was handed off is not free"
    );
    c.line("CONFIG SET lock.publish no");
    c.line("SEM.RELEASE k d");
    c.line(&format!("PUBLISH {CHANNEL} end"));
    assert_eq!(received(), "end");
}

#[test]
fn a_grant_of_several_permits_counts_as_so_many() {
    let (server, mut c, mut redisson) = start();
    c.line("SEM.SET k 3");
    c.line("SEM.ACQUIRE k a COUNT 2 PX 600000");
    assert!(redisson.takes("1"));
    assert!(!redisson.takes("2"));
    redisson.run(SET, &["4"]);
    assert!(redisson.takes("2"));
    c.line("SEM.RELEASE k a").int();
    let mut many = server.conn();
    many.send_line("SEM.ACQUIRE k b COUNT 3 BLOCK 0");
    wait_for_waiters(&server, 1);
    assert_stays_silent(&server, &mut many);
    assert_eq!(redisson.gives("1"), 1);
    assert!(only_reply(&mut many).int() > 0);
    assert_eq!(redisson.gives("2"), 1);
    c.line("SEM.RENEW k b PX 1");
    wait_for("their end", || {
        c.line("SEM.INFO k").field("free").expect("free").int() == 4
    });
    // A client of Redisson's takes one of them back at a time.
    for id in ["3", "4", "5", "6"] {
        assert!(redisson.takes(id), "{id}");
    }
    assert!(!redisson.takes("7"));
    assert_eq!(c.line("SEM.RENEW k b").int(), 0);
    assert!(c.line("SEM.RELEASE k b").is_nil());
}
