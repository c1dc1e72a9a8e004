//! A Redisson instance, reduced to one lock, with the waits of its `lock()` and `tryLock(wait)`: it tries; if that
//! fails, it subscribes to the lock's channel and tries again; then it sleeps until a message comes or the time to live
//! that the last try returned is over, and tries once more; it unsubscribes at the end.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{channel, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::scripts::{GIVE, TAKE};
use crate::{conn, patience, Conn, Reply};

/// The prefix of Redisson's channel for a lock.
pub fn channel_of(lock: &str) -> String {
    let prefix = "redisson_lock__channel";
    match lock.contains('{') {
        true => format!("{prefix}:{lock}"),
        false => format!("{prefix}:{{{lock}}}"),
    }
}

/// One instance: a connection for scripts, and one that subscribes.
pub struct Instance {
    conn: Conn,
    socket: TcpStream,
    received: Receiver<Received>,
    thread: Option<JoinHandle<()>>,
    lock: String,
    owner: String,
    lease_ms: u64,
    /// Tries that found the lock held.
    pub failed: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Received {
    /// The reply to `SUBSCRIBE` or `UNSUBSCRIBE`.
    Done,
    Message,
}

impl Instance {
    /// An instance for this lock on the server at this port.
    pub fn new(port: u16, lock: &str, owner: &str) -> Instance {
        let mut reader = Conn::open(port);
        // The connection may receive nothing for long; the test ends it by closing it.
        reader.set_read_timeout(Duration::from_secs(3_600));
        let socket = reader.stream().try_clone().expect("a socket");
        let (sender, received) = channel();
        let thread = std::thread::spawn(move || {
            while let Some(reply) = reader.try_recv() {
                let is_message = reply.list()[0].text() == "message";
                let what = if is_message {
                    Received::Message
                } else {
                    Received::Done
                };
                if sender.send(what).is_err() {
                    return;
                }
            }
        });
        Instance {
            conn: Conn::open(port),
            socket,
            received,
            thread: Some(thread),
            lock: lock.into(),
            owner: owner.into(),
            lease_ms: 30_000,
            failed: 0,
        }
    }

    /// `lock()`.
    pub fn lock(&mut self) {
        assert!(
            self.lock_within(patience()),
            "timed out waiting for: {}",
            self.lock
        );
    }

    /// `tryLock(wait)`. False if the time was over before.
    pub fn lock_within(&mut self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        if self.take().is_none() {
            return true;
        }
        self.subscribe("SUBSCRIBE");
        let taken = loop {
            let Some(left) = self.take() else {
                break true;
            };
            let now = Instant::now();
            if now >= until {
                break false;
            }
            let left = Duration::from_millis(left).min(until - now);
            // Message or timeout: either is a reason to try again.
            let _ = self.received.recv_timeout(left);
        };
        self.subscribe("UNSUBSCRIBE");
        taken
    }

    /// `unlock()`.
    pub fn unlock(&mut self) {
        assert_eq!(self.run(GIVE).int(), 1, "{} held it", self.owner);
    }

    /// Subscribes like a waiting instance, but does not try.
    pub fn only_subscribe(&mut self) {
        self.subscribe("SUBSCRIBE");
    }

    /// One try; if it fails, the time to live of the present hold.
    pub fn take(&mut self) -> Option<u64> {
        let reply = self.run(TAKE);
        if reply.is_nil() {
            return None;
        }
        self.failed += 1;
        // No time to live: sleep until a message comes.
        Some(u64::try_from(reply.int()).unwrap_or(3_600_000))
    }

    fn run(&mut self, script: &str) -> Reply {
        let channel = channel_of(&self.lock);
        let lease = self.lease_ms.to_string();
        let call = [
            "EVAL",
            script,
            "2",
            &self.lock,
            &channel,
            &lease,
            &self.owner,
        ];
        self.conn.run(call)
    }

    fn subscribe(&mut self, command: &str) {
        while self.received.try_recv().is_ok() {}
        let words = conn::pack([command, &channel_of(&self.lock)]);
        self.socket.write_all(&words).expect("a write");
        while self.received.recv_timeout(patience()).expect("an answer") != Received::Done {}
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
