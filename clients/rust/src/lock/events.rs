//! The events of locks: each is counted in the statistics and emitted through `tracing`.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::lock::terms::Terms;
use crate::net::command::Claim;
use crate::net::server::Server;
use crate::outcome::LostReason;
use crate::statistics::Counted;
use crate::trace::{event, text};

/// An acquisition was granted, `waited` after it began.
pub(crate) fn acquired(server: &Server, claim: &Claim, token: u64, waited: Duration) {
    server.counts().acquisitions.add_one();
    event!(
        DEBUG,
        "granted",
        server,
        &claim.key,
        owner = text(&claim.owner),
        token = token,
        waited_ms = millis(waited)
    );
}

/// An acquisition ended without the lock: with an error, or because another owner held it or waited for it.
pub(crate) fn not_acquired(terms: &Terms, error: Option<&Error>, waited: Duration) {
    let counts = terms.server.counts();
    match error {
        Some(_) => counts.acquisitions_failed.add_one(),
        None => counts.acquisitions_refused.add_one(),
    }
    event!(
        DEBUG,
        "not granted",
        &terms.server,
        &terms.key,
        owner = terms.owner.as_deref().map(text),
        waited_ms = millis(waited),
        error = error.map(Error::to_string)
    );
}

/// The server has an acquisition in its queue; it counts as waiting until the returned value is dropped.
pub(crate) fn parked(server: &Server, key: &[u8], owner: Option<&[u8]>) -> Counted {
    server.counts().waits.add_one();
    event!(DEBUG, "parked", server, key, owner = owner.map(text));
    server.counts().waiting.count()
}

/// Time after which an acquisition that does not reach its server is a warning, and the time between two warnings.
const FIRST_WARNING: Duration = Duration::from_secs(3);
const NEXT_WARNING: Duration = Duration::from_secs(30);

/// An acquisition that does not reach its server. It counts as unreached until this value is dropped.
pub(crate) struct Unreached {
    server: Server,
    key: Vec<u8>,
    owner: Option<Vec<u8>>,
    since: Instant,
    warns_at: Instant,
    _counted: Counted,
}

impl Unreached {
    pub(crate) fn new(server: &Server, key: &[u8], owner: Option<&[u8]>) -> Unreached {
        let since = Instant::now();
        Unreached {
            server: server.clone(),
            key: key.to_vec(),
            owner: owner.map(<[u8]>::to_vec),
            since,
            warns_at: since + FIRST_WARNING,
            _counted: server.counts().unreached.count(),
        }
    }

    /// An attempt has failed.
    pub(crate) fn failed(&mut self, error: &Error) {
        let now = Instant::now();
        if now < self.warns_at {
            return;
        }
        self.warns_at = now + NEXT_WARNING;
        event!(
            WARN,
            "unreached",
            &self.server,
            &self.key,
            owner = self.owner.as_deref().map(text),
            unreached_ms = millis(now - self.since),
            error = error.to_string()
        );
    }
}

/// An event about a hold.
macro_rules! hold_event {
    ($level:ident, $what:literal, $server:expr, $claim:expr, $token:expr $(, $name:ident = $value:expr)*) => {
        event!($level, $what, $server, &$claim.key, owner = text(&$claim.owner), token = $token $(, $name = $value)*)
    };
}

/// A renewal was confirmed.
pub(crate) fn renewed(server: &Server, claim: &Claim, token: u64) {
    server.counts().renewals.add_one();
    hold_event!(DEBUG, "renewed", server, claim, token);
}

/// A renewal was not confirmed. Without an error the server denied it, or did not reply in time.
pub(crate) fn not_renewed(
    server: &Server,
    claim: &Claim,
    token: Option<u64>,
    error: Option<&Error>,
) {
    server.counts().renewals_failed.add_one();
    let error = error.map(Error::to_string);
    hold_event!(DEBUG, "not renewed", server, claim, token, error = error);
}

/// A loss was reported.
pub(crate) fn lost(server: &Server, claim: &Claim, token: Option<u64>, why: &LostReason) {
    server.counts().losses.add_one();
    hold_event!(WARN, "lost", server, claim, token, reason = why.to_string());
}

/// A release was answered.
pub(crate) fn released(server: &Server, claim: &Claim, token: Option<u64>) {
    server.counts().releases.add_one();
    hold_event!(DEBUG, "released", server, claim, token);
}

/// A release was given up with an error to its caller.
pub(crate) fn not_released(server: &Server, claim: &Claim, token: Option<u64>, error: &Error) {
    server.counts().releases_failed.add_one();
    hold_event!(
        DEBUG,
        "not released",
        server,
        claim,
        token,
        error = error.to_string()
    );
}

/// A release or a withdrawal in the background was given up.
pub(crate) fn left_behind(server: &Server, claim: &Claim, token: Option<u64>, error: &Error) {
    server.counts().releases_failed.add_one();
    hold_event!(
        WARN,
        "left behind",
        server,
        claim,
        token,
        error = error.to_string()
    );
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
