//! Holds that wait to be bound: they have their room in the limit of bound holds from the moment at which they are
//! asked for, and it is free again when the request ends, whatever ends it.

use crate::lock::tests::sim::{key_ref, sem_ref, Settings, Sim, Terms};
use crate::lock::{
    Answer, Cx, Effects, Grace, KeyRef, Lease, Limits, LockError, Mode, SetIf, UserId, Wait,
};

/// Five for each millisecond of the lease.
const MOST: usize = 10;

/// A server with room for [`MOST`] bound holds. Everything that is asked for is held.
fn server(user_share: usize) -> Sim {
    let default = Settings::default();
    let mut sim = Sim::new(&Settings {
        session_lease: Lease::from_ms(2).unwrap(),
        grace: Grace::default(),
        limits: Limits {
            user_share,
            ..default.limits
        },
        ..default
    });
    sim.subscribe_channel("ch", true);
    for key in ["k", "l", "m"] {
        let how = (Mode::Exclusive, Terms::Unnamed, Wait::No, false);
        sim.acquire(key, "holder", 0, how).unwrap();
    }
    let how = (Mode::Write, Terms::Unnamed, Wait::No, false);
    sim.acquire("rw", "holder", 0, how).unwrap();
    sim.sem_set("s", 0, SetIf::Always).unwrap();
    sim
}

/// Binds so many holds for the present user.
fn bind(sim: &mut Sim, name: &str, count: usize) {
    for number in 0..count {
        let how = (Mode::Exclusive, Terms::Session, Wait::No, false);
        let key = format!("{name}{number}");
        assert!(sim.acquire(&key, name, 99, how).is_ok(), "{key}");
    }
}

/// The kinds of requests for a session.
const KINDS: [&str; 5] = ["exclusive", "read", "write", "several", "permit"];

/// A request for one hold that waits (of several keys: for two). True if it does, false if there is no room.
fn ask(sim: &mut Sim, kind: &str, owner: &str, conn: u64) -> bool {
    let how = |mode| (mode, Terms::Session, Wait::Ms(1_000), false);
    let one =
        |asked: Result<Answer, LockError>| asked.map(|answer| matches!(answer, Answer::Waits(_)));
    let asked = match kind {
        "exclusive" => one(sim.acquire("k", owner, conn, how(Mode::Exclusive))),
        "read" => one(sim.acquire("rw", owner, conn, how(Mode::Read))),
        "write" => one(sim.acquire("rw", owner, conn, how(Mode::Write))),
        "several" => {
            let asked = sim.acquire_many(&["k", "l"], owner, conn, how(Mode::Exclusive));
            asked.map(|answer| matches!(answer, Answer::Waits(_)))
        }
        _ => one(sim.sem_acquire("s", owner, conn, (Terms::Session, Wait::Ms(1_000), None))),
    };
    match asked {
        Ok(waits) => {
            assert!(waits, "{kind}");
            true
        }
        Err(error) => {
            assert_eq!(error, LockError::TooManyBound, "{kind}");
            false
        }
    }
}

fn needs(kind: &str) -> usize {
    if kind == "several" {
        2
    } else {
        1
    }
}

fn to_bind(sim: &Sim) -> usize {
    sim.locks.shared.holds_to_bind()
}

/// What a request asks for becomes free.
fn free_all(sim: &mut Sim) {
    for key in ["k", "l", "m"] {
        sim.release(key, "holder", (None, true, None)).unwrap();
    }
    sim.release("rw", "holder", (Some(Mode::Write), true, None))
        .unwrap();
    sim.sem_set("s", 5, SetIf::Always).unwrap();
    sim.settle_all();
}

#[test]
fn what_will_be_bound_is_admitted_when_it_is_asked_for() {
    for kind in KINDS {
        for is_ticket in [false, true] {
            let mut sim = server(100);
            bind(&mut sim, "bound", MOST - needs(kind));
            let asks = |sim: &mut Sim, owner: &str, conn| {
                sim.notify = is_ticket.then(|| ("ch".into(), owner.into()));
                ask(sim, kind, owner, conn)
            };
            assert!(asks(&mut sim, "first", 1), "{kind}");
            assert_eq!(to_bind(&sim), needs(kind));
            assert!(!asks(&mut sim, "second", 2), "{kind}");
            free_all(&mut sim);
            sim.deliver_all();
            assert_eq!(
                (sim.locks.shared.sessions.holds(), to_bind(&sim)),
                (MOST, 0),
                "{kind}"
            );
        }
    }
}

#[test]
fn the_share_of_a_user_concerns_what_waits_too() {
    let mut sim = server(50);
    sim.user = UserId(1);
    bind(&mut sim, "one", 3);
    assert!(ask(&mut sim, "exclusive", "a", 1) && ask(&mut sim, "read", "b", 2));
    assert!(!ask(&mut sim, "permit", "c", 3), "half of the room");
    sim.user = UserId(2);
    assert!(ask(&mut sim, "several", "d", 4), "two of the other five");
    assert!(!ask(&mut sim, "exclusive", "e", 5));
    sim.user = UserId(3);
    assert!(ask(&mut sim, "exclusive", "f", 6), "one of three");
}

