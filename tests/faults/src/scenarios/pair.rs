//! A master and a replica: the replica copies everything again, takes over in an orderly way, or takes over without the
//! latest writes.

use std::sync::Arc;

use redis_lock_harness::replica::PROMPT_MASTER;
use redis_lock_harness::{wait_for, TestServer};

use super::clients::random_client;
use super::Scenario;
use crate::history::{now, Fault};
use crate::one::{finish, version};
use crate::play::{Hand, Nemesis, Plan};
use crate::route::{is_master, MasterRoute, Route};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "resync",
            about: "the replica loses its link and copies everything anew",
            goal: ("full resyncs", 200),
            plan: Plan::default,
            nemesis: || pair(resync),
        },
        Scenario {
            name: "failover",
            about: "`FAILOVER`, back and forth",
            goal: ("failovers", 500),
            plan: Plan::default,
            nemesis: plain_failovers,
        },
        Scenario {
            name: "failover-kill",
            about: "`FAILOVER`, back and forth, while clients are killed",
            goal: ("failovers", 100),
            plan: Plan::default,
            nemesis: || pair(|pair, hand| failover(pair, hand, true)),
        },
        Scenario {
            name: "replicaof",
            about: "`REPLICAOF`, back and forth, without waiting for the replica to catch up",
            goal: ("promotions", 300),
            plan: Plan::default,
            nemesis: || pair(flip),
        },
        Scenario {
            name: "crash-failover",
            about: "kill -9 of the master, the replica is promoted; half of the clients wait by tickets",
            goal: ("crashes with promotion", 200),
            plan: || Plan {
                clients: 8,
                tickets: 4,
                ..Plan::default()
            },
            nemesis: || pair(crash),
        },
    ]
}

struct Pair {
    master: TestServer,
    replica: TestServer,
    route: Arc<MasterRoute>,
    strike: fn(&mut Pair, &mut Hand),
}

fn pair(strike: fn(&mut Pair, &mut Hand)) -> Box<dyn Nemesis> {
    pair_with(&[], strike)
}

/// `FAILOVER`, back and forth.
pub fn plain_failovers() -> Box<dyn Nemesis> {
    pair(|pair, hand| failover(pair, hand, false))
}

/// `FAILOVER`, back and forth, while clients are killed; both servers with these options, too.
pub fn failovers(options: &[&str]) -> Box<dyn Nemesis> {
    pair_with(options, |pair, hand| failover(pair, hand, true))
}

/// The master is killed and the replica promoted; both servers with these options, too.
pub fn crashes(options: &[&str]) -> Box<dyn Nemesis> {
    pair_with(options, crash)
}

/// Each of these, at random; both servers with these options, too.
pub fn anything(options: &[&str]) -> Box<dyn Nemesis> {
    pair_with(options, |pair, hand| match hand.rng.u8(..5) {
        0 => crash(pair, hand),
        1 => flip(pair, hand),
        2 => resync(pair, hand),
        3 => failover(pair, hand, false),
        _ => failover(pair, hand, true),
    })
}

fn pair_with(options: &[&str], strike: fn(&mut Pair, &mut Hand)) -> Box<dyn Nemesis> {
    let backlog = ["--repl-backlog-size", "16384"];
    let options = [&PROMPT_MASTER[..], &backlog, options].concat();
    let (master, replica) = (TestServer::with(&options), TestServer::with(&options));
    follow(&replica, &master);
    let route = Arc::new(MasterRoute::of(master.port));
    Box::new(Pair {
        master,
        replica,
        route,
        strike,
    })
}

impl Nemesis for Pair {
    fn route(&self) -> Box<dyn Route> {
        Box::new(self.route.clone())
    }

    fn strike(&mut self, hand: &mut Hand) {
        hand.pause(50..400);
        (self.strike)(self, hand);
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        finish(self.master)?;
        finish(self.replica)
    }

    fn version(&self) -> String {
        version(&self.master)
    }
}

impl Pair {
    /// The replica is the master now: the route names it.
    fn swap(&mut self) {
        std::mem::swap(&mut self.master, &mut self.replica);
        self.route.set(self.master.port);
    }
}

fn follow(replica: &TestServer, master: &TestServer) {
    let port = master.port.to_string();
    let answer = replica.conn().run(["REPLICAOF", "127.0.0.1", &port]);
    assert!(!answer.is_error(), "{answer:?}");
    wait_for_link(replica);
}

fn wait_for_link(replica: &TestServer) {
    wait_for("the link to the master", || {
        replica.info_field("replication", "master_link_status") == "up"
    });
}

fn resync(pair: &mut Pair, hand: &mut Hand) {
    let before = pair.master.info_field("stats", "sync_full");
    hand.journal.during(Fault::Trouble, || {
        let mut conn = pair.master.conn();
        conn.run(["DEBUG", "CHANGE-REPL-ID"]);
        conn.run(["CLIENT", "KILL", "TYPE", "replica"]);
        wait_for("a full resync", || {
            pair.master.info_field("stats", "sync_full") != before
        });
        wait_for_link(&pair.replica);
    });
    hand.count("full resyncs");
}

/// With all writes of the master.
fn failover(pair: &mut Pair, hand: &mut Hand, kills: bool) {
    let journal = hand.journal;
    journal.during(Fault::Handover, || {
        let port = pair.replica.port;
        wait_for("a failover", || {
            // Refused while the replica is not ready yet, or a failover is under way.
            pair.master.conn().run(["FAILOVER"]);
            if kills {
                kill(&pair.master, hand);
            }
            is_master(port)
        });
        pair.swap();
        wait_for_link(&pair.replica);
    });
    hand.count("failovers");
}

/// In half of the cases the replica is cut off for a while before it takes over, so that writes are lost.
fn cut_off(pair: &Pair, hand: &mut Hand) {
    if hand.rng.bool() {
        // A port on which no process listens.
        pair.replica.conn().run(["REPLICAOF", "127.0.0.1", "1"]);
        hand.pause(20..300);
        hand.count("cut links");
    }
}

/// Kills one of its clients while writes are paused.
fn kill(server: &TestServer, hand: &mut Hand) {
    let mut conn = server.conn();
    if let Some(id) = random_client(&mut conn, hand) {
        conn.run(["CLIENT", "KILL", "ID", &id]);
        hand.count("kills");
    }
}

/// The master steps down first: there are never two.
fn flip(pair: &mut Pair, hand: &mut Hand) {
    let from = now();
    cut_off(pair, hand);
    let port = pair.replica.port.to_string();
    pair.master.conn().run(["REPLICAOF", "127.0.0.1", &port]);
    pair.replica.conn().run(["REPLICAOF", "NO", "ONE"]);
    pair.swap();
    wait_for_link(&pair.replica);
    hand.journal.mark(Fault::Failover, None, from);
    hand.count("promotions");
}

/// The dead one returns without its data.
fn crash(pair: &mut Pair, hand: &mut Hand) {
    let from = now();
    cut_off(pair, hand);
    pair.master.crash();
    pair.replica.conn().run(["REPLICAOF", "NO", "ONE"]);
    pair.swap();
    pair.replica.start_again();
    follow(&pair.replica, &pair.master);
    hand.journal.mark(Fault::Failover, None, from);
    hand.count("crashes with promotion");
}
