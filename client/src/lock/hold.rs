//! The state of a held lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::lock::loss::LossNotice;
use crate::moment::Moment;
use crate::net::command::Claim;
use crate::net::server::Server;

/// The state that a guard and its renewal task share.
pub(crate) struct Hold {
    pub server: Server,
    pub claim: Claim,
    pub token: u64,
    pub lease: Duration,
    /// Time from a confirmed request to the report of a loss.
    pub reported_after: Duration,
    pub notice: Arc<LossNotice>,
    /// When the last confirmed request was sent.
    confirmed: watch::Sender<Moment>,
}

/// The certain part of a lease. The server counts in whole milliseconds, so its time of the grant may be almost one
/// millisecond early.
pub(crate) fn certain(lease: Duration) -> Duration {
    lease.saturating_sub(Duration::from_millis(1))
}

impl Hold {
    /// The hold of a grant whose request was sent at this moment.
    pub(crate) fn new(
        server: Server,
        claim: Claim,
        token: u64,
        lease: Duration,
        reported_after: Duration,
        sent: Moment,
    ) -> Hold {
        let hold = Hold {
            server,
            claim,
            token,
            lease,
            reported_after,
            notice: LossNotice::new(sent.steady),
            confirmed: watch::Sender::new(sent),
        };
        hold.confirm(sent);
        hold
    }

    pub(crate) fn confirmed(&self) -> Moment {
        *self.confirmed.borrow()
    }

    pub(crate) fn confirm(&self, sent: Moment) {
        self.confirmed.send_replace(sent);
        self.notice.hold_until(sent.steady + self.reported_after);
    }
}
