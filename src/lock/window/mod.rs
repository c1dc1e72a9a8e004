//! Redisson windows: the time for which a lock or a permit is left free for Redisson's waiters, which try only after a
//! message that it is free.
//!
//! A hand-off never frees the key, so no such message is published while requests are parked here. After
//! [`state::WindowRule::after`] consecutive hand-offs a resource with a subscriber on its channel is *left free*
//! instead: the message is published, and a *window* begins during which no request of this module is granted it while
//! requests wait. (Of a semaphore, one permit is left free.) The waiters keep their places. The window ends when a
//! client has taken the resource, and the waiters wait for its release; or when its time has passed, and the first
//! waiter is granted it. (If all waiters have left, a request of this module is granted it, and the window ends.)
//!
//! An *unused* window (no subscriber, or no client took the resource) doubles the number of hand-offs until the next,
//! up to `state::MOST_DOUBLINGS` times. After more of them none begins for a time, which doubles up to
//! `state::MOST_RESTS` times: a subscriber may be a client that may not, or will not, take the lock. A used window
//! resets both.
//!
//! Redisson's spin lock has no subscriber: it polls. So a window of an exclusive lock also begins without a subscriber,
//! once after another client's hold has ended, or its native script was refused, while requests waited here; and after
//! such a window that was used, up to `state::MOST_POLLED` times.

pub(crate) mod decide;
pub(crate) mod state;
