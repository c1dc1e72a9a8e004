//! The rounds of a setting.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_lock_harness::clock::set_clock;
use redis_lock_harness::disk::{Cut, Disk, Leaves};
use redis_lock_harness::{has_io_threads, wait_for, Conn, TestServer};

use super::check::{Figures, CHUNK};
use super::load::{Client, Hold};
use super::{Setting, LONG_LEASE};
use crate::one::version;

const CLIENTS: u64 = 5;
const HALF_HOUR: i64 = -30 * 60;
const MONTH: i64 = -30 * 24 * 3_600;
/// Holds that are asked for by other owners after a restart.
const ASKED_AGAIN: usize = 20;

/// After so many rounds the AOF is rewritten, so that restarts do not take longer and longer.
const REWRITTEN: u64 = 4;

/// Plays so many rounds, within the time.
pub fn play(setting: &Setting, rounds: u64, seed: u64, limit: Duration) -> Figures {
    let begun = Instant::now();
    let mut server = TestServer::with(setting.options);
    server.crash();
    let disk = Disk::of(&mut server, setting.sync_us);
    disk.wipe();
    server.start_again();
    let figures = Figures {
        server: version(&server),
        replies_early: replies_early(&server, setting),
        ..Figures::default()
    };
    let mut game = Game {
        setting,
        server,
        disk,
        rng: fastrand::Rng::with_seed(seed),
        figures,
        highest: 0,
        first: 0,
    };
    for round in 0..rounds {
        if begun.elapsed() > limit {
            break;
        }
        game.round(round);
    }
    let health = game.server.finish();
    if let Err(error) = health {
        game.figures.violation(error);
    }
    game.figures
}

struct Game<'a> {
    setting: &'a Setting,
    server: TestServer,
    disk: Disk,
    rng: fastrand::Rng,
    figures: Figures,
    /// The highest token that a client has received.
    highest: i64,
    /// The first token after the last start.
    first: i64,
}

