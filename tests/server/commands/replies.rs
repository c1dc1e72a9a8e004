//! The reply of each successful command, in both protocols.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::RangeInclusive;

use crate::common::{wait_for, Conn, Reply, TestServer};

/// The bytes of the reply to a line, as they come over the wire.
fn wire(conn: &mut Conn, line: &str) -> String {
    const END: &[u8] = b"+PONG\r\n";
    conn.send_lines(&[line, "PING"]);
    let mut bytes = Vec::new();
    while !bytes.ends_with(END) {
        let mut byte = [0];
        conn.stream().read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes[..bytes.len() - END.len()].to_vec()).unwrap()
}

/// Whether the key's time to live is this, with a tolerance for a slow machine.
fn lives_for(conn: &mut Conn, key: &str, ms: i64) -> bool {
    around(ms).contains(&conn.run(["PTTL", key]).int())
}

fn around(ms: i64) -> RangeInclusive<i64> {
    ms - 9_000..=ms
}

fn holders(info: &Reply) -> Vec<Reply> {
    info.field("holders").unwrap().list()
}

fn holder(info: &Reply, field: &str) -> Reply {
    holders(info)[0].field(field).unwrap()
}

fn names(map: &Reply) -> Vec<String> {
    map.list().chunks(2).map(|pair| pair[0].text()).collect()
}

#[test]
fn a_free_lock_is_granted_with_a_token_and_the_default_lease() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k o").int();
    assert!(token > 0 && token < 1 << 53);
    assert!(lives_for(&mut c, "k", 30_000));
    assert_eq!(c.line("HGET k o").text(), "1");
    assert_eq!(c.line("HGET k #token").text(), format!("t{token}"));
    assert_eq!(c.line("HLEN k").int(), 2);
    c.line("CONFIG SET lock.default-lease 70000");
    assert!(c.line("LOCK.ACQUIRE j o").int() > token);
    assert!(lives_for(&mut c, "j", 70_000));
}

#[test]
fn a_lease_is_given_in_seconds_or_in_milliseconds() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE ex o EX 100");
    assert!(lives_for(&mut c, "ex", 100_000));
    c.line("LOCK.ACQUIRE px o PX 40000");
    assert!(lives_for(&mut c, "px", 40_000));
    c.line("LOCK.RENEW px o EX 90");
    assert!(lives_for(&mut c, "px", 90_000));
    c.line("LOCK.ACQUIRE long o PX 3162240000000");
    assert!(lives_for(&mut c, "long", 3_162_240_000_000));
    c.line("LOCK.ACQUIRE short o PX 1");
    wait_for("the end of the shortest lease", || {
        c.line("EXISTS short").int() == 0
    });
}

#[test]
fn an_owner_that_holds_is_granted_again_and_counted() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let token = a.line("LOCK.ACQUIRE k o").int();
    for holds in 2..5 {
        // From any connection: the owner counts, not the connection.
        assert_eq!(b.line("LOCK.ACQUIRE k o").int(), token);
        assert_eq!(a.line("HGET k o").text(), holds.to_string());
    }
    assert_eq!(server.stat("reentries"), 3);
}

#[test]
fn once_grants_but_counts_no_second_hold() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k o ONCE").int();
    assert_eq!(c.line("LOCK.ACQUIRE k o ONCE").int(), token);
    assert_eq!(c.line("HGET k o").text(), "1");
    assert_eq!(c.line("LOCK.ACQUIRE k o PX 90000 ONCE").int(), token);
    assert!(
        lives_for(&mut c, "k", 90_000),
        "ONCE still extends the lease"
    );
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
}

#[test]
fn re_entry_extends_the_lease_and_never_shortens_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 60000");
    c.line("LOCK.ACQUIRE k o PX 20000");
    c.line("LOCK.ACQUIRE k o PX 20000 ONCE");
    c.line("LOCK.ACQUIRE k o");
    assert!(lives_for(&mut c, "k", 60_000));
    c.line("LOCK.ACQUIRE k o PX 80000");
    assert!(lives_for(&mut c, "k", 80_000));
}

