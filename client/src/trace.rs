//! Events and spans of the crate `tracing`, for the subscriber that the program has; without the feature, nothing. So the
//! code that tells of something needs no condition.

/// An event about a key of a server: its level, what happened, and more fields. Values are computed where a subscriber
/// wants them only.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $what:literal, $server:expr, $key:expr $(, $name:ident = $value:expr)*) => {
        tracing::event!(
            target: "redis_lock",
            tracing::Level::$level,
            server = $server.name(),
            key = $crate::trace::text($key),
            $($name = $value,)*
            $what
        )
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $what:literal, $server:expr, $key:expr $(, $name:ident = $value:expr)*) => {{
        // Never called: it only uses what the event would.
        let _ = || ($server, $crate::trace::text($key), $($value,)*);
    }};
}

use std::future::Future;

pub(crate) use event;

/// Bytes that are mostly text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Does this within the span of an acquisition. The owner is named where the program has chosen it.
#[cfg(feature = "tracing")]
pub(crate) fn acquisition<F: Future>(
    server: &str,
    key: &[u8],
    owner: Option<&[u8]>,
    work: F,
) -> impl Future<Output = F::Output> {
    let span = tracing::debug_span!(
        target: "redis_lock",
        "redis_lock.acquire",
        server,
        key = text(key),
        owner = owner.map(text),
    );
    tracing::Instrument::instrument(work, span)
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn acquisition<F: Future>(
    _server: &str,
    _key: &[u8],
    _owner: Option<&[u8]>,
    work: F,
) -> impl Future<Output = F::Output> {
    work
}
