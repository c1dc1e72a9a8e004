//! The cost of a hand-off, by the number of waiters: the time from the holder's release to the next grant, the server's
//! time on its core, and the number of messages.

use std::io;
use std::time::{Duration, Instant};

use crate::cells::{count, short, with_spread};
use crate::crowd::{room, MANY_CLIENTS};
use crate::herd::Herd;
use crate::load::Effort;
use crate::pictures::HAND_OFF;
use crate::report::Section;
use crate::ring::{Ring, BLPOP, MODULE};
use crate::server::Server;
use crate::stats::{quantile, Summary};
use crate::wire::Conn;

/// The peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Module,
    Blpop,
    Redisson,
}

const PEERS: [Peer; 3] = [Peer::Blpop, Peer::Module, Peer::Redisson];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Module => "this module",
            Peer::Blpop => "BLPOP",
            Peer::Redisson => "Redisson's protocol",
        }
    }

    fn connections_each(self) -> usize {
        if self == Peer::Redisson {
            2
        } else {
            1
        }
    }

    /// The number of waiters that fits, beside a holder.
    fn fitting(self, waiters: usize) -> io::Result<usize> {
        let room = room(self.connections_each())?;
        Ok(if waiters < room {
            waiters
        } else {
            (room - 1) / 100 * 100
        })
    }

    /// Hand-offs in one round: enough for a second or two.
    fn samples(self, waiters: usize, quick: bool) -> usize {
        let samples = match self {
            Peer::Redisson => (30_000 / waiters).clamp(4, 2_000),
            _ => 2_000,
        };
        if quick {
            samples.min(200)
        } else {
            samples
        }
    }

    fn start(self, server: &Server, waiters: usize) -> io::Result<Game> {
        Ok(match self {
            Peer::Module => Game::Ring(Ring::new(server, &MODULE, 1, waiters)?),
            Peer::Blpop => Game::Ring(Ring::new(server, &BLPOP, 1, waiters)?),
            Peer::Redisson => Game::Herd(Herd::new(server, waiters)?),
        })
    }
}

enum Game {
    Ring(Ring),
    Herd(Herd),
}

impl Game {
    fn hand_off(&mut self) -> io::Result<Duration> {
        match self {
            Game::Ring(ring) => ring.hand_off(0),
            Game::Herd(herd) => herd.hand_off(),
        }
    }

    /// The time of each in microseconds, of so many or of as many as [`LONGEST_ROUND`] leaves time for.
    fn hand_offs(&mut self, count: usize) -> io::Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        let start = Instant::now();
        while times.len() < count && start.elapsed() < LONGEST_ROUND {
            times.push(self.hand_off()?.as_nanos() as f64 / 1_000.0);
        }
        Ok(times)
    }
}

/// After this time a round, and before it its warm-up, ends with fewer hand-offs: with 10,000 clients in BLPOP, Valkey
/// 9.1 takes a tenth of a second for each.
const LONGEST_ROUND: Duration = Duration::from_secs(8);

/// The server's counters.
#[derive(Debug, Clone, Copy)]
struct Meter {
    cpu_us: f64,
    messages: f64,
    commands: f64,
}

impl Meter {
    fn read(server: &Server, control: &mut Conn) -> io::Result<Meter> {
        let mut stat = |name| control.info("stats", name);
        let reads = stat("total_reads_processed")?;
        let writes = stat("total_writes_processed")?;
        let commands = stat("total_commands_processed")?;
        Ok(Meter {
            cpu_us: server.cpu_us(),
            messages: reads + writes,
            commands,
        })
    }

    /// The difference for one of this many hand-offs. Between two readings of a field the reader sends three requests:
    /// their messages are not counted.
    fn since(self, before: Meter, hand_offs: usize) -> Meter {
        let each = |difference: f64| difference / hand_offs as f64;
        Meter {
            cpu_us: each(self.cpu_us - before.cpu_us),
            messages: each(self.messages - before.messages - 6.0),
            commands: each(self.commands - before.commands - 3.0),
        }
    }
}

