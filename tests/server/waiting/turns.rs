//! One user makes work of ticks without end, and another is handed what is due for it. Judged by the processor time of
//! the server, of which a slow machine takes no more: the bound is 20 ms (see DESIGN), a module that is not optimized
//! takes a few times as long, and without turns the other user waits for seconds or for ever.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::clock::{fake_clock, set_clock};
use crate::common::conn::pack;
use crate::common::{Conn, TestServer};
use crate::tickets::scene::{assert_queued, subscribe};

/// More processor time than this, beside the time of a lease, is too late.
const LATE: Duration = Duration::from_millis(300);

/// The lease that ends while the other user works.
const LEASE: Duration = Duration::from_millis(200);

/// A server with the users eve and victim, who have keys of their own, and a subscriber to eve's tickets.
fn server() -> (TestServer, Conn) {
    let server = TestServer::start();
    let subscriber = prepare(&server);
    (server, subscriber)
}

fn prepare(server: &TestServer) -> Conn {
    for user in ["eve", "victim"] {
        let line = format!("ACL SETUSER {user} reset on nopass +@all ~{user}:* ~{{{user}:* &*");
        assert_eq!(server.conn().line(&line).text(), "OK");
    }
    subscribe(server, "ch")
}

fn user(server: &TestServer, name: &str) -> Conn {
    let mut conn = server.conn();
    assert_eq!(conn.line(&format!("AUTH {name} x")).text(), "OK");
    conn
}

/// Commands that a connection sends again and again, so that the server always has more of them to read.
struct Load {
    conn: Conn,
    batch: Vec<u8>,
    /// The lines of the replies to a batch.
    lines: usize,
    /// Lines that have come of those to the oldest batch, and batches on their way.
    seen: usize,
    sent: usize,
}

impl Load {
    /// The reply to each of these commands has one line.
    fn of(conn: Conn, commands: &[String]) -> Load {
        let packed = commands.iter().flat_map(|line| pack(line.split(' ')));
        Load {
            conn,
            batch: packed.collect(),
            lines: commands.len(),
            seen: 0,
            sent: 0,
        }
    }

    /// Sends a batch behind one that is on its way, and reads the replies to that.
    fn work(&mut self) {
        while self.sent < 2 {
            let sent = self.conn.stream().write_all(&self.batch);
            sent.expect("a write");
            self.sent += 1;
        }
        let mut replies = [0; 16 * 1024];
        while self.seen < self.lines {
            let read = self.conn.stream().read(&mut replies).expect("replies");
            assert!(read > 0, "closed");
            self.seen += replies[..read]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
        }
        (self.seen, self.sent) = (self.seen - self.lines, self.sent - 1);
    }
}

/// Sends these commands, which succeed with a reply of one line.
fn send_all(conn: &mut Conn, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    for part in lines.chunks(500) {
        let part: Vec<&str> = part.iter().map(String::as_str).collect();
        conn.send_lines(&part);
        part.iter().for_each(|line| {
            let reply = conn.recv();
            assert!(!reply.is_nil() && !reply.is_error(), "{line}: {reply:?}");
        });
    }
}

/// What is due for the victim: a lock and a request for three locks, both after the lease of another holder.
struct Due([Conn; 2]);

impl Due {
    fn after(server: &TestServer, lease: Duration) -> Due {
        let mut victim = user(server, "victim");
        for key in ["victim:l", "victim:m1"] {
            let line = format!("LOCK.ACQUIRE {key} holder PX {}", lease.as_millis());
            victim.line(&line).int();
        }
        let wait = |line: &str| {
            let mut conn = user(server, "victim");
            conn.send_line(line);
            conn
        };
        Due([
            wait("LOCK.ACQUIRE victim:l next PX 600000 BLOCK 0"),
            wait("LOCK.MACQUIRE 3 victim:m0 victim:m1 victim:m2 next PX 600000 BLOCK 0"),
        ])
    }

    fn are_granted(mut self) {
        let [one, many] = &mut self.0;
        assert!(one.recv().int() > 0);
        assert_eq!(many.recv().list().len(), 3);
    }
}