/// One that the owner has already, bound or waiting, needs no room again.
#[test]
fn a_request_needs_room_for_what_its_owner_does_not_have_yet() {
    let mut sim = server(100);
    bind(&mut sim, "bound", MOST - 2);
    assert!(ask(&mut sim, "several", "o", 1));
    // It takes its own place over, in each direction.
    for (round, kind) in ["exclusive", "several", "several", "exclusive"]
        .into_iter()
        .enumerate()
    {
        assert!(ask(&mut sim, kind, "o", 2 + round as u64), "{round}");
        sim.settle_all();
        assert_eq!(to_bind(&sim), needs(kind), "{round}");
    }
    let again = (Mode::Exclusive, Terms::Session, Wait::No, true);
    assert!(sim.acquire("bound0", "bound", 99, again).is_ok());
    let many = (Mode::Exclusive, Terms::Session, Wait::ForEver, false);
    let asked = sim.acquire_many(&["bound0", "k"], "bound", 20, many);
    assert!(asked.is_ok(), "one of the two is bound: {asked:?}");
    assert!(!ask(&mut sim, "permit", "p", 30));
    // A request without a session that takes one over frees the room.
    let plain = (Mode::Exclusive, Terms::Unnamed, Wait::ForEver, false);
    sim.acquire("k", "o", 31, plain).unwrap();
    sim.acquire("k", "bound", 32, plain).unwrap();
    assert_eq!(to_bind(&sim), 0);
    assert!(ask(&mut sim, "write", "p", 30));
}

/// A reader that waits to write is to have two holds.
#[test]
fn an_upgrade_needs_room_beside_the_hold_that_it_has() {
    let mut sim = server(100);
    let how = |mode, wait| (mode, Terms::Session, wait, false);
    bind(&mut sim, "bound", MOST - 3);
    for (conn, reader) in [(1, "a"), (2, "b")] {
        sim.acquire("r", reader, conn, how(Mode::Read, Wait::No))
            .unwrap();
    }
    assert!(sim
        .acquire("r", "a", 11, how(Mode::Write, Wait::ForEver))
        .is_ok());
    assert!(!ask(&mut sim, "exclusive", "x", 3));
    sim.release("r", "b", (Some(Mode::Read), true, None))
        .unwrap();
    sim.settle_all();
    sim.deliver_all();
    assert_eq!(
        (sim.locks.shared.sessions.holds(), to_bind(&sim)),
        (MOST - 1, 0)
    );
}

/// The hold of a request whose owner held one of its keys already is bound when its reply is written.
#[test]
fn a_grant_in_flight_keeps_its_room() {
    let mut sim = server(100);
    let plain = (Mode::Exclusive, Terms::Unnamed, Wait::No, false);
    sim.acquire("own", "o", 1, plain).unwrap();
    bind(&mut sim, "bound", MOST - 2);
    let many = (Mode::Exclusive, Terms::Session, Wait::ForEver, false);
    sim.acquire_many(&["own", "k"], "o", 2, many).unwrap();
    sim.release("k", "holder", (None, true, None)).unwrap();
    sim.settle_all();
    assert_eq!(
        (sim.locks.shared.sessions.holds(), to_bind(&sim)),
        (MOST - 1, 1)
    );
    assert!(!ask(&mut sim, "read", "x", 3));
    sim.deliver_all();
    assert_eq!(
        (sim.locks.shared.sessions.holds(), to_bind(&sim)),
        (MOST, 0)
    );
}

type End = fn(&mut Sim, KeyRef<'_>, &str);

/// What ends a wait, besides a grant.
const ENDS: [(&str, End); 8] = [
    ("time", |sim, _, _| sim.advance(1_000)),
    ("the connection", |sim, _, _| {
        sim.disconnect(1);
    }),
    ("CLIENT UNBLOCK", |sim, _, _| sim.unblock(1)),
    ("FINAL", |sim, key, owner| {
        let mut fx = Effects::new();
        let (whose, cx) = ((key, owner.as_bytes()), &mut Cx::new(sim.now, &mut fx));
        sim.locks.shared.give_up(whose, (1, UserId(1)), cx);
        sim.carry_out_answers(fx);
    }),
    ("PURGE", |sim, key, _| {
        let mut fx = Effects::new();
        let cx = &mut Cx::new(sim.now, &mut fx);
        sim.locks
            .shared
            .waiters
            .fail_all(key, &LockError::Broken, cx);
        sim.carry_out_answers(fx);
    }),
    ("PURGE USER", |sim, key, _| {
        let mut fx = Effects::new();
        let cx = &mut Cx::new(sim.now, &mut fx);
        sim.locks.shared.waiters.purge_user(key, UserId(1), cx);
        sim.carry_out_answers(fx);
    }),
    ("a lost permission", |sim, _, _| {
        sim.forbidden.insert(UserId(1));
        free_all(sim);
    }),
    ("another type", |sim, key, _| {
        sim.overwrite(std::str::from_utf8(key.name).unwrap(), false);
        sim.settle_all();
    }),
];

#[test]
fn the_room_is_free_again_whatever_ends_the_wait() {
    for kind in KINDS {
        let key = match kind {
            "permit" => sem_ref("s"),
            "read" | "write" => key_ref("rw"),
            _ => key_ref("k"),
        };
        for (end, by) in ENDS {
            let mut sim = server(100);
            sim.user = UserId(1);
            assert!(ask(&mut sim, kind, "o", 1));
            by(&mut sim, key, "o");
            let live = sim.locks.shared.waiters.live();
            assert_eq!((to_bind(&sim), live), (0, 0), "{kind}: {end}");
        }
    }
}
