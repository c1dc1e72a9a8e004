//! The events of locks: each is counted in the statistics and emitted through `tracing`.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::lock::terms::Terms;
use crate::moment::now;
use crate::net::command::Claim;
use crate::net::server::Server;
use crate::outcome::LostReason;
use crate::statistics::Counted;
use crate::trace::{event, text};

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
        let since = now();
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
        let moment = now();
        if moment < self.warns_at {
            return;
        }
        self.warns_at = moment + NEXT_WARNING;
        event!(
            WARN,
            "unreached",
            &self.server,
            &self.key,
            owner = self.owner.as_deref().map(text),
            unreached_ms = millis(moment - self.since),
            error = error.to_string()
        );
    }
}

/// The events about a hold: what is counted, the level, the message, and the fields beside owner and token.
macro_rules! hold_events {
    ($(#[doc = $doc:literal] $name:ident, $counter:ident, $level:ident $what:literal
        $(, $field:ident: $type:ty = $value:expr)?;)*) => {
        $(#[doc = $doc]
        pub(crate) fn $name(claim: &Claim, token: impl Into<Option<u64>> $(, $field: $type)?) {
            claim.server.counts().$counter.add_one();
            let known: Option<u64> = token.into();
            event!($level, $what, &claim.server, &claim.key, owner = text(&claim.owner), token = known $(, $field = $value)?);
        })*
    };
}

hold_events! {
    /// An acquisition was granted, so long after it began.
    acquired, acquisitions, DEBUG "granted", waited_ms: Duration = millis(waited_ms);
    /// A renewal was confirmed.
    renewed, renewals, DEBUG "renewed";
    /// A renewal was not confirmed. Without an error the server denied it, or did not reply in time.
    not_renewed, renewals_failed, DEBUG "not renewed", error: Option<&Error> = error.map(Error::to_string);
    /// A loss was reported.
    lost, losses, WARN "lost", reason: &LostReason = reason.to_string();
    /// A release was answered.
    released, releases, DEBUG "released";
    /// A release was given up with an error to its caller.
    not_released, releases_failed, DEBUG "not released", error: &Error = error.to_string();
    /// A release or a withdrawal in the background was given up.
    left_behind, releases_failed, WARN "left behind", error: &Error = error.to_string();
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
