//! The state of a held lock, and the task that renews it ([`start`](crate::lock::start) starts it).
//!
//! The task renews the lease after every third of it. When the server replies that this grant is over, or refuses for
//! good, the lock is lost at once. When the server does not reply, the task repeats the request until the margin before
//! the end of the lease, counted from the moment at which the last confirmed renewal was sent; then the lock is lost
//! too, because another owner may get it soon.
//!
//! Between two renewals, when the server notifies a change of the key, it reads whether the owner's field still exists.
//! If not, it renews early: only the reply to a renewal ends the hold.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, sleep_until, timeout_at, Instant};

use crate::error::Error;
use crate::lock::events;
use crate::lock::loss::{Confirmed, LossNotice, LossOnDrop};
use crate::lock::start::Renewal;
use crate::mode::Mode;
use crate::moment::{now, Moment};
use crate::net::address::name_of;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim, Kind};
use crate::net::invalidation::KeyWatch;
use crate::net::reply::{field, items, span, text};
use crate::net::retry::heard;
use crate::observer::Observed;
use crate::outcome::{LostReason, Released};

/// The state that a guard and its renewal task share.
pub(crate) struct Hold {
    pub claim: Claim,
    pub token: u64,
    /// How long before the end of the lease a loss is reported; None: a sixth of the lease.
    margin: Option<Duration>,
    pub notice: Arc<LossNotice>,
    pub renewal: Renewal,
    /// Locked while a renewal is under way. Until the moment in it, one without an answer may be served late.
    pub renewing: tokio::sync::Mutex<Option<Instant>>,
    /// From the moment when the program has the hold: one that is given up before was not granted.
    observed: OnceLock<Observed>,
    is_lost: AtomicBool,
}

/// The certain part of a lease. The server counts in whole milliseconds, so its time of the grant may be almost one
/// millisecond early.
pub(crate) fn certain(lease: Duration) -> Duration {
    lease.saturating_sub(Duration::from_millis(1))
}

impl Hold {
    /// The hold of a grant whose request was sent at this moment.
    pub(crate) fn new(
        claim: Claim,
        token: u64,
        lease: Duration,
        margin: Option<Duration>,
        sent: Moment,
    ) -> Arc<Hold> {
        let notice = LossNotice::new();
        let hold = Hold {
            observed: OnceLock::new(),
            is_lost: AtomicBool::new(false),
            claim,
            token,
            margin,
            notice,
            renewal: Renewal::default(),
            renewing: tokio::sync::Mutex::default(),
        };
        hold.confirm(sent, lease);
        Arc::new(hold)
    }

    /// The lease of the last confirmed request. That of a session is a setting of the server, which may change.
    pub(crate) fn lease(&self) -> Duration {
        self.notice.confirmed().lease
    }

    /// The program has the hold, this time after it has asked for it.
    pub(crate) fn record_grant(&self, waited: Duration) {
        events::acquired(&self.claim, self.token, waited);
        if let Some(observed) = Observed::of(&self.claim.server, &self.claim.key, self.claim.kind) {
            let observed = self.observed.get_or_init(|| observed);
            if let Some(why) = self.notice.reason() {
                observed.lost(&why);
            }
        }
    }

    /// The hold is lost. It is told before the holder knows, once, and not after the end.
    pub(crate) fn lose(&self, why: LostReason) {
        if !self.notice.is_over() && !self.is_lost.swap(true, Ordering::Relaxed) {
            events::lost(&self.claim, self.token, &why);
            if let Some(observed) = self.observed.get() {
                observed.lost(&why);
            }
        }
        self.notice.lose(why);
    }

    /// The holder ends the hold. Nothing happens the second time.
    pub(crate) fn finish(&self) {
        let observed = self.observed.get();
        let is_held = !self.notice.is_over() && self.notice.reason().is_none();
        if let Some(observed) = observed.filter(|_| is_held) {
            observed.released(now() - observed.since);
        }
        self.notice.finish();
    }

    /// Records the end of the hold by its holder, which has this result.
    pub(crate) fn record_end(&self, ended: Result<Released, Error>) -> Result<Released, Error> {
        self.claim.changed();
        match &ended {
            Ok(_) => events::released(&self.claim, self.token),
            Err(error) => events::not_released(&self.claim, self.token, error),
        }
        ended
    }

