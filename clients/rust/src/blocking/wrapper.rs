//! The wrapping of the asynchronous types: a thread that waits for a future, and macros for the common methods.

use std::future::Future;

use tokio::task::unconstrained;

/// Blocks the thread until the future completes.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    // A tokio task has a budget for each poll. When it is used up, futures are pending until the task yields, which a
    // task that blocks its thread never does.
    pollster::block_on(unconstrained(work))
}

/// Options that are passed to the wrapped asynchronous type.
macro_rules! options {
    ($of:ident: $($(#[$what:meta])* $name:ident($($value:ident: $type:ty)?);)*) => {$(
        $(#[$what])*
        #[doc = concat!(
            "See [`",
            stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ")."
        )]
        #[must_use]
        pub fn $name(self $(, $value: $type)?) -> Self {
            Self::from(self.inner.$name($($value)?))
        }
    )*};
}

/// The three ways to acquire.
macro_rules! acquisitions {
    ($of:ident, $guard:ident) => {
        #[doc = concat!(
            "Acquires without waiting. None when another owner holds it or waits for it. See [`",
            stringify!($of), "::try_acquire`](crate::", stringify!($of), "::try_acquire)."
        )]
        ///
        /// # Errors
        /// As there.
        pub fn try_acquire(&self) -> Result<Option<$guard>> {
            Ok(block_on(self.inner.try_acquire())?.map($guard::from))
        }

        #[doc = concat!(
            "Waits for at most `wait`. None when it was not granted in that time. See [`",
            stringify!($of), "::acquire_within`](crate::", stringify!($of), "::acquire_within)."
        )]
        ///
        /// # Errors
        /// As there.
        pub fn acquire_within(&self, wait: Duration) -> Result<Option<$guard>> {
            Ok(block_on(self.inner.acquire_within(wait))?.map($guard::from))
        }

        #[doc = concat!(
            "Waits without a limit. See [`",
            stringify!($of), "::acquire`](crate::", stringify!($of), "::acquire)."
        )]
        ///
        /// # Errors
        /// As there.
        pub fn acquire(&self) -> Result<$guard> {
            block_on(self.inner.acquire()).map($guard::from)
        }
    };
}

/// The methods of all guards.
macro_rules! holds {
    ($of:ident) => {
        #[doc = concat!(
                    "Reports the loss, as [`",
                    stringify!($of), "::lost`](crate::", stringify!($of), "::lost) does."
                )]
        pub fn lost(&self) -> Lost {
            Lost {
                inner: self.inner.lost(),
            }
        }

        #[doc = concat!(
                    "How long it is certainly still held. See [`",
                    stringify!($of), "::valid_for`](crate::", stringify!($of), "::valid_for)."
                )]
        pub fn valid_for(&self) -> Duration {
            self.inner.valid_for()
        }

        #[doc = concat!(
                    "Releases, and waits for the reply of the server. See [`",
                    stringify!($of), "::release`](crate::", stringify!($of), "::release)."
                )]
        ///
        /// # Errors
        /// As there.
        pub fn release(self) -> Result<Released> {
            block_on(self.inner.release())
        }
    };
}

/// The conversion from an asynchronous type to the blocking type that wraps it.
macro_rules! around {
    ($($name:ident)*) => {$(
        impl From<crate::$name> for $name {
            fn from(inner: crate::$name) -> $name {
                $name { inner }
            }
        }
    )*};
}

pub(super) use {acquisitions, around, holds, options};
