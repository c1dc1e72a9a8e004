//! Losses of power while clients lock: what an `appendfsync` really keeps.
//!
//! A round lets clients acquire, renew and release (`load`: exclusive locks, at full speed; `kinds`: every kind), cuts
//! the power, starts the server from what its disk has (`harness::disk`) or promotes its replica, and compares the data
//! with the replies and messages that the clients have received (`check`: exclusive locks, tokens; `judge`: every
//! kind). A setting is a server configuration with its disk; all its rounds use one server and its data, or a pair that
//! changes roles.

pub mod check;
pub mod data;
pub mod judge;
pub mod kinds;
pub mod load;
pub mod report;
pub mod round;

#[cfg(test)]
mod forged;

/// A configuration of the server, its disk and its clients.
pub struct Setting {
    pub name: &'static str,
    pub about: &'static str,
    pub options: &'static [&'static str],
    /// The mean time of a sync, in microseconds.
    pub sync_us: u64,
    /// The time from the start of the load to the loss, in milliseconds.
    pub cut_after: std::ops::Range<u64>,
    /// How often the data is saved by `BGSAVE`, in milliseconds.
    pub save_every: Option<u64>,
    /// In so many of a hundred losses `BGREWRITEAOF` runs.
    pub rewrites: u8,
    /// Whether a replica is promoted after the loss.
    pub has_replica: bool,
    /// Whether the disk reports syncs that it has not made.
    pub lies: bool,
    /// The leases of holds, in milliseconds. Short ones are asked for again after the restart instead of being looked
    /// for in the data.
    pub lease_ms: u64,
    /// Whether a reply promises that the change is on the disk.
    pub keeps_replied: bool,
}

impl Setting {
    /// The lease that renewals set: longer where it is looked for in the data, otherwise no longer than
    /// `lock.startup-delay`.
    fn renewed_ms(&self) -> u64 {
        match self.lease_ms < LONG_LEASE {
            true => self.lease_ms,
            false => 2 * self.lease_ms,
        }
    }
}

pub const LONG_LEASE: u64 = 60_000;
const SHORT_LEASE: u64 = 1_500;

const PLAIN: Setting = Setting {
    name: "always",
    about: "`appendfsync always`",
    options: &["--appendonly", "yes", "--appendfsync", "always"],
    sync_us: 1_000,
    cut_after: 100..700,
    save_every: None,
    rewrites: 25,
    has_replica: false,
    lies: false,
    lease_ms: LONG_LEASE,
    keeps_replied: true,
};

const EVERYSEC: Setting = Setting {
    name: "everysec",
    about: "`appendfsync everysec`",
    options: &["--appendonly", "yes", "--appendfsync", "everysec"],
    cut_after: 200..1_600,
    keeps_replied: false,
    ..PLAIN
};

pub const SETTINGS: [Setting; 12] = [
    PLAIN,
    Setting {
        name: "always-threads",
        about: "`appendfsync always`, `io-threads 4`",
        options: &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--io-threads",
            "4",
        ],
        ..PLAIN
    },
    Setting {
        name: "always-text",
        about: "`appendfsync always`, `aof-use-rdb-preamble no`, a rewrite in each loss",
        options: &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--aof-use-rdb-preamble",
            "no",
        ],
        rewrites: 100,
        ..PLAIN
    },
    EVERYSEC,
    Setting {
        name: "everysec-rewrite",
        about: "`appendfsync everysec`, a rewrite in each loss",
        rewrites: 100,
        ..EVERYSEC
    },
    Setting {
        name: "everysec-threads",
        about: "`appendfsync everysec`, `io-threads 4`",
        options: &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--io-threads",
            "4",
        ],
        ..EVERYSEC
    },
    Setting {
        name: "everysec-slow",
        about: "`appendfsync everysec`, a sync takes 0 to 3 s",
        sync_us: 1_500_000,
        cut_after: 500..3_500,
        ..EVERYSEC
    },
    Setting {
        name: "no",
        about: "`appendfsync no`",
        options: &["--appendonly", "yes", "--appendfsync", "no"],
        cut_after: 100..1_000,
        ..EVERYSEC
    },
    Setting {
        name: "rdb",
        about: "no AOF, `BGSAVE` every 300 ms",
        options: &[],
        cut_after: 100..1_500,
        save_every: Some(300),
        ..EVERYSEC
    },
    Setting {
        name: "replica",
        about: "`appendfsync everysec`, the replica is promoted",
        options: &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--repl-diskless-sync-delay",
            "0",
        ],
        cut_after: 200..1_200,
        has_replica: true,
        ..EVERYSEC
    },
    Setting {
        name: "no-delay",
        about: "`everysec`, `lock.startup-delay 0`, leases of 1.5 s",
        cut_after: 200..1_500,
        lease_ms: SHORT_LEASE,
        ..EVERYSEC
    },
    Setting {
        name: "startup-delay",
        about: "`everysec`, `lock.startup-delay` 1.5 s, leases of 1.5 s",
        options: &[
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--lock.startup-delay",
            "1500",
        ],
        cut_after: 200..1_500,
        lease_ms: SHORT_LEASE,
        ..EVERYSEC
    },
];
