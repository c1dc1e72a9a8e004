//! Many locks with a few waiters each: hand-offs one after the other, and on all locks at once.

use std::io;
use std::time::Duration;

use crate::cells::{count, short, with_spread};
use crate::crowd::{room, MANY_CLIENTS};
use crate::load::Effort;
use crate::report::Section;
use crate::ring::{Ring, Words, BLPOP, MODULE};
use crate::server::Server;
use crate::stats::{quantile, Summary};

const WAITERS: usize = 10;

struct Figures {
    name: &'static str,
    words: &'static Words,
    /// One after the other: every hand-off, and the median of every round.
    times_us: Vec<f64>,
    medians_us: Vec<f64>,
    /// All at once, of every round: hand-offs per second, and the server's time for each.
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    /// How busy the server's core was, in percent.
    busy: Vec<f64>,
}

impl Figures {
    fn new(name: &'static str, words: &'static Words) -> Figures {
        Figures {
            name,
            words,
            times_us: Vec::new(),
            medians_us: Vec::new(),
            rates: Vec::new(),
            cpu_us: Vec::new(),
            busy: Vec::new(),
        }
    }

    fn round(&mut self, locks: usize, time: Duration) -> io::Result<()> {
        let server = Server::pinned(&MANY_CLIENTS, self.words.module)?;
        let mut ring = Ring::new(&server, self.words, locks, WAITERS)?;
        let mut times = Vec::new();
        for sample in 0..2 * locks {
            times.push(ring.hand_off(sample % locks)?.as_nanos() as f64 / 1_000.0);
        }
        self.medians_us.extend(quantile(&times, 0.5));
        self.times_us.append(&mut times);
        let before = server.cpu_us();
        let storm = ring.storm(time)?;
        let cpu_us = server.cpu_us() - before;
        let seconds = storm.took.as_secs_f64();
        self.rates.push(storm.hand_offs as f64 / seconds);
        self.cpu_us.push(cpu_us / storm.hand_offs as f64);
        self.busy.push(cpu_us / seconds / 10_000.0);
        Ok(())
    }
}

/// The title of the section.
pub const TITLE: &str = "Hand-off, many locks";

/// Measures and reports.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let (wanted, rounds, time) = if effort.quick {
        (50, 3, Duration::from_millis(300))
    } else {
        (1_000, 5, Duration::from_secs(2))
    };
    let locks = wanted.min(room(WAITERS + 1)?);
    let mut all = [
        Figures::new("BLPOP", &BLPOP),
        Figures::new("this module", &MODULE),
    ];
    for round in 0..rounds {
        eprintln!("many locks: round {} of {rounds}", round + 1);
        all.iter_mut()
            .try_for_each(|figures| figures.round(locks, time))?;
        all.reverse();
    }
    all.sort_by_key(|figures| figures.words.module);
    let blpop = Summary::of(&all[0].rates).map_or(f64::NAN, |rates| rates.median);
    let columns = [
        "mechanism",
        "sequential: p50 us",
        "p99 us",
        "at once: hand-offs/s",
        "to BLPOP",
        "server CPU us",
        "server busy %",
    ];
    let rows = all.iter().map(|figures| {
        let rate = Summary::of(&figures.rates).map_or(f64::NAN, |rates| rates.median);
        vec![
            figures.name.into(),
            with_spread(&figures.medians_us),
            quantile(&figures.times_us, 0.99).map_or_else(String::new, short),
            with_spread(&figures.rates),
            short(rate / blpop),
            with_spread(&figures.cpu_us),
            Summary::of(&figures.busy).map_or_else(String::new, |busy| short(busy.median)),
        ]
    });
    let notes = [
        "Sequential: as above, one hand-off at a time, each lock after the other. At once: on every \
         lock the granted client releases and asks again in the same write; one client thread acts for \
         all of them. \"Server busy\" is its main thread; the kernel's work for the sockets on the same core, \
         outside of any process, is not included. Far below 100 %, something else was the \
         limit: the client, or another process on one of the cores.",
        "Redisson's protocol would need two connections for every waiter, more than the open files allow here.",
    ];
    Ok(vec![Section {
        title: TITLE.into(),
        text: "The state kept for one lock must not slow down the others.".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
        remarks: vec![format!(
            "{} locks with {WAITERS} waiters each.",
            count(locks)
        )],
        notes: notes.map(String::from).to_vec(),
        image: None,
    }])
}
