//! The sweep: tickets end, wherever they are in a queue, when their channel has had no subscriber for the grace time,
//! and when their user has been deleted. (Parked clients of a deleted user are disconnected by the server.)
//!
//! Channels are asked for in rounds. When a channel or a user is found to be gone, one pass goes through all places,
//! and ends its tickets. Each step of either is bounded, so a gone tenant's tickets end some in every tick.

use crate::lock::effect::Cx;
use crate::lock::wait::request::Waiter;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{LockError, UserId, WaiterId};

/// Chunks of places that one step looks through.
pub(crate) const CHUNKS: usize = 40;

/// Places that one step ends, about: a request on several keys has one at each, and ends whole. (1,024 take some 4 ms.)
pub(crate) const ENDED: usize = 300;

/// The state between steps.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Users that have been deleted, until a pass has ended their tickets.
    pub deleted: Vec<UserId>,
    /// The kind of resource and the chunk at which the pass goes on; `None`: there is none.
    pub at: Option<(usize, usize)>,
    /// Another pass is to follow: something was found to be gone during this one.
    pub again: bool,
}

impl Sweep {
    /// A channel or a user was found to be gone.
    pub fn begin(&mut self) {
        self.again = self.at.is_some();
        self.at = self.at.or(Some((0, 0)));
    }
}

/// Why a ticket ends.
enum Gone {
    Channel,
    User,
}

impl Waiters {
    /// Ends the gone tickets of a chunk of places, as long as `left` places are left. Returns whether there is such a
    /// chunk.
    pub(crate) fn end_gone_of(
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
