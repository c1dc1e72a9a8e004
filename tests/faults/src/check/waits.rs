//! The waits by ticket of a history: requests and messages joined by their tags, and the requests that the other rules
//! check.
//!
//! A request with `NOTIFY` becomes an acquire from its sending until its outcome was read: from the reply, or from the
//! message with its tag. A message shows that the grant was made after the sending of the request of its tag.

use std::collections::HashMap;

use crate::history::{
    Answer, Ask, Call, History, Message, Nanos, Op, Outcome, Subscription, Tie, Word, MS,
};

use super::holds::SLACK;
use super::marks::Marks;

/// `lock.queue-grace`.
const GRACE: Nanos = 1000 * MS;

/// A time span in which a waiter may have had no request in the queue, or no subscriber.
pub type Span = (Nanos, Nanos);

/// All requests with `NOTIFY`.
pub struct Waits<'a> {
    of_owner: HashMap<u64, Vec<&'a Ask>>,
    messages: HashMap<(u32, u64), Vec<&'a Message>>,
    subscriptions: HashMap<(u32, &'a str, u16), Vec<&'a Subscription>>,
    /// The first release, or death, of an owner.
    left: HashMap<u64, Nanos>,
    /// The last time of the history.
    end: Nanos,
}

impl<'a> Waits<'a> {
    pub fn of(history: &'a History) -> Waits<'a> {
        let mut of_owner: HashMap<u64, Vec<&Ask>> = HashMap::new();
        for ask in &history.asks {
            of_owner.entry(ask.owner).or_default().push(ask);
        }
        let by_time = |asks: &mut Vec<&Ask>| asks.sort_by_key(|ask| ask.sent);
        of_owner.values_mut().for_each(by_time);
        let mut messages: HashMap<_, Vec<&Message>> = HashMap::new();
        for message in &history.messages {
            let of_tag = messages.entry((message.client, message.tag));
            of_tag.or_default().push(message);
        }
        let mut subscriptions: HashMap<_, Vec<&Subscription>> = HashMap::new();
        for s in &history.subscriptions {
            let of_channel = subscriptions.entry((s.client, s.channel.as_str(), s.port));
            of_channel.or_default().push(s);
        }
        for of_channel in subscriptions.values_mut() {
            of_channel.sort_by_key(|s| s.sent);
        }
        let mut left = HashMap::new();
        for op in &history.ops {
            let is_refused = matches!(op.outcome, Outcome::Error(_));
            let leaves = matches!(op.call, Call::Release { .. } | Call::Close) && !is_refused;
            if leaves && of_owner.contains_key(&op.owner) {
                let at = left.entry(op.owner).or_insert(op.sent);
                *at = op.sent.min(*at);
            }
        }
        let asks = history.asks.iter().map(|ask| ask.done);
        let ops = history.ops.iter().map(|op| op.done);
        Waits {
            of_owner,
            messages,
            subscriptions,
            left,
            end: asks.chain(ops).max().unwrap_or(0),
        }
    }

    /// The requests of an owner, by time.
    pub fn asks(&self, owner: u64) -> &[&'a Ask] {
        self.of_owner.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// Whether an owner knows its grant from the reply to this request, not from a message.
    pub fn is_told_by_reply(&self, granted: &Op) -> bool {
        let mut asks = self.asks(granted.owner).iter();
        let is_granted = |ask: &&Ask| matches!(ask.answer, Answer::Granted(_));
        asks.any(|ask| ask.sent == granted.sent && is_granted(ask))
    }

    /// The messages with the tag of this request.
    pub fn messages(&self, ask: &Ask) -> &[&'a Message] {
        let of_tag = self.messages.get(&(ask.client, ask.tag));
        of_tag.map_or(&[], Vec::as_slice)
    }

    /// The subscriptions of the process to the channel of this request.
    pub fn subscriptions<'b>(&'b self, ask: &'b Ask) -> &'b [&'b Subscription] {
        let channel = (ask.client, ask.channel.as_str(), ask.port);
        self.subscriptions.get(&channel).map_or(&[], Vec::as_slice)
    }

    /// The acquires that these requests are, for each key.
    pub fn ops(&self) -> Vec<Op> {
        let mut ops = Vec::new();
        for asks in self.of_owner.values() {
            for at in 0..asks.len() {
                self.push_ops(asks, at, &mut ops);
            }
        }
        ops
    }

    fn push_ops(&self, asks: &[&Ask], at: usize, ops: &mut Vec<Op>) {
        let ask = asks[at];
        let (tokens, outcome, done) = self.outcome(asks, at);
        let Call::Acquire {
            kind, lease, block, ..
        } = ask.call()
        else {
            return;
        };
        let call = Call::Acquire {
            kind,
            // An earlier request of the owner may have been granted without its knowledge.
            tie: match at {
                0 if ask.keys.len() > 1 => Tie::Many,
                _ => Tie::None,
            },
            lease,
            block,
            once: true,
        };
        for (place, key) in ask.keys.iter().enumerate() {
            let granted = tokens.and_then(|tokens| tokens.get(place));
            ops.push(Op {
                client: ask.client,
                owner: ask.owner,
                key: *key,
                call,
                sent: ask.sent,
                done,
                outcome: granted.map_or(outcome.clone(), |token| Outcome::Granted(*token)),
            });
        }
    }

    /// The end of a request: the tokens, or the outcome without tokens, and the time at which its client knew.
    fn outcome<'b>(&'b self, asks: &[&'b Ask], at: usize) -> (Option<&'b [i64]>, Outcome, Nanos) {
        let ask = asks[at];
        if let Answer::Granted(tokens) = &ask.answer {
            return (Some(tokens), Outcome::Nil, ask.done);
        }
        if let Some(message) = self.messages(ask).first() {
            return match &message.word {
                Word::Granted(tokens) => (Some(tokens), Outcome::Nil, message.at),
                Word::Timeout => (None, Outcome::Nil, message.at),
                Word::Failed(code) | Word::Unknown(code) => {
                    (None, Outcome::Error(code.clone()), message.at)
                }
            };
        }
        let next = asks.get(at + 1).map(|next| next.sent);
        let left = self.left.get(&ask.owner).copied();
        match (&ask.answer, next, left) {
            (Answer::Error(code), ..) => (None, Outcome::Error(code.clone()), ask.done),
            (Answer::Lost, ..) => (None, Outcome::Lost, ask.done),
            // Taken over, withdrawn, or its process died.
            (_, Some(next), _) => (None, Outcome::Lost, next.max(ask.done)),
            (_, None, Some(left)) => (None, Outcome::Lost, left.max(ask.done)),
            (_, None, None) => (None, Outcome::Silent, self.end),
        }
    }

    /// The first moment of this time at which the channel of a request may have no subscriber.
    pub fn deaf_since(&self, ask: &Ask, (from, to): Span) -> Option<Nanos> {
        let mut sure = from;
        for s in self.subscriptions(ask) {
            if s.from != 0 && s.from <= sure && s.alive > sure {
                sure = s.alive;
            }
        }
        (sure < to).then_some(sure)
    }

    /// Whether the channel of a request surely had no subscriber of this process in this time.
    pub fn is_deaf(&self, ask: &Ask, (from, to): Span) -> bool {
        let may_hear = |s: &&Subscription| {
            let is_over = s.is_ended_by_server && s.to < from;
            s.sent <= to && !is_over
        };
        !self.subscriptions(ask).iter().any(may_hear)
    }

    /// The spans before its grant in which an owner may have been passed, by the rule for kept places; `None`: it may
    /// have lost its place.
    ///
    /// A span begins when the ticket may be passed over (its channel may have no subscriber) or may have timed out,
    /// and ends when the next request is queued. Shorter than `lock.queue-grace` it keeps the place. Shorter than the
    /// lease it cannot have a grant whose message was lost and that is over.
    pub fn spans(&self, owner: u64, granted: &Op, marks: &Marks) -> Option<Vec<Span>> {
        let asks = self.asks(owner);
        let (mut spans, mut begin) = (Vec::new(), None);
        for (ask, next) in asks.iter().zip(asks.iter().skip(1)) {
            if next.sent > granted.sent {
                break;
            }
            let mut words = self.messages(ask).iter().map(|message| &message.word);
            let gone = match words.next() {
                Some(Word::Timeout) => {
                    Some(ask.sent + (Nanos::from(ask.block) * MS).saturating_sub(SLACK))
                }
                Some(_) => return None,
                None => self.deaf_since(ask, (ask.sent, next.sent)),
            };
            begin = begin.into_iter().chain(gone).min();
            if let (Some(from), Answer::Queued | Answer::Granted(_)) = (begin, &next.answer) {
                let limit = GRACE.min(Nanos::from(next.lease) * MS);
                let is_kept = next.done + SLACK < from.saturating_add(limit);
                if !is_kept || marks.excuse_overlap(granted.key, from, next.done) {
                    return None;
                }
                spans.push((from, next.done));
                begin = None;
            }
        }
        // A request whose reply was lost continues the wait, if it was received.
        spans.extend(begin.map(|from| (from, granted.done)));
        Some(spans)
    }
}
