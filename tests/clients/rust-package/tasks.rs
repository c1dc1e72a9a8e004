//! The tasks of docs/TASKS.md, as `build.rs` writes them.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/tasks.rs"));