impl Game<'_> {
    fn round(&mut self, round: u64) {
        let (holds, cut) = self.load_and_cut(round);
        self.figures.rounds += 1;
        self.figures.grants += holds.len() as u64;
        self.figures.bytes_lost += cut.bytes_lost;
        let lowest = holds.iter().map(|hold| hold.token).min();
        if lowest.is_some_and(|lowest| lowest <= self.first) {
            let text = format!("{}: {lowest:?} after {}", self.setting.name, self.first);
            self.figures.violation(text);
        }
        let received = holds.iter().map(|hold| hold.token).max().unwrap_or(0);
        self.highest = self.highest.max(received);
        let seconds = match self.rng.u8(..4) {
            _ if self.setting.lease_ms < LONG_LEASE => 0,
            0 => HALF_HOUR,
            1 => MONTH,
            _ => 0,
        };
        self.figures.half_hours_back += u64::from(seconds == HALF_HOUR);
        self.figures.months_back += u64::from(seconds == MONTH);
        set_clock(&self.server, seconds);
        let has_data = self.start();
        let mut conn = self.server.conn();
        match self.setting.lease_ms < LONG_LEASE {
            true => self.ask_again(&holds),
            false if has_data => self.figures.judge(self.setting, &mut conn, &holds, &cut),
            false => (),
        }
        self.judge_token(&mut conn, round, seconds);
        set_clock(&self.server, 0);
        forget(&mut conn, &holds);
        if round % REWRITTEN == REWRITTEN - 1 && self.setting.save_every.is_none() {
            conn.line("BGREWRITEAOF");
            wait_for("the end of the rewriting", || {
                let field = |name| self.server.info_field("persistence", name);
                field("aof_rewrite_in_progress") == "0" && field("aof_rewrite_scheduled") == "0"
            });
        }
    }

    /// Starts the server; false if it refuses its data: then it starts without.
    fn start(&mut self) -> bool {
        let Err(log) = self.server.try_start_again() else {
            return true;
        };
        let is_known = log.contains("the truncated file is not the last file");
        if self.setting.keeps_replied || !is_known {
            let text = format!("{}: the server does not start: {log}", self.setting.name);
            self.figures.violation(text);
        }
        self.figures.refused_starts += 1;
        self.disk.wipe();
        self.server.start_again();
        false
    }

    fn load_and_cut(&mut self, round: u64) -> (Vec<Hold>, Cut) {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| Client {
                id,
                round,
                port: self.server.port,
                lease_ms: self.setting.lease_ms,
                renewed_ms: self.setting.renewed_ms(),
                rng: self.rng.fork(),
            })
            .map(|client| std::thread::spawn(move || client.work()))
            .collect();
        self.wait();
        let leaves = Leaves {
            new_names: self.rng.bool(),
            torn_tails: self.rng.bool(),
        };
        let rng = &mut self.rng;
        let cut = self
            .disk
            .cut_power(&mut self.server, leaves, &mut || rng.f64());
        let holds = clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect();
        (holds, cut)
    }

    /// Lets the clients work for a random time, while the server saves.
    fn wait(&mut self) {
        let mut conn = self.server.conn();
        let end =
            Instant::now() + Duration::from_millis(self.rng.u64(self.setting.cut_after.clone()));
        let rewrites = self.setting.save_every.is_none() && self.rng.u8(..4) == 0;
        if rewrites {
            let part = self.rng.f64();
            pause(end.saturating_duration_since(Instant::now()).mul_f64(part));
            conn.line("BGREWRITEAOF");
            self.figures.rewrites += 1;
        }
        while let Some(every) = self.setting.save_every {
            let left = end.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(every) {
                break;
            }
            pause(Duration::from_millis(every));
            // Refused while a child is saving.
            conn.line("BGSAVE");
        }
        pause(end.saturating_duration_since(Instant::now()));
    }

    /// Other owners ask for what was held at the loss, and wait; the time of each grant is compared with the lease.
    fn ask_again(&mut self, holds: &[Hold]) {
        let mut held: Vec<&Hold> = holds.iter().filter(|h| h.release_sent.is_none()).collect();
        held.sort_by_key(|hold| std::cmp::Reverse(hold.sent));
        held.truncate(ASKED_AGAIN);
        let port = self.server.port;
        let lease = Duration::from_millis(self.setting.lease_ms);
        let waits: Vec<_> = held
            .into_iter()
            .map(|hold| {
                // An owner counts its lease from before it sent the request.
                let end = match (hold.renewal_sent, hold.renewed) {
                    (Some(sent), Some(_)) => {
                        sent + Duration::from_millis(self.setting.renewed_ms())
                    }
                    _ => hold.sent + lease,
                };
                let line = format!("LOCK.ACQUIRE {} next PX 1000 BLOCK 10000", hold.key);
                std::thread::spawn(move || {
                    let reply = Conn::open(port).line(&line);
                    (reply.maybe_int().is_some(), Instant::now() < end)
                })
            })
            .collect();
        for wait in waits {
            let (is_granted, is_early) = wait.join().expect("a client");
            self.figures.asked_again += u64::from(is_granted);
            self.figures.two_holders += u64::from(is_granted && is_early);
            let has_delay = self.setting.options.contains(&"--lock.startup-delay");
            if is_granted && is_early && has_delay {
                let text = format!("{}: two holders at a time", self.setting.name);
                self.figures.violation(text);
            }
        }
    }

    fn judge_token(&mut self, conn: &mut Conn, round: u64, seconds: i64) {
        let horizon = conn.line("GET redis_lock:horizon");
        let horizon = match horizon.is_nil() {
            true => 0,
            false => horizon.text().parse().expect("a number"),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = now.map_or(0, |now| now.as_micros() as i64) + seconds * 1_000_000;
        let line = format!("LOCK.ACQUIRE first:{round} me PX 1000 BLOCK 10000");
        self.first = conn.line(&line).int();
        let (name, highest) = (self.setting.name, self.highest);
        self.figures
            .judge_token(name, self.first, highest, horizon, clock);
        self.highest = highest.max(self.first);
    }
}

/// Redis 8.6 with I/O threads runs commands between the sync and the sending of replies, also without the module: an
/// `INCR` is answered in 0.2 ms where a sync takes 10 ms. (Redis 7.0 to 8.0 and Valkey do not.)
fn replies_early(server: &TestServer, setting: &Setting) -> bool {
    let has_threads = setting.options.contains(&"--io-threads") || has_io_threads();
    has_threads && !server.is_valkey() && server.version() >= (8, 6, 0)
}

/// Deletes the locks of a round.
fn forget(conn: &mut Conn, holds: &[Hold]) {
    for part in holds.chunks(CHUNK) {
        let keys = part.iter().map(|hold| hold.key.as_str());
        conn.run(std::iter::once("UNLINK").chain(keys));
    }
}

fn pause(time: Duration) {
    std::thread::sleep(time);
}
