//! The process is killed and started again at once, with its AOF.

use redis_lock_harness::TestServer;

use super::Scenario;
use crate::history::Fault;
use crate::one::one;
use crate::play::{Hand, Nemesis, Plan};

pub const AOF: [&str; 3] = ["--appendonly", "yes", "--appendfsync"];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "crash-always",
            about: "kill -9 and a restart, `appendfsync always`",
            goal: ("crashes", 250),
            plan: Plan::default,
            nemesis: always,
        },
        Scenario {
            name: "crash-everysec",
            about: "kill -9 and a restart, `appendfsync everysec`",
            goal: ("crashes", 250),
            plan: Plan::default,
            nemesis: every_second,
        },
    ]
}

fn always() -> Box<dyn Nemesis> {
    let options = [&AOF[..], &["always"]].concat();
    one(&options, |server, hand| crash(server, hand, Fault::Crash))
}

fn every_second() -> Box<dyn Nemesis> {
    let options = [&AOF[..], &["everysec"]].concat();
    one(&options, |server, hand| {
        crash(server, hand, Fault::LossyCrash)
    })
}

pub fn crash(server: &mut TestServer, hand: &mut Hand, fault: Fault) {
    hand.pause(100..700);
    hand.journal.during(fault, || server.crash_and_restart());
    hand.count("crashes");
}
