//! What a wait waits for: a job that hangs shows why.

use std::convert::Infallible;
use std::time::Duration;

use redis_lock_client::Server;
use tokio::time::{sleep, Instant};

use crate::info::holder;
use crate::report::span;
use crate::run::lock::Owner;
use crate::run::options::Args;

/// How long a wait lasts before it is reported, and between two reports.
const FIRST_REPORT: Duration = Duration::from_secs(1);
pub const NEXT_REPORT: Duration = Duration::from_secs(60);

/// Waiters of which one is looked for.
const SHOWN: u64 = 1_000;

/// Reports a wait now and then.
pub async fn tell_of_the_wait(args: &Args, servers: &[Server], owner: Owner<'_>) -> Infallible {
    let begun = Instant::now();
    sleep(FIRST_REPORT).await;
    loop {
        if let Some(what) = in_the_way(servers, args.key(), Some(owner)).await {
            let waited = span(Some(begun.elapsed()));
            args.tell(&format!("waiting for {waited}, {what}"));
        }
        sleep(NEXT_REPORT).await;
    }
}

/// Who holds the lock at the first server that says so, and how many wait before this owner.
pub async fn in_the_way(
    servers: &[Server],
    key: &[u8],
    owner: Option<Owner<'_>>,
) -> Option<String> {
    for server in servers {
        let Ok(Some(info)) = server.info(key, SHOWN).await else {
            continue;
        };
        let mut what = match info.holders.as_slice() {
            [] => "no holder".into(),
            [one] => holder(one),
            [one, others @ ..] => format!("{}; and by {} more", holder(one), others.len()),
        };
        let place = info
            .queue
            .iter()
            .position(|one| owner.is_some_and(|owner| owner.is(&one.owner)));
        if let Some(before) = place.filter(|before| *before > 0) {
            what += &format!("; {before} before this one");
        }
        return Some(what);
    }
    None
}
