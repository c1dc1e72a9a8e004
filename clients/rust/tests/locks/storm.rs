//! Eight tasks, one lock, and random faults: killed connections, a server that is paused briefly or killed and
//! restarted, acquisitions dropped at any moment. The protected resource decides whether an update was lost.
//!
//! `LOCK_SEED` repeats a run as far as time allows, `LOCK_FAULTS` is the number of faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis_lock_client::{Guard, Lock};
use redis_lock_harness::TestServer;
use tokio::time::{sleep, timeout};

use crate::servers::{until, with_timeout};
use crate::until_free;

const TASKS: u64 = 8;
/// Shorter than the longest faults, so that locks are lost, too.
const LEASE: Duration = Duration::from_millis(1_500);

/// The protected resource: a counter that checks tokens.
#[derive(Default)]
struct Resource {
    value: u64,
    highest: u64,
    writes: u64,
    /// Writes that came too late, by the holder's own reckoning.
    abandoned: u64,
}

/// Random numbers (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn span(&mut self, end_ms: u64) -> Duration {
        Duration::from_micros(self.below(end_ms * 1_000))
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// Reads, takes its time, and writes: only while the lock is certainly held.
async fn add_one(resource: &Mutex<Resource>, guard: &Guard, chance: &mut Chance) {
    let seen = resource.lock().unwrap().value;
    // Now and then longer than a lease that is not renewed.
    let work = if chance.below(20) == 0 { 2_500 } else { 4 };
    // sleep: the work of a holder
    sleep(chance.span(work)).await;
    let mut resource = resource.lock().unwrap();
    if guard.valid_for().is_zero() {
        resource.abandoned += 1;
        return;
    }
    assert_eq!(
        resource.value, seen,
        "somebody else wrote under token {}",
        resource.highest
    );
    assert!(
        guard.token() > resource.highest,
        "tokens rise from grant to grant"
    );
    resource.highest = guard.token();
    resource.value += 1;
    resource.writes += 1;
}

async fn task(
    lock: Lock,
    resource: Arc<Mutex<Resource>>,
    mut chance: Chance,
    goes_on: Arc<AtomicBool>,
) {
    while goes_on.load(Ordering::SeqCst) {
        let patience = match chance.below(4) {
            0 => chance.span(30),
            _ => Duration::from_secs(20),
        };
        let acquired = timeout(patience, lock.acquire_within(Duration::from_secs(10))).await;
        // Given up, not granted in time, or no server for all the time.
        let Ok(Ok(Some(guard))) = acquired else {
            continue;
        };
        add_one(&resource, &guard, &mut chance).await;
        if chance.below(2) == 0 {
            let _ = guard.release().await;
        }
    }
}

fn fault(real: &mut TestServer, chance: &mut Chance) {
    match chance.below(6) {
        0 => {
            real.crash();
            // sleep: the server is down for so long
            std::thread::sleep(chance.span(200));
            real.start_again();
        }
        1 | 2 => {
            real.signal(libc::SIGSTOP);
            // sleep: the server stands still for so long
            std::thread::sleep(chance.span(2_200));
            real.signal(libc::SIGCONT);
        }
        _ => drop(real.conn().line("CLIENT KILL TYPE normal SKIPME yes")),
    }
    // sleep: the interval of the faults
    std::thread::sleep(chance.span(300));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_under_faults() {
    let seed = number("LOCK_SEED", u64::from(std::process::id()));
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    println!(
        "LOCK_SEED={}",
        number("LOCK_SEED", u64::from(std::process::id()))
    );
    // A grant is on disk before its reply is sent.
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let resource = Arc::new(Mutex::new(Resource::default()));
    let goes_on = Arc::new(AtomicBool::new(true));
    let tasks = (0..TASKS).map(|i| {
        // Each with connections of its own, as if each were a program.
        let server = with_timeout(real.port, LEASE);
        let lock = Lock::new(&server, "k").lease(LEASE);
        let chance = Chance(seed ^ (i + 1));
        tokio::spawn(task(lock, resource.clone(), chance, goes_on.clone()))
    });
    let tasks: Vec<_> = tasks.collect();
    let mut chance = Chance(seed);
    for _ in 0..number("LOCK_FAULTS", 20) {
        tokio::task::block_in_place(|| fault(&mut real, &mut chance));
        assert!(
            tasks.iter().all(|task| !task.is_finished()),
            "a task has failed"
        );
    }
    until("twenty writes", || resource.lock().unwrap().writes > 20);
    goes_on.store(false, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let told = resource.lock().unwrap();
    println!("{} writes, {} abandoned", told.writes, told.abandoned);
    assert_eq!(told.value, told.writes);
    drop(told);
    until_free(&real);
}
