//! `redis-lock` as its users have it: the program itself, real servers, real commands under the lock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod console;
mod crowd;
mod errors;
mod look;
mod lost;
mod pages;
mod places;
mod program;
mod run;
mod several;
mod signals;
mod tls;
