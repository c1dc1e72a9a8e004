//! Tickets by the hundred thousand: their memory, the rate at which they are enqueued, the hand-off while they wait,
//! and their common ends.
//!
//! A run is one server. One connection enqueues the tickets with pipelined requests. The lock is handed off some
//! thousand times, from ticket to ticket, and then all tickets end in one way. Each number of tickets has a run for
//! each way, so the first figures have as many rounds as there are ways.

mod end;
mod listener;
mod pings;
mod queue;
mod tables;

use std::io;
use std::time::{Duration, Instant};

use crate::load::Effort;
use crate::memory::{settle, Memory};
use crate::report::Section;
use crate::ring::{Ring, Words, BLPOP, MODULE};
use crate::server::Server;
use crate::stats::quantile;
use crate::wire::Conn;
use end::{End, Ended};
use queue::{Enqueued, Queue};

/// The titles of the sections.
pub const TITLES: [&str; 3] = [
    "Tickets: memory and enqueueing",
    "Tickets: hand-off",
    "Tickets: all end together",
];

/// Memory is read when it has not fallen for this long.
const STILL: Duration = Duration::from_secs(1);

/// It falls no longer than this.
const SETTLING: Duration = Duration::from_secs(30);

/// Tickets of a run, spread evenly over the queues of these keys.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Case {
    tickets: usize,
    keys: usize,
    /// Whether they are enough for figures of memory, rate and ends.
    many: bool,
}

const fn few(tickets: usize) -> Case {
    Case {
        tickets,
        keys: 1,
        many: false,
    }
}

const fn many(tickets: usize, keys: usize) -> Case {
    Case {
        tickets,
        keys,
        many: true,
    }
}

const FULL: [Case; 5] = [
    few(1),
    few(1_000),
    many(100_000, 1),
    many(1_000_000, 1),
    many(1_000_000, 10_000),
];
const QUICK: [Case; 4] = [few(1), few(1_000), many(10_000, 1), many(10_000, 100)];

/// Hand-offs of a run, and runs of a case with few tickets.
const SAMPLES: [usize; 2] = [2_000, 200];
const ROUNDS: [usize; 2] = [3, 1];

/// The figures of a case, one of each run.
struct Figures {
    case: Case,
    enqueued: Vec<Enqueued>,
    /// Of a ticket without a time limit.
    memory: Vec<Memory>,
    /// Of one with a limit, which has a place in the index of deadlines.
    limited: Option<Memory>,
    hand_offs: HandOffs,
    ends: Vec<(End, Ended, Left)>,
}

/// The memory above an empty server after the end, with no client but one that reads it.
struct Left {
    memory: Memory,
    /// After MEMORY PURGE.
    purged: Memory,
}

/// Hand-offs in microseconds.
#[derive(Default)]
struct HandOffs {
    times: Vec<f64>,
    medians: Vec<f64>,
    /// The server's time for a cycle, of each run.
    cpu: Vec<f64>,
}

impl HandOffs {
    fn measure(
        &mut self,
        samples: usize,
        server: &Server,
        mut hand_off: impl FnMut() -> io::Result<Duration>,
    ) -> io::Result<()> {
        (0..samples / 20).try_for_each(|_| hand_off().map(drop))?;
        let before = server.cpu_us();
        let times = (0..samples).map(|_| Ok(hand_off()?.as_nanos() as f64 / 1_000.0));
        let mut times = times.collect::<io::Result<Vec<_>>>()?;
        self.cpu.push((server.cpu_us() - before) / samples as f64);
        self.medians.extend(quantile(&times, 0.5));
        self.times.append(&mut times);
        Ok(())
    }
}

/// Measures and reports.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let pick = usize::from(effort.quick);
    let (samples, rounds) = (SAMPLES[pick], ROUNDS[pick]);
    let cases: &[Case] = if effort.quick { &QUICK } else { &FULL };
    let peers = [("in BLPOP", &BLPOP), ("parked", &MODULE)];
    let peers = peers.map(|(name, words)| Ok((name, parked(words, rounds, samples)?)));
    let peers: Vec<(&str, HandOffs)> = peers.into_iter().collect::<io::Result<_>>()?;
    let figures = cases.iter().map(|case| case.measure(rounds, samples));
    let figures: Vec<Figures> = figures.collect::<io::Result<_>>()?;
    Ok(tables::sections(&figures, &peers))
}

