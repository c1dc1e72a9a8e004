//! An observer for the crate `metrics`.

use std::time::Duration;

use metrics::{counter, histogram, Label};

use crate::error::Error;
use crate::observer::{LockName, LockObserver};
use crate::outcome::LostReason;
use crate::trace::shown;

/// What a lock is called, if it has a label of its own.
type Naming = dyn Fn(&LockName) -> Option<String> + Send + Sync;

/// With the feature `metrics`: records the locks of a server with the program's recorder of the crate `metrics`: the
/// histograms `redis_lock.wait` (of granted acquisitions) and `redis_lock.hold`, in seconds, and the counters
/// `redis_lock.losses` (with the label `reason`) and `redis_lock.late_renewals`, each with the labels `server` and
/// `kind`.
///
/// ```
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{Metrics, Server};
///
/// // Each label makes a series of its own: jobs:42 and jobs:43 are jobs.
/// let metrics = Metrics::new().named(|lock| {
///     let name = String::from_utf8_lossy(&lock.key);
///     name.split(':').next().map(String::from)
/// });
/// let server = Server::builder("redis://127.0.0.1:6379").observer(metrics).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Metrics {
    naming: Option<Box<Naming>>,
}

shown! { Metrics, _metrics }

impl Metrics {
    /// Without the names of locks.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// What this function returns for a lock is its label `lock`.
    #[must_use]
    pub fn named(
        mut self,
        naming: impl Fn(&LockName) -> Option<String> + Send + Sync + 'static,
    ) -> Metrics {
        self.naming = Some(Box::new(naming));
        self
    }

    fn labels(&self, lock: &LockName) -> Vec<Label> {
        let name = self.naming.as_ref().and_then(|naming| naming(lock));
        let mut labels = vec![
            Label::new("server", lock.server.clone()),
            Label::new("kind", lock.kind),
        ];
        labels.extend(name.map(|name| Label::new("lock", name)));
        labels
    }
}

impl LockObserver for Metrics {
    fn answered(&self, lock: &LockName, granted: bool, waited: Duration, _: Option<&Error>) {
        if granted {
            histogram!("redis_lock.wait", self.labels(lock)).record(waited.as_secs_f64());
        }
    }

    fn released(&self, lock: &LockName, held: Duration) {
        histogram!("redis_lock.hold", self.labels(lock)).record(held.as_secs_f64());
    }

    fn lost(&self, lock: &LockName, reason: &LostReason) {
        let reason = match reason {
            LostReason::Taken => "taken",
            LostReason::Unconfirmed => "unconfirmed",
            LostReason::Refused { .. } => "refused",
            LostReason::Disconnected => "disconnected",
        };
        let mut labels = self.labels(lock);
        labels.push(Label::new("reason", reason));
        counter!("redis_lock.losses", labels).increment(1);
    }

    fn late(&self, lock: &LockName, _: Duration) {
        counter!("redis_lock.late_renewals", self.labels(lock)).increment(1);
    }
}
