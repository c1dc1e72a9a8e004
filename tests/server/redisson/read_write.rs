//! One read-write lock, two kinds of client: LOCK.* of the module, and the scripts of Redisson's `RReadWriteLock`.
//!
//! The scripts are reworded from Redisson's (read acquire since 3.11.1, write acquire, the unlocks of the 3.44 line
//! without their latch, renewal since 4.4, force): the same commands on the same keys in the same order.

use crate::common::{wait_for, Conn, Reply, TestServer};

/// KEYS: lock, prefix of the owner's timeouts; ARGV: lease, owner, its write field.
const READ: &str = "\
    local mode = redis.call('HGET', KEYS[1], 'mode') \
    if not mode then \
      redis.call('HSET', KEYS[1], 'mode', 'read') \
      redis.call('HSET', KEYS[1], ARGV[2], 1) \
      redis.call('SET', KEYS[2] .. ':1', 1) \
      redis.call('PEXPIRE', KEYS[2] .. ':1', ARGV[1]) \
      redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
      return nil \
    end \
    local mine = mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 \
    if mode == 'read' or mine then \
      local n = redis.call('HINCRBY', KEYS[1], ARGV[2], 1) \
      local timeout = KEYS[2] .. ':' .. n \
      redis.call('SET', timeout, 1) \
      redis.call('PEXPIRE', timeout, ARGV[1]) \
      local left = redis.call('PTTL', KEYS[1]) \
      redis.call('PEXPIRE', KEYS[1], math.max(left, ARGV[1])) \
      return nil \
    end \
    return redis.call('PTTL', KEYS[1])";

/// KEYS: lock; ARGV: lease, write field.
const WRITE: &str = "\
    local mode = redis.call('HGET', KEYS[1], 'mode') \
    if not mode then \
      redis.call('HSET', KEYS[1], 'mode', 'write') \
      redis.call('HSET', KEYS[1], ARGV[2], 1) \
      redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
      return nil \
    end \
    if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then \
      redis.call('HINCRBY', KEYS[1], ARGV[2], 1) \
      local left = redis.call('PTTL', KEYS[1]) \
      redis.call('PEXPIRE', KEYS[1], left + ARGV[1]) \
      return nil \
    end \
    return redis.call('PTTL', KEYS[1])";

/// KEYS: lock, channel, prefix of the owner's timeouts, prefix of all; ARGV: owner. Nil: not the owner.
const UNREAD: &str = "\
    local mode = redis.call('HGET', KEYS[1], 'mode') \
    if not mode then \
      redis.call('PUBLISH', KEYS[2], '0') \
      return nil \
    end \
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end \
    local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1) \
    if left == 0 then redis.call('HDEL', KEYS[1], ARGV[1]) end \
    redis.call('DEL', KEYS[3] .. ':' .. (left + 1)) \
    if redis.call('HLEN', KEYS[1]) > 1 then \
      local longest = -3 \
      for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do \
        local count = tonumber(redis.call('HGET', KEYS[1], field)) \
        if type(count) == 'number' then \
          for n = count, 1, -1 do \
            local timeout = KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. n \
            longest = math.max(redis.call('PTTL', timeout), longest) \
          end \
        end \
      end \
      if longest > 0 then \
        redis.call('PEXPIRE', KEYS[1], longest) \
        return 0 \
      end \
      if mode == 'write' then return 0 end \
    end \
    redis.call('DEL', KEYS[1]) \
    redis.call('PUBLISH', KEYS[2], '0') \
    return 1";

/// KEYS: lock, channel; ARGV: lease, write field. Nil: not the owner.
const UNWRITE: &str = "\
    local mode = redis.call('HGET', KEYS[1], 'mode') \
    if not mode then \
      redis.call('PUBLISH', KEYS[2], '1') \
      return nil \
    end \
    if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end \
    if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then \
      redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
      return 0 \
    end \
    redis.call('HDEL', KEYS[1], ARGV[2]) \
    if redis.call('HLEN', KEYS[1]) == 1 then \
      redis.call('DEL', KEYS[1]) \
      redis.call('PUBLISH', KEYS[2], '1') \
    else \
      redis.call('HSET', KEYS[1], 'mode', 'read') \
    end \
    return 1";

