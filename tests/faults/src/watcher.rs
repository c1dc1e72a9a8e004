//! Reads the queues all the time: which owners were seen waiting there, and when.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::history::{now, Seen};
use crate::route::Route;
use crate::wire::{Reply, Wire};

const LIMIT: Duration = Duration::from_millis(500);

/// Watches these keys until the run is stopped, with a pause of `beat` milliseconds after each reading.
pub fn watch(keys: &[String], route: &dyn Route, beat: u64, stop: &AtomicBool) -> Vec<Seen> {
    let mut wires: HashMap<u16, Wire> = HashMap::new();
    let (mut seen, mut known) = (Vec::new(), HashSet::new());
    while !stop.load(Ordering::Relaxed) {
        for (key, name) in (0..).zip(keys) {
            let port = route.port(name);
            if !wires.contains_key(&port) {
                wires.extend(Wire::open(port).map(|wire| (port, wire)));
            }
            let Some(wire) = wires.get_mut(&port) else {
                continue;
            };
            let asked = wire.line(&format!("LOCK.INFO {name} WAITERS COUNT 100"), LIMIT);
            let Some(info) = asked else {
                wires.remove(&port);
                continue;
            };
            let at = now();
            let queue = info.field("queue").map_or(&[][..], Reply::list);
            let owners = queue.iter().filter_map(owner);
            let fresh = owners.filter(|owner| known.insert((key, *owner)));
            seen.extend(fresh.map(|owner| Seen { key, owner, at }));
        }
        std::thread::sleep(Duration::from_millis(beat));
    }
    seen
}

fn owner(waiter: &Reply) -> Option<u64> {
    waiter.field("owner")?.text().parse().ok()
}
