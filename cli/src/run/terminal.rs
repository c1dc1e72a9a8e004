//! Job control: the terminal's foreground process group. The command has a process group of its own, so that it can be
//! stopped as a whole; a terminal sends its keys, and the signals of Ctrl-C and Ctrl-Z, only to its foreground group.
//! This file does for one command what a shell does for its jobs.
//!
//! When standard input, output and error are all the terminal, the command has it from its start. Otherwise other
//! processes of our own group may need it (`redis-lock run k -- make | less`), and the command gets it on demand: it
//! reads, is stopped by the kernel, gets the terminal, and continues.

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{killpg, SigSet, SigmaskHow, Signal};
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp, Pid};

/// The terminal that controls this process.
pub struct Terminal {
    tty: File,
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tty.as_fd()
    }
}

impl Terminal {
    /// None without a terminal, as in a timer or a service.
    pub fn open() -> Option<Terminal> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Terminal { tty })
    }

    /// Whether this process group is in the foreground.
    pub fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Whether that process group is in the foreground.
    pub fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Puts a process group of this session into the foreground.
    pub fn give(&self, group: Pid) {
        give(self.as_fd(), group);
    }

    /// Takes the terminal back from that group, if it is still in the foreground.
    pub fn take_back(&self, group: Pid) -> bool {
        let was_there = self.is_of(group);
        if was_there {
            self.give(getpgrp());
        }
        was_there
    }
}

/// Puts a process group of this session into the foreground of its terminal. Safe between `fork` and `exec`.
pub fn give(tty: BorrowedFd<'_>, group: Pid) {
    // A call from the background is stopped by SIGTTOU, unless it is blocked.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let before = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    // Fails only if the group or the terminal no longer exists.
    let _ = tcsetpgrp(tty, group);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}

/// Whether standard input, output and error are terminals, so that no other process of our group uses one.
pub fn is_all_ours() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
}

/// Ends the process by this signal, with its group if `group_too`, as after a signal of the terminal: a shell script
/// around it ends too.
pub fn end_by(signal: Signal, group_too: bool) {
    if group_too {
        let _ = killpg(getpgrp(), signal);
    }
    let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
}
