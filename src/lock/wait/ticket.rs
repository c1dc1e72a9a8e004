//! Tickets: waiters that block no client.
//!
//! A request with `NOTIFY channel tag` is answered at once and waits in the same queue as parked requests. Its
//! outcome is a message on the channel.
//!
//! The sweep: tickets end, wherever they are in a queue, when their channel has had no subscriber for the grace time,
//! and when their user has been deleted. (Parked clients of a deleted user are disconnected by the server.)
//!
//! Channels are asked for in rounds. When a channel or a user is found to be gone, one pass goes through all places,
//! and ends its tickets. Each step of either is bounded, so a gone tenant's tickets end some in every tick.

use std::cell::Cell;
use std::hash::RandomState;
use std::rc::Rc;

use indexmap::IndexMap;

use crate::lock::effect::Cx;
use crate::lock::table::{give_back, step_below};
use crate::lock::wait::request::Waiter;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{LockError, Now, UserId, WaiterId};

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
    /// Its subscribers when they were last counted: a message to it takes time for each of them.
    subscribers: Cell<usize>,
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

    /// The shell has counted its subscribers.
    pub fn counted(&self, subscribers: usize) {
        self.subscribers.set(subscribers);
    }

    /// A message to it takes as long as so many places.
    pub(super) fn places_to_tell(&self) -> usize {
        /// A message to so many subscribers takes as long as the end of a wait at one place.
        const SUBSCRIBERS: usize = 4;
        self.subscribers.get() / SUBSCRIBERS
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
    /// Channels that this walk for unused ones has not reached.
    unseen: usize,
    /// The channels that are still to be asked for in this round, and when it began.
    left: usize,
    round_ms: u64,
}

impl Channels {
    /// Channels that the server's cron looks at in one call.
    pub const LOOKED_AT: usize = 1_000;

    /// A round through all channels begins this long after the one before, at the earliest.
    const ROUND_MS: u64 = 500;

