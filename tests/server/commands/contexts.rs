//! Commands on unusual names, in other databases, in transactions, scripts and functions, and in the very millisecond
//! of a deadline.

use crate::common::{wait_for, Conn, Reply, TestServer};

/// Names that are difficult in C strings, formats, protocols and text.
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        b"\0".as_slice(),
        b"a\0b",
        b"%s%n%x%1$s",
        b"\xff\xfe\x80",
        b"\r\n",
        b"$-1\r\n*3\r\n$3\r\nDEL\r\n",
        b"a b  c",
        b"{}",
        b"{a}{b}",
        b"a{",
        b"-1",
        b"EX",
        b"#tokens",
        "žluťoučký kůň 🐎".as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    names.push((0..=255).collect());
    names
}

/// Acquires, re-enters, parks, reads, hands off, renews, and breaks: every path that carries the bytes.
fn live_through(server: &TestServer, key: &[u8], owner: &[u8], other: &[u8]) {
    let (mut a, mut b) = (server.conn(), server.conn3());
    let ask = |conn: &mut Conn, command: &str, who: &[u8], options: &str| {
        let mut words = vec![command.as_bytes(), key];
        words.extend((!who.is_empty()).then_some(who));
        words.extend(options.split_whitespace().map(str::as_bytes));
        conn.run(words)
    };
    let token = ask(&mut a, "LOCK.ACQUIRE", owner, "PX 60000").int();
    assert_eq!(ask(&mut a, "LOCK.ACQUIRE", owner, "ONCE").int(), token);
    let refused = ask(&mut a, "LOCK.ACQUIRE", other, "WITHHOLDER").list();
    assert_eq!(refused[1].bytes(), owner);
    b.send([
        b"LOCK.ACQUIRE",
        key,
        other,
        b"BLOCK",
        b"0",
        b"PX",
        b"60000",
        b"WITHHOLDER",
    ]);
    server.wait_for_waiters(1);
    let info = ask(&mut a, "LOCK.INFO", b"", "WAITERS");
    let holder = &info.field("holders").unwrap().list()[0];
    assert_eq!(holder.field("owner").unwrap().bytes(), owner);
    let waiter = &info.field("queue").unwrap().list()[0];
    assert_eq!(waiter.field("owner").unwrap().bytes(), other);
    assert_eq!(
        ask(&mut a, "LOCK.RENEW", owner, &format!("TOKEN {token}")).int(),
        1
    );
    assert_eq!(ask(&mut a, "LOCK.RELEASE", owner, "").int(), 1);
    let handed = b.recv().list();
    assert!(handed[0].int() > token);
    assert_eq!(handed[1].bytes(), other);
    assert_eq!(a.run([b"HGET", key, other]).text(), "1");
    assert!(ask(&mut a, "LOCK.RELEASE", owner, "ALL").is_nil());
    assert_eq!(ask(&mut a, "LOCK.BREAK", b"", "PURGE").int(), 1);
    assert_eq!(a.run([b"EXISTS", key]).int(), 0);
}

#[test]
fn keys_and_owners_are_any_bytes() {
    let server = TestServer::start();
    let names = odd_names();
    for (i, name) in names.iter().enumerate() {
        let other = &names[(i + 1) % names.len()];
        live_through(&server, name, b"o", b"p");
        // Fields that begin with `#` are the module's.
        let owner = |name: &[u8]| {
            [
                if name.starts_with(b"#") {
                    &b"o"[..]
                } else {
                    b""
                },
                name,
            ]
            .concat()
        };
        let (own, other) = (owner(name), owner(other));
        live_through(&server, b"k", &own, &other);
        live_through(&server, name, &own, &other);
    }
    assert_eq!(server.stat("panics"), 0);
}

/// The most bytes of the keys of a request that waits.
const LONGEST_WAITED: usize = 131_072;

