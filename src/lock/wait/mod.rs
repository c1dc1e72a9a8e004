//! The waiters of one server: one queue for each key, the deadlines of waits and leases, the keys to settle, and the
//! search for deadlocks.
//!
//! [`waiters::Waiters`] owns the data. [`places`] stores every place once (in an [`arena`], by slots), [`queue`]
//! orders those of one key, [`multi_key`] takes places at several keys. [`ticket`] has what is special of waiters
//! that block no client, [`hearing`] finds the next to grant, [`ending`] ends waits, [`due`] says what comes next and
//! when, in [`turns`] by user, [`limits`] and [`figures`] count, [`holders`] records what [`deadlock`] searches.

pub(crate) mod arena;
pub(crate) mod deadlock;
pub(crate) mod due;
pub(crate) mod ending;
pub(crate) mod figures;
pub(crate) mod hearing;
pub(crate) mod holders;
pub(crate) mod limits;
pub(crate) mod multi_key;
pub(crate) mod places;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod ticket;
pub(crate) mod turns;
pub(crate) mod waiters;
