//! `redis-lock` as its users have it: the program itself, real servers, real commands under the lock.

mod errors;
mod lost;
mod program;
mod run;
mod signals;
