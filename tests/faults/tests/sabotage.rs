//! Tests of the whole tool on a real server: changes behind the judges' backs are found, and what the documentation
//! permits is not. Those in `porcupine` need `make porcupine`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis_lock_faults::check::Rule;
use redis_lock_faults::client::{Family, Habits};
use redis_lock_faults::history::{now, Fault};
use redis_lock_faults::one::{finish, on, one, version};
use redis_lock_faults::play::{play, Hand, Nemesis, Plan, Played};
use redis_lock_faults::porcupine::{Porcupine, Verdict};
use redis_lock_faults::route::Route;
use redis_lock_harness::clock::{fake_clock, set_clock};
use redis_lock_harness::{Conn, TestServer};

const LENGTH: Duration = Duration::from_secs(3);

#[test]
fn sessions_that_no_waiter_gets_are_found() {
    // A foreign owner replaces the holder, and stays.
    let nemesis = one(&[], |server, hand| {
        hand.pause(300..400);
        let mut conn = server.conn();
        for key in hand.keys {
            conn.send_lines(&[
                "MULTI",
                &format!("DEL {key}"),
                &format!("HSET {key} ghost 1"),
                &format!("PEXPIRE {key} 6000"),
                "EXEC",
            ]);
            (0..5).for_each(|_| drop(conn.recv()));
        }
    });
    let mut plan = of(|_| Family::Lock, 100);
    (plan.habits.sleeps, plan.habits.forgets) = (60, 90);
    let length = Duration::from_secs(4);
    let played = run("secret-ghosts", &plan, nemesis, length);
    assert!(played.findings.count(Rule::Sessions) > 0, "{played:?}");
}

/// Processes that wait by tickets, beside two parked clients.
fn tickets() -> Plan {
    Plan {
        keys: 3,
        clients: 2,
        tickets: 4,
        ..of(|_| Family::Lock, 0)
    }
}

/// The owner, the channel and the tag of a ticket, if one waits for any of these locks.
fn any_ticket(conn: &mut Conn, keys: &[String]) -> Option<(String, [String; 3])> {
    keys.iter().find_map(|key| {
        let info = conn.run(["LOCK.INFO", key, "WAITERS"]);
        let queue = info.field("queue")?.list();
        queue.iter().find_map(|waiter| {
            let names = ["owner", "channel", "tag"];
            let field = |name| waiter.field(name).filter(|field| !field.is_nil());
            match names.map(|name| field(name).map(|field| field.text())) {
                [Some(owner), Some(channel), Some(tag)] => {
                    Some((key.clone(), [owner, channel, tag]))
                }
                _ => None,
            }
        })
    })
}

fn publisher() -> Box<dyn Nemesis> {
    one(&[], |server, hand| {
        hand.pause(5..20);
        let mut conn = server.conn();
        if let Some((_, [_, channel, tag])) = any_ticket(&mut conn, hand.keys) {
            conn.run(["PUBLISH", &channel, &format!("granted 5 {tag}")]);
        }
    })
}

#[test]
fn messages_that_are_published_in_secret_are_found() {
    let played = run("secret-messages", &tickets(), publisher(), LENGTH);
    assert!(played.findings.count(Rule::Tickets) > 0, "{played:?}");
}

#[test]
fn tickets_that_are_withdrawn_in_secret_are_found() {
    let nemesis = one(&[], |server, hand| {
        hand.pause(5..20);
        let mut conn = server.conn();
        if let Some((key, [owner, _, _])) = any_ticket(&mut conn, hand.keys) {
            conn.run(["LOCK.RELEASE", &key, &owner]);
        }
    });
    let played = run("secret-withdrawals", &tickets(), nemesis, LENGTH);
    assert!(played.findings.count(Rule::Silence) > 0, "{played:?}");
}

#[test]
fn tickets_of_other_clients_do_not_add_up() {
    let nemesis = one(&[], |server, hand| {
        hand.pause(5..20);
        let (mut conn, mut ears) = (server.conn(), server.conn());
        ears.run(["SUBSCRIBE", "ghosts"]);
        let key = &hand.keys[0];
        conn.line(&format!(
            "LOCK.ACQUIRE {key} ghost PX 20 BLOCK 20 NOTIFY ghosts 1"
        ));
    });
    let played = run("secret-tickets", &tickets(), nemesis, LENGTH);
    assert!(played.findings.count(Rule::Counters) > 0, "{played:?}");
}

/// Clients of one kind of lock only.
fn of(family: fn(u32) -> Family, sessions: u8) -> Plan {
    Plan {
        bulk: 0,
        habits: Habits {
            family,
            sessions,
            ..Habits::default()
        },
        ..Plan::default()
    }
}

