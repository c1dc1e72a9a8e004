//! Whether enough servers answer to begin with.

use std::collections::BTreeMap;
use std::time::Duration;

use redis_lock_client::{Error, Server};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::failure::Failure;

/// How long the last servers may take to say why they do not serve, when it is certain that too few do.
const OTHERS: Duration = Duration::from_millis(200);

/// A server that goes away during a wait is waited for. One that is away at the start is taken for a mistake: all
/// servers must answer, or of a quorum most of them. They are asked at the same time, so that a dead minority costs no time.
pub async fn must_answer(servers: &[Server], quorum: bool, key: &[u8]) -> Result<(), Failure> {
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
    while let Some(Ok((place, word))) = asked.join_next().await {
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
    let _ = timeout(OTHERS, others).await;
    let named = servers.iter().map(Server::name).enumerate();
    let reasons = named.filter_map(|(place, name)| reason(name, words.remove(&place)));
    let headline = match quorum {
        true => format!("no majority of {} servers answers", servers.len()),
        false => format!("not all of {} servers answer", servers.len()),
    };
    Err(Failure::of_several(
        headline,
        &reasons.collect::<Vec<_>>(),
        key,
    ))
}

/// Why a server does not count.
fn reason(name: &str, word: Option<Result<(), Error>>) -> Option<Error> {
    match word {
        Some(word) => word.err(),
        None => Some(Error::Connection {
            server: name.into(),
            what: "no answer yet".into(),
        }),
    }
}
