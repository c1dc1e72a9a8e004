//! What every peer is made to do, and how long it took, in microseconds.
//!
//! One thread drives all sessions, each over a blocking connection of its own: a grant is read by the
//! thread that sent the release, so no wake-up between threads is measured.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::{Peer, Session};

/// Samples of one work in one round: at most so many.
const SAMPLES: usize = 500;

/// No waiter takes longer to get into its queue.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is measured.
#[derive(Clone, Copy)]
pub enum Work {
    /// Acquire and release by one session, nobody else about.
    Pair,
    /// From sending the release to reading the next one's grant, with so many waiting.
    HandOff(usize),
}

/// All of it.
pub const WORKS: [Work; 4] = [
    Work::Pair,
    Work::HandOff(1),
    Work::HandOff(16),
    Work::HandOff(100),
];

impl Work {
    /// For a heading.
    pub fn title(self) -> String {
        match self {
            Work::Pair => "Acquire and release, uncontended".into(),
            Work::HandOff(1) => "Hand-off, 1 waiter".into(),
            Work::HandOff(waiters) => format!("Hand-off, {waiters} waiters"),
        }
    }

    /// One round of samples, taken for no longer than this.
    pub fn sample(self, peer: &dyn Peer, time: Duration) -> io::Result<Vec<f64>> {
        match self {
            Work::Pair => pairs(peer.session()?, time),
            Work::HandOff(waiters) => hand_offs(peer, waiters, time),
        }
    }
}

fn pairs(mut session: Box<dyn Session>, time: Duration) -> io::Result<Vec<f64>> {
    sampled(time, || {
        let start = Instant::now();
        session.ask()?;
        session.granted()?;
        session.give_back()?;
        session.given_back()?;
        Ok(start.elapsed())
    })
}

/// The sessions stand in the order of the queue. Who gave the lock back queues again at the end, and
/// nothing is measured before the server says that all of them wait.
fn hand_offs(peer: &dyn Peer, waiters: usize, time: Duration) -> io::Result<Vec<f64>> {
    let mut watcher = peer.session()?;
    let mut ring = VecDeque::new();
    let mut holder = peer.session()?;
    holder.ask()?;
    holder.granted()?;
    for waiting in 1..=waiters {
        let mut waiter = peer.session()?;
        waiter.ask()?;
        until_waiting(&mut *watcher, waiting)?;
        ring.push_back(waiter);
    }

    let took = sampled(time, || {
        until_parked(&mut *watcher, waiters)?;
        until_waiting(&mut *watcher, waiters)?;
        let Some(mut next) = ring.pop_front() else {
            return Err(io::Error::other("nobody waits"));
        };
        let start = Instant::now();
        holder.give_back()?;
        next.granted()?;
        let took = start.elapsed();
        holder.given_back()?;
        holder.ask()?;
        ring.push_back(std::mem::replace(&mut holder, next));
        Ok(took)
    })?;

    for mut next in ring {
        holder.give_back()?;
        next.granted()?;
        holder.given_back()?;
        holder = next;
    }
    holder.give_back()?;
    holder.given_back()?;
    Ok(took)
}

fn until_waiting(watcher: &mut dyn Session, wanted: usize) -> io::Result<()> {
    let start = Instant::now();
    while watcher.waiting()? != wanted {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{wanted} should wait")));
        }
    }
    Ok(())
}

fn until_parked(watcher: &mut dyn Session, wanted: usize) -> io::Result<()> {
    let start = Instant::now();
    while !watcher.parked(wanted)? {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{wanted} should be parked")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn sampled(
    time: Duration,
    mut sample: impl FnMut() -> io::Result<Duration>,
) -> io::Result<Vec<f64>> {
    let start = Instant::now();
    let mut took = Vec::new();
    while took.len() < SAMPLES && start.elapsed() < time {
        took.push(sample()?.as_secs_f64() * 1e6);
    }
    Ok(took)
}
