//! The thread on which connections live, locks are renewed and releases go on.
//!
//! A program may have a runtime, or several, or end one while a lock is held. A connection belongs to the runtime
//! that opened it and ends with that, so this crate has one of its own: a single thread, started with the first
//! request, that lasts as long as the program. Its work is small: sockets and timers. What a caller awaits is
//! polled by the caller's own executor, with this runtime entered.

use std::future::{pending, poll_fn, Future};
use std::io;
use std::pin::pin;
use std::sync::{mpsc, Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use crate::error::{Error, Result};

static HANDLE: OnceLock<Handle> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// The runtime. Where it could not be started, the next call tries again.
///
/// # Errors
/// When the system refuses a thread, or what a runtime needs.
pub(crate) fn handle() -> Result<&'static Handle> {
    if let Some(handle) = HANDLE.get() {
        return Ok(handle);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = HANDLE.get() {
        return Ok(handle);
    }
    let started = start().map_err(|error| {
        Error::connection(
            "redis-lock",
            format!("its thread cannot be started: {error}"),
        )
    })?;
    Ok(HANDLE.get_or_init(|| started))
}

fn start() -> io::Result<Handle> {
    let (sender, receiver) = mpsc::channel();
    let work = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = sender.send(Ok(runtime.handle().clone()));
            runtime.block_on(pending::<()>());
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    thread::Builder::new()
        .name("redis-lock".into())
        .spawn(work)?;
    let ended = || io::Error::other("the thread has ended");
    receiver.recv().map_err(|_| ended())?
}

/// Does this in the caller's task, whatever runs that: timers and connections are those of this crate's runtime.
///
/// # Errors
/// When that cannot be started.
pub(crate) async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let handle = handle()?;
    let mut work = pin!(work);
    poll_fn(|context| {
        let _entered = handle.enter();
        work.as_mut().poll(context)
    })
    .await
}

/// Something that the thread does, whether or not a caller waits.
#[derive(Debug)]
pub(crate) struct Task(Option<AbortHandle>);

/// Begins it.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
    // A lock is not held without a request before, which has started the thread.
    Task(
        handle()
            .ok()
            .map(|handle| handle.spawn(work).abort_handle()),
    )
}

impl Task {
    /// Ends it where it stands.
    pub(crate) fn end(&self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[test]
    fn timers_work_under_any_executor() {
        let slept = within(async {
            sleep(Duration::from_millis(1)).await;
            Ok(7)
        });
        // Of an executor without timers.
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(slept).expect("a thread"), 7);
    }
}
