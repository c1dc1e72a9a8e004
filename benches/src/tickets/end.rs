//! The common end of all tickets: its time, and how long the server does not answer meanwhile.

use std::io;
use std::time::{Duration, Instant};

use super::listener::Listener;
use super::pings::{Pings, Stall};
use super::queue::{pipelined, Queue};
use crate::crowd::wait_for;
use crate::server::Server;
use crate::wire::{info_field, Conn};

/// The way in which all tickets end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Purge,
    Death,
    Limit,
}

/// The time limit is last: the others show how long it takes to enqueue the tickets.
pub const ALL: [End; 3] = [End::Purge, End::Death, End::Limit];

impl End {
    pub fn name(self) -> &'static str {
        match self {
            End::Limit => "time limit",
            End::Purge => "LOCK.BREAK PURGE",
            End::Death => "subscriber dead",
        }
    }

    /// A word of the messages; none is published to a dead subscriber.
    fn word(self) -> Option<&'static str> {
        match self {
            End::Limit => Some("timeout"),
            End::Purge => Some("LOCKBROKEN"),
            End::Death => None,
        }
    }
}

/// The figures of an end.
pub struct Ended {
    /// Until the server has no ticket left.
    pub took: Duration,
    /// Until the subscriber has read the last message.
    pub heard: Option<Duration>,
    /// Microseconds of the server's thread for one of them.
    pub cpu_us: f64,
    /// The longest time until a PING was answered.
    pub stall: Stall,
    /// The longest pass of the event loop, where the server measures it (Redis 7.2, Valkey 8).
    pub tick: Option<Duration>,
}

/// No end takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two readings of INFO.
const LOOK: Duration = Duration::from_millis(5);

/// Ends all tickets in this way, which for a time limit is at this moment.
pub fn measure(
    server: &Server,
    queue: Queue,
    end: End,
    deadline: Option<Instant>,
) -> io::Result<Ended> {
    let (number, releases, purges) = (queue.len(), queue.releases(), queue.purges());
    let listener = end.word().map(|word| Listener::start(server, number, word));
    let listener = listener.transpose()?;
    // Its connections close: without a listener the last subscriber is gone.
    drop(queue);
    let mut control = server.conn()?;
    // The caller's, this one, that of the PINGs, and the listener's.
    let clients = 3 + usize::from(listener.is_some());
    control.ask("CONFIG RESETSTAT")?;
    let pings = Pings::start(server)?;
    wait_for(&mut control, "clients", "connected_clients", clients)?;
    if control.info("lock", "lock_tickets")? != number as f64 {
        return Err(io::Error::other("not all tickets wait"));
    }
    let start = deadline.unwrap_or_else(Instant::now);
    let until = start.checked_duration_since(Instant::now());
    if until.is_none() && end == End::Limit {
        let late = "the tickets' time was over before all was ready: the machine is too busy";
        return Err(io::Error::other(late));
    }
    std::thread::sleep(until.unwrap_or_default());
    let cpu = server.cpu_us();
    match end {
        End::Limit => {}
        End::Purge => one_by_one(&mut control, &purges, b":")?,
        End::Death => one_by_one(&mut control, &releases, b":1")?,
    }
    let took = gone(&mut control, "lock_tickets", start)?;
    let cpu_us = (server.cpu_us() - cpu) / number as f64;
    let heard = listener.map(Listener::done).transpose()?;
    gone(&mut control, "lock_places_kept", start)?;
    let stall = pings.stop()?;
    let tick = longest_tick(&mut control)?;
    drop(control);
    wait_for(&mut server.conn()?, "clients", "connected_clients", 2)?;
    Ok(Ended {
        took,
        heard: heard.map(|at| at - start),
        cpu_us,
        stall,
        tick,
    })
}

/// Sent together, requests for thousands of keys would be one stall.
fn one_by_one(conn: &mut Conn, requests: &[Vec<u8>], reply: &[u8]) -> io::Result<()> {
    let each = |request: &Vec<u8>| pipelined(conn, [request.clone()].into_iter(), reply);
    requests.iter().try_for_each(each)
}

/// The time until this field of INFO is 0.
fn gone(control: &mut Conn, field: &str, start: Instant) -> io::Result<Duration> {
    while control.info("lock", field)? > 0.0 {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{field} never became 0")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(start.elapsed())
}

fn longest_tick(control: &mut Conn) -> io::Result<Option<Duration>> {
    let info = control.ask("INFO debug")?;
    let us = info_field(&info, "eventloop_duration_max").and_then(|us| us.parse().ok());
    Ok(us.map(Duration::from_micros))
}
