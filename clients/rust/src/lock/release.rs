//! The release of a hold, and the giving up of an acquisition.

use std::future::Future;
use std::time::Duration;

use redis::Value;
use tokio::sync::oneshot;
use tokio::time::{timeout_at, Instant};

use crate::backoff::{left, Pause};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::moment::now;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim, Ending};
use crate::outcome::Released;
use crate::runtime::{self, within};

/// How long the release of a hold that is bound to a connection is repeated. Such a hold does not end with its lease: a
/// server that has not noticed the end of the connection (`tcp-keepalive`) renews it.
const LONGEST_BOUND: Duration = Duration::from_secs(600);

/// Sends a release until it is answered, or until the end, after which no attempt is started. `was_valid`: whether the
/// hold was certain at the begin.
pub(crate) async fn release(
    claim: &Claim,
    mut ending: Ending,
    end: Instant,
    was_valid: bool,
) -> Result<Released> {
    let server = &claim.server;
    let mut caller = Caller::shared(server, &claim.key);
    let mut was_unanswered = false;
    let mut pause = Pause::default();
    loop {
        let patience = left(Some(end)).clamp(Duration::from_millis(1), server.patience() / 2);
        let command = command::release(claim, ending);
        let reply = caller.call(&command, patience).await;
        if caller.unanswered {
            was_unanswered = true;
            if !claim.is_named {
                ending = Ending::Final;
            }
        }
        match reply {
            // An earlier request without a reply was served.
            Ok(Value::Nil) if was_unanswered && was_valid => return Ok(Released::Yes),
            Ok(Value::Nil) => return Ok(Released::NotHeld),
            Ok(Value::Int(_)) => return Ok(Released::Yes),
            Ok(_) => return Err(Error::reply(server.name())),
            Err(error) if error.is_passing() && now() + pause.next() < end => {
                pause.sleep(Duration::MAX).await;
            }
            Err(error) if error.is_wrong_type() => return Ok(Released::NotHeld),
            Err(error) => return Err(error),
        }
    }
}

/// Runs these releases at the same time, each with the name of its server, under any executor. One without a result at
/// the end is an error here, and goes on.
pub(crate) async fn at_once<R: Future<Output = Result<Released>> + Send + 'static>(
    releases: impl Iterator<Item = (String, R)>,
    end: Instant,
) -> Vec<(String, Result<Released>)> {
    let released = within(async {
        let begun = releases.map(|(server, release)| (server, tokio::spawn(release)));
        let begun: Vec<_> = begun.collect();
        let mut released = Vec::with_capacity(begun.len());
        for (server, release) in begun {
            let word = match timeout_at(end, release).await {
                Ok(Ok(word)) => word,
                Ok(Err(_)) | Err(_) => Err(Error::no_answer(&server)),
            };
            released.push((server, word));
        }
        Ok(released)
    });
    // A guard exists only after the thread that `within` needs was started.
    released.await.unwrap_or_default()
}

/// Releases in the background until it is answered, or for as long as it could `last`: a hold, which may have a token,
/// or what an acquisition may have left. What the caller asks next, over the same connection, comes after it. A failure
/// is reported at the end. The returned future ends with that; dropped, the release goes on.
pub(crate) fn give_up(
    claim: Claim,
    hold: Option<Option<u64>>,
    ending: Ending,
    last: Duration,
    is_bound: bool,
) -> impl Future<Output = ()> {
    let running = claim.server.inner.background.begin();
    let (over, is_over) = oneshot::channel::<()>();
    runtime::begin(async move {
        let token = hold.flatten();
        let end = now() + last;
        let released = release(&claim, ending, end, true).await;
        let is_unreached = released.as_ref().is_err_and(Error::is_passing);
        match released {
            Ok(_) if hold.is_some() => events::released(&claim, token),
            Ok(_) => {}
            Err(error) => {
                events::left_behind(&claim, token, &error);
                running.fail(&claim, error);
            }
        }
        drop((over, running));
        if is_unreached && is_bound {
            let _ = release(&claim, ending, end + LONGEST_BOUND, true).await;
        }
    });
    async move { drop(is_over.await) }
}
