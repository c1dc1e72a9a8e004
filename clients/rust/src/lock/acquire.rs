//! An acquisition: of one lock, or of several locks of one server in one request. Granted, it becomes a guard for each
//! lock; dropped, it is given up.
//!
//! Each attempt has a fresh owner and the number 1 (`SEQ`). An attempt that is given up while the server has it in a
//! queue, or while a request of it has no answer, is released with `FINAL`: a request that the server meets later then
//! grants nothing. So the client needs no memory of what it has sent.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::{timeout_at, Instant};

use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::guard::Guard;
use crate::lock::release::{at_once, give_up};
use crate::lock::renewal::{bound_lease, Hold};
use crate::lock::terms::Terms;
use crate::lock::wait::{Known, Outcome, Reach, Request, Wait};
use crate::moment::{now, Moment};
use crate::net::caller::Caller;
use crate::net::command::{self, Claim, Ending, Kind};
use crate::net::replicas::Replicas;
use crate::net::server::Server;
use crate::observer::Asked;
use crate::outcome::LostReason;
use crate::runtime::{locked, on_thread, within};
use crate::trace::Span;

/// Acquires the locks of these terms in one request, waiting for at most `wait`, or without a limit. The terms name one
/// server and agree in everything but the key and the margin. `known`: what the acquisition that this is a part of
/// knows of the server.
pub(crate) async fn acquire<Of: 'static>(
    terms: &[Terms],
    wait: Option<Duration>,
    known: Option<Arc<Known>>,
) -> Result<Option<Vec<Guard<Of>>>> {
    let terms: Arc<[Terms]> = terms.into();
    let Some(first) = terms.first() else {
        return Ok(Some(Vec::new()));
    };
    terms.iter().try_for_each(Terms::check)?;
    let began = now();
    let is_observed = first.server.inner.observer.is_some();
    let observed = is_observed.then(|| Asked::of(&terms, began));
    let span = Span::new(first.server.name(), &first.key, first.owner.as_deref());
    // An end that the clock cannot represent is no limit.
    let end = wait.and_then(|wait| began.checked_add(wait));
    // A request that waits for no other owner has the time of any other request.
    let bound = match first.steals {
        Some(_) => began.checked_add(first.server.patience()),
        None => end,
    };
    let known = known.unwrap_or_else(|| Known::of(end));
    let asked = async {
        let mut attempt = None;
        // A session's connection is opened on the crate's thread, so its first request is sent there too. So are those
        // of a crowd: one thread sends thousands in less time than many that wake each other.
        let turn = first.server.inner.first_requests.try_acquire();
        if let (Ok(_turn), false) = (turn, first.is_session) {
            let asked = first_request(&terms, end, &known);
            match within(bounded(&first.server, bound, asked)).await? {
                First::Over(guards) => return Ok(guards),
                First::Waits(waiting) => attempt = Some(waiting),
            }
        }
        // The work may begin anew, and goes on with this attempt the first time only.
        let attempt = Mutex::new(attempt);
        let work = || {
            let (server, of_task) = (first.server.clone(), terms.clone());
            let attempt = locked(&attempt).take();
            let mut reach = Reach::new(known.clone());
            span.follows(async move {
                let asked = attempts(&of_task, attempt, end, &mut reach);
                let asked = bounded(&server, bound, asked).await;
                asked.map_err(|error| reach.explain(error))
            })
        };
        on_thread(&[&first.server], first.lease, work).await
    };
    let answered = span.around(async {
        let acquired = match (asked.await, first.replicas) {
            (Ok(Some(guards)), Some(replicas)) => {
                within(replicated(guards, replicas)).await.map(Some)
            }
            (acquired, _) => acquired,
        };
        let error = acquired.as_ref().err();
        if let Some(observed) = observed {
            observed.answered(matches!(acquired, Ok(Some(_))), error);
        }
        let waited = now() - began;
        match &acquired {
            Ok(Some(guards)) => guards
                .iter()
                .for_each(|guard| guard.hold.record_grant(waited)),
            _ => terms
                .iter()
                .for_each(|terms| events::not_acquired(terms, error, waited)),
        }
        acquired
    });
    // Boxed, because a program that awaits it through many layers would reach the compiler's limit of nested types.
    Box::pin(answered).await
}

