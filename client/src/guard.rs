//! A lock that is held: renewed by a task of its own, and given back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Moment;
use crate::command::Claim;
use crate::lock::Lock;
use crate::notice::{Lost, Notice};
use crate::parked::Parked;
use crate::release::{First, Release, Undo};
use crate::renewal::keep;
use crate::runtime::{self, within, Task};
use crate::server::Server;
use crate::turn::Turn;
use crate::Result;

/// Why a lock is no longer held.
///
/// ```
/// use redis_lock_client::LostReason;
///
/// let told = LostReason::Taken.to_string();
/// assert_eq!(told, "the lock was lost: the server says that the grant is over");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The server says that this grant is over: it was broken, deleted, its lease ran out, or the server
    /// lost its data.
    Taken,
    /// No renewal was confirmed until the [margin](crate::Lock::margin) before the lease's end: the server is away,
    /// or this program was. Until that end the lock is still this holder's.
    Unconfirmed,
    /// The server does not renew the lock any more, and will not do so in time: the key holds something else
    /// (`WRONGTYPE`, `LOCKTYPE`), the user may not (`NOPERM`, `NOAUTH`, `WRONGPASS`), the server is a replica
    /// (`READONLY`).
    Refused {
        /// The first word of the server's error.
        code: String,
        /// The rest.
        text: String,
    },
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostReason::Taken => {
                f.write_str("the lock was lost: the server says that the grant is over")
            }
            LostReason::Unconfirmed => {
                f.write_str("the lock was lost: no renewal was confirmed in time")
            }
            LostReason::Refused { code, text } => write!(
                f,
                "the lock was lost: the server does not renew it: {code} {text}"
            ),
        }
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

/// A lock that is held. Dropped, it is given back in the background, wherever it is dropped. A program that is about
/// to end calls [`release`](Guard::release) or waits for [`Server::settled`]; otherwise the lease has to end the
/// lock.
#[derive(Debug)]
#[must_use = "dropped, the lock is given back"]
pub struct Guard {
    hold: Arc<Hold>,
    renewal: Task,
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
    /// How long after a confirmed request the loss is told.
    told_after: Duration,
    pub notice: Arc<Notice>,
    /// When the last request was sent that the server confirmed.
    confirmed: watch::Sender<Moment>,
}

impl Hold {
    pub(crate) fn confirmed(&self) -> Moment {
        *self.confirmed.borrow()
    }

    pub(crate) fn confirm(&self, sent: Moment) {
        self.confirmed.send_replace(sent);
        self.notice.hold_until(sent.steady + self.told_after);
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
            told_after: lock.certain(),
            notice: Notice::new(sent.steady),
            confirmed: watch::Sender::new(sent),
        });
        hold.confirm(sent);
        let renewal = runtime::spawn(keep(hold.clone()));
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

    /// A future that ends when the lock is lost: at once when the server says so, and at the
    /// [margin](crate::Lock::margin) before the lease's end when the server says nothing. It may be had as often as one likes, and
    /// outlives the guard; after a release it never ends.
    pub fn lost(&self) -> Lost {
        self.hold.notice.lost()
    }

    /// How long the lock is certainly still ours: the lease (but for a millisecond), less the time since before
    /// the last request was sent that the server confirmed, by the steady or the wall clock of this machine,
    /// whichever says more. Zero when the server has said that the lock is lost. After a loss for want of a
    /// confirmation it is what is left of the lease: the time to stop in.
    pub fn valid_for(&self) -> Duration {
        match self.hold.notice.reason() {
            None | Some(LostReason::Unconfirmed) => {
                certain(self.hold.lease).saturating_sub(self.hold.confirmed().elapsed())
            }
            Some(_) => Duration::ZERO,
        }
    }

    /// Gives the lock back, and waits for the server's word.
    ///
    /// # Errors
    /// When the server could not be reached until the lease was over, or refuses.
    pub async fn release(mut self) -> Result<Released> {
        self.renew_no_more();
        let hold = self.hold.clone();
        let lease_end = hold.confirmed().steady + hold.lease;
        let end = lease_end.max(Instant::now() + hold.server.patience());
        let release = Release::until(&hold.server, &hold.claim, Some(hold.token), end);
        let release = within(async { Ok(release.await) }).await?;
        self.is_released = true;
        self.leftovers.releases_until = release.under_way_until;
        release.outcome
    }

    fn renew_no_more(&self) {
        self.hold.notice.finish();
        self.renewal.end();
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
            parked: Parked::default(),
        };
        undo.start();
    }
}
