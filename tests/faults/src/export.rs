//! Histories for Porcupine and other checkers: JSON lines, in the format of tests/linearizability/README.md.
//!
//! A request by ticket and its message are one operation, as in `check`. Left out are what only the rules of `check`
//! need: sights of waiters, subscriptions, and the counters of tickets.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::check::{self, Rule};
use crate::history::{
    Call, History, Kind, LatchCall, LatchOp, Look, Mark, Nanos, Only, Op, Outcome, Tie,
};

/// The version of the format.
const FORMAT: u32 = 2;

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Record<'a> {
    Run(Run<'a>),
    Operation(Operation<'a>),
    Reading(Reading<'a>),
    Loss(Loss),
}

#[derive(Serialize)]
struct Run<'a> {
    format: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    forged: Option<Forged>,
}

#[derive(Serialize)]
struct Forged {
    breaks: Option<String>,
    found: Vec<String>,
}

/// What is known of a history that a test has made.
pub struct Forgery {
    /// The rule that it breaks by its test.
    pub breaks: Option<Rule>,
    /// The rules that `check` finds broken.
    pub found: BTreeSet<Rule>,
}

#[derive(Default, Serialize)]
struct Operation<'a> {
    process: u32,
    operation: &'static str,
    key: u32,
    kind: &'static str,
    owner: u64,
    invoke: Nanos,
    complete: Nanos,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    named_token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tie: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<&'static str>,
    once: bool,
    all: bool,
}

#[derive(Serialize)]
struct Reading<'a> {
    invoke: Nanos,
    complete: Nanos,
    holders: &'a [(u32, u64)],
}

#[derive(Serialize)]
struct Loss {
    fault: String,
    key: Option<u32>,
    from: Nanos,
    to: Nanos,
    loses_holds: bool,
    restores_holds: bool,
    lengthens_leases: bool,
}

/// Writes a history of this name.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    history: &History,
    name: &str,
    forgery: Option<&Forgery>,
    path: &Path,
) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut put = |record: &Record| -> std::io::Result<()> {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")
    };
    let rule = |rule: &Rule| format!("{rule:?}");
    put(&Record::Run(Run {
        format: FORMAT,
        name,
        forged: forgery.map(|forgery| Forged {
            breaks: forgery.breaks.as_ref().map(rule),
            found: forgery.found.iter().map(rule).collect(),
        }),
    }))?;
    for mark in &history.marks {
        put(&Record::Loss(loss(mark)))?;
    }
    for look in &history.looks {
        put(&Record::Reading(reading(look)))?;
    }
    for op in &check::requests(history) {
        put(&Record::Operation(operation(op)))?;
    }
    for op in &history.latches {
        put(&Record::Operation(latch_operation(op)))?;
    }
    file.flush()
}

fn loss(mark: &Mark) -> Loss {
    Loss {
        fault: format!("{:?}", mark.fault),
        key: mark.key,
        from: mark.from,
        to: mark.to,
        loses_holds: mark.fault.breaks_exclusion(),
        restores_holds: mark.fault.restores(),
        lengthens_leases: mark.fault.lengthens_leases(),
    }
}

fn reading(look: &Look) -> Reading<'_> {
    Reading {
        invoke: look.from,
        complete: look.to,
        holders: &look.holders,
    }
}

fn operation(op: &Op) -> Operation<'_> {
    let kind = op.call.kind();
    let mut record = Operation {
        process: op.client,
        operation: "close",
        key: op.key,
        kind: match kind {
            Kind::Exclusive => "exclusive",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Permit(_) => "permit",
        },
        owner: op.owner,
        invoke: op.sent,
        complete: op.done,
        permits: match kind {
            Kind::Permit(permits) => Some(permits),
            _ => None,
        },
        ..result(&op.outcome)
    };
    match op.call {
        Call::Acquire {
            tie,
            lease,
            block,
            once,
            ..
        } => {
            record.operation = "acquire";
            record.lease_ms = Some(lease);
            record.block_ms = block;
            record.once = once;
            record.tie = match tie {
                Tie::None => None,
                Tie::Session => Some("session"),
                Tie::Many => Some("many"),
                Tie::Outside => Some("outside"),
            };
        }
        Call::Renew { lease, token, .. } => {
            record.operation = "renew";
            record.lease_ms = Some(lease);
            record.named_token = token;
        }
        Call::Release { all, token, .. } => {
            record.operation = "release";
            record.all = all;
            record.named_token = token;
        }
        Call::Close => {}
    }
    record
}

/// A record with this result alone.
fn result(outcome: &Outcome) -> Operation<'_> {
    let (result, token, value, error) = match outcome {
        Outcome::Granted(token) => ("granted", Some(*token), None, None),
        Outcome::Number(value) => ("number", None, Some(*value), None),
        Outcome::Nil => ("nil", None, None, None),
        Outcome::Error(code) => ("error", None, None, Some(&**code)),
        Outcome::Lost | Outcome::Silent => ("unknown", None, None, None),
    };
    Operation {
        result,
        token,
        value,
        error,
        ..Operation::default()
    }
}

fn latch_operation(op: &LatchOp) -> Operation<'_> {
    let mut record = Operation {
        process: op.client,
        key: op.latch,
        kind: "latch",
        invoke: op.sent,
        complete: op.done,
        ..result(&op.outcome)
    };
    match op.call {
        LatchCall::Set { count, only } => {
            record.operation = "set";
            record.count = Some(count);
            record.condition = match only {
                Only::Always => None,
                Only::IfOpen => Some("nx"),
                Only::IfClosed => Some("xx"),
            };
        }
        LatchCall::Delete => record.operation = "delete",
        LatchCall::Down { by } => {
            record.operation = "down";
            record.count = Some(by);
        }
        LatchCall::Wait { block } => {
            record.operation = "wait";
            record.block_ms = block;
        }
    }
    record
}
