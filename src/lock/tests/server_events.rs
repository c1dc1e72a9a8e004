//! Events of the server that leave the key, or take it from this server, without a command: what becomes of tracked
//! grants. Keys that another client has changed are read again at the end of the tick.

use crate::lock::grant::tracked::READERS_PER_STEP;
use crate::lock::tests::sim::{key_ref, sem_ref, Settings, Sim, Terms};
use crate::lock::{
    Answer, BoundRef, Cx, Effect, Effects, Event, KeyId, KeyRef, Limits, Mode, ReadDepth, Resource,
    SetIf, View, Wait, READERS_AT_ONCE,
};

fn acquire(sim: &mut Sim, key: &str, owner: &str, mode: Mode) {
    let answer = sim.acquire(key, owner, 0, (mode, Terms::Unnamed, Wait::No, false));
    assert!(matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
}

fn enqueue(sim: &mut Sim, key: &str, owner: &str, conn: u64) {
    let how = (Mode::Exclusive, Terms::Unnamed, Wait::ForEver, false);
    let answer = sim.acquire(key, owner, conn, how);
    assert!(matches!(answer, Ok(Answer::Waits(_))), "{answer:?}");
}

fn sem_acquire(sim: &mut Sim, key: &str, id: &str) {
    let answer = sim.sem_acquire(key, id, 0, (Terms::Unnamed, Wait::No, None));
    assert!(matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
}

/// The events of the keys that are read again.
fn recheck(sim: &mut Sim) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(step) = sim.locks.pop_recheck() {
        let key = step.key.as_ref();
        let name = std::str::from_utf8(key.name).unwrap();
        let owners: Vec<_> = step
            .owners
            .iter()
            .map(|owner| String::from_utf8_lossy(owner))
            .collect();
        let owners: Vec<&str> = owners.iter().map(|owner| &**owner).collect();
        let view = View {
            key,
            state: sim.keys.read(name, &owners, ReadDepth::Own, sim.now),
            domain: 0,
            fence: None,
            has_subscriber: false,
            readers: READERS_AT_ONCE,
        };
        let mut fx = Effects::new();
        sim.locks
            .recheck(&view, step.below, &mut Cx::new(sim.now, &mut fx));
        events.extend(fx.iter().map(|effect| match effect {
            Effect::Notify(event) => *event,
            other => panic!("{other:?}"),
        }));
    }
    assert!(!sim.locks.has_rechecks());
    events
}

#[test]
fn a_changed_lock_without_waiters_is_reported_lost_if_its_hold_is_gone() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "alice", Mode::Exclusive);
    sim.locks.changed(key_ref("k"), true);
    assert!(sim.locks.has_rechecks());
    assert_eq!(recheck(&mut sim), [], "the hold is still there");
    sim.keys.hash("k").remove("alice");
    sim.locks.changed(key_ref("k"), false);
    assert!(
        !sim.locks.has_rechecks(),
        "no watcher has asked for the event"
    );
    sim.locks.changed(key_ref("k"), true);
    assert_eq!(recheck(&mut sim), [Event::Lost]);
    assert_eq!(sim.locks.stats.grants_lost, 1);
    sim.locks.changed(key_ref("k"), true);
    assert!(!sim.locks.has_rechecks(), "no grant is tracked");
}

#[test]
fn a_changed_lock_with_waiters_is_settled_instead() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "alice", Mode::Exclusive);
    enqueue(&mut sim, "k", "bob", 1);
    sim.settle_all();
    sim.locks.changed(key_ref("k"), true);
    assert!(!sim.locks.has_rechecks());
    assert_eq!(sim.locks.shared.waiters.next_settle(sim.now), Some(0));
}

#[test]
fn of_a_changed_read_write_lock_the_readers_that_are_gone_are_lost() {
    let mut sim = Sim::new(&Settings::default());
    for owner in ["alice", "bob"] {
        acquire(&mut sim, "k", owner, Mode::Read);
    }
    sim.keys.hash("k").remove("alice");
    sim.locks.changed(key_ref("k"), true);
    assert_eq!(recheck(&mut sim), [Event::Lost]);
    assert!(sim.locks.tracked_reader(key_ref("k"), b"alice").is_none());
    assert!(sim.locks.tracked_reader(key_ref("k"), b"bob").is_some());
    sim.keys.remove("k");
    sim.locks.schedule_recheck(key_ref("k"));
    assert_eq!(recheck(&mut sim), [Event::Lost]);
    assert_eq!(sim.locks.stats.grants_lost, 2);
}

