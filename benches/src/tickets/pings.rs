//! The longest time for which the server does not answer: a connection of its own sends one PING after the other.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::server::{cpu_us_of, Server};

/// Between two PINGs: they must not be the server's work. A stall is found up to this much too short.
const PAUSE: Duration = Duration::from_micros(200);

/// The longest wait for a reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stall {
    /// By the clock. Other work of the machine makes it longer.
    pub ping: Duration,
    /// By the time for which the server's thread had a core meanwhile. The kernel's count is up to 4 ms old.
    pub cpu: Duration,
}

/// A thread that pings.
pub struct Pings {
    done: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Stall>>,
}

impl Pings {
    /// Begins.
    pub fn start(server: &Server) -> io::Result<Pings> {
        let mut conn = server.conn()?;
        let done = Arc::new(AtomicBool::new(false));
        let (stop, task) = (done.clone(), server.main_thread());
        let thread = std::thread::spawn(move || {
            let mut longest = Stall::default();
            while !stop.load(Ordering::Relaxed) {
                let (start, cpu) = (Instant::now(), cpu_us_of(&task));
                conn.ask("PING")?;
                let cpu_us = cpu_us_of(&task) - cpu;
                longest.ping = longest.ping.max(start.elapsed());
                longest.cpu = longest.cpu.max(Duration::from_secs_f64(cpu_us / 1e6));
                std::thread::sleep(PAUSE);
            }
            Ok(longest)
        });
        Ok(Pings { done, thread })
    }

    /// Ends.
    pub fn stop(self) -> io::Result<Stall> {
        self.done.store(true, Ordering::Relaxed);
        let longest = self.thread.join();
        longest.map_err(|_| io::Error::other("the thread that pings has panicked"))?
    }
}
