//! A holder that never releases: the time from the end of its lease to the waiter's grant.
//!
//! The server states the end of the lease (PEXPIRETIME, in milliseconds of its clock); the grant is read on the same
//! host, with the same clock. The module ends a lease at the beginning of that millisecond; for a script the key is
//! gone only after it.

use std::io;
use std::time::{Duration, SystemTime};

use crate::cells::{count, short, with_spread};
use crate::herd::{is_taken, subscribe, Protocol};
use crate::load::Effort;
use crate::report::Section;
use crate::ring::{filled, MODULE};
use crate::server::Server;
use crate::stats::quantile;
use crate::wire::{line, Conn};

/// Many more than fit into a millisecond.
const MOST_TRIES: usize = 10_000;

const OTHER_KEYS: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Idle,
    OtherKeys,
    Redisson,
}

struct Figures {
    case: Case,
    times_ms: Vec<f64>,
    medians_ms: Vec<f64>,
}

impl Figures {
    fn round(&mut self, samples: usize) -> io::Result<()> {
        let server = Server::pinned(&[], self.case != Case::Redisson)?;
        if self.case == Case::OtherKeys {
            load_others(&server)?;
        }
        let mut pair = Pair::new(&server)?;
        let mut times = Vec::with_capacity(samples);
        for sample in 0..samples {
            // So that the ends lie anywhere between two of the server's regular wake-ups.
            let lease_ms = 30 + (sample * 7 % 31) as u64;
            times.push(if self.case == Case::Redisson {
                pair.redisson(lease_ms)?
            } else {
                pair.module(lease_ms)?
            });
        }
        self.medians_ms.extend(quantile(&times, 0.5));
        self.times_ms.append(&mut times);
        Ok(())
    }

    fn row(&self) -> Vec<String> {
        let name = match self.case {
            Case::Idle => "this module, idle server".into(),
            Case::OtherKeys => format!("this module, beside {} expiring keys", count(OTHER_KEYS)),
            Case::Redisson => "Redisson's protocol, idle server".into(),
        };
        let part = |part| quantile(&self.times_ms, part).map_or_else(String::new, short);
        let p50 = with_spread(&self.medians_ms);
        vec![name, p50, part(0.99), part(1.0), count(self.times_ms.len())]
    }
}

/// Keys that expire in the next two minutes, evenly.
fn load_others(server: &Server) -> io::Result<()> {
    const BATCH: usize = 1_000;
    let mut conn = server.conn()?;
    for batch in 0..OTHER_KEYS / BATCH {
        let keys = batch * BATCH..(batch + 1) * BATCH;
        let set = |key: usize| {
            // A prime step through the milliseconds: as good as random, and the same in every run.
            let ttl_ms = 1_000 + key * 7_919 % 119_000;
            line(&format!("SET other:{key} v PX {ttl_ms}"))
        };
        conn.send(&keys.map(set).collect::<Vec<_>>().concat())?;
        for _ in 0..BATCH {
            conn.reply()?;
        }
    }
    Ok(())
}

/// A holder and a waiter, on one lock.
struct Pair {
    holder: Conn,
    waiter: Conn,
    control: Conn,
    /// Kept open: a waiter of Redisson's is subscribed while it sleeps.
    _subscription: Conn,
    protocol: Protocol,
}

impl Pair {
    fn new(server: &Server) -> io::Result<Pair> {
        let mut subscription = server.conn()?;
        subscription.send(&subscribe())?;
        subscription.reply()?;
        Ok(Pair {
            holder: server.conn()?,
            waiter: server.conn()?,
            control: server.conn()?,
            _subscription: subscription,
            protocol: Protocol::load(server)?,
        })
    }

    /// When the lease ends, in milliseconds of the server's clock.
    fn lease_end(&mut self) -> io::Result<f64> {
        let reply = self.control.ask("PEXPIRETIME lock:0")?;
        let ms = reply.trim().trim_start_matches(':').parse();
        ms.map_err(|_| io::Error::other(reply))
    }

    /// The waiter is parked; the server grants.
    fn module(&mut self, lease_ms: u64) -> io::Result<f64> {
        self.holder
            .ask(&format!("LOCK.ACQUIRE lock:0 first PX {lease_ms}"))?;
        let end = self.lease_end()?;
        self.waiter.send(&MODULE.park(0, 1))?;
        let reply = self.waiter.reply()?;
        let took = now_ms() - end;
        if !reply.starts_with(b":") {
            return Err(io::Error::other(
                String::from_utf8_lossy(&reply).into_owned(),
            ));
        }
        self.waiter.send(&filled(MODULE.release, 0, 1))?;
        self.waiter.reply()?;
        Ok(took)
    }

    /// The waiter sleeps for the time to live that its last try returned, and tries again.
    fn redisson(&mut self, lease_ms: u64) -> io::Result<f64> {
        self.holder.send(&self.protocol.take(1, lease_ms))?;
        self.holder.reply()?;
        let end = self.lease_end()?;
        let try_once = self.protocol.take(2, 600_000);
        // In the last millisecond the time to live is 0, and it tries without a pause.
        for _ in 0..MOST_TRIES {
            self.waiter.send(&try_once)?;
            let reply = self.waiter.reply()?;
            if is_taken(&reply) {
                let took = now_ms() - end;
                self.control.ask("DEL lock:0")?;
                return Ok(took);
            }
            let ttl = String::from_utf8_lossy(&reply);
            let ttl = ttl.trim().trim_start_matches(':').parse().unwrap_or(0);
            std::thread::sleep(Duration::from_millis(ttl));
        }
        Err(io::Error::other("the lease did not end"))
    }
}

fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as f64 / 1_000_000.0
}

/// The title of the section.
pub const TITLE: &str = "The end of a lease";

/// Measures and reports.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let (rounds, samples) = if effort.quick { (1, 30) } else { (4, 75) };
    let mut all = [Case::Idle, Case::OtherKeys, Case::Redisson].map(|case| Figures {
        case,
        times_ms: Vec::new(),
        medians_ms: Vec::new(),
    });
    for round in 0..rounds {
        eprintln!("lease end: round {} of {rounds}", round + 1);
        all.iter_mut()
            .try_for_each(|figures| figures.round(samples))?;
        all.reverse();
    }
    all.sort_by_key(|figures| figures.case);
    let columns = [
        "waiter, and server",
        "p50 ms",
        "p99 ms",
        "max ms",
        "samples",
    ];
    let notes = [
        "From the end of the lease (PEXPIRETIME) to the moment when the waiter has read its grant, on one host and one clock. Leases of 30 to 60 ms. The module ends a lease when the millisecond named begins; to a script the key is gone only when it is over.",
        "The other keys are volatile strings whose time ends in the next 1 to 120 s: the server removes them meanwhile, some 1,700 a second.",
        "A waiter of Redisson's gets no message when a lease ends; it sleeps as long as the lock's time \
         to live was when it last tried, and tries again, in the last millisecond as fast as it is answered.",
    ];
    Ok(vec![Section {
        title: TITLE.into(),
        text: "A holder that died: the time from the end of its lease to the next holder's grant."
            .into(),
        columns: columns.map(String::from).to_vec(),
        rows: all.iter().map(Figures::row).collect(),
        remarks: Vec::new(),
        notes: notes.map(String::from).to_vec(),
        image: None,
    }])
}
