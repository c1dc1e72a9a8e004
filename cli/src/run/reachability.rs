//! The check at the start that enough servers answer.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis_lock_client::Server;
use tokio::task::JoinSet;
use tokio::time::{timeout_at, Instant};

use crate::failure::{Failure, UNAVAILABLE, USAGE};

/// The time for the remaining answers once it is certain that too few servers serve.
const OTHERS: Duration = Duration::from_millis(200);

/// The time for the remaining answers once enough servers serve: one of them may be known by two names.
const ALIKE: Duration = Duration::from_millis(50);

/// Longer than any response timeout.
pub const ENDLESS: Duration = Duration::from_secs(1_000_000);

/// Whether all servers answer, with a quorum most of them. They are asked at the same time, so that a dead minority
/// costs no time. A server without an answer at `end` has failed. Two names of one server are refused: its lock would
/// be taken twice.
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
        let is_alone = servers.len() == 1;
        asked.spawn(async move {
            let word = server.ping().await;
            let ids = match word {
                Ok(()) if !is_alone => server.run_ids().await.unwrap_or_default(),
                // Not permitted, perhaps.
                _ => Vec::new(),
            };
            (place, word, ids)
        });
    }
    let mut words = BTreeMap::new();
    let mut known: HashMap<String, &str> = HashMap::new();
    let mut end = end;
    while let Ok(Some(Ok((place, word, ids)))) = timeout_at(end, asked.join_next()).await {
        words.insert(place, word);
        let name = servers.get(place).map_or("", Server::name);
        for id in ids {
            if let Some(other) = known.insert(id, name) {
                let what = format!("{other} and {name} are one server");
                return Err(Failure::new(USAGE, what));
            }
        }
        let answered = words.values().filter(|word| word.is_ok()).count();
        if answered >= needed {
            end = end.min(Instant::now() + ALIKE);
        } else if words.len() - answered > servers.len() - needed {
            end = end.min(Instant::now() + OTHERS);
        }
    }
    if words.values().filter(|word| word.is_ok()).count() >= needed {
        return Ok(());
    }
    let named = servers.iter().map(Server::name).enumerate();
    let reasons = named.filter_map(|(place, name)| match words.remove(&place) {
        None => {
            let mut silence = Failure::new(UNAVAILABLE, format!("{name}: no answer yet"));
            silence.is_passing = true;
            Some(silence)
        }
        Some(word) => word.err().map(|error| Failure::of(&error, Some(key))),
    });
    let headline = match quorum {
        true => format!("no majority of {} servers answers", servers.len()),
        false => format!("not all of {} servers answer", servers.len()),
    };
    Err(Failure::of_several(headline, reasons.collect()))
}
