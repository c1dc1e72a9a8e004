//! The works of every peer, and their times, in microseconds.
//!
//! One thread drives all sessions, each over a blocking connection of its own: a grant is read by the thread that sent
//! the release, so no wake-up between threads is measured.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::{Peer, Session};

/// The maximum number of samples of one work in one round.
const SAMPLES: usize = 500;

/// No waiter takes longer to join the queue.
const PATIENCE: Duration = Duration::from_secs(10);

/// The measured works.
#[derive(Clone, Copy)]
pub enum Work {
    /// Acquire and release by one session, without others.
    Pair,
    /// From sending the release to reading the next grant, with this number of waiters.
    HandOff(usize),
}

/// All works.
pub const WORKS: [Work; 4] = [
    Work::Pair,
    Work::HandOff(1),
    Work::HandOff(16),
    Work::HandOff(100),
];

impl Work {
    /// The name in a heading.
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

/// The sessions are in the order of the queue. The former holder joins the queue again at the end, and nothing is
/// measured before the server reports that all of them wait.
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
            return Err(io::Error::other("no session waits"));
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
            return Err(io::Error::other(format!(
                "{wanted} sessions should be parked"
            )));
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
