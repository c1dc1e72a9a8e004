//! A lock that is held: renewed by a task of its own, and given back.
//!
//! Every third of the lease the task asks for it anew. When the server answers that this grant is over,
//! the lock is lost at once. When the server does not answer, the task keeps asking until the lease is
//! over, counted from before the last renewal that was confirmed was sent; then the lock is lost too,
//! because another may have it from now on.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, sleep_until, timeout_at, Instant};

use crate::call::Caller;
use crate::command::{self, Claim};
use crate::lock::Lock;
use crate::server::Server;
use crate::{Error, Result};

/// Why a lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// The server says that this grant is over: it was broken, deleted, its lease ran out, or the server
    /// lost its data.
    Taken,
    /// No renewal was confirmed before the lease ran out: the server is away, or this program was.
    Unconfirmed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Taken => "the lock was lost: the server says that the grant is over",
            LostReason::Unconfirmed => {
                "the lock was lost: no renewal was confirmed before its lease ran out"
            }
        })
    }
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lock was this holder's, and is free or the next waiter's now.
    Yes,
    /// The lock was no longer this holder's.
    NotHeld,
}

/// A lock that is held. Dropped, it is given back in the background.
#[derive(Debug)]
pub struct Guard {
    hold: Arc<Hold>,
    renewal: AbortHandle,
    is_released: bool,
}

#[derive(Debug)]
struct Hold {
    server: Server,
    claim: Claim,
    token: u64,
    lease: Duration,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// Until when the lock is ours for certain.
    pub(crate) end: Instant,
    pub(crate) lost: Option<LostReason>,
}

impl Guard {
    pub(crate) fn new(lock: &Lock, claim: Claim, token: u64, sent: Instant) -> Guard {
        let hold = Arc::new(Hold {
            server: lock.server.clone(),
            claim,
            token,
            lease: lock.lease,
            state: watch::Sender::new(State {
                end: sent + lock.lease,
                lost: None,
            }),
        });
        let renewal = tokio::spawn(keep(hold.clone())).abort_handle();
        Guard {
            hold,
            renewal,
            is_released: false,
        }
    }

    /// The fencing token of this grant: higher than that of every grant of this key before. Give it to
    /// whatever the lock protects, and let that refuse lower ones.
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// The owner that holds the lock.
    pub fn owner(&self) -> &[u8] {
        &self.hold.claim.owner
    }

    pub(crate) fn server_name(&self) -> String {
        self.hold.server.name().to_string()
    }

    /// A future that ends when the lock is lost. It may be had as often as one likes, and outlives the
    /// guard; after a release it never ends.
    pub fn lost(&self) -> Lost {
        Lost {
            state: self.hold.state.subscribe(),
        }
    }

    /// How long the lock is certainly still ours, by this process' own clock, which stands still while the
    /// machine sleeps; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        let state = *self.hold.state.borrow();
        match state.lost {
            Some(_) => Duration::ZERO,
            None => state.end.saturating_duration_since(Instant::now()),
        }
    }

    /// Gives the lock back, and waits for the server's word.
    ///
    /// # Errors
    /// When the server could not be reached until the lease was over, or refuses.
    pub async fn release(mut self) -> Result<Released> {
        self.renewal.abort();
        let hold = self.hold.clone();
        let end = hold
            .state
            .borrow()
            .end
            .max(Instant::now() + hold.server.patience());
        let released = release_until(&hold.server, &hold.claim, Some(hold.token), end).await;
        self.is_released = true;
        released
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.renewal.abort();
        if !self.is_released {
            let hold = &self.hold;
            release_later(
                &hold.server,
                hold.claim.clone(),
                Some(hold.token),
                hold.lease,
            );
        }
    }
}

/// Ends when a lock is lost; see [`Guard::lost`]. To be awaited.
#[derive(Debug, Clone)]
pub struct Lost {
    pub(crate) state: watch::Receiver<State>,
}

impl IntoFuture for Lost {
    type Output = LostReason;
    type IntoFuture = Pin<Box<dyn Future<Output = LostReason> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let lost = self.state.wait_for(|state| state.lost.is_some()).await;
            match lost.ok().and_then(|state| state.lost) {
                Some(why) => why,
                None => std::future::pending().await,
            }
        })
    }
}

/// Renews until the lock is lost.
async fn keep(hold: Arc<Hold>) {
    let mut caller = Caller::shared(&hold.server, &hold.claim.key);
    let command = command::renew(&hold.claim, hold.lease, hold.token);
    let why = loop {
        let end = hold.state.borrow().end;
        sleep_until(end - hold.lease * 2 / 3).await;
        match timeout_at(end, renew(&hold, &mut caller, &command)).await {
            Ok(Some(end)) => {
                hold.state.send_modify(|state| state.end = end);
            }
            Ok(None) => break LostReason::Taken,
            Err(_) => break LostReason::Unconfirmed,
        }
    };
    hold.state.send_modify(|state| state.lost = Some(why));
}

/// Until when a renewal holds, or None when the grant is over. Asks until it is answered.
async fn renew(hold: &Hold, caller: &mut Caller, command: &redis::Cmd) -> Option<Instant> {
    let pause = (hold.lease / 20).clamp(Duration::from_millis(1), Duration::from_millis(500));
    loop {
        let sent = Instant::now();
        let patience = hold.server.patience().min(hold.lease / 3);
        match caller.call(command, patience).await {
            Ok(Value::Int(1)) => return Some(sent + hold.lease),
            Ok(Value::Int(0)) => return None,
            Ok(_) | Err(_) => sleep(pause).await,
        }
    }
}

/// Gives back what is held, or waited for, as long as a lease could last, if a runtime is there.
pub(crate) fn release_later(server: &Server, claim: Claim, token: Option<u64>, lease: Duration) {
    let server = server.clone();
    if let Ok(runtime) = Handle::try_current() {
        let end = Instant::now() + lease;
        let running = server.background().begin();
        runtime.spawn(async move {
            let _running = running;
            release_until(&server, &claim, token, end).await
        });
    }
}

pub(crate) async fn release_until(
    server: &Server,
    claim: &Claim,
    token: Option<u64>,
    end: Instant,
) -> Result<Released> {
    let mut caller = Caller::shared(server, &claim.key);
    let command = command::release(claim, token);
    let mut pause = Duration::from_millis(20);
    let mut sent_before = false;
    loop {
        match caller.call(&command, server.patience()).await {
            // Sent twice, the first may have been served without our having heard of it.
            Ok(Value::Nil) if sent_before => return Ok(Released::Yes),
            Ok(Value::Nil) => return Ok(Released::NotHeld),
            Ok(Value::Int(_)) => return Ok(Released::Yes),
            Ok(_) => return Err(Error::reply(server.name())),
            Err(error) if error.is_passing() && Instant::now() + pause < end => {
                sent_before = true;
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(500));
            }
            Err(error) => return Err(error),
        }
    }
}
