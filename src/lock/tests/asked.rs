//! Calls of the shell that the simulator's commands do not make: purges, what waits and what is withheld, whose holds
//! are bound, requests that could not be parked.

use crate::lock::tests::sim::{key_ref, sem_ref, Settings, Sim, Terms, DEFAULT_LEASE_MS};
use crate::lock::{
    Answer, Bound, Cx, Due, Effect, Effects, KeyRef, KeyState, Lease, Limits, LockError, Mode, Now,
    Outcome, OwnerId, Resource, SetIf, UserId, Wait, WaiterId,
};

fn acquire(sim: &mut Sim, key: &str, owner: &str, conn: u64) -> Option<WaiterId> {
    let how = (Mode::Exclusive, Terms::Unnamed, Wait::Ms(60_000), false);
    match sim.acquire(key, owner, conn, how).unwrap() {
        Answer::Waits(id) => Some(id),
        _ => None,
    }
}

/// The lock `k` is held; two requests of user 1 and one of user 2 wait for it.
fn with_waiters() -> Sim {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "holder", 0);
    for (conn, user) in [(1, 1), (2, 2), (3, 1)] {
        sim.user = UserId(user);
        acquire(&mut sim, "k", &format!("owner {conn}"), conn).unwrap();
    }
    sim.settle_all();
    sim
}

fn failed(fx: &Effects) -> usize {
    let is_broken = |effect: &&Effect| {
        matches!(
            effect,
            Effect::Answer(_, Outcome::Failed(LockError::Broken))
        )
    };
    assert_eq!(fx.iter().filter(is_broken).count(), fx.len());
    fx.len()
}

#[test]
fn a_purge_of_a_user_ends_its_requests_alone() {
    let mut sim = with_waiters();
    let mut purge = |user| {
        let mut fx = Effects::new();
        let cx = &mut Cx::new(sim.now, &mut fx);
        let waiters = &mut sim.locks.shared.waiters;
        let had = waiters.has_user(key_ref("k"), UserId(user));
        (
            had,
            waiters.purge_user(key_ref("k"), UserId(user), cx),
            failed(&fx),
        )
    };
    assert_eq!(purge(3), (false, 0, 0));
    assert_eq!(purge(1), (true, 2, 2));
    assert_eq!(purge(1), (false, 0, 0));
    assert_eq!(purge(2), (true, 1, 1));
}

#[test]
fn a_purge_of_a_user_ends_its_waits_for_latches() {
    let mut sim = Sim::new(&Settings::default());
    sim.latch_set("l", 1, SetIf::Always).unwrap();
    sim.user = UserId(2);
    sim.latch_wait("l", 1, Wait::ForEver).unwrap();
    let mut fx = Effects::new();
    let cx = &mut Cx::new(sim.now, &mut fx);
    let purged = sim
        .locks
        .shared
        .waiters
        .purge_user(key_ref("l"), UserId(2), cx);
    assert_eq!((purged, failed(&fx)), (1, 1));
}

#[test]
fn a_bound_hold_is_that_of_the_grant() {
    let mut sim = Sim::new(&Settings::default());
    for (key, mode) in [
        ("k", Mode::Exclusive),
        ("r", Mode::Read),
        ("w", Mode::Write),
    ] {
        let how = (mode, Terms::Session, Wait::No, false);
        sim.acquire(key, "alice", 1, how).unwrap();
        let bound = Bound {
            mode,
            key: key_ref(key).to_id(),
            owner: OwnerId::from_slice(b"alice"),
        };
        let is_bound = |sim: &Sim| sim.locks.is_bound_hold(&bound, &sim.state(key), sim.now);
        assert!(is_bound(&sim), "{key}");
        sim.keys.clear();
        assert!(!is_bound(&sim), "{key}");
        sim.foreign_acquire(key, "alice", Lease::TEN_SECONDS);
        assert!(!is_bound(&sim), "{key}");
    }
}

#[test]
fn a_purge_ends_waiters_for_other_kinds_under_the_name() {
    let mut sim = Sim::new(&Settings::default());
    sim.sem_set("s", 0, SetIf::Always).unwrap();
    let wait = (Terms::Unnamed, Wait::ForEver, None);
    assert!(matches!(
        sim.sem_acquire("s", "alice", 1, wait),
        Ok(Answer::Waits(_))
    ));
    let mut purge = |key| {
        let mut fx = Effects::new();
        let purged = sim
            .locks
            .shared
            .waiters
            .purge_others(key, &mut Cx::new(sim.now, &mut fx));
        (purged, failed(&fx))
    };
    assert_eq!(purge(sem_ref("s")), (false, 0), "its own kind");
    assert_eq!(purge(key_ref("s")), (true, 1));
    assert_eq!(purge(key_ref("s")), (false, 0));
}

