//! Tests of the core, without a server.
//!
//! * [`sim`]: a simulated server around [`Locks`](super::Locks): raw keys, two clocks that the test sets, connections,
//!   and a function for every input, in a file for each kind of resource. It carries effects out and asserts what must
//!   hold at every effect, and that the core leaves a key as it stated before the decision (`sim::rest`).
//! * [`transcripts`]: commands to that server with their replies and effects, in text files by subject.
//! * [`model`]: random histories of all inputs, compared step by step with a naive model of the contract: of
//!   exclusive locks, of several keys, of a read-write lock, of a semaphore.
//! * [`explore`]: every history of small scenes, up to a depth, compared with the same model.
//! * [`asked`]: calls of the shell that the simulator's commands do not make.
//! * [`bounds`]: numbers that one decision does not exceed.
//! * [`passed_over`]: more tickets than one decision passes over.
//! * [`search`]: the search for deadlocks, compared with a plain search of a graph.
//! * [`to_bind`]: requests with `SESSION` that wait, and the limit of bound holds.
//! * [`server_events`]: events of the server after which tracked grants are compared, moved or ended.
//!
//! The parts that work alone (queue, key state, tokens) have their tests beside the code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod asked;
mod bounds;
mod explore;
mod model;
mod passed_over;
mod search;
mod server_events;
pub mod sim;
mod to_bind;
mod transcripts;
