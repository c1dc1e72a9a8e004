//! What is still under way when its caller has gone: waits that are withdrawn, locks that are given back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::error::Error;
use crate::net::command::Claim;

/// So many failures are remembered until they are asked for.
const REMEMBERED: usize = 1_000;

/// A lock that could not be given back in the background: its lease ends it.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) {
/// for left in server.settled().await {
///     eprintln!("{}: {}", String::from_utf8_lossy(&left.key), left.error);
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unreleased {
    /// The key.
    pub key: Vec<u8>,
    /// The owner.
    pub owner: Vec<u8>,
    /// Why the last attempt failed.
    pub error: Error,
}

/// Counts what is under way, and remembers what failed.
#[derive(Default)]
pub(crate) struct Background {
    running: watch::Sender<usize>,
    failed: Arc<Mutex<VecDeque<Unreleased>>>,
}

impl Background {
    /// One more, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running {
            running: self.running.clone(),
            failed: self.failed.clone(),
        }
    }

    /// Ends when nothing is under way; answers what failed since the last call.
    pub(crate) async fn settled(&self) -> Vec<Unreleased> {
        let mut running = self.running.subscribe();
        // The sender is ours: it cannot have gone.
        let _ = running.wait_for(|running| *running == 0).await;
        lock(&self.failed).drain(..).collect()
    }
}

/// Something that is under way.
pub(crate) struct Running {
    running: watch::Sender<usize>,
    failed: Arc<Mutex<VecDeque<Unreleased>>>,
}

impl Running {
    /// A lock could not be given back.
    pub(crate) fn fail(&self, claim: &Claim, error: Error) {
        let mut failed = lock(&self.failed);
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
        self.running.send_modify(|running| *running -= 1);
    }
}

fn lock(failed: &Mutex<VecDeque<Unreleased>>) -> MutexGuard<'_, VecDeque<Unreleased>> {
    failed.lock().unwrap_or_else(PoisonError::into_inner)
}
