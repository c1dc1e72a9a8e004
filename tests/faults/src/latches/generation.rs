//! The generations of the keys of latches, as the clients of a run share them.
//!
//! A key is used again only if the outcome of every request on it is known, so that it is surely open. The last request
//! that says so is then a part of the next generation's history, too. Otherwise the next generation has a new name with
//! the former one as its hash tag: in a cluster it is in the same slot.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::history::{LatchOp, Outcome};

/// All keys.
pub struct Latches {
    slots: Vec<Slot>,
    next: AtomicU32,
}

struct Slot {
    base: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Generation>>,
    /// How many names were given up.
    given_up: u32,
    /// The request that says that the last latch of the present name is open, if there was one.
    proof: Option<LatchOp>,
}

/// What a client does at a key.
pub enum Part {
    Lead(Arc<Generation>),
    Join(Arc<Generation>, Phase),
    /// The leader lets no other client do anything.
    None,
}

/// The requests that the leader allows other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Begins,
    Waits,
    /// `DOWN` and `WAIT`.
    Downs,
    Ends,
}

/// One generation.
pub struct Generation {
    /// Its number in the history.
    pub number: u32,
    pub name: String,
    /// The name by which the route knows the server.
    pub base: String,
    /// The n of every `DOWN`.
    pub by: i64,
    /// Whether its clients take their time.
    pub is_slow: bool,
    /// The phase and the number of clients that joined.
    state: Mutex<(Phase, u32)>,
    /// The last request that says that it is open.
    proof: Mutex<Option<LatchOp>>,
    /// The number of requests that may change the count and whose outcome is unknown.
    doubts: AtomicU32,
}

impl Latches {
    /// Keys of these names; the generations are numbered from `first`.
    pub fn of(names: &[String], first: u32) -> Latches {
        let slots = names.iter().map(|base| Slot {
            base: base.clone(),
            state: Mutex::default(),
        });
        Latches {
            slots: slots.collect(),
            next: AtomicU32::new(first),
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Begins a generation with this n of every `DOWN`, or joins the present one until [`Generation::leave`].
    pub fn enter(&self, slot: usize, by: i64, is_slow: bool) -> Part {
        let slot = &self.slots[slot];
        let mut state = lock(&slot.state);
        if let Some(current) = &state.current {
            return match current.join() {
                Some(phase) => Part::Join(current.clone(), phase),
                None => Part::None,
            };
        }
        let base = slot.base.clone();
        let latch = Arc::new(Generation {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            name: match state.given_up {
                0 => base.clone(),
                n if base.contains('{') => format!("{base}.{n}"),
                n => format!("{{{base}}}.{n}"),
            },
            base,
            by,
            is_slow,
            state: Mutex::new((Phase::Begins, 0)),
            proof: Mutex::new(state.proof.take()),
            doubts: AtomicU32::new(0),
        });
        state.current = Some(latch.clone());
        Part::Lead(latch)
    }

    /// The generation is open and left by all.
    pub fn end(&self, slot: usize, latch: &Generation) {
        let mut state = lock(&self.slots[slot].state);
        state.proof = latch.proof().filter(|_| latch.doubts() == 0);
        state.given_up += u32::from(state.proof.is_none());
        state.current = None;
    }
}

impl Generation {
    /// The leader allows these requests.
    pub fn allow(&self, phase: Phase) {
        lock(&self.state).0 = phase;
    }

    fn join(&self) -> Option<Phase> {
        let mut state = lock(&self.state);
        let is_allowed = matches!(state.0, Phase::Waits | Phase::Downs);
        state.1 += u32::from(is_allowed);
        is_allowed.then_some(state.0)
    }

    pub fn leave(&self) {
        lock(&self.state).1 -= 1;
    }

    /// The number of clients that joined and have not left.
    pub fn users(&self) -> u32 {
        lock(&self.state).1
    }

    /// The last request that says that it is open. At the begin: that the one before was.
    pub fn proof(&self) -> Option<LatchOp> {
        lock(&self.proof).clone()
    }

    /// Adds what the reply says.
    pub fn learn(&self, op: &LatchOp) {
        let mut proof = lock(&self.proof);
        if op.says_open() {
            *proof = Some(op.clone());
        } else if op.call.closes() && op.outcome != Outcome::Nil {
            *proof = None;
        }
    }

    /// A request may have changed the count, or may yet.
    pub fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of such requests.
    pub fn doubts(&self) -> u32 {
        self.doubts.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under the lock")
}