    /// The server has this lease from this moment on.
    pub(crate) fn confirm(&self, sent: Moment, lease: Duration) {
        self.notice.confirm(Confirmed {
            sent,
            lease,
            certain: certain(lease),
            margin: self.margin.unwrap_or(lease / 6).min(lease / 2),
        });
    }
}

/// The task of a hold: renews until the lock is lost. A session hold is renewed on its own connection.
pub(crate) fn keep(hold: Arc<Hold>, bound: Option<Caller>) -> impl Future<Output = ()> + Send {
    // Created outside of the task, which may be dropped before its first poll.
    let on_drop = LossOnDrop(hold.notice.clone());
    async move {
        let _on_drop = on_drop;
        let shared = || Caller::shared(&hold.claim.server, &hold.claim.key);
        let mut caller = bound.unwrap_or_else(shared);
        let why = run(&hold, &mut caller).await;
        hold.lose(why);
        if caller.is_bound() {
            // The end of the connection would release the lock, and the holder has yet to stop.
            std::future::pending().await
        }
    }
}

/// A hold that ends sooner costs no read of its field, and no task.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

async fn run(hold: &Hold, caller: &mut Caller) -> LostReason {
    let is_bound = caller.is_bound();
    let command = command::renew(&hold.claim, Some(hold.lease()), hold.token);
    let mut watch = hold.claim.server.inner.invalidations.watch(&hold.claim.key);
    let mut is_watched = true;
    loop {
        let last = hold.notice.confirmed();
        let renewal = last.sent.steady + last.lease / 3;
        tokio::select! {
            () = sleep_until(renewal) => {}
            () = caller.closed(), if is_bound => return LostReason::Disconnected,
            // If the server confirms the next renewal, the field is no evidence and is not read again.
            () = field_is_gone(hold, &mut watch), if is_watched => is_watched = false,
        }
        let mut end = hold.notice.end();
        if is_bound && end <= now() {
            // This process stood still, and the server has renewed the hold meanwhile: it is asked once.
            end = now() + hold.claim.server.patience() / 2;
        }
        let renewing = renew(hold, caller, &command);
        let renewing = Observed::renews(hold.observed.get(), (renewal, last.lease), renewing);
        match timeout_at(end, renewing).await {
            Ok(Ok((sent, lease))) => {
                hold.confirm(sent, lease);
                events::renewed(&hold.claim, hold.token);
            }
            Ok(Err(why)) => return why,
            Err(_) => return LostReason::Unconfirmed,
        }
    }
}

/// Completes when the owner's field seems to be gone. It is read [`SHORT`] after the grant or renewal, and after each
/// change of the key since.
async fn field_is_gone(hold: &Hold, watch: &mut KeyWatch) {
    let invalidations = &hold.claim.server.inner.invalidations;
    let mut caller = Caller::shared(&hold.claim.server, &hold.claim.key);
    sleep_until(hold.notice.confirmed().sent.steady + SHORT).await;
    while let (Some(read), true) = (command::field_exists(&hold.claim), invalidations.may_read()) {
        match caller.call(&read, hold.claim.server.patience()).await {
            Ok(Value::Int(0)) => return,
            Err(error) if error.has_code("WRONGTYPE") => return,
            Err(error) if error.has_code("NOPERM") => invalidations.forbid_reads(),
            _ => {
                // Limits the reads of a key that changes often.
                sleep(SHORT).await;
                watch.change().await;
            }
        }
    }
    std::future::pending().await
}

