//! A semaphore of one permit or two. Every tick ends and every reply is delivered, as in the random histories.

use crate::lock::tests::explore::{explore, step, Action, Scene};
use crate::lock::tests::model::semaphore::{Asked, Case, Op};
use crate::lock::{Grace, SetIf};

const LEASE_MS: i64 = 5;

/// Acquire with and without waiting, with a ticket, for two permits,
/// and with a number of permits for a semaphore that is made by it.
#[test]
fn a_semaphore() {
    let mut actions = Vec::new();
    for id in 0..2 {
        let ops = [
            ask(id, None),
            ask(id, Some(None)),
            Op::Acquire(Asked {
                notify: Some(id),
                ..Asked::new(id, LEASE_MS, Some(Some(3)))
            }),
            Op::Acquire(Asked {
                limit: Some(1),
                ..Asked::new(id, LEASE_MS, Some(None))
            }),
            Op::Acquire(Asked {
                count: 2,
                ..Asked::new(id, LEASE_MS, Some(None))
            }),
            Op::Release(id),
            Op::Renew(id, 2),
            Op::Drop(id),
            Op::ReleaseAndDrop(id),
            Op::ReleaseDropAndAsk(id),
        ];
        actions.extend(ops.map(|op| act(Some(id), op)));
    }
    let of_others = [
        ask(2, Some(None)),
        Op::Set(0, SetIf::Always),
        Op::Set(2, SetIf::Always),
        Op::Advance(2),
        Op::Advance(5),
        Op::Delete,
        Op::Hear(0, false),
        Op::RedissonTake(3, LEASE_MS),
        Op::RedissonGive(3),
    ];
    actions.extend(of_others.map(|op| act(None, op)));
    let begin = [Op::Advance(0), Op::Set(1, SetIf::Always)];
    explore(&Scene::<Case> {
        name: "a semaphore",
        settings: Grace::default(),
        first: begin.map(|op| step(op, true, true)).into(),
        actions,
        rest: |_| {},
        is_within: |_| true,
        depth: 2,
        // Each request has a connection of its own: the numbers of connections count up.
        exact: true,
    });
}

fn ask(id: usize, wait: Option<Option<u64>>) -> Op {
    Op::Acquire(Asked::new(id, LEASE_MS, wait))
}

fn act(owner: Option<usize>, op: Op) -> Action<Op> {
    Action {
        owner,
        step: step(op, true, true),
    }
}
