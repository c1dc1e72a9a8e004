//! The waiters of one server: one queue for each key, the deadlines of waits and leases, the keys to settle, and the
//! search for deadlocks.
//!
//! [`waiters::Waiters`] owns the data. [`places`] stores every [`place`] once (in an [`arena`], found through
//! [`slot_table`] and [`deadlines`]), [`queue`] orders those of one key, [`multi_key`] takes places at several keys.
//! [`ticket`] and [`hearing`] have what is special of waiters that block no client, [`next`] finds the next to grant
//! and [`passed`] bounds how far it looks, [`outcome`] and [`ending`] end waits, [`sweep`] those of tenants that are
//! gone, [`figures`] shows them, [`due`] and [`unsettled`] say what comes next and when, [`limits`] counts what is
//! limited, [`index`] and [`holders`] record what [`deadlock`] searches, and [`verify`] searches again what was
//! uncertain.

pub(crate) mod arena;
pub(crate) mod deadlines;
pub(crate) mod deadlock;
pub(crate) mod due;
pub(crate) mod ending;
pub(crate) mod figures;
pub(crate) mod hearing;
pub(crate) mod holders;
pub(crate) mod index;
pub(crate) mod limits;
pub(crate) mod multi_key;
pub(crate) mod next;
pub(crate) mod outcome;
pub(crate) mod passed;
pub(crate) mod place;
pub(crate) mod places;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod slot_table;
pub(crate) mod sweep;
pub(crate) mod ticket;
pub(crate) mod unsettled;
pub(crate) mod verify;
pub(crate) mod waiters;
