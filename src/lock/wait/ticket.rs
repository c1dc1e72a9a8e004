//! Tickets: waiters that block no client.
//!
//! A request with `NOTIFY channel tag` is answered at once and waits in the same queue as parked requests. Its outcome
//! is a message on the channel.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Where the outcome of a ticket is published: the words of `NOTIFY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify<'a> {
    /// The channel.
    pub channel: &'a [u8],
    /// The client's name for the request, the end of the message.
    pub tag: &'a [u8],
}

/// A channel of tickets.
#[derive(Debug, PartialEq, Eq)]
pub struct Channel {
    name: Rc<[u8]>,
    /// When it was last found without a subscriber, in milliseconds of the monotonic clock: it is not asked for again
    /// in the same tick.
    pub(super) unheard_ms: Cell<Option<u64>>,
}

/// How the outcome of a ticket is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(super) channel: Rc<Channel>,
    tag: Box<[u8]>,
}

impl Channel {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

impl Ticket {
    /// The name of its channel.
    pub fn channel(&self) -> &[u8] {
        self.channel.name()
    }

    /// The client's name for the request.
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }
}

/// The channels of all tickets of one server: each name is stored once.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_name: HashMap<Rc<[u8]>, Rc<Channel>>,
    /// The number of channels at which unused ones are dropped.
    sweep_at: usize,
}

impl Channels {
    const SWEPT: usize = 64;

    /// A ticket. Its channel has a subscriber: the caller has asked.
    pub fn ticket(&mut self, notify: Notify<'_>) -> Ticket {
        if self.by_name.len() >= self.sweep_at.max(Channels::SWEPT) {
            self.sweep();
        }
        let channel = match self.by_name.get(notify.channel) {
            Some(channel) => channel.clone(),
            None => {
                let name: Rc<[u8]> = notify.channel.into();
                let channel = Rc::new(Channel {
                    name: name.clone(),
                    unheard_ms: Cell::new(None),
                });
                self.by_name.insert(name, channel.clone());
                channel
            }
        };
        channel.unheard_ms.set(None);
        let tag = notify.tag.into();
        Ticket { channel, tag }
    }

    /// Drops the channels without tickets.
    pub fn sweep(&mut self) {
        self.by_name
            .retain(|_, channel| Rc::strong_count(channel) > 1);
        self.by_name.shrink_to_fit();
        self.sweep_at = 2 * self.by_name.len();
    }
}
