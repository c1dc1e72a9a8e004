//! What one owner has on the servers: its wait in a queue, its rounds, and what is to be released.
//!
//! Every acquisition has an owner of its own. A hold that it may have left on a server without a reply is released in
//! the background, for as long as a lease could last, and that must never affect a later acquisition.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use redis::{cmd, Value};
use tokio::task::JoinSet;
use tokio::time::{timeout_at, Instant};

use super::rule::{quorum, round_patience, validity, Tally, Verdict};
use crate::backoff::{after, left};
use crate::error::{Error, Result};
use crate::lock::loss::{Confirmed, LossNotice};
use crate::lock::release::give_up;
use crate::lock::renewal::is_final;
use crate::lock::terms::Terms;
use crate::lock::wait::{self, Known, Reach, Request, Wait};
use crate::moment::{now, Moment};
use crate::net::caller::Caller;
use crate::net::command::{self, Claim, Ending};
use crate::net::reply::line;
use crate::observer::Observed;
use crate::runtime::locked;

/// The shortest time left to the other servers once there is a majority.
const STRAGGLERS: Duration = Duration::from_millis(5);
/// The longest such time. (A server that has not answered after a part of the round is not asked, either.)
const LONGEST_STRAGGLERS: Duration = Duration::from_secs(1);

/// The answer of a server in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// No answer, or none that counts.
    Unanswered,
    /// Another owner holds the lock there.
    No,
    /// This owner holds the lock there, under this token.
    Yes(u64),
}

/// The result of a round.
pub(super) struct Round {
    pub verdict: Verdict,
    /// A moment before the first request was sent.
    pub opened: Moment,
    pub answers: Vec<Answer>,
    /// Why a server did not answer; a permanent error takes precedence.
    pub error: Option<Error>,
}

impl Round {
    /// The first server that refused.
    pub(super) fn refused_by(&self) -> Option<usize> {
        self.answers.iter().position(|answer| *answer == Answer::No)
    }

    pub(super) fn refusals(&self) -> usize {
        let no = self.answers.iter().filter(|answer| **answer == Answer::No);
        no.count()
    }

    fn note(&mut self, error: Error) {
        if !self.error.as_ref().is_some_and(is_permanent) {
            self.error = Some(error);
        }
    }
}

/// The vote of a server: the id of its process, because two addresses may lead to the same one, and the token under
/// which the owner holds the key there; None when another owner does.
type Vote = (String, Option<u64>);

/// The id of a server's process, and the rest of its startup delay, in which it grants nothing.
type Health = (String, Duration);

/// What is known of the owner's hold on a server.
#[derive(Clone, Copy, Default)]
pub(super) struct Member {
    pub token: Option<u64>,
    /// Whether the server was asked for the lock: it may hold it for this owner.
    is_asked: bool,
    /// Whether it has answered the last request.
    is_answered: bool,
}

/// An owner and the servers.
pub(super) struct Hold {
    /// What is claimed at each server.
    pub claims: Vec<Claim>,
    /// The lease and the margin, which all servers have in common.
    pub lease: Duration,
    margin: Duration,
    members: Mutex<Vec<Member>>,
    pub notice: Arc<LossNotice>,
    /// From the moment when the program has the hold.
    pub observed: OnceLock<Observed>,
}

impl Hold {
    /// A fresh owner.
    pub(super) fn new(locks: &[Terms]) -> Result<Hold> {
        let first = locks.first();
        let first = first.ok_or_else(|| Error::config("a RedLock of no servers"))?;
        let owner = first.fresh_owner();
        Ok(Hold {
            claims: locks.iter().map(|lock| lock.claim_by(&owner)).collect(),
            lease: first.lease,
            margin: first.margin(),
            members: Mutex::new(vec![Member::default(); locks.len()]),
            notice: LossNotice::new(),
            observed: OnceLock::new(),
        })
    }

    /// Records a round with a majority that was opened at this moment.
    pub(super) fn confirm(&self, opened: Moment) {
        self.notice.confirm(Confirmed {
            sent: opened,
            lease: self.lease,
            certain: validity(self.lease),
            margin: self.margin,
        });
    }

    /// Each server's claim, and what is known of it.
    pub(super) fn each(&self) -> Vec<(&Claim, Member)> {
        let members = self.members();
        self.claims.iter().zip(members.iter().copied()).collect()
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        locked(&self.members)
    }

