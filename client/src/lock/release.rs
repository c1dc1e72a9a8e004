//! The release of a hold, and the undoing of an abandoned acquisition.
//!
//! A request whose connection was closed may still be in a buffer of the network, or of a server that is paused. Served
//! later, it takes a lock for an owner that no longer exists. So it is undone three times: at once, a moment later, and
//! when it can no longer be served.

use std::time::Duration;

use redis::Value;
use tokio::time::{sleep_until, Instant};

use crate::backoff::Pause;
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::reservation::Reservation;
use crate::lock::slices::ParkedSlices;
use crate::net::background::Running;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};
use crate::net::server::Server;
use crate::outcome::Released;
use crate::runtime;

/// Time after which a server that is not paused has read a request that was sent.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long the release of a hold that is bound to a connection is repeated. Such a hold does not end with its lease: a
/// server that has not noticed the end of the connection (`tcp-keepalive`) renews it.
const LONGEST_BOUND: Duration = Duration::from_secs(600);

/// A hold or a wait to be undone in the background.
pub(crate) struct Undo {
    pub server: Server,
    pub claim: Claim,
    pub lease: Duration,
    /// Whether the hold is bound to a connection.
    pub is_bound: bool,
    pub first: First,
    /// The time until which an abandoned acquire may still be served.
    pub acquires_until: Option<Instant>,
    /// The time until which an abandoned release may still be served.
    pub releases_until: Option<Instant>,
    pub reservation: Reservation,
    /// The connections of a wait. They are closed after its withdrawal: closed earlier, the server would keep the place
    /// in the queue for a while.
    pub parked: ParkedSlices,
}

/// What the first release covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// The grant with this token.
    Grant(u64),
    /// A grant whose token differs from server to server.
    Hold,
    /// All holds and waits of the owner.
    Everything,
    /// The same, and a ticket may have been granted.
    Ticket,
    Nothing,
}

impl Undo {
    /// Starts the background task, if anything is to be undone.
    pub(crate) fn start(mut self) {
        if self.first == First::Nothing
            && self.acquires_until.is_none()
            && (self.releases_until.is_none() || !self.reservation.is_named())
        {
            return;
        }
        self.reservation.settle();
        let is_of_owner = matches!(self.first, First::Everything | First::Ticket);
        if is_of_owner && self.reservation.has_other_mode() {
            // Undone later, if the owner has nothing in another mode by then.
            let late = Instant::now() + self.server.patience();
            self.first = First::Nothing;
            self.acquires_until = self.acquires_until.max(Some(late));
        }
        let running = self.server.background().begin();
        runtime::spawn(self.run(running));
    }

    async fn run(mut self, running: Running) {
        let token = match self.first {
            First::Grant(token) => Some(token),
            First::Hold | First::Everything | First::Ticket | First::Nothing => None,
        };
        let mut is_unreached = false;
        if self.first != First::Nothing {
            let released = self.release(token).await;
            is_unreached = released.as_ref().is_err_and(Error::is_passing);
            // If nothing can have been granted, a refusal is that of the acquire again and is no failure.
            let may_hold =
                token.is_some() || self.acquires_until.is_some() || self.first == First::Ticket;
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
        self.parked = ParkedSlices::default();
        drop(running);
        if is_unreached && self.is_bound {
            self.lease = LONGEST_BOUND;
            let _ = self.release(token).await;
        }
        let name = self.reservation.name();
        self.end_reservation().await;
        let Some(last) = self.acquires_until else {
            return;
        };
        for moment in [Instant::now() + A_MOMENT, last] {
            sleep_until(moment).await;
            // If another acquisition has reserved the name meanwhile, the server counts the late request as that one's.
            if let Some(reservation) = Reservation::try_reserve_to_undo(name.clone()) {
                self.reservation = reservation;
                let _ = self.release(None).await;
                self.end_reservation().await;
            }
        }
    }

    async fn release(&mut self, token: Option<u64>) -> Result<Released> {
        let end = Instant::now() + self.lease;
        let release = Release::until(&self.server, &self.claim, token, end).await;
        self.releases_until = self.releases_until.max(release.under_way_until);
        release.outcome
    }

    /// Waits until no release can still be served, which would end the next hold under this name.
    async fn end_reservation(&mut self) {
        if let (Some(until), true) = (self.releases_until, self.reservation.is_named()) {
            sleep_until(until).await;
        }
        self.reservation = Reservation::default();
    }
}

/// Releases in the background what a fresh owner holds or may hold.
pub(crate) fn release_later(server: &Server, claim: Claim, first: First, lease: Duration) {
    let undo = Undo {
        server: server.clone(),
        claim,
        lease,
        is_bound: false,
        first,
        acquires_until: Some(Instant::now() + server.patience()),
        releases_until: None,
        reservation: Reservation::default(),
        parked: ParkedSlices::default(),
    };
    undo.start();
}

/// The result of a release that is sent until it is answered.
pub(crate) struct Release {
    pub outcome: Result<Released>,
    /// The time until which an unanswered one may still be served.
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
                // An earlier request without a reply may have been served.
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