#[test]
fn a_write_hold_that_became_a_read_hold_is_lost() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "alice", Mode::Write);
    sim.locks.changed(key_ref("k"), true);
    assert_eq!(recheck(&mut sim), []);
    sim.keys.remove("k");
    sim.foreign("k", |keys, now| {
        crate::lock::tests::sim::scripts::read_acquire(keys, "k", "bob", 30_000, now)
    });
    sim.locks.changed(key_ref("k"), true);
    assert_eq!(recheck(&mut sim), [Event::Lost]);
}

#[test]
fn the_end_of_a_key_concerns_tracked_grants_and_waiters() {
    let mut sim = Sim::new(&Settings::default());
    assert!(!sim.locks.expired(key_ref("k")) && !sim.locks.lost(key_ref("k")));
    assert!(!sim.locks.cares_about(key_ref("k")));
    for mode in [Mode::Exclusive, Mode::Read] {
        acquire(&mut sim, "k", "alice", mode);
        assert!(sim.locks.cares_about(key_ref("k")));
        sim.keys.clear();
        assert!(sim.locks.lost(key_ref("k")));
    }
    assert_eq!(sim.locks.stats.grants_lost, 2);
    acquire(&mut sim, "k", "alice", Mode::Exclusive);
    assert!(sim.locks.expired(key_ref("k")));
    assert_eq!(sim.locks.stats.grants_expired, 1);
    enqueue(&mut sim, "k", "bob", 1);
    assert!(sim.locks.cares_about(key_ref("k")));
    assert!(sim.locks.expired(key_ref("k")) && sim.locks.lost(key_ref("k")));
}

#[test]
fn the_end_of_a_semaphore_ends_its_permits() {
    let mut sim = Sim::new(&Settings::default());
    sim.sem_set("k", 2, SetIf::Always).unwrap();
    for key in ["k", "{k}:timeout"] {
        sem_acquire(&mut sim, "k", "alice");
        assert!(sim.locks.cares_about(key_ref(key)), "{key}");
        sim.locks.lost(key_ref(key));
        assert!(!sim.locks.cares_about(key_ref(key)), "{key}");
        sim.sem_release("k", "alice").unwrap();
    }
    assert_eq!(sim.locks.sems.stats.grants_lost, 2);
}

#[test]
fn many_lost_readers_are_reported_in_steps() {
    let readers = READERS_PER_STEP + 100;
    let limits = Limits {
        max_tracked: 2 * readers,
        ..Settings::default().limits
    };
    let mut sim = Sim::new(&Settings {
        limits,
        ..Settings::default()
    });
    for number in 0..readers {
        acquire(&mut sim, "k", &format!("reader {number}"), Mode::Read);
    }
    sim.keys.clear();
    assert!(sim.locks.lost(key_ref("k")));
    assert_eq!(sim.locks.stats.grants_lost, READERS_PER_STEP as u64);
    assert_eq!(recheck(&mut sim).len(), 100);
    assert_eq!(sim.locks.stats.grants_lost, readers as u64);
}

#[test]
fn after_a_load_of_data_waiters_are_settled_and_the_horizon_is_read_again() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "alice", Mode::Exclusive);
    enqueue(&mut sim, "k", "bob", 1);
    sim.settle_all();
    assert!(sim.locks.shared.tokens.knows(0));
    sim.locks.reloaded();
    assert!(!sim.locks.shared.tokens.knows(0));
    assert_eq!(sim.locks.shared.waiters.next_settle(sim.now), Some(0));
}

/// A server with a tracked grant of each sort: `k` is held and bound to a connection, `r` is read, `s` has a permit.
fn with_grants() -> Sim {
    let mut sim = Sim::new(&Settings::default());
    let how = (Mode::Exclusive, Terms::Session, Wait::No, false);
    sim.acquire("k", "alice", 0, how).unwrap();
    acquire(&mut sim, "r", "alice", Mode::Read);
    sim.sem_set("s", 1, SetIf::Always).unwrap();
    sem_acquire(&mut sim, "s", "alice");
    sim
}

const NAMES: [&[u8]; 3] = [b"k", b"r", b"s"];

/// Whether `k` is bound under its name in this database.
fn is_bound(sim: &Sim, db: i32) -> bool {
    let what = BoundRef::lock(Mode::Exclusive, KeyRef::lock(db, b"k"), b"alice");
    sim.locks.shared.sessions.token_of(what).is_some()
}

/// The grants that are tracked in this database.
fn cared_about(sim: &Sim, db: i32) -> Vec<&'static [u8]> {
    let is_cared = |name: &&[u8]| sim.locks.cares_about(KeyRef::lock(db, name));
    NAMES.into_iter().filter(is_cared).collect()
}

