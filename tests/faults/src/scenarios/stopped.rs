//! The whole server is stopped for a while (SIGSTOP), as in a virtual machine that is moved.

use redis_lock_harness::TestServer;

use super::Scenario;
use crate::client::Habits;
use crate::history::Fault;
use crate::one::one;
use crate::play::{Hand, Plan};

const LEASE: u32 = 250;

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "stop",
        about: "SIGSTOP of the server for 0.5 to 3 leases",
        goal: ("pauses", 200),
        plan: || Plan {
            habits: Habits {
                lease: 5..LEASE,
                ..Habits::default()
            },
            ..Plan::default()
        },
        nemesis: || one(&[], stop),
    }]
}

pub fn stop(server: &mut TestServer, hand: &mut Hand) {
    hand.pause(100..400);
    let from = crate::history::now();
    server.signal(libc::SIGSTOP);
    hand.pause(u64::from(LEASE) / 2..u64::from(LEASE) * 3);
    server.signal(libc::SIGCONT);
    hand.journal.mark(Fault::Trouble, None, from);
    hand.count("pauses");
}
