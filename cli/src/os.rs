//! What neither the standard library nor nix offers without unsafe code: the signals that this process has inherited,
//! its arguments as ps(1) shows them, the last settings before `exec`, and the status of children with signals of any
//! number.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{exit, Command, ExitStatus};
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{
    dup2_stderr, dup2_stdin, dup2_stdout, fork, getpgrp, getppid, setsid, ForkResult, Pid,
};

use crate::failure::{BY_SIGNAL, OS};
use crate::run::{give, Terminal};
use crate::servers::password_in;

/// A bit for each signal that the parent ignores.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Whether standard output cannot be written to: it is closed, or open for reading.
static IS_MUTE: AtomicBool = AtomicBool::new(false);

/// The signals that the parent blocks.
static BLOCKED: OnceLock<SigSet> = OnceLock::new();

/// The arguments, where the loader passes them.
static WORDS: AtomicPtr<*mut c_char> = AtomicPtr::new(null_mut());

/// Called by the loader: Rust's runtime ignores SIGPIPE before `main`, and opens /dev/null in place of a standard
/// stream that is closed.
#[used]
#[cfg_attr(target_os = "macos", link_section = "__DATA,__mod_init_func")]
#[cfg_attr(not(target_os = "macos"), link_section = ".init_array")]
static AT_LOAD: extern "C" fn(c_int, *mut *mut c_char) = at_load;

extern "C" fn at_load(_count: c_int, words: *mut *mut c_char) {
    if cfg!(any(target_env = "gnu", target_os = "macos")) {
        WORDS.store(words, Relaxed);
    }
    // SAFETY: it only reads.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
    IS_MUTE.store(
        flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY,
        Relaxed,
    );
    for signal in 1..=64 {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: nothing is set, and the action is written to a value of its type. A number that is no signal is an
        // error.
        let is_known = unsafe { libc::sigaction(signal, null(), action.as_mut_ptr()) } == 0;
        // SAFETY: all zeros is a valid action.
        let action = unsafe { action.assume_init() };
        if is_known && action.sa_sigaction == libc::SIG_IGN {
            IGNORED.fetch_or(bit(signal), Relaxed);
        }
    }
}

