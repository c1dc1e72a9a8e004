//! A lock that is held: renewed by a task of its own, and given back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::Moment;
use crate::command::Claim;
use crate::lock::Lock;
use crate::notice::{Lost, Notice};
use crate::release::{First, Release, Undo};
use crate::renewal::keep;
use crate::server::Server;
use crate::turn::Turn;
use crate::Result;

/// Why a lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// The server says that this grant is over: it was broken, deleted, its lease ran out, or the server
    /// lost its data.
    Taken,
    /// No renewal was confirmed before the lease ran out: the server is away, or this program was.
    Unconfirmed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Taken => "the lock was lost: the server says that the grant is over",
            LostReason::Unconfirmed => {
                "the lock was lost: no renewal was confirmed before its lease ran out"
            }
        })
    }
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lock was this holder's, and is free or the next waiter's now.
    Yes,
    /// The lock was no longer this holder's.
    NotHeld,
}

/// A lock that is held. Dropped, it is given back in the background: by the runtime that it is dropped in,
/// or by a thread where there is none. A program that is about to end, or to shut its runtime down, calls
/// [`release`](Guard::release) or waits for [`Server::settled`]; otherwise the lease has to end the lock.
#[derive(Debug)]
pub struct Guard {
    hold: Arc<Hold>,
    renewal: AbortHandle,
    leftovers: Leftovers,
    is_released: bool,
}

/// What an acquisition leaves to its guard besides the lock.
#[derive(Debug)]
pub(crate) struct Leftovers {
    /// Until when an acquire that was given up may be under way.
    pub acquires_until: Option<Instant>,
    /// The same for a release.
    pub releases_until: Option<Instant>,
    pub turn: Turn,
}

/// What the guard and its renewal share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub server: Server,
    pub claim: Claim,
    pub token: u64,
    pub lease: Duration,
    pub notice: Arc<Notice>,
    /// When the last request was sent that the server confirmed.
    confirmed: watch::Sender<Moment>,
}

impl Hold {
    pub(crate) fn confirm(&self, sent: Moment) {
        self.confirmed.send_replace(sent);
        self.notice.hold_until(sent.steady + certain(self.lease));
    }
}

/// What of a lease is certain. The server counts in whole milliseconds: for it the moment of the grant may
/// have been almost one earlier than it was.
pub(crate) fn certain(lease: Duration) -> Duration {
    lease.saturating_sub(Duration::from_millis(1))
}

impl Guard {
    pub(crate) fn new(
        lock: &Lock,
        claim: Claim,
        token: u64,
        sent: Moment,
        leftovers: Leftovers,
    ) -> Guard {
        let hold = Arc::new(Hold {
            server: lock.server.clone(),
            claim,
            token,
            lease: lock.lease,
            notice: Notice::new(sent.steady + certain(lock.lease)),
            confirmed: watch::Sender::new(sent),
        });
        let renewal = tokio::spawn(keep(hold.clone())).abort_handle();
        Guard {
            hold,
            renewal,
            leftovers,
            is_released: false,
        }
    }

    /// The fencing token of this grant: higher than that of every grant of this key before. Give it to
    /// whatever the lock protects, and let that refuse lower ones. (Readers that hold a lock together share
    /// one.)
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// The owner that holds the lock.
    pub fn owner(&self) -> &[u8] {
        &self.hold.claim.owner
    }

    pub(crate) fn server_name(&self) -> String {
        self.hold.server.name().to_string()
    }

    /// A future that ends when the lock is lost. It may be had as often as one likes, and outlives the
    /// guard; after a release it never ends.
    pub fn lost(&self) -> Lost {
        self.hold.notice.lost()
    }

    /// How long the lock is certainly still ours: the lease (but for a millisecond), less the time since before
    /// the last request was sent that the server confirmed, by the steady or the wall clock of this machine,
    /// whichever says more. Zero when the lock is lost.
    pub fn valid_for(&self) -> Duration {
        let passed = self.hold.confirmed.borrow().elapsed();
        match self.hold.notice.is_lost() {
            true => Duration::ZERO,
            false => certain(self.hold.lease).saturating_sub(passed),
        }
    }

    /// Gives the lock back, and waits for the server's word.
    ///
    /// # Errors
    /// When the server could not be reached until the lease was over, or refuses.
    pub async fn release(mut self) -> Result<Released> {
        self.renew_no_more();
        let hold = self.hold.clone();
        let end = hold
            .notice
            .end()
            .max(Instant::now() + hold.server.patience());
        let release = Release::until(&hold.server, &hold.claim, Some(hold.token), end).await;
        self.is_released = true;
        self.leftovers.releases_until = release.under_way_until;
        release.outcome
    }

    fn renew_no_more(&self) {
        self.hold.notice.finish();
        self.renewal.abort();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.renew_no_more();
        let hold = &self.hold;
        let is_gone = self.is_released || hold.notice.reason() == Some(LostReason::Taken);
        let first = if is_gone {
            First::Nothing
        } else {
            First::Grant(hold.token)
        };
        let under_way = self.leftovers.acquires_until;
        let undo = Undo {
            server: hold.server.clone(),
            claim: hold.claim.clone(),
            lease: hold.lease,
            first,
            acquires_until: under_way.filter(|until| Instant::now() < *until),
            releases_until: self.leftovers.releases_until,
            turn: std::mem::take(&mut self.leftovers.turn),
            parked: None,
        };
        undo.start();
    }
}
