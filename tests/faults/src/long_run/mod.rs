//! A long run of one server: random load and faults on a primary with an AOF and a replica, in minutes. Each minute is
//! a run of `play` whose history is judged. At the end of a minute all queues are empty, the replica has
//! the same data, and the memory is measured; at the end of a slice, another server that loads a copy of the AOF has
//! the same data too. The first broken law ends the run.
//!
//! The process of the primary lives as long as the run. Its data is kept, so that the next run continues with it.

pub mod figures;
pub mod laws;
mod probe;
mod report;
mod residents;
pub mod settings;
pub mod site;
mod storm;

use std::time::{Duration, Instant};

use crate::client::Habits;
use crate::one::version;
use crate::play::{play, Plan};
use crate::porcupine::Porcupine;
use crate::scenarios::kinds::any_family;
use crate::totals::{today, Total};
use figures::{Figures, Line, Minute, Stop};
use probe::Probe;
use redis_lock_harness::TestServer;
pub use report::report;
use site::Site;
use storm::Storm;

/// The length of a run and of its parts.
#[derive(Debug, Clone, Copy)]
pub struct Lengths {
    pub run: Duration,
    /// Minutes of a slice.
    pub slice: u32,
    /// A minute; shorter in tests.
    pub minute: Duration,
}

/// The part of a minute for the load; the rest is for the measurements at its end.
const LOAD: f64 = 0.8;

/// The first minutes of a process: the largest memory at their ends is what later ones are compared with.
pub const FIRST: usize = 3;

/// By how much the memory may have grown from the first minutes of a process to the end of a slice, in bytes. Without a
/// leak it was at most 8 kB in 90 minutes.
pub const GROWTH: u64 = 64 * 1024;

/// Bounded, so that the servers and the clients take less than half of a core.
fn plan() -> Plan {
    Plan {
        keys: 12,
        clients: 12,
        bulk: 1,
        many: 3,
        outside: 3,
        tickets: 3,
        latches: 10,
        habits: Habits {
            rests: 80,
            pace: 40,
            family: any_family,
            sessions: 25,
            // The lowest that is set: see `settings`.
            session_lease: 2_000,
            many_tickets: 15,
            ..Habits::default()
        },
    }
}

/// Continues the run on the server of this process.
///
/// # Errors
/// The file of the figures cannot be read or written.
pub fn run(lengths: Lengths) -> std::io::Result<bool> {
    let name = version(&TestServer::start());
    let mut figures = Figures::load(&name)?;
    let (number, _) = figures.next();
    match slices(lengths, &name, &mut figures) {
        Ok(()) => Ok(true),
        Err(reason) => refuse(&mut figures, number, name, reason).map(|()| false),
    }
}

/// One slice after the other, on the same process.
fn slices(lengths: Lengths, server: &str, figures: &mut Figures) -> Result<(), String> {
    let end = Instant::now() + lengths.run;
    let site = Site::start(&figures.data())?;
    let mut run = Run::new(&site, server.into(), figures.next());
    loop {
        run.slice(lengths, figures)?;
        site.keep(&figures.data())?;
        if Instant::now() + lengths.minute > end {
            break;
        }
    }
    site.finish(&figures.data())
}

/// Records that a run has ended by a broken law.
fn refuse(figures: &mut Figures, run: u32, server: String, reason: String) -> std::io::Result<()> {
    println!("stopped: {reason}");
    let (_, minute) = figures.next();
    figures.add(Line::Stop(Stop {
        run,
        minute,
        server,
        date: today(),
        refused: Some(reason),
        ..Stop::default()
    }))
}

/// The state of a run.
pub struct Run<'a> {
    site: &'a Site,
    server: String,
    number: u32,
    minute: u32,
    /// The memory at the ends of the first minutes of this process.
    first: Vec<u64>,
    /// Of the last slice.
    last: Option<u64>,
}

impl<'a> Run<'a> {
    /// A run with the number of itself and of its first minute.
    pub fn new(site: &'a Site, server: String, (number, minute): (u32, u32)) -> Run<'a> {
        Run {
            site,
            server,
            number,
            minute,
            first: Vec::new(),
            last: None,
        }
    }

    /// Plays a slice.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn slice(&mut self, lengths: Lengths, figures: &mut Figures) -> Result<(), String> {
        let (mut begin, mut end) = (self.last, 0);
        for _ in 0..lengths.slice {
            let start = Instant::now();
            let minute = self.play(lengths.minute.mul_f64(LOAD))?;
            end = minute.settled;
            if self.first.len() < FIRST {
                self.first.push(end);
            }
            begin.get_or_insert(end);
            println!("{}", minute.sentence());
            let add = figures.add(Line::Minute(minute));
            add.map_err(|error| error.to_string())?;
            std::thread::sleep(lengths.minute.saturating_sub(start.elapsed()));
        }
        let begin = begin.unwrap_or(end);
        let baseline = self.first.iter().max().copied();
        let end = laws::memory(self.site, baseline.unwrap_or(end))?;
        self.last = Some(end);
        let digest = self.site.digest_of_aof()?;
        let stop = Stop {
            run: self.number,
            minute: self.minute - 1,
            server: self.server.clone(),
            date: today(),
            settled_begin: begin,
            settled_end: end,
            keys: digest.keys(),
            digest: digest.data().into(),
            refused: None,
        };
        println!("{}", stop.sentence());
        figures
            .add(Line::Stop(stop))
            .map_err(|error| error.to_string())
    }

    fn play(&mut self, length: Duration) -> Result<Minute, String> {
        let before = self.site.usage();
        let storm = Storm::of(self.site);
        let probe = Probe::start(self.site.port());
        let name = format!("long-run-{}-{}", self.number, self.minute);
        let seed = u64::from(self.minute);
        let played = play(
            &name,
            &plan(),
            Box::new(storm),
            seed,
            length,
            Some(&Porcupine::default()),
        );
        let probed = probe.end();
        played.complain();
        let mut total = Total::of(&played, seed);
        // Latency is measured, and judged by its plot: the machine may be loaded for hours.
        total.silent -= played.findings.late;
        if total.violations() > 0 {
            return Err(format!("minute {}: {}", self.minute, total.sentence()));
        }
        laws::quiet(self.site)?;
        let digest = self.site.equal_digests()?;
        let usage = self.site.usage();
        let memory = self.site.memory();
        let minute = Minute {
            run: self.number,
            minute: self.minute,
            server: self.server.clone(),
            date: today(),
            operations: total.operations,
            grants: total.grants,
            faults: total.tally.values().sum(),
            tickets: total.tickets,
            overlaps: total.overlaps,
            commands: usage.commands.saturating_sub(before.commands),
            cpu: usage.share_since(&before),
            used: memory.used,
            settled: memory.settled,
            rss: memory.rss,
            keys: digest.keys(),
            used_most: probed.used_most,
            waiters_most: probed.waiters_most,
            tickets_most: probed.tickets_most,
            late: played.findings.late,
            stalls: probed.ping.stalls(),
            probes: probed.pair.count(),
            pair: probed.pair.quantiles(),
            ping: probed.ping.quantiles(),
        };
        self.minute += 1;
        Ok(minute)
    }
}