/// The guards of one grant, if replicas have it. Otherwise it is given up: released before the error of too few
/// replicas, in the background after others, when the guards are dropped.
async fn replicated<Of: 'static>(
    mut guards: Vec<Guard<Of>>,
    replicas: Replicas,
) -> Result<Vec<Guard<Of>>> {
    let holds: Vec<_> = guards.iter().map(|guard| guard.hold.clone()).collect();
    let Some(first) = holds.first() else {
        return Ok(guards);
    };
    // Until the end: this future may be dropped.
    let was_unanswered = guards.iter().any(|guard| guard.is_unanswered);
    guards
        .iter_mut()
        .for_each(|guard| guard.is_unanswered = true);
    let (server, key) = (&first.claim.server, &first.claim.key);
    let renewals = holds.iter().map(|hold| {
        let lease = Some(hold.lease());
        command::renew(&hold.claim, lease, hold.token)
    });
    let renewals: Vec<_> = renewals.collect();
    let mut node = server.node_of(server.slot_of(key), 0).await?;
    let mut is_again = false;
    let (sent, had, within) = loop {
        let looks = &server.inner.looks;
        let looked = looks.look(server, &node, renewals.clone(), replicas).await;
        let (replies, sent, had, within) = looked?;
        let replies = replies.into_iter().map(Value::extract_error);
        let failed = |error| Error::new(server.name(), error);
        match replies.collect::<RedisResult<Vec<_>>>().map_err(failed) {
            Ok(replies) if replies.iter().all(|reply| *reply == Value::Int(1)) => {
                break (sent, had, within)
            }
            Ok(_) => return Err(Error::Lost(LostReason::Taken)),
            Err(error) if !is_again && (error.has_code("MOVED") || error.has_code("ASK")) => {
                // The node is looked for by a request that follows it.
                is_again = true;
                let mut caller = Caller::shared(server, key);
                for renewal in renewals.iter().take(1) {
                    caller.call(renewal, server.patience() / 2).await?;
                }
                node = caller.answered_by.unwrap_or(node);
            }
            Err(error) => return Err(error),
        }
    };
    if had < u64::from(replicas.wanted) {
        let releases = guards.into_iter();
        let releases = releases.map(|guard| (server.name().to_string(), guard.release()));
        // At the same time, so that a silent server costs one response timeout; then they go on in the background.
        drop(at_once(releases, now() + server.patience()).await);
        return Err(Error::NotReplicated {
            server: server.name().into(),
            wanted: replicas.wanted,
            had: u32::try_from(had).unwrap_or_default(),
            within,
        });
    }
    for (guard, hold) in guards.iter_mut().zip(&holds) {
        guard.is_unanswered = was_unanswered;
        // A renewal during the look is newer.
        if hold.notice.confirmed().sent.steady < sent.steady {
            hold.confirm(sent, hold.lease());
        }
        // The look may have taken longer than the lease.
        if hold.notice.reason().is_some() || hold.notice.valid_for().is_zero() {
            let reason = hold.notice.reason();
            return Err(Error::Lost(reason.unwrap_or(LostReason::Unconfirmed)));
        }
    }
    Ok(guards)
}

/// Runs a wait and gives it up [`Server::overtime`] after its end.
pub(crate) fn bounded<'a, T>(
    server: &'a Server,
    end: Option<Instant>,
    wait: impl Future<Output = Result<T>> + 'a,
) -> impl Future<Output = Result<T>> + 'a {
    // Boxed as in `within`.
    let wait = Box::pin(wait);
    async move {
        match end.and_then(|end| end.checked_add(server.overtime())) {
            None => wait.await,
            Some(end) => {
                let ended = timeout_at(end, wait).await;
                ended.unwrap_or_else(|_| Err(Error::no_answer(server.name())))
            }
        }
    }
}

/// What became of the first request.
enum First<Of> {
    /// The acquisition is over: granted, or not.
    Over(Option<Vec<Guard<Of>>>),
    /// This attempt waits, or is to ask again.
    Waits(Box<Attempt>),
}

/// Sends the first request in the caller's task: a lock that is free needs no other.
async fn first_request<Of>(
    terms: &Arc<[Terms]>,
    end: Option<Instant>,
    known: &Known,
) -> Result<First<Of>> {
    let Some(mut attempt) = Attempt::new(terms) else {
        return Ok(First::Over(None));
    };
    Ok(match attempt.wait.ask_first(end, known).await {
        Outcome::Granted(tokens, sent) => {
            let lease = attempt.lease;
            First::Over(Some(attempt.granted(&tokens, lease, sent)?))
        }
        Outcome::Over => First::Over(None),
        Outcome::Again => First::Waits(Box::new(attempt)),
    })
}