#[test]
fn a_grant_is_withheld_when_it_is_overdue_or_postponed() {
    let mut sim = with_waiters();
    assert_eq!(sim.locks.withheld(sim.now), 0);
    sim.pass(DEFAULT_LEASE_MS + 99);
    assert_eq!(sim.locks.withheld(sim.now), 0, "it is settled in this tick");
    sim.pass(1);
    assert_eq!(sim.locks.withheld(sim.now), 1);
    let waiters = &mut sim.locks.shared.waiters;
    assert!(!waiters.has_postponed());
    for name in [b"a", b"b"] {
        waiters.postpone(KeyRef::lock(0, name).to_id());
    }
    assert!(waiters.has_postponed());
    assert_eq!(sim.locks.withheld(sim.now), 3);
    assert!(sim
        .locks
        .shared
        .waiters
        .pop_due(sim.now, true, true)
        .is_some());
    assert_eq!(sim.locks.withheld(sim.now), 2);
    sim.begin_startup_delay(1_000);
    assert_eq!(
        sim.locks.withheld(sim.now),
        0,
        "the startup delay is reported elsewhere"
    );
    // The lease that is over, and the other postponed key.
    let mut due = || sim.locks.shared.waiters.pop_due(sim.now, true, true);
    assert!(due().is_some() && due().is_some() && due().is_none());
}

#[test]
fn a_long_item_is_the_first_of_its_tick_or_waits_for_the_next() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "holder", 0);
    let how = (Mode::Exclusive, Terms::Unnamed, Wait::ForEver, false);
    let Ok(Answer::Waits(request)) = sim.acquire_many(&["k", "l"], "alice", 1, how) else {
        panic!("it does not wait");
    };
    sim.settle_all();
    let waiters = &mut sim.locks.shared.waiters;
    let many = Some(Due::Many(request));
    waiters.found_free(request, &(0..1));
    assert_eq!(waiters.pop_due(sim.now, true, false), many);
    // Now all of its keys may be free, and the next step is perhaps its grant.
    waiters.found_free(request, &(1..2));
    assert_eq!(waiters.pop_due(sim.now, true, false), None);
    assert_eq!(waiters.pop_due(sim.now, true, true), many);
}

#[test]
fn a_request_that_could_not_be_parked_is_refused_and_never_waited() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "holder", 0);
    let parked = acquire(&mut sim, "k", "alice", 1).unwrap();
    sim.locks.not_waiting(parked, sim.now);
    sim.subscribe_channel("ch", true);
    sim.notify = Some(("ch".into(), "tag".into()));
    let queued = acquire(&mut sim, "k", "bob", 2).unwrap();
    sim.locks.not_waiting(queued, sim.now);
    let waiters = &sim.locks.shared.waiters;
    let stats = &waiters.stats[Resource::Lock];
    assert_eq!((stats.refusals, stats.waits_parked), (2, 0));
    assert_eq!(waiters.ticket_stats.waits_parked, 0);
    assert_eq!(waiters.live(), 0);
}

#[test]
fn keys_with_kept_places_only_are_not_settled_with_a_database() {
    let mut sim = with_waiters();
    let waiters = &mut sim.locks.shared.waiters;
    waiters.schedule_settle_all(Some(1));
    assert_ne!(waiters.next_settle(sim.now), Some(0), "another database");
    waiters.schedule_settle_all(Some(0));
    assert_eq!(waiters.next_settle(sim.now), Some(0));
    for conn in 1..=3 {
        sim.disconnect(conn);
    }
    sim.settle_all();
    let waiters = &mut sim.locks.shared.waiters;
    assert!(waiters.places.used().kept > 0);
    waiters.schedule_settle_all(None);
    assert_eq!(waiters.next_settle(sim.now), None);
}

