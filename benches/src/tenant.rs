//! What a user with one right can make the server keep and do: memory kept for each byte sent, and the processor time
//! of the most expensive command that it can prepare. The user has the commands of the row, on keys that begin with
//! `own:`, and the keys beside them; the settings are the defaults.

use std::io;
use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;

use crate::cells::{count, short};
use crate::memory::Memory;
use crate::report::{project, Section};
use crate::server::Server;
use crate::wire::{line, refuse_error, Conn};

/// The page with the tables, below the project, and the marks around them.
const PAGE: &str = "docs/ACL.md";
const MARKS: [&str; 2] = ["<!-- tenant -->\n", "<!-- end of tenant -->"];

/// Requests on the way are at most as long, together, as the buffer in which the server reads them.
const BATCH_BYTES: usize = 16 * 1024;

/// The holds and waits that are prepared: each part is bounded by these, and takes a few seconds.
const MANY: usize = 20_000;

/// The leases that are to be over when the command is sent, but not while they are taken.
const SHORT_MS: u64 = 5_000;

/// How often the most expensive command is sent.
const TIMES: usize = 5;

/// What is kept for these requests.
struct Kept {
    rights: &'static str,
    what: &'static str,
    prepare: &'static [&'static str],
    number: usize,
    request: fn(usize) -> String,
}

const KEPT: [Kept; 9] = [
    Kept {
        rights: "+lock.acquire",
        what: "locks held",
        prepare: &[],
        number: MANY,
        request: |n| format!("LOCK.ACQUIRE own:{n} o PX 600000"),
    },
    Kept {
        rights: "+lock.acquire",
        what: "READ holds of one lock",
        prepare: &[],
        number: MANY,
        request: |n| format!("LOCK.ACQUIRE own:r o{n} READ PX 600000"),
    },
    Kept {
        rights: "+lock.macquire",
        what: "1,024 locks held by one request",
        prepare: &[],
        number: 20,
        request: |n| format!("LOCK.MACQUIRE {} o PX 600000", keys(&n.to_string())),
    },
    Kept {
        rights: "+lock.acquire &own:* +publish",
        what: "tickets for one lock",
        prepare: &["LOCK.ACQUIRE own:h other PX 600000"],
        number: MANY,
        request: |n| format!("LOCK.ACQUIRE own:h o{n} BLOCK 0 NOTIFY own:c t"),
    },
    Kept {
        rights: "+lock.macquire +lock.acquire &own:* +publish",
        what: "tickets for 1,024 locks each",
        prepare: &["LOCK.ACQUIRE own:k0 other PX 600000"],
        number: 45,
        request: |n| format!("LOCK.MACQUIRE {} o{n} BLOCK 0 NOTIFY own:c t", keys("k")),
    },
    Kept {
        rights: "+sem.acquire",
        what: "permits held of one semaphore",
        prepare: &[],
        number: MANY,
        request: |n| format!("SEM.ACQUIRE own:s i{n} LIMIT 1000000 PX 600000"),
    },
    Kept {
        rights: "+sem.acquire &own:* +publish",
        what: "tickets for semaphores that do not exist, names of 10 kB",
        prepare: &[],
        number: 1_000,
        request: |n| {
            format!(
                "SEM.ACQUIRE own:{n}{} i BLOCK 0 NOTIFY own:c t",
                long('x', 10_000)
            )
        },
    },
    Kept {
        rights: "+latch.wait +latch.set &own:* +publish",
        what: "tickets for one latch",
        prepare: &["LATCH.SET own:l 1"],
        number: MANY,
        request: |n| format!("LATCH.WAIT own:l BLOCK 0 NOTIFY own:c t{n}"),
    },
    Kept {
        rights: "+latch.set",
        what: "latches, without an end",
        prepare: &[],
        number: MANY,
        request: |n| format!("LATCH.SET own:{n} 1"),
    },
];

/// What a command costs after these requests.
struct Costs {
    rights: &'static str,
    what: &'static str,
    prepare: fn(usize) -> String,
    number: usize,
    command: fn() -> String,
}