/// Overwrites the passwords of servers in the arguments, which ps(1) shows to all users. Called before there are
/// threads, and after the arguments were copied.
pub fn hide_passwords() {
    let mut words = WORDS.load(Relaxed);
    let mut is_value = false;
    // SAFETY: the list ends with a null pointer.
    while let Some(word) = unsafe { words.as_ref() }.filter(|word| !word.is_null()) {
        // SAFETY: it ends with a NUL, may be written to, and nothing else refers to it.
        let word = unsafe { slice::from_raw_parts_mut(word.cast::<u8>(), libc::strlen(*word)) };
        let value = match word.strip_prefix(b"--server=") {
            Some(value) => word.len() - value.len(),
            None if is_value => 0,
            None => word.len(),
        };
        is_value = word == b"--server";
        for url in word.split_at_mut(value).1.split_mut(|byte| *byte == b' ') {
            let place = std::str::from_utf8(url).ok().and_then(password_in);
            url.get_mut(place.unwrap_or(0..0))
                .unwrap_or_default()
                .fill(b'*');
        }
        // SAFETY: this was not the end.
        words = unsafe { words.add(1) };
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether nothing can be printed. The standard library does not report it.
pub fn is_mute() -> bool {
    IS_MUTE.load(Relaxed)
}

/// Whether this signal was ignored at the start, as by nohup(1) and for a shell's background jobs.
pub fn is_ignored(signal: Signal) -> bool {
    IGNORED.load(Relaxed) & bit(signal as i32) != 0
}

/// Unblocks all signals: the parent may have blocked SIGCHLD, without which the end of the command is not noticed.
/// Called before there are threads, which inherit the mask.
pub fn unblock_signals() {
    if let Ok(mask) = SigSet::thread_get_mask() {
        let _ = BLOCKED.set(mask);
        let _ = SigSet::empty().thread_set_mask();
    }
}

/// The settings that a command makes before its first instruction.
#[derive(Default)]
pub struct Before<'a> {
    /// The terminal to take.
    pub foreground: Option<&'a Terminal>,
    /// Die with the parent.
    pub die_with_parent: bool,
}

/// Makes these settings before `exec`, and gives the command the signals as this process has inherited them.
pub fn before_exec(command: &mut Command, before: Before<'_>) {
    let terminal = before.foreground.map(|tty| tty.as_fd().as_raw_fd());
    let parent = before.die_with_parent.then(nix::unistd::getpid);
    let (ignored, blocked) = (IGNORED.load(Relaxed), BLOCKED.get().copied());
    let settings = move || {
        if let Some(parent) = parent {
            die_with(parent)?;
        }
        if let Some(terminal) = terminal {
            // SAFETY: the number is that of the terminal, which is open until `exec`.
            give(unsafe { BorrowedFd::borrow_raw(terminal) }, getpgrp());
        }
        for signal in (1..=64).filter(|signal| ignored & bit(*signal) != 0) {
            // SAFETY: no handler is set.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        blocked.unwrap_or_else(SigSet::empty).thread_set_mask()?;
        Ok(())
    };
    // SAFETY: between `fork` and `exec` only functions run that are safe in a signal handler (signal-safety(7); prctl
    // is a system call); nothing allocates.
    unsafe { command.pre_exec(settings) };
}

fn die_with(parent: Pid) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the setting was made.
    match getppid() == parent {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// A process of our control group, in a process group of its own. A signal that ends it was sent to the whole control
/// group, as systemd does, and so to the command, too. It ends with this process. Called before there are threads.
#[cfg(target_os = "linux")]
pub fn start_witness() -> Option<Pid> {
    let parent = nix::unistd::getpid();
    // SAFETY: there is one thread, so the child may do anything.
    match unsafe { fork() }.ok()? {
        ForkResult::Parent { child } => Some(child),
        ForkResult::Child => {
            let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
            while die_with(parent).is_ok() {
                nix::unistd::pause();
            }
            exit(0)
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub fn start_witness() -> Option<Pid> {
    None
}

/// The end of the process that [`go_to_background`] has left waiting.
pub struct Starter {
    waiting: UnixStream,
    /// A lock file, a pipe of a pipeline: who waits for its end must not wait for the background.
    inherited: Vec<OwnedFd>,
}

impl Starter {
    /// Lets it end with status 0, and leaves its session and its standard streams.
    pub fn let_go(mut self) -> io::Result<()> {
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        die_at_end_of_parent(None);
        setsid()?;
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
        dup2_stderr(&nothing)?;
        self.inherited.clear();
        self.waiting.write_all(b".")
    }
}

/// Goes on in a child process. This process waits until it is let go, or for the end of the child, whose status it has
/// then. Called before there are threads.
pub fn go_to_background() -> io::Result<Starter> {
    // SAFETY: no handler is set. Where the parent ignores the signal, a child has no status.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let inherited = inherited();
    let (mut here, waiting) = UnixStream::pair()?;
    // SAFETY: there is one thread, so the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Child => {
            die_at_end_of_parent(Some(Signal::SIGTERM));
            Ok(Starter { waiting, inherited })
        }
        ForkResult::Parent { child } => {
            drop(waiting);
            if here.read_exact(&mut [0]).is_ok() {
                exit(0);
            }
            exit(match waitpid(child, None)? {
                WaitStatus::Exited(_, status) => status,
                WaitStatus::Signaled(_, signal, _) => BY_SIGNAL + signal as i32,
                _ => OS,
            })
        }
    }
}

/// The open files that are not ours: all but the standard streams. None where /proc does not show them.
fn inherited() -> Vec<OwnedFd> {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<RawFd> = numbers.collect();
    // SAFETY: it only reads. The directory's number is no longer open.
    numbers.retain(|number| *number > 2 && unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0);
    // SAFETY: it is open, and nothing in this process owns it.
    let owned = |number| unsafe { OwnedFd::from_raw_fd(number) };
    numbers.into_iter().map(owned).collect()
}

#[cfg(target_os = "linux")]
fn die_at_end_of_parent(signal: Option<Signal>) {
    let _ = nix::sys::prctl::set_pdeathsig(signal);
}

#[cfg(not(target_os = "linux"))]
fn die_at_end_of_parent(_signal: Option<Signal>) {}

/// A child whose state has changed, and its status; reaped, if it has ended. None when there is none.
///
/// # Errors
/// Without any child.
pub fn wait() -> io::Result<Option<(Pid, ExitStatus)>> {
    let mut status = 0;
    // SAFETY: the status is written to a value of its type.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some((Pid::from_raw(pid), ExitStatus::from_raw(status)))),
    }
}