/// Renews until the server replies; returns when the confirmed renewal was sent, and the lease. That of a hold which is
/// bound to this connection is a setting of the server, which may have changed, so it is read each time.
async fn renew(
    hold: &Hold,
    caller: &mut Caller,
    command: &redis::Cmd,
) -> Result<(Moment, Duration), LostReason> {
    let is_bound = caller.is_bound();
    let lease = hold.lease();
    let pause = (lease / 20).clamp(Duration::from_millis(1), Duration::from_millis(500));
    let mut was_replica = false;
    loop {
        let mut renewing = hold.renewing.lock().await;
        if hold.notice.is_over() {
            drop(renewing);
            return std::future::pending().await;
        }
        let sent = Moment::now();
        let renewed = if is_bound {
            // There is no other connection to try, so the request may take the whole lease.
            bound_lease(caller, &hold.claim, hold.token, lease).await
        } else {
            let patience = hold.claim.server.patience().min(lease / 6);
            let reply = caller.call(command, patience).await;
            reply.and_then(|reply| match reply {
                Value::Int(1) => Ok(Some((lease, sent))),
                Value::Int(0) => Ok(None),
                _ => Err(Error::reply(hold.claim.server.name())),
            })
        };
        if caller.unanswered {
            *renewing = Some(now() + hold.claim.server.patience());
        }
        drop(renewing);
        let error = match renewed {
            Ok(Some((lease, sent))) => return Ok((sent, lease)),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        events::not_renewed(&hold.claim, hold.token, error.as_ref());
        match error {
            None => return Err(LostReason::Taken),
            Some(Error::Refused { code, text, .. }) if is_final(&code) => {
                return Err(LostReason::Refused { code, text });
            }
            Some(Error::Refused { code, .. }) if is_bound && (code == "MOVED" || code == "ASK") => {
                return Err(LostReason::Disconnected);
            }
            Some(_) if is_bound && !caller.is_bound() => return Err(LostReason::Disconnected),
            // Repeated through a new connection, because the address may lead to another server by now. Without cluster
            // or sentinels the second such reply is final.
            Some(Error::Refused { code, text, .. }) if code == "READONLY" => {
                if was_replica && hold.claim.server.is_single() {
                    return Err(LostReason::Refused { code, text });
                }
                was_replica = true;
            }
            Some(_) => {}
        }
        sleep(pause).await;
    }
}

/// Renews a hold beside its task, or one that has no task, with this text beside it if there is one. Returns a moment
/// before the request was sent; None when the owner does not hold the key under this token, also where the key holds
/// something else. A hold that is bound to a connection is renewed without a lease.
pub(crate) async fn renew_once(
    claim: &Claim,
    lease: Option<Duration>,
    token: u64,
    note: Option<&[u8]>,
) -> crate::error::Result<Option<Moment>> {
    let mut command = command::renew(claim, lease, token);
    if let Some(note) = note {
        command.arg("NOTE").arg(note);
    }
    let sent = Moment::now();
    match heard(&claim.server, &claim.key, &command).await {
        Ok(Value::Int(1)) => Ok(Some(sent)),
        Ok(Value::Int(0)) => Ok(None),
        Ok(_) => Err(Error::reply(claim.server.name())),
        Err(error) if error.is_wrong_type() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Renews a hold that is bound to the connection of this caller, and reads its lease (`LOCK.INFO`), with a moment
/// before that was sent. None when the owner holds nothing. (An owner that held the lock before may have a longer
/// lease, which the renewal shortens.) Readers share what one of them has read.
pub(crate) async fn bound_lease(
    caller: &mut Caller,
    claim: &Claim,
    token: u64,
    patience: Duration,
) -> crate::error::Result<Option<(Duration, Moment)>> {
    let renewed = Moment::now();
    let renew = command::renew(claim, None, token);
    if caller.call(&renew, patience).await? != Value::Int(1) {
        return Ok(None);
    }
    let is_reader = claim.kind == Kind::Lock(Mode::Read);
    let node = caller
        .answered_by
        .as_ref()
        .filter(|_| is_reader)
        .map(name_of);
    let known = node
        .as_ref()
        .map(|node| claim.server.inner.reader_leases.known(node));
    if let Some(lease) = known.flatten() {
        return Ok(Some((lease, renewed)));
    }
    let asked = Moment::now();
    let reply = caller.call(&command::info(&claim.key, 0), patience).await?;
    let mut holders = items(&reply, "holders").iter();
    let owner = Value::BulkString(claim.owner.clone());
    let own = holders.find(|holder| field(holder, "owner") == Some(&owner));
    let left = own.and_then(|holder| span(holder, "pttl"));
    // The list names an owner that also writes with the lease of its write lock.
    let is_read = field(&reply, "mode").is_some_and(|mode| text(mode) == "read");
    if let (Some(node), Some(left), true) = (node, left, is_read) {
        claim.server.inner.reader_leases.record(&node, left);
    }
    Ok(left.map(|left| (left, asked)))
}

/// Whether a refusal will not change before the lease ends.
pub(crate) fn is_final(code: &str) -> bool {
    let codes = ["WRONGTYPE", "LOCKTYPE", "NOPERM", "NOAUTH", "WRONGPASS"];
    codes.contains(&code)
}
