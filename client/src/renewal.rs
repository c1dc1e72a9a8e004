//! The task that renews a lock while it is held.
//!
//! Every third of the lease it asks for the lease anew. When the server answers that this grant is over,
//! the lock is lost at once. When the server does not answer, the task keeps asking until the lease is
//! over, counted from before the last renewal that was confirmed was sent; then the lock is lost too,
//! because another may have it from now on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::call::Caller;
use crate::clock::Moment;
use crate::command;
use crate::guard::{Hold, LostReason};
use crate::notice::Kept;

/// The task of a hold: renews until the lock is lost.
pub(crate) fn keep(hold: Arc<Hold>) -> impl Future<Output = ()> + Send {
    // Not within the task: that may be dropped before it has begun.
    let kept = Kept(hold.notice.clone());
    async move {
        let why = run(&hold).await;
        kept.0.lose(why);
    }
}

async fn run(hold: &Hold) -> LostReason {
    let mut caller = Caller::shared(&hold.server, &hold.claim.key);
    let command = command::renew(&hold.claim, hold.lease, hold.token);
    loop {
        let end = hold.notice.end();
        sleep_until(end - hold.lease * 2 / 3).await;
        match timeout_at(end, renew(hold, &mut caller, &command)).await {
            Ok(Some(sent)) => hold.confirm(sent),
            Ok(None) => return LostReason::Taken,
            Err(_) => return LostReason::Unconfirmed,
        }
    }
}

/// When the renewal was sent that the server confirmed, or None when the grant is over. Asks until it is
/// answered.
async fn renew(hold: &Hold, caller: &mut Caller, command: &redis::Cmd) -> Option<Moment> {
    let pause = (hold.lease / 20).clamp(Duration::from_millis(1), Duration::from_millis(500));
    loop {
        let sent = Moment::now();
        let patience = hold.server.patience().min(hold.lease / 3);
        match caller.call(command, patience).await {
            Ok(Value::Int(1)) => return Some(sent),
            Ok(Value::Int(0)) => return None,
            Ok(_) | Err(_) => sleep(pause).await,
        }
    }
}
