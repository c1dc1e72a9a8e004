//! Measures the latency of `LOCK.ACQUIRE` with `LOCK.RELEASE` of a key that no other client uses, and of `PING` beside
//! it, which shows the noise of the machine; and reads the largest numbers under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::figures::Quantiles;
use super::site::field;
use crate::stall::STALL;
use crate::wire::{Reply, Wire};

/// Between two measurements.
const BEAT: Duration = Duration::from_millis(10);

/// Between two readings of `INFO`.
const READING: Duration = Duration::from_secs(1);

const LIMIT: Duration = Duration::from_secs(5);

/// Latencies, in microseconds.
#[derive(Debug, Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of latencies that the history marks as stalls.
    pub fn stalls(&self) -> u64 {
        let stall = (STALL / 1_000) as u32;
        self.0.iter().filter(|micros| **micros > stall).count() as u64
    }

    pub fn quantiles(mut self) -> Quantiles {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        [0.5, 0.99, 0.999, 1.0].map(|share| {
            let at = (last as f64 * share).round() as usize;
            self.0.get(at).copied().unwrap_or(0)
        })
    }
}

/// The results of a minute.
#[derive(Debug, Default)]
pub struct Probed {
    pub pair: Latencies,
    pub ping: Latencies,
    pub used_most: u64,
    pub waiters_most: u64,
    pub tickets_most: u64,
}

/// A thread that measures.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Probed>,
}

impl Probe {
    pub fn start(port: u16) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        Probe {
            stop,
            thread: std::thread::spawn(move || measure(port, &over)),
        }
    }

    pub fn end(self) -> Probed {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the probe")
    }
}

fn measure(port: u16, over: &AtomicBool) -> Probed {
    let (mut probed, mut wire) = (Probed::default(), None);
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT);
        // Clients are killed, this one too.
        let Some(mut open) = wire.take().or_else(|| Wire::open(port)) else {
            continue;
        };
        if beat(&mut open, &mut probed).is_none() {
            continue;
        }
        if Instant::now() > next {
            next = Instant::now() + READING;
            if read(&mut open, &mut probed).is_none() {
                continue;
            }
        }
        wire = Some(open);
    }
    probed
}

/// `None`: the connection is lost.
fn beat(wire: &mut Wire, probed: &mut Probed) -> Option<()> {
    let (micros, _) = timed(wire, "PING")?;
    probed.ping.0.push(micros);
    // ONCE: the connection may have been killed before the last release.
    let (acquire, token) = timed(wire, "LOCK.ACQUIRE probe p PX 5000 ONCE")?;
    let (release, freed) = timed(wire, "LOCK.RELEASE probe p")?;
    // A changed setting can refuse the request.
    if matches!((token, freed), (Reply::Int(_), Reply::Int(1))) {
        probed.pair.0.push(acquire + release);
    }
    Some(())
}

fn timed(wire: &mut Wire, line: &str) -> Option<(u32, Reply)> {
    let start = Instant::now();
    let reply = wire.line(line, LIMIT)?;
    Some((start.elapsed().as_micros() as u32, reply))
}

fn read(wire: &mut Wire, probed: &mut Probed) -> Option<()> {
    let memory = wire.line("INFO memory", LIMIT)?;
    let info = wire.line("INFO lock", LIMIT)?;
    let of = |name| field(info.text(), name);
    let waiters = of("lock_waiters") + of("lock_sem_waiters") + of("lock_latch_waiters");
    let used = field(memory.text(), "used_memory");
    probed.used_most = probed.used_most.max(used);
    probed.waiters_most = probed.waiters_most.max(waiters);
    probed.tickets_most = probed.tickets_most.max(of("lock_tickets"));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::Latencies;

    #[test]
    fn quantiles_are_values_of_the_series() {
        let series = Latencies((1..=2_001).rev().collect());
        assert_eq!(series.quantiles(), [1_001, 1_981, 1_999, 2_001]);
        assert_eq!(Latencies::default().quantiles(), [0; 4]);
    }
}