#[test]
fn a_lock_of_another_owner_is_refused_with_nil() {
    let server = TestServer::start();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    c.line("LOCK.ACQUIRE k o");
    assert_eq!(wire(&mut c, "LOCK.ACQUIRE k p"), "$-1\r\n");
    assert_eq!(wire(&mut c3, "LOCK.ACQUIRE k p"), "_\r\n");
    assert_eq!(server.stat("refusals"), 2);
}

#[test]
fn release_distinguishes_freed_still_held_and_not_held() {
    let server = TestServer::start();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    c.line("LOCK.ACQUIRE k o PX 60000");
    c.line("LOCK.ACQUIRE k o PX 60000");
    assert_eq!(wire(&mut c, "LOCK.RELEASE k p"), "$-1\r\n");
    assert_eq!(wire(&mut c3, "LOCK.RELEASE k p"), "_\r\n");
    assert_eq!(wire(&mut c, "LOCK.RELEASE k o"), ":0\r\n");
    assert_eq!(c.line("HGET k o").text(), "1");
    assert!(
        lives_for(&mut c, "k", 60_000),
        "a partial release keeps the lease"
    );
    assert_eq!(wire(&mut c3, "LOCK.RELEASE k o"), ":1\r\n");
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert!(c.line("LOCK.RELEASE k o").is_nil());
}

#[test]
fn release_all_drops_every_hold_at_once() {
    let server = TestServer::start();
    let mut c = server.conn();
    for _ in 0..3 {
        c.line("LOCK.ACQUIRE k o");
    }
    assert!(c.line("LOCK.RELEASE k p ALL").is_nil());
    assert_eq!(c.line("LOCK.RELEASE k o ALL").int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

#[test]
fn a_token_ties_release_renew_and_break_to_one_grant() {
    let server = TestServer::start();
    let mut c = server.conn();
    let stale = c.line("LOCK.ACQUIRE k o PX 60000").int();
    c.line("LOCK.RELEASE k o");
    let token = c.line("LOCK.ACQUIRE k o PX 60000").int();
    assert!(token > stale);
    for other in [stale, token + 1, 0] {
        let other = other.to_string();
        assert!(c.run(["LOCK.RELEASE", "k", "o", "TOKEN", &other]).is_nil());
        assert!(c
            .run(["LOCK.RELEASE", "k", "o", "ALL", "TOKEN", &other])
            .is_nil());
        assert_eq!(
            c.run(["LOCK.RENEW", "k", "o", "PX", "9", "TOKEN", &other])
                .int(),
            0
        );
        assert_eq!(c.run(["LOCK.BREAK", "k", "TOKEN", &other]).int(), 0);
        assert_eq!(
            c.run(["LOCK.BREAK", "k", "PURGE", "TOKEN", &other]).int(),
            0
        );
    }
    assert!(lives_for(&mut c, "k", 60_000));
    let token = token.to_string();
    let renew = ["LOCK.RENEW", "k", "o", "TOKEN", &token, "EX", "90"];
    assert_eq!(c.run(renew).int(), 1);
    assert!(lives_for(&mut c, "k", 90_000));
    c.line("LOCK.ACQUIRE k o");
    let release = ["LOCK.RELEASE", "k", "o", "TOKEN", &token];
    assert_eq!(c.run(release).int(), 0);
    assert_eq!(c.run(release).int(), 1);
    let token = c.line("LOCK.ACQUIRE k p").int().to_string();
    assert_eq!(c.run(["LOCK.BREAK", "k", "TOKEN", &token]).int(), 1);
    assert_eq!(c.line("EXISTS k").int(), 0);
}

#[test]
fn renew_sets_the_lease_exactly_also_to_less() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 90000");
    assert_eq!(wire(&mut c, "LOCK.RENEW k o PX 50000"), ":1\r\n");
    assert!(lives_for(&mut c, "k", 50_000));
    assert_eq!(c.line("LOCK.RENEW k o").int(), 1);
    assert!(
        lives_for(&mut c, "k", 30_000),
        "without a lease: the default"
    );
    assert_eq!(c.line("HGET k o").text(), "1");
    assert_eq!(server.stat("renewals"), 2);
}

#[test]
fn renew_of_a_lost_lock_is_answered_0() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert_eq!(wire(&mut c, "LOCK.RENEW k o"), ":0\r\n");
    c.line("LOCK.ACQUIRE k o");
    assert_eq!(c.line("LOCK.RENEW k p").int(), 0);
    c.line("DEL k");
    assert_eq!(c.line("LOCK.RENEW k o").int(), 0);
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert_eq!(server.stat("renewal_misses"), 3);
}

