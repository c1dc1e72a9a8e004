//! The plan of a trial: which fault begins when, from a seed. Printed before the run, it is the same for the same
//! seed and length; what the workers do between two faults depends on the machine's time as well.

use std::fmt;
use std::time::Duration;

/// How many servers the trial has.
pub const SERVERS: usize = 3;
/// The exclusive locks of each server.
pub const EXCLUSIVE: [&str; 2] = ["x0", "x1"];
/// The read-write lock of each server.
pub const READ_WRITE: &str = "w0";
/// The lock that is taken on all servers.
pub const RED: &str = "r0";

/// Random numbers that a seed repeats (xorshift).
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Seeds that are near to each other begin alike.
        for _ in 0..8 {
            chance.below(2);
        }
        chance
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A number of milliseconds from the one to the other.
    pub fn span(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.below(to_ms - from_ms))
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// One fault. A span is how long it lasts.
#[derive(Debug, Clone)]
pub enum Fault {
    /// SIGSTOP, later SIGCONT.
    Stop { servers: Vec<usize>, span: Duration },
    /// SIGKILL, later a start with what the append-only file has.
    Kill { server: usize, span: Duration },
    /// `CLIENT KILL` of all connections.
    KillConnections { server: usize },
    /// The proxy carries nothing and closes nothing.
    Cut { servers: Vec<usize>, span: Duration },
    /// The reply to the next such request is lost, with its connection.
    Swallow { server: usize, words: &'static str },
    /// The next such request is held back, with all that is behind it on its connection.
    Delay {
        server: usize,
        words: &'static str,
        span: Duration,
    },
    /// `CONFIG SET maxclients`: no new connection is accepted; with `CLIENT KILL` where `kills`.
    NoRoom {
        server: usize,
        span: Duration,
        kills: bool,
    },
    /// The clients' machine has no local port left for a new connection; with `CLIENT KILL` on all servers where
    /// `kills`.
    NoPorts { span: Duration, kills: bool },
    /// A lock is taken from its holder.
    Break {
        server: usize,
        key: &'static str,
        how: &'static str,
    },
    /// SIGKILL to the program with few open files; another one is started.
    KillProgram,
}

/// A fault and its moment, counted from the start.
#[derive(Debug, Clone)]
pub struct Step {
    pub at: Duration,
    pub fault: Fault,
}

impl Fault {
    pub fn span(&self) -> Duration {
        match self {
            Fault::Stop { span, .. }
            | Fault::Kill { span, .. }
            | Fault::Cut { span, .. }
            | Fault::Delay { span, .. }
            | Fault::NoRoom { span, .. }
            | Fault::NoPorts { span, .. } => *span,
            _ => Duration::ZERO,
        }
    }

    /// The kind, for the table.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Stop { servers, .. } if servers.len() > 1 => "SIGSTOP of two servers",
            Fault::Stop { span, .. } if *span < Duration::from_millis(500) => "SIGSTOP, short",
            Fault::Stop { .. } => "SIGSTOP, long",
            Fault::Kill { .. } => "SIGKILL and restart",
            Fault::KillConnections { .. } => "CLIENT KILL",
            Fault::Cut { servers, .. } if servers.len() > 1 => "network cut, all servers",
            Fault::Cut { .. } => "network cut, one server",
            Fault::Swallow { .. } => "reply lost",
            Fault::Delay { .. } => "request late",
            Fault::NoRoom { kills: true, .. } => "maxclients low, CLIENT KILL",
            Fault::NoRoom { .. } => "maxclients low",
            Fault::NoPorts { kills: true, .. } => "no local ports, CLIENT KILL",
            Fault::NoPorts { .. } => "no local ports",
            Fault::Break { .. } => "DEL or LOCK.BREAK",
            Fault::KillProgram => "SIGKILL of a client",
        }
    }

    /// The servers whose process it stops, ends or closes to connections.
    fn disables(&self) -> Vec<usize> {
        match self {
            Fault::Stop { servers, .. } => servers.clone(),
            Fault::Kill { server, .. }
            | Fault::KillConnections { server }
            | Fault::NoRoom { server, .. }
            | Fault::Break { server, .. } => vec![*server],
            Fault::NoPorts { .. } => (0..SERVERS).collect(),
            _ => Vec::new(),
        }
    }

    /// The proxies that it uses.
    fn proxies(&self) -> Vec<usize> {
        match self {
            Fault::Cut { servers, .. } => servers.clone(),
            Fault::Swallow { server, .. } | Fault::Delay { server, .. } => vec![*server],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8.3} s  {:?}", self.at.as_secs_f64(), self.fault)
    }
}

/// The faults of a run of so many seconds. Two faults of one server's process, or of one proxy, never overlap; the
/// others do.
pub fn plan(seed: u64, length: Duration) -> Vec<Step> {
    let mut chance = Chance::new(seed);
    let mut steps = Vec::new();
    let mut disabled = [Duration::ZERO; SERVERS];
    let mut used = [Duration::ZERO; SERVERS];
    let mut at = Duration::from_secs(2);
    // The last seconds are without faults: what is left over must come free.
    while at + Duration::from_secs(8) < length {
        let fault = any(&mut chance);
        let (processes, proxies) = (fault.disables(), fault.proxies());
        let is_free = processes.iter().all(|server| disabled[*server] < at)
            && proxies.iter().all(|server| used[*server] < at);
        if is_free {
            // A killed server needs a moment to start.
            let end = at + fault.span() + chance.span(50, 1_500);
            processes.iter().for_each(|server| disabled[*server] = end);
            proxies.iter().for_each(|server| used[*server] = end);
            steps.push(Step { at, fault });
        }
        at += chance.span(20, 1_800);
    }
    steps
}

fn any(chance: &mut Chance) -> Fault {
    let server = chance.below(SERVERS as u64) as usize;
    let other = (server + 1) % SERVERS;
    let words = ["LOCK.RENEW", "LOCK.ACQUIRE", "LOCK.RELEASE"];
    match chance.below(100) {
        0..12 => Fault::Stop {
            servers: vec![server],
            span: chance.span(30, 400),
        },
        12..20 => Fault::Stop {
            servers: vec![server],
            span: chance.span(500, 7_000),
        },
        20..24 => Fault::Stop {
            servers: vec![server, other],
            span: chance.span(500, 5_000),
        },
        24..34 => Fault::Kill {
            server,
            span: chance.span(1, 1_500),
        },
        34..48 => Fault::KillConnections { server },
        48..58 => Fault::Cut {
            servers: vec![server],
            span: chance.span(100, 7_000),
        },
        58..62 => Fault::Cut {
            servers: (0..SERVERS).collect(),
            span: chance.span(300, 6_000),
        },
        62..71 => Fault::Swallow {
            server,
            words: chance.one_of(&words),
        },
        71..78 => Fault::Delay {
            server,
            words: chance.one_of(&words),
            span: chance.span(50, 3_000),
        },
        78..83 => Fault::NoRoom {
            server,
            span: chance.span(300, 4_000),
            kills: chance.below(2) == 0,
        },
        83..86 => Fault::NoPorts {
            span: chance.span(300, 4_000),
            kills: chance.below(2) == 0,
        },
        86..97 => Fault::Break {
            server,
            key: chance.one_of(&[EXCLUSIVE[0], EXCLUSIVE[1], READ_WRITE]),
            how: chance.one_of(&["DEL", "LOCK.BREAK"]),
        },
        _ => Fault::KillProgram,
    }
}
