//! Counters and gauges of this process's use of a server's locks, for a metrics crate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A number, which its clones share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Number(Arc<AtomicU64>);

/// A value that a number counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Number);

impl Number {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> Counted {
        self.add_one();
        Counted(self.clone())
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Relaxed);
    }
}

macro_rules! statistics {
    (
        counters { $($(#[$counter_doc:meta])* $counter:ident,)* }
        gauges { $($(#[$gauge_doc:meta])* $gauge:ident,)* }
    ) => {
        /// What this process has done with the locks of a server since [`Server::open`](crate::Server::open), and what
        /// it holds and waits for now. (With the feature `admin`, `Server::module_counters` reads the server's counters
        /// for all its clients.)
        ///
        /// A lock of a [`MultiLock`](crate::MultiLock) counts as any other. A [`RedLock`](crate::RedLock) counts at
        /// each of its servers: a grant, a wait and a release at the servers concerned, the rest at all of them.
        ///
        /// The numbers are read one after another and may change meanwhile. A later version may add more.
        ///
        /// ```
        /// # fn main() -> Result<(), redis_lock_client::Error> {
        /// # fn set_counter(_name: String, _server: &str, _value: u64) {}
        /// # fn set_gauge(_name: String, _server: &str, _value: u64) {}
        /// use redis_lock_client::Server;
        ///
        /// let server = Server::open("redis://127.0.0.1:6379")?;
        /// // Each time the metrics are collected:
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

        /// The live numbers, shared by the clones of a server.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub $counter: Number,)*
            $(pub $gauge: Number,)*
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
            /// The name and the value of each counter.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($counter), self.$counter),)*].into_iter()
            }

            /// The name and the value of each gauge.
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
        /// Acquisitions that ended without the lock, because another owner held it or waited for it.
        acquisitions_refused,
        /// Acquisitions that ended with an error. (Those that were dropped are not counted.)
        acquisitions_failed,
        /// Acquisitions that the server has queued.
        waits,
        /// Renewals that the server confirmed.
        renewals,
        /// Attempted renewals that were not confirmed. A failed one is repeated until the lock is lost.
        renewals_failed,
        /// Losses that were reported.
        losses,
        /// Releases that the server answered, of released or dropped guards, including the answer that the lock was no
        /// longer held.
        releases,
        /// Releases, and withdrawals of waits, that were given up without a reply: a hold ends with its lease.
        releases_failed,
        /// Opened connections, including those to sentinels.
        connections,
    }
    gauges {
        /// Guards that are neither released nor dropped, including those whose lock is lost.
        holds,
        /// Acquisitions that wait in the server's queue, also while their server cannot be reached.
        waiting,
        /// Acquisitions that go on although their server cannot be reached, or refuses for the time being: none of them
        /// is sure of its place in a queue.
        unreached,
    }
}