#[test]
fn break_ends_the_hold_of_any_owner_with_its_whole_count() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert_eq!(wire(&mut c, "LOCK.BREAK k"), ":0\r\n");
    c.line("LOCK.ACQUIRE k o");
    c.line("LOCK.ACQUIRE k o");
    assert_eq!(wire(&mut c, "LOCK.BREAK k"), ":1\r\n");
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert_eq!(c.line("LOCK.RENEW k o").int(), 0);
    assert_eq!(server.stat("grants_broken"), 1);
}

#[test]
fn break_hands_the_lock_off_and_break_purge_removes_the_waiters() {
    let server = TestServer::start();
    let (mut c, mut first, mut second) = (server.conn(), server.conn(), server.conn());
    let broken = c.line("LOCK.ACQUIRE k o").int();
    first.send_line("LOCK.ACQUIRE k p BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    second.send_line("LOCK.ACQUIRE k q BLOCK 0");
    c.wait_for_waiters_on("k", 2);
    let stale = c.run(["LOCK.BREAK", "k", "TOKEN", "1", "PURGE"]);
    assert_eq!(stale.int(), 0);
    assert!(
        first.is_silent() && second.is_silent(),
        "another grant: no waiter is purged"
    );
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
    assert!(first.recv().int() > broken);
    assert_eq!(c.line("LOCK.BREAK k PURGE").int(), 1);
    assert_eq!(
        second.recv().error(),
        "LOCKBROKEN the lock was broken and its waiters purged"
    );
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert!(second.line("LOCK.ACQUIRE k q").int() > broken);
}

#[test]
fn info_is_nil_without_holder_and_waiter() {
    let server = TestServer::start();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    for line in ["LOCK.INFO k", "LOCK.INFO k WAITERS"] {
        assert_eq!(wire(&mut c, line), "$-1\r\n");
        assert_eq!(wire(&mut c3, line), "_\r\n");
    }
    c.line("HSET k #token t7");
    assert!(
        c.line("LOCK.INFO k").is_nil(),
        "a token alone holds nothing"
    );
}

#[test]
fn info_is_a_map_or_a_flat_array() {
    let server = TestServer::start();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    c.line("LOCK.ACQUIRE k o");
    let text = wire(&mut c, "LOCK.INFO k");
    assert!(
        text.starts_with("*8\r\n$4\r\nmode\r\n$9\r\nexclusive\r\n$7\r\nholders\r\n*1\r\n*20\r\n"),
        "{text}"
    );
    let text = wire(&mut c3, "LOCK.INFO k WAITERS");
    assert!(
        text.starts_with("%5\r\n$4\r\nmode\r\n$9\r\nexclusive\r\n$7\r\nholders\r\n*1\r\n%10\r\n"),
        "{text}"
    );
    assert!(text.ends_with("$5\r\nqueue\r\n*0\r\n"), "{text}");
}

#[test]
fn info_names_the_holder_and_its_connection() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    a.line("CLIENT SETNAME worker-7");
    let me = a.line("CLIENT INFO").text();
    let addr = me
        .split(' ')
        .find_map(|word| word.strip_prefix("addr="))
        .unwrap();
    let token = a.line("LOCK.ACQUIRE k o PX 60000").int();
    a.line("LOCK.ACQUIRE k o PX 60000");
    let info = b.line("LOCK.INFO k");
    assert_eq!(
        names(&info),
        ["mode", "holders", "waiters", "longest-wait-ms"]
    );
    let fields = [
        "owner",
        "holds",
        "token",
        "pttl",
        "held-ms",
        "client-id",
        "addr",
        "client-name",
        "session",
        "note",
    ];
    assert_eq!(names(&holders(&info)[0]), fields);
    assert_eq!(holder(&info, "owner").text(), "o");
    assert_eq!(holder(&info, "holds").int(), 2);
    assert_eq!(holder(&info, "token").int(), token);
    assert!(around(60_000).contains(&holder(&info, "pttl").int()));
    assert!((0..9_000).contains(&holder(&info, "held-ms").int()));
    assert_eq!(holder(&info, "client-id").int(), a.id());
    assert_eq!(holder(&info, "addr").text(), addr);
    assert_eq!(holder(&info, "client-name").text(), "worker-7");
    assert_eq!(holder(&info, "session").int(), 0);
    assert_eq!(info.field("waiters").unwrap().int(), 0);
    assert_eq!(info.field("longest-wait-ms").unwrap().int(), 0);
    let id = a.id();
    a.close();
    wait_for("the end of the holder's connection", || {
        holder(&b.line("LOCK.INFO k"), "addr").is_nil()
    });
    let info = b.line("LOCK.INFO k");
    assert_eq!(holder(&info, "client-id").int(), id);
    assert!(holder(&info, "client-name").is_nil());
}

