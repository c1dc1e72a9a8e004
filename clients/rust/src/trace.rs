//! Events and spans of the crate `tracing`, empty without the feature, so that callers need no condition; and the text
//! of values for `{:?}`, which has no owner, because that is the credential of its locks.

/// An event about a key of a server: level, message, and more fields. The values are computed only if a subscriber
/// wants them.
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
        // Never called: it only uses the arguments.
        let _ = || ($server, $crate::trace::text($key), $($value,)*);
    }};
}

/// The text of a type for `{:?}`, which has these fields and no others.
macro_rules! shown {
    ($type:ident, $it:ident $(, $field:ident = $value:expr)*) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut debug = f.debug_struct(stringify!($type));
                $(debug.field(stringify!($field), &$value);)*
                debug.finish_non_exhaustive()
            }
        }
    };
}

use std::fmt;
use std::future::Future;

pub(crate) use event;
pub(crate) use shown;

/// Bytes as text, for names that are usually text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes as quoted text, in which all but printable ASCII is escaped.
pub(crate) struct Text<'a>(pub &'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The span of an acquisition.
#[cfg(feature = "tracing")]
#[derive(Clone)]
pub(crate) struct Span(tracing::Span);

#[cfg(not(feature = "tracing"))]
#[derive(Clone)]
pub(crate) struct Span;

impl Span {
    /// The owner is included where the program has chosen it.
    #[cfg(feature = "tracing")]
    pub(crate) fn new(server: &str, key: &[u8], owner: Option<&[u8]>) -> Span {
        Span(tracing::debug_span!(
            target: "redis_lock",
            "redis_lock.acquire",
            server,
            key = text(key),
            owner = owner.map(text),
        ))
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn new(_server: &str, _key: &[u8], _owner: Option<&[u8]>) -> Span {
        Span
    }

    /// Runs a future within the span, on any thread for the present subscriber.
    #[cfg(feature = "tracing")]
    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        use tracing::instrument::{Instrument, WithSubscriber};
        work.instrument(self.0.clone()).with_current_subscriber()
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn around<F: Future>(&self, work: F) -> F {
        work
    }
}
