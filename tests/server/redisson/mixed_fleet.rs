//! Redisson instances and clients of the module on one lock, each requesting it again after each release: both kinds
//! get their share, and neither waits for long.
//!
//! The test does not assert the shares among Redisson instances: they have no queue, and on some servers the same
//! instance always gets the message first. The shares are printed, beside those on plain Redis.
//!
//! `LOCK_FLEET_GRANTS` sets the number of grants in each run (20,000 takes some seconds).

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use crate::common::outside::Instance;
use crate::common::{patience, Conn, TestServer};

/// Clients of each kind.
const EACH: u64 = 10;

/// The largest factor by which unused windows raise the number of hand-offs until the next window.
const DOUBLED: u64 = 16;

/// The measurements of one client, or of one kind of client.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    grants: u64,
    /// Grants to others during its longest wait.
    passed_over: u64,
    /// Maximum of grants to the other kind between two of its own.
    others_in_a_row: u64,
    failed_tries: u64,
}

impl std::iter::Sum for Seen {
    fn sum<I: Iterator<Item = Seen>>(all: I) -> Seen {
        all.fold(Seen::default(), |sum, one| Seen {
            grants: sum.grants + one.grants,
            passed_over: sum.passed_over.max(one.passed_over),
            others_in_a_row: sum.others_in_a_row.max(one.others_in_a_row),
            failed_tries: sum.failed_tries + one.failed_tries,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Module,
    Redisson,
}

/// The resource under the lock: it counts its holders, and notices two at once.
#[derive(Default)]
struct Resource {
    grants: AtomicU64,
    in_use: AtomicBool,
    /// The number of grants at the last grant of each kind.
    last: [AtomicU64; 2],
}

impl Resource {
    fn so_far(&self) -> u64 {
        self.grants.load(Ordering::SeqCst)
    }

    /// The number of this grant, and how many the other kind has had since the last one of this kind.
    fn enter(&self, side: Side) -> (u64, u64) {
        assert!(!self.in_use.swap(true, Ordering::SeqCst), "two holders");
        let number = self.grants.fetch_add(1, Ordering::SeqCst);
        let last = self.last[side as usize].swap(number + 1, Ordering::SeqCst);
        (number, number - last)
    }

    fn leave(&self) {
        self.in_use.store(false, Ordering::SeqCst);
    }

    /// A client requests the lock again and again until this number of grants is reached.
    fn work(
        &self,
        side: Side,
        until: u64,
        mut lock: impl FnMut(),
        mut unlock: impl FnMut(),
    ) -> Seen {
        let mut seen = Seen::default();
        while self.so_far() < until {
            let before = self.so_far();
            lock();
            let (number, others) = self.enter(side);
            seen.grants += 1;
            seen.passed_over = seen.passed_over.max(number - before);
            seen.others_in_a_row = seen.others_in_a_row.max(others);
            self.leave();
            unlock();
        }
        seen
    }
}

fn module_client(port: u16, number: u64, resource: &Resource, until: u64) -> Seen {
    let conn = RefCell::new(Conn::open(port));
    let owner = format!("module:{number}");
    let run = |words: &[&str]| conn.borrow_mut().run(words).int();
    resource.work(
        Side::Module,
        until,
        || assert!(run(&["LOCK.ACQUIRE", "k", &owner, "BLOCK", "0"]) > 0),
        || assert_eq!(run(&["LOCK.RELEASE", "k", &owner]), 1),
    )
}

fn instance(port: u16, number: u64, resource: &Resource, until: u64) -> Seen {
    let instance = RefCell::new(Instance::new(port, "k", &format!("redisson:{number}")));
    // Other instances may pass it over, as long as there are grants.
    let lock = || {
        let mut before = resource.so_far();
        while !instance.borrow_mut().lock_within(patience()) {
            let so_far = resource.so_far();
            assert!(so_far > before, "no client is granted the lock");
            before = so_far;
        }
    };
    let unlock = || instance.borrow_mut().unlock();
    let seen = resource.work(Side::Redisson, until, lock, unlock);
    let failed_tries = instance.borrow().failed;
    Seen {
        failed_tries,
        ..seen
    }
}

/// Runs this many clients of each kind; returns the measurements of the module's clients and of the instances.
fn compete(server: &TestServer, module: u64, redisson: u64, until: u64) -> (Seen, Seen) {
    let (port, resource) = (server.port, Resource::default());
    thread::scope(|scope| {
        let resource = &resource;
        let module: Vec<_> = (0..module)
            .map(|number| scope.spawn(move || module_client(port, number, resource, until)))
            .collect();
        let redisson: Vec<_> = (0..redisson)
            .map(|number| scope.spawn(move || instance(port, number, resource, until)))
            .collect();
        let sum = |side: Vec<ScopedJoinHandle<'_, Seen>>| {
            let seen = side.into_iter();
            seen.map(|one| one.join().expect("no panic")).sum()
        };
        (sum(module), sum(redisson))
    })
}

fn grants_wanted() -> u64 {
    let wanted = std::env::var("LOCK_FLEET_GRANTS").ok();
    wanted.map_or(2_000, |text| text.parse().expect("a number"))
}

/// Runs both kinds under this rule; returns Redisson's share, the measurements, and how many windows no instance used.
fn share(server: &TestServer, after: u64) -> (f64, Seen, Seen, u64) {
    let mut c = server.conn();
    c.run(["CONFIG", "SET", "lock.free-after", &after.to_string()]);
    let (windows, unused) = (server.stat("windows"), server.stat("windows_unused"));
    let start = Instant::now();
    let (module, redisson) = compete(server, EACH, EACH, grants_wanted());
    let all = (module.grants + redisson.grants) as f64;
    let share = redisson.grants as f64 / all;
    let unused = server.stat("windows_unused") - unused;
    println!(
        "free-after {after}: Redisson {:.1} %, {:.2} failed tries a grant, {:.0} grants/s, windows {}, unused {}\n  \
         module {module:?}\n  Redisson {redisson:?}",
        share * 100.0,
        redisson.failed_tries as f64 / all,
        all / start.elapsed().as_secs_f64(),
        server.stat("windows") - windows,
        unused,
    );
    (share, module, redisson, unused)
}

#[test]
fn by_default_redisson_and_the_module_share_the_lock() {
    let server = TestServer::start();
    let after = server.conn().line("CONFIG GET lock.free-after").list()[1].text();
    let (share, module, redisson, _) = share(&server, after.parse().expect("a number"));
    assert!((0.3..=0.7).contains(&share), "{share}");
    assert!(module.passed_over <= 200, "{module:?}");
    assert!(module.others_in_a_row <= 200, "{module:?}");
    assert!(redisson.others_in_a_row <= 200, "{redisson:?}");
}

#[test]
fn with_more_hand_offs_between_two_windows_fewer_tries_fail() {
    let server = TestServer::start();
    let mut last = f64::INFINITY;
    for after in [1, 2, 10, 100] {
        let (share, module, redisson, unused) = share(&server, after);
        // An unused window makes the next one come later, but with a bound. (On a busy machine several may pass in a
        // row before an instance runs.)
        let due = 1.0 / (after + 1) as f64;
        assert!(share > due / 3.0, "{share} of {due}");
        assert!(
            redisson.others_in_a_row <= DOUBLED * after * (1 + unused) + EACH,
            "{redisson:?}"
        );
        assert!(module.passed_over <= 200, "{module:?}");
        let failed = redisson.failed_tries as f64 / (module.grants + redisson.grants) as f64;
        assert!(
            failed < last,
            "{failed} failed tries a grant, before {last}"
        );
        last = failed;
    }
}

#[test]
fn without_windows_redisson_instances_starve() {
    let server = TestServer::with(&["--lock.free-after", "0"]);
    let mut c = server.conn();
    let mut holder = server.conn();
    assert!(holder.line("LOCK.ACQUIRE k holder").int() > 0);
    // One waiter at all times, and an instance that subscribes and tries at each message.
    let port = server.port;
    let starved = thread::spawn(move || {
        let mut instance = Instance::new(port, "k", "redisson:0");
        instance.lock();
        instance.unlock();
    });
    let channel = crate::common::outside::channel_of("k");
    crate::common::wait_for("a listener", || {
        c.run(["PUBSUB", "NUMSUB", &channel]).list()[1].int() == 1
    });
    let mut owner = "holder".to_string();
    for number in 0..200 {
        let next = format!("next:{number}");
        holder_hands_off(&server, &mut holder, &owner, &next);
        owner = next;
        assert!(!starved.is_finished());
    }
    assert_eq!(server.stat("windows"), 0);
    c.run(["LOCK.RELEASE", "k", &owner]);
    starved.join().expect("freed, it is granted");
}

/// The holder releases while the next waiter is parked on another connection.
fn holder_hands_off(server: &TestServer, holder: &mut Conn, owner: &str, next: &str) {
    let mut waiter = server.conn();
    waiter.send(["LOCK.ACQUIRE", "k", next, "BLOCK", "0"]);
    server.wait_for_waiters(1);
    assert_eq!(holder.run(["LOCK.RELEASE", "k", owner]).int(), 1);
    assert!(waiter.recv().int() > 0);
}

#[test]
fn shares_of_redisson_instances_on_plain_redis() {
    let server = TestServer::without_module(&[]);
    let (_, redisson) = compete(&server, 0, EACH, grants_wanted());
    println!("plain: {redisson:?}");
    assert!(redisson.grants >= grants_wanted());
}
