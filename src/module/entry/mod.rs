//! The functions that the server calls, and the commands as the server knows them: the top layer of the shell.

pub mod alarm;
pub mod clients;
pub mod command;
mod condemned;
pub mod events;
mod info;
pub mod load;
pub mod parked;
pub mod slots;
