//! `LOCK.*`: locks of one key and of several, exclusive or READ and WRITE.

pub mod acquire;
pub mod break_lock;
#[cfg(feature = "fault-injection")]
pub mod fault;
pub mod help;
pub mod info;
pub mod macquire;
pub mod mrelease;
pub mod mrenew;
pub mod owner;
mod read_write;
pub mod redisson;
pub mod release;
pub mod renew;
pub mod scan;
pub mod top;
