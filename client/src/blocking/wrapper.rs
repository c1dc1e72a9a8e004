//! What the blocking types are made of: a thread that waits, and their methods.

use std::future::Future;

use tokio::task::unconstrained;

/// The result of this, for which the thread waits.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    // A task of tokio has a budget for each time that it is polled. Where it is used up, futures are pending until the
    // task yields; and a task that blocks its thread does not.
    pollster::block_on(unconstrained(work))
}

/// Options that are those of the asynchronous type around which `Self` is.
macro_rules! options {
    ($of:ident: $($(#[$what:meta])* $name:ident($($value:ident: $type:ty)?);)*) => {$(
        $(#[$what])*
        #[doc = concat!("See [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        #[must_use]
        pub fn $name(self $(, $value: $type)?) -> Self {
            Self::from(self.inner.$name($($value)?))
        }
    )*};
}

/// The three ways to acquire.
macro_rules! acquisitions {
    ($of:ident, $guard:ident) => {
        #[doc = concat!("Acquires without waiting. None when another owner is in the way. See [`", stringify!($of), "::try_acquire`](crate::", stringify!($of), "::try_acquire).")]
        ///
        /// # Errors
        /// As there.
        pub fn try_acquire(&self) -> Result<Option<$guard>> {
            Ok(block_on(self.inner.try_acquire())?.map($guard::from))
        }

        #[doc = concat!("Waits for at most so long. None when that was not enough. See [`", stringify!($of), "::acquire_within`](crate::", stringify!($of), "::acquire_within).")]
        ///
        /// # Errors
        /// As there.
        pub fn acquire_within(&self, wait: Duration) -> Result<Option<$guard>> {
            Ok(block_on(self.inner.acquire_within(wait))?.map($guard::from))
        }

        #[doc = concat!("Waits for as long as it takes. See [`", stringify!($of), "::acquire`](crate::", stringify!($of), "::acquire).")]
        ///
        /// # Errors
        /// As there.
        pub fn acquire(&self) -> Result<$guard> {
            block_on(self.inner.acquire()).map($guard::from)
        }
    };
}

/// What all guards do.
macro_rules! holds {
    ($of:ident) => {
        #[doc = concat!("Tells of the loss, as [`", stringify!($of), "::lost`](crate::", stringify!($of), "::lost) does.")]
        pub fn lost(&self) -> Lost {
            Lost {
                inner: self.inner.lost(),
            }
        }

        #[doc = concat!("How long it is certainly still held. See [`", stringify!($of), "::valid_for`](crate::", stringify!($of), "::valid_for).")]
        pub fn valid_for(&self) -> Duration {
            self.inner.valid_for()
        }

        #[doc = concat!("Gives back, and waits for the word of the server. See [`", stringify!($of), "::release`](crate::", stringify!($of), "::release).")]
        ///
        /// # Errors
        /// As there.
        pub fn release(self) -> Result<Released> {
            block_on(self.inner.release())
        }
    };
}

/// A blocking type around an asynchronous one, and the way there.
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