/// One peer with one number of waiters, over all rounds.
struct Figures {
    peer: Peer,
    /// The number of waiters.
    waiters: usize,
    /// Every hand-off, in microseconds.
    times_us: Vec<f64>,
    /// The median of every round.
    medians_us: Vec<f64>,
    /// The cost of a hand-off, of every round.
    meters: Vec<Meter>,
}

impl Figures {
    fn p50(&self) -> f64 {
        median(&self.medians_us)
    }

    fn of_meters(&self, field: fn(&Meter) -> f64) -> Vec<f64> {
        self.meters.iter().map(field).collect()
    }

    fn round(&mut self, quick: bool) -> io::Result<()> {
        let (peer, waiters) = (self.peer, self.waiters);
        let server = Server::pinned(&MANY_CLIENTS, peer == Peer::Module)?;
        let mut game = peer.start(&server, waiters)?;
        let samples = peer.samples(waiters, quick);
        let warmed_up = game.hand_offs(samples.div_ceil(20))?.len();
        let mut control = server.conn()?;
        let before = Meter::read(&server, &mut control)?;
        let mut times = game.hand_offs(samples)?;
        let samples = times.len();
        let after = Meter::read(&server, &mut control)?;
        if peer == Peer::Module {
            check_parked(&mut control, warmed_up + samples)?;
        }
        self.meters.push(after.since(before, samples));
        self.medians_us.push(median(&times));
        self.times_us.append(&mut times);
        Ok(())
    }
}

/// Of the members that asked again, at most one in a hundred may have found the lock free: the server was interrupted
/// for longer than the pause before the release.
fn check_parked(control: &mut Conn, hand_offs: usize) -> io::Result<()> {
    let granted = control.info("lock", "lock_waits_granted")?;
    if granted < hand_offs as f64 * 0.99 {
        let too_few = format!("{granted} of {hand_offs} hand-offs went to a parked request");
        return Err(io::Error::other(too_few));
    }
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(f64::NAN, |all| all.median)
}

/// The title of the section.
pub const TITLE: &str = "Hand-off";

/// Measures and reports.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let image = (!effort.quick).then(|| format!("../../docs/{HAND_OFF}"));
    Ok(vec![section(&figures(effort.quick)?, image)])
}

/// Runs all rounds; the order of the peers is reversed every other round.
fn figures(quick: bool) -> io::Result<Vec<Figures>> {
    let (crowds, rounds): (&[usize], usize) = if quick {
        (&[1, 100], 3)
    } else {
        (&[1, 100, 1_000, 10_000], 5)
    };
    let mut all = Vec::new();
    for &wanted in crowds {
        let mut these = Vec::new();
        for peer in PEERS {
            let waiters = peer.fitting(wanted)?;
            these.push(Figures {
                peer,
                waiters,
                times_us: Vec::new(),
                medians_us: Vec::new(),
                meters: Vec::new(),
            });
        }
        for round in 0..rounds {
            eprintln!(
                "hand-off: {wanted} waiters, round {} of {rounds}",
                round + 1
            );
            these
                .iter_mut()
                .try_for_each(|figures| figures.round(quick))?;
            these.reverse();
        }
        these.sort_by_key(|figures| PEERS.iter().position(|peer| *peer == figures.peer));
        all.append(&mut these);
    }
    Ok(all)
}

