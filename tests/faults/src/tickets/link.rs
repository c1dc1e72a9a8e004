//! The two connections of a process to one server: one for commands, which are sent without waiting for the replies to
//! earlier ones, and one that subscribes.

use std::collections::VecDeque;

use crate::history::{now, Nanos, Subscription, Word, MS};
use crate::wire::{NoReply, Reply, Wire};

/// The time between two `PING`s of a subscriber.
const BEAT: Nanos = 5 * MS;

/// An event on one of the connections.
#[derive(Debug)]
pub enum Event<R> {
    /// The reply to a request; `None`: the connection was lost before it.
    Reply(R, Option<Reply>),
    Message {
        port: u16,
        channel: String,
        text: String,
    },
    /// The channel has no subscriber any more.
    Ended(Subscription),
    /// A subscription was refused with this error code.
    Refused(String),
}

/// The connections; `R` describes a request without a reply.
pub struct Link<R> {
    pub port: u16,
    client: u32,
    /// In a cluster: `SSUBSCRIBE`.
    is_sharded: bool,
    command: Option<Wire>,
    sent: VecDeque<R>,
    ears: Option<Wire>,
    subscriptions: Vec<Subscription>,
    /// When the `PING` that is not yet answered was sent.
    ping: Option<Nanos>,
    last_ping: Nanos,
}

impl<R> Link<R> {
    pub fn new(client: u32, port: u16, is_sharded: bool) -> Link<R> {
        Link {
            port,
            client,
            is_sharded,
            command: None,
            sent: VecDeque::new(),
            ears: None,
            subscriptions: Vec::new(),
            ping: None,
            last_ping: 0,
        }
    }

    /// Sends a request that `push` writes; false if there is no connection.
    pub fn send(&mut self, request: R, push: impl FnOnce(&mut Wire)) -> bool {
        self.command = self.command.take().or_else(|| Wire::open(self.port));
        let Some(wire) = &mut self.command else {
            return false;
        };
        push(wire);
        // A failure is noticed with the next read.
        wire.flush();
        self.sent.push_back(request);
        true
    }

    /// Whether the server has confirmed this subscription, and no end of it was noticed.
    pub fn is_subscribed(&self, channel: &str) -> bool {
        let mut subscriptions = self.subscriptions.iter();
        subscriptions.any(|s| s.channel == channel && s.from != 0)
    }

    /// Subscribes, unless that is done or under way; false if there is no connection.
    pub fn subscribe(&mut self, channel: &str) -> bool {
        if self.subscriptions.iter().any(|s| s.channel == channel) {
            return true;
        }
        self.ears = self.ears.take().or_else(|| Wire::open(self.port));
        let Some(ears) = &mut self.ears else {
            return false;
        };
        let verb: &[u8] = match self.is_sharded {
            true => b"SSUBSCRIBE",
            false => b"SUBSCRIBE",
        };
        self.subscriptions.push(Subscription {
            client: self.client,
            port: self.port,
            channel: channel.into(),
            sent: now(),
            from: 0,
            alive: 0,
            to: 0,
            is_ended_by_server: true,
        });
        ears.send(&[verb, channel.as_bytes()]);
        true
    }

    /// Reads both connections without waiting.
    pub fn poll(&mut self, events: &mut Vec<Event<R>>) {
        self.poll_ears(events);
        while let Some(wire) = &mut self.command {
            match wire.poll() {
                Ok(reply) => {
                    let request = self.sent.pop_front();
                    events.extend(request.map(|request| Event::Reply(request, Some(reply))));
                }
                Err(NoReply::Late) => return,
                Err(NoReply::Lost) => {
                    self.command = None;
                    let lost = self.sent.drain(..);
                    events.extend(lost.map(|request| Event::Reply(request, None)));
                }
            }
        }
    }

