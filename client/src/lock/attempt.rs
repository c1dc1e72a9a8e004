//! An acquisition that is under way: of one lock, or of several of one server in one request. Granted, it is a guard for
//! each; given up, it is undone.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::guard::{Guard, Leftovers};
use crate::lock::release::{First, Undo};
use crate::lock::reservation::Turn;
use crate::lock::terms::Terms;
use crate::lock::wait::{bounded, Request, Wait};
use crate::moment::Moment;
use crate::net::command::{self, Claim};
use crate::net::server::Server;
use crate::trace;

/// Waits for what these terms ask for, in one request, for at most so long; without a bound for as long as it takes. They
/// name one server, and agree in all but the key and the margin.
pub(crate) async fn acquire(terms: &[Terms], wait: Option<Duration>) -> Result<Option<Vec<Guard>>> {
    let Some(first) = terms.first() else {
        return Ok(Some(Vec::new()));
    };
    // On the heap: a program that awaits it in many layers would reach the compiler's limit of nested types.
    observed(terms, first, Box::pin(ask(terms, first, wait))).await
}

/// Does this, and tells how it has ended.
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
                .for_each(|guard| guard.tell_of_grant(begun.elapsed())),
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
    // A wait beyond all clocks is one without end.
    let end = wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut turns = Vec::with_capacity(terms.len());
    for terms in terms {
        match terms.next_turn(end).await {
            Some(turn) => turns.push(turn),
            None => return Ok(None),
        }
    }
    let attempt = Attempt::new(&first.server, first, terms, turns);
    bounded(&first.server, end, attempt.run(end)).await
}

/// What is asked for, of one key.
struct Member<'a> {
    terms: &'a Terms,
    claim: Claim,
    turn: Turn,
}

/// A request that is under way. Dropped before the grant, it withdraws the wait, and gives back what may have
/// been granted to it meanwhile.
struct Attempt<'a> {
    server: &'a Server,
    members: Vec<Member<'a>>,
    wait: Wait,
    is_granted: bool,
}

impl<'a> Attempt<'a> {
    fn new(server: &'a Server, first: &Terms, terms: &'a [Terms], turns: Vec<Turn>) -> Attempt<'a> {
        let owner = first.fresh_owner();
        let members = terms.iter().zip(turns).map(|(terms, turn)| Member {
            terms,
            claim: terms.claim_by(&owner),
            turn,
        });
        let members: Vec<_> = members.collect();
        let claims = members.iter().map(|member| &member.claim);
        let told_after = terms.iter().map(Terms::told_after);
        let request = Request {
            key: first.key.clone(),
            command: command::acquire(claims, first.lease, Duration::ZERO),
            longest_slice: first.longest_slice(),
            certain: told_after.min().unwrap_or_default(),
            owner: Some(owner),
        };
        Attempt {
            server,
            members,
            wait: Wait::new(server, request),
            is_granted: false,
        }
    }

    /// Asks until it is granted, or the end has come.
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
                turn: member.turn,
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
        let under_way_until = self.wait.under_way_until();
        let under_way_until = under_way_until.filter(|until| Instant::now() < *until);
        let mut parked = self.wait.take_parked();
        for member in self.members.drain(..) {
            // A wait that has ended keeps its place for a while, for the owner to ask again. An owner of this acquisition
            // alone will not. One whom others know may have been granted the lock meanwhile.
            let keeps_place = self.wait.was_parked() && !member.turn.is_known();
            let has_left = keeps_place || under_way_until.is_some();
            let undo = Undo {
                server: self.server.clone(),
                claim: member.claim,
                lease: member.terms.lease,
                first: match has_left {
                    true => First::Everything,
                    false => First::Nothing,
                },
                acquires_until: under_way_until,
                releases_until: None,
                turn: member.turn,
                // Withdrawn at one key, a request is withdrawn as a whole.
                parked: std::mem::take(&mut parked),
            };
            undo.start();
        }
    }
}
