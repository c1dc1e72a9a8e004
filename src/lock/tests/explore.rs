//! Every history of a small scene, instead of random ones: a breadth-first search over the states that commands and
//! events lead to.
//!
//! A state is that of the core, of the simulated server and of the naive model together ([`digest`]). It is reached
//! again by repeating its shortest history from the start, so the core needs to be neither copied nor compared. Each
//! step is judged as in the random histories: the reply, all that can be observed and the sums of the counters must be
//! as the naive model states. From each new state on, without further inputs, every request must get its answer and
//! nothing may be left over. The first failure is one of the shortest; its inputs are printed.
//!
//! `EXPLORE_SHOW` prints the last new state: it shows which number keeps a search from closing.
//! `EXPLORE_DEPTH` sets the number of steps (`make explore DEPTH=n`), `EXPLORE_STATES` the number of states at which a
//! search stops. docs/EXPLORATION.md has the figures.

mod digest;
mod exclusive;
mod many;
mod read_write;
mod semaphore;

use std::collections::HashSet;
use std::fmt::Debug;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

use self::digest::digest;
use crate::lock::tests::model::{Case, Step};
use crate::lock::tests::sim::Sim;
use crate::lock::KeyState;

/// Something that may happen in a scene.
struct Action<Op> {
    /// The owner that acts. The owners of a scene are alike, so one acts first only after those before it.
    owner: Option<usize>,
    step: Step<Op>,
}

/// Beginning, inputs and extent of a search.
struct Scene<C: Case> {
    name: &'static str,
    settings: C::Settings,
    /// What happens before each history.
    first: Vec<Step<C::Op>>,
    actions: Vec<Action<C::Op>>,
    /// Time passes without inputs: asserts that each request is answered and nothing is left.
    rest: fn(&mut C),
    /// Whether the search goes on from this state: hold counts would rise for ever.
    is_within: fn(&C) -> bool,
    /// The depth if none is asked for.
    depth: usize,
    /// Whether states are the same only if all their numbers are. Needed where a clock is set, a process restarts or a
    /// horizon is written: there numbers are compared with others than those of their kind.
    exact: bool,
}

/// How a state was reached first.
#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    action: u8,
    /// The number of owners that have acted.
    owners: u8,
    is_within: bool,
}

struct Search<'a, C: Case> {
    scene: &'a Scene<C>,
    nodes: Vec<Node>,
    seen: HashSet<u128>,
    steps: u64,
}

/// The highest hold count from which a search goes on.
const MOST_HOLDS: u32 = 2;

/// Whether no hold of these locks is counted higher than this.
fn has_few_holds(sim: &Sim, keys: &[&str], most: u32) -> bool {
    keys.iter().all(|key| match sim.state(key) {
        KeyState::Held(hold) => hold.count <= most,
        KeyState::ReadWrite(lock) => {
            let readers = lock.readers.iter().map(|reader| reader.count);
            let writer = lock.writer.iter().map(|writer| writer.count);
            readers.chain(writer).all(|count| count <= most)
        }
        _ => true,
    })
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

fn step<Op>(op: Op, ends_tick: bool, delivers: bool) -> Step<Op> {
    Step {
        op,
        ends_tick,
        delivers,
    }
}

/// Searches the scene, and prints the number of states at each depth.
fn explore<C: Case + Debug>(scene: &Scene<C>) {
    let began = Instant::now();
    let depth = number("EXPLORE_DEPTH").unwrap_or(scene.depth);
    let most = number("EXPLORE_STATES").unwrap_or(usize::MAX);
    let mut search = Search {
        scene,
        nodes: Vec::new(),
        seen: HashSet::new(),
        steps: 0,
    };
    search.begin();
    let mut level = 0..1;
    for reached in 1..=depth {
        for node in level.clone() {
            search.expand(node as u32);
            if search.nodes.len() >= most {
                println!("{}: stopped at {most} states", scene.name);
                return;
            }
        }
        level = level.end..search.nodes.len();
        if std::env::var_os("EXPLORE_SHOW").is_some() {
            let case = search.replay(&search.history(level.end as u32 - 1));
            println!("{}", digest::normal_form(&format!("{case:?}")));
        }
        println!(
            "{}: depth {reached}: {} states, {} steps, {:.1} s",
            scene.name,
            search.nodes.len(),
            search.steps,
            began.elapsed().as_secs_f64(),
        );
        if level.is_empty() {
            println!("{}: closed: no step leads to a new state", scene.name);
            return;
        }
    }
}

impl<C: Case + Debug> Search<'_, C> {
    fn begin(&mut self) {
        let case = self.replay(&[]);
        self.seen.insert(self.id(&case));
        self.nodes.push(Node {
            parent: 0,
            action: 0,
            owners: 0,
            is_within: true,
        });
    }

    fn id(&self, case: &C) -> u128 {
        digest(&format!("{case:?}"), self.scene.exact)
    }

    fn replay(&self, actions: &[u8]) -> C {
        let mut case = C::new(&self.scene.settings);
        for step in &self.scene.first {
            case.play_one(step);
        }
        for action in actions {
            case.play_one(&self.scene.actions[usize::from(*action)].step);
        }
        case
    }

    fn history(&self, mut node: u32) -> Vec<u8> {
        let mut actions = Vec::new();
        while node != 0 {
            let Node { parent, action, .. } = self.nodes[node as usize];
            actions.push(action);
            node = parent;
        }
        actions.reverse();
        actions
    }

    /// Every action from this state on.
    fn expand(&mut self, parent: u32) {
        let mut history = self.history(parent);
        let Node {
            owners, is_within, ..
        } = self.nodes[parent as usize];
        if !is_within {
            return;
        }
        for (number, action) in self.scene.actions.iter().enumerate() {
            if action
                .owner
                .is_some_and(|owner| owner > usize::from(owners))
            {
                continue;
            }
            history.push(number as u8);
            if let Some(is_within) = self.new_state(&history) {
                let acted = action.owner.map_or(0, |owner| owner as u8 + 1);
                self.nodes.push(Node {
                    parent,
                    action: number as u8,
                    owners: owners.max(acted),
                    is_within,
                });
            }
            history.pop();
            self.steps += 1;
        }
    }

    /// Plays the history. From a new state on, the case comes to rest. Returns whether the search goes on from there.
    fn new_state(&mut self, history: &[u8]) -> Option<bool> {
        let played = catch_unwind(AssertUnwindSafe(|| {
            let mut case = self.replay(history);
            let id = self.id(&case);
            let is_within = (self.scene.is_within)(&case);
            let is_new = !self.seen.contains(&id);
            if is_new {
                (self.scene.rest)(&mut case);
            }
            (is_new.then_some(is_within), id)
        }));
        let Ok((found, id)) = played else {
            let steps = history.iter();
            let steps = steps.map(|action| &self.scene.actions[usize::from(*action)].step);
            let steps: Vec<String> = steps.map(|step| format!("{step:?}")).collect();
            panic!(
                "{}: after {} states, the failure above comes from\n{}",
                self.scene.name,
                self.nodes.len(),
                steps.join("\n")
            );
        };
        self.seen.insert(id);
        found
    }
}
