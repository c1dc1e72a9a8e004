//! An acquisition in progress: of one lock, or of several locks of one server in one request. Granted, it becomes a
//! guard for each lock; dropped, it is undone.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::guard::{Guard, Leftovers};
use crate::lock::release::{First, Undo};
use crate::lock::reservation::Reservation;
use crate::lock::terms::Terms;
use crate::lock::wait::{bounded, Request, Wait};
use crate::moment::Moment;
use crate::net::command::{self, Claim};
use crate::net::server::Server;
use crate::trace;

/// Acquires the locks of these terms in one request, waiting for at most `wait`, or without a limit. The terms name one
/// server and agree in everything but the key and the margin.
pub(crate) async fn acquire(terms: &[Terms], wait: Option<Duration>) -> Result<Option<Vec<Guard>>> {
    let Some(first) = terms.first() else {
        return Ok(Some(Vec::new()));
    };
    // Boxed, because a program that awaits it through many layers would reach the compiler's limit of nested types.
    observed(terms, first, Box::pin(ask(terms, first, wait))).await
}

/// Runs an acquisition within its span and reports the result.
pub(crate) async fn observed(
    terms: &[Terms],
    first: &Terms,
    work: impl Future<Output = Result<Option<Vec<Guard>>>>,
) -> Result<Option<Vec<Guard>>> {
    let begun = Instant::now();
    let owner = first.owner.as_deref();
    trace::acquisition(first.server.name(), &first.key, owner, async {
        let acquired = work.await;
        let (guards, error) = match &acquired {
            Ok(guards) => (guards.as_deref(), None),
            Err(error) => (None, Some(error)),
        };
        match guards {
            Some(guards) => guards
                .iter()
                .for_each(|guard| guard.record_grant(begun.elapsed())),
            None => terms
                .iter()
                .for_each(|terms| events::not_acquired(terms, error, begun.elapsed())),
        }
        acquired
    })
    .await
}

async fn ask(terms: &[Terms], first: &Terms, wait: Option<Duration>) -> Result<Option<Vec<Guard>>> {
    terms.iter().try_for_each(Terms::check)?;
    // An end that the clock cannot represent is no limit.
    let end = wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut reservations = Vec::with_capacity(terms.len());
    for terms in terms {
        match terms.reserve_owner(end).await? {
            Some(reservation) => reservations.push(reservation),
            None => return Ok(None),
        }
    }
    let attempt = Attempt::new(&first.server, first, terms, reservations);
    bounded(&first.server, end, attempt.run(end)).await
}

/// The part of the request that concerns one key.
struct Member<'a> {
    terms: &'a Terms,
    claim: Claim,
    reservation: Reservation,
}

/// The request in progress. Dropped before the grant, it withdraws the wait and releases what may have been granted
/// meanwhile.
struct Attempt<'a> {
    server: &'a Server,
    members: Vec<Member<'a>>,
    wait: Wait,
    is_granted: bool,
}

impl<'a> Attempt<'a> {
    fn new(
        server: &'a Server,
        first: &Terms,
        terms: &'a [Terms],
        reservations: Vec<Reservation>,
    ) -> Attempt<'a> {
        let owner = first.fresh_owner();
        let members = terms
            .iter()
            .zip(reservations)
            .map(|(terms, reservation)| Member {
                terms,
                claim: terms.claim_by(&owner),
                reservation,
            });
        let members: Vec<_> = members.collect();
        let claims = members.iter().map(|member| &member.claim);
        let reported_after = terms.iter().map(Terms::reported_after);
        let of_several = match members.len() {
            1 => Vec::new(),
            _ => claims.clone().cloned().collect(),
        };
        let request = Request {
            key: first.key.clone(),
            command: command::acquire(claims, first.lease, Duration::ZERO),
            longest_slice: first.longest_slice(),
            certain: reported_after.min().unwrap_or_default(),
            owner: Some(owner),
            is_named: first.owner.is_some(),
            of_several,
        };
        Attempt {
            server,
            members,
            wait: Wait::new(server, request),
            is_granted: false,
        }
    }

    /// Sends the request until it is granted or `end` has come.
    async fn run(mut self, end: Option<Instant>) -> Result<Option<Vec<Guard>>> {
        match self.wait.run(end).await? {
            None => Ok(None),
            Some((tokens, sent)) if tokens.len() == self.members.len() => {
                Ok(Some(self.granted(&tokens, sent)))
            }
            Some(_) => Err(Error::reply(self.server.name())),
        }
    }

    fn granted(mut self, tokens: &[u64], sent: Moment) -> Vec<Guard> {
        self.is_granted = true;
        let acquires_until = self.wait.under_way_until();
        let members = std::mem::take(&mut self.members).into_iter();
        let guard = |(member, token): (Member<'_>, &u64)| {
            let leftovers = Leftovers {
                acquires_until,
                releases_until: None,
                reservation: member.reservation,
            };
            Guard::new(member.terms, member.claim, *token, sent, leftovers, None)
        };
        members.zip(tokens).map(guard).collect()
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let has_ticket = self.wait.end_ticket();
        let under_way_until = self.wait.under_way_until();
        let was_unanswered = under_way_until.is_some();
        let under_way_until = under_way_until.filter(|until| Instant::now() < *until);
        let mut parked = self.wait.take_parked();
        for member in self.members.drain(..) {
            // The server keeps the place of an ended wait for a while, so that the owner can ask again. A fresh owner
            // never does, so its place is withdrawn. A named owner may do so, and may have been granted the lock
            // meanwhile.
            let keeps_place = self.wait.was_queued() && !member.reservation.is_named();
            let has_left = keeps_place || was_unanswered;
            let undo = Undo {
                server: self.server.clone(),
                claim: member.claim,
                lease: member.terms.lease,
                is_bound: false,
                first: match (has_ticket, has_left) {
                    (true, _) => First::Ticket,
                    (false, true) => First::Everything,
                    (false, false) => First::Nothing,
                },
                acquires_until: under_way_until,
                releases_until: self.wait.releases_until(),
                reservation: member.reservation,
                // Withdrawing the request at one key withdraws it as a whole.
                parked: std::mem::take(&mut parked),
            };
            undo.start();
        }
    }
}