    /// A ticket. Its channel has a subscriber: the caller has asked.
    pub fn ticket(&mut self, notify: Notify<'_>) -> Ticket {
        let channel = match self.by_name.get(notify.channel) {
            Some(channel) => channel.clone(),
            None => {
                // So unused channels never are many more than the others.
                self.drop_unused(2);
                let name: Rc<[u8]> = notify.channel.into();
                let channel = Rc::new(Channel {
                    name: name.clone(),
                    unheard_ms: Cell::new(None),
                    silent_ms: Cell::new(None),
                    is_over: Cell::new(false),
                    subscribers: Cell::new(0),
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

    /// Looks at the next channels of an endless walk, and drops those without tickets.
    pub fn drop_unused(&mut self, most: usize) {
        if self.unseen == 0 {
            self.unseen = self.by_name.len();
        }
        let range = step_below(self.unseen, self.by_name.len(), most);
        self.unseen = range.start;
        for at in range.rev() {
            let channel = self.by_name.get_index(at);
            if channel.is_some_and(|(_, channel)| Rc::strong_count(channel) == 1) {
                self.by_name.swap_remove_index(at);
            }
        }
        give_back(&mut self.by_name);
    }
}

/// Chunks of places that one step looks through.
const CHUNKS: usize = 40;

/// Places that one step ends, about: a request on several keys has one at each, and ends whole. (1,024 take some 4 ms.)
const ENDED: usize = 300;

/// The state between steps.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Users that have been deleted, until a pass has ended their tickets.
    pub deleted: Vec<UserId>,
    /// The chunk of places at which the pass goes on; `None`: there is none.
    pub at: Option<usize>,
    /// Another pass is to follow: something was found to be gone during this one.
    pub again: bool,
}

impl Sweep {
    /// A channel or a user was found to be gone.
    pub fn begin(&mut self) {
        self.again = self.at.is_some();
        self.at = self.at.or(Some(0));
    }
}

/// Why a ticket ends.
enum Gone {
    Channel,
    User,
}

impl Waiters {
    /// The next channels of tickets of which the shell is to say whether they have a subscriber, `most` at most.
    pub fn channels_to_ask(&mut self, most: usize, now: Now) -> Vec<Rc<Channel>> {
        let Channels {
            by_name,
            left,
            round_ms,
            ..
        } = &mut self.channels;
        if *left == 0 && now.mono_ms >= *round_ms + Channels::ROUND_MS {
            (*left, *round_ms) = (by_name.len(), now.mono_ms);
        }
        let range = step_below(*left, by_name.len(), most);
        *left = range.start;
        let channels = by_name.get_range(range).into_iter();
        channels
            .flat_map(|channels| channels.values().cloned())
            .collect()
    }

    /// The shell's answer. A channel that has had no subscriber for the grace time is not found by its name any more.
    pub fn learn_channel(&mut self, channel: &Channel, is_subscribed: bool, now: Now) {
        let silent_ms = channel.silent_ms.get().unwrap_or(now.mono_ms);
        channel.silent_ms.set((!is_subscribed).then_some(silent_ms));
        if !is_subscribed && now.mono_ms >= silent_ms + self.grace.ms {
            channel.is_over.set(true);
            self.channels.by_name.swap_remove(channel.name());
            self.sweep.begin();
        }
    }

    /// The user has been deleted.
    pub fn user_is_deleted(&mut self, user: UserId) {
        if self.used_by(user).own.tickets > 0 {
            self.sweep.deleted.push(user);
            self.sweep.begin();
        }
    }

    /// Whether tickets are to end.
    pub fn has_gone(&self) -> bool {
        self.sweep.at.is_some()
    }

    /// A step of the pass.
    pub fn end_gone(&mut self, cx: &mut Cx<'_>) {
        self.pass_more();
        let mut sweep = std::mem::take(&mut self.sweep);
        let mut left = ENDED;
        for _ in 0..CHUNKS {
            let Some(chunk) = sweep.at else { break };
            let is_there = self.end_gone_of(chunk, &sweep.deleted, &mut left, cx);
            if left == 0 {
                break;
            }
            match (is_there, sweep.again) {
                (true, _) => sweep.at = Some(chunk + 1),
                (false, true) => (sweep.at, sweep.again) = (Some(0), false),
                (false, false) => sweep = Sweep::default(),
            }
        }
        self.sweep = sweep;
    }

    /// Ends the gone tickets of a chunk of places, as long as `left` places are left. Returns whether there is such a
    /// chunk.
    fn end_gone_of(
        &mut self,
        chunk: usize,
        deleted: &[UserId],
        left: &mut usize,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(waiters) = self.places.chunk(chunk) else {
            return false;
        };
        let gone = waiters.filter_map(|waiter| Some((waiter.id, why_gone(waiter, deleted)?)));
        let gone: Vec<(WaiterId, Gone)> = gone.collect();
        for (request, why) in gone {
            if !self.passed.has_room(cx.now) {
                *left = 0;
            }
            if *left == 0 {
                break;
            }
            *left = left.saturating_sub(self.places_count(request));
            let waiter = self.leave_for_good(request);
            match why {
                Gone::User => self.fail(waiter, &LockError::Forbidden, cx),
                Gone::Channel => self.tickets_unheard += u64::from(waiter.is_some()),
            }
        }
        true
    }
}

fn why_gone(waiter: &Waiter, deleted: &[UserId]) -> Option<Gone> {
    let ticket = waiter.ticket.as_ref()?;
    if ticket.channel.is_over.get() {
        return Some(Gone::Channel);
    }
    deleted.contains(&waiter.user).then_some(Gone::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_channels_are_dropped_a_few_for_each_new_one() {
        let mut channels = Channels::default();
        let mut ticket = |number: usize| {
            let (channel, tag) = (number.to_string(), b"");
            let channel = channel.as_bytes();
            let ticket = channels.ticket(Notify { channel, tag });
            (ticket, channels.by_name.len())
        };
        let kept: Vec<Ticket> = (0..100).map(|number| ticket(number).0).collect();
        for number in 100..10_000 {
            assert!(ticket(number).1 <= 3 * kept.len());
        }
        drop(kept);
        channels.drop_unused(Channels::LOOKED_AT);
        channels.drop_unused(Channels::LOOKED_AT);
        assert_eq!(channels.by_name.len(), 0);
    }
}