#[test]
fn the_bound_readers_of_a_connection_are_named() {
    let mut sim = Sim::new(&Settings::default());
    for (key, owner, mode, conn) in [
        ("k", "alice", Mode::Read, 1),
        ("k", "bob", Mode::Read, 1),
        ("k", "carol", Mode::Read, 2),
        ("l", "dan", Mode::Read, 1),
        ("m", "eve", Mode::Write, 1),
    ] {
        let how = (mode, Terms::Session, Wait::No, false);
        sim.acquire(key, owner, conn, how).unwrap();
    }
    let of = |conn, key| -> Vec<String> {
        let owners = sim
            .locks
            .shared
            .sessions
            .readers_of(conn, key_ref(key))
            .into_iter();
        owners
            .map(|owner| String::from_utf8(owner.to_vec()).unwrap())
            .collect()
    };
    assert_eq!(of(1, "k"), ["bob", "alice"], "the latest first");
    assert_eq!(of(2, "k"), ["carol"]);
    assert_eq!(of(1, "l"), ["dan"]);
    assert!(of(1, "m").is_empty() && of(3, "k").is_empty());
}

#[test]
fn a_connection_ends_in_one_tick_for_tickets() {
    let mut sim = with_waiters();
    sim.locks.disconnected(7, sim.now);
    assert!(
        !sim.locks.shared.waiters.is_closing(7),
        "there is no ticket"
    );
    sim.subscribe_channel("ch", true);
    sim.notify = Some(("ch".into(), "tag".into()));
    acquire(&mut sim, "k", "alice", 4).unwrap();
    sim.locks.disconnected(7, sim.now);
    let waiters = &mut sim.locks.shared.waiters;
    assert!(waiters.is_closing(7) && !waiters.is_closing(8));
    waiters.forget_closing();
    assert!(!waiters.is_closing(7));
}

#[test]
fn the_timer_is_needed_while_anything_is_due_now_or_later() {
    let mut sim = Sim::new(&Settings::default());
    let is_quiet = |sim: &Sim| sim.locks.shared.waiters.is_quiet();
    acquire(&mut sim, "k", "holder", 0);
    assert!(is_quiet(&sim), "no request waits");
    let how = (Mode::Exclusive, Terms::Unnamed, Wait::ForEver, false);
    sim.acquire("k", "alice", 1, how).unwrap();
    sim.settle_all();
    assert!(!is_quiet(&sim), "a lease ends");
    sim.restart(&Settings::default());
    sim.locks
        .shared
        .waiters
        .schedule_settle_id(key_ref("k").to_id());
    assert!(!is_quiet(&sim), "a key is to be settled");
    sim.settle_all();
    assert!(is_quiet(&sim));
    sim.locks.shared.waiters.postpone(key_ref("k").to_id());
    assert!(!is_quiet(&sim), "a key is postponed");
    sim.locks.shared.waiters.pop_due(sim.now, true, true);
    assert!(is_quiet(&sim));
}

#[test]
fn the_next_requests_for_a_read_write_lock_are_named() {
    let mut sim = Sim::new(&Settings::default());
    for (conn, owner, mode) in [
        (0, "writer", Mode::Write),
        (1, "alice", Mode::Read),
        (2, "bob", Mode::Read),
        (3, "carol", Mode::Write),
    ] {
        let how = (mode, Terms::Unnamed, Wait::ForEver, false);
        sim.acquire("k", owner, conn, how).unwrap();
    }
    let next = |rest: &KeyState, readers| -> Vec<String> {
        let next = sim
            .locks
            .next_for_shared(key_ref("k"), rest, readers, sim.now);
        let owners = next.into_iter().map(|pending| pending.owner.to_vec());
        owners
            .map(|owner| String::from_utf8(owner).unwrap())
            .collect()
    };
    assert_eq!(next(&KeyState::Absent, 64), ["alice", "bob"]);
    assert_eq!(next(&KeyState::Absent, 1), ["alice"]);
    assert_eq!(next(&sim.state("k"), 64), [""; 0]);
    assert!(sim.locks.next_may_need_siblings(key_ref("k"), sim.now));
    let exclusive = with_waiters();
    assert!(!exclusive
        .locks
        .next_may_need_siblings(key_ref("k"), exclusive.now));
}

#[test]
fn the_limit_of_bytes_is_that_of_the_bytes_used() {
    let bytes_of = |max_wait_bytes, notify: bool| {
        let limits = Limits {
            max_wait_bytes,
            ..Settings::default().limits
        };
        let mut sim = Sim::new(&Settings {
            limits,
            ..Settings::default()
        });
        acquire(&mut sim, "k", "holder", 0);
        sim.subscribe_channel("channel", true);
        sim.notify = notify.then(|| ("channel".into(), "tag".into()));
        let lease = Lease::TEN_SECONDS;
        let how = (Mode::Exclusive, Terms::Named(lease), Wait::ForEver, false);
        let parked = sim.acquire_many(&["k", "long key"], "alice", 1, how);
        parked.map(|_| sim.locks.shared.waiters.wait_bytes())
    };
    for notify in [false, true] {
        let bytes = bytes_of(1_000_000, notify).unwrap();
        assert!(bytes > 0);
        assert_eq!(bytes_of(bytes, notify), Ok(bytes));
        assert_eq!(bytes_of(bytes - 1, notify), Err(LockError::Busy));
    }
}

