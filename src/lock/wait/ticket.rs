//! Tickets: waiters that block no client.
//!
//! A request with `NOTIFY channel tag` is answered at once and waits in the same queue as parked requests. Its outcome
//! is a message on the channel.

use std::cell::Cell;
use std::hash::RandomState;
use std::rc::Rc;

use indexmap::IndexMap;

use crate::lock::table::step_below;

/// Where the outcome of a ticket is published: the words of `NOTIFY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify<'a> {
    /// The channel.
    pub channel: &'a [u8],
    /// The client's name for the request, the end of the message.
    pub tag: &'a [u8],
}

impl Notify<'_> {
    /// The bytes of both.
    pub(crate) fn len(&self) -> usize {
        self.channel.len() + self.tag.len()
    }
}

/// A channel of tickets.
#[derive(Debug, PartialEq, Eq)]
pub struct Channel {
    name: Rc<[u8]>,
    /// When it was last found without a subscriber, in milliseconds of the monotonic clock: it is not asked for again
    /// in the same tick.
    pub(super) unheard_ms: Cell<Option<u64>>,
    /// Since when it has had no subscriber, as far as was asked, in milliseconds of the monotonic clock.
    silent_ms: Cell<Option<u64>>,
    /// It has had none for the grace time: its tickets end, and a newer ticket gets another channel of this name.
    pub(super) is_over: Cell<bool>,
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

    /// The bytes of both.
    pub(super) fn names(&self) -> usize {
        self.channel().len() + self.tag.len()
    }
}

/// The channels of all tickets of one server: each name is stored once.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_name: IndexMap<Rc<[u8]>, Rc<Channel>, RandomState>,
    /// The number of channels at which unused ones are dropped.
    sweep_at: usize,
    /// The channels that are still to be asked for in this round, and when it began.
    left: usize,
    round_ms: u64,
}

impl Channels {
    const SWEPT: usize = 64;

    /// A round through all channels begins this long after the one before, at the earliest.
    const ROUND_MS: u64 = 500;

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
                    silent_ms: Cell::new(None),
                    is_over: Cell::new(false),
                });
                self.by_name.insert(name, channel.clone());
                channel
            }
        };
        channel.unheard_ms.set(None);
        channel.silent_ms.set(None);
        let tag = notify.tag.into();
        Ticket { channel, tag }
    }

    /// The next channels of this round, some at a time.
    pub fn next_to_ask(&mut self, most: usize, now_ms: u64) -> Vec<Rc<Channel>> {
        if self.left == 0 && now_ms >= self.round_ms + Channels::ROUND_MS {
            (self.left, self.round_ms) = (self.by_name.len(), now_ms);
        }
        let range = step_below(self.left, self.by_name.len(), most);
        self.left = range.start;
        let channels = self.by_name.get_range(range);
        channels
            .into_iter()
            .flat_map(|channels| channels.values().cloned())
            .collect()
    }

    /// Whether this channel has had no subscriber for the grace time: then it is not found by its name any more.
    pub fn is_over(
        &mut self,
        channel: &Channel,
        is_subscribed: bool,
        (now_ms, grace_ms): (u64, u64),
    ) -> bool {
        let silent_ms = channel.silent_ms.get().unwrap_or(now_ms);
        channel.silent_ms.set((!is_subscribed).then_some(silent_ms));
        let is_over = !is_subscribed && now_ms >= silent_ms + grace_ms;
        if is_over {
            channel.is_over.set(true);
            self.by_name.swap_remove(channel.name());
        }
        is_over
    }

    /// Drops the channels without tickets.
    pub fn sweep(&mut self) {
        self.by_name
            .retain(|_, channel| Rc::strong_count(channel) > 1);
        self.by_name.shrink_to_fit();
        self.sweep_at = 2 * self.by_name.len();
    }
}
