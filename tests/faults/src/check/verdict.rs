//! What the tests of this folder expect of their histories. Each of these is also written as a file for other checkers,
//! into the directory that `FORGED_HISTORIES` names; the file has the name of its test and a number. Without the
//! variable nothing is written.

use std::cell::Cell;
use std::path::PathBuf;

use crate::export;
use crate::history::{Fault, History, Mark, MS};

use super::{check, Findings, Rule};

thread_local! {
    /// The number of histories that this test has written: every test has a thread of its own.
    static WRITTEN: Cell<u32> = const { Cell::new(0) };
}

/// A fault between two times, in milliseconds.
pub fn mark(fault: Fault, key: Option<u32>, from: u64, to: u64) -> Mark {
    let (from, to) = (from * MS, to * MS);
    Mark {
        fault,
        key,
        from,
        to,
    }
}

/// The history breaks this rule, once, and no other.
#[track_caller]
pub fn breaks(history: &History, rule: Rule) {
    keep(history);
    let violations = check(history).violations;
    let broken: Vec<_> = violations.iter().map(|v| v.rule).collect();
    assert_eq!(broken, [rule], "{violations:?}");
}

/// The findings about a history that breaks no rule.
#[track_caller]
pub fn accepted(history: &History) -> Findings {
    keep(history);
    let findings = check(history);
    assert!(findings.violations.is_empty(), "{:?}", findings.violations);
    findings
}

/// Writes a history, if that is wanted.
pub fn keep(history: &History) {
    let Some(dir) = std::env::var_os("FORGED_HISTORIES") else {
        return;
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let test = test.trim_start_matches("check::").replace("::", ".");
    let number = WRITTEN.with(|written| written.replace(written.get() + 1) + 1);
    let name = format!("{test}.{number:03}");
    let path = PathBuf::from(dir).join(format!("{name}.jsonl"));
    export::write(history, &check(history), &name, &path).expect("a file");
}
