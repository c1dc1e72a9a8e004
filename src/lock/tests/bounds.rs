//! Numbers that one decision does not exceed.

use crate::lock::tests::sim::{Settings, Sim, Terms};
use crate::lock::{Answer, Lease, LockError, Mode, SetIf, Wait, READERS_AT_ONCE};

#[test]
fn holds_of_a_reader_are_limited_by_the_bytes_of_their_timeouts() {
    let mut sim = Sim::new(&Settings::default());
    let owner = "o".repeat(20_000);
    let mut read =
        |key: &str, once| sim.acquire(key, &owner, 0, (Mode::Read, Terms::Unnamed, Wait::No, once));
    for _ in 0..3 {
        assert!(matches!(read("k", false), Ok(Answer::Granted(_))));
    }
    assert_eq!(read("k", false), Err(LockError::TooManyReads));
    assert!(
        matches!(read("k", true), Ok(Answer::Granted(_))),
        "no more holds"
    );
    let lease = Terms::Named(Lease::TEN_SECONDS);
    let mut read_both =
        |once| sim.acquire_many(&["l", "k"], &owner, 0, (Mode::Read, lease, Wait::No, once));
    assert_eq!(read_both(false), Err(LockError::TooManyReads));
    assert!(matches!(read_both(true), Ok(Answer::Granted(_))));
}

#[test]
fn permits_that_expired_after_a_reduction_are_taken_back_without_waiters() {
    let mut sim = Sim::new(&Settings::default());
    sim.sem_set("s", 150, SetIf::Always).unwrap();
    let terms = |lease_s: i64| {
        let lease = Lease::from_ms(1_000 * lease_s).unwrap();
        (Terms::Named(lease), Wait::No, None)
    };
    for id in 0..150 {
        let lease_s = if id < 30 { 60 } else { 10 };
        sim.sem_acquire("s", &id.to_string(), 0, terms(lease_s))
            .unwrap();
    }
    sim.sem_set("s", 10, SetIf::Always).unwrap();
    sim.pass(20_000);
    assert_eq!(sim.sem_release("s", "0"), Ok(true));
    assert_eq!(sim.free("s"), Some(-139));
    sim.settle_all();
    assert_eq!(sim.free("s"), Some(-19));
}

#[test]
fn a_release_moves_no_timeout_to_one_without_an_end() {
    let mut sim = Sim::new(&Settings::default());
    for _ in 0..2 {
        let how = (Mode::Read, Terms::Unnamed, Wait::No, false);
        sim.acquire("k", "alice", 0, how).unwrap();
    }
    let first = "{k}:alice:rwlock_timeout:1";
    let end = sim.keys.end(first);
    sim.keys.set_ttl("{k}:alice:rwlock_timeout:2", None);
    sim.release("k", "alice", (None, false, None)).unwrap();
    assert_eq!(sim.keys.end(first), end);
}

#[test]
fn readers_are_granted_some_at_a_time_and_all_in_one_tick() {
    let mut sim = Sim::new(&Settings::default());
    let how = |mode, wait| (mode, Terms::Unnamed, wait, false);
    sim.acquire("k", "writer", 0, how(Mode::Write, Wait::No))
        .unwrap();
    let count = READERS_AT_ONCE + 6;
    for conn in 1..=count as u64 {
        let reader = format!("reader {conn}");
        sim.acquire("k", &reader, conn, how(Mode::Read, Wait::ForEver))
            .unwrap();
    }
    sim.release("k", "writer", (None, false, None)).unwrap();
    assert_eq!(sim.granted.len(), READERS_AT_ONCE);
    sim.settle_all();
    assert_eq!(sim.granted.len(), count);
}
