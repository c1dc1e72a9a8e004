//! The terms of an acquisition: server, key, owner, kind, lease and margin.

use std::time::Duration;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lock::renewal::certain;
use crate::mode::Mode;
use crate::net::command::{Claim, Kind};
use crate::net::replicas::Replicas;
use crate::net::server::Server;
use crate::net::slot::slot_of;
use crate::trace::{shown, Text};

/// The default lease, which is also the server's.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest lease, which clocks can still represent.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The terms of each acquisition of a lock.
#[derive(Clone)]
pub(crate) struct Terms {
    pub server: Server,
    pub key: Vec<u8>,
    /// None: a fresh owner for each acquisition.
    pub owner: Option<Vec<u8>>,
    /// What fresh owners begin with.
    pub owner_prefix: Vec<u8>,
    pub kind: Kind,
    /// In whole milliseconds.
    pub lease: Duration,
    pub margin: Option<Duration>,
    /// Whether the hold is bound to a connection.
    pub is_session: bool,
    /// A text beside an exclusive hold.
    pub note: Option<Vec<u8>>,
    /// How many requests of others may wait already.
    pub queue: Option<u32>,
    /// Replicas that have to have a grant.
    pub replicas: Option<Replicas>,
    /// Break the grant with this token, or any, and take the lock before all waiters.
    pub steals: Option<Option<u64>>,
}

shown! {
    Terms, terms, server = terms.server, key = Text(&terms.key), kind = terms.kind, lease = terms.lease,
    margin = terms.margin()
}

impl Terms {
    pub(crate) fn new(server: &Server, key: &[u8]) -> Terms {
        Terms {
            server: server.clone(),
            key: key.to_vec(),
            owner: None,
            owner_prefix: Vec::new(),
            kind: Kind::Lock(Mode::Exclusive),
            lease: DEFAULT_LEASE,
            margin: None,
            is_session: false,
            note: None,
            queue: None,
            replicas: None,
            steals: None,
        }
    }

    /// The server counts whole milliseconds, so a fraction is cut off: the client must not believe in a longer lease
    /// than the server.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.lease = lease - Duration::from_nanos(u64::from(lease.subsec_nanos() % 1_000_000));
    }

    pub(crate) fn replicas(&mut self) -> &mut Replicas {
        self.replicas.get_or_insert(Replicas {
            wanted: 0,
            within: Duration::from_millis(100),
        })
    }

    /// The owner of the next acquisition: the named one, or a fresh one.
    pub(crate) fn fresh_owner(&self) -> Vec<u8> {
        let random = || Uuid::new_v4().simple().to_string().into_bytes();
        let fresh = || [self.owner_prefix.clone(), random()].concat();
        self.owner.clone().unwrap_or_else(fresh)
    }

    /// The claim of an acquisition by this owner.
    pub(crate) fn claim_by(&self, owner: &[u8]) -> Claim {
        Claim {
            server: self.server.clone(),
            key: self.key.clone(),
            owner: owner.to_vec(),
            kind: self.kind,
            note: self.note.clone(),
            is_named: self.owner.is_some(),
        }
    }

    /// Whether one request can acquire both.
    pub(crate) fn agrees_with(&self, other: &Terms) -> bool {
        let of_request = |terms: &Terms| (terms.lease, terms.kind, terms.queue, terms.replicas);
        self.server.is_same(&other.server)
            && of_request(self) == of_request(other)
            && self.owner == other.owner
            && (!self.server.is_cluster() || slot_of(&self.key) == slot_of(&other.key))
    }

    /// Checks what no server accepts, and the margin.
    pub(crate) fn check(&self) -> Result<()> {
        let is_exclusive = self.kind == Kind::Lock(Mode::Exclusive);
        let is_permit = matches!(self.kind, Kind::Permit { .. });
        if let Some(owner) = self.owner.as_deref() {
            check_owner(owner, !is_exclusive && !is_permit)?;
        }
        if let Some(note) = &self.note {
            check_note(note)?;
        }
        if let Kind::Permit { limit, count } = self.kind {
            limit.map_or(Ok(()), |limit| check_permits(limit, 1))?;
            if !(1..=64).contains(&count) {
                return Err(Error::config("an acquisition is of 1 to 64 permits"));
            } else if limit.is_some_and(|limit| limit < count) {
                return Err(Error::config(
                    "an acquisition of more permits than its limit makes",
                ));
            }
        }
        check_queue(self.queue)?;
        let (is_few, is_short) = self.replicas.map_or((false, false), |replicas| {
            let is_few = !(1..=100).contains(&replicas.wanted);
            (is_few, replicas.within < Duration::from_millis(1))
        });
        let why = if is_few {
            "a number of replicas is 1 to 100"
        } else if is_short {
            "replicas have at least one millisecond to confirm a grant"
        } else if self.replicas.is_some() && self.is_session {
            "a hold of a session is not confirmed by replicas"
        } else if self.kind == Kind::Lock(Mode::String) {
            "no request has the mode of a string"
        } else if self.lease < Duration::from_millis(2) {
            // One millisecond is lost to rounding.
            "a lease lasts at least two milliseconds"
        } else if self.lease > LONGEST_LEASE {
            "a lease lasts at most a hundred years"
        } else if self.note.is_some() && !is_exclusive {
            "a note is beside an exclusive lock only"
        } else if self.margin() > self.lease / 2 {
            "a margin is at most half of the lease: before it the lock is renewed"
        } else {
            return Ok(());
        };
        Err(Error::config(why))
    }

    /// How long before the end of the lease a loss is reported.
    pub(crate) fn margin(&self) -> Duration {
        self.margin.unwrap_or(self.lease / 6)
    }

    /// How long after its request a grant is usable; then its loss is reported.
    pub(crate) fn reported_after(&self) -> Duration {
        certain(self.lease).saturating_sub(self.margin())
    }
}

