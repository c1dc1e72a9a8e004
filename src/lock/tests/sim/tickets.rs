//! Tickets: which channels have subscribers, and the messages. A message to a channel without a subscriber is lost; a
//! grant on such a channel, a second message and one after the end of the wait are asserted not to happen.

use crate::lock::tests::sim::{Out, Request, Sim};
use crate::lock::{Asked, Cx, Effects, Hearing, KeyRef, Mode, Notify, Outcome, Resource, Ticket};

/// The channel and the tag of a request.
pub type ChannelAndTag = (String, String);

/// A ticket, and its request.
#[derive(Debug, Clone)]
pub struct Standing {
    pub id: crate::lock::WaiterId,
    pub request: Request,
    /// For `SESSION`: the server's id of the connection.
    pub session: Option<u64>,
}

pub fn notify_of(named: &Option<ChannelAndTag>) -> Option<Notify<'_>> {
    named.as_ref().map(|(channel, tag)| Notify {
        channel: channel.as_bytes(),
        tag: tag.as_bytes(),
    })
}

impl Sim {
    /// Asks, before a decision that may grant, whether the next ticket is heard.
    pub(super) fn ask_tickets(&mut self, key: KeyRef<'_>) {
        if !self.locks.shared.waiters.must_ask(key) {
            return;
        }
        let mut is_new = true;
        loop {
            let mut fx = Effects::new();
            let cx = &mut Cx::new(self.now, &mut fx);
            let asked = self.locks.shared.waiters.next_to_ask(key, is_new, cx);
            is_new = false;
            self.carry_out_answers(fx);
            let Some(asked) = asked else {
                return;
            };
            if self.hear(&asked) == Hearing::Heard && asked.mode != Mode::Read {
                return;
            }
        }
    }

    /// As the shell answers the question.
    pub(super) fn hear(&mut self, asked: &Asked) -> Hearing {
        let hearing = self.hearing(asked);
        let mut fx = Effects::new();
        let cx = &mut Cx::new(self.now, &mut fx);
        self.locks.shared.waiters.learn(asked, hearing, cx);
        self.carry_out_answers(fx);
        hearing
    }

    fn hearing(&self, asked: &Asked) -> Hearing {
        if self.forbidden.contains(&asked.user) {
            return Hearing::Forbidden;
        }
        let Some(channel) = &asked.channel else {
            return Hearing::Heard;
        };
        channel.counted(self.subscribers);
        let channel = std::str::from_utf8(channel.name()).unwrap();
        let is_closed = |client: u64| client != self.client(client % super::CONNS);
        if asked.session.is_some_and(is_closed) {
            Hearing::Closed
        } else if self.subscribed.contains(channel) {
            Hearing::Heard
        } else {
            Hearing::NoSubscriber
        }
    }

    /// A message on a channel.
    pub(super) fn tell(&mut self, key: &str, ticket: &Ticket, outcome: Outcome) -> Out {
        let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (channel, tag) = (name(ticket.channel()), name(ticket.tag()));
        let standing = self.tickets.remove(&(channel.clone(), tag.clone()));
        let standing = standing.expect("one message, no second");
        if let Some(tokens) = super::effects::tokens_of(&outcome) {
            assert!(
                self.subscribed.contains(&channel),
                "granted, and no client hears it"
            );
            self.check_granted(&standing.request, tokens);
            if standing.request.resource == Resource::Semaphore {
                self.check_token(key, tokens[0]);
            }
            let is_open = |client: u64| client == self.client(client % super::CONNS);
            assert!(
                standing.session.is_none_or(is_open),
                "bound to a closed connection"
            );
        }
        Out::Tell {
            channel,
            tag,
            outcome,
        }
    }

    /// Tickets that were taken over, withdrawn or passed over end without a message.
    pub fn forget_ended_tickets(&mut self) {
        let locks = &self.locks;
        self.tickets
            .retain(|_, standing| locks.shared.waiters.is_waiting(standing.id));
        assert_eq!(
            self.tickets.len(),
            self.locks.shared.waiters.tickets(),
            "a lost ticket"
        );
        super::sums::check_tickets(self.ticket_fields());
    }

    pub(super) fn key_of_ticket(&self, ticket: &Ticket) -> String {
        let is_it = |named: &&ChannelAndTag| {
            named.0.as_bytes() == ticket.channel() && named.1.as_bytes() == ticket.tag()
        };
        let named = self.tickets.keys().find(is_it);
        self.tickets[named.expect("a ticket")].request.key.clone()
    }

    /// A client subscribes to a channel, or the last one leaves it.
    pub fn subscribe_channel(&mut self, channel: &str, is_subscribed: bool) {
        match is_subscribed {
            true => drop(self.subscribed.insert(channel.into())),
            false => drop(self.subscribed.remove(channel)),
        }
    }
}
