//! The two servers, and the run of a case on both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redis_lock_harness::clock::stop_clock;
use redis_lock_harness::replica::PROMPT_MASTER;
use redis_lock_harness::TestServer;

use crate::case::Case;
use crate::outcome::Outcome;
use crate::scripts::Scripts;
use crate::side::{dump, load, with_clock, Side};
use crate::wire::printable;

/// The time at which all clocks are stopped.
const NOW: i64 = 1_800_000_000_000;
/// Each case has a database of its own until the replicas are compared.
const DATABASES: usize = 100;

#[derive(Clone, Copy, PartialEq)]
pub enum Replicas {
    None,
    Attached,
}

pub struct Sides {
    lua: Side,
    other: Side,
    clock: PathBuf,
    /// The cases since the last comparison of the replicas.
    played: Vec<Case>,
    /// The first difference, unreduced, in case it does not occur when the case is run alone.
    first_difference: Vec<String>,
    replies: BTreeMap<String, usize>,
}

impl Sides {
    /// Lua on one side, the module on the other.
    pub fn lua_and_native(scripts: &Scripts, replicas: Replicas) -> Sides {
        let sides = Sides::start(scripts, replicas, TestServer::with);
        let on = sides
            .other
            .server
            .conn()
            .line("CONFIG SET lock.redisson-scripts yes");
        assert_eq!(on.text(), "OK");
        sides
    }

    /// Lua on both sides.
    pub fn lua_and_lua(scripts: &Scripts, replicas: Replicas) -> Sides {
        Sides::start(scripts, replicas, TestServer::without_module)
    }

    /// Replaces a script by another text on the other side.
    pub fn replace(&mut self, script: usize, text: &[u8]) {
        let place = &mut self.other.scripts.0[script];
        place.text = text.to_vec();
        place.sha1 = load(&mut self.other.resp2, text);
    }

    fn start(
        scripts: &Scripts,
        replicas: Replicas,
        other: impl Fn(&[&str]) -> TestServer,
    ) -> Sides {
        let databases = DATABASES.to_string();
        // Some servers read the clock in their cron only, so it runs often.
        let more = ["--databases", &databases, "--hz", "500"];
        let options = [&PROMPT_MASTER[..], &more].concat();
        let lua = TestServer::without_module(&options);
        let clock = lua.dir().join("clock");
        stop_clock(&clock, NOW);
        let side = |server| {
            let server = with_clock(server, &clock);
            let replica = (replicas == Replicas::Attached)
                .then(|| with_clock(TestServer::without_module(&options), &clock));
            Side::of(server, replica, scripts.clone())
        };
        Sides {
            lua: side(lua),
            other: side(other(&options)),
            played: Vec::new(),
            first_difference: Vec::new(),
            replies: BTreeMap::new(),
            clock,
        }
    }

    /// Runs a case. Returns the case on which the sides differ: this one, or an earlier one if only the replicas
    /// differ.
    pub fn disagree_on(&mut self, case: &Case) -> Option<Case> {
        let (lua, other) = self.play(case, self.played.len());
        for reply in lua.replies() {
            *self.replies.entry(reply).or_default() += 1;
        }
        if lua != other {
            self.first_difference = lua.differences(&other);
            return Some(case.clone());
        }
        self.played.push(case.clone());
        if self.played.len() < DATABASES {
            return None;
        }
        self.disagreeing_replica()
    }

    /// Compares the replicas, and starts with empty databases.
    pub fn disagreeing_replica(&mut self) -> Option<Case> {
        let played = std::mem::take(&mut self.played);
        let case = (0..played.len()).find_map(|database| {
            let lua = dump(&mut self.lua.resp2, database);
            let sides = [&mut self.lua, &mut self.other].into_iter();
            let mut replicas = sides.filter_map(|side| side.dump_of_replica(database));
            let different = replicas.find(|dataset| *dataset != lua)?;
            self.first_difference = vec![printable(&lua), printable(&different)];
            Some(played[database].clone())
        });
        self.flush();
        case
    }

    /// Empties all databases.
    pub fn forget(&mut self) {
        self.played.clear();
        self.flush();
    }

    fn flush(&mut self) {
        for side in [&mut self.lua, &mut self.other] {
            side.resp2.line("FLUSHALL");
        }
    }

    /// Whether the sides differ on this case alone, replicas included; and their outcomes.
    fn alone(&mut self, case: &Case) -> (Outcome, Outcome) {
        self.forget();
        let (mut lua, mut other) = self.play(case, 0);
        for (side, outcome) in [(&mut self.lua, &mut lua), (&mut self.other, &mut other)] {
            outcome.on_replica = side.dump_of_replica(0);
        }
        (lua, other)
    }

    /// Removes the parts that the difference does not need.
    pub fn shrink(&mut self, mut case: Case) -> Case {
        loop {
            let simpler = case.simpler().into_iter().find(|simpler| {
                let (lua, other) = self.alone(simpler);
                lua != other
            });
            match simpler {
                Some(simpler) => case = simpler,
                None => return case,
            }
        }
    }

    /// The commands, and the differing replies.
    pub fn transcript(&mut self, case: &Case) -> String {
        let mut lines = vec![format!("RESP{}", if case.resp3 { 3 } else { 2 })];
        for command in &case.setup {
            let words: Vec<String> = command.iter().map(|word| printable(word)).collect();
            lines.push(format!("> {words:?}"));
        }
        if case.later > 0 {
            lines.push(format!("({} ms later)", case.later));
        }
        let prefix = if case.in_transaction { "MULTI> " } else { "> " };
        for call in &case.calls {
            let script = &self.lua.scripts.0[call.script];
            lines.push(format!("{prefix}{}", call.describe(script)));
        }
        let (lua, other) = self.alone(case);
        if lua == other {
            lines.push("not when played alone; at first".into());
            lines.append(&mut self.first_difference);
        }
        lines.extend(lua.differences(&other));
        lines.join("\n")
    }

    fn play(&mut self, case: &Case, database: usize) -> (Outcome, Outcome) {
        let mut both = [&mut self.lua, &mut self.other];
        let setup = case.setup.len();
        both.iter_mut()
            .for_each(|side| side.send_setup(case, database));
        let made = both.each_mut().map(|side| side.receive(case, setup + 2));
        both.iter_mut()
            .for_each(|side| side.look_away(case, database));
        if case.later > 0 {
            set_clock(&self.clock, &mut both, NOW + case.later);
        }
        both.iter_mut().for_each(|side| side.send_calls(case));
        let [mut lua, mut other] = made.map(|made| Outcome::of(&made[1..=setup]));
        for (side, outcome) in both.iter_mut().zip([&mut lua, &mut other]) {
            side.see_calls(case, outcome);
        }
        if case.later > 0 {
            set_clock(&self.clock, &mut both, NOW);
        }
        (lua, other)
    }

    /// Prints how much was run, and how the calls were executed.
    pub fn report(&self) {
        println!("replies: {:?}", self.replies);
        let info = self.other.server.conn().run(["INFO", "lock"]).text();
        for line in info.lines().filter(|line| line.contains("redisson")) {
            println!("{line}");
        }
    }
}

/// Advances the clock; when this returns, the servers have noticed it.
fn set_clock(clock: &Path, sides: &mut [&mut Side; 2], moment: i64) {
    stop_clock(clock, moment);
    for side in sides {
        side.wait_for_moment(moment);
    }
}