/// KEYS: lock, prefix of all timeouts; ARGV: lease, owner.
const RENEW: &str = "\
    local count = tonumber(redis.call('HGET', KEYS[1], ARGV[2])) \
    if not count then return 0 end \
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then \
      redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
    end \
    for n = count, 1, -1 do \
      redis.call('PEXPIRE', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. n, ARGV[1]) \
    end \
    return 1";

/// KEYS: lock, channel; ARGV: mode, message.
const FORCE: &str = "\
    if redis.call('HGET', KEYS[1], 'mode') ~= ARGV[1] then return 0 end \
    redis.call('DEL', KEYS[1]) \
    redis.call('PUBLISH', KEYS[2], ARGV[2]) \
    return 1";

/// A Redisson client: one connection, one owner, the lock `k`.
struct Redisson {
    conn: Conn,
    owner: &'static str,
}

impl Redisson {
    fn of(server: &TestServer, owner: &'static str) -> Redisson {
        let conn = server.conn();
        Redisson { conn, owner }
    }

    fn run(&mut self, script: &str, keys: &[&str], args: &[&str]) -> Reply {
        let count = keys.len().to_string();
        let mut call = vec!["EVAL", script, &count];
        call.extend(keys);
        call.extend(args);
        let reply = self.conn.run(call);
        assert!(!reply.is_error(), "{reply:?}");
        reply
    }

    fn prefix(&self) -> String {
        format!("{{k}}:{}:rwlock_timeout", self.owner)
    }

    fn write_field(&self) -> String {
        format!("{}:write", self.owner)
    }

    /// Tries to read; whether it was granted.
    fn reads(&mut self, lease: &str) -> bool {
        let (prefix, owner, field) = (self.prefix(), self.owner, self.write_field());
        self.run(READ, &["k", &prefix], &[lease, owner, &field])
            .is_nil()
    }

    fn writes(&mut self, lease: &str) -> bool {
        let field = self.write_field();
        self.run(WRITE, &["k"], &[lease, &field]).is_nil()
    }

    fn unreads(&mut self) -> Reply {
        let (prefix, owner) = (self.prefix(), self.owner);
        self.run(UNREAD, &["k", CHANNEL, &prefix, "{k}"], &[owner])
    }

    fn unwrites(&mut self) -> Reply {
        let field = self.write_field();
        self.run(UNWRITE, &["k", CHANNEL], &["600000", &field])
    }

    fn renews(&mut self, lease: &str) -> bool {
        let owner = self.owner;
        self.run(RENEW, &["k", "{k}"], &[lease, owner]).int() == 1
    }

    fn forces(&mut self, mode: &str) -> Reply {
        self.run(FORCE, &["k", CHANNEL], &[mode, "0"])
    }
}

const CHANNEL: &str = "redisson_rwlock:{k}";

fn park(server: &TestServer, line: &str) -> Conn {
    let parked = server.stat("waits_parked");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("the request is parked", || {
        server.stat("waits_parked") == parked + 1
    });
    conn
}

