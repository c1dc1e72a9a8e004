//! One case: a state of the data, and the calls.

use crate::calls::{self, Call};
use crate::random::Random;
use crate::scripts::Scripts;
use crate::states;
use crate::wire::{Bytes, Words};

#[derive(Debug, Clone)]
pub struct Case {
    /// The seed of the case.
    pub seed: u64,
    is_read_write: bool,
    pub resp3: bool,
    /// Commands that create the state.
    pub setup: Vec<Words>,
    /// The milliseconds that pass before the calls.
    pub later: i64,
    pub in_transaction: bool,
    pub calls: Vec<Call>,
}

/// The names of locks, with braces and without, and bytes that are no text.
const NAMES: [&[u8]; 10] = [
    b"k",
    b"a b",
    b"{a}k",
    b"a{",
    b"a}b",
    b"{}",
    b"x{a}{b}",
    "k:\u{17e}".as_bytes(),
    b"\xff\0\r\n%s",
    b"",
];
const LATER: [i64; 8] = [0, 1, 2, 49, 50, 999, 30_000, 600_001];

impl Case {
    /// The case of a seed.
    pub fn from_seed(seed: u64, scripts: &Scripts) -> Case {
        let script = Random::new(seed).below(scripts.0.len());
        Case::of_script(seed, script, scripts)
    }

    /// A case whose first call is of this script.
    pub fn of_script(seed: u64, script: usize, scripts: &Scripts) -> Case {
        let random = &mut Random::new(!seed);
        let read_write = scripts.0[script].is_read_write();
        // These calls do half of their work on a large hash, in no order, and fail.
        let renews = |script: usize| scripts.0[script].name.starts_with("read-renew");
        let kind = states::Kind {
            read_write,
            may_be_large: !renews(script),
        };
        let name = random.mostly(50, &NAMES);
        let mut setup = states::of_lock(random, name, kind);
        if random.percent(10) {
            // Another lock in the same state, for batches.
            let other = random.pick(&NAMES);
            setup.extend(states::of_lock(random, other, kind));
        }
        let mut calls = vec![calls::of(random, script, scripts, name)];
        while calls.len() < 4 && random.percent(15) {
            let next = random.below(scripts.0.len());
            // From some hold counts the Lua scripts of read locks count down for ever.
            if scripts.0[next].is_read_write() == read_write && !renews(next) {
                calls.push(calls::of(random, next, scripts, name));
            }
        }
        let later = random.mostly(75, &LATER);
        Case {
            seed,
            is_read_write: read_write,
            resp3: random.percent(30),
            setup,
            later,
            in_transaction: random.percent(10),
            calls,
        }
    }

    /// A case whose first call is of this script, on a lock in this state; some fields of it have ended.
    pub fn with_ended_fields(seed: u64, script: usize, state: usize, scripts: &Scripts) -> Case {
        let random = &mut Random::new(!seed);
        Case {
            seed,
            is_read_write: scripts.0[script].is_read_write(),
            resp3: false,
            setup: states::with_ended_fields(NAMES[0], state),
            later: 50,
            in_transaction: random.percent(10),
            calls: vec![calls::of(random, script, scripts, NAMES[0])],
        }
    }

    /// Whether a script reads the fields of a hash that is not compact: their order depends on the server's seed.
    pub fn has_no_order(&self) -> bool {
        let is_large = |words: &Words| words.len() > 100 || words.iter().any(|w| w.len() > 64);
        self.is_read_write && self.setup.iter().any(is_large)
    }

    /// Cases like this one with one part removed.
    pub fn simpler(&self) -> Vec<Case> {
        let mut simpler = Vec::new();
        let mut add = |change: &dyn Fn(&mut Case)| {
            let mut case = self.clone();
            change(&mut case);
            simpler.push(case);
        };
        for step in 0..self.setup.len() {
            add(&|case| drop(case.setup.remove(step)));
        }
        for call in 0..self.calls.len() {
            if self.calls.len() > 1 {
                add(&|case| drop(case.calls.remove(call)));
            }
        }
        if self.later > 0 {
            add(&|case| case.later = 0);
        }
        if self.in_transaction {
            add(&|case| case.in_transaction = false);
        }
        if self.resp3 {
            add(&|case| case.resp3 = false);
        }
        simpler
    }
}

/// The name of a key beside a lock, which Redisson makes with a prefix.
pub fn prefixed(prefix: &str, name: &[u8]) -> Bytes {
    if name.contains(&b'{') {
        [prefix.as_bytes(), b":", name].concat()
    } else {
        [prefix.as_bytes(), b":{", name, b"}"].concat()
    }
}

/// The same with a suffix.
pub fn suffixed(name: &[u8], suffix: &str) -> Bytes {
    if name.contains(&b'{') {
        [name, b":", suffix.as_bytes()].concat()
    } else {
        [b"{", name, b"}:", suffix.as_bytes()].concat()
    }
}

/// All channels that a case may publish on.
pub fn channels() -> Vec<Bytes> {
    let of_prefix = |prefix| NAMES.map(|name| prefixed(prefix, name));
    let prefixes = [calls::CHANNEL, calls::READ_WRITE_CHANNEL];
    prefixes.into_iter().flat_map(of_prefix).collect()
}
