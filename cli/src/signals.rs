//! The signals that `redis-lock` receives, one after another.
//!
//! A signal that was ignored at the start stays ignored, by redis-lock and by the command: nohup(1) and a shell's
//! background jobs rely on that.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{signal, SignalKind};

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
}

impl Signals {
    /// Handles the signals that are passed on, except the ignored ones.
    pub fn listen() -> io::Result<Signals> {
        let mut signals = Signals {
            streams: Vec::new(),
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
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
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
