//! The server's memory for a waiter, after its buffers have been trimmed: beside an idle connection, beside a waiter in
//! BLPOP, and the module's own share of it.

use std::io;
use std::time::{Duration, Instant};

use crate::cells::{count, short};
use crate::crowd::{room, wait_for, Crowd, MANY_CLIENTS};
use crate::load::Effort;
use crate::report::Section;
use crate::ring::{Words, BLPOP, MODULE};
use crate::server::Server;
use crate::tickets;
use crate::wire::{line, Conn};

/// The server trims the buffers of its clients within half a minute, and gets no longer than this.
const SETTLING: Duration = Duration::from_secs(40);

/// Memory that has not fallen for this long is regarded as settled.
const STILL: Duration = Duration::from_secs(6);

/// The memory of a server, or a part of it, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// As the server counts it: used_memory.
    pub used: f64,
    /// As the kernel counts it.
    pub resident: f64,
}

impl Memory {
    /// Reads it from INFO.
    pub fn read(control: &mut Conn) -> io::Result<Memory> {
        Ok(Memory {
            used: control.info("memory", "used_memory")?,
            resident: control.info("memory", "used_memory_rss")?,
        })
    }

    /// The difference for one of this many.
    pub fn each_since(self, before: Memory, number: usize) -> Memory {
        Memory {
            used: (self.used - before.used) / number as f64,
            resident: (self.resident - before.resident) / number as f64,
        }
    }
}

/// A server with clients that are idle first, and then wait.
struct Place {
    _server: Server,
    control: Conn,
    words: &'static Words,
    crowd: Crowd,
    empty: Memory,
}

impl Place {
    fn new(words: &'static Words, number: usize) -> io::Result<Place> {
        let server = Server::pinned(&MANY_CLIENTS, words.module)?;
        let mut control = server.conn()?;
        if words.module {
            control.ask("CONFIG SET lock.queue-grace 60000")?;
            control.ask("LOCK.ACQUIRE lock:0 holder PX 600000")?;
        }
        let empty = Memory::read(&mut control)?;
        let mut crowd = Crowd::connect(&server, number)?;
        for member in 0..number {
            crowd.ask(member, &line("PING"))?;
        }
        Ok(Place {
            _server: server,
            control,
            words,
            crowd,
            empty,
        })
    }

    fn park(&mut self) -> io::Result<()> {
        for member in 0..self.crowd.len() {
            self.crowd.send(member, &self.words.park(0, member))?;
        }
        wait_for(
            &mut self.control,
            "clients",
            "blocked_clients",
            self.crowd.len(),
        )
    }

    /// All connections are closed; the kept places are the module's. (The server keeps freed memory in a pool at first,
    /// and frees some hundreds a second.)
    fn leave(&mut self) -> io::Result<()> {
        let number = self.crowd.len();
        self.crowd.hang_up();
        wait_for(&mut self.control, "clients", "connected_clients", 1)?;
        wait_for(&mut self.control, "lock", "lock_places_kept", number)
    }
}

/// Reads the memory of some servers when it has not fallen for as long as `still`, or after `settling`.
pub fn settle(
    mut read: impl FnMut() -> io::Result<Vec<Memory>>,
    settling: Duration,
    still: Duration,
) -> io::Result<Vec<Memory>> {
    let start = Instant::now();
    let (mut least, mut least_at) = (f64::INFINITY, start);
    loop {
        let now = read()?;
        let used: f64 = now.iter().map(|memory| memory.used).sum();
        if used < least * 0.999 {
            (least, least_at) = (used, Instant::now());
        }
        if start.elapsed() > settling || least_at.elapsed() > still {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// The title of the section.
pub const TITLE: &str = "Memory";

fn settled(places: &mut [Place], settling: Duration) -> io::Result<Vec<Memory>> {
    let read = |place: &mut Place| Memory::read(&mut place.control);
    settle(|| places.iter_mut().map(read).collect(), settling, STILL)
}

/// Measures and reports.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let quick = effort.quick;
    let (wanted, settling) = if quick {
        (200, Duration::from_secs(1))
    } else {
        (5_000, SETTLING)
    };
    let number = wanted.min(room(2)? - 50);
    eprintln!("memory: {number} connections");
    let mut places = [Place::new(&MODULE, number)?, Place::new(&BLPOP, number)?];
    let connected = settled(&mut places, settling)?;
    eprintln!("memory: {number} waiters");
    places.iter_mut().try_for_each(Place::park)?;
    let parked = settled(&mut places, settling)?;
    places[0].leave()?;
    let kept = settled(&mut places[..1], settling)?[0].each_since(places[0].empty, number);
    let row = |what: &str, memory: Memory| {
        let cells = [what.into(), short(memory.used), short(memory.resident)];
        cells.to_vec()
    };
    let waiting = |place: usize| parked[place].each_since(connected[place], number);
    let rows = [
        row(
            "a connection",
            connected[0].each_since(places[0].empty, number),
        ),
        row("its waiting in BLPOP", waiting(1)),
        row("its waiting in this module", waiting(0)),
        // Memory that the clients have freed stays resident, and says nothing about the rest.
        [
            "of that, its place in the module's queue",
            &short(kept.used),
            "-",
        ]
        .map(String::from)
        .to_vec(),
        row(
            "a ticket, which needs no connection",
            tickets::memory_each(number)?,
        ),
    ];
    Ok(vec![Section {
        title: TITLE.into(),
        text: "The memory of one more waiter.".into(),
        columns: ["what", "used_memory, bytes", "resident, bytes"]
            .map(String::from)
            .to_vec(),
        rows: rows.to_vec(),
        remarks: remarks(number, settling, quick),
        notes: NOTES.map(String::from).to_vec(),
        image: None,
    }])
}

fn remarks(number: usize, settling: Duration, quick: bool) -> Vec<String> {
    let mut remarks = vec![format!(
        "{} waiters on one key, after the server has trimmed its clients' buffers (memory has stopped falling, or {} \
         s).",
        count(number),
        settling.as_secs()
    )];
    if quick {
        let quick =
            "A quick run does not wait until buffers are trimmed: these figures mean nothing.";
        remarks.push(quick.into());
    }
    remarks
}

const NOTES: [&str; 3] = [
    "The memory of a waiter is the difference to the same connection before it waited.",
    "The server keeps two further clients of its own for every blocked client of a module, each \
     with a reply buffer of 16 kB of which hardly a byte is ever touched: used_memory counts them, \
     the resident size shows the memory in use.",
    "The place in the queue: all connections are closed, and the server frees its clients; the \
     module still keeps the waiters' places (lock.queue-grace), each with its owner, its links and \
     its deadline. Compared with the same server before the first connection, so memory that the \
     server never frees is counted too. While the request is parked it has an entry in two more \
     tables, by its number: about 120 bytes.",
];
