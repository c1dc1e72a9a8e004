//! The longest time for which the server does not answer: a connection of its own sends one PING after the other.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Between two PINGs: they must not be the server's work. A stall is found up to this much too short.
const PAUSE: Duration = Duration::from_micros(200);

/// A thread that pings.
pub struct Pings {
    done: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Duration>>,
}

impl Pings {
    /// Begins.
    pub fn start(server: &Server) -> io::Result<Pings> {
        let mut conn = server.conn()?;
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                conn.ask("PING")?;
                longest = longest.max(start.elapsed());
                std::thread::sleep(PAUSE);
            }
            Ok(longest)
        });
        Ok(Pings { done, thread })
    }

    /// Ends; the longest time until a reply.
    pub fn stop(self) -> io::Result<Duration> {
        self.done.store(true, Ordering::Relaxed);
        let longest = self.thread.join();
        longest.map_err(|_| io::Error::other("the thread that pings has panicked"))?
    }
}
