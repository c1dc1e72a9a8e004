//! The guard of a held lock: its renewal task and its release.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::hold::{certain, Hold};
use crate::lock::loss::Lost;
use crate::lock::release::{First, Release, Undo};
use crate::lock::renewal::keep;
use crate::lock::reservation::Reservation;
use crate::lock::slices::ParkedSlices;
use crate::lock::terms::Terms;
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::command::Claim;
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, within, Task};
use crate::shown::Text;
use crate::statistics::Counted;

/// A lock that is held. Dropping it, in any thread or runtime, releases the lock in the background. A program that is
/// about to end calls [`release`](Guard::release) or waits for [`Server::settled`](crate::Server::settled); otherwise
/// the lock may stay held until its lease ends.
///
/// ```no_run
/// # async fn work(_token: u64) {}
/// # async fn example(guard: redis_lock_client::Guard) -> Result<(), redis_lock_client::Error> {
/// tokio::select! {
///     () = work(guard.token()) => { guard.release().await?; }
///     why = guard.lost() => eprintln!("stop within {:?}: {why}", guard.valid_for()),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, the lock is given back"]
pub struct Guard {
    hold: Arc<Hold>,
    renewal: Task,
    /// Whether the renewal task owns the connection that the hold is bound to.
    is_bound: bool,
    leftovers: Leftovers,
    is_released: bool,
    _counted: Counted,
}

/// The unfinished parts of an acquisition, which its guard takes over.
pub(crate) struct Leftovers {
    /// The time until which an abandoned acquire may still be served.
    pub acquires_until: Option<Instant>,
    /// The time until which an abandoned release may still be served.
    pub releases_until: Option<Instant>,
    pub reservation: Reservation,
}

impl Guard {
    pub(crate) fn new(
        terms: &Terms,
        claim: Claim,
        token: u64,
        sent: Moment,
        leftovers: Leftovers,
        bound: Option<Caller>,
    ) -> Guard {
        let server = terms.server.clone();
        let hold = Hold::new(server, claim, token, terms.lease, terms.margin, sent);
        let hold = Arc::new(hold);
        let is_bound = bound.is_some();
        let renewal = runtime::spawn(keep(hold.clone(), bound));
        Guard {
            renewal,
            is_bound,
            leftovers,
            is_released: false,
            _counted: terms.server.counts().holds.count(),
            hold,
        }
    }

    /// Records the grant, `waited` after the acquisition began.
    pub(crate) fn record_grant(&self, waited: Duration) {
        let hold = &self.hold;
        events::acquired(&hold.server, &hold.claim, hold.token, waited);
    }

    /// The fencing token of this grant: higher than that of every earlier grant of this key. Pass it to the resource
    /// that the lock protects, which has to refuse lower ones. (Readers that hold a lock together share one.)
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        &self.hold.claim.key
    }

    /// The owner that holds the lock.
    pub fn owner(&self) -> &[u8] {
        &self.hold.claim.owner
    }

    pub(crate) fn server_name(&self) -> String {
        self.hold.server.name().to_string()
    }

    /// A future that completes when the lock is lost: at once when the server reports it, and at the
    /// [margin](crate::Lock::margin) before the end of the lease when no renewal is confirmed. It can be created any
    /// number of times and outlives the guard; after a release it never completes.
    pub fn lost(&self) -> Lost {
        self.hold.notice.lost()
    }

    /// How long the lock is certainly still held: the lease less a millisecond, less the time since the last confirmed
    /// request was sent, by the monotonic or the wall clock of this machine, whichever shows more. Zero when the server
    /// has reported the loss. After a loss without a confirmation ([`LostReason::Unconfirmed`]) it is the rest of the
    /// lease: the time left to stop.
    pub fn valid_for(&self) -> Duration {
        match self.hold.notice.reason() {
            None | Some(LostReason::Unconfirmed) => {
                certain(self.hold.lease()).saturating_sub(self.hold.confirmed().elapsed())
            }
            Some(_) => Duration::ZERO,
        }
    }

    /// Releases the lock and waits for the reply of the server.
    ///
    /// # Errors
    /// When the server could not be reached until the lease was over, or refused. The release of a
    /// [session](crate::Lock::session) goes on in the background then.
    pub async fn release(mut self) -> Result<Released> {
        // The renewal task keeps the connection open: its end would release the lock before the reply.
        if self.is_bound {
            self.hold.notice.finish();
        } else {
            self.stop_renewal();
        }
        self.leftovers.reservation.settle();
        let hold = self.hold.clone();
        let end = hold.latest_end();
        let end = end.max(Instant::now() + hold.server.patience());
        let release = Release::until(&hold.server, &hold.claim, Some(hold.token), end);
        let release = within(async { Ok(release.await) }).await?;
        let is_unreached = release.outcome.as_ref().is_err_and(Error::is_passing);
        self.is_released = !(self.is_bound && is_unreached);
        self.leftovers.releases_until = release.under_way_until;
        let token = Some(hold.token);
        match &release.outcome {
            Ok(_) => events::released(&hold.server, &hold.claim, token),
            Err(error) => events::not_released(&hold.server, &hold.claim, token, error),
        }
        release.outcome
    }

    /// The same as background work: counted, and recorded if it fails.
    pub(crate) async fn release_counted(self) -> Result<Released> {
        let running = self.hold.server.background().begin();
        let claim = self.hold.claim.clone();
        let released = self.release().await;
        if let Err(error) = &released {
            running.fail(&claim, error.clone());
        }
        released
    }

    fn stop_renewal(&self) {
        self.hold.notice.finish();
        self.renewal.end();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hold = &self.hold;
        f.debug_struct("Guard")
            .field("server", &hold.server)
            .field("key", &Text(&hold.claim.key))
            .field("kind", &hold.claim.kind)
            .field("token", &hold.token)
            .field("lost", &hold.notice.reason())
            .finish_non_exhaustive()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop_renewal();
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
            lease: hold.lease().max(hold.latest_end() - Instant::now()),
            is_bound: self.is_bound,
            first,
            acquires_until: under_way.filter(|until| Instant::now() < *until),
            releases_until: self.leftovers.releases_until,
            reservation: std::mem::take(&mut self.leftovers.reservation),
            parked: ParkedSlices::default(),
        };
        undo.start();
    }
}