const COSTS: [Costs; 9] = [
    Costs {
        rights: "+lock.acquire",
        what: "WRITE, refused: 20,000 readers whose leases are over, and one that holds",
        prepare: ended_reader,
        number: MANY,
        command: || "LOCK.ACQUIRE own:r w WRITE".into(),
    },
    Costs {
        rights: "+lock.release +lock.acquire",
        what: "a release by another owner, at the same lock",
        prepare: ended_reader,
        number: MANY,
        command: || "LOCK.RELEASE own:r w".into(),
    },
    Costs {
        rights: "+lock.info +lock.acquire",
        what: "LOCK.INFO of the same lock",
        prepare: ended_reader,
        number: MANY,
        command: || "LOCK.INFO own:r".into(),
    },
    Costs {
        rights: "+lock.info +lock.acquire &own:* +publish",
        what: "LOCK.INFO with the list of 20,000 tickets",
        prepare: |n| format!("LOCK.ACQUIRE own:h o{n} BLOCK 0 NOTIFY own:c t"),
        number: MANY,
        command: || "LOCK.INFO own:h WAITERS COUNT 1000000".into(),
    },
    Costs {
        rights: "+lock.acquire",
        what: "READ with a name of 100 kB and as many colons as are looked through, 16",
        prepare: |_| "LOCK.ACQUIRE own:h o".into(),
        number: 1,
        command: || {
            let (colons, rest) = (long(':', 15), long('n', 100_000));
            format!("LOCK.ACQUIRE own:{colons}{rest} o READ PX 1")
        },
    },
    Costs {
        rights: "+lock.macquire",
        what: "1,024 locks taken",
        prepare: |n| format!("LOCK.MACQUIRE {} o", keys(&n.to_string())),
        number: 1,
        command: || format!("LOCK.MACQUIRE {} o PX 1", keys("m")),
    },
    Costs {
        rights: "+lock.mrenew +lock.acquire",
        what: "1,024 locks renewed that have ten READ holds each",
        prepare: |n| format!("LOCK.ACQUIRE own:m{} o READ PX 600000", n % 1_024),
        number: 10 * 1_024,
        command: || format!("LOCK.MRENEW {} o", keys("m")),
    },
    Costs {
        rights: "+sem.acquire",
        what: "a permit, after 20,000 whose leases are over",
        prepare: |n| format!("SEM.ACQUIRE own:s i{n} LIMIT 1000000 PX {SHORT_MS}"),
        number: MANY,
        command: || "SEM.ACQUIRE own:s i PX 1".into(),
    },
    Costs {
        rights: "+lock.scan +scan +lock.acquire",
        what: "LOCK.SCAN of 20,000 locks at once",
        prepare: |n| format!("LOCK.ACQUIRE own:{n} o PX 600000"),
        number: MANY,
        command: || "LOCK.SCAN 0 COUNT 1000000".into(),
    },
];

fn ended_reader(n: usize) -> String {
    let lease = if n == 0 { 600_000 } else { SHORT_MS };
    format!("LOCK.ACQUIRE own:r o{n} READ PX {lease}")
}

fn keys(of: &str) -> String {
    let names: String = (0..1_024).map(|n| format!(" own:{of}{n}")).collect();
    format!("1024{names}")
}

fn long(of: char, length: usize) -> String {
    std::iter::repeat_n(of, length).collect()
}

/// Measures and prints; with `save`, writes the tables into the page.
pub fn run(save: bool) -> io::Result<()> {
    let version = Server::start(&[], &[], false)?.version()?;
    let mut rows = Vec::new();
    for kept in &KEPT {
        rows.push(kept.measure()?);
        println!(
            "{}",
            rows.last().map(|row| row.join(" | ")).unwrap_or_default()
        );
    }
    let memory = table(
        "Memory",
        [
            "what is kept",
            "rights",
            "requests",
            "bytes sent",
            "bytes kept",
            "kept for one sent",
        ],
        rows,
    );
    let mut rows = Vec::new();
    for costs in &COSTS {
        rows.push(costs.measure()?);
        println!(
            "{}",
            rows.last().map(|row| row.join(" | ")).unwrap_or_default()
        );
    }
    let time = table("Time", ["command", "rights", "ms"], rows);
    if !save {
        return Ok(());
    }
    let path = project().join(PAGE);
    let page = std::fs::read_to_string(&path)?;
    let missing = || io::Error::other(format!("{PAGE} has no marks"));
    let (before, rest) = page.split_once(MARKS[0]).ok_or_else(missing)?;
    let (_, after) = rest.split_once(MARKS[1]).ok_or_else(missing)?;
    let kept = memory.table(&format!("{version}, memory for each request:"));
    let time = time.table("Processor time of the server for one command, the longest of five:");
    let text = format!("{before}{}{kept}\n\n{time}\n{}{after}", MARKS[0], MARKS[1]);
    std::fs::write(path, text)
}

