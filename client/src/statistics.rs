//! Counts of what this process does with the locks of a server, for a crate of metrics to read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// How many of something exist now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

/// One of those that a gauge counts, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicU64>);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    pub(crate) fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

macro_rules! statistics {
    (
        counters { $($(#[$counter_doc:meta])* $counter:ident,)* }
        gauges { $($(#[$gauge_doc:meta])* $gauge:ident,)* }
    ) => {
        /// What this process has done with the locks of a server since [`Server::open`](crate::Server::open), and what it
        /// holds and waits for now. Not to be taken for [`Server::module_counters`](crate::Server::module_counters), which asks the server
        /// for what all its clients have done.
        ///
        /// A lock of a [`MultiLock`](crate::MultiLock) counts as any other. A [`RedLock`](crate::RedLock) counts at each of
        /// its servers: a grant, a wait and a release where it has them, the rest at all of them.
        ///
        /// The numbers are read one after another, and others may change meanwhile. More may be added in a later version.
        ///
        /// ```
        /// # fn main() -> Result<(), redis_lock_client::Error> {
        /// # fn set_counter(_name: String, _server: &str, _value: u64) {}
        /// # fn set_gauge(_name: String, _server: &str, _value: u64) {}
        /// use redis_lock_client::Server;
        ///
        /// let server = Server::open("redis://127.0.0.1:6379")?;
        /// // Each time that the metrics are asked for:
        /// let statistics = server.statistics();
        /// for (name, value) in statistics.counters() {
        ///     set_counter(format!("redis_lock_{name}_total"), server.name(), value);
        /// }
        /// for (name, value) in statistics.gauges() {
        ///     set_gauge(format!("redis_lock_{name}"), server.name(), value);
        /// }
        /// // Or both:
        /// assert!(statistics.iter().all(|(_, value)| value == 0));
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[$counter_doc])* pub $counter: u64,)*
            $($(#[$gauge_doc])* pub $gauge: u64,)*
        }

        /// The numbers as they are counted: shared by the clones of a server.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub $counter: Counter,)*
            $(pub $gauge: Gauge,)*
        }

        impl Counts {
            pub(crate) fn read(&self) -> Statistics {
                Statistics {
                    $($counter: self.$counter.read(),)*
                    $($gauge: self.$gauge.read(),)*
                }
            }
        }

        impl Statistics {
            /// The name and the value of each number that only rises.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($counter), self.$counter),)*].into_iter()
            }

            /// The name and the value of each number that tells of the present.
            pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($gauge), self.$gauge),)*].into_iter()
            }

            /// The name and the value of each number: the counters, then the gauges.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                self.counters().chain(self.gauges())
            }
        }
    };
}

statistics! {
    counters {
        /// Acquisitions that were granted.
        acquisitions,
        /// Acquisitions that ended without the lock, because another owner was in the way.
        acquisitions_refused,
        /// Acquisitions that ended with an error. (Those that were dropped are not counted.)
        acquisitions_failed,
        /// Acquisitions that were parked in the server.
        waits,
        /// Renewals that the server confirmed.
        renewals,
        /// Renewals that were sent, or tried to be, without being confirmed. One that fails is sent again, until the lock
        /// is lost.
        renewals_failed,
        /// Losses that were told.
        losses,
        /// Releases that the server answered, of guards that were released or dropped; also with the word that the lock
        /// was no longer held.
        releases,
        /// Releases, and withdrawals of waits, that were given up without the server's word: the lease ends what is held.
        releases_failed,
        /// Connections that were opened, those to sentinels included.
        connections,
    }
    gauges {
        /// Guards that are neither released nor dropped, also those that have lost their lock.
        holds,
        /// Acquisitions that are parked in the server.
        waiting,
    }
}
