//! The module's cost for other commands: GET, SET and SET with DEL, on a server without it, with it, after one wait for
//! a lock, and during one.

use std::io;

use crate::load::{measure as measure_load, prepare, step, Effort};
use crate::points::{columns, cpu_us, in_turn, per_s, Points, Work, PIPELINES};
use crate::report::Section;
use crate::server::Server;
use crate::wire::{line, Conn};

/// The state of the server.
#[derive(Clone, Copy, PartialEq)]
enum State {
    WithoutModule,
    Loaded,
    ParkedOnce,
    OneWaits,
}

use State::{Loaded, OneWaits, ParkedOnce, WithoutModule};

const STATES: [State; 4] = [WithoutModule, Loaded, ParkedOnce, OneWaits];

impl State {
    fn name(self) -> &'static str {
        match self {
            WithoutModule => "without the module",
            Loaded => "the module loaded",
            ParkedOnce => "after the first park",
            OneWaits => "while one waits",
        }
    }
}

/// The title of the section.
pub const TITLE: &str = "Cost for other commands";

/// Measures all of them.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let mut points = Points::default();
    for round in 0..effort.rounds {
        println!("other commands, round {}", round + 1);
        measure_round(&mut points, round, effort)?;
    }
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for work in works() {
            let base = points.get(&name(&work, WithoutModule), pipeline)?;
            for state in STATES {
                let point = points.get(&name(&work, state), pipeline)?;
                let mut row = point.cells();
                row.push(percent(point.ratio(base, per_s)));
                row.push(percent(point.ratio(base, cpu_us)));
                rows.push(row);
            }
        }
    }
    Ok(vec![Section {
        title: TITLE.into(),
        text: "Commands that have nothing to do with locks. From the first park on the module \
        subscribes to the server's key events, which makes hand-offs after a plain DEL possible."
            .into(),
        columns: columns("command", "cycle", &["cycles/s", "µs"]),
        rows,
        remarks: vec![points.busy()],
        notes: vec![
            "The last two columns are changes against the server without the module: medians of the rounds' \
             ratios. A change smaller than the spread is not a finding; the instructions in INSTRUCTIONS.md repeat."
                .into(),
        ],
        image: None,
    }])
}

/// All servers of a round run at the same time, so that one command is measured on all of them in a row.
fn measure_round(points: &mut Points, round: usize, effort: &Effort) -> io::Result<()> {
    let hosts: Vec<Host> = STATES
        .into_iter()
        .map(Host::start)
        .collect::<io::Result<_>>()?;
    for pipeline in PIPELINES {
        for work in works() {
            for host in in_turn(&hosts, round) {
                prepare(&host.server, &work.prepare)?;
                let measured = measure_load(&host.server, &work.steps, pipeline, effort)?;
                points.add(&name(&work, host.state), pipeline, measured);
            }
        }
    }
    Ok(())
}

fn name(work: &Work, state: State) -> String {
    format!("{}, {}", work.name, state.name())
}

fn works() -> [Work; 3] {
    let set = || step(&["SET", "{k}", "{o}"], "+OK");
    let work = |name, steps| Work {
        name,
        prepare: vec![set()],
        steps,
    };
    [
        work("GET", vec![step(&["GET", "{k}"], "$39")]),
        work("SET", vec![set()]),
        work("SET and DEL", vec![set(), step(&["DEL", "{k}"], ":1")]),
    ]
}

struct Host {
    state: State,
    server: Server,
    /// The connection that waits, as long as this lives.
    _waiter: Conn,
}

impl Host {
    fn start(state: State) -> io::Result<Host> {
        let server = Server::pinned(&[], state != WithoutModule)?;
        let mut waiter = server.conn()?;
        match state {
            WithoutModule | Loaded => {}
            ParkedOnce => {
                waiter.ask("LOCK.ACQUIRE parked a")?;
                waiter.ask("LOCK.ACQUIRE parked b BLOCK 1")?;
                waiter.ask("LOCK.RELEASE parked a")?;
            }
            OneWaits => {
                waiter.ask("LOCK.ACQUIRE parked a EX 3600")?;
                waiter.send(&line("LOCK.ACQUIRE parked b BLOCK 0"))?;
            }
        }
        Ok(Host {
            state,
            server,
            _waiter: waiter,
        })
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_a_sign() {
        assert_eq!(percent(1.034), "+3.4 %");
        assert_eq!(percent(0.9), "-10.0 %");
    }
}
