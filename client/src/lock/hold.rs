//! What is known of a lock that is held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::lock::loss::Notice;
use crate::moment::Moment;
use crate::net::command::Claim;
use crate::net::server::Server;

/// What a guard and its renewal share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub server: Server,
    pub claim: Claim,
    pub token: u64,
    pub lease: Duration,
    /// How long after a confirmed request the loss is told.
    pub told_after: Duration,
    pub notice: Arc<Notice>,
    /// When the last request was sent that the server confirmed.
    confirmed: watch::Sender<Moment>,
}

/// What of a lease is certain. The server counts in whole milliseconds: for it the moment of the grant may
/// have been almost one earlier than it was.
pub(crate) fn certain(lease: Duration) -> Duration {
    lease.saturating_sub(Duration::from_millis(1))
}

impl Hold {
    /// A grant that was asked for at this moment.
    pub(crate) fn new(
        server: Server,
        claim: Claim,
        token: u64,
        lease: Duration,
        told_after: Duration,
        sent: Moment,
    ) -> Hold {
        let hold = Hold {
            server,
            claim,
            token,
            lease,
            told_after,
            notice: Notice::new(sent.steady),
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
        self.notice.hold_until(sent.steady + self.told_after);
    }
}
