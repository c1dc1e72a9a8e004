//! What a wait waits for: a job that hangs shows why.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use redis_lock_client::Semaphore;
use tokio::time::{sleep, Instant};

use crate::escape::shown;
use crate::info::{holders, permits};
use crate::report::span;
use crate::run::lock::{Owner, Sought};

/// How long a wait lasts before it is reported, and between two reports.
const FIRST_REPORT: Duration = Duration::from_secs(1);
pub const NEXT_REPORT: Duration = Duration::from_secs(60);

/// Waiters of which one is looked for.
const SHOWN: u64 = 1_000;

/// Reports a wait now and then.
pub async fn tell_of_the_wait(sought: &Sought<'_>) -> Infallible {
    let begun = Instant::now();
    sleep(FIRST_REPORT).await;
    loop {
        if let Some(what) = in_the_way(sought, Some(sought.owner)).await {
            let waited = span(Some(begun.elapsed()));
            sought.tell(&format!("waiting for {waited}, {what}"));
        }
        sleep(NEXT_REPORT).await;
    }
}

/// Who holds the lock, of the first key and at the first server that say so, and how many wait before this owner.
pub async fn in_the_way(sought: &Sought<'_>, owner: Option<Owner<'_>>) -> Option<String> {
    if let (Some(_), [server, ..]) = (sought.permits, sought.servers) {
        let info = Semaphore::new(server, sought.key()).info().await.ok()??;
        return Some(permits(&info));
    }
    let keys = &sought.keys;
    let places = sought
        .servers
        .iter()
        .flat_map(|of| keys.iter().map(move |key| (of, *key)));
    let asked = places.clone().map(|(server, key)| server.info(key, SHOWN));
    let mut what = None;
    for ((_, key), info) in places.zip(join_all(asked).await) {
        let Ok(Some(info)) = info else {
            continue;
        };
        let mut found = holders(&info).unwrap_or_else(|| "no holder".into());
        if keys.len() > 1 {
            found = format!("{} {found}", shown(key));
        }
        let place = info
            .queue
            .iter()
            .position(|one| owner.is_some_and(|owner| owner.is(&one.owner)));
        if let Some(before) = place.filter(|before| *before > 0) {
            found += &format!("; {before} before this one");
        }
        let is_held = !info.holders.is_empty();
        what.get_or_insert(found.clone());
        if is_held {
            return Some(found);
        }
    }
    what
}
