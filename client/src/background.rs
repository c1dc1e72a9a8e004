//! What is still under way when its caller has gone: waits that are withdrawn, locks that are given back.

use tokio::sync::watch;

/// Counts what is under way.
#[derive(Default)]
pub(crate) struct Background {
    running: watch::Sender<usize>,
}

impl Background {
    /// One more, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running(self.running.clone())
    }

    /// Ends when nothing is under way.
    pub(crate) async fn settled(&self) {
        let mut running = self.running.subscribe();
        // The sender is ours: it cannot have gone.
        let _ = running.wait_for(|running| *running == 0).await;
    }
}

pub(crate) struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}
