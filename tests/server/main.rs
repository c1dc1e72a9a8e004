//! The module on real servers, one file a concern.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod acl;
mod atomic_moves;
mod citizenship;
mod citizenship_settings;
mod clocks;
mod cluster;
mod cluster_of_six;
mod commands;
mod commands_anywhere;
mod commands_refused;
mod deadlock;
mod differential;
mod docs;
mod faults;
mod first_steps;
mod hazards;
mod interplay;
mod key_events;
mod latches;
mod late_listeners;
mod limits;
mod many;
mod many_waits;
mod memory;
mod mixed_fleet;
mod parked;
mod persistence;
mod read_write;
mod read_write_beside;
mod redisson;
mod redisson_native;
mod redisson_rw;
mod reliability_examples;
mod replication;
mod scale;
mod scan;
mod semaphore_faults;
mod semaphore_sessions;
mod semaphore_wakeups;
mod semaphores;
mod semaphores_kept;
mod semaphores_shared;
mod sentinel;
mod session;
mod session_cluster;
mod session_lease;
mod session_scale;
mod startup_delay;
mod token_premise;
mod tokens;
mod upgrade;
mod wait;
mod wakeups;

use redis_lock_harness as common;
