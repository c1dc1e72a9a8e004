//! Background work of one server: the withdrawal of waits and the release of locks after their caller has returned.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::error::Error;
use crate::net::command::Claim;
use crate::runtime::locked;
use crate::trace::{shown, Text};

/// Upper bound of failures kept until they are read.
const REMEMBERED: usize = 1_000;

/// A lock that could not be released in the background: it ends with its lease.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) {
/// for left in server.settled().await {
///     eprintln!("{}: {}", String::from_utf8_lossy(&left.key), left.error);
/// }
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Unreleased {
    /// The key.
    pub key: Vec<u8>,
    /// The owner.
    pub owner: Vec<u8>,
    /// Why the last attempt failed.
    pub error: Error,
}

shown! { Unreleased, left, key = Text(&left.key), error = left.error }

/// Counts the running tasks and keeps the failures.
#[derive(Clone, Default)]
pub(crate) struct Background {
    running: watch::Sender<usize>,
    failed: Arc<Mutex<VecDeque<Unreleased>>>,
}

/// A running task.
pub(crate) struct Running(Background);

impl Background {
    /// Counts a task until the returned value is dropped.
    pub(crate) fn begin(&self) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running(self.clone())
    }

    fn failed(&self) -> MutexGuard<'_, VecDeque<Unreleased>> {
        locked(&self.failed)
    }

    /// Completes when no task is running; returns the failures since the last call.
    pub(crate) async fn settled(&self) -> Vec<Unreleased> {
        let mut running = self.running.subscribe();
        // This value owns the sender, so the channel is open.
        let _ = running.wait_for(|running| *running == 0).await;
        self.failed().drain(..).collect()
    }
}

impl Running {
    /// Records a lock that could not be released.
    pub(crate) fn fail(&self, claim: &Claim, error: Error) {
        let mut failed = self.0.failed();
        if failed.len() >= REMEMBERED {
            failed.pop_front();
        }
        failed.push_back(Unreleased {
            key: claim.key.clone(),
            owner: claim.owner.clone(),
            error,
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}