#[test]
fn a_longer_key_is_a_lock_without_a_queue() {
    let server = TestServer::start();
    let (mut c, mut subscriber) = (server.conn(), server.conn());
    subscriber.line("SUBSCRIBE ch");
    let long = "k".repeat(LONGEST_WAITED + 1);
    let (half, rest) = (&long[..LONGEST_WAITED / 2], &long[LONGEST_WAITED / 2..]);
    c.line("SEM.SET sem 1");
    c.line(&format!("SEM.SET {long}sem 1"));
    c.line(&format!("LATCH.SET {long}latch 1"));
    for line in [
        format!("LOCK.ACQUIRE {long} OWNER"),
        format!("LOCK.ACQUIRE {long}rw OWNER READ"),
        format!("LOCK.MACQUIRE 2 {half} {rest} OWNER"),
        format!("SEM.ACQUIRE {long}sem OWNER"),
    ] {
        let [held, other] = ["o", "p"].map(|owner| line.replace("OWNER", owner));
        assert!(!c.line(&held).is_error());
        let other = other.replace("READ", "WRITE");
        assert!(c.line(&other).is_nil());
        for wait in ["BLOCK 0", "BLOCK 0 NOTIFY ch t"] {
            let refused = c.line(&format!("{other} {wait}")).error();
            assert!(
                refused.starts_with("ERR the keys of a request that waits"),
                "{refused}"
            );
        }
    }
    let refused = c.line(&format!("LATCH.WAIT {long}latch BLOCK 0")).error();
    assert!(
        refused.starts_with("ERR the keys of a request"),
        "{refused}"
    );
    for release in [
        format!("LOCK.RELEASE {long} o"),
        format!("LOCK.MRELEASE 2 {half} {rest} o"),
    ] {
        assert!(!c.line(&release).is_error());
    }
    assert_eq!(server.stat("wait_bytes"), 0);
}

#[test]
fn a_key_may_be_empty_or_very_long_and_an_owner_256_bytes() {
    let server = TestServer::start();
    live_through(&server, b"", b"o", b"p");
    live_through(&server, &vec![b'k'; LONGEST_WAITED], b"o", b"p");
    live_through(&server, b"k", &[0; 256], &[b'p'; 256]);
    // Longer than the limit of a compact hash: another encoding of the same lock.
    live_through(&server, b"k", &[b'o'; 65], b"p");
}

#[test]
fn locks_of_different_databases_are_different_locks() {
    let server = TestServer::start();
    let (mut a, mut b, mut c) = (server.conn(), server.conn(), server.conn());
    for conn in [&mut a, &mut b] {
        conn.line("SELECT 5");
    }
    let token = a.line("LOCK.ACQUIRE k o PX 60000").int();
    assert!(
        c.line("LOCK.ACQUIRE k p").int() > token,
        "not in database 0"
    );
    b.send_line("LOCK.ACQUIRE k q PX 60000 BLOCK 0 WITHHOLDER");
    a.wait_for_waiters_on("k", 1);
    assert_eq!(
        c.line("LOCK.INFO k").field("waiters").unwrap().int(),
        0,
        "no waiter in database 0"
    );
    c.line("LOCK.RELEASE k p");
    assert!(b.is_silent());
    assert_eq!(a.line("LOCK.RENEW k o PX 60000").int(), 1);
    assert_eq!(a.line("LOCK.RELEASE k o").int(), 1);
    let handed = b.recv().list();
    assert_eq!(
        (handed[1].text().as_str(), handed[2].int()),
        ("q", 1),
        "read in database 5"
    );
    // By the timer: the lock's client is in database 5, the horizon in 0.
    a.send_line("LOCK.ACQUIRE k o BLOCK 0 WITHHOLDER");
    b.wait_for_waiters_on("k", 1);
    b.line("LOCK.RENEW k q PX 20");
    assert_eq!(a.recv().list()[1].text(), "o");
    assert_eq!(
        a.line("KEYS *").list().len(),
        1,
        "nothing but the lock in database 5"
    );
    assert_eq!(a.line("LOCK.BREAK k").int(), 1);
    assert_eq!(a.line("DBSIZE").int(), 0);
}

#[test]
fn one_event_wakes_the_waiters_of_every_database_in_their_own() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut waiters: Vec<Conn> = (0..4).map(|_| server.conn()).collect();
    for (i, waiter) in waiters.iter_mut().enumerate() {
        for conn in [&mut c, waiter] {
            conn.line(&format!("SELECT {}", 3 * i));
        }
        c.line("LOCK.ACQUIRE k o PX 600000");
        waiter.send_line(&format!("LOCK.ACQUIRE k w{i} BLOCK 0 WITHHOLDER"));
        c.wait_for_waiters_on("k", 1);
    }
    c.line("SELECT 1");
    c.line("FLUSHALL");
    for (i, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(waiter.recv().list()[1].text(), format!("w{i}"));
        assert_eq!(waiter.run(["HGET", "k", &format!("w{i}")]).text(), "1");
    }
    assert_eq!(c.line("DBSIZE").int(), 0);
}

