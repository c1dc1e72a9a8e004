//! Locks over several independent servers, which die, are silent, are cut off, and come back.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod figures;
mod fleet;
mod model;
mod multi;
mod partitions;
mod red;
mod shown;