#[test]
fn info_writes_an_address_as_the_server_does() {
    let server = TestServer::with(&["--bind", "127.0.0.1", "-::1"]);
    let mut c = server.conn();
    let Ok(mut socket) = TcpStream::connect(("::1", server.port)) else {
        println!("skipped: no IPv6 here");
        return;
    };
    socket.write_all(b"LOCK.ACQUIRE k o\r\n").unwrap();
    wait_for("the lock", || !c.line("LOCK.INFO k").is_nil());
    let addr = holder(&c.line("LOCK.INFO k"), "addr").text();
    assert!(addr.starts_with("[::1]:"), "{addr}");
    let killed = c.run(["CLIENT", "KILL", "ADDR", &addr]);
    assert_eq!(killed.int(), 1, "an operator may use it in CLIENT KILL");
}

#[test]
fn info_of_a_foreign_hold_has_null_for_unknown_fields() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("HSET k u:1 3");
    let info = c.line("LOCK.INFO k");
    assert_eq!(holder(&info, "owner").text(), "u:1");
    assert_eq!(holder(&info, "holds").int(), 3);
    assert_eq!(holder(&info, "pttl").int(), -1, "no TTL, as PTTL says it");
    for unknown in ["token", "held-ms", "client-id", "addr", "client-name"] {
        assert!(holder(&info, unknown).is_nil(), "{unknown}");
    }
    c.line("PEXPIRE k 60000");
    let info = c.line("LOCK.INFO k");
    assert!(around(60_000).contains(&holder(&info, "pttl").int()));
}

#[test]
fn info_lists_as_many_waiters_as_requested_in_order() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 60000");
    let mut waiters: Vec<Conn> = (0..12).map(|_| server.conn()).collect();
    for (i, waiter) in waiters.iter_mut().enumerate() {
        let block = if i == 0 { "BLOCK 0" } else { "BLOCK 60000" };
        waiter.send_line(&format!("LOCK.ACQUIRE k w{i} {block}"));
        c.wait_for_waiters_on("k", i as i64 + 1);
    }
    let owners = |info: &Reply| -> Vec<String> {
        let queue = info.field("queue").unwrap().list();
        queue
            .iter()
            .map(|w| w.field("owner").unwrap().text())
            .collect()
    };
    let ten: Vec<String> = (0..10).map(|i| format!("w{i}")).collect();
    assert_eq!(owners(&c.line("LOCK.INFO k WAITERS")), ten);
    assert_eq!(owners(&c.line("LOCK.INFO k WAITERS COUNT 2")), ten[..2]);
    assert_eq!(
        owners(&c.line("lock.info k waiters count 2147483648")).len(),
        12
    );
    assert!(c.line("LOCK.INFO k").field("queue").is_none());
    let info = c.line("LOCK.INFO k WAITERS");
    assert_eq!(info.field("waiters").unwrap().int(), 12);
    assert!((0..20_000).contains(&info.field("longest-wait-ms").unwrap().int()));
    let queue = info.field("queue").unwrap().list();
    let fields = [
        "owner",
        "mode",
        "waited-ms",
        "left-ms",
        "client-id",
        "channel",
        "tag",
        "note",
    ];
    assert_eq!(names(&queue[0]), fields);
    assert_eq!(queue[0].field("mode").unwrap().text(), "exclusive");
    assert!(queue[0].field("left-ms").unwrap().is_nil(), "BLOCK 0");
    assert!((40_000..=60_000).contains(&queue[1].field("left-ms").unwrap().int()));
    assert!((0..20_000).contains(&queue[0].field("waited-ms").unwrap().int()));
    let id = queue[3].field("client-id").unwrap().int();
    assert_eq!(
        c.line(&format!("CLIENT UNBLOCK {id}")).int(),
        1,
        "it is the parked connection"
    );
    assert!(waiters[3].recv().is_nil());
    assert_eq!(waiters[3].id(), id);
}

