//! Redisson instances and clients of the module on one lock, each asking again as soon as it has released: both sides
//! have their share, and nobody is passed over for long.
//!
//! `LOCK_FLEET_GRANTS` sets the number of grants (20,000 takes a minute or two).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::outside::Instance;
use crate::common::{Conn, TestServer};

const EACH: usize = 10;

/// What a client saw.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    grants: u64,
    /// Grants of others during its longest wait.
    passed_over: u64,
    failed_tries: u64,
}

/// What a side saw, or all together.
impl std::iter::Sum for Seen {
    fn sum<I: Iterator<Item = Seen>>(all: I) -> Seen {
        all.fold(Seen::default(), |sum, one| Seen {
            grants: sum.grants + one.grants,
            passed_over: sum.passed_over.max(one.passed_over),
            failed_tries: sum.failed_tries + one.failed_tries,
        })
    }
}

/// The resource: counts who comes in, and notices two at once.
#[derive(Default)]
struct Resource {
    grants: AtomicU64,
    in_use: AtomicBool,
}

impl Resource {
    fn so_far(&self) -> u64 {
        self.grants.load(Ordering::SeqCst)
    }

    fn enter(&self) -> u64 {
        assert!(!self.in_use.swap(true, Ordering::SeqCst), "two holders");
        self.grants.fetch_add(1, Ordering::SeqCst)
    }

    fn leave(&self) {
        self.in_use.store(false, Ordering::SeqCst);
    }

    /// Asks again and again, until there have been so many grants.
    fn work(&self, until: u64, mut lock: impl FnMut(), mut unlock: impl FnMut()) -> Seen {
        let mut seen = Seen::default();
        while self.so_far() < until {
            let before = self.so_far();
            lock();
            let number = self.enter();
            seen.grants += 1;
            seen.passed_over = seen.passed_over.max(number - before);
            self.leave();
            unlock();
        }
        seen
    }
}

fn module_client(port: u16, number: usize, resource: &Resource, until: u64) -> Seen {
    let mut conn = Conn::open(port);
    let mut other = Conn::open(port);
    let owner = format!("module:{number}");
    resource.work(
        until,
        || assert!(conn.run(["LOCK.ACQUIRE", "k", &owner, "BLOCK", "0"]).int() > 0),
        || assert_eq!(other.run(["LOCK.RELEASE", "k", &owner]).int(), 1),
    )
}

fn instance(port: u16, number: usize, resource: &Resource, until: u64) -> Seen {
    let instance = std::cell::RefCell::new(Instance::new(port, "k", &format!("redisson:{number}")));
    let seen = resource.work(
        until,
        || instance.borrow_mut().lock(),
        || instance.borrow_mut().unlock(),
    );
    let failed_tries = instance.borrow().failed;
    Seen {
        failed_tries,
        ..seen
    }
}

/// Both sides at work on one server: what the module's clients saw, and the instances.
fn compete(server: &TestServer, each: (usize, usize), until: u64) -> (Seen, Seen) {
    let (port, resource) = (server.port, Resource::default());
    thread::scope(|scope| {
        let resource = &resource;
        let module: Vec<_> = (0..each.0)
            .map(|number| scope.spawn(move || module_client(port, number, resource, until)))
            .collect();
        let redisson: Vec<_> = (0..each.1)
            .map(|number| scope.spawn(move || instance(port, number, resource, until)))
            .collect();
        let sum = |side: Vec<thread::ScopedJoinHandle<'_, Seen>>| {
            side.into_iter()
                .map(|one| one.join().expect("no panic"))
                .sum()
        };
        (sum(module), sum(redisson))
    })
}

fn grants_wanted() -> u64 {
    let wanted = std::env::var("LOCK_FLEET_GRANTS").ok();
    wanted.map_or(2_000, |text| text.parse().expect("a number"))
}

fn fleet(server: &TestServer, after: u64, until: u64) -> (Seen, Seen) {
    server
        .conn()
        .run(["CONFIG", "SET", "lock.free-after", &after.to_string()]);
    let windows = server.stat("windows");
    let unused = server.stat("windows_unused");
    let start = std::time::Instant::now();
    let (module, redisson) = compete(server, (EACH, EACH), until);
    println!(
        "free-after {after}: {module:?} {redisson:?} windows {} unused {} failed tries a grant {:.2}, grants/s {:.0}",
        server.stat("windows") - windows,
        server.stat("windows_unused") - unused,
        redisson.failed_tries as f64 / (module.grants + redisson.grants) as f64,
        (module.grants + redisson.grants) as f64 / start.elapsed().as_secs_f64(),
    );
    (module, redisson)
}

#[test]
fn measure() {
    let server = TestServer::start();
    for after in [1, 2, 3, 5, 10, 100] {
        fleet(&server, after, grants_wanted());
    }
    let plain = TestServer::without_module(&[]);
    let (_, alone) = compete(&plain, (0, EACH), grants_wanted());
    println!("{alone:?}");
}
