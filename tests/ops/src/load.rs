//! Clients that use every command and let every usual outcome happen. A pause is a `BLPOP` on a list that nobody fills,
//! so its length is bounded by the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_lock_harness::{wait_for, Conn};

use crate::scene::Scene;

/// A client's round; it is repeated until the load ends.
type Round = fn(&mut Client);

struct Client<'a> {
    scene: &'a Scene,
    conn: Conn,
    /// Its number, in the names of its owners.
    number: usize,
    round: u64,
}

impl Client<'_> {
    /// Sends a command in which `$n` stands for the client's number. A lost race is an outcome like any other.
    fn say(&mut self, line: &str) -> bool {
        let reply = self.conn.line(&self.named(line));
        !reply.is_nil() && !reply.is_error()
    }

    fn named(&self, line: &str) -> String {
        line.replace("$n", &self.number.to_string())
    }

    fn pause(&mut self, seconds: f64) {
        let list = format!("pause:{}", self.number);
        self.conn.run(["BLPOP", &list, &seconds.to_string()]);
    }

    /// Another connection that sends a command and does not wait for the reply.
    fn beside(&self, line: &str) -> Conn {
        let mut conn = self.scene.conn();
        conn.send_line(&self.named(line));
        conn
    }
}

/// The clients: how many of them play each round.
const CLIENTS: [(usize, Round); 14] = [
    (2, pairs),
    (6, contend),
    (1, is_impatient),
    (3, read_and_write),
    (3, take_permits),
    (1, use_latches),
    (1, keep_a_session),
    (1, close_connections),
    (1, lose_holds),
    (1, change_waits),
    (1, deadlock),
    (1, crowd),
    (1, use_tickets),
    (1, hold_many),
];

/// Runs the load for this time. Returns its beginning and its end in Unix seconds.
pub fn run(scene: &Scene, time: Duration) -> (f64, f64) {
    let from = unix_seconds();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let rounds = CLIENTS
            .iter()
            .flat_map(|(count, round)| vec![*round; *count]);
        for (number, round) in rounds.enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                let conn = scene.conn();
                let mut client = Client {
                    scene,
                    conn,
                    number,
                    round: 0,
                };
                while !stop.load(Ordering::Relaxed) {
                    round(&mut client);
                    client.round += 1;
                }
            });
        }
        let start = Instant::now();
        let mut conn = scene.conn();
        let mut pause = |until: Duration| {
            while start.elapsed() < until {
                conn.line("BLPOP pause:load 0.1");
            }
        };
        pause(time * 3 / 4);
        // For the last quarter the server may evict keys.
        scene.conn().line("CONFIG SET maxmemory-policy allkeys-lru");
        pause(time);
        stop.store(true, Ordering::Relaxed);
    });
    let to = unix_seconds();
    scene.server.wait_for_waits(0);
    wait_for("a released lock", || scene.server.stat("sessions") == 0);
    (from, to)
}

fn unix_seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs_f64()
}

fn pairs(client: &mut Client) {
    for _ in 0..10 {
        client.say("LOCK.ACQUIRE free:$n worker:$n PX 5000");
        client.say("LOCK.RENEW free:$n worker:$n PX 5000");
        client.say("LOCK.RELEASE free:$n worker:$n");
    }
    client.say("LOCK.RENEW free:$n worker:$n PX 5000");
    client.say("LOCK.RELEASE free:$n worker:$n");
    client.pause(0.02);
}

/// Two busy locks; the holds get longer and shorter with the time.
fn contend(client: &mut Client) {
    let key = format!("hot:{}", client.number % 2);
    if client.say(&format!("LOCK.ACQUIRE {key} worker:$n PX 5000 BLOCK 3000")) {
        let wave = (client.round % 40) as f64 / 40.0;
        client.pause(0.005 + 0.03 * wave);
        client.say(&format!("LOCK.RELEASE {key} worker:$n"));
    }
}

fn is_impatient(client: &mut Client) {
    client.say("LOCK.ACQUIRE hot:0 worker:$n");
    client.say("LOCK.RELEASE hot:0 worker:$n");
    client.say("LOCK.ACQUIRE hot:1 worker:$n PX 5000 BLOCK 5");
    client.say("LOCK.RELEASE hot:1 worker:$n");
    client.pause(0.05);
}

fn read_and_write(client: &mut Client) {
    let mode = if client.round % 3 == 0 {
        "WRITE"
    } else {
        "READ"
    };
    if client.say(&format!(
        "LOCK.ACQUIRE shared worker:$n {mode} PX 5000 BLOCK 3000"
    )) {
        client.pause(0.02);
        client.say(&format!("LOCK.RELEASE shared worker:$n {mode}"));
    }
}

/// Two permits for three clients; every eighth hold ends by its lease.
fn take_permits(client: &mut Client) {
    let lease = if client.round % 8 == 0 { 40 } else { 5_000 };
    if client.say(&format!(
        "SEM.ACQUIRE pool worker:$n LIMIT 2 PX {lease} BLOCK 3000"
    )) {
        client.pause(0.03);
        if lease > 1_000 {
            client.say("SEM.RELEASE pool worker:$n");
        } else {
            client.pause(0.03);
        }
    }
}

