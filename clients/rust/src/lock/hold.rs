//! The state of a held lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::loss::LossNotice;
use crate::moment::Moment;
use crate::net::command::Claim;
use crate::net::server::Server;

/// The state that a guard and its renewal task share.
pub(crate) struct Hold {
    pub server: Server,
    pub claim: Claim,
    pub token: u64,
    /// How long before the end of the lease a loss is reported; None: a sixth of the lease.
    margin: Option<Duration>,
    pub notice: Arc<LossNotice>,
    confirmed: watch::Sender<Confirmed>,
}

/// The lease that the server certainly has.
#[derive(Clone, Copy)]
struct Confirmed {
    /// A moment before the request that has set it, or read its rest, was sent.
    sent: Moment,
    lease: Duration,
    /// When a later renewal was sent, which has no confirmation yet.
    asked: Option<Instant>,
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
        margin: Option<Duration>,
        sent: Moment,
    ) -> Hold {
        let asked = None;
        let hold = Hold {
            server,
            claim,
            token,
            margin,
            notice: LossNotice::new(sent.steady),
            confirmed: watch::Sender::new(Confirmed { sent, lease, asked }),
        };
        hold.confirm(sent, lease);
        hold
    }

    /// A moment before the last confirmed request was sent.
    pub(crate) fn confirmed(&self) -> Moment {
        self.confirmed.borrow().sent
    }

    /// The lease of the last confirmed request. That of a session is a setting of the server, which may change.
    pub(crate) fn lease(&self) -> Duration {
        self.confirmed.borrow().lease
    }

    /// A renewal is sent now.
    pub(crate) fn ask(&self) {
        let now = Instant::now();
        self.confirmed.send_modify(|last| last.asked = Some(now));
    }

    /// The latest end of a lease that the server may have: a renewal without a reply may have been served.
    pub(crate) fn latest_end(&self) -> Instant {
        let last = *self.confirmed.borrow();
        let served = last.asked.map(|asked| asked + self.server.patience());
        served.unwrap_or(last.sent.steady) + last.lease
    }

    /// The server has this lease from this moment on.
    pub(crate) fn confirm(&self, sent: Moment, lease: Duration) {
        let asked = None;
        self.confirmed
            .send_replace(Confirmed { sent, lease, asked });
        let margin = self.margin.unwrap_or(lease / 6).min(lease / 2);
        let reported_after = certain(lease).saturating_sub(margin);
        self.notice.hold_until(sent.steady + reported_after);
    }
}
