//! The thread that runs code of the program for this crate's thread: a subscriber of `tracing` or an observer may
//! block, and renewals go on.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::OnceLock;
use std::thread;

use crate::runtime::is_own_thread;

/// Events that wait for the program; further ones are dropped.
const MAX_WAITING: usize = 10_000;

type Event = Box<dyn FnOnce() + Send>;

/// Runs code of the program, on this crate's thread by the other one.
pub(crate) fn aside(event: impl FnOnce() + Send + 'static) {
    static WAITING: OnceLock<Option<SyncSender<Event>>> = OnceLock::new();
    if !is_own_thread() {
        return event();
    }
    if let Some(waiting) = WAITING.get_or_init(start) {
        let _ = waiting.try_send(Box::new(event));
    }
}

/// None where the system refuses the thread.
fn start() -> Option<SyncSender<Event>> {
    let (sender, waiting) = sync_channel::<Event>(MAX_WAITING);
    let work = move || {
        for event in waiting {
            // Code that panics costs one event.
            let _ = catch_unwind(AssertUnwindSafe(event));
        }
    };
    let thread = thread::Builder::new().name("redis-lock-log".into());
    thread.spawn(work).ok().map(|_| sender)
}
