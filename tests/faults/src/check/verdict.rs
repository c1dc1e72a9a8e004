//! What the tests of this folder expect of their histories. Each history is also written for Porcupine, with the rule
//! that it breaks, into the directory that `FORGED_HISTORIES` names; the file has the name of its test and a number.
//! `make test-histories` lets Porcupine judge those files. Without the variable nothing is written.

use std::cell::Cell;
use std::path::PathBuf;

use crate::export::{self, Forgery};
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

/// The history breaks this rule, once, and none of the others that are judged here.
#[track_caller]
pub fn breaks(history: &History, rule: Rule) {
    keep(history, Some(rule));
    let violations = check(history).violations;
    let broken: Vec<_> = violations.iter().map(|v| v.rule).collect();
    let wanted: &[Rule] = if rule.is_porcupines() { &[] } else { &[rule] };
    assert_eq!(broken, wanted, "{violations:?}");
}

/// The history breaks this rule, perhaps with others.
#[track_caller]
pub fn breaks_among_others(history: &History, rule: Rule) {
    keep(history, Some(rule));
    assert!(
        rule.is_porcupines() || check(history).count(rule) > 0,
        "a forgery of {rule:?} is not found: {history:?}"
    );
}

/// The findings about a history that breaks no rule.
#[track_caller]
pub fn accepted(history: &History) -> Findings {
    keep(history, None);
    let findings = check(history);
    assert!(findings.violations.is_empty(), "{:?}", findings.violations);
    findings
}

/// Writes a history that breaks this rule, or none.
pub fn keep(history: &History, breaks: Option<Rule>) {
    let Some(dir) = std::env::var_os("FORGED_HISTORIES") else {
        return;
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let test = test.trim_start_matches("check::").replace("::", ".");
    let number = WRITTEN.with(|written| written.replace(written.get() + 1) + 1);
    let name = format!("{test}.{number:03}");
    let path = PathBuf::from(dir).join(format!("{name}.jsonl"));
    let found = check(history).violations.iter().map(|v| v.rule).collect();
    let forgery = Forgery { breaks, found };
    export::write(history, &name, Some(&forgery), &path).expect("a file");
}