#[test]
fn a_swap_of_databases_takes_the_tracked_grants_along() {
    let mut sim = with_grants();
    sim.locks.swapped(1, 2);
    assert_eq!(cared_about(&sim, 0), NAMES);
    sim.locks.swapped(0, 1);
    assert!(is_bound(&sim, 1) && !is_bound(&sim, 0));
    assert_eq!(cared_about(&sim, 0), [[]; 0]);
    assert_eq!(cared_about(&sim, 1), NAMES);
    let key = KeyRef::lock(1, b"r");
    assert!(sim.locks.tracked_reader(key, b"alice").is_some());
    assert!(sim.locks.expired(key), "by the key");
    assert!(sim.locks.tracked_reader(key, b"alice").is_none());
}

/// The lost grants of locks and of permits.
fn lost(sim: &Sim) -> (u64, u64) {
    let locks = &sim.locks;
    (locks.stats.grants_lost, locks.sems.stats.grants_lost)
}

#[test]
fn a_flush_ends_the_tracked_grants_of_its_database() {
    let mut sim = with_grants();
    sim.locks.flushed(Some(1));
    assert_eq!(cared_about(&sim, 0), NAMES);
    assert!(is_bound(&sim, 0));
    sim.locks.flushed(Some(0));
    assert!(!is_bound(&sim, 0));
    assert_eq!(cared_about(&sim, 0), [[]; 0]);
    assert_eq!(lost(&sim), (2, 1));
}

#[test]
fn keys_that_leave_with_their_slot_end_their_tracked_grants() {
    let mut sim = with_grants();
    sim.locks.left(|name| name == b"k");
    assert!(!is_bound(&sim, 0));
    assert_eq!(cared_about(&sim, 0), [b"r", b"s"]);
    sim.locks.left(|name| name != b"k");
    assert_eq!(cared_about(&sim, 0), [[]; 0]);
    assert_eq!(lost(&sim), (2, 1));
}

#[test]
fn locks_whose_loss_is_reported_are_held_or_waited_for() {
    let mut sim = with_grants();
    enqueue(&mut sim, "k", "bob", 1);
    sim.foreign_acquire("l", "carol", crate::lock::Lease::TEN_SECONDS);
    enqueue(&mut sim, "l", "bob", 2);
    let about = |sim: &Sim, db| {
        let mut keys: Vec<KeyId> = sim.locks.cared_about(db);
        keys.sort();
        keys.iter()
            .map(|key| String::from_utf8_lossy(key.as_ref().name).into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(about(&sim, None), ["k", "l", "r"]);
    assert_eq!(about(&sim, Some(0)), ["k", "l", "r"]);
    assert_eq!(about(&sim, Some(1)), [""; 0]);
}

#[test]
fn grants_of_long_names_are_not_tracked() {
    let mut sim = Sim::new(&Settings::default());
    for (key, owner, is_tracked) in [(1_024, 5, true), (1_025, 5, false)] {
        let (key, owner) = ("k".repeat(key), "o".repeat(owner));
        acquire(&mut sim, &key, &owner, Mode::Exclusive);
        assert_eq!(sim.locks.cares_about(key_ref(&key)), is_tracked);
    }
    for (key, owner, is_tracked) in [(1_000, 24, true), (1_000, 25, false), (1_001, 24, false)] {
        let (key, owner) = ("k".repeat(key), "o".repeat(owner));
        acquire(&mut sim, &key, &owner, Mode::Read);
        let tracked = sim.locks.tracked_reader(key_ref(&key), owner.as_bytes());
        assert_eq!(tracked.is_some(), is_tracked);
    }
    assert_eq!(sim.locks.stats.grants_unwatched, 3);
}

#[test]
fn the_number_of_tracked_grants_is_bounded() {
    let limits = Limits {
        max_tracked: 2,
        ..Settings::default().limits
    };
    let mut sim = Sim::new(&Settings {
        limits,
        ..Settings::default()
    });
    for (key, mode) in [
        ("a", Mode::Exclusive),
        ("b", Mode::Read),
        ("c", Mode::Exclusive),
        ("d", Mode::Read),
    ] {
        acquire(&mut sim, key, "alice", mode);
    }
    let gauges = sim.locks.shared.waiters.gauges();
    let fields = sim.locks.fields(Resource::Lock, &gauges);
    let tracked = fields.iter().find(|(name, _)| *name == "grants_tracked");
    assert_eq!(tracked, Some(&("grants_tracked", 2)));
    assert_eq!(sim.locks.stats.grants_unwatched, 2);
    assert!(!sim.locks.cares_about(sem_ref("k")));
}
