//! The guard of locks that are held together.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{timeout_at, Instant};

use crate::error::{Error, Result};
use crate::lock::guard::Guard;
use crate::lock::loss::{Kept, Lost, Notice};
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, within, Task};

/// How long what is given back may be waited for.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// In their order. What is not known in time is an error here, and goes on in the background.
pub(super) async fn release_all(
    guards: impl Iterator<Item = Guard>,
    end: Instant,
) -> Vec<Result<Released>> {
    let begun: Vec<_> = guards
        .map(|guard| (guard.server_name(), tokio::spawn(guard.release_counted())))
        .collect();
    let mut released = Vec::with_capacity(begun.len());
    for (server, release) in begun {
        released.push(match timeout_at(end, release).await {
            Ok(Ok(word)) => word,
            Ok(Err(_)) | Err(_) => Err(Error::no_answer(&server)),
        });
    }
    released
}

/// Ends with the first of these.
pub(super) async fn first_lost(mut lost: Vec<Lost>) -> LostReason {
    poll_fn(|context| {
        let mut ended = lost.iter_mut().map(|lost| Pin::new(lost).poll(context));
        ended.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Locks that are held together, each renewed by itself. Dropped, all are given back in the background.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::MultiGuard) {
/// for member in guard.members() {
///     println!("token {}, for {:?} more", member.token(), member.valid_for());
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped, the locks are given back"]
pub struct MultiGuard {
    members: Vec<Guard>,
    notice: Arc<Notice>,
    watch: Task,
}

impl MultiGuard {
    pub(super) fn new(members: Vec<Guard>) -> MultiGuard {
        let notice = Notice::new(Instant::now());
        let kept = Kept(notice.clone());
        let losses = members.iter().map(Guard::lost).collect();
        let watch = runtime::spawn(async move {
            let why = first_lost(losses).await;
            kept.0.lose(why);
        });
        MultiGuard {
            members,
            notice,
            watch,
        }
    }

    /// Each lock's own guard, in the order in which the caller has named them.
    pub fn members(&self) -> &[Guard] {
        &self.members
    }

    /// Each lock's fencing token, in the same order. A token fences what its own lock protects; those of
    /// two locks say nothing about each other.
    pub fn tokens(&self) -> Vec<u64> {
        self.members.iter().map(Guard::token).collect()
    }

    /// A future that ends when one of the locks is lost: then what needed all of them must stop. The
    /// others stay held until the guard is dropped.
    pub fn lost(&self) -> Lost {
        self.notice.lost()
    }

    /// How long all the locks are certainly still ours; zero when one is lost.
    pub fn valid_for(&self) -> Duration {
        let left = self.members.iter().map(Guard::valid_for);
        left.min().unwrap_or_default()
    }

    /// Gives all the locks back at the same time: [`Released::Yes`] when each of them was still held. Where a server
    /// does not answer within half a second, its lock is given back in the background.
    ///
    /// # Errors
    /// The first, when a server did not answer or refused.
    pub async fn release(self) -> Result<Released> {
        let mut whole = Released::Yes;
        for released in self.release_each().await {
            if released? == Released::NotHeld {
                whole = Released::NotHeld;
            }
        }
        Ok(whole)
    }

    /// The same, and what was found of each lock, in the caller's order.
    pub async fn release_each(mut self) -> Vec<Result<Released>> {
        let members = std::mem::take(&mut self.members);
        let servers: Vec<_> = members.iter().map(Guard::server_name).collect();
        let end = Instant::now() + GRACE;
        let released = within(async { Ok(release_all(members.into_iter(), end).await) });
        let refused = |error: Error| servers.iter().map(|_| Err(error.clone())).collect();
        released.await.unwrap_or_else(refused)
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        self.notice.finish();
        self.watch.end();
    }
}
