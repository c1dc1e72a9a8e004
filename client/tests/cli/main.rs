//! `redis-lock` as its users have it: the program itself, real servers, real commands under the lock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod console;
mod crowd;
mod descendants;
mod errors;
mod keys;
mod look;
mod lost;
mod pages;
mod places;
mod program;
#[path = "../locks/proxy.rs"]
#[allow(dead_code)] // the tests of the crate want more of it
mod proxy;
mod road;
mod run;
mod samples;
mod samples_crate;
mod several;
mod signals;
mod tls;
