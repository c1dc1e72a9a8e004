//! Tickets: each request with `NOTIFY` has one outcome, which is explained, and reaches a subscriber.

use std::collections::HashSet;

use crate::history::{Answer, Ask, Call, History, Look, Message, Nanos, Op, Outcome, Word, MS};

use super::holds::SLACK;
use super::marks::Marks;
use super::waits::Waits;
use super::{Findings, Rule};

/// All requests of the history with `NOTIFY`, and all of its requests with the acquires that those are.
pub fn check(
    history: &History,
    waits: &Waits,
    ops: &[&Op],
    marks: &Marks,
    findings: &mut Findings,
) {
    findings.asks = history.asks.len() as u64;
    findings.messages = history.messages.len() as u64;
    let queued = |ask: &&Ask| ask.answer == Answer::Queued;
    findings.queued = history.asks.iter().filter(queued).count() as u64;
    let asked: HashSet<_> = history
        .asks
        .iter()
        .map(|ask| (ask.client, ask.tag))
        .collect();
    for message in &history.messages {
        if !asked.contains(&(message.client, message.tag)) {
            let text = format!("a message for no request: {message:?}");
            findings.violation(Rule::Tickets, text);
        }
    }
    for ask in &history.asks {
        for text in [
            one_outcome(ask, waits),
            deafness(ask, waits),
            waits
                .messages(ask)
                .first()
                .and_then(|m| cause(ask, m, marks)),
        ] {
            findings.violations_of(Rule::Tickets, text);
        }
    }
    for pair in history.looks.windows(2) {
        unheard(&pair[0], &pair[1], waits, marks, findings);
    }
    for of_owner in ops.chunk_by(|a, b| (a.key, a.owner) == (b.key, b.owner)) {
        if let Some(first) = of_owner.first() {
            let asks = waits.asks(first.owner);
            findings.violations_of(Rule::Tickets, queued_holder(of_owner, asks, marks));
            if !asks.is_empty() {
                findings.violations_of(Rule::Tickets, withdrawn(of_owner, marks));
            }
        }
    }
}

/// One message at most from a server (a subscriber of a replica in a cluster gets those of its primary too), only after
/// `QUEUED`, on the channel of the request, with a token for each key.
fn one_outcome(ask: &Ask, waits: &Waits) -> Option<String> {
    let messages = waits.messages(ask);
    let first = messages.first()?;
    let tokens = match &first.word {
        Word::Granted(tokens) => tokens.len(),
        _ => ask.keys.len(),
    };
    let is_answered = matches!(ask.answer, Answer::Granted(_) | Answer::Error(_));
    let is_again = |at: usize| {
        let mut earlier = messages[..at].iter();
        let message = messages[at];
        earlier.any(|other| other.port == message.port || other.word != message.word)
    };
    let wrong = match () {
        () if (1..messages.len()).any(is_again) => "two messages",
        () if is_answered => "a message beside another answer",
        () if first.channel != ask.channel => "a message on another channel",
        () if tokens != ask.keys.len() => "not a token for each key",
        () if first.at < ask.sent => "a message before its request",
        () => return None,
    };
    Some(format!("{wrong}: {ask:?}, {messages:?}"))
}

/// `NOSUBSCRIBER` without a subscriber, and only then.
fn deafness(ask: &Ask, waits: &Waits) -> Option<String> {
    let span = (ask.sent, ask.done);
    let is_refused = matches!(&ask.answer, Answer::Error(code) if &**code == "NOSUBSCRIBER");
    if is_refused && waits.deaf_since(ask, span).is_none() {
        return Some(format!("refused though subscribed: {ask:?}"));
    }
    let is_taken = matches!(ask.answer, Answer::Queued | Answer::Granted(_));
    if is_taken && waits.is_deaf(ask, span) {
        return Some(format!("accepted without a subscriber: {ask:?}"));
    }
    None
}