    fn set(&self, place: usize, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members().get_mut(place) {
            change(member);
        }
    }

    /// Waits in the queue of the first server that answers, in their order from number `first`. False when the wait is
    /// over.
    pub(super) async fn wait_in_queue(
        self: &Arc<Hold>,
        mut first: usize,
        end: Instant,
    ) -> Result<bool> {
        let mut last = Error::config("a RedLock of no servers");
        for _ in 0..self.claims.len() {
            let place = self.first_healthy(first, end).await?;
            let Some(claim) = self.claims.get(place) else {
                break;
            };
            let queued = self.grant(place, claim, end).await;
            let is_answered = !matches!(queued, Err(Error::Connection { .. }));
            self.set(place, |member| member.is_answered = is_answered);
            match queued {
                Ok(token) => return Ok(token.is_some()),
                Err(error) if is_permanent(&error) => return Err(error),
                Err(error) => (last, first) = (error, place + 1),
            }
        }
        Err(last)
    }

    /// The first server, in their order from number `first`, that answers and grants. All are asked at once, so that
    /// one that hangs does not delay the others.
    async fn first_healthy(self: &Arc<Hold>, first: usize, end: Instant) -> Result<usize> {
        let mut healths = self.healths(first, end).await;
        let mut last = Error::config("a RedLock of no servers");
        let places = self.claims.iter().enumerate().cycle();
        let count = self.claims.len();
        for (place, claim) in places.skip(first % count).take(count) {
            match healths.remove(&place) {
                Some(Ok((_, delay))) if delay.is_zero() => return Ok(place),
                // The wait goes to another one.
                Some(Ok(_)) => {
                    let text = "it grants nothing yet after its start";
                    last = Error::refused(claim.server.name(), "LOCKDELAY", text);
                }
                Some(Err(error)) if is_permanent(&error) => return Err(error),
                Some(Err(error)) => last = error,
                None => {}
            }
        }
        Err(last)
    }

