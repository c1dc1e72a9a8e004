//! A lock that is held: renewed by a task of its own, and given back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Result;
use crate::lock::events;
use crate::lock::hold::{certain, Hold};
use crate::lock::loss::Lost;
use crate::lock::release::{First, Release, Undo};
use crate::lock::renewal::keep;
use crate::lock::reservation::Turn;
use crate::lock::slices::Parked;
use crate::lock::terms::Terms;
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::command::Claim;
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, within, Task};
use crate::statistics::Counted;

/// A lock that is held. Dropped, it is given back in the background, wherever it is dropped. A program that is about
/// to end calls [`release`](Guard::release) or waits for [`Server::settled`](crate::Server::settled); otherwise the lease has to end the
/// lock.
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
#[derive(Debug)]
#[must_use = "dropped, the lock is given back"]
pub struct Guard {
    hold: Arc<Hold>,
    renewal: Task,
    /// Whether the renewal has the connection that the hold is bound to.
    is_bound: bool,
    leftovers: Leftovers,
    is_released: bool,
    _counted: Counted,
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
        let told_after = terms.told_after();
        let hold = Hold::new(server, claim, token, terms.lease, told_after, sent);
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

    /// It was granted so long after the acquisition began.
    pub(crate) fn tell_of_grant(&self, waited: Duration) {
        let hold = &self.hold;
        events::acquired(&hold.server, &hold.claim, hold.token, waited);
    }

    /// The fencing token of this grant: higher than that of every grant of this key before. Give it to
    /// whatever the lock protects, and let that refuse lower ones. (Readers that hold a lock together share
    /// one.)
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
        // The end of that connection would be the release.
        if self.is_bound {
            self.hold.notice.finish();
        } else {
            self.renew_no_more();
        }
        let hold = self.hold.clone();
        let lease_end = hold.confirmed().steady + hold.lease;
        let end = lease_end.max(Instant::now() + hold.server.patience());
        let release = Release::until(&hold.server, &hold.claim, Some(hold.token), end);
        let release = within(async { Ok(release.await) }).await?;
        self.is_released = true;
        self.leftovers.releases_until = release.under_way_until;
        let token = Some(hold.token);
        match &release.outcome {
            Ok(_) => events::released(&hold.server, &hold.claim, token),
            Err(error) => events::not_released(&hold.server, &hold.claim, token, error),
        }
        release.outcome
    }

    /// The same in the background: counted, and remembered if it fails.
    pub(crate) async fn release_counted(self) -> Result<Released> {
        let running = self.hold.server.background().begin();
        let claim = self.hold.claim.clone();
        let released = self.release().await;
        if let Err(error) = &released {
            running.fail(&claim, error.clone());
        }
        released
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
