//! The signals that `redis-lock` receives, one after another.
//!
//! A signal that was ignored at the start stays ignored, by redis-lock and by the command: nohup(1) and a shell's
//! background jobs rely on that.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{signal, SignalKind};
use tokio::time::timeout;

use crate::os::is_ignored;

/// The signals that are passed on to the command.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

const AT_ONCE: Duration = Duration::from_millis(250);

/// Whether the signal asks a program to end.
pub fn is_end(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT
    )
}

/// The streams of the handled signals.
pub struct Signals {
    streams: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// Whether one has asked this program to end.
    had_end: bool,
}

impl Signals {
    /// Handles the signals that are passed on, except the ignored ones.
    pub fn listen() -> io::Result<Signals> {
        let mut signals = Signals {
            streams: Vec::new(),
            had_end: false,
        };
        for signal in FORWARDED {
            if !is_ignored(signal) {
                signals.also(signal)?;
            }
        }
        Ok(signals)
    }

    /// Handles one more signal.
    pub fn also(&mut self, number: Signal) -> io::Result<()> {
        let stream = signal(SignalKind::from_raw(number as i32))?;
        self.streams.push((number, stream));
        Ok(())
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (number, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    self.had_end |= is_end(*number);
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for a signal after one that ended a program, which may be still to come. Those that come at once belong to
    /// it: timeout(1) sends two, and a key of the terminal ends the parent, too.
    pub async fn one_more_fatal(&mut self) {
        if !self.had_end {
            self.next_fatal().await;
        }
        let at_once = async {
            loop {
                self.next_fatal().await;
            }
        };
        let _: Result<(), _> = timeout(AT_ONCE, at_once).await;
        self.next_fatal().await;
    }

    /// The next signal that by default ends a program.
    pub async fn next_fatal(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !matches!(signal, Signal::SIGWINCH | Signal::SIGCONT | Signal::SIGCHLD) {
                return signal;
            }
        }
    }
}
