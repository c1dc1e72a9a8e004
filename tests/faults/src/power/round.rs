//! The rounds of a setting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_lock_harness::clock::set_clock;
use redis_lock_harness::disk::{Cut, Disk, Leaves};
use redis_lock_harness::replica::follow;
use redis_lock_harness::{has_io_threads, wait_for, Conn, TestServer};

use super::check::{Figures, CHUNK};
use super::data::Data;
use super::judge::{before_the_loss, end, judge, Times, Verdict};
use super::kinds::{self, Part};
use super::load::{Client, Hold};
use super::{Setting, LONG_LEASE};
use crate::client::Family;
use crate::history::{now, MS};
use crate::one::version;

/// Those that take exclusive locks at full speed.
const CLIENTS: u64 = 3;
const HALF_HOUR: i64 = -30 * 60;
const MONTH: i64 = -30 * 24 * 3_600;
/// Holds that are asked for by other owners after a restart.
const ASKED_AGAIN: usize = 20;

/// A promoted replica may have lost its link this many milliseconds before its primary lost its power.
const LINK_LOST: std::ops::Range<u64> = 0..100;

/// After so many rounds the AOF is rewritten, so that restarts do not take longer and longer.
const REWRITTEN: u64 = 4;

/// Plays so many rounds, within the time.
pub fn play(setting: &Setting, rounds: u64, seed: u64, limit: Duration) -> Figures {
    let begun = Instant::now();
    let (server, disk) = machine(setting);
    let replica = setting.has_replica.then(|| machine(setting));
    if let Some((replica, _)) = &replica {
        follow(replica, &server);
    }
    let figures = Figures {
        server: version(&server),
        replies_early: replies_early(&server, setting),
        ..Figures::default()
    };
    let mut game = Game {
        setting,
        server,
        disk,
        replica,
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

/// A server with its disk.
fn machine(setting: &Setting) -> (TestServer, Disk) {
    let mut server = TestServer::with(setting.options);
    server.crash();
    let disk = Disk::of(&mut server, setting.sync_us);
    if setting.lies {
        disk.lie(&mut server);
    }
    disk.wipe();
    server.start_again();
    (server, disk)
}

struct Game<'a> {
    setting: &'a Setting,
    server: TestServer,
    disk: Disk,
    replica: Option<(TestServer, Disk)>,
    rng: fastrand::Rng,
    figures: Figures,
    /// The highest token that a client has received.
    highest: i64,
    /// The first token after the last start.
    first: i64,
}

impl Game<'_> {
    fn round(&mut self, round: u64) {
        let Played {
            holds,
            mut parts,
            cut,
        } = self.load_and_cut(round);
        let mut times = Times::of(&cut);
        self.figures.rounds += 1;
        self.figures.count(&holds);
        self.figures.bytes_lost += cut.bytes_lost;
        let seconds = match self.rng.u8(..4) {
            _ if self.has_short_leases() => 0,
            0 => HALF_HOUR,
            1 => MONTH,
            _ => 0,
        };
        self.figures.half_hours_back += u64::from(seconds == HALF_HOUR);
        self.figures.months_back += u64::from(seconds == MONTH);
        set_clock(&self.server, seconds);
        let is_split = self.is_split();
        let has_data = self.replica.is_some() || self.start();
        let mut conn = self.server.conn();
        let horizon = horizon(&mut conn);
        let mut verdicts = Vec::new();
        for (place, part) in parts.iter_mut().enumerate() {
            end(&mut part.history, times.cut);
            let data = Data::read(&mut conn, &part.keys());
            times.looked = now();
            let mut verdict = judge(&part.history, &data, times);
            let port = self.server.port;
            let name = format!("power-{}-{port}-{round}-{place}", self.setting.name);
            let refused = before_the_loss(&part.history, &name);
            verdict.violations.extend(refused);
            verdicts.push(verdict);
        }
        self.judge_received(&holds, &verdicts);
        if self.has_short_leases() {
            self.ask_again(&holds);
        } else if has_data {
            let mut ends = self.figures.judge(self.setting, &mut conn, &holds, times);
            for verdict in verdicts {
                self.figures
                    .add_verdict(self.setting, verdict, &mut ends, is_split);
            }
            self.figures
                .conclude(self.setting.name, ends, times.cut, is_split);
        }
        self.judge_token(&mut conn, round, seconds, horizon);
        set_clock(&self.server, 0);
        forget(&mut conn, &holds);
        parts.iter().for_each(|part| part.forget(&mut conn));
        if round % REWRITTEN == REWRITTEN - 1 && self.setting.save_every.is_none() {
            conn.line("BGREWRITEAOF");
            wait_for("the end of the rewriting", || {
                let field = |name| self.server.info_field("persistence", name);
                field("aof_rewrite_in_progress") == "0" && field("aof_rewrite_scheduled") == "0"
            });
        }
        self.restore_replica();
    }

    /// Whether the AOF that is left has several files of commands. While a rewriting begins, the server syncs the end
    /// of the file before in the background, unless each write is synced.
    fn is_split(&self) -> bool {
        self.replica.is_none() && !self.setting.keeps_replied && self.disk.increments() > 1
    }

    fn has_short_leases(&self) -> bool {
        self.setting.lease_ms < LONG_LEASE
    }

    /// All tokens of a round are above the first after the last start.
    fn judge_received(&mut self, holds: &[Hold], verdicts: &[Verdict]) {
        let own = holds.iter().map(|hold| hold.token);
        let lowest = verdicts.iter().filter_map(|verdict| verdict.lowest);
        let lowest = own.clone().chain(lowest).min();
        if lowest.is_some_and(|lowest| lowest <= self.first) {
            let text = format!("{}: {lowest:?} after {}", self.setting.name, self.first);
            self.figures.violation(text);
        }
        let highest = verdicts.iter().map(|verdict| verdict.highest);
        let highest = own.chain(highest).max().unwrap_or(0);
        self.highest = self.highest.max(highest);
    }

    /// The replica, which is the server from then on.
    fn promote(&mut self) {
        if let Some((replica, disk)) = &mut self.replica {
            std::mem::swap(replica, &mut self.server);
            std::mem::swap(disk, &mut self.disk);
        }
    }

    /// The former primary starts again from its own data, and follows.
    fn restore_replica(&mut self) {
        self.promote();
        if self.replica.is_some() {
            self.start();
        }
        self.promote();
        if let Some((replica, _)) = &self.replica {
            follow(replica, &self.server);
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

    fn load_and_cut(&mut self, round: u64) -> Played {
        let port = self.server.port;
        let stop = Arc::new(AtomicBool::new(false));
        let groups = match self.has_short_leases() {
            true => Vec::new(),
            false => kinds::start(port, round, &mut self.rng, &stop),
        };
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| Client {
                id,
                round,
                port,
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
        let loses_link = self.rng.bool();
        if loses_link {
            self.end_replication();
        }
        let rng = &mut self.rng;
        let cut = self
            .disk
            .cut_power(&mut self.server, leaves, &mut || rng.f64());
        if !loses_link {
            self.end_replication();
        }
        stop.store(true, Ordering::Relaxed);
        let holds = clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect();
        let parts = groups.into_iter();
        let parts = parts.map(|group| group.join().expect("a group")).collect();
        self.promote();
        Played { holds, parts, cut }
    }

    /// The replica is promoted, a moment before its primary loses its power or just afterwards.
    fn end_replication(&mut self) {
        if let Some((replica, _)) = &self.replica {
            assert_eq!(replica.conn().line("REPLICAOF NO ONE").text(), "OK");
            pause(Duration::from_millis(self.rng.u64(LINK_LOST)));
        }
    }

    /// Lets the clients work for a random time, while the server saves.
    fn wait(&mut self) {
        let mut conn = self.server.conn();
        let end =
            Instant::now() + Duration::from_millis(self.rng.u64(self.setting.cut_after.clone()));
        let rewrites =
            self.setting.save_every.is_none() && self.rng.u8(..100) < self.setting.rewrites;
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
        let lease = self.setting.lease_ms * MS;
        let waits: Vec<_> = held
            .into_iter()
            .map(|hold| {
                // An owner counts its lease from before it sent the request.
                let end = match (hold.renewal_sent, hold.renewed) {
                    (Some(sent), Some(_)) => sent + self.setting.renewed_ms() * MS,
                    _ => hold.sent + lease,
                };
                let line = format!("LOCK.ACQUIRE {} next PX 1000 BLOCK 10000", hold.key);
                std::thread::spawn(move || {
                    let reply = Conn::open(port).line(&line);
                    (reply.maybe_int().is_some(), now() < end)
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

    /// The horizon is that of the data, before the first grant.
    fn judge_token(&mut self, conn: &mut Conn, round: u64, seconds: i64, horizon: i64) {
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

/// The stored horizon; 0: there is none.
fn horizon(conn: &mut Conn) -> i64 {
    let horizon = conn.line("GET redis_lock:horizon");
    match horizon.is_nil() {
        true => 0,
        false => horizon.text().parse().expect("a number"),
    }
}

/// The records of a round.
struct Played {
    holds: Vec<Hold>,
    parts: Vec<Part>,
    cut: Cut,
}

impl Times {
    fn of(cut: &Cut) -> Times {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = cut.at.elapsed();
        let wall_ms = wall.map_or(0, |wall| wall.saturating_sub(since).as_millis());
        Times {
            cut: now().saturating_sub(since.as_nanos() as u64),
            cut_ms: wall_ms as i64,
            looked: 0,
        }
    }
}

impl Part {
    /// The numbers, names and kinds of all keys.
    fn keys(&self) -> Vec<(u32, &str, Family)> {
        let keys = (0..).zip(&self.keys);
        keys.map(|(key, name)| (key, name.as_str(), (self.family)(key)))
            .collect()
    }

    /// Deletes them.
    fn forget(&self, conn: &mut Conn) {
        for part in self.keys().chunks(CHUNK) {
            let line = |(_, name, family): &(u32, &str, Family)| match family {
                Family::Semaphore(_) => format!("UNLINK {name} {{{name}}}:timeout"),
                _ => format!("LOCK.BREAK {name}"),
            };
            let lines: Vec<String> = part.iter().map(line).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            conn.send_lines(&lines);
            for line in lines {
                let reply = conn.recv();
                assert!(!reply.is_error(), "{line}: {reply:?}");
            }
        }
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
