//! The processes that tests start. Each begins with the default action for every signal, whatever the test run
//! inherited (a shell without job control starts its background jobs with SIGINT ignored, nohup(1) with SIGHUP
//! ignored). None outlives the test run, even if the test run is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::OnceLock;
use std::time::Duration;

use crate::wait_for;

/// The variable that marks a family of processes: child processes inherit it.
const MARK: &str = "LOCK_TEST_FAMILY";

/// Starts a child that the kernel kills when the test run ends.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    spawn_with_last_signal(command, libc::SIGKILL)
}

/// The same with another signal than SIGKILL, for a child that ends children of its own first.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn_with_last_signal(command: &mut Command, signal: i32) -> io::Result<Child> {
    prepare(command, signal);
    let (sender, started) = channel();
    let command = std::mem::replace(command, Command::new(""));
    let gone = |_| io::Error::other("the spawning thread has ended");
    spawner().send((command, sender)).map_err(|_| gone(()))?;
    started.recv().map_err(|_| gone(()))?
}

/// Prepares a child that its own thread waits for (`output`, `status`): the signals, and its end with the test run.
pub fn tame(command: &mut Command) -> &mut Command {
    prepare(command, libc::SIGKILL);
    command
}

type Order = (Command, Sender<io::Result<Child>>);

/// The thread that starts the children. The kernel sends the death signal when the thread that forked ends: this thread
/// lives as long as the process, unlike a test's own thread.
fn spawner() -> &'static Sender<Order> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (order, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, sender) in orders {
                let _ = sender.send(command.spawn());
            }
        });
        order
    })
}

fn prepare(command: &mut Command, last_signal: i32) {
    // SAFETY: the closure runs between fork and exec and calls only functions that are safe there:
    // signal(2), sigprocmask(2), prctl(2), getppid(2) on values of its own; it allocates nothing.
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || {
            // The kernel refuses SIGKILL, SIGSTOP and the signals of the C library, which does no harm.
            for signal in 1..=libc::SIGRTMAX() {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            end_with(parent, last_signal)
        });
    }
}

/// Asks the kernel for this signal when the parent ends.
#[cfg(target_os = "linux")]
fn end_with(parent: libc::pid_t, signal: i32) -> io::Result<()> {
    // SAFETY: prctl(2) with PR_SET_PDEATHSIG takes a number and touches no memory; nor does getppid(2).
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before the call.
        if libc::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn end_with(_: libc::pid_t, _: i32) -> io::Result<()> {
    Ok(())
}

/// A child's descendants, also those that have left its process group or outlived it.
#[derive(Debug)]
pub struct Family(String);

impl Family {
    /// Marks the command: its process and all descendants are one family.
    pub fn of(command: &mut Command) -> Family {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}.{number}", std::process::id());
        command.env(MARK, &mark);
        Family(format!("{MARK}={mark}"))
    }

    /// The members that are alive.
    pub fn members(&self) -> Vec<i32> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| self.has(*pid)).collect()
    }

    fn has(&self, pid: i32) -> bool {
        // A zombie has no environment.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|word| word == self.0.as_bytes())
    }

    /// Kills all that are left, and the processes that they have just started. A process shows no environment for a
    /// moment while it calls `exec`, so none is left when none was seen several times in a row.
    pub fn kill(&self) {
        let mut unseen = 0;
        for _ in 0..100 {
            let members = self.members();
            if members.is_empty() {
                unseen += 1;
                if unseen == 3 {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            unseen = 0;
            for pid in members {
                // SAFETY: kill(2) takes numbers. The process has the mark, which only our children inherit.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}

/// Sends a signal to a child that has not been waited for. After `SIGSTOP` it runs no further: the kernel stops a
/// process that runs on another core a moment later.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: `kill` reads two numbers. The caller's child has not been waited for, so its pid is no other process's.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    if signal == libc::SIGSTOP {
        wait_for("the process to stop", || is_stopped(pid));
    }
}

/// The state `T` in `/proc/PID/stat`, behind the name in parentheses.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    state.is_none_or(|rest| rest.starts_with('T'))
}
