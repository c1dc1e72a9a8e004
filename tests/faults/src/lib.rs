//! Faults while many clients use locks, and the judges of the replies.
//!
//! `play` runs servers, clients, a watcher and a nemesis for a while; all of them write a `history`, which `porcupine`
//! and `check` judge.
//! A scenario is a `play::Nemesis` (which owns the servers and causes faults) and a `play::Plan`.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

pub mod asking;
pub mod bulk;
pub mod check;
pub mod client;
pub mod connection;
pub mod counter;
pub mod export;
pub mod history;
pub mod latches;
pub mod long_run;
pub mod look;
pub mod many;
pub mod matrix;
pub mod one;
pub mod outside;
pub mod play;
pub mod porcupine;
pub mod power;
pub mod report;
pub mod request;
pub mod route;
pub mod scenarios;
pub mod stall;
mod stream;
pub mod tickets;
pub mod totals;
pub mod watcher;
pub mod wire;