/// Hand-offs to one parked client, as the tables of hand-offs have them.
fn parked(words: &'static Words, rounds: usize, samples: usize) -> io::Result<HandOffs> {
    let mut hand_offs = HandOffs::default();
    for _ in 0..rounds {
        let server = Server::pinned(&[], words.module)?;
        let mut ring = Ring::new(&server, words, 1, 1)?;
        hand_offs.measure(samples, &server, || ring.hand_off(0))?;
    }
    Ok(hand_offs)
}

/// The memory of one of this many tickets on one key.
pub fn memory_each(tickets: usize) -> io::Result<Memory> {
    let case = many(tickets, 1);
    let mut host = Host::start(&case)?;
    Queue::fill(&host.server, &case, None)?;
    host.settled()
        .map(|all| all.each_since(host.empty, tickets))
}

/// A server for tickets, and its memory before the first.
struct Host {
    server: Server,
    control: Conn,
    empty: Memory,
}

impl Host {
    fn start(case: &Case) -> io::Result<Host> {
        let server = Server::pinned(&["--client-output-buffer-limit", "pubsub 0 0 0"], true)?;
        let mut control = server.conn()?;
        control.ask(&format!("CONFIG SET lock.max-tickets {}", case.tickets))?;
        let empty = Memory::read(&mut control)?;
        Ok(Host {
            server,
            control,
            empty,
        })
    }

    fn settled(&mut self) -> io::Result<Memory> {
        let read = || Ok(vec![Memory::read(&mut self.control)?]);
        Ok(settle(read, SETTLING, STILL)?[0])
    }
}

impl Case {
    fn measure(&self, rounds: usize, samples: usize) -> io::Result<Figures> {
        let mut figures = Figures {
            case: *self,
            enqueued: Vec::new(),
            memory: Vec::new(),
            limited: None,
            hand_offs: HandOffs::default(),
            ends: Vec::new(),
        };
        if self.many {
            for end in end::ALL {
                figures.run(Some(end), samples)?;
            }
        } else {
            (0..rounds).try_for_each(|_| figures.run(None, samples))?;
        }
        Ok(figures)
    }
}

impl Figures {
    fn run(&mut self, end: Option<End>, samples: usize) -> io::Result<()> {
        let case = self.case;
        let name = end.map_or("hand-offs", End::name);
        eprintln!("tickets: {} on {} keys: {name}", case.tickets, case.keys);
        let mut host = Host::start(&case)?;
        let limit = (end == Some(End::Limit)).then(|| self.time_to_enqueue());
        let deadline = limit.map(|limit| Instant::now() + limit);
        let (mut queue, enqueued) = Queue::fill(&host.server, &case, deadline)?;
        let memory = Memory::read(&mut host.control)?.each_since(host.empty, case.tickets);
        match deadline {
            Some(_) => self.limited = Some(memory),
            None => self.memory.push(memory),
        }
        self.enqueued.push(enqueued);
        if case.keys == 1 && deadline.is_none() {
            self.hand_offs
                .measure(samples, &host.server, || queue.hand_off())?;
        }
        if let Some(end) = end {
            let ended = end::measure(&host.server, queue, end, deadline)?;
            self.ends.push((end, ended, host.left()?));
        }
        Ok(())
    }

    /// Longer than it took so far to enqueue all tickets: then they have one deadline.
    fn time_to_enqueue(&self) -> Duration {
        let rates = self.enqueued.iter().map(|enqueued| enqueued.per_s);
        let slowest = self.case.tickets as f64 / rates.fold(f64::INFINITY, f64::min);
        Duration::from_secs(5) + Duration::from_secs_f64(3.0 * slowest)
    }
}

impl Host {
    fn left(&mut self) -> io::Result<Left> {
        self.control.ask("FLUSHALL")?;
        let memory = self.settled()?.each_since(self.empty, 1);
        self.control.ask("MEMORY PURGE")?;
        let purged = self.settled()?.each_since(self.empty, 1);
        Ok(Left { memory, purged })
    }
}
