//! `redis-lock` as its users have it: the program itself, real servers, real commands under the lock.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod breaks;
mod check;
mod completions;
mod config;
mod console;
mod crowd;
mod descendants;
mod errors;
mod graph;
mod hooks;
mod keys;
mod left;
mod look;
mod lost;
mod pages;
mod places;
mod program;
mod recipes;
mod rights;
mod road;
mod run;
mod samples;
mod samples_crate;
mod several;
mod signals;
mod steps;
mod terms;
mod tls;
mod top;
mod watch;
