//! The holds of each owner, and the intervals in which they are certain.
//!
//! A hold that is bound to a connection (`Tie::Session`) is certain as long as the connection lives and no fault
//! happens to the servers. An owner has at most one hold of each kind of a key: a writer may also read.

use crate::history::{Call, Kind, Nanos, Op, Outcome, Tie, MS};

use super::marks::Marks;

/// The tolerance for leases, which are counted in milliseconds of another clock.
pub const SLACK: Nanos = MS;

/// A grant that its client received.
#[derive(Debug, Clone)]
pub struct Hold {
    pub key: u32,
    pub owner: u64,
    pub kind: Kind,
    pub token: i64,
    /// When the request was sent.
    pub asked: Nanos,
    /// When the reply was received: from then on the client may act.
    pub received: Nanos,
    /// The lock is surely held until then: counted from the sending of the request to which the server agreed.
    pub surely_until: Nanos,
    /// The lease is surely over by then: counted from the replies. `MAX`: unknown.
    pub over_by: Nanos,
    /// The end of the longest lease that the client has requested.
    lease_end: Nanos,
    /// Whether a request that would end or shorten the hold was lost: nothing after it is certain.
    pub doubtful: bool,
    /// The session lease, while the hold is bound to a connection.
    pub session: Option<u32>,
    /// Whether it ever was bound.
    pub was_bound: bool,
    /// When the last answer that set the lease was received.
    pub agreed: Nanos,
    /// When the answer to the release that ended it was received.
    pub released: Option<Nanos>,
    /// The connection lived at least until this request was sent, which was answered.
    alive_at: Nanos,
    /// The time since which nothing keeps the hold: its connection ended, or the lease after a fault of its server did.
    pub unbound: Option<Nanos>,
}

impl Hold {
    /// The latest known time until which it may be held (after a lost request: an approximation).
    pub fn may_last(&self) -> Nanos {
        match self.doubtful && self.session.is_none() {
            true => self.lease_end,
            false => self.over_by,
        }
    }
}

/// The holds of a history whose requests are sorted by key, owner and time.
pub fn of(ops: &[&Op], marks: &Marks) -> Vec<Hold> {
    let mut holds = Vec::new();
    for of_owner in ops.chunk_by(|a, b| (a.key, a.owner) == (b.key, b.owner)) {
        owner(of_owner, marks, &mut holds);
    }
    for hold in &mut holds {
        if hold.was_bound {
            // The server keeps a session hold reliably only while no fault happens.
            hold.surely_until = hold.surely_until.min(marks.next(hold.key, hold.asked));
        }
    }
    holds
}

/// The requests of one owner for one key, one after the other.
fn owner(ops: &[&Op], marks: &Marks, holds: &mut Vec<Hold>) {
    let mut current: Vec<Hold> = Vec::new();
    for op in ops {
        match op.call {
            Call::Acquire { .. } => acquired(op, &mut current, holds),
            Call::Renew { lease, token, .. } => {
                if let Some(hold) = of_token(&mut current, op, token) {
                    renewed(op, lease, hold);
                }
            }
            Call::Release { token, .. } => {
                if let Some(hold) = of_token(&mut current, op, token) {
                    released(op, hold);
                }
            }
            Call::Close => {}
        }
        share_lease(op, &mut current);
        let is_lost = matches!(op.outcome, Outcome::Lost | Outcome::Silent);
        for hold in &mut current {
            if is_lost || op.call == Call::Close {
                disconnected(op, hold, marks);
            } else {
                hold.alive_at = hold.alive_at.max(op.sent);
            }
        }
    }
    holds.extend(current);
}

fn of_kind<'a>(current: &'a mut [Hold], op: &Op) -> Option<&'a mut Hold> {
    let kind = op.call.kind();
    current.iter_mut().find(|hold| hold.kind == kind)
}

fn of_token<'a>(current: &'a mut [Hold], op: &Op, token: Option<i64>) -> Option<&'a mut Hold> {
    of_kind(current, op).filter(|hold| token.is_none_or(|token| token == hold.token))
}

fn acquired(op: &Op, current: &mut Vec<Hold>, holds: &mut Vec<Hold>) {
    let Call::Acquire { tie, lease, .. } = op.call else {
        return;
    };
    let session = (tie == Tie::Session).then_some(lease);
    let (surely_until, over_by) = match session {
        Some(_) => (Nanos::MAX, Nanos::MAX),
        None => (op.sent + ms(lease), op.done + ms(lease)),
    };
    match (&op.outcome, of_kind(current, op)) {
        (Outcome::Granted(token), Some(held)) if *token == held.token => {
            reentered(op, lease, session, held);
        }
        (Outcome::Granted(token), held) => {
            let hold = Hold {
                key: op.key,
                owner: op.owner,
                kind: op.call.kind(),
                token: *token,
                asked: op.sent,
                received: op.done,
                surely_until,
                over_by,
                lease_end: op.done + ms(lease),
                doubtful: false,
                session,
                was_bound: session.is_some(),
                agreed: op.done,
                released: None,
                alive_at: op.sent,
                unbound: None,
            };
            match held {
                Some(held) => {
                    match held.kind {
                        // An owner's permit, and its READ holds, are one hold, whose token may change at a restart.
                        Kind::Permit(_) | Kind::Read => {
                            held.surely_until = held.surely_until.min(op.sent);
                        }
                        Kind::Exclusive | Kind::Write => held.over_by = held.over_by.min(op.done),
                    }
                    holds.push(std::mem::replace(held, hold));
                }
                None => current.push(hold),
            }
        }
        // It may have been a re-entry, or a grant under another token whose reply was lost.
        (Outcome::Lost | Outcome::Silent, Some(held)) => {
            held.over_by = Nanos::MAX;
            held.doubtful = true;
        }
        _ => {}
    }
}