#[test]
fn a_transaction_takes_and_frees_locks_but_never_waits() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    a.line("LOCK.ACQUIRE k o PX 60000");
    b.send_line("LOCK.ACQUIRE k p BLOCK 0");
    server.wait_for_waiters(1);
    a.line("MULTI");
    for line in [
        "LOCK.ACQUIRE j o",
        "LOCK.ACQUIRE j q BLOCK 0",
        "LOCK.ACQUIRE k q BLOCK 0 WITHHOLDER",
        "LOCK.ACQUIRE j o PX nonsense",
        "LOCK.RELEASE k o",
        "LOCK.ACQUIRE k o BLOCK 0",
        "LOCK.INFO k",
        "LOCK.RELEASE j o",
    ] {
        assert_eq!(a.line(line).text(), "QUEUED");
    }
    let replies = a.line("EXEC").list();
    assert!(replies[0].int() > 0);
    assert!(replies[1].is_nil());
    let wide = replies[2].list();
    assert!(wide[0].is_nil() && wide[1].text() == "o");
    assert!(replies[3].is_error() && replies[4].int() == 1);
    assert!(
        replies[5].is_nil(),
        "the waiter has precedence, also in the same transaction"
    );
    let holder = &replies[6].field("holders").unwrap().list()[0];
    assert_eq!(holder.field("owner").unwrap().text(), "p");
    assert_eq!(replies[7].int(), 1);
    assert!(b.recv().int() > 0);
    assert_eq!(server.stat("waiters"), 0);
    assert_eq!(server.stat("waits_parked"), 1);
}

fn eval(conn: &mut Conn, script: &str, keys: &[&str]) -> Reply {
    let count = keys.len().to_string();
    conn.run([&["EVAL", script, &count][..], keys].concat())
}

#[test]
fn a_script_takes_and_frees_locks_but_never_waits() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let script = "local t = redis.call('LOCK.ACQUIRE', KEYS[1], 'o', 'PX', 60000, 'BLOCK', 0) \
         local refused = redis.call('LOCK.ACQUIRE', KEYS[1], 'p', 'BLOCK', 0) \
         local wide = redis.call('LOCK.ACQUIRE', KEYS[1], 'p', 'BLOCK', 0, 'WITHHOLDER') \
         return {t, tostring(refused), wide[2], redis.call('LOCK.RENEW', KEYS[1], 'o')}";
    let replies = eval(&mut a, script, &["k"]).list();
    assert!(replies[0].int() > 0);
    assert_eq!(replies[1].text(), "false");
    assert_eq!(replies[2].text(), "o");
    assert_eq!(replies[3].int(), 1);
    b.send_line("LOCK.ACQUIRE k q BLOCK 0");
    server.wait_for_waiters(1);
    let released = eval(
        &mut a,
        "return redis.call('LOCK.RELEASE', KEYS[1], 'o')",
        &["k"],
    );
    assert_eq!(released.int(), 1);
    assert!(b.recv().int() > replies[0].int());
}

#[test]
fn a_script_reads_errors_maps_and_owners() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SET s v");
    c.line("HSET h mode read");
    for (key, code) in [("s", "WRONGTYPE "), ("h", "LOCKTYPE ")] {
        let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'o')['err']";
        let text = eval(&mut c, script, &[key]).text();
        assert!(text.starts_with(code), "{text}");
    }
    c.line("LOCK.ACQUIRE k o");
    let script =
        "redis.setresp(3) return redis.call('LOCK.INFO', KEYS[1])['map']['holders'][1]['map']['owner']";
    assert_eq!(eval(&mut c, script, &["k"]).text(), "o");
    let script = "return redis.call('LOCK.INFO', KEYS[1])";
    let read = c.run(["EVAL_RO", script, "1", "k"]);
    assert_eq!(read.field("mode").unwrap().text(), "exclusive");
    let script = "return redis.call('LOCK.RENEW', KEYS[1], 'o')";
    assert!(
        c.run(["EVAL_RO", script, "1", "k"]).is_error(),
        "a write is none for a reading script"
    );
    let owner = eval(&mut c, "return redis.call('LOCK.OWNER')", &[]).text();
    assert_eq!(owner.len(), 36);
}

