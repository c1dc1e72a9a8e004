//! Whose the keyboard is. The command has a process group of its own, so that it can be stopped as a whole;
//! a terminal sends its keys, and the signals of Ctrl-C and Ctrl-Z, to one group only, the one in its
//! foreground. What a shell does for its jobs is done here for the one command.
//!
//! When all of standard input, output and error are the terminal, the command has it from the beginning.
//! Else others of our own group may need it (`redis-lock run k -- make | less`), and the command gets it
//! when it asks: it reads, is stopped by the kernel, is given the terminal, and goes on.

use std::fs::File;
use std::io::IsTerminal;

use nix::sys::signal::{killpg, SigSet, SigmaskHow, Signal};
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp, Pid};

/// The terminal that controls this process.
pub struct Terminal {
    tty: File,
}

impl Terminal {
    /// None where no terminal is: a timer, a service.
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
        // Who asks from the background is stopped, unless that signal is blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let before = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        // The group may be gone, or the terminal: then there is nothing to give.
        let _ = tcsetpgrp(&self.tty, group);
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
    }

    /// Takes it back from that group, if it is still there.
    pub fn take_back(&self, group: Pid) -> bool {
        let was_there = self.is_of(group);
        if was_there {
            self.give(getpgrp());
        }
        was_there
    }
}

/// Whether no other process of our group can be using the terminal.
pub fn is_all_ours() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
}

/// Ends as by a signal that the whole group was sent by the terminal: a shell's script around us ends too.
pub fn end_by(signal: Signal, group_too: bool) {
    if group_too {
        let _ = killpg(getpgrp(), signal);
    }
    let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
}
