//! The module on real servers: a folder for each subject, a file for each concern. docs/TESTING.md says which test
//! belongs where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// Random sequences of commands against a naive model; tests/fuzz runs the same player.
mod differential;

/// Nodes of a cluster and slots that move.
mod cluster {
    mod atomic_moves;
    mod node;
    mod six_nodes;
}

/// How commands parse, reply, refuse and scan, on which keys and for which users.
mod commands {
    pub mod acl;
    mod break_to;
    mod collisions;
    mod contexts;
    mod databases;
    mod fence_faults;
    mod fenced;
    mod fenced_modules;
    mod fenced_table;
    mod field_ttls;
    mod hidden_keys;
    mod key_events;
    mod kinds;
    mod limits;
    mod names_collide;
    mod notes;
    mod refusals;
    mod replies;
    mod scan;
    mod shares;
    mod string_holders;
    mod users;
}

/// The documentation: its samples run verbatim.
mod docs {
    pub mod acl_example;
    pub mod commands_page;
    mod examples;
    mod languages;
    mod links;
    mod migration;
    mod red_lock_examples;
    mod reliability_examples;
    mod samples;
    mod samples_inventory;
    mod users;
    mod window;
}

/// A grant and another event in one tick.
mod handoff {
    mod condemned;
    mod hazards;
    mod interplay;
    mod one_reply;
    mod write_hazards;
}

/// The module in its server: settings, INFO, panics, memory, unload, upgrade.
mod lifecycle {
    mod api_faults;
    pub mod faults;
    mod info_section;
    mod introspection;
    mod memory;
    mod renamed_commands;
    pub mod settings;
    pub mod startup_delay;
    mod unload;
}

/// Locks on several keys.
mod multi {
    mod many;
    mod many_waits;
}

/// READ and WRITE holds.
mod read_write {
    mod bounds;
    mod replies;
    mod sibling_keys;
}

/// A table: every option of every command that waits, by every ending of a wait and of a hold.
mod options_by_endings;

/// Redisson on the same keys: its scripts, its waiters.
mod redisson {
    mod exclusive;
    mod mixed_fleet;
    mod permits;
    mod read_write;
    mod window_kinds;
    mod windows;
}

/// Replicas, the AOF, restarts and fail-overs.
mod replication {
    mod async_load;
    mod effects;
    mod late_start;
    mod persistence;
    mod rolling_upgrade;
    mod sentinel;
    mod wait;
}

/// Semaphores and latches.
mod semaphore {
    mod counts;
    mod faults;
    mod latches;
    mod persistence;
    mod replies;
    mod sessions;
    mod wakeups;
}

/// Holds that are bound to a connection.
mod session {
    mod cluster;
    pub mod endings;
    mod lease;
    mod scale;
}

/// Requests with `NOTIFY`: the outcome is a message.
mod tickets {
    mod cluster;
    mod hearing;
    mod interplay;
    mod kinds;
    mod outcomes;
    mod requests;
    pub mod scene;
    mod server_events;
}

/// Fencing tokens and the horizons that keep them rising.
mod tokens {
    mod horizons;
    mod monotonic;
    mod premise;
}

/// Parked requests: replies, places in the queue, wakeups, deadlocks.
mod waiting {
    mod clocks;
    mod deadlock;
    mod given_up;
    mod parked;
    mod scale;
    mod short_queue;
    mod subscribed;
    mod turns;
    mod wakeups;
}

use redis_lock_harness as common;
