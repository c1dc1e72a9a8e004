//! Reads all keys of a server atomically, all the time: which owner holds which key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::World;
use crate::history::{now, Look};
use crate::wire::{Reply, Wire};

const LIMIT: Duration = Duration::from_millis(500);

/// Reads the exclusive locks of a run until it is stopped.
pub fn watch(world: &World, stop: &AtomicBool) -> Vec<Look> {
    let (mut wire, mut looks): (Option<Wire>, _) = (None, Vec::new());
    let locks = world.locks();
    let names: Vec<&str> = locks
        .iter()
        .map(|key| world.keys[*key as usize].as_str())
        .collect();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(world.beat()));
        let port = world.route.port(names[0]);
        let kept = wire.take().filter(|wire| wire.port() == port);
        let Some(mut open) = kept.or_else(|| Wire::open(port)) else {
            continue;
        };
        let from = now();
        if let Some(replies) = snapshot(&mut open, &names) {
            let to = now();
            let infos = locks.iter().zip(replies.list());
            let holders =
                infos.flat_map(|(key, info)| holders(info).map(move |owner| (*key, owner)));
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
fn snapshot(wire: &mut Wire, keys: &[&str]) -> Option<Reply> {
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
