//! Giving back: what a guard holds, and what an acquisition that was given up may have got.
//!
//! A request whose connection was given up may still be on its way: in a buffer of the network, or of a
//! server that stands still. Served after all, it gets a lock without a holder. So it is undone more than once:
//! at once, a moment later, and when it cannot be under way any more.

use std::time::Duration;

use redis::Value;
use tokio::time::{sleep_until, Instant};

use crate::backoff::Pause;
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::reservation::Turn;
use crate::lock::slices::Parked;
use crate::net::background::Running;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};
use crate::net::server::Server;
use crate::outcome::Released;
use crate::runtime;

/// A request that was sent and not read yet is read by then, where nothing stands still.
const A_MOMENT: Duration = Duration::from_millis(100);

/// What is to be given back in the background.
pub(crate) struct Undo {
    pub server: Server,
    pub claim: Claim,
    pub lease: Duration,
    pub first: First,
    /// Until when an acquire that was given up may be under way.
    pub acquires_until: Option<Instant>,
    /// Until when a release that was given up may be under way.
    pub releases_until: Option<Instant>,
    pub turn: Turn,
    /// The connections of a wait: closed when the wait is withdrawn, or its place in the queue would be kept
    /// for a while.
    pub parked: Parked,
}

/// What is given back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// This grant.
    Grant(u64),
    /// A grant whose token differs from server to server.
    Hold,
    /// Whatever the owner has, or waits for.
    Everything,
    Nothing,
}

impl Undo {
    /// Does it in the background.
    pub(crate) fn start(self) {
        if self.first == First::Nothing
            && self.acquires_until.is_none()
            && (self.releases_until.is_none() || !self.turn.is_known())
        {
            return;
        }
        let running = self.server.background().begin();
        runtime::spawn(self.run(running));
    }

    async fn run(mut self, running: Running) {
        let token = match self.first {
            First::Grant(token) => Some(token),
            First::Hold | First::Everything | First::Nothing => None,
        };
        if self.first != First::Nothing {
            let released = self.release(token).await;
            // Where nothing may have been granted, the server refuses what it has refused before.
            let may_hold = token.is_some() || self.acquires_until.is_some();
            match released {
                Err(error) if may_hold || error.is_passing() => {
                    events::left_behind(&self.server, &self.claim, token, &error);
                    running.fail(&self.claim, error);
                }
                Ok(_) if matches!(self.first, First::Grant(_) | First::Hold) => {
                    events::released(&self.server, &self.claim, token);
                }
                _ => {}
            }
        }
        self.parked = Parked::default();
        drop(running);
        let name = self.turn.name();
        self.pass_the_turn().await;
        let Some(last) = self.acquires_until else {
            return;
        };
        for moment in [Instant::now() + A_MOMENT, last] {
            sleep_until(moment).await;
            // An acquisition under this name meanwhile is in place of the former request.
            if let Some(turn) = Turn::take(name.clone()) {
                self.turn = turn;
                let _ = self.release(None).await;
                self.pass_the_turn().await;
            }
        }
    }

    async fn release(&mut self, token: Option<u64>) -> Result<Released> {
        let end = Instant::now() + self.lease;
        let release = Release::until(&self.server, &self.claim, token, end).await;
        self.releases_until = self.releases_until.max(release.under_way_until);
        release.outcome
    }

    /// A release that comes late would hit the next hold under this name.
    async fn pass_the_turn(&mut self) {
        if let (Some(until), true) = (self.releases_until, self.turn.is_known()) {
            sleep_until(until).await;
        }
        self.turn = Turn::default();
    }
}

/// Gives back in the background what an owner of one acquisition holds or may hold.
pub(crate) fn release_later(server: &Server, claim: Claim, first: First, lease: Duration) {
    let undo = Undo {
        server: server.clone(),
        claim,
        lease,
        first,
        acquires_until: Some(Instant::now() + server.patience()),
        releases_until: None,
        turn: Turn::default(),
        parked: Parked::default(),
    };
    undo.start();
}

/// A release, sent until it was answered.
pub(crate) struct Release {
    pub outcome: Result<Released>,
    /// Until when one that was not answered may be under way.
    pub under_way_until: Option<Instant>,
}

impl Release {
    pub(crate) async fn until(
        server: &Server,
        claim: &Claim,
        token: Option<u64>,
        end: Instant,
    ) -> Release {
        let mut caller = Caller::shared(server, &claim.key);
        let command = command::release(claim, token);
        let mut pause = Pause::new();
        let mut under_way_until = None;
        let outcome = loop {
            let reply = caller.call(&command, server.patience() / 2).await;
            if caller.was_unanswered() {
                under_way_until = Some(Instant::now() + server.patience());
            }
            match reply {
                // Sent twice, the first may have been served without our having heard of it.
                Ok(Value::Nil) if under_way_until.is_some() => break Ok(Released::Yes),
                Ok(Value::Nil) => break Ok(Released::NotHeld),
                Ok(Value::Int(_)) => break Ok(Released::Yes),
                Ok(_) => break Err(Error::reply(server.name())),
                Err(error) if error.is_passing() && Instant::now() + pause.next() < end => {
                    pause.sleep(Duration::MAX).await;
                }
                Err(error) => break Err(error),
            }
        };
        Release {
            outcome,
            under_way_until,
        }
    }
}
