//! Tickets whose channel or user is gone end, wherever they are in a queue ([`crate::lock::wait::sweep`]).

use std::rc::Rc;

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::resource::ALL;
use crate::lock::wait::sweep::{Sweep, CHUNKS, ENDED};
use crate::lock::wait::ticket::Channel;
use crate::lock::{Now, UserId};

impl Locks {
    /// The next channels of tickets of which the shell is to say whether they have a subscriber, `most` at most.
    pub fn channels_to_ask(&mut self, most: usize, now: Now) -> Vec<Rc<Channel>> {
        self.channels.next_to_ask(most, now.mono_ms)
    }

    /// The shell's answer.
    pub fn learn_channel(&mut self, channel: &Channel, is_subscribed: bool, now: Now) {
        let grace_ms = self.waiters.grace.ms;
        if self
            .channels
            .is_over(channel, is_subscribed, (now.mono_ms, grace_ms))
        {
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
            let Some((kind, chunk)) = sweep.at else { break };
            let Some(resource) = ALL.get(kind) else {
                sweep = match sweep.again {
                    true => Sweep {
                        at: Some((0, 0)),
                        again: false,
                        ..sweep
                    },
                    false => Sweep::default(),
                };
                continue;
            };
            let queues = self.queues_mut(*resource);
            let is_there = queues.end_gone_of(chunk, &sweep.deleted, &mut left, cx);
            if left == 0 {
                break;
            }
            sweep.at = Some(match is_there {
                true => (kind, chunk + 1),
                false => (kind + 1, 0),
            });
        }
        self.sweep = sweep;
    }
}
