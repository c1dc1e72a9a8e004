//! The store of places against a list.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;

use super::*;
use crate::lock::wait::places::Kept;
use crate::lock::{Now, UserId};

const NOW: Now = Now {
    wall_ms: 0,
    wall_sub_us: 0,
    mono_ms: 0,
};
const KEYS: [&[u8]; 3] = [b"k", b"l", b"m"];
const USERS: [UserId; 2] = [UserId(1), UserId(2)];
const OWNERS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A request of this owner at this key, with this deadline.
    Park(usize, usize, Option<u64>),
    Empty(usize, usize, u64),
    Remove(usize, usize),
    /// The first deadline has passed.
    Due,
}

fn step() -> impl Strategy<Value = Step> {
    let (key, owner) = (0..KEYS.len(), 0..OWNERS.len());
    prop_oneof![
        (key.clone(), owner.clone(), prop::option::of(1..50u64))
            .prop_map(|(key, owner, due)| Step::Park(key, owner, due)),
        (key.clone(), owner.clone(), 1..50u64).prop_map(|(k, o, due)| Step::Empty(k, o, due)),
        (key, owner).prop_map(|(key, owner)| Step::Remove(key, owner)),
        Just(Step::Due),
    ]
}

/// A place as it is expected: in the order in which the places became live.
#[derive(Debug, Clone)]
struct Expected {
    at: (usize, usize),
    id: PlaceId,
    request: Option<WaiterId>,
    due: Option<u64>,
}

#[derive(Default)]
struct Both {
    places: Places,
    expected: Vec<Expected>,
    /// Places that were removed: none is found again, also when its slot is taken.
    gone: Vec<PlaceId>,
    last: u64,
}

fn key(index: usize) -> KeyRef<'static> {
    let name = KEYS[index];
    KeyRef::lock(0, name)
}

impl Both {
    fn find(&self, at: (usize, usize)) -> Option<usize> {
        self.expected.iter().position(|place| place.at == at)
    }

    fn take(&mut self, at: (usize, usize)) -> Option<Expected> {
        let taken = self.find(at).map(|index| self.expected.remove(index))?;
        if taken.request.is_some() {
            self.places.ring_out(taken.id);
        }
        Some(taken)
    }

    fn play(&mut self, step: Step) {
        self.last += 1;
        match step {
            Step::Park(k, o, due) => {
                let request = WaiterId(self.last);
                let waiter = At::Live(Waiter {
                    user: USERS[o % USERS.len()],
                    ..Waiter::new(request, 0, due, NOW)
                });
                let id = match self.take((k, o)) {
                    Some(old) => {
                        let was = self.places.set(old.id, waiter);
                        assert_eq!(was.map(|waiter| waiter.id), old.request);
                        old.id
                    }
                    None => {
                        let seq = Seq::new(self.last).unwrap();
                        self.places.insert(seq, key(k).to_id(), OWNERS[o], waiter)
                    }
                };
                self.places.enter(id);
                self.places.ring_in(id);
                let (at, request) = ((k, o), Some(request));
                self.expected.push(Expected {
                    at,
                    id,
                    request,
                    due,
                });
            }
            Step::Empty(k, o, until) => {
                if let Some(old) = self.take((k, o)) {
                    let waiter = Waiter {
                        user: USERS[o % USERS.len()],
                        ..Waiter::new(WaiterId(0), 0, None, NOW)
                    };
                    self.places.set(old.id, At::Empty(Kept::of(&waiter, until)));
                    self.expected.push(Expected {
                        request: None,
                        due: Some(until),
                        ..old
                    });
                }
            }
            Step::Remove(k, o) => {
                if let Some(old) = self.take((k, o)) {
                    let removed = self.places.remove(old.id);
                    assert_eq!(removed.map(|waiter| waiter.id), old.request);
                    self.gone.push(old.id);
                }
            }
            Step::Due => {
                let taken = self.places.take_due(u64::MAX);
                let due = self.expected.iter().find(|place| Some(place.id) == taken);
                let user = due.map(|place| USERS[place.at.1 % USERS.len()]);
                let is_its = |place: &&Expected| {
                    user.is_none_or(|user| USERS[place.at.1 % USERS.len()] == user)
                };
                let dues = self.expected.iter().filter(is_its);
                let dues = dues.filter_map(|place| Some((place.due?, place.id)));
                assert_eq!(taken, dues.min().map(|(_, id)| id), "the first of its user");
                if let Some((k, o)) = due.map(|place| place.at) {
                    self.play(Step::Remove(k, o));
                }
            }
        }
    }

