//! Points of a comparison: each is measured in every round, so that other work of the machine affects all of them;
//! reported are medians over the rounds, and medians of the ratios within a round.

use std::io;

use crate::load::{measure, prepare, Effort, Measured, Step};
use crate::server::Server;
use crate::stats::Summary;

/// The number of requests that a connection has in flight.
pub const PIPELINES: [usize; 2] = [1, 16];

/// A cycle of commands that the load repeats.
pub struct Work {
    /// The name in the table, by which its points are found.
    pub name: &'static str,
    /// Sent once for every lock first.
    pub prepare: Vec<Step>,
    /// Repeated for every lock.
    pub steps: Vec<Step>,
}

/// The measurements of one work at one pipeline, of every round.
pub struct Point {
    /// The work, or the work and its server.
    pub name: String,
    /// Of `PIPELINES`.
    pub pipeline: usize,
    rounds: Vec<Measured>,
}

impl Point {
    /// Median and spread of a figure.
    pub fn summary(&self, figure: fn(&Measured) -> f64) -> Summary {
        summary(self.rounds.iter().map(figure).collect())
    }

    /// The ratio of the figure to that of another point, round by round: the median.
    pub fn ratio(&self, base: &Point, figure: fn(&Measured) -> f64) -> f64 {
        let pairs = self.rounds.iter().zip(&base.rounds);
        summary(
            pairs
                .map(|(own, base)| figure(own) / figure(base))
                .collect(),
        )
        .median
    }

    /// The cells that every table has: cycles per second and server time per cycle, each with its spread.
    pub fn cells(&self) -> Vec<String> {
        let (speed, cpu) = (self.summary(per_s), self.summary(cpu_us));
        vec![
            self.name.clone(),
            self.pipeline.to_string(),
            format!("{:.1}k", speed.median / 1_000.0),
            format!("{:.0}", speed.spread_percent()),
            format!("{:.2}", cpu.median),
            format!("{:.0}", cpu.spread_percent()),
        ]
    }
}

/// A table's head: `cells`, and the further columns.
pub fn columns(what: &str, unit: &str, more: &[&str]) -> Vec<String> {
    let mut columns = vec![
        what.to_string(),
        "pipeline".into(),
        format!("{unit}s/s"),
        "±%".into(),
        format!("server µs/{unit}"),
        "±%".into(),
    ];
    columns.extend(more.iter().map(|column| column.to_string()));
    columns
}

/// Cycles in a second.
pub fn per_s(measured: &Measured) -> f64 {
    measured.per_s
}

/// Server time per cycle.
pub fn cpu_us(measured: &Measured) -> f64 {
    measured.cpu_us
}

/// Zeros if nothing was measured.
fn summary(values: Vec<f64>) -> Summary {
    Summary::of(&values).unwrap_or(Summary {
        median: 0.0,
        min: 0.0,
        max: 0.0,
    })
}

/// All points of a comparison, in the order of their first measurement.
#[derive(Default)]
pub struct Points(Vec<Point>);

impl Points {
    /// Runs the works on a server, at every pipeline, in the order of this round.
    pub fn measure(
        &mut self,
        server: &Server,
        works: &[Work],
        round: usize,
        effort: &Effort,
    ) -> io::Result<()> {
        for pipeline in PIPELINES {
            for work in in_turn(works, round) {
                let measured = run(server, work, pipeline, effort)
                    .map_err(|error| io::Error::other(format!("{}: {error}", work.name)))?;
                self.add(work.name, pipeline, measured);
            }
        }
        Ok(())
    }

    /// Adds the results of a round.
    pub fn add(&mut self, name: &str, pipeline: usize, measured: Measured) {
        match self.position(name, pipeline) {
            Some(at) => self.0[at].rounds.push(measured),
            None => self.0.push(Point {
                name: name.into(),
                pipeline,
                rounds: vec![measured],
            }),
        }
    }

    /// The point of this name.
    pub fn get(&self, name: &str, pipeline: usize) -> io::Result<&Point> {
        let at = self.position(name, pipeline);
        at.map(|at| &self.0[at])
            .ok_or_else(|| io::Error::other(format!("{name} was not measured")))
    }

    /// All points.
    pub fn iter(&self) -> impl Iterator<Item = &Point> {
        self.0.iter()
    }

    /// The bottleneck, for a note. Of each point the median round is used: in a single one other programs may have used
    /// the cores.
    pub fn busy(&self) -> String {
        let server = |point: &Point| point.summary(|it| it.per_s * it.cpu_us / 1e4).median;
        let load = |point: &Point| point.summary(|it| it.load_busy * 100.0).median;
        format!(
            "The server's thread was busy for at least {:.0} % of the time, the load's for at most {:.0} %.",
            self.0.iter().map(server).fold(f64::INFINITY, f64::min),
            self.0.iter().map(load).fold(0.0, f64::max)
        )
    }

    fn position(&self, name: &str, pipeline: usize) -> Option<usize> {
        self.0
            .iter()
            .position(|point| point.name == name && point.pipeline == pipeline)
    }
}

/// Forwards in one round, backwards in the next.
pub fn in_turn<T>(all: &[T], round: usize) -> impl Iterator<Item = &T> {
    let last = all.len().saturating_sub(1);
    (0..all.len()).filter_map(move |at| all.get(if round % 2 == 0 { at } else { last - at }))
}

/// One work on an empty server. With a replica, after it has caught up.
fn run(server: &Server, work: &Work, pipeline: usize, effort: &Effort) -> io::Result<Measured> {
    let mut conn = server.conn()?;
    conn.ask("FLUSHALL")?;
    prepare(server, &work.prepare)?;
    if conn.ask("ROLE")?.contains("127.0.0.1") {
        conn.ask("WAIT 1 10000")?;
    }
    measure(server, &work.steps, pipeline, effort)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(per_s: f64) -> Measured {
        Measured {
            per_s,
            cpu_us: 1.0,
            load_busy: 0.5,
        }
    }

    #[test]
    fn every_second_round_goes_backwards() {
        assert_eq!(in_turn(&[1, 2, 3], 0).collect::<Vec<_>>(), [&1, &2, &3]);
        assert_eq!(in_turn(&[1, 2, 3], 1).collect::<Vec<_>>(), [&3, &2, &1]);
        assert_eq!(in_turn::<i32>(&[], 1).count(), 0);
    }

    #[test]
    fn ratios_are_taken_within_a_round() -> io::Result<()> {
        let mut points = Points::default();
        // The machine was half as fast in the second round, and slower still in the third.
        for (slow, fast) in [(100.0, 200.0), (50.0, 100.0), (30.0, 90.0)] {
            points.add("slow", 1, measured(slow));
            points.add("fast", 1, measured(fast));
        }
        let (slow, fast) = (points.get("slow", 1)?, points.get("fast", 1)?);
        assert_eq!(fast.ratio(slow, per_s), 2.0);
        assert_eq!(fast.summary(per_s).median, 100.0);
        assert!(points.get("fast", 16).is_err());
        Ok(())
    }
}