/// Tests run in the directory of their package; the histories belong where the tool puts them, below the workspace.
fn run(name: &str, plan: &Plan, nemesis: Box<dyn Nemesis>, length: Duration) -> Played {
    judged(name, plan, nemesis, length, None)
}

fn judged(
    name: &str,
    plan: &Plan,
    nemesis: Box<dyn Nemesis>,
    length: Duration,
    porcupine: Option<&Porcupine>,
) -> Played {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::env::set_current_dir(root).expect("the workspace");
    play(name, plan, nemesis, 1, length, porcupine)
}

#[test]
fn a_server_that_does_not_answer_is_found() {
    let mut stopped = false;
    let nemesis = one(&[], move |server, hand| {
        hand.pause(100..200);
        if !stopped {
            server.conn().run(["CLIENT", "PAUSE", "13000", "ALL"]);
        }
        stopped = true;
    });
    let length = Duration::from_secs(1);
    let played = run("secret-pause", &Plan::default(), nemesis, length);
    assert!(played.findings.count(Rule::Silence) > 0, "{played:?}");
}

/// Two servers. The route names the other one whenever it is read.
struct Restless([TestServer; 2]);

struct Alternating([u16; 2], AtomicUsize);

impl Route for Alternating {
    fn port(&self, _: &str) -> u16 {
        self.0[self.1.fetch_add(1, Ordering::Relaxed) % 2]
    }

    fn learn(&self, _: &str, _: u16, _: Option<&str>) {}
}

impl Nemesis for Restless {
    fn route(&self) -> Box<dyn Route> {
        let ports = self.0.each_ref().map(|server| server.port);
        Box::new(Alternating(ports, AtomicUsize::new(0)))
    }

    fn strike(&mut self, hand: &mut Hand) {
        let journal = hand.journal;
        journal.during(Fault::Failover, || hand.pause(300..400));
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let [one, other] = self.0;
        finish(one)?;
        finish(other)
    }

    fn version(&self) -> String {
        version(&self.0[0])
    }
}

#[test]
fn a_request_with_notify_goes_to_the_server_of_its_subscription_when_the_route_changes() {
    let servers = [TestServer::start(), TestServer::start()];
    let length = Duration::from_secs(1);
    let played = run(
        "restless-route",
        &tickets(),
        Box::new(Restless(servers)),
        length,
    );
    assert!(played.findings.asks > 0, "{played:?}");
    // Two servers break other rules.
    let mut texts = played.findings.violations.iter().map(|v| &v.text);
    let wrong = texts.find(|text| text.contains("subscribe"));
    assert_eq!(wrong, None);
}

/// What Porcupine judges.
mod porcupine {
    use super::*;

    fn run(name: &str, plan: &Plan, nemesis: Box<dyn Nemesis>, length: Duration) -> Played {
        judged(name, plan, nemesis, length, Some(&Porcupine::default()))
    }

    #[track_caller]
    fn is_refused_by(model: &str, played: &Played) {
        let text = match &played.verdict {
            Verdict::Refused(text) => text.lines().next().unwrap_or_default(),
            other => panic!("{other:?}: {played:?}"),
        };
        let (_, models) = text.split_once("NOT LINEARIZABLE:").unwrap_or_default();
        assert!(models.contains(model), "not refused by {model}: {text}");
    }

    #[test]
    fn locks_that_are_deleted_in_secret_are_found() {
        let nemesis = one(&[], |server, hand| {
            hand.pause(20..60);
            server.conn().run(["FLUSHALL"]);
        });
        let played = run("secret-deletions", &Plan::default(), nemesis, LENGTH);
        is_refused_by("mutex", &played);
        assert_eq!(played.updates.lost_checked, 0);
        assert!(played.file.is_some_and(|file| file.exists()));
    }

    #[test]
    fn what_is_deleted_in_secret_is_found_for_every_kind() {
        for (name, family, model) in [
            (
                "secret-read-write",
                (|_| Family::ReadWrite) as fn(u32) -> Family,
                "read-write",
            ),
            ("secret-permits", |_| Family::Semaphore(2), "semaphore"),
        ] {
            let nemesis = one(&[], |server, hand| {
                hand.pause(20..60);
                server.conn().run(["FLUSHALL"]);
            });
            let played = run(name, &of(family, 0), nemesis, LENGTH);
            is_refused_by(model, &played);
        }
    }

    #[test]
    fn parts_of_many_keys_that_are_taken_in_secret_are_found() {
        let nemesis = one(&[], |server, hand| {
            hand.pause(5..20);
            let key = hand.rng.choice(hand.keys).cloned().unwrap_or_default();
            server.conn().run(["DEL", &key]);
        });
        let mut plan = of(|_| Family::Lock, 0);
        (plan.clients, plan.many) = (2, 6);
        let played = run("secret-parts", &plan, nemesis, LENGTH);
        is_refused_by("several", &played);
    }