#[test]
fn readers_of_both_kinds_share_and_writers_of_both_kinds_wait() {
    let server = TestServer::start();
    let mut c = server.conn();
    let (mut r, mut w) = (Redisson::of(&server, "u:1"), Redisson::of(&server, "u:2"));
    let token = c.line("LOCK.ACQUIRE k a READ PX 600000").int();
    assert!(r.reads("500000") && r.reads("500000"));
    assert!(!w.writes("600000"));
    assert!(c.line("LOCK.ACQUIRE k b WRITE").is_nil());
    assert_eq!(c.line("LOCK.ACQUIRE k b READ PX 600000").int(), token);
    let info = c.line("LOCK.INFO k").field("holders").unwrap().list();
    assert_eq!(info.len(), 3);
    assert_eq!(r.unreads().int(), 0);
    assert_eq!(r.unreads().int(), 0, "the module's readers keep the hash");
    assert!((590_000..=600_000).contains(&c.line("PTTL k").int()));
    assert_eq!(c.line("LOCK.RELEASE k a").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k b").int(), 1);
    assert!(w.writes("600000"));
    assert!(!r.reads("600000"));
    assert!(c.line("LOCK.ACQUIRE k a READ").is_nil());
    assert_eq!(w.unwrites().int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

#[test]
fn a_scripts_last_unlock_keeps_the_modules_readers() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut r = Redisson::of(&server, "u:1");
    assert!(r.reads("600000"));
    c.line("LOCK.ACQUIRE k a READ PX 50");
    wait_for("the end of the reader", || {
        c.line("EXISTS {k}:a:rwlock_timeout:1").int() == 0
    });
    assert_eq!(r.unreads().int(), 1, "a dead reader's field holds nothing");
    assert_eq!(c.line("EXISTS k").int(), 0);
}

#[test]
fn redisson_and_the_module_release_each_others_holds() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut r = Redisson::of(&server, "u:1");
    // Holds of the module, released by the script.
    c.line("LOCK.ACQUIRE k u:1 READ PX 600000");
    c.line("LOCK.ACQUIRE k u:1 READ PX 600000");
    assert!(r.reads("600000"));
    assert_eq!(c.line("HGET k u:1").text(), "3");
    assert!(r.renews("700000"));
    assert!(c.line("PTTL {k}:u:1:rwlock_timeout:3").int() > 600_000);
    for left in [0, 0, 1] {
        assert_eq!(r.unreads().int(), left);
    }
    c.line("LOCK.ACQUIRE k u:1 WRITE PX 600000");
    assert!(r.writes("600000"));
    assert_eq!((r.unwrites().int(), r.unwrites().int()), (0, 1));
    // Holds of the script, released by the module.
    assert!(r.reads("600000") && r.reads("600000"));
    assert_eq!(c.line("LOCK.RELEASE k u:1 READ").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE k u:1 READ").int(), 1);
    assert!(r.writes("600000"));
    assert_eq!(c.line("LOCK.RELEASE k u:1").int(), 1);
    assert!(r.unwrites().is_nil());
    let left = c.line("KEYS {k}*").list();
    assert!(
        left.iter().all(|key| key.text() == "{k}:rwlock_token"),
        "{left:?}"
    );
}

#[test]
fn for_the_scripts_an_upgrade_looks_like_a_downgrade() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut r = Redisson::of(&server, "u:1");
    c.line("LOCK.ACQUIRE k u:1 READ PX 600000");
    c.line("LOCK.ACQUIRE k u:1 WRITE PX 600000");
    assert!(r.reads("600000"));
    assert_eq!(r.unreads().int(), 0);
    assert_eq!(r.unwrites().int(), 1);
    assert_eq!(c.line("HGETALL k").field("mode").unwrap().text(), "read");
    assert_eq!(r.unreads().int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
    // The opposite order: READ is released first.
    c.line("LOCK.ACQUIRE k u:1 READ PX 600000");
    c.line("LOCK.ACQUIRE k u:1 WRITE PX 600000");
    assert_eq!(r.unreads().int(), 0);
    assert_eq!(r.unwrites().int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

#[test]
fn a_scripts_release_wakes_the_modules_waiters() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut r = Redisson::of(&server, "u:1");
    assert!(r.reads("600000") && r.reads("600000"));
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 600000 BLOCK 0");
    assert_eq!(r.unreads().int(), 0);
    assert!(writer.is_silent());
    assert_eq!(r.unreads().int(), 1);
    assert!(writer.recv().int() > 0);
    assert!(!r.reads("600000"));
    // A downgrade by script: Redisson notifies no waiter, the module grants.
    c.line("LOCK.RELEASE k w");
    assert!(r.writes("600000") && r.reads("600000"));
    let mut reader = park(&server, "LOCK.ACQUIRE k b READ PX 600000 BLOCK 0");
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 600000 BLOCK 0");
    assert_eq!(r.unwrites().int(), 1);
    assert!(reader.recv().int() > 0);
    // An unlock by force.
    assert!(writer.is_silent());
    assert_eq!(r.forces("write").int(), 0);
    assert_eq!(r.forces("read").int(), 1);
    assert!(writer.recv().int() > 0);
    assert_eq!(c.line("LOCK.RENEW k b").int(), 0);
}

#[test]
fn a_writers_ttl_that_a_script_added_to_does_not_keep_dead_readers_alive() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut r = Redisson::of(&server, "u:1");
    assert!(r.writes("300000") && r.writes("300000"));
    assert!(c.line("PTTL k").int() > 590_000);
    assert!(r.reads("50"));
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 1000 BLOCK 0");
    assert_eq!((r.unwrites().int(), r.unwrites().int()), (0, 1));
    assert!(writer.recv().int() > 0);
    assert!(c.line("PTTL k").int() <= 1_000);
}

#[test]
fn a_hold_of_a_script_gets_a_token_at_its_owners_first_command() {
    let server = TestServer::start();
    let mut c = server.conn();
    let (mut r, mut w) = (Redisson::of(&server, "u:1"), Redisson::of(&server, "u:2"));
    let token = |c: &mut Conn| {
        let holders = c.line("LOCK.INFO k").field("holders").unwrap().list();
        holders[0].field("token").unwrap().maybe_int()
    };
    let before = c.line("LOCK.ACQUIRE other o").int();
    assert!(r.reads("600000"));
    assert_eq!(token(&mut c), None);
    assert_eq!(c.line("LOCK.RENEW k u:1 READ PX 600000").int(), 1);
    let read = token(&mut c).expect("a token");
    assert!(read > before);
    assert_eq!(c.line("LOCK.ACQUIRE k b READ").int(), read);
    assert_eq!(r.forces("read").int(), 1);
    // The token's key still exists, but its token was one of readers.
    assert_eq!(c.line("EXISTS {k}:rwlock_token").int(), 1);
    assert!(w.writes("600000"));
    assert_eq!(token(&mut c), None);
    let wrote = c.line("LOCK.ACQUIRE k u:2 WRITE ONCE").int();
    assert!(wrote > read);
    assert_eq!(w.forces("write").int(), 1);
    assert!(Redisson::of(&server, "u:3").writes("600000"));
    assert_eq!(token(&mut c), None, "that was another writer's");
}

#[test]
fn freeing_is_published_on_redissons_channel() {
    let server = TestServer::start();
    let (mut c, mut subscriber) = (server.conn(), server.conn());
    subscriber.run(["SUBSCRIBE", CHANNEL]);
    c.line("LOCK.ACQUIRE k a READ");
    c.line("LOCK.ACQUIRE k b READ");
    c.line("LOCK.RELEASE k a");
    assert!(subscriber.is_silent(), "still read");
    c.line("LOCK.RELEASE k b");
    assert_eq!(subscriber.recv().list()[2].text(), "0");
    c.line("LOCK.ACQUIRE k a WRITE");
    c.line("LOCK.ACQUIRE k a READ");
    c.line("LOCK.RELEASE k a WRITE");
    assert!(
        subscriber.is_silent(),
        "as in Redisson: the remaining reader publishes"
    );
    c.line("LOCK.RELEASE k a");
    assert_eq!(subscriber.recv().list()[2].text(), "0");
    c.line("LOCK.ACQUIRE k a WRITE");
    c.line("LOCK.BREAK k");
    assert_eq!(subscriber.recv().list()[2].text(), "1");
}

/// Redisson gives each hold of an owner a timeout of its own, and a later one may last longer.
#[test]
fn a_reader_that_leaves_does_not_cut_the_longer_second_hold_of_another() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut r = Redisson::of(&server, "u:1");
    for (lease, end) in [
        ("1000", "RELEASE k y"),
        ("1000", "RENEW k y PX 10"),
        ("90000", "RELEASE k y"),
        ("90000", "RENEW k y PX 10"),
    ] {
        assert!(r.reads("5000") && r.reads("60000"));
        c.line(&format!("LOCK.ACQUIRE k y READ PX {lease}")).int();
        assert_eq!(c.line(&format!("LOCK.{end}")).int(), 1);
        let left = c.line("PTTL k").int();
        assert!(
            left > 50_000 && left <= 60_000,
            "{lease}, {end}: {left} are left"
        );
        c.line("LOCK.BREAK k");
    }
    // By the end of a session.
    assert!(r.reads("5000") && r.reads("60000"));
    let mut session = server.conn();
    session.line("LOCK.ACQUIRE k y READ SESSION").int();
    drop(session);
    wait_for("the session's hold is released", || {
        c.line("HEXISTS k y").int() == 0
    });
    assert!(c.line("PTTL k").int() > 50_000);
    server.check_counters();
}
