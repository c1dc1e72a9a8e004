//! Faults while many clients lock, and a checker of what they were told.
//!
//! `play` runs servers, clients, a watcher and a nemesis for a while; everybody writes a `history`; `check`
//! judges it. A scenario is a `play::Nemesis` (who has the servers, and breaks things) and a `play::Plan`.

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
pub mod counter;
pub mod history;
pub mod look;
pub mod many;
pub mod one;
pub mod outside;
pub mod play;
pub mod report;
pub mod request;
pub mod route;
pub mod scenarios;
pub mod stall;
pub mod totals;
pub mod watcher;
pub mod wire;
