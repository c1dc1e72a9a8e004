//! The descendants of this process, as /proc shows them (Linux).
//!
//! A child may leave its process group (timeout(1), setsid(1), `bash -m`) or outlive its parent. As a child
//! subreaper this process is the next parent of each descendant whose parent ends, so all of them stay below it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{getpid, Pid};

use crate::os::wait;

/// A descendant that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub parent: Pid,
    pub group: Pid,
}

/// The descendants of this process from a certain moment on.
pub struct Family {
    /// Descendants that this process had before, and their own: a shell with background jobs may have called `exec` for
    /// this program.
    strangers: RefCell<HashSet<Pid>>,
}

impl Family {
    /// All descendants from now on. None where /proc is missing, or shows another namespace of processes.
    pub fn from_now_on() -> Option<Family> {
        let shown = fs::read_link("/proc/self").ok()?;
        let is_ours = shown.to_str() == Some(&getpid().to_string());
        let adopts = become_subreaper();
        // Fast path: usually there are none, and /proc need not be read.
        let strangers = match wait() {
            Err(_) => HashSet::new(),
            Ok(_) => below(vec![getpid()], &living()).collect(),
        };
        let strangers = RefCell::new(strangers);
        (is_ours && adopts).then_some(Family { strangers })
    }

    /// The living descendants. A process that is just being forked may be missing.
    pub fn members(&self) -> Vec<Process> {
        let living = living();
        let mut strangers = self.strangers.borrow_mut();
        if !strangers.is_empty() {
            // Their children are recorded while the parents live: later they become children of this process.
            let started: Vec<Pid> = below(strangers.iter().copied().collect(), &living).collect();
            strangers.extend(started);
            strangers.retain(|stranger| living.iter().any(|process| process.pid == *stranger));
        }
        let own: HashSet<Pid> = below(vec![getpid()], &living).collect();
        let is_member =
            |process: &Process| own.contains(&process.pid) && !strangers.contains(&process.pid);
        living.into_iter().filter(is_member).collect()
    }

    pub fn has_strangers(&self) -> bool {
        !self.strangers.borrow().is_empty()
    }
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> bool {
    nix::sys::prctl::set_child_subreaper(true).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> bool {
    false
}

/// The descendants of these processes.
fn below(mut parents: Vec<Pid>, living: &[Process]) -> impl Iterator<Item = Pid> {
    let mut by_parent: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for process in living {
        by_parent
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let children = by_parent.remove(&parent).unwrap_or_default();
        parents.extend(&children);
        found.extend(children);
    }
    found.into_iter()
}

/// Whether that process has not ended.
pub fn is_living(pid: Pid) -> bool {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse(pid.as_raw(), &String::from_utf8_lossy(&stat)).is_some(),
        // Without /proc, or hidden there.
        Err(_) => matches!(kill(pid, None), Ok(()) | Err(Errno::EPERM)),
    }
}

fn living() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    let read = |pid| fs::read(format!("/proc/{pid}/stat")).ok();
    pids.filter_map(|pid| parse(pid, &String::from_utf8_lossy(&read(pid)?)))
        .collect()
}

/// A line of /proc/PID/stat (proc(5)): `PID (NAME) STATE PARENT GROUP ...`. The name may have any bytes in it,
/// what follows it has no parentheses. None for a process that has ended and is still to be waited for.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    /// The index of the field among those after the name.
    const THREADS: usize = 17;
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<i32>().ok();
    // The first thread of a process may end before the others: then it is shown as ended.
    let is_ended = matches!(*fields.first()?, "Z" | "X") && number(THREADS)? <= 1;
    let (parent, group) = (number(1)?, number(2)?);
    (!is_ended).then_some(Process {
        pid: Pid::from_raw(pid),
        parent: Pid::from_raw(parent),
        group: Pid::from_raw(group),
    })
}

/// Processes that the command has started, with their number and pids.
pub fn named(processes: &[Process]) -> String {
    let mut pids: Vec<Pid> = processes.iter().map(|process| process.pid).collect();
    pids.sort();
    let numbers: Vec<String> = pids.iter().map(Pid::to_string).collect();
    match numbers.as_slice() {
        [] => "processes that the command started".into(),
        [pid] => format!("1 process that the command started (pid {pid})"),
        pids => format!(
            "{} processes that the command started (pids {})",
            pids.len(),
            pids.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields from the session to the niceness.
    const BETWEEN: &str = "3 0 -1 1 0 0 0 0 0 0 0 0 20 0";

    fn parsed(start: &str, threads: u32) -> Option<(i32, i32)> {
        let stat = format!("7 {start} 4 5 {BETWEEN} {threads} 0 99\n");
        parse(7, &stat).map(|process| (process.parent.as_raw(), process.group.as_raw()))
    }

    #[test]
    fn parent_and_group_are_parsed_after_any_name() {
        for name in ["(sh)", "(a) S 9 9)", "((x) )", "(a\nb)", "()"] {
            assert_eq!(parsed(&format!("{name} S"), 1), Some((4, 5)), "{name}");
        }
        for garbage in ["", "7", "7 (sh", "7 (sh) S", "7 (sh) S x y"] {
            assert_eq!(parse(7, garbage), None, "{garbage}");
        }
    }

    #[test]
    fn a_process_has_ended_when_all_its_threads_have() {
        assert_eq!(parsed("(sh) Z", 1), None);
        assert_eq!(parsed("(sh) Z", 2), Some((4, 5)));
    }
}