#[test]
fn owner_is_a_fresh_random_uuid() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut owners: Vec<String> = (0..1_000).map(|_| c.line("LOCK.OWNER").text()).collect();
    for owner in &owners {
        let shape: String = owner
            .chars()
            .map(|ch| if ch.is_ascii_hexdigit() { 'x' } else { ch })
            .collect();
        assert_eq!(shape, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
        assert_eq!(owner.as_bytes()[14], b'4', "version 4");
    }
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 1_000);
}

#[test]
fn help_names_every_command() {
    let server = TestServer::start();
    let mut c = server.conn();
    let lines: Vec<String> = c.line("LOCK.HELP").list().iter().map(Reply::text).collect();
    for command in c.line("COMMAND LIST FILTERBY MODULE lock").list() {
        let name = command.text().to_uppercase();
        let named = |line: &String| line.split(' ').next() == Some(&name);
        assert!(lines.iter().any(named), "{name} in {lines:?}");
    }
}

#[test]
fn help_of_a_name_has_the_lines_of_that_command_or_kind() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut help = |name: &str| -> Vec<String> {
        let lines = c.line(&format!("LOCK.HELP {name}")).list();
        lines.iter().map(Reply::text).collect()
    };
    let all = help("");
    let acquire = help("ACQUIRE");
    assert!(acquire[0].starts_with("LOCK.ACQUIRE <key> <owner> [READ | WRITE]"));
    assert_eq!(acquire, all[..acquire.len()]);
    assert!(acquire[1..].iter().all(|line| line.starts_with("    ")));
    assert_eq!(help("lock.acquire"), acquire);
    assert!(help("Sem.Acquire")[0].starts_with("SEM.ACQUIRE <key> <id>"));
    // The kinds together are everything.
    let kinds = ["LOCK", "SEM", "LATCH"].map(&mut help).concat();
    assert_eq!(kinds.len(), all.len());
    let error = c.line("LOCK.HELP AC").error();
    assert_eq!(
        error,
        "ERR syntax error: unknown command 'AC', see LOCK.HELP"
    );
    let error = c.line("LOCK.HELP SEM ACQUIRE").error();
    assert_eq!(
        error,
        "ERR syntax error: unknown option 'ACQUIRE', expected none"
    );
}

#[test]
fn names_of_commands_and_options_are_read_in_any_case() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c
        .line("lock.acquire k o px 60000 block 5 once withholder")
        .list();
    assert_eq!(token.len(), 4);
    assert!(c.line("Lock.Acquire k o Ex 60").int() > 0);
    let token = token[0].int();
    assert_eq!(
        c.line(&format!("lOCK.rENEW k o eX 60 tOkEn {token}")).int(),
        1
    );
    assert_eq!(
        c.line(&format!("Lock.Release k o aLL Token {token}")).int(),
        1
    );
    c.line("LOCK.ACQUIRE k O");
    assert!(
        c.line("LOCK.RELEASE k o").is_nil(),
        "owners are compared byte by byte"
    );
    assert_eq!(c.line("lock.break k purge").int(), 1);
}