/// The table of the section.
fn section(all: &[Figures], image: Option<String>) -> Section {
    let columns = [
        "waiters, and the mechanism",
        "p50 us",
        "p99 us",
        "to BLPOP",
        "server CPU us",
        "messages",
        "commands",
        "samples",
    ];
    let rows = all.iter().map(|figures| row(figures, all)).collect();
    let notes = [
        "One lock, the holder and every waiter on a connection of its own. The holder releases, the first waiter is granted; the former holder then parks again at the end, so that the queue keeps its length. Timed from the moment before the release is written to the moment after the grant was read, in one client thread (epoll); the next release comes when the server has been idle for 100 us.",
        "p50: the median of the rounds' medians, and the rounds' range; each round is a new server and \
         new connections, and the peers alternate. p99: of all samples together; of less than a hundred \
         it is about the largest. A round ends after eight seconds, with fewer samples. To BLPOP: the p50 in units of BLPOP's at about the same number of waiters.",
        "Server CPU, messages (reads and writes of sockets) and commands are of a whole cycle: the release, the grant, and the former holder's parking. Redis counts the calls that a script makes as commands.",
        "BLPOP passes a token in a list: it knows no owner and no lease, and a holder that dies takes \
         the token with it.",
        "Redisson's protocol is simulated by this project's scripts with the same calls, sent by their \
         hash: every waiter is a process of its own, with a connection for commands and one for its \
         subscription (threads of one JVM share a subscription, and one of them tries). Its sample ends \
         when the winner has read that it has the lock; the next release waits until all the others \
         have tried and been refused, which favours Redisson's protocol. Its number of waiters is \
         bounded by open files, two for each.",
    ];
    Section {
        title: TITLE.into(),
        text: "The time from a holder's release to the next waiter's grant, and its cost for the server.".into(),
        columns: columns.map(String::from).to_vec(),
        rows,
        remarks: Vec::new(),
        notes: notes.map(String::from).to_vec(),
        image,
    }
}

fn row(figures: &Figures, all: &[Figures]) -> Vec<String> {
    // Every number of waiters has three rows, BLPOP's first.
    let place = all.iter().position(|other| std::ptr::eq(other, figures));
    let blpop = place.and_then(|place| all.get(place / PEERS.len() * PEERS.len()));
    let ratio = blpop.map_or(f64::NAN, |blpop| figures.p50() / blpop.p50());
    vec![
        format!("{} {}", count(figures.waiters), figures.peer.name()),
        with_spread(&figures.medians_us),
        quantile(&figures.times_us, 0.99).map_or_else(String::new, short),
        short(ratio),
        with_spread(&figures.of_meters(|meter| meter.cpu_us)),
        short(median(&figures.of_meters(|meter| meter.messages))),
        short(median(&figures.of_meters(|meter| meter.commands))),
        count(figures.times_us.len()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(peer: Peer, waiters: usize, p50: f64) -> Figures {
        let (cpu_us, messages, commands) = (10.0, 4.0, 2.0);
        Figures {
            peer,
            waiters,
            times_us: vec![p50; 3],
            medians_us: vec![p50],
            meters: vec![Meter {
                cpu_us,
                messages,
                commands,
            }],
        }
    }

    #[test]
    fn every_peer_is_compared_with_blpop_at_the_same_number_of_waiters() {
        let all = [
            figures(PEERS[0], 1, 20.0),
            figures(PEERS[1], 1, 25.0),
            figures(PEERS[2], 1, 50.0),
            figures(PEERS[0], 10_000, 10.0),
            figures(PEERS[1], 10_000, 15.0),
            figures(PEERS[2], 9_900, 4_000.0),
        ];
        let rows = section(&all, None).rows;
        let ratios: Vec<&str> = rows.iter().map(|row| row[3].as_str()).collect();
        assert_eq!(ratios, ["1.00", "1.25", "2.50", "1.00", "1.50", "400"]);
        assert_eq!(rows[5][0], "9,900 Redisson's protocol");
    }

    #[test]
    fn the_reader_of_the_counters_is_not_counted() {
        let before = Meter {
            cpu_us: 5.0,
            messages: 10.0,
            commands: 7.0,
        };
        let after = Meter {
            cpu_us: 105.0,
            messages: 56.0,
            commands: 30.0,
        };
        let each = after.since(before, 10);
        assert_eq!(
            (each.cpu_us, each.messages, each.commands),
            (10.0, 4.0, 2.0)
        );
    }

    #[test]
    fn a_herd_has_few_samples_where_each_takes_long() {
        let samples = |waiters| Peer::Redisson.samples(waiters, false);
        assert_eq!([1, 100, 1_000, 9_900].map(samples), [2_000, 300, 30, 4]);
        assert_eq!(Peer::Module.samples(10_000, false), 2_000);
    }
}
