//! The check at the start that enough servers answer.

use std::collections::BTreeMap;
use std::time::Duration;

use redis_lock_client::Server;
use tokio::task::JoinSet;
use tokio::time::{timeout_at, Instant};

use crate::failure::{Failure, Reason};

/// The time for the remaining answers once it is certain that too few servers serve.
const OTHERS: Duration = Duration::from_millis(200);

/// Longer than any response timeout.
const ENDLESS: Duration = Duration::from_secs(1_000_000);

/// Whether all servers answer, with a quorum most of them. They are asked at the same time, so that a dead minority
/// costs no time. A server without an answer at `end` has failed.
pub async fn must_answer(
    servers: &[Server],
    quorum: bool,
    key: &[u8],
    end: Option<Instant>,
) -> Result<(), Failure> {
    let end = end.unwrap_or_else(|| Instant::now() + ENDLESS);
    let needed = match quorum {
        true => servers.len() / 2 + 1,
        false => servers.len(),
    };
    let mut asked = JoinSet::new();
    for (place, server) in servers.iter().enumerate() {
        let server = server.clone();
        asked.spawn(async move { (place, server.ping().await) });
    }
    let mut words = BTreeMap::new();
    while let Ok(Some(Ok((place, word)))) = timeout_at(end, asked.join_next()).await {
        words.insert(place, word);
        let answered = words.values().filter(|word| word.is_ok()).count();
        if answered >= needed {
            return Ok(());
        }
        if words.len() - answered > servers.len() - needed {
            break;
        }
    }
    let others = async {
        while let Some(Ok((place, word))) = asked.join_next().await {
            words.insert(place, word);
        }
    };
    let _ = timeout_at(end.min(Instant::now() + OTHERS), others).await;
    let named = servers.iter().map(Server::name).enumerate();
    let reasons = named.filter_map(|(place, name)| match words.remove(&place) {
        None => Some(Reason::silence(name)),
        Some(word) => word.err().map(|error| Reason::of(&error, Some(key))),
    });
    let headline = match quorum {
        true => format!("no majority of {} servers answers", servers.len()),
        false => format!("not all of {} servers answer", servers.len()),
    };
    let reasons: Vec<_> = reasons.collect();
    Err(Failure::of_several(headline, &reasons))
}
