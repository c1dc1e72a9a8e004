//! A request for several keys holds all of them or none.
//!
//! From the request until the first of its leases may be over, every atomic reading of all its keys shows all or none
//! of them held; before the grant was possible, or without a grant, none.

use std::collections::HashMap;

use crate::history::{Call, Look, Nanos, Op, Outcome, Tie};

use super::holds::{Hold, SLACK};
use super::marks::Marks;
use super::{Findings, Rule};

/// One request and its keys.
struct Request<'a> {
    ops: Vec<&'a Op>,
    sent: Nanos,
    /// No grant of a refused request's owner before then: when its reply was read, or when another request of the owner
    /// was sent.
    done: Nanos,
    /// The granted keys are surely held until then; 0: no key was granted.
    surely_until: Nanos,
}

/// All holds, all requests sorted by key, owner and time, and the atomic readings.
pub fn check(holds: &[Hold], ops: &[&Op], looks: &[Look], marks: &Marks, findings: &mut Findings) {
    let requests = requests(holds, ops, findings);
    for look in looks {
        let mut held: HashMap<u64, Vec<u32>> = HashMap::new();
        for (key, owner) in &look.holders {
            held.entry(*owner).or_default().push(*key);
        }
        for (owner, keys) in held {
            for request in requests.get(&owner).into_iter().flatten() {
                judge(request, look, &keys, marks, findings);
            }
        }
    }
}

/// The requests of each owner for several keys. Contradictory replies are reported as violations.
fn requests<'a>(
    holds: &[Hold],
    ops: &[&'a Op],
    findings: &mut Findings,
) -> HashMap<u64, Vec<Request<'a>>> {
    let mut requests: HashMap<u64, Vec<Request>> = HashMap::new();
    for op in ops {
        if !matches!(op.call, Call::Acquire { tie: Tie::Many, .. }) {
            continue;
        }
        let of_owner = requests.entry(op.owner).or_default();
        match of_owner.iter_mut().find(|request| request.sent == op.sent) {
            Some(request) => request.ops.push(op),
            None => of_owner.push(Request {
                ops: vec![op],
                sent: op.sent,
                done: op.done,
                surely_until: 0,
            }),
        }
    }
    let sure: HashMap<(u64, u32, Nanos), Nanos> = holds
        .iter()
        .map(|hold| ((hold.owner, hold.key, hold.asked), hold.surely_until))
        .collect();
    for request in requests.values_mut().flatten() {
        let granted = |op: &&&Op| matches!(op.outcome, Outcome::Granted(_));
        let count = request.ops.iter().filter(granted).count();
        if count != 0 && count != request.ops.len() {
            let text = format!("a part of a request was granted: {:?}", request.ops);
            findings.violation(Rule::AllOrNothing, text);
        }
        let until = |op: &&Op| sure.get(&(op.owner, op.key, op.sent)).copied();
        request.surely_until = request.ops.iter().filter_map(until).min().unwrap_or(0);
    }
    part(&mut requests, ops);
    requests
}

/// Ends each request of an owner where another one begins that was not refused.
fn part(requests: &mut HashMap<u64, Vec<Request>>, ops: &[&Op]) {
    for op in ops {
        if !matches!(op.call, Call::Acquire { .. }) || is_refused(op) {
            continue;
        }
        for request in requests.get_mut(&op.owner).into_iter().flatten() {
            if request.sent != op.sent {
                request.done = request.done.min(op.sent);
            }
        }
    }
}

fn is_refused(op: &Op) -> bool {
    matches!(op.outcome, Outcome::Nil | Outcome::Error(_))
}

/// An atomic reading that shows which of these keys this owner held.
fn judge(request: &Request, look: &Look, keys: &[u32], marks: &Marks, findings: &mut Findings) {
    let wanted = request.ops.len();
    let seen = request
        .ops
        .iter()
        .filter(|op| keys.contains(&op.key))
        .count();
    if seen == 0 || look.to < request.sent {
        return;
    }
    let is_during = look.from > request.sent && look.to + SLACK < request.done;
    let is_sure = look.from > request.sent && look.to + SLACK < request.surely_until;
    let is_wrong = match is_refused(request.ops[0]) {
        true => is_during,
        false => is_sure && seen != wanted,
    };
    let mut keys = request.ops.iter().map(|op| op.key);
    let mut is_excused = || keys.any(|key| marks.excuse_overlap(key, request.sent, look.to));
    if is_wrong && !is_excused() {
        let text = format!(
            "{seen} of {wanted} keys held: {:?}, seen {look:?}",
            request.ops
        );
        findings.violation(Rule::AllOrNothing, text);
    }
}
