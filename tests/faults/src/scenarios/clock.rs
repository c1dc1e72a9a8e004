//! The server's wall clock jumps, by ten seconds or an hour. Leases depend on wall time, so a last jump forward ends
//! those that a jump back has made too long.

use redis_lock_harness::clock::{fake_clock, set_clock};
use redis_lock_harness::TestServer;

use super::Scenario;
use crate::history::{now, Fault};
use crate::one::on;
use crate::play::{Hand, Nemesis, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "clock",
        about: "the wall clock jumps 10 s or 1 h, forward and back",
        goal: ("clock jumps", 500),
        plan: Plan::default,
        nemesis: jumping,
    }]
}

fn jumping() -> Box<dyn Nemesis> {
    let mut server = TestServer::start();
    fake_clock(&mut server);
    set_clock(&server, 0);
    server.restart();
    let mut clock = 0;
    on(server, move |server, hand| {
        let step = if hand.rng.bool() { 10 } else { 3600 };
        let steps = match hand.rng.bool() {
            true => [step, -step, step + 1],
            false => [-step, 0, step + 1],
        };
        for step in steps {
            hand.pause(50..400);
            if step != 0 {
                clock += step;
                jump(server, hand, clock, step);
            }
        }
    })
}

fn jump(server: &TestServer, hand: &mut Hand, clock: i64, step: i64) {
    let fault = match step {
        ..0 => Fault::ClockBack,
        _ => Fault::ClockForward,
    };
    let from = now();
    set_clock(server, clock);
    // By then all decisions based on a clock reading before the jump have been answered.
    server.conn().run(["PING"]);
    hand.journal.mark(fault, None, from);
    hand.count("clock jumps");
}
