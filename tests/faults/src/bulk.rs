//! Many short holds at little cost: a connection that requests a batch of locks in one write, and releases those that
//! it got in another. A batch goes to one server: that of its first key.

use std::time::Duration;

use crate::client::World;
use crate::history::{now, Call, Op, Outcome, Tie};
use crate::request::{outcome, push};
use crate::wire::{NoReply, Wire};

const BATCH: usize = 32;

/// Longer than any fault lasts: a request without a reply by then never gets one.
const LIMIT: Duration = Duration::from_secs(10);

/// A request to send: key, owner, call.
type Request = (u32, u64, Call);

/// Works until the run is stopped; returns the recorded requests.
pub fn work(id: u32, world: &World, seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut ops, mut wire, mut owners) = (Vec::new(), None, u64::from(id) * 1_000_000_000);
    while !world.is_over() {
        std::thread::sleep(Duration::from_millis(world.habits.rests));
        let name = &world.keys[rng.usize(..world.keys.len())];
        let port = world.route.port(name);
        let kept = wire.take().filter(|wire: &Wire| wire.port() == port);
        let opened = kept.or_else(|| Wire::open(port));
        let from = ops.len();
        let takes = takes(world, port, &mut owners, &mut rng);
        let alive = opened.filter(|_| !takes.is_empty()).and_then(|mut open| {
            let is_alive = batch(id, world, &mut open, &takes, &mut ops) && {
                let gives = releases(&ops[from..], &mut rng);
                batch(id, world, &mut open, &gives, &mut ops)
            };
            is_alive.then_some(open)
        });
        let error = ops[from..].iter().find_map(|op| match &op.outcome {
            Outcome::Error(code) => Some((&world.keys[op.key as usize], code)),
            _ => None,
        });
        match (&alive, error) {
            (None, _) => world.route.learn(name, port, None),
            (_, Some((name, code))) => world.route.learn(name, port, Some(code)),
            _ => {}
        }
        if alive.is_none() || error.is_some() {
            std::thread::sleep(Duration::from_millis(2));
        }
        wire = alive;
    }
    ops
}

/// A batch of acquires of keys of one server.
fn takes(world: &World, port: u16, owners: &mut u64, rng: &mut fastrand::Rng) -> Vec<Request> {
    let mut keys: Vec<u32> = (0..BATCH)
        .map(|_| rng.u32(..world.keys.len() as u32))
        .collect();
    keys.retain(|key| world.route.port(&world.keys[*key as usize]) == port);
    let take = |key| {
        *owners += 1;
        let call = Call::Acquire {
            kind: (world.habits.family)(key).kind(rng),
            tie: Tie::None,
            lease: rng.u32(world.habits.lease.clone()),
            block: None,
            once: rng.bool(),
        };
        (key, *owners, call)
    };
    keys.into_iter().map(take).collect()
}

fn releases(ops: &[Op], rng: &mut fastrand::Rng) -> Vec<Request> {
    let granted = ops.iter().filter_map(|op| match op.outcome {
        Outcome::Granted(token) => Some((op, token)),
        _ => None,
    });
    granted
        .map(|(op, token)| {
            let call = Call::Release {
                kind: op.call.kind(),
                all: rng.bool(),
                token: rng.bool().then_some(token),
            };
            (op.key, op.owner, call)
        })
        .collect()
}

/// Sends requests in one write and reads their replies; false if the connection was lost.
fn batch(
    client: u32,
    world: &World,
    wire: &mut Wire,
    requests: &[Request],
    ops: &mut Vec<Op>,
) -> bool {
    for (key, owner, call) in requests {
        push(wire, &world.keys[*key as usize], *owner, *call);
    }
    let sent = now();
    let mut end = (!wire.flush()).then_some(Outcome::Lost);
    for &(key, owner, call) in requests {
        let outcome = end.clone().unwrap_or_else(|| match wire.recv(LIMIT) {
            Ok(reply) => outcome(call, &reply),
            // The checker judges whether that was too long.
            Err(NoReply::Late | NoReply::Lost) => Outcome::Lost,
        });
        if outcome == Outcome::Lost {
            // Later requests get no reply either.
            end = Some(Outcome::Lost);
        }
        let done = now();
        ops.push(Op {
            client,
            owner,
            key,
            call,
            sent,
            done,
            outcome,
        });
    }
    end.is_none()
}