/// An owner became a holder between two readings, and none of its requests was under way: it was granted by a message,
/// which needs a subscriber. The readings are sorted by time.
fn unheard(before: &Look, after: &Look, waits: &Waits, marks: &Marks, findings: &mut Findings) {
    let span = (before.from, after.to);
    for (key, owner) in &after.holders {
        let asks = waits.asks(*owner);
        let Some(last) = asks.iter().rfind(|ask| ask.sent < after.to) else {
            continue;
        };
        let is_new = !before.holders.contains(&(*key, *owner));
        let is_silent = last.done < before.from && !marks.excuse_order(*key, last.sent, after.to);
        if is_new && is_silent && waits.is_deaf(last, span) {
            let text = format!("granted without a subscriber: {last:?}, in {span:?}");
            findings.violation(Rule::Tickets, text);
        }
    }
}

/// A time-out is not early, a failure has a fault as its reason.
fn cause(ask: &Ask, message: &Message, marks: &Marks) -> Option<String> {
    let is_explained = match &message.word {
        Word::Granted(_) => true,
        Word::Timeout => {
            let ends = ask.sent + Nanos::from(ask.block) * MS;
            ask.block > 0 && message.at + SLACK > ends
        }
        Word::Failed(code) => {
            let is_moved = ["UNBLOCKED", "MOVED", "CLUSTERDOWN"].contains(&&**code);
            let mut keys = ask.keys.iter();
            let is_deadlock = &**code == "DEADLOCK";
            keys.any(|key| match () {
                () if is_moved => marks.excuse_order(*key, ask.sent, message.at),
                // An owner that lost one of its locks asks for it while it holds the others.
                () => is_deadlock && marks.excuse_overlap(*key, 0, message.at),
            })
        }
        Word::Unknown(_) => false,
    };
    (!is_explained).then(|| format!("without a reason: {message:?}, {ask:?}"))
}

/// `QUEUED` for a later request although an earlier one was granted and its lease surely is not over: the owner would
/// be granted twice.
fn queued_holder(of_owner: &[&Op], asks: &[&Ask], marks: &Marks) -> Option<String> {
    for grant in of_owner {
        let (Call::Acquire { lease, .. }, Outcome::Granted(_)) = (grant.call, &grant.outcome)
        else {
            continue;
        };
        let until = grant.sent + Nanos::from(lease) * MS;
        let later = asks.iter().filter(|ask| ask.sent > grant.sent);
        for ask in later.filter(|ask| ask.answer == Answer::Queued && ask.done + SLACK < until) {
            let ends = |op: &&&Op| matches!(op.call, Call::Release { .. } | Call::Renew { .. });
            let mut ended = of_owner.iter().filter(ends);
            let is_ended = ended.any(|op| op.sent < ask.done);
            if !is_ended && !marks.excuse_overlap(grant.key, grant.sent, ask.done) {
                return Some(format!("queued while it holds: {ask:?}, {grant:?}"));
            }
        }
    }
    None
}

/// A granted message after a release that was answered nil: the release had withdrawn the ticket, or found the grant.
fn withdrawn(of_owner: &[&Op], marks: &Marks) -> Option<String> {
    for grant in of_owner {
        let (Call::Acquire { lease, .. }, Outcome::Granted(token)) = (grant.call, &grant.outcome)
        else {
            continue;
        };
        let ends = |op: &&&Op| matches!(op.call, Call::Release { .. } | Call::Renew { .. });
        let mut later = of_owner.iter().filter(|op| op.sent > grant.sent);
        let Some(first) = later.find(ends).filter(|op| op.done < grant.done) else {
            continue;
        };
        let Call::Release { token: named, .. } = first.call else {
            continue;
        };
        let is_its = named.is_none_or(|named| named == *token) && first.outcome == Outcome::Nil;
        let is_held = first.done + SLACK < grant.sent + Nanos::from(lease) * MS;
        if is_its && is_held && !marks.excuse_overlap(grant.key, grant.sent, first.done) {
            return Some(format!("granted after {first:?}: {grant:?}"));
        }
    }
    None
}
