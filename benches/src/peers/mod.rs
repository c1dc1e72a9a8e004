//! `lock-bench peers`: the module beside the locks of other servers, with the same works in one run.
//!
//! All servers are started first and keep running. Then every peer does every work, in rounds, each in the reverse
//! order of the one before; the first round is a warm-up and is not counted. A peer that is not installed, does not
//! start or fails is left out, with the reason.

mod etcd;
mod grpc;
mod jute;
mod module;
mod page;
mod postgres;
mod process;
mod works;
mod zookeeper;

use std::io;
use std::time::Duration;

use crate::report::project;
use works::WORKS;

/// Rounds that count.
const ROUNDS: usize = 5;

/// The time limit of the samples of a work: in the first round, and in those that count.
const WARM_UP: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(2);

/// The page's path below the project.
const PAGE: &str = "benches/results/peers.md";

/// The description of a peer; its guarantees, in words for a table.
pub struct About {
    /// The lock and the server.
    pub name: &'static str,
    /// The version of the server.
    pub version: String,
    /// Where the lock is stored when its holder gets the grant.
    pub kept: &'static str,
    /// Where it is also stored.
    pub copies: &'static str,
    /// When the lock of a holder that stopped ends.
    pub ends: &'static str,
    /// What distinguishes a late holder from the present one.
    pub fencing: &'static str,
}

/// A server with locks.
pub trait Peer {
    /// Its description.
    fn about(&self) -> &About;

    /// A new session that can request the lock; there is one lock.
    fn session(&self) -> io::Result<Box<dyn Session>>;
}

/// A session with a connection. Sending and waiting are separate, so that one thread can drive the releasing and the
/// granted session.
pub trait Session {
    /// Requests the lock.
    fn ask(&mut self) -> io::Result<()>;

    /// Waits for the grant.
    fn granted(&mut self) -> io::Result<()>;

    /// Sends the release.
    fn give_back(&mut self) -> io::Result<()>;

    /// Waits for the reply to it.
    fn given_back(&mut self) -> io::Result<()>;

    /// The number of requests in the lock's queue, as the server reports it. (To be called on a session without a
    /// request of its own.)
    fn waiting(&mut self) -> io::Result<usize>;

    /// Whether the server is ready to notify this many waiters; if it is ready as soon as they are in the queue, there
    /// is no query.
    fn parked(&mut self, _waiters: usize) -> io::Result<bool> {
        Ok(true)
    }
}

/// The start of a peer.
type Start = fn() -> io::Result<Box<dyn Peer>>;

/// All peers; the others are compared with the first.
const PEERS: [(&str, Start); 6] = [
    ("the module", module::in_memory),
    ("the module, AOF always", module::on_disk),
    ("PostgreSQL", postgres::start),
    ("etcd", etcd::watched),
    ("etcd, just asked", etcd::just_asked),
    ("ZooKeeper", zookeeper::start),
];

/// A peer and its times, in microseconds: by work, by round, by sample.
struct Contestant {
    peer: Box<dyn Peer>,
    took: [Vec<Vec<f64>>; WORKS.len()],
}

/// Measures, prints, and writes the page.
pub fn run() -> io::Result<()> {
    let load = page::load_average();
    let mut left_out = Vec::new();
    let mut contestants = Vec::new();
    for (name, start) in PEERS {
        match start() {
            Ok(peer) => {
                println!("{name}: {}", peer.about().version);
                let took = std::array::from_fn(|_| Vec::new());
                contestants.push(Contestant { peer, took });
            }
            Err(error) => leave_out(&mut left_out, name, &error),
        }
    }

    for round in 0..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        let backwards = round % 2 == 1;
        if backwards {
            contestants.reverse();
        }
        contestants.retain_mut(|one| match one.play(round) {
            Ok(()) => true,
            Err(error) => {
                leave_out(&mut left_out, one.peer.about().name, &error);
                false
            }
        });
        if backwards {
            contestants.reverse();
        }
    }

    let page = page::of(&contestants, &left_out, &load)?;
    println!("\n{page}");
    std::fs::write(project().join(PAGE), page)
}

fn leave_out(left_out: &mut Vec<String>, name: &str, error: &io::Error) {
    println!("{name}: left out: {error}");
    let first = error.to_string();
    left_out.push(format!("{name}: {}", first.lines().next().unwrap_or("")));
}

impl Contestant {
    /// Every work once.
    fn play(&mut self, round: usize) -> io::Result<()> {
        for (work, rounds) in WORKS.iter().zip(&mut self.took) {
            if round == 0 {
                work.sample(&*self.peer, WARM_UP)?;
            } else {
                rounds.push(work.sample(&*self.peer, TIME)?);
            }
        }
        Ok(())
    }
}
