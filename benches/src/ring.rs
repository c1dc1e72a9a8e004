//! Rings of clients: every lock has a holder and its waiters, each on a connection of its own. The holder releases, the
//! first waiter is granted, and the former holder parks again at the end of the queue, so that the queue keeps its
//! length.
//!
//! The same is done with a lock of the module and with a token in a list, where a grant is a BLPOP and a release is an
//! RPUSH.

use std::io;
use std::time::{Duration, Instant};

use crate::crowd::{wait_for, Crowd};
use crate::server::Server;
use crate::wire::line;

/// The pause between two hand-offs that are timed one by one: by then the server has parked the former holder and is
/// idle again.
const PAUSE: Duration = Duration::from_micros(100);

/// The mechanism of a lock.
pub struct Words {
    /// Whether the server needs the module.
    pub module: bool,
    /// Takes the lock or waits for it; `{k}` is the lock, `{o}` the owner.
    pub park: &'static str,
    /// Releases it, which hands it off.
    pub release: &'static str,
}

/// A lock of the module.
pub const MODULE: Words = Words {
    module: true,
    park: "LOCK.ACQUIRE {k} {o} PX 600000 BLOCK 0",
    release: "LOCK.RELEASE {k} {o}",
};

/// A token in a list: no owner, no lease.
pub const BLPOP: Words = Words {
    module: false,
    park: "BLPOP {k} 0",
    release: "RPUSH {k} token",
};

impl Words {
    /// The request of a member for this lock.
    pub fn park(&self, lock: usize, member: usize) -> Vec<u8> {
        filled(self.park, lock, member)
    }

    fn release(&self, lock: usize, member: usize) -> Vec<u8> {
        filled(self.release, lock, member)
    }
}

/// A request with its lock and its owner, whose name has Redisson's form.
pub fn filled(words: &str, lock: usize, member: usize) -> Vec<u8> {
    let owner = format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{member}");
    line(
        &words
            .replace("{k}", &format!("lock:{lock}"))
            .replace("{o}", &owner),
    )
}

/// Lets the server become idle. The core is yielded only to other runnable threads.
pub fn pause() {
    let start = Instant::now();
    while start.elapsed() < PAUSE {
        std::thread::yield_now();
    }
}

/// Some locks, each with a holder and the same number of waiters.
pub struct Ring {
    crowd: Crowd,
    words: &'static Words,
    /// Members of one lock: its holder and its waiters.
    per_lock: usize,
    /// The holder of each lock.
    holders: Vec<usize>,
}

/// The result for many locks at once.
pub struct Storm {
    /// Hand-offs, over all locks.
    pub hand_offs: usize,
    /// From the first release to the last reply.
    pub took: Duration,
}

impl Ring {
    /// All are connected, the holders hold, and all others are parked.
    pub fn new(
        server: &Server,
        words: &'static Words,
        locks: usize,
        waiters: usize,
    ) -> io::Result<Ring> {
        let per_lock = waiters + 1;
        let mut crowd = Crowd::connect(server, locks * per_lock)?;
        for lock in 0..locks {
            let holder = lock * per_lock;
            if words.module {
                crowd.ask(holder, &words.park(lock, holder))?;
            }
            for member in holder + 1..holder + per_lock {
                crowd.send(member, &words.park(lock, member))?;
            }
        }
        wait_for(
            &mut server.conn()?,
            "clients",
            "blocked_clients",
            locks * waiters,
        )?;
        let holders = (0..locks).map(|lock| lock * per_lock).collect();
        Ok(Ring {
            crowd,
            words,
            per_lock,
            holders,
        })
    }

    /// One lock is handed off while the server is otherwise idle: from the writing of the release to the reading of the
    /// grant.
    pub fn hand_off(&mut self, lock: usize) -> io::Result<Duration> {
        let holder = self.holders[lock];
        let release = self.words.release(lock, holder);
        pause();
        let start = Instant::now();
        self.crowd.send(holder, &release)?;
        let (mut granted, mut released) = (None, false);
        let (next, took) = loop {
            match self.crowd.next()?.0 {
                member if member == holder => released = true,
                member => granted = Some((member, start.elapsed())),
            }
            if let (Some(granted), true) = (granted, released) {
                break granted;
            }
        };
        self.crowd.send(holder, &self.words.park(lock, holder))?;
        self.holders[lock] = next;
        Ok(took)
    }

    /// All locks at once, for this long: every granted member releases and requests the lock again in the same write,
    /// one instead of two, so that the server is the limit and not the client.
    pub fn storm(&mut self, time: Duration) -> io::Result<Storm> {
        let mut releasing = vec![false; self.crowd.len()];
        let start = Instant::now();
        for lock in 0..self.holders.len() {
            self.pass_on(lock, self.holders[lock], &mut releasing)?;
        }
        let mut hand_offs = 0;
        // Each lock continues until the time is up; then the reply to its last release is outstanding.
        let (mut moving, mut unanswered) = (self.holders.len(), self.holders.len());
        while moving > 0 || unanswered > 0 {
            let (member, _) = self.crowd.next()?;
            if std::mem::take(&mut releasing[member]) {
                unanswered -= 1;
                continue;
            }
            let lock = member / self.per_lock;
            hand_offs += 1;
            self.holders[lock] = member;
            if start.elapsed() < time {
                self.pass_on(lock, member, &mut releasing)?;
                unanswered += 1;
            } else {
                moving -= 1;
            }
        }
        Ok(Storm {
            hand_offs,
            took: start.elapsed(),
        })
    }

    fn pass_on(&mut self, lock: usize, holder: usize, releasing: &mut [bool]) -> io::Result<()> {
        releasing[holder] = true;
        let mut both = self.words.release(lock, holder);
        both.extend(self.words.park(lock, holder));
        self.crowd.send(holder, &both)
    }
}