    /// The health of the servers by number. It ends when number `first` grants, and otherwise soon after a majority has
    /// answered: sooner if the wait is short. (If everybody waits at the same server, the order of requests is kept.)
    async fn healths(
        self: &Arc<Hold>,
        first: usize,
        end: Instant,
    ) -> HashMap<usize, Result<Health>> {
        let begun = now();
        let servers = self.claims.len();
        let mut asked = JoinSet::new();
        for place in 0..servers {
            let hold = self.clone();
            asked.spawn(async move {
                let claim = hold.claims.get(place)?;
                Some((place, hold.health(claim).await))
            });
        }
        let mut healths = HashMap::new();
        // Each answer has its own bound.
        let mut until = after(Duration::MAX);
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            let Ok(Some((place, health))) = answer else {
                continue;
            };
            let grants = matches!(&health, Ok((_, delay)) if delay.is_zero());
            healths.insert(place, health);
            let healthy = healths.values().filter(|health| health.is_ok()).count();
            if grants && place == first % servers {
                break;
            } else if healthy == quorum(servers) {
                let others = (left(Some(end)) / 4).max(now() - begun).max(STRAGGLERS);
                until = now() + others.min(LONGEST_STRAGGLERS);
            }
        }
        healths
    }

    /// Asks all servers at once to grant or renew; one that has granted the lock already confirms it. A server with
    /// another holder may be waited at (`waits`).
    pub(super) async fn round(self: &Arc<Hold>, waits: bool) -> Round {
        let opened = Moment::now();
        // Requests that wait return in time to be counted.
        let end = opened.steady + round_patience(self.lease) * 3 / 4;
        let mut votes = JoinSet::new();
        for (place, (claim, member)) in self.each().into_iter().enumerate() {
            let (hold, claim) = (self.clone(), claim.clone());
            votes.spawn(async move {
                let end = waits.then_some(end);
                let vote = hold.vote(place, &claim, member.token, end).await;
                hold.set(place, |member| member.is_answered = vote.is_ok());
                (place, vote)
            });
        }
        let round = count(votes, self.claims.len(), opened, self.lease).await;
        for (member, answer) in self.members().iter_mut().zip(&round.answers) {
            match answer {
                Answer::Yes(token) => member.token = Some(*token),
                Answer::No => member.token = None,
                Answer::Unanswered => {}
            }
        }
        round
    }

    /// Renews a known hold. Without a token it asks for the lock, also at a renewal: the server may have been down at
    /// the grant.
    async fn vote(
        &self,
        place: usize,
        claim: &Claim,
        token: Option<u64>,
        end: Option<Instant>,
    ) -> Result<Vote> {
        let (run_id, delay) = self.health(claim).await?;
        let Some(token) = token else {
            let confirmed = self.notice.confirmed();
            if !confirmed.lease.is_zero() && self.notice.valid_for().is_zero() {
                // A hold that may have been over meanwhile is not put together again.
                return Ok((run_id, None));
            }
            let end = end.filter(|_| delay.is_zero());
            let end = end.unwrap_or_else(now);
            return Ok((run_id, self.grant(place, claim, end).await?));
        };
        let command = command::renew(claim, Some(self.lease), token);
        let mut caller = Caller::shared(&claim.server, &claim.key);
        let token = match caller.call(&command, self.patience(claim)).await {
            Ok(Value::Int(held)) => (held == 1).then_some(token),
            Err(Error::Refused { code, .. }) if is_final(&code) => None,
            Ok(_) => return Err(Error::reply(claim.server.name())),
            Err(error) => return Err(error),
        };
        Ok((run_id, token))
    }

    /// The token, or None when another owner holds the lock until the end.
    async fn grant(&self, place: usize, claim: &Claim, end: Instant) -> Result<Option<u64>> {
        let server = &claim.server;
        let command = command::acquire(slice::from_ref(claim), Some(self.lease));
        let request = Request {
            patience: self.patience(claim),
            goes_on: false,
            ..Request::new(server, &claim.key, Some(&claim.owner), command)
        };
        // From now on there may be a hold to release.
        self.set(place, |member| {
            (member.is_asked, member.is_answered) = (true, false)
        });
        let mut wait = Wait::new(request);
        let end = end.max(now());
        let mut reach = Reach::new(Known::of(Some(end)));
        let over = end + self.patience(claim);
        let asked = timeout_at(over, wait.run(Some(end), &mut reach)).await;
        match asked.unwrap_or_else(|_| Err(Error::no_answer(server.name()))) {
            Ok(wait::Outcome::Granted(tokens, _)) => Ok(tokens.first().copied()),
            Ok(wait::Outcome::Over | wait::Outcome::Again) => Ok(None),
            Err(error) if error.has_code("LOCKDELAY") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads `INFO`, which needs fewer permissions than `CONFIG GET`. It is read each time, so that a restart or a
    /// changed setting is seen before the next vote counts. A broken connection, which may lead to a former process,
    /// gets a second attempt; a timeout does not.
    async fn health(&self, claim: &Claim) -> Result<Health> {
        let name = claim.server.name();
        let end = now() + self.patience(claim) / 4;
        let command = cmd("INFO").arg("server").arg("lock").take();
        let mut caller = Caller::shared(&claim.server, &claim.key);
        let reply = match caller.call(&command, left(Some(end))).await {
            Err(Error::Connection { .. }) if !left(Some(end)).is_zero() => {
                caller.call(&command, left(Some(end))).await?
            }
            reply => reply?,
        };
        let text: String = redis::from_redis_value(reply).map_err(|_| Error::reply(name))?;
        health(&text, name, self.lease)
    }

    /// The response timeout of one request, whatever the end of the wait: a server that does not answer is skipped.
    fn patience(&self, claim: &Claim) -> Duration {
        round_patience(self.lease).min(claim.server.patience() / 2)
    }

    /// Whether a server that was asked for the lock does not answer any more.
    pub(super) fn has_lost_a_server(&self) -> bool {
        let mut members = self.members().clone().into_iter();
        members.any(|member| member.is_asked && !member.is_answered)
    }

    /// Releases the lock in the background at all servers that may hold it for this owner; each with whether it has
    /// answered. It was a hold, or an acquisition that is given up.
    pub(super) fn give_up(&self, was_held: bool) -> Vec<(impl Future<Output = ()>, bool)> {
        let asked = self.each().into_iter();
        let asked = asked.filter(|(_, member)| member.is_asked);
        let given_up = asked.map(|(claim, member)| {
            let hold = was_held.then_some(member.token);
            (
                give_up_at(claim.clone(), hold, self.lease),
                member.is_answered,
            )
        });
        given_up.collect()
    }
}

/// Releases the lock in the background at one server.
pub(super) fn give_up_at(
    claim: Claim,
    hold: Option<Option<u64>>,
    lease: Duration,
) -> impl Future<Output = ()> {
    let last = claim.server.patience() + lease;
    give_up(claim, hold, Ending::Final, last, false)
}

/// Counts the answers of the servers until the verdict is certain or the round is over.
async fn count(
    mut votes: JoinSet<(usize, Result<Vote>)>,
    servers: usize,
    opened: Moment,
    lease: Duration,
) -> Round {
    let mut tally = Tally::of(servers);
    let mut outcome = Round {
        verdict: Verdict::Open,
        opened,
        answers: vec![Answer::Unanswered; servers],
        error: None,
    };
    let mut processes = HashSet::new();
    let mut end = opened.steady + round_patience(lease);
    while let Ok(Some(joined)) = timeout_at(end, votes.join_next()).await {
        let Ok((place, vote)) = joined else { continue };
        let answer = match vote {
            Ok((run_id, _)) if !processes.insert(run_id.clone()) => {
                let why = "two addresses of the RedLock lead to one server";
                outcome.note(Error::config(why));
                Answer::Unanswered
            }
            Ok((_, token)) => token.map_or(Answer::No, Answer::Yes),
            Err(error) => {
                outcome.note(error);
                Answer::Unanswered
            }
        };
        if let Some(place) = outcome.answers.get_mut(place) {
            *place = answer;
        }
        tally.count(matches!(answer, Answer::Yes(_)));
        match tally.verdict() {
            Verdict::Open => {}
            Verdict::Refused => break,
            Verdict::Held => end = end.min(now() + opened.elapsed().max(STRAGGLERS)),
        }
    }
    outcome.verdict = match tally.verdict() {
        Verdict::Held if opened.elapsed() >= validity(lease) => Verdict::Open,
        verdict => verdict,
    };
    outcome
}

/// Whether a fault has to be corrected before another attempt makes sense. A server that is full or cannot write counts
/// as unreachable.
pub(super) fn is_permanent(error: &Error) -> bool {
    !error.is_passing() && !error.has_code("LOCKBROKEN")
}

/// The state in a reply to `INFO server lock`, if the server may take part.
fn health(info: &str, server: &str, lease: Duration) -> Result<Health> {
    let millis = |name: &str| Some(Duration::from_millis(line(info, name)?.parse().ok()?));
    if !info.contains("lock_startup_delay_left_ms:") {
        return Err(Error::NotLoaded {
            server: server.into(),
            command: "LOCK.ACQUIRE".into(),
        });
    }
    let Some(delay) = millis("lock_startup_delay_ms:") else {
        return Err(Error::config(format!(
            "{server}: its module is too old for a RedLock: INFO does not tell startup_delay_ms"
        )));
    };
    if delay < lease {
        return Err(Error::config(format!(
            "{server}: lock.startup-delay is {} ms, shorter than the lease of {} ms: started anew without \
             its data, it could grant the lock again while it is held. Set it to the longest lease in use",
            delay.as_millis(),
            lease.as_millis()
        )));
    }
    let run_id = line(info, "run_id:").unwrap_or(server).to_string();
    Ok((
        run_id,
        millis("lock_startup_delay_left_ms:").unwrap_or_default(),
    ))
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(info: &str) -> String {
        let reply = health(info, "a:1/0", Duration::from_secs(10));
        reply.err().map_or_else(String::new, |why| why.to_string())
    }

    #[test]
    fn a_server_with_a_short_startup_delay_is_refused_by_name() {
        let reply = "run_id:x\r\nlock_startup_delay_ms:9999\r\nlock_startup_delay_left_ms:0\r\n";
        let why = refusal(reply);
        for part in ["a:1/0", "9999 ms", "10000 ms", "lock.startup-delay"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(refusal(&reply.replace("9999", "10000")), "");
    }

    #[test]
    fn a_missing_and_an_old_module_have_different_errors() {
        assert!(refusal("run_id:x\r\n").contains("loadmodule"));
        assert!(refusal("lock_startup_delay_left_ms:0\r\n").contains("too old"));
    }
}
