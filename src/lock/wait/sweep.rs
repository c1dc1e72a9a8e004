//! The sweep: tickets end, wherever they are in a queue, when their channel has had no subscriber for the grace time,
//! and when their user has been deleted. (Parked clients of a deleted user are disconnected by the server.)
//!
//! Channels are asked for in rounds. When a channel or a user is found to be gone, one pass goes through all places,
//! and ends its tickets. Each step of either is bounded, so a gone tenant's tickets end some in every tick.

use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::wait::request::Waiter;
use crate::lock::wait::ticket::Channel;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{LockError, Now, UserId, WaiterId};

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
        self.channels.next_to_ask(most, now.mono_ms)
    }

    /// The shell's answer.
    pub fn learn_channel(&mut self, channel: &Channel, is_subscribed: bool, now: Now) {
        let moments = (now.mono_ms, self.grace.ms);
        if self.channels.is_over(channel, is_subscribed, moments) {
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
        let mut sweep = std::mem::take(&mut self.sweep);
        let mut left = ENDED;
        for _ in 0..CHUNKS {
            let Some(chunk) = sweep.at else { break };
            let is_there = self.end_gone_of(chunk, &sweep.deleted, &mut left, cx);
            if left == 0 {
                break;
            }
            sweep = match (is_there, sweep.again) {
                (true, _) => Sweep {
                    at: Some(chunk + 1),
                    ..sweep
                },
                (false, true) => Sweep {
                    at: Some(0),
                    again: false,
                    ..sweep
                },
                (false, false) => Sweep::default(),
            };
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
            if *left == 0 {
                break;
            }
            *left = left.saturating_sub(self.places_count(request));
            let waiter = self.leave_for_good(request);
            match why {
                Gone::User => self.fail(waiter, &LockError::Forbidden, cx),
                Gone::Channel => self.ticket_stats.tickets_unheard += u64::from(waiter.is_some()),
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
