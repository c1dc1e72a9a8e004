//! The clients that take exclusive locks at full speed. Each records the holds that it was granted, with the times of
//! its requests and replies.

use std::time::Duration;

use crate::history::{now, Nanos};
use crate::wire::{Reply, Wire};

/// No reply by then: the server is gone.
const LIMIT: Duration = Duration::from_secs(20);

/// Every third grant is of one of these locks, which all clients want.
const CONTENDED: u64 = 3;

/// A hold, as its owner knows it. `None`: no reply was received.
#[derive(Debug, Clone)]
pub struct Hold {
    pub key: String,
    pub owner: String,
    pub token: i64,
    /// When the acquire was sent.
    pub sent: Nanos,
    /// When its reply was received.
    pub replied: Nanos,
    pub renewal_sent: Option<Nanos>,
    pub renewed: Option<Nanos>,
    pub release_sent: Option<Nanos>,
    pub released: Option<Nanos>,
}

/// One client: works until the server is gone.
pub struct Client {
    pub id: u64,
    pub round: u64,
    pub port: u16,
    pub lease_ms: u64,
    /// The lease that a renewal sets.
    pub renewed_ms: u64,
    pub rng: fastrand::Rng,
}

impl Client {
    pub fn work(mut self) -> Vec<Hold> {
        let mut holds = Vec::new();
        let Some(mut wire) = Wire::open(self.port) else {
            return holds;
        };
        for number in 0.. {
            if self.step(&mut wire, &mut holds, number).is_none() {
                break;
            }
        }
        holds
    }

    /// Acquires a lock; mostly releases it or renews it.
    fn step(&mut self, wire: &mut Wire, holds: &mut Vec<Hold>, number: u64) -> Option<()> {
        let (id, round, lease) = (self.id, self.round, self.lease_ms);
        let owner = format!("{round}.{id}.{number}");
        let is_contended = self.rng.u8(..3) == 0;
        let (key, wait) = match is_contended {
            true => (format!("c:{}", self.rng.u64(..CONTENDED)), "BLOCK 400"),
            false => (format!("own:{owner}"), ""),
        };
        let sent = now();
        let line = format!("LOCK.ACQUIRE {key} {owner} PX {lease} {wait}");
        let Reply::Int(token) = wire.line(&line, LIMIT)? else {
            return Some(());
        };
        let at = holds.len();
        holds.push(Hold {
            key,
            owner,
            token,
            sent,
            replied: now(),
            renewal_sent: None,
            renewed: None,
            release_sent: None,
            released: None,
        });
        if is_contended || self.rng.u8(..3) > 0 {
            return release(wire, &mut holds[at]);
        }
        match self.rng.u8(..4) {
            0 => renew(wire, &mut holds[at], self.renewed_ms),
            1 => release(wire, pick(holds, &mut self.rng)),
            _ => Some(()),
        }
    }
}

fn pick<'a>(holds: &'a mut [Hold], rng: &mut fastrand::Rng) -> &'a mut Hold {
    let at = rng.usize(..holds.len());
    &mut holds[at]
}

fn renew(wire: &mut Wire, hold: &mut Hold, lease: u64) -> Option<()> {
    hold.renewal_sent = Some(now());
    let line = format!("LOCK.RENEW {} {} PX {lease}", hold.key, hold.owner);
    if wire.line(&line, LIMIT)? == Reply::Int(1) {
        hold.renewed = Some(now());
    }
    Some(())
}

fn release(wire: &mut Wire, hold: &mut Hold) -> Option<()> {
    if hold.release_sent.is_some() {
        return Some(());
    }
    hold.release_sent = Some(now());
    let line = format!("LOCK.RELEASE {} {}", hold.key, hold.owner);
    if wire.line(&line, LIMIT)? == Reply::Int(1) {
        hold.released = Some(now());
    }
    Some(())
}