    fn check(&self) {
        let live = self.expected.iter().filter(|p| p.request.is_some());
        assert_eq!(self.places.len(), self.expected.len());
        assert_eq!(self.places.live(), live.clone().count());
        assert_eq!(self.places.requests(), live.clone().count());
        let places = self.expected.iter();
        let places = places.map(|place| self.places.get(place.id).unwrap());
        let used = |user: UserId| {
            let own = places.clone().filter(|place| place.user() == user);
            own.map(|place| place.usage(0))
                .fold(Usage::default(), Usage::plus)
        };
        let by_user = USERS.map(used);
        assert_eq!(USERS.map(|user| self.places.used_by(user)), by_user);
        assert_eq!(self.places.used(), by_user[0].plus(by_user[1]));
        assert!(self.gone.iter().all(|id| self.places.get(*id).is_none()));
        for place in &self.expected {
            let (k, o) = place.at;
            assert_eq!(self.places.of(key(k), OWNERS[o]), Some(place.id));
            let found = place.request.map(|id| self.places.of_request(id));
            assert_eq!(found, place.request.map(|_| Some(place.id)));
        }
        for (index, owner) in OWNERS.iter().enumerate() {
            let its = live.clone().filter(|place| place.at.1 == index);
            let expected: Vec<_> = its.map(|place| place.id).collect();
            let named = UserOwner {
                db: 0,
                user: USERS[index % USERS.len()],
                owner,
            };
            let got: Vec<_> = self.places.of_owner(named).collect();
            assert_eq!(got, expected, "the live places of an owner");
        }
        let kept = self.expected.iter().filter(|p| p.request.is_none());
        let mut kept: Vec<_> = kept.map(|place| place.id).collect();
        let mut got = self.places.kept();
        kept.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, kept);
        let dues = self.expected.iter().filter_map(|place| place.due);
        let (next, first) = (self.places.next_due(), dues.min());
        assert_eq!(next.is_some(), first.is_some());
        assert!(next <= first, "early is allowed, late is not");
    }
}

proptest! {
    #[test]
    fn every_place_is_found_by_each_of_its_names(steps in prop::collection::vec(step(), 0..200)) {
        let mut both = Both::default();
        for step in steps {
            both.play(step);
            both.check();
        }
    }
}

#[test]
fn many_places_are_found_and_their_deadlines_come_in_order() {
    let mut places = Places::default();
    let owner = |number: u64| number.to_be_bytes();
    let ids: Vec<_> = (1..=50_000)
        .map(|number| {
            let due = Some(1 + number * 7_919 % 50_000);
            let waiter = At::Live(Waiter::new(WaiterId(number), 0, due, NOW));
            let seq = Seq::new(number).unwrap();
            let id = places.insert(seq, key(0).to_id(), &owner(number), waiter);
            places.enter(id);
            places.ring_in(id);
            id
        })
        .collect();
    for number in (1..=50_000).step_by(997) {
        assert_eq!(
            places.of(key(0), &owner(number)),
            Some(ids[number as usize - 1])
        );
    }
    let mut last = 0;
    while let Some(due) = places.next_due() {
        assert!(due >= last, "deadlines come in order");
        last = due;
        let id = places.take_due(due).unwrap();
        places.ring_out(id);
        places.remove(id);
    }
    assert_eq!((places.len(), places.live(), places.requests()), (0, 0, 0));
}
