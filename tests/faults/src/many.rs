//! A client that requests several locks at once: waits for them, works, renews and releases them together, or does not
//! release, or dies.

use std::time::Duration;

use crate::asking::Asking;
use crate::client::World;
use crate::history::{Call, Kind, Op, Outcome, Tie};

/// The largest number of keys of a request.
const MOST: usize = 4;

/// Works until the run is stopped; returns the recorded requests.
pub fn work(id: u32, world: &World, seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut asking = Asking::new(id, world);
    let mut owner = u64::from(id) * 1_000_000_000;
    let mut all = world.locks();
    while !world.is_over() {
        owner += 1;
        rng.shuffle(&mut all);
        let keys = &all[..rng.usize(2..=MOST.min(all.len()))];
        session(keys, owner, world, &mut asking, &mut rng);
        world.rest(&mut rng);
    }
    asking.into_ops()
}

fn session(keys: &[u32], owner: u64, world: &World, asking: &mut Asking, rng: &mut fastrand::Rng) {
    let habits = world.habits;
    let kind = Kind::Exclusive;
    let lease = rng.u32(habits.lease.clone());
    let block = match rng.u8(..100) {
        n if n < habits.tries => None,
        n if n < habits.tries + habits.patient => Some(0),
        _ => Some(rng.u32(habits.wait.clone())),
    };
    let acquire = Call::Acquire {
        kind,
        tie: Tie::Many,
        lease,
        block,
        once: rng.bool(),
    };
    let dies = block.is_some() && rng.u8(..100) < habits.dies;
    let life = dies.then(|| Duration::from_millis(rng.u64(..u64::from(habits.wait.end))));
    let outcomes = asking.call_many(keys, owner, acquire, life);
    if !matches!(outcomes[0], Outcome::Granted(_)) {
        return;
    }
    let token = None;
    if rng.u8(..100) < 70 {
        let renew = Call::Renew { kind, lease, token };
        if asking.call_many(keys, owner, renew, None)[0] == Outcome::Number(0) {
            return;
        }
    }
    if rng.bool() {
        world.sleep(rng.u64(..6));
    }
    if rng.u8(..100) < habits.forgets {
        return;
    }
    if rng.u8(..100) < habits.dies {
        return asking.die();
    }
    let all = true;
    let release = Call::Release { kind, all, token };
    asking.call_many(keys, owner, release, None);
}
