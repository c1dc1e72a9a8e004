//! `LATCH.*`: latches that are counted down.

pub mod down;
pub mod set;
pub mod wait;
