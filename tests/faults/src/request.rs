//! Requests as words, and what their replies mean.

use crate::history::{Call, Outcome};
use crate::wire::{Reply, Wire};

/// Adds a request to the connection's next write.
pub fn push(wire: &mut Wire, key: &str, owner: u64, call: Call) {
    let owner = owner.to_string();
    let text = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
    let (lease, block, token) = match call {
        Call::Acquire { lease, block, .. } => (Some(lease), block, None),
        Call::Renew { lease, token } => (Some(lease), None, token),
        Call::Release { token, .. } => (None, None, token),
    };
    let numbers = [
        ("PX", text(lease.map(i64::from))),
        ("BLOCK", text(block.map(i64::from))),
        ("TOKEN", text(token)),
    ];
    let (name, flag) = match call {
        Call::Acquire { once, .. } => ("LOCK.ACQUIRE", once.then_some("ONCE")),
        Call::Renew { .. } => ("LOCK.RENEW", None),
        Call::Release { all, .. } => ("LOCK.RELEASE", all.then_some("ALL")),
    };
    let mut words = vec![name, key, &owner];
    for (option, number) in numbers.iter().filter(|(_, number)| !number.is_empty()) {
        words.extend([option, number.as_str()]);
    }
    words.extend(flag);
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    wire.push(&words);
}

/// What a reply to this request means.
pub fn outcome(call: Call, reply: &Reply) -> Outcome {
    match (call, reply) {
        (Call::Acquire { .. }, Reply::Int(token)) => Outcome::Granted(*token),
        (_, Reply::Int(number)) => Outcome::Number(*number),
        (_, Reply::Nil) => Outcome::Nil,
        (_, other) => Outcome::Error(other.code().unwrap_or("?").into()),
    }
}