    #[test]
    fn grants_that_are_published_in_secret_are_found() {
        let played = run("secret-grants", &tickets(), publisher(), LENGTH);
        is_refused_by("fenced", &played);
    }

    #[test]
    fn counts_of_latches_that_change_in_secret_are_found() {
        for line in ["LATCH.DOWN", "DEL", "INCR"] {
            let nemesis = one(&[], move |server, hand| {
                hand.pause(5..20);
                let mut conn = server.conn();
                let latches = conn.run(["KEYS", "*l[0-9]*"]);
                let latches: Vec<_> = latches.list().iter().map(|name| name.text()).collect();
                if let Some(latch) = hand.rng.choice(&latches) {
                    conn.run([line, latch]);
                }
            });
            let plan = Plan {
                clients: 1,
                latches: 10,
                ..of(|_| Family::Lock, 0)
            };
            let played = run("secret-counts", &plan, nemesis, LENGTH);
            is_refused_by("latch", &played);
        }
    }

    #[test]
    fn leases_that_are_lengthened_in_secret_are_found() {
        let nemesis = one(&[], |server, hand| {
            hand.pause(1..3);
            let mut conn = server.conn();
            for key in hand.keys {
                conn.run(["PEXPIRE", key, "700", "GT"]);
            }
        });
        let played = run("secret-leases", &sleepers(), nemesis, LENGTH);
        is_refused_by("mutex", &played);
    }

    fn sleepers() -> Plan {
        let (sleeps, lease) = (50, 5..100);
        Plan {
            habits: Habits {
                sleeps,
                lease,
                ..Habits::default()
            },
            ..Plan::default()
        }
    }

    #[test]
    fn tokens_that_fall_are_found() {
        let mut server = TestServer::start();
        fake_clock(&mut server);
        let mut clock = 0;
        // Without persistence and with a clock that is set back nothing makes tokens rise.
        let nemesis = on(server, move |server, hand| {
            hand.pause(300..400);
            clock -= 7200;
            set_clock(server, clock);
            server.crash_and_restart();
        });
        let played = run("secret-past", &Plan::default(), nemesis, LENGTH);
        is_refused_by("fenced", &played);
    }

    /// An owner whose lock was taken away acquires it again, releases it with the token of the first hold, in vain, and
    /// leaves the second hold to the end of the connection.
    #[test]
    fn a_hold_ends_with_its_connection_after_the_last_request_of_its_owner() {
        let nemesis = one(&[], |server, hand| {
            let mut conn = server.conn();
            for _ in 0..10 {
                let from = now();
                conn.run(["FLUSHALL"]);
                hand.journal.mark(Fault::Taken, None, from);
                hand.pause(1..6);
            }
            hand.pause(5..30);
            conn.run(["CLIENT", "KILL", "TYPE", "normal"]);
        });
        let plan = of(|_| Family::Lock, 80);
        let played = run("ends-of-connections", &plan, nemesis, LENGTH);
        assert!(!played.is_bad(), "{:?}", played);
    }

    /// Owners whose releases are refused leave their holds to the end of their connections.
    #[test]
    fn a_client_does_not_wait_for_a_hold_that_is_bound_to_its_own_connection() {
        let mut is_refused = false;
        let nemesis = one(&[], move |server, hand| {
            hand.pause(50..60);
            if !std::mem::replace(&mut is_refused, true) {
                let (mut conn, setting) = (server.conn(), "min-replicas-to-write");
                let journal = hand.journal;
                journal.during(Fault::Trouble, || {
                    conn.run(["CONFIG", "SET", setting, "1"]);
                    hand.pause(20..30);
                    conn.run(["CONFIG", "SET", setting, "0"]);
                });
            }
        });
        let mut plan = of(|_| Family::Lock, 80);
        (plan.habits.tries, plan.habits.patient) = (0, 100);
        let played = run("holds-left", &plan, nemesis, Duration::from_secs(1));
        assert!(!played.is_bad(), "{:?}", played);
    }

    #[test]
    fn a_server_that_does_not_run_for_a_while_is_noticed() {
        let nemesis = one(&[], |server, hand| {
            hand.pause(300..400);
            server.signal(libc::SIGSTOP);
            hand.pause(2_300..2_400);
            server.signal(libc::SIGCONT);
        });
        let played = run("secret-stop", &of(|_| Family::Lock, 50), nemesis, LENGTH);
        assert!(!played.is_bad(), "{:?}", played);
    }
}