/// Waits as this attempt, and as further ones where an owner has to be given up.
async fn attempts<Of>(
    terms: &Arc<[Terms]>,
    mut first: Option<Box<Attempt>>,
    end: Option<Instant>,
    reach: &mut Reach,
) -> Result<Option<Vec<Guard<Of>>>> {
    loop {
        let first = first.take().map(|first| *first);
        let Some(mut attempt) = first.or_else(|| Attempt::new(terms)) else {
            return Ok(None);
        };
        match attempt.wait.run(end, reach).await? {
            Outcome::Granted(tokens, sent) => {
                let (lease, sent) = match attempt.wait.request.is_bound {
                    true => attempt.bound_lease(&tokens).await?,
                    false => (attempt.lease, sent),
                };
                return attempt.granted(&tokens, lease, sent).map(Some);
            }
            Outcome::Over => return Ok(None),
            Outcome::Again => attempt.end().await,
        }
    }
}

/// The request of one owner. Dropped before the grant, it is given up.
struct Attempt {
    terms: Arc<[Terms]>,
    lease: Duration,
    /// None when it is over.
    claims: Vec<Claim>,
    wait: Wait,
}

impl Attempt {
    fn new(terms: &Arc<[Terms]>) -> Option<Attempt> {
        let first = terms.first()?;
        let owner = first.fresh_owner();
        let claims: Vec<_> = terms.iter().map(|terms| terms.claim_by(&owner)).collect();
        let reported_after = terms.iter().map(Terms::reported_after);
        let lease = (!first.is_session).then_some(first.lease);
        let command = match (first.steals, &claims[..]) {
            (Some(token), [claim]) => command::steal(claim, first.lease, token),
            _ => command::acquire(&claims, lease),
        };
        let request = Request {
            // The lease of a session is read after the grant.
            certain: lease.map_or(Duration::MAX, |_| reported_after.min().unwrap_or_default()),
            queue: first.queue,
            is_several: claims.len() > 1,
            is_bound: first.is_session,
            needs_semaphore: matches!(first.kind, Kind::Permit { limit: None, .. }),
            ..Request::new(&first.server, &first.key, Some(&owner), command)
        };
        Some(Attempt {
            terms: terms.clone(),
            lease: first.lease,
            claims,
            wait: Wait::new(request),
        })
    }

    /// The lease of a hold that is bound to the connection, which the server decides, and a moment before it was read.
    async fn bound_lease(&mut self, tokens: &[u64]) -> Result<(Duration, Moment)> {
        self.wait.may_hold = true;
        self.wait.caller.pin();
        let server = &self.wait.request.server;
        let broken = || Error::reply(server.name());
        let (claim, token) = self.claims.first().zip(tokens.first()).ok_or_else(broken)?;
        let patience = server.patience() / 2;
        // None: the lock has been broken meanwhile.
        let lease = bound_lease(&mut self.wait.caller, claim, *token, patience).await?;
        lease.ok_or_else(broken)
    }

    fn granted<Of>(
        mut self,
        tokens: &[u64],
        lease: Duration,
        sent: Moment,
    ) -> Result<Vec<Guard<Of>>> {
        if tokens.len() != self.terms.len() {
            return Err(Error::reply(self.wait.request.server.name()));
        }
        let is_bound = self.wait.request.is_bound;
        let caller = Caller::shared(&self.wait.request.server, &self.wait.request.key);
        let mut bound = is_bound.then(|| std::mem::replace(&mut self.wait.caller, caller));
        let may_hold = self.wait.may_hold && !is_bound;
        let claims = std::mem::take(&mut self.claims).into_iter();
        let each = self.terms.iter().zip(claims).zip(tokens);
        let each = each.map(|((terms, claim), token)| {
            let hold = Hold::new(claim, *token, lease, terms.margin, sent);
            Guard::new(hold, may_hold, bound.take())
        });
        Ok(each.collect())
    }

    /// Whether the server may have something of this attempt. What a named owner has without an answer is left to its
    /// lease: another process may hold the lock under this name.
    fn is_left(&self) -> bool {
        let is_named = self.claims.first().is_none_or(|claim| claim.is_named);
        self.wait.is_queued || self.wait.may_hold && !is_named
    }

    /// Gives the attempt up, and waits until the server has confirmed it.
    async fn end(mut self) {
        for given_up in self.give_up() {
            given_up.await;
        }
    }

    fn give_up(&mut self) -> Vec<impl Future<Output = ()>> {
        let is_left = self.is_left();
        // A hold that is granted late ends then.
        let last = self.wait.request.server.patience() + self.lease;
        let is_bound = self.wait.request.is_bound;
        let claims = self.claims.drain(..).filter(|_| is_left);
        claims
            .map(|claim| give_up(claim, None, Ending::Final, last, is_bound))
            .collect()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        drop(self.give_up());
    }
}
