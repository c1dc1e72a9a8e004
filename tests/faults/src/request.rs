//! The words of requests, and the meaning of their replies.

use crate::history::{Answer, Ask, Call, Kind, Outcome, Tie};
use crate::wire::{Reply, Wire};

/// Adds a request to the connection's next write.
pub fn push(wire: &mut Wire, key: &str, owner: u64, call: Call) {
    push_words(wire, &words(key, owner, call));
}

/// The same for a request about several keys.
pub fn push_many(wire: &mut Wire, keys: &[&str], owner: u64, call: Call) {
    push_words(wire, &many_words(keys, owner, call));
}

fn many_words(keys: &[&str], owner: u64, call: Call) -> Vec<String> {
    let (verb, options) = options(call);
    let mut words = vec![format!("LOCK.M{verb}"), keys.len().to_string()];
    words.extend(keys.iter().map(ToString::to_string));
    words.push(owner.to_string());
    words.extend(options);
    words
}

/// Adds a request with `NOTIFY`, for one key or several.
pub fn push_ask(wire: &mut Wire, keys: &[&str], ask: &Ask) {
    push_words(wire, &ask_words(keys, ask));
}

/// Adds a request of these words.
pub fn push_words(wire: &mut Wire, words: &[String]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    wire.push(&words);
}

fn ask_words(keys: &[&str], ask: &Ask) -> Vec<String> {
    let call = ask.call();
    let mut words = match keys {
        [key] => words(key, ask.owner, call),
        _ => many_words(keys, ask.owner, call),
    };
    words.extend(["NOTIFY".into(), ask.channel.clone(), ask.tag.to_string()]);
    words
}

/// The reply to a request with `NOTIFY`.
pub fn answer(reply: &Reply) -> Answer {
    match reply {
        Reply::Int(token) => Answer::Granted(vec![*token]),
        Reply::List(tokens) => {
            let tokens = tokens.iter().filter_map(|token| match token {
                Reply::Int(token) => Some(*token),
                _ => None,
            });
            Answer::Granted(tokens.collect())
        }
        Reply::Text(text) if text == "QUEUED" => Answer::Queued,
        other => Answer::Error(other.code().unwrap_or("nil").into()),
    }
}

/// The outcome for each key of a request about this number of keys.
pub fn many_outcomes(call: Call, keys: usize, reply: &Reply) -> Vec<Outcome> {
    match (call, reply) {
        (Call::Acquire { .. }, Reply::List(tokens)) if tokens.len() == keys => {
            tokens.iter().map(|token| outcome(call, token)).collect()
        }
        // The number of keys: all or none; otherwise it is not known which ones.
        (_, Reply::Int(count)) if *count == keys as i64 => vec![Outcome::Number(1); keys],
        (Call::Renew { .. }, Reply::Int(0)) => vec![Outcome::Number(0); keys],
        (Call::Release { .. }, Reply::Int(0)) => vec![Outcome::Nil; keys],
        (Call::Renew { .. } | Call::Release { .. }, Reply::Int(_)) => vec![Outcome::Lost; keys],
        (_, other) => vec![outcome(call, other); keys],
    }
}

fn words(key: &str, owner: u64, call: Call) -> Vec<String> {
    let family = match call.kind() {
        Kind::Permit(_) => "SEM",
        _ => "LOCK",
    };
    let mode = match call.kind() {
        Kind::Read => Some("READ"),
        Kind::Write => Some("WRITE"),
        Kind::Exclusive | Kind::Permit(_) => None,
    };
    let (verb, options) = options(call);
    let mut words = vec![format!("{family}.{verb}"), key.into(), owner.to_string()];
    words.extend(mode.map(String::from));
    words.extend(options);
    words
}

fn options(call: Call) -> (&'static str, Vec<String>) {
    let mut options = Vec::new();
    let mut number = |name: &str, number: Option<i64>| {
        let number = number.map(|number| [name.to_string(), number.to_string()]);
        options.extend(number.into_iter().flatten());
    };
    // A semaphore has no options for the kind of hold: an id has one permit.
    let (verb, word) = match call {
        Call::Acquire {
            kind,
            tie,
            lease,
            block,
            once,
        } => {
            let limit = match kind {
                Kind::Permit(limit) => Some(limit),
                _ => None,
            };
            number("LIMIT", limit.map(i64::from));
            number("PX", (tie != Tie::Session).then_some(lease.into()));
            number("BLOCK", block.map(i64::from));
            if tie == Tie::Session {
                options.push("SESSION".into());
            }
            let once = once && limit.is_none();
            ("ACQUIRE", once.then_some("ONCE"))
        }
        Call::Renew { kind, lease, token } => {
            number("PX", Some(lease.into()));
            number("TOKEN", token.filter(|_| !is_permit(kind)));
            ("RENEW", None)
        }
        Call::Release { kind, all, token } => {
            number("TOKEN", token.filter(|_| !is_permit(kind)));
            ("RELEASE", (all && !is_permit(kind)).then_some("ALL"))
        }
        Call::Close => ("CLOSE", None),
    };
    options.extend(word.map(String::from));
    (verb, options)
}

fn is_permit(kind: Kind) -> bool {
    matches!(kind, Kind::Permit(_))
}

/// The outcome of a reply to this request.
pub fn outcome(call: Call, reply: &Reply) -> Outcome {
    match (call, reply) {
        (Call::Acquire { .. }, Reply::Int(token)) => Outcome::Granted(*token),
        (_, Reply::Int(number)) => Outcome::Number(*number),
        (_, Reply::Nil) => Outcome::Nil,
        (_, other) => Outcome::Error(other.code().unwrap_or("?").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_syntax_of_the_commands() {
        let (block, once) = (Some(0), true);
        for (kind, tie, line) in [
            (
                Kind::Exclusive,
                Tie::None,
                "LOCK.ACQUIRE k 7 PX 50 BLOCK 0 ONCE",
            ),
            (
                Kind::Read,
                Tie::Session,
                "LOCK.ACQUIRE k 7 READ BLOCK 0 SESSION ONCE",
            ),
            (
                Kind::Permit(3),
                Tie::None,
                "SEM.ACQUIRE k 7 LIMIT 3 PX 50 BLOCK 0",
            ),
        ] {
            let lease = 50;
            let acquire = Call::Acquire {
                kind,
                tie,
                lease,
                block,
                once,
            };
            assert_eq!(words("k", 7, acquire).join(" "), line);
        }
        let (kind, all, token) = (Kind::Write, true, Some(9));
        let release = Call::Release { kind, all, token };
        let line = "LOCK.RELEASE k 7 WRITE TOKEN 9 ALL";
        assert_eq!(words("k", 7, release).join(" "), line);
        let kind = Kind::Permit(3);
        let release = Call::Release { kind, all, token };
        assert_eq!(words("k", 7, release).join(" "), "SEM.RELEASE k 7");
        let lease = 50;
        let renew = Call::Renew { kind, lease, token };
        assert_eq!(words("k", 7, renew).join(" "), "SEM.RENEW k 7 PX 50");
    }
}
