//! The faults of a long run, at random.

use std::cell::RefCell;
use std::rc::Rc;

use redis_lock_harness::TestServer;

use super::site::Site;
use super::{residents, settings};
use crate::history::TicketCounters;
use crate::one::{ticket_counters, version};
use crate::play::{Hand, Nemesis};
use crate::route::{Fixed, Route};
use crate::scenarios::{clients, data, tickets};

/// The nemesis of a minute.
pub struct Storm {
    primary: Rc<RefCell<TestServer>>,
    replica: Rc<RefCell<TestServer>>,
    /// At the begin of the minute.
    before: TicketCounters,
    /// Whether this minute has had its rewrite of the AOF and its break of the replication.
    rewritten: bool,
    cut: bool,
}

impl Storm {
    pub fn of(site: &Site) -> Storm {
        Storm {
            primary: site.primary.clone(),
            replica: site.replica.clone(),
            before: ticket_counters(&site.primary.borrow()),
            rewritten: false,
            cut: false,
        }
    }

    fn rewrite(&mut self, hand: &mut Hand) {
        let reply = self.primary.borrow().conn().run(["BGREWRITEAOF"]);
        if !std::mem::replace(&mut self.rewritten, !reply.is_error()) {
            hand.count("AOF rewrites");
        }
    }

    /// Cuts the link, or detaches the replica, which then copies everything anew.
    fn cut(&mut self, hand: &mut Hand) {
        self.cut = true;
        let (primary, replica) = (self.primary.borrow(), self.replica.borrow());
        if hand.rng.bool() {
            let mut conn = primary.conn();
            conn.run(["CLIENT", "KILL", "TYPE", "replica"]);
            hand.count("links cut");
            return;
        }
        let mut conn = replica.conn();
        conn.run(["REPLICAOF", "NO", "ONE"]);
        hand.pause(200..2_000);
        conn.run(["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        hand.count("replicas detached");
    }
}

impl Nemesis for Storm {
    fn route(&self) -> Box<dyn Route> {
        Box::new(Fixed(self.primary.borrow().port))
    }

    fn strike(&mut self, hand: &mut Hand) {
        hand.pause(100..900);
        let shared = self.primary.clone();
        let mut primary = shared.borrow_mut();
        match hand.rng.u8(..16) {
            0..=2 => clients::kill(&mut primary, hand),
            3 => tickets::kill_subscribers(&mut primary, hand),
            4 => data::take_with(&mut primary, hand, 100),
            5..=10 => settings::flip(&primary, hand),
            11..=13 => residents::change(&mut primary.conn(), hand),
            14 if !self.rewritten => {
                drop(primary);
                self.rewrite(hand);
            }
            15 if !self.cut => {
                drop(primary);
                self.cut(hand);
            }
            _ => {}
        }
    }

    fn heal(&mut self, _: &mut Hand) {
        settings::restore(&mut self.primary.borrow().conn());
    }

    fn counters(&self) -> Option<TicketCounters> {
        let (now, before) = (ticket_counters(&self.primary.borrow()), self.before);
        Some(TicketCounters {
            queued: now.queued - before.queued,
            granted: now.granted - before.granted,
            timed_out: now.timed_out - before.timed_out,
            withdrawn: now.withdrawn - before.withdrawn,
            taken_over: now.taken_over - before.taken_over,
            failed: now.failed - before.failed,
            unheard: now.unheard - before.unheard,
            waiting: now.waiting,
        })
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.primary.borrow_mut().health()?;
        self.replica.borrow_mut().health()
    }

    fn version(&self) -> String {
        version(&self.primary.borrow())
    }
}
