//! Tests of the pure core, without a server.
//!
//! * [`sim`]: a small simulated server around [`Locks`](super::Locks): a key space, two clocks that
//!   are set by hand, connections, and a function for everything that can happen to a lock. It
//!   carries effects out, and whatever must hold at every single effect is asserted there.
//! * [`transcripts`]: conversations with that server in files that read like a session. They show
//!   what the contract says, subject by subject.
//! * [`model`]: random sequences of all inputs, compared step by step with a naive model of the
//!   contract.
//!
//! * [`semaphores`]: the same for semaphores and latches.
//! * [`read_write`]: the same three for the read-write lock, on raw keys.
//! * [`sums`]: the sums of counters that hold for every kind.
//! * [`rest`]: within all of them, whether the core leaves a key as it says before a decision.
//!
//! The parts that stand alone (queue, key state, tokens) have their tests beside the code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod many;
mod model;
mod read_write;
mod rest;
mod search;
mod semaphores;
mod sim;
mod sums;
mod transcripts;