    fn poll_ears(&mut self, events: &mut Vec<Event<R>>) {
        while let Some(ears) = &mut self.ears {
            match ears.poll() {
                Ok(reply) => self.heard(&reply, events),
                Err(NoReply::Late) => break,
                Err(NoReply::Lost) => {
                    self.ears = None;
                    self.ping = None;
                    let all = std::mem::take(&mut self.subscriptions);
                    events.extend(all.into_iter().map(|s| Event::Ended(over(s, true))));
                }
            }
        }
        let at = now();
        if self.ping.is_none() && at > self.last_ping + BEAT {
            if let Some(ears) = &mut self.ears {
                ears.send(&[b"PING"]);
                (self.ping, self.last_ping) = (Some(at), at);
            }
        }
    }

    fn heard(&mut self, reply: &Reply, events: &mut Vec<Event<R>>) {
        if let Some(code) = reply.code() {
            // The first subscription without a reply: its channel is another node's.
            if let Some(at) = self.subscriptions.iter().position(|s| s.from == 0) {
                self.subscriptions.remove(at);
            }
            return events.push(Event::Refused(code.into()));
        }
        let part = |at: usize| reply.list().get(at).map_or("", Reply::text);
        let channel = part(1);
        match part(0) {
            "message" | "smessage" => {
                events.push(Event::Message {
                    port: self.port,
                    channel: channel.into(),
                    text: part(2).into(),
                });
            }
            "subscribe" | "ssubscribe" => {
                let at = now();
                for subscription in &mut self.subscriptions {
                    if subscription.channel == channel {
                        (subscription.from, subscription.alive) = (at, at);
                    }
                }
            }
            "sunsubscribe" => {
                let (ended, rest) = std::mem::take(&mut self.subscriptions)
                    .into_iter()
                    .partition(|s| s.channel == channel);
                self.subscriptions = rest;
                let ended: Vec<Subscription> = ended;
                events.extend(ended.into_iter().map(|s| Event::Ended(over(s, true))));
            }
            // `pong`, as a list while there are subscriptions, else as a line.
            _ => {
                let sent = self.ping.take().unwrap_or(0);
                for subscription in &mut self.subscriptions {
                    // Subscribed when the server answered, which is later than the sending.
                    if subscription.from != 0 && subscription.from < sent {
                        subscription.alive = sent;
                    }
                }
            }
        }
    }

    /// Closes both connections, as the end of the process does; the subscriptions so far, and the requests without a
    /// reply.
    pub fn close(self) -> (Vec<Subscription>, Vec<R>) {
        let subscriptions = self.subscriptions.into_iter().map(|s| over(s, false));
        (subscriptions.collect(), self.sent.into())
    }
}

/// This subscription, ended now.
fn over(subscription: Subscription, is_ended_by_server: bool) -> Subscription {
    Subscription {
        to: now(),
        is_ended_by_server,
        ..subscription
    }
}

/// The words of a message and its tag; `None`: it has no tag of this tool.
pub fn parse(text: &str) -> Option<(Word, u64)> {
    let (word, rest) = text.split_once(' ')?;
    let tag = |text: &str| text.parse().ok();
    if word == "timeout" {
        return Some((Word::Timeout, tag(rest)?));
    }
    let (first, rest) = rest.split_once(' ')?;
    let word = match word {
        "granted" => match first.split(',').map(str::parse).collect() {
            Ok(tokens) => Word::Granted(tokens),
            Err(_) => Word::Unknown(text.into()),
        },
        "failed" => Word::Failed(first.into()),
        _ => Word::Unknown(text.into()),
    };
    Some((word, tag(rest)?))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::history::Word;

    #[test]
    fn messages_are_split_at_their_blanks() {
        let granted = |tokens: &[i64]| Word::Granted(tokens.to_vec());
        assert_eq!(parse("granted 12 7"), Some((granted(&[12]), 7)));
        assert_eq!(parse("granted 12,13 7"), Some((granted(&[12, 13]), 7)));
        assert_eq!(parse("timeout 7"), Some((Word::Timeout, 7)));
        let failed = Word::Failed("MOVED".into());
        assert_eq!(parse("failed MOVED 7"), Some((failed, 7)));
        assert_eq!(parse("granted 12 x"), None);
        let unknown = Word::Unknown("granted x 7".into());
        assert_eq!(parse("granted x 7"), Some((unknown, 7)));
    }
}
