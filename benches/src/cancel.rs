//! Waiters that give up: the server's cost to park thousands of them on one key and to remove them again, by their
//! number. The cost of one must not depend on the number of others.

use std::io;
use std::time::Duration;

use crate::cells::{count, short, with_spread};
use crate::crowd::{room, wait_for, Crowd, MANY_CLIENTS};
use crate::load::Effort;
use crate::points::in_turn;
use crate::report::Section;
use crate::ring::filled;
use crate::server::Server;
use crate::stats::Summary;
use crate::wire::{line, Conn};

/// Longer than it takes to park all of them.
const LIMIT: Duration = Duration::from_millis(1_500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiters {
    /// Idle connections.
    None,
    Module,
    Blpop,
}

impl Waiters {
    fn name(self) -> &'static str {
        match self {
            Waiters::None => "connected only",
            Waiters::Module => "this module",
            Waiters::Blpop => "BLPOP",
        }
    }

    fn park(self, member: usize, end: End) -> Vec<u8> {
        let limit = if end == End::Limit {
            LIMIT
        } else {
            Duration::ZERO
        };
        let (ms, seconds) = (limit.as_millis(), limit.as_secs_f64());
        match self {
            Waiters::None => line("PING"),
            Waiters::Module => filled(&format!("LOCK.ACQUIRE {{k}} {{o}} BLOCK {ms}"), 0, member),
            Waiters::Blpop => filled(&format!("BLPOP {{k}} {seconds}"), 0, member),
        }
    }
}

/// The way in which a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Limit,
    Unblock,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Close => "connection closed",
            End::Limit => "time limit",
            End::Unblock => "CLIENT UNBLOCK",
        }
    }
}

const SERIES: [(End, Waiters); 7] = [
    (End::Close, Waiters::None),
    (End::Close, Waiters::Blpop),
    (End::Close, Waiters::Module),
    (End::Limit, Waiters::Blpop),
    (End::Limit, Waiters::Module),
    (End::Unblock, Waiters::Blpop),
    (End::Unblock, Waiters::Module),
];

/// The server's time for one of this many waiters, from its parking to its removal.
fn cpu_each(end: End, waiters: Waiters, number: usize) -> io::Result<f64> {
    // The server's regular work runs only once a second: it would count as the waiters'.
    let options = [&MANY_CLIENTS[..], &["--hz", "1", "--dynamic-hz", "no"]].concat();
    let server = Server::pinned(&options, waiters == Waiters::Module)?;
    let mut control = server.conn()?;
    if waiters == Waiters::Module {
        control.ask("CONFIG SET lock.queue-grace 50")?;
        control.ask("LOCK.ACQUIRE lock:0 holder PX 600000")?;
    }
    let mut crowd = Crowd::connect(&server, number)?;
    let ids = if end == End::Unblock {
        ids(&mut crowd)?
    } else {
        Vec::new()
    };
    let before = server.cpu_us();
    for member in 0..number {
        crowd.send(member, &waiters.park(member, end))?;
    }
    match (end, waiters) {
        (_, Waiters::None) => answered(&mut crowd)?,
        (End::Limit, _) => {}
        _ => wait_for(&mut control, "clients", "blocked_clients", number)?,
    }
    match end {
        End::Close => {
            drop(crowd);
            wait_for(&mut control, "clients", "connected_clients", 1)?;
        }
        End::Limit => answered(&mut crowd)?,
        End::Unblock => {
            unblock(&mut control, &ids)?;
            answered(&mut crowd)?;
        }
    }
    if waiters == Waiters::Module {
        wait_for(&mut control, "lock", "lock_places_kept", 0)?;
    }
    Ok((server.cpu_us() - before) / number as f64)
}

/// The server's ids of these clients.
fn ids(crowd: &mut Crowd) -> io::Result<Vec<String>> {
    let members = 0..crowd.len();
    let id = |member| {
        let reply = crowd.ask(member, &line("CLIENT ID"))?;
        let id = String::from_utf8_lossy(&reply);
        Ok(id.trim().trim_start_matches(':').to_string())
    };
    members.map(id).collect()
}

fn answered(crowd: &mut Crowd) -> io::Result<()> {
    (0..crowd.len()).try_for_each(|_| crowd.next().map(drop))
}

fn unblock(control: &mut Conn, ids: &[String]) -> io::Result<()> {
    for batch in ids.chunks(1_000) {
        let requests = batch
            .iter()
            .map(|id| line(&format!("CLIENT UNBLOCK {id} TIMEOUT")));
        control.send(&requests.collect::<Vec<_>>().concat())?;
        for _ in batch {
            control.reply()?;
        }
    }
    Ok(())
}

/// The title of the section.
pub const TITLE: &str = "Waits that end without a grant";

/// Measures and reports.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let (numbers, rounds): (&[usize], usize) = if effort.quick {
        (&[200, 1_000], 1)
    } else {
        (&[1_000, 3_000, 10_000], 3)
    };
    let room = room(1)?;
    let numbers: Vec<usize> = numbers.iter().map(|number| (*number).min(room)).collect();
    // By series, by number of waiters: the rounds.
    let mut figures = vec![vec![Vec::new(); numbers.len()]; SERIES.len()];
    let order: Vec<usize> = (0..SERIES.len()).collect();
    for round in 0..rounds {
        eprintln!("parked and let go: round {} of {rounds}", round + 1);
        for at in in_turn(&order, round) {
            let (end, waiters) = SERIES[*at];
            for (number, rounds) in numbers.iter().zip(&mut figures[*at]) {
                rounds.push(cpu_each(end, waiters, *number)?);
            }
        }
    }
    let mut columns = vec!["how the wait ends, and where".to_string()];
    columns.extend(
        numbers
            .iter()
            .map(|number| format!("of {}: us each", count(*number))),
    );
    columns.push("last to first".into());
    let rows = SERIES
        .iter()
        .zip(&figures)
        .map(|((end, waiters), figures)| {
            let mut row = vec![format!("{}: {}", end.name(), waiters.name())];
            row.extend(figures.iter().map(|rounds| with_spread(rounds)));
            row.push(last_to_first(figures).map_or_else(String::new, short));
            row
        });
    let notes = [
        "The server's time on its core for one waiter, from the request that parks it to the moment \
         when its last entry is gone; all wait on one key. \"Connected only\" sends a PING instead of \
         waiting: the cost of reading and answering a request, and of closing a connection.",
        "The place in the queue is kept for lock.queue-grace, here 50 ms; its removal is included. The \
         time limit is 1.5 s; the server's regular work runs once a second (hz 1).",
    ];
    Ok(vec![Section {
        title: TITLE.into(),
        text: "The cost of a waiter that gives up. A total that is linear in the number of waiters is \
        constant for each.".into(),
        columns,
        rows: rows.collect(),
        remarks: Vec::new(),
        notes: notes.map(String::from).to_vec(),
        image: None,
    }])
}

fn last_to_first(figures: &[Vec<f64>]) -> Option<f64> {
    let median = |rounds: &Vec<f64>| Summary::of(rounds).map(|all| all.median);
    Some(median(figures.last()?)? / median(figures.first()?)?)
}
