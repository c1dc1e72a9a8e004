//! etcd's lock service (v3lock): `Lock` under a lease, and `Unlock`, over gRPC.

use std::io::{self, Read, Write};
use std::process::Command;

use super::grpc::{bytes, field, number, Channel, Value};
use super::process::{connect, must_exist, pinned, said, Daemon};
use super::{About, Peer, Session};
use crate::server::free_port;

const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";
const RANGE: &str = "/etcdserverpb.KV/Range";
const GRANT_LEASE: &str = "/etcdserverpb.Lease/LeaseGrant";
const PUT: &str = "/etcdserverpb.KV/Put";

/// Writes of another key before a sample that waited: a disk that was idle for 100 ms is slower, and with the other
/// peers it is never idle.
const WAKING_WRITES: usize = 3;

/// Seconds: longer than a whole run, so that no lease is renewed or ends during it.
const LEASE: u64 = 600;

struct Etcd {
    port: u16,
    patient: bool,
    about: About,
    _daemon: Daemon,
}

/// The release is sent when every waiter's watch is ready.
pub fn watched() -> io::Result<Box<dyn Peer>> {
    start("etcd", true)
}

/// The release is sent as soon as the waiter's key is in the queue.
pub fn just_asked() -> io::Result<Box<dyn Peer>> {
    start("etcd, just asked", false)
}

/// A cluster of one.
fn start(name: &'static str, patient: bool) -> io::Result<Box<dyn Peer>> {
    let program = must_exist("/usr/bin/etcd".into())?.display().to_string();
    let version = said(Command::new(&program).arg("--version"))?;
    let version = version.lines().next().unwrap_or_default();
    let dir = tempfile::tempdir()?;
    let (port, peer_port) = (free_port()?, free_port()?);
    let (clients, peers) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peer_port}"),
    );
    let mut command = pinned(&[&program]);
    command.arg("--data-dir").arg(dir.path().join("data"));
    for (option, value) in [
        ("--listen-client-urls", &clients),
        ("--advertise-client-urls", &clients),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
        ("--initial-cluster", &format!("default={peers}")),
    ] {
        command.args([option, value]);
    }
    let mut daemon = Daemon::start(command, dir, "TERM")?;
    daemon.wait_for(|| Holder::open(port, patient))?;
    Ok(Box::new(Etcd {
        port,
        patient,
        about: About {
            name,
            version: version.replace(" Version:", ""),
            kept: "on its disk (fsync)",
            ends: "when the lease (600 s here) is over and was not kept alive",
            fencing: "the revision that created the key",
            copies: "in a cluster on the disks of a majority, before the answer",
        },
        _daemon: daemon,
    }))
}

impl Peer for Etcd {
    fn about(&self) -> &About {
        &self.about
    }

    fn session(&self) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Holder::open(self.port, self.patient)?))
    }
}

struct Holder {
    port: u16,
    /// Whether it waits for the watches.
    patient: bool,
    channel: Channel,
    /// The request for the lock, under this session's lease.
    lock: Vec<u8>,
    /// The request that releases the lock held.
    unlock: Vec<u8>,
}

impl Holder {
    fn open(port: u16, patient: bool) -> io::Result<Holder> {
        let mut channel = Channel::open(port)?;
        let lease = channel.call(GRANT_LEASE, &number(1, LEASE))?;
        let Some(Value::Number(lease)) = field(&lease, 2) else {
            return Err(io::Error::other("no lease"));
        };
        Ok(Holder {
            port,
            patient,
            channel,
            lock: [bytes(1, b"lock"), number(2, lease)].concat(),
            unlock: Vec::new(),
        })
    }
}

impl Session for Holder {
    fn ask(&mut self) -> io::Result<()> {
        self.channel.send(LOCK, &self.lock)
    }

    fn granted(&mut self) -> io::Result<()> {
        let answer = self.channel.answer()?;
        let Some(Value::Bytes(key)) = field(&answer, 2) else {
            return Err(io::Error::other("granted without a key"));
        };
        self.unlock = bytes(1, key);
        Ok(())
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.channel.send(UNLOCK, &self.unlock)
    }

    fn given_back(&mut self) -> io::Result<()> {
        self.channel.answer().map(drop)
    }

    /// The keys below the lock's name are its holder and its waiters.
    fn waiting(&mut self) -> io::Result<usize> {
        let count_only = number(9, 1);
        let range = [bytes(1, b"lock/"), bytes(2, b"lock0"), count_only].concat();
        let answer = self.channel.call(RANGE, &range)?;
        match field(&answer, 4) {
            Some(Value::Number(keys)) => Ok((keys as usize).saturating_sub(1)),
            _ => Ok(0),
        }
    }

    /// A waiter watches the key before its own, but the watch is late at first, by up to 100 ms.
    fn parked(&mut self, waiters: usize) -> io::Result<bool> {
        if !self.patient {
            return Ok(true);
        }
        let mut stream = connect(self.port)?.into_inner();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let missing = || io::Error::other("does not count its watchers");
        if prompt_watchers(&text).ok_or_else(missing)? != waiters {
            return Ok(false);
        }
        let other_key = [bytes(1, b"other"), bytes(2, b"x")].concat();
        for _ in 0..WAKING_WRITES {
            self.channel.call(PUT, &other_key)?;
        }
        Ok(true)
    }
}

/// The watchers in etcd's metrics that are not late.
fn prompt_watchers(metrics: &str) -> Option<usize> {
    let gauge = |name: &str| -> Option<usize> {
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse().ok()
    };
    let all = gauge("etcd_debugging_mvcc_watcher_total")?;
    let late = gauge("etcd_debugging_mvcc_slow_watcher_total")?;
    all.checked_sub(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_that_lag_behind_do_not_count() {
        let late = "# TYPE etcd_debugging_mvcc_watcher_total gauge\n\
                    etcd_debugging_mvcc_slow_watcher_total 2\n";
        let all = "etcd_debugging_mvcc_watcher_total 17\n";
        assert_eq!(prompt_watchers(&format!("{late}{all}")), Some(15));
        assert_eq!(prompt_watchers(late), None);
    }
}
