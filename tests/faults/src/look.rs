//! Reads all keys of a server atomically, all the time: which owner holds which key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::history::{now, Look};
use crate::route::Route;
use crate::wire::{Reply, Wire};

const LIMIT: Duration = Duration::from_millis(500);

/// Reads these keys of one server until the run is stopped.
pub fn watch(keys: &[String], route: &dyn Route, stop: &AtomicBool) -> Vec<Look> {
    let (mut wire, mut looks): (Option<Wire>, _) = (None, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
        let port = route.port(&keys[0]);
        let kept = wire.take().filter(|wire| wire.port() == port);
        let Some(mut open) = kept.or_else(|| Wire::open(port)) else {
            continue;
        };
        let from = now();
        if let Some(replies) = snapshot(&mut open, keys) {
            let to = now();
            let infos = (0..).zip(replies.list());
            let holders =
                infos.flat_map(|(key, info)| holders(info).map(move |owner| (key, owner)));
            looks.push(Look {
                from,
                to,
                holders: holders.collect(),
            });
            wire = Some(open);
        }
    }
    looks
}

/// `LOCK.INFO` of every key in one transaction; `None` if the connection is lost, or the server refuses.
fn snapshot(wire: &mut Wire, keys: &[String]) -> Option<Reply> {
    wire.push(&[b"MULTI"]);
    for key in keys {
        wire.push(&[b"LOCK.INFO", key.as_bytes()]);
    }
    wire.push(&[b"EXEC"]);
    if !wire.flush() {
        return None;
    }
    for _ in 0..=keys.len() {
        wire.recv(LIMIT).ok()?;
    }
    let infos = wire.recv(LIMIT).ok()?;
    // A server that refuses the transaction, or a part of it, shows nothing: that is no lock without a holder.
    let is_whole = infos.list().len() == keys.len();
    let shows = |info: &Reply| info.code().is_none();
    (is_whole && infos.list().iter().all(shows)).then_some(infos)
}

fn holders(info: &Reply) -> impl Iterator<Item = u64> + '_ {
    let holders = info.field("holders").map_or(&[][..], Reply::list);
    holders
        .iter()
        .filter_map(|holder| holder.field("owner")?.text().parse().ok())
}