/// The reply of WITHHOLDER as one line; the token as `T`, times rounded.
fn with_holder(reply: &Reply) -> String {
    let parts = reply.list();
    let token = if parts[0].is_nil() { "nil" } else { "T" };
    let owner = if parts[1].is_nil() {
        "nil".into()
    } else {
        parts[1].text()
    };
    let left = match parts[3].int() {
        ms if ms > 0 => format!("{}s", (ms + 9_000) / 10_000 * 10),
        other => other.to_string(),
    };
    format!("{token} {owner} {} {left}", parts[2].int())
}

#[test]
fn withholder_names_the_holder_in_every_situation() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let mut ask = |line: &str| with_holder(&a.line(line));
    assert_eq!(ask("LOCK.ACQUIRE k o PX 60000 WITHHOLDER"), "T o 1 60s");
    assert_eq!(ask("LOCK.ACQUIRE k o PX 60000 WITHHOLDER"), "T o 2 60s");
    assert_eq!(ask("LOCK.ACQUIRE k o WITHHOLDER ONCE"), "T o 2 60s");
    assert_eq!(ask("LOCK.ACQUIRE k p WITHHOLDER"), "nil o 2 60s");
    assert_eq!(ask("LOCK.ACQUIRE k p BLOCK 1 WITHHOLDER"), "nil o 2 60s");
    b.send_line("LOCK.ACQUIRE k p PX 90000 BLOCK 0 WITHHOLDER");
    server.wait_for_waiters(1);
    a.line("LOCK.RELEASE k o ALL");
    assert_eq!(with_holder(&b.recv()), "T p 1 90s");
    b.send_line("LOCK.ACQUIRE k q BLOCK 0 WITHHOLDER");
    server.wait_for_waiters(1);
    assert!(a.line("LOCK.RELEASE k q").is_nil());
    assert_eq!(with_holder(&b.recv()), "nil p 1 90s", "withdrawn");
    a.line("PERSIST k");
    assert_eq!(
        with_holder(&a.line("LOCK.ACQUIRE k q WITHHOLDER")),
        "nil p 1 -1"
    );
    let wire_nil = wire(&mut a, "LOCK.ACQUIRE k q WITHHOLDER");
    assert_eq!(wire_nil, "*4\r\n$-1\r\n$1\r\np\r\n:1\r\n:-1\r\n");
    let wire_nil = wire(&mut server.conn3(), "LOCK.ACQUIRE k q WITHHOLDER");
    assert_eq!(wire_nil, "*4\r\n_\r\n$1\r\np\r\n:1\r\n:-1\r\n");
}

#[test]
fn withholder_of_an_owner_that_lost_the_lock_before_the_reply_names_no_holder() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    a.line("LOCK.ACQUIRE k o");
    b.send_line("LOCK.ACQUIRE k p BLOCK 0 WITHHOLDER");
    server.wait_for_waiters(1);
    // Both in one tick: the reply of the hand-off is written at its end, when the key is absent again.
    a.send_lines(&["MULTI", "LOCK.RELEASE k o", "DEL k", "EXEC"]);
    assert_eq!(with_holder(&b.recv()), "T nil 0 -2");
}

#[test]
fn a_session_wait_that_ends_gets_nil() {
    let server = TestServer::start();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    c.line("LOCK.ACQUIRE k o");
    assert_eq!(wire(&mut c, "LOCK.ACQUIRE k p BLOCK 1"), "$-1\r\n");
    assert_eq!(wire(&mut c3, "LOCK.ACQUIRE k q BLOCK 1"), "_\r\n");
    server.wait_for_stat("waits_timed_out", 2);
}

#[test]
fn one_write_may_carry_many_commands() {
    let server = TestServer::start();
    let mut c = server.conn();
    let lines: Vec<String> = (0..500)
        .flat_map(|i| {
            [
                format!("LOCK.ACQUIRE k{i} o"),
                format!("LOCK.RELEASE k{i} o"),
            ]
        })
        .collect();
    c.send_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut last = 0;
    for _ in 0..500 {
        let token = c.recv().int();
        assert!(token > last, "tokens rise across keys");
        last = token;
        assert_eq!(c.recv().int(), 1);
    }
}