#[test]
fn a_function_takes_and_frees_locks_but_never_waits() {
    let server = TestServer::start();
    let mut c = server.conn();
    let library = "#!lua name=guard\n\
         redis.register_function('guarded', function(keys, args) \
           local token = redis.call('LOCK.ACQUIRE', keys[1], args[1], 'PX', 60000, 'BLOCK', 0) \
           if not token then return 'busy' end \
           redis.call('SET', keys[2], token) \
           return redis.call('LOCK.RELEASE', keys[1], args[1], 'TOKEN', token) end)";
    assert_eq!(c.run(["FUNCTION", "LOAD", library]).text(), "guard");
    assert_eq!(c.line("FCALL guarded 2 {k} {k}:data o").int(), 1);
    assert!(c.line("GET {k}:data").text().parse::<u64>().unwrap() > 0);
    c.line("LOCK.ACQUIRE {k} p");
    assert_eq!(c.line("FCALL guarded 2 {k} {k}:data o").text(), "busy");
    assert_eq!(server.stat("waits_parked"), 0);
}

fn now_ms(time: &Reply) -> i64 {
    let parts = time.list();
    let part = |i: usize| parts[i].text().parse::<i64>().unwrap();
    part(0) * 1_000 + part(1) / 1_000
}

#[test]
fn a_lease_is_over_at_its_deadline_not_before_and_not_after() {
    let server = TestServer::start();
    let mut c = server.conn();
    // Only the clock ends the lease: neither the server's own cycle nor a timer.
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    for round in 0..40 {
        c.line(&format!("LOCK.ACQUIRE k o{round} PX 4"));
        let deadline = c.line("PEXPIRETIME k").int();
        loop {
            let owner = format!("LOCK.ACQUIRE k p{round} WITHHOLDER PX 60000");
            let renew = format!("LOCK.RENEW k o{round} TOKEN 1");
            c.send_lines(&["TIME", &renew, &owner, "TIME"]);
            let before = now_ms(&c.recv());
            assert_eq!(c.recv().int(), 0);
            let reply = c.recv().list();
            let after = now_ms(&c.recv());
            if reply[0].is_nil() {
                assert!(before < deadline, "refused after the deadline");
                assert!(
                    reply[3].int() > 0,
                    "a hold without remaining time is no hold: {reply:?}"
                );
            } else {
                assert!(after >= deadline, "granted before the deadline");
                break;
            }
        }
        assert!(c.line(&format!("LOCK.RELEASE k o{round}")).is_nil());
        assert_eq!(c.line(&format!("LOCK.RELEASE k p{round}")).int(), 1);
    }
}

#[test]
fn an_ended_lease_is_lost_for_its_owner_before_the_key_is_removed() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    for command in ["LOCK.RENEW k o", "LOCK.BREAK k"] {
        let token = c.line("LOCK.ACQUIRE k o PX 1").int();
        wait_for("the end of the lease", || c.line("LOCK.INFO k").is_nil());
        assert_eq!(c.line(command).int(), 0);
        assert!(c.line("LOCK.RELEASE k o").is_nil());
        assert!(
            c.line("LOCK.ACQUIRE k o PX 60000").int() > token,
            "a new grant, not the old one"
        );
        assert_eq!(c.line("HGET k o").text(), "1");
        assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    }
}

#[test]
fn a_script_reads_a_lock_that_a_script_has_acquired() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let acquire = "return redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], unpack(ARGV, 2))";
    let info = "return redis.call('LOCK.INFO', KEYS[1])";
    for (key, mode) in [("k", None), ("r", Some("READ"))] {
        let mut words = vec!["EVAL", acquire, "1", key, "o"];
        words.extend(mode);
        assert!(conn.run(&words).int() > 0);
        let read = conn.run(["EVAL", info, "1", key]);
        let owner = read.field("holders").unwrap().list()[0].field("owner");
        assert_eq!(owner.unwrap().bytes(), b"o");
    }
    let both = "redis.call('LOCK.ACQUIRE', KEYS[1], 'o') return redis.call('LOCK.INFO', KEYS[1])";
    let read = conn.run(["EVAL", both, "1", "both"]);
    assert!(read.field("holders").is_some());
}
