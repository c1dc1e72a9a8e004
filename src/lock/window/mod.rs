//! Redisson windows: the time for which a lock is left free for Redisson's waiters, which try only after a message that
//! the lock is free.
//!
//! A hand-off never frees the key, so no such message is published while requests are parked here. After
//! [`state::WindowRule::after`] consecutive hand-offs a lock with a subscriber on its channel is *left free* instead:
//! the key is deleted, the message is published, and a *window* begins during which no request of this module is
//! granted it while requests wait. The waiters keep their places. The window ends when a client has taken the lock, and
//! the waiters wait for its release; or when its time has passed, and the first waiter is granted the lock. (If all
//! waiters have left, a request of this module is granted the lock, and the window ends.)
//!
//! An *unused* window (no subscriber, or no client took the lock) doubles the number of hand-offs until the next, up to
//! `state::MOST_DOUBLINGS` times. A used window resets the number.

pub(crate) mod decide;
pub(crate) mod state;
