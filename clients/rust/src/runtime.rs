//! The thread of this crate, which runs connections, renewals and background releases.
//!
//! A program may have one runtime or several, or end one while a lock is held. A connection belongs to the runtime that
//! opened it and ends with it, so this crate has one of its own: a single thread, started with the first request, that
//! lasts as long as the program. It only handles sockets and timers. The futures of a caller are polled by the caller's
//! executor, with this runtime entered.
//!
//! A program can name its own runtime for requests ([`ServerBuilder::runtime`](crate::ServerBuilder::runtime)): those
//! of a future that this runtime polls then have a connection there, and no thread wakes another. Whatever else has to
//! be sent stays here, and goes on while that runtime stands still: renewals, waits, the releases of dropped guards.

use std::cell::Cell;
use std::future::{pending, poll_fn, Future};
use std::io;
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Id};
use tokio::sync::oneshot;
use tokio::task::{unconstrained, AbortHandle, JoinHandle};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::net::server::Server;

static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);

/// The runtime. If it could not be started, the next call tries again.
///
/// # Errors
/// When the system refuses the thread or the resources of a runtime.
pub(crate) fn handle() -> Result<Handle> {
    let mut handle = locked(&HANDLE);
    if let Some(handle) = &*handle {
        return Ok(handle.clone());
    }
    let failed = |error| format!("its thread cannot be started: {error}");
    let started = start().map_err(|error| Error::connection("redis-lock", failed(error)))?;
    Ok(handle.insert(started).clone())
}

/// The name of the thread.
const NAME: &str = "redis-lock";

/// Whether this is the thread.
pub(crate) fn is_own_thread() -> bool {
    thread::current().name() == Some(NAME)
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
    thread::Builder::new().name(NAME.into()).spawn(work)?;
    let ended = || io::Error::other("the thread has ended");
    receiver.recv().map_err(|_| ended())?
}

/// Runs a future in the caller's task, under any executor, with the timers and connections of this crate's runtime.
///
/// # Errors
/// When the runtime cannot be started.
pub(crate) fn within<T>(work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    // Boxed outside of the block: each future that held it would have a place for it twice, and copy all of them.
    let mut work = Box::pin(work);
    async move {
        let handle = handle()?;
        poll_fn(|context| {
            let _caller = SetCaller::to_present();
            let _entered = handle.enter();
            work.as_mut().poll(context)
        })
        .await
    }
}

thread_local! {
    /// The runtime that polls the caller's future, outside of this crate's.
    static CALLER: Cell<Option<Id>> = const { Cell::new(None) };
}

/// Sets [`CALLER`] until it is dropped; what was set before.
struct SetCaller(Option<Id>);

impl SetCaller {
    /// To that of this crate: the runtime of the caller stands still, or may.
    fn to_own() -> SetCaller {
        let own = handle().ok().map(|handle| handle.id());
        SetCaller(CALLER.replace(own))
    }

    /// To the runtime that polls now. Where an outer call has set it already, that stays.
    fn to_present() -> SetCaller {
        let present = || Handle::try_current().ok().map(|handle| handle.id());
        SetCaller(CALLER.replace(CALLER.get().or_else(present)))
    }
}

impl Drop for SetCaller {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

/// Whether this runtime polls the caller's future, and goes on while the future waits.
pub(crate) fn is_of_caller(handle: &Handle) -> bool {
    CALLER.get() == Some(handle.id())
}

/// Begins background work in the caller's thread, so that what it sends at first precedes what the caller sends next
/// over the same connection, and leaves the rest to the thread.
pub(crate) fn begin(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(unconstrained(within(async {
        work.await;
        Ok(())
    })));
    let tokio = Handle::try_current();
    let begun = match tokio.is_err_and(|error| error.is_thread_local_destroyed()) {
        // The thread ends: this is a destructor of its locals, and those of tokio are gone.
        true => Poll::Pending,
        false => {
            let _caller = SetCaller::to_own();
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        }
    };
    if begun.is_pending() {
        spawn(async {
            let _ = work.await;
        });
    }
}

/// Runs work as a task of the thread. When the returned future is dropped, so is the work; what it does then counts as
/// background work of these servers.
///
/// The work may have turns to send requests, which a future that its caller holds and does not poll would keep from
/// others. Nor is its result kept for such a future: after `bound` it is dropped, so that no lock is renewed for a
/// caller that does not take it. Polled after all, the future begins the work anew.
///
/// # Errors
/// When the runtime cannot be started.
pub(crate) async fn on_thread<T: Send + 'static, F>(
    servers: &[&Server],
    bound: Duration,
    work: impl Fn() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>> + Send + 'static,
{
    loop {
        let place = Arc::new(Mutex::new(None));
        let (done, is_done) = oneshot::channel();
        // Dropped when the caller has the result.
        let (_taken, is_taken) = oneshot::channel::<()>();
        let (of_task, work) = (place.clone(), work());
        let mut task = OnDrop(
            servers,
            Some(handle()?.spawn(async move {
                let result = work.await;
                *locked(&of_task) = Some(result);
                let _ = done.send(());
                let _ = timeout(bound, is_taken).await;
                let late = locked(&of_task).take();
                drop(late);
            })),
        );
        let has_ended = is_done.await.is_err();
        let result = locked(&place).take();
        task.1 = None;
        match result {
            Some(result) => return result,
            None if has_ended => {
                return Err(Error::connection("redis-lock", "its thread has ended"))
            }
            None => {}
        }
    }
}

/// The content of a mutex, also after a panic of one that had locked it.
pub(crate) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a task, and counts it as running until its work is dropped.
struct OnDrop<'a>(&'a [&'a Server], Option<JoinHandle<()>>);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.1.take() {
            let running = self.0.iter().map(|server| server.inner.background.begin());
            let running: Vec<_> = running.collect();
            task.abort();
            spawn(async move {
                let _ = task.await;
                drop(running);
            });
        }
    }
}

/// Blocks the thread until the future completes, for programs without an executor.
///
/// It may be called within an executor too, and does not use it; but the other tasks of that thread do not run
/// meanwhile. If one of them holds the lock, and no other thread can poll it, the wait is a deadlock, because the
/// thread of this crate keeps renewing that hold.
///
/// ```no_run
/// use std::time::Duration;
/// use redis_lock_client::{block_on, Lock, Server};
///
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let lock = Lock::new(&server, "invoices:42").lease(Duration::from_secs(10));
/// let Some(guard) = block_on(lock.acquire_within(Duration::from_secs(60)))? else {
///     return Ok(()); // another owner has held it for a minute
/// };
/// let lost = guard.lost();
/// for step in 0..10 {
///     if let Some(why) = lost.reason() {
///         eprintln!("stopped: {why}");
///         break;
///     }
///     work(step, guard.token());
/// }
/// assert_eq!(block_on(guard.release())?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// # fn work(_step: u32, _token: u64) {}
/// ```
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let _caller = SetCaller::to_own();
    // A tokio task has a budget for each poll. When it is used up, futures are pending until the task yields, which a
    // task that blocks its thread never does.
    pollster::block_on(unconstrained(work))
}

/// A task of the thread, or none.
#[derive(Default)]
pub(crate) struct Task(Option<AbortHandle>);

/// Starts a task.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
    // Every task follows a request, which has started the thread.
    let handle = handle().ok();
    Task(handle.map(|handle| handle.spawn(work).abort_handle()))
}

impl Task {
    /// Aborts the task.
    pub(crate) fn end(&self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[allow(clippy::expect_used)]
#[cfg(test)]
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
        // An executor without timers.
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(slept).expect("a thread"), 7);
    }
}