/// Not its length, whose bound is a setting of the server.
fn check_owner(owner: &[u8], is_read_write: bool) -> Result<()> {
    let why = if owner.is_empty() {
        "owner is empty"
    } else if owner.starts_with(b"#") {
        "owners that begin with '#' are reserved"
    } else if is_read_write && (owner == b"mode" || owner.ends_with(b":write")) {
        "the owner 'mode', or one that ends in ':write', cannot hold READ or WRITE"
    } else {
        return Ok(());
    };
    Err(Error::config(why))
}

pub(crate) fn check_note(note: &[u8]) -> Result<()> {
    match note.len() {
        ..=256 => Ok(()),
        _ => Err(Error::config("a note has at most 256 bytes")),
    }
}

/// How many requests of others may wait already.
pub(crate) fn check_queue(queue: Option<u32>) -> Result<()> {
    match queue {
        Some(1_000_001..) => Err(Error::config("a queue has at most 1,000,000 requests")),
        _ => Ok(()),
    }
}

/// The number of permits of a semaphore.
pub(crate) fn check_permits(permits: u32, least: u32) -> Result<()> {
    let most = i32::MAX.unsigned_abs();
    if (least..=most).contains(&permits) {
        return Ok(());
    }
    let why = format!("a number of permits is {least} to {most}");
    Err(Error::config(why))
}

/// The names of the servers of several locks.
pub(crate) fn names<'a>(terms: impl Iterator<Item = &'a Terms>) -> String {
    let names: Vec<_> = terms.map(|terms| terms.server.name()).collect();
    names.join(",")
}

/// How much longer than its limit a wait for all these locks may last.
pub(crate) fn overtime<'a>(terms: impl Iterator<Item = &'a Terms>) -> Duration {
    let of_replicas = |terms: &Terms| terms.replicas.map(|replicas| replicas.within);
    let of_each =
        terms.map(|terms| terms.server.overtime() + of_replicas(terms).unwrap_or_default());
    of_each.max().unwrap_or_default()
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_cut_to_whole_milliseconds() {
        let server = Server::open("redis://a").expect("a URL");
        let lease = |micros| {
            let mut terms = Terms::new(&server, b"k");
            terms.set_lease(Duration::from_micros(micros));
            terms.lease
        };
        assert_eq!(lease(1_999), Duration::from_millis(1));
        assert_eq!(lease(30_000_000), DEFAULT_LEASE);
        assert_eq!(lease(999), Duration::ZERO, "which no acquisition accepts");
    }
}
