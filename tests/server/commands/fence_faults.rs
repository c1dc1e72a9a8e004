//! Holders that sleep beyond their leases write through `LOCK.IF` and without it, while servers are stopped, killed and
//! promoted. What survives of the fenced writes is in the order of the tokens; of the others it is not.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::replica::PROMPT_MASTER;
use crate::common::{wait_for, Conn, Reply, TestServer};

const WRITERS: usize = 6;
const SLEEPERS: usize = 3;
const LEASE: Duration = Duration::from_millis(100);

/// Where the writers find the master, and whether they are to end.
struct Site {
    port: AtomicU16,
    is_over: AtomicBool,
}

impl Site {
    fn go_on(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Where the writers begin their next connection.
    fn conn(&self) -> Option<Conn> {
        let mut conn = None;
        wait_for("a master", || {
            conn = Conn::try_open(self.port.load(Relaxed));
            conn.is_some() || !self.go_on()
        });
        conn
    }

    /// Takes the lock again and again; each connection lasts for some rounds, so that all find a new master.
    fn write(&self, owner: usize) {
        for session in 0.. {
            if !self.go_on() {
                return;
            }
            let Some(mut conn) = self.conn() else {
                continue;
            };
            let rounds = (0..20).take_while(|_| self.go_on());
            for round in rounds {
                if self.hold(&mut conn, owner, session + round).is_none() {
                    break;
                }
            }
        }
    }

    /// One hold; `None`: the server is gone, or is no master.
    fn hold(&self, conn: &mut Conn, owner: usize, round: usize) -> Option<()> {
        let token = ask(
            conn,
            &format!("LOCK.ACQUIRE k {owner} PX {} BLOCK 1000", LEASE.as_millis()),
        )?;
        let Some(token) = token.maybe_int() else {
            return (!token.is_error()).then_some(());
        };
        // A sleeper wakes up when another has written. (If every owner slept, none would write.)
        let sleeps = owner < SLEEPERS && round % 2 == 0;
        let is_late = |conn: &mut Conn| {
            let last = ask(conn, "LINDEX {k}plain -1")?;
            // Also when the server refuses, as a replica that loads.
            Some(last.is_error() || !last.is_nil() && number(&last) > token)
        };
        if sleeps {
            wait_for("a later write", || {
                !self.go_on() || is_late(conn) != Some(false)
            });
        }
        let writes = [
            format!("LOCK.IF k {token} RPUSH {{k}}fenced {token}"),
            format!("RPUSH {{k}}plain {token}"),
        ];
        for write in writes {
            let is_written = ask(conn, &write).is_some_and(|reply| !is_refusal(&reply));
            if !is_written {
                // It does not know; it asks the present master.
                ask(&mut self.conn()?, &write)?;
            }
        }
        let released = ask(conn, &format!("LOCK.RELEASE k {owner}"))?;
        (!released.is_error()).then_some(())
    }
}

/// Lets the writers end, also when the test fails.
struct End<'a>(&'a Site);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

fn ask(conn: &mut Conn, line: &str) -> Option<Reply> {
    let is_sent = conn.try_send(line.split(' '));
    is_sent.then(|| conn.try_recv()).flatten()
}

/// Whether another server is to be asked.
fn is_refusal(reply: &Reply) -> bool {
    reply.is_error() && !reply.error().starts_with("FENCED")
}

/// Makes a server the replica of one that is written to all the time.
fn follow(replica: &TestServer, master: &TestServer) {
    let port = master.port.to_string();
    replica.conn().run(["REPLICAOF", "127.0.0.1", &port]);
    wait_for("the link to the master", || {
        replica.info_field("replication", "master_link_status") == "up"
    });
}

/// The tokens in the order in which they were written.
fn written(server: &TestServer, key: &str) -> Vec<i64> {
    let values = server.conn().line(&format!("LRANGE {{k}}{key} 0 -1"));
    values.list().iter().map(number).collect()
}

fn number(value: &Reply) -> i64 {
    value.text().parse().unwrap()
}

/// Waits for as many further writes.
fn wait_for_writes(server: &TestServer, count: usize) {
    let before = written(server, "fenced").len();
    wait_for("fenced writes", || {
        written(server, "fenced").len() >= before + count
    });
}

#[test]
fn no_write_of_an_old_token_follows_one_of_a_newer() {
    let start = || TestServer::with(&PROMPT_MASTER);
    let (mut master, mut replica) = (start(), start());
    follow(&replica, &master);
    let site = Site {
        port: AtomicU16::new(master.port),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let site = &site;
        let _end = End(site);
        for owner in 0..WRITERS {
            scope.spawn(move || site.write(owner));
        }
        for _ in 0..2 {
            wait_for_writes(&master, 10);
            master.signal(libc::SIGSTOP);
            let since = Instant::now();
            wait_for("the end of a lease", || since.elapsed() > LEASE);
            master.signal(libc::SIGCONT);

            // Killed, with a replica that missed the last writes.
            wait_for_writes(&master, 10);
            replica.conn().line("REPLICAOF 127.0.0.1 1");
            wait_for_writes(&master, 5);
            master.crash();
            replica.conn().line("REPLICAOF NO ONE");
            std::mem::swap(&mut master, &mut replica);
            site.port.store(master.port, Relaxed);
            replica.start_again();
            follow(&replica, &master);

            // Two masters for a while.
            wait_for_writes(&master, 10);
            replica.conn().line("REPLICAOF NO ONE");
            wait_for_writes(&master, 5);
            site.port.store(replica.port, Relaxed);
            wait_for_writes(&replica, 5);
            std::mem::swap(&mut master, &mut replica);
            follow(&replica, &master);
        }
        wait_for("a late write without the fence", || {
            !written(&master, "plain").is_sorted() && written(&master, "fenced").len() > 50
        });
    });
    let fenced = written(&master, "fenced");
    assert!(fenced.is_sorted(), "{fenced:?}");
}
