//! Histories with tickets, without a naive model: which ticket is asked for when depends on the order in which keys and
//! requests are settled. What must hold: every tick ends, no request waits that could be granted, no bound is passed,
//! every ticket has one end, and nothing is left.

use proptest::prelude::*;

use crate::lock::tests::model::many::{
    ask_sim, change_key, named, op, settings, Op, DEFAULT_CASES, NAMES, OWNERS, STEPS,
};
use crate::lock::tests::model::tickets::{hearing_sim, CHANNELS};
use crate::lock::tests::model::{self, conn_of, explore, lease, Reply, Step};
use crate::lock::tests::sim::{key_ref, sums, Settings, Sim};
use crate::lock::{Limits, Resource, Waiter, WaiterId};

struct Alone {
    sim: Sim,
    limits: Limits,
    tags: u32,
}

#[test]
fn histories_of_many_keys_with_tickets() {
    run(false);
}

#[test]
fn histories_with_tickets_and_deadlocks() {
    run(true);
}

fn run(deadlocks: bool) {
    let hears = (0..CHANNELS.len(), prop::bool::weighted(0.6));
    let hears = hears.prop_map(|(channel, is_subscribed)| Op::Hear(channel, is_subscribed));
    let op = prop_oneof![10 => op(), 1 => hears];
    let steps = model::steps(op, (0.5, 0.4), STEPS);
    explore::<Alone>((DEFAULT_CASES, 2), settings(deadlocks), steps);
}

impl model::Case for Alone {
    type Settings = Settings;
    type Op = Op;

    fn new(settings: &Settings) -> Alone {
        Alone {
            sim: hearing_sim(settings),
            limits: settings.limits,
            tags: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        let sim = &mut self.sim;
        match op {
            Op::Acquire(ask) | Op::AcquireOne(ask) => {
                let is_deaf = |channel| !sim.subscribed.contains(CHANNELS[channel]);
                if sim.is_blocked(ask.conn) || ask.notify.is_some_and(is_deaf) {
                    return (None, None);
                }
                self.tags += 1;
                let tag = self.tags.to_string();
                sim.notify = ask.notify.map(|channel| (CHANNELS[channel].into(), tag));
                let single = matches!(op, Op::Acquire(_)) && ask.keys.len() == 1;
                ask_sim(sim, ask, single);
            }
            Op::Release(keys, owner, all) => match keys[..] {
                [key] => drop(sim.release(NAMES[key], OWNERS[*owner], (None, *all, None))),
                _ => drop(sim.release_many(&named(keys), OWNERS[*owner], *all)),
            },
            Op::Renew(keys, owner, ms) => {
                drop(sim.renew_many(&named(keys), OWNERS[*owner], lease(*ms)));
            }
            Op::Break(key, purge) => drop(sim.break_lock(NAMES[*key], None, *purge)),
            Op::Pass(ms) => {
                sim.pass(*ms);
                sim.alarm();
            }
            Op::Alarm => sim.alarm(),
            Op::DropAddressee => {
                let conn = sim.granted.values().next().map(|request| request.conn);
                if let Some(conn) = conn {
                    sim.disconnect(conn);
                }
            }
            Op::Disconnect(owner, conn) => {
                sim.disconnect(conn_of(*owner, *conn));
            }
            Op::Unblock(owner, conn) => sim.unblock(conn_of(*owner, *conn)),
            Op::Hear(channel, is_subscribed) => {
                sim.subscribe_channel(CHANNELS[*channel], *is_subscribed);
            }
            _ => change_key(sim, None, op),
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
    }

    fn compare(&mut self, _op: &Op) {
        self.sim.out.clear();
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
    }

    fn check(&mut self, step: &Step<Op>) {
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!(waiters.live() - waiters.tickets(), self.sim.parked.len());
        assert!(waiters.live_places() - waiters.ticket_places() <= self.limits.max_waiters);
        assert!(waiters.ticket_places() <= self.limits.max_tickets);
        sums::check(self.sim.fields(Resource::Lock));
        sums::check_tickets(self.sim.ticket_fields());
        if step.ends_tick {
            for name in NAMES {
                self.check_first(name);
            }
        }
    }

    fn come_to_rest(&mut self) {
        for name in NAMES {
            if self.sim.keys.contains(name) && self.sim.keys.end(name).is_none() {
                self.sim.del(name);
            }
        }
        self.sim.alarm();
        self.sim.deliver_all();
        self.sim.advance(10_000);
        self.sim.deliver_all();
        assert!(self.sim.parked.is_empty(), "never answered");
        assert!(self.sim.tickets.is_empty(), "never told");
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!((waiters.live(), waiters.kept_places()), (0, 0));
        assert!(waiters.is_quiet());
    }
}

impl Alone {
    /// The first request at a free key waits only if another of its keys is not to be had.
    fn check_first(&self, name: &str) {
        let Some((owner, first)) = self.first(name) else {
            return;
        };
        let keys = self.sim.locks.shared.waiters.keys_of(first.id);
        let names = NAMES.into_iter().filter(|other| {
            *other == name || keys.iter().any(|key| key.as_ref() == key_ref(other))
        });
        let is_to_be_had = |key: &str| match self.holder(key) {
            Some(holder) => holder == owner && !keys.is_empty(),
            None => self.is_first(key, first.id),
        };
        let mut names = names.map(is_to_be_had);
        assert!(
            !names.all(|is_to_be_had| is_to_be_had),
            "{owner:?} waits for {name}"
        );
    }

    fn first(&self, name: &str) -> Option<(&[u8], &Waiter)> {
        self.sim.locks.shared.waiters.first(key_ref(name))
    }

    fn is_first(&self, name: &str, request: WaiterId) -> bool {
        self.first(name)
            .is_some_and(|(_, first)| first.id == request)
    }

    fn holder(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.sim.state(name);
        let hold = state.hold(self.sim.now);
        hold.map(|hold| hold.owner.to_vec())
    }
}