/// A writer that reads as well has one lease, the TTL of the key, which either request extends.
fn share_lease(op: &Op, current: &mut [Hold]) {
    let extends = matches!(
        (op.call, &op.outcome),
        (Call::Acquire { .. }, Outcome::Granted(_)) | (Call::Renew { .. }, Outcome::Number(1))
    );
    let lasts = |hold: &&mut Hold| hold.over_by.saturating_add(SLACK) >= op.sent;
    let longest = current
        .iter_mut()
        .filter(lasts)
        .map(|hold| hold.over_by)
        .max();
    for hold in current.iter_mut().filter(|_| extends).filter(lasts) {
        hold.over_by = hold.over_by.max(longest.unwrap_or_default());
    }
}

/// The owner holds already: its lease gets longer, or the hold becomes or ceases to be a session hold.
fn reentered(op: &Op, lease: u32, session: Option<u32>, held: &mut Hold) {
    let before = std::mem::replace(&mut held.session, session);
    let (surely_until, over_by) = match (session, before) {
        (Some(_), _) => (Nanos::MAX, Nanos::MAX),
        (None, Some(before)) => (op.sent + ms(lease), op.done + ms(lease.max(before))),
        (None, None) => (
            held.surely_until.max(op.sent + ms(lease)),
            held.over_by.max(op.done + ms(lease)),
        ),
    };
    if !held.doubtful {
        held.surely_until = surely_until;
        held.over_by = over_by;
    }
    held.over_by = held.over_by.max(over_by);
    held.lease_end = held.lease_end.max(op.done + ms(lease));
    held.was_bound |= session.is_some();
    held.agreed = op.done;
    held.released = None;
    held.unbound = None;
}

/// The connection ended by then, if the hold was bound to one.
fn disconnected(op: &Op, hold: &mut Hold, marks: &Marks) {
    let Some(lease) = hold.session else {
        return;
    };
    // The time of a close by others is not known; the client noticed it now.
    let alive_until = match op.outcome {
        Outcome::Lost | Outcome::Silent => hold.alive_at,
        _ => op.sent,
    };
    hold.surely_until = hold.surely_until.min(alive_until);
    let is_server_gone = marks.excuse_order(hold.key, hold.asked, op.done);
    let over_by = match is_server_gone {
        true => op.done.max(marks.healed(hold.key, op.done)) + ms(lease),
        false => op.done,
    };
    // It is not known whether the lost request had moved the binding elsewhere; it was this request's.
    hold.over_by = over_by;
    hold.unbound = hold.unbound.or(Some(over_by));
}

fn renewed(op: &Op, lease: u32, hold: &mut Hold) {
    match op.outcome {
        Outcome::Number(1) => {
            // With a lease of its own it is no longer bound.
            (hold.session, hold.unbound) = (None, None);
            hold.lease_end = hold.lease_end.max(op.done + ms(lease));
            hold.agreed = op.done;
            if !hold.doubtful {
                hold.surely_until = op.sent + ms(lease);
                hold.over_by = op.done + ms(lease);
            }
        }
        Outcome::Number(_) => was_gone(op, hold),
        Outcome::Lost | Outcome::Silent => doubt(op, hold),
        _ => {}
    }
}

fn released(op: &Op, hold: &mut Hold) {
    match op.outcome {
        Outcome::Number(0) if hold.kind != Kind::Read => {}
        // The READ hold that is released may be the one with the longest lease.
        Outcome::Number(0) => hold.surely_until = hold.surely_until.min(op.sent),
        Outcome::Number(_) => {
            hold.surely_until = hold.surely_until.min(op.sent);
            if !hold.doubtful {
                hold.over_by = op.done;
            }
            hold.session = None;
            hold.released = Some(op.done);
        }
        Outcome::Nil => was_gone(op, hold),
        Outcome::Lost | Outcome::Silent => doubt(op, hold),
        _ => {}
    }
}

/// The server says that the hold has ended.
fn was_gone(op: &Op, hold: &mut Hold) {
    hold.surely_until = hold.surely_until.min(op.sent);
    if !hold.doubtful {
        hold.over_by = hold.over_by.min(op.done);
    }
    hold.session = None;
}

fn doubt(op: &Op, hold: &mut Hold) {
    hold.surely_until = hold.surely_until.min(op.sent);
    hold.over_by = Nanos::MAX;
    hold.doubtful = true;
}

fn ms(lease: u32) -> Nanos {
    Nanos::from(lease) * MS
}
