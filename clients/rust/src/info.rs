//! The state of a lock: who holds it, and who waits.

use std::time::Duration;

use redis::Value;

use crate::mode::Mode;
use crate::net::reply::{bytes, count, field, items, span, text};
use crate::trace::{shown, Text};

/// The state of a lock, as [`Lock::info`](crate::Lock::info) returns it. (The default is that of a free lock.)
///
/// ```no_run
/// # async fn example(lock: redis_lock_client::Lock) -> Result<(), redis_lock_client::Error> {
/// let info = lock.info().await?;
/// println!("{} holders, {} waiters", info.holders.len(), info.waiters);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The mode; without a holder, that of the first waiter, and without both none.
    pub mode: Option<Mode>,
    /// The holder, or every reader whose lease has not ended.
    pub holders: Vec<Holder>,
    /// The number of waiters.
    pub waiters: u64,
    /// How long the first of them has waited.
    pub longest_wait: Duration,
    /// The first of them, up to the requested number (feature `admin`, `Server::info`).
    pub queue: Vec<Waiter>,
}

/// A holder of a lock. Its text for `{:?}` does not have the owner.
///
/// ```
/// fn is_forgotten(holder: &redis_lock_client::Holder) -> bool {
///     holder.remaining.is_none() && holder.addr.is_none()
/// }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner. Empty if the lock is a string of another library (`lock.string-holders`).
    pub owner: Vec<u8>,
    /// The hold count.
    pub holds: u64,
    /// The fencing token; none for a hold that Redisson took without the module.
    pub token: Option<u64>,
    /// The rest of the lease; none when the hold has no end.
    pub remaining: Option<Duration>,
    /// For how long it has been held, if the server has recorded it.
    pub held: Option<Duration>,
    /// The connection that acquired it, if the server has recorded it.
    pub client_id: Option<u64>,
    /// The address of that connection, while it is open.
    pub addr: Option<String>,
    /// The name of that connection, while it is open.
    pub client_name: Option<Vec<u8>>,
    /// Whether the hold is bound to that connection.
    pub session: bool,
    /// The note of the request.
    pub note: Option<Vec<u8>>,
}

/// A waiter for a lock. Its text for `{:?}` does not have the owner.
///
/// ```
/// fn is_patient(waiter: &redis_lock_client::Waiter) -> bool {
///     waiter.left.is_none()
/// }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner.
    pub owner: Vec<u8>,
    /// The requested mode.
    pub mode: Mode,
    /// For how long it has waited.
    pub waited: Duration,
    /// The rest of its wait; none without a limit.
    pub left: Option<Duration>,
    /// Its connection.
    pub client_id: Option<u64>,
    /// The note of the request.
    pub note: Option<Vec<u8>>,
}

shown! {
    Holder, it, holds = it.holds, token = it.token, remaining = it.remaining, held = it.held, client_id = it.client_id,
    addr = it.addr, client_name = it.client_name.as_deref().map(Text), session = it.session,
    note = it.note.as_deref().map(Text)
}

shown! {
    Waiter, it, mode = it.mode, waited = it.waited, left = it.left, client_id = it.client_id,
    note = it.note.as_deref().map(Text)
}

/// The reply of `LOCK.INFO`; nil is that of a free lock.
pub(crate) fn lock_info(reply: &Value) -> LockInfo {
    LockInfo {
        mode: field(reply, "mode").map(|name| Mode::named(&text(name))),
        holders: items(reply, "holders").iter().map(holder).collect(),
        waiters: count(reply, "waiters").unwrap_or_default(),
        longest_wait: span(reply, "longest-wait-ms").unwrap_or_default(),
        queue: items(reply, "queue").iter().map(waiter).collect(),
    }
}

fn holder(reply: &Value) -> Holder {
    let client_name = field(reply, "client-name").map(bytes);
    Holder {
        owner: field(reply, "owner").map(bytes).unwrap_or_default(),
        holds: count(reply, "holds").unwrap_or_default(),
        token: count(reply, "token"),
        remaining: span(reply, "pttl"),
        held: span(reply, "held-ms"),
        client_id: count(reply, "client-id"),
        addr: field(reply, "addr").map(text),
        client_name: client_name.filter(|name| !name.is_empty()),
        session: count(reply, "session") == Some(1),
        note: field(reply, "note").map(bytes),
    }
}

fn waiter(reply: &Value) -> Waiter {
    Waiter {
        owner: field(reply, "owner").map(bytes).unwrap_or_default(),
        mode: field(reply, "mode")
            .map(|name| Mode::named(&text(name)))
            .unwrap_or_default(),
        waited: span(reply, "waited-ms").unwrap_or_default(),
        left: span(reply, "left-ms"),
        client_id: count(reply, "client-id"),
        note: field(reply, "note").map(bytes),
    }
}