fn table<const N: usize>(title: &str, columns: [&str; N], rows: Vec<Vec<String>>) -> Section {
    Section {
        title: title.into(),
        text: String::new(),
        columns: columns.map(String::from).to_vec(),
        rows,
        remarks: Vec::new(),
        notes: Vec::new(),
        image: None,
    }
}

/// A server with the user, and a subscriber to the channel of its tickets.
struct Tenant {
    conn: Conn,
    control: Conn,
    _subscriber: Conn,
    server: Server,
}

impl Tenant {
    fn with(rights: &str) -> io::Result<Tenant> {
        let server = Server::pinned(&["--hz", "1"], true)?;
        let mut control = server.conn()?;
        let rules = format!("~own:* ~{{own:*}}* {rights}");
        control.ask(&format!("ACL SETUSER tenant on nopass {rules}"))?;
        let mut subscriber = server.conn()?;
        subscriber.ask("SUBSCRIBE own:c")?;
        let mut conn = server.conn()?;
        conn.ask("AUTH tenant any")?;
        Ok(Tenant {
            conn,
            control,
            _subscriber: subscriber,
            server,
        })
    }

    /// Sends requests until one is refused with an error. Returns how many were served, and their bytes.
    fn send(
        &mut self,
        numbers: Range<usize>,
        request: fn(usize) -> String,
    ) -> io::Result<(usize, usize)> {
        let (mut served, mut sent) = (0, 0);
        let mut numbers = numbers.peekable();
        while numbers.peek().is_some() {
            let (mut batch, mut lengths) = (Vec::new(), Vec::new());
            while batch.len() < BATCH_BYTES {
                let Some(number) = numbers.next() else { break };
                let bytes = line(&request(number));
                lengths.push(bytes.len());
                batch.extend(bytes);
            }
            self.conn.send(&batch)?;
            let mut is_refused = false;
            for length in lengths {
                is_refused |= refuse_error(&self.conn.reply()?).is_err();
                if !is_refused {
                    (served, sent) = (served + 1, sent + length);
                }
            }
            if is_refused {
                break;
            }
        }
        match served {
            0 => Err(io::Error::other(format!("refused: {}", request(0)))),
            _ => Ok((served, sent)),
        }
    }

    /// Microseconds of the server's main thread so far, when it has nothing to do.
    fn cpu_us(&self) -> f64 {
        let mut before = self.server.cpu_us();
        loop {
            sleep(Duration::from_millis(2));
            let now = self.server.cpu_us();
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

impl Kept {
    fn measure(&self) -> io::Result<Vec<String>> {
        let mut tenant = Tenant::with(self.rights)?;
        for request in self.prepare {
            tenant.conn.ask(request)?;
        }
        // The server's own tables have their first size.
        tenant.conn.send(&line(&(self.request)(self.number)))?;
        refuse_error(&tenant.conn.reply()?)?;
        let before = Memory::read(&mut tenant.control)?;
        let (served, sent) = tenant.send(0..self.number, self.request)?;
        let kept = Memory::read(&mut tenant.control)?
            .each_since(before, served)
            .used;
        let each = sent as f64 / served as f64;
        let mut requests = count(served);
        if served < self.number {
            requests += ", then refused";
        }
        Ok(vec![
            self.what.into(),
            format!("`{}`", self.rights),
            requests,
            short(each),
            short(kept),
            short(kept / each),
        ])
    }
}

impl Costs {
    fn measure(&self) -> io::Result<Vec<String>> {
        let mut tenant = Tenant::with(self.rights)?;
        tenant
            .conn
            .send(&line("LOCK.ACQUIRE own:h other PX 600000"))?;
        tenant.conn.reply()?;
        tenant.send(0..self.number, self.prepare)?;
        if (self.prepare)(1).contains(&format!("PX {SHORT_MS}")) {
            sleep(Duration::from_millis(SHORT_MS));
        }
        let command = line(&(self.command)());
        let mut longest = 0.0_f64;
        for _ in 0..TIMES {
            let before = tenant.cpu_us();
            tenant.conn.send(&command)?;
            refuse_error(&tenant.conn.reply()?)?;
            longest = longest.max(tenant.cpu_us() - before);
        }
        let ms = short(longest / 1_000.0);
        Ok(vec![self.what.into(), format!("`{}`", self.rights), ms])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_marks_of_the_tables() {
        let page = std::fs::read_to_string(project().join(PAGE)).unwrap();
        let places = MARKS.map(|mark| page.find(mark).unwrap());
        assert!(places[0] < places[1]);
    }
}
