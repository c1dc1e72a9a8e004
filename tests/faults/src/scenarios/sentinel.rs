//! Three sentinels: the primary dies and comes back without its data, or is stopped and resumes while it still acts as
//! the primary.

use std::sync::Arc;

use redis_lock_harness::sentinel::Watched;

use super::Scenario;
use crate::client::Habits;
use crate::history::{now, Fault};
use crate::one::{finish, version};
use crate::play::{Hand, Nemesis, Plan};
use crate::route::{MasterRoute, Route};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "sentinel",
        about: "kill -9 and SIGSTOP of the primary, the sentinels promote a replica",
        goal: ("failovers", 100),
        plan,
        nemesis,
    }]
}

/// A primary is stopped for two to four seconds: some clients use the next one meanwhile, some are still parked when it
/// resumes, and may be granted locks that others hold. All clients use the server that the sentinels name: a request to
/// the old one after that would get a lower token.
fn plan() -> Plan {
    let habits = Habits {
        wait: 1..6_000,
        gives_up: Some(2_500),
        ..Habits::default()
    };
    Plan {
        habits,
        ..Plan::default()
    }
}

struct Guarded {
    scene: Watched,
    primary: usize,
    route: Arc<MasterRoute>,
}

fn nemesis() -> Box<dyn Nemesis> {
    let scene = Watched::start();
    let route = MasterRoute::of(scene.servers[0].port);
    Box::new(Guarded {
        scene,
        primary: 0,
        route: Arc::new(route),
    })
}

impl Nemesis for Guarded {
    fn route(&self) -> Box<dyn Route> {
        Box::new(self.route.clone())
    }

    fn strike(&mut self, hand: &mut Hand) {
        hand.pause(200..800);
        let (from, old) = (now(), self.primary);
        let dies = hand.rng.bool();
        if dies {
            self.scene.servers[old].crash();
        } else {
            self.scene.servers[old].signal(libc::SIGSTOP);
        }
        self.primary = self.scene.wait_for_another_primary_than(old);
        self.route.set(self.scene.servers[self.primary].port);
        hand.pause(0..1_500);
        if dies {
            self.scene.servers[old].start_again();
            hand.count("kills");
        } else {
            self.scene.servers[old].signal(libc::SIGCONT);
            hand.count("stops");
        }
        self.scene.wait_until_settled();
        hand.journal.mark(Fault::Failover, None, from);
        hand.count("failovers");
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let Watched { servers, .. } = self.scene;
        servers.into_iter().try_for_each(finish)
    }

    fn version(&self) -> String {
        version(&self.scene.servers[0])
    }
}