/// The victim is handed what is due while this load goes on.
fn assert_handed_on(server: &TestServer, load: &mut Load) {
    // Eve's work is due before that of the victim, and goes on.
    load.work();
    for _ in 0..3 {
        let begun = server.cpu_time();
        let mut due = Due::after(server, LEASE);
        while due.0.iter_mut().any(Conn::is_silent) {
            load.work();
            let used = server.cpu_time() - begun;
            assert!(used < LEASE + LATE, "nothing was handed on in {used:?}");
        }
        due.are_granted();
        let mut victim = user(server, "victim");
        victim.line("LOCK.RELEASE victim:l next").int();
        victim.line("LOCK.MRELEASE 3 victim:m0 victim:m1 victim:m2 next");
    }
}

/// So many locks of eve's, each with so many readers, and one ticket for all of them.
fn read_locks(server: &TestServer, locks: usize, readers: usize) -> (Conn, String) {
    let mut eve = user(server, "eve");
    let each = (0..locks).flat_map(|lock| (0..readers).map(move |reader| (lock, reader)));
    let lines =
        each.map(|(lock, reader)| format!("LOCK.ACQUIRE eve:{lock} reader{reader} READ PX 600000"));
    send_all(&mut eve, lines);
    let names: String = (0..locks).map(|lock| format!(" eve:{lock}")).collect();
    let ticket = format!("LOCK.MACQUIRE {locks}{names} writer WRITE BLOCK 0 NOTIFY ch t");
    assert_queued(&mut eve, &ticket);
    (eve, ticket)
}

#[test]
fn changes_of_locks_with_many_readers_keep_no_tick_for_one_user() {
    let (server, _subscriber) = server();
    let (eve, _) = read_locks(&server, 200, 100);
    let changes: Vec<_> = (0..200)
        .map(|lock| format!("PEXPIRE eve:{lock} 600000"))
        .collect();
    assert_handed_on(&server, &mut Load::of(eve, &changes));
}

#[test]
fn a_ticket_for_many_locks_that_comes_and_goes_keeps_no_tick_for_one_user() {
    let (server, _subscriber) = server();
    let (eve, ticket) = read_locks(&server, 200, 100);
    let commands = [ticket, "LOCK.RELEASE eve:0 writer".into()];
    assert_handed_on(&server, &mut Load::of(eve, &commands));
}

#[test]
fn refused_requests_beside_a_ticket_for_many_locks_keep_no_tick_for_one_user() {
    let (server, _subscriber) = server();
    let mut eve = user(&server, "eve");
    let own = (0..1_024).map(|lock| format!("LOCK.ACQUIRE eve:{lock} writer READ PX 600000"));
    send_all(&mut eve, own);
    eve.line("LOCK.ACQUIRE eve:5 other READ PX 600000").int();
    let names: String = (0..1_024).map(|lock| format!(" eve:{lock}")).collect();
    let ticket = format!("LOCK.MACQUIRE 1024{names} writer WRITE BLOCK 0 NOTIFY ch t");
    assert_queued(&mut eve, &ticket);
    let refused = ["LOCK.ACQUIRE eve:5 late READ".to_string()];
    assert_handed_on(&server, &mut Load::of(eve, &refused));
}

#[test]
fn leases_of_one_user_that_end_together_delay_no_other() {
    const LOCKS: usize = 10_000;
    let mut server = TestServer::start();
    server.crash();
    fake_clock(&mut server);
    server.start_again();
    let _subscriber = prepare(&server);
    let mut eve = user(&server, "eve");
    let holds = (0..LOCKS).map(|lock| format!("LOCK.ACQUIRE eve:{lock} holder PX 600000"));
    let tickets = (0..LOCKS)
        .map(|lock| format!("LOCK.ACQUIRE eve:{lock} next PX 600000 BLOCK 0 NOTIFY ch t"));
    send_all(&mut eve, holds.chain(tickets));
    let due = Due::after(&server, Duration::from_secs(600));
    server.wait_for_waiters(2);
    let begun = server.cpu_time();
    set_clock(&server, 700);
    due.are_granted();
    let used = server.cpu_time() - begun;
    assert!(used < LATE, "handed on after {used:?}");
}
