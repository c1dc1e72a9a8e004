//! The channel of a line: its tickets, its subscription, and its pauses after failures.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::net::tickets::ticket::Answer;

/// The first and the longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A subscribed channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    pub node: String,
    /// Of the connection.
    pub number: u64,
}

pub(super) struct Channel<P> {
    pub name: Vec<u8>,
    pub tickets: BTreeSet<u64>,
    pub due: BTreeSet<u64>,
    pub live: Option<Live>,
    /// Raised with each subscription and each end of one.
    pub epoch: u64,
    /// Attempts to subscribe since a request was last answered while subscribed.
    pub subscriptions: u32,
    pub pause: Duration,
    pub not_before: Option<Instant>,
    /// After a failure requests go one by one, until one is answered.
    pub is_probing: bool,
    /// `lock.drain` is on: `LOCKBUSY` passes.
    pub is_draining: bool,
    pub has_worker: bool,
    /// The waits park while this holds: the evidence, and the latest end.
    pub parking: Option<(P, Option<Instant>)>,
    pub used: Instant,
}

impl<P> Channel<P> {
    pub(super) fn new(name: Vec<u8>, now: Instant) -> Channel<P> {
        Channel {
            name,
            tickets: BTreeSet::new(),
            due: BTreeSet::new(),
            live: None,
            epoch: 0,
            subscriptions: 0,
            pause: FIRST_PAUSE,
            not_before: None,
            is_probing: false,
            is_draining: false,
            has_worker: false,
            parking: None,
            used: now,
        }
    }

    /// Whether it is unknown that requests are answered `QUEUED`.
    pub(super) fn is_alone(&self) -> bool {
        self.live.is_none() || self.is_probing
    }

    /// Whether the channel is subscribed on the connection with this number.
    pub(super) fn is_on(&self, number: u64) -> bool {
        self.live.as_ref().is_some_and(|live| live.number == number)
    }

    /// Counts the reply to a request that was sent in this epoch.
    pub(super) fn answered(&mut self, answer: &Answer, epoch: u64, now: Instant) {
        match answer {
            Answer::Later { .. } => self.fail(now),
            Answer::Busy if self.is_draining => self.fail(now),
            Answer::NoSubscriber | Answer::Unsupported => self.is_probing = false,
            _ => {
                self.is_probing = false;
                self.is_draining = false;
                self.pause = FIRST_PAUSE;
                if self.epoch == epoch && self.live.is_some() {
                    self.subscriptions = 0;
                }
            }
        }
    }

    /// Concurrent failures count as one.
    pub(super) fn fail(&mut self, now: Instant) {
        self.is_probing = true;
        if self.not_before.is_some_and(|moment| now < moment) {
            return;
        }
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}