fn use_latches(client: &mut Client) {
    client.say("LATCH.SET start:$n 1");
    let mut waiting = [0; 3].map(|_| client.beside("LATCH.WAIT start:$n BLOCK 3000"));
    client.pause(0.2);
    client.say("LATCH.DOWN start:$n");
    waiting.iter_mut().for_each(|conn| drop(conn.recv()));
}

fn keep_a_session(client: &mut Client) {
    client.say("LOCK.ACQUIRE session:$n worker:$n SESSION");
    client.pause(2.0);
    client.say("LOCK.RELEASE session:$n worker:$n");
}

/// One holder and one waiter go away.
fn close_connections(client: &mut Client) {
    let mut holder = client.beside("LOCK.ACQUIRE gone:$n holder SESSION");
    holder.recv();
    let waiter = client.beside("LOCK.ACQUIRE gone:$n waiter PX 100 BLOCK 3000");
    client.pause(0.05);
    drop(waiter);
    client.pause(0.05);
    drop(holder);
    client.pause(0.1);
}

fn lose_holds(client: &mut Client) {
    client.say("LOCK.ACQUIRE ends:$n worker:$n PX 20");
    client.pause(0.05);
    client.say("LOCK.ACQUIRE ends:$n worker:$n PX 5000");
    client.say("LOCK.BREAK ends:$n");
    client.say("LOCK.ACQUIRE ends:$n worker:$n PX 5000");
    let mut waiter = client.beside("LOCK.ACQUIRE ends:$n waiter PX 5000 BLOCK 3000");
    client.pause(0.05);
    client.say("DEL ends:$n");
    waiter.recv();
    client.say("DEL ends:$n");
    client.pause(0.1);
}

/// Waits that end otherwise than by a grant.
fn change_waits(client: &mut Client) {
    client.say("LOCK.ACQUIRE kept:$n holder PX 5000");
    let mut older = client.beside("LOCK.ACQUIRE kept:$n waiter BLOCK 3000");
    client.pause(0.05);
    let mut newer = client.beside("LOCK.ACQUIRE kept:$n waiter BLOCK 3000");
    older.recv();
    client.pause(0.05);
    client.say("LOCK.RELEASE kept:$n waiter");
    newer.recv();
    let mut waiter = client.scene.conn();
    let id = waiter.id();
    waiter.send_line(&client.named("LOCK.ACQUIRE kept:$n waiter BLOCK 3000"));
    client.pause(0.05);
    client.say(&format!("CLIENT UNBLOCK {id}"));
    waiter.recv();
    let mut waiter = client.beside("LOCK.ACQUIRE kept:$n waiter BLOCK 3000");
    client.pause(0.05);
    client.say("LOCK.BREAK kept:$n PURGE");
    waiter.recv();
}

fn deadlock(client: &mut Client) {
    client.say("LOCK.ACQUIRE left:$n one PX 5000");
    client.say("LOCK.ACQUIRE right:$n two PX 5000");
    let mut waiter = client.beside("LOCK.ACQUIRE right:$n one PX 5000 BLOCK 3000");
    client.pause(0.05);
    client.say("LOCK.ACQUIRE left:$n two PX 5000 BLOCK 3000");
    client.say("LOCK.RELEASE right:$n two");
    waiter.recv();
    client.say("LOCK.RELEASE right:$n one");
    client.say("LOCK.RELEASE left:$n one");
    client.pause(0.2);
}

/// More waiters than `lock.max-waiters-per-key`.
fn crowd(client: &mut Client) {
    client.say("LOCK.ACQUIRE full:$n holder PX 5000");
    let ask =
        |number: usize| client.beside(&format!("LOCK.ACQUIRE full:$n {number} PX 1 BLOCK 3000"));
    let mut waiters: Vec<Conn> = (0..12).map(ask).collect();
    client.pause(0.5);
    client.say("LOCK.RELEASE full:$n holder");
    waiters.iter_mut().for_each(|conn| drop(conn.recv()));
    client.pause(0.5);
}

fn use_tickets(client: &mut Client) {
    let mut subscriber = client.beside("SUBSCRIBE answers:$n");
    subscriber.recv();
    client.say("LOCK.ACQUIRE ticket:$n holder PX 5000");
    for (owner, limit) in [
        ("granted", 3_000),
        ("late", 20),
        ("withdrawn", 3_000),
        ("again", 3_000),
    ] {
        let request =
            format!("LOCK.ACQUIRE ticket:$n {owner} PX 5000 BLOCK {limit} NOTIFY answers:$n");
        client.say(&format!("{request} {owner}"));
        if owner == "again" {
            client.say(&format!("{request} newer"));
        }
    }
    client.say("LOCK.RELEASE ticket:$n withdrawn");
    // Longer than lock.queue-grace: the wait of "late" is counted as timed out when its owner does not ask again.
    client.pause(1.3);
    for owner in ["holder", "granted", "again"] {
        client.say(&format!("LOCK.RELEASE ticket:$n {owner}"));
    }
}

/// More holds than `lock.max-tracked`.
fn hold_many(client: &mut Client) {
    for key in 0..50 {
        client.say(&format!("LOCK.ACQUIRE many:{key} worker:$n PX 5000"));
    }
    client.pause(1.0);
    for key in 0..50 {
        client.say(&format!("LOCK.RELEASE many:{key} worker:$n"));
    }
    client.pause(1.0);
}
