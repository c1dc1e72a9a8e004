//! `LOCK.*`: locks of one key and of several, exclusive or READ and WRITE.

pub mod acquire;
pub mod fenced;
pub mod info;
pub mod list;
pub mod many;
pub mod other;
mod read_write;
pub mod release;