#[test]
fn channels_are_asked_for_in_rounds_and_tickets_end_without_a_subscriber() {
    let mut sim = Sim::new(&Settings::default());
    acquire(&mut sim, "k", "holder", 0);
    for (conn, channel) in [(1, "one"), (2, "two")] {
        sim.subscribe_channel(channel, true);
        sim.notify = Some((channel.into(), "tag".into()));
        acquire(&mut sim, "k", channel, conn).unwrap();
    }
    let waiters = &mut sim.locks.shared.waiters;
    let mut asked = |ms| -> Vec<Vec<u8>> {
        let channels = waiters.channels_to_ask(1, Now::at_mono(ms));
        channels
            .iter()
            .map(|channel| channel.name().to_vec())
            .collect()
    };
    assert_eq!(asked(1_000), [b"two"]);
    assert_eq!(asked(1_000), [b"one"]);
    assert_eq!(
        asked(1_499),
        [[]; 0],
        "the round began less than 500 ms ago"
    );
    assert_eq!(asked(1_500), [b"two"]);
    let one = waiters.channels_to_ask(1, Now::at_mono(1_500)).remove(0);
    for (is_subscribed, ms, is_over) in [
        (false, 0, false),
        (true, 500, false),
        (false, 600, false),
        (false, 1_599, false),
        (false, 1_600, true),
    ] {
        waiters.learn_channel(&one, is_subscribed, Now::at_mono(ms));
        assert_eq!(waiters.has_gone(), is_over, "at {ms}");
    }
    let mut fx = Effects::new();
    while waiters.has_gone() {
        waiters.end_gone(&mut Cx::new(Now::at_mono(1_600), &mut fx));
    }
    assert_eq!((waiters.tickets_unheard, waiters.live()), (1, 1));
}

#[test]
fn a_read_reentry_that_was_not_delivered_is_undone_and_the_former_hold_stays() {
    let mut sim = Sim::new(&Settings::default());
    for (key, owner, mode) in [("k", "alice", Mode::Read), ("l", "bob", Mode::Write)] {
        let how = (mode, Terms::Unnamed, Wait::No, false);
        sim.acquire(key, owner, 0, how).unwrap();
    }
    let terms = Terms::Named(Lease::TEN_SECONDS);
    let how = (Mode::Read, terms, Wait::ForEver, false);
    let parked = sim.acquire_many(&["k", "l"], "alice", 1, how);
    let Ok(Answer::Waits(request)) = parked else {
        panic!("{parked:?}");
    };
    let pending = sim.locks.pending_request(request).unwrap();
    assert_eq!(
        (pending.mode, &pending.owner[..]),
        (Mode::Read, &b"alice"[..])
    );
    sim.release("l", "bob", (None, false, None)).unwrap();
    sim.settle_all();
    let holds = |sim: &Sim, key| match sim.state(key) {
        KeyState::ReadWrite(lock) => lock.count_of(Mode::Read, b"alice", sim.now),
        _ => None,
    };
    assert_eq!((holds(&sim, "k"), holds(&sim, "l")), (Some(2), Some(1)));
    sim.disconnect(1);
    sim.settle_all();
    assert_eq!((holds(&sim, "k"), holds(&sim, "l")), (Some(1), None));
}

#[test]
fn a_walk_meets_every_key_with_waiters() {
    let mut sim = Sim::new(&Settings::default());
    for (conn, key) in (1..).zip(["a", "b", "c", "d", "e"]) {
        acquire(&mut sim, key, "holder", 0);
        acquire(&mut sim, key, "alice", conn).unwrap();
    }
    sim.disconnect(3);
    let (mut cursor, mut met) = (0, Vec::new());
    loop {
        let (next, keys) = sim.locks.shared.waiters.keys_below(cursor, 2);
        met.extend(keys.map(|key| String::from_utf8(key.name.to_vec()).unwrap()));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    met.sort();
    assert_eq!(met, ["a", "b", "d", "e"]);
}
