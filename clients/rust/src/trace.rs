//! Events and spans of the crate `tracing`, empty without the feature, so that callers need no condition; and the text
//! of values for `{:?}`, which has no owner, because that is the credential of its locks.

/// An event about a key of a server: level, message, and more fields. The values are computed only if a subscriber
/// wants them.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $what:literal, $server:expr, $key:expr $(, $name:ident = $value:expr)*) => {
        if tracing::enabled!(target: "redis_lock", tracing::Level::$level) {
            let (server, key) = ($server.name().to_string(), $crate::trace::text($key));
            $(let $name = $value;)*
            $crate::trace::log::emit(move || tracing::event!(
                target: "redis_lock",
                tracing::Level::$level,
                server,
                key,
                $($name,)*
                $what
            ));
        }
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
    ($type:ident $(<$of:ident>)?, $it:ident $(, $field:ident = $value:expr)*) => {
        impl $(<$of>)? std::fmt::Debug for $type $(<$of>)? {
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

/// The events of this crate's thread.
#[cfg(feature = "tracing")]
pub(crate) mod log {
    use tracing::{dispatcher, Dispatch, Span};

    use crate::aside::aside;
    use crate::runtime::is_own_thread;

    tokio::task_local! {
        /// The subscriber and the span of a task of this crate's thread.
        pub(crate) static SCOPE: (Dispatch, Span);
    }

    /// Emits an event, on this crate's thread through another one.
    pub(crate) fn emit(event: impl FnOnce() + Send + 'static) {
        if !is_own_thread() {
            return event();
        }
        let present = || (dispatcher::get_default(Clone::clone), Span::current());
        let (subscriber, span) = SCOPE.try_with(Clone::clone).unwrap_or_else(|_| present());
        aside(move || dispatcher::with_default(&subscriber, || span.in_scope(event)));
    }
}

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

    /// That of the program.
    #[cfg(feature = "tracing")]
    pub(crate) fn current() -> Span {
        Span(tracing::Span::current())
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn current() -> Span {
        Span
    }

    /// Has the events of a future on this crate's thread within the span, for the present subscriber.
    #[cfg(feature = "tracing")]
    pub(crate) fn follows<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        log::SCOPE.scope((subscriber, self.0.clone()), work)
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn follows<F: Future>(&self, work: F) -> F {
        work
    }

    /// Runs a future within the span.
    #[cfg(feature = "tracing")]
    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        tracing::instrument::Instrument::instrument(work, self.0.clone())
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn around<F: Future>(&self, work: F) -> F {
        work
    }
}
