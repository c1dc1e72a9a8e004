//! Grants and ends of holds.
//!
//! [`fresh`] grants the lock to a caller or a waiter, [`hand_off`] chooses the waiter, [`in_flight`]
//! follows a grant until its reply is written, [`ending`] ends tracked grants, [`tracked`] is their table.
//!
//! An owner *claims* a grant in flight by a request through another connection that shows that it knows of the grant.

pub(crate) mod ending;
pub(crate) mod fresh;
pub(crate) mod hand_off;
pub(crate) mod in_flight;
pub(crate) mod tracked;
